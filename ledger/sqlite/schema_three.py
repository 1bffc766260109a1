"""What schema 3 was: its digest and its registers. It had no rulings, waits or approvals; no row of it changes.

Rules: LED-06. What reads schema 3 here is written out, and shared with nothing that may change with a later schema.
Next: `ledger.sqlite.upgrade`, which calls this inside its transaction.
"""

from typing import Any, Final

from ledger.model import LedgerId
from ledger.port import Authenticator
from ledger.sqlite.earlier import Earlier, EarlierHead
from ledger.sqlite.earlier_registers import registered_head

DIGEST: Final = "c2d2ba4be5f22a018f47f88b1e320b25f4a3c5b0bd814ce0eac65ce820a77af6"
"""Digest of schema 3 as its release made it (`ledger.sqlite.schema.schema_digest`)."""

_PENDING: Final = "('awaiting_approval', 'permitted', 'prepared')"
_REGISTERS: Final = {
    "effects": (
        f"SELECT effect_id, mac FROM effects WHERE bucket = ? AND state IN {_PENDING} ORDER BY effect_id"
    ),
    "tasks": (
        "SELECT task_id AS id, mac FROM tasks WHERE bucket = ?1 UNION ALL "
        "SELECT invocation_id, mac FROM invocations WHERE bucket = ?1 AND outcome IS NULL ORDER BY id"
    ),
}
"""The rows of one bucket of each register."""


def proven_head(raw: Any, ledger_id: LedgerId, keys: Authenticator) -> EarlierHead:  # noqa: ANN401 - untyped driver
    """Read the head as schema 3 had it.

    Raises:
        LedgerCorrupt: as `ledger.sqlite.earlier_registers.registered_head`.
    """
    return registered_head(raw, ledger_id, keys, _REGISTERS)


def take_over(_raw: Any, _keys: Authenticator) -> frozenset[str]:  # noqa: ANN401 - untyped driver
    """Change nothing: every row says in schema 4 what it said."""
    return frozenset()


SCHEMA_THREE: Final = Earlier(number=3, digest=DIGEST, proven_head=proven_head, take_over=take_over)
