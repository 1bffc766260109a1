from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.kills import Nursery
from tests.support.strikes import Blow, calls_of, can_trace, strike
from tests.support.transitions import KINDS, Stage

CALLS_PER_NAME_MAX = 600
"""More than any one call is made in a transition: a command that never survives would loop for ever."""

TRANSITIONS = {
    "request": ("request",),
    "admission": ("admission",),
    "outcome": ("settlement", "doubt", "late", "overdue"),
    "sending": ("sending",),
}
"""What is struck for each transition. An outcome takes some 150 system calls; its ways are struck together."""
KILL_POINTS_MIN = 250
MISSED_PER_HUNDRED_MAX = 10
"""Of the calls of one unharmed run, so many may be missing: no two runs make quite the same ones."""
QUICK = (("pwrite64", 3), ("fsync", 3), ("fsync", 5), ("write", 1))

pytestmark = [
    pytest.mark.skipif(not can_trace(), reason="strace is not here, or may not trace"),
    pytest.mark.spec("ADM-02", "ADM-03", "LED-01", "REP-05", "BUD-04", "PER-05"),
]


def killed(stage: Stage, nursery: Nursery, blow: Blow, log: Path) -> str | None:
    """Strike one scene; return what it left, or None where the command survived."""
    scene = stage.scene()
    struck = strike(nursery, stage.kind.job(scene), blow, log)
    left = stage.judged(scene, struck.answer)
    if not struck.fell:
        assert struck.ended == 0
        return None
    return f"{'answered' if struck.answer else 'unanswered'}:{left}"


@pytest.mark.parametrize("kind", ["request", "admission", "settlement", "late", "sending"])
def test_a_few_kills_leave_one_honest_state(kind: str, nursery: Nursery, tmp_path: Path) -> None:
    stage = Stage(kind=KINDS[kind], folder=tmp_path / kind)
    left = [
        killed(stage, nursery, Blow(call=call, number=number, what="signal=KILL"), tmp_path / "log")
        for call, number in QUICK
    ]
    assert sum(one is not None for one in left) >= 2, left


def struck_at_every_call(
    kind: str, nursery: Nursery, folder: Path, figure: Callable[[str], None]
) -> Counter[str]:
    """Kill one kind at each call by name and number, and at those of the sink's thread by its file."""
    stage = Stage(kind=KINDS[kind], folder=folder / kind)
    log = folder / "log"
    calls = calls_of(nursery, stage.kind.job(stage.scene()), log)
    left: Counter[str] = Counter()
    sink = stage.scene().made.sink
    paths: list[tuple[str, Path | None]] = [(name, None) for name in calls]
    paths += [(name, sink) for name in ("write", "fdatasync", "ftruncate", "flock", "pread64", "openat")]
    for name, path in paths:
        for number in range(1, CALLS_PER_NAME_MAX + 1):
            blow = Blow(call=name, number=number, what="signal=KILL", path=path)
            found = killed(stage, nursery, blow, log)
            if found is None:
                break
            left[found] += 1
        else:
            pytest.fail(f"{name} was called more than {CALLS_PER_NAME_MAX} times")
    made = sum(calls.values())
    figure(f"{kind}: {left.total()} kill points for {made} calls, {dict(left)}")
    assert left.total() * 100 >= made * (100 - MISSED_PER_HUNDRED_MAX)
    return left


@pytest.mark.soak
@pytest.mark.parametrize("transition", TRANSITIONS)
def test_a_kill_at_any_system_call_of_a_transition_leaves_one_honest_state(
    transition: str, nursery: Nursery, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    left: Counter[str] = Counter()
    for kind in TRANSITIONS[transition]:
        left += struck_at_every_call(kind, nursery, tmp_path, figure)
    assert left.total() >= KILL_POINTS_MIN
