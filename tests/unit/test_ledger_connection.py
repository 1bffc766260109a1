"""How the file is opened: which library, which pragmas, which statements, which schema."""

import re
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger.errors import LedgerCorrupt, LedgerUnavailable
from ledger.model import LedgerId
from ledger.sqlite import store as store_module
from ledger.sqlite.connection import (
    DRIVER,
    DURABLE_FILE_SYSTEMS,
    DatabaseError,
    file_identity,
    file_system,
    library_is_safe,
    library_version,
    open_database,
    schema_rows,
)
from ledger.sqlite.creation import create_ledger
from ledger.sqlite.migrations import create_file
from ledger.sqlite.schema import (
    APPLICATION_ID,
    SCHEMA_VERSION,
    expected_digest,
    schema_digest,
    schema_statements,
)
from tests.support.ledgers import CENT, START, Book, attacker, made_book, new_book, open_task, probe

VERSIONS = {
    (3, 6, 23): False,  # before WAL: never tried, so not called safe
    (3, 7, 0): False,
    (3, 40, 1): False,
    (3, 44, 5): False,
    (3, 44, 6): True,
    (3, 44, 9): True,
    (3, 45, 0): False,
    (3, 50, 6): False,
    (3, 50, 7): True,
    (3, 50, 99): True,
    (3, 51, 0): False,
    (3, 51, 2): False,
    (3, 51, 3): True,
    (3, 52, 0): False,  # withdrawn
    (3, 52, 1): True,
    (3, 53, 2): True,
    (4, 0, 0): True,
}


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return made_book(tmp_path / "book")


@pytest.fixture
def raw(book: Book) -> Iterator[Any]:
    """The connection of the store itself."""
    ledger = book.open()
    open_task(ledger, "org", {CENT: 10})
    yield ledger._raw
    ledger.close()


@pytest.mark.spec("LED-04")
@pytest.mark.parametrize(("version", "is_safe"), VERSIONS.items(), ids=str)
def test_a_library_that_could_lose_commits_is_told_from_one_that_cannot(
    version: tuple[int, ...], is_safe: bool
) -> None:
    assert library_is_safe(version) is is_safe


@pytest.mark.spec("LED-01", "LED-04")
def test_the_bundled_library_is_used_and_an_unsafe_one_is_not_trusted_with_wal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert library_version() == DRIVER.sqlite_version
    if DRIVER is not sqlite3:
        assert store_module.journal_mode() == "wal"
    for version, mode in (
        ("3.40.1", "truncate"),
        ("3.51.2", "truncate"),
        ("3.52.0", "truncate"),
        ("3.53.2", "wal"),
    ):
        monkeypatch.setattr(store_module, "library_version", lambda version=version: version)
        assert store_module.journal_mode() == mode


@pytest.mark.spec("LED-01")
def test_a_ledger_in_truncate_mode_works_where_wal_is_not_safe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "library_version", lambda: "3.40.1")
    monkeypatch.setattr("ledger.sqlite.creation.journal_mode", store_module.journal_mode)
    book = new_book(tmp_path / "old")
    ledger = book.open()
    assert ledger._raw.execute("PRAGMA journal_mode").fetchone()[0] == "truncate"
    assert probe(ledger).sequence == 1
    assert ledger.read(lambda view: view.head()).sequence == 1
    ledger.close()
    assert not book.path.with_name(book.path.name + "-wal").exists()


PRAGMAS = {
    "journal_mode": "wal",
    "synchronous": 2,
    "foreign_keys": 1,
    "recursive_triggers": 1,
    "trusted_schema": 0,
    "cell_size_check": 1,
    "mmap_size": 0,
    "application_id": 0x504D4C47,
    "user_version": 4,
    "temp_store": 2,
    "ignore_check_constraints": 0,
    "writable_schema": 0,
    "defer_foreign_keys": 0,
    "read_uncommitted": 0,
}


@pytest.mark.spec("LED-01", "LED-05")
@pytest.mark.parametrize(("name", "value"), PRAGMAS.items())
def test_a_live_connection_has_its_pragmas(raw: Any, name: str, value: object) -> None:
    row = raw.execute(f"PRAGMA {name}").fetchone()
    assert row is not None or name == "mmap_size"
    assert row is None or row[0] == value
    assert (PRAGMAS["application_id"], PRAGMAS["user_version"]) == (APPLICATION_ID, SCHEMA_VERSION)


