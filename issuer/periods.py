"""The instant that `--since` or `--until` names: a time with an offset, a day of the owner, or how long ago.

Rules: EFF-05 (a time without an offset is refused), POL-02 (days begin in the owner's zone). Pure: now comes in.
Next: `issuer.commands.auditing`.
"""

import re
from datetime import UTC, date, datetime, time, timedelta
from types import MappingProxyType
from typing import Final
from zoneinfo import ZoneInfo

from issuer.clock import MS_PER_SECOND, parse_instant
from ledger.errors import Malformed
from ledger.model import InstantMs

_AGO: Final = re.compile(r"([1-9][0-9]{0,6})(s|m|h|d|w)\Z", re.ASCII)
_UNIT_MS: Final = MappingProxyType(
    {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
)
WORDS: Final = (
    "now",
    "today",
    "yesterday",
    "this-week",
    "last-week",
    "this-month",
    "last-month",
)
"""What is understood besides: `now`, and where a day, a week (from Monday) or a month begins."""


def instant_asked(text: str, field: str, *, now: InstantMs, timezone: str) -> InstantMs:
    """Return the instant that `text` names at `now`, in milliseconds since the epoch.

    `2h`, `30m`, `7d` and `2w` are so many hours, minutes, days of 24 hours and weeks before `now`. `yesterday` and the
    other words are where that day, week or month begins in `timezone` (IANA).

    Raises:
        Malformed: `not_a_time`, also for a time without an offset (EFF-05).
    """
    ago = _AGO.match(text)
    if ago is not None:
        return InstantMs(max(0, now - int(ago[1]) * _UNIT_MS[ago[2]]))
    if text == "now":
        return now
    if text in WORDS:
        zone = ZoneInfo(timezone)
        today = datetime.fromtimestamp(now / MS_PER_SECOND, tz=zone).date()
        return _begin_of(_first_day(text, today), zone)
    try:
        return parse_instant(text, field)
    except Malformed as fault:
        known = f"{', '.join(WORDS[:-1])} or {WORDS[-1]}"
        say = f"{fault.message}, so long ago as in 2h or 7d, or {known}"
        raise Malformed("not_a_time", field, say) from None


def _first_day(word: str, today: date) -> date:
    week, month = today - timedelta(days=today.weekday()), today.replace(day=1)
    return {
        "today": today,
        "yesterday": today - timedelta(days=1),
        "this-week": week,
        "last-week": week - timedelta(days=7),
        "this-month": month,
        "last-month": (month - timedelta(days=1)).replace(day=1),
    }[word]


def _begin_of(day: date, zone: ZoneInfo) -> InstantMs:
    # Where the clock leaps over midnight the offset before the leap counts, which is the first instant of the day.
    begin = datetime.combine(day, time(), tzinfo=zone)
    return InstantMs((begin.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1))


__all__ = ["WORDS", "instant_asked"]
