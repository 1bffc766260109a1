"""Whether a text of a service repeats what it was told in confidence, in any form that software makes (SEC-01).

A service may name what it did after what it was sent. Such a name proves nothing, so one that is lost costs little, and
one that is kept wrongly is kept for ever: where in doubt it repeats. It cannot know a part of a value, or one that was
encrypted or hashed. Pure. Next: `issuer.flow.settle` and `issuer.operations.http_adapter` ask.
"""

import base64
import json
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote, unquote_plus

__all__ = ["REPEATED_LENGTH_MIN", "repeats"]

REPEATED_LENGTH_MIN: Final = 3
"""Characters from which on a value is looked for within a text; a shorter one only as all of it."""

_ENCODED_LENGTH_MIN: Final = 6
"""Bytes from which on it is looked for in Base64: the middle of fewer is met by chance."""

_UNQUOTED_MAX: Final = 3
"""How often a text is read as percent-encoded; what was encoded more often was made so on purpose."""


def repeats(text: str, value: str) -> bool:
    """Say whether `text` repeats `value`: as it is, in another case, escaped, percent-encoded, in hex or in Base64."""
    if not value or not text:
        return False
    if len(value) < REPEATED_LENGTH_MIN:
        return any(read == value for read in _readings(text))
    folded = value.casefold()
    if any(folded in read.casefold() for read in _readings(text)):
        return True
    data = value.encode("utf-8", "surrogatepass")
    if data.hex() in text.lower() or json.dumps(value)[1:-1].casefold() in text.casefold():
        return True
    plain = text.replace("-", "+").replace("_", "/")
    return len(data) >= _ENCODED_LENGTH_MIN and any(middle in plain for middle in _middles(data))


def _readings(text: str) -> Iterator[str]:
    """Yield a text as it is, and as it reads once percent-encoding is taken off it."""
    yield text
    for unquoted in (unquote, unquote_plus):
        read = text
        for _time in range(_UNQUOTED_MAX):
            read = unquoted(read)
            yield read


def _middles(data: bytes) -> Iterator[str]:
    """Yield what is the same in Base64 wherever the data begin, and whatever stands around them (RFC 4648)."""
    for before in range(3):
        whole = base64.b64encode(b"\x00" * before + data).decode("ascii").rstrip("=")
        yield whole[(0, 2, 3)[before] : len(whole) - 1]
