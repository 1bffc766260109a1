"""The file sink among other processes and on failing disks: killed writers, held locks, full media."""

import fcntl
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from audit.errors import SinkUnavailable
from audit.sinks.jsonl import JsonlSink, create
from audit.sinks.lines import span_line
from audit.sinks.port import SinkExpectation
from tests.support.spans import LEDGER, SpansInMemory, die_before_sync, sequences_in, ship_each

HOUSE = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0
SPAWN = multiprocessing.get_context("spawn")


def a_file(folder: Path) -> Path:
    path = folder / "audit.jsonl"
    create(path, LEDGER)
    return path


def a_sink(path: Path, *, free_bytes_min: int = 0) -> JsonlSink:
    return JsonlSink(path, LEDGER, name="local", required=True, free_bytes_min=free_bytes_min)


def why_not(sink: JsonlSink, source: SpansInMemory, deadline_s: float = PATIENCE_S) -> str:
    with pytest.raises(SinkUnavailable) as caught:
        sink.ship(source, source.head(), deadline_s)
    return caught.value.reason


def why_not_ready(sink: JsonlSink, source: SpansInMemory, deadline_s: float = PATIENCE_S) -> str:
    with pytest.raises(SinkUnavailable) as caught:
        sink.probe(SinkExpectation(source=source), deadline_s)
    return caught.value.reason


# ---------------------------------------------------------------------------------- other processes


