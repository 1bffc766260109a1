"""A backup of a ledger in use: whole, private, on record, nobody's lock lost, and never half a file (LED-08)."""

import os
import shutil
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from issuer import Issuer
from issuer.backup import back_up
from issuer.checking import checked_file
from issuer.places import Places
from issuer.sealing import open_key_ring
from ledger.errors import Fault, LedgerCorrupt, LedgerUnavailable
from ledger.sqlite.copying import copied
from ledger.sqlite.halt import set_halt
from tests.support.issuers import Made, standard_issuer
from tests.support.ledger_children import ended, go, started
from tests.support.ledgers import Book, attacker, made_book, without_guards
from tests.support.restoring import BACKUP_STEPS, dies_at, published, saved, sent


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return standard_issuer(tmp_path / "f0", port=9)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "backup.sqlite"


def reason(act: Callable[[], object]) -> str:
    with pytest.raises(Fault) as caught:
        act()
    assert isinstance(caught.value, LedgerUnavailable | LedgerCorrupt)
    assert "\n" not in caught.value.message
    assert caught.value.message.endswith(".")
    return caught.value.reason


def names(made: Made) -> list[str]:
    with made.open(reading=True) as issuer:
        story = issuer._house.ledger.read(lambda view: view.story(issuer._house.ledger.ledger_id))
    return [row.name for row in story]


@pytest.mark.spec("LED-08", "LED-01")
def test_a_backup_is_one_private_file_that_passes_the_full_check(made: Made, file: Path) -> None:
    with made.open() as issuer:
        sent(issuer, "before")
        answer = Issuer.ledger_backup(made.profile, file)
        assert answer.code == "backed_up"
        sent(issuer, "after")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in sorted(file.parent.iterdir()) if "backup" in path.name] == [file.name]
    raw = attacker(file)
    assert raw.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert raw.execute("SELECT count(*) FROM effects").fetchone() == (1,)
    raw.close()
    report = checked_file(file, open_key_ring(Places(made.profile).keys), is_copy=True)
    assert report.is_clean
    assert (answer.more["epoch"], answer.more["sequence"]) == (1, report.spans)
    assert answer.more["bytes"] == file.stat().st_size


@pytest.mark.spec("LED-08")
def test_the_answer_says_what_else_must_be_kept_and_the_keys_are_not_in_it(made: Made, file: Path) -> None:
    say = Issuer.ledger_backup(made.profile, file).say
    for thing in ("keys/", "protected/", "credentials", "profile", "policies"):
        assert thing in say
    (key,) = (path for path in (made.folder / "keys").iterdir() if path.suffix == ".key")
    assert key.read_text().split()[3].encode() not in file.read_bytes()


@pytest.mark.spec("LED-08", "AUD-01", "AUD-02")
def test_a_backup_is_on_record_with_its_last_span_and_the_sink_has_that(made: Made, file: Path) -> None:
    answer = Issuer.ledger_backup(made.profile, file)
    with made.open(reading=True) as issuer:
        ledger = issuer._house.ledger
        span = ledger.read(lambda view: view.story(ledger.ledger_id))[-1]
    assert span.name == "ledger.backed_up"
    assert f'"permit.base.sequence":{answer.more["sequence"]}'.encode() in span.body
    assert f'"sequence":{span.position.sequence},'.encode() in made.sink.read_bytes().splitlines()[-1]


@pytest.mark.spec("LED-08")
@pytest.mark.parametrize("what", ["file", "empty file", "folder", "link", "ledger"])
def test_nothing_is_ever_overwritten(made: Made, file: Path, what: str) -> None:
    precious = file.parent / "precious"
    precious.write_text("kept")
    match what:
        case "file":
            file.write_text("kept")
        case "empty file":
            file.touch()
        case "folder":
            file.mkdir()
        case "link":
            file.symlink_to(precious)
        case _:
            file = made.ledger
    before = file.stat()
    assert reason(lambda: Issuer.ledger_backup(made.profile, file)) == "exists"
    after = file.stat()
    assert (before.st_ino, before.st_size) == (after.st_ino, after.st_size)
    assert precious.read_text() == "kept"
    assert "ledger.backed_up" not in names(made)


