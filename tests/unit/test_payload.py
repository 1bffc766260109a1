"""What an actor may say about an effect, field by field, and what it costs at most."""

import enum
import pickle
from collections.abc import Mapping

import pytest

from issuer.operations.payload import (
    Field,
    UnknownReference,
    check_payload,
    chosen_entries,
    derive_cost,
)
from ledger.canonical import WHOLE_MAX, parse_strict
from ledger.errors import Broken, Malformed

Payload = Mapping[str, str | int | bool]

VENDOR = Field(name="vendor", kind="registry", exposure="public", registry="vendor")
NUMBER = Field(name="number", kind="string", exposure="public", length_max=8)
AMOUNT = Field(name="amount", kind="int", exposure="public", low=1, high=1000)
TABLE = Field(name="table", kind="one_of", exposure="sensitive", choices=("leads", "contacts"))
URGENT = Field(name="urgent", kind="bool", exposure="secret")
FIELDS = (VENDOR, NUMBER, AMOUNT, TABLE, URGENT)
REGISTRIES = {
    "vendor": {"hetzner": {"iban": "DE02 1203", "name": "Hetzner"}, "ovh": {"iban": "FR76", "name": "OVH"}}
}
GOOD: dict[str, object] = {
    "vendor": "hetzner",
    "number": "R-119",
    "amount": 900,
    "table": "leads",
    "urgent": False,
}


class Level(enum.IntEnum):
    ONE = 1


def refusal(fields: tuple[Field, ...], document: object) -> tuple[str, str | None]:
    with pytest.raises(Malformed) as caught:
        check_payload(fields, document, REGISTRIES)
    return caught.value.code, caught.value.field


# ------------------------------------------------------------------------------------ payloads


def test_a_declared_payload_comes_back_in_declared_order_and_is_a_new_object() -> None:
    document = dict(reversed(GOOD.items()))
    payload = check_payload(FIELDS, document, REGISTRIES)
    assert list(payload.items()) == list(GOOD.items())
    document["amount"] = 5
    assert payload["amount"] == 900


@pytest.mark.spec("EFF-04", "EFF-05", "EFF-12")
@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("amount", 0, "out_of_range"),
        ("amount", -300, "out_of_range"),
        ("amount", 1001, "out_of_range"),
        ("amount", WHOLE_MAX, "out_of_range"),
        ("amount", "7", "wrong_type"),
        ("amount", True, "wrong_type"),
        ("amount", None, "wrong_type"),
        ("amount", [7], "wrong_type"),
        ("amount", {"value": 7}, "wrong_type"),
        ("urgent", 0, "wrong_type"),
        ("urgent", 1, "wrong_type"),
        ("urgent", "true", "wrong_type"),
        ("urgent", None, "wrong_type"),
        ("number", 119, "wrong_type"),
        ("number", ["R"], "wrong_type"),
        ("number", "123456789", "too_long"),
        ("number", "ééééé", "too_long"),
        ("number", "a\rb", "control_character"),
        ("number", "a\x1b[2J", "control_character"),
        ("number", "a\x7f", "control_character"),
        ("number", "a\x85", "control_character"),
        ("number", "a\x0b", "control_character"),
        ("table", "Leads", "not_one_of"),
        ("table", "leads ", "not_one_of"),
        ("table", "", "not_one_of"),
        ("table", 0, "wrong_type"),
        ("vendor", "hetzner2", "unknown_reference"),
        ("vendor", "", "unknown_reference"),
        ("vendor", {"iban": "DE99"}, "wrong_type"),
        ("vendor", ["hetzner"], "wrong_type"),
    ],
)
def test_a_value_that_is_not_what_its_field_declares_is_refused_by_name(
    name: str, value: object, code: str
) -> None:
    assert refusal(FIELDS, {**GOOD, name: value}) == (code, name)


@pytest.mark.spec("EFF-05")
@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("amount", 7.0, "number_not_whole"),
        ("amount", -0.0, "number_not_whole"),
        ("amount", float("nan"), "number_not_whole"),
        ("amount", 2**53, "number_out_of_range"),
        ("amount", Level.ONE, "wrong_type"),
        ("number", b"R-119", "wrong_type"),
        ("number", "a\x00", "nul_character"),
        ("number", "\ud800", "lone_surrogate"),
        ("extra", 1.5, "number_not_whole"),
        ("vendor", "\udfff", "lone_surrogate"),
    ],
)
def test_what_no_document_of_ours_can_hold_is_refused_as_a_whole(name: str, value: object, code: str) -> None:
    # The code is the one that the strict reader gives for the same thing as text, on every surface.
    assert refusal(FIELDS, {**GOOD, name: value}) == (code, None)


