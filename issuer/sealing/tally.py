"""How many files the protected store holds and how many bytes, without looking at each one.

Rules:
1. Counting ten thousand files for each effect would make every one of them slower as the store fills
   (LED-07), so the sum stands in one small file of the folder, read and written under the folder's lock.
2. It is written before a file appears and after a file is gone, so a kill leaves it too high, never too low.
3. It is not synced. After a power loss it may miss the last files; a sweep, or a full store, counts afresh.
4. It bounds a quota and nothing else: whatever is in it, no content is opened, believed or deleted because of
   it.

Next: `issuer.sealing.protected` decides on it.
"""

import os
import re
from dataclasses import dataclass
from typing import Final

from issuer.sealing.private_files import FILE_MODE

__all__ = ["NEVER_COUNTED", "Tally", "read_tally", "write_tally"]

_NAME: Final = ".tally"
_BYTES: Final = 42
"""Two numbers of 20 digits, a space and a line end: one length, so that a write replaces all that was
there."""

_LINE: Final = re.compile(rb"([0-9]{20}) ([0-9]{20})\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Files and their bytes, as far as counted."""

    files: int
    size_bytes: int

    def plus(self, size: int) -> "Tally":
        """Return the tally with one more file of `size` bytes."""
        return Tally(files=self.files + 1, size_bytes=self.size_bytes + size)

    def minus(self, size: int) -> "Tally":
        """Return the tally with one file of `size` bytes less, never below zero."""
        return Tally(files=max(0, self.files - 1), size_bytes=max(0, self.size_bytes - size))


NEVER_COUNTED: Final = Tally(files=0, size_bytes=0)
"""Stands for a tally that is missing or unreadable; compare by identity."""


def read_tally(folder: int) -> Tally:
    """Return the sum, or `NEVER_COUNTED` where the file is missing, malformed or not an ordinary file."""
    try:
        descriptor = os.open(_NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return NEVER_COUNTED
    try:
        line = _LINE.fullmatch(os.read(descriptor, _BYTES + 1))
    except OSError:
        return NEVER_COUNTED
    finally:
        os.close(descriptor)
    return NEVER_COUNTED if line is None else Tally(files=int(line[1]), size_bytes=int(line[2]))


def write_tally(folder: int, tally: Tally) -> None:
    """Replace the sum in place; raises `OSError` as the system reports it."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(_NAME, flags, FILE_MODE, dir_fd=folder)
    try:
        os.pwrite(descriptor, f"{tally.files:020d} {tally.size_bytes:020d}\n".encode(), 0)
        os.ftruncate(descriptor, _BYTES)
    finally:
        os.close(descriptor)
