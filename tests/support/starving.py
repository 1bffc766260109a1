"""Too little room: a file system of its own that fills up when a test says so, and a limit on the size of files.

`SmallDisk` needs the right to mount; whoever lacks it skips with a reason. `limit_files` needs none.
"""

import os
import resource
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pytest

PAGE_BYTES: Final = 4096
"""What a file in memory grows by."""


class SmallDisk:
    """A file system in memory at a folder. Leaving it as a context manager takes it away with all that it holds."""

    def __init__(self, folder: Path, mebibytes: int) -> None:
        """Name the folder, which is made, and the size."""
        self.folder = folder
        self._mebibytes = mebibytes
        self._filler = folder / "filler"

    def __enter__(self) -> Self:
        self.folder.mkdir()
        program = shutil.which("mount")
        options = f"size={self._mebibytes}m,mode=0700"
        own = [str(program), "-t", "tmpfs", "-o", options, "tmpfs", str(self.folder)]
        if program is None or subprocess.run(own, capture_output=True, check=False).returncode != 0:
            pytest.skip("a disk of one's own needs the right to mount one")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        subprocess.run(["umount", "-l", str(self.folder)], check=True)

    def fill(self, pages_left: int) -> None:
        """Take all room but so many pages."""
        seen = os.statvfs(self.folder)
        taken = seen.f_bavail * seen.f_frsize - pages_left * PAGE_BYTES
        descriptor = os.open(self._filler, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            if taken > 0:
                os.posix_fallocate(descriptor, 0, taken)
        finally:
            os.close(descriptor)

    def empty(self) -> None:
        """Give the room back."""
        self._filler.unlink()


def limit_files(pid: int, size: int) -> None:
    """Let no file that this process writes grow beyond `size` bytes."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
