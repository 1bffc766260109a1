"""An effect that costs several units holds each at every level, or none anywhere (BUD-01 to BUD-04)."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from issuer.wire import Answer
from tests.support.cases import Books, all_at, books, command
from tests.support.charging import ChargingAdapter, with_adapter
from tests.support.issuers import open_task, permitted, refund
from tests.support.service import accept_then_close, answer
from tests.support.shops import Shop, opened_shop

CENT, CALL = "USD.cent", "call"
TWO_UNITS = {
    'cost = { "USD.cent" = "{amount}" }': 'cost = { "USD.cent" = "{amount}", call = 2 }',
    """[class.refund]
each = { "USD.cent" = 500 }""": """[class.refund]
each = { "USD.cent" = 500, call = 2 }""",
}
"""A refund of F0 costs two calls as well."""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with opened_shop(tmp_path_factory.mktemp("units") / "f0", changes=TWO_UNITS) as made:
        yield made


def tree(shop: Shop, name: str, *, leaf: Mapping[str, int | str], root: Mapping[str, int]) -> tuple[str, str]:
    open_task(shop.issuer, name, budget=root, subject="u-ana", actors=["agent-7"])
    open_task(shop.issuer, f"{name}.a", parent=name, budget=leaf)
    return f"{name}.a", name


def ask(shop: Shop, task: str, amount: int = 100) -> Answer:
    return shop.ask(task, amount=amount)


def both(shop: Shop, *tasks: str) -> tuple[dict[str, Books], dict[str, Books]]:
    return books(shop.issuer, *tasks), books(shop.issuer, *tasks, unit=CALL)


SHORT: list[tuple[str, dict[str, int | str], dict[str, int], tuple[str, int]]] = [
    ("one unit absent at the leaf", {CENT: 500}, {CENT: 500, CALL: 9}, (CALL, 0)),
    ("one unit absent at the root", {CENT: 500, CALL: "inherit"}, {CENT: 500}, (CALL, 1)),
    ("one unit short at the leaf", {CENT: 500, CALL: 1}, {CENT: 500, CALL: 9}, (CALL, 0)),
    ("the other short at the root", {CENT: "inherit", CALL: "inherit"}, {CENT: 99, CALL: 9}, (CENT, 1)),
    ("both short, in the order of their names", {CENT: 1, CALL: 1}, {CENT: 500, CALL: 9}, (CENT, 0)),
]


@pytest.mark.spec("BUD-01", "BUD-02")
@pytest.mark.parametrize(("what", "leaf", "root", "no"), SHORT, ids=[row[0] for row in SHORT])
def test_one_unit_that_does_not_fit_stops_all_and_is_named_with_its_level(
    shop: Shop, what: str, leaf: Mapping[str, int | str], root: Mapping[str, int], no: tuple[str, int]
) -> None:
    unit, place = no
    levels = tree(shop, what.replace(" ", "-").replace(",", ""), leaf=leaf, root=root)
    refused = ask(shop, levels[0])
    assert (refused.code, refused.more["field"], refused.more["level"]) == (
        "budget_exceeded",
        unit,
        levels[place],
    )
    assert both(shop, *levels) == (all_at(*levels), all_at(*levels))


@pytest.mark.spec("BUD-02", "BUD-03", "BUD-04")
def test_each_unit_is_held_settled_released_and_kept_while_unknown_by_itself(shop: Shop) -> None:
    levels = tree(shop, "life", leaf={CENT: 400, CALL: "inherit"}, root={CENT: 1_000, CALL: 8})
    lost = permitted(ask(shop, levels[0]))
    assert shop.send(lost, accept_then_close()) == "outcome_unknown"
    assert both(shop, *levels) == (all_at(*levels, reserved=100), all_at(*levels, reserved=2))
    adapter = ChargingAdapter()
    adapter.charged = {CENT: 40}
    cheaper = with_adapter(shop.issuer, adapter)
    effect = permitted(refund(cheaper, order="cheaper", amount=100, task=levels[0]))
    assert cheaper.commit(effect).code == "succeeded"
    # A unit that nobody measured is charged its maximum; the other releases what was not spent.
    assert both(shop, *levels) == (
        all_at(*levels, reserved=100, settled=40),
        all_at(*levels, reserved=2, settled=2),
    )
    nothing = permitted(ask(shop, levels[0]))
    assert shop.send(nothing, answer(402)) == "no_effect"
    assert both(shop, *levels) == (
        all_at(*levels, reserved=100, settled=40),
        all_at(*levels, reserved=2, settled=2),
    )
    last = [permitted(ask(shop, levels[0])) for _each in range(2)]
    assert [shop.send(effect, answer(201)) for effect in last] == ["succeeded"] * 2
    no = ask(shop, levels[0])
    assert (no.code, no.more["field"], no.more["level"]) == ("budget_exceeded", CENT, levels[0])
    assert shop.issuer.task_grant(levels[0], budget={CENT: 500}).code == "granted"
    no = ask(shop, levels[0])
    assert (no.code, no.more["field"], no.more["level"]) == ("budget_exceeded", CALL, levels[1])


@pytest.mark.spec("BUD-03")
def test_one_unit_is_lowered_or_overrun_and_blocks_while_the_other_has_room(shop: Shop) -> None:
    levels = tree(shop, "apart", leaf={CENT: 400, CALL: 8}, root={CENT: 1_000, CALL: 8})
    effect = permitted(ask(shop, levels[0]))
    assert shop.issuer.task_lower(levels[1], budget={CALL: 1, CENT: 900}).code == "lowered"
    no = shop.issuer.commit(effect)
    assert (no.code, no.more["field"], no.more["level"]) == ("budget_exceeded", CALL, levels[1])
    assert shop.issuer.task_grant(levels[1], budget={CALL: 7, CENT: 1}).code == "granted"
    adapter = ChargingAdapter()
    adapter.charged = {CENT: 100, CALL: 5}
    dearer = with_adapter(shop.issuer, adapter)
    effect = permitted(refund(dearer, order="dearer", amount=100, task=levels[0]))
    assert dearer.commit(effect).code == "succeeded"
    assert both(shop, *levels) == (
        all_at(*levels, settled=100),
        all_at(*levels, settled=2, overrun=3),
    )
    assert ask(shop, levels[0]).more["field"] == CALL
    # An operation that costs no calls is not blocked by them.
    assert shop.publish(levels[0]).code == "permitted"
    left = [shop.issuer.task_accept_overrun(task, unit=CALL).more["blocked"] for task in levels]
    assert [len(rows) for rows in left] == [1, 0]  # type: ignore[arg-type]  # lists
    assert ask(shop, levels[0]).code == "permitted"


@pytest.mark.spec("BUD-04")
def test_another_process_finds_each_unit_of_an_unknown_effect_held(tmp_path: Path) -> None:
    with opened_shop(tmp_path / "f0", changes=TWO_UNITS) as shop:
        levels = tree(shop, "kept", leaf={CENT: 400, CALL: "inherit"}, root={CENT: 1_000, CALL: 8})
        lost = permitted(ask(shop, levels[0]))
        assert shop.send(lost, accept_then_close()) == "outcome_unknown"
    for level in levels:
        task: Any = command(shop.made, "task", "show", level).answer["task"]
        assert {unit: line["reserved"] for unit, line in task["budget"].items()} == {CENT: 100, CALL: 2}
