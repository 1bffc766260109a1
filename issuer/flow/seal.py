"""Does the seal of a permit open for exactly this effect, and say what the rows beside it say (PER-02)?

It does not judge expiry or use. Next: `issuer.flow.admit` asks at admission, `issuer.checking` asks for every permit.
"""

from issuer.sealing import KeyRing, permit_says
from ledger.model import Effect, LedgerId, Permit
from ledger.port import SealedEffect, SealedPermit


def seal_holds(
    ring: KeyRing, ledger_id: LedgerId, effect: Effect | SealedEffect, permit: Permit | SealedPermit
) -> bool:
    """Say whether the seal opens for this ledger, effect and binding, and was made for these rows."""
    return permit_says(
        ring,
        permit.seal,
        ledger_id=ledger_id,
        effect_id=effect.effect_id,
        binding_digest=effect.binding_digest,
        permit_id=permit.permit_id,
        task_id=effect.task_id,
        issued_ms=permit.issued_ms,
        expires_ms=permit.expires_ms,
        tier=str(permit.tier),
        costs={str(unit): amount for unit, amount in effect.cost.items()},
    )
