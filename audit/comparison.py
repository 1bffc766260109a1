"""Does the body of a span say what the columns beside it say? Asked for every span, so it is quick.

Rules: AUD-01, AUD-05, LED-06. Columns are what the ledger finds spans by; only the body is in the tree. One that was
edited is seen here. The body must be the one encoding of its document (`ledger.canonical`), which encoding it again
shows; its domain was judged when it was recorded, and the tree proves the bytes since.

Most bodies differ in their values only, and to match a pattern costs a quarter of reading and encoding again. So a form
that was found canonical some times becomes a pattern of all in it but the values. What fits has the same keys in the
same order and each value in its one spelling, so it is canonical as well. A pattern only says yes; what fits none is
read.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from ledger.model import LedgerId
from ledger.port import SpanColumns

__all__ = ["Forms", "span_holds", "span_says"]

NS_PER_MS: Final = 1_000_000

LEARNED_AFTER: Final = 16
"""Bodies of one form that are read before it becomes a pattern: making one takes as long as reading a hundred."""

FORMS_MAX: Final = 256
"""Forms that are counted, so also the most patterns: this release writes some forty, an edited file any number."""

DEPTH_MAX: Final = 4
"""Nested containers of a form; what a span holds has three levels."""

_ESCAPED: Final = bytes(range(32)) + b"\\"
"""Bytes that no canonical text holds, or only to escape one of them: a body with such a byte is read."""

_TEXT: Final = '"[^"]*+"'
_WHOLE: Final = "(?:0|-?[1-9][0-9]{0,15}+)"
_SPELLINGS: Final = {str: _TEXT, int: _WHOLE, bool: "(?:true|false)", type(None): "null"}
_SCALAR: Final = f"(?:{'|'.join(_SPELLINGS.values())})"

_COMPARED: Final = {
    ("attributes", "permit.effect.id"): '"([^"]*+)"',
    ("attributes", "permit.epoch"): f"({_WHOLE})",
    ("attributes", "permit.lane"): f"({_WHOLE})",
    ("attributes", "permit.ledger.id"): '"([^"]*+)"',
    ("attributes", "permit.sequence"): f"({_WHOLE})",
    ("attributes", "permit.state.to"): '"([^"]*+)"',
    ("attributes", "permit.story"): '"([^"]*+)"',
    ("attributes", "permit.transition"): '"([^"]*+)"',
    ("name",): '"([^"]*+)"',
    ("span",): '"([^"]*+)"',
    ("start",): '"([^"]*+)"',
    ("trace",): '"([^"]*+)"',
}
"""What is compared, with its pattern, in the order in which a canonical body holds it."""

Kind = tuple[str, bool, bool]
"""The name of a span, and whether it is about no effect and tells no new state."""

Said = tuple[str | None, ...]
"""What columns say, in the order and spelling of a body."""


def _refuse(_literal: str) -> NoReturn:
    raise ValueError("a span holds no such number")


_DECODER: Final = json.JSONDecoder(parse_float=_refuse, parse_constant=_refuse)
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))


class Forms:
    """The forms of the bodies that were read so far, and patterns of the frequent ones."""

    def __init__(self) -> None:
        """Know none."""
        self._seen: Counter[tuple[Kind, str]] = Counter()
        self._patterns: dict[Kind, list[re.Pattern[str]]] = {}

    def fits(self, text: str, row: SpanColumns, said: Said) -> bool:
        """Say whether a plain text is of a known form and says what the columns say; False decides nothing."""
        for pattern in self._patterns.get(_kind(row), ()):
            found = pattern.fullmatch(text)
            if found is not None:
                return found.groups() == said
        return False

    def learn(self, document: dict[str, Any], row: SpanColumns) -> None:
        """Count the form of a body that was read, is canonical, and says what its columns say."""
        kind, form = _kind(row), _form(document, ())
        if (kind, form) not in self._seen and len(self._seen) >= FORMS_MAX:
            return
        self._seen[kind, form] += 1
        if self._seen[kind, form] == LEARNED_AFTER:
            self._patterns.setdefault(kind, []).append(re.compile(form))


def _kind(row: SpanColumns) -> Kind:
    """Return what tells which values of a body are compared, and most forms from each other."""
    return row.name, row.effect_id is None, row.state_to is None


def _form(value: object, path: tuple[str, ...]) -> str:
    """Return the pattern of everything that has the keys of `value`, and values of the same types."""
    if len(path) > DEPTH_MAX:
        return "(?!)"
    if type(value) is dict:
        members = (
            f"{re.escape(_ENCODER.encode(key))}:{_form(member, (*path, key))}"
            for key, member in value.items()
        )
        return f"\\{{{','.join(members)}\\}}"
    if type(value) is list:
        if all(type(member) in _SPELLINGS for member in value):
            return f"\\[(?:{_SCALAR}(?:,{_SCALAR})*+)?+\\]"
        return f"\\[{','.join(_form(member, (*path, '')) for member in value)}\\]"
    spelling = _SPELLINGS[type(value)]
    return spelling if value is None else _COMPARED.get(path, spelling)


_FORMS: Final = Forms()
"""Of whatever ledger this process checks: a form is about bytes, and not about whose they are."""


def span_holds(ledger_id: LedgerId, row: SpanColumns, forms: Forms = _FORMS) -> bool:
    """Say whether a span's body is canonical and names its row's position, ids, name, story, effect and new state.

    Raises:
        ValueError, TypeError, KeyError, AttributeError, RecursionError: the body is no span at all.
    """
    epoch, lane, sequence, span_id, trace_id, name, story, at_ms, body, _leaf, effect_id, state_to = row
    text = body.decode()
    start, called = str(at_ms * NS_PER_MS), f"permit.{name}"
    is_plain = len(body.translate(None, _ESCAPED)) == len(body)
    if is_plain:
        said: Said = (
            *(effect_id, str(epoch), str(lane), ledger_id, str(sequence), state_to),
            *(story, name, called, span_id, start, trace_id),
        )
        if effect_id is None or state_to is None:
            said = tuple(value for value in said if value is not None)
        if forms.fits(text, row, said):
            return True
    document: dict[str, Any] = _DECODER.decode(text)
    # Astral keys would sort otherwise in RFC 8785; no span has them, and such a body is refused with the rest.
    if _ENCODER.encode(document) != text:
        return False
    held: dict[str, Any] = document["attributes"]
    found = (
        document["span"],
        document["trace"],
        document["start"],
        document["name"],
        held["permit.transition"],
        *(held[f"permit.{part}"] for part in ("ledger.id", "epoch", "lane", "sequence", "story")),
        held.get("permit.effect.id"),
        held.get("permit.state.to"),
    )
    stored = (
        *(span_id, trace_id, start, called, name),
        *(ledger_id, epoch, lane, sequence, story, effect_id, state_to),
    )
    if found != stored:
        return False
    if is_plain:
        forms.learn(document, row)
    return True


def span_says(body: bytes) -> Mapping[str, Any]:
    """Return the attributes of a span's body; where one has several members it is a list.

    Raises:
        ValueError, TypeError, KeyError, RecursionError: the body is no span at all.
    """
    attributes: Mapping[str, Any] = _DECODER.decode(body.decode())["attributes"]
    return attributes
