"""The faults of the sealing room: unusable keys, seals that do not open, a store that cannot serve.

Rules:
1. Every text here is fixed. No text carries a key, a token, a payload, or anything a stranger handed in, so
   that an error may be logged without leaking (SEC-01) and teaches a forger nothing (SEC-04).
2. `SealBroken` is one error for every way in which sealed bytes can be wrong.
3. Faults of the operator's files name the next step; where the file stands is in `path`, for the operator
   alone.

These are faults (exceptions), not refusals: which refusal a surface answers with is decided in the flow.
"""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

from ledger.errors import Fault

__all__ = [
    "CommitmentBroken",
    "KeyForbids",
    "KeyUnusable",
    "KeysUnavailable",
    "ProtectedContentDiffers",
    "ProtectedContentMissing",
    "ProtectedContentTooLarge",
    "ProtectedStoreFull",
    "ProtectedStoreUnavailable",
    "SealBroken",
    "StorageFault",
]


class StorageFault(StrEnum):
    """Why a key ring or the protected store cannot be used; the values are stable and may be audited."""

    MISSING = "missing"
    EXISTS = "exists"
    SYMLINK = "symlink"
    NOT_REGULAR = "not_regular"
    FOREIGN_OWNER = "foreign_owner"
    OPEN_TO_OTHERS = "open_to_others"
    HARD_LINKED = "hard_linked"
    UNREADABLE = "unreadable"
    UNWRITABLE = "unwritable"
    UNEXPECTED_ENTRY = "unexpected_entry"
    TOO_MANY = "too_many"
    MALFORMED = "malformed"
    ALTERED = "altered"
    BUSY = "busy"
    REPEATED_ROOT = "repeated_root"
    NO_ACTIVE_KEY = "no_active_key"
    TWO_ACTIVE_KEYS = "two_active_keys"
    CIPHER_MISSING = "cipher_missing"
    UNBOUND = "unbound"


_KEYS_SENTENCES: Final[Mapping[StorageFault, str]] = {
    StorageFault.MISSING: "The key ring is missing: restore its backup, or run 'issuer init' for a new one.",
    StorageFault.EXISTS: "A key ring is already there: open it, or choose an empty folder for a new one.",
    StorageFault.SYMLINK: "A symbolic link stands in the key ring: put the real folder or file in its place.",
    StorageFault.NOT_REGULAR: "The key ring holds something that is no ordinary file: remove it.",
    StorageFault.FOREIGN_OWNER: "The key ring belongs to another account: chown it to the issuer's.",
    StorageFault.OPEN_TO_OTHERS: (
        "The key ring is open to others: chmod its folder to 0700 and files to 0600, then rotate the key."
    ),
    StorageFault.HARD_LINKED: "A key file has a second hard link: remove the copy, then rotate the key.",
    StorageFault.UNREADABLE: "The key ring cannot be read: check the disk and the permissions.",
    StorageFault.UNWRITABLE: "The key ring cannot be written: check free space and permissions.",
    StorageFault.UNEXPECTED_ENTRY: "The key ring holds an entry that is no key file: move it away.",
    StorageFault.TOO_MANY: (
        "The key ring takes no further key: go on with the active one, and move away what was put beside it."
    ),
    StorageFault.MALFORMED: "A key file is malformed: restore it from its backup.",
    StorageFault.ALTERED: (
        "The key ring's file is not as the issuer wrote it: restore the newest backup of its folder as a whole."
    ),
    StorageFault.BUSY: "Another program is changing the key ring: run the command again when that has ended.",
    StorageFault.REPEATED_ROOT: "Two key files hold the same root: remove the copy, then rotate the key.",
    StorageFault.NO_ACTIVE_KEY: (
        "The key ring has no active key: restore the newest backup of the folder, and then rotate the key."
    ),
    StorageFault.TWO_ACTIVE_KEYS: "The key ring has more than one active key: set all but one to open_only.",
    StorageFault.UNBOUND: (
        "The key ring does not say with its own word which ledger it belongs to: restore its folder as a whole."
    ),
    StorageFault.CIPHER_MISSING: (
        "This build of cryptography lacks AES-256-GCM-SIV: install one linked with OpenSSL 3.2 or newer."
    ),
}


class KeysUnavailable(Fault):
    """The key ring cannot be trusted or read; an operator has to act, nothing is sealed or opened meanwhile.

    `str()` is a fixed sentence per reason and names the next step. `path` says which folder or file is meant.
    """

    blame = "world"

    def __init__(self, reason: StorageFault, path: Path) -> None:
        """Remember why and where; neither comes from inside a key file."""
        super().__init__(_KEYS_SENTENCES[reason])
        # The arguments of the constructor stay in `args`, so that pickling across processes rebuilds the
        # fault.
        self.args = (reason, path)
        self.reason = reason
        self.path = path


class KeyUnusable(Fault):
    """The ring has no key of this id, or its state forbids this purpose; the two read alike."""

    blame = "world"

    def __init__(self) -> None:
        """Carry one fixed text."""
        super().__init__("No usable key of this id is in the key ring.")
        self.args = ()


class KeyForbids(Fault):
    """The state of the key named does not allow this change; `reason` is `unknown`, `active` or `revoked`."""

    blame = "caller"

    def __init__(self, reason: str) -> None:
        """Remember why."""
        super().__init__("The state of this key does not allow that change.")
        self.args = (reason,)
        self.reason = reason


class SealBroken(Fault):
    """Sealed bytes that do not open, for whatever reason: the reason is never told (SEC-04)."""

    blame = "world"

    def __init__(self) -> None:
        """Carry one fixed text, and nothing of what was handed in."""
        super().__init__("The seal does not open.")
        self.args = ()


class CommitmentBroken(Fault):
    """A disclosed salt, field and value do not add up to the commitment in the binding (EFF-10)."""

    blame = "caller"

    def __init__(self) -> None:
        """Carry one fixed text, and nothing of what was handed in."""
        super().__init__("The disclosed value does not match its commitment.")
        self.args = ()


class ProtectedContentMissing(Fault):
    """No content is stored for this effect: erased, swept, or never written."""

    blame = "world"

    def __init__(self) -> None:
        """Carry one fixed text."""
        super().__init__("No protected content is stored for this effect.")
        self.args = ()


class ProtectedContentDiffers(Fault):
    """The effect has protected content already, and it is other content: the store is write-once."""

    blame = "us"

    def __init__(self) -> None:
        """Carry one fixed text."""
        super().__init__("Other protected content is already stored for this effect.")
        self.args = ()


class ProtectedContentTooLarge(Fault):
    """The encoded content is over the limit of one effect."""

    blame = "caller"

    def __init__(self) -> None:
        """Carry one fixed text."""
        super().__init__("The protected content of this effect is over the limit.")
        self.args = ()


class ProtectedStoreFull(Fault):
    """The quota of the protected store, or its disk, has no room: preparation is refused (LED-03)."""

    blame = "world"

    def __init__(self) -> None:
        """Carry one fixed text."""
        super().__init__("The protected store is full: end or collect effects, or raise its quota.")
        self.args = ()


class ProtectedStoreUnavailable(Fault):
    """The folder of the protected store cannot be trusted, read or written; an operator has to act."""

    blame = "world"

    def __init__(self, reason: StorageFault, path: Path) -> None:
        """Remember why and where."""
        super().__init__("The protected store cannot be used: run 'issuer doctor' and repair its folder.")
        self.args = (reason, path)
        self.reason = reason
        self.path = path
