"""The JSON Lines sink: one synced file that every process of the ledger appends to, and that anchors it.

Rules: AUD-02 (an acknowledgement says durable), AUD-03 (a file that was moved, replaced, emptied or opened to
others is not the sink), LED-06 (a file ahead of its ledger proves a rollback). There is no leader: whoever
needs an acknowledgement does the work.

1. Take the file's own lock, polling, since another process may hang with it.
2. The path still names the open file: a regular one with one link, closed to others, headed by this ledger. Where
   another process began the next one meanwhile, its header leads back to the open one.
3. The last whole line is a span that the ledger holds with the same leaf, or the one that a later epoch of the ledger
   says it left behind (LED-08). A torn line after it was never acknowledged, and is cut off.
4. Append what is missing, in order, without a gap, from the ledger. A file that is full is synced and renamed first,
   and the next one begun (`audit.sinks.segments`).
5. One fdatasync, always: a visible line may still be unsynced, if its writer was killed before its own.
6. Only then acknowledge.

A descriptor that failed to write or sync is closed for good: after a failed sync the kernel calls the lost
pages clean, and a second sync of them would "succeed". So lines of the failed call are cut off at once, and
those that this process never saw synced are written again, byte for byte, before the next sync.

The file is not read from the start; that is for the verifier (AUD-04). Next: `audit.delivery`.
"""

import fcntl
import os
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from audit.errors import SinkAhead, SinkUnavailable
from audit.sinks.disk import make_folders, sync_data, sync_folder, write_all
from audit.sinks.epochs import left_at
from audit.sinks.file_ends import Inode, Start, inode_of, last_span, os_fault, read_tail, start_of
from audit.sinks.lines import Tail, header_line, span_line
from audit.sinks.port import Acknowledged, SinkClass, SinkExpectation, SpanSource
from audit.sinks.right_file import check_file, newer_file
from audit.sinks.segments import (
    FILE_FLAGS,
    FILE_MODE,
    SEGMENT_BYTES,
    Chain,
    begin_next,
    chain_before,
    refuse_taken,
    segments_of,
)
from ledger.model import LedgerId
from ledger.transitions import Position, SpanRow

__all__ = ["FREE_BYTES_MIN", "JsonlSink", "create"]

FREE_BYTES_MIN: Final = 16 * 1024 * 1024
"""Free bytes below which a probe refuses: room for the outcomes of all that may be in flight."""

BATCH_ROWS: Final = 256
"""Spans that are read and written at a time, so that a long backlog needs little memory."""

REWRITE_BYTES_MAX: Final = 1024 * 1024
"""Bytes before the end to write again after a failed sync, for a process that never saw one succeed."""

POLL_FIRST_S: Final = 0.0002
POLL_LAST_S: Final = 0.01
"""Waits between two tries for the lock: from the time of one append up to what nobody notices."""


def create(path: Path, ledger_id: str, *, name: str = "jsonl") -> None:
    """Make the file of a ledger, and what folders it lacks; durable when this returns.

    Raises:
        SinkUnavailable: `exists` (nothing is ever taken over by accident, full files included), or `os_error`.
    """
    try:
        make_folders(path.parent)
        if segments_of(path):
            raise FileExistsError  # noqa: TRY301 - as it would be of the file itself
        fd = os.open(path, FILE_FLAGS | os.O_CREAT | os.O_EXCL, FILE_MODE)
    except FileExistsError:
        raise SinkUnavailable(name, "exists", "There is something at the place of the audit file.") from None
    except OSError as error:
        raise os_fault(name, error) from None
    try:
        os.fchmod(fd, FILE_MODE)
        write_all(fd, header_line(ledger_id))
        os.fsync(fd)
        sync_folder(path.parent)
    except OSError as error:
        # Nothing was acknowledged yet, and a file without its header could never become a sink.
        with suppress(OSError):
            path.unlink()
        raise os_fault(name, error) from None
    finally:
        os.close(fd)


@dataclass(slots=True)
class _Known:
    """What this process knows of a file: up to where it saw a sync succeed, what must be written again."""

    inode: Inode
    synced_end: int | None = None
    rewrite_from: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """Where the file ends: its last span, the end of that line, and how far in the ledger that is.

    `owed` is a span that the file must get before anything is acknowledged: the first of a new epoch; else 0.
    """

    start: Start
    tail: Tail | None
    offset: int
    sequence: int
    owed: int = 0


