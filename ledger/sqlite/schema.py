"""The schema of this release as a whole: its number, its statements in order, its digest.

Rules: LED-04 (a foreign or newer schema is refused), LED-05 (append-only is held by the database).
Next: `ledger.sqlite.migrations` writes this into a new file; `ledger.sqlite.writes` fills it.
"""

import hashlib
import re
from functools import cache
from typing import Final

from ledger.sqlite.tables import TABLES
from ledger.sqlite.tables_authority import AUTHORITY_TABLES, AUTHORITY_TRIGGERS
from ledger.sqlite.triggers import TRIGGERS
from ledger.sqlite.triggers_archive import ARCHIVE_TRIGGERS
from ledger.sqlite.triggers_invocations import INVOCATION_TRIGGERS

APPLICATION_ID: Final = 0x504D4C47
"""`PMLG`: tells this ledger from any other SQLite file (LED-04)."""

SCHEMA_VERSION: Final = 4
"""`PRAGMA user_version` of this schema; a newer one is refused (LED-04)."""

OLDER_SCHEMAS: Final = range(1, SCHEMA_VERSION)
"""The schemas of earlier releases: `ledger.sqlite.upgrade` makes this one of each."""

_COLLECTED: Final = (
    *("decisions", "permits", "claims", "reservations", "settlements", "evidence", "counter_takes"),
    *("obligations", "obligations_done", "approval_waits", "approvals"),
)
_APPEND_ONLY: Final = (
    *("ledger", "spans", "span_policies", "task_path", "grants", "overruns_accepted", "permit_uses"),
    *("tombstones", "sinks", "archived_leaves"),
    *_COLLECTED,
)
_ARCHIVED: Final = frozenset({"spans", "span_policies"})
"""What an archive takes away; `ledger.sqlite.triggers_archive` says when."""

_NEVER_DELETED: Final = (
    *(table for table in _APPEND_ONLY if table not in {*_COLLECTED, *_ARCHIVED, "tombstones"}),
    *("head", "standing", "holdings", "tasks", "budgets", "counters"),
    *("collected_spend", "collected_takes"),
)


def schema_statements() -> str:
    """Return every statement that builds an empty ledger of `SCHEMA_VERSION`, in order."""
    guards = [
        f"CREATE TRIGGER {table}_never_updated BEFORE UPDATE ON {table} "
        f"BEGIN SELECT RAISE(ABORT, 'guard:append_only_{table}'); END;"
        for table in _APPEND_ONLY
    ]
    guards += [
        f"CREATE TRIGGER {table}_never_deleted BEFORE DELETE ON {table} "
        f"BEGIN SELECT RAISE(ABORT, 'guard:append_only_{table}'); END;"
        for table in _NEVER_DELETED
    ]
    guards += [
        f"CREATE TRIGGER {table}_collected_only BEFORE DELETE ON {table} "
        "WHEN NOT EXISTS (SELECT 1 FROM tombstones WHERE effect_id = OLD.effect_id) "
        f"BEGIN SELECT RAISE(ABORT, 'guard:append_only_{table}'); END;"
        for table in (*_COLLECTED, "effects")
    ]
    triggers = TRIGGERS + INVOCATION_TRIGGERS + AUTHORITY_TRIGGERS + ARCHIVE_TRIGGERS
    return TABLES + AUTHORITY_TABLES + triggers + "\n".join(guards)


def schema_digest(rows: list[tuple[str, str, str | None]]) -> str:
    """Return the digest of a live schema: (type, name, sql) of every object, in name order (LED-04).

    SQLite's own tables and the bookkeeping of migrations are left out by the caller.
    """
    text = "\x00".join(f"{kind}\x01{name}\x01{sql or ''}" for kind, name, sql in sorted(rows))
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def schema_objects() -> tuple[tuple[str, str, str], ...]:
    """Return (type, name, statement) of every object of `SCHEMA_VERSION`, in the order in which they are made."""
    found: list[tuple[str, str, str]] = []
    for statement in re.split(r"^(?=CREATE )", schema_statements(), flags=re.MULTILINE)[1:]:
        _create, kind, rest = statement.split(maxsplit=2)
        name = re.match(r"\w+", rest)
        found.append((kind.lower(), "" if name is None else name[0], statement.rstrip().removesuffix(";")))
    return tuple(found)


@cache
def expected_digest() -> str:
    """Return the digest of the schema that this release makes: an opened ledger has exactly it (LED-04)."""
    return schema_digest(list(schema_objects()))
