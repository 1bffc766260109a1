from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from ledger.sqlite.connection import DRIVER
from ledger.states import EffectState
from tests.support.cases import books
from tests.support.crowd import Recorded, Told, crowd, make_naive, violations
from tests.support.transitions import TASK, assert_clean, soak_issuer

WORKERS = 8
ATTEMPTS_GOAL = 20_000
KILLS_MIN = 30
SECONDS_MAX = 2_400.0
"""The long run ends there at the latest; 20,000 attempts take some ten minutes on two cores."""

CEILING_OF_ATTEMPTS = 16
"""One unit of ceiling for so many attempts: with eight askers of each permit, it is used up before the end."""

SEED = 11
NOT_USED = frozenset(
    {"prepared", "awaiting_approval", "permitted", "denied", "declined", "withdrawn", "expired", "revoked"}
)

pytestmark = pytest.mark.spec("ADM-02", "ADM-04", "BUD-04", "PER-05", "LED-01")


def ours(folder: Path, *, workers: int, attempts: int) -> tuple[Told, Recorded]:
    """Let a crowd at our ledger; check it, and read what it says."""
    made = soak_issuer(folder / "ours", ceiling=attempts // CEILING_OF_ATTEMPTS)
    told = crowd("ours", made.profile, workers=workers, attempts=attempts, seconds=SECONDS_MAX, seed=SEED)
    assert_clean(made)
    with made.open() as issuer:
        effects = issuer._house.ledger.read(lambda view: view.effects(states=tuple(EffectState)))
        line = books(issuer, TASK)[TASK]
        assert line.overrun == 0
    recorded = Recorded(
        used=frozenset(one.effect_id for one in effects if str(one.state) not in NOT_USED),
        spent=line.reserved + line.settled,
        ceiling=attempts // CEILING_OF_ATTEMPTS,
    )
    return told, recorded


def naive(folder: Path, *, workers: int, attempts: int) -> tuple[Told, Recorded]:
    """The same crowd at a ledger without our guards."""
    ceiling = attempts // CEILING_OF_ATTEMPTS
    path = folder / "naive.sqlite"
    make_naive(path, ceiling)
    told = crowd("naive", path, workers=workers, attempts=attempts, seconds=SECONDS_MAX, seed=SEED)
    with closing(DRIVER.connect(str(path))) as raw:
        used = frozenset(name for (name,) in raw.execute("SELECT name FROM used"))
        remaining = raw.execute("SELECT remaining FROM budget").fetchone()[0]
    return told, Recorded(used=used, spent=ceiling - remaining, ceiling=ceiling)


def line(told: Told, recorded: Recorded, broken: list[str]) -> str:
    return (
        f"{told.attempts} attempts, {sum(told.used.values())} uses of {len(told.used)} permits, "
        f"{recorded.spent} of {recorded.ceiling} spent, blows {told.blows}, ended by itself {told.faults}, "
        f"violations {len(broken)}"
    )


def test_a_small_crowd_breaks_nothing(tmp_path: Path) -> None:
    told, recorded = ours(tmp_path, workers=3, attempts=100)
    assert violations(told, recorded) == []
    assert told.attempts >= 100
    assert told.faults == 0
    assert 0 < len(told.used) <= recorded.ceiling
    assert told.blows["kill"]


def test_a_small_crowd_breaks_a_ledger_that_checks_and_then_acts(tmp_path: Path) -> None:
    told, recorded = naive(tmp_path, workers=WORKERS, attempts=1_000)
    assert any("times" in one for one in violations(told, recorded))


@pytest.mark.soak
def test_a_crowd_that_is_killed_and_stopped_breaks_nothing(
    tmp_path: Path, figure: Callable[[str], None]
) -> None:
    told, recorded = ours(tmp_path, workers=WORKERS, attempts=ATTEMPTS_GOAL)
    broken = violations(told, recorded)
    figure(f"crowd, ours: {line(told, recorded, broken)}")
    assert broken == []
    assert told.faults == 0
    assert told.attempts >= ATTEMPTS_GOAL
    assert recorded.spent == recorded.ceiling, "the ceiling was never reached"
    assert told.blows["kill"] >= KILLS_MIN
    assert told.blows["stop"] >= KILLS_MIN


@pytest.mark.soak
def test_the_same_crowd_breaks_a_ledger_that_checks_and_then_acts(
    tmp_path: Path, figure: Callable[[str], None]
) -> None:
    told, recorded = naive(tmp_path, workers=WORKERS, attempts=ATTEMPTS_GOAL)
    broken = violations(told, recorded)
    figure(f"crowd, naive: {line(told, recorded, broken)}")
    assert told.attempts >= ATTEMPTS_GOAL
    assert any("times" in one for one in broken)
    assert any("ceiling" in one or "only" in one for one in broken)
