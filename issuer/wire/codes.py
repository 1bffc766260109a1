"""The one table of codes: for each the exit code, the HTTP status, what to do next and one fixed sentence.

Rules: SUR-02, SUR-05 (a no says what to do, and never invites a repeat of what may have been sent), SEC-04.
`outcome_unknown` is never a status that generic layers retry. Sentences are fixed per code; an owner's `@say`
replaces the one of a policy's no.
Next: `issuer.wire.answers` puts a code into an answer; `docs/reference/codes.md` is generated from this table.
"""

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Final

from ledger.refusals import RETRYABLE, RefusalCode
from ledger.states import EffectState


class Exit(IntEnum):
    """Exit codes of the command line."""

    DONE = 0
    OUR_FAULT = 1
    USAGE = 2
    DENIED = 3
    AWAITING_APPROVAL = 4
    UNKNOWN = 5
    BUDGET = 6
    REFUSED = 7
    UNAVAILABLE = 8
    SERVICE_SAID_NO = 9


class Next(StrEnum):
    """What a caller should do with an answer."""

    COMMIT = "commit"
    DISPATCH = "dispatch"
    WAIT = "wait"
    PREPARE_AGAIN = "prepare_again"
    TELL_A_PERSON = "tell_a_person"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """One code and everything that every surface says with it."""

    name: str
    exit: Exit
    http: int
    next: Next
    say: str
    retryable: bool


def _row(
    name: str, exit_code: Exit, http: int, what_next: Next, say: str, *, retryable: bool = False
) -> Code:
    return Code(name=name, exit=exit_code, http=http, next=what_next, say=say, retryable=retryable)


def _no(code: RefusalCode, exit_code: Exit, http: int, what_next: Next, say: str) -> Code:
    return _row(str(code), exit_code, http, what_next, say, retryable=RETRYABLE[code])


_R = RefusalCode
_E = Exit
_N = Next

