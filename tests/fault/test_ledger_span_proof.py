"""No span, no transition: what the ledger does with recorders that fail, lie or are cut off (AUD-01).

The proof is positive: the row of exactly this span, with exactly these bytes, is in the transaction that commits.
"""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ledger.errors import Broken, Fault, SpanNotRecorded
from ledger.model import Effect, InstantMs, LedgerId, Task
from ledger.port import SpanRecorder
from ledger.sqlite import SqliteLedger
from ledger.sqlite.tables import SPAN_BYTES_MAX
from ledger.states import EffectState
from ledger.transitions import Position, RecordedSpan, Transition
from tests.support.ledgers import (
    CENT,
    Book,
    admit,
    attacker,
    commit_steps,
    line,
    made_book,
    open_task,
    permitted_effect,
    probe,
    probe_step,
    state_of,
)
from tests.support.recorders import PlainRecorder

Spoil = Callable[[RecordedSpan], object]


class Spoilt(PlainRecorder):
    """Returns something else than the span that was asked for."""

    def __init__(self, spoil: Spoil) -> None:
        self._spoil = spoil

    def record(
        self, transition: Transition, *, position: Position, parent_span_id: str | None, at_ms: InstantMs
    ) -> RecordedSpan:
        honest = super().record(transition, position=position, parent_span_id=parent_span_id, at_ms=at_ms)
        return self._spoil(honest)  # type: ignore[return-value]  # the lie is the test


def spoilt(spoil: Spoil) -> Callable[[LedgerId], SpanRecorder]:
    return lambda _ledger_id: Spoilt(spoil)


def with_(**changed: object) -> Spoil:
    """Change parts of an honest span."""
    return lambda span: dataclasses.replace(span, **changed)  # type: ignore[arg-type]  # the lie is the test


def raising(fault: Exception) -> Spoil:
    def spoil(_span: RecordedSpan) -> object:
        raise fault

    return spoil


class Room:
    """An honest ledger with a permitted effect, and its book."""

    def __init__(self, book: Book) -> None:
        self.book = book
        self.honest: SqliteLedger = book.open()
        self.task: Task = open_task(self.honest, "org", {CENT: 100})
        self.effect: Effect = permitted_effect(self.honest, self.task, {CENT: 10})
        self.first_id = self.honest.read(lambda view: view.spans_after(0, limit=1))[0].span_id
        self.head = self.honest.read(lambda view: view.head())

    def assert_nothing_happened(self) -> None:
        """Neither span nor use, claim, reservation or state is there, and the ledger works on."""
        permit = self.honest.read(lambda view: view.permit(self.effect.effect_id))
        assert permit is not None
        assert self.honest.read(lambda view: view.head()) == self.head
        assert len(self.honest.read(lambda view: view.spans_after(0, limit=999))) == self.head.sequence
        assert state_of(self.honest, self.effect) is EffectState.PERMITTED
        assert not self.honest.read(lambda view: view.is_used(permit.permit_id))
        assert self.honest.read(lambda view: view.claim(self.effect.effect_id)) is None
        assert line(self.honest, self.task) == (100, 0, 0, 0)


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    room = Room(made_book(tmp_path / "book"))
    yield room
    room.honest.close()


LIES: list[tuple[str, Spoil]] = [
    ("raises a fault", raising(SpanNotRecorded("sdk", "no"))),
    ("raises anything", raising(RuntimeError("canary"))),
    ("runs out of memory", raising(MemoryError())),
    ("raises a foreign key error", raising(KeyError("canary"))),
    ("returns nothing", lambda _span: None),
    ("returns text", lambda span: span.body.decode()),
    ("an empty id", with_(span_id="")),
    ("a short id", with_(span_id="0" * 15)),
    ("a long id", with_(span_id="0" * 17)),
    ("no id", with_(span_id=None)),
    ("a number as id", with_(span_id=7)),
    ("a short trace", with_(trace_id="0" * 31)),
    ("no trace", with_(trace_id=None)),
    ("an empty body", with_(body=b"")),
    ("a body one byte too long", with_(body=b"x" * (SPAN_BYTES_MAX + 1))),
    ("a huge body", with_(body=b"x" * 3_000_000)),
    ("text as body", with_(body="{}")),
    ("no body", with_(body=None)),
    ("a list as body", with_(body=[1])),
    ("no attributes", with_(attributes=None)),
    ("bytes as an attribute", with_(attributes={"permit.actor": b"u-ana"})),
    ("a number as policies", with_(attributes={"permit.policy.ids": 7})),
    ("no text as a policy", with_(attributes={"permit.policy.ids": (None,)})),
]


@pytest.mark.spec("AUD-01", "ADM-02", "ADM-03")
@pytest.mark.parametrize(("what", "spoil"), LIES, ids=[row[0] for row in LIES])
def test_without_a_usable_span_nothing_happens_at_all(room: Room, what: str, spoil: Spoil) -> None:
    lying = room.book.open(recorder=spoilt(spoil))
    with pytest.raises(SpanNotRecorded) as caught:
        admit(lying, room.effect)
    assert "canary" not in str(caught.value)
    room.assert_nothing_happened()
    lying.close()
    assert admit(room.honest, room.effect).refusal is None


