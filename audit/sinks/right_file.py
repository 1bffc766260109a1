"""Is the open file of a JSONL sink the one that stands at its place, and nobody else's?

Rules: AUD-03 (a file that was moved, replaced, emptied or opened to others is not the sink), AUD-02. Both questions are
asked under the lock of the open file. A process that waited, or was idle, may hold a file that another one has found
full: then the newest file's header leads back to the held one's last span. Nothing else makes another file the sink.
Next: `audit.sinks.jsonl`.
"""

import os
import stat
from pathlib import Path

from audit.errors import SinkUnavailable
from audit.sinks.file_ends import inode_of, last_span, os_fault, refuse, start_of
from audit.sinks.segments import FILE_FLAGS, is_half_renamed, leads_back

__all__ = ["check_file", "newer_file"]


def newer_file(path: Path, fd: int, ledger_id: str, name: str) -> int | None:
    """Return the newest file, opened, if it goes on from the open file `fd`; None where it is that, or does not.

    Raises:
        OSError: the place cannot be looked at.
        SinkUnavailable: the open file cannot be read, or the newest not be opened.
    """
    named = os.lstat(path)
    if not stat.S_ISREG(named.st_mode) or inode_of(named) == inode_of(os.fstat(fd)):
        return None
    last, _end = last_span(fd, start_of(fd, ledger_id, name), name)
    if last is None:
        return None
    try:
        newer = os.open(path, FILE_FLAGS)
    except OSError as error:
        raise os_fault(name, error) from None
    is_next = False
    try:
        after = start_of(newer, ledger_id, name).after
        is_next = leads_back(path, ledger_id, after, last, name)
    except SinkUnavailable:
        is_next = False  # what it is instead, `check_file` says
    finally:
        if not is_next:
            os.close(newer)
    return newer if is_next else None


def check_file(path: Path, fd: int, ledger_id: str, name: str) -> None:
    """Refuse anything but the file that was made for this ledger, at its place and closed to others.

    Raises:
        OSError: the place cannot be looked at.
        SinkUnavailable: `symlink`, `not_a_file`, `replaced`, `hard_link`, `writable_by_others`, `read_only`,
            `foreign_ledger`, `no_header`, `unreadable`.
    """
    named = os.lstat(path)
    held = os.fstat(fd)
    if stat.S_ISLNK(named.st_mode):
        refuse(name, "symlink", "The place of the audit file is a symbolic link.")
    if not stat.S_ISREG(named.st_mode) or not stat.S_ISREG(held.st_mode):
        refuse(name, "not_a_file", "The place of the audit file is no regular file.")
    if inode_of(named) != inode_of(held):
        refuse(name, "replaced", "The audit file was replaced while it was in use.")
    if held.st_nlink != 1 and not is_half_renamed(path, fd, start_of(fd, ledger_id, name), name):
        refuse(name, "hard_link", "The audit file has a second name.")
    if held.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        refuse(name, "writable_by_others", "The audit file can be written by other accounts.")
    # Permission bits do not stop root, and the owner who took them away meant it. A failing disk may be
    # remounted read-only under an open file, which the flags of the file system tell before a write does.
    if not held.st_mode & stat.S_IWUSR or os.fstatvfs(fd).f_flag & os.ST_RDONLY:
        refuse(name, "read_only", "The audit file or its file system is read-only.")
    start_of(fd, ledger_id, name)
