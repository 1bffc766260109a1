"""Every span of a ledger as its rows say it, in order and from one snapshot, for whoever verifies the whole trail.

Rules: AUD-04. It needs no key and writes nothing; rows are read a batch at a time, beside any writer.
Next: `audit.trail_rows`, which verifies them; `ledger.sqlite.check_trail` judges them against head and states.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ledger.errors import LedgerCorrupt
from ledger.port import SpanColumns
from ledger.sqlite.check_ground import BATCH, UNREADABLE
from ledger.sqlite.connection import DatabaseError, as_fault, open_database
from ledger.sqlite.store import journal_mode

__all__ = ["SpanStream", "open_span_stream"]

_COLUMNS: Final = ", ".join(SpanColumns._fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanStream:
    """The spans of one ledger: how many there are, and their rows in batches, to be read once."""

    ledger_id: str
    count: int
    batches: Iterator[Sequence[SpanColumns]]


@contextmanager
def open_span_stream(path: Path) -> Iterator[SpanStream]:
    """Give the spans of the ledger at `path`; the snapshot ends with the block.

    Raises:
        LedgerUnavailable, LedgerCorrupt: it cannot be read, or a row was never written there.
    """
    raw = open_database(path, journal_mode=journal_mode(), read_only=True)
    try:
        raw.execute("BEGIN")
        found = raw.execute("SELECT ledger_id FROM ledger WHERE one = 1").fetchone()
        count = raw.execute("SELECT count(*) FROM spans").fetchone()[0]
        cursor = raw.execute(f"SELECT {_COLUMNS} FROM spans ORDER BY sequence")

        def batches() -> Iterator[Sequence[SpanColumns]]:
            while batch := cursor.fetchmany(BATCH):
                yield [SpanColumns._make(row) for row in batch]

        yield SpanStream(ledger_id=str(found[0]), count=count, batches=batches())
    except DatabaseError as fault:
        raise as_fault(fault) from None
    except UNREADABLE:
        raise LedgerCorrupt("unreadable", "The ledger holds rows that were never written there.") from None
    finally:
        raw.close()
