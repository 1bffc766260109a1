"""The indexes that spans are found by: what a question costs in a long trail, and that none reads all of it.

Work is counted in steps of SQLite's own machine, which are the same on every computer.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ledger.changes import Step
from ledger.model import EffectId, InstantMs
from ledger.port import SpanFilter, View
from ledger.sqlite import SqliteLedger
from ledger.states import EffectState
from ledger.transitions import TransitionName
from tests.fault.test_authority_index import plans, queries_of, steps_of
from tests.support import long_trail as told
from tests.support.ledgers import START, Book, attacker, commit_steps
from tests.support.long_trail import long_trail

SHORT, LONG = 2_000, 20_000
LIMIT = 20
WINDOW_MS = 60_000
STEPS_PER_ROW = 600
"""Steps of SQLite's machine for one span that two parts have: each passes by a few that the other has not."""

STEPS_PER_ENTRY = 60
"""Steps for one entry of the rarest part that the other parts pass by."""

DENIED, PERMITTED = TransitionName.EFFECT_DENIED, TransitionName.EFFECT_PERMITTED
AT = InstantMs(START + 100_000)
Look = Callable[[View], object]


def asked(limit: int = LIMIT, *, falls: bool = False, **parts: object) -> Look:
    wanted = SpanFilter(**parts)  # type: ignore[arg-type]
    return lambda view: view.find_spans(wanted, limit=limit, newest_first=falls)


QUESTIONS: dict[str, Look] = {
    "everything": asked(),
    "the latest": asked(falls=True),
    "a story": asked(story="eff_0"),
    "an actor": asked(actor=told.ACTORS[3]),
    "an actor, the latest": asked(actor=told.ACTORS[3], falls=True),
    "a subject": asked(subject=told.SUBJECTS[3]),
    "a task": asked(task=told.TASKS[3]),
    "an operation": asked(operation=told.OPERATIONS[3]),
    "a resource": asked(resource="account/3"),
    "an approver": asked(signer=told.SIGNERS[3]),
    "a policy": asked(policy=told.POLICIES[3]),
    "what a policy issued by itself": asked(policy=told.POLICIES[3], names=frozenset({PERMITTED})),
    "what was denied": asked(names=frozenset({DENIED, TransitionName.REFUSED})),
    "what is unknown": asked(states=frozenset({EffectState.UNKNOWN}), falls=True),
    "what an actor did in a period": asked(
        actor=told.ACTORS[3], since_ms=AT, until_ms=InstantMs(AT + 600_000)
    ),
    "what happened in a period": asked(since_ms=AT, until_ms=InstantMs(AT + 600_000)),
    "an instant": lambda view: view.sequence_at(AT),
    "who looked": asked(names=frozenset({TransitionName.OBSERVED})),
}
"""Each finds as many as it may, in a short trail as in a long one."""

RARE: dict[str, tuple[Look, SpanFilter]] = {
    "an actor's denials": (
        asked(actor=told.ACTORS[3], names=frozenset({DENIED})),
        SpanFilter(names=frozenset({DENIED})),
    ),
    "three parts": (
        asked(actor=told.ACTORS[3], subject=told.SUBJECTS[3], operation=told.OPERATIONS[3]),
        SpanFilter(subject=told.SUBJECTS[3]),
    ),
    "a task and an approver": (
        asked(task=told.TASKS[3], signer=told.SIGNERS[3]),
        SpanFilter(task=told.TASKS[3]),
    ),
    "nobody": (asked(actor="nobody", operation=told.OPERATIONS[3]), SpanFilter(actor="nobody")),
}
"""Questions whose parts rarely meet, and the rarest part of each."""

OTHERS: dict[str, Look] = {
    "counting": lambda view: view.count_spans(100, 300),
    "unused permits": lambda view: view.permits_unused(limit=LIMIT),
    "denied and then done": lambda view: view.denied_then_done(
        SpanFilter(), window_ms=WINDOW_MS, limit=LIMIT
    ),
}
EVERY: dict[str, Look] = {**QUESTIONS, **{name: look for name, (look, _rarest) in RARE.items()}, **OTHERS}


