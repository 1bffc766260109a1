"""The bounds of a class hold at admission as the owner has them then, and what is unknown keeps counting (POL-03)."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from issuer.clock import local_time
from issuer.wire import Answer
from ledger.port import View
from tests.support.cases import Clock, refusals, state_of
from tests.support.issuers import HOUR_MS, permitted
from tests.support.revised import activated
from tests.support.service import accept_then_close, answer
from tests.support.shops import Shop, opened_shop

DAY_MS = 24 * HOUR_MS
AUTOMATIC = """
@id("any-refund")
permit (principal is Actor in Group::"bots", action == Action::"issue", resource is Order);
"""
WITH_A_PERSON = (
    AUTOMATIC
    + """
@id("by-a-person") @approvers("finance")
permit (principal is Actor in Group::"bots", action == Action::"requestApproval", resource is Order);
"""
)
WIDE = """[class.refund]
each = { "USD.cent" = 500 }
per_task = { permits = 100 }
per_root = { permits = 200 }
lifetime = "10m"
"""


def bounds(*, per_task: int = 100, per_root: int = 200, per_day: str = "") -> str:
    """Return the class of refunds with other bounds."""
    day = f"per_day = {{ {per_day} }}\n" if per_day else ""
    counts = f"per_task = {{ permits = {per_task} }}\nper_root = {{ permits = {per_root} }}\n"
    return f'[class.refund]\neach = {{ "USD.cent" = 500 }}\n{counts}{day}lifetime = "10m"\n'


def rewrite(shop: Shop, old: str, new: str) -> None:
    """Let the owner write another class into the profile and activate it, under the open issuer."""
    text = shop.made.profile.read_text(encoding="utf-8")
    assert text.count(old) == 1
    shop.made.profile.write_text(text.replace(old, new), encoding="utf-8")
    activated(shop.made.profile, clock=shop.issuer._house.now)


def midnight(clock: Clock, *, before_ms: int = 300_000) -> None:
    """Go to shortly before midnight, in UTC, where F0 lives."""
    clock.ahead_ms += (-clock() - before_ms) % DAY_MS  # never back, whatever the time of day is


def today(clock: Clock) -> str:
    """The day that the owner's clock shows."""
    return local_time(clock(), "UTC").day


BEFORE = bounds(per_day='permits = 50, "USD.cent" = 20_000')
LOWERED = {
    "per task": ({"per_task": 1}, "t1"),
    "per root": ({"per_task": 1, "per_root": 1}, "org"),
    "permits a day": ({"per_day": "permits = 1"}, "day"),
    "cents a day": ({"per_day": '"USD.cent" = 500'}, "day"),
}


@pytest.mark.spec("POL-03", "POL-05", "ADM-01")
@pytest.mark.parametrize("policy", [AUTOMATIC, WITH_A_PERSON], ids=["automatic", "with a person"])
@pytest.mark.parametrize("what", LOWERED)
def test_a_bound_that_was_lowered_below_what_is_used_admits_no_earlier_automatic_permit(
    tmp_path: Path, what: str, policy: str
) -> None:
    changed, level = LOWERED[what]
    clock = Clock()
    midnight(clock, before_ms=12 * HOUR_MS)
    level = today(clock) if level == "day" else level
    with opened_shop(tmp_path / "f0", clock=clock, policy=policy, changes={WIDE: BEFORE}) as shop:
        tasks = ("t1", "t1.b") if what == "per root" else ("t1", "t1")
        one, two = (permitted(shop.ask(task, amount=300)) for task in tasks)
        after = bounds(**changed)  # type: ignore[arg-type]  # the table's own words
        rewrite(shop, BEFORE, after)
        for effect in (one, two):
            assert_exhausted(shop, shop.issuer.commit(effect), level)
            assert state_of(shop.issuer, effect) == "permitted"
        assert shop.service.connections == 0
        # What is used now fits exactly, so the permits that were refused can be used.
        as_used = {"per_task": 2, "per_root": 2, "per_day": 'permits = 2, "USD.cent" = 600'}
        rewrite(shop, after, bounds(**as_used))  # type: ignore[arg-type]  # the table's own words
        assert [shop.send(effect, answer(201)) for effect in (one, two)] == ["succeeded"] * 2
        no = shop.ask(tasks[1], amount=1)
        assert no.code == ("class_exhausted" if policy == AUTOMATIC else "awaiting_approval")


