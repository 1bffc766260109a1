"""Making a new ledger file, and the bookkeeping of its schema; the only door to sqlite-utils.

Rules: LED-04 (a foreign or newer schema is refused), design section 3 (creation is made durable before anyone trusts
it). Each migration is one transaction; the whole runs under the writers' lock, because sqlite-utils does not
guard two starters against each other. Ledger tables are never transformed: that would drop their triggers.
Next: `ledger.sqlite.connection` opens what this made.
"""

import os
from pathlib import Path
from typing import Final

from sqlite_utils import Database
from sqlite_utils.migrations import Migrations

from ledger.errors import LedgerUnavailable
from ledger.sqlite.connection import DRIVER
from ledger.sqlite.schema import APPLICATION_ID, SCHEMA_VERSION, schema_statements

_migrations: Final = Migrations("ledger")


@_migrations()
def first_schema(database: Database) -> None:
    """Build schema 1 inside the migration's own transaction."""
    for statement in _statements(schema_statements()):
        database.execute(statement)


def _statements(text: str) -> list[str]:
    """Split DDL into statements as SQLite itself does; `executescript` would commit the open transaction."""
    statements, pending = [], ""
    for line in text.splitlines(keepends=True):
        pending += line
        if DRIVER.complete_statement(pending):
            statements.append(pending.strip())
            pending = ""
    return [statement for statement in statements if statement]


def create_file(path: Path, *, journal_mode: str) -> None:
    """Create an empty ledger file at `path`, durable to its folder; the folder must exist.

    Raises:
        LedgerUnavailable: a file is already there, or it cannot be written.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        raise LedgerUnavailable(
            "exists", "There is already a file where the ledger should be made."
        ) from None
    except OSError as fault:
        raise LedgerUnavailable("unwritable", f"The ledger cannot be made: {fault.strerror}.") from None
    os.close(descriptor)
    connection = DRIVER.Connection(str(path), isolation_level=None)
    try:
        connection.execute(f"PRAGMA journal_mode = {journal_mode}")
        connection.execute("PRAGMA synchronous = FULL")
        database = Database(connection, execute_plugins=False)
        _migrations.apply(database)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
