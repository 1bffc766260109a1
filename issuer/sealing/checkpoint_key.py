"""The key that signs checkpoints of the trail: one for each key of the ring, which is made from its root (AUD-04).

Rules: SEC-03, ADR-0031. An Ed25519 key is any 32 bytes (RFC 8032 section 5.1.5), and here they are the subkey of a root
for `Purpose.CHECKPOINTS`. So `init` makes it with the root, a ring of an earlier release has one already, and what is
done to a key is done to both: a rotation signs with the new one, and where the ring does not open nothing is signed.
Only the active key signs. The public halves of all stay known, so that old checkpoints can be verified.

What it does not do: write a note, choose what is signed, or verify (`issuer.sealing.ed25519`).
Next: `issuer.checkpoints`.
"""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from issuer.sealing.keys import KeyRing
from issuer.sealing.roots import Purpose

__all__ = ["checkpoint_public_key", "sign_checkpoint"]


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


def _private_key(ring: KeyRing, key_id: int) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(ring.subkey(Purpose.CHECKPOINTS, key_id))
