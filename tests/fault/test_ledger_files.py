"""The ledger's file is missing, foreign, empty, linked, replaced, cut off, on a full or read-only disk (LED-04).

In each case nothing is made by accident, one sentence says why, and what was confirmed before stays.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ledger.errors import CommitUncertain, Fault, LedgerCorrupt, LedgerUnavailable
from ledger.model import InstantMs
from ledger.sqlite import SqliteLedger
from ledger.sqlite.connection import DRIVER
from ledger.sqlite.schema import SCHEMA_VERSION
from ledger.transitions import Position, RecordedSpan, Transition
from tests.support.ledger_children import ended, started
from tests.support.ledgers import (
    Book,
    attacker,
    commit_steps,
    made_book,
    probe,
    probe_step,
)
from tests.support.recorders import PlainRecorder


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return made_book(tmp_path / "book")


def reason_of(act: Callable[[], object], kind: type[Fault]) -> str:
    with pytest.raises(kind) as caught:
        act()
    sentence = str(caught.value)
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert isinstance(caught.value, LedgerUnavailable | LedgerCorrupt)
    return caught.value.reason


def unavailable(act: Callable[[], object]) -> str:
    return reason_of(act, LedgerUnavailable)


def corrupt(act: Callable[[], object]) -> str:
    return reason_of(act, LedgerCorrupt)


def as_sqlite_file(path: Path, *statements: str) -> None:
    """Put another SQLite database in place of the ledger."""
    path.unlink()
    raw = DRIVER.Connection(str(path), isolation_level=None)
    for statement in statements:
        raw.execute(statement)
    raw.close()


# ------------------------------------------------------------------------------------------ is it there


@pytest.mark.spec("LED-04")
@pytest.mark.parametrize("name", ["ledger.sqlit", "ledger/ledger.sqlite", "ledger.sqlite "])
def test_a_mistyped_path_is_told_and_nothing_is_made(book: Book, name: str) -> None:
    before = sorted(book.folder.rglob("*"))
    path = book.folder / name

    def open_there() -> SqliteLedger:
        return SqliteLedger(
            path, recorder=lambda _ledger_id: PlainRecorder(), keys=book.keys, clock=book.clock
        )

    assert unavailable(open_there) == "missing"
    assert sorted(book.folder.rglob("*")) == before


@pytest.mark.spec("LED-04")
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not_a_ledger"),
        (b"\x00" * 4096, "malformed"),
        (b"this is a text and no database at all, however long it may be\n" * 100, "malformed"),
        (b"SQLite format 3\x00" + b"\xff" * 4080, "malformed"),
    ],
    ids=["empty", "zeros", "text", "a broken head"],
)
def test_a_file_that_is_no_database_is_refused_and_left_alone(
    book: Book, content: bytes, reason: str
) -> None:
    book.path.write_bytes(content)
    assert corrupt(book.open) == reason
    assert book.path.read_bytes() == content


@pytest.mark.spec("LED-04")
def test_another_programs_database_is_refused_and_left_alone(book: Book) -> None:
    as_sqlite_file(book.path, "CREATE TABLE notes(x)", "INSERT INTO notes VALUES ('mine')")
    before = book.path.read_bytes()
    assert corrupt(book.open) == "not_a_ledger"
    assert book.path.read_bytes() == before


@pytest.mark.spec("LED-04")
@pytest.mark.parametrize("version", [0, SCHEMA_VERSION + 1, 2**31 - 1])
def test_another_version_of_the_schema_is_refused(book: Book, version: int) -> None:
    raw = attacker(book.path)
    raw.execute(f"PRAGMA user_version = {version}")
    raw.close()
    assert corrupt(book.open) == "schema_version"


@pytest.mark.spec("LED-04")
def test_a_file_of_which_pages_are_gone_is_refused(book: Book) -> None:
    ledger = book.open()
    commit_steps(ledger, *(probe_step(str(number)) for number in range(200)))
    ledger.close()
    size = book.path.stat().st_size
    os.truncate(book.path, size // 2)
    with pytest.raises((LedgerCorrupt, LedgerUnavailable)):
        probe(book.open())


@pytest.mark.spec("LED-04")
def test_a_file_whose_pages_are_overwritten_admits_nothing(book: Book) -> None:
    ledger = book.open()
    commit_steps(ledger, *(probe_step(str(number)) for number in range(200)))
    ledger.close()
    content = bytearray(book.path.read_bytes())
    content[8192:] = os.urandom(len(content) - 8192)
    book.path.write_bytes(bytes(content))
    with pytest.raises((LedgerCorrupt, LedgerUnavailable)):
        probe(book.open())


# --------------------------------------------------------------------------------------- is it this one


@pytest.mark.spec("LED-04", "ADM-06")
def test_a_second_name_or_a_link_is_refused_at_the_start_and_while_open(book: Book, tmp_path: Path) -> None:
    ledger = book.open()
    second = tmp_path / "second"
    second.hardlink_to(book.path)
    assert unavailable(lambda: probe(ledger)) == "linked_twice"
    assert unavailable(book.open) == "linked_twice"
    second.unlink()
    assert probe(ledger).sequence == 1
    ledger.close()
    moved = tmp_path / "moved"
    book.path.rename(moved)
    book.path.symlink_to(moved)
    assert unavailable(book.open) == "not_a_file"
    book.path.unlink()
    book.path.mkdir()
    assert unavailable(book.open) == "not_a_file"


@pytest.mark.spec("LED-04", "ADM-06")
def test_a_file_that_is_replaced_while_open_ends_this_object(book: Book, tmp_path: Path) -> None:
    ledger = book.open()
    probe(ledger)
    other = made_book(tmp_path / "other")
    original = book.path.rename(tmp_path / "original")
    shutil.copy(other.path, book.path)
    assert unavailable(lambda: probe(ledger)) == "replaced"
    # Even if the old file comes back, this object has stopped: others may have used the new one meanwhile.
    original.replace(book.path)
    assert unavailable(lambda: probe(ledger)) == "dead"
    ledger.close()


@pytest.mark.spec("LED-04")
def test_a_file_that_is_removed_while_open_is_missing_and_is_not_made_again(book: Book) -> None:
    ledger = book.open()
    book.path.unlink()
    assert unavailable(lambda: probe(ledger)) == "missing"
    assert not book.path.exists()
    ledger.close()


@pytest.mark.spec("LED-04")
def test_a_lock_file_that_is_a_link_is_not_followed(book: Book, tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("kept")
    book.path.with_name("ledger.sqlite.lock").unlink(missing_ok=True)
    book.path.with_name("ledger.sqlite.lock").symlink_to(target)
    assert unavailable(book.open) == "lock_file"
    assert target.read_text() == "kept"


# ------------------------------------------------------------------------------------ what a kill leaves


@pytest.mark.spec("LED-01")
def test_what_a_killed_process_had_committed_is_in_the_wal_and_is_found(book: Book) -> None:
    child = started("dies", book.folder, "committed")
    assert ended(child)[0] == -signal.SIGKILL
    assert book.path.with_name("ledger.sqlite-wal").stat().st_size > 0
    ledger = book.open()
    assert ledger.read(lambda view: view.head()).sequence == 2
    ledger.close()


@pytest.mark.spec("LED-06")
def test_without_the_wal_of_a_killed_process_the_ledger_is_older_and_says_how_old(book: Book) -> None:
    # Nothing inside the file can tell; the audit sink outside does, and refuses (see the issuer's own tests).
    child = started("dies", book.folder, "committed")
    assert ended(child)[0] == -signal.SIGKILL
    for suffix in ("-wal", "-shm"):
        book.path.with_name("ledger.sqlite" + suffix).unlink()
    ledger = book.open()
    assert ledger.read(lambda view: view.head()).sequence == 0
    assert probe(ledger).sequence == 1
    ledger.close()


@pytest.mark.spec("LED-01")
def test_a_closed_ledger_is_one_file_that_can_be_copied(book: Book, tmp_path: Path) -> None:
    ledger = book.open()
    probe(ledger)
    ledger.read(lambda view: view.head())
    ledger.close()
    assert not book.path.with_name("ledger.sqlite-wal").exists()
    copy = made_book(tmp_path / "copy")
    shutil.copy(book.path, copy.path)
    again = copy.open()
    assert again.read(lambda view: view.head()).sequence == 1
    again.close()


# ------------------------------------------------------------------------------------------ bad disks


def mounted(*arguments: str) -> bool:
    program = shutil.which("mount")
    return program is not None and (
        subprocess.run([program, *arguments], capture_output=True, check=False).returncode == 0
    )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    if not mounted("-t", "tmpfs", "-o", "size=1500k,mode=0700", "tmpfs", str(folder)):
        pytest.skip("a file system cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


class Large(PlainRecorder):
    """Makes spans of 16 KiB, so that a small disk is soon full."""

    def record(
        self, transition: Transition, *, position: Position, parent_span_id: str | None, at_ms: InstantMs
    ) -> RecordedSpan:
        honest = super().record(transition, position=position, parent_span_id=parent_span_id, at_ms=at_ms)
        return RecordedSpan(
            span_id=honest.span_id,
            trace_id=honest.trace_id,
            body=honest.body.ljust(16_000, b" "),
            attributes={},
        )


def filled(ledger: SqliteLedger) -> tuple[int, Fault]:
    """Commit until a fault; return the last confirmed sequence and the fault."""
    confirmed = 0
    for _ in range(500):
        try:
            confirmed = probe(ledger).sequence
        except Fault as fault:
            return confirmed, fault
    raise AssertionError("the disk was never full")


@pytest.mark.spec("LED-01", "LED-04", "ADM-03")
def test_a_full_disk_loses_nothing_that_was_confirmed_and_writes_nothing_by_halves(small_disk: Path) -> None:
    book = made_book(small_disk / "book")
    ledger = book.open(recorder=lambda _ledger_id: Large())
    confirmed, fault = filled(ledger)
    assert confirmed > 5
    if isinstance(fault, LedgerUnavailable):
        assert fault.reason == "disk_full"
    else:
        assert isinstance(fault, CommitUncertain)
        assert unavailable(lambda: probe(ledger)) == "dead"
    assert ledger.read(lambda view: view.head()).sequence == confirmed
    ledger.close()
    assert mounted("-o", "remount,size=8m", str(small_disk))
    again = book.open()
    assert again.read(lambda view: len(view.spans_after(0, limit=999))) == confirmed
    assert probe(again).sequence == confirmed + 1
    again.close()


@pytest.mark.spec("LED-04")
def test_a_read_only_file_system_is_told_before_and_while_it_is_in_use(small_disk: Path) -> None:
    book = made_book(small_disk / "book")
    ledger = book.open()
    probe(ledger)
    ledger.close()
    if not mounted("-o", "remount,ro", str(small_disk)):
        pytest.skip("a file system cannot be remounted here")
    assert unavailable(book.open) in {"lock_file", "read_only", "unreadable"}
    assert mounted("-o", "remount,rw", str(small_disk))
    again = book.open()
    assert again.read(lambda view: view.head()).sequence == 1
    assert not again.durable
    again.close()


@pytest.mark.spec("LED-04")
@pytest.mark.skipif(os.geteuid() == 0, reason="an administrator may write anything")
def test_a_folder_that_cannot_be_written_to_is_told(book: Book) -> None:
    book.folder.chmod(0o500)
    try:
        assert unavailable(book.open) in {"lock_file", "read_only", "unreadable"}
    finally:
        book.folder.chmod(0o700)
