"""File inspection: what one directory entry shows about an effect on it, whoever made the change (REC-01, REC-02).

Decides what counts as this effect's own, and when the old state proves that nothing happened (ADR-0018):

- *found*: the entry holds exactly the content that this effect would have written, in the directory that was pinned;
  of a deletion, that there is no entry. Where others can write in the directory too, only a content that carries the
  effect's id is ours; otherwise it is unclear.
- *absent*, of a replacement or deletion: the very file that was pinned is there, untouched. Its change time (ctime)
  is pinned as well, since a file that somebody restored can have the old number and the old content.
- *absent*, of a creation: no entry, and the directory's change time is the pinned one. A file that was made and taken
  away again by whoever waited for it leaves no entry either, but it changes the directory: that is unclear.
- Everything else differs, or is unclear where something could not be read. A staged name never counts.

Absence needs a file system of this machine: what a dead process asked a server for may still be carried out.
Nothing here changes the entry. Next: `issuer.operations.file_adapter` asks; reconciliation judges.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from issuer.operations.contract import Seen
from issuer.operations.file_place import (
    FILE_BYTES_MAX,
    READ_BYTES,
    Place,
    change_stamp,
    identity,
)

LOCAL_FILE_SYSTEMS: Final = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "tmpfs", "overlay"},
)
"""File systems that end what a process asked for together with the process. Any other is taken for a remote one."""

_MOUNTS: Final = Path("/proc/self/mountinfo")
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What is looked for.

    Attributes:
        directory: change stamp of the directory when it was pinned, or None where none was pinned.
        old: what was pinned of the old file (`file`, `size`, `sha256`, `mode`, `changed`); None for a creation.
        new: the content that the effect would have written; None for a deletion.
        names_effect: whether that content carries the effect's id, so that nobody else wrote it.
    """

    directory: object
    old: Mapping[str, object] | None
    new: bytes | None
    names_effect: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    identity: str
    owner: int
    size: int
    sha256: str
    mode: str
    changed: str


def look_at_entry(place: Place, expected: Expected, is_in_time: Callable[[], bool]) -> Seen:
    """Return what the entry shows; `is_in_time` ends a long reading as unclear.

    What is found may be the work of a sender that died before it could sync; said to be there, it has to stay.

    Raises:
        OSError: the entry cannot be read, or the directory not be synced.
    """
    seen = _seen(place, expected, is_in_time)
    if seen is Seen.FOUND:
        os.fsync(place.directory_fd)
    return seen if is_in_time() else Seen.UNCLEAR


def _seen(place: Place, expected: Expected, is_in_time: Callable[[], bool]) -> Seen:
    try:
        entry = os.stat(place.name, dir_fd=place.directory_fd, follow_symlinks=False)
    except FileNotFoundError:
        return _without_entry(place, expected)
    if not stat.S_ISREG(entry.st_mode) or entry.st_size > FILE_BYTES_MAX:
        return Seen.DIFFERS
    found = _read(place, is_in_time)
    if found is None:
        return Seen.UNCLEAR
    if expected.old is not None and _is_old(found, expected.old):
        return Seen.ABSENT if is_local(place) else Seen.UNCLEAR
    return _with_new(place, expected, found)


def _without_entry(place: Place, expected: Expected) -> Seen:
    """Judge that nothing has this name."""
    if expected.new is None:
        return Seen.FOUND if place.is_private else Seen.UNCLEAR
    if expected.old is not None:
        return Seen.DIFFERS
    is_untouched = change_stamp(os.fstat(place.directory_fd)) == expected.directory
    return Seen.ABSENT if is_untouched and is_local(place) else Seen.UNCLEAR


def _with_new(place: Place, expected: Expected, found: _Found) -> Seen:
    """Judge a file that is not the old one."""
    is_old_one = expected.old is not None and found.identity == expected.old.get("file")
    if expected.new is None or is_old_one or found.owner != os.geteuid():
        return Seen.DIFFERS
    if (found.size, found.sha256) != (len(expected.new), hashlib.sha256(expected.new).hexdigest()):
        return Seen.DIFFERS
    return Seen.FOUND if place.is_private or expected.names_effect else Seen.UNCLEAR


def _is_old(found: _Found, old: Mapping[str, object]) -> bool:
    """Whether this is the very file that was pinned, and nobody touched it since."""
    seen = {
        "file": found.identity,
        "size": found.size,
        "sha256": found.sha256,
        "mode": found.mode,
        "changed": found.changed,
    }
    return all(old.get(name) == value for name, value in seen.items())


def _read(place: Place, is_in_time: Callable[[], bool]) -> _Found | None:
    """Read all of it through one descriptor; None where it changed meanwhile or the time was over."""
    descriptor = os.open(place.name, _FLAGS, dir_fd=place.directory_fd)
    try:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode):
            return None
        hasher, size = hashlib.sha256(), 0
        while size <= FILE_BYTES_MAX and is_in_time() and (block := os.read(descriptor, READ_BYTES)):
            size += len(block)
            hasher.update(block)
        after = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    if not is_in_time() or size != before.st_size or change_stamp(before) != change_stamp(after):
        return None
    return _Found(
        identity=identity(before),
        owner=before.st_uid,
        size=size,
        sha256=hasher.hexdigest(),
        mode=f"{stat.S_IMODE(before.st_mode):04o}",
        changed=change_stamp(before),
    )


def is_local(place: Place) -> bool:
    """Whether the directory is on a file system of this machine; where the system does not say, it is not."""
    device = os.fstat(place.directory_fd).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    halves = (line.partition(" - ") for line in lines)
    kinds = {right.split()[0] for left, _, right in halves if left.split()[2] == wanted}
    return bool(kinds) and kinds <= LOCAL_FILE_SYSTEMS
