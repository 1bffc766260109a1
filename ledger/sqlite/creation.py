"""Making a new ledger: the file, its identity, its first head; durable before anyone is told.

Rules: LED-01, LED-06, AUD-05 (epoch 1, lane 0). The first span, `ledger.created`, is written by the first
transaction like any other, so that it passes the same proof.
Next: `ledger.sqlite.store` opens it.
"""

from pathlib import Path
from typing import Final

from ledger.model import InstantMs, LedgerId
from ledger.port import Authenticator
from ledger.sqlite import rows
from ledger.sqlite.connection import open_database
from ledger.sqlite.migrations import create_file
from ledger.sqlite.store import journal_mode
from ledger.standing import EMPTY_REGISTER, Standing, register_digest
from ledger.timekeeping import NO_UPTIME
from ledger.transitions import Position
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
        head = rows.Head(
            position=position,
            frontier=frontier.encoded(),
            root=frontier.root(),
            clock_ms=now_ms,
            pending=register_digest(EMPTY_REGISTER),
            standing=register_digest(EMPTY_REGISTER),
            uptime=NO_UPTIME,
        )
        mac = keys.tag("head", rows.head_authority(head))
        raw.execute("BEGIN IMMEDIATE")
        raw.execute("INSERT INTO ledger(one, ledger_id, created_ms) VALUES (1, ?, ?)", (ledger_id, now_ms))
        marks = ", ".join("?" * (len(rows.HEAD_COLUMNS.split(",")) + 1))
        raw.execute(
            f"INSERT INTO head({rows.HEAD_COLUMNS}, mac) VALUES ({marks})", (*rows.head_row(head), mac)
        )
        for kind in Standing:
            raw.execute("INSERT INTO standing(kind, register) VALUES (?, ?)", (str(kind), EMPTY_REGISTER))
        raw.execute("INSERT INTO holdings VALUES (1, 0, 0, 0, 0, 0)")
        raw.execute("COMMIT")
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        raw.close()
