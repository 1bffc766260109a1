"""Rotation of the audit file: full files in order, killed writers at every step, other processes, and foreign hands."""

import errno
import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from audit.errors import SinkAhead, SinkUnavailable
from audit.sinks.jsonl import JsonlSink, create
from audit.sinks.lines import header_line, read_header, read_span_line, span_line
from audit.sinks.port import SinkExpectation
from audit.sinks.segments import begin_next, segments_of
from tests.support.rotating import (
    PATIENCE_S,
    TINY_BYTES,
    a_place,
    a_sink,
    die_at,
    full_files,
    ship_along,
    ship_one_by_one,
    told,
)
from tests.support.spans import LEDGER, SpansInMemory

SPAWN = multiprocessing.get_context("spawn")
FORK = multiprocessing.get_context("fork")


def why_not(sink: JsonlSink, count: int) -> str:
    source = SpansInMemory(count)
    with pytest.raises((SinkUnavailable, SinkAhead)) as caught:
        sink.ship(source, source.head(), PATIENCE_S)
    return caught.value.reason


def why_not_ready(sink: JsonlSink, count: int) -> str:
    with pytest.raises((SinkUnavailable, SinkAhead)) as caught:
        sink.probe(SinkExpectation(source=SpansInMemory(count)), PATIENCE_S)
    return caught.value.reason


class FullDisk:
    """A call of the operating system that finds no space, one time of many."""

    def __init__(self, real: Callable[..., object], fails_at: int) -> None:
        self.real, self.left, self.failed_on = real, fails_at, -1

    def __call__(self, *arguments: object, **named: object) -> object:
        self.left -= 1
        if self.left == 0:
            self.failed_on = arguments[0] if isinstance(arguments[0], int) else -1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.real(*arguments, **named)


def until_full(path: Path) -> int:
    """Ship spans until the next one would begin another file; return the last sequence."""
    sink, sequence = a_sink(path), 0
    while path.stat().st_size < TINY_BYTES:
        sequence += 1
        ship_one_by_one(sink, sequence, sequence)
    sink.close()
    return sequence


# --------------------------------------------------------------------------------------- what there is


@pytest.mark.spec("AUD-02", "AUD-08")
def test_a_full_file_gets_its_second_name_and_the_next_goes_on_after_its_last_span(tmp_path: Path) -> None:
    path = a_place(tmp_path)
    last = until_full(path)
    full = path.read_bytes()
    ship_one_by_one(a_sink(path), last + 1, last + 1)
    (file,) = full_files(path)
    assert file.name == f"spans.0000.{1:012d}-{last:012d}.jsonl"
    assert file.read_bytes() == full
    header, line = path.read_bytes().splitlines(keepends=True)
    ended = read_span_line(full.splitlines(keepends=True)[-1])
    assert read_header(header).after == ended
    assert header == header_line(LEDGER, ended)
    assert header.startswith(b'{"after":{"epoch":0,"lane":0,"leaf":"')
    assert read_span_line(line).sequence == last + 1
    assert {each.stat().st_mode & 0o777 for each in (file, path)} == {0o600}
    assert file.stat().st_nlink == path.stat().st_nlink == 1
    assert told(path) == list(range(1, last + 2))


@pytest.mark.spec("AUD-02", "AUD-08")
def test_a_long_backlog_fills_files_of_the_bound_within_one_call(tmp_path: Path) -> None:
    path, source = a_place(tmp_path), SpansInMemory(1500)
    assert a_sink(path, segment_bytes=100_000).ship(source, source.head(), PATIENCE_S).sequence == 1500
    assert len(full_files(path)) >= 3
    assert told(path) == list(range(1, 1501))


@pytest.mark.spec("AUD-02")
def test_a_file_with_the_header_alone_says_how_far_it_is_and_acknowledges_that(tmp_path: Path) -> None:
    path = a_place(tmp_path)
    ship_one_by_one(a_sink(path), 1, 9)
    header, *lines = path.read_bytes().splitlines(keepends=True)
    after = read_header(header).after
    assert after is not None
    os.truncate(path, len(header))
    source = SpansInMemory(after.sequence)
    assert a_sink(path).reached(source) == after.sequence
    said = a_sink(path).ship(source, source.head(), PATIENCE_S)
    assert (said.sequence, said.leaf) == (after.sequence, after.leaf)
    assert path.read_bytes() == header
    ship_one_by_one(a_sink(path), after.sequence + 1, after.sequence + len(lines))
    assert told(path) == list(range(1, after.sequence + len(lines) + 1))