@pytest.mark.spec("LED-08", "LED-01")
def test_writers_go_on_while_a_copy_is_made_and_it_is_of_one_instant(tmp_path: Path) -> None:
    book = made_book(tmp_path / "book")
    children = [started("probes", book.folder, name, "150") for name in ("a", "b")]
    go(children)
    copies = [tmp_path / f"copy{number}" for number in range(3)]
    for copy in copies:
        copied(book.path, copy)
    assert [ended(child)[1] for child in children] == ["done", "done"]
    ledger = book.open()
    assert ledger.read(lambda view: view.head()).sequence == 300
    ledger.close()
    for copy in copies:
        folder = tmp_path / f"of-{copy.name}"
        shutil.copytree(book.folder, folder)
        copy.replace(folder / "ledger.sqlite")
        again = Book(folder=folder).open()
        head = again.read(lambda view: view.head()).sequence
        assert len(again.read(lambda view: view.spans_after(0, limit=999))) == head <= 300
        again.close()


_opened: list[str] = []


@pytest.mark.spec("LED-08", "LED-01")
def test_the_process_that_uses_the_ledger_opens_its_files_by_no_other_means(made: Made, file: Path) -> None:
    """Closing such a descriptor would drop SQLite's locks; the process that copies has none to lose."""
    watching = True

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if watching and event == "open":
            _opened.append(os.fspath(str(arguments[0])))

    sys.addaudithook(watch)
    with made.open() as issuer:
        sent(issuer, "v1")
        _opened.clear()
        Issuer.ledger_backup(made.profile, file)
        seen = list(_opened)
        sent(issuer, "v2")
    watching = False
    ours = {str(made.ledger) + suffix for suffix in ("", "-wal", "-shm")}
    assert any("backup" in path for path in seen)
    assert not ours & set(seen)


@pytest.mark.spec("LED-08", "LED-04")
def test_what_is_damaged_or_halted_is_evidence_and_no_backup(made: Made, file: Path) -> None:
    set_halt(made.ledger, "tree")
    assert reason(lambda: Issuer.ledger_backup(made.profile, file)) == "halted"
    (made.ledger.parent / "halted").unlink()
    without_guards(made.ledger, "UPDATE head SET mac = zeroblob(36)")
    assert reason(lambda: Issuer.ledger_backup(made.profile, file)) == "head_mac"
    assert not file.exists()


@pytest.mark.spec("LED-08", "AUD-01")
def test_a_copy_that_cannot_be_put_on_record_goes_again(made: Made, file: Path) -> None:
    def halts(step: str) -> None:
        if step == "record":
            set_halt(made.ledger, "tree")

    assert reason(lambda: back_up(made.profile, file, observe=halts)) == "halted"
    assert not file.exists()
    assert list(file.parent.glob(".backup*")) == []


@pytest.mark.spec("LED-08", "ADM-06")
def test_a_copy_that_was_exchanged_before_it_was_looked_at_is_no_backup(made: Made, file: Path) -> None:
    def exchanges(step: str) -> None:
        if step == "verify":
            other = standard_issuer(file.parent / "other", port=9)
            shutil.copy(other.ledger, file)

    assert reason(lambda: back_up(made.profile, file, observe=exchanges)) == "foreign_ledger"
    assert not file.exists()


@pytest.mark.spec("LED-08")
@pytest.mark.parametrize("step", BACKUP_STEPS)
def test_a_kill_leaves_no_file_or_a_whole_one(made: Made, file: Path, step: str) -> None:
    with made.open() as issuer:
        published(issuer, "v1")
    dies_at("backup", made, file, step)
    assert file.exists() == (step != "copy")
    if file.exists():
        assert checked_file(file, open_key_ring(Places(made.profile).keys), is_copy=True).is_clean
    assert saved(made, "another.sqlite").exists()


@pytest.mark.spec("LED-08")
def test_a_child_that_is_killed_leaves_nothing(
    made: Made, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killer = file.parent / "python"
    killer.write_text("#!/bin/sh\nkill -9 $$\n")
    killer.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(killer))
    assert reason(lambda: Issuer.ledger_backup(made.profile, file)) == "copy_failed"
    assert not file.exists()
    monkeypatch.setattr(sys, "executable", str(file.parent / "nothing"))
    assert reason(lambda: Issuer.ledger_backup(made.profile, file)) == "no_process"
    assert not file.exists()


@pytest.mark.spec("LED-08", "AUD-02")
def test_a_sink_that_takes_no_note_is_told_and_the_copy_stays(made: Made, file: Path) -> None:
    made.sink.chmod(0o400)
    answer = Issuer.ledger_backup(made.profile, file)
    assert (answer.code, file.exists()) == ("backed_up", True)
    assert "has not taken note" in answer.say
