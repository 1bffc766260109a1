"""The file sink against real files: what people do to the file, and what its ledger may have become.

Every refusal is asked of `probe` and of `ship` alike. What `ship` refuses was acknowledged to nobody, and once
the place is right again the next call makes the file whole, with every sequence once and in order.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from audit.errors import SinkAhead, SinkUnavailable
from audit.sinks.jsonl import JsonlSink, create
from audit.sinks.lines import LINE_BYTES_MAX, header_line, span_line
from audit.sinks.port import SinkExpectation
from ledger.model import LedgerId
from ledger.transitions import SpanRow
from ledger.tree import leaf_hash
from tests.support.spans import LEDGER, SpansInMemory, sequences_in

PATIENCE_S = 30.0


class Place:
    """A file, its sink and a ledger of five spans, of which three are shipped."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "audit.jsonl"
        create(self.path, LEDGER)
        self.source = SpansInMemory(3)
        self.sink = self.another_sink()
        self.ship(3)
        self.source.add()
        self.source.add()

    def another_sink(self) -> JsonlSink:
        """Return a sink with nothing open and nothing remembered, as a new process has."""
        return JsonlSink(self.path, LEDGER, name="local", required=True, free_bytes_min=0)

    def probe(self, sink: JsonlSink | None = None, deadline_s: float = PATIENCE_S) -> None:
        (sink or self.sink).probe(SinkExpectation(source=self.source), deadline_s)

    def ship(self, sequence: int, sink: JsonlSink | None = None, deadline_s: float = PATIENCE_S) -> int:
        row = self.source.span_at(sequence)
        assert row is not None
        said = (sink or self.sink).ship(self.source, row.position, deadline_s)
        last = self.source.span_at(said.sequence)
        assert last is not None
        assert (said.ledger_id, said.epoch, said.lane, said.leaf) == (LEDGER, 0, 0, last.leaf)
        return said.sequence

    def refused(self, sequence: int = 4) -> set[str]:
        """Return why the sink in use, and a fresh one, refuse to be probed and to ship."""
        reasons = set()
        for sink in (self.sink, self.another_sink()):
            for act in (partial(self.probe, sink), partial(self.ship, sequence, sink)):
                with pytest.raises((SinkUnavailable, SinkAhead)) as caught:
                    act()
                reasons.add(caught.value.reason)
                assert caught.value.sink == "local"
                assert str(self.path.parent) not in caught.value.message
        return reasons

    def is_whole(self) -> bool:
        return sequences_in(self.path) == list(range(1, len(self.source.spans_after(0, limit=10**6)) + 1))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.sink.close()


# ----------------------------------------------------------------------------------- how it is made


@pytest.mark.spec("AUD-02", "SEC-03")
def test_a_file_is_made_closed_to_others_with_its_folders_and_only_where_nothing_is(tmp_path: Path) -> None:
    path = tmp_path / "state" / "acme" / "audit.jsonl"
    usual = os.umask(0)
    try:
        create(path, LEDGER)
    finally:
        os.umask(usual)
    assert (
        path.read_bytes() == header_line(LEDGER) == b'{"kind":"permit-audit","ledger":"ldg_7c1f09aa","v":1}\n'
    )
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    for taken in (path, tmp_path / "link", tmp_path / "folder"):
        if taken.name == "link":
            taken.symlink_to(tmp_path / "elsewhere")
        if taken.name == "folder":
            taken.mkdir()
        with pytest.raises(SinkUnavailable) as caught:
            create(taken, LEDGER)
        assert caught.value.reason == "exists"
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.spec("AUD-07", "AUD-04")
def test_each_line_holds_the_body_as_it_was_hashed(place: Place) -> None:
    for line, sequence in zip(place.path.read_bytes().splitlines(keepends=True)[1:], (1, 2, 3), strict=False):
        row = place.source.span_at(sequence)
        assert row is not None
        assert line == span_line(row)
        assert row.body in line
        assert leaf_hash(row.body).hex().encode() in line


@pytest.mark.spec("AUD-02")
def test_shipping_again_writes_nothing_and_a_missing_tail_is_caught_up(place: Place) -> None:
    before = place.path.read_bytes()
    size = len(before)
    assert place.ship(2) >= 3
    assert place.path.read_bytes()[:size] == before
    place.ship(5)
    place.ship(5)
    assert place.is_whole()


@pytest.mark.spec("AUD-02")
def test_a_backlog_longer_than_a_batch_is_written_in_order(place: Place) -> None:
    while len(place.source.spans_after(0, limit=10**6)) < 700:
        place.source.add()
    assert place.ship(700) == 700
    assert place.is_whole()


