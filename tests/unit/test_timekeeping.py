"""When a clock is believed: against the ledger's last entry, and against the time since the machine began."""

import pytest

from ledger.errors import LedgerUnavailable
from ledger.model import InstantMs
from ledger.timekeeping import (
    CLOCK_BACKWARD_TOLERANCE_MS,
    CLOCK_FORWARD_TOLERANCE_MS,
    NO_UPTIME,
    SILENCE_MAX_MS,
    LastEntry,
    Uptime,
    believed,
)

NOON = InstantMs(1_800_000_000_000)
HOUR = 3_600_000
BOOT = Uptime(boot="b-1", since_ms=500_000)
LAST = LastEntry(clock_ms=NOON, uptime=BOOT)

pytestmark = pytest.mark.spec("PER-03")


def later(wall_ms: int, lived_ms: int | None, *, boot: str = "b-1") -> tuple[InstantMs, Uptime]:
    """Return both clocks: the wall's, and how long the boot has lived since the last entry; None has no such clock."""
    uptime = NO_UPTIME if lived_ms is None else Uptime(boot=boot, since_ms=BOOT.since_ms + lived_ms)
    return InstantMs(NOON + wall_ms), uptime


@pytest.mark.parametrize(
    ("told", "readings"),
    [
        ("both clocks moved on together", later(HOUR, HOUR)),
        (
            "a machine that slept for a month, its boot clock counting the sleep",
            later(720 * HOUR, 720 * HOUR),
        ),
        ("a step forward that time services make", later(HOUR + CLOCK_FORWARD_TOLERANCE_MS, HOUR)),
        ("a step back that time services make", later(-CLOCK_BACKWARD_TOLERANCE_MS, 0)),
        ("another boot after a year", later(365 * 24 * HOUR, 5, boot="b-2")),
        ("a machine without a boot clock after a year", later(365 * 24 * HOUR, None)),
        ("the longest silence that is believed", later(SILENCE_MAX_MS, 5, boot="b-2")),
    ],
)
def test_a_plausible_clock_is_believed_and_never_runs_backwards(
    told: str, readings: tuple[InstantMs, Uptime]
) -> None:
    now, uptime = readings
    assert believed(now, uptime, LAST) == max(now, NOON), told


@pytest.mark.parametrize(
    ("told", "readings", "reason"),
    [
        ("one step back too far", later(-CLOCK_BACKWARD_TOLERANCE_MS - 1, 0), "clock_behind"),
        ("back in another boot", later(-HOUR, 5, boot="b-2"), "clock_behind"),
        ("one step forward too far", later(HOUR + CLOCK_FORWARD_TOLERANCE_MS + 1, HOUR), "clock_ahead"),
        ("forward while the boot clock stood still", later(CLOCK_FORWARD_TOLERANCE_MS + 1, 0), "clock_ahead"),
        ("a silence too long across boots", later(SILENCE_MAX_MS + 1, 5, boot="b-2"), "clock_ahead"),
        ("a silence too long without a boot clock", later(SILENCE_MAX_MS + 1, None), "clock_ahead"),
    ],
)
def test_an_implausible_clock_is_not_believed_and_the_sentence_says_what_to_do(
    told: str, readings: tuple[InstantMs, Uptime], reason: str
) -> None:
    with pytest.raises(LedgerUnavailable, match="issuer ledger clock accept") as caught:
        believed(*readings, LAST)
    assert caught.value.reason == reason, told
