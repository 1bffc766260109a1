"""Opening one SQLite file safely: which library, which file system, which pragmas, which statements.

Rules: LED-01 (durable), LED-04 (refuse what is unsafe, say why), design section 3. The numbers behind each pragma
are measured facts: WAL with synchronous FULL lost nothing in power-cut replay, NORMAL and the default did.
The only door to the SQLite driver. Nothing else in the process may open the database files by other means:
closing any descriptor on them would drop SQLite's own locks.
Next: `ledger.sqlite.store` runs transactions on what this opens.
"""

import os
import stat
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import quote

from ledger.errors import LedgerCorrupt, LedgerUnavailable
from ledger.sqlite.schema import APPLICATION_ID, OLDER_SCHEMAS, SCHEMA_VERSION

try:
    import pysqlite3.dbapi2 as sqlite3
except (
    ImportError
):  # no wheel for this platform: the version gate below decides whether its own library will do
    import sqlite3

DRIVER: Final = sqlite3
DatabaseError: Final = sqlite3.DatabaseError
IntegrityError: Final = sqlite3.IntegrityError
OperationalError: Final = sqlite3.OperationalError

BUSY_TIMEOUT_MS: Final = 10_000
"""A backstop only: writers already queue on the outer lock, so SQLite's own unfair waiting is never reached."""

STATEMENTS_CACHED: Final = 256
CACHE_KIB: Final = 16_000

DURABLE_FILE_SYSTEMS: Final = frozenset({"ext4", "ext3", "xfs", "btrfs", "zfs", "f2fs", "apfs", "overlay"})
"""File systems whose fsync is meant to reach the disk. `overlay` passes through to one (containers)."""

_PRAGMAS: Final = (
    ("synchronous", "FULL", 2),
    ("foreign_keys", "ON", 1),
    ("recursive_triggers", "ON", 1),
    ("trusted_schema", "OFF", 0),
    ("cell_size_check", "ON", 1),
    ("mmap_size", "0", 0),
    ("fullfsync", "ON", 1),
    ("checkpoint_fullfsync", "ON", 1),
    ("busy_timeout", str(BUSY_TIMEOUT_MS), BUSY_TIMEOUT_MS),
    ("cache_size", f"-{CACHE_KIB}", -CACHE_KIB),
    ("temp_store", "MEMORY", 2),
)


def library_version() -> str:
    """Return the version of the SQLite library in use."""
    return str(sqlite3.sqlite_version)


def library_is_safe(version: tuple[int, ...]) -> bool:
    """Say whether a SQLite version is free of the WAL-reset bug (3.7.0 to 3.51.2; fixed backports named there).

    Source: https://sqlite.org/wal.html#walresetbug; 3.52.0 was withdrawn.
    """
    if version == (3, 52, 0):
        return False
    return version >= (3, 51, 3) or (3, 50, 7) <= version < (3, 51) or (3, 44, 6) <= version < (3, 45)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileIdentity:
    """Which file it is: device and inode at the time it was opened."""

    device: int
    inode: int


def file_identity(path: Path) -> FileIdentity:
    """Return which file stands at `path` now.

    Raises:
        LedgerUnavailable: `missing`, `not_a_file` (also for a symlink) or `linked_twice`.
    """
    try:
        seen = os.lstat(path)
    except FileNotFoundError:
        message = f"There is no ledger at {path.name}; run `issuer init`, or name the right profile."
        raise LedgerUnavailable("missing", message) from None
    except OSError as fault:
        raise LedgerUnavailable("unreadable", f"The ledger cannot be looked at: {fault.strerror}.") from None
    if not stat.S_ISREG(seen.st_mode):
        raise LedgerUnavailable("not_a_file", "The ledger must be a plain file, not a link or a folder.")
    if seen.st_nlink != 1:
        raise LedgerUnavailable("linked_twice", "The ledger file has a second name; remove the extra link.")
    return FileIdentity(device=seen.st_dev, inode=seen.st_ino)


