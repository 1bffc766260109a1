"""The one byte encoding: which JSON documents exist for us, and their exact bytes.

Decides whether bytes from outside are a document we can keep a promise about, and which bytes stand for a
value wherever something is digested, sealed or stored. Rules (EFF-03, EFF-05): RFC 8785, smaller domain.

1. Objects with text keys, arrays, text, exact booleans, null, and whole numbers within +-(2^53 - 1).
2. No floats, no exponents, no minus zero: money is whole units, and 1.0 and 1 must not be one document.
3. No lone surrogate and no NUL, in text or keys; no Unicode normalisation, so look-alikes stay different.
4. At most `DEPTH_MAX` nested containers and `BYTES_MAX` bytes.
5. Only the exact built-in types: an `IntEnum` is not a number, and a subclass may lie about its content.

Every refusal is `Malformed` with a stable code and no field: a key that the caller chose is never repeated.
This module does not know any schema; `issuer/operations/payload.py` comes next. It is the only door to
`rfc8785`, and it is pure.
"""

import hashlib
import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from json import JSONDecodeError, JSONDecoder, JSONEncoder
from json.encoder import encode_basestring
from typing import Any, Final, NoReturn

import rfc8785

from ledger.errors import Broken, Malformed

__all__ = [
    "BYTES_MAX",
    "DEPTH_MAX",
    "WHOLE_MAX",
    "canonical_bytes",
    "canonical_flat",
    "canonical_text",
    "comparable_bytes",
    "digest",
    "parse_strict",
]

WHOLE_MAX: Final = 2**53 - 1
"""Largest magnitude that every JSON reader keeps exactly (RFC 7493, section 2.2)."""

DEPTH_MAX: Final = 32
"""Nested containers: far more than a payload needs, far less than any interpreter's stack."""

BYTES_MAX: Final = 256 * 1024
"""Bytes of one document: four times the largest ledger record (64 KiB, LED-02), for previews and exports."""

KEY_SETS_MAX: Final = 256
"""Sets of keys whose order is remembered: each kind of span has a few."""

_DIGITS_MAX: Final = len(str(-WHOLE_MAX))
"""Longest numeral in range with its sign; a longer one is refused unread, as `int` is quadratic in digits."""

_STRING_OR_BRACKET: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"?+|[\[\]{}]', re.DOTALL)
"""A whole string, or one bracket. Possessive, and an unclosed string runs to the end, so it is linear."""

_FORBIDDEN_CHARACTER: Final = re.compile("[\x00\ud800-\udfff]")
_ASTRAL_CHARACTER: Final = re.compile("[\U00010000-\U0010ffff]")


def canonical_bytes(value: object) -> bytes:
    """Return the RFC 8785 bytes of a value of the restricted domain.

    Args:
        value: dict, list, tuple, str, bool, None or int, of exactly these types, nested to `DEPTH_MAX`.

    Returns:
        UTF-8 bytes, at most `BYTES_MAX`; equal values give equal bytes in every process and locale.

    Raises:
        Malformed: `wrong_type`, `number_not_whole`, `number_out_of_range`, `lone_surrogate`,
            `nul_character`, `too_deep` or `too_large`.
    """
    if _plain_left([value], BYTES_MAX, DEPTH_MAX + 1) < 0 and _check_domain(value, BYTES_MAX):
        # RFC 8785 section 3.2.3 orders keys by UTF-16 units, where astral characters come before U+E000.
        body = rfc8785.dumps(value)  # type: ignore[arg-type]  # the domain was checked one line above
    else:
        # Without astral keys both orders agree, and the standard library's encoder writes the same bytes
        # several times faster; the property tests hold it to rfc8785.
        body = _ENCODER.encode(value).encode("utf-8")
    if len(body) > BYTES_MAX:
        _refuse_too_large()
    return body


def canonical_text(value: object) -> str:
    """Return `canonical_bytes` of a value as text, to build a larger document of; raises as that does."""
    return canonical_bytes(value).decode()


def canonical_flat(members: Mapping[str, object]) -> str:
    """Return the canonical text of an object whose members are texts, whole numbers, flags and lists of texts.

    The same text as `canonical_text(dict(members))`, which decides wherever something is not plain; made for a span,
    that has some thirty short members, in a third of the time.

    Raises:
        Malformed: as `canonical_bytes`.
    """
    written = _flat(members) if _TEXT_ONLY.issuperset(map(type, members)) else None
    # Each character takes a byte: without one above ASCII this is the length in bytes, and the only ones there are.
    if written is None or not written.isascii() or len(written) > BYTES_MAX:
        return canonical_text(dict(members))
    return written


