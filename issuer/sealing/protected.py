"""The protected store: what a binding only commits to, encrypted, one write-once file per effect (LED-03).

Rules:
1. A file is complete and durable under its name before `put` returns: written and synced under a temporary
   name, linked without replacing anything, folder synced. The ledger may refer to it from then on, and never
   before.
2. Write-once: the same content again is fine, other content is refused.
3. Content is sealed under the purpose `protected` and bound to ledger id, effect id and format. A file that
   was moved, exchanged or forged does not open.
4. An effect id becomes a file name only where it matches `[a-z0-9_-]{8,64}`.
5. Two finite quotas, files and bytes. Full means that preparation is refused; nothing is deleted to make
   room.
6. One `flock` on the folder orders everything that changes it, across threads and processes.

What it does not do: decide who may read (the flow asks Cedar), know which effects exist (`sweep` is told), or
wipe bytes from the medium: `erase` unlinks, and copies in backups or on flash are beyond it. Next:
`issuer.flow` puts content here in preparation, and reads it for approvers and for dispatch.
"""

import errno
import fcntl
import hmac
import os
import re
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NoReturn

from issuer.sealing.envelope import OVERHEAD_BYTES, close_envelope, open_envelope
from issuer.sealing.errors import (
    ProtectedContentDiffers,
    ProtectedContentMissing,
    ProtectedContentTooLarge,
    ProtectedStoreFull,
    ProtectedStoreUnavailable,
    SealBroken,
    StorageFault,
)
from issuer.sealing.keys import KeyRing, Purpose
from issuer.sealing.private_files import (
    Flaw,
    create_folder,
    list_names,
    opened_folder,
    read_file,
    sync,
    write_new_file,
)
from issuer.sealing.tally import NEVER_COUNTED, Tally, read_tally, write_tally
from ledger.canonical import canonical_bytes, parse_strict
from ledger.errors import Broken, Malformed

__all__ = [
    "CONTENT_BYTES_MAX",
    "ORPHAN_AGE_MS_MIN",
    "PROTECTED_BYTES_MAX",
    "PROTECTED_FILES_MAX",
    "ProtectedStore",
    "create_protected_folder",
]

CONTENT_BYTES_MAX: Final = 256 * 1024
"""Encoded content of one effect: as much as `ledger.canonical` writes at all."""

PROTECTED_FILES_MAX: Final = 10_000
"""One file for each retained effect record of the default profile (LED-02)."""

PROTECTED_BYTES_MAX: Final = 64 * 1024 * 1024
"""As much as the ledger's own metadata may take (LED-02), so that neither fills the disk for the other."""

ORPHAN_AGE_MS_MIN: Final = 60_000
"""A file waits for the ledger commit that refers to it; no preparation takes a minute."""

_FILE_BYTES_MAX: Final = CONTENT_BYTES_MAX + OVERHEAD_BYTES
_MAGIC: Final = b"PC"
_FORMAT: Final = b"permit-issuer/protected/v1"
_LEDGER_ID: Final = re.compile(r"[A-Za-z0-9_.:/@+-]{1,64}")
_EFFECT_ID: Final = re.compile(r"[a-z0-9_-]{8,64}")
_SEALED_NAME: Final = re.compile(r"([a-z0-9_-]{8,64})\.sealed")
_PART_NAME: Final = re.compile(r"\.[a-z0-9_-]{8,64}\.[0-9a-f]{24}\.part")
_LINKS_MAX: Final = 2
"""A file has its temporary name as a second one until that is removed; a kill may leave both for a while."""

_LOCK_WAIT_S: Final = 10.0
"""Far beyond a folder sync of everybody who may queue, and short enough for a caller to be told (EFF-06)."""

_LOCK_POLL_S: Final = 0.002
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def create_protected_folder(folder: Path) -> None:
    """Create the folder with mode 0700, durably; an existing private folder is left as it is.

    Raises:
        ProtectedStoreUnavailable: it cannot be created, or what is there is not a private folder of this
            account.
    """
    try:
        create_folder(folder)
        with opened_folder(folder):
            return
    except Flaw as flaw:
        raise ProtectedStoreUnavailable(flaw.fault, folder) from None


