"""Salted commitments for payload fields that are not public, and the keyed content key of an effect.

Rules:
1. A commitment is HMAC-SHA256 (RFC 2104), keyed with the salt of that field, over a versioned domain string,
   the length of the salt, and the canonical bytes of `[field, value]` (EFF-10). Whoever holds salt and value
   can recompute it with any standard library; whoever holds the commitment alone cannot guess from it.
2. The length of the salt is inside, because HMAC pads short keys with zeros: without it two salts that differ
   by trailing zero bytes would be one.
3. A salt serves one field of one effect. Reusing it would show which values are equal.
4. The content key tells repetition and nothing else (EFF-03): HMAC-SHA256 under the ring's `repetition`
   subkey over exactly operation, payload, resource, destination and subject. It is not a commitment and not a
   binding digest.

The ring's `repetition` subkey stays the same through rotations (ADR-0023), so the same content has the same content
key for ever. What it does not do: draw salts, or decide who may see one.
Next: the binding carries commitments, the protected store carries salts and values.
"""

import hmac
import re
from collections.abc import Mapping
from typing import Final

from issuer.sealing.errors import CommitmentBroken
from ledger.canonical import canonical_bytes
from ledger.errors import Broken

__all__ = ["CONTENT_KEY_PARTS", "SALT_BYTES_MAX", "SALT_BYTES_MIN", "commit", "content_key", "verify"]

SALT_BYTES_MIN: Final = 16
"""128 bits: guessing a value means guessing the salt first."""

SALT_BYTES_MAX: Final = 64
"""The block of SHA-256: HMAC would hash a longer key, and a hashed key equals another, shorter salt."""

CONTENT_KEY_PARTS: Final = frozenset({"operation", "payload", "resource", "destination", "subject"})
"""What makes two effects repetitions of each other (EFF-03); a missing part would make strangers look
alike."""

_SUBKEY_BYTES: Final = 32
_COMMITMENT_DOMAIN: Final = b"permit-issuer/commitment/v1\x00"
_CONTENT_DOMAIN: Final = b"permit-issuer/content-key/v1\x00"
_COMMITMENT: Final = re.compile(r"[0-9a-f]{64}")


def commit(salt: bytes, field: str, value: object) -> str:
    """Return the commitment to one field, 64 lower-case hex digits.

    `salt` is 16 to 64 random bytes of this field alone; `value` is any value that `ledger.canonical` encodes.

    Raises:
        Broken: the salt has another type or size, or the field has no name.
        ledger.errors.Malformed: the value has no canonical encoding.
    """
    if type(salt) is not bytes or not SALT_BYTES_MIN <= len(salt) <= SALT_BYTES_MAX:
        raise Broken("A salt is 16 to 64 bytes.")
    if type(field) is not str or not field:
        raise Broken("A commitment needs the name of its field.")
    body = _COMMITMENT_DOMAIN + len(salt).to_bytes(2, "big") + canonical_bytes([field, value])
    return hmac.digest(salt, body, "sha256").hex()


def verify(salt: bytes, field: str, value: object, commitment: str) -> None:
    """Return where `commitment` commits to this value of this field under this salt; raise otherwise.

    Nothing is returned, so that no caller can forget to look at a verdict.

    Raises:
        CommitmentBroken: it does not, or it is not 64 lower-case hex digits.
        Broken, ledger.errors.Malformed: as `commit`.
    """
    expected = commit(salt, field, value)
    if type(commitment) is not str or _COMMITMENT.fullmatch(commitment) is None:
        raise CommitmentBroken
    if not hmac.compare_digest(expected, commitment):
        raise CommitmentBroken


def content_key(ring_subkey: bytes, parts: Mapping[str, object]) -> bytes:
    """Return the 32-byte content key of an effect, for telling repetition (POL-02).

    `ring_subkey` is the ring's subkey for `Purpose.REPETITION`, whatever key is active; `parts` has exactly the keys
    `CONTENT_KEY_PARTS`.

    Raises:
        Broken: the subkey is not 32 bytes, or a part is missing or unknown.
        ledger.errors.Malformed: a part has no canonical encoding.
    """
    if type(ring_subkey) is not bytes or len(ring_subkey) != _SUBKEY_BYTES:
        raise Broken("A repetition subkey is exactly 32 bytes.")
    if parts.keys() != CONTENT_KEY_PARTS:
        raise Broken("A content key is made of operation, payload, resource, destination and subject.")
    return hmac.digest(ring_subkey, _CONTENT_DOMAIN + canonical_bytes(dict(parts)), "sha256")
