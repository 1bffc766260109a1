"""Does the seal of a permit open for exactly this effect, and say what the rows beside it say (PER-02)?

It does not judge expiry or use. Next: `issuer.flow.admit` asks at admission, `issuer.checking` asks for every permit.
"""

from issuer.sealing import KeyRing, SealBroken, open_permit
from ledger.model import Effect, LedgerId, Permit


def seal_holds(ring: KeyRing, ledger_id: LedgerId, effect: Effect, permit: Permit) -> bool:
    """Say whether the seal opens for this ledger, effect and binding, and was made for these rows."""
    try:
        claims = open_permit(
            ring,
            permit.seal,
            ledger_id=ledger_id,
            effect_id=effect.effect_id,
            binding_digest=effect.binding_digest,
        )
    except SealBroken:
        return False
    sealed = (
        claims.permit_id,
        claims.effect_id,
        claims.task_id,
        claims.issued_ms,
        claims.expires_ms,
        claims.tier,
    )
    stored = (
        permit.permit_id,
        effect.effect_id,
        effect.task_id,
        permit.issued_ms,
        permit.expires_ms,
        str(permit.tier),
    )
    return sealed == stored and dict(claims.costs) == dict(effect.cost)
