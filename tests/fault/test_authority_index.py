"""The index of changes of authority: what finding them costs in a long trail, and what it costs everybody else.

Work is counted in steps of SQLite's own machine, which are the same on every computer.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from issuer.trail import activations, authority_changes
from ledger.authority import RulingKind
from ledger.port import View
from ledger.sqlite import SqliteLedger
from ledger.sqlite.connection import open_database
from ledger.sqlite.damaged import DamagedView
from ledger.transitions import TransitionName
from tests.support.full_ledger import quick_recorder
from tests.support.ledger_authority import rule
from tests.support.ledgers import CENT, Book, commit_steps, made_book, open_task, probe_step
from tests.support.old_release import NUMBERS, old_issuer
from tests.support.upgrading import opened

BATCH = 5_000
SPANS = 20_000
RETURNED = 20
STEPS_PER_ROW = 60
"""Steps of SQLite's machine for one row of ten columns that is found, with what every query costs shared out."""

REVISION = TransitionName.REVISION_ACTIVATED
LOOKS: dict[str, Callable[[View], object]] = {
    "changes": lambda view: view.changes(2, limit=RETURNED),
    "changes_named": lambda view: view.changes(0, limit=RETURNED, name=REVISION),
    "changes_before": lambda view: view.changes_before(10**9, limit=RETURNED, name=REVISION),
    "epoch_after": lambda view: view.epoch_after(1),
}


@contextmanager
def open_quick(book: Book) -> Iterator[SqliteLedger]:
    """Open with a recorder that makes short spans, and quickly."""
    ledger = book.open(recorder=quick_recorder)
    try:
        yield ledger
    finally:
        ledger.close()


