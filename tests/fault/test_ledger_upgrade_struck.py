"""An upgrade among others, and one that is struck: at each numbered step, at system calls, by a disk that fails.

One schema or the other stands afterwards, whole, and the next start makes one upgrade of it and no second.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from ledger.sqlite.lock import WriterLock
from tests.support.committing import FAILED
from tests.support.kills import PATIENCE_S, Nursery
from tests.support.old_release import NUMBERS, content
from tests.support.strikes import Blow, calls_of, can_trace, strike
from tests.support.upgrading import Scene, scene

STARTS = 6
LOCKS = Path("/proc/locks")
STEPS = {
    "upgrade_locked": "old",
    "upgrade_copied": "old",
    "upgrade_rebuilt": "old",
    "upgrade_checked": "old",
    "upgrade_before_commit": "old",
    "upgrade_committed": "new",
}
"""Which schema stands after a kill at this step."""

QUICK = {"pwrite64": 4, "fsync": 3, "rename": 1}
"""How many of the calls of a name are struck here; every one is in the soak run."""

can_strike = pytest.mark.skipif(not can_trace(), reason="strace is not here, or may not trace")


@pytest.fixture(params=NUMBERS, ids="schema_{}".format)
def scenes(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    return (scene(tmp_path / f"f{number}", number=request.param) for number in count())


@pytest.mark.spec("LED-04", "LED-01", "ADM-06")
def test_of_processes_that_start_at_once_one_upgrades_and_all_go_on(
    nursery: Nursery, scenes: Iterator[Scene]
) -> None:
    one = next(scenes)
    with ExitStack() as stack:
        children = [stack.enter_context(nursery.start(one.job())) for _ in range(STARTS)]
        for child in children:
            child.stopped()
        for child in children:
            child.resume()
        for child in children:
            assert child.ended() == 0, child.lines
        assert {child.answer()["code"] for child in children} == {"found"}
        upgraders = [child for child in children if "upgrade_committed" in child.steps]
    assert len(upgraders) == 1
    assert one.judged() == "new"


@pytest.mark.skipif(not LOCKS.exists(), reason="the system does not tell who waits for a lock")
@pytest.mark.spec("LED-04", "LED-01")
def test_an_upgrade_waits_for_whoever_has_the_writers_lock(nursery: Nursery, scenes: Iterator[Scene]) -> None:
    one = next(scenes)
    lock = one.made.ledger.with_name("ledger.sqlite.lock")
    with WriterLock(lock).held():
        inode = lock.stat().st_ino
        with nursery.start(one.job(traced=False)):
            until = time.monotonic() + PATIENCE_S
            while not waits_for(inode):
                assert time.monotonic() < until
            assert content(one.made.ledger) == one.before
    assert one.judged() == "old"


def waits_for(inode: int) -> bool:
    """Say whether the kernel knows of somebody who waits for the lock of this file."""
    return any("->" in line and f":{inode} " in line for line in LOCKS.read_text().splitlines())


@pytest.mark.spec("LED-01", "LED-04")
@pytest.mark.parametrize("step", STEPS)
def test_a_kill_at_a_step_leaves_one_schema_whole(
    nursery: Nursery, scenes: Iterator[Scene], step: str
) -> None:
    one = next(scenes)
    number = list(STEPS).index(step) + 1
    with nursery.start(one.job(traced=False, at=number)) as child:
        assert child.ended() == -9
        assert child.steps == list(STEPS)[:number]
    assert one.judged() == STEPS[step]


@can_strike
@pytest.mark.spec("LED-01", "LED-04")
def test_a_few_kills_at_system_calls_leave_one_schema_whole(
    nursery: Nursery, scenes: Iterator[Scene], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    calls = calls_of(nursery, next(scenes).job(), log)
    left = []
    for call, times in QUICK.items():
        for part in range(times):
            one = next(scenes)
            blow = Blow(call=call, number=1 + part * (calls[call] - 1) // times, what="signal=KILL")
            assert strike(nursery, one.job(), blow, log).fell
            left.append(one.judged())
    assert left.count("old") >= 4, left


FAULTS = [
    (call, name, error)
    for call, name in (
        ("pwrite64", "ledger.sqlite-wal"),
        ("fsync", "ledger.sqlite-wal"),
        ("pwrite64", "ledger.sqlite.schema@.new"),
        ("fsync", "ledger.sqlite.schema@.new"),
    )
    for error in ("ENOSPC", "EIO")
]


@can_strike
@pytest.mark.spec("LED-01", "LED-02", "LED-04")
@pytest.mark.parametrize("fault", FAULTS, ids="-".join)
def test_a_disk_that_fails_in_the_middle_changes_nothing(
    nursery: Nursery, scenes: Iterator[Scene], tmp_path: Path, fault: tuple[str, str, str]
) -> None:
    call, name, error = fault
    one = next(scenes)
    path = one.made.ledger.with_name(name.replace("@", str(one.made.number)))
    blow = Blow(call=call, number=1, what=f"error={error}", path=path)
    struck = strike(nursery, one.job(), blow, tmp_path / "log")
    assert (struck.fell, struck.ended, struck.answer) == (True, FAILED, None)
    assert one.judged() == "old"
