"""Files that only the issuer's own account may touch: how they are opened, read and written.

Rules:
1. A folder is opened once, judged by its descriptor, and its files are reached through that descriptor only:
   what was judged is what is used, also when somebody renames things meanwhile.
2. Symbolic links are never followed at the last step. Links further up the path are the operator's own
   layout.
3. Owner and permission bits are judged on open descriptors (SEC-03). A POSIX access list needs no look of its
   own: its mask shows in the group bits.
4. A new file is created exclusively, written in full and synced before anybody may rely on it.

What it does not do: it knows nothing of keys or encryption. It raises `Flaw`, which the two users of this
module turn into errors of their own.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from issuer.sealing.errors import StorageFault

__all__ = [
    "FILE_MODE",
    "FOLDER_MODE",
    "Flaw",
    "create_folder",
    "list_names",
    "opened_folder",
    "read_file",
    "sync",
    "write_new_file",
]

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class Flaw(Exception):  # noqa: N818  a flaw of a file; the room's errors are made from it
    """A folder or file is not as private, plain or readable as it has to be."""

    def __init__(self, fault: StorageFault, name: str = "") -> None:
        """Remember the fault and the name inside the folder (empty: the folder itself)."""
        super().__init__(fault.value)
        self.fault = fault
        self.name = name


def create_folder(path: Path) -> None:
    """Create `path` as a private folder and make its entry durable; an existing one is left as it is.

    Raises:
        Flaw: the folder cannot be created.
    """
    try:
        path.mkdir(mode=FOLDER_MODE)
    except FileExistsError:
        return
    except OSError:
        raise Flaw(StorageFault.UNWRITABLE) from None
    parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync(parent)
    finally:
        os.close(parent)


@contextmanager
def opened_folder(path: Path) -> Iterator[int]:
    """Yield a descriptor of a private folder and close it afterwards.

    Raises:
        Flaw: missing, a link, no folder, of another owner, or with any permission for group or others.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise Flaw(StorageFault.MISSING) from None
    except NotADirectoryError:
        # Linux answers this for a link too when a directory was demanded.
        raise Flaw(StorageFault.SYMLINK if path.is_symlink() else StorageFault.NOT_REGULAR) from None
    except OSError:
        raise Flaw(StorageFault.SYMLINK if path.is_symlink() else StorageFault.UNREADABLE) from None
    try:
        _judge_owner_and_mode(os.fstat(descriptor), "")
        yield descriptor
    finally:
        os.close(descriptor)


def list_names(folder: int) -> list[str]:
    """Return the names in an opened folder, sorted; raises `OSError` as the system reports it."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries)


def read_file(folder: int, name: str, *, bytes_max: int, links_max: int) -> bytes:
    """Return the content of one private file of an opened folder, at most `bytes_max` bytes.

    Raises:
        Flaw: missing, a link, not an ordinary file, of another owner, open to others, with more than
            `links_max` hard links, larger than `bytes_max` (reported as malformed), or unreadable.
    """
    try:
        # O_NONBLOCK keeps a planted FIFO from holding the process until somebody writes to it.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        raise Flaw(StorageFault.MISSING, name) from None
    except OSError:
        raise Flaw(_fault_of_unopened(folder, name), name) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise Flaw(StorageFault.NOT_REGULAR, name)
        _judge_owner_and_mode(status, name)
        if status.st_nlink > links_max:
            raise Flaw(StorageFault.HARD_LINKED, name)
        # Wrapped only now: Python refuses to make a file object of a folder, with an error of its own.
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(bytes_max + 1)
    except OSError:
        raise Flaw(StorageFault.UNREADABLE, name) from None
    finally:
        os.close(descriptor)
    if len(data) > bytes_max:
        raise Flaw(StorageFault.MALFORMED, name)
    return data


def write_new_file(folder: int, name: str, data: bytes) -> None:
    """Create `name` exclusively, write `data`, sync the file; on any failure remove what was begun.

    The folder is not synced here: the caller does that once the name is the final one.

    Raises:
        FileExistsError: the name is taken (also by a dangling link).
        OSError: as the system reports it, with `errno` for the caller to read.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, FILE_MODE, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            sync(descriptor)
    except BaseException:
        os.unlink(name, dir_fd=folder)
        raise


def sync(descriptor: int) -> None:
    """Make a file or folder durable (fsync, POSIX); raises `OSError` as the system reports it."""
    os.fsync(descriptor)


def _judge_owner_and_mode(status: os.stat_result, name: str) -> None:
    if status.st_uid != os.geteuid():
        raise Flaw(StorageFault.FOREIGN_OWNER, name)
    if status.st_mode & _OTHERS:
        raise Flaw(StorageFault.OPEN_TO_OTHERS, name)


def _fault_of_unopened(folder: int, name: str) -> StorageFault:
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except OSError:
        return StorageFault.UNREADABLE
    if stat.S_ISLNK(mode):
        return StorageFault.SYMLINK
    return StorageFault.UNREADABLE if stat.S_ISREG(mode) else StorageFault.NOT_REGULAR
