"""Step 7 of 8: settle. What became of the effect, on the word of whom, and what it cost.

Rules: REP-04 to REP-06, REC-07, BUD-03, ADM-07 (first-hand reports need the claim; a late one settles an
unknown effect once), REC-05 (what speaks against the record is kept and flagged, and moves nothing), AUD-02 (recording
an outcome never waits for a sink).
A host's word never releases money: success settles at the maximum at least, anything else is `unknown`.
Next: an end, `succeeded`, `failed` or `no_effect`; or `unknown`, which step 8, `issuer.flow.reconcile`, may resolve.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from issuer.flow import spans
from issuer.flow.binding import Pinned, non_public
from issuer.flow.content import erase_content
from issuer.flow.ending import record_end
from issuer.flow.refusing import collected_since
from issuer.house import House, Visit
from issuer.notifying import tell_unknown
from issuer.operations.contract import Answer, Proof
from issuer.operations.repeating import repeats
from ledger.changes import Step
from ledger.errors import Fault, Malformed
from ledger.model import Amounts, Effect, EvidenceClass, InstantMs, costs
from ledger.port import Committed, Verdict, View
from ledger.refusals import Refusal, RefusalCode
from ledger.rules import (
    contradicted,
    evidence_of,
    final_charge,
    host_claim_charge,
    outcome_changes,
    refuse_claim,
    refuse_settling,
)
from ledger.states import SETTLED, EffectState
from ledger.transitions import AttributeValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What is known about a dispatched effect.

    Attributes:
        target: the state it ends in, or `unknown`.
        charged: what to charge per unit; None is the maximum, and nothing for `no_effect`.
        source, reference: where the word comes from, and the provider's own reference.
        reason: one snake_case word for why it is this outcome.
        attempt, seen: of a reconciliation, what was tried and what was seen; empty for first-hand words.
        when_late: what the same word amounts to once the deadline has passed; None for the same (REC-07).
    """

    target: EffectState
    evidence_class: EvidenceClass
    source: str
    reason: str
    reference: str = ""
    charged: Amounts | None = None
    attempt: str = ""
    seen: str = ""
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
_ANSWERED: Final = "service_answered"
_LOST: Final = "answer_lost"
CHARGE_CONTRADICTS: Final = "charge_contradicts_proof"

WINNER_REASONS: Final = frozenset({*_REASONS.values(), _ANSWERED, _LOST, CHARGE_CONTRADICTS})
"""Reasons that only the winner of an admission gives, once its own sending is over."""


def from_answer(answer: Answer) -> Outcome:
    """Return the outcome that a service's answer proves under its contract, and no more (REP-06).

    A charge that is no whole amount proves no end (EFF-04); where the answer told of an effect, it stays the service's
    word, so that no later absence releases anything (REC-05). One beside a proof of no effect is kept as what was
    charged so far, and proves no end (REC-05). Either way the effect is `unknown` and a person looks.
    """
    charged: Amounts | None = None
    if answer.charged is not None:
        try:
            charged = costs(answer.charged)
        except Malformed:
            return _unreadable_charge(answer)
    contradicts = answer.proof is Proof.NO_EFFECT and any((charged or {}).values())
    return Outcome(
        target=EffectState.UNKNOWN if contradicts else _PROOFS[answer.proof],
        evidence_class=EvidenceClass.NONE if answer.proof is Proof.NOTHING else EvidenceClass.SERVICE,
        source=answer.source,
        reason=CHARGE_CONTRADICTS if contradicts else _REASONS.get(answer.proof, _ANSWERED),
        reference=answer.reference,
        charged=charged,
    )


def _unreadable_charge(answer: Answer) -> Outcome:
    heard = answer.proof in {Proof.SUCCEEDED, Proof.FAILED, Proof.PARTIAL, Proof.ACCEPTED}
    word = EvidenceClass.SERVICE if heard else EvidenceClass.NONE
    return replace(lost("charge_not_whole"), evidence_class=word, reference=answer.reference if heard else "")


def without_protected(outcome: Outcome, pinned: Pinned) -> Outcome:
    """Return the outcome without its reference, where that repeats a value that is not public in any form (SEC-01).

    A service may echo what it was sent. The proof stands; a reference is kept for people, and proves nothing.
    """
    hidden = [str(pinned.values[name]) for name in non_public(pinned.operation)]
    if any(repeats(outcome.reference, text) for text in hidden):
        return replace(outcome, reference="")
    return outcome


def not_sent(reason: str) -> Outcome:
    """Return the outcome of a winner that proves by itself that it sent nothing (REP-04)."""
    return Outcome(
        target=EffectState.NO_EFFECT, evidence_class=EvidenceClass.NOT_SENT, source="winner", reason=reason
    )