_STATES: Final = (
    _row("prepared", _E.DONE, 200, _N.COMMIT, "Prepared and held; nothing may be sent yet."),
    _row(
        "permitted", _E.DONE, 201, _N.COMMIT, "Permitted once; nothing may be sent yet: commit it to send it."
    ),
    _row(
        "awaiting_approval",
        _E.AWAITING_APPROVAL,
        202,
        _N.WAIT,
        "A person has to approve this; nothing may be sent yet. Wait for the answer and do not ask anew.",
    ),
    _row("admitted", _E.DONE, 200, _N.DISPATCH, "Admitted: send it now, once, and report what became of it."),
    _row("succeeded", _E.DONE, 200, _N.STOP, "It was done, once."),
    _row(
        "failed",
        _E.SERVICE_SAID_NO,
        200,
        _N.TELL_A_PERSON,
        "It was sent, and the service says it failed; it may have cost something.",
    ),
    _row(
        "no_effect",
        _E.SERVICE_SAID_NO,
        200,
        _N.TELL_A_PERSON,
        "It was sent, and the service says nothing happened; nothing is charged.",
    ),
    _row(
        "not_dispatched",
        _E.UNAVAILABLE,
        503,
        _N.PREPARE_AGAIN,
        "Nothing was sent and nothing is charged; prepare it again.",
    ),
    _row("opened", _E.DONE, 201, _N.STOP, "The task is open."),
    _row("closed", _E.DONE, 200, _N.STOP, "The task is closed; what it has in flight is still settled."),
    _row("granted", _E.DONE, 200, _N.STOP, "The ceiling is raised."),
    _row("lowered", _E.DONE, 200, _N.STOP, "The ceiling is lowered; where more is used already, it blocks."),
    _row("frozen", _E.DONE, 200, _N.STOP, "The task is frozen: it admits nothing until it is thawed."),
    _row("thawed", _E.DONE, 200, _N.STOP, "The task is open, as before it was frozen."),
    _row("accepted", _E.DONE, 200, _N.STOP, "It is accepted, and on record."),
    _row(
        "acknowledged",
        _E.DONE,
        200,
        _N.STOP,
        "The risk is acknowledged, and on record; the effect stays unknown.",
    ),
    _row("collected_now", _E.DONE, 200, _N.STOP, "What was over is collected; its permits stay spent."),
    _row("backed_up", _E.DONE, 200, _N.STOP, "The copy is whole; keep it away from this machine."),
    _row(
        "restored",
        _E.DONE,
        200,
        _N.TELL_A_PERSON,
        "The ledger is restored in a new epoch; earlier permits are void.",
    ),
    _row(
        "approved",
        _E.DONE,
        200,
        _N.WAIT,
        "Your yes is on record; it takes others too, and nothing may be sent yet.",
    ),
    _row("declined_now", _E.DONE, 200, _N.STOP, "Your no is on record; nothing was sent."),
    _row("withdrawn_now", _E.DONE, 200, _N.STOP, "It is withdrawn; nothing was sent."),
    _row(
        "revoked_now", _E.DONE, 200, _N.STOP, "It is revoked; what was dispatched before keeps its outcome."
    ),
    _row(
        "suspended_now",
        _E.DONE,
        200,
        _N.STOP,
        "It is frozen: nothing of it is dispatched until it is thawed.",
    ),
    _row("resumed", _E.DONE, 200, _N.STOP, "It is thawed; what was revoked before stays void."),
    _row("activated", _E.DONE, 200, _N.STOP, "This revision is in force now, in every process."),
    _row(
        "credential_issued",
        _E.DONE,
        201,
        _N.STOP,
        "The credential is shown once; earlier ones of that name are void.",
    ),
    _row(
        "rotated",
        _E.DONE,
        200,
        _N.STOP,
        "A new key seals from here on; earlier permits stay valid until they expire.",
    ),
    _row("retired_now", _E.DONE, 200, _N.STOP, "The key opens no permit any more."),
    _row("sink_replaced", _E.DONE, 200, _N.STOP, "The ledger's sinks are changed, in every process."),
    _row(
        "archived",
        _E.DONE,
        201,
        _N.STOP,
        "The trail is sealed in the file up to its checkpoint, and what nothing alive needs left the ledger. "
        "Keep the file: nothing else holds those spans.",
    ),
    _row(
        "sink_quarantined",
        _E.DONE,
        200,
        _N.STOP,
        "These spans are kept from the sink, on record; the ledger and its other sinks have them.",
    ),
    _row("ended", _E.DONE, 200, _N.STOP, "The invocation is over; its outcome stays as it is."),
    _row("obligation_closed", _E.DONE, 200, _N.STOP, "What the permit obliged to is on record as done."),
    _row(
        "checkpointed",
        _E.DONE,
        201,
        _N.STOP,
        "The checkpoint is signed; keep a copy of it elsewhere than on this machine.",
    ),
    _row("created", _E.DONE, 201, _N.STOP, "The issuer is ready."),
    _row("found", _E.DONE, 200, _N.STOP, "This is what is on record."),
    _row("proved", _E.DONE, 201, _N.STOP, "The proof is written."),
    _row("verified", _E.DONE, 200, _N.STOP, "What was signed is what is here."),
    _row(
        "not_anchored",
        _E.UNAVAILABLE,
        409,
        _N.TELL_A_PERSON,
        "This is not proven: no checkpoint that counts is over it.",
    ),
    _row("tampered", _E.UNAVAILABLE, 409, _N.TELL_A_PERSON, "This is not what was signed."),
    _row(
        "fault",
        _E.OUR_FAULT,
        500,
        _N.TELL_A_PERSON,
        "Something is wrong inside the issuer; nothing more was done.",
    ),
)

