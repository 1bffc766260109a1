"""The watermark of a sink that cannot be read back: the last span that it acknowledged, in a small file of our own.

Rules: AUD-02 (what was not acknowledged is shipped again), LED-06 (position and leaf show a ledger that was set back),
AUD-03 (a file that was replaced or opened to others is not believed). The file is only ever replaced whole, and never
names a span before the sink acknowledged it, so that losing it, or an older copy, means shipping again and never
leaving out. It stands where the JSONL file stands by default: outside the folder of its ledger. It is bound to the
ledger, to the sink and to the place that acknowledged: at another place the same spans are still missing.
It has no MAC: whoever can write it can have spans left out at this sink, but neither in the ledger nor in a JSONL file.

Processes that ship to one place take turns by a lock on its folder, since the file itself is exchanged.
Next: `audit.sinks.carried`.
"""

import fcntl
import hashlib
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NoReturn

from audit.errors import SinkUnavailable
from audit.sinks.lines import Tail
from ledger.canonical import canonical_bytes
from ledger.model import LedgerId

__all__ = ["FILE", "Watermark"]

FILE: Final = "watermark.json"
"""Its name in the folder of the sink."""

KIND: Final = "permit-audit-watermark"
FORMAT_VERSION: Final = 1
BYTES_MAX: Final = 1024
"""Bytes of the file: two names of at most 128 bytes, two digests and three numbers."""

POLL_FIRST_S: Final = 0.001
POLL_LAST_S: Final = 0.02
"""Waits between two tries for the lock: from the time of one exchange up to what nobody notices."""

_NOTHING: Final = Tail(epoch=0, lane=0, sequence=0, leaf=b"")
"""What stands in the file where nothing was acknowledged."""

_FOLDER_MODE: Final = 0o700
_FILE_MODE: Final = 0o600
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Watermark:
    """The file in `folder`; any process of the ledger may use it."""

    def __init__(self, folder: Path, ledger_id: LedgerId, *, name: str, place: str) -> None:
        """Remember what it belongs to; nothing is opened.

        Args:
            folder: of this sink alone, mode 0700.
            ledger_id: the ledger whose spans are shipped.
            name: the owner's name for the sink.
            place: what acknowledges, such as a URL; the file keeps its digest only.
        """
        self._folder = folder
        self._name = name
        self._about = {
            "v": FORMAT_VERSION,
            "kind": KIND,
            "ledger": str(ledger_id),
            "sink": name,
            "place": hashlib.sha256(place.encode()).hexdigest(),
        }

    def make(self) -> None:
        """Make the folder and what folders it lacks; a watermark that is there stays, and has to be this one's.

        Raises:
            SinkUnavailable: as `read`, or `os_error`.
        """
        try:
            self._folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
            self._folder.chmod(_FOLDER_MODE)
        except OSError as error:
            raise self._os_fault(error) from None
        self.read()

    @contextmanager
    def held(self, deadline: float) -> Iterator[None]:
        """Hold the place for the block, so that one process at a time ships to it.

        Args:
            deadline: on the monotonic clock, in seconds.

        Raises:
            SinkUnavailable: `locked` or `os_error`.
        """
        try:
            # A folder that was lost is the loss of the watermark: everything is shipped again.
            self._folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
            descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            raise self._os_fault(error) from None
        try:
            self._lock(descriptor, deadline)
            yield
        finally:
            # Closing lets go of the lock; it is not inherited, as no child is made in the block.
            os.close(descriptor)

    def _lock(self, descriptor: int, deadline: float) -> None:
        pause = POLL_FIRST_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                left = deadline - time.monotonic()
                if left <= 0:
                    self._refuse("locked", "Another process shipped to this sink past the deadline.")
                time.sleep(min(pause, left))
                pause = min(2 * pause, POLL_LAST_S)
            except OSError as error:
                raise self._os_fault(error) from None
            else:
                return

    def read(self) -> Tail | None:
        """Return the last span that the place acknowledged; None where nothing says that it did.

        Raises:
            SinkUnavailable: `not_a_file`, `hard_link`, `writable_by_others`, `unreadable` (no watermark, or one that
                was cut), `foreign_ledger`, `foreign_place` (of another sink or place) or `os_error`.
        """
        try:
            descriptor = os.open(self._folder / FILE, _FLAGS)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._os_fault(error) from None
        try:
            self._check(os.fstat(descriptor))
            data = os.read(descriptor, BYTES_MAX + 1)
        except OSError as error:
            raise self._os_fault(error) from None
        finally:
            os.close(descriptor)
        return self._parsed(data)

    def _check(self, found: os.stat_result) -> None:
        if not stat.S_ISREG(found.st_mode):
            self._refuse("not_a_file", "The place of the watermark is no regular file.")
        # None is a file that another process exchanged between our opening and asking.
        if found.st_nlink > 1:
            self._refuse("hard_link", "The watermark has a second name.")
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            self._refuse("writable_by_others", "The watermark can be written by other accounts.")

    def _parsed(self, data: bytes) -> Tail | None:
        try:
            held = json.loads(data)
            said = {key: held[key] for key in self._about}
            tail = Tail(
                epoch=held["epoch"],
                lane=held["lane"],
                sequence=held["sequence"],
                leaf=bytes.fromhex(held["leaf"]),
            )
            # Only the bytes that `write` makes of the same values: nothing else is taken for a watermark.
            is_ours = _written(said, tail) == data
        except (ValueError, TypeError, KeyError, RecursionError):
            is_ours, said, tail = False, {}, _NOTHING
        if not is_ours:
            self._refuse("unreadable", "The watermark is not one of ours, or was changed or cut.")
        if said["ledger"] != self._about["ledger"]:
            self._refuse("foreign_ledger", "The watermark belongs to another ledger.")
        if said != self._about:
            self._refuse("foreign_place", "The watermark is that of another sink, or of another place.")
        return tail if tail.sequence else None

    def write(self, tail: Tail | None) -> None:
        """Say that the place acknowledged everything up to `tail`; None says that it has to get everything anew.

        Durable before it is visible, so that no half of it is ever read.

        Raises:
            SinkUnavailable: `os_error`; the file is as it was.
        """
        data = _written(self._about, tail or _NOTHING)
        part = self._folder / f".{FILE}.{os.getpid()}"
        try:
            with suppress(FileNotFoundError):
                part.unlink()
            descriptor = os.open(
                part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, _FILE_MODE
            )
            try:
                os.write(descriptor, data)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            part.replace(self._folder / FILE)
        except OSError as error:
            with suppress(OSError):
                part.unlink()
            raise self._os_fault(error) from None

    def _os_fault(self, error: OSError) -> SinkUnavailable:
        """Return the fault for an error of the system, whose own text may hold a path."""
        word = "unknown" if error.errno is None else os.strerror(error.errno)
        return SinkUnavailable(self._name, "os_error", f"The watermark of this sink cannot be used: {word}.")

    def _refuse(self, reason: str, message: str) -> NoReturn:
        raise SinkUnavailable(self._name, reason, message)


def _written(about: Mapping[str, object], tail: Tail) -> bytes:
    place = {"epoch": tail.epoch, "lane": tail.lane, "sequence": tail.sequence, "leaf": tail.leaf.hex()}
    return canonical_bytes({**about, **place}) + b"\n"
