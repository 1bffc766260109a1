"""Step 6 of 8: settle. What became of the effect, on the word of whom, and what it cost.

Rules: REP-04 to REP-06, REC-05, REC-07, BUD-03, ADM-07 (first-hand reports need the claim; a late one settles an
unknown effect once), AUD-02 (recording an outcome never waits for a sink).
A host's word never releases money: success settles at the maximum at least, anything else is `unknown`.
Next: step 7, `succeeded`, `failed` or `no_effect`; or `unknown`, which step 8 (reconciliation) may resolve later.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from issuer.flow import spans
from issuer.flow.content import erase_content
from issuer.flow.ending import record_end
from issuer.flow.refusing import collected_since
from issuer.house import Visit
from issuer.operations.contract import Answer, Proof
from ledger.changes import Step
from ledger.errors import Malformed
from ledger.model import Amounts, AttributeValue, Effect, EvidenceClass, InstantMs, costs
from ledger.port import Committed, Verdict, View
from ledger.refusals import Refusal, RefusalCode
from ledger.rules import evidence_of, host_claim_charge, outcome_changes, refuse_claim, refuse_settling
from ledger.states import SETTLED, EffectState


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What is known about a dispatched effect.

    Attributes:
        target: the state it ends in, or `unknown`.
        charged: what to charge per unit; None is the maximum, and nothing for `no_effect`.
        source, reference: where the word comes from, and the provider's own reference.
        reason: one snake_case word for why it is this outcome.
        when_late: what the same word amounts to once the deadline has passed; None for the same (REC-07).
    """

    target: EffectState
    evidence_class: EvidenceClass
    source: str
    reason: str
    reference: str = ""
    charged: Amounts | None = None
    when_late: "Outcome | None" = None


_PROOFS: Mapping[Proof, EffectState] = {
    Proof.SUCCEEDED: EffectState.SUCCEEDED,
    Proof.FAILED: EffectState.FAILED,
    Proof.NO_EFFECT: EffectState.NO_EFFECT,
    Proof.ACCEPTED: EffectState.UNKNOWN,
    Proof.PARTIAL: EffectState.UNKNOWN,
    Proof.NOTHING: EffectState.UNKNOWN,
}
_REASONS: Mapping[Proof, str] = {
    Proof.ACCEPTED: "service_accepted",
    Proof.PARTIAL: "service_did_part",
    Proof.NOTHING: "answer_proves_nothing",
}


def from_answer(answer: Answer) -> Outcome:
    """Return the outcome that a service's answer proves under its contract, and no more (REP-06).

    A charge that is no whole amount (EFF-04), or that stands beside a proof of no effect (REC-05), proves nothing at
    all: the effect is `unknown` and a person looks.
    """
    charged: Amounts | None = None
    if answer.charged is not None:
        try:
            charged = costs(answer.charged)
        except Malformed:
            return lost("charge_not_whole")
    if answer.proof is Proof.NO_EFFECT and any((charged or {}).values()):
        return lost("charge_contradicts_proof")
    return Outcome(
        target=_PROOFS[answer.proof],
        evidence_class=EvidenceClass.NONE if answer.proof is Proof.NOTHING else EvidenceClass.SERVICE,
        source=answer.source,
        reason=_REASONS.get(answer.proof, "service_answered"),
        reference=answer.reference,
        charged=charged,
    )


def not_sent(reason: str) -> Outcome:
    """Return the outcome of a winner that proves by itself that it sent nothing (REP-04)."""
    return Outcome(
        target=EffectState.NO_EFFECT, evidence_class=EvidenceClass.NOT_SENT, source="winner", reason=reason
    )


def lost(source: str) -> Outcome:
    """Return the outcome of an answer that never came, whatever the exception was (REP-05)."""
    return Outcome(
        target=EffectState.UNKNOWN, evidence_class=EvidenceClass.NONE, source=source, reason="answer_lost"
    )


def host_claims(effect: Effect, *, succeeded: bool, reported: Amounts | None, source: str) -> Outcome:
    """Return what a host's word amounts to: success at the maximum at least, or `unknown` (REC-07, ADR-0007)."""
    if not succeeded:
        return Outcome(
            target=EffectState.UNKNOWN,
            evidence_class=EvidenceClass.HOST_CLAIM,
            source=source,
            reason="host_does_not_know",
        )
    return Outcome(
        target=EffectState.SUCCEEDED,
        evidence_class=EvidenceClass.HOST_CLAIM,
        source=source,
        reason="host_says_so",
        charged=host_claim_charge(effect, reported),
    )


def _charge(effect: Effect, outcome: Outcome) -> Amounts:
    if outcome.target is EffectState.NO_EFFECT:
        return dict.fromkeys(effect.cost, 0)
    # A unit that nobody measured is charged its maximum: silence about it releases nothing (REP-06).
    return {**effect.cost, **(outcome.charged or {})}


def settle(
    visit: Visit,
    effect: Effect,
    claim_hash: bytes,
    outcome: Outcome,
) -> Committed[Effect]:
    """Record an outcome on the word of the winner of the admission, and settle what it cost.

    Raises:
        Fault: as `ledger.port.Ledger.transact`.
    """
    said = outcome

    def decide(view: View, now: InstantMs) -> Verdict[Effect]:
        nonlocal said
        current = view.effect(effect.effect_id)
        if current is None:
            gone, over = collected_since(view, effect), Refusal(code=RefusalCode.COLLECTED)
            step = Step(transition=spans.refused(visit, over, effect=gone))
            return Verdict(value=gone, refusal=over, steps=(step,))
        claim = view.claim(current.effect_id)
        late = current.state is EffectState.UNKNOWN or (claim is not None and now >= claim.deadline_ms)
        said = (outcome.when_late or outcome) if late else outcome
        no = refuse_claim(claim, claim_hash) or refuse_settling(current)
        if no is None and said.target is current.state:
            no = Refusal(code=RefusalCode.OUTCOME_UNKNOWN)
        if no is not None or claim is None:
            no = no or Refusal(code=RefusalCode.FORBIDDEN, field="claim")
            step = Step(transition=spans.refused(visit, no, effect=current))
            return Verdict(value=current, refusal=no, steps=(step,))
        return Verdict(value=current, steps=(_step(visit, current, said, late=late, now=now),))

    committed = record_end(visit.house, decide)
    if committed.refusal is None and said.target in SETTLED:
        erase_content(visit.house, (effect,))
    return committed


def _step(visit: Visit, effect: Effect, outcome: Outcome, *, late: bool, now: InstantMs) -> Step:
    charged = _charge(effect, outcome)
    evidence = evidence_of(
        effect,
        evidence_class=outcome.evidence_class,
        source=outcome.source,
        proves=str(outcome.target),
        reference=outcome.reference,
        late=late,
        now=now,
        charged=outcome.charged,
    )
    said: dict[str, AttributeValue] = {
        "evidence_class": str(outcome.evidence_class),
        "evidence_source": outcome.source,
        "reason": outcome.reason,
        "late": late,
    }
    if outcome.reference:
        said["reference"] = outcome.reference
    if outcome.target is not EffectState.UNKNOWN:
        said["charged"] = spans.amounts(charged)
        overrun = {unit: amount - effect.cost.get(unit, 0) for unit, amount in charged.items()}
        above = {unit: amount for unit, amount in overrun.items() if amount > 0}
        if above:
            said["overrun"] = spans.amounts(above)
    transition = spans.moved(visit, effect, outcome.target, **said)
    changes = outcome_changes(effect, target=outcome.target, charged=charged, evidence=evidence)
    return Step(transition=transition, changes=changes)
