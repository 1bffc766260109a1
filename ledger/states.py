"""The states of an effect and the legal moves between them: one table, held here and again by the database.

Rules: LED-05 (a move is legal or impossible), REP-01..07, ADM-07.
It does not know who may ask for a move or what a move costs; `ledger.rules` decides that.
Next: `ledger.rules`, and `ledger.sqlite.schema`, which writes this same table into CHECKs and triggers.
"""

from enum import StrEnum
from types import MappingProxyType
from typing import Final


class EffectState(StrEnum):
    """Where an effect stands. Everything from `admitted` on counts as possibly sent."""

    PREPARED = "prepared"
    AWAITING_APPROVAL = "awaiting_approval"
    PERMITTED = "permitted"
    DENIED = "denied"
    DECLINED = "declined"
    WITHDRAWN = "withdrawn"
    EXPIRED = "expired"
    REVOKED = "revoked"
    ADMITTED = "admitted"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    NO_EFFECT = "no_effect"
    UNKNOWN = "unknown"


_ENDS_BEFORE_ADMISSION: Final = frozenset(
    {EffectState.WITHDRAWN, EffectState.EXPIRED, EffectState.REVOKED},
)
_OUTCOMES: Final = frozenset({EffectState.SUCCEEDED, EffectState.FAILED, EffectState.NO_EFFECT})

LEGAL_MOVES: Final = MappingProxyType(
    {
        EffectState.PREPARED: frozenset(
            {
                *(EffectState.AWAITING_APPROVAL, EffectState.PERMITTED, EffectState.DENIED),
                EffectState.UNKNOWN,
            },
        )
        | _ENDS_BEFORE_ADMISSION,
        EffectState.AWAITING_APPROVAL: frozenset(
            {EffectState.PERMITTED, EffectState.DENIED, EffectState.DECLINED, EffectState.UNKNOWN},
        )
        | _ENDS_BEFORE_ADMISSION,
        EffectState.PERMITTED: frozenset({EffectState.ADMITTED, EffectState.UNKNOWN})
        | _ENDS_BEFORE_ADMISSION,
        EffectState.ADMITTED: _OUTCOMES | {EffectState.UNKNOWN},
        EffectState.UNKNOWN: _OUTCOMES,
        EffectState.DENIED: frozenset(),
        EffectState.DECLINED: frozenset(),
        EffectState.WITHDRAWN: frozenset(),
        EffectState.EXPIRED: frozenset(),
        EffectState.REVOKED: frozenset(),
        EffectState.SUCCEEDED: frozenset(),
        EffectState.FAILED: frozenset(),
        EffectState.NO_EFFECT: frozenset(),
    },
)
"""From each state, the states it may move to (LED-05).

From a pending state to `unknown` only a restore moves an effect; the database asks for the span that says so.
"""

PENDING: Final = frozenset({EffectState.PREPARED, EffectState.AWAITING_APPROVAL, EffectState.PERMITTED})
"""Not decided or not used yet: may still expire, and nothing was sent."""

UNRESOLVED: Final = frozenset({EffectState.ADMITTED, EffectState.UNKNOWN})
"""Possibly sent and not known to have ended: the maximum cost stays held (BUD-04)."""

UNUSED: Final = _ENDS_BEFORE_ADMISSION | {EffectState.DENIED, EffectState.DECLINED}
"""Over without an admission: nothing was sent, nothing is held, and no service ever heard of it (LED-02)."""

PERMIT_UNUSED: Final = _ENDS_BEFORE_ADMISSION | {EffectState.PERMITTED}
"""Where an effect stands whose permit, if it ever had one, was not used (AUD-06)."""

SETTLED: Final = _OUTCOMES
"""Over after an admission, with a known outcome."""

SLOT_RETURNING: Final = frozenset(
    {
        EffectState.EXPIRED,
        EffectState.REVOKED,
        EffectState.WITHDRAWN,
        EffectState.DECLINED,
        EffectState.DENIED,
        EffectState.NO_EFFECT,
    },
)
"""States that give back what issuing had taken from a class bound (BUD-06): proven no effect, or never used."""


def is_legal(origin: EffectState, target: EffectState) -> bool:
    """Say whether an effect in `origin` may move to `target` (LED-05)."""
    return target in LEGAL_MOVES[origin]
