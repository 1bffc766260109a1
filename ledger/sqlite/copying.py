"""Copying a ledger while others work in it: SQLite's own backup, in a process of its own.

Rules: LED-08, LED-01 (the copy is durable when it has its name). A process that opened the database file by any other
means would drop SQLite's locks as it closed it, and with them the promise that two writers never meet; so whoever wants
a copy starts a child that opens the ledger as everybody does, as a reader. The copy is one file without a write-ahead
log, as of one instant, and gets its name only when it is whole.
Next: `issuer.backup`, which checks what was made.
"""

import json
import os
import subprocess
import sys
from collections.abc import Container
from contextlib import suppress
from pathlib import Path
from typing import Final

from ledger.errors import LedgerCorrupt, LedgerUnavailable
from ledger.sqlite.connection import DRIVER, DatabaseError, as_fault, open_database
from ledger.sqlite.schema import SCHEMA_VERSION

__all__ = ["copied", "copy_here", "sync_folder"]

COPY_SECONDS_MAX: Final = 600
"""Far beyond the copy of a ledger of default bounds, which takes a second; a disk that hangs is told."""

_FAULTS: Final = {"unavailable": LedgerUnavailable, "corrupt": LedgerCorrupt}
_FILE_MODE: Final = 0o600
_SUFFIXES: Final = ("", "-journal", "-wal", "-shm")


def copied(source: Path, target: Path) -> None:
    """Copy the ledger `source` to the new file `target`, mode 0600, durable with its folder; nothing is replaced.

    Raises:
        LedgerUnavailable: `exists`, `unwritable`, or the source cannot be read here.
        LedgerCorrupt: the source is no ledger, or SQLite finds it damaged.
    """
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    _reserve(target)
    try:
        _run_child(source, part)
        part.replace(target)
        sync_folder(target.parent)
    except BaseException:
        # All are ours: the name was free a moment ago.
        for made in (target, *(part.with_name(part.name + suffix) for suffix in _SUFFIXES)):
            with suppress(OSError):
                made.unlink(missing_ok=True)
        raise


def _reserve(target: Path) -> None:
    """Take the name with an empty file, which is no ledger to anybody: two at once do not overwrite each other."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        os.close(os.open(target, flags, _FILE_MODE))
    except FileExistsError:
        message = f"There is already something at {target.name}; name a new file."
        raise LedgerUnavailable("exists", message) from None
    except OSError as fault:
        raise LedgerUnavailable("unwritable", f"The copy cannot be written: {fault.strerror}.") from None


def _run_child(source: Path, part: Path) -> None:
    # Without the folder that it is started in on its path: an issuer's folder has one called `ledger`.
    command = [sys.executable, "-P", "-m", "ledger.sqlite.copying", str(source), str(part)]
    try:
        child = subprocess.run(  # noqa: S603 - our own module, and two paths of the operator's
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=COPY_SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        raise LedgerUnavailable("copy_hangs", "The copy took too long and was given up.") from None
    except OSError as fault:
        raise LedgerUnavailable("no_process", f"No process can be started: {fault.strerror}.") from None
    if child.returncode == 0:
        return
    try:
        said = json.loads(child.stdout)
        kind, reason, message = _FAULTS[said["kind"]], str(said["reason"]), str(said["message"])
    except (ValueError, TypeError, KeyError):
        # What a dying process writes may quote anything.
        raise LedgerUnavailable("copy_failed", "The process that copies ended without a copy.") from None
    raise kind(reason, message)


def sync_folder(folder: Path) -> None:
    """Make durable what was made, renamed or removed in a folder.

    Raises:
        OSError: as the system reports it.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def copy_here(source: Path, part: Path, *, schemas: Container[int] = (SCHEMA_VERSION,)) -> None:
    """Copy in this process, which opens the ledger as everybody does: the work of the child, and of an upgrade.

    Raises:
        LedgerUnavailable, LedgerCorrupt: as `copied`; what was made of `part` stays.
    """
    try:
        descriptor = os.open(
            part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, _FILE_MODE
        )
    except OSError as fault:
        raise LedgerUnavailable("unwritable", f"The copy cannot be written: {fault.strerror}.") from None
    os.close(descriptor)
    raw = open_database(source, journal_mode=None, read_only=True, schemas=schemas)
    made = DRIVER.Connection(str(part), isolation_level=None)
    try:
        # All pages in one step: a reader of one snapshot, whom no writer waits for and nobody can outrun.
        raw.backup(made)
        made.execute("PRAGMA journal_mode = DELETE")
    except DatabaseError as fault:
        raise as_fault(fault) from None
    finally:
        made.close()
        raw.close()
    with part.open("rb+") as file:
        os.fsync(file.fileno())


def main() -> int:
    """Copy in this process, and tell a fault as one line of JSON."""
    source, part = sys.argv[1:]
    try:
        copy_here(Path(source), Path(part))
    except (LedgerUnavailable, LedgerCorrupt) as fault:
        kind = "corrupt" if isinstance(fault, LedgerCorrupt) else "unavailable"
        sys.stdout.write(json.dumps({"kind": kind, "reason": fault.reason, "message": fault.message}))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
