"""The full files of a JSONL sink, one after another: their names, their order, and how the next one is begun.

Rules: AUD-02 (nothing is acknowledged that is not durable), AUD-03 (nothing is overwritten or followed), AUD-08 (each
file is finite). Beside `spans.jsonl`, which is always the newest, stand the full ones, each under the epoch of its
first span, and its first and last sequence:

    spans.0000.000000000001-000000090210.jsonl

The header of a file says after which span it goes on, so the headers make the order; names only help to find a file.
The next one is begun by who holds the lock of the newest, whose lines are synced:

1. a file with the header alone is made under a hidden name, locked, and synced
2. the full file gets its second name, never one that is taken; the folder is synced
3. the new file takes the usual name. That never names nothing, so a file that is missing was taken away.
4. The folder is synced before the first span is written to a file that has none: by whoever writes it.

A process that is killed leaves the old file with both names (then 1 to 3 are done again), or the new one without a
span. Next: `audit.sinks.jsonl`.
"""

import errno
import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from audit.errors import SinkUnavailable
from audit.sinks.disk import sync_folder, write_all
from audit.sinks.file_ends import Start, first_span, inode_of, is_regular, last_span, refuse, start_of
from audit.sinks.lines import Tail, header_line

__all__ = [
    "FILE_FLAGS",
    "FILE_MODE",
    "SEGMENT_BYTES",
    "Chain",
    "Segment",
    "begin_next",
    "chain_before",
    "full_name",
    "is_half_renamed",
    "leads_back",
    "refuse_taken",
    "segments_of",
]

SEGMENT_BYTES: Final = 64 * 1024 * 1024
"""Bytes at which a file is full: some 60,000 spans, and a copy of it takes about a second."""

FILE_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
FILE_MODE: Final = 0o600

_READ_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_NO_LINKS: Final = frozenset({errno.EPERM, errno.EMLINK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP})
"""Errors of a file system, or of a mark on the file, that allows no second name: the file then goes on as one."""

