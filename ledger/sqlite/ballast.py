"""The ballast: a file beside the ledger that takes up room on the disk, so that it can be given back when none is left.

Rules: LED-02 (room to record how admitted effects ended is kept free), ADM-01. While it is missing, or little else is
free, nothing new is made and nothing admitted. It is given up for an outcome that a full disk would lose, or where the
ledger could not even be opened; and made again once there is room.
It is filled with bytes that no file system can leave out or compress away. Nothing is ever read from it.
Next: `issuer.flow.capacity` asks for it, `issuer.flow.ending` gives it up.
"""

import hashlib
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

BALLAST_BYTES: Final = 4 * 1024 * 1024
"""As long as SQLite lets its log grow before it folds it into the file: some thousand outcomes."""

FREE_BYTES_MIN: Final = 16 * 1024 * 1024
"""Free bytes beside it below which nothing new begins: as the audit file asks for, which often shares the disk."""

_NEEDED_BYTES: Final = 1024 * 1024
"""Less than this is a full disk: what opening a ledger and recording a few outcomes takes, many times over."""

_NAME: Final = "ballast"
_FILLER: Final = b"permit-issuer/ballast/v1"


class Ballast:
    """The ballast of one ledger. Threads and processes may share it."""

    def __init__(self, ledger: Path) -> None:
        """Stand beside the ledger file; nothing is made yet."""
        self._path = ledger.with_name(_NAME)

    @property
    def stands(self) -> bool:
        """Whether it is there, whole."""
        try:
            seen = os.lstat(self._path)
        except OSError:
            return False
        return stat.S_ISREG(seen.st_mode) and seen.st_size >= BALLAST_BYTES

    def free_bytes(self) -> int:
        """Return the bytes that this account can still write there; 0 where the system does not say."""
        try:
            found = os.statvfs(self._path.parent)
        except OSError:
            return 0
        return found.f_bavail * found.f_frsize

    @property
    def disk_is_full(self) -> bool:
        """Whether so little is left that a refused write was refused for that."""
        return self.free_bytes() < _NEEDED_BYTES

    @property
    def is_ready(self) -> bool:
        """Whether something new may begin: it stands, and enough is free beside it."""
        return self.stands and self.free_bytes() >= FREE_BYTES_MIN

    def restore(self) -> None:
        """Make it where it does not stand, if enough would still be free beside it."""
        if not self.stands and self.free_bytes() >= FREE_BYTES_MIN + BALLAST_BYTES:
            self.make()

    def make(self) -> bool:
        """Make it, durably, where it does not stand; say whether it stands now."""
        if self.stands:
            return True
        fresh = self._path.with_name(f"{_NAME}.{os.getpid()}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            with os.fdopen(os.open(fresh, flags, 0o600), "wb") as file:
                file.write(hashlib.shake_256(_FILLER).digest(BALLAST_BYTES))
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._path)
        except OSError:
            with suppress(OSError):
                fresh.unlink()
        return self.stands

    def release(self) -> bool:
        """Give its room back; say whether there was any to give."""
        try:
            self._path.unlink()
        except OSError:
            return False
        return True
