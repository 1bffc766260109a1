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
from ledger.questions import FOUND_BY, POLICY_IDS

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

_TEXT_SAID: Final = '"([^"]*+)"'
_POLICIES: Final = ("attributes", POLICY_IDS)
_COMPARED: Final = {
    ("attributes", "permit.actor"): _TEXT_SAID,
    ("attributes", "permit.effect.id"): _TEXT_SAID,
    ("attributes", "permit.epoch"): f"({_WHOLE})",
    ("attributes", "permit.lane"): f"({_WHOLE})",
    ("attributes", "permit.ledger.id"): _TEXT_SAID,
    ("attributes", "permit.operation"): _TEXT_SAID,
    _POLICIES: '\\[("[^"]*+"(?:,"[^"]*+")*+)\\]',
    ("attributes", "permit.resource.id"): _TEXT_SAID,
    ("attributes", "permit.sequence"): f"({_WHOLE})",
    ("attributes", "permit.signer"): _TEXT_SAID,
    ("attributes", "permit.state.to"): _TEXT_SAID,
    ("attributes", "permit.story"): _TEXT_SAID,
    ("attributes", "permit.subject"): _TEXT_SAID,
    ("attributes", "permit.task.id"): _TEXT_SAID,
    ("attributes", "permit.transition"): _TEXT_SAID,
    ("name",): _TEXT_SAID,
    ("span",): _TEXT_SAID,
    ("start",): _TEXT_SAID,
    ("trace",): _TEXT_SAID,
}
"""What is compared, with its pattern, in the order in which a canonical body holds it."""

Kind = tuple[str, tuple[bool, ...]]
"""The name of a span, and which of its columns say something: each stands for one group of a pattern."""

_OPTIONAL: Final = SpanColumns._fields.index("effect_id")
"""From here on stand the columns that a span may say nothing in, and its policies."""

Said = tuple[str, ...]
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
    return row.name, tuple([value is None or value == () for value in row[_OPTIONAL:]])


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
        if path == _POLICIES:
            return _COMPARED[path] if value else "\\[\\]"
        if all(type(member) in _SPELLINGS for member in value):
            return f"\\[(?:{_SCALAR}(?:,{_SCALAR})*+)?+\\]"
        return f"\\[{','.join(_form(member, (*path, '')) for member in value)}\\]"
    spelling = _SPELLINGS[type(value)]
    return spelling if value is None else _COMPARED.get(path, spelling)


_FORMS: Final = Forms()
"""Of whatever ledger this process checks: a form is about bytes, and not about whose they are."""


def span_holds(ledger_id: LedgerId, row: SpanColumns, forms: Forms = _FORMS) -> bool:
    """Say whether a span's body is canonical and says what its row does: position, ids, and all it is found by.

    Raises:
        ValueError, TypeError, KeyError, AttributeError, RecursionError: the body is no span at all.
    """
    text = row.body.decode()
    start, called = str(row.at_ms * NS_PER_MS), f"permit.{row.name}"
    is_plain = len(row.body.translate(None, _ESCAPED)) == len(row.body)
    if is_plain:
        policies = '"' + '","'.join(row.policies) + '"' if row.policies else None
        said = (
            *(row.actor, row.effect_id, str(row.epoch), str(row.lane), ledger_id, row.operation, policies),
            *(row.resource, str(row.sequence), row.signer, row.state_to, row.story, row.subject, row.task_id),
            *(row.name, called, row.span_id, start, row.trace_id),
        )
        if forms.fits(text, row, tuple([value for value in said if value is not None])):
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
        *map(held.get, FOUND_BY.values()),
        _policies(held),
    )
    stored = (
        *(row.span_id, row.trace_id, start, called, row.name),
        *(ledger_id, row.epoch, row.lane, row.sequence, row.story),
        *row[_OPTIONAL:],
    )
    if found != stored:
        return False
    if is_plain:
        forms.learn(document, row)
    return True


def _policies(held: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the policies that a body names, as a row has them: sorted, and each once."""
    named = held.get(POLICY_IDS, [])
    if type(named) is not list or not all(type(policy) is str for policy in named):
        raise ValueError("the policies of a span are a list of text")
    return tuple(sorted(set(named)))


def span_says(body: bytes) -> Mapping[str, Any]:
    """Return the attributes of a span's body; where one has several members it is a list.

    Raises:
        ValueError, TypeError, KeyError, RecursionError: the body is no span at all.
    """
    attributes: Mapping[str, Any] = _DECODER.decode(body.decode())["attributes"]
    return attributes
