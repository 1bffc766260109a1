"""What nobody ended ends here: overdue or orphaned admissions become `unknown`, unused permits and invocations end.

Rules: ADM-07 (only after the deadline, or when the sender is provably gone; never into anything better), BUD-04 (the
maximum stays held), REP-05, PER-03 (expired exactly at the instant), BUD-06 (expiry gives back what issuing took),
INV-02 (an invocation past its deadline failed), ADM-05 (what a revocation left void ends as revoked).
Whoever touches the ledger next does it. Nothing here sends, repeats or inspects.
"""

from dataclasses import dataclass
from typing import Final

from issuer.flow import spans
from issuer.flow.content import erase_content
from issuer.flow.invocations import overdue_steps
from issuer.flow.stops import sweep_void
from issuer.house import House, Visit
from issuer.notifying import tell_unknown
from ledger.changes import EffectMoved, Step
from ledger.model import Claim, Effect, EvidenceClass, InstantMs
from ledger.port import Verdict, View
from ledger.rules import evidence_of, is_orphaned, outcome_changes
from ledger.states import EffectState

EXPIRIES_MAX: Final = 64
"""How many expiries one transaction records; the next touch goes on with the rest."""


def gone_senders(house: House, claims: tuple[Claim, ...]) -> frozenset[str]:
    """Return the effects whose sender is provably gone; asked before the lock, true for good once true."""
    return frozenset(
        claim.effect_id for claim in claims if house.instance.is_gone(claim.instance, claim.boot)
    )


def orphaned_step(
    visit: Visit, effect: Effect, claim: Claim | None, now: InstantMs, *, sender_is_gone: bool
) -> Step | None:
    """Return the step that turns an admission into `unknown`, or None where nobody may do that yet."""
    if effect.state is not EffectState.ADMITTED or claim is None:
        return None
    if not is_orphaned(claim, now=now, sender_is_gone=sender_is_gone):
        return None
    reason = "sender_gone" if sender_is_gone else "deadline_passed"
    evidence = evidence_of(
        effect,
        evidence_class=EvidenceClass.NONE,
        source=reason,
        proves=str(EffectState.UNKNOWN),
        reference="",
        late=False,
        now=now,
    )
    transition = spans.moved(visit, effect, EffectState.UNKNOWN, reason=reason)
    changes = outcome_changes(effect, target=EffectState.UNKNOWN, charged={}, evidence=evidence)
    return Step(transition=transition, changes=changes)


def expired_step(visit: Visit, effect: Effect, *, reason: str = "lifetime_over") -> Step:
    """Return the step that ends an effect whose lifetime is over and that was never admitted."""
    moved = EffectMoved(effect_id=effect.effect_id, origin=effect.state, target=EffectState.EXPIRED)
    transition = spans.moved(visit, effect, EffectState.EXPIRED, reason=reason)
    return Step(transition=transition, changes=(moved,))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    """What one sweep ended: how many effects and invocations, the effects that are over, and those now unknown."""

    number: int
    expired: tuple[Effect, ...]
    unknown: tuple[Effect, ...]


def sweep(visit: Visit) -> int:
    """End everything that is overdue, orphaned, over or void; return how many effects and invocations that were.

    Where nothing is due, nothing is written and no writer waits.

    Raises:
        Fault: as `ledger.port.Ledger.transact`; then nothing changed.
    """
    return _sweep_overdue(visit) + sweep_void(visit)


def _sweep_overdue(visit: Visit) -> int:
    house = visit.house
    claims = tuple(house.ledger.read(lambda view: view.claims_open()))
    over = house.ledger.read(lambda view: view.effects_over(house.now(), limit=1))
    gone = gone_senders(house, claims)
    due = [
        claim
        for claim in claims
        if is_orphaned(claim, now=house.now(), sender_is_gone=claim.effect_id in gone)
    ]
    late = house.ledger.read(lambda view: view.invocations_over(house.now(), limit=1))
    if not due and not over and not late:
        return 0

    def decide(view: View, now: InstantMs) -> Verdict[_Ended]:
        expired = tuple(view.effects_over(now, limit=EXPIRIES_MAX))
        steps = [expired_step(visit, effect) for effect in expired]
        unknown = []
        for claim in view.claims_open():
            effect = view.effect(claim.effect_id)
            if effect is None:
                continue
            step = orphaned_step(visit, effect, claim, now, sender_is_gone=claim.effect_id in gone)
            if step is not None:
                steps.append(step)
                unknown.append(effect)
        steps += overdue_steps(visit, view, now)
        ended = _Ended(number=len(steps), expired=expired, unknown=tuple(unknown))
        return Verdict(value=ended, steps=tuple(steps))

    ended = house.ledger.transact(decide).value
    erase_content(house, ended.expired)
    for effect in ended.unknown:
        tell_unknown(house, effect)
    return ended.number
