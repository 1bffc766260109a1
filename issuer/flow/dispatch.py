"""Step 6 of 8: dispatch. Only the winner is here, and it sends once.

Rules: ADM-03 (nothing is sent before every required sink has acknowledged the admission), ADM-05 (one more look),
AUD-02 (a sink that dies in between costs the permit, nothing else), REP-04 and REP-05 (any exception after the
first byte is `unknown`). In order:
  1. every required sink acknowledges exactly this sequence   2. one more look: still admitted, all in time, task open,
  nothing revoked or frozen since   3. the adapter sends, and asks the same before each further protected step
  4. the outcome is recorded, whatever a sink says   5. the sinks acknowledge the outcome.
A winner that stops before 3 proves that it sent nothing: `no_effect`, budget and slot back, "prepare again".
Next: step 7, `issuer.flow.settle`.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from audit import AuditUnavailable
from issuer.flow.admit import Winner
from issuer.flow.binding import Pinned
from issuer.flow.invocations import named
from issuer.flow.prepare import request_of
from issuer.flow.settle import Outcome, from_answer, lost, not_sent, settle, without_protected
from issuer.flow.steps import Reached
from issuer.flow.stops import refuse_stopped
from issuer.house import House, Visit
from issuer.operations.contract import (
    Answer,
    AuthorityEndedError,
    NotDispatchedError,
    Order,
    demand_allowed,
)
from issuer.wire import code_of
from ledger.errors import Fault
from ledger.model import Claim, DurationMs, Effect
from ledger.port import View
from ledger.refusals import Refusal, RefusalCode
from ledger.rules import refuse_invocation, refuse_path
from ledger.states import EffectState


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatched:
    """How a dispatch ended, as a code of `issuer.wire.codes`, and the effect as it then stands."""

    code: str
    effect: Effect


Send = Callable[[Order], Outcome]
"""Sends once and returns what is known; raises `NotDispatchedError` only where nothing left."""


def adapter_send(house: House, pinned: Pinned) -> Send:
    """Return the sending of an operation that the issuer itself sends."""

    def send(order: Order) -> Outcome:
        answer: Answer = pinned.operation.adapter.dispatch(order)
        house.observe(Reached.ANSWERED)
        return without_protected(from_answer(answer), pinned)

    return send


@dataclass(frozen=True, slots=True, kw_only=True)
class Won:
    """An admission that this caller won: what it may send, and with what it reports.

    Attributes:
        sequence: of the admission's span, which every required sink has to acknowledge.
    """

    effect: Effect
    pinned: Pinned
    winner: Winner
    claim: Claim
    sequence: int


def dispatch(visit: Visit, won: Won, send: Send) -> Dispatched:
    """Send an admitted effect once and record what became of it.

    Raises:
        Fault: the outcome could not be recorded; the effect stays admitted, counts as possibly sent, and turns
            `unknown` by itself (design, failure table).
    """
    with visit.house.instance.at_work():
        outcome, code = _sent(visit, won, send)
    committed = settle(visit, won.effect, won.winner.claim_hash, outcome)
    visit.house.observe(Reached.SETTLED)
    effect_id = won.effect.effect_id
    settled = visit.house.ledger.read(lambda view: view.effect(effect_id)) or committed.value
    code = code or code_of(settled.state)
    reportable = {EffectState.SUCCEEDED, EffectState.FAILED}
    if not confirmed(visit.house, committed.sequence) and settled.state in reportable:
        code = str(RefusalCode.AUDIT_PENDING)
    visit.house.observe(Reached.OUTCOME_ACKNOWLEDGED)
    return Dispatched(code=code, effect=settled)


def confirmed(house: House, sequence: int) -> bool:
    """Say whether every required sink has everything up to `sequence`; a no is an answer here, never a fault."""
    try:
        house.delivery.acknowledge(sequence)
    except AuditUnavailable:
        return False
    return True


def _sent(visit: Visit, won: Won, send: Send) -> tuple[Outcome, str | None]:
    """Do 1 to 3; return what is known, and the code where it is not simply the state."""
    try:
        reason = _held_back(visit, won)
        order = _order(visit, won)
    except BaseException as fault:
        # Nothing has left yet, and only the winner can say so: an interrupted wait costs no money (REP-04).
        _record(visit, won, not_sent(_word(fault)))
        raise
    if reason is not None:
        return not_sent(reason), held_back_code(reason)
    try:
        return send(order), None  # 3
    except NotDispatchedError as proof:
        return not_sent(proof.reason), "not_dispatched"
    except AuthorityEndedError as over:
        # The adapter does not say that nothing had left by then, so it may have.
        return lost(f"authority_ended:{over.reason}"[:64]), None
    except Exception as fault:  # noqa: BLE001 - REP-05: whatever went wrong, it may have been sent
        return lost(_word(fault)), None
    except BaseException as fault:
        _record(visit, won, lost(_word(fault)))
        raise


def _record(visit: Visit, won: Won, outcome: Outcome) -> None:
    """Record what is known before an interruption goes on (AUD-02).

    Where that fails the effect stays admitted, which counts as possibly sent, and the interruption still goes on.
    """
    with suppress(Fault):
        settle(visit, won.effect, won.winner.claim_hash, outcome)


def _order(visit: Visit, won: Won) -> Order:
    """Return the order to the adapter; what is left of the deadline is counted from here.

    A clock that stepped back since the admission makes the rest no longer than the operation's whole deadline.
    """
    rest = min(won.pinned.operation.deadline_ms, won.claim.deadline_ms - visit.house.now())
    return Order(
        effect_id=won.effect.effect_id,
        request=request_of(visit.house, won.pinned),
        preparation=won.pinned.preparation,
        deadline_ms=won.claim.deadline_ms,
        remaining_ms=DurationMs(max(0, rest)),
        still_allowed=lambda: demand_allowed(ended(visit.house, won.effect, won.claim)),
    )


def _held_back(visit: Visit, won: Won) -> str | None:
    """Do 1 and 2; return why nothing may be sent, or None."""
    try:
        visit.house.delivery.acknowledge(won.sequence, demanded=visit.house.profile.audit.required)  # 1
    except AuditUnavailable:
        return "audit_unavailable"
    visit.house.observe(Reached.ACKNOWLEDGED)
    reason = ended(visit.house, won.effect, won.claim)  # 2
    if reason is None:
        visit.house.observe(Reached.LOOKED_AGAIN)
        # Nothing else stands between this and the sending; a copy of the winner sends nothing.
        visit.house.delivery.refuse_fork()
    return reason


def ended(house: House, effect: Effect, claim: Claim) -> str | None:
    """Look once more, without cost, after waiting for the sinks (ADM-05): return why nothing may be sent, or None."""
    try:
        current, permit, path, invocation, no = house.ledger.read(
            lambda view: (
                view.effect(effect.effect_id),
                view.permit(effect.effect_id),
                view.path(effect.task_id),
                named(view, effect),
                _refuse_since(view, house, effect),
            )
        )
    except Fault:
        return "ledger_unavailable"
    now = house.now()
    if current is None or current.state is not EffectState.ADMITTED:
        return "no_longer_admitted"
    if now >= claim.deadline_ms:
        return "deadline_passed"
    if permit is None or now >= permit.expires_ms:
        return "permit_expired"
    if no is None and effect.invocation_id is not None:
        no = refuse_invocation(invocation, path, effect.caller, now)
    no = no or refuse_path(path, now)
    return None if no is None else str(no.code)


def _refuse_since(view: View, house: House, effect: Effect) -> Refusal | None:
    """Refuse what was revoked or frozen since its admission: itself, or what it stands on (ADM-05)."""
    if view.was_revoked_late(effect.effect_id):
        return Refusal(code=RefusalCode.REVOKED)
    return refuse_stopped(view, house, effect)


def held_back_code(reason: str) -> str:
    """Return the code of an admission that was taken back for `reason` before anything was sent."""
    is_revoked = reason == RefusalCode.REVOKED
    return str(RefusalCode.REVOKED if is_revoked else RefusalCode.PREPARE_AGAIN)


def _word(fault: BaseException) -> str:
    """Return a stable word for an exception: its class, never its text, which may quote anything."""
    return f"exception:{type(fault).__name__}"[:64]
