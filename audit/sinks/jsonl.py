"""The JSON Lines sink: one synced file that every process of the ledger appends to, and that anchors it.

Rules: AUD-02 (an acknowledgement says durable), AUD-03 (a file that was moved, replaced, emptied or opened to
others is not the sink), LED-06 (a file ahead of its ledger proves a rollback). There is no leader: whoever
needs an acknowledgement does the work.

1. Take the file's own lock, polling, since another process may hang with it.
2. The path still names the open file: a regular one with one link, closed to others, headed by this ledger.
3. The last whole line is a span that the ledger holds with the same leaf, or the one that a later epoch of the ledger
   says it left behind (LED-08). A torn line after it was never acknowledged, and is cut off.
4. Append what is missing, in order, without a gap, from the ledger.
5. One fdatasync, always: a visible line may still be unsynced, if its writer was killed before its own.
6. Only then acknowledge.

A descriptor that failed to write or sync is closed for good: after a failed sync the kernel calls the lost
pages clean, and a second sync of them would "succeed". So lines of the failed call are cut off at once, and
those that this process never saw synced are written again, byte for byte, before the next sync.

The file is not read from the start; that is for the verifier (AUD-04). Next: `audit.delivery`.
"""

import errno
import fcntl
import os
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from audit.errors import SinkAhead, SinkUnavailable
from audit.sinks.disk import make_folders, sync_folder, write_all
from audit.sinks.epochs import left_at
from audit.sinks.lines import (
    HEADER_BYTES_MAX,
    LINE_BYTES_MAX,
    Tail,
    header_line,
    read_span_line,
    span_line,
)
from audit.sinks.port import Acknowledged, SinkClass, SinkExpectation, SpanSource
from ledger.model import LedgerId
from ledger.transitions import Position, SpanRow

__all__ = ["FREE_BYTES_MIN", "JsonlSink", "create"]

FREE_BYTES_MIN: Final = 16 * 1024 * 1024
"""Free bytes below which a probe refuses: room for the outcomes of all that may be in flight."""

BATCH_ROWS: Final = 256
"""Spans that are read and written at a time, so that a long backlog needs little memory."""

TAIL_WINDOWS: Final = (8 * 1024, 2 * LINE_BYTES_MAX)
"""Bytes read from the end to find the last line: the usual span, then the largest and a torn one after it."""

REWRITE_BYTES_MAX: Final = 1024 * 1024
"""Bytes before the end to write again after a failed sync, for a process that never saw one succeed."""

POLL_FIRST_S: Final = 0.0002
POLL_LAST_S: Final = 0.01
"""Waits between two tries for the lock: from the time of one append up to what nobody notices."""

_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_MODE: Final = 0o600


def create(path: Path, ledger_id: str, *, name: str = "jsonl") -> None:
    """Make the file of a ledger, and what folders it lacks; durable when this returns.

    Raises:
        SinkUnavailable: `exists` (nothing is ever taken over by accident), or `os_error`.
    """
    try:
        make_folders(path.parent)
        fd = os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, _MODE)
    except FileExistsError:
        raise SinkUnavailable(name, "exists", "There is something at the place of the audit file.") from None
    except OSError as error:
        raise _os_fault(name, error) from None
    try:
        os.fchmod(fd, _MODE)
        write_all(fd, header_line(ledger_id))
        os.fsync(fd)
        sync_folder(path.parent)
    except OSError as error:
        # Nothing was acknowledged yet, and a file without its header could never become a sink.
        with suppress(OSError):
            path.unlink()
        raise _os_fault(name, error) from None
    finally:
        os.close(fd)


@dataclass(frozen=True, slots=True)
class _Inode:
    """Which file it is, whatever its name."""

    device: int
    number: int


@dataclass(slots=True)
class _Known:
    """What this process knows of a file: up to where it saw a sync succeed, what must be written again."""

    inode: _Inode
    synced_end: int | None = None
    rewrite_from: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """Where the file ends: its last span, the end of that line, and how far in the ledger that is.

    `owed` is a span that the file must get before anything is acknowledged: the first of a new epoch; else 0.
    """

    tail: Tail | None
    offset: int
    sequence: int
    owed: int = 0


