"""A sink goes on in a new epoch exactly where that says that it stood, and a file of it is read by the same joints."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from audit.errors import SinkAhead, SinkUnavailable
from audit.sinks.epochs import LEFT, Left, left_at, left_text
from audit.sinks.jsonl import JsonlSink, create
from audit.sinks.lines import Tail, read_span_line
from audit.sinks.port import SinkExpectation
from audit.sinks.reading import read_jsonl
from ledger.transitions import SpanRow, Transition, TransitionName
from tests.support.spans import LEDGER, SpansInMemory

ROOT = bytes(range(32))
PATIENCE_S = 30.0


def tail_of(row: SpanRow) -> Tail:
    place = row.position
    return Tail(epoch=place.epoch, lane=place.lane, sequence=place.sequence, leaf=row.leaf)


def begin_epoch(source: SpansInMemory, left: Tail | None, *, name: str = "local") -> SpanRow:
    """Commit the first span of the next epoch, which says where the sink `name` stood."""
    base = source.head()
    source.epoch += 1
    attributes: dict[str, str | int | tuple[str, ...]] = {
        "permit.mode": "ordinary",
        "permit.base.epoch": base.epoch,
        "permit.base.sequence": base.sequence,
        "permit.reason": "with_sink",
        "permit.count": 0,
    }
    if left is not None:
        attributes[LEFT] = (left_text(Left(name=name, tail=left, root=ROOT)),)
    return source.add(
        Transition(name=TransitionName.LEDGER_RESTORED, story=source.ledger_id, attributes=attributes)
    )


class Place:
    """A sink that has eight spans, and its ledger, which is back at five."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "audit.jsonl"
        create(self.path, LEDGER)
        self.source = SpansInMemory(8)
        self.ship()
        self.last = tail_of(self.source.spans_after(7, limit=1)[0])
        self.source.roll_back_to(5)

    def ship(self, upto: int | None = None) -> Tail:
        """Ship with a fresh sink, as a new process would; return what was acknowledged."""
        row = self.source.span_at(upto or self.source.head().sequence)
        assert row is not None
        sink = JsonlSink(self.path, LEDGER, name="local", required=True, free_bytes_min=0)
        try:
            sink.probe(SinkExpectation(source=self.source), PATIENCE_S)
            said = sink.ship(self.source, row.position, PATIENCE_S)
        finally:
            sink.close()
        return Tail(epoch=said.epoch, lane=said.lane, sequence=said.sequence, leaf=said.leaf)

    def places(self) -> list[tuple[int, int]]:
        lines = self.path.read_bytes().splitlines(keepends=True)[1:]
        return [(tail.epoch, tail.sequence) for tail in map(read_span_line, lines)]

    def refused(self) -> str:
        before = self.path.read_bytes()
        with pytest.raises(SinkAhead) as caught:
            self.ship()
        assert self.path.read_bytes() == before
        return caught.value.reason


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


FIRST = [(0, number) for number in range(1, 9)]


@pytest.mark.spec("LED-08", "AUD-05")
def test_the_file_goes_on_with_the_first_span_of_the_epoch_that_names_its_last(place: Place) -> None:
    begins = begin_epoch(place.source, place.last)
    place.source.add()
    assert place.ship() == tail_of(place.source.spans_after(6, limit=1)[0])
    assert place.places() == [*FIRST, (1, 6), (1, 7)]
    place.source.add()
    place.ship()
    assert [span.tail for span in read_jsonl(place.path, LEDGER, name="local")][8] == tail_of(begins)
    assert place.places() == [*FIRST, (1, 6), (1, 7), (1, 8)]


@pytest.mark.spec("LED-08", "AUD-02")
def test_what_is_acknowledged_is_always_of_the_new_epoch(place: Place) -> None:
    """A span from before the joint is durable as well; the word for it names one that the ledger has."""
    begins = begin_epoch(place.source, place.last)
    assert place.ship(upto=3) == tail_of(begins)


