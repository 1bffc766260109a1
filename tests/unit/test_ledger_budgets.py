"""Budget arithmetic, leaf to root: absent is zero, `inherit` has no bound of its own, an overrun blocks."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from ledger.budgets import available, refuse_cost, remaining, reserved_lines
from ledger.model import AMOUNT_MAX, BudgetLine, PathNode, Unit
from tests.support.ledgers import CENT, new_task

FEE = Unit("EUR.fee")
Line = tuple[int | None, int, int, int]
"""Ceiling, reserved, settled, overrun."""


def a_line(values: Line, unit: Unit = CENT) -> BudgetLine:
    ceiling, reserved, settled, overrun = values
    task_id = new_task("any").task_id
    return BudgetLine(
        task_id=task_id, unit=unit, ceiling=ceiling, reserved=reserved, settled=settled, overrun=overrun
    )


def a_path(*levels: Mapping[Unit, Line]) -> tuple[PathNode, ...]:
    """A path, leaf first; tasks are named `l0`, `l1`, … from the leaf."""
    return tuple(
        PathNode(
            task=new_task(f"l{place}"),
            budget={unit: a_line(values, unit) for unit, values in level.items()},
        )
        for place, level in enumerate(levels)
    )


@pytest.mark.spec("BUD-01", "BUD-02", "BUD-03")
@pytest.mark.parametrize(
    ("values", "left"),
    [
        (None, 0),
        ((0, 0, 0, 0), 0),
        ((100, 0, 0, 0), 100),
        ((100, 30, 0, 0), 70),
        ((100, 30, 70, 0), 0),
        ((100, 0, 100, 0), 0),
        ((100, 0, 150, 0), 0),
        ((100, 80, 80, 0), 0),
        ((100, 0, 0, 1), 0),
        ((None, 0, 0, 0), AMOUNT_MAX),
        ((None, 10, 10, 0), AMOUNT_MAX),
        ((None, 0, 0, 1), 0),
        ((AMOUNT_MAX, 0, 0, 0), AMOUNT_MAX),
        ((AMOUNT_MAX, AMOUNT_MAX, 0, 0), 0),
    ],
)
def test_what_one_level_can_still_reserve(values: Line | None, left: int) -> None:
    assert available(None if values is None else a_line(values)) == left


@pytest.mark.spec("BUD-03")
@pytest.mark.parametrize("ceiling", [50, None])
def test_above_a_lowered_ceiling_not_even_nothing_is_borne(ceiling: int | None) -> None:
    over = replace(a_line((ceiling, 60, 0, 0)), above=10)
    leaf = PathNode(task=new_task("leaf"), budget={CENT: a_line((100, 0, 0, 0))})
    path = (leaf, PathNode(task=new_task("org"), budget={CENT: over}))
    assert available(over) == 0
    assert remaining(path, [CENT]) == {CENT: 0}
    for amount in (0, 1):
        refusal = refuse_cost(path, {CENT: amount})
        assert refusal is not None
        assert (refusal.code, refusal.field, refusal.level) == ("budget_exceeded", CENT, "org")


COSTS: list[tuple[str, tuple[Mapping[Unit, Line], ...], Mapping[Unit, int], tuple[str, str, str] | None]] = [
    ("exactly what is left", ({CENT: (100, 60, 0, 0)},), {CENT: 40}, None),
    ("one more", ({CENT: (100, 60, 0, 0)},), {CENT: 41}, ("budget_exceeded", CENT, "l0")),
    ("absent is zero", ({},), {CENT: 1}, ("budget_exceeded", CENT, "l0")),
    ("nothing of an absent unit", ({},), {CENT: 0}, None),
    ("inherit at the leaf", ({CENT: (None, 0, 0, 0)}, {CENT: (5, 0, 0, 0)}), {CENT: 5}, None),
    ("bounded by the parent", ({CENT: (None, 0, 0, 0)}, {CENT: (5, 0, 0, 0)}), {CENT: 6},
     ("budget_exceeded", CENT, "l1")),
    ("absent in the middle", ({CENT: (9, 0, 0, 0)}, {}, {CENT: (9, 0, 0, 0)}), {CENT: 1},
     ("budget_exceeded", CENT, "l1")),
    ("the lowest speaks first", ({CENT: (1, 0, 0, 0)}, {CENT: (0, 0, 0, 0)}), {CENT: 2},
     ("budget_exceeded", CENT, "l0")),
    ("an overrun at the root", ({CENT: (9, 0, 0, 0)}, {CENT: (99, 0, 0, 1)}), {CENT: 1},
     ("budget_overrun", CENT, "l1")),
    ("an overrun blocks even nothing", ({CENT: (9, 0, 0, 1)},), {CENT: 0}, ("budget_overrun", CENT, "l0")),
    ("an overrun of another unit", ({CENT: (9, 0, 0, 0), FEE: (0, 0, 0, 5)},), {CENT: 1}, None),
    ("the second unit", ({CENT: (9, 0, 0, 0), FEE: (1, 0, 0, 0)},), {CENT: 1, FEE: 2},
     ("budget_exceeded", FEE, "l0")),
    ("the largest amount", ({CENT: (AMOUNT_MAX, 0, 0, 0)},), {CENT: AMOUNT_MAX}, None),
    ("the largest amount and one held", ({CENT: (AMOUNT_MAX, 1, 0, 0)},), {CENT: AMOUNT_MAX},
     ("budget_exceeded", CENT, "l0")),
]  # fmt: skip


@pytest.mark.spec("BUD-01", "BUD-02", "BUD-03")
@pytest.mark.parametrize(("what", "levels", "cost", "no"), COSTS, ids=[row[0] for row in COSTS])
def test_a_cost_is_refused_where_any_level_cannot_bear_it(
    what: str,
    levels: tuple[Mapping[Unit, Line], ...],
    cost: Mapping[Unit, int],
    no: tuple[str, str, str] | None,
) -> None:
    refusal = refuse_cost(a_path(*levels), cost)
    assert (None if refusal is None else (str(refusal.code), refusal.field, refusal.level)) == no


@pytest.mark.spec("BUD-02")
def test_what_remains_is_the_least_of_all_levels_and_agrees_with_the_refusal() -> None:
    for _what, levels, _cost, _no in COSTS:
        path = a_path(*levels)
        left = remaining(path, [CENT])[CENT]
        assert left == min(available(node.budget.get(CENT)) for node in path)
        if left:
            assert refuse_cost(path, {CENT: left}) is None
        if left < AMOUNT_MAX:
            assert refuse_cost(path, {CENT: left + 1}) is not None
    assert remaining((), [CENT]) == {CENT: 0}
    assert remaining(a_path({}), []) == {}


@pytest.mark.spec("BUD-02", "EFF-04")
def test_a_reservation_is_shown_for_every_level_and_unit_leaf_first() -> None:
    path = a_path({}, {}, {})
    assert reserved_lines(path, {CENT: 5, FEE: 0}) == (
        "l0:EUR.cent=5",
        "l0:EUR.fee=0",
        "l1:EUR.cent=5",
        "l1:EUR.fee=0",
        "l2:EUR.cent=5",
        "l2:EUR.fee=0",
    )
    assert reserved_lines((), {CENT: 5}) == ()
