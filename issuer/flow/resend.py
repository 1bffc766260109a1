"""Sending again under the same key: the one repetition there is, and only as reconciliation (ADR-0016).

Rules: REC-03. All of it has to hold, under the lock, before a byte leaves:
  1. the owner's contract proves that the key cannot create another effect, and is the one that was bound, with the code
  that renders the same bytes   2. nobody else may still be sending: the winner of the admission is certainly over, and
  no other resend is within its deadline   3. the service remembers the key, counted from the first attempt, until the
  whole exchange is over   4. nothing of it is revoked or frozen, and the task and all above it are open: the first
  request may never have arrived, and then this one does what was asked for.
The bytes are made again from the proven binding, to the pinned addresses. The answer is service evidence: a success
counts as a first one would. A refusal may be a gateway's, or about this second request alone: it ends nothing, and
neither does a lost answer.
"""

from collections.abc import Callable
from dataclasses import replace

from issuer.flow.attempts import AttemptKind, Story, is_resend_in_flight, sending_ended
from issuer.flow.binding import Pinned
from issuer.flow.prepare import request_of
from issuer.flow.reconcile import ATTEMPT_MS, Ask, Attempt, unclear
from issuer.flow.refusing import RefusedError
from issuer.flow.settle import Outcome, from_answer, without_protected
from issuer.flow.stops import refuse_stopped
from issuer.house import House
from issuer.operations.contract import NotDispatchedError, Order, demand_allowed
from issuer.operations.registry import Operation
from ledger.errors import Fault
from ledger.model import Claim, DurationMs, Effect, EvidenceClass, InstantMs
from ledger.port import View
from ledger.refusals import Refusal, RefusalCode
from ledger.rules import refuse_path
from ledger.states import EffectState


def demand_resendable(operation: Operation) -> None:
    """Refuse an operation whose contract does not prove that a resend is safe (REC-03).

    Raises:
        RefusedError: `unsupported`, naming what is missing.
    """
    if not operation.resend or operation.key_kept_ms is None or operation.is_sent_by_host:
        say = "The contract of this operation does not prove that sending again under the same key is safe."
        raise RefusedError(RefusalCode.UNSUPPORTED, field="proves.resend", say=say)


def resend_until(operation: Operation, claim: Claim | None) -> InstantMs | None:
    """Return the last instant at which a resend may begin, so that it ends while the service knows the key; or None."""
    if claim is None or not operation.resend or operation.key_kept_ms is None or operation.is_sent_by_host:
        return None
    return InstantMs(claim.admitted_ms + operation.key_kept_ms - ATTEMPT_MS)


def refuse_resend(
    house: House,
    pinned: Pinned,
) -> Callable[[View, Effect, Story, InstantMs], Refusal | None]:
    """Return what says no to a resend under the lock: 2 to 4 of the above, the first that does not hold."""

    def refuse(view: View, effect: Effect, story: Story, now: InstantMs) -> Refusal | None:
        claim = view.claim(effect.effect_id)
        until = resend_until(pinned.operation, claim)
        if effect.state is not EffectState.UNKNOWN:
            return Refusal(code=RefusalCode.ALREADY_CONSUMED)
        if is_resend_in_flight(story, now):
            return Refusal(code=RefusalCode.OUTCOME_UNKNOWN, field="resend_in_flight")
        if sending_ended(claim, story, now) is None:
            return Refusal(code=RefusalCode.OUTCOME_UNKNOWN, field="sender_not_gone")
        if until is None or now > until:
            return Refusal(code=RefusalCode.OUTCOME_UNKNOWN, field="key_forgotten")
        return _refuse_since(view, house, effect) or refuse_path(view.path(effect.task_id), now)

    return refuse


def _refuse_since(view: View, house: House, effect: Effect) -> Refusal | None:
    """Refuse what was revoked, or is frozen. The first sending stands as unknown all the same, and is told so."""
    is_late = view.was_revoked_late(effect.effect_id)
    no = Refusal(code=RefusalCode.REVOKED) if is_late else refuse_stopped(view, house, effect)
    return (
        None if no is None else Refusal(code=RefusalCode.OUTCOME_UNKNOWN, field=str(no.code), level=no.level)
    )


def _ended(house: House, attempt: Attempt) -> str | None:
    """Return why an attempt may not do its next step any more, or None (ADM-05)."""
    effect = attempt.effect
    try:
        no = house.ledger.read(
            lambda view: (
                _refuse_since(view, house, effect) or refuse_path(view.path(effect.task_id), house.now())
            )
        )
    except Fault:
        return "ledger_unavailable"
    if house.now() >= attempt.deadline_ms:
        return "deadline_passed"
    return None if no is None else no.field or str(no.code)


def resending(house: House, attempt: Attempt) -> Ask:
    """Return the sending again: the same bytes, to the same addresses, under the same key."""

    def ask(remaining_ms: DurationMs) -> Callable[[View, Effect], Outcome]:
        outcome = _sent(house, attempt, remaining_ms)
        return lambda _view, _effect: outcome

    return ask


def _sent(house: House, attempt: Attempt, remaining_ms: DurationMs) -> Outcome:
    kind = AttemptKind.RESEND
    order = Order(
        effect_id=attempt.effect.effect_id,
        request=request_of(house, attempt.pinned),
        preparation=attempt.pinned.preparation,
        deadline_ms=attempt.deadline_ms,
        remaining_ms=remaining_ms,
        still_allowed=lambda: demand_allowed(_ended(house, attempt)),
    )
    over = _ended(house, attempt)
    if over is not None:
        return unclear(kind, over, "resend_not_sent")
    try:
        answer = attempt.pinned.operation.adapter.dispatch(order)
    except NotDispatchedError as proof:
        # That this attempt sent nothing says nothing about the first one.
        return unclear(kind, proof.reason, "resend_not_sent")
    except Exception as fault:  # noqa: BLE001 - REP-05: whatever went wrong, it may have been sent
        return unclear(kind, f"exception:{type(fault).__name__}"[:64], "resend_answer_lost")
    found = without_protected(from_answer(answer), attempt.pinned)
    if found.target in {EffectState.NO_EFFECT, EffectState.FAILED}:
        # It may be a gateway's word, or about the second request alone: the first one may have happened (REC-02).
        return replace(
            unclear(kind, found.source, "resend_refused"),
            evidence_class=EvidenceClass.SERVICE,
            seen=str(answer.proof),
        )
    return Outcome(
        target=found.target,
        evidence_class=found.evidence_class,
        source=found.source,
        reason=found.reason,
        reference=found.reference,
        charged=found.charged,
        attempt=str(kind),
        seen=str(answer.proof),
    )
