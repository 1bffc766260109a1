"""Step 8 of 8: reconcile. One authorized, bounded look at what became of an effect, and what it may conclude.

Rules: REC-01 (an attempt has one fixed deadline, and ends with the authority it began under), REC-02 (when absence is
conclusive), REC-05 (contradictory evidence is kept, flagged, and resolves nothing), REC-06 (each attempt is audited,
before anything is asked), BUD-04, BUD-05 (what a closed task has in flight is still reconciled), ADR-0016. In order:
  1. the sinks are ready   2. under the lock: the effect stands where it may be looked at; what is known of its sender
  is put on record; the attempt is, with its deadline   3. every required sink acknowledges that   4. the look, outside
  any lock, once   5. under the lock again: what it saw, held against what is on record by then.
A crash after 2 leaves the effect as it was. Nothing here runs by itself, and nothing is sent again: that is
`issuer.flow.resend`, which uses the same frame.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, assert_never

from audit import AuditUnavailable
from issuer.flow import spans
from issuer.flow.attempts import (
    SENDER_GONE,
    AttemptKind,
    Gone,
    Story,
    gone_of,
    sending_ended,
    story_of,
)
from issuer.flow.binding import Pinned
from issuer.flow.capacity import refuse_space
from issuer.flow.content import erase_content
from issuer.flow.ending import record_end
from issuer.flow.prepare import request_of
from issuer.flow.refusing import collected_since
from issuer.flow.settle import CHARGE_CONTRADICTS, Outcome, outcome_step, without_protected
from issuer.flow.signed_act import acting
from issuer.flow.steps import Reached
from issuer.house import House, Visit
from issuer.operations.contract import Inspection, Inspector, Look, Seen
from issuer.revised import in_force
from ledger.changes import EvidenceAdded, Step
from ledger.errors import Fault, Malformed
from ledger.model import Amounts, DurationMs, Effect, Evidence, EvidenceClass, InstantMs, costs
from ledger.port import Committed, Verdict, View
from ledger.refusals import Refusal, RefusalCode
from ledger.rules import evidence_of, refuse_settling
from ledger.states import SETTLED, EffectState
from ledger.transitions import TransitionName

ATTEMPT_MS: Final = DurationMs(30_000)
"""Time of one attempt, from its record to the record of its end: as long as the longest exchange with a service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt under way.

    Attributes:
        began_ms: when the ledger recorded it, by the ledger's own clock; absence is measured from here.
        deadline_ms: fixed, and not renewed.
        sequence: of its span.
        is_contract: whether the owner's contract still is the one that the effect was bound to.
    """

    kind: AttemptKind
    effect: Effect
    pinned: Pinned
    began_ms: InstantMs
    deadline_ms: InstantMs
    sequence: int
    is_contract: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """How an attempt ended: the effect as it stands now, and what the attempt saw and came to."""

    effect: Effect
    kind: AttemptKind
    outcome: Outcome
    began_ms: InstantMs
    deadline_ms: InstantMs
    contradicts: bool


Ask = Callable[[DurationMs], Callable[[View, Effect], Outcome]]
"""Asks once, within the milliseconds given, and returns what weighs the answer under the lock."""

Allow = Callable[[View, Effect, Story, InstantMs], Refusal | None]
"""Says no to an attempt under the lock, beyond what every attempt is asked."""


def rests_on_a_claim(effect: Effect, known: Sequence[Evidence]) -> bool:
    """Say whether an effect that is over was settled on a host's word, and nothing else says the same (REC-07)."""
    proving = [item for item in known if item.proves == effect.state]
    return (
        effect.state in SETTLED
        and bool(proving)
        and all(item.evidence_class is EvidenceClass.HOST_CLAIM for item in proving)
    )