class ProtectedStore:
    """Protected content by effect id, for one ledger. Threads and processes may share a folder.

    Every method raises `ProtectedStoreUnavailable` where the folder is not private to this account any more
    or the system fails, and `Broken` for an effect id outside its pattern.
    """

    __slots__ = ("_bytes_max", "_files_max", "_folder", "_ledger_id", "_ring")

    def __init__(
        self,
        folder: Path,
        ring: KeyRing,
        ledger_id: str,
        *,
        files_max: int = PROTECTED_FILES_MAX,
        bytes_max: int = PROTECTED_BYTES_MAX,
    ) -> None:
        """Take a private folder that exists (`create_protected_folder`); nothing is created by accident."""
        if type(ledger_id) is not str or _LEDGER_ID.fullmatch(ledger_id) is None:
            raise Broken("A protected store belongs to one ledger with a plain id.")
        if files_max < 1 or bytes_max < 1:
            raise Broken("The quotas of a protected store are whole numbers from 1.")
        self._folder = folder
        self._ring = ring
        self._ledger_id = ledger_id
        self._files_max = files_max
        self._bytes_max = bytes_max
        with self._opened():
            # Opening judges owner and mode, so that a store that cannot serve is told at the start.
            pass

    def __repr__(self) -> str:
        """Show limits only."""
        return f"ProtectedStore(files_max={self._files_max}, bytes_max={self._bytes_max})"

    def put(self, effect_id: str, content: Mapping[str, object], nonce: bytes) -> None:
        """Store the content of one effect, durable when this returns.

        `content` has a canonical encoding of at most 256 KiB; `nonce` is 12 random bytes drawn by the caller.

        Raises:
            ProtectedContentDiffers: the effect has other content already.
            ProtectedContentTooLarge: the encoding is over the limit.
            ProtectedStoreFull: a quota or the disk has no room; nothing was stored.
            SealBroken: what is stored for this effect does not open.
            ledger.errors.Malformed: the content has no canonical encoding.
        """
        name = _file_name(effect_id)
        plaintext = _encode(content)
        bound = self._bound(effect_id)
        sealed = close_envelope(
            self._ring, Purpose.PROTECTED, magic=_MAGIC, plaintext=plaintext, nonce=nonce, bound=bound
        )
        part = f".{effect_id}.{nonce.hex()}.part"
        with self._opened() as folder:
            with _locked(folder):
                if self._is_stored(folder, effect_id, plaintext):
                    return
                # Judged before the bytes are written as well: a refused caller costs no disk.
                self._demand_room(folder, len(sealed))
            # Written outside the lock: the sync of one effect does not hold up the others.
            write_new_file(folder, part, sealed)
            try:
                with _locked(folder):
                    if self._is_stored(folder, effect_id, plaintext):
                        return
                    tally = self._demand_room(folder, len(sealed))
                    # Counted before it is linked: a kill in between counts one too many, never one too few.
                    write_tally(folder, tally.plus(len(sealed)))
                    os.link(part, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(part, dir_fd=folder)
            sync(folder)

    def get(self, effect_id: str) -> Mapping[str, object]:
        """Return the content of one effect.

        Raises:
            ProtectedContentMissing: none is stored.
            SealBroken: what is stored is not what was put for this effect in this ledger.
        """
        _file_name(effect_id)
        with self._opened() as folder:
            plaintext = self._read(folder, effect_id)
        if plaintext is None:
            raise ProtectedContentMissing
        content = _decode(plaintext)
        if content is None:
            raise SealBroken
        return content

    def erase(self, effect_id: str, *, durable: bool = True) -> None:
        """Remove the content of one effect; no content is fine.

        Where it need not be `durable` no sync is made: a power cut may bring the file back, and a sweep removes it.
        """
        name = _file_name(effect_id)
        with self._opened() as folder:
            with _locked(folder):
                try:
                    size = os.stat(name, dir_fd=folder, follow_symlinks=False).st_size
                    os.unlink(name, dir_fd=folder)
                except FileNotFoundError:
                    return
                # Counted after it is gone, for the reason given in `put`.
                tally = read_tally(folder)
                write_tally(folder, _count(folder) if tally is NEVER_COUNTED else tally.minus(size))
            if durable:
                sync(folder)

    def sweep(self, known: Collection[str], *, now_ms: int, age_ms: int) -> int:
        """Remove what no effect refers to and is at least `age_ms` old; return how many files went.

        `known` are the ids of all effects that may still need content, read by the caller before this call;
        `now_ms` is UTC in milliseconds since 1970. A file from the future (a clock that went back) is kept.
        Files with foreign names are left alone. The quotas are counted afresh.

        Raises:
            Broken: `age_ms` is under a minute (a preparation under way could lose its content), or `known` is
                one text (whose single characters would make every file an orphan).
        """
        if age_ms < ORPHAN_AGE_MS_MIN or isinstance(known, str):
            raise Broken("A sweep takes a collection of effect ids and an age of at least one minute.")
        kept = frozenset(known)
        removed = 0
        with self._opened() as folder:
            with _locked(folder):
                for name in list_names(folder):
                    if not _may_go(name, kept):
                        continue
                    modified_ms = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime_ns // 1_000_000
                    if modified_ms + age_ms <= now_ms:
                        os.unlink(name, dir_fd=folder)
                        removed += 1
                write_tally(folder, _count(folder))
            sync(folder)
        return removed

    @contextmanager
    def _opened(self) -> Iterator[int]:
        try:
            with opened_folder(self._folder) as folder:
                yield folder
        except Flaw as flaw:
            raise ProtectedStoreUnavailable(flaw.fault, self._folder / flaw.name) from None
        except OSError as error:
            _raise_world_fault(error, self._folder)

    def _bound(self, effect_id: str) -> tuple[bytes, ...]:
        return self._ledger_id.encode("ascii"), effect_id.encode("ascii"), _FORMAT

    def _read(self, folder: int, effect_id: str) -> bytes | None:
        """Return the opened plaintext, or `None` where no file is there."""
        name = _file_name(effect_id)
        flaw: StorageFault | None = None
        sealed = b""
        try:
            sealed = read_file(folder, name, bytes_max=_FILE_BYTES_MAX, links_max=_LINKS_MAX)
        except Flaw as found:
            flaw = found.fault
        if flaw is StorageFault.MISSING:
            return None
        if flaw is StorageFault.UNREADABLE:
            raise ProtectedStoreUnavailable(flaw, self._folder / name)
        plaintext = open_envelope(
            self._ring, Purpose.PROTECTED, magic=_MAGIC, sealed=sealed, bound=self._bound(effect_id)
        )
        # A link, a FIFO, a foreign owner or open bits: this store never wrote that. It was not read, so it
        # does not open, and it is answered like any other forgery.
        if plaintext is None:
            raise SealBroken
        return plaintext

    def _is_stored(self, folder: int, effect_id: str, plaintext: bytes) -> bool:
        """Return whether exactly this is stored, durable and safe from a sweep; call under the lock."""
        stored = self._read(folder, effect_id)
        if stored is None:
            return False
        if not hmac.compare_digest(stored, plaintext):
            raise ProtectedContentDiffers
        # An orphan of an earlier attempt becomes young again, so that a sweep leaves it to the coming commit.
        os.utime(_file_name(effect_id), dir_fd=folder, follow_symlinks=False)
        # Whoever linked it may have been killed before its folder was synced.
        sync(folder)
        return True

    def _demand_room(self, folder: int, size: int) -> Tally:
        """Return the tally where one more file of `size` bytes fits; call under the lock."""
        tally = read_tally(folder)
        if tally is NEVER_COUNTED or not self._fits(tally, size):
            # A tally may count too many after a kill, so a refusal is never based on it alone.
            tally = _count(folder)
            write_tally(folder, tally)
        if not self._fits(tally, size):
            raise ProtectedStoreFull
        return tally

    def _fits(self, tally: Tally, size: int) -> bool:
        return tally.files + 1 <= self._files_max and tally.size_bytes + size <= self._bytes_max


@contextmanager
def _locked(folder: int) -> Iterator[None]:
    # The lock belongs to the open description, so two threads of one process exclude each other as well.
    # Holders make a few system calls and at most one folder sync; a killed holder frees it.
    # One that is stopped keeps it, so the wait has an end: `BlockingIOError` is the world's fault like any other.
    until = time.monotonic() + _LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() >= until:
                raise
        time.sleep(_LOCK_POLL_S)
    try:
        yield
    finally:
        fcntl.flock(folder, fcntl.LOCK_UN)


def _file_name(effect_id: str) -> str:
    if type(effect_id) is not str or _EFFECT_ID.fullmatch(effect_id) is None:
        raise Broken(
            "An effect id that names a protected file is 8 to 64 characters of a-z, 0-9, '_' and '-'."
        )
    return f"{effect_id}.sealed"


def _may_go(name: str, kept: frozenset[str]) -> bool:
    sealed = _SEALED_NAME.fullmatch(name)
    if sealed is not None:
        return sealed[1] not in kept
    return _PART_NAME.fullmatch(name) is not None


def _count(folder: int) -> Tally:
    with os.scandir(folder) as entries:
        sizes = [
            entry.stat(follow_symlinks=False).st_size
            for entry in entries
            if _SEALED_NAME.fullmatch(entry.name)
        ]
    return Tally(files=len(sizes), size_bytes=sum(sizes))


def _encode(content: Mapping[str, object]) -> bytes:
    too_large = False
    try:
        plaintext = canonical_bytes(dict(content))
    except Malformed as fault:
        if fault.code != "too_large":
            raise
        plaintext, too_large = b"", True
    if too_large or len(plaintext) > CONTENT_BYTES_MAX:
        raise ProtectedContentTooLarge
    return plaintext


def _decode(plaintext: bytes) -> dict[str, object] | None:
    try:
        content = parse_strict(plaintext, bytes_max=CONTENT_BYTES_MAX)
    except Malformed:
        return None
    return content if type(content) is dict else None


def _raise_world_fault(error: OSError, folder: Path) -> NoReturn:
    if error.errno in _NO_ROOM:
        raise ProtectedStoreFull from None
    reason = (
        StorageFault.UNWRITABLE
        if error.errno in {errno.EROFS, errno.EACCES, errno.EPERM}
        else StorageFault.UNREADABLE
    )
    raise ProtectedStoreUnavailable(reason, folder) from None
