"""What a task names, and how often: pure rules over a path of tasks, leaf first (BUD-06, BUD-01)."""

from collections.abc import Mapping

import pytest

from ledger.budgets import refuse_wider_ceiling
from ledger.errors import Malformed
from ledger.model import AMOUNT_MAX, Effect, PathNode, Scope, Slots, Unit
from ledger.refusals import Refusal
from ledger.scope import (
    SCOPE_NAME_BYTES_MAX,
    SCOPE_NAMES_MAX,
    SLOTS_MAX,
    named,
    refuse_scope,
    refuse_slots,
    refuse_wider,
    slot_takes,
    slots_of,
)
from tests.support.ledgers import CENT, new_effect, new_task

FEE = Unit("EUR.fee")
PAY: Slots = {"payment": 3}
ONLY = Scope(classes=PAY, operations={"pay": 2}, resources={"Invoice:r-1": 1})
OPEN = Scope(classes={"payment": None})


def a_path(*scopes: Scope) -> tuple[PathNode, ...]:
    """A path, leaf first; tasks are named `l0`, `l1`, … from the leaf."""
    return tuple(
        PathNode(task=new_task(f"l{place}", scope=scope), budget={}) for place, scope in enumerate(scopes)
    )


def an_effect() -> Effect:
    """An effect of class `payment`, operation `pay`, on `Invoice:r-1`."""
    return new_effect(new_task("any"), {CENT: 1})


def said(no: Refusal | None) -> tuple[str, str | None, str | None] | None:
    return None if no is None else (str(no.code), no.field, no.level)


# ------------------------------------------------------------------------------------------ names and counts