@pytest.mark.spec("LED-06")
def test_a_ledger_that_was_set_back_before_the_newest_file_is_refused_by_its_header_alone(
    tmp_path: Path,
) -> None:
    path = a_place(tmp_path)
    ship_one_by_one(a_sink(path), 1, 9)
    header = path.read_bytes().splitlines(keepends=True)[0]
    after = read_header(header).after
    assert after is not None
    os.truncate(path, len(header))
    assert why_not_ready(a_sink(path), after.sequence - 1) == "ahead"
    assert why_not(a_sink(path), after.sequence - 1) == "ahead"
    other = SpansInMemory(20, seed=1)
    with pytest.raises(SinkAhead) as caught:
        a_sink(path).ship(other, other.head(), PATIENCE_S)
    assert caught.value.reason == "diverged"


# ------------------------------------------------------------------------------------- killed and failing


@pytest.mark.spec("AUD-02")
def test_a_process_killed_at_any_call_leaves_what_the_next_one_goes_on_from(tmp_path: Path) -> None:
    """Every number of calls from the first to beyond the last: each step of several rotations is among them."""
    survived, kill_at = False, 0
    between = set()
    while not survived:
        kill_at += 1
        folder = tmp_path / str(kill_at)
        folder.mkdir()
        path = a_place(folder)
        worker = FORK.Process(target=die_at, args=(path, 14, kill_at))
        worker.start()
        worker.join(PATIENCE_S)
        survived = worker.exitcode == 0
        assert survived or worker.exitcode == -signal.SIGKILL
        said = [int(line) for line in path.with_suffix(".said").read_text().split()]
        between.add((path.stat().st_nlink, (folder / ".spans.jsonl.next").exists()))
        acknowledged = max(said, default=0)
        # What was acknowledged is there before anybody repairs anything, once and in order.
        assert told(path)[:acknowledged] == list(range(1, acknowledged + 1))
        source = SpansInMemory(14)
        a_sink(path).probe(SinkExpectation(source=source), PATIENCE_S)
        assert a_sink(path).ship(source, source.head(), PATIENCE_S).sequence == 14
        ship_one_by_one(a_sink(path), 15, 19)
        assert told(path) == list(range(1, 20))
        full_files(path)
        assert path.stat().st_nlink == 1
        assert not (folder / ".spans.jsonl.next").exists()
    assert kill_at > 40
    assert between >= {(1, False), (1, True), (2, True)}


@pytest.mark.spec("AUD-02")
@pytest.mark.parametrize(
    "step", ["open", "write", "fsync", "link", "rename", "unlink", "fchmod", "fdatasync"]
)
def test_a_step_that_fails_acknowledges_nothing_and_the_next_call_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A full disk, or a failing one, at each call of a rotation in turn."""
    path = a_place(tmp_path)
    last = until_full(path)
    real = getattr(os, step)
    for fails_at in range(1, 4):
        sink, source = a_sink(path), SpansInMemory(last + 1)
        monkeypatch.setattr(os, step, FullDisk(real, fails_at))
        try:
            said = sink.ship(source, source.head(), PATIENCE_S).sequence
        except SinkUnavailable:
            said = last
        monkeypatch.setattr(os, step, real)
        assert told(path)[:said] == list(range(1, said + 1))
        assert a_sink(path).ship(source, source.head(), PATIENCE_S).sequence == last + 1
        assert told(path) == list(range(1, last + 2))
        last += 1
        while path.stat().st_size < TINY_BYTES:
            last += 1
            ship_one_by_one(a_sink(path), last, last)
    if step not in {"unlink", "fdatasync"}:
        assert len(full_files(path)) >= 3


@pytest.mark.spec("AUD-02")
def test_a_name_that_may_not_be_durable_is_synced_before_the_first_span_under_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that renamed was killed before it synced the folder; what it leaves looks like any new file."""
    path = a_place(tmp_path)
    last = until_full(path)
    sink, source = a_sink(path), SpansInMemory(last)
    with sink._held(2, PATIENCE_S) as (fd, _deadline):
        new = begin_next(path, fd, LEDGER, sink._last_span(fd, source).start, "local")
        assert new is not None
        os.close(new)
    done: list[str] = []
    synced, written = os.fsync, os.write

    def fsync(fd: int) -> None:
        done.append("folder" if Path(f"/proc/self/fd/{fd}").readlink() == tmp_path.resolve() else "file")
        synced(fd)

    def write(fd: int, data: bytes) -> int:
        done.append("write")
        return written(fd, data)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "write", write)
    again = a_sink(path)
    ship_one_by_one(again, last + 1, last + 2)
    assert done == ["folder", "write", "write"]


