"""`[ledger]` of a profile: the bounds that an owner may choose, and the ranges that they are held to (LED-02)."""

import pytest

from issuer.profile import FindingCode, Profile, ProfileRefused, parse_profile
from ledger.capacity import Capacity
from tests.support.issuers import STANDARD_PROFILE

DAY_MS = 86_400_000
PLAIN = STANDARD_PROFILE.replace("@UID@", "1000").replace("@PORT@", "9")
DEFAULTS = "effects = 10_000\nrecord_bytes = 67_108_864\nspan_bytes = 1_073_741_824\nunended_per_task = 200\n"


def read(lines: str) -> Profile:
    text = PLAIN.replace("[person]", f"[ledger]\n{lines}\n[person]")
    return parse_profile(text, where="profile.toml", registries=lambda _name: "")


@pytest.mark.spec("LED-02")
def test_an_owner_who_says_nothing_has_the_default_bounds() -> None:
    without = parse_profile(PLAIN, where="profile.toml", registries=lambda _name: "")
    assert without.ledger.capacity == Capacity()
    assert without.ledger.keep_ms == 30 * DAY_MS


@pytest.mark.spec("LED-02")
def test_an_owner_may_choose_each_bound() -> None:
    chosen = read(
        "effects = 50\nrecord_bytes = 5_000_000\nspan_bytes = 6_000_000\nunended_per_task = 7\nkeep = '90d'"
    )
    assert chosen.ledger.capacity == Capacity(
        effects_max=50, record_bytes_max=5_000_000, span_bytes_max=6_000_000, unended_per_task_max=7
    )
    assert chosen.ledger.keep_ms == 90 * DAY_MS


@pytest.mark.spec("POL-07")
def test_bounds_are_part_of_what_the_owner_wrote_and_a_default_written_out_is_none() -> None:
    assert read(DEFAULTS + 'keep = "720h"').digest == read("").digest
    assert read("effects = 9_999").digest != read("").digest


MIB = 1024 * 1024
RANGES = (
    ("effects", 10, 100_000),
    ("record_bytes", 4 * MIB, 640 * MIB),
    ("span_bytes", 4 * MIB, 10 * 1024 * MIB),
    ("unended_per_task", 1, 10_000),
)


def refused(lines: str) -> tuple[FindingCode, str]:
    with pytest.raises(ProfileRefused) as caught:
        read(lines)
    (finding,) = caught.value.findings
    return finding.code, finding.key


@pytest.mark.spec("LED-02")
@pytest.mark.parametrize(("key", "low", "high"), RANGES)
def test_a_bound_is_finite_and_within_what_was_tested(key: str, low: int, high: int) -> None:
    for value in (low, high):
        read(f"{key} = {value}")
    for wrong in (low - 1, high + 1, 0, -1, 2**53):
        assert refused(f"{key} = {wrong}") == (FindingCode.OUT_OF_RANGE, f"ledger.{key}")
    for odd in ('"100"', "100.0", "true", "[100]"):
        assert refused(f"{key} = {odd}") == (FindingCode.WRONG_TYPE, f"ledger.{key}")


@pytest.mark.spec("LED-02")
@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("efects = 10", (FindingCode.UNKNOWN_KEY, "ledger.efects")),
        ('keep = "for ever"', (FindingCode.BAD_VALUE, "ledger.keep")),
        ('keep = "367d"', (FindingCode.OUT_OF_RANGE, "ledger.keep")),
        ("keep = 30", (FindingCode.WRONG_TYPE, "ledger.keep")),
    ],
)
def test_what_is_no_bound_is_refused_by_its_key(lines: str, expected: tuple[FindingCode, str]) -> None:
    assert refused(lines) == expected
