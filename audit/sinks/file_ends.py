"""What one file of a JSONL sink says at its two ends: its header and its first and last span.

Rules: AUD-02 (a torn last line was never acknowledged), LED-06 (the last span is what the ledger is held against).
Nothing is read from the middle; that is for the verifier (AUD-04). Everything raises `SinkUnavailable` under the name
of the sink. Next: `audit.sinks.jsonl`, `audit.sinks.segments`.
"""

import errno
import os
import stat
from dataclasses import dataclass
from typing import Final, NoReturn

from audit.errors import SinkUnavailable
from audit.sinks.lines import HEADER_BYTES_MAX, LINE_BYTES_MAX, Header, Tail, read_header, read_span_line

__all__ = [
    "Inode",
    "Start",
    "first_span",
    "inode_of",
    "last_span",
    "os_fault",
    "read_tail",
    "refuse",
    "start_of",
]

TAIL_WINDOWS: Final = (8 * 1024, 2 * LINE_BYTES_MAX)
"""Bytes read from the end to find the last line: the usual span, then the largest and a torn one after it."""


@dataclass(frozen=True, slots=True)
class Inode:
    """Which file it is, whatever its name."""

    device: int
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where the spans of a file begin: the offset in bytes, and the span before them, of another file, if any."""

    offset: int
    after: Tail | None


def inode_of(status: os.stat_result) -> Inode:
    """Return which file a status is of."""
    return Inode(status.st_dev, status.st_ino)


def start_of(fd: int, ledger_id: str, name: str) -> Start:
    """Read the header of an open file.

    Raises:
        SinkUnavailable: `foreign_ledger`, `no_header`.
    """
    first = os.pread(fd, HEADER_BYTES_MAX, 0)
    line = first[: first.find(b"\n") + 1]
    try:
        header = read_header(line)
    except ValueError:
        header = Header(ledger_id="", after=None)
    if header.ledger_id == ledger_id:
        return Start(offset=len(line), after=header.after)
    if header.ledger_id:
        refuse(name, "foreign_ledger", "The audit file belongs to another ledger.")
    message = "The audit file does not begin as one: it was cut, replaced or never made."
    raise SinkUnavailable(name, "no_header", message)


def last_span(fd: int, start: Start, name: str) -> tuple[Tail | None, int]:
    """Return the last whole line, read, and its end; if there is none, None and the end of the header.

    Raises:
        SinkUnavailable: `unreadable`.
    """
    size = os.fstat(fd).st_size
    for window in TAIL_WINDOWS:
        begin = max(start.offset, size - window)
        read = os.pread(fd, size - begin, begin)
        last = read.rfind(b"\n")
        before = read.rfind(b"\n", 0, max(0, last))
        if last == -1 and begin == start.offset and len(read) < LINE_BYTES_MAX:
            return None, start.offset
        if last != -1 and (before != -1 or begin == start.offset):
            return read_tail(read[before + 1 : last + 1], name), begin + last + 1
    raise SinkUnavailable(name, "unreadable", "The audit file does not end in lines of ours.")


def first_span(fd: int, start: Start, name: str) -> Tail | None:
    """Return the first whole line, read; None where there is none.

    Raises:
        SinkUnavailable: `unreadable`.
    """
    read = os.pread(fd, LINE_BYTES_MAX, start.offset)
    end = read.find(b"\n")
    return None if end == -1 else read_tail(read[: end + 1], name)


def read_tail(line: bytes, name: str) -> Tail:
    """Return what a line says about its span.

    Raises:
        SinkUnavailable: `unreadable`.
    """
    try:
        return read_span_line(line)
    except ValueError:
        refuse(name, "unreadable", "A line of the audit file is not one of ours, or was changed or lost.")


def is_regular(status: os.stat_result) -> bool:
    """Say whether a status is of a regular file."""
    return stat.S_ISREG(status.st_mode)


def refuse(name: str, reason: str, message: str) -> NoReturn:
    """Raise the fault of a sink.

    Raises:
        SinkUnavailable: always.
    """
    raise SinkUnavailable(name, reason, message)


_REASONS: Final = {
    errno.ENOENT: "missing",
    errno.ELOOP: "symlink",
    errno.EACCES: "read_only",
    errno.EROFS: "read_only",
    errno.ENOSPC: "no_space",
    errno.EDQUOT: "no_space",
    errno.EEXIST: "exists",
}
"""Errors of the operating system that have a word of their own."""


def os_fault(name: str, error: OSError, otherwise: str = "os_error") -> SinkUnavailable:
    """Return the fault for an error of the operating system; its text may hold a path, its name does not."""
    number = error.errno or 0
    word = errno.errorcode.get(number, "unknown")
    return SinkUnavailable(name, _REASONS.get(number, otherwise), f"The audit file cannot be used: {word}.")
