"""Payload: what an actor may say about an effect, field by field, and what it costs at most.

Decides whether a JSON document is the payload that an operation declares. Rules (EFF-04, EFF-05, EFF-10,
EFF-12): every declared field is there and no other; types are exact, so `"7"`, `7.0` and `true` are not 7;
lengths and ranges are finite and inclusive; text holds no control character but line feed and tab; an actor
names a registry entry and never supplies its content. Of several problems the first one is told: first the
document as a whole, then the fields in declared order, then undeclared keys. The answer names the declared
field, never a value and never a key that the caller chose.

This module does not read bytes (`ledger.canonical.parse_strict` does, and comes before), does not commit to
sensitive values, and does not decide who may see them. Next: templates render what was checked here. Pure.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NoReturn, assert_never, get_args

from issuer.operations.templates import EFFECT_ID_NAME, NAME_PATTERN
from ledger.canonical import WHOLE_MAX, canonical_bytes
from ledger.errors import Broken, Malformed

__all__ = [
    "Exposure",
    "Field",
    "Kind",
    "UnknownReference",
    "check_payload",
    "chosen_entries",
    "derive_cost",
]

Kind = Literal["string", "int", "one_of", "registry", "bool"]
Exposure = Literal["public", "sensitive", "secret"]

_STRING_BYTES_MAX: Final = 64 * 1024
"""UTF-8 bytes of one text field: a quarter of the largest document, so four such fields fit."""

_CHOICES_MAX: Final = 256
"""Choices of one field: a list that people can still read; longer ones are registries."""

_CONTROL_CHARACTER: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Unicode category Cc without tab and line feed: the rest hides or rewrites what an approver sees."""


