"""The instants that a reviewer names: how long ago, days of the owner's zone, and times with an offset."""

from datetime import UTC, datetime

import pytest

from issuer.periods import WORDS, instant_asked
from ledger.errors import Malformed
from ledger.model import InstantMs

NOW = "2026-03-29T10:15:00+02:00"
"""A Sunday on which clocks in Vienna went from two to three."""


def ms(text: str) -> InstantMs:
    return InstantMs(int(datetime.fromisoformat(text).timestamp() * 1000))


def asked(text: str, *, now: str = NOW, zone: str = "Europe/Vienna") -> str:
    instant = instant_asked(text, "since", now=ms(now), timezone=zone)
    return datetime.fromtimestamp(instant / 1000, tz=UTC).isoformat()


@pytest.mark.spec("AUD-06", "POL-02")
@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("now", "2026-03-29T08:15:00+00:00"),
        ("2h", "2026-03-29T06:15:00+00:00"),
        ("30m", "2026-03-29T07:45:00+00:00"),
        ("45s", "2026-03-29T08:14:15+00:00"),
        ("1d", "2026-03-28T08:15:00+00:00"),
        ("2w", "2026-03-15T08:15:00+00:00"),
        ("today", "2026-03-28T23:00:00+00:00"),
        ("yesterday", "2026-03-27T23:00:00+00:00"),
        ("this-week", "2026-03-22T23:00:00+00:00"),
        ("last-week", "2026-03-15T23:00:00+00:00"),
        ("this-month", "2026-02-28T23:00:00+00:00"),
        ("last-month", "2026-01-31T23:00:00+00:00"),
        ("2026-03-29T10:15:00+05:30", "2026-03-29T04:45:00+00:00"),
        ("9999999w", "1970-01-01T00:00:00+00:00"),
    ],
)
def test_each_word_is_one_instant_in_the_zone_of_the_owner(text: str, instant: str) -> None:
    assert asked(text) == instant


@pytest.mark.spec("AUD-06", "POL-02")
def test_a_day_that_has_no_midnight_begins_with_its_first_instant() -> None:
    """In Cairo the clock went from midnight to one on 2026-04-24."""
    begin = asked("today", now="2026-04-24T09:00:00Z", zone="Africa/Cairo")
    assert begin == "2026-04-23T22:00:00+00:00"
    assert asked("yesterday", now="2026-04-25T09:00:00Z", zone="Africa/Cairo") == begin


@pytest.mark.spec("EFF-05", "AUD-06")
@pytest.mark.parametrize(
    "text", ["2026-03-29T10:15:00", "2026-03-29", "tomorrow", "0h", "-2h", "2 h", "2H", "", "h", "now ", "٢h"]
)
def test_what_names_no_instant_is_refused_in_one_way(text: str) -> None:
    with pytest.raises(Malformed) as caught:
        asked(text)
    assert (caught.value.code, caught.value.field) == ("not_a_time", "since")
    assert "yesterday" in caught.value.message


def test_every_word_is_understood() -> None:
    assert all(asked(word) for word in WORDS)