def assert_exhausted(shop: Shop, no: Answer, level: str) -> None:
    assert (no.code, int(no.exit), no.more["level"]) == ("class_exhausted", 6, level)
    assert f"(level: {level})" in no.say
    assert refusals(shop.issuer)[-1] == ("class_exhausted", None, level)


@pytest.mark.spec("POL-03", "POL-05")
def test_one_that_is_given_back_lets_the_other_permit_through(tmp_path: Path) -> None:
    with opened_shop(tmp_path / "f0", policy=AUTOMATIC, changes={WIDE: BEFORE}) as shop:
        one, two = (permitted(shop.ask("t1")) for _each in range(2))
        after = bounds(per_task=1)
        rewrite(shop, BEFORE, after)
        assert shop.issuer.commit(two).code == "class_exhausted"
        rewrite(shop, after, BEFORE)
        assert shop.send(one, answer(402)) == "no_effect"
        rewrite(shop, BEFORE, after)
        assert shop.send(two, answer(201)) == "succeeded"
        assert shop.ask("t1").code == "class_exhausted"


@pytest.mark.spec("POL-03", "POL-05")
def test_a_bound_that_is_new_counts_what_is_issued_from_then_on(tmp_path: Path) -> None:
    with opened_shop(tmp_path / "f0", policy=AUTOMATIC) as shop:
        early = permitted(shop.ask("t1"))
        rewrite(shop, WIDE, bounds(per_day="permits = 1"))
        assert shop.send(early, answer(201)) == "succeeded"
        permitted(shop.ask("t1"))
        assert shop.ask("t1").code == "class_exhausted"


def counters(shop: Shop, days: Mapping[str, str]) -> dict[str, int]:
    """Return how many permits of a day are counted, by a name of the test's own."""

    def look(view: View) -> dict[str, int]:
        return {name: view.counter(f"day|refund|{day}|permits") for name, day in days.items()}

    return shop.issuer._house.ledger.read(look)


@pytest.mark.spec("POL-03", "BUD-04", "REP-04")
def test_what_is_unknown_counts_in_the_day_of_its_permit_for_ever_and_in_no_other(tmp_path: Path) -> None:
    clock = Clock()
    midnight(clock)
    with opened_shop(
        tmp_path / "f0", clock=clock, policy=AUTOMATIC, changes={WIDE: bounds(per_day="permits = 3")}
    ) as shop:
        days = {"yesterday": today(clock)}
        lost, gone, kept = (permitted(shop.ask("t1")) for _each in range(3))
        assert shop.ask("t1").more["level"] == days["yesterday"]
        assert shop.send(lost, accept_then_close()) == "outcome_unknown"
        clock.ahead_ms += 360_000
        days["today"] = today(clock)
        assert counters(shop, days) == {"yesterday": 3, "today": 0}
        # A permit of yesterday that is used today stays in yesterday's count, and is given back there.
        assert shop.send(gone, answer(402)) == "no_effect"
        assert shop.send(kept, answer(201)) == "succeeded"
        assert counters(shop, days) == {"yesterday": 2, "today": 0}
        fresh = [permitted(shop.ask("t1")) for _each in range(3)]
        assert shop.ask("t1").more["level"] == days["today"]
        assert counters(shop, days) == {"yesterday": 2, "today": 3}
        assert shop.send(fresh[0], answer(201)) == "succeeded"
        clock.ahead_ms += 100 * HOUR_MS
        assert state_of(shop.issuer, lost) == "unknown"
        assert counters(shop, days)["yesterday"] == 2


@pytest.mark.spec("POL-03")
def test_a_permit_used_after_midnight_is_measured_by_the_count_of_its_own_day(tmp_path: Path) -> None:
    clock = Clock()
    midnight(clock)
    before = bounds(per_day="permits = 3")
    with opened_shop(tmp_path / "f0", clock=clock, policy=AUTOMATIC, changes={WIDE: before}) as shop:
        yesterday = today(clock)
        early = [permitted(shop.ask("t1")) for _each in range(2)]
        clock.ahead_ms += 360_000
        late = permitted(shop.ask("t1"))
        after = bounds(per_day="permits = 1")
        rewrite(shop, before, after)
        # Two were issued yesterday and one today: the bound of one is exceeded in yesterday only.
        for effect in early:
            assert_exhausted(shop, shop.issuer.commit(effect), yesterday)
        assert shop.send(late, answer(201)) == "succeeded"
        rewrite(shop, after, before)
        assert shop.send(early[0], answer(201)) == "succeeded"
