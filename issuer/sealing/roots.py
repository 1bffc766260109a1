"""What a root key is, what each state lets it do, and how a subkey comes from it.

Rules:
1. A root is never used itself. HKDF-SHA256 (RFC 5869) derives a subkey per purpose and key id, so that no subkey tells
   anything about another one.
2. What a key may do is one table, by its state (SEC-03, PER-02): an `active` key seals, an `open_only` key still opens
   what it sealed. A `retired` key opens no permit; its MACs stay good, since history must stay verifiable. A `revoking`
   key opens no permit either, and its MACs are read once more, to be made anew. A `revoked` key proves nothing.
3. Three purposes outlive a revocation: what protected content says is proven by its commitments (EFF-10), repetition
   is counted with one key for ever (POL-02; ADR-0023), and the public half of a checkpoint key stays known, so that old
   checkpoints can be verified (AUD-04; ADR-0031). None gives authority: only the active key signs.

Next: `issuer.sealing.keys` holds several of them.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

__all__ = ["KEYS_MAX", "KEY_ID_MAX", "ROOT_BYTES", "Key", "KeyState", "Purpose", "derived", "may"]

ROOT_BYTES: Final = 32
"""Size of a root and of every subkey: AES-256 takes 32 bytes, and so does HMAC-SHA256 at full strength."""

KEY_ID_MAX: Final = 2**32 - 1
"""A key id is an unsigned 32-bit number in the header of a seal; 0 is left out so that a blank field names no key."""

KEYS_MAX: Final = 64
"""More keys than five years of monthly rotation: a folder beyond that is not a ring that anybody tends."""

_INFO: Final = b"permit-issuer/subkey/v1\x00"


class Purpose(StrEnum):
    """What a subkey is for; each value has its own HKDF info string, so no two share a key."""

    SEAL = "seal"
    HEAD_MAC = "head_mac"
    ROW_MAC = "row_mac"
    REPETITION = "repetition"
    SALTS = "salts"
    PROTECTED = "protected"
    MARKS = "marks"
    CREDENTIALS = "credentials"
    CHALLENGES = "challenges"
    STATEMENTS = "statements"
    CHECKPOINTS = "checkpoints"


class KeyState(StrEnum):
    """What a key may still do."""

    ACTIVE = "active"
    OPEN_ONLY = "open_only"
    RETIRED = "retired"
    REVOKING = "revoking"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Key:
    """One root key.

    Attributes:
        key_id: 1 to 2^32-1.
        root: 32 bytes, in no text form.
        since_ms: when it came to its state; None for one of an earlier release.
    """

    key_id: int
    state: KeyState
    root: bytes = field(repr=False)
    since_ms: int | None = None


_EVERY: Final = frozenset(Purpose)
_MAY: Final = MappingProxyType(
    {
        KeyState.ACTIVE: _EVERY,
        KeyState.OPEN_ONLY: _EVERY,
        KeyState.RETIRED: _EVERY - {Purpose.SEAL},
        KeyState.REVOKING: _EVERY - {Purpose.SEAL},
        KeyState.REVOKED: frozenset(
            {Purpose.PROTECTED, Purpose.SALTS, Purpose.REPETITION, Purpose.CHECKPOINTS}
        ),
    }
)


def may(state: KeyState, purpose: Purpose) -> bool:
    """Say whether a key in this state serves this purpose still."""
    return purpose in _MAY[state]


def derived(root: bytes, key_id: int, purpose: Purpose) -> bytes:
    """Return the 32-byte subkey of a root for one purpose.

    The key id is part of the info: a root that was copied under a second id still gives other subkeys.
    """
    info = _INFO + purpose.value.encode() + b"\x00" + key_id.to_bytes(4, "big")
    return HKDF(algorithm=SHA256(), length=ROOT_BYTES, salt=None, info=info).derive(root)
