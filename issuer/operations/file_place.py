"""File place: finds one file below an owner's root without following anything on the way.

Decides which directory entry a path means. Rules (EFF-02): the path is relative and plain; each directory is
opened from the one before it, never by a longer name, and never through a symbolic link; what is found is
named by device and inode, so a directory or file that was exchanged later is another one (EFF-07). OPR-04:
replacing and deleting check first and write then, so their whole way is writable by this account alone.

This module changes nothing. Next: `issuer.operations.file_adapter`.
"""

import hashlib
import os
import stat
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DEPTH_MAX: Final = 32
"""Components of a path: as deep as any document of ours."""

NAME_BYTES_MAX: Final = 255
"""Bytes of one name on the common file systems (NAME_MAX)."""

FILE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of a file that may be replaced or deleted: it is read at preparation and before the write."""

STAGED_PREFIX: Final = ".permit-staged-"
"""Names that the adapter writes to first; no path of an actor may begin one of its names like this."""

READ_BYTES: Final = 1024 * 1024
"""Bytes of one read."""

_HIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_DIRECTORY_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


class PlaceRefusedError(Exception):
    """The path means nothing that could be used; `code` is a stable word, and no name stands in it."""

    def __init__(self, code: str) -> None:
        """Keep the word."""
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A directory entry: open descriptor of its directory, identities of root and directory, and the name.

    `is_private` says that root and every directory down to this one belong to this account and are writable
    by it alone.
    """

    directory_fd: int
    root: str
    directory: str
    name: str
    is_private: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A regular file that was read through an open descriptor; size in bytes, digest in hex.

    `changed` tells a file that was restored, with the old content and even the old number, from one left alone.
    """

    identity: str
    size: int
    sha256: str
    mode: int
    modified_ns: int
    changed: str


def identity(found: os.stat_result) -> str:
    """Return device and inode as text, as the inodes of some file systems are beyond 2^53."""
    return f"{found.st_dev}:{found.st_ino}"


def change_stamp(found: os.stat_result) -> str:
    """Return the change time (ctime), which no program can set, in nanoseconds; as text, as it is beyond 2^53."""
    return str(found.st_ctime_ns)


def split_path(path: str) -> tuple[str, ...]:
    """Return the components of a plain relative path.

    Raises:
        PlaceRefusedError: `path_not_plain`: absolute, empty, a trailing slash, an empty component, `.` or
            `..`, a control, format or separator character that an approver would not see, a name or path
            over its bound, or a name of the adapter's own.
    """
    names = tuple(path.split("/"))
    if len(names) > DEPTH_MAX or any(_is_unusable(name) for name in names):
        raise PlaceRefusedError("path_not_plain")
    return names


def _is_unusable(name: str) -> bool:
    """Whether this can be no name of ours."""
    if name in {"", ".", ".."} or name.startswith(STAGED_PREFIX):
        return True
    if any(unicodedata.category(character) in _HIDDEN_CATEGORIES for character in name):
        return True
    return len(name.encode("utf-8")) > NAME_BYTES_MAX


@contextmanager
def open_place(root: Path, names: tuple[str, ...]) -> Iterator[Place]:
    """Open the directory of a path, component by component, and close it at the end.

    Raises:
        PlaceRefusedError: `root_missing`, `directory_missing`, or `path_through_link` where a component is a
            symbolic link or no directory.
    """
    try:
        current = os.open(root, _DIRECTORY_FLAGS)
    except OSError:
        raise PlaceRefusedError("root_missing") from None
    try:
        found = os.fstat(current)
        root_identity, is_private = identity(found), is_own(found)
        for name in names[:-1]:
            inner = _open_directory(name, current)
            os.close(current)
            current = inner
            found = os.fstat(current)
            is_private = is_private and is_own(found)
        yield Place(
            directory_fd=current,
            root=root_identity,
            directory=identity(found),
            name=names[-1],
            is_private=is_private,
        )
    finally:
        os.close(current)


def _open_directory(name: str, directory_fd: int) -> int:
    """Open one component below an open directory."""
    try:
        return os.open(name, _DIRECTORY_FLAGS, dir_fd=directory_fd)
    except FileNotFoundError:
        code = "directory_missing"
    except OSError:
        # ELOOP for a link, ENOTDIR for a file; everything else cannot be used either.
        code = "path_through_link"
    raise PlaceRefusedError(code)


def is_own(found: os.stat_result) -> bool:
    """Whether this account owns it and nobody else may write to it; an ACL shows in the group bits."""
    return found.st_uid == os.geteuid() and not found.st_mode & _OTHERS_WRITE


def entry_identity(place: Place) -> str | None:
    """Return the identity of whatever has this name, a link itself included, or None."""
    try:
        return identity(os.stat(place.name, dir_fd=place.directory_fd, follow_symlinks=False))
    except FileNotFoundError:
        return None


@contextmanager
def open_content(place: Place) -> Iterator[tuple[int, Content]]:
    """Open and digest the file of this name; the descriptor stays open as proof of which file it was.

    Raises:
        PlaceRefusedError: `file_missing`; `file_not_plain` for a link, a device or whatever else is no
            regular file; `file_has_other_names` for a hard link, as nobody approved what happens under the
            others; `file_not_private`; `file_too_large`.
    """
    try:
        descriptor = os.open(place.name, _FILE_FLAGS, dir_fd=place.directory_fd)
    except FileNotFoundError:
        code = "file_missing"
    except OSError:
        code = "file_not_plain"
    else:
        try:
            yield descriptor, _read_content(descriptor)
        finally:
            os.close(descriptor)
        return
    raise PlaceRefusedError(code)


def _read_content(descriptor: int) -> Content:
    """Check what was opened, then read all of it."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise PlaceRefusedError("file_not_plain")
    if found.st_nlink != 1:
        raise PlaceRefusedError("file_has_other_names")
    if not is_own(found):
        raise PlaceRefusedError("file_not_private")
    hasher, size = hashlib.sha256(), 0
    while block := os.read(descriptor, READ_BYTES):
        size += len(block)
        if size > FILE_BYTES_MAX:
            raise PlaceRefusedError("file_too_large")
        hasher.update(block)
    return Content(
        identity=identity(found),
        size=size,
        sha256=hasher.hexdigest(),
        mode=stat.S_IMODE(found.st_mode),
        modified_ns=found.st_mtime_ns,
        changed=change_stamp(found),
    )