class JsonlSink:
    """A file of spans; implements `audit.sinks.port.Sink`. It may be used from any thread of one process."""

    kind: Final = "jsonl"
    sink_class: Final = SinkClass.DURABLE

    def __init__(
        self,
        path: Path,
        ledger_id: LedgerId,
        *,
        name: str,
        required: bool,
        free_bytes_min: int = FREE_BYTES_MIN,
    ) -> None:
        """Remember the place; nothing is opened before it is needed.

        Args:
            path: the file that `create` made.
            ledger_id: the ledger that the header must name.
            name: the owner's name for this sink.
            required: whether dispatch waits for it.
            free_bytes_min: free bytes of the file system below which a probe refuses.
        """
        self.name: Final = name
        self.required: Final = required
        self._path = path
        self._ledger_id = ledger_id
        self._header = header_line(ledger_id)
        self._free_bytes_min = free_bytes_min
        self._pid = os.getpid()
        self._turn = threading.Lock()
        self._fd: int | None = None
        self._known: _Known | None = None
        self._acknowledged: Tail | None = None

    def probe(self, expect: SinkExpectation, deadline_s: float) -> None:
        """See `Sink.probe`: everything that `ship` asks of the file before it writes, and room to write."""
        with self._held(fcntl.LOCK_SH, deadline_s) as (fd, _deadline):
            self._last_span(fd, expect.source)
            room = os.fstatvfs(fd)
            if room.f_bavail * room.f_frsize < self._free_bytes_min:
                self._refuse("no_space", "The file system of the audit file has too little room left.")

    def ship(self, source: SpanSource, upto: Position, deadline_s: float) -> Acknowledged:
        """See `Sink.ship`; the steps are numbered as in the description of this module."""
        if upto.ledger_id != self._ledger_id:
            self._refuse("foreign_ledger", "The span belongs to another ledger than the audit file.")
        # 1 and 2
        with self._held(fcntl.LOCK_EX, deadline_s) as (fd, deadline):
            # 3
            end = self._last_span(fd, source)
            tail, start, due = end.tail, end.offset, max(upto.sequence, end.owed)
            try:
                if os.fstat(fd).st_size > start:
                    os.ftruncate(fd, start)
                self._write_again(fd, source, start)
                # 4
                if tail is None or end.sequence < due:
                    tail = self._append(fd, source, end.sequence, due, deadline)
            except OSError as error:
                self._fail(fd, start)
                raise _os_fault(self.name, error, "write_failed") from None
            # 5
            try:
                _sync(fd)
            except OSError as error:
                self._fail(fd, start, sync_failed=True)
                raise _os_fault(self.name, error, "sync_failed") from None
            self._known = _Known(_inode(os.fstat(fd)), synced_end=os.fstat(fd).st_size)
            self._acknowledged = tail
        # 6
        return Acknowledged(
            ledger_id=self._ledger_id,
            epoch=tail.epoch,
            lane=tail.lane,
            sequence=tail.sequence,
            leaf=tail.leaf,
        )

    def reached(self, source: SpanSource) -> int:
        """See `audit.sink_thread.Reaching`; a file that nothing can be written to is read all the same.

        The end of a file that another process writes to is its last whole line, so nothing is locked.
        """
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            raise _os_fault(self.name, error) from None
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                self._refuse("not_a_file", "The place of the audit file is no regular file.")
            self._check_header(fd)
            return self._last_span(fd, source).sequence
        except OSError as error:
            raise _os_fault(self.name, error) from None
        finally:
            os.close(fd)

    def close(self) -> None:
        """Let go of the file; a later call opens it again."""
        with self._turn:
            self._let_go()

    # ------------------------------------------------------------------ 1: the lock, and 2: the right file

    @contextmanager
    def _held(self, lock: int, deadline_s: float) -> Iterator[tuple[int, float]]:
        """Hold the right file, locked, for the block; yields its descriptor and the deadline on the clock.

        Whatever stops the block at the file itself closes the descriptor, so that the next call looks afresh.
        """
        deadline = time.monotonic() + deadline_s
        if os.getpid() != self._pid:
            # The child shares the parent's open file, and with it the lock that should keep them apart.
            self._refuse("forked", "This sink belongs to the parent process; open it anew.")
        if not self._turn.acquire(timeout=max(0.0, deadline_s)):
            self._refuse("busy", "Another thread is still at the audit file.")
        try:
            fd = self._fd = self._opened() if self._fd is None else self._fd
            self._lock(fd, lock, deadline)
            self._check_file(fd)
            yield fd, deadline
        except OSError as error:
            self._let_go()
            raise _os_fault(self.name, error) from None
        except SinkUnavailable:
            self._let_go()
            raise
        finally:
            if self._fd is not None:
                fcntl.flock(self._fd, fcntl.LOCK_UN)
            self._turn.release()

    def _opened(self) -> int:
        try:
            return os.open(self._path, _FLAGS)
        except OSError as error:
            raise _os_fault(self.name, error) from None

    def _lock(self, fd: int, lock: int, deadline: float) -> None:
        pause = POLL_FIRST_S
        while True:
            try:
                fcntl.flock(fd, lock | fcntl.LOCK_NB)
            except BlockingIOError:
                left = deadline - time.monotonic()
                if left <= 0:
                    self._refuse("locked", "Another process held the audit file past the deadline.")
                time.sleep(min(pause, left))
                pause = min(2 * pause, POLL_LAST_S)
            else:
                return

    def _check_file(self, fd: int) -> None:
        """Refuse anything but the file that was made for this ledger, at its place and closed to others."""
        named = os.lstat(self._path)
        held = os.fstat(fd)
        if stat.S_ISLNK(named.st_mode):
            self._refuse("symlink", "The place of the audit file is a symbolic link.")
        if not stat.S_ISREG(named.st_mode) or not stat.S_ISREG(held.st_mode):
            self._refuse("not_a_file", "The place of the audit file is no regular file.")
        if _inode(named) != _inode(held):
            self._refuse("replaced", "The audit file was replaced while it was in use.")
        if held.st_nlink != 1:
            self._refuse("hard_link", "The audit file has a second name.")
        if held.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            self._refuse("writable_by_others", "The audit file can be written by other accounts.")
        # Permission bits do not stop root, and the owner who took them away meant it. A failing disk may be
        # remounted read-only under an open file, which the flags of the file system tell before a write does.
        if not held.st_mode & stat.S_IWUSR or os.fstatvfs(fd).f_flag & os.ST_RDONLY:
            self._refuse("read_only", "The audit file or its file system is read-only.")
        self._check_header(fd)

    def _check_header(self, fd: int) -> None:
        if os.pread(fd, len(self._header), 0) != self._header:
            first = os.pread(fd, HEADER_BYTES_MAX, 0)
            if first.startswith(b'{"kind":"permit-audit",') and b"\n" in first:
                self._refuse("foreign_ledger", "The audit file belongs to another ledger.")
            self._refuse(
                "no_header", "The audit file does not begin as one: it was cut, replaced or never made."
            )

    # ------------------------------------------------------------------------------ 3: where the file ends

    def _last_span(self, fd: int, source: SpanSource) -> _End:
        """Return where the file ends, once the ledger holds the same span, or goes on from it in a later epoch.

        A file behind what this process was last acknowledged was cut. Then that is held against the ledger
        too, as one that was rolled back with the file would go unnoticed.
        """
        if source.ledger_id != self._ledger_id:
            self._refuse("foreign_ledger", "The ledger is another one than that of the audit file.")
        tail, offset = self._last_line(fd)
        end = _End(tail=None, offset=offset, sequence=0)
        if tail is not None:
            sequence, owed = self._followed(tail, source)
            end = _End(tail=tail, offset=offset, sequence=sequence, owed=owed)
        known = self._acknowledged
        if known is not None and (tail is None or _place(tail) < _place(known)):
            self._followed(known, source)
        return end

    def _followed(self, tail: Tail, source: SpanSource, *, is_last: bool = True) -> tuple[int, int]:
        """Return how far in the ledger a span of the file is, and the first span of a new epoch where it left that.

        Where the span is not the file's last, one before the place that was left is as good.
        """
        row = source.span_at(tail.sequence)
        if row is not None and _tail(row) == tail:
            return tail.sequence, 0
        joint = source.epoch_after(tail.epoch)
        left = None if joint is None else left_at(joint.body, self.name)
        if joint is not None and left is not None:
            is_before = not is_last and _place(tail) < _place(left)
            if left == tail or is_before:
                return joint.position.sequence - 1, joint.position.sequence
        if row is None:
            raise SinkAhead(self.name, "ahead", "The audit file holds spans that its ledger has lost.")
        if row.position.epoch < tail.epoch:
            message = (
                "The audit file is of a later epoch: the ledger was restored, and an older file put back."
            )
            raise SinkAhead(self.name, "later_epoch", message)
        raise SinkAhead(self.name, "diverged", "The audit file and its ledger tell two different stories.")

    def _last_line(self, fd: int) -> tuple[Tail | None, int]:
        """Return the last whole line, read, and its end; if there is none, None and the end of the header."""
        header_end = len(self._header)
        size = os.fstat(fd).st_size
        for window in TAIL_WINDOWS:
            begin = max(header_end, size - window)
            read = os.pread(fd, size - begin, begin)
            last = read.rfind(b"\n")
            before = read.rfind(b"\n", 0, max(0, last))
            if last == -1 and begin == header_end and len(read) < LINE_BYTES_MAX:
                return None, header_end
            if last != -1 and (before != -1 or begin == header_end):
                return self._read_line(read[before + 1 : last + 1]), begin + last + 1
        raise SinkUnavailable(self.name, "unreadable", "The audit file does not end in lines of ours.")

    def _read_line(self, line: bytes) -> Tail:
        try:
            tail = read_span_line(line)
        except ValueError:
            self._refuse("unreadable", "A line of the audit file is not one of ours, or was changed or lost.")
        return tail

    # ---------------------------------------------------------------------- 4: what is missing, and failures

    def _append(self, fd: int, source: SpanSource, after: int, due: int, deadline: float) -> Tail:
        """Write the missing spans after `after` up to `due` at least, in order; return the last one written."""
        while True:
            rows = source.spans_after(after, limit=BATCH_ROWS)
            if not rows:
                self._refuse("no_such_span", "The ledger does not hold the span to ship.")
            # A line of one row proves itself before any of the batch is written.
            lines = [self._line(row, after + place) for place, row in enumerate(rows, start=1)]
            write_all(fd, b"".join(lines))
            after = rows[-1].position.sequence
            if after >= due:
                return _tail(rows[-1])
            if time.monotonic() > deadline:
                self._refuse("backlog", "The backlog is longer than the deadline; the next call goes on.")

    def _line(self, row: SpanRow, sequence: int) -> bytes:
        if row.position.sequence != sequence or row.position.ledger_id != self._ledger_id:
            self._refuse("gap", "The ledger left out a span, and the audit file has no gaps.")
        try:
            line = span_line(row)
        except ValueError:
            self._refuse("broken_span", "A span of the ledger is not what was recorded.")
        return line

    def _write_again(self, fd: int, source: SpanSource, end: int) -> None:
        """Write lines anew, in place, whose sync failed: only a page that is dirty is written to disk."""
        known = self._known
        if known is None or known.rewrite_from is None or known.inode != _inode(os.fstat(fd)):
            return
        begin = max(len(self._header), min(known.rewrite_from, end))
        read = os.pread(fd, end - begin, begin)
        if begin > len(self._header):
            # Begin at a line: the window of a process that knows nothing begins anywhere.
            skipped = 0 if os.pread(fd, 1, begin - 1) == b"\n" else read.find(b"\n") + 1
            begin, read = begin + skipped, read[skipped:]
        for line in read.splitlines(keepends=True):
            self._followed(self._read_line(line), source, is_last=False)
        # Writing at an offset needs a descriptor that does not append.
        again = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            if _inode(os.fstat(again)) != known.inode:
                self._refuse("replaced", "The audit file was replaced while it was in use.")
            while read:
                written = os.pwrite(again, read, begin)
                begin, read = begin + written, read[written:]
        finally:
            os.close(again)

    def _fail(self, fd: int, start: int, *, sync_failed: bool = False) -> None:
        """Close a descriptor that failed, cut off what this call wrote, and remember what to write again."""
        inode = _inode(os.fstat(fd))
        known = self._known
        if known is None or known.inode != inode:
            known = _Known(inode)
        if sync_failed:
            oldest = start - REWRITE_BYTES_MAX
            if known.synced_end is not None and known.synced_end <= start:
                oldest = known.synced_end
            earlier = known.rewrite_from
            known.rewrite_from = oldest if earlier is None else min(earlier, oldest)
        self._known = known
        # A process that opens the file after this one would see no error, and take these lines for synced.
        with suppress(OSError):
            os.ftruncate(fd, start)
        self._let_go()

    def _let_go(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            with suppress(OSError):
                os.close(fd)

    def _refuse(self, reason: str, message: str) -> NoReturn:
        raise SinkUnavailable(self.name, reason, message)


_REASONS: Final = {
    errno.ENOENT: "missing",
    errno.ELOOP: "symlink",
    errno.EACCES: "read_only",
    errno.EROFS: "read_only",
    errno.ENOSPC: "no_space",
    errno.EDQUOT: "no_space",
}
"""Errors of the operating system that have a word of their own."""


def _os_fault(name: str, error: OSError, otherwise: str = "os_error") -> SinkUnavailable:
    """Return the fault for an error of the operating system; its text may hold a path, its name does not."""
    number = error.errno or 0
    word = errno.errorcode.get(number, "unknown")
    return SinkUnavailable(name, _REASONS.get(number, otherwise), f"The audit file cannot be used: {word}.")


def _tail(row: SpanRow) -> Tail:
    place = row.position
    return Tail(epoch=place.epoch, lane=place.lane, sequence=place.sequence, leaf=row.leaf)


def _place(tail: Tail) -> tuple[int, int]:
    return tail.epoch, tail.sequence


def _inode(status: os.stat_result) -> _Inode:
    return _Inode(status.st_dev, status.st_ino)


def _sync(fd: int) -> None:
    """Return once the data of the file is on the medium."""
    if sys.platform == "darwin":
        # There a plain sync leaves the data in the drive's cache.
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(fd)
