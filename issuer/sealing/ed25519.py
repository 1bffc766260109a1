"""Does an Ed25519 key vouch for a message? For keys that whoever verifies a trail has been given (AUD-04).

Rules: RFC 8032 section 5.1.7. A key that is not in its one form, or of small order, vouches for nothing: one signature
under the latter fits nearly every message. Next: `audit.notes`, which asks.
"""

from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from issuer.sealing.ssh_keys import ED25519_PRIME, SMALL_ORDER_Y

__all__ = ["is_ed25519_signature"]

_KEY_BYTES: Final = 32


def is_ed25519_signature(public_key: bytes, signature: bytes, message: bytes) -> bool:
    """Say whether `public_key` (32 bytes) made `signature` (64 bytes) over `message`."""
    y = int.from_bytes(public_key, "little") & (2**255 - 1)
    if len(public_key) != _KEY_BYTES or y >= ED25519_PRIME or y in SMALL_ORDER_Y:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True
