"""A million spans: what each question visits beside what it returns, and how long it takes (AUD-06, LED-07).

Visits are counted in steps of SQLite's own machine. One row that is found takes some sixty, and one that another part
of a question passes by about the same; so work is told in rows.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from ledger.port import SpanFilter, View
from ledger.sqlite import SqliteLedger
from ledger.sqlite.span_view import BATCH
from ledger.states import EffectState
from ledger.transitions import SpanRow, TransitionName
from tests.fault.test_authority_index import steps_of
from tests.fault.test_span_index import (
    LIMIT,
    OTHERS,
    QUESTIONS,
    RARE,
    STEPS_PER_ENTRY,
    STEPS_PER_ROW,
    WINDOW_MS,
)
from tests.support.long_trail import long_trail

SPANS = 1_000_000
STEPS_PER_NO = 900
"""For one refusal or denial: whether anything was done on its resource shortly after it, and what."""

STEPS_PER_ROW_AHEAD = 100
"""For one of those that are read beyond the last that is told: they are read in batches."""

Figure = Callable[[str], None]
pytestmark = [pytest.mark.soak, pytest.mark.spec("AUD-06", "LED-07")]


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteLedger]:
    book = long_trail(Path(tmp_path_factory.mktemp("million")) / "book", spans=SPANS)
    opened = book.open()
    yield opened
    opened.close()
    book.path.unlink()


def measured(ledger: SqliteLedger, look: Callable[[View], object]) -> tuple[int, float]:
    """Return the steps of a look, and the milliseconds that it takes when it is asked again."""
    steps = steps_of(ledger, look)
    began = time.perf_counter()
    ledger.read(look)
    return steps, (time.perf_counter() - began) * 1000


def every(view: View, wanted: SpanFilter) -> Sequence[SpanRow]:
    return view.find_spans(wanted, limit=SPANS)


def test_each_question_costs_what_it_returns(ledger: SqliteLedger, figure: Figure) -> None:
    for name, look in QUESTIONS.items():
        steps, took = measured(ledger, look)
        figure(f"{name}: {steps} steps, {took:.2f} ms")
        assert steps <= STEPS_PER_ROW * LIMIT, name


def test_parts_that_rarely_meet_cost_what_the_rarest_has(ledger: SqliteLedger, figure: Figure) -> None:
    for name, (look, rarest) in RARE.items():
        entries = len(ledger.read(partial(every, wanted=rarest)))
        steps, took = measured(ledger, look)
        figure(f"{name}: {steps} steps, {took:.2f} ms; the rarest part has {entries}")
        assert steps <= STEPS_PER_ENTRY * 3 * entries + STEPS_PER_ROW, name


def passed_by(ledger: SqliteLedger) -> int:
    """Count the denials and refusals up to the last one of a page of those after which something was done."""
    page = ledger.read(lambda view: view.denied_then_done(SpanFilter(), window_ms=WINDOW_MS, limit=LIMIT))
    assert len(page) == LIMIT
    last = page[-1].denied.position.sequence
    counted = ledger.read(lambda view: view.count_spans(1, last))
    return counted[TransitionName.EFFECT_DENIED] + counted[TransitionName.REFUSED]


def test_standing_questions(ledger: SqliteLedger, figure: Figure) -> None:
    for name, look in OTHERS.items():
        steps, took = measured(ledger, look)
        figure(f"{name}: {steps} steps, {took:.2f} ms")
        assert steps <= STEPS_PER_NO * passed_by(ledger) + STEPS_PER_ROW_AHEAD * BATCH, name
    period = ledger.read(lambda view: view.count_spans(1, SPANS))
    assert sum(period.values()) == SPANS
    steps, took = measured(ledger, lambda view: view.count_spans(1, SPANS))
    figure(f"counting all by name: {steps} steps, {took:.0f} ms")
    assert steps <= 4 * SPANS


def test_pages_of_a_long_answer_cost_the_same_at_its_end(ledger: SqliteLedger, figure: Figure) -> None:
    wanted = SpanFilter(states=frozenset({EffectState.UNKNOWN}))
    found = ledger.read(partial(every, wanted=wanted))
    assert len(found) == ledger.read(lambda view: view.count_spans(1, SPANS))[TransitionName.EFFECT_UNKNOWN]
    last = found[-LIMIT - 1].position.sequence
    first = steps_of(ledger, lambda view: view.find_spans(wanted, limit=LIMIT))
    final = steps_of(ledger, lambda view: view.find_spans(wanted, after=last, limit=LIMIT))
    figure(f"{len(found)} unknown: {first} steps for the first page, {final} for the last")
    assert final <= first + STEPS_PER_ROW