@dataclass(slots=True, kw_only=True)
class _Work:
    """What one call has done: the file it writes to, and the last span that is written.

    `cut_to` is the offset to which that file is cut where writing fails; `is_first` says that the file has no span.
    """

    fd: int
    start: Start
    cut_to: int
    is_first: bool
    tail: Tail | None
    sequence: int


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
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        """Remember the place; nothing is opened before it is needed.

        Args:
            path: the file that `create` made.
            ledger_id: the ledger that the header must name.
            name: the owner's name for this sink.
            required: whether dispatch waits for it.
            free_bytes_min: free bytes of the file system below which a probe refuses.
            segment_bytes: bytes at which a file is full, and the next one is begun; it may have 256 spans more.
        """
        self.name: Final = name
        self.required: Final = required
        self._path = path
        self._ledger_id = ledger_id
        self._free_bytes_min = free_bytes_min
        self._segment_bytes = segment_bytes
        self._may_rename = True
        self._pid = os.getpid()
        self._turn = threading.Lock()
        self._fd: int | None = None
        self._known: _Known | None = None
        self._acknowledged: Tail | None = None

    def probe(self, expect: SinkExpectation, deadline_s: float) -> None:
        """See `Sink.probe`: everything that `ship` asks of the file before it writes, and room to write."""
        with self._held(fcntl.LOCK_SH, deadline_s) as (fd, _deadline):
            end = self._last_span(fd, expect.source)
            if self._is_full(fd, end.start):
                refuse_taken(self._path, fd, end.start, self.name)
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
            due = max(upto.sequence, end.owed)
            work = _Work(
                fd=fd,
                start=end.start,
                cut_to=end.offset,
                is_first=end.offset == end.start.offset,
                tail=end.tail,
                sequence=end.sequence,
            )
            try:
                if os.fstat(fd).st_size > work.cut_to:
                    os.ftruncate(fd, work.cut_to)
                self._write_again(fd, source, end)
                # 4
                tail = self._append(work, source, due, deadline)
            except OSError as error:
                self._fail(work)
                raise os_fault(self.name, error, "write_failed") from None
            # 5
            self._sync(work)
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
        with self._looked() as fd:
            return self._last_span(fd, source).sequence

    @contextmanager
    def _looked(self) -> Iterator[int]:
        """Open the file to read it, for the block."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            raise os_fault(self.name, error) from None
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                self._refuse("not_a_file", "The place of the audit file is no regular file.")
            yield fd
        except OSError as error:
            raise os_fault(self.name, error) from None
        finally:
            os.close(fd)

    def chain(self) -> Chain:
        """Return the full files before the newest, and which one is missing; only their ends are read.

        Raises:
            SinkUnavailable: as `reached`.
        """
        with self._looked() as fd:
            start = start_of(fd, self._ledger_id, self.name)
            return chain_before(self._path, self._ledger_id, start.after, self.name)

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
            while (newer := newer_file(self._path, fd, self._ledger_id, self.name)) is not None:
                os.close(fd)  # and with it its lock
                fd = self._fd = newer
                self._lock(fd, lock, deadline)
            check_file(self._path, fd, self._ledger_id, self.name)
            yield fd, deadline
        except OSError as error:
            self._let_go()
            raise os_fault(self.name, error) from None
        except SinkUnavailable:
            self._let_go()
            raise
        finally:
            if self._fd is not None:
                fcntl.flock(self._fd, fcntl.LOCK_UN)
            self._turn.release()

    def _opened(self) -> int:
        try:
            return os.open(self._path, FILE_FLAGS)
        except OSError as error:
            raise os_fault(self.name, error) from None

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

    # ------------------------------------------------------------------------------ 3: where the file ends

    def _last_span(self, fd: int, source: SpanSource) -> _End:
        """Return where the file ends, once the ledger holds the same span, or goes on from it in a later epoch.

        A file behind what this process was last acknowledged was cut. Then that is held against the ledger
        too, as one that was rolled back with the file would go unnoticed.
        """
        if source.ledger_id != self._ledger_id:
            self._refuse("foreign_ledger", "The ledger is another one than that of the audit file.")
        start = start_of(fd, self._ledger_id, self.name)
        tail, offset = last_span(fd, start, self.name)
        # A file without a span goes on after the last one of the file before it.
        tail = tail or start.after
        end = _End(start=start, tail=None, offset=offset, sequence=0)
        if tail is not None:
            sequence, owed = self._followed(tail, source)
            end = _End(start=start, tail=tail, offset=offset, sequence=sequence, owed=owed)
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

    # ---------------------------------------------------------------------- 4: what is missing, and failures

    def _append(self, work: _Work, source: SpanSource, due: int, deadline: float) -> Tail:
        """Write the missing spans up to `due` at least, in order; return the last one of the sink."""
        while work.tail is None or work.sequence < due:
            rows = source.spans_after(work.sequence, limit=BATCH_ROWS)
            if not rows:
                self._refuse("no_such_span", "The ledger does not hold the span to ship.")
            # A line of one row proves itself before any of the batch is written.
            lines = [self._line(row, work.sequence + place) for place, row in enumerate(rows, start=1)]
            if self._is_full(work.fd, work.start):
                self._begin_next(work)
            if work.is_first and work.start.after is not None:
                # Who began the file may have been killed before its name was on the medium.
                sync_folder(self._path.parent)
            write_all(work.fd, b"".join(lines))
            work.is_first, work.tail, work.sequence = False, _tail(rows[-1]), rows[-1].position.sequence
            if work.sequence < due and time.monotonic() > deadline:
                self._refuse("backlog", "The backlog is longer than the deadline; the next call goes on.")
        return work.tail

    def _is_full(self, fd: int, start: Start) -> bool:
        """Say whether the next span goes into another file: this one has its bytes, or half of its second name."""
        held = os.fstat(fd)
        is_due = start.offset < held.st_size >= self._segment_bytes or held.st_nlink != 1
        return is_due and self._may_rename

    def _begin_next(self, work: _Work) -> None:
        """Sync a full file, and begin the next; where that cannot be, go on in this one."""
        self._sync(work)
        # From here on a failure cuts nothing off: the next file may name the last of these lines already.
        work.cut_to = os.fstat(work.fd).st_size
        newer = begin_next(self._path, work.fd, self._ledger_id, work.start, self.name)
        if newer is None:
            self._may_rename = False
            return
        before, self._fd = work.fd, newer
        work.fd, work.is_first = newer, True
        os.close(before)
        work.start = start_of(newer, self._ledger_id, self.name)
        work.cut_to = work.start.offset
        self._known = _Known(inode_of(os.fstat(newer)), synced_end=work.cut_to)

    def _sync(self, work: _Work) -> None:
        try:
            sync_data(work.fd)
        except OSError as error:
            self._fail(work, sync_failed=True)
            raise os_fault(self.name, error, "sync_failed") from None
        status = os.fstat(work.fd)
        self._known = _Known(inode_of(status), synced_end=status.st_size)

    def _line(self, row: SpanRow, sequence: int) -> bytes:
        if row.position.sequence != sequence or row.position.ledger_id != self._ledger_id:
            self._refuse("gap", "The ledger left out a span, and the audit file has no gaps.")
        try:
            line = span_line(row)
        except ValueError:
            self._refuse("broken_span", "A span of the ledger is not what was recorded.")
        return line

    def _write_again(self, fd: int, source: SpanSource, end: _End) -> None:
        """Write lines anew, in place, whose sync failed: only a page that is dirty is written to disk."""
        known = self._known
        if known is None or known.rewrite_from is None or known.inode != inode_of(os.fstat(fd)):
            return
        begin = max(end.start.offset, min(known.rewrite_from, end.offset))
        read = os.pread(fd, end.offset - begin, begin)
        if begin > end.start.offset:
            # Begin at a line: the window of a process that knows nothing begins anywhere.
            skipped = 0 if os.pread(fd, 1, begin - 1) == b"\n" else read.find(b"\n") + 1
            begin, read = begin + skipped, read[skipped:]
        for line in read.splitlines(keepends=True):
            self._followed(read_tail(line, self.name), source, is_last=False)
        # Writing at an offset needs a descriptor that does not append.
        again = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            if inode_of(os.fstat(again)) != known.inode:
                self._refuse("replaced", "The audit file was replaced while it was in use.")
            while read:
                written = os.pwrite(again, read, begin)
                begin, read = begin + written, read[written:]
        finally:
            os.close(again)

    def _fail(self, work: _Work, *, sync_failed: bool = False) -> None:
        """Close a descriptor that failed, cut off what this call wrote, and remember what to write again."""
        fd, start = work.fd, work.cut_to
        inode = inode_of(os.fstat(fd))
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


def _tail(row: SpanRow) -> Tail:
    place = row.position
    return Tail(epoch=place.epoch, lane=place.lane, sequence=place.sequence, leaf=row.leaf)


def _place(tail: Tail) -> tuple[int, int]:
    return tail.epoch, tail.sequence
