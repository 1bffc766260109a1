"""The notes that were signed, one file each, and their copies elsewhere.

Rules: AUD-04 (C2SP signed notes; a copy that is kept elsewhere is what proves a rollback). A note is a file named by
epoch and size, which is written once; `latest` is the newest of them again. What a name says is a place to look, what
counts is the note, and only one that a key of this ring signed, for this ledger, counts: also a revoked key's, since a
tree must not get smaller after a revocation either.
A copy has the ledger's first digits before the name, so that several issuers may share a folder. Copies are taken
whenever a checkpoint is made, oldest first; one that is there already is never written again.
Next: `issuer.checkpoints.proof`.
"""

import errno
import os
import re
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from audit.errors import NoteRefused
from audit.notes import (
    Checkpoint,
    VerifierKey,
    checkpoint_text,
    ledger_origin,
    opened_checkpoint,
    signed,
    vkey,
)
from issuer.checkpoints.errors import CheckpointRefused
from issuer.sealing import KeyRing, checkpoint_public_key, is_ed25519_signature, sign_checkpoint
from issuer.sealing.private_files import Flaw, list_names, read_file, sync, write_new_file
from ledger.model import LedgerId
from ledger.tree import Frontier

__all__ = ["Copies", "Kept", "Notes", "copied", "copies_state", "newest_copy", "vkeys"]

LATEST_NAME: Final = "latest"
_NOTE_BYTES_MAX: Final = 4 * 1024
"""Ten times what a checkpoint with its one signature has; a copy with the signatures of witnesses is longer."""

_NAME: Final = re.compile(r"([0-9]{4,16})-([0-9]{12,16})\.note")
SHOWN: Final = slice(4, 12)

COPIED_MAX: Final = 512
"""Copies that are made at a time, so that a folder that comes back after long keeps nobody long."""

