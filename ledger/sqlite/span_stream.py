"""Every span of a ledger as its rows say it, in order and from one snapshot, for whoever verifies the whole trail.

Rules: AUD-04. It needs no key and writes nothing; rows are read a batch at a time, beside any writer.
Next: `audit.trail_rows`, which verifies them; `ledger.sqlite.check_trail` judges them against head and states.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ledger.archive import LeafRow
from ledger.errors import LedgerCorrupt
from ledger.port import SpanColumns
from ledger.sqlite.check_ground import UNREADABLE
from ledger.sqlite.connection import DatabaseError, as_fault, open_database
from ledger.sqlite.span_rows import span_batches

__all__ = ["SpanStream", "open_leaf_stream", "open_span_stream"]

_ALL_LEAVES: Final = (
    "SELECT leaf FROM (SELECT sequence, leaf FROM spans WHERE sequence <= ?1 "
    "UNION ALL SELECT sequence, leaf FROM archived_leaves WHERE sequence <= ?1) ORDER BY sequence"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanStream:
    """The spans of one ledger: how many there are, and their rows in batches, to be read once.

    `archived` are the leaves of those that were archived, in order.
    """

    ledger_id: str
    count: int
    batches: Iterator[Sequence[SpanColumns]]
    archived: Iterator[LeafRow]


@contextmanager
def open_span_stream(path: Path) -> Iterator[SpanStream]:
    """Give the spans of the ledger at `path`, or of a copy of one; the snapshot ends with the block.

    Raises:
        LedgerUnavailable, LedgerCorrupt: it cannot be read; `batches` raise them as well.
    """
    with _snapshot(path) as raw:
        with _as_faults():
            found = raw.execute("SELECT ledger_id FROM ledger WHERE one = 1").fetchone()
            count = raw.execute("SELECT count(*) FROM spans").fetchone()[0]
        if found is None:
            raise LedgerCorrupt("no_ledger", "The ledger does not say which one it is.")
        yield SpanStream(ledger_id=str(found[0]), count=count, batches=_batches(raw), archived=_archived(raw))


@contextmanager
def open_leaf_stream(path: Path, size: int) -> Iterator[Iterator[bytes]]:
    """Give the leaf hashes of the first `size` spans as their rows say them; the snapshot ends with the block.

    Those of archived spans are among them.

    Whoever takes them holds the root over them against one that was signed: a row may say anything.

    Raises:
        LedgerUnavailable, LedgerCorrupt: as `open_span_stream`.
    """
    with _snapshot(path) as raw:
        yield _leaves(raw, size)


@contextmanager
def _snapshot(path: Path) -> Iterator[Any]:
    raw = open_database(path, journal_mode=None, read_only=True)
    try:
        with _as_faults():
            raw.execute("BEGIN")
        yield raw
    finally:
        raw.close()


@contextmanager
def _as_faults() -> Iterator[None]:
    try:
        yield
    except DatabaseError as fault:
        raise as_fault(fault) from None
    except UNREADABLE:
        raise LedgerCorrupt("unreadable", "The ledger holds rows that were never written there.") from None


def _batches(raw: Any) -> Iterator[Sequence[SpanColumns]]:  # noqa: ANN401 - untyped driver
    """Yield the rows, each with its policies; refuse at the end where policies name spans that are not there."""
    strays: list[int] = []
    with _as_faults():
        yield from span_batches(raw, strays.append)
    if strays:
        raise LedgerCorrupt("span_policies", "A row names a policy of a span that is not there.")


def _leaves(raw: Any, size: int) -> Iterator[bytes]:  # noqa: ANN401 - untyped driver
    with _as_faults():
        for (leaf,) in raw.execute(_ALL_LEAVES, (size,)):
            yield leaf


def _archived(raw: Any) -> Iterator[LeafRow]:  # noqa: ANN401 - untyped driver
    with _as_faults():
        for epoch, sequence, leaf in raw.execute(
            "SELECT epoch, sequence, leaf FROM archived_leaves ORDER BY sequence"
        ):
            yield LeafRow(epoch=epoch, sequence=sequence, leaf=leaf)
