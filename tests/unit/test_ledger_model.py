"""Values of the ledger cannot exist in a bad state, and cannot be changed once they exist."""

import dataclasses
from collections.abc import Callable

import pytest

from ledger import changes, model
from ledger.errors import Broken, Fault, Malformed
from ledger.model import (
    ACTORS_MAX,
    AMOUNT_MAX,
    BINDING_BYTES_MAX,
    NAME_LENGTH_MAX,
    TASK_DEPTH_MAX,
    EffectId,
    InstantMs,
    Unit,
    checked_name,
    costs,
    plain,
    whole_amount,
)
from ledger.refusals import Refusal
from ledger.states import EffectState
from ledger.transitions import TransitionName
from tests.support.ledgers import CENT, MOVE_NAMES, new_effect, new_permit, new_task

TASK = new_task("org")
CHILD = new_task("child", TASK)
EFFECT = new_effect(TASK, {CENT: 1})


@pytest.mark.spec("EFF-04")
@pytest.mark.parametrize("amount", [0, 1, AMOUNT_MAX])
def test_a_whole_amount_within_bounds_is_kept(amount: int) -> None:
    assert whole_amount(amount, "EUR.cent") == amount
    assert costs({"EUR.cent": amount}) == {CENT: amount}


@pytest.mark.spec("EFF-04")
@pytest.mark.parametrize(
    ("amount", "code"),
    [
        (-1, "out_of_range"),
        (AMOUNT_MAX + 1, "out_of_range"),
        (2**63, "out_of_range"),
        (1.0, "wrong_type"),
        (float("nan"), "wrong_type"),
        (True, "wrong_type"),
        (False, "wrong_type"),
        ("1", "wrong_type"),
        (None, "wrong_type"),
        (1 + 0j, "wrong_type"),
        (b"1", "wrong_type"),
        (EffectState.PREPARED, "wrong_type"),
    ],
)
def test_what_is_no_whole_amount_is_refused_by_type_or_range(amount: object, code: str) -> None:
    for refuse in (
        lambda: whole_amount(amount, "EUR.cent"),
        lambda: costs({"EUR.cent": amount}),  # type: ignore[dict-item]  # the row is the attack
    ):
        with pytest.raises(Malformed) as caught:
            refuse()
        assert (caught.value.code, caught.value.field) == (code, "EUR.cent")
        assert "nan" not in str(caught.value)


@pytest.mark.spec("EFF-04")
@pytest.mark.parametrize(
    "unit",
    ["", ".", "EUR.", ".cent", "EUR..cent", "1EUR", "EUR cent", "EUR.cent\n", "€", "a.b.c.d.e", "x" * 33, "EUR-cent",
     "EUR.ce\u0301nt", "EUR=cent", "EUR:cent"],
)  # fmt: skip
def test_a_unit_is_a_short_dotted_name(unit: str) -> None:
    with pytest.raises(Malformed):
        costs({unit: 1})


@pytest.mark.spec("EFF-04")
def test_costs_are_sorted_frozen_and_apart_from_what_they_were_made_of() -> None:
    given = {"b": 2, "a.x_1": 1}
    frozen = costs(given)
    given["b"] = 3
    assert list(frozen.items()) == [("a.x_1", 1), ("b", 2)]
    with pytest.raises(TypeError):
        frozen[Unit("b")] = 9  # type: ignore[index]  # the attempt is the test
    assert plain(frozen) == {"a.x_1": 1, "b": 2}


@pytest.mark.parametrize(
    "name", ["a", "A1", "org/team-7", "u@x.example", "a" * NAME_LENGTH_MAX, "a:b_c+d", "0"]
)
def test_a_plain_name_is_kept(name: str) -> None:
    assert checked_name(name, "task") == name


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("", "not_a_name"),
        ("a" * (NAME_LENGTH_MAX + 1), "not_a_name"),
        (" a", "not_a_name"),
        ("a ", "not_a_name"),
        ("a\n", "not_a_name"),
        ("a b", "not_a_name"),
        ("-a", "not_a_name"),
        ("a/", "not_a_name"),
        ("ä", "not_a_name"),
        ("a\x00b", "not_a_name"),
        ("а", "not_a_name"),  # noqa: RUF001 - a Cyrillic letter that looks like a Latin one
        (7, "wrong_type"),
        (None, "wrong_type"),
        (TransitionName.PROBE, "wrong_type"),
    ],
)
def test_what_cannot_name_a_thing_is_refused_without_being_repeated(name: object, code: str) -> None:
    with pytest.raises(Malformed) as caught:
        checked_name(name, "task")
    assert (caught.value.code, caught.value.field) == (code, "task")
    if isinstance(name, str) and len(name) > NAME_LENGTH_MAX:
        assert name not in str(caught.value)


