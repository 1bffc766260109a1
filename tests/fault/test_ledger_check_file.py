"""Rows that name a missing row are counted faster than SQLite counts them, and are counted the same."""

from collections.abc import Iterator
from typing import Any

import pytest

from ledger.model import LedgerId
from ledger.sqlite.check_file import _dangling, _dangling_anywhere
from ledger.sqlite.check_ground import Ground, Proofs
from tests.support.busy import Busy, busy_issuer
from tests.support.ledgers import attacker

COMPARED_WITH_THE_TRAIL = ("effects", "spans")
"""What another part holds against the trail row by row, wherever the trail has no gap."""

GONE = {
    "every row": "1",
    "the first row": "({key}) = (SELECT {key} FROM {table} ORDER BY {key} LIMIT 1)",
    "the last row": "({key}) = (SELECT {key} FROM {table} ORDER BY {keys_down} LIMIT 1)",
    "all but the last row": "({key}) <> (SELECT {key} FROM {table} ORDER BY {keys_down} LIMIT 1)",
}


class Nobody:
    """No keys: rows that name rows are counted without any."""

    def tag(self, _domain: str, _data: bytes, *, like: bytes | None = None) -> bytes:
        raise AssertionError(like)

    def is_authentic(self, _domain: str, _data: bytes, _tag: bytes) -> bool:
        raise AssertionError


PROOFS = Proofs(keys=Nobody(), binding_digest=None, open_seal=None, span_holds=None)


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A ledger with a busy history and no guards, open to somebody without keys."""
    busy: Busy = busy_issuer(tmp_path_factory.mktemp("busy") / "f0")
    found = attacker(busy.places.ledger)
    for (name,) in found.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
        found.execute(f"DROP TRIGGER {name}")
    found.execute(
        "INSERT INTO invocations(invocation_id, caller, task_id, actor, opened_ms, deadline_ms, bucket, sequence, mac) "
        "SELECT 'inv_' || task_id, 'uid:1', task_id, 'agent-7', 1, 2, bucket, sequence, mac FROM tasks LIMIT 2"
    )
    found.execute(
        "UPDATE effects SET invocation_id = (SELECT max(invocation_id) FROM invocations) "
        "WHERE effect_id = (SELECT max(effect_id) FROM effects)"
    )
    yield found
    found.close()


def references(raw: Any) -> set[tuple[str, str]]:
    """Return each table that has rows, with each table that its rows name."""
    tables = [name for (name,) in raw.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    return {
        (table, parent)
        for table in tables
        if raw.execute(f"SELECT 1 FROM {table}").fetchone()  # noqa: S608 - a table of the schema
        for _id, _place, parent, *_rest in raw.execute(f"PRAGMA foreign_key_list({table})")
    }


def without(raw: Any, parent: str, gone: str) -> tuple[dict[Any, int], dict[Any, int]]:
    """Remove rows of a table, and return what both ways count then."""
    key = [row[1] for row in raw.execute(f"PRAGMA table_info({parent})") if row[5]]
    where = gone.format(key=", ".join(key), keys_down=" DESC, ".join(key) + " DESC", table=parent)
    ground = Ground(raw=raw, ledger_id=LedgerId(""), proofs=PROOFS)
    raw.execute("BEGIN")
    raw.execute(f"DELETE FROM {parent} WHERE {where}")  # noqa: S608 - a table of the schema
    ours, sqlites = _dangling(ground), _dangling_anywhere(ground)
    raw.execute("ROLLBACK")
    return dict(ours), dict(sqlites)


@pytest.mark.spec("LED-04")
def test_rows_that_name_nothing_are_counted_as_sqlite_counts_them(raw: Any) -> None:
    named = references(raw)
    broken: set[tuple[str, str]] = set()
    for parent in {parent for _table, parent in named}:
        for gone in GONE.values():
            ours, sqlites = without(raw, parent, gone)
            broken |= ours.keys()
            sqlites.pop(COMPARED_WITH_THE_TRAIL, None)
            ours.pop(COMPARED_WITH_THE_TRAIL, None)
            assert ours == sqlites, (parent, gone)
    # Every reference that any row makes was broken once, that of effects to spans by a gap in the trail.
    assert broken == named


@pytest.mark.spec("LED-04")
def test_whole_rows_name_nothing_that_is_missing(raw: Any) -> None:
    assert without(raw, "ledger", "0") == ({}, {})
