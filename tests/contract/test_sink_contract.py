"""What every sink does, whatever keeps the spans: a file, a collector on a socket, a third party's code."""

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from audit import Sink, SinkAhead, SinkClass, SinkExpectation, SinkUnavailable, class_of
from audit.sinks.carried import BATCH_ROWS, CarriedSink
from audit.sinks.epochs import LEFT, Left, left_text
from audit.sinks.lines import Tail
from ledger.model import LedgerId
from ledger.transitions import Position, SpanRow, Transition, TransitionName
from tests.support.collector import Lie
from tests.support.sink_kits import COUNT, KITS, NAME, PATIENCE_S, CollectorKit, FileKit, Kit, kit_at
from tests.support.spans import LEDGER, SpansInMemory

HOUSE = Path(__file__).parents[2]
OTHER = LedgerId("ldg_0ther000")
WATERMARKED = ("otlp", "plugin")
"""Sinks that cannot be read back: what they hold is known from a watermark of ours."""

KEEPS_TIME = ("jsonl", "otlp")
"""Sinks that are ours end to end. A third party's code is not stopped: `audit.delivery` guards against it."""


@pytest.fixture(params=sorted(KITS), name="kit")
def _kit(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kit]:
    with kit_at(request.param, tmp_path) as kit:
        yield kit