@pytest.mark.spec("AUD-02", "ADM-06")
def test_processes_that_ship_at_once_write_every_sequence_once_and_in_order(tmp_path: Path) -> None:
    path = a_file(tmp_path)
    start = SPAWN.Barrier(3)
    workers = [SPAWN.Process(target=ship_each, args=(path, 40, start.wait)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(PATIENCE_S)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert sequences_in(path) == list(range(1, 41))


@pytest.mark.spec("AUD-02")
def test_threads_with_sinks_of_their_own_write_every_sequence_once(tmp_path: Path) -> None:
    path = a_file(tmp_path)
    start = threading.Barrier(6)
    workers = [threading.Thread(target=ship_each, args=(path, 30, start.wait)) for _ in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(PATIENCE_S)
    assert sequences_in(path) == list(range(1, 31))


@pytest.mark.spec("AUD-02")
def test_a_process_killed_between_write_and_sync_leaves_nothing_twice_and_nothing_out(tmp_path: Path) -> None:
    path = a_file(tmp_path)
    killed = SPAWN.Process(target=die_before_sync, args=(path, 3))
    killed.start()
    killed.join(PATIENCE_S)
    assert killed.exitcode == -signal.SIGKILL
    assert sequences_in(path) == [1, 2, 3]
    source = SpansInMemory(5)
    assert a_sink(path).ship(source, source.head(), PATIENCE_S).sequence == 5
    assert sequences_in(path) == [1, 2, 3, 4, 5]


HOLDER = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
fcntl.flock(fd, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.spec("AUD-02")
def test_a_process_that_hangs_with_the_lock_costs_the_deadline_and_no_more(tmp_path: Path) -> None:
    path = a_file(tmp_path)
    source = SpansInMemory(2)
    sink = a_sink(path)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "held\n"
        assert why_not(sink, source, 0.05) == "locked"
        assert why_not_ready(sink, source, 0.05) == "locked"
        holder.kill()
        assert holder.wait(PATIENCE_S) == -signal.SIGKILL
    assert sink.ship(source, source.head(), PATIENCE_S).sequence == 2
    assert sequences_in(path) == [1, 2]


@pytest.mark.spec("AUD-02")
def test_a_thread_that_is_still_at_the_file_makes_the_next_wait_no_longer_than_its_deadline(
    tmp_path: Path,
) -> None:
    path = a_file(tmp_path)
    source = SpansInMemory(2)
    sink = a_sink(path)
    with sink._turn:
        before = time.monotonic()
        assert why_not(sink, source, 0.05) == "busy"
        assert time.monotonic() - before < 3.0
    sink.ship(source, source.head(), PATIENCE_S)


@pytest.mark.spec("AUD-02")
def test_the_file_replaced_while_its_lock_was_awaited_is_noticed(tmp_path: Path) -> None:
    path = a_file(tmp_path)
    source = SpansInMemory(2)
    sink = a_sink(path)
    held = os.open(path, os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    reasons: list[str] = []
    waiting = threading.Thread(target=lambda: reasons.append(why_not(sink, source)))
    waiting.start()
    while sink._fd is None:
        threading.Event().wait(0.001)
    path.rename(tmp_path / "old")
    create(path, LEDGER)
    os.close(held)
    waiting.join(PATIENCE_S)
    assert reasons == ["replaced"]
    assert sequences_in(tmp_path / "old") == []


@pytest.mark.spec("AUD-03")
def test_a_forked_child_does_not_use_its_parents_file(tmp_path: Path) -> None:
    script = """
import os, sys
from pathlib import Path
from audit.errors import SinkUnavailable
from audit.sinks.jsonl import JsonlSink
from tests.support.spans import LEDGER, SpansInMemory
source = SpansInMemory(2)
sink = JsonlSink(Path(sys.argv[1]), LEDGER, name="local", required=True)
sink.ship(source, source.head(), 30.0)
child = os.fork()
if child == 0:
    try:
        sink.ship(source, source.head(), 30.0)
    except SinkUnavailable as refused:
        os._exit(17 if refused.reason == "forked" else 18)
    os._exit(19)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
sink.ship(source, source.head(), 30.0)
"""
    path = a_file(tmp_path)
    subprocess.run([sys.executable, "-c", script, str(path)], cwd=HOUSE, check=True, timeout=PATIENCE_S)


# ------------------------------------------------------------------------------------- full disks


IN_A_NAMESPACE = 'mount -t tmpfs -o size=1m tmpfs "$1" && exec "$2" -c "$3" "$1"'
SET_UP = """
import errno, subprocess, sys
from pathlib import Path
from audit.errors import SinkUnavailable
from audit.sinks.jsonl import JsonlSink, create
from audit.sinks.port import SinkExpectation
from tests.support.spans import LEDGER, SpansInMemory, sequences_in
disk = Path(sys.argv[1])
path = disk / "audit.jsonl"
create(path, LEDGER)
source = SpansInMemory(3)

def opened(free_bytes_min=0):
    return JsonlSink(path, LEDGER, name="local", required=True, free_bytes_min=free_bytes_min)

def told(act):
    try:
        said = act()
    except SinkUnavailable as refused:
        print(refused.reason)
    else:
        print(said and said.sequence)

def ship(sink):
    told(lambda: sink.ship(source, source.head(), 30.0))

def probe(sink):
    told(lambda: sink.probe(SinkExpectation(source=source), 30.0))
"""


def on_a_small_disk(folder: Path, script: str) -> list[str]:
    """Run a script with a disk of one MiB that nobody else sees and that ends with it; return what it printed."""
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("a private file system cannot be made here")
    command = [unshare, "--mount", "sh", "-c", IN_A_NAMESPACE, "sh", str(folder), sys.executable]
    if subprocess.run([*command, "pass"], capture_output=True, check=False).returncode != 0:
        pytest.skip("a private file system is not allowed here")
    ran = subprocess.run(
        [*command, SET_UP + script],
        cwd=HOUSE,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


FILLED = """
sink = opened()
ship(sink)
for _ in range(60):
    source.add()
filler = disk / "filler"
with filler.open("wb", buffering=0) as file:
    try:
        while True:
            file.write(bytes(4096))
    except OSError as full:
        print(errno.errorcode[full.errno])
ship(sink)
print(sequences_in(path))
ship(opened())
filler.unlink()
ship(sink)
print(sequences_in(path) == list(range(1, 64)))
"""


@pytest.mark.spec("AUD-02")
def test_a_disk_that_fills_up_acknowledges_nothing_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    assert on_a_small_disk(tmp_path, FILLED) == [
        *("3", "ENOSPC", "no_space", "[1, 2, 3]", "no_space"),
        *("63", "True"),
    ]


@pytest.mark.spec("AUD-02")
def test_a_probe_asks_for_room_before_there_is_none_and_a_write_does_not(tmp_path: Path) -> None:
    """What was admitted may still be recorded in the room that the probe keeps free."""
    script = "sink = opened(2 * 1024 * 1024)\nprobe(sink)\nship(sink)\nprobe(opened(1024))"
    assert on_a_small_disk(tmp_path, script) == ["no_space", "3", "None"]


@pytest.mark.spec("AUD-02")
def test_a_file_system_that_became_read_only_is_not_ready(tmp_path: Path) -> None:
    remount = 'subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)'
    script = f"{remount}\nsink = opened()\nprobe(sink)\nship(sink)"
    assert on_a_small_disk(tmp_path, script) == ["read_only", "read_only"]


# ------------------------------------------------------------------------------------ failing syncs

SHIPPER = """
import sys
from pathlib import Path
from audit.errors import SinkUnavailable
from audit.sinks.jsonl import JsonlSink
from tests.support.spans import LEDGER, SpansInMemory
count = int(sys.argv[2])
source = SpansInMemory(count)
sink = JsonlSink(Path(sys.argv[1]), LEDGER, name="local", required=True)
for _ in range(int(sys.argv[3])):
    try:
        print(sink.ship(source, source.head(), 30.0).sequence, flush=True)
    except SinkUnavailable as refused:
        print(refused.reason, flush=True)
"""


def traced(path: Path, count: int, times: int, *faults: str) -> tuple[list[str], list[str]]:
    """Ship under strace with faults; return what was printed, and the calls on the file in order."""
    tracer = shutil.which("strace")
    if tracer is None:
        pytest.skip("strace is not installed")
    log = path.with_suffix(".strace")
    calls = "trace=write,pwrite64,fdatasync,ftruncate"
    command = [tracer, "-f", "-y", "-s", "64", "-o", str(log), "-e", calls]
    command += [part for fault in faults for part in ("-e", f"inject={fault}")]
    ran = subprocess.run(
        [*command, sys.executable, "-c", SHIPPER, str(path), str(count), str(times)],
        cwd=HOUSE,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    if "ptrace" in ran.stderr or "Operation not permitted" in ran.stderr:
        pytest.skip("this machine does not allow tracing")
    assert ran.returncode == 0, ran.stderr
    lines = [line for line in log.read_text(encoding="utf-8").splitlines() if path.name + ">" in line]
    found = [re.search(r"\b(write|pwrite64|fdatasync|ftruncate)\(.*?= (-1 E\w+|\d+)", line) for line in lines]
    done = [f"{match[1]} {'failed' if match[2].startswith('-1') else 'ok'}" for match in found if match]
    return ran.stdout.split(), done


@pytest.mark.spec("AUD-02")
def test_an_acknowledgement_costs_exactly_one_sync(tmp_path: Path) -> None:
    path = a_file(tmp_path)
    said, calls = traced(path, 3, 2, "ftruncate:error=EIO")
    assert said == ["3", "3"]
    assert calls == ["write ok", "fdatasync ok", "fdatasync ok"]


@pytest.mark.spec("AUD-02")
def test_lines_whose_sync_failed_are_cut_off_and_really_written_again(tmp_path: Path) -> None:
    path = a_file(tmp_path)
    said, calls = traced(path, 3, 2, "fdatasync:error=EIO:when=1")
    assert said == ["sync_failed", "3"]
    assert calls == ["write ok", "fdatasync failed", "ftruncate ok", "write ok", "fdatasync ok"]
    assert sequences_in(path) == [1, 2, 3]


@pytest.mark.spec("AUD-02")
def test_lines_of_a_killed_process_whose_sync_then_failed_are_written_again_before_the_next(
    tmp_path: Path,
) -> None:
    """The second sync of a clean page would "succeed": the lines must be made dirty first, in their place."""
    path = a_file(tmp_path)
    with path.open("ab") as file:
        file.writelines(span_line(row) for row in SpansInMemory(3).spans_after(0, limit=3))
    content = path.read_bytes()
    said, calls = traced(path, 3, 2, "fdatasync:error=EIO:when=1")
    assert said == ["sync_failed", "3"]
    assert calls == ["fdatasync failed", "ftruncate ok", "pwrite64 ok", "fdatasync ok"]
    assert path.read_bytes() == content


@pytest.mark.spec("AUD-02")
def test_lines_that_could_not_even_be_cut_off_are_written_again(tmp_path: Path) -> None:
    path = a_file(tmp_path)
    said, calls = traced(path, 3, 2, "fdatasync:error=EIO:when=1", "ftruncate:error=EIO:when=1")
    assert said == ["sync_failed", "3"]
    assert calls == ["write ok", "fdatasync failed", "ftruncate failed", "pwrite64 ok", "fdatasync ok"]
    assert sequences_in(path) == [1, 2, 3]


@pytest.mark.spec("AUD-02")
def test_a_disk_whose_syncs_keep_failing_never_acknowledges(tmp_path: Path) -> None:
    path = a_file(tmp_path)
    said, calls = traced(path, 3, 4, "fdatasync:error=EIO")
    assert said == ["sync_failed"] * 4
    assert "fdatasync ok" not in calls


LIMITED = """
import resource, sys
from pathlib import Path
from audit.errors import SinkUnavailable
from audit.sinks.jsonl import JsonlSink
from tests.support.spans import LEDGER, SpansInMemory, sequences_in
path = Path(sys.argv[1])
source = SpansInMemory(4)
sink = JsonlSink(path, LEDGER, name="local", required=True)
sink.ship(source, source.head(), 30.0)
for _ in range(4):
    source.add()
# Room for one line and a half: the kernel writes what fits, and fails the rest.
line = path.stat().st_size // 4
resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + line * 3 // 2, resource.RLIM_INFINITY))
try:
    sink.ship(source, source.head(), 30.0)
except SinkUnavailable as refused:
    print(refused.reason, len(sequences_in(path)), flush=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(sink.ship(source, source.head(), 30.0).sequence, len(sequences_in(path)), flush=True)
"""


@pytest.mark.spec("AUD-02")
def test_a_write_that_ends_half_way_leaves_no_line_and_the_next_call_goes_on(tmp_path: Path) -> None:
    path = a_file(tmp_path)
    ran = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)],
        cwd=HOUSE,
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    assert ran.stdout.splitlines() == ["write_failed 4", "8 8"]
    assert sequences_in(path) == list(range(1, 9))
