"""Rows of invocations and obligations to values and back: the one place that knows their column order.

It decides nothing. Next: `ledger.sqlite.view` reads with it, `ledger.sqlite.invocation_writes` writes with it.
"""

from typing import Any, Final

from ledger.canonical import canonical_bytes
from ledger.invocations import Invocation, InvocationOutcome, Obligation
from ledger.model import EffectId, InstantMs, InvocationId, TaskId

INVOCATION_COLUMNS: Final = "invocation_id, caller, task_id, actor, opened_ms, deadline_ms, outcome, ended_ms"

Row = tuple[Any, ...]


def invocation_row(invocation: Invocation) -> Row:
    """Return the values of `INVOCATION_COLUMNS`."""
    return (
        invocation.invocation_id,
        invocation.caller,
        invocation.task_id,
        invocation.actor,
        invocation.opened_ms,
        invocation.deadline_ms,
        None if invocation.outcome is None else str(invocation.outcome),
        invocation.ended_ms,
    )


def invocation_from(row: Row) -> Invocation:
    """Build an invocation from `INVOCATION_COLUMNS`; whether its MAC holds is for the reader to see."""
    return Invocation(
        invocation_id=InvocationId(row[0]),
        caller=row[1],
        task_id=TaskId(row[2]),
        actor=row[3],
        opened_ms=InstantMs(row[4]),
        deadline_ms=InstantMs(row[5]),
        outcome=None if row[6] is None else InvocationOutcome(row[6]),
        ended_ms=None if row[7] is None else InstantMs(row[7]),
    )


def invocation_authority(invocation: Invocation, sequence: int) -> bytes:
    """Return the bytes whose MAC gives an invocation its authority, as its span at `sequence` left it (LED-06)."""
    return canonical_bytes(["invocation", *invocation_row(invocation), sequence])


def obligation_from(row: Row) -> Obligation:
    """Build an obligation from (effect_id, name, deadline_ms, done_ms)."""
    return Obligation(
        effect_id=EffectId(row[0]),
        name=row[1],
        deadline_ms=InstantMs(row[2]),
        done_ms=None if row[3] is None else InstantMs(row[3]),
    )