_NAME: Final = re.compile(r"\.(?P<epoch>[0-9]{4,16})\.(?P<first>[0-9]{12,16})-(?P<last>[0-9]{12,16})\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A full file by its name: the epoch of its first span, and the sequences of its first and last."""

    path: Path
    epoch: int
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The full files before a file, oldest first; `missing` is the last span of one that should be there, or None."""

    paths: tuple[Path, ...]
    missing: Tail | None


def full_name(path: Path, first: Tail, last: Tail) -> Path:
    """Return the second name of the file at `path` once it is full."""
    place = f"{first.epoch:04d}.{first.sequence:012d}-{last.sequence:012d}"
    return path.with_name(f"{path.stem}.{place}{path.suffix}")


def segments_of(path: Path) -> list[Segment]:
    """Return what is named as a full file of the sink at `path`, in order of the names; none of them is opened.

    Raises:
        OSError: the folder cannot be read.
    """
    found = []
    for each in path.parent.iterdir():
        name = each.name
        if not (name.startswith(path.stem) and name.endswith(path.suffix)):
            continue
        match = _NAME.fullmatch(name[len(path.stem) : len(name) - len(path.suffix)])
        if match is not None:
            epoch, first, last = (int(match[group]) for group in ("epoch", "first", "last"))
            found.append(Segment(path=path.with_name(name), epoch=epoch, first=first, last=last))
    return sorted(found, key=lambda each: (each.epoch, each.first, each.last))


def chain_before(path: Path, ledger_id: str, after: Tail | None, name: str) -> Chain:
    """Return the full files that lead to a file that goes on after the span `after`.

    Raises:
        OSError: the folder or a file cannot be read.
    """
    paths: list[Path] = []
    missing = None
    for ended, before in _backwards(path, ledger_id, after, name):
        if before is None:
            missing = ended
            break
        paths.append(before)
    return Chain(paths=tuple(reversed(paths)), missing=missing)


def leads_back(path: Path, ledger_id: str, after: Tail | None, held: Tail, name: str) -> bool:
    """Say whether a file that goes on after the span `after` follows, if over others, the file that ends in `held`.

    Raises:
        OSError: the folder or a file cannot be read.
    """
    return any(ended == held for ended, _before in _backwards(path, ledger_id, after, name))


def _backwards(
    path: Path, ledger_id: str, after: Tail | None, name: str
) -> Iterator[tuple[Tail, Path | None]]:
    """Yield each span that a file goes on after, and the file that ends in it; None, and no more, where none does."""
    if after is None:
        return
    by_last: dict[int, list[Path]] = {}
    for segment in segments_of(path):
        by_last.setdefault(segment.last, []).append(segment.path)
    while after is not None:
        found, start = None, None
        for each in by_last.get(after.sequence, ()):
            start = _start_of_ending(each, ledger_id, after, name)
            if start is not None:
                found = each
                break
        yield after, found
        if found is None or start is None:
            return
        # Places only ever grow along a sink, so files that name each other end the search.
        before = start.after
        if before is not None and (before.epoch, before.sequence) >= (after.epoch, after.sequence):
            yield before, None
            return
        after = before


def _start_of_ending(path: Path, ledger_id: str, last: Tail, name: str) -> Start | None:
    """Return where the spans of a full file begin; None where it is none of this ledger, or ends elsewhere."""
    try:
        fd = os.open(path, _READ_FLAGS)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise
    try:
        if not is_regular(os.fstat(fd)):
            return None
        start = start_of(fd, ledger_id, name)
        return start if last_span(fd, start, name)[0] == last else None
    except SinkUnavailable:
        return None
    finally:
        os.close(fd)


def is_half_renamed(path: Path, fd: int, start: Start, name: str) -> bool:
    """Say whether the one other name of the open file is the one that it gets when it is full.

    Raises:
        OSError: the other name cannot be looked at.
        SinkUnavailable: `unreadable`.
    """
    held = os.fstat(fd)
    first, last = first_span(fd, start, name), last_span(fd, start, name)[0]
    if held.st_nlink != 2 or first is None or last is None:  # noqa: PLR2004 - the usual name and that one
        return False
    return _is_named(full_name(path, first, last), fd)


def _is_named(path: Path, fd: int) -> bool:
    try:
        return inode_of(path.lstat()) == inode_of(os.fstat(fd))
    except FileNotFoundError:
        return False


def refuse_taken(path: Path, fd: int, start: Start, name: str) -> Path | None:
    """Return the name that the open file gets when it is full; None where it has no span yet.

    Raises:
        OSError: it cannot be looked at.
        SinkUnavailable: `exists`: something else has that name, and is never overwritten; or `unreadable`.
    """
    first, last = first_span(fd, start, name), last_span(fd, start, name)[0]
    if first is None or last is None:
        return None
    full = full_name(path, first, last)
    if os.path.lexists(full) and not _is_named(full, fd):
        refuse(name, "exists", "Something else has the name that the full audit file would get.")
    return full


def begin_next(path: Path, fd: int, ledger_id: str, start: Start, name: str) -> int | None:
    """Do 1 to 3 for the synced file `fd` at `path`; return the new file, locked, or None where it cannot be renamed.

    Raises:
        OSError: a step failed; whoever comes next goes on from there.
        SinkUnavailable: `exists`, `replaced`, `unreadable`.
    """
    full = refuse_taken(path, fd, start, name)
    last = last_span(fd, start, name)[0]
    if full is None or last is None:
        return None
    hidden = path.with_name(f".{path.name}.next")
    with suppress(FileNotFoundError):
        hidden.unlink()  # of one that was killed; it holds no span
    new = os.open(hidden, FILE_FLAGS | os.O_CREAT | os.O_EXCL, FILE_MODE)
    try:
        fcntl.flock(new, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.fchmod(new, FILE_MODE)
        write_all(new, header_line(ledger_id, last))
        os.fsync(new)
        if not _linked(path, full):
            hidden.unlink()
            os.close(new)
            return None
        if not (_is_named(full, fd) and _is_named(path, fd)):
            refuse(name, "replaced", "The audit file was replaced while it was in use.")
        sync_folder(path.parent)
        hidden.rename(path)
    except (OSError, SinkUnavailable):
        os.close(new)
        with suppress(OSError):
            hidden.unlink()
        raise
    return new


def _linked(path: Path, full: Path) -> bool:
    """Give the file at `path` its second name, if it has not got it yet; False where none can be given."""
    if os.path.lexists(full):
        return True  # whoever calls looks whose it is
    try:
        os.link(path, full, follow_symlinks=False)
    except OSError as error:
        if error.errno in _NO_LINKS:
            return False
        raise
    return True
