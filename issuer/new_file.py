"""A file that is taken away: it has its name only once it is whole, durable and on record, and replaces nothing.

Rules: AUD-06 (an export is on record before it is there), SEC-03 (owner only). It is made without a
name, or under one of its own in the same folder, and linked to the one that was asked for, which fails where something
has that.
Next: `issuer.commands.audit_files`.
"""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from issuer.ids import random_bytes
from ledger.errors import Malformed

FILE_MODE: Final = 0o600
_NAMELESS: Final = os.O_RDWR | getattr(os, "O_TMPFILE", 0) | os.O_CLOEXEC
_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_READ_BYTES: Final = 1024 * 1024


class NewFile:
    """A file in the making."""

    def __init__(self, target: Path, part: Path, fd: int, *, is_named: bool = True) -> None:
        """Use `new_file`."""
        self._target, self.part = target, part
        self._fd, self._is_named = fd, is_named
        self._hash = hashlib.sha256()

    def write(self, data: bytes) -> None:
        """Add to it.

        Raises:
            Malformed: `unwritable`.
        """
        self._hash.update(data)
        view = memoryview(data)
        with _told(self._target):
            while view:
                view = view[os.write(self._fd, view) :]

    @property
    def digest(self) -> str:
        """SHA-256 of what was written, in hex."""
        return self._hash.hexdigest()

    def read_digest(self) -> str:
        """Return SHA-256 of the file as it is, in hex: for one that somebody else wrote."""
        hashed = hashlib.sha256()
        with self.part.open("rb") as file:
            while piece := file.read(_READ_BYTES):
                hashed.update(piece)
        return hashed.hexdigest()

    def publish(self, record: Callable[[], bool], *, mode: int = FILE_MODE) -> bool:
        """Make it durable, let `record` put it on record, then give it its name; return what `record` did.

        Raises:
            Malformed: `exists` or `unwritable`; whatever `record` raises. There is no file then.
        """
        with _told(self._target):
            os.fchmod(self._fd, mode)
            os.fsync(self._fd)
        recorded = record()
        with _told(self._target):
            self._link()
            _sync_folder(self._target.parent)
        return recorded

    def _link(self) -> None:
        if self._is_named:
            os.link(self.part, self._target, follow_symlinks=False)
            self.part.unlink()
            return
        folder = os.open(self._target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # With a folder, `os.link` follows the link that stands for the descriptor.
            os.link(f"/proc/self/fd/{self._fd}", self._target.name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            os.close(folder)


@contextmanager
def new_file(target: Path, *, is_named: bool = False) -> Iterator[NewFile]:
    """Make a private file that will be called `target`; what was not published is gone afterwards.

    It has no name at all until it is published, so that a process that is killed leaves nothing behind; where the file
    system has no such files, or with `is_named`, it has one of its own in the same folder, `part`.

    Raises:
        Malformed: `exists`, or `unwritable`.
    """
    target = target.absolute()
    part = target.with_name(f".{target.name[:64]}.{random_bytes(8).hex()}.part")
    with _told(target):
        if os.path.lexists(target):
            raise FileExistsError
        nameless = None if is_named else _nameless(target.parent)
        fd = os.open(part, _FLAGS, FILE_MODE) if nameless is None else nameless
    try:
        yield NewFile(target, part, fd, is_named=nameless is None)
    finally:
        os.close(fd)
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _nameless(folder: Path) -> int | None:
    """Return a file without a name in a folder; None where it cannot have one, or could not be given one later."""
    if not Path("/proc/self/fd").is_dir():
        return None
    try:
        return os.open(folder, _NAMELESS, FILE_MODE)
    except OSError:
        return None


@contextmanager
def _told(target: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError:
        say = f"there is already something at {target.name}; name a new file"
        raise Malformed("exists", "out", say) from None
    except OSError as fault:
        say = f"the file {target.name} cannot be written: {fault.strerror}"
        raise Malformed("unwritable", "out", say) from None


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


__all__ = ["NewFile", "new_file"]
