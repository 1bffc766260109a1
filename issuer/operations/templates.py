"""Templates: how an operation derives resource, destination and body from a checked payload (OPR-01).

Decides where an actor's words may stand in a text that the owner wrote. The whole language: `{field}` is a
payload field, `{field.column}` a column of the registry entry which that field names (EFF-12), `{effect_id}`
the effect's identity, `{{` and `}}` are braces. Rules: no attribute, no index, no format specification, no
default; a placeholder without a value is our own broken invariant, because the payload was checked before;
what is inserted is never read as a template again.

In a URL each inserted value goes through `escape_url_component`, and `Template.parse_url` keeps scheme and
host literal, so that a field can change neither the destination nor the number of path segments (EFF-02).

This module does not decide which placeholders an operation may use: the contract compares `placeholders`
with its fields. Nor does it resolve a host name. It is pure.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from ledger.errors import Broken, Malformed

__all__ = ["EFFECT_ID_NAME", "NAME_PATTERN", "Placeholder", "Template", "escape_url_component"]

NAME_PATTERN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
"""A field or column name: an identifier of at most 64 ASCII characters, so that no name needs quoting."""

EFFECT_ID_NAME: Final = "effect_id"
"""The one placeholder that the core fills by itself; no payload field may have this name."""

_TEMPLATE_CHARACTERS_MAX: Final = 4096
"""Length of a template: half of the 8,000 octets of a URI that RFC 9110, section 4.1, recommends to bear."""

_TOKEN: Final = re.compile(r"(?P<literal>\{\{|\}\}|[^{}]+)|\{(?P<inside>[^{}]*)\}|(?P<stray>[{}])")

_URL_ORIGIN: Final = re.compile(r"https?://(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?/")
"""Scheme, host and port up to the first slash of the path: no user information, no percent sign."""

_URL_LITERAL: Final = re.compile(r"[A-Za-z0-9\-._~%!$&'()*+,;=:@/?\[\]]*")
"""What may stand literally in a URL of ours: RFC 3986 without `#`, as a fragment is never sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placeholder:
    """One place in a template: a field, a column of the entry that a field names, or the effect id."""

    name: str
    column: str | None = None

    def __post_init__(self) -> None:
        """Refuse names that are no identifiers, and a column of the effect id; raises `ValueError`."""
        for part in (self.name, self.column):
            if part is not None and NAME_PATTERN.fullmatch(part) is None:
                raise ValueError(f"{part!r} is no placeholder name.")
        if self.is_effect_id and self.column is not None:
            raise ValueError("The effect id has no columns.")

    @property
    def is_effect_id(self) -> bool:
        """Whether the core fills this place by itself."""
        return self.name == EFFECT_ID_NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A parsed template: literal texts and placeholders in the order of the text."""

    parts: tuple[str | Placeholder, ...]

    @classmethod
    def parse(cls, text: str) -> "Template":
        """Read an owner's template of at most 4096 characters.

        Raises:
            ValueError: a stray brace, an empty or ill-formed placeholder, or a text over its bound. The
                owner is at fault, so the message may quote what the owner wrote.
        """
        if len(text) > _TEMPLATE_CHARACTERS_MAX:
            raise ValueError(f"A template is at most {_TEMPLATE_CHARACTERS_MAX} characters long.")
        return cls(parts=tuple(_read_parts(text)))

    @classmethod
    def parse_url(cls, text: str) -> "Template":
        """Read an owner's template of an absolute http or https URL whose origin is literal.

        The first placeholder stands behind the slash that ends the authority, so no value can reach scheme,
        host or port. There is no user information and no fragment. Render it with `escape_url_component`.

        Raises:
            ValueError: not such a URL, or not a template.
        """
        template = cls.parse(text)
        first = template.parts[0] if template.parts else ""
        if not isinstance(first, str) or _URL_ORIGIN.match(first) is None:
            message = (
                "A URL template begins with a literal http(s)://host/, with placeholders behind that only."
            )
            raise ValueError(message)
        if any(isinstance(part, str) and _URL_LITERAL.fullmatch(part) is None for part in template.parts):
            raise ValueError(
                "A URL template holds a character that RFC 3986 does not allow there, or a fragment."
            )
        return template

    @property
    def placeholders(self) -> tuple[Placeholder, ...]:
        """Every placeholder once, in the order in which it first appears."""
        return tuple(dict.fromkeys(part for part in self.parts if isinstance(part, Placeholder)))

    def render(
        self,
        values: Mapping[str, str | int | bool],
        registries: Mapping[str, Mapping[str, str]],
        effect_id: str | None,
        *,
        escape: Callable[[str], str] | None = None,
    ) -> str:
        """Return the text with every placeholder filled.

        Args:
            values: checked payload by field name; whole numbers in decimal, booleans as true and false.
            registries: by *field* name the entry it chose, column to text (`payload.chosen_entries`).
            effect_id: identity of the effect, or None before there is one.
            escape: applied to each inserted value, never to the owner's own text; None inserts as is.

        Raises:
            Broken: a placeholder has no value, or one that is no text, whole number or boolean.
            Malformed: what `escape` refuses, with the field's name added.
        """
        return "".join(
            part
            if isinstance(part, str)
            else _fill(part, _text_of(_value_of(part, values, registries, effect_id)), escape)
            for part in self.parts
        )

    def render_value(
        self,
        values: Mapping[str, str | int | bool],
        registries: Mapping[str, Mapping[str, str]],
        effect_id: str | None,
    ) -> str | int | bool:
        """Return the value itself where the template is one lone placeholder, else the rendered text.

        A JSON body keeps its numbers and booleans this way. Arguments and exceptions as in `render`.
        """
        match self.parts:
            case (Placeholder() as lone,):
                return _value_of(lone, values, registries, effect_id)
            case _:
                return self.render(values, registries, effect_id)


def escape_url_component(text: str) -> str:
    """Return text as one component of a URL path or query: UTF-8, all but RFC 3986 unreserved as %XX.

    Raises:
        Malformed: `not_a_url_component`: empty text, `.` and `..` cannot be escaped. Servers resolve dot
            segments even where the dots are escaped (RFC 3986, section 5.2.4), and an empty segment names
            the collection instead of a member of it. Any longer mixture with literals is harmless, as a dot
            segment has no part other than these three.
        Broken: the text has no UTF-8 form, which a checked payload always has.
    """
    if text in {"", ".", ".."}:
        raise Malformed("not_a_url_component", None, "An empty value or a dot segment cannot stand in a URL.")
    try:
        return quote(text, safe="", encoding="utf-8", errors="strict")
    except UnicodeEncodeError:
        # The encoding error carries the text; it is replaced below, outside of its own context.
        pass
    raise Broken("A text without a UTF-8 form reached a URL.")


def _read_parts(text: str) -> Iterator[str | Placeholder]:
    """Yield literals, joined where they touch, and placeholders."""
    literal = ""
    for token in _TOKEN.finditer(text):
        inside = token["inside"]
        if token["stray"] is not None:
            raise ValueError(
                f"The brace at character {token.start()} stands alone; double it to mean itself."
            )
        if inside is None:
            literal += {"{{": "{", "}}": "}"}.get(token["literal"], token["literal"])
            continue
        if literal:
            yield literal
            literal = ""
        name, dot, column = inside.partition(".")
        yield Placeholder(name=name, column=column if dot else None)
    if literal:
        yield literal


def _value_of(
    place: Placeholder,
    values: Mapping[str, str | int | bool],
    registries: Mapping[str, Mapping[str, str]],
    effect_id: str | None,
) -> str | int | bool:
    """Return the value of a placeholder; a missing or foreign one is our own fault."""
    value: object
    if place.is_effect_id:
        value = effect_id
    elif place.column is None:
        value = values.get(place.name)
    else:
        value = registries.get(place.name, {}).get(place.column)
    # The exact types again: a float or an enum member that slipped in would be written by its own rules.
    if type(value) is str or type(value) is int or type(value) is bool:
        return value
    raise Broken(f"The placeholder {place.name!r} has no value that a template can hold.")


def _text_of(value: str | int | bool) -> str:  # noqa: FBT001 - a payload value, not a switch
    """Write a value as JSON would, text without quotes."""
    if type(value) is bool:
        return "true" if value else "false"
    return str(value)


def _fill(place: Placeholder, text: str, escape: Callable[[str], str] | None) -> str:
    """Escape one inserted text; a refusal learns which field it was about."""
    if escape is None:
        return text
    try:
        return escape(text)
    except Malformed as fault:
        raise Malformed(fault.code, place.name, fault.message) from None
