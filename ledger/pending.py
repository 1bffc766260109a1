"""The sum over every effect that may still be admitted, kept in the head: no effect can be put back among them.

Rules: LED-06 (who can write the file but lacks the keys gains nothing), ADM-02 (a permit is used once). An effect's
old row is authentic for ever, and rows and spans can be deleted; so "not used yet" must not rest on absence. Each
effect that is prepared, awaiting approval or permitted has one element; the head holds the sum of them under its MAC,
adds one when an effect is prepared and takes it away when the effect ends or is admitted. An admission recounts.

The elements are 3,072-bit numbers and the sum is modulo 2^3072 (Bellare and Micciancio, "A new paradigm for
collision-free hashing", 1997): a sum of short hashes, or an exclusive or, could be made to fit by adding other old
effects, since whoever watches the file learns every element.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

SUM_BYTES: Final = 384
_MODULUS: Final = 1 << (8 * SUM_BYTES)
EMPTY_SUM: Final = bytes(SUM_BYTES)


def element_data(effect_id: str) -> bytes:
    """Return the bytes whose tag makes an effect's element."""
    return b"pending\x00" + effect_id.encode()


def _element(tag: bytes) -> int:
    return int.from_bytes(hashlib.shake_256(tag).digest(SUM_BYTES), "big")


def with_effect(total: bytes, tag: bytes) -> bytes:
    """Return the sum after an effect was prepared."""
    return ((int.from_bytes(total, "big") + _element(tag)) % _MODULUS).to_bytes(SUM_BYTES, "big")


def without_effect(total: bytes, tag: bytes) -> bytes:
    """Return the sum after an effect ended or was admitted."""
    return ((int.from_bytes(total, "big") - _element(tag)) % _MODULUS).to_bytes(SUM_BYTES, "big")


def sum_of(tags: Iterable[bytes]) -> bytes:
    """Return the sum over the effects with these tags."""
    return (sum(map(_element, tags)) % _MODULUS).to_bytes(SUM_BYTES, "big")
