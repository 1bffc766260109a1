"""An upgrade is killed at every system call by which a file, a name or a lock changes: one schema stands, whole.

A kill between two of them is a kill at the later one, since nothing else of a process outlives it.
"""

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.kills import Nursery
from tests.support.old_release import NUMBERS
from tests.support.strikes import Blow, calls_of, can_trace, strike
from tests.support.upgrading import scene

CHANGES = {
    "writes": ("pwrite64", "write", "ftruncate"),
    "syncs": ("fsync", "fdatasync"),
    "names": ("fchown", "mkdir", "rename", "renameat", "link", "unlink", "unlinkat"),
    "locks": ("flock", "fcntl"),
}
FIRST_AND_LAST = (NUMBERS[0], NUMBERS[-1])
"""The upgrade that makes most tables anew, and the one that everybody is due for."""

CALLS_PER_NAME_MAX = 1000
"""More than any one call is made: an upgrade that never survives would loop for ever."""

MISSED_PER_HUNDRED_MAX = 10
"""Of the calls of one unharmed run, so many may be missing: no two runs make quite the same ones."""


@pytest.mark.soak
@pytest.mark.skipif(not can_trace(), reason="strace is not here, or may not trace")
@pytest.mark.spec("LED-01", "LED-04")
@pytest.mark.parametrize("number", FIRST_AND_LAST, ids="schema_{}".format)
@pytest.mark.parametrize("change", CHANGES)
def test_a_kill_at_any_call_that_changes_something_leaves_one_schema_whole(
    change: str, number: int, nursery: Nursery, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    log, left = tmp_path / "log", Counter[str]()
    calls = calls_of(nursery, scene(tmp_path / "unharmed", number=number).job(), log)
    struck = {name: calls[name] for name in CHANGES[change] if name in calls}
    for call in struck:
        left += struck_at_every(call, nursery, tmp_path / "struck", log, schema=number)
    told = f"{left.total()} kill points for {sum(struck.values())} calls, {dict(left)}"
    figure(f"schema {number}, {change}: {told}")
    assert left.total() * 100 >= sum(struck.values()) * (100 - MISSED_PER_HUNDRED_MAX)


def struck_at_every(call: str, nursery: Nursery, folder: Path, log: Path, *, schema: int) -> Counter[str]:
    """Kill an upgrade at each call of this name; return what was left, and how often."""
    left: Counter[str] = Counter()
    for number in range(1, CALLS_PER_NAME_MAX + 1):
        one = scene(folder, number=schema)
        blow = strike(nursery, one.job(), Blow(call=call, number=number, what="signal=KILL"), log)
        found = one.judged()
        shutil.rmtree(folder)
        if not blow.fell:
            assert (blow.ended, found) == (0, "new")
            return left
        left[found] += 1
    pytest.fail(f"{call} was called more than {CALLS_PER_NAME_MAX} times")
