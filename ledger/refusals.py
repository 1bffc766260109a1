"""Why the core says no: one list in precedence order, each with a total answer to "may a retry change this?".

Rules: SUR-02 (stable code, one place in one list), SUR-05 (a no never invites a repeat of something that may
have been sent), SEC-04 (a caller learns a code and little else).
A refusal is an expected answer and is returned; broken promises are exceptions in `ledger.errors`.
Next: `issuer.wire.codes`, the one table of HTTP status, exit code and words per code.
"""

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class RefusalCode(StrEnum):
    """Every refusal, in order of precedence.

    A command answers with the first no that it meets in the order of its steps; what one step finds together is told in
    this order.
    """

    MALFORMED = "malformed"
    UNSUPPORTED = "unsupported"
    LEDGER_UNAVAILABLE = "ledger_unavailable"
    AUDIT_UNAVAILABLE = "audit_unavailable"
    KEYS_UNAVAILABLE = "keys_unavailable"
    CLOCK_UNTRUSTED = "clock_untrusted"
    CHECKPOINT_REFUSED = "checkpoint_refused"
    UNAUTHENTICATED = "unauthenticated"
    NOT_FOUND = "not_found"
    UNKNOWN_REFERENCE = "unknown_reference"
    MISMATCH = "mismatch"
    REQUEST_KEY_REUSED = "request_key_reused"
    FORBIDDEN = "forbidden"
    SIGNATURE_NEEDED = "signature_needed"
    SIGNATURE_REFUSED = "signature_refused"
    OUTCOME_UNKNOWN = "outcome_unknown"
    AUDIT_PENDING = "audit_pending"
    ALREADY_CONSUMED = "already_consumed"
    TOO_LATE = "too_late"
    NAME_TAKEN = "name_taken"
    NOTHING_TO_CHANGE = "nothing_to_change"
    NOT_PERMITTED_YET = "not_permitted_yet"
    DENIED = "denied"
    POLICY_ERROR = "policy_error"
    DECLINED = "declined"
    WITHDRAWN = "withdrawn"
    REVOKED = "revoked"
    SUSPENDED = "suspended"
    EXPIRED = "expired"
    OUTSIDE_TASK = "outside_task"
    COLLECTED = "collected"
    INVOCATION_OVER = "invocation_over"
    INVOCATION_UNSETTLED = "invocation_unsettled"
    TASK_CLOSED = "task_closed"
    TASK_FROZEN = "task_frozen"
    TASK_EXPIRED = "task_expired"
    PERMIT_BROKEN = "permit_broken"
    PREPARE_AGAIN = "prepare_again"
    CANNOT_PREPARE = "cannot_prepare"
    TARGET_UNREADABLE = "target_unreadable"
    CLASS_EXHAUSTED = "class_exhausted"
    SLOTS_EXHAUSTED = "slots_exhausted"
    TASK_FULL = "task_full"
    BUDGET_OVERRUN = "budget_overrun"
    BUDGET_EXCEEDED = "budget_exceeded"
    LEDGER_FULL = "ledger_full"


RETRYABLE: Final = MappingProxyType(
    {
        RefusalCode.MALFORMED: False,
        RefusalCode.UNSUPPORTED: False,
        RefusalCode.LEDGER_UNAVAILABLE: True,
        RefusalCode.AUDIT_UNAVAILABLE: True,
        RefusalCode.KEYS_UNAVAILABLE: True,
        RefusalCode.CLOCK_UNTRUSTED: False,
        RefusalCode.CHECKPOINT_REFUSED: False,
        RefusalCode.UNAUTHENTICATED: False,
        RefusalCode.NOT_FOUND: False,
        RefusalCode.UNKNOWN_REFERENCE: False,
        RefusalCode.MISMATCH: False,
        RefusalCode.REQUEST_KEY_REUSED: False,
        RefusalCode.FORBIDDEN: False,
        RefusalCode.SIGNATURE_NEEDED: False,
        RefusalCode.SIGNATURE_REFUSED: False,
        RefusalCode.OUTCOME_UNKNOWN: False,
        RefusalCode.AUDIT_PENDING: False,
        RefusalCode.ALREADY_CONSUMED: False,
        RefusalCode.TOO_LATE: False,
        RefusalCode.NAME_TAKEN: False,
        RefusalCode.NOTHING_TO_CHANGE: False,
        RefusalCode.NOT_PERMITTED_YET: False,
        RefusalCode.DENIED: False,
        RefusalCode.POLICY_ERROR: False,
        RefusalCode.DECLINED: False,
        RefusalCode.WITHDRAWN: False,
        RefusalCode.REVOKED: False,
        RefusalCode.SUSPENDED: True,
        RefusalCode.EXPIRED: False,
        RefusalCode.OUTSIDE_TASK: False,
        RefusalCode.COLLECTED: False,
        RefusalCode.INVOCATION_OVER: False,
        RefusalCode.INVOCATION_UNSETTLED: False,
        RefusalCode.TASK_CLOSED: False,
        RefusalCode.TASK_FROZEN: True,
        RefusalCode.TASK_EXPIRED: False,
        RefusalCode.PERMIT_BROKEN: False,
        RefusalCode.PREPARE_AGAIN: False,
        RefusalCode.CANNOT_PREPARE: False,
        RefusalCode.TARGET_UNREADABLE: True,
        RefusalCode.CLASS_EXHAUSTED: False,
        RefusalCode.SLOTS_EXHAUSTED: False,
        RefusalCode.TASK_FULL: True,
        RefusalCode.BUDGET_OVERRUN: False,
        RefusalCode.BUDGET_EXCEEDED: True,
        RefusalCode.LEDGER_FULL: True,
    },
)
"""Whether asking again for the SAME effect may later be answered otherwise. Never true once something may be sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One expected no.

    Attributes:
        code: the stable code (SUR-02).
        field: the field, name or unit at fault, never its value; None where none is.
        level: the task name whose bound stopped it (budgets and class bounds), else None.
    """

    code: RefusalCode
    field: str | None = None
    level: str | None = None

    @property
    def retryable(self) -> bool:
        """Whether a retry of the same effect may change the answer."""
        return RETRYABLE[self.code]