@pytest.mark.spec("AUD-02")
def test_a_backlog_longer_than_the_deadline_goes_on_in_the_next_call(place: Place) -> None:
    while len(place.source.spans_after(0, limit=10**6)) < 700:
        place.source.add()
    with pytest.raises(SinkUnavailable) as caught:
        place.ship(700, deadline_s=0.0001)
    assert caught.value.reason in {"backlog", "busy", "locked"}
    for _ in range(4):
        try:
            place.ship(700, deadline_s=0.0001)
        except SinkUnavailable:
            continue
    place.ship(700)
    assert place.is_whole()


# --------------------------------------------------------------------------- what people do to the file


def unlink(path: Path) -> None:
    path.unlink()


def replace_by_another(path: Path) -> None:
    path.unlink()
    path.write_bytes(b"2026-12-01 somebody's log\n")
    path.chmod(0o600)


def rotate(path: Path) -> None:
    path.rename(path.with_suffix(".1"))
    path.touch(mode=0o600)


def copytruncate(path: Path) -> None:
    shutil.copy(path, path.with_suffix(".1"))
    os.truncate(path, 0)


def cut_inside_the_header(path: Path) -> None:
    os.truncate(path, 20)


def close_to_writing(path: Path) -> None:
    path.chmod(0o400)


def open_to_the_group(path: Path) -> None:
    path.chmod(0o620)


def open_to_all(path: Path) -> None:
    path.chmod(0o602)


def swap_in_a_symlink(path: Path) -> None:
    path.rename(path.with_suffix(".real"))
    path.symlink_to(path.with_suffix(".real"))


def hard_link(path: Path) -> None:
    os.link(path, path.with_suffix(".again"))


def swap_in_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def swap_in_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def another_ledger(path: Path) -> None:
    path.unlink()
    create(path, "ldg_other")


def garbage_line(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\x00\xff garbage\n")


def garbage_without_end(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"g" * (2 * LINE_BYTES_MAX + 1))


def change_the_last_body(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-20] + data[-20:].replace(b"1}", b"7}"))