@pytest.mark.spec("AUD-01")
def test_a_span_id_that_was_there_before_is_no_proof_of_a_new_span(room: Room) -> None:
    lying = room.book.open(recorder=spoilt(with_(span_id=room.first_id)))
    with pytest.raises(SpanNotRecorded):
        admit(lying, room.effect)
    room.assert_nothing_happened()
    lying.close()


@pytest.mark.spec("AUD-01")
def test_one_id_for_two_spans_of_a_transaction_is_refused_whole(room: Room) -> None:
    lying = room.book.open(recorder=spoilt(with_(span_id="f" * 16)))
    with pytest.raises(SpanNotRecorded):
        commit_steps(lying, probe_step("a"), probe_step("b"))
    room.assert_nothing_happened()
    assert commit_steps(lying, probe_step("a")).sequence == room.head.sequence + 1
    lying.close()


@pytest.mark.spec("AUD-01", "EFF-04", "LED-02")
def test_a_span_of_exactly_the_largest_size_is_kept(room: Room) -> None:
    large = room.book.open(recorder=spoilt(with_(body=b"x" * SPAN_BYTES_MAX)))
    assert admit(large, room.effect).refusal is None
    large.close()


# A trigger that somebody added while the ledger was open: each makes the store's own statement a lie.
SWALLOWED = "CREATE TRIGGER x BEFORE INSERT ON spans BEGIN SELECT RAISE(IGNORE); END"
AFTERWARDS = (
    "DROP TRIGGER spans_never_updated",
    "CREATE TRIGGER x AFTER UPDATE ON head BEGIN UPDATE spans SET body = x'7b7d' WHERE sequence = NEW.sequence; END",
)
GONE = (
    "DROP TRIGGER spans_archived_only",
    "CREATE TRIGGER x AFTER UPDATE ON head BEGIN DELETE FROM spans WHERE sequence = NEW.sequence; END",
)
MOVED = (
    "DROP TRIGGER spans_never_updated",
    "CREATE TRIGGER x AFTER UPDATE ON head BEGIN UPDATE spans SET sequence = 99 WHERE sequence = NEW.sequence; END",
)


@pytest.mark.spec("AUD-01", "LED-06")
@pytest.mark.parametrize(
    "statements", [(SWALLOWED,), AFTERWARDS, GONE, MOVED], ids=["swallowed", "rewritten", "deleted", "moved"]
)
def test_a_row_that_was_written_and_is_not_there_stops_the_transition(
    room: Room, statements: tuple[str, ...]
) -> None:
    raw = attacker(room.book.path)
    for statement in statements:
        raw.execute(statement)
    raw.close()
    # A span that nothing else refers to: foreign keys cannot help here.
    with pytest.raises(SpanNotRecorded) as caught:
        probe(room.honest)
    assert caught.value.reason == "row_missing"
    room.assert_nothing_happened()


@pytest.mark.spec("ADM-02", "LED-05")
@pytest.mark.parametrize("table", ["permit_uses", "claims", "reservations"])
def test_a_part_of_an_admission_that_is_swallowed_stops_all_of_it(room: Room, table: str) -> None:
    raw = attacker(room.book.path)
    raw.execute(f"CREATE TRIGGER x BEFORE INSERT ON {table} BEGIN SELECT RAISE(IGNORE); END")
    raw.close()
    with pytest.raises(Fault):
        admit(room.honest, room.effect)
    room.assert_nothing_happened()


@pytest.mark.spec("ADM-02", "LED-05")
def test_a_state_that_did_not_move_stops_the_admission(room: Room) -> None:
    raw = attacker(room.book.path)
    raw.execute("CREATE TRIGGER x BEFORE UPDATE ON effects BEGIN SELECT RAISE(IGNORE); END")
    raw.close()
    with pytest.raises(Broken):
        admit(room.honest, room.effect)
    room.assert_nothing_happened()


@pytest.mark.spec("AUD-01")
def test_the_parent_of_a_span_is_the_span_before_it_in_its_story(room: Room) -> None:
    parents: list[str | None] = []

    class Watching(PlainRecorder):
        def record(
            self, transition: Transition, *, position: Position, parent_span_id: str | None, at_ms: InstantMs
        ) -> RecordedSpan:
            parents.append(parent_span_id)
            return super().record(transition, position=position, parent_span_id=parent_span_id, at_ms=at_ms)

    watching = room.book.open(recorder=lambda _ledger_id: Watching())
    probe(watching)
    admit(watching, room.effect)
    story = room.honest.read(lambda view: view.story(room.effect.effect_id))
    assert parents == [None, story[1].span_id]
    watching.close()