def kits(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test over these alone."""
    return pytest.mark.parametrize("kit", names, indirect=True)


def probe(sink: Sink, source: SpansInMemory) -> None:
    sink.probe(SinkExpectation(source=source), PATIENCE_S)


def ship(sink: Sink, source: SpansInMemory, upto: int | None = None) -> int:
    """Ship, and hold the acknowledgement to what the port says of one."""
    row = source.span_at(upto or source.head().sequence)
    assert row is not None
    said = sink.ship(source, row.position, PATIENCE_S)
    last = source.span_at(said.sequence)
    assert last is not None
    assert said.sequence >= row.position.sequence
    assert (said.ledger_id, said.epoch, said.lane, said.leaf) == (
        source.ledger_id,
        last.position.epoch,
        last.position.lane,
        last.leaf,
    )
    return said.sequence


def refusals(kit: Kit, sink: Sink, source: SpansInMemory, upto: Position | None = None) -> set[str]:
    """Return why the sink in use, and a fresh one, refuse to be probed and to ship; nothing is stored by it."""
    reasons, before = set(), list(kit.stored())
    for one in (sink, kit.sink()):
        for act in (
            lambda one=one: probe(one, source),
            lambda one=one: one.ship(source, upto or source.head(), PATIENCE_S),
        ):
            with pytest.raises((SinkAhead, SinkUnavailable)) as refused:
                act()
            assert refused.value.sink == NAME
            reasons.add(f"{type(refused.value).__name__} {refused.value.reason}")
    assert list(kit.stored()) == before
    return reasons


def upto(count: int) -> list[int]:
    return list(range(1, count + 1))


# ------------------------------------------------------------------------------------------ what it says


@pytest.mark.spec("AUD-02")
def test_a_probe_of_a_ready_sink_returns_and_stores_nothing(kit: Kit) -> None:
    sink, source = kit.sink(), SpansInMemory(3)
    probe(sink, source)
    assert kit.stored() == []
    ship(sink, source, 2)
    held = list(kit.stored())
    for one in (sink, kit.sink()):
        probe(one, source)
    assert kit.stored() == held


@pytest.mark.spec("AUD-02")
def test_an_acknowledgement_names_a_span_that_the_place_holds_with_all_before_it(kit: Kit) -> None:
    sink, source = kit.sink(), SpansInMemory(5)
    for sequence in (1, 3, 5):
        said = ship(sink, source, sequence)
        assert kit.stored() == upto(said)


@pytest.mark.spec("AUD-02")
def test_what_is_held_already_is_acknowledged_and_not_stored_again(kit: Kit) -> None:
    source = SpansInMemory(4)
    for sink in (kit.sink(), kit.sink(), kit.sink()):
        ship(sink, source)
        ship(sink, source, 1)
    assert kit.stored() == upto(4)


@pytest.mark.spec("AUD-02")
def test_a_sink_says_what_its_acknowledgement_is_worth(kit: Kit) -> None:
    assert class_of(kit.sink()) is kit.sink_class
    assert class_of(kit.sink(required=False)) is SinkClass.BEST_EFFORT
    assert kit.sink().name == NAME


@pytest.mark.spec("AUD-02")
def test_a_backlog_of_many_batches_arrives_in_order(kit: Kit) -> None:
    count = 2 * BATCH_ROWS + 7
    source = SpansInMemory(count)
    assert ship(kit.sink(), source) == count
    assert kit.stored() == upto(count)


# ----------------------------------------------------------------------------------------------- no gaps


class Leaving(SpansInMemory):
    """A ledger that leaves out one span, as no ledger may."""

    def spans_after(self, sequence: int, *, limit: int) -> list[SpanRow]:
        return [row for row in super().spans_after(sequence, limit=limit) if row.position.sequence != 3]


@pytest.mark.spec("AUD-02")
def test_a_span_that_is_left_out_stops_everything_after_it(kit: Kit) -> None:
    source = Leaving(5)
    sink = kit.sink()
    with pytest.raises(SinkUnavailable) as refused:
        sink.ship(source, source.head(), PATIENCE_S)
    assert refused.value.reason == "gap"
    assert kit.stored() == []


@pytest.mark.spec("AUD-02", "AUD-04")
def test_a_span_that_is_not_what_was_recorded_is_not_shipped(kit: Kit) -> None:
    source = SpansInMemory(3)
    row = source.span_at(2)
    assert row is not None
    source.replace(replace(row, body=row.body.replace(b"internal", b"infernal")))
    with pytest.raises(SinkUnavailable) as refused:
        kit.sink().ship(source, source.head(), PATIENCE_S)
    assert refused.value.reason == "broken_span"
    assert kit.stored() == []


@pytest.mark.spec("AUD-02")
def test_a_place_that_is_gone_takes_nothing_and_gets_everything_once_it_is_back(kit: Kit) -> None:
    sink, source = kit.sink(), SpansInMemory(4)
    ship(sink, source, 2)
    held = list(kit.stored())
    for _ in range(3):
        source.add()
    kit.gone()
    for act in (lambda: probe(sink, source), lambda: ship(sink, source)):
        with pytest.raises(SinkUnavailable) as refused:
            act()
        assert "canary" not in refused.value.message
    kit.back()
    assert kit.stored() == held
    probe(sink, source)
    ship(sink, source)
    assert kit.stored() == upto(7)


# ---------------------------------------------------------------------------------- held to its ledger


@pytest.mark.spec("LED-06")
def test_a_ledger_that_was_set_back_is_found_by_the_sink_in_use_and_by_a_fresh_one(kit: Kit) -> None:
    sink, source = kit.sink(), SpansInMemory(6)
    ship(sink, source)
    source.roll_back_to(4)
    assert refusals(kit, sink, source) == {"SinkAhead ahead"}


@pytest.mark.spec("LED-06")
def test_a_ledger_that_tells_another_story_is_found(kit: Kit) -> None:
    sink = kit.sink()
    ship(sink, SpansInMemory(4))
    assert refusals(kit, sink, SpansInMemory(6, seed=1)) == {"SinkAhead diverged"}


@pytest.mark.spec("LED-06", "ADM-06")
def test_another_ledger_is_refused(kit: Kit) -> None:
    sink, source = kit.sink(), SpansInMemory(2)
    ship(sink, source)
    foreign = SpansInMemory(2, ledger_id=OTHER)
    assert refusals(kit, sink, foreign) == {"SinkUnavailable foreign_ledger"}
    with pytest.raises(SinkUnavailable) as refused:
        kit.sink(ledger_id=OTHER).ship(foreign, foreign.head(), PATIENCE_S)
    assert refused.value.reason == "foreign_ledger"


@pytest.mark.spec("LED-08", "AUD-05")
def test_a_later_epoch_goes_on_where_it_says_that_it_left_the_sink_and_nowhere_else(kit: Kit) -> None:
    sink, source = kit.sink(), SpansInMemory(8)
    ship(sink, source)
    last = source.span_at(8)
    assert last is not None
    left = Tail(epoch=0, lane=0, sequence=8, leaf=last.leaf)
    source.roll_back_to(5)
    source.epoch = 1
    attributes: dict[str, str | int | tuple[str, ...]] = {
        "permit.mode": "ordinary",
        "permit.base.epoch": 0,
        "permit.base.sequence": 5,
        "permit.reason": "with_sink",
        "permit.count": 0,
    }
    begins = Transition(name=TransitionName.LEDGER_RESTORED, story=LEDGER, attributes=attributes)
    source.add(begins)
    assert refusals(kit, sink, source) <= {"SinkAhead diverged", "SinkAhead ahead"}
    source.roll_back_to(5)
    said = left_text(Left(name=NAME, tail=left, root=bytes(32)))
    source.add(replace(begins, attributes={**attributes, LEFT: (said,)}))
    source.add()
    for one in (sink, kit.sink()):
        probe(one, source)
        ship(one, source)
    assert list(kit.stored()) == [*upto(8), 6, 7]


# --------------------------------------------------------------------------- processes, forks and ends


@pytest.mark.spec("AUD-02")
def test_a_process_that_starts_anew_goes_on_where_the_last_one_was_acknowledged(kit: Kit) -> None:
    source = SpansInMemory(3)
    ship(kit.sink(), source)
    source.add()
    ship(kit.sink(), source)
    assert kit.stored() == upto(4)


@pytest.mark.spec("AUD-02")
def test_a_closed_sink_lets_go_and_takes_up_again(kit: Kit) -> None:
    sink, source = kit.sink(), SpansInMemory(2)
    ship(sink, source, 1)
    sink.close()
    sink.close()
    ship(sink, source)
    assert kit.stored() == upto(2)


def second_process(kit: Kit, folder: Path, act: str) -> subprocess.Popen[bytes]:
    name = {FileKit: "jsonl", CollectorKit: "otlp"}.get(type(kit), "plugin")
    command = [sys.executable, "-m", "tests.support.sink_kits", name, str(folder), kit.at, act]
    return subprocess.Popen(command, cwd=HOUSE, stdin=subprocess.PIPE)


@pytest.mark.spec("AUD-02", "AUD-05")
def test_two_processes_that_ship_at_once_leave_every_span_once_and_in_order(kit: Kit, tmp_path: Path) -> None:
    processes = [second_process(kit, tmp_path, "ship") for _ in range(2)]
    for process in processes:
        process.communicate(b"go\n", timeout=PATIENCE_S)
    assert [process.returncode for process in processes] == [0, 0]
    assert kit.stored() == upto(COUNT)


@pytest.mark.spec("AUD-03")
def test_a_forked_child_is_refused(kit: Kit, tmp_path: Path) -> None:
    process = second_process(kit, tmp_path, "fork")
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert kit.stored() == upto(3)


@pytest.mark.spec("AUD-02")
@kits(*KEEPS_TIME)
def test_a_place_that_does_not_answer_costs_the_deadline_and_no_more(kit: Kit) -> None:
    sink, source = kit.sink(), SpansInMemory(2)
    ship(sink, source, 1)
    source.add()
    lock = os.open(kit.path, os.O_RDONLY) if isinstance(kit, FileKit) else None
    if lock is not None:
        fcntl.flock(lock, fcntl.LOCK_EX)
    elif isinstance(kit, CollectorKit) and kit.collector is not None:
        kit.collector.always(Lie(hangs=True))
    for act in (
        lambda: sink.probe(SinkExpectation(source=source), 0.2),
        lambda: sink.ship(source, source.head(), 0.2),
    ):
        begun = time.monotonic()
        with pytest.raises(SinkUnavailable) as refused:
            act()
        assert refused.value.reason in {"locked", "no_answer"}
        assert time.monotonic() - begun < PATIENCE_S / 10
    if lock is not None:
        os.close(lock)
    elif isinstance(kit, CollectorKit) and kit.collector is not None:
        kit.collector.always(None)
    ship(sink, source)
    assert sorted(set(kit.stored())) == upto(3)


# ------------------------------------------------------------------- what a watermark alone has to hold


@pytest.mark.spec("AUD-02")
@kits(*WATERMARKED)
def test_a_place_that_lost_everything_gets_it_again_on_demand(kit: Kit) -> None:
    sink, source = kit.sink(), SpansInMemory(5)
    assert isinstance(sink, CarriedSink)
    ship(sink, source)
    sink.resend_from(source, 2, PATIENCE_S)
    ship(sink, source)
    assert list(kit.stored()) == [*upto(5), 3, 4, 5]
    sink.resend_from(source, 0, PATIENCE_S)
    ship(kit.sink(), source)
    assert list(kit.stored())[8:] == upto(5)
    sink.resend_from(source, 0, PATIENCE_S)
    sink.resend_from(source, 4, PATIENCE_S)
    ship(sink, source)
    assert list(kit.stored())[13:] == upto(5)


@pytest.mark.spec("AUD-02", "LED-06")
@kits(*WATERMARKED)
def test_a_watermark_that_is_lost_means_everything_again_and_hides_no_ledger_that_was_set_back(
    kit: Kit, tmp_path: Path
) -> None:
    sink, source = kit.sink(), SpansInMemory(5)
    ship(sink, source)
    (tmp_path / "mark" / "watermark.json").unlink()
    ship(kit.sink(), source)
    assert list(kit.stored()) == [*upto(5), *upto(5)]
    (tmp_path / "mark" / "watermark.json").unlink()
    (tmp_path / "mark").rmdir()
    source.roll_back_to(3)
    with pytest.raises(SinkAhead):
        sink.ship(source, source.head(), PATIENCE_S)


@pytest.mark.spec("AUD-02", "AUD-03")
@kits(*WATERMARKED)
@pytest.mark.parametrize(
    "change", ["cut", "more", "another sink", "another leaf", "not canonical", "a later sequence"]
)
def test_a_watermark_that_was_changed_is_not_believed(kit: Kit, change: str, tmp_path: Path) -> None:
    sink, source = kit.sink(), SpansInMemory(5)
    ship(sink, source, 3)
    path = tmp_path / "mark" / "watermark.json"
    text = path.read_text(encoding="ascii")
    changed = {
        "cut": text[:-9],
        "more": text + "x",
        "another sink": text.replace('"local"', '"other"'),
        "another leaf": text.replace('"leaf":"', '"leaf":"00'),
        "not canonical": text.replace(",", ", "),
        "a later sequence": text.replace('"sequence":', '"sequence":1'),
    }[change]
    assert changed != text
    path.write_text(changed, encoding="ascii")
    found = refusals(kit, sink, source)
    assert found <= {
        "SinkUnavailable unreadable",
        "SinkUnavailable foreign_place",
        "SinkAhead diverged",
        "SinkAhead ahead",
    }


@pytest.mark.spec("AUD-03")
@kits(*WATERMARKED)
@pytest.mark.parametrize("change", ["link", "hard link", "open to others", "folder"])
def test_a_watermark_that_others_may_have_exchanged_is_not_believed(
    kit: Kit, change: str, tmp_path: Path
) -> None:
    sink, source = kit.sink(), SpansInMemory(5)
    ship(sink, source, 3)
    path = tmp_path / "mark" / "watermark.json"
    if change == "link":
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    elif change == "hard link":
        (tmp_path / "second").hardlink_to(path)
    elif change == "open to others":
        path.chmod(0o666)
    else:
        path.unlink()
        path.mkdir()
    wanted = {"link": "os_error", "hard link": "hard_link", "open to others": "writable_by_others"}
    assert refusals(kit, sink, source) == {f"SinkUnavailable {wanted.get(change, 'not_a_file')}"}
