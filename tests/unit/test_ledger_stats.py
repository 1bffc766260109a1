"""How fast a ledger fills, from its own history: what came, what was collected, and what was long ago (LED-02)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.changes import EffectMoved, Step
from ledger.model import InstantMs, Task
from ledger.sqlite import SqliteLedger
from ledger.sqlite.stats import read_stats
from ledger.states import EffectState
from tests.support.collecting import asked, collect
from tests.support.ledgers import (
    CENT,
    HOUR_MS,
    START,
    Book,
    commit_steps,
    made_book,
    moving,
    new_effect,
    open_task,
    preparing,
)

DAY_MS = 24 * HOUR_MS
A_DAY = 4


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return made_book(tmp_path / "book")


@pytest.fixture
def ledger(book: Book) -> Iterator[SqliteLedger]:
    opened = book.open()
    yield opened
    opened.close()


def used(book: Book, ledger: SqliteLedger, days: int) -> Task:
    """Let an agent be denied `A_DAY` times a day, for so many days from the ledger's beginning on."""
    task = open_task(ledger, "org", {CENT: 1}, expires_ms=START + 1000 * DAY_MS)
    for day in range(days):
        book.clock.now = START + day * DAY_MS
        for _ in range(A_DAY):
            effect = new_effect(task, {CENT: 1}, prepared_ms=InstantMs(book.clock.now))
            moved = EffectMoved(
                effect_id=effect.effect_id, origin=EffectState.PREPARED, target=EffectState.DENIED
            )
            denied = Step(transition=moving(effect, EffectState.DENIED), changes=(moved,))
            commit_steps(ledger, preparing(effect), denied)
    book.clock.now = START + days * DAY_MS
    return task


@pytest.mark.spec("LED-02")
def test_the_first_hour_tells_no_pace(book: Book, ledger: SqliteLedger) -> None:
    used(book, ledger, 1)
    assert read_stats(book.path, now_ms=START + HOUR_MS - 1).growth is None
    growth = read_stats(book.path, now_ms=START + HOUR_MS).growth
    assert growth is not None
    assert growth.effects == pytest.approx(A_DAY * 24)


@pytest.mark.spec("LED-02")
def test_the_pace_is_that_of_the_last_week(book: Book, ledger: SqliteLedger) -> None:
    used(book, ledger, 10)
    stats = read_stats(book.path, now_ms=book.clock.now)
    growth = stats.growth
    assert growth is not None
    assert growth.effects == pytest.approx(A_DAY)
    assert growth.record_bytes == pytest.approx(A_DAY * stats.holdings.record_bytes / stats.holdings.effects)
    assert growth.span_bytes == pytest.approx(
        2 * A_DAY * stats.holdings.span_bytes / stats.holdings.spans, rel=0.05
    )
    quiet = read_stats(book.path, now_ms=book.clock.now + 20 * DAY_MS).growth
    assert quiet is not None
    assert (quiet.effects, quiet.record_bytes, quiet.span_bytes) == (0, 0, 0)


@pytest.mark.spec("LED-02")
def test_what_was_collected_is_taken_off_and_its_tombstones_are_not(book: Book, ledger: SqliteLedger) -> None:
    used(book, ledger, 10)
    while collect(ledger, asked()):
        pass
    stats = read_stats(book.path, now_ms=book.clock.now)
    assert (stats.holdings.effects, stats.holdings.tombstones) == (0, 10 * A_DAY)
    growth = stats.growth
    assert growth is not None
    assert growth.effects == pytest.approx(-3 * A_DAY / 7)  # three days of them were there a week ago
    assert growth.record_bytes == pytest.approx(stats.holdings.record_bytes / 7)