def opened(book: Book) -> Iterator[SqliteLedger]:
    ledger = book.open()
    yield ledger
    ledger.close()


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteLedger]:
    yield from opened(long_trail(Path(tmp_path_factory.mktemp("short")) / "book", spans=SHORT))


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteLedger]:
    yield from opened(long_trail(Path(tmp_path_factory.mktemp("long")) / "book", spans=LONG))


@pytest.mark.spec("AUD-06", "LED-07")
@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_costs_what_it_finds_and_not_how_long_the_trail_is(
    short: SqliteLedger, long: SqliteLedger, name: str
) -> None:
    for ledger in (short, long):
        assert steps_of(ledger, QUESTIONS[name]) <= STEPS_PER_ROW * LIMIT


@pytest.mark.spec("AUD-06", "LED-07")
@pytest.mark.parametrize("name", RARE)
def test_parts_that_rarely_meet_cost_what_the_rarest_of_them_has(long: SqliteLedger, name: str) -> None:
    look, rarest = RARE[name]
    entries = len(long.read(lambda view: view.find_spans(rarest, limit=LONG)))
    assert entries < LONG / 10
    assert steps_of(long, look) <= STEPS_PER_ENTRY * 3 * entries + STEPS_PER_ROW


@pytest.mark.spec("AUD-06", "LED-07")
def test_counting_costs_what_is_counted(long: SqliteLedger) -> None:
    few = steps_of(long, lambda view: view.count_spans(1, 1_000))
    many = steps_of(long, lambda view: view.count_spans(1, 2_000))
    assert many - few <= 6 * 1_000
    assert few <= 6 * 1_000 + 1_000


@pytest.mark.spec("AUD-06", "LED-07")
@pytest.mark.parametrize("name", EVERY)
def test_no_question_reads_a_table_from_its_beginning(long: SqliteLedger, name: str) -> None:
    queries = queries_of(long, EVERY[name], over=" FROM ")
    assert queries
    steps = " ".join(plans(long._path, queries)).split("SCAN ")[1:]
    assert {step.split()[0] for step in steps} <= {"leap", "told", "CONSTANT"}, steps
    assert "TEMP B-TREE" not in " ".join(plans(long._path, queries))


@pytest.mark.spec("LED-06", "LED-07")
def test_whether_an_effect_was_admitted_costs_its_own_story(long: SqliteLedger) -> None:
    """An admission asks it, and every admission there ever was has the same name."""
    wanted = SpanFilter(names=frozenset({TransitionName.EFFECT_ADMITTED}))
    (span,) = long.read(lambda view: view.find_spans(wanted, limit=1, newest_first=True))
    effect_id = EffectId(span.story)
    assert long.read(lambda view: view.was_admitted(effect_id))
    assert steps_of(long, lambda view: view.was_admitted(effect_id)) <= STEPS_PER_ENTRY
    assert steps_of(long, lambda view: view.was_revoked_late(effect_id)) <= STEPS_PER_ENTRY


COMMITS = 21
WAL_HEADER, WAL_FRAME = 32, 24 + 4096
"""Bytes of SQLite's log before its first frame, and of each frame."""


def pages_written(folder: Path, *, spans: int) -> int:
    """Return the pages that a transaction with one span of everything writes to the log, the median of some."""
    book = long_trail(folder, spans=spans, grown=True)
    ledger = book.open(recorder=told.real_recorder)
    log = book.path.with_name(book.path.name + "-wal")
    raw, counts = attacker(book.path), []
    for number in range(COMMITS):
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        commit_steps(ledger, Step(transition=told.transition_of(number)))
        counts.append((log.stat().st_size - WAL_HEADER) // WAL_FRAME)
    raw.close()
    ledger.close()
    return sorted(counts)[COMMITS // 2]


@pytest.mark.spec("LED-07", "AUD-06")
def test_a_span_writes_a_page_of_each_index_however_long_the_trail_is(tmp_path: Path) -> None:
    short, long = (pages_written(tmp_path / f"{spans}", spans=spans) for spans in (SHORT, LONG))
    assert 0 < long <= short + 1
