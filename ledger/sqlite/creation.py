"""Making a new ledger: the file, its identity, its first head; durable before anyone is told.

Rules: LED-01, LED-06, AUD-05 (epoch 1, lane 0). The first span, `ledger.created`, is written by the first
transaction like any other, so that it passes the same proof.
Next: `ledger.sqlite.store` opens it.
"""

from pathlib import Path
from typing import Final

from ledger.model import InstantMs, LedgerId, Position
from ledger.port import Authenticator
from ledger.sqlite import rows
from ledger.sqlite.connection import open_database
from ledger.sqlite.migrations import create_file
from ledger.sqlite.store import journal_mode
from ledger.tree import Frontier

FIRST_EPOCH: Final = 1


def create_ledger(path: Path, *, ledger_id: LedgerId, keys: Authenticator, now_ms: InstantMs) -> None:
    """Create a ledger at `path` in an existing folder.

    Raises:
        LedgerUnavailable: something is already there, or it cannot be written.
    """
    mode = journal_mode()
    create_file(path, journal_mode=mode)
    raw = open_database(path, journal_mode=mode)
    try:
        frontier = Frontier()
        position = Position(ledger_id=ledger_id, epoch=FIRST_EPOCH, lane=0, sequence=0)
        encoded, root = frontier.encoded(), frontier.root()
        mac = keys.tag("head", rows.head_authority(ledger_id, position, encoded, root, now_ms))
        raw.execute("BEGIN IMMEDIATE")
        raw.execute("INSERT INTO ledger(one, ledger_id, created_ms) VALUES (1, ?, ?)", (ledger_id, now_ms))
        raw.execute(
            "INSERT INTO head(lane, epoch, sequence, frontier, root, clock_ms, mac) VALUES (0, ?, 0, ?, ?, ?, ?)",
            (FIRST_EPOCH, encoded, root, now_ms, mac),
        )
        raw.execute("COMMIT")
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        raw.close()
