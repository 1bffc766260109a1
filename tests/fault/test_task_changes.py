"""A task that is frozen, thawed, closed, granted to, lowered, or whose overrun is accepted (BUD-03 to BUD-05)."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from issuer.clock import now_ms
from issuer.flow.steps import Reached
from issuer.operations.contract import Answer as Sent
from issuer.operations.contract import Order
from issuer.wire import Answer
from ledger.model import AMOUNT_MAX, InstantMs
from tests.support.cases import (
    Books,
    Clock,
    all_at,
    books,
    command,
    effect_ids,
    held_by,
    refusals,
    state_of,
    trail,
)
from tests.support.charging import ChargingAdapter, with_adapter
from tests.support.issuers import HOUR_MS, open_task, permitted, refund
from tests.support.ledgers import attacker, without_guards
from tests.support.service import accept_then_close, answer
from tests.support.shell import issuer_here
from tests.support.shops import Shop, opened_shop

DAY_MS = 24 * HOUR_MS
CENT = "USD.cent"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with opened_shop(tmp_path_factory.mktemp("changes") / "f0") as made:
        yield made


def tree(shop: Shop, name: str, *, root: int = 10_000, middle: int | str = "inherit") -> tuple[str, str, str]:
    """Open a root, a task below it and one below that; return them leaf first."""
    levels = (f"{name}.t.a", f"{name}.t", name)
    open_task(shop.issuer, name, budget={CENT: root}, subject="u-ana", actors=["agent-7"])
    open_task(shop.issuer, levels[1], parent=name, budget={CENT: middle})
    open_task(shop.issuer, levels[0], parent=levels[1], budget={CENT: "inherit"})
    return levels


def shown(shop: Shop, task: str) -> dict[str, Any]:
    told: Any = shop.issuer.task_show(task).more["task"]
    return told  # type: ignore[no-any-return]


def assert_stopped(shop: Shop, no: Answer, code: str, level: str) -> None:
    assert (no.code, no.more.get("level")) == (code, level)
    assert refusals(shop.issuer)[-1] == (code, None, level)


# ---------------------------------------------------------------------------------------- frozen and thawed


@pytest.mark.spec("BUD-05")
@pytest.mark.parametrize("place", [0, 1, 2], ids=["itself", "its parent", "its root"])
def test_a_frozen_task_stops_itself_and_all_below_it_until_it_is_thawed(shop: Shop, place: int) -> None:
    name = f"freeze-{place}"
    levels = tree(shop, name)
    leaf, frozen = levels[0], levels[place]
    held = str(shop.ask(leaf, hold=True).effect)
    effect = permitted(shop.ask(leaf))
    effects, slots, connections = effect_ids(shop.issuer), shop.slots(name), shop.service.connections
    answered = shop.issuer.task_freeze(frozen)
    assert (answered.code, shown(shop, frozen)["state"]) == ("frozen", "frozen")
    later = InstantMs(now_ms() + HOUR_MS)
    for no in (
        shop.ask(leaf),
        shop.publish(leaf),
        shop.issuer.request_held(held),
        shop.issuer.commit(effect),
        shop.issuer.task_open(f"{name}.new", parent=leaf, budget={}, expires_ms=later),
    ):
        assert_stopped(shop, no, "task_frozen", frozen)
    assert shown(shop, leaf)["stopped"] == {"code": "task_frozen", "level": frozen}
    # Nothing is spent by a no: permit, slot and money are as they were.
    assert (state_of(shop.issuer, effect), effect_ids(shop.issuer)) == ("permitted", effects)
    assert (shop.slots(name), books(shop.issuer, *levels)) == (slots, all_at(*levels))
    assert shop.service.connections == connections
    assert shop.issuer.task_thaw(frozen).code == "thawed"
    assert shown(shop, leaf)["stopped"] is None
    assert shop.send(effect, answer(201)) == "succeeded"
    assert permitted(shop.issuer.request_held(held))


@pytest.mark.spec("BUD-05")
def test_a_frozen_task_stops_nobody_beside_or_above_it(shop: Shop) -> None:
    leaf, middle, root = tree(shop, "beside")
    open_task(shop.issuer, "beside.u", parent=root, budget={CENT: "inherit"})
    assert shop.issuer.task_freeze(middle).code == "frozen"
    for task, code in (
        (leaf, "task_frozen"),
        (middle, "task_frozen"),
        (root, "permitted"),
        ("beside.u", "permitted"),
    ):
        assert shop.ask(task).code == code, task


@pytest.mark.spec("BUD-05", "PER-03")
def test_a_permit_does_not_live_longer_for_a_time_in_the_frost(tmp_path: Path) -> None:
    clock = Clock()
    with opened_shop(tmp_path / "f0", clock=clock) as shop:
        leaf, _middle, root = tree(shop, "frost")
        early = permitted(shop.ask(leaf))
        assert shop.issuer.task_freeze(root).code == "frozen"
        clock.ahead_ms = 599_000
        assert_stopped(shop, shop.issuer.commit(early), "task_frozen", root)
        clock.ahead_ms = 600_001
        assert shop.issuer.task_thaw(root).code == "thawed"
        assert shop.issuer.commit(early).code == "expired"
        assert shop.slots(root)[0] == 0
        assert shop.service.connections == 0


@pytest.mark.spec("BUD-05", "BUD-03", "REP-05")
@pytest.mark.parametrize("stop", ["task_freeze", "task_close"])
def test_what_is_in_flight_in_a_task_that_was_stopped_is_still_settled(shop: Shop, stop: str) -> None:
    name = f"flight-{stop}"
    levels = tree(shop, name)
    (one, first), (two, second) = (shop.admitted(levels[0]) for _each in range(2))
    assert books(shop.issuer, *levels) == all_at(*levels, reserved=2)
    assert getattr(shop.issuer, stop)(name).code in {"frozen", "closed"}
    assert shop.issuer.report(one, first, succeeded=True).code == "succeeded"
    assert shop.issuer.report(two, second, succeeded=False).code == "outcome_unknown"
    assert books(shop.issuer, *levels) == all_at(*levels, reserved=1, settled=1)
    # A late word of the same host settles what was unknown, and an overrun is kept in full.
    assert shop.issuer.report(two, second, succeeded=True, cost={CENT: 5}).code == "succeeded"
    assert books(shop.issuer, *levels) == all_at(*levels, settled=2, overrun=4)


@pytest.mark.spec("BUD-05", "ADM-05", "REP-04", "BUD-06")
def test_what_is_frozen_between_admission_and_dispatch_is_withdrawn_with_money_and_slot(
    tmp_path: Path,
) -> None:
    with opened_shop(tmp_path / "f0") as shop:
        levels = tree(shop, "between")

        def freeze(step: str) -> None:
            if step == Reached.ACKNOWLEDGED:
                assert shop.issuer.task_freeze("between").code == "frozen"

        effect = permitted(shop.ask(levels[0]))
        with shop.made.open(observe=freeze) as sender:
            assert sender.commit(effect).code == "prepare_again"
        assert (state_of(shop.issuer, effect), shop.service.connections) == ("no_effect", 0)
        assert books(shop.issuer, *levels) == all_at(*levels)
        assert shop.slots("between")[0] == 0


@pytest.mark.spec("BUD-05", "SUR-02")
def test_only_what_is_frozen_is_thawed_and_what_is_closed_changes_no_more(shop: Shop) -> None:
    leaf, middle, root = tree(shop, "moves")
    budget = {CENT: 1}
    for change, code in (
        (shop.issuer.task_thaw, "nothing_to_change"),
        (shop.issuer.task_freeze, "frozen"),
        (shop.issuer.task_freeze, "nothing_to_change"),
        (shop.issuer.task_close, "closed"),
    ):
        assert change(middle).code == code
    before = shown(shop, middle)
    for no in (
        shop.issuer.task_thaw(middle),
        shop.issuer.task_freeze(middle),
        shop.issuer.task_close(middle),
        shop.issuer.task_grant(middle, budget=budget),
        shop.issuer.task_lower(middle, budget=budget),
        shop.issuer.task_accept_overrun(middle),
    ):
        assert_stopped(shop, no, "task_closed", middle)
    assert shown(shop, middle) == before
    # A level above that is stopped is named, since thawing what is below it opens nothing.
    assert shop.issuer.task_freeze(root).code == "frozen"
    assert shop.issuer.task_freeze(leaf).code == "frozen"
    thawed = shop.issuer.task_thaw(leaf)
    assert (thawed.code, thawed.say) == (
        "thawed",
        f"The task is thawed, and still admits nothing: {middle} is closed.",
    )
    assert shop.ask(leaf).code == "task_closed"


@pytest.mark.spec("BUD-05", "AUD-01")
def test_each_change_of_a_task_has_one_span_of_its_own(shop: Shop) -> None:
    _leaf, middle, _root = tree(shop, "spans", middle=500)
    start = trail(shop.issuer)[-1].sequence
    shop.issuer.task_freeze(middle)
    shop.issuer.task_grant(middle, budget={CENT: 7})
    shop.issuer.task_lower(middle, budget={CENT: 3})
    shop.issuer.task_thaw(middle)
    shop.issuer.task_close(middle)
    told = trail(shop.issuer, start)
    assert [entry.name for entry in told] == [
        "task.frozen",
        "task.granted",
        "task.lowered",
        "task.thawed",
        "task.closed",
    ]
    assert {entry.attributes["permit.task.name"] for entry in told} == {middle}
    assert told[1].attributes["permit.granted"] == ("USD.cent=7",)
    assert told[2].attributes["permit.lowered"] == ("USD.cent=3",)


@pytest.mark.spec("BUD-05", "BUD-03", "LED-06")
@pytest.mark.parametrize("change", ["task_freeze", "task_lower", "task_close"])
def test_a_row_from_before_a_change_is_authentic_and_gives_nothing_back(tmp_path: Path, change: str) -> None:
    with opened_shop(tmp_path / "f0") as shop:
        leaf = tree(shop, "back")[0]
        effect = permitted(shop.ask(leaf, amount=100))
        made, connections = shop.made, shop.service.connections
    raw = attacker(made.ledger)
    (before,) = raw.execute("SELECT state, ceilings, sequence, mac FROM tasks WHERE name = 'back'").fetchall()
    raw.close()
    with made.open() as issuer:
        more = {"budget": {CENT: 0}} if change == "task_lower" else {}
        assert getattr(issuer, change)("back", **more).code in {"frozen", "lowered", "closed"}
        assert issuer.commit(effect).code in {"task_frozen", "budget_exceeded", "task_closed"}
    state, ceilings, sequence, mac = before
    put_back = f"state = '{state}', ceilings = '{ceilings}', sequence = {sequence}, mac = x'{mac.hex()}'"
    without_guards(
        made.ledger,
        f"UPDATE tasks SET {put_back} WHERE name = 'back'",  # noqa: S608 - values read from the file itself
        "UPDATE budgets SET ceiling = 10000 WHERE task_id = (SELECT task_id FROM tasks WHERE name = 'back')",
    )
    with made.open() as issuer:
        for no in (issuer.commit(effect), refund(issuer, order="o-9", amount=1, task=leaf)):
            assert (no.code, no.more["reason"]) == ("ledger_unavailable", "standing")
    assert connections == 0


# ------------------------------------------------------------------------------------------ what is unknown


@pytest.mark.spec("BUD-04", "BUD-06", "BUD-05")
@pytest.mark.parametrize("how", ["task_close", "task_freeze", "expiry", "midnight"])
def test_what_is_unknown_holds_its_maximum_and_its_slots_whatever_becomes_of_task_process_and_day(
    tmp_path: Path, how: str
) -> None:
    clock = Clock()
    with opened_shop(tmp_path / "f0", clock=clock) as shop:
        levels = tree(shop, "lost")
        effect = permitted(shop.ask(levels[0], amount=300))
        assert shop.send(effect, accept_then_close()) == "outcome_unknown"
        held, slots = dict.fromkeys(levels, 300), shop.slots("lost")
        assert slots[0] == 1
        if how.startswith("task_"):
            assert getattr(shop.issuer, how)("lost").code in {"closed", "frozen"}
        else:
            clock.ahead_ms = 25 * HOUR_MS if how == "expiry" else DAY_MS - now_ms() % DAY_MS + 1
        assert (held_by(shop.issuer, effect), books(shop.issuer, *levels)) == (
            held,
            all_at(*levels, reserved=300),
        )
    # Another process, later still.
    ran = command(shop.made, "task", "show", "lost")
    line: Any = ran.answer["task"]
    assert (line["budget"][CENT]["reserved"], line["scope"]["class"]["refund"]["used"]) == (300, 1)
    ran = command(shop.made, "commit", effect)
    assert (ran.exit, ran.answer["code"]) == (5, "outcome_unknown")
    with shop.made.open(clock=clock) as later:
        assert (held_by(later, effect), books(later, *levels)) == (held, all_at(*levels, reserved=300))
    assert shop.service.connections == 1


# ------------------------------------------------------------------------------------------------- lowered


@pytest.mark.spec("BUD-03", "BUD-02")
@pytest.mark.parametrize("place", [0, 1, 2], ids=["leaf", "middle", "root"])
def test_a_ceiling_lowered_below_what_is_used_blocks_until_usage_is_under_it(shop: Shop, place: int) -> None:
    name = f"lower-{place}"
    levels = tree(shop, name)
    leaf, lowered = levels[0], levels[place]
    effect = permitted(shop.ask(leaf, amount=100))
    spent = permitted(shop.ask(leaf, amount=400))
    assert shop.send(spent, answer(201)) == "succeeded"
    flying, claim = shop.admitted(leaf)
    answered = shop.issuer.task_lower(lowered, budget={CENT: 150})
    assert answered.code == "lowered"
    line = shown(shop, lowered)["budget"][CENT]
    assert line == {
        "ceiling": 150, "reserved": 1, "settled": 400, "overrun": 0, "above": 251, "available": 0,
    }  # fmt: skip
    for no in (shop.ask(leaf), shop.issuer.commit(effect)):
        assert (no.code, no.more["field"], no.more["level"]) == ("budget_exceeded", CENT, lowered)
    # What is in flight settles all the same, and nothing of it is lost.
    assert shop.issuer.report(flying, claim, succeeded=True).code == "succeeded"
    assert books(shop.issuer, *levels) == all_at(*levels, settled=401)
    assert state_of(shop.issuer, effect) == "permitted"
    for amount, above in ((250, 1), (1, 0), (99, 0)):
        assert shop.issuer.task_grant(lowered, budget={CENT: amount}).code == "granted"
        assert shown(shop, lowered)["budget"][CENT]["above"] == above
        assert shop.issuer.commit(effect).code == "budget_exceeded"
    assert shop.issuer.task_grant(lowered, budget={CENT: 1}).code == "granted"
    assert shop.send(effect, answer(201)) == "succeeded"


class LoweringAdapter(ChargingAdapter):
    """Lowers a ceiling while it sends, and then says that it cost little."""

    def __init__(self, shop: Shop, task: str, ceiling: int) -> None:
        super().__init__()
        self._lower = (shop, task, ceiling)

    def dispatch(self, order: Order) -> Sent:
        """See `Adapter.dispatch`."""
        shop, task, ceiling = self._lower
        assert shop.issuer.task_lower(task, budget={CENT: ceiling}).code == "lowered"
        assert shown(shop, task)["budget"][CENT]["above"] == 300 - ceiling
        assert shop.ask(task).code == "budget_exceeded"
        return super().dispatch(order)


@pytest.mark.spec("BUD-03")
def test_usage_that_falls_under_a_lowered_ceiling_by_itself_opens_it_again(shop: Shop) -> None:
    leaf, _middle, root = tree(shop, "falls")
    adapter = LoweringAdapter(shop, root, 200)
    adapter.charged = {CENT: 50}
    sender = with_adapter(shop.issuer, adapter)
    effect = permitted(refund(sender, order="cheaper", amount=300, task=leaf))
    assert sender.commit(effect).code == "succeeded"
    assert shown(shop, root)["budget"][CENT] == {
        "ceiling": 200, "reserved": 0, "settled": 50, "overrun": 0, "above": 0, "available": 150,
    }  # fmt: skip
    assert shop.ask(leaf, amount=151).code == "budget_exceeded"
    assert shop.ask(leaf, amount=150).code == "permitted"


@pytest.mark.spec("BUD-03", "BUD-01", "SUR-02")
def test_lowering_never_raises_and_gives_a_number_to_what_inherited(shop: Shop) -> None:
    leaf, middle, root = tree(shop, "number", root=600, middle=500)
    for task, ceiling, code, level in (
        (root, 601, "malformed", root),
        (middle, 501, "malformed", middle),
        (leaf, 501, "forbidden", middle),
        (leaf, 500, "lowered", None),
        (leaf, 501, "malformed", leaf),
        (leaf, 500, "lowered", None),
        (leaf, 0, "lowered", None),
        (leaf, 1, "malformed", leaf),
    ):
        answered = shop.issuer.task_lower(task, budget={CENT: ceiling})
        assert (answered.code, answered.more.get("level")) == (code, level), (task, ceiling)
    no = shop.issuer.task_lower(root, budget={CENT: 700})
    assert no.say == "The ceiling is 600 USD.cent, and lowering does not raise it; a grant does."
    assert [shown(shop, task)["budget"][CENT]["ceiling"] for task in (leaf, middle, root)] == [0, 500, 600]
    # A root below its child is no contradiction: the child is held to both.
    assert shop.issuer.task_lower(root, budget={CENT: 10}).code == "lowered"
    assert shop.ask(middle, amount=11).more["level"] == root
    assert shop.ask(middle, amount=10).code == "permitted"


@pytest.mark.spec("BUD-03", "EFF-04", "SUR-02")
@pytest.mark.parametrize(
    ("budget", "code"),
    [
        ({}, "malformed"),
        ({CENT: -1}, "malformed"),
        ({CENT: True}, "malformed"),
        ({CENT: 1.0}, "malformed"),
        ({CENT: AMOUNT_MAX + 1}, "malformed"),
        ({"USD.cents": 1}, "unknown_reference"),
        ({"no unit": 1}, "malformed"),
    ],
)
def test_what_is_no_amount_lowers_nothing(shop: Shop, budget: Any, code: str) -> None:
    before = shown(shop, "org")["budget"]
    no = shop.issuer.task_lower("org", budget=budget)
    assert (no.code, int(no.exit)) == (code, 2)
    assert shown(shop, "org")["budget"] == before
    assert shop.issuer.task_lower("nobody", budget={CENT: 1}).code == "unknown_reference"


# ------------------------------------------------------------------------------------------------- granted


@pytest.mark.spec("BUD-01", "SUR-02")
def test_a_grant_makes_no_task_wider_than_the_nearest_ceiling_above_it(shop: Shop) -> None:
    leaf, middle, root = tree(shop, "grant", root=600, middle=500)
    inherits = shop.issuer.task_grant(leaf, budget={CENT: 1})
    assert (inherits.code, inherits.more["level"]) == ("unsupported", leaf)
    assert "inherits" in inherits.say
    open_task(shop.issuer, "grant.deep", parent=leaf, budget={CENT: 400})
    for task, amount, code, level in (
        ("grant.deep", 101, "forbidden", middle),
        ("grant.deep", 100, "granted", None),
        ("grant.deep", 1, "forbidden", middle),
        (middle, 101, "forbidden", root),
        (middle, 100, "granted", None),
        ("grant.deep", 100, "granted", None),
        (root, 1_000, "granted", None),
        (root, AMOUNT_MAX, "malformed", root),
    ):
        answered = shop.issuer.task_grant(task, budget={CENT: amount})
        assert (answered.code, answered.more.get("level")) == (code, level), (task, amount)
    no = shop.issuer.task_grant("grant.deep", budget={CENT: 1})
    assert (no.more["field"], "never wider" in no.say) == ("budget", True)
    assert refusals(shop.issuer)[-1] == ("forbidden", "budget", middle)


# ------------------------------------------------------------------------------------------------- overrun


@pytest.mark.spec("BUD-03")
def test_an_overrun_is_accepted_at_exactly_one_task_and_the_answer_says_where_it_still_blocks(
    shop: Shop,
) -> None:
    levels = tree(shop, "over", root=1_000)
    leaf, middle, root = levels
    shop.overrun(leaf)
    assert books(shop.issuer, *levels) == all_at(*levels, settled=1, overrun=30)
    no = shop.ask(leaf)
    assert (no.code, no.more["level"]) == ("budget_overrun", leaf)
    accepted = shop.issuer.task_accept_overrun(leaf)
    assert accepted.code == "accepted"
    assert books(shop.issuer, *levels) == all_at(middle, root, settled=1, overrun=30) | {
        leaf: Books(reserved=0, settled=31)
    }
    rows: Any = accepted.more["blocked"]
    assert [(row["task"], row["unit"], row["overrun"], row["above"]) for row in rows] == [
        (root, CENT, 30, 0),
        (middle, CENT, 30, 0),
    ]
    for row in rows:
        assert f"{row['task']} (30 {CENT} overrun): `{row['command']}`" in accepted.say
        assert shop.ask(leaf).code == "budget_overrun"
        words = shlex.split(row["command"])
        assert words.pop(0) == "issuer"
        assert issuer_here(*words, at=shop.made.folder).exit == 0
    assert books(shop.issuer, *levels) == all_at(*levels, settled=31)
    last = shop.issuer.task_accept_overrun(root)
    assert (last.code, last.more["field"]) == ("nothing_to_change", "unit")
    effect = permitted(shop.ask(leaf, amount=500))
    assert shop.send(effect, answer(201)) == "succeeded"
    told = [entry for entry in trail(shop.issuer) if entry.name == "task.overrun_accepted"]
    assert [entry.attributes["permit.overrun"] for entry in told] == [("USD.cent=30",)] * 3


@pytest.mark.spec("BUD-03")
def test_an_accepted_overrun_counts_against_the_ceiling_and_blocks_as_usage_where_it_is_above(
    shop: Shop,
) -> None:
    leaf, middle, root = tree(shop, "tight", root=1_000, middle=100)
    shop.overrun(leaf, above=250)
    assert shop.issuer.task_accept_overrun(leaf, unit=CENT).code == "accepted"
    assert shop.issuer.task_accept_overrun(root, unit=CENT).code == "accepted"
    accepted = shop.issuer.task_accept_overrun(middle)
    assert shown(shop, middle)["budget"][CENT] == {
        "ceiling": 100, "reserved": 0, "settled": 251, "overrun": 0, "above": 151, "available": 0,
    }  # fmt: skip
    assert accepted.more["blocked"] == [
        {
            "task": middle,
            "unit": CENT,
            "overrun": 0,
            "above": 151,
            "command": f"issuer task grant {middle} --budget {CENT}=AMOUNT",
        }
    ]
    assert f"{middle} (151 {CENT} over its ceiling)" in accepted.say
    no = shop.ask(leaf)
    assert (no.code, no.more["level"]) == ("budget_exceeded", middle)
    assert shop.issuer.task_grant(middle, budget={CENT: 151}).code == "granted"
    assert shop.ask(leaf).code == "budget_exceeded"
    assert shop.issuer.task_grant(middle, budget={CENT: 1}).code == "granted"
    assert shop.ask(leaf).code == "permitted"


@pytest.mark.spec("BUD-03", "SUR-02")
def test_what_was_never_overrun_or_is_more_than_can_be_counted_is_not_accepted(shop: Shop) -> None:
    leaf, _middle, root = tree(shop, "huge")
    for unit in (None, CENT, "EUR.cent"):
        no = shop.issuer.task_accept_overrun(leaf, unit=unit)
        assert (no.code, no.more["level"]) == ("nothing_to_change", leaf)
    assert shop.issuer.task_accept_overrun(leaf, unit="no unit").code == "malformed"
    assert shop.issuer.task_accept_overrun("nobody").code == "unknown_reference"
    flying, claim = shop.admitted(leaf)
    shop.overrun(leaf, above=AMOUNT_MAX - 1)
    no = shop.issuer.task_accept_overrun(root)
    assert (no.code, no.more["field"]) == ("unsupported", CENT)
    assert books(shop.issuer, root)[root] == Books(reserved=1, settled=1, overrun=AMOUNT_MAX - 1)
    # What is in flight there still finds room for what it cost.
    assert shop.issuer.report(flying, claim, succeeded=True).code == "succeeded"
    assert books(shop.issuer, root)[root] == Books(reserved=0, settled=2, overrun=AMOUNT_MAX - 1)