BAD_VALUES: list[tuple[str, Callable[[], object], type[Fault]]] = [
    ("a task too deep", lambda: dataclasses.replace(CHILD, depth=TASK_DEPTH_MAX), Malformed),
    ("a task above the root", lambda: dataclasses.replace(CHILD, depth=-1), Malformed),
    ("a root below something", lambda: dataclasses.replace(TASK, depth=1), Broken),
    ("a child without depth", lambda: dataclasses.replace(CHILD, depth=0), Broken),
    ("a task without actors", lambda: dataclasses.replace(TASK, actors=()), Malformed),
    ("a task with too many", lambda: dataclasses.replace(TASK, actors=("a",) * (ACTORS_MAX + 1)), Malformed),
    ("a task without a name", lambda: dataclasses.replace(TASK, name=""), Malformed),
    ("an id in capitals", lambda: dataclasses.replace(EFFECT, effect_id=EffectId("eff_" + "A" * 32)), Broken),
    ("an id too short", lambda: dataclasses.replace(EFFECT, effect_id=EffectId("eff_" + "a" * 31)), Broken),
    ("an id and a line end", lambda: dataclasses.replace(EFFECT, effect_id=EffectId("eff_" + "a" * 32 + "\n")), Broken),
    ("another kind of id", lambda: dataclasses.replace(EFFECT, effect_id=EffectId("tsk_" + "a" * 32)), Broken),
    ("no cost at all", lambda: dataclasses.replace(EFFECT, cost={}), Broken),
    ("a binding too large", lambda: dataclasses.replace(EFFECT, binding=b"x" * (BINDING_BYTES_MAX + 1)), Malformed),
]  # fmt: skip


@pytest.mark.spec("EFF-01", "BUD-01")
@pytest.mark.parametrize(("what", "make", "fault"), BAD_VALUES, ids=[row[0] for row in BAD_VALUES])
def test_a_value_in_a_bad_state_cannot_exist(
    what: str, make: Callable[[], object], fault: type[Fault]
) -> None:
    with pytest.raises(fault):
        make()


def test_values_at_the_bounds_exist() -> None:
    assert dataclasses.replace(CHILD, depth=TASK_DEPTH_MAX - 1).depth == 31
    assert len(dataclasses.replace(TASK, actors=("a",) * ACTORS_MAX).actors) == ACTORS_MAX
    assert len(dataclasses.replace(EFFECT, binding=b"x" * BINDING_BYTES_MAX).binding) == BINDING_BYTES_MAX


@pytest.mark.spec("EFF-01")
def test_every_value_and_change_is_frozen_slotted_and_made_by_keyword() -> None:
    kinds = [
        kind
        for module in (model, changes)
        for kind in vars(module).values()
        if dataclasses.is_dataclass(kind) and isinstance(kind, type) and kind.__module__ == module.__name__
    ]
    assert len(kinds) > 25
    for kind in kinds:
        parameters = kind.__dataclass_params__  # type: ignore[attr-defined]  # private, and the only place
        assert parameters.frozen, kind
        assert "__slots__" in vars(kind), kind
        assert all(item.kw_only for item in dataclasses.fields(kind)), kind
    with pytest.raises(dataclasses.FrozenInstanceError):
        EFFECT.state = EffectState.SUCCEEDED  # type: ignore[misc]  # the attempt is the test


@pytest.mark.spec("PER-03")
def test_a_seal_is_not_shown_in_the_text_of_a_permit() -> None:
    permit = dataclasses.replace(new_permit(EFFECT), seal="canary-seal")
    assert "canary" not in repr(permit)
    assert "canary" not in str(changes.PermitIssued(permit=permit, takes=()))


def test_kinds_of_transitions_have_one_name_each() -> None:
    assert len({str(name) for name in TransitionName}) == len(TransitionName)
    assert set(MOVE_NAMES.values()) <= set(TransitionName)
    assert {str(name).removeprefix("effect.") for name in MOVE_NAMES.values()} <= {
        str(s) for s in EffectState
    }


def test_a_refusal_says_by_its_code_alone_whether_a_retry_helps() -> None:
    assert not any(item.name == "retryable" for item in dataclasses.fields(Refusal))
    assert InstantMs(0) == 0