def begin(
    visit: Visit, effect: Effect, pinned: Pinned, kind: AttemptKind, *, is_contract: bool, allow: Allow
) -> Committed[Attempt | Effect]:
    """Put an attempt on record before anything is asked (REC-06), or say why there is none; the effect is beside a no.

    Raises:
        AuditUnavailable: a required sink is not ready; nothing was asked, nothing is on record.
        Fault: as `ledger.port.Ledger.transact`.
    """
    house = visit.house
    house.delivery.probe()  # 1
    claim, story = house.ledger.read(
        lambda view: (view.claim(effect.effect_id), story_of(view, effect.effect_id))
    )
    gone = gone_of(house, claim, story)

    def decide(view: View, now: InstantMs) -> Verdict[Attempt | Effect]:  # 2
        current = view.effect(effect.effect_id)
        if current is None:
            no = Refusal(code=RefusalCode.COLLECTED)
            return _refused(visit, collected_since(view, effect), no)
        at_work, ends = _with_ends(visit, current, view, gone, now)
        refusal = _refuse_looking(house, view, current) or allow(view, current, at_work, now)
        if refusal is not None:
            return _refused(visit, current, refusal, ends)
        deadline = InstantMs(now + ATTEMPT_MS)
        transition = spans.beside(
            visit,
            TransitionName.EFFECT_INSPECTING,
            current,
            attempt=str(kind),
            deadline__ms=deadline,
        )
        attempt = Attempt(
            kind=kind,
            effect=current,
            pinned=pinned,
            began_ms=now,
            deadline_ms=deadline,
            sequence=0,
            is_contract=is_contract,
        )
        return Verdict(value=attempt, steps=(*ends, Step(transition=transition)))

    committed = house.ledger.transact(acting(visit, decide))
    if isinstance(committed.value, Attempt):
        return replace(committed, value=replace(committed.value, sequence=committed.sequence))
    return committed


def _refused(
    visit: Visit, effect: Effect, refusal: Refusal, ends: tuple[Step, ...] = ()
) -> Verdict[Attempt | Effect]:
    step = Step(transition=spans.refused(visit, refusal, effect=effect))
    return Verdict(value=effect, refusal=refusal, steps=(*ends, step))


def _refuse_looking(house: House, view: View, effect: Effect) -> Refusal | None:
    """Refuse to look at what is neither unknown nor settled on a host's word alone, or where no space is left."""
    known = view.evidence(effect.effect_id)
    if effect.state is EffectState.UNKNOWN or rests_on_a_claim(effect, known):
        return refuse_space(house, view)
    return refuse_settling(effect) or Refusal(code=RefusalCode.ALREADY_CONSUMED)


def _with_ends(
    visit: Visit, effect: Effect, view: View, gone: Gone, now: InstantMs
) -> tuple[Story, tuple[Step, ...]]:
    """Return the story of an effect with every sender that is gone by now, and the steps that put that on record.

    A delay can only run from an end that is on record (ADM-07).
    """
    story, steps = story_of(view, effect.effect_id), []
    if effect.state is not EffectState.UNKNOWN or view.claim(effect.effect_id) is None:
        return story, ()
    if story.sending_over_ms is None and gone.winner:
        steps.append(_gone_step(visit, effect, now, {}))
        story = replace(story, sending_over_ms=now)
    for one in story.open_resends:
        if one.instance in gone.resenders:
            said = {"attempt": str(one.kind), "seen": str(Seen.UNCLEAR), "instance": one.instance}
            steps.append(_gone_step(visit, effect, now, said))
            ended = tuple(replace(each, ended_ms=now) if each is one else each for each in story.attempts)
            story = replace(story, attempts=ended)
    return story, tuple(steps)


def _gone_step(visit: Visit, effect: Effect, now: InstantMs, said: dict[str, str]) -> Step:
    evidence = evidence_of(
        effect,
        evidence_class=EvidenceClass.NONE,
        source=SENDER_GONE,
        proves=str(EffectState.UNKNOWN),
        reference="",
        late=True,
        now=now,
    )
    transition = spans.unmoved(
        visit, effect, evidence_class=str(EvidenceClass.NONE), reason=SENDER_GONE, **said
    )
    return Step(transition=transition, changes=(EvidenceAdded(evidence=evidence),))