@pytest.mark.spec("AUD-02")
def test_a_descriptor_whose_sync_failed_is_never_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sync of a full file fails, and then the one before an acknowledgement: each on a descriptor of its own."""
    path = a_place(tmp_path)
    last = until_full(path)
    sink, real = a_sink(path), os.fdatasync
    for fails_at in (1, 2):
        disk = FullDisk(real, fails_at)
        monkeypatch.setattr(os, "fdatasync", disk)
        assert why_not(sink, last + 1) == "no_space"
        assert sink._fd is None
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(disk.failed_on)
        monkeypatch.setattr(os, "fdatasync", real)
    ship_one_by_one(sink, last + 1, last + 1)
    assert told(path) == list(range(1, last + 2))


@pytest.mark.spec("AUD-02")
def test_a_full_file_is_on_the_medium_before_it_is_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of all that a rotation does, and no call more where there is none."""
    path = a_place(tmp_path)
    last = until_full(path)
    done: list[str] = []

    def seen(name: str) -> Callable[..., object]:
        real = getattr(os, name)

        def call(*arguments: object, **named: object) -> object:
            place = f"/proc/self/fd/{arguments[0]}" if isinstance(arguments[0], int) else str(arguments[0])
            path = Path(place)
            done.append(f"{name} {(path.readlink() if place.startswith('/proc') else path).name}")
            return real(*arguments, **named)

        return call

    for name in ("fdatasync", "fsync", "write", "link", "rename"):
        monkeypatch.setattr(os, name, seen(name))
    sink = a_sink(path)
    ship_one_by_one(sink, last + 1, last + 1)
    hidden, folder = ".spans.jsonl.next", tmp_path.name
    assert done == [
        "fdatasync spans.jsonl",
        *(f"write {hidden}", f"fsync {hidden}"),
        *("link spans.jsonl", f"fsync {folder}", f"rename {hidden}"),
        *(f"fsync {folder}", "write spans.jsonl", "fdatasync spans.jsonl"),
    ]
    done.clear()
    ship_one_by_one(sink, last + 2, last + 2)
    assert done == ["write spans.jsonl", "fdatasync spans.jsonl"]


@pytest.mark.spec("AUD-02")
def test_a_file_with_both_names_takes_no_span_even_of_a_process_that_would_not_call_it_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = a_place(tmp_path)
    last = until_full(path)
    monkeypatch.setattr(os, "rename", FullDisk(os.rename, 1))
    assert why_not(a_sink(path), last + 1) == "no_space"
    assert path.stat().st_nlink == 2
    ship_one_by_one(a_sink(path, segment_bytes=10**9), last + 1, last + 1)
    assert len(full_files(path)) == path.stat().st_nlink == 1
    assert told(path) == list(range(1, last + 2))


