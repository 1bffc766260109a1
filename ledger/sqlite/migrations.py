"""Making a new ledger file, and the bookkeeping of its schema; the only door to sqlite-utils.

Rules: LED-04 (a foreign or newer schema is refused), design section 3 (creation is made durable before anyone trusts
it). A new file gets the whole schema of this release at once; a file of an earlier one goes through `upgraded`. The
caller holds the writers' lock, because sqlite-utils does not guard two starters against each other.
Ledger tables are never transformed: that would drop their triggers.
Next: `ledger.sqlite.connection` opens what this made; `ledger.sqlite.upgrade` says what an upgrade does.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from sqlite_utils import Database
from sqlite_utils.migrations import Migrations

from ledger.errors import Broken, LedgerCorrupt, LedgerUnavailable
from ledger.sqlite.connection import DRIVER
from ledger.sqlite.schema import APPLICATION_ID, SCHEMA_VERSION, schema_objects

_NAMES: Final = ("first_schema", "second_schema", "third_schema", "fourth_schema")
"""The step that makes each schema, by number: the name under which it is on record in every file of it."""

Step = Callable[[Database], None]


def _migrations(*steps: Step) -> Migrations:
    """Return the steps that every file has been through, by the names under which that is on record in it."""
    migrations = Migrations("ledger")
    for name, step in zip(_NAMES, steps, strict=True):
        migrations(name=name)(step)
    return migrations


def _built(database: Database) -> None:
    for _kind, _name, statement in schema_objects():
        database.execute(statement)


def _nothing_left(_database: Database) -> None:
    """Do nothing: another step builds what this one would bring."""


def _never_made(_database: Database) -> None:
    raise Broken("a ledger that stands was made")


def upgraded(raw: Any, number: int, rebuild: Callable[[], None]) -> None:  # noqa: ANN401 - untyped driver
    """Let `rebuild` make this schema of schema `number`, and put that on record, inside the transaction of `raw`.

    The schemas between are gone through in name: `rebuild` makes the last of the one that is there.

    Raises:
        LedgerCorrupt: `schema`; the file's own record of its schema is not that of schema `number`.
    """
    database = Database(raw, execute_plugins=False)
    made, between = [_never_made] * number, [_nothing_left] * (len(_NAMES) - number - 1)
    migrations = _migrations(*made, *between, lambda _database: rebuild())
    # A table of another form would be transformed by sqlite-utils, which is nothing that happens to ours.
    is_ours = database.table(migrations.migrations_table).pks == ["id"]
    if not is_ours or tuple(step.name for step in migrations.pending(database)) != _NAMES[number:]:
        message = f"The ledger's own record of its schema is not that of schema {number}."
        raise LedgerCorrupt("schema", message)
    migrations.apply(database)


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
        _migrations(_built, *[_nothing_left] * (len(_NAMES) - 1)).apply(
            Database(connection, execute_plugins=False)
        )
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
