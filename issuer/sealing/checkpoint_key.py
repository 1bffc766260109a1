"""The key that signs checkpoints of the trail: one for each key of the ring, which is made from its root (AUD-04).

Rules: SEC-03, ADR-0031. An Ed25519 key is any 32 bytes (RFC 8032 section 5.1.5), and here they are the subkey of a root
for `Purpose.CHECKPOINTS`. So `init` makes it with the root, a ring of an earlier release has one already, and what is
done to a key is done to both: a rotation signs with the new one, and where the ring does not open nothing is signed.
Only the active key signs. The public halves of all stay known, so that old checkpoints can be verified.

What it does not do: write a note or choose what is signed. Next: `issuer.checkpoints`.
"""

from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from issuer.sealing.keys import KeyRing
from issuer.sealing.roots import Purpose
from issuer.sealing.ssh_keys import ED25519_PRIME, SMALL_ORDER_Y

__all__ = ["checkpoint_public_key", "is_signature_of", "sign_checkpoint"]

_KEY_BYTES: Final = 32


def checkpoint_public_key(ring: KeyRing, key_id: int) -> bytes:
    """Return the 32 bytes that signatures of this key are verified with, whatever its state.

    Raises:
        KeyUnusable: the ring has no such key.
    """
    return _private_key(ring, key_id).public_key().public_bytes_raw()


def sign_checkpoint(ring: KeyRing, message: bytes) -> tuple[int, bytes]:
    """Return the id of the active key and its signature of `message`, 64 bytes; equal messages give equal signatures.

    Raises:
        KeyUnusable: never, unless the ring is changed by hand while it is open.
    """
    key_id = ring.active_key_id
    return key_id, _private_key(ring, key_id).sign(message)


def is_signature_of(public_key: bytes, signature: bytes, message: bytes) -> bool:
    """Say whether `public_key` (32 bytes) made `signature` (64 bytes) over `message` (RFC 8032 section 5.1.7).

    A key that is not in its one form, or of small order, vouches for nothing: one signature under the latter fits
    nearly every message.
    """
    y = int.from_bytes(public_key, "little") & (2**255 - 1)
    if len(public_key) != _KEY_BYTES or y >= ED25519_PRIME or y in SMALL_ORDER_Y:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def _private_key(ring: KeyRing, key_id: int) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(ring.subkey(Purpose.CHECKPOINTS, key_id))
