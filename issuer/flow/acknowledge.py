"""Acknowledging: an operator accepts the risk of an unknown effect, beside its state (ADR-0017).

Rules: REC-04 (it frees nothing; it may turn the maximum that is held into a charge of that maximum, under its own
name), BUD-04 (what was held stays unavailable, as a charge), REC-05 (later evidence still moves the state; the charge
stays). Each of the two, once.
Next: `issuer.flow.settle`, where an outcome meets a charge that was acknowledged before it.
"""

from issuer.flow import spans
from issuer.flow.ending import record_end
from issuer.flow.refusing import collected_since
from issuer.flow.signed_act import acting
from issuer.house import Visit
from ledger.changes import Change, CostSettled, EvidenceAdded, Step
from ledger.model import Effect, EvidenceClass, InstantMs
from ledger.port import Committed, Verdict, View
from ledger.refusals import Refusal, RefusalCode
from ledger.rules import evidence_of, refuse_settling
from ledger.states import EffectState
from ledger.transitions import TransitionName


def acknowledge(visit: Visit, effect: Effect, *, reason: str, charge: bool) -> Committed[Effect]:
    """Record that the risk of `effect` is accepted; with `charge` its held maximum is charged, at every level.

    Raises:
        Fault: as `ledger.port.Ledger.transact`; then nothing was recorded.
    """

    def decide(view: View, now: InstantMs) -> Verdict[Effect]:
        current = view.effect(effect.effect_id)
        if current is None:
            return _refused(visit, collected_since(view, effect), Refusal(code=RefusalCode.COLLECTED))
        no = _refuse(view, current, charge=charge)
        if no is not None:
            return _refused(visit, current, no)
        return Verdict(value=current, steps=(_step(visit, current, reason, now, charge=charge),))

    return record_end(visit.house, acting(visit, decide))


def _refused(visit: Visit, effect: Effect, refusal: Refusal) -> Verdict[Effect]:
    step = Step(transition=spans.refused(visit, refusal, effect=effect))
    return Verdict(value=effect, refusal=refusal, steps=(step,))


def _refuse(view: View, effect: Effect, *, charge: bool) -> Refusal | None:
    """Refuse what is not unknown, and what was acknowledged before in the same way."""
    if effect.state is not EffectState.UNKNOWN:
        return refuse_settling(effect) or Refusal(code=RefusalCode.ALREADY_CONSUMED)
    known = view.evidence(effect.effect_id)
    is_noted = any(item.evidence_class is EvidenceClass.ACKNOWLEDGED for item in known)
    is_charged = bool(view.charged(effect.effect_id))
    if is_charged or (is_noted and not charge):
        return Refusal(code=RefusalCode.NOTHING_TO_CHANGE)
    return None


def _step(visit: Visit, effect: Effect, reason: str, now: InstantMs, *, charge: bool) -> Step:
    evidence = evidence_of(
        effect,
        evidence_class=EvidenceClass.ACKNOWLEDGED,
        source="operator",
        proves=str(EffectState.UNKNOWN),
        reference="",
        late=True,
        now=now,
        charged=effect.cost if charge else None,
    )
    said = {"charged": spans.amounts(effect.cost)} if charge else {}
    transition = spans.beside(
        visit,
        TransitionName.EFFECT_ACKNOWLEDGED,
        effect,
        evidence_class=str(EvidenceClass.ACKNOWLEDGED),
        reason=reason,
        **said,
    )
    changes: tuple[Change, ...] = (EvidenceAdded(evidence=evidence),)
    if charge:
        held = CostSettled(effect_id=effect.effect_id, task_id=effect.task_id, charged=effect.cost)
        changes = (*changes, held)
    return Step(transition=transition, changes=changes)