@pytest.mark.spec("LED-06", "LED-08")
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"leaf": bytes(32)}, "ahead"),
        ({"sequence": 9}, "ahead"),
        ({"sequence": 7}, "ahead"),
        ({"epoch": 1}, "ahead"),
    ],
    ids=lambda change: next(iter(change)) if isinstance(change, dict) else "",
)
def test_an_epoch_that_names_another_last_span_is_not_followed(
    place: Place, change: dict[str, object], reason: str
) -> None:
    begin_epoch(place.source, replace(place.last, **change))  # type: ignore[arg-type]
    assert place.refused() == reason


@pytest.mark.spec("LED-06", "LED-08")
def test_an_epoch_that_says_nothing_of_this_sink_is_not_followed(place: Place) -> None:
    begin_epoch(place.source, None)
    assert place.refused() == "ahead"
    place.source.roll_back_to(5)
    place.source.epoch = 0
    begin_epoch(place.source, place.last, name="another")
    assert place.refused() == "ahead"


@pytest.mark.spec("LED-06", "LED-08")
def test_only_the_first_span_of_an_epoch_can_say_so(place: Place) -> None:
    said = {LEFT: (left_text(Left(name="local", tail=place.last, root=ROOT)),)}
    place.source.epoch = 1
    with pytest.raises(Exception, match="has no place"):
        place.source.add(Transition(name=TransitionName.PROBE, story=place.source.ledger_id, attributes=said))
    assert left_at(b'{"attributes":{"permit.transition":"ledger.probe"}}', "local") is None
    for body in (b"", b"[]", b"{}", b'{"attributes":[]}', b'{"attributes":{"permit.sinks.left":3}}'):
        assert left_at(body, "local") is None


@pytest.mark.spec("LED-06", "LED-08")
def test_a_ledger_of_the_old_epoch_is_refused_by_a_file_that_went_on(place: Place) -> None:
    begin_epoch(place.source, place.last)
    place.ship()
    older = SpansInMemory(8)
    place.source._rows = list(older.spans_after(0, limit=9))
    assert place.refused() == "later_epoch"
    place.source.roll_back_to(5)
    assert place.refused() == "ahead"


@pytest.mark.spec("LED-08", "AUD-02")
def test_a_second_restore_follows_the_first_though_its_ledger_never_knew_that(place: Place) -> None:
    begin_epoch(place.source, place.last)
    for _ in range(4):
        place.source.add()
    second = place.ship()
    place.source.roll_back_to(5)
    place.source.epoch = 1
    begin_epoch(place.source, second)
    place.ship()
    expected = [*FIRST, *((1, number) for number in range(6, 11)), (2, 6)]
    assert place.places() == expected
    read = [(span.tail.epoch, span.tail.sequence) for span in read_jsonl(place.path, LEDGER, name="local")]
    assert read == expected


@pytest.mark.spec("LED-08", "AUD-02")
def test_lines_of_the_epoch_that_was_left_are_written_again_after_a_failed_sync(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stand in the window that is written again, and the ledger does not hold them any more."""
    begin_epoch(place.source, place.last)
    row = place.source.span_at(6)
    assert row is not None
    sink = JsonlSink(place.path, LEDGER, name="local", required=True, free_bytes_min=0)

    def fails(_fd: int) -> None:
        raise OSError(5, "no")

    monkeypatch.setattr(os, "fdatasync", fails)
    with pytest.raises(SinkUnavailable):
        sink.ship(place.source, row.position, PATIENCE_S)
    monkeypatch.undo()
    assert place.places() == FIRST
    assert sink.ship(place.source, row.position, PATIENCE_S).sequence == 6
    assert place.places() == [*FIRST, (1, 6)]
    sink.close()


@pytest.mark.spec("LED-08", "AUD-04")
@pytest.mark.parametrize(
    ("cut", "line"), [((1, 2), 2), ((4, 5), 5), ((8, 9), 9)], ids=["first", "middle", "before the joint"]
)
def test_a_file_with_a_line_taken_out_is_read_up_to_there_and_no_further(
    place: Place, cut: tuple[int, int], line: int
) -> None:
    begin_epoch(place.source, place.last)
    place.ship()
    lines = place.path.read_bytes().splitlines(keepends=True)
    place.path.write_bytes(b"".join([*lines[: cut[0]], *lines[cut[1] :]]))
    with pytest.raises(SinkUnavailable, match=rf"^Line {line} of") as caught:
        list(read_jsonl(place.path, LEDGER, name="local"))
    assert caught.value.reason == "damaged"