@pytest.mark.spec("LED-01")
def test_a_pragma_that_does_not_hold_stops_the_opening(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger.sqlite.connection._PRAGMAS", (("synchronous", "FULL", 3),))
    with pytest.raises(LedgerUnavailable) as caught:
        book.open()
    assert caught.value.reason == "pragma"


def test_the_connection_does_not_commit_by_itself(raw: Any) -> None:
    assert raw.isolation_level is None
    assert not raw.in_transaction


DENIED = [
    "DROP TABLE spans",
    "DROP TRIGGER effects_move",
    "DROP INDEX spans_story",
    "ALTER TABLE effects ADD COLUMN x TEXT",
    "ALTER TABLE effects RENAME TO e",
    "ATTACH DATABASE ':memory:' AS other",
    "DETACH DATABASE main",
    "CREATE TABLE other(x)",
    "CREATE TEMP TABLE other(x)",
    "CREATE VIEW other AS SELECT 1",
    "CREATE TEMP VIEW other AS SELECT 1",
    "CREATE TRIGGER t AFTER INSERT ON spans BEGIN SELECT 1; END",
    "CREATE TEMP TRIGGER t AFTER INSERT ON spans BEGIN SELECT 1; END",
    "UPDATE budgets SET reserved = 0",
    "UPDATE budgets SET settled = 0",
    "UPDATE budgets SET overrun = 0",
    "UPDATE budgets SET ceiling = 9",
    "UPDATE counters SET used = 0",
    "UPDATE repetition SET pending = 0",
    "UPDATE repetition SET succeeded = 9",
    "VACUUM INTO '/tmp/never-made.sqlite'",
]


@pytest.mark.spec("LED-05")
@pytest.mark.parametrize("statement", DENIED)
def test_the_store_itself_cannot_change_the_schema_or_a_total(raw: Any, statement: str) -> None:
    with pytest.raises(DatabaseError, match=r"not authorized|authorization denied"):
        raw.execute(statement)


@pytest.mark.spec("LED-05")
def test_totals_still_follow_their_rows_through_triggers(book: Book) -> None:
    ledger = book.open()
    open_task(ledger, "org", {CENT: 10})
    assert ledger._raw.execute("SELECT ceiling FROM budgets").fetchall() == [(10,)]
    ledger.close()


@pytest.mark.spec("LED-01")
def test_readers_cannot_write(book: Book) -> None:
    raw = open_database(book.path, journal_mode="wal", read_only=True)
    with pytest.raises(DatabaseError, match=r"readonly|read-only"):
        raw.execute("UPDATE head SET mac = x'00'")
    raw.close()


@pytest.mark.spec("LED-04")
def test_the_digest_of_the_schema_is_the_same_for_every_ledger_and_after_use(tmp_path: Path) -> None:
    one, other = made_book(tmp_path / "one").open(), new_book(tmp_path / "other").open()
    assert one.schema_digest == other.schema_digest
    open_task(one, "org", {CENT: 1})
    again = made_book(tmp_path / "again").open()
    assert schema_digest(schema_rows(one._raw)) == again.schema_digest
    for ledger in (one, other, again):
        ledger.close()


@pytest.mark.spec("LED-04")
@pytest.mark.parametrize(
    "statement",
    [
        "DROP TRIGGER effects_move",
        "CREATE TABLE other(x)",
        "CREATE INDEX other ON spans(name)",
        "CREATE VIEW other AS SELECT 1",
        "CREATE TRIGGER other AFTER INSERT ON spans BEGIN SELECT 1; END",
    ],
)
def test_any_change_of_the_schema_changes_its_digest_and_stops_the_opening(
    book: Book, statement: str
) -> None:
    raw = attacker(book.path)
    before = schema_digest(schema_rows(raw))
    assert before == expected_digest()
    raw.execute(statement)
    assert schema_digest(schema_rows(raw)) != before
    raw.close()
    with pytest.raises(LedgerCorrupt) as caught:
        book.open()
    assert caught.value.reason == "schema"


def test_every_object_of_the_text_is_in_a_new_ledger(book: Book) -> None:
    raw = attacker(book.path)
    live = {name for _kind, name, _sql in schema_rows(raw)}
    raw.close()
    assert live == set(re.findall(r"CREATE (?:TABLE|TRIGGER|INDEX) ([a-z_]+)", schema_statements()))


@pytest.mark.spec("LED-01")
def test_a_new_ledger_is_private_complete_and_never_made_over_something(tmp_path: Path) -> None:
    book = new_book(tmp_path / "new")
    assert stat.S_IMODE(book.path.stat().st_mode) == 0o600
    before = book.path.read_bytes()
    with pytest.raises(LedgerUnavailable) as caught:
        create_ledger(book.path, ledger_id=LedgerId("led_" + "0" * 32), keys=book.keys, now_ms=START)
    assert caught.value.reason == "exists"
    assert book.path.read_bytes() == before


def test_a_file_is_known_by_device_and_inode(book: Book) -> None:
    seen = book.path.stat()
    identity = file_identity(book.path)
    assert (identity.device, identity.inode) == (seen.st_dev, seen.st_ino)


def test_the_file_system_is_named_by_the_mount_that_holds_the_file(book: Book) -> None:
    named = file_system(book.path)
    assert named
    if Path("/proc/self/mountinfo").exists():
        assert file_system(Path("/proc/self/mountinfo")) in {"proc", "unknown"}
    ledger = book.open()
    assert ledger.durable is (named in DURABLE_FILE_SYSTEMS)
    ledger.close()


@pytest.mark.spec("LED-04")
def test_a_ledger_that_was_never_finished_says_so(tmp_path: Path) -> None:
    template = made_book(tmp_path / "b")
    template.path.unlink()
    create_file(template.path, journal_mode="wal")
    with pytest.raises(LedgerCorrupt) as caught:
        template.open()
    assert caught.value.reason == "unfinished"