class UnknownReference(Malformed):
    """The actor named an entry that the owner's registry does not have (EFF-12)."""

    def __init__(self, field: str, registry: str) -> None:
        """Take the declared names of the field and its registry, never the entry that was asked for."""
        super().__init__("unknown_reference", field, f"The field {field!r} names no entry of {registry!r}.")
        self.args = (field, registry)
        self.registry = registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One declared payload field; it cannot exist without a finite bound that fits its kind.

    `length_max` is in UTF-8 bytes and belongs to `string`; `low` and `high` are inclusive and belong to
    `int`; `choices` belongs to `one_of`, and `registry`, the registry's name, to `registry`.
    """

    name: str
    kind: Kind
    exposure: Exposure
    length_max: int | None = None
    low: int | None = None
    high: int | None = None
    choices: tuple[str, ...] = ()
    registry: str | None = None

    def __post_init__(self) -> None:
        """Refuse what the owner cannot have meant, with a `ValueError` that names the field."""
        if NAME_PATTERN.fullmatch(self.name) is None or self.name == EFFECT_ID_NAME:
            raise ValueError(f"{self.name!r} cannot be the name of a payload field.")
        if self.kind not in get_args(Kind) or self.exposure not in get_args(Exposure):
            self._refuse("has an unknown kind or exposure")
        wanted = _BOUNDS_OF_KIND[self.kind]
        for bound in ("length_max", "low", "high", "choices", "registry"):
            is_given = getattr(self, bound) not in (None, ())
            if is_given != (bound in wanted):
                self._refuse(
                    f"is of kind {self.kind!r} and {'has no use for' if is_given else 'needs'} {bound}"
                )
        if self.length_max is not None:
            self._check_bound(self.length_max, 1, _STRING_BYTES_MAX)
        if self.low is not None and self.high is not None:
            self._check_bound(self.low, -WHOLE_MAX, WHOLE_MAX)
            self._check_bound(self.high, self.low, WHOLE_MAX)
        self._check_choices()
        if self.registry is not None and NAME_PATTERN.fullmatch(self.registry) is None:
            self._refuse("names a registry that cannot exist")

    def _check_bound(self, bound: int, low: int, high: int) -> None:
        """Refuse a bound that is no whole number within its own limits."""
        if type(bound) is not int or not low <= bound <= high:
            self._refuse("has a bound that is no whole number in its range, or a range that is empty")

    def _check_choices(self) -> None:
        """Refuse a list of choices that is too long, repeats itself, or holds what no payload can say."""
        if type(self.choices) is not tuple:
            self._refuse("has choices that are no tuple")
        if len(self.choices) > _CHOICES_MAX or len(set(self.choices)) != len(self.choices):
            self._refuse("has too many choices or the same one twice")
        for choice in self.choices:
            try:
                canonical_bytes(_check_string(self.name, choice, _STRING_BYTES_MAX))
            except Malformed as fault:
                raise ValueError(
                    f"The field {self.name!r} has a choice that no payload can hold ({fault.code})."
                ) from None

    def _refuse(self, why: str) -> NoReturn:
        raise ValueError(f"The field {self.name!r} {why}.")


_BOUNDS_OF_KIND: Final[Mapping[str, frozenset[str]]] = {
    "string": frozenset({"length_max"}),
    "int": frozenset({"low", "high"}),
    "one_of": frozenset({"choices"}),
    "registry": frozenset({"registry"}),
    "bool": frozenset(),
}


def check_payload(
    fields: Sequence[Field],
    document: object,
    registries: Mapping[str, Mapping[str, Mapping[str, str]]],
) -> Mapping[str, str | int | bool]:
    """Return the payload, field by field in declared order, or refuse it.

    Args:
        fields: what the operation declares; each name once.
        document: what `parse_strict` returned, or what a host handed over in the same process.
        registries: registry name to entry key to column to text, as the owner's files have them.

    Returns:
        A new dict with exactly the declared fields; nothing of `document` is shared but immutable values.

    Raises:
        Malformed: the codes of `canonical_bytes` about the whole document (so a float is refused with the
            same code whether it came as bytes or as an object), then `wrong_type`, `missing_field`,
            `undeclared_field`, `too_long`, `control_character`, `out_of_range`, `not_one_of`.
        UnknownReference: `unknown_reference`, the entry is not in the registry.
        Broken: a field is declared twice, or its registry was not handed in.
    """
    declared = {field.name: field for field in fields}
    if len(declared) != len(fields):
        raise Broken("An operation declares the same payload field twice.")
    # 1. A host in the same process can hand over what no parser of ours made; it gets no wider domain.
    canonical_bytes(document)
    if type(document) is not dict:
        raise Malformed("wrong_type", None, "The payload is not an object.")
    # 2. Declared fields, in their order.
    checked: dict[str, str | int | bool] = {}
    for name, field in declared.items():
        if name not in document:
            raise Malformed("missing_field", name, f"The field {name!r} is required.")
        checked[name] = _check_value(field, document[name], registries)
    # 3. Everything declared is there, so a longer document has more; its keys are not repeated.
    if len(document) != len(declared):
        raise Malformed(
            "undeclared_field", None, "The payload has a field that the operation does not declare."
        )
    return checked


def chosen_entries(
    fields: Sequence[Field],
    values: Mapping[str, str | int | bool],
    registries: Mapping[str, Mapping[str, Mapping[str, str]]],
) -> Mapping[str, Mapping[str, str]]:
    """Return, by field name, the registry entry that a checked payload chose, for `Template.render`.

    Raises:
        Broken: a field's value is not in the registry, so `values` was checked against another one.
    """
    chosen: dict[str, Mapping[str, str]] = {}
    for field in fields:
        if field.registry is None:
            continue
        entry = registries.get(field.registry, {}).get(str(values.get(field.name)))
        if entry is None:
            raise Broken(f"The field {field.name!r} was not checked against this registry.")
        chosen[field.name] = entry
    return chosen


def derive_cost(
    units: Mapping[str, int | str],
    values: Mapping[str, str | int | bool],
) -> Mapping[str, int]:
    """Return the maximum cost per unit, derived from a checked payload and never from the caller's word.

    Args:
        units: unit name to a fixed whole number or to the name of a field.
        values: the checked payload.

    Returns:
        A new dict, unit name to a whole number from 0 to 2^53 - 1, in the order of `units`.

    Raises:
        Malformed: `wrong_type` or `out_of_range`: the field holds no such number (EFF-04).
        Broken: no unit at all, a fixed amount that is no such number, or a field that is not in the payload.
    """
    if not units:
        raise Broken("An operation without a cost has no finite bound and cannot have been registered.")
    return {unit: _amount_of(source, values) for unit, source in units.items()}


def _amount_of(source: int | str, values: Mapping[str, str | int | bool]) -> int:
    """Return one fixed or named amount."""
    if type(source) is not str:
        if not _is_cost(source):
            raise Broken("A fixed cost is no whole number from 0 to 2^53 - 1.")
        return int(source)
    if source not in values:
        raise Broken(f"A cost names the field {source!r}, which the payload does not have.")
    amount = values[source]
    if type(amount) is not int:
        _refuse("wrong_type", source, "is not a whole number, as a cost must be")
    if not _is_cost(amount):
        _refuse("out_of_range", source, "is negative or too large for a cost")
    return amount


def _is_cost(amount: object) -> bool:
    """Whether this is a whole number from 0 to 2^53 - 1, of exactly the type int."""
    return type(amount) is int and 0 <= amount <= WHOLE_MAX


def _check_value(
    field: Field,
    value: object,
    registries: Mapping[str, Mapping[str, Mapping[str, str]]],
) -> str | int | bool:
    """Return the value of one field if it is what the field declares."""
    match field.kind:
        case "bool":
            if type(value) is not bool:
                _refuse("wrong_type", field.name, "is not true or false")
            return value
        case "int":
            return _check_whole(field, value)
        case "string":
            return _check_string(field.name, value, field.length_max)
        case "one_of":
            choice = _check_string(field.name, value, None)
            if choice not in field.choices:
                _refuse("not_one_of", field.name, "is none of the declared choices")
            return choice
        case "registry":
            return _check_reference(field, value, registries)
        case _:
            assert_never(field.kind)


def _check_whole(field: Field, value: object) -> int:
    """Return a whole number within the field's inclusive range."""
    if type(value) is not int:
        _refuse("wrong_type", field.name, "is not a whole number")
    if field.low is None or field.high is None or not field.low <= value <= field.high:
        _refuse("out_of_range", field.name, "lies outside its declared range")
    return value


def _check_string(name: str, value: object, length_max: int | None) -> str:
    """Return a text of at most `length_max` UTF-8 bytes, None for no bound here, without controls."""
    if type(value) is not str:
        _refuse("wrong_type", name, "is not a text")
    if length_max is not None and len(value.encode("utf-8", "surrogatepass")) > length_max:
        _refuse("too_long", name, "is longer than its declared bound in bytes")
    if _CONTROL_CHARACTER.search(value) is not None:
        _refuse("control_character", name, "has a control character other than line feed and tab")
    return value


def _check_reference(
    field: Field,
    value: object,
    registries: Mapping[str, Mapping[str, Mapping[str, str]]],
) -> str:
    """Return the key of an entry that the owner's registry has."""
    registry = field.registry
    if registry is None or registry not in registries:
        raise Broken(f"The registry of the field {field.name!r} was not handed in.")
    key = _check_string(field.name, value, None)
    if key not in registries[registry]:
        raise UnknownReference(field.name, registry)
    return key


def _refuse(code: str, name: str, why: str) -> NoReturn:
    raise Malformed(code, name, f"The field {name!r} {why}.")
