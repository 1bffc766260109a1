"""Overdue and orphaned admissions become `unknown`, by whoever touches them next.

Rules: ADM-07 (only after the deadline, or when the sender is provably gone; never into anything better), BUD-04 (the
maximum stays held), REP-05. Nothing here sends, repeats or inspects.
"""

from issuer.flow import spans
from issuer.house import House, Visit
from ledger.changes import Step
from ledger.model import Claim, Effect, EvidenceClass, InstantMs
from ledger.port import Verdict, View
from ledger.rules import evidence_of, is_orphaned, outcome_changes
from ledger.states import EffectState


def gone_senders(house: House, claims: tuple[Claim, ...]) -> frozenset[str]:
    """Return the effects whose sender is provably gone; asked before the lock, true for good once true."""
    return frozenset(
        claim.effect_id for claim in claims if house.instance.is_gone(claim.instance, claim.boot)
    )


def orphaned_step(
    visit: Visit,
    effect: Effect,
    claim: Claim | None,
    now: InstantMs,
    *,
    sender_is_gone: bool,
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


def sweep(visit: Visit) -> int:
    """Turn every overdue or orphaned admission into `unknown`; return how many there were.

    Raises:
        Fault: as `ledger.port.Ledger.transact`; then nothing changed.
    """
    claims = tuple(visit.house.ledger.read(lambda view: view.claims_open()))
    if not claims:
        return 0
    gone = gone_senders(visit.house, claims)

    def decide(view: View, now: InstantMs) -> Verdict[int]:
        steps: list[Step] = []
        for claim in view.claims_open():
            effect = view.effect(claim.effect_id)
            if effect is None:
                continue
            step = orphaned_step(visit, effect, claim, now, sender_is_gone=claim.effect_id in gone)
            if step is not None:
                steps.append(step)
        return Verdict(value=len(steps), steps=tuple(steps))

    return visit.house.ledger.transact(decide).value