def leave_a_blank_line(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\n")


@pytest.mark.spec("AUD-02", "AUD-03")
@pytest.mark.parametrize(
    ("harm", "expected"),
    [
        (unlink, {"missing"}),
        (replace_by_another, {"replaced", "no_header"}),
        (rotate, {"replaced", "no_header"}),
        (copytruncate, {"no_header"}),
        (cut_inside_the_header, {"no_header"}),
        (close_to_writing, {"read_only"}),
        (open_to_the_group, {"writable_by_others"}),
        (open_to_all, {"writable_by_others"}),
        (swap_in_a_symlink, {"symlink"}),
        (hard_link, {"hard_link"}),
        (swap_in_a_folder, {"not_a_file", "os_error"}),
        (swap_in_a_pipe, {"not_a_file"}),
        (another_ledger, {"replaced", "foreign_ledger"}),
        (garbage_line, {"unreadable"}),
        (garbage_without_end, {"unreadable"}),
        (change_the_last_body, {"unreadable"}),
        (leave_a_blank_line, {"unreadable"}),
    ],
)
def test_a_file_that_is_not_the_sink_any_more_takes_nothing(
    place: Place, harm: Callable[[Path], None], expected: set[str]
) -> None:
    harm(place.path)
    content = place.path.read_bytes() if place.path.is_file() else None
    assert place.refused() == expected
    assert content == (place.path.read_bytes() if place.path.is_file() else None)


@pytest.mark.spec("AUD-02")
@pytest.mark.parametrize("harm", [close_to_writing, open_to_the_group])
def test_a_file_that_is_put_right_goes_on_where_it_was(place: Place, harm: Callable[[Path], None]) -> None:
    harm(place.path)
    place.refused()
    place.path.chmod(0o600)
    place.ship(5)
    assert place.is_whole()


@pytest.mark.spec("AUD-02")
@pytest.mark.parametrize("kept", range(1, 30, 7))
def test_a_torn_last_line_was_acknowledged_to_nobody_and_is_written_anew(place: Place, kept: int) -> None:
    row = place.source.span_at(4)
    assert row is not None
    with place.path.open("ab") as file:
        file.write(span_line(row)[:-kept])
    place.probe()
    place.ship(5)
    assert place.is_whole()


@pytest.mark.spec("AUD-02")
def test_zeros_that_a_power_cut_left_at_the_end_are_a_torn_line(place: Place) -> None:
    with place.path.open("ab") as file:
        file.write(bytes(5000))
    place.ship(5)
    assert place.is_whole()


@pytest.mark.spec("AUD-02")
def test_a_file_that_was_cut_between_lines_is_made_whole_again(place: Place) -> None:
    lines = place.path.read_bytes().splitlines(keepends=True)
    os.truncate(place.path, sum(len(line) for line in lines[:2]))
    place.ship(4)
    assert place.is_whole()


# ------------------------------------------------------------------ what the ledger behind it may have become


@pytest.mark.spec("LED-06", "AUD-02")
def test_a_ledger_that_was_rolled_back_is_refused(place: Place) -> None:
    place.ship(5)
    place.source.roll_back_to(4)
    content = place.path.read_bytes()
    for sink in (place.sink, place.another_sink()):
        for act in (partial(place.probe, sink), partial(place.ship, 4, sink)):
            with pytest.raises(SinkAhead) as caught:
                act()
            assert caught.value.reason == "ahead"
    assert place.path.read_bytes() == content


@pytest.mark.spec("LED-06")
def test_a_ledger_that_was_rolled_back_and_went_another_way_is_refused(place: Place) -> None:
    place.ship(5)
    other = SpansInMemory(9, seed=1)
    place.source.roll_back_to(0)
    for row in other.spans_after(0, limit=9):
        place.source._rows.append(row)
    for sink in (place.sink, place.another_sink()):
        with pytest.raises(SinkAhead) as caught:
            place.ship(9, sink)
        assert caught.value.reason == "diverged"


@pytest.mark.spec("LED-06")
def test_a_ledger_and_a_file_rolled_back_together_are_noticed_by_the_process_that_was_acknowledged(
    place: Place,
) -> None:
    earlier = place.path.read_bytes()
    place.source.add()
    place.ship(6)
    os.truncate(place.path, len(earlier.splitlines(keepends=True)[0]))
    place.source.roll_back_to(2)
    with pytest.raises(SinkAhead):
        place.ship(2)


@pytest.mark.spec("AUD-02")
def test_another_ledger_does_not_ship_here(place: Place) -> None:
    other = SpansInMemory(5, ledger_id=LedgerId("ldg_other"))
    with pytest.raises(SinkUnavailable) as caught:
        place.sink.ship(other, other.head(), PATIENCE_S)
    assert caught.value.reason == "foreign_ledger"
    with pytest.raises(SinkUnavailable) as caught:
        place.sink.ship(place.source, other.head(), PATIENCE_S)
    assert caught.value.reason == "foreign_ledger"
    with pytest.raises(SinkUnavailable) as caught:
        place.sink.ship(other, place.source.head(), PATIENCE_S)
    assert caught.value.reason == "foreign_ledger"
    with pytest.raises(SinkUnavailable):
        place.sink.probe(SinkExpectation(source=other), PATIENCE_S)


class Leaving(SpansInMemory):
    """A ledger that leaves out the fourth span."""

    def spans_after(self, sequence: int, *, limit: int) -> list[SpanRow]:
        return [row for row in super().spans_after(sequence, limit=limit) if row.position.sequence != 4]


@pytest.mark.spec("AUD-02")
def test_a_gap_is_not_written(place: Place) -> None:
    place.source = Leaving(5)
    content = place.path.read_bytes()
    with pytest.raises(SinkUnavailable) as caught:
        place.ship(5)
    assert caught.value.reason == "gap"
    assert place.path.read_bytes() == content


def without_its_hash(row: SpanRow) -> SpanRow:
    return replace(row, body=row.body.replace(b"probe", b"prone"))


def on_two_lines(row: SpanRow) -> SpanRow:
    body = row.body.replace(b',"', b',\n"', 1)
    return replace(row, body=body, leaf=leaf_hash(body))


def too_long_for_a_line(row: SpanRow) -> SpanRow:
    body = row.body[:-1] + b',"x":"' + b"x" * LINE_BYTES_MAX + b'"}'
    return replace(row, body=body, leaf=leaf_hash(body))


@pytest.mark.spec("AUD-02", "AUD-04")
@pytest.mark.parametrize("harm", [without_its_hash, on_two_lines, too_long_for_a_line])
def test_a_span_that_is_not_what_was_recorded_is_not_written(
    place: Place, harm: Callable[[SpanRow], SpanRow]
) -> None:
    row = place.source.span_at(4)
    assert row is not None
    place.source.replace(harm(row))
    content = place.path.read_bytes()
    with pytest.raises(SinkUnavailable) as caught:
        place.sink.ship(place.source, row.position, PATIENCE_S)
    assert caught.value.reason == "broken_span"
    assert place.path.read_bytes() == content


@pytest.mark.spec("AUD-02")
def test_a_span_that_is_not_there_yet_is_not_acknowledged(place: Place) -> None:
    place.ship(5)
    with pytest.raises(SinkUnavailable) as caught:
        place.sink.ship(place.source, replace(place.source.head(), sequence=6), PATIENCE_S)
    assert caught.value.reason == "no_such_span"
    assert place.is_whole()