def file_system(path: Path) -> str:
    """Return the type of the file system under `path`, or `unknown` where the system does not say."""
    mounts = Path("/proc/self/mountinfo")
    if not mounts.exists():
        return "unknown"
    device = path.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    resolved = str(path.resolve())
    best, found = -1, "unknown"
    for line in mounts.read_text().splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split()
        inside = resolved == fields[4] or resolved.startswith(fields[4].rstrip("/") + "/")
        if inside and (fields[2] == wanted or best < 0) and len(fields[4]) > best:
            best, found = len(fields[4]), right.split()[0]
    return found


def _checked_pragmas(raw: Any) -> None:  # noqa: ANN401 - the driver has no types
    """Set every pragma and read it back: several are silent no-ops in the wrong moment."""
    for name, value, expected in _PRAGMAS:
        raw.execute(f"PRAGMA {name} = {value}")
        row = raw.execute(f"PRAGMA {name}").fetchone()
        if row is not None and row[0] != expected:
            raise LedgerUnavailable("pragma", f"SQLite did not accept {name} = {value}.")


_DENIED: Final = frozenset(
    number
    for name in (
        "SQLITE_ATTACH",
        "SQLITE_DETACH",
        "SQLITE_DROP_TABLE",
        "SQLITE_DROP_TRIGGER",
        "SQLITE_DROP_INDEX",
        "SQLITE_ALTER_TABLE",
        "SQLITE_CREATE_TABLE",
        "SQLITE_CREATE_TRIGGER",
        "SQLITE_CREATE_VIEW",
        "SQLITE_CREATE_TEMP_TABLE",
        "SQLITE_CREATE_TEMP_TRIGGER",
        "SQLITE_CREATE_TEMP_VIEW",
    )
    if (number := getattr(sqlite3, name, None)) is not None
)
_TOTALS: Final = frozenset(
    {"budgets", "counters", "repetition", "holdings", "collected_spend", "collected_takes"}
)
_TOTALS_WRITABLE: Final = frozenset({("counters", "ceiling")})


def _authorize(
    action: int, first: str | None, second: str | None, _base: str | None, trigger: str | None
) -> int:
    """Deny on the hot connection what no transition needs: DDL, ATTACH, and totals changed outside their triggers."""
    if action in _DENIED:
        return int(sqlite3.SQLITE_DENY)
    changes_total = action == sqlite3.SQLITE_UPDATE and first in _TOTALS and trigger is None
    if changes_total and (first, second) not in _TOTALS_WRITABLE:
        return int(sqlite3.SQLITE_DENY)
    return int(sqlite3.SQLITE_OK)


def _refuse_schema(version: int) -> NoReturn:
    if version in OLDER_SCHEMAS:
        message = (
            f"The ledger has schema {version} of an earlier release; using it, as `issuer list`, upgrades it."
        )
        raise LedgerCorrupt("schema_older", message)
    message = (
        f"The ledger has schema {version}, and this release reads {SCHEMA_VERSION}; "
        "use the release that made it, or a newer one."
    )
    raise LedgerCorrupt("schema_version", message)


def refuse_other_schema(raw: Any) -> None:  # noqa: ANN401 - untyped driver
    """Return if the ledger behind an open connection still has this release's schema; costs some microseconds.

    Raises:
        LedgerCorrupt: `schema_version`; a newer release upgraded it while it was open here.
    """
    if raw.execute("PRAGMA user_version").fetchone()[0] != SCHEMA_VERSION:
        message = "A newer release upgraded the ledger while it was open here; start this program anew with that one."
        raise LedgerCorrupt("schema_version", message)