def _flat(members: Mapping[str, Any]) -> str | None:
    """Return the text of plain members, keys by their code points; None where something is not plain."""
    parts: list[str] = []
    for key, written in _keys_written(tuple(members)):
        value = members[key]
        kind = type(value)
        if kind is str:
            parts.append(written + encode_basestring(value))
        elif kind is int and -WHOLE_MAX <= value <= WHOLE_MAX:
            parts.append(f"{written}{value}")
        elif kind is tuple and _TEXT_ONLY.issuperset(map(type, value)):
            parts.append(f"{written}[{','.join(map(encode_basestring, value))}]")
        elif kind is bool:
            parts.append(written + ("true" if value else "false"))
        else:
            return None
    text = f"{{{','.join(parts)}}}"
    # So the encoder writes a NUL. A text that holds these six characters is taken for one, which costs time alone.
    return None if "\\u0000" in text else text


@lru_cache(maxsize=KEY_SETS_MAX)
def _keys_written(keys: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return keys in their order, each with what is written before its value. All are exactly `str`."""
    return tuple((key, f"{encode_basestring(key)}:") for key in sorted(keys))


def comparable_bytes(value: object) -> bytes:
    """Return the canonical bytes of a value of the domain without seeing whether it is one: to compare, never to keep.

    Where they equal bytes that `canonical_bytes` made, or a MAC of those holds over them, the value is that one: each
    value has its own encoding. A value outside the domain gives bytes that nothing made, or an error.

    Raises:
        TypeError, ValueError, RecursionError: the value has no encoding at all.
    """
    return _ENCODER.encode(value).encode("utf-8")


def parse_strict(data: bytes, *, bytes_max: int = BYTES_MAX) -> object:
    """Read one JSON document, or refuse it: what is returned has exactly one meaning (EFF-05).

    Args:
        data: the whole document as received; trailing data is part of it.
        bytes_max: size bound in bytes, for a surface that wants a smaller one.

    Returns:
        dict, list, str, int, bool or None; `canonical_bytes` accepts it and is never longer than `data`.

    Raises:
        Malformed: `too_large`, `not_utf8`, `too_deep`, `not_json` (also a byte order mark, NaN and
            Infinity), `duplicate_key`, `number_not_whole`, `number_out_of_range`, `lone_surrogate` or
            `nul_character`; in this order where one of the first three applies, else the first met.
    """
    if len(data) > bytes_max:
        _refuse_too_large()
    # The refusals below are raised outside the handlers: the errors caught here carry the document itself,
    # and must not travel as the context of ours into a log.
    try:
        text = data.decode("utf-8", "strict")
    except UnicodeDecodeError:
        text = None
    if text is None:
        raise Malformed("not_utf8", None, "The document is not UTF-8.")
    _check_depth(text)
    value: object = None
    is_json = True
    try:
        value = _DECODER.decode(text)
    except JSONDecodeError:
        is_json = False
    if not is_json:
        _refuse_not_json()
    if _plain_left([value], bytes_max, DEPTH_MAX + 1) < 0:
        _check_domain(value, bytes_max)
    return value


def digest(domain: str, body: bytes) -> bytes:
    """Return SHA-256(domain || 0x00 || body): 32 bytes that mean one thing only.

    The domain is a constant of ours with a version in it. A NUL inside it would let two domains share a
    digest, so it is our own broken invariant.

    Raises:
        Broken: the domain is empty, not ASCII, or holds a NUL.
    """
    if not domain or not domain.isascii() or "\x00" in domain:
        raise Broken("A digest domain must be non-empty ASCII text without NUL.")
    return hashlib.sha256(domain.encode("ascii") + b"\x00" + body).digest()


def _check_depth(text: str) -> None:
    """Refuse nesting over `DEPTH_MAX` before a recursive reader sees it; takes linear time."""
    if text.count("[") + text.count("{") <= DEPTH_MAX:
        return
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(text):
        bracket = match.group()
        if bracket in {"[", "{"}:
            depth += 1
            if depth > DEPTH_MAX:
                _refuse_too_deep()
        elif bracket in {"]", "}"}:
            depth -= 1


_TEXT_ONLY: Final = frozenset({str})


def _plain_left(members: Collection[Any], bytes_left: int, levels: int) -> int:
    """Return how many bytes are left after members that are plain beyond doubt; a negative number decides nothing.

    Plain is what nearly every document is: ASCII, in range, shallow and small. `_check_domain` judges the rest, and it
    alone refuses. `levels` is how many nested containers there may be, that of the members included.
    """
    bytes_left -= len(members)
    if levels == 0 or bytes_left < 0:
        return -1
    for member in members:
        kind = type(member)
        if kind is str:
            bytes_left -= len(member)
            is_plain = member.isascii() and "\x00" not in member
        elif kind is int:
            is_plain = -WHOLE_MAX <= member <= WHOLE_MAX
        elif kind is dict:
            # One look at all keys together: key by key, it takes as long as the values.
            keys = "".join(member) if _TEXT_ONLY.issuperset(map(type, member)) else "\x00"
            is_plain = keys.isascii() and "\x00" not in keys
            if is_plain:
                bytes_left = _plain_left(member.values(), bytes_left - len(keys), levels - 1)
        elif kind is list or kind is tuple:
            is_plain = True
            bytes_left = _plain_left(member, bytes_left, levels - 1)
        else:
            is_plain = member is None or kind is bool
        if bytes_left < 0 or not is_plain:
            return -1
    return bytes_left


def _check_domain(value: object, bytes_max: int) -> bool:
    """Refuse anything outside the domain; return whether some key holds an astral character.

    Works with a list instead of the call stack, and gives up once the parts seen cannot fit `bytes_max`: a
    value that contains itself, or one list many times over, ends here as `too_deep` or `too_large`.
    """
    has_astral_key = False
    bytes_left = bytes_max
    pending: list[tuple[object, int]] = [(value, 0)]
    while pending:
        item, depth = pending.pop()
        members: list[object] | tuple[object, ...]
        if type(item) is dict:
            for key in item:
                bytes_left -= _check_key(key)
                if not key.isascii() and _ASTRAL_CHARACTER.search(key):
                    has_astral_key = True
            members = list(item.values())
        elif type(item) is list or type(item) is tuple:
            members = item
        else:
            bytes_left -= _check_scalar(item)
            continue
        if depth >= DEPTH_MAX:
            _refuse_too_deep()
        # A member is written as at least one byte, and so is each character of a text.
        bytes_left -= len(members)
        if bytes_left < 0:
            _refuse_too_large()
        pending.extend((member, depth + 1) for member in members)
    return has_astral_key


def _check_key(key: object) -> int:
    """Refuse what cannot be a key; return the bytes it takes at least."""
    if type(key) is not str:
        _refuse_type()
    _check_text(key)
    return len(key)


def _check_scalar(item: object) -> int:
    """Refuse what is no scalar of the domain; return the bytes it takes at least beyond its first."""
    if type(item) is str:
        _check_text(item)
        return len(item)
    if type(item) is int:
        if not -WHOLE_MAX <= item <= WHOLE_MAX:
            _refuse_out_of_range()
        return 0
    if type(item) is float:
        _refuse_not_whole()
    if item is not None and type(item) is not bool:
        _refuse_type()
    return 0


def _check_text(text: str) -> None:
    """Refuse text that is no sequence of Unicode scalar values, or that C code would cut short."""
    if text.isascii() and "\x00" not in text:
        # The usual case, decided without the slower search.
        return
    found = _FORBIDDEN_CHARACTER.search(text)
    if found is None:
        return
    if found.group() == "\x00":
        raise Malformed("nul_character", None, "A text contains a NUL character.")
    raise Malformed("lone_surrogate", None, "A text contains a lone surrogate, which has no UTF-8 form.")


def _read_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Build an object, refusing the repeated name that readers resolve differently (RFC 8259, section 4)."""
    document = dict(pairs)
    if len(document) != len(pairs):
        raise Malformed("duplicate_key", None, "An object names the same key twice.")
    return document


def _read_whole(numeral: str) -> int:
    """Read a numeral without fraction or exponent; its length is bounded before it is converted."""
    if len(numeral) > _DIGITS_MAX:
        _refuse_out_of_range()
    if numeral == "-0":
        # It would be written back as 0, so the document would not survive.
        _refuse_not_whole()
    number = int(numeral)
    if not -WHOLE_MAX <= number <= WHOLE_MAX:
        _refuse_out_of_range()
    return number


def _read_fraction(_numeral: str) -> NoReturn:
    """Refuse a fraction or an exponent, also where the value happens to be whole."""
    _refuse_not_whole()


def _read_constant(_name: str) -> NoReturn:
    """Refuse NaN, Infinity and -Infinity, which the standard library would read but JSON does not have."""
    _refuse_not_json()


_DECODER: Final = JSONDecoder(
    object_pairs_hook=_read_object,
    parse_int=_read_whole,
    parse_float=_read_fraction,
    parse_constant=_read_constant,
    strict=True,
)


_ENCODER: Final = JSONEncoder(
    ensure_ascii=False,
    allow_nan=False,
    sort_keys=True,
    separators=(",", ":"),
    check_circular=False,  # the domain was checked, and nothing in it contains itself
)


def _refuse_too_large() -> NoReturn:
    raise Malformed("too_large", None, "The document is larger than its bound in bytes.")


def _refuse_too_deep() -> NoReturn:
    raise Malformed("too_deep", None, f"The document nests deeper than {DEPTH_MAX} containers.")


def _refuse_not_json() -> NoReturn:
    raise Malformed("not_json", None, "The document is not one complete JSON value.")


def _refuse_not_whole() -> NoReturn:
    code = "number_not_whole"
    raise Malformed(
        code, None, "A number has a fraction, an exponent or a minus zero; only whole numbers are read."
    )


def _refuse_out_of_range() -> NoReturn:
    raise Malformed("number_out_of_range", None, "A whole number lies outside +-(2^53 - 1).")


def _refuse_type() -> NoReturn:
    raise Malformed("wrong_type", None, "A value or key is of a type that has no canonical form.")