LOOKED_MAX: Final = 64
"""Newest copies that are held against their notes, byte for byte."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Kept:
    """A note in a folder, as its name says: of which epoch, over how many spans."""

    epoch: int
    size: int

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.epoch:04d}-{self.size:012d}.note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """How copies stand.

    Attributes:
        folder: where they are kept; None where the owner wants none.
        missing: how many notes are not there.
        trouble: `missing`, `unreadable`, `full`, `unwritable`, `different`, `slow`, or empty where all is well.
    """

    folder: str | None = None
    missing: int = 0
    trouble: str = ""


def vkeys(ring: KeyRing, ledger_id: LedgerId) -> dict[int, str]:
    """Return what checkpoints of this ledger are verified with, by key id, the active one first."""
    name, active = ledger_origin(ledger_id), ring.active_key_id
    ids = sorted(ring.key_ids, key=lambda key_id: (key_id != active, key_id))
    return {key_id: vkey(name, checkpoint_public_key(ring, key_id)) for key_id in ids}


class Notes:
    """The notes of one ledger in its own folder, and what it takes to make and to verify one."""

    def __init__(self, folder: int, ring: KeyRing, ledger_id: LedgerId) -> None:
        """Work in an opened private folder."""
        self._folder = folder
        self._ring = ring
        self._ledger_id = ledger_id

    def kept(self) -> list[Kept]:
        """Return the notes that the folder names, oldest first."""
        return _kept(list_names(self._folder), "")

    def read(self, kept: Kept) -> tuple[int, Checkpoint]:
        """Return the id of the key that signed a note, and what it says.

        Raises:
            CheckpointRefused: it is not signed by this ring, for this ledger, and as its name says.
            Flaw: it is not a private file.
        """
        found = _verified(self.bytes_of(kept), _keys(self._ring, self._ledger_id))
        if found is None or found[1].size != kept.size:
            raise CheckpointRefused("note_altered")
        return found

    def bytes_of(self, kept: Kept) -> bytes:
        """Return the bytes of a note.

        Raises:
            Flaw: it is missing, or not a private file.
        """
        return read_file(self._folder, kept.name, bytes_max=_NOTE_BYTES_MAX, links_max=1)

    def sign(self, kept: Kept, tree: Frontier) -> tuple[int, bytes]:
        """Sign a tree, and return the key's id and the note; nothing is written."""
        name = ledger_origin(self._ledger_id)
        text = checkpoint_text(name, kept.size, tree.root())
        key_id, signature = sign_checkpoint(self._ring, text.encode())
        return key_id, signed(text, name, checkpoint_public_key(self._ring, key_id), signature)

    def keep(self, kept: Kept, note: bytes) -> bytes:
        """Write a note under its name, durable when this returns; one that is there already stays, and is returned.

        Raises:
            CheckpointRefused, Flaw: one is there already, and is none of this ring's for this size.
            OSError: as the system reports it; nothing stands under the name.
        """
        if kept in self.kept():
            self.read(kept)
            return self.bytes_of(kept)
        self._replace(kept.name, note)
        return note

    def point(self, note: bytes) -> None:
        """Make `note` the latest.

        Raises:
            OSError: as the system reports it; the one before stands.
        """
        self._replace(LATEST_NAME, note)

    def _replace(self, name: str, note: bytes) -> None:
        draft = f"{name}.new"
        with suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=self._folder)
        write_new_file(self._folder, draft, note)
        os.rename(draft, name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        sync(self._folder)


def newest_copy(folder: Path, ring: KeyRing, ledger_id: LedgerId) -> tuple[Kept, Checkpoint] | None:
    """Return the newest copy that this ring signed for this ledger; None where there is none, or no folder.

    One that somebody else put there hides none, and neither do many: they are passed over, as far as the time goes that
    whoever asks gives.
    """
    prefix, keys = _prefix(ledger_id), _keys(ring, ledger_id)
    try:
        named = _kept(_names(folder), prefix)
    except OSError:
        return None
    for kept in reversed(named):
        try:
            data = _public_bytes(folder / (prefix + kept.name))
        except OSError:
            continue
        found = _verified(data, keys)
        if found is not None and found[1].size == kept.size:
            return kept, found[1]
    return None


def copied(notes: Notes, folder: Path, ledger_id: LedgerId) -> Copies:
    """Copy what is missing to `folder`, and say how that stands then; it is not made where it is missing."""
    prefix = _prefix(ledger_id)
    try:
        there = set(_kept(_names(folder), prefix))
        missing = [kept for kept in notes.kept() if kept not in there]
        for kept in missing[:COPIED_MAX]:
            _copy(notes.bytes_of(kept), folder, prefix + kept.name)
        if missing:
            _sync_folder(folder)
    except (OSError, Flaw) as fault:
        state = copies_state(notes, folder, ledger_id)
        return Copies(folder=str(folder), missing=state.missing, trouble=state.trouble or _why(fault))
    return copies_state(notes, folder, ledger_id)


def copies_state(notes: Notes, folder: Path, ledger_id: LedgerId) -> Copies:
    """Say how copies stand; the newest are held against their notes, byte for byte."""
    prefix, own = _prefix(ledger_id), notes.kept()
    try:
        there = set(_kept(_names(folder), prefix))
    except OSError as fault:
        return Copies(folder=str(folder), missing=len(own), trouble=_why(fault))
    trouble = ""
    for kept in [one for one in own if one in there][-LOOKED_MAX:]:
        try:
            if _public_bytes(folder / (prefix + kept.name)) != notes.bytes_of(kept):
                trouble = "different"
        except (OSError, Flaw) as fault:
            trouble = _why(fault)
    return Copies(folder=str(folder), missing=sum(one not in there for one in own), trouble=trouble)


def _copy(note: bytes, folder: Path, name: str) -> None:
    """Write a copy beside, sync it, and give it its name in one step; a name that is taken is left alone."""
    draft = folder / f".{name}.{os.getpid()}.{threading.get_ident()}.new"
    draft.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        # Readable for whoever the folder lets in: a checkpoint is made to be shown.
        with os.fdopen(os.open(draft, flags, 0o644), "wb") as file:
            file.write(note)
            file.flush()
            sync(file.fileno())
        try:
            os.link(draft, folder / name)
        except FileExistsError:
            return
        except OSError as fault:
            if fault.errno not in {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}:
                raise
            # A file system without hard links; only processes of this issuer write this name, and all the same bytes.
            if not os.path.lexists(folder / name):
                draft.rename(folder / name)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def _keys(ring: KeyRing, ledger_id: LedgerId) -> dict[int, VerifierKey]:
    name = ledger_origin(ledger_id)
    return {
        key_id: VerifierKey(name=name, public_key=checkpoint_public_key(ring, key_id))
        for key_id in ring.key_ids
    }


def _verified(data: bytes, keys: Mapping[int, VerifierKey]) -> tuple[int, Checkpoint] | None:
    for key_id, key in keys.items():
        try:
            return key_id, opened_checkpoint(data, key, is_ed25519_signature)
        except NoteRefused:
            continue
    return None


def _kept(names: Iterable[str], prefix: str) -> list[Kept]:
    found = []
    for name in names:
        match = _NAME.fullmatch(name.removeprefix(prefix)) if name.startswith(prefix) else None
        if match is not None and (kept := Kept(epoch=int(match[1]), size=int(match[2]))).name == match[0]:
            found.append(kept)
    return sorted(found)


def _names(folder: Path) -> list[str]:
    """Return the names in a folder elsewhere; raises `OSError` as the system reports it."""
    return [path.name for path in folder.iterdir()]


def _prefix(ledger_id: LedgerId) -> str:
    return f"{ledger_id[SHOWN]}-"


def _public_bytes(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:  # what cannot be a file, such as a folder, makes `fdopen` raise and leaves its descriptor open
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(_NOTE_BYTES_MAX)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def _why(fault: OSError | Flaw) -> str:
    if isinstance(fault, Flaw):
        return "unreadable"
    if fault.errno in {errno.ENOENT, errno.ENOTDIR}:
        return "missing"
    if fault.errno in {errno.ENOSPC, errno.EDQUOT}:
        return "full"
    return "unreadable" if fault.errno == errno.EACCES else "unwritable"