def lost(source: str) -> Outcome:
    """Return the outcome of an answer that never came, whatever the exception was (REP-05)."""
    return Outcome(target=EffectState.UNKNOWN, evidence_class=EvidenceClass.NONE, source=source, reason=_LOST)


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

    def decide(view: View, now: InstantMs) -> Verdict[Effect]:
        current = view.effect(effect.effect_id)
        if current is None:
            gone, over = collected_since(view, effect), Refusal(code=RefusalCode.COLLECTED)
            step = Step(transition=spans.refused(visit, over, effect=gone))
            return Verdict(value=gone, refusal=over, steps=(step,))
        claim = view.claim(current.effect_id)
        no = refuse_claim(claim, claim_hash)
        late = current.state is not EffectState.ADMITTED or claim is None or now >= claim.deadline_ms
        said = (outcome.when_late or outcome) if late else outcome
        if no is None and not _is_news(view, current, said):
            no = refuse_settling(current) or Refusal(code=RefusalCode.OUTCOME_UNKNOWN)
        if no is not None:
            step = Step(transition=spans.refused(visit, no, effect=current))
            return Verdict(value=current, refusal=no, steps=(step,))
        step = outcome_step(visit, view, current, said, late=late, now=now)
        return Verdict(value=current, refusal=refuse_settling(current), steps=(step,))

    committed = record_end(visit.house, decide)
    if committed.refusal is None:
        _erase_if_over(visit.house, effect)
    return committed


def _erase_if_over(house: House, effect: Effect) -> None:
    """Erase the content of an effect that is over by now; of one that is unknown it stays, and people are told."""
    effect_id = effect.effect_id
    with suppress(Fault):
        current = house.ledger.read(lambda view: view.effect(effect_id))
        if current is not None and current.state in SETTLED:
            erase_content(house, (current,))
        if current is not None and current.state is EffectState.UNKNOWN:
            tell_unknown(house, current)


def _is_news(view: View, effect: Effect, outcome: Outcome) -> bool:
    """Say whether a first-hand word adds to what is on record: it settles, or it is evidence that nothing there says.

    That a service took or did a part, or that the winner's own sending is over, is kept of an unknown effect; what
    speaks against an outcome is kept beside it (REC-05). Each once.
    """
    if effect.state is EffectState.ADMITTED:
        return True
    if effect.state is EffectState.UNKNOWN and outcome.target is not EffectState.UNKNOWN:
        return True
    if effect.state is EffectState.UNKNOWN:
        is_host = outcome.evidence_class in {EvidenceClass.HOST_CLAIM, EvidenceClass.WRAPPER}
        return not is_host and not _is_known(view, effect, outcome)
    against = contradicted(effect, (), outcome.target)
    return effect.state in SETTLED and against is not None and not _is_known(view, effect, outcome)


def _is_known(view: View, effect: Effect, outcome: Outcome) -> bool:
    said = (outcome.evidence_class, outcome.source, str(outcome.target), dict(outcome.charged or {}))
    return any(
        (item.evidence_class, item.source, item.proves, dict(item.charged)) == said
        for item in view.evidence(effect.effect_id)
    )


def outcome_step(
    visit: Visit, view: View, effect: Effect, outcome: Outcome, *, late: bool, now: InstantMs
) -> Step:
    """Return the step that records `outcome` of an effect as it stands under the lock.

    It moves the effect where it may. Where the effect is over, or what is on record speaks against it, the evidence is
    kept and flagged, and nothing moves (REC-05).
    """
    known, before = view.evidence(effect.effect_id), view.charged(effect.effect_id)
    against = contradicted(effect, known, outcome.target)
    target = effect.state if against is not None or effect.state in SETTLED else outcome.target
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
    said = _said(outcome, late=late)
    if against is not None:
        said["contradicts"] = against
    moves = target is not effect.state
    if moves and target in SETTLED:
        charged = final_charge(effect, target, measured=outcome.charged, known=known, before=before)
        said |= _charged_said(effect, charged)
    else:
        charged = {}
        if outcome.charged:
            said["charged"] = spans.amounts(outcome.charged)
    transition = spans.moved(visit, effect, target, **said) if moves else spans.unmoved(visit, effect, **said)
    changes = outcome_changes(effect, target=target, charged=charged, evidence=evidence, before=before)
    return Step(transition=transition, changes=changes)


def _said(outcome: Outcome, *, late: bool) -> dict[str, AttributeValue]:
    said: dict[str, AttributeValue] = {
        "evidence_class": str(outcome.evidence_class),
        "evidence_source": outcome.source,
        "reason": outcome.reason,
        "late": late,
    }
    named = {"reference": outcome.reference, "attempt": outcome.attempt, "seen": outcome.seen}
    return {**said, **{name: value for name, value in named.items() if value}}


def _charged_said(effect: Effect, charged: Amounts) -> dict[str, AttributeValue]:
    overrun = {unit: amount - effect.cost.get(unit, 0) for unit, amount in charged.items()}
    above = {unit: amount for unit, amount in overrun.items() if amount > 0}
    return {"charged": spans.amounts(charged), **({"overrun": spans.amounts(above)} if above else {})}
