r"""Does a line of a file of spans hold: its one form, and a body that says where the line says that it stands?

Rules: AUD-04, AUD-07. Asked for every line, so it is quick, in the way of `audit.comparison`: a form of bodies that was
read and found canonical some times becomes a pattern of all in it but the values. What fits has the same keys in the
same order and each value in its one spelling. A pattern only says yes; what fits none is read.
Next: `audit.trail_lines`, which asks.
"""

import json
import re
from collections import Counter
from typing import Any, Final, NoReturn

from audit.sinks.epochs import EPOCH_BEGINS

__all__ = ["LINE", "READ_FAULTS", "LineForms", "body_document"]

LEARNED_AFTER: Final = 16
"""Bodies of one form that are read before it becomes a pattern, as in `audit.comparison`."""

FORMS_MAX: Final = 256
"""Forms that are counted, so also the most patterns: this release writes some forty, an edited file any number."""

DEPTH_MAX: Final = 4

READ_FAULTS: Final = (ValueError, TypeError, KeyError, AttributeError, RecursionError)
"""What reading a body raises that is no span."""

LINE: Final = re.compile(
    rb'\{"epoch":(0|[1-9][0-9]{0,15}),"lane":0,"leaf":"([0-9a-f]{64})",'
    rb'"sequence":([1-9][0-9]{0,15}),"span":(\{[^\n]*\})\}'
)
"""A whole line without its newline: epoch, leaf, sequence and body. There is one lane."""

_PLAIN: Final = r'"[^"\\\x00-\x1f\x80-\xff]*+"'
_WHOLE: Final = "(?:0|-?[1-9][0-9]{0,15}+)"
_SPELLINGS: Final = {str: _PLAIN, int: _WHOLE, bool: "(?:true|false)", type(None): "null"}
_SCALAR: Final = f"(?:{'|'.join(_SPELLINGS.values())})"
_TEXT: Final = f'"({_PLAIN[1:-1]})"'
_COMPARED: Final = {
    ("attributes", "permit.epoch"): f"({_WHOLE})",
    ("attributes", "permit.lane"): f"({_WHOLE})",
    ("attributes", "permit.ledger.id"): _TEXT,
    ("attributes", "permit.sequence"): f"({_WHOLE})",
    ("attributes", "permit.transition"): _TEXT,
    ("name",): _TEXT,
}
"""What is compared, with its pattern, in the order in which a canonical body holds it."""

_NAME: Final = b'"name":"permit.'


def _refuse(_literal: str) -> NoReturn:
    raise ValueError("a span holds no such number")


_DECODER: Final = json.JSONDecoder(parse_float=_refuse, parse_constant=_refuse)
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))


def body_document(body: bytes) -> dict[str, Any]:
    """Return the document of a body that is canonical.

    Raises:
        ValueError, TypeError, KeyError, AttributeError, RecursionError: it is none (`READ_FAULTS`).
    """
    text = body.decode()
    document: dict[str, Any] = _DECODER.decode(text)
    # Astral keys would sort otherwise in RFC 8785; no span has them, and such a body is refused with the rest.
    if type(document) is not dict or _ENCODER.encode(document) != text:
        raise ValueError("the body is not canonical")
    return document


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
    return _COMPARED.get(path, _SPELLINGS[type(value)])


def _kind(line: bytes) -> bytes:
    """Return the name of the span as far as a glance tells; it only chooses between patterns."""
    begin = line.rfind(_NAME) + len(_NAME)
    return line[begin : line.find(b'"', begin)]


class _Learned:
    """The forms of bodies that were read so far, and patterns of the frequent ones."""

    def __init__(self) -> None:
        """Know none."""
        self.patterns: dict[bytes, list[re.Pattern[bytes]]] = {}
        self._seen: Counter[tuple[bytes, str]] = Counter()

    def learn(self, kind: bytes, document: dict[str, Any]) -> None:
        """Count the form of a body that was read, is canonical, and is what its line says."""
        form = _form(document, ())
        is_new = (kind, form) not in self._seen
        if not form.isascii() or (is_new and len(self._seen) >= FORMS_MAX):
            return
        self._seen[kind, form] += 1
        if self._seen[kind, form] == LEARNED_AFTER:
            whole = (
                '\\{"epoch":(?:0|[1-9][0-9]{0,15}+),"lane":0,"leaf":"([0-9a-f]{64})",'
                f'"sequence":([1-9][0-9]{{0,15}}+),"span":{form}\\}}'
            )
            self.patterns.setdefault(kind, []).append(re.compile(whole.encode("ascii")))


_LEARNED: Final = _Learned()
"""Of whatever trail this process verifies: a form is about bytes, and not about whose they are."""


class LineForms:
    """What the lines of one ledger are held against."""

    def __init__(self, ledger_id: str) -> None:
        """Hold them against this ledger."""
        self._ledger_id = ledger_id
        self._ledger = ledger_id.encode()

    def holds(self, line: bytes, *, leaf: bytes, epoch: int, sequence: int) -> bool:
        """Say whether a line without its newline is the one that an issuer wrote for its body, at that place.

        Args:
            line: it holds a body between its first `"span":` and its last byte.
            leaf: the hash of that body, 32 bytes.
            epoch: that of the line.
            sequence: counted from 1.
        """
        kind, spelled = _kind(line), leaf.hex().encode()
        number, turn = b"%d" % sequence, b"%d" % epoch
        said = (spelled, number, turn, b"0", self._ledger, number, kind, b"permit." + kind)
        for pattern in _LEARNED.patterns.get(kind, ()):
            found = pattern.fullmatch(line)
            if found is not None:
                # An epoch begins with a restore and with nothing else; that line is read by whoever joins epochs.
                return found.groups() == said and kind != EPOCH_BEGINS.encode()
        return self._is_read(line, spelled, epoch=epoch, sequence=sequence, kind=kind)

    def _is_read(self, line: bytes, leaf: bytes, *, epoch: int, sequence: int, kind: bytes) -> bool:
        match = LINE.fullmatch(line)
        if match is None or match.groups()[:3] != (b"%d" % epoch, leaf, b"%d" % sequence):
            return False
        try:
            document = body_document(match[4])
            says = self.says(document)
        except READ_FAULTS:
            return False
        name = document["attributes"]["permit.transition"]
        if says != (epoch, sequence) or name == EPOCH_BEGINS:
            return False
        _LEARNED.learn(kind, document)
        return True

    def says(self, document: dict[str, Any]) -> tuple[int, int]:
        """Return epoch and sequence as a body says them, if it is of this ledger, of lane 0, and says what happened.

        Raises:
            ValueError, TypeError, KeyError, AttributeError: it is not (`READ_FAULTS`).
        """
        held = document["attributes"]
        if (
            held["permit.ledger.id"] != self._ledger_id
            or document["name"] != f"permit.{held['permit.transition']}"
        ):
            raise ValueError("the body is of another ledger, or does not say what happened")
        epoch, lane, sequence = (held[f"permit.{name}"] for name in ("epoch", "lane", "sequence"))
        if {type(epoch), type(lane), type(sequence)} != {int} or lane != 0:
            raise ValueError("the body does not say where it stands")
        return epoch, sequence
