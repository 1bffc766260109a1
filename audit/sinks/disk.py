"""Writing to a disk for a sink: all of it, and so that the entry of a file is durable too (AUD-02).

Used by `audit.sinks.jsonl`. It decides nothing.
"""

import fcntl
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["make_folders", "sync_data", "sync_folder", "write_all"]

_FOLDER_MODE: Final = 0o700


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`; a short write goes on, and ends in the error that caused it."""
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]


def make_folders(folder: Path) -> None:
    """Make `folder` and its parents where they are missing, each entry synced into the folder above it."""
    if folder.is_dir():
        return
    make_folders(folder.parent)
    with suppress(FileExistsError):
        folder.mkdir(mode=_FOLDER_MODE)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Return once the entries of `folder` are on the medium."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_data(fd: int) -> None:
    """Return once the data of the file is on the medium."""
    if sys.platform == "darwin":
        # There a plain sync leaves the data in the drive's cache.
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(fd)
