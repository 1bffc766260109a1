"""The head of a ledger, proven: its MAC, its frontier, and that the trail ends where it says (LED-06).

Next: `ledger.sqlite.store` asks in every transaction; whoever made a copy asks it of the copy.
"""

from pathlib import Path
from typing import Any

from ledger.errors import Fault, LedgerCorrupt
from ledger.model import LedgerId
from ledger.port import Authenticator
from ledger.sqlite import rows
from ledger.sqlite.connection import DatabaseError, as_fault, open_database, schema_rows
from ledger.sqlite.schema import expected_digest, schema_digest
from ledger.tree import Frontier, decoded_frontier


def proven_head(raw: Any, ledger_id: LedgerId, keys: Authenticator) -> tuple[rows.Head, Frontier]:  # noqa: ANN401 - untyped driver
    """Return the head and its frontier.

    Raises:
        LedgerCorrupt: `no_head`, `head_mac`, `frontier` or `trail_length`.
    """
    row = raw.execute(f"SELECT {rows.HEAD_COLUMNS}, mac FROM head WHERE lane = 0").fetchone()
    if row is None:
        raise LedgerCorrupt("no_head", "The ledger has no head row.")
    head = rows.head_from(ledger_id, row)
    if not keys.is_authentic("head", rows.head_authority(head), row[len(row) - 1]):
        raise LedgerCorrupt("head_mac", "The head of the ledger was changed by someone without the keys.")
    try:
        frontier = decoded_frontier(head.frontier)
    except ValueError:
        raise LedgerCorrupt("frontier", "The tree of the ledger's spans is damaged.") from None
    last = raw.execute("SELECT max(sequence) FROM spans").fetchone()[0] or 0
    ends = head.position.sequence
    if frontier.size != ends or frontier.root() != head.root or last != ends:
        raise LedgerCorrupt("trail_length", "The ledger's trail does not end where its head says.")
    return head, frontier


def head_of_copy(path: Path, ledger_id: LedgerId, keys: Authenticator) -> tuple[rows.Head, Frontier]:
    """Open a copy of the ledger `ledger_id`, such as a backup, and return its head, proven.

    Raises:
        LedgerUnavailable: it cannot be read.
        LedgerCorrupt: it is none, has another schema, or is of another ledger (`foreign_ledger`).
    """
    raw = open_database(path, journal_mode=None, read_only=True)
    try:
        if schema_digest(schema_rows(raw)) != expected_digest():
            message = "The ledger's tables or guards are not those this release makes."
            raise LedgerCorrupt("schema", message)
        found = raw.execute("SELECT ledger_id FROM ledger WHERE one = 1").fetchone()
        if found is None or found[0] != ledger_id:
            raise LedgerCorrupt("foreign_ledger", "The file is of another ledger than these keys are.")
        return proven_head(raw, ledger_id, keys)
    except DatabaseError as fault:
        raise as_fault(fault) from None
    finally:
        raw.close()


def head_key_said(path: Path) -> int | None:
    """Return the id of the key that the head of a ledger file says signed it, proven by nothing; None if unreadable."""
    try:
        raw = open_database(path, journal_mode=None, read_only=True)
    except Fault:
        return None
    try:
        row = raw.execute("SELECT mac FROM head WHERE lane = 0").fetchone()
        return int.from_bytes(row[0][:4], "big") if row is not None and type(row[0]) is bytes else None
    except DatabaseError:
        return None
    finally:
        raw.close()


def epoch_said(path: Path) -> int:
    """Return the epoch that a ledger file says it is in, proven by nothing; 0 where it cannot be read."""
    try:
        raw = open_database(path, journal_mode=None, read_only=True)
    except Fault:
        return 0
    try:
        row = raw.execute("SELECT epoch FROM head WHERE lane = 0").fetchone()
        return row[0] if row is not None and type(row[0]) is int else 0
    except DatabaseError:
        return 0
    finally:
        raw.close()