def carried_out(visit: Visit, attempt: Attempt, ask: Ask) -> Reconciled:
    """Ask once, and record what came of it; under another revision than it began with it counts for nothing.

    Raises:
        Fault: the result could not be recorded; the effect stands where it stood.
    """
    house = visit.house
    try:
        house.delivery.acknowledge(attempt.sequence, demanded=house.profile.audit.required)  # 3
    except AuditUnavailable:
        _record(visit, attempt, _nothing(attempt, "audit_unavailable"))
        raise
    house.observe(Reached.ATTEMPT_ACKNOWLEDGED)
    # Nothing else stands between this and the asking; a copy of this process asks and sends nothing again.
    house.delivery.refuse_fork()
    try:
        with house.instance.at_work():
            weigh = ask(_rest(house, attempt))  # 4
    except BaseException as fault:
        with suppress(Fault):
            word = f"exception:{type(fault).__name__}"[:64]
            _record(visit, attempt, _nothing(attempt, "interrupted", word))
        raise
    house.observe(Reached.LOOKED)
    return _record(visit, attempt, weigh)  # 5


def _rest(house: House, attempt: Attempt) -> DurationMs:
    """Return what is left of the attempt; a clock that stepped back makes it no longer than the whole."""
    return DurationMs(max(0, min(ATTEMPT_MS, attempt.deadline_ms - house.now())))


def _nothing(attempt: Attempt, reason: str, source: str = "") -> Callable[[View, Effect], Outcome]:
    outcome = unclear(attempt.kind, source or reason, reason)
    return lambda _view, _effect: outcome


def unclear(kind: AttemptKind, source: str, reason: str) -> Outcome:
    """Return the outcome of an attempt that leaves everything as it was."""
    return Outcome(
        target=EffectState.UNKNOWN,
        evidence_class=EvidenceClass.INSPECTION if kind is AttemptKind.INSPECT else EvidenceClass.NONE,
        source=source,
        reason=reason,
        attempt=str(kind),
        seen=str(Seen.UNCLEAR),
    )


def _set_aside(outcome: Outcome, kind: AttemptKind, source: str, reason: str) -> Outcome:
    """Return an outcome that came too late: it resolves nothing, but a service's word on a resend is kept (REC-05)."""
    is_word = outcome.evidence_class is EvidenceClass.SERVICE and outcome.target is not EffectState.NO_EFFECT
    kept = replace(outcome, target=EffectState.UNKNOWN, reason=reason)
    return kept if is_word else unclear(kind, source, reason)


def _record(
    visit: Visit,
    attempt: Attempt,
    weigh: Callable[[View, Effect], Outcome],
) -> Reconciled:
    def decide(view: View, now: InstantMs) -> Verdict[Reconciled]:
        effect = view.effect(attempt.effect.effect_id)
        if effect is None:
            over = collected_since(view, attempt.effect)
            no = Refusal(code=RefusalCode.COLLECTED)
            nothing = unclear(attempt.kind, "collected", "collected")
            step = Step(transition=spans.refused(visit, no, effect=over))
            return Verdict(value=_reconciled(attempt, over, nothing), refusal=no, steps=(step,))
        if now >= attempt.deadline_ms:
            outcome = _set_aside(weigh(view, effect), attempt.kind, "deadline", "attempt_overdue")
        elif in_force(view) != visit.house.revision:
            outcome = _set_aside(weigh(view, effect), attempt.kind, "profile", "terms_changed")
        else:
            outcome = weigh(view, effect)
        step = outcome_step(visit, view, effect, outcome, late=True, now=now)
        after = step.transition.state_to
        stands = effect if after is None else replace(effect, state=after)
        flagged = "permit.contradicts" in step.transition.attributes
        return Verdict(
            value=_reconciled(attempt, stands, outcome, contradicts=flagged),
            steps=(step,),
        )

    committed = record_end(visit.house, decide)
    reconciled = replace(committed.value, effect=replace(committed.value.effect, sequence=committed.sequence))
    if reconciled.effect.state in SETTLED:
        erase_content(visit.house, (attempt.effect,))
    visit.house.observe(Reached.SETTLED)
    return reconciled


