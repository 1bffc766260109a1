"""The only place that asks the machine for the time, and the owner's zone for policies.

Rules: PER-03 (UTC, read after the lock), POL-02 (the clock of policies is in the owner's zone), EFF-05 (a time
without an offset is refused). Everything else takes an instant as an argument.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

from ledger.errors import Malformed
from ledger.model import InstantMs
from ledger.timekeeping import NO_UPTIME, Uptime

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
MS_PER_SECOND: Final = 1000
_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)\Z", re.ASCII)


def now_ms() -> InstantMs:
    """Return this instant in milliseconds since 1970-01-01T00:00:00Z."""
    return InstantMs(time.time_ns() // 1_000_000)


def boot_id() -> str:
    """Return the id of this boot of the machine, or empty where the system has none."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def machine_uptime() -> Callable[[], Uptime]:
    """Return what reads the time since this boot, suspended time included; nothing where the system does not tell.

    No setting of the date moves it, so it shows a wall clock that jumped (PER-03).
    """
    boot = boot_id()
    kind = getattr(time, "CLOCK_BOOTTIME", None)
    if not boot or kind is None:
        return lambda: NO_UPTIME
    return lambda: Uptime(boot=boot, since_ms=time.clock_gettime_ns(kind) // 1_000_000)


def monotonic_ms() -> int:
    """Return milliseconds of a clock that never jumps, for waits only; its zero means nothing."""
    return time.monotonic_ns() // 1_000_000


_FIRST_MS: Final = 0
_LAST_MS: Final = 253_402_300_799_999
"""1970-01-01 and the last millisecond of the year 9999 (RFC 3339 has four digits for a year)."""


def steady_s() -> float:
    """Return seconds of a clock that never jumps and goes on while the machine is suspended; its zero means nothing.

    Deadlines of senders run on it: one that slept through its deadline with the machine must not send (ADM-07).
    """
    kind = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if kind is None else time.clock_gettime(kind)


def instant_text(instant: int) -> str:
    """Return an instant as RFC 3339 in UTC with milliseconds, e.g. `2026-12-01T09:00:00.000Z`.

    One that the calendar does not hold, which only an edited ledger has, is shown as the nearest that it does: what is
    refused because of it has to be answered (LED-06).
    """
    instant = max(_FIRST_MS, min(instant, _LAST_MS))
    moment = datetime.fromtimestamp(instant // MS_PER_SECOND, tz=UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{instant % MS_PER_SECOND:03d}Z"


def parse_instant(text: str, field: str) -> InstantMs:
    """Return the instant that an RFC 3339 text with an offset names; parts of a millisecond are cut off.

    Raises:
        Malformed: `not_a_time`, also where the offset is missing (EFF-05).
    """
    try:
        whole = datetime.fromisoformat(text).astimezone(UTC) if _INSTANT.match(text) else None
    except (ValueError, OverflowError):  # no such day, or in UTC before the first or after the last year
        whole = None
    if whole is None:
        message = f"{field} must be a time with an offset, such as 2026-12-01T18:00:00+01:00"
        raise Malformed("not_a_time", field, message)
    seconds = int((whole.replace(microsecond=0) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())
    return InstantMs(seconds * MS_PER_SECOND + whole.microsecond // MS_PER_SECOND)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalTime:
    """An instant as the owner's wall clock shows it.

    Attributes:
        day: the calendar date, `2026-12-01`; per-day bounds count under it (POL-03).
        minute_of_day: 0..1439.
        weekday: 1 (Monday) .. 7.
    """

    day: str
    minute_of_day: int
    weekday: int


def local_time(instant: InstantMs, timezone: str) -> LocalTime:
    """Return how the wall clock of the owner's zone shows `instant`."""
    moment = datetime.fromtimestamp(instant / MS_PER_SECOND, tz=ZoneInfo(timezone))
    return LocalTime(
        day=f"{moment:%Y-%m-%d}",
        minute_of_day=moment.hour * 60 + moment.minute,
        weekday=moment.isoweekday(),
    )
