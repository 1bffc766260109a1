"""A full ledger: what checking all of it and opening it cost, beside what reading it once costs.

The floor of a check is SQLite's own `integrity_check` and every row of every table handed to Python once. Nothing that
looks at each row can be below that; what is above is hashing, MACs, seals and comparing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from issuer.checking import checked_file
from issuer.sealing import open_key_ring
from ledger.sqlite.connection import DRIVER
from tests.bench.parts import Row, median_cost
from tests.support.full_ledger import full_ledger, quick_recorder
from tests.support.ledgers import Book

ROUNDS = 3
OPENINGS = 20


@contextmanager
def _raw(book: Book) -> Iterator[Any]:
    raw = DRIVER.Connection(str(book.path), isolation_level=None)
    yield raw
    raw.close()


def _read_once(book: Book) -> int:
    """Ask SQLite whether the file is whole, read every row, and return how many there are."""
    with _raw(book) as raw:
        raw.execute("PRAGMA integrity_check").fetchall()
        tables = raw.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        return sum(1 for (table,) in tables for _row in raw.execute(f"SELECT * FROM {table}"))  # noqa: S608


def _opened_barely(book: Book) -> None:
    with _raw(book) as raw:
        raw.execute("PRAGMA journal_mode = WAL").fetchall()
        raw.execute("SELECT * FROM head").fetchall()


def full_ledger_rows(folder: Path, *, effects: int) -> list[Row]:
    """Make a ledger of so many effects, and measure a check and an opening of it.

    Raises:
        SystemExit: the check found something; then there is nothing to measure.
    """
    book = full_ledger(folder / "book", effects=effects)
    ring = open_key_ring(folder / "book" / "keys")
    report = checked_file(book.path, ring)
    if not report.is_clean or report.effects != effects:
        raise SystemExit(f"the check of the benchmark's ledger found {report.findings[:3]}")
    number = _read_once(book)
    floor = median_cost(lambda: _read_once(book), rounds=ROUNDS)
    check = median_cost(lambda: checked_file(book.path, ring), rounds=ROUNDS)
    opened = median_cost(lambda: book.open(recorder=quick_recorder).close(), rounds=OPENINGS)
    bare = median_cost(lambda: _opened_barely(book), rounds=OPENINGS)
    return [
        Row(
            what=f"check of {effects} effects, {number} rows",
            figure=f"{check.cpu_s:.2f} s CPU",
            floor=f"{floor.cpu_s:.2f} s: integrity_check, every row read once",
            ratio=check.cpu_s / floor.cpu_s,
            goal="about 1 s of 10000",
        ),
        Row(
            what="rows checked",
            figure=f"{number / check.wall_s:,.0f}/s",
            floor=f"{number / floor.wall_s:,.0f}/s",
            ratio=None,
            goal="",
        ),
        Row(
            what=f"opening {effects} effects",
            figure=f"{opened.cpu_s * 1000:.1f} ms CPU",
            floor=f"{bare.cpu_s * 1000:.1f} ms: bare SQLite and one row",
            ratio=opened.cpu_s / bare.cpu_s,
            goal="< 50 ms",
        ),
    ]
