"""The one encrypted layout of this room: a header in the clear, a nonce, and AES-256-GCM-SIV ciphertext.

    header(8) = magic(2) | format(1) | algorithm(1) | key id(4, big endian)
    sealed    = header | nonce(12) | ciphertext and tag(16)
    bound     = header | for each bound part: length(4, big endian) | part

Rules:
1. The algorithm is pinned by this code; the byte in the header is compared, never followed.
2. The key id picks exactly one key. Nothing is tried with a second one: GCM-SIV does not commit to its key.
3. Bound parts are length-prefixed, so that no two lists of parts give the same associated data.
4. Opening answers `None` for every failure. The caller turns that into its one error in one place.

GCM-SIV (RFC 8452) is chosen because a repeated nonce (a copied virtual machine, a fork) tells at most that
two messages are equal. What it does not do: judge what the bytes mean. Next: `seal` and `protected`.
"""

import struct
from collections.abc import Sequence
from typing import Final

from cryptography.exceptions import InvalidTag

from issuer.sealing.errors import KeyUnusable
from issuer.sealing.keys import KeyRing, Purpose
from ledger.errors import Broken

__all__ = ["NONCE_BYTES", "OVERHEAD_BYTES", "close_envelope", "key_id_of", "open_envelope"]

NONCE_BYTES: Final = 12
"""The only nonce length of AES-GCM-SIV (RFC 8452, section 4)."""

_HEADER: Final = struct.Struct(">2sBBI")
_TAG_BYTES: Final = 16
_FORMAT: Final = 1
_AES_256_GCM_SIV: Final = 1

OVERHEAD_BYTES: Final = _HEADER.size + NONCE_BYTES + _TAG_BYTES
"""What an envelope adds to the plaintext."""


def close_envelope(
    ring: KeyRing, purpose: Purpose, *, magic: bytes, plaintext: bytes, nonce: bytes, bound: Sequence[bytes]
) -> bytes:
    """Encrypt `plaintext` under the active key for `purpose`, bound to `bound`.

    `magic` is 2 bytes that name the kind of content; `nonce` is 12 random bytes drawn by the caller.

    Raises:
        Broken: the nonce has another type or length.
    """
    if type(nonce) is not bytes or len(nonce) != NONCE_BYTES:
        raise Broken("A nonce is exactly 12 bytes.")
    key_id = ring.active_key_id
    header = _HEADER.pack(magic, _FORMAT, _AES_256_GCM_SIV, key_id)
    cipher = ring.cipher(purpose, key_id)
    return header + nonce + cipher.encrypt(nonce, plaintext, _associated(header, bound))


def open_envelope(
    ring: KeyRing, purpose: Purpose, *, magic: bytes, sealed: bytes, bound: Sequence[bytes]
) -> bytes | None:
    """Return the plaintext, or `None` where anything at all is wrong."""
    if len(sealed) < OVERHEAD_BYTES:
        return None
    header = sealed[: _HEADER.size]
    found_magic, found_format, algorithm, key_id = _HEADER.unpack(header)
    if (found_magic, found_format, algorithm) != (magic, _FORMAT, _AES_256_GCM_SIV):
        return None
    nonce_end = _HEADER.size + NONCE_BYTES
    try:
        cipher = ring.cipher(purpose, key_id)
        return cipher.decrypt(
            sealed[_HEADER.size : nonce_end], sealed[nonce_end:], _associated(header, bound)
        )
    except (InvalidTag, KeyUnusable):
        return None


def key_id_of(sealed: bytes) -> int | None:
    """Return the id of the key that an envelope names, unproven; None where it is none."""
    return None if len(sealed) < OVERHEAD_BYTES else int(_HEADER.unpack(sealed[: _HEADER.size])[3])


def _associated(header: bytes, bound: Sequence[bytes]) -> bytes:
    return header + b"".join([len(part).to_bytes(4, "big") + part for part in bound])