_NOES: Final = (
    _no(_R.MALFORMED, _E.USAGE, 400, _N.STOP, "The request cannot be read as what it should be."),
    _no(_R.UNSUPPORTED, _E.REFUSED, 422, _N.STOP, "Not supported yet."),
    _no(
        _R.LEDGER_UNAVAILABLE,
        _E.UNAVAILABLE,
        503,
        _N.TELL_A_PERSON,
        "The ledger is not available; nothing was sent.",
    ),
    _no(
        _R.AUDIT_UNAVAILABLE,
        _E.UNAVAILABLE,
        503,
        _N.TELL_A_PERSON,
        "The audit trail cannot be written; nothing was sent.",
    ),
    _no(
        _R.KEYS_UNAVAILABLE,
        _E.UNAVAILABLE,
        503,
        _N.TELL_A_PERSON,
        "The issuer's keys are not available; nothing was sent.",
    ),
    _no(
        _R.CLOCK_UNTRUSTED,
        _E.UNAVAILABLE,
        503,
        _N.TELL_A_PERSON,
        "The clock cannot be trusted; nothing was sent.",
    ),
    _no(
        _R.CHECKPOINT_REFUSED,
        _E.REFUSED,
        409,
        _N.TELL_A_PERSON,
        "The ledger does not go on from a checkpoint that was signed; nothing was signed.",
    ),
    _no(
        _R.UNAUTHENTICATED,
        _E.REFUSED,
        401,
        _N.TELL_A_PERSON,
        "The credential is not one that counts here; nothing was done.",
    ),
    _no(_R.NOT_FOUND, _E.USAGE, 404, _N.STOP, "There is no such effect here."),
    _no(
        _R.UNKNOWN_REFERENCE,
        _E.USAGE,
        422,
        _N.STOP,
        "The request names something that the owner has not declared.",
    ),
    _no(
        _R.MISMATCH,
        _E.REFUSED,
        422,
        _N.STOP,
        "This is not what was prepared under that reference; nothing was sent.",
    ),
    _no(
        _R.REQUEST_KEY_REUSED, _E.REFUSED, 422, _N.STOP, "That request key already stands for something else."
    ),
    _no(_R.FORBIDDEN, _E.REFUSED, 403, _N.STOP, "This caller may not do that."),
    _no(
        _R.SIGNATURE_NEEDED,
        _E.REFUSED,
        403,
        _N.TELL_A_PERSON,
        "This needs the signature of a person who may do it; nothing was done.",
    ),
    _no(
        _R.SIGNATURE_REFUSED,
        _E.REFUSED,
        403,
        _N.TELL_A_PERSON,
        "The signature does not count for this; nothing was done.",
    ),
    _no(
        _R.OUTCOME_UNKNOWN,
        _E.UNKNOWN,
        409,
        _N.TELL_A_PERSON,
        "It may have been done. It is never sent again; its budget stays held until the truth is known.",
    ),
    _no(
        _R.AUDIT_PENDING,
        _E.UNKNOWN,
        409,
        _N.TELL_A_PERSON,
        "It was sent and its outcome is on record, but the audit trail has not confirmed it yet. Do not repeat it.",
    ),
    _no(
        _R.ALREADY_CONSUMED, _E.REFUSED, 409, _N.STOP, "This permit is spent; nothing is sent a second time."
    ),
    _no(
        _R.TOO_LATE,
        _E.REFUSED,
        409,
        _N.TELL_A_PERSON,
        "Too late: it was admitted before, and keeps its real outcome.",
    ),
    _no(_R.NAME_TAKEN, _E.REFUSED, 409, _N.STOP, "There is already a task of that name."),
    _no(
        _R.NOTHING_TO_CHANGE, _E.REFUSED, 409, _N.STOP, "That is how it stands already; nothing was changed."
    ),
    _no(_R.NOT_PERMITTED_YET, _E.REFUSED, 409, _N.WAIT, "This effect has no permit; nothing was sent."),
    _no(_R.DENIED, _E.DENIED, 403, _N.STOP, "No policy permits this."),
    _no(
        _R.POLICY_ERROR,
        _E.DENIED,
        403,
        _N.TELL_A_PERSON,
        "A policy could not be evaluated, so this is denied.",
    ),
    _no(_R.DECLINED, _E.DENIED, 403, _N.STOP, "A person declined this."),
    _no(_R.WITHDRAWN, _E.REFUSED, 409, _N.STOP, "This effect was withdrawn."),
    _no(_R.REVOKED, _E.REFUSED, 409, _N.STOP, "The permit was revoked; nothing was sent."),
    _no(
        _R.SUSPENDED,
        _E.REFUSED,
        409,
        _N.TELL_A_PERSON,
        "This is frozen until an owner thaws it; nothing was sent.",
    ),
    _no(_R.EXPIRED, _E.REFUSED, 409, _N.PREPARE_AGAIN, "The permit has expired; nothing was sent."),
    _no(
        _R.OUTSIDE_TASK,
        _E.REFUSED,
        403,
        _N.STOP,
        "The task does not name this, so it may not be done in it; nothing was sent.",
    ),
    _no(
        _R.COLLECTED,
        _E.REFUSED,
        409,
        _N.STOP,
        "This effect is over, and its record was collected; nothing more is sent, and nothing is made anew.",
    ),
    _no(_R.INVOCATION_OVER, _E.REFUSED, 409, _N.STOP, "The invocation is over; nothing was sent."),
    _no(
        _R.INVOCATION_UNSETTLED,
        _E.REFUSED,
        409,
        _N.TELL_A_PERSON,
        "The invocation cannot end as succeeded: this stands against it; nothing was written.",
    ),
    _no(_R.TASK_CLOSED, _E.REFUSED, 409, _N.STOP, "The task is closed; nothing was sent."),
    _no(
        _R.TASK_FROZEN,
        _E.REFUSED,
        409,
        _N.TELL_A_PERSON,
        "The task is frozen until it is thawed; nothing was sent.",
    ),
    _no(_R.TASK_EXPIRED, _E.REFUSED, 409, _N.STOP, "The task has expired; nothing was sent."),
    _no(
        _R.PERMIT_BROKEN,
        _E.REFUSED,
        409,
        _N.TELL_A_PERSON,
        "The permit's seal does not open; nothing was sent.",
    ),
    _no(
        _R.PREPARE_AGAIN,
        _E.REFUSED,
        409,
        _N.PREPARE_AGAIN,
        "Something this effect was bound to has changed; nothing was sent.",
    ),
    _no(
        _R.CANNOT_PREPARE,
        _E.REFUSED,
        422,
        _N.STOP,
        "This cannot be done to that target as it is; nothing was sent.",
    ),
    _no(
        _R.TARGET_UNREADABLE,
        _E.UNAVAILABLE,
        503,
        _N.TELL_A_PERSON,
        "What has to be looked at first cannot be read now; nothing was sent.",
    ),
    _no(
        _R.CLASS_EXHAUSTED,
        _E.BUDGET,
        409,
        _N.TELL_A_PERSON,
        "The bound on automatic permits of this class is used up.",
    ),
    _no(
        _R.SLOTS_EXHAUSTED,
        _E.BUDGET,
        409,
        _N.TELL_A_PERSON,
        "The task has no admission of this left; nothing was sent.",
    ),
    _no(
        _R.TASK_FULL,
        _E.BUDGET,
        409,
        _N.TELL_A_PERSON,
        "The task has too many effects that are not over yet; nothing was sent.",
    ),
    _no(
        _R.BUDGET_OVERRUN,
        _E.BUDGET,
        409,
        _N.TELL_A_PERSON,
        "An effect cost more than was reserved, which blocks this budget.",
    ),
    _no(
        _R.BUDGET_EXCEEDED,
        _E.BUDGET,
        409,
        _N.TELL_A_PERSON,
        "The budget does not bear this; nothing was sent.",
    ),
    _no(_R.LEDGER_FULL, _E.BUDGET, 409, _N.TELL_A_PERSON, "The ledger is full; nothing was sent."),
)

CODES: Final = MappingProxyType({code.name: code for code in (*_STATES, *_NOES)})
"""Every code that an answer can carry, by name."""

_STATE_CODES: Final = MappingProxyType(
    {
        EffectState.UNKNOWN: str(_R.OUTCOME_UNKNOWN),
        EffectState.ADMITTED: str(_R.ALREADY_CONSUMED),
    },
)


def code_of(state: EffectState) -> str:
    """Return the code that tells somebody else where an effect stands."""
    return _STATE_CODES.get(state, str(state))


def exit_of(name: str) -> Exit:
    """Return the exit code of a code."""
    return CODES[name].exit