def grown(folder: Path, *, spans: int) -> Book:
    """Return a ledger with `spans` of nothing between its changes of authority; the story of each is the ledger's."""
    book = made_book(folder)
    with open_quick(book) as ledger:
        step = probe_step(ledger.ledger_id)
        open_task(ledger, "org", {CENT: 1})
        for number in range(RETURNED):
            rule(ledger, RulingKind.REVISION, "active", f"{number:064x}")
            commit_steps(ledger, *(step,) * (spans // RETURNED))
    return book


def steps_of(ledger: SqliteLedger, look: Callable[[View], object]) -> int:
    """Count the steps of SQLite's machine that a look takes."""
    counted = [0]

    def count() -> int:
        counted[0] += 1
        return 0

    ledger.read(look)  # opens the connection that reads
    raw: Any = ledger._reader
    raw.set_progress_handler(count, 1)
    try:
        ledger.read(look)
    finally:
        raw.set_progress_handler(None, 1)
    return counted[0]


@pytest.mark.spec("LED-07", "AUD-09")
def test_finding_changes_of_authority_costs_what_is_found_and_not_how_long_the_trail_is(
    tmp_path: Path,
) -> None:
    empty, long = (grown(tmp_path / f"{spans}", spans=spans) for spans in (0, SPANS))
    with open_quick(empty) as small, open_quick(long) as large:
        assert large.read(lambda view: view.head().sequence) > SPANS
        for name, look in LOOKS.items():
            before, after = steps_of(small, look), steps_of(large, look)
            assert 0 < before == after, name
            assert after <= STEPS_PER_ROW * RETURNED, name


@pytest.mark.spec("LED-07", "AUD-09")
def test_both_commands_read_by_the_index(tmp_path: Path) -> None:
    """Each reads its rows twice: once for all of them, and once to see that there are no more."""
    with open_quick(grown(tmp_path / "book", spans=2 * BATCH)) as ledger:
        assert steps_of(ledger, lambda view: _read(view, REVISION)) <= 2 * STEPS_PER_ROW * RETURNED
        assert steps_of(ledger, lambda view: _read(view, None)) <= 2 * STEPS_PER_ROW * RETURNED


def _read(view: View, name: TransitionName | None) -> None:
    """Do what the commands do, as far as spans of a quick recorder can be read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("issuer.trail.entry_of", lambda row: row)
        (authority_changes if name is None else activations)(view)


def plans(path: Path, queries: list[str]) -> list[str]:
    raw = open_database(path, journal_mode="wal")
    try:
        return [
            " ".join(str(row[3]) for row in raw.execute(f"EXPLAIN QUERY PLAN {query}")) for query in queries
        ]
    finally:
        raw.close()


def queries_of(
    ledger: SqliteLedger, look: Callable[[View], object], *, over: str = " FROM spans"
) -> list[str]:
    """Return the queries over spans that a look makes."""
    said: list[str] = []
    ledger.read(look)  # opens the connection that reads
    raw: Any = ledger._reader
    raw.set_trace_callback(said.append)
    try:
        ledger.read(look)
    finally:
        raw.set_trace_callback(None)
    return [query for query in said if over in query]


@pytest.mark.spec("LED-07", "AUD-09")
@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("changes", "SEARCH spans USING INDEX spans_changes (sequence>?)"),
        ("changes_named", "SEARCH spans USING INDEX spans_name (name=? AND sequence>?)"),
        ("changes_before", "SEARCH spans USING INDEX spans_name (name=? AND sequence<?)"),
        ("epoch_after", "SEARCH spans USING INDEX spans_name (name=?)"),
    ],
)
def test_every_query_is_answered_by_a_key_and_sorts_nothing(tmp_path: Path, name: str, plan: str) -> None:
    book = grown(tmp_path / "book", spans=RETURNED)
    with open_quick(book) as ledger:
        queries = queries_of(ledger, LOOKS[name])
    assert plans(book.path, queries) == [plan]


@pytest.mark.spec("LED-07")
def test_a_span_that_changes_no_authority_is_in_no_index_of_it(tmp_path: Path) -> None:
    few, many = (grown(tmp_path / f"{spans}", spans=spans) for spans in (RETURNED, BATCH))
    assert entries(few) == entries(many) == RETURNED + 1


def entries(book: Book) -> int:
    """Count the entries of the index of changes of authority, but for those of making the ledger."""
    raw = open_database(book.path, journal_mode="wal")
    try:
        (sql,) = raw.execute("SELECT sql FROM sqlite_schema WHERE name = 'spans_changes'").fetchone()
        where = str(sql).partition(" WHERE ")[2] or "1"
        query = (
            f"SELECT count(*) FROM spans INDEXED BY spans_changes WHERE {where} "  # noqa: S608 - our own schema
            "AND name <> 'ledger.created'"
        )
        return int(raw.execute(query).fetchone()[0])
    finally:
        raw.close()


@pytest.mark.spec("LED-04", "LED-07")
@pytest.mark.parametrize("number", NUMBERS)
def test_a_ledger_of_an_earlier_release_has_the_index_over_its_whole_trail(
    tmp_path: Path, number: int
) -> None:
    made = old_issuer(tmp_path / "old", number=number)
    with opened(made) as issuer:
        told = issuer._house.ledger.read(authority_changes)
        spans = issuer._house.ledger.read(lambda view: view.spans_after(0, limit=100_000))
    names = [one.entry.name for one in told]
    assert names[0] == "ledger.created"
    assert {"ledger.migrated", "task.opened", "revision.activated"} <= set(names)
    assert [one.entry.sequence for one in told] == [
        row.position.sequence for row in spans if row.name in set(names)
    ]


@pytest.mark.spec("LED-04")
def test_in_a_damaged_ledger_the_rows_are_shown_and_not_what_an_index_says(tmp_path: Path) -> None:
    book = grown(tmp_path / "book", spans=RETURNED)
    with open_quick(book) as ledger:
        known = ledger.read(lambda view: view.changes(0, limit=100))
        ledger_id = ledger.ledger_id
    raw = open_database(book.path, journal_mode="wal")
    try:
        raw.set_authorizer(None)
        for name in ("spans_changes", "spans_name"):
            raw.execute(f"DROP INDEX {name}")
        view = DamagedView(raw, ledger_id=ledger_id)
        assert view.changes(0, limit=100) == known
        assert len(view.changes_before(10**9, limit=100, name=REVISION)) == RETURNED
    finally:
        raw.close()
