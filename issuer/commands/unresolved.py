"""What is told of an effect whose outcome is unknown: what it holds where, since when, for whom, and what can be tried.

Rules: BUD-04 (it holds its maximum at every level, or was charged it), REC-01 and REC-03 (which attempt the contract
allows; nobody makes one by itself), REC-06 (how many were made, and what the last one saw). It reads and decides
nothing: whether an attempt is allowed is decided under the lock.
"""

from typing import Final

from issuer.clock import instant_text
from issuer.flow.attempts import AttemptKind, AttemptRecord, attempts_on
from issuer.flow.binding import stored_member
from issuer.flow.resend import resend_until
from issuer.house import House
from ledger.errors import Fault, LedgerCorrupt
from ledger.model import Effect, InstantMs
from ledger.port import View

INSPECT: Final = str(AttemptKind.INSPECT)
NONE: Final = "none"


def unresolved_row(house: House, view: View, effect: Effect) -> dict[str, object]:
    """Return what is told beside the rest about an unknown effect."""
    names = {node.task.task_id: node.task.name for node in view.path(effect.task_id)}
    since = view.span_at(effect.sequence)
    attempts = _attempts(view, effect)
    is_charged = bool(view.charged(effect.effect_id))
    places = {task_id: place for place, task_id in enumerate(names)}
    rows = sorted(
        view.reserved(effect.effect_id).items(), key=lambda row: (places.get(row[0][0], 0), row[0][1])
    )
    levels = [
        {"task": names.get(task_id, task_id), "unit": unit, "amount": amount}
        for (task_id, unit), amount in rows
    ]
    return {
        "since": None if since is None else instant_text(since.at_ms),
        "task": names.get(effect.task_id),
        "subject": effect.subject,
        "actor": effect.actor,
        "held": [] if is_charged else levels,
        "charged": levels if is_charged else [],
        "inspection": possible_inspections(house, view, effect),
        "attempts": None if attempts is None else len(attempts),
        "last_attempt": attempt_shown(attempts[-1]) if attempts else None,
    }


def _attempts(view: View, effect: Effect) -> tuple[AttemptRecord, ...] | None:
    """Return the attempts; None where the trail of a damaged ledger cannot be read, and the rest is shown (LED-04)."""
    try:
        return attempts_on(view, effect)
    except LedgerCorrupt:
        return None


def attempt_shown(attempt: AttemptRecord) -> dict[str, object]:
    """Return one attempt as answers show it; `ended` is None where no end is on record."""
    return {
        "kind": str(attempt.kind),
        "began": instant_text(attempt.began_ms),
        "deadline": instant_text(attempt.deadline_ms),
        "ended": None if attempt.ended_ms is None else instant_text(attempt.ended_ms),
        "seen": attempt.seen or None,
        "reason": attempt.reason or None,
    }


def possible_inspections(house: House, view: View, effect: Effect) -> list[str]:
    """Return `inspect` and `resend until INSTANT`, as far as the contract allows them now; else `none`."""
    operation = house.operations.get(effect.operation)
    if operation is None or effect.replayed:
        return [NONE]
    found = [INSPECT] if operation.inspector is not None else []
    until = resend_until(operation, view.claim(effect.effect_id))
    if until is not None and until >= house.now() and _is_as_bound(effect, operation.contract):
        found.append(f"resend until {instant_text(InstantMs(until))}")
    return found or [NONE]


def _is_as_bound(effect: Effect, contract: str) -> bool:
    try:
        return stored_member(effect.binding, "operation", "contract") == contract
    except Fault:
        return False