@pytest.mark.spec("EFF-05")
@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b'{"amount":10,"amount":900}', "duplicate_key"),
        (b'{"amount":7.0}', "number_not_whole"),
        (b'{"amount":7e0}', "number_not_whole"),
        (b'{"amount":-0}', "number_not_whole"),
        (b'{"amount":NaN}', "not_json"),
        (b'{"amount":9007199254740993}', "number_out_of_range"),
        (b'{"amount":' + b"9" * 5000 + b"}", "number_out_of_range"),
        (b'{"amount":"7"}', "wrong_type"),
        (b'{"amount":true}', "wrong_type"),
        (b'{"amount":0}', "out_of_range"),
        (b'{"amount":-300}', "out_of_range"),
        (b'{"amount":7,"Amount":900}', "undeclared_field"),
        (b"{}", "missing_field"),
        (b"[7]", "wrong_type"),
        (b"7", "wrong_type"),
        (b"null", "wrong_type"),
    ],
)
def test_an_amount_has_one_reading_or_none(text: bytes, code: str) -> None:
    with pytest.raises(Malformed) as caught:
        check_payload((AMOUNT,), parse_strict(text), {})
    assert caught.value.code == code


@pytest.mark.parametrize("amount", [1, 2, 1000])
def test_ranges_include_both_ends(amount: int) -> None:
    assert check_payload((AMOUNT,), {"amount": amount}, {}) == {"amount": amount}


@pytest.mark.parametrize("text", ["", "12345678", "éééé", "a\n\tb", "R/../119", "{amount}", "\u202ea"])
def test_text_within_its_bytes_is_kept_as_it_is(text: str) -> None:
    assert check_payload((NUMBER,), {"number": text}, {}) == {"number": text}


@pytest.mark.spec("EFF-05")
def test_of_several_problems_the_first_in_declared_order_is_told() -> None:
    wrong = {"extra": 1, "urgent": 1, "table": "x", "amount": 0, "number": 1}
    order = [
        ("vendor", "missing_field"),
        ("number", "wrong_type"),
        ("amount", "out_of_range"),
        ("table", "not_one_of"),
    ]
    repaired: dict[str, object] = dict(wrong)
    for name, code in [*order, ("urgent", "wrong_type")]:
        assert refusal(FIELDS, repaired) == (code, name)
        assert refusal(FIELDS, dict(reversed(repaired.items()))) == (code, name)
        repaired[name] = GOOD[name]
    assert refusal(FIELDS, repaired) == ("undeclared_field", None)


@pytest.mark.spec("SEC-01", "EFF-12")
@pytest.mark.parametrize("name", ["vendor", "number", "amount", "table", "urgent", "canary-4711"])
def test_a_refusal_never_repeats_a_value_or_a_foreign_key(name: str) -> None:
    with pytest.raises(Malformed) as caught:
        check_payload(FIELDS, {**GOOD, name: "canary-4711"}, REGISTRIES)
    fault = caught.value
    assert "canary" not in f"{fault!r} {fault} {fault.args} {fault.__context__!r}"


@pytest.mark.spec("EFF-12")
def test_an_unknown_entry_names_field_and_registry_and_survives_pickling() -> None:
    with pytest.raises(UnknownReference) as caught:
        check_payload(FIELDS, {**GOOD, "vendor": "DE02 1203"}, REGISTRIES)
    fault = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own bytes
    assert (fault.code, fault.field, fault.registry) == ("unknown_reference", "vendor", "vendor")
    assert vars(fault) == vars(caught.value)


def test_a_field_declared_twice_or_without_its_registry_is_our_own_fault() -> None:
    with pytest.raises(Broken):
        check_payload((AMOUNT, AMOUNT), {"amount": 1}, {})
    with pytest.raises(Broken):
        check_payload((VENDOR,), {"vendor": "hetzner"}, {})


