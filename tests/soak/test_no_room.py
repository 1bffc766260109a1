from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.kills import Nursery
from tests.support.starving import SmallDisk, limit_files
from tests.support.strikes import meddled
from tests.support.transitions import KINDS, SUCCESS, UNTOUCHED, Stage, assert_told_as_it_is

DISK_MIB = 64
"""Nothing new begins where less than 16 MiB are free, beside the ballast of 4."""

OUTCOMES = frozenset({"settlement", "doubt", "late"})
"""What the ballast is kept for: it is recorded even where nothing is left."""
RECORDED = {"settlement": "succeeded", "doubt": "unknown", "late": "succeeded"}

BEFORE_COMMIT = "before_commit"
"""The last step before a transaction is written: what begins later on a full disk is refused without a write."""

PAGES_MIN, PAGES_MAX = 40, 400
"""Pages left are tried up to the least of these at any rate; more than the other no transition takes."""
UNHARMED_IN_A_ROW = 3
LIMIT_STEP_BYTES, LIMIT_BYTES_MAX = 4_000, 160_000

QUICK_LIMITS = (0, 6 * 1024, 20 * 1024)
QUICK_PAGES = 5

pytestmark = pytest.mark.spec(
    "ADM-02", "ADM-03", "LED-01", "LED-02", "LED-04", "AUD-02", "BUD-04", "PER-05", "REP-05"
)


def filling(disk: SmallDisk, pages_left: int) -> Callable[[int], None]:
    """Return what fills the disk, whatever the process."""
    return lambda _pid: disk.fill(pages_left)


def limiting(size: int) -> Callable[[int], None]:
    """Return what limits the files of a process."""
    return lambda pid: limit_files(pid, size)


def starved(
    stage: Stage,
    nursery: Nursery,
    starve: Callable[[int], None],
    feed: Callable[[], None] = lambda: None,
    at: int | None = None,
) -> str:
    """Take the room from one process, before its command or at a step; return what it answered and what it left."""
    scene = stage.scene()
    job = stage.kind.job(scene, at=at)
    ended, answer = meddled(nursery, job, starve)
    feed()
    left = stage.judged(scene, answer)
    # Too little room is no reason to end, or to raise something.
    assert ended == 0, (stage.kind.name, ended, answer, left)
    assert answer is not None
    code = str(answer["code"])
    assert_told_as_it_is(stage.kind.name, code, left)
    return f"{code}:{left}"


def steps_of(stage: Stage, nursery: Nursery) -> list[str]:
    """Return the steps of one unharmed command."""
    scene = stage.scene()
    with nursery.start(stage.kind.job(scene, traced=False)) as child:
        assert child.ended() == 0
        stage.judged(scene, child.answer())
        return child.steps


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_disk_refuses_what_is_new_and_records_what_was_done(
    kind: str, nursery: Nursery, tmp_path: Path
) -> None:
    with SmallDisk(tmp_path / "disk", DISK_MIB) as disk:
        stage = Stage(kind=KINDS[kind], folder=disk.folder / kind)
        left = starved(stage, nursery, filling(disk, 0), disk.empty)
        starved(
            stage,
            nursery,
            filling(disk, QUICK_PAGES),
            disk.empty,
            at=steps_of(stage, nursery).index(BEFORE_COMMIT) + 1,
        )
    assert left.endswith(RECORDED.get(kind, UNTOUCHED[kind]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_limit_on_files_is_told_as_it_is(kind: str, nursery: Nursery, tmp_path: Path) -> None:
    stage = Stage(kind=KINDS[kind], folder=tmp_path / kind)
    seen = [starved(stage, nursery, limiting(limit)) for limit in QUICK_LIMITS]
    assert seen[0].endswith(UNTOUCHED[kind])


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_a_disk_with_room_for_any_part_of_a_transaction_is_told_as_it_is(
    kind: str, nursery: Nursery, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    seen: Counter[str] = Counter()
    with SmallDisk(tmp_path / "disk", DISK_MIB) as disk:
        stage = Stage(kind=KINDS[kind], folder=disk.folder / kind)
        steps = steps_of(stage, nursery)
        for at in (number for number, step in enumerate(steps, 1) if step == BEFORE_COMMIT):
            unharmed = pages = 0
            while pages < PAGES_MIN or unharmed < UNHARMED_IN_A_ROW:
                assert pages < PAGES_MAX
                found = starved(stage, nursery, filling(disk, pages), disk.empty, at=at)
                seen[found] += 1
                done = found.startswith(SUCCESS[kind]) and not found.endswith(UNTOUCHED[kind])
                unharmed = unharmed + 1 if done else 0
                pages += 1
    figure(f"{kind}, full disk: {seen.total()} sizes of what is left, {dict(seen)}")
    assert kind in OUTCOMES or len(seen) > 1


@pytest.mark.soak
@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_disk_that_fills_up_at_any_step_of_a_transition_is_told_as_it_is(
    kind: str,
    nursery: Nursery,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    figure: Callable[[str], None],
    *,
    beside: bool,
) -> None:
    """With `beside` the audit file is on the same disk."""
    seen: Counter[str] = Counter()
    with SmallDisk(tmp_path / "disk", DISK_MIB) as disk:
        if beside:
            monkeypatch.setenv("XDG_STATE_HOME", str(disk.folder))
        stage = Stage(kind=KINDS[kind], folder=disk.folder / kind)
        steps = len(steps_of(stage, nursery))
        for at in (None, *range(1, steps + 1)):
            for pages in range(3):
                seen[starved(stage, nursery, filling(disk, pages), disk.empty, at=at)] += 1
    where = "ledger and audit file" if beside else "ledger"
    figure(f"{kind}, disk of {where} full at a step: {steps} steps, {seen.total()} times, {dict(seen)}")
    assert steps >= 3


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_any_limit_on_the_size_of_files_is_told_as_it_is(
    kind: str, nursery: Nursery, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    stage = Stage(kind=KINDS[kind], folder=tmp_path / kind)
    seen: Counter[str] = Counter()
    for limit in range(0, LIMIT_BYTES_MAX, LIMIT_STEP_BYTES):
        seen[starved(stage, nursery, limiting(limit))] += 1
    figure(f"{kind}, limit on files: {seen.total()} limits, {dict(seen)}")
    assert len(seen) > 1