@pytest.mark.spec("AUD-02")
def test_where_no_second_name_can_be_given_the_file_goes_on_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = a_place(tmp_path)

    def refused(*_arguments: object, **_named: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    ship_one_by_one(a_sink(path), 1, 12)
    assert segments_of(path) == []
    assert sorted(each.name for each in tmp_path.iterdir()) == ["spans.jsonl"]
    assert told(path) == list(range(1, 13))


@pytest.mark.spec("AUD-02")
@pytest.mark.parametrize("kept", [1, 9, 200])
def test_a_torn_line_at_the_end_of_a_full_file_is_cut_off_before_it_is_renamed(
    tmp_path: Path, kept: int
) -> None:
    path = a_place(tmp_path)
    last = until_full(path)
    row = SpansInMemory(last + 1).span_at(last + 1)
    assert row is not None
    with path.open("ab") as file:
        file.write(span_line(row)[:-kept])
    ship_one_by_one(a_sink(path), last + 1, last + 1)
    (full,) = full_files(path)
    assert full.read_bytes().endswith(b"\n")
    assert told(path) == list(range(1, last + 2))


# ------------------------------------------------------------------------------------- other processes


@pytest.mark.spec("AUD-02", "ADM-06")
def test_processes_that_ship_at_once_rotate_many_times_and_write_every_span_once(tmp_path: Path) -> None:
    path = a_place(tmp_path)
    start = SPAWN.Barrier(3)
    workers = [SPAWN.Process(target=ship_along, args=(path, 60, start.wait)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(PATIENCE_S)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert told(path) == list(range(1, 61))
    assert len(full_files(path)) >= 15


@pytest.mark.spec("AUD-02", "ADM-06")
def test_a_process_that_was_idle_over_many_rotations_goes_on_in_the_newest_file(tmp_path: Path) -> None:
    path = a_place(tmp_path)
    idle = a_sink(path)
    ship_one_by_one(idle, 1, 1)
    ship_one_by_one(a_sink(path), 2, 20)
    assert len(full_files(path)) >= 4
    idle.probe(SinkExpectation(source=SpansInMemory(20)), PATIENCE_S)
    ship_one_by_one(idle, 21, 21)
    assert told(path) == list(range(1, 22))


def another_after(path: Path) -> None:
    """Go on after a span that is the ledger's, and not the last one of the file that was there."""
    row = SpansInMemory(1).span_at(1)
    assert row is not None
    ended = read_span_line(span_line(row))
    path.rename(path.with_suffix(".away"))
    path.write_bytes(header_line(LEDGER, ended))
    path.chmod(0o600)


def of_another_ledger(path: Path) -> None:
    ended = read_span_line(path.read_bytes().splitlines(keepends=True)[-1])
    path.rename(path.with_suffix(".away"))
    path.write_bytes(header_line("ldg_other", ended))
    path.chmod(0o600)


def begun_afresh(path: Path) -> None:
    path.rename(path.with_suffix(".away"))
    create(path, LEDGER)


def garbage(path: Path) -> None:
    path.rename(path.with_suffix(".away"))
    path.write_bytes(b'{"after":{"epoch":0},"kind":"permit-audit","ledger":"x","v":1}\n')
    path.chmod(0o600)


@pytest.mark.spec("AUD-03", "AUD-02")
@pytest.mark.parametrize("harm", [another_after, of_another_ledger, begun_afresh, garbage])
def test_a_file_put_in_the_place_that_does_not_go_on_from_the_held_one_takes_nothing(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    path = a_place(tmp_path)
    sink = a_sink(path, segment_bytes=10**9)
    ship_one_by_one(sink, 1, 4)
    harm(path)
    content = path.read_bytes()
    assert why_not(sink, 5) == "replaced"
    assert path.read_bytes() == content


# --------------------------------------------------------------------------------------- foreign hands


def a_link(place: Path) -> None:
    place.symlink_to(place.with_name("elsewhere"))


def a_file(place: Path) -> None:
    place.write_bytes(b"precious\n")


def a_folder(place: Path) -> None:
    place.mkdir()


@pytest.mark.spec("AUD-03")
@pytest.mark.parametrize("put", [a_link, a_file, a_folder])
def test_nothing_is_overwritten_or_followed_where_the_full_file_gets_its_name(
    tmp_path: Path, put: Callable[[Path], None]
) -> None:
    path = a_place(tmp_path)
    last = until_full(path)
    taken = tmp_path / f"spans.0000.{1:012d}-{last:012d}.jsonl"
    put(taken)
    content = path.read_bytes()
    assert why_not_ready(a_sink(path), last + 1) == "exists"
    assert why_not(a_sink(path), last + 1) == "exists"
    assert path.read_bytes() == content
    assert not (tmp_path / "elsewhere").exists()
    assert taken.is_symlink() or taken.is_dir() or taken.read_bytes() == b"precious\n"
    taken.rename(tmp_path / "away")
    ship_one_by_one(a_sink(path), last + 1, last + 1)
    assert told(path) == list(range(1, last + 2))


@pytest.mark.spec("AUD-03")
def test_a_link_in_the_place_of_the_hidden_file_is_not_followed(tmp_path: Path) -> None:
    path = a_place(tmp_path)
    last = until_full(path)
    target = tmp_path / "target"
    target.write_bytes(b"precious\n")
    (tmp_path / ".spans.jsonl.next").symlink_to(target)
    ship_one_by_one(a_sink(path), last + 1, last + 1)
    assert target.read_bytes() == b"precious\n"
    assert not path.is_symlink()
    assert told(path) == list(range(1, last + 2))


@pytest.mark.spec("AUD-03")
def test_a_full_file_that_others_may_write_to_is_not_renamed(tmp_path: Path) -> None:
    path = a_place(tmp_path)
    last = until_full(path)
    for mode, reason in ((0o620, "writable_by_others"), (0o400, "read_only")):
        path.chmod(mode)
        assert why_not(a_sink(path), last + 1) == reason
    assert segments_of(path) == []


@pytest.mark.spec("AUD-02", "LED-08")
def test_a_full_file_that_is_missing_stops_no_dispatch_and_is_damage_to_whoever_reads(tmp_path: Path) -> None:
    path = a_place(tmp_path)
    sink = a_sink(path)
    ship_one_by_one(sink, 1, 20)
    full_files(path)[1].unlink()
    ship_one_by_one(sink, 21, 24)
    ship_one_by_one(a_sink(path), 25, 25)
    missing = a_sink(path).chain().missing
    assert missing is not None
    with pytest.raises(SinkUnavailable) as caught:
        told(path)
    assert caught.value.reason == "damaged"
    assert str(missing.sequence) in caught.value.message


@pytest.mark.spec("AUD-03", "LED-06")
def test_the_newest_file_taken_away_is_missing_and_nothing_is_made_in_its_place(tmp_path: Path) -> None:
    path = a_place(tmp_path)
    sink = a_sink(path)
    ship_one_by_one(sink, 1, 9)
    path.unlink()
    assert {why_not(sink, 10), why_not(a_sink(path), 10), why_not_ready(a_sink(path), 10)} == {"missing"}
    with pytest.raises(SinkUnavailable) as caught:
        create(path, LEDGER)
    assert caught.value.reason == "exists"
    assert not path.exists()