def _reconciled(
    attempt: Attempt, effect: Effect, outcome: Outcome, *, contradicts: bool = False
) -> Reconciled:
    return Reconciled(
        effect=effect,
        kind=attempt.kind,
        outcome=outcome,
        began_ms=attempt.began_ms,
        deadline_ms=attempt.deadline_ms,
        contradicts=contradicts,
    )


def inspecting(house: House, attempt: Attempt) -> Ask:
    """Return the asking of an inspection, whoever sent the effect."""
    operation = attempt.pinned.operation

    def ask(remaining_ms: DurationMs) -> Callable[[View, Effect], Outcome]:
        try:
            look = Look(
                effect_id=attempt.effect.effect_id,
                request=request_of(house, attempt.pinned),
                preparation=attempt.pinned.preparation,
                remaining_ms=remaining_ms,
            )
            inspection = _inspected(operation.inspector, look)
        except Exception as fault:  # noqa: BLE001 - REC-02: whatever went wrong says nothing about the effect
            inspection = Inspection(seen=Seen.UNCLEAR, source=f"exception:{type(fault).__name__}"[:64])
        return lambda view, effect: weighed(view, effect, attempt, inspection)

    return ask


def _inspected(inspector: Inspector | None, look: Look) -> Inspection:
    if inspector is None:
        return Inspection(seen=Seen.UNCLEAR, source="no_inspection")
    return inspector.inspect(look)


def weighed(view: View, effect: Effect, attempt: Attempt, inspection: Inspection) -> Outcome:
    """Return what an inspection proves of an effect, as everything stands under the lock, and no more (REC-02)."""
    charged: Amounts | None = None
    try:
        charged = None if inspection.charged is None else costs(inspection.charged)
    except Malformed:
        return unclear(attempt.kind, inspection.source, "charge_not_whole")
    seen = str(inspection.seen)
    match inspection.seen:
        case Seen.FOUND:
            target, reason = EffectState.SUCCEEDED, "inspection_found"
        case Seen.ABSENT if any((charged or {}).values()):
            target, reason = EffectState.UNKNOWN, CHARGE_CONTRADICTS
        case Seen.ABSENT:
            why = _why_not_conclusive(view, effect, attempt)
            target = EffectState.NO_EFFECT if why is None else EffectState.UNKNOWN
            reason = why or "absence_conclusive"
        case Seen.DIFFERS:
            target, reason = EffectState.UNKNOWN, "another_found"
        case Seen.UNCLEAR:
            target, reason = EffectState.UNKNOWN, "inspection_unclear"
        case _:
            assert_never(inspection.seen)
    outcome = Outcome(
        target=target,
        evidence_class=EvidenceClass.INSPECTION,
        source=inspection.source,
        reason=reason,
        reference=inspection.reference,
        charged=charged if inspection.seen in {Seen.FOUND, Seen.ABSENT} else None,
        attempt=str(attempt.kind),
        seen=seen,
    )
    return without_protected(outcome, attempt.pinned)


def _restored_ms(view: View) -> InstantMs:
    """Return when the last resend can have ended that a restore knows nothing of; 0 where nothing was restored.

    A restore finds no other process at work, so whatever was tried after the backup had begun before it (LED-08).
    """
    first = view.epoch_after(view.head().epoch - 1)
    return InstantMs(0 if first is None else first.at_ms + ATTEMPT_MS)


def _why_not_conclusive(view: View, effect: Effect, attempt: Attempt) -> str | None:
    """Return why an absence proves nothing here, as one word; None where it does (REC-02).

    All of it is held against the instant at which the look began, by the ledger's clock, which nobody sets back.
    """
    absence = attempt.pinned.operation.absence
    if absence is None:
        return "absence_never_proves"
    if not attempt.is_contract:
        return "contract_changed"
    claim = view.claim(effect.effect_id)
    ended = sending_ended(claim, story_of(view, effect.effect_id), attempt.began_ms)
    if ended is None:
        return "sender_not_gone"
    counts_from = max(ended, _restored_ms(view))
    return None if attempt.began_ms >= counts_from + absence.after_ms else "absence_too_early"
