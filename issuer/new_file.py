"""A file that is taken away: it has its name only once it is whole, durable and on record, and replaces nothing.

Rules: AUD-06 (an export is on record before it is there), SEC-03 (owner only). It is made under a name of its own in
the same folder, and linked to the one that was asked for, which fails where something has that.
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
_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_READ_BYTES: Final = 1024 * 1024


class NewFile:
    """A file in the making."""

    def __init__(self, target: Path, part: Path, fd: int) -> None:
        """Use `new_file`."""
        self._target, self.part = target, part
        self._fd = fd
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
            os.link(self.part, self._target, follow_symlinks=False)
            self.part.unlink()
            _sync_folder(self._target.parent)
        return recorded


@contextmanager
def new_file(target: Path) -> Iterator[NewFile]:
    """Make a private file that will be called `target`; what was not published is gone afterwards.

    Raises:
        Malformed: `exists`, or `unwritable`.
    """
    target = target.absolute()
    part = target.with_name(f".{target.name[:64]}.{random_bytes(8).hex()}.part")
    with _told(target):
        if os.path.lexists(target):
            raise FileExistsError
        fd = os.open(part, _FLAGS, FILE_MODE)
    try:
        yield NewFile(target, part, fd)
    finally:
        os.close(fd)
        with suppress(OSError):
            part.unlink(missing_ok=True)


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
