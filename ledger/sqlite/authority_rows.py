"""Rows of rulings, waits and approvals to values and back: the one place that knows their column order.

It decides nothing. Next: `ledger.sqlite.authority_view` reads with it, `ledger.sqlite.authority_writes` writes with it.
"""

import json
from types import MappingProxyType
from typing import Any, Final

from ledger.authority import Approval, ApprovalWait, Ruling, RulingKind
from ledger.canonical import canonical_bytes
from ledger.model import EffectId, InstantMs

RULING_COLUMNS: Final = "kind, name, value, voids_until_ms, since_ms"
WAIT_COLUMNS: Final = "effect_id, approvers, statement_digest, asked_ms"
APPROVAL_COLUMNS: Final = "effect_id, person, key, signature, at_ms"

Row = tuple[Any, ...]


def ruling_row(ruling: Ruling) -> Row:
    """Return the values of `RULING_COLUMNS`."""
    # A `Stop` is text to a type checker, and of no type that has a canonical form.
    return (str(ruling.kind), str(ruling.name), str(ruling.value), ruling.voids_until_ms, ruling.since_ms)


def ruling_from(row: Row) -> Ruling:
    """Build a ruling from `RULING_COLUMNS`; whether its MAC holds is for the reader to see."""
    return Ruling(
        kind=RulingKind(row[0]),
        name=row[1],
        value=row[2],
        voids_until_ms=InstantMs(row[3]),
        since_ms=InstantMs(row[4]),
    )


def ruling_authority(ruling: Ruling, sequence: int) -> bytes:
    """Return the bytes whose MAC gives a ruling its authority, as its span at `sequence` left it (LED-06)."""
    return canonical_bytes(["ruling", *ruling_row(ruling), sequence])


def wait_row(wait: ApprovalWait) -> Row:
    """Return the values of `WAIT_COLUMNS`."""
    approvers = canonical_bytes(dict(wait.approvers)).decode()
    return (wait.effect_id, approvers, wait.statement_digest, wait.asked_ms)


def wait_from(row: Row) -> ApprovalWait:
    """Build a wait from `WAIT_COLUMNS`; whether its MAC holds is for the reader to see."""
    return ApprovalWait(
        effect_id=EffectId(row[0]),
        approvers=MappingProxyType(json.loads(row[1])),
        statement_digest=row[2],
        asked_ms=InstantMs(row[3]),
    )


def wait_authority(wait: ApprovalWait) -> bytes:
    """Return the bytes whose MAC fixes what an effect waits for (LED-06)."""
    effect_id, approvers, statement_digest, asked_ms = wait_row(wait)
    return canonical_bytes(["approval_wait", effect_id, approvers, statement_digest.hex(), asked_ms])


def approval_row(approval: Approval) -> Row:
    """Return the values of `APPROVAL_COLUMNS`."""
    return (approval.effect_id, approval.person, approval.key, approval.signature, approval.at_ms)


def approval_from(row: Row) -> Approval:
    """Build an approval from `APPROVAL_COLUMNS`; whether its MAC holds is for the reader to see."""
    return Approval(
        effect_id=EffectId(row[0]), person=row[1], key=row[2], signature=row[3], at_ms=InstantMs(row[4])
    )


def approval_authority(approval: Approval) -> bytes:
    """Return the bytes whose MAC says who said yes with which key (LED-06)."""
    return canonical_bytes(["approval", *approval_row(approval)])
