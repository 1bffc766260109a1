from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from issuer.clock import now_ms
from tests.support.committing import show_time
from tests.support.kills import Nursery
from tests.support.strikes import meddled
from tests.support.transitions import (
    HEAD_START_MS,
    KINDS,
    SUCCESS,
    UNTOUCHED,
    Stage,
    assert_told_as_it_is,
)

STEPPED = tuple(name for name, kind in KINDS.items() if not kind.waits_ms)
"""What waits for a time is not tried: a step back only makes it wait longer."""

BACK = {"a day back": -86_400_000, "three seconds back": -3_000}
BELIEVED = {"a second back": -1_000, "ten seconds on": 10_000}
REFUSED = frozenset({"clock_untrusted", "outcome_unknown"})
"""What may have been sent is told as unknown, whatever keeps its outcome from the record."""

pytestmark = pytest.mark.spec("PER-03", "ADM-02", "ADM-03", "REP-05", "BUD-04")


@dataclass(kw_only=True)
class Clocked:
    """Scenes of one kind under a clock that is a file."""

    kind: str
    nursery: Nursery
    folder: Path
    stage: Stage = field(init=False)

    def __post_init__(self) -> None:
        self.time = self.folder / "time"
        show_time(self.time, now_ms() + HEAD_START_MS)
        self.stage = Stage(kind=KINDS[self.kind], folder=self.folder / self.kind, clock=self.time)

    def stepped(self, by_ms: int, at: int | None = None) -> tuple[str, str]:
        """Step the clock before the command or at a step of it, and set it right again after it."""
        scene, before = self.stage.scene(), int(self.time.read_text())
        job = self.stage.kind.job(scene, at=at)
        ended, answer = meddled(self.nursery, job, lambda _pid: show_time(self.time, before + by_ms))
        show_time(self.time, before + max(0, by_ms))
        left = self.stage.judged(scene, answer)
        assert ended == 0
        assert answer is not None
        code = str(answer["code"])
        assert_told_as_it_is(self.kind, code, left)
        return code, left

    def steps(self) -> int:
        """Count the steps of one unharmed command."""
        scene = self.stage.scene()
        with self.nursery.start(self.stage.kind.job(scene, traced=False)) as child:
            assert child.ended() == 0
            self.stage.judged(scene, child.answer())
            return len(child.steps)


@pytest.mark.parametrize("kind", STEPPED)
def test_a_clock_that_stepped_back_admits_and_records_nothing_and_one_that_is_plausible_is_believed(
    kind: str, nursery: Nursery, tmp_path: Path
) -> None:
    clocked = Clocked(kind=kind, nursery=nursery, folder=tmp_path)
    # An entry under this clock, which it can be behind.
    assert clocked.steps() >= 3
    code, left = clocked.stepped(BACK["three seconds back"])
    assert code in REFUSED
    assert left == UNTOUCHED[kind]
    for by_ms in BELIEVED.values():
        assert clocked.stepped(by_ms)[0] == SUCCESS[kind]


@pytest.mark.soak
@pytest.mark.parametrize("kind", STEPPED)
def test_a_clock_that_steps_at_any_step_of_a_transition_leaves_one_honest_state(
    kind: str, nursery: Nursery, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    clocked = Clocked(kind=kind, nursery=nursery, folder=tmp_path)
    seen: Counter[str] = Counter()
    steps = clocked.steps()
    for at in (None, *range(1, steps + 1)):
        for by_ms in BACK.values():
            code, left = clocked.stepped(by_ms, at)
            # Its time was read before, or it was refused; a file that was sent and cannot be recorded is unknown.
            assert code in REFUSED or code == SUCCESS[kind]
            seen[f"back {code}:{left}"] += 1
        for by_ms in BELIEVED.values():
            code, left = clocked.stepped(by_ms, at)
            assert code == SUCCESS[kind]
            seen[f"believed {code}:{left}"] += 1
    figure(f"{kind}, clock steps: {steps} steps, {seen.total()} times, {dict(seen)}")
    assert steps >= 3