@pytest.mark.spec("BUD-06", "EFF-05")
@pytest.mark.parametrize(
    ("slots", "code"),
    [
        ({}, "out_of_range"),
        ({f"n{number}": 1 for number in range(SCOPE_NAMES_MAX + 1)}, "out_of_range"),
        ({"": 1}, "not_a_name"),
        ({"a\nb": 1}, "not_a_name"),
        ({"a\u202eb": 1}, "not_a_name"),
        ({"x" * (SCOPE_NAME_BYTES_MAX + 1): 1}, "not_a_name"),
        ({"ü" * (SCOPE_NAME_BYTES_MAX // 2 + 1): 1}, "not_a_name"),
        ({7: 1}, "not_a_name"),
        ({"a": True}, "wrong_type"),
        ({"a": "1"}, "wrong_type"),
        ({"a": 1.0}, "wrong_type"),
        ({"a": 0}, "out_of_range"),
        ({"a": -1}, "out_of_range"),
        ({"a": SLOTS_MAX + 1}, "out_of_range"),
    ],
)
def test_names_and_counts_that_are_none_are_refused(slots: Mapping[str, object], code: str) -> None:
    with pytest.raises(Malformed) as fault:
        named(slots, "class")
    assert (fault.value.code, fault.value.field) == (code, "class")


@pytest.mark.spec("BUD-06")
def test_the_largest_scope_is_kept_in_the_order_of_its_names_and_cannot_be_changed() -> None:
    slots: dict[str, object] = {f"n{number:03}": SLOTS_MAX for number in reversed(range(SCOPE_NAMES_MAX - 1))}
    slots["x" * SCOPE_NAME_BYTES_MAX] = None
    kept = named(slots, "resource")
    assert list(kept) == sorted(slots)
    assert kept == slots
    with pytest.raises(TypeError):
        kept["n000"] = 1  # type: ignore[index]  # the attempt is the test


# ------------------------------------------------------------------------------------------ what is unnamed

UNNAMED: list[tuple[str, tuple[Scope, ...], tuple[str, str] | None]] = [
    ("all is named", (ONLY,), None),
    ("only the class counts", (Scope(classes=PAY),), None),
    ("another class", (Scope(classes={"release": 3}),), ("class", "l0")),
    ("no class at all", (Scope(classes={}),), ("class", "l0")),
    ("another operation", (Scope(classes=PAY, operations={"refund": 1}),), ("operation", "l0")),
    ("another resource", (Scope(classes=PAY, resources={"Invoice:r-2": 1}),), ("resource", "l0")),
    ("another type", (Scope(classes=PAY, resources={"Order:r-1": 1}),), ("resource", "l0")),
    ("a name is not a beginning", (Scope(classes=PAY, resources={"Invoice:r": 1}),), ("resource", "l0")),
    ("the class speaks first", (Scope(classes={"x": 1}, operations={"y": 1}),), ("class", "l0")),
    ("the parent does not name it", (ONLY, Scope(classes=PAY, operations={"refund": 1})), ("operation", "l1")),
    ("the root does not name it", (ONLY, ONLY, Scope(classes={"release": 1})), ("class", "l2")),
    ("the lowest speaks first", (Scope(classes=PAY, resources={"Invoice:x": 1}), Scope(classes={"x": 1})),
     ("resource", "l0")),
    ("from before tasks named any", (Scope(classes=None),), None),
    ("below such a task", (ONLY, Scope(classes=None)), None),
]  # fmt: skip


@pytest.mark.spec("BUD-06")
@pytest.mark.parametrize(("what", "scopes", "no"), UNNAMED, ids=[row[0] for row in UNNAMED])
def test_what_some_level_does_not_name_is_refused(
    what: str, scopes: tuple[Scope, ...], no: tuple[str, str] | None
) -> None:
    expected = None if no is None else ("outside_task", *no)
    assert said(refuse_scope(a_path(*scopes), an_effect())) == expected


# ---------------------------------------------------------------------------------------------------- slots


@pytest.mark.spec("BUD-06")
def test_a_permit_takes_one_slot_of_each_kind_at_each_level_that_counts() -> None:
    path = a_path(ONLY, ONLY.inherited(), Scope(classes={"payment": 9}))
    ids = [node.task.task_id for node in path]
    takes = slot_takes(path, an_effect())
    assert [(take.counter, take.amount, take.ceiling, take.level) for take in takes] == [
        (f"slot|{ids[0]}|class|payment", 1, 3, "l0"),
        (f"slot|{ids[0]}|operation|pay", 1, 2, "l0"),
        (f"slot|{ids[0]}|resource|Invoice:r-1", 1, 1, "l0"),
        (f"slot|{ids[2]}|class|payment", 1, 9, "l2"),
    ]
    assert slots_of(path, "class", "payment") == (takes[0], takes[3])
    assert slots_of(path, "class", "release") == slots_of(path, "resource", "payment") == ()


@pytest.mark.spec("BUD-06")
@pytest.mark.parametrize(
    ("used", "no"),
    [
        ((0, 0, 0, 0), None),
        ((2, 1, 0, 8), None),
        ((3, 0, 0, 0), ("class", "l0")),
        ((0, 2, 0, 0), ("operation", "l0")),
        ((0, 0, 1, 0), ("resource", "l0")),
        ((0, 0, 0, 9), ("class", "l2")),
        ((0, 0, 1, 9), ("resource", "l0")),
        ((4, 0, 0, 0), ("class", "l0")),
    ],
)
def test_a_name_whose_admissions_are_all_taken_is_refused_with_its_level(
    used: tuple[int, ...], no: tuple[str, str] | None
) -> None:
    takes = slot_takes(a_path(ONLY, ONLY.inherited(), Scope(classes={"payment": 9})), an_effect())
    counted = {take.counter: amount for take, amount in zip(takes, used, strict=True)}
    assert said(refuse_slots(takes, counted)) == (None if no is None else ("slots_exhausted", *no))


# --------------------------------------------------------------------------------------------- never wider

FEWER = Scope(classes={"payment": 1}, operations={"pay": 1}, resources={"Invoice:r-1": 1})
WIDER: list[tuple[str, tuple[Scope, ...], Scope, tuple[str, str] | None]] = [
    ("the same", (ONLY,), ONLY, None),
    ("what says nothing", (ONLY,), ONLY.inherited(), None),
    ("fewer", (ONLY,), FEWER, None),
    ("one admission more", (Scope(classes=PAY),), Scope(classes={"payment": 4}), ("class", "l0")),
    ("a name more", (Scope(classes=PAY),), Scope(classes={"payment": 1, "release": 1}), ("class", "l0")),
    ("a name more, inherited", (Scope(classes=PAY),), Scope(classes={"release": None}), ("class", "l0")),
    ("names of its own", (Scope(classes=PAY),), Scope(classes=PAY, resources={"Invoice:r-1": 5}), None),
    ("operations left open", (ONLY,), Scope(classes=PAY, resources={"Invoice:r-1": 1}), ("operation", "l0")),
    ("resources left open", (ONLY,), Scope(classes=PAY, operations={"pay": 1}), ("resource", "l0")),
    ("classes left open", (Scope(classes=PAY),), Scope(classes=None), ("class", "l0")),
    ("more than the grandparent has", (OPEN, Scope(classes=PAY)), Scope(classes={"payment": 4}),
     ("class", "l1")),
    ("as many as the grandparent has", (OPEN, Scope(classes=PAY)), Scope(classes=PAY), None),
    ("from before tasks named any", (Scope(classes=None),), Scope(classes=None), None),
    ("below such a task", (Scope(classes=None),), Scope(classes={"payment": SLOTS_MAX}), None),
]  # fmt: skip


@pytest.mark.spec("BUD-01", "BUD-06")
@pytest.mark.parametrize(("what", "above", "child", "no"), WIDER, ids=[row[0] for row in WIDER])
def test_a_child_never_names_more_than_any_level_above_it(
    what: str, above: tuple[Scope, ...], child: Scope, no: tuple[str, str] | None
) -> None:
    expected = None if no is None else ("forbidden", *no)
    assert said(refuse_wider(a_path(*above), child)) == expected


Ceilings = Mapping[Unit, int | None]
CEILINGS: list[tuple[str, tuple[Ceilings, ...], Ceilings, str | None]] = [
    ("as much", ({CENT: 5},), {CENT: 5}, None),
    ("one more", ({CENT: 5},), {CENT: 6}, "l0"),
    ("inherits", ({CENT: 5},), {CENT: None}, None),
    ("absent above is zero", ({},), {CENT: 1}, "l0"),
    ("nothing of what is absent above", ({},), {CENT: 0}, None),
    ("past a level that inherits", ({CENT: None}, {CENT: 5}), {CENT: 6}, "l1"),
    ("within it", ({CENT: None}, {CENT: 5}), {CENT: 5}, None),
    ("the nearest counts, and not one that was lowered further up", ({CENT: 5}, {CENT: 1}), {CENT: 5}, None),
    ("absent in the middle", ({CENT: None}, {}, {CENT: 9}), {CENT: 1}, "l1"),
    ("a second unit", ({CENT: 5, FEE: 1},), {CENT: 5, FEE: 2}, "l0"),
    ("the largest", ({CENT: AMOUNT_MAX},), {CENT: AMOUNT_MAX}, None),
    ("a root", (), {CENT: AMOUNT_MAX}, None),
]


@pytest.mark.spec("BUD-01")
@pytest.mark.parametrize(("what", "above", "child", "level"), CEILINGS, ids=[row[0] for row in CEILINGS])
def test_a_ceiling_is_never_above_the_nearest_one_up_the_path(
    what: str, above: tuple[Ceilings, ...], child: Ceilings, level: str | None
) -> None:
    path = tuple(
        PathNode(task=new_task(f"l{place}", ceilings=ceilings), budget={})
        for place, ceilings in enumerate(above)
    )
    no = refuse_wider_ceiling(path, child)
    assert said(no) == (None if level is None else ("forbidden", "budget", level))
