"""`issuer ledger backup FILE` and `issuer ledger restore FILE` as an operator types them (LED-08, SUR-01, SUR-03)."""

from pathlib import Path

import pytest

from tests.support.issuers import Made, standard_issuer
from tests.support.restoring import published, sent
from tests.support.shell import issuer_here, issuer_process


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return standard_issuer(tmp_path / "f0", port=9)


@pytest.mark.spec("LED-08", "SUR-03")
def test_a_ledger_is_backed_up_and_brought_back_from_the_shell(made: Made) -> None:
    """In the issuer's own folder, where a folder `ledger` stands beside, and with a path from there."""
    with made.open() as issuer:
        void = published(issuer, "void")
    saved = issuer_process("--json", "ledger", "backup", "../backup.sqlite", at=made.folder)
    assert (saved.exit, saved.err, saved.code) == (0, "", "backed_up")
    assert saved.answer["bytes"] == (made.folder.parent / "backup.sqlite").stat().st_size
    with made.open() as issuer:
        effect = sent(issuer, "v1")
    done = issuer_process("ledger", "restore", "../backup.sqlite", at=made.folder)
    assert (done.exit, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].startswith("restored  (f0/")
    assert lines[-1].startswith("The ledger is restored in a new epoch; earlier permits are void.")
    assert "`issuer list --state unknown`" in lines[-1]
    shown = issuer_here("--json", "show", effect, at=made.folder)
    assert shown.answer["state"] == "unknown"
    assert issuer_here("--json", "admit", void, at=made.folder).code == "revoked"
    again = issuer_here("--json", "ledger", "restore", "../backup.sqlite", at=made.folder)
    assert (again.answer["epoch"], again.answer["next"]) == (3, "tell_a_person")


@pytest.mark.spec("LED-08", "SUR-02")
@pytest.mark.parametrize(
    ("command", "file", "word"),
    [
        ("backup", "profile.toml", "already something"),
        ("backup", "nowhere/backup.sqlite", "cannot be written"),
        ("restore", "profile.toml", "damaged"),
        ("restore", "nothing.sqlite", "no file nothing.sqlite"),
        ("restore", "ledger/ledger.sqlite", "itself"),
    ],
)
def test_what_cannot_be_is_one_sentence_and_exit_8(made: Made, command: str, file: str, word: str) -> None:
    before = made.ledger.read_bytes()
    ran = issuer_here("ledger", command, file, at=made.folder)
    assert (ran.exit, ran.out) == (8, "")
    assert ran.err.startswith("ledger_unavailable: ")
    assert word in ran.err
    assert ran.err.count("\n") == 1
    assert made.ledger.read_bytes() == before


@pytest.mark.spec("LED-08", "ADM-06")
def test_a_ledger_in_use_is_backed_up_and_not_restored(made: Made) -> None:
    with made.open():
        assert issuer_here("--json", "ledger", "backup", "../b.sqlite", at=made.folder).code == "backed_up"
        ran = issuer_here("ledger", "restore", "../b.sqlite", at=made.folder)
    assert ran.exit == 8
    assert "Another process has this ledger open; stop it, and restore then." in ran.err