@pytest.mark.spec("EFF-12")
def test_the_entry_comes_from_the_owner_and_only_from_the_checked_registry() -> None:
    payload = check_payload(FIELDS, GOOD, REGISTRIES)
    assert chosen_entries(FIELDS, payload, REGISTRIES) == {"vendor": REGISTRIES["vendor"]["hetzner"]}
    with pytest.raises(Broken):
        chosen_entries(FIELDS, payload, {"vendor": {"ovh": {}}})


# ------------------------------------------------------------------------------------ declarations


@pytest.mark.spec("EFF-04", "EFF-10")
@pytest.mark.parametrize(
    "changed",
    [
        {"name": ""},
        {"name": "a.b"},
        {"name": "a b"},
        {"name": "a\n"},
        {"name": "1a"},
        {"name": "é"},
        {"name": "a" * 65},
        {"name": "effect_id"},
        {"kind": "float"},
        {"exposure": "hidden"},
        {"low": None},
        {"high": None},
        {"low": 1001},
        {"high": 2**53},
        {"low": -(2**53)},
        {"low": True},
        {"high": 1000.0},
        {"low": "1"},
        {"length_max": 5},
        {"choices": ("a",)},
        {"registry": "vendor"},
        {"kind": "bool"},
        {"kind": "string"},
        {"kind": "string", "low": None, "high": None},
        {"kind": "string", "low": None, "high": None, "length_max": 0},
        {"kind": "string", "low": None, "high": None, "length_max": 65_537},
        {"kind": "string", "low": None, "high": None, "length_max": True},
        {"kind": "one_of", "low": None, "high": None},
        {"kind": "one_of", "low": None, "high": None, "choices": ("a", "a")},
        {"kind": "one_of", "low": None, "high": None, "choices": ("a\x00",)},
        {"kind": "one_of", "low": None, "high": None, "choices": ("\ud800",)},
        {"kind": "one_of", "low": None, "high": None, "choices": ("a\r",)},
        {"kind": "one_of", "low": None, "high": None, "choices": (1,)},
        {"kind": "one_of", "low": None, "high": None, "choices": ["a"]},
        {"kind": "one_of", "low": None, "high": None, "choices": "ab"},
        {"kind": "one_of", "low": None, "high": None, "choices": tuple(map(str, range(257)))},
        {"kind": "registry", "low": None, "high": None},
        {"kind": "registry", "low": None, "high": None, "registry": ""},
        {"kind": "registry", "low": None, "high": None, "registry": "a/b"},
    ],
)
def test_a_field_that_means_nothing_or_has_no_bound_cannot_exist(changed: dict[str, object]) -> None:
    plain: dict[str, object] = {"name": "amount", "kind": "int", "exposure": "public", "low": 1, "high": 1000}
    with pytest.raises(ValueError, match=r"[a-z]"):
        Field(**{**plain, **changed})  # type: ignore[arg-type]  # nonsense is the point


# ------------------------------------------------------------------------------------ costs


@pytest.mark.spec("EFF-04")
def test_a_cost_is_derived_from_the_payload_or_fixed_by_the_owner() -> None:
    values: Payload = {"amount": 900, "note": "x"}
    assert derive_cost({"EUR.cent": "amount", "publish": 1, "free": 0}, values) == {
        "EUR.cent": 900,
        "publish": 1,
        "free": 0,
    }
    assert derive_cost({"u": "n"}, {"n": WHOLE_MAX}) == {"u": WHOLE_MAX}


@pytest.mark.spec("EFF-04")
@pytest.mark.parametrize(
    ("value", "code"),
    [
        (-1, "out_of_range"),
        (2**53, "out_of_range"),
        (True, "wrong_type"),
        ("7", "wrong_type"),
        (7.0, "wrong_type"),
        (Level.ONE, "wrong_type"),
        (None, "wrong_type"),
    ],
)
def test_a_cost_that_is_no_whole_number_is_refused(value: int, code: str) -> None:
    with pytest.raises(Malformed) as caught:
        derive_cost({"EUR.cent": "amount"}, {"amount": value})
    assert (caught.value.code, caught.value.field) == (code, "amount")


@pytest.mark.spec("EFF-04")
@pytest.mark.parametrize(
    "units", [{}, {"u": -1}, {"u": 2**53}, {"u": True}, {"u": 1.0}, {"u": "other"}, {"u": None}]
)
def test_a_cost_without_a_finite_bound_is_our_own_fault(
    units: dict[str, int | str],
) -> None:
    with pytest.raises(Broken):
        derive_cost(units, {"amount": 1})