def open_database(
    path: Path,
    *,
    journal_mode: str | None,
    read_only: bool = False,
    schemas: Container[int] = (SCHEMA_VERSION,),
) -> Any:  # noqa: ANN401 - untyped driver
    """Open an existing ledger file and return the driver's connection, with every gate passed.

    `journal_mode` is `wal`, or `truncate` where the library is not safe for WAL. With `read_only` nothing is
    written, and the journal mode is compared instead of set; None then takes any, such as that of a backup.
    `schemas` are the numbers of the schemas that are taken.

    Raises:
        LedgerUnavailable: missing, unsafe, or a pragma did not hold.
        LedgerCorrupt: not a ledger (`not_a_ledger`), one to be upgraded first (`schema_older`), or one of a newer
            release (`schema_version`).
    """
    file_identity(path)
    # SQLite's own two files stay behind a reader that may not write, if nobody else has the ledger open. A reader
    # that finds none of them is therefore opened as one that may, and forbidden to.
    mode = "ro" if read_only and path.with_name(path.name + "-wal").exists() else "rw"
    # The class itself, not `connect`: instrumentation of a host patches the function and would see our SQL.
    raw = sqlite3.Connection(
        f"file:{quote(str(path))}?mode={mode}",
        uri=True,
        isolation_level=None,
        cached_statements=STATEMENTS_CACHED,
        check_same_thread=False,
        timeout=BUSY_TIMEOUT_MS / 1000,
    )
    try:
        application = raw.execute("PRAGMA application_id").fetchone()[0]
        version = raw.execute("PRAGMA user_version").fetchone()[0]
        if application != APPLICATION_ID:
            raise LedgerCorrupt("not_a_ledger", "The file is not a permit ledger.")
        if version not in schemas:
            _refuse_schema(version)
        found = str(
            raw.execute(
                "PRAGMA journal_mode" if read_only else f"PRAGMA journal_mode = {journal_mode}"
            ).fetchone()[0]
        )
        # Only WAL is written in the file: a reader of any other mode finds `delete`, which is what it reads as.
        is_read = read_only and (journal_mode is None or "wal" not in {found, journal_mode})
        if found != journal_mode and not is_read:
            raise LedgerUnavailable(
                "journal_mode", f"The ledger is in journal mode {found}, not {journal_mode}."
            )
        _checked_pragmas(raw)
        if read_only:
            raw.execute("PRAGMA query_only = ON")
        raw.set_authorizer(_authorize)
    except sqlite3.DatabaseError as fault:
        raw.close()
        raise _as_fault(fault) from None
    except BaseException:
        raw.close()
        raise
    return raw


def _as_fault(fault: Exception) -> LedgerUnavailable | LedgerCorrupt:
    """Say whose fault a driver error is, without its text where that could quote data."""
    text = str(fault)
    if "malformed" in text or "not a database" in text:
        return LedgerCorrupt("malformed", "SQLite says that the ledger file is damaged.")
    if "locked" in text or "busy" in text:
        return LedgerUnavailable("busy", "The ledger stayed locked by another program.")
    if "full" in text:
        return LedgerUnavailable("disk_full", "The disk is full; nothing was written.")
    if "readonly" in text or "read-only" in text:
        return LedgerUnavailable("read_only", "The ledger cannot be written to.")
    if "unable to open" in text:
        return LedgerUnavailable("unreadable", "The ledger cannot be opened.")
    return LedgerUnavailable("io", "The ledger could not be read or written.")


as_fault = _as_fault


_BOOKKEEPING: Final = "_sqlite_migrations"
"""The table of sqlite-utils that says which migrations ran: its index is made with it, and neither is ours."""


def schema_rows(raw: Any) -> list[tuple[str, str, str | None]]:  # noqa: ANN401 - untyped driver
    """Return (type, name, sql) of every object that is ours, for the schema digest.

    Left out are indexes that SQLite makes by itself and what it keeps of ANALYZE, and the bookkeeping of migrations.
    A trigger or view never is, whatever its name: it acts on what is ours.
    """
    found = raw.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema").fetchall()
    return [(kind, name, sql) for kind, name, table, sql in found if not _is_foreign(kind, name, table, sql)]


def _is_foreign(kind: str, name: str, table: str, sql: str | None) -> bool:
    own_index = kind == "index" and sql is None
    return own_index or (
        kind in {"table", "index"} and (table == _BOOKKEEPING or name.startswith("sqlite_stat"))
    )
