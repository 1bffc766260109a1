"""Which ledger it is, and whether it was set back, copied or mixed up: refused in one sentence (ADM-06, LED-06).

Everything is done to real files, beside real processes. What is on record can be read in each case.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from issuer import Issuer, checking
from issuer.credentials import CredentialForeign, CredentialMissingError, credential_reader
from issuer.errors import SetupError
from issuer.places import Places
from issuer.sealing import KeyRing, KeysUnavailable, open_key_ring
from issuer.setup import initialise
from ledger.errors import LedgerCorrupt
from ledger.sqlite.check import CheckReport
from ledger.sqlite.halt import standing_halt
from tests.support.committing import Job
from tests.support.issuers import Made, refund, standard_issuer
from tests.support.kills import Nursery
from tests.support.ledgers import attacker, without_guards
from tests.support.restoring import published, saved, sent
from tests.support.shell import issuer_here

SUFFIXES = ("", "-wal", "-shm")


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return standard_issuer(tmp_path / "f0", port=9)


def put(source: Path, target: Path) -> None:
    """Put a ledger, and what stands beside it, in the place of another."""
    for suffix in SUFFIXES:
        target.with_name(target.name + suffix).unlink(missing_ok=True)
        if source.with_name(source.name + suffix).exists():
            shutil.copy(source.with_name(source.name + suffix), target.with_name(target.name + suffix))


def killed_after_admitting(made: Made, nursery: Nursery) -> str:
    """Leave a write-ahead log in which an admission stands that the sink has as well; return the effect."""
    with made.open() as issuer:
        effect = published(issuer, "v1")
    job = Job(profile=str(made.profile), command="admit", arguments={"effect": effect}, stays=True)
    with nursery.start(job) as child:
        child.stopped()
        child.kill()
    return effect


def refuses_everything_new(made: Made, effect: str | None = None) -> None:
    """See that nothing is sent, opened, closed or written, and that what is on record is shown."""
    with made.open() as issuer:
        answers = [refund(issuer), issuer.task_close("t1.a")]
        if effect is not None:
            answers.append(issuer.admit(effect))
        for answer in answers:
            assert answer.code in {"ledger_unavailable", "audit_unavailable"}
            assert "claim" not in answer.more
        halted = answers[1]
        assert (halted.code, halted.more["reason"]) == ("ledger_unavailable", "halted")
        assert "`issuer ledger check`" in halted.say
        assert issuer.list().code == issuer.task_list().code == "found"
    checked = Issuer.ledger_check(made.profile)
    assert checked.code == "ledger_unavailable"
    assert [row["check"] for row in checked.more["findings"]] == ["behind_sink"]  # type: ignore[attr-defined]
    assert "restore the newest backup" in checked.say


# ------------------------------------------------------------------------------------ set back, or in part


def without_its_log(made: Made) -> None:
    for suffix in ("-wal", "-shm"):
        made.ledger.with_name(made.ledger.name + suffix).unlink()


def with_half_its_log(made: Made) -> None:
    log = made.ledger.with_name(made.ledger.name + "-wal")
    os.truncate(log, log.stat().st_size // 2)


def with_an_empty_log(made: Made) -> None:
    os.truncate(made.ledger.with_name(made.ledger.name + "-wal"), 0)


def with_a_bit_flipped_in_the_last_frame(made: Made) -> None:
    log = made.ledger.with_name(made.ledger.name + "-wal")
    content = bytearray(log.read_bytes())
    content[-100] ^= 1
    log.write_bytes(bytes(content))


def with_a_bit_flipped_in_the_first_frame(made: Made) -> None:
    log = made.ledger.with_name(made.ledger.name + "-wal")
    content = bytearray(log.read_bytes())
    content[200] ^= 1
    log.write_bytes(bytes(content))


def as_its_file_alone(made: Made) -> None:
    copy = shutil.copy(made.ledger, made.folder / "copy")
    put(Path(copy), made.ledger)


HARM = (
    without_its_log,
    with_half_its_log,
    with_an_empty_log,
    with_a_bit_flipped_in_the_last_frame,
    with_a_bit_flipped_in_the_first_frame,
    as_its_file_alone,
)


@pytest.mark.spec("LED-06", "ADM-06", "LED-04")
@pytest.mark.parametrize("harm", HARM)
def test_a_ledger_that_lost_what_its_log_held_does_nothing_new(
    made: Made, nursery: Nursery, harm: Callable[[Made], None]
) -> None:
    """SQLite drops the end of such a log in silence, and the file by itself is whole."""
    effect = killed_after_admitting(made, nursery)
    harm(made)
    refuses_everything_new(made, effect)


@pytest.mark.spec("LED-06", "ADM-06", "LED-04")
def test_an_older_copy_that_is_put_back_does_nothing_new(made: Made) -> None:
    older = made.folder.parent / "older.sqlite"
    with made.open() as issuer:
        effect = published(issuer, "v1")
    shutil.copy(made.ledger, older)
    with made.open() as issuer:
        assert issuer.admit(effect).code == "admitted"
    put(older, made.ledger)
    refuses_everything_new(made, effect)


@pytest.mark.spec("LED-06", "ADM-06")
def test_two_copies_beside_each_other_never_both_send(made: Made, tmp_path: Path) -> None:
    """Both name the same sink; whoever comes second tells another story there."""
    with made.open() as issuer:
        effect = published(issuer, "v1")
    copy = Made(folder=Path(shutil.copytree(made.folder, tmp_path / "copy")), sink=made.sink)
    with copy.open() as issuer:
        assert issuer.admit(effect).code == "admitted"
    with made.open() as issuer:
        again = issuer.admit(effect)
        assert (again.code, again.more.get("claim")) == ("audit_unavailable", None)
    refuses_everything_new(made, effect)


@pytest.mark.spec("LED-06", "ADM-06")
def test_two_copies_that_are_open_at_once_never_both_send(made: Made, tmp_path: Path) -> None:
    with made.open() as issuer:
        effect = published(issuer, "v1")
    copy = Made(folder=Path(shutil.copytree(made.folder, tmp_path / "copy")), sink=made.sink)
    with made.open() as first, copy.open() as second:
        answers = [first.admit(effect), second.admit(effect)]
    assert [answer.code for answer in answers] == ["admitted", "audit_unavailable"]
    assert "claim" not in answers[1].more


@pytest.mark.spec("LED-06", "ADM-06", "AUD-02")
def test_a_copy_on_a_machine_without_the_sink_admits_nothing(made: Made) -> None:
    with made.open() as issuer:
        effect = published(issuer, "v1")
    made.sink.rename(made.sink.with_name("away"))
    with made.open() as issuer:
        answer = issuer.admit(effect)
        assert (answer.code, answer.more["reason"]) == ("audit_unavailable", "missing")
        assert issuer.show(effect).state == "permitted"


@pytest.mark.spec("LED-06", "ADM-06")
def test_a_file_renamed_over_an_open_ledger_ends_its_users(made: Made) -> None:
    older = made.folder.parent / "older.sqlite"
    shutil.copy(made.ledger, older)
    with made.open() as issuer:
        effect = published(issuer, "v1")
        older.replace(made.ledger)
        answer = issuer.admit(effect)
        assert (answer.code, answer.more["reason"]) == ("ledger_unavailable", "replaced")
        assert issuer.task_close("t1.a").more["reason"] == "dead"


# ------------------------------------------------------------------------------------ keys and credentials


@pytest.mark.spec("ADM-06", "LED-04")
def test_the_keys_of_another_ledger_open_nothing_and_are_told_for_what_they_are(
    made: Made, tmp_path: Path
) -> None:
    other = standard_issuer(tmp_path / "other", port=9)
    shutil.rmtree(made.folder / "keys")
    shutil.copytree(other.folder / "keys", made.folder / "keys")
    with pytest.raises(LedgerCorrupt) as caught:
        made.open()
    assert caught.value.reason == "foreign_keys"
    assert "bring back those that were made with it" in caught.value.message


@pytest.mark.spec("ADM-06")
def test_keys_that_were_carried_to_a_new_folder_make_no_second_ledger(made: Made, tmp_path: Path) -> None:
    second = tmp_path / "second"
    second.mkdir()
    for name in ("profile.toml", "policies", "keys", "credentials"):
        source = made.folder / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, second / name)
    with pytest.raises(SetupError) as caught:
        initialise(second, uid=os.getuid())
    assert caught.value.reason == "ledger_gone"
    assert not (second / "ledger" / "ledger.sqlite").exists()


@pytest.mark.spec("ADM-06", "SEC-03")
@pytest.mark.parametrize("how", ["without the word", "with another's word"])
def test_keys_that_do_not_say_whose_they_are_open_nothing(made: Made, tmp_path: Path, how: str) -> None:
    other = standard_issuer(tmp_path / "other", port=9)
    word = made.folder / "keys" / "ledger"
    if how == "without the word":
        word.unlink()
    else:
        mine, others = (open_key_ring(issuer.folder / "keys").ledger_id for issuer in (made, other))
        word.write_text(word.read_text().replace(str(mine), str(others)))
    with pytest.raises(KeysUnavailable) as caught:
        made.open()
    assert caught.value.reason == "unbound"
    with pytest.raises(KeysUnavailable):
        initialise(made.folder, uid=os.getuid())


@pytest.mark.spec("ADM-06", "LED-04")
def test_a_ledger_that_was_lost_is_not_made_anew(made: Made) -> None:
    shutil.rmtree(made.ledger.parent)
    with pytest.raises(SetupError) as caught:
        initialise(made.folder, uid=os.getuid())
    assert caught.value.reason == "ledger_gone"
    assert "issuer ledger restore" in caught.value.message


@pytest.mark.spec("ADM-06")
def test_an_init_that_was_interrupted_between_keys_and_ledger_is_completed(made: Made) -> None:
    shutil.rmtree(made.ledger.parent)
    made.ledger.parent.mkdir(mode=0o700)
    (made.ledger.parent / "founding").touch()
    made.sink.unlink()
    again = initialise(made.folder, uid=os.getuid())
    assert again.issuer == f"f0/{open_key_ring(made.folder / 'keys').ledger_id[4:12]}"  # type: ignore[index]
    assert not (made.ledger.parent / "founding").exists()


CHANGES = {'http = { method = "POST", ': 'http = { method = "POST", bearer = "shop_token", '}
SECRET = "tok_9f2c6a"


def with_credential(folder: Path, secret: bytes = SECRET.encode()) -> Made:
    made = standard_issuer(folder, port=9, changes=CHANGES)
    file = made.folder / "credentials" / "shop_token"
    file.write_bytes(secret)
    file.chmod(0o600)
    return made


def ring_of(made: Made) -> Callable[[], KeyRing]:
    return lambda: open_key_ring(made.folder / "keys")


@pytest.mark.spec("ADM-06", "SEC-01")
def test_a_credential_is_sealed_at_the_next_start_and_read_all_the_same(tmp_path: Path) -> None:
    made = with_credential(tmp_path / "f0")
    file = made.folder / "credentials" / "shop_token"
    made.open(reading=True).close()
    assert file.read_text() == SECRET
    made.open().close()
    assert SECRET.encode() not in file.read_bytes()
    assert (file.stat().st_mode & 0o777, list(file.parent.iterdir())) == (0o600, [file])
    assert credential_reader(file.parent, ring_of(made))("shop_token") == SECRET
    file.write_text("tok_new\n")
    assert credential_reader(file.parent, ring_of(made))("shop_token") == "tok_new"
    assert b"tok_new" not in file.read_bytes()


@pytest.mark.spec("ADM-06")
def test_a_sealed_credential_is_of_no_use_to_another_issuer(tmp_path: Path) -> None:
    made, other = with_credential(tmp_path / "f0"), with_credential(tmp_path / "other")
    made.open().close()
    shutil.copy(made.folder / "credentials" / "shop_token", other.folder / "credentials" / "shop_token")
    with pytest.raises(CredentialForeign) as caught:
        other.open()
    assert "sealed to another ledger" in caught.value.message
    assert SECRET not in caught.value.message
    with pytest.raises(CredentialMissingError, match="another ledger"):
        credential_reader(other.folder / "credentials", ring_of(other))("shop_token")
    other.open(reading=True).close()
    ran = issuer_here("--json", "request", "refund", at=other.folder)
    assert (ran.exit, ran.code) == (8, "keys_unavailable")


@pytest.mark.spec("ADM-06")
def test_a_credential_is_sealed_to_its_name_too(tmp_path: Path) -> None:
    made = with_credential(tmp_path / "f0")
    made.open().close()
    folder = made.folder / "credentials"
    shutil.copy(folder / "shop_token", folder / "bank_token")
    with pytest.raises(CredentialMissingError):
        credential_reader(folder, ring_of(made))("bank_token")


@pytest.mark.spec("ADM-06")
@pytest.mark.skipif(os.geteuid() == 0, reason="an administrator may write anything")
def test_a_credential_that_cannot_be_sealed_is_not_used(tmp_path: Path) -> None:
    made = with_credential(tmp_path / "f0")
    folder = made.folder / "credentials"
    folder.chmod(0o500)
    try:
        with pytest.raises(CredentialMissingError, match="cannot be sealed"):
            credential_reader(folder, ring_of(made))("shop_token")
    finally:
        folder.chmod(0o700)


# ------------------------------------------------------------------------------------ reading goes on


DAMAGE = {
    "head_mac": "UPDATE head SET mac = zeroblob(36)",
    "trail_length": "DELETE FROM spans WHERE sequence = (SELECT max(sequence) FROM spans)",
    "no_head": "DELETE FROM head",
    "unfinished": "DELETE FROM ledger",
    "schema": "DROP TABLE collected_spend",
}


@pytest.mark.spec("LED-04", "LED-06")
@pytest.mark.parametrize(("reason", "statement"), DAMAGE.items(), ids=list(DAMAGE))
def test_a_ledger_that_is_damaged_at_opening_is_shown_as_damaged_and_never_written(
    made: Made, reason: str, statement: str
) -> None:
    with made.open() as issuer:
        effect = sent(issuer, "v1")
    without_guards(made.ledger, statement) if reason != "schema" else _dropped(made.ledger, statement)
    with pytest.raises(LedgerCorrupt) as caught:
        made.open()
    assert caught.value.reason == reason
    before = made.ledger.read_bytes()
    for command in (
        ("show", effect),
        ("list",),
        ("list", "--state", "admitted"),
        ("task", "list"),
        ("task", "show", "t1"),
        ("audit", "timeline", effect),
        ("ledger", "stats"),
    ):
        ran = issuer_here("--json", *command, at=made.folder)
        assert (ran.exit, ran.code) == (0, "found"), ran
        assert "damaged" in ran.answer["say"]
        assert ran.answer["damaged"] == reason
    shown = issuer_here("--json", "show", effect, at=made.folder)
    assert shown.answer["state"] == "admitted"
    for command in (("task", "close", "t1"), ("commit", effect), ("admit", effect)):
        ran = issuer_here("--json", *command, at=made.folder)
        assert (ran.exit, ran.code) == (8, "ledger_unavailable")
    assert made.ledger.read_bytes() == before


def _dropped(path: Path, statement: str) -> None:
    raw = attacker(path)
    raw.execute(statement)
    raw.close()


@pytest.mark.spec("LED-04", "LED-06")
def test_a_row_that_was_edited_is_shown_as_it_stands_and_said_to_be_unproven(made: Made) -> None:
    with made.open() as issuer:
        effect = sent(issuer, "v1")
    without_guards(made.ledger, "UPDATE tasks SET subject = 'u-eve' WHERE name = 't1'")
    with made.open(reading=True) as issuer:
        for answer in (issuer.show(effect), issuer.task_show("t1"), issuer.task_list()):
            assert (answer.code, answer.more["damaged"]) == ("found", "task_mac")
            assert "may not be what was written" in answer.say
        closed = issuer.task_close("org")
        assert (closed.code, closed.more["reason"]) == ("ledger_unavailable", "task_mac")
    with made.open() as issuer:
        assert issuer.task_show("t1").code == "ledger_unavailable"
        assert refund(issuer).code == "ledger_unavailable"


# ------------------------------------------------------------------------------------ the marks beside it

WRONG = "UPDATE budgets SET settled = settled + 1"


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[CheckReport]:
    """Every check that is made, seen on its way."""
    seen: list[CheckReport] = []
    check = checking.checked_ledger

    def told(places: Places, ring: KeyRing) -> CheckReport:
        seen.append(check(places, ring))
        return seen[-1]

    monkeypatch.setattr(checking, "checked_ledger", told)
    return seen


@pytest.mark.spec("LED-04", "LED-06")
def test_who_takes_away_the_mark_of_a_finding_lifts_no_stop(made: Made) -> None:
    without_guards(made.ledger, WRONG)
    assert Issuer.ledger_check(made.profile).code == "ledger_unavailable"
    (made.ledger.parent / "halted").unlink()
    with made.open() as issuer:
        assert refund(issuer).more["reason"] == "halted"
    halt = standing_halt(made.ledger)
    assert halt is not None
    assert halt.word == "budget_settled"


def forged(path: Path, _older: bytes) -> None:
    _mac, *lines = path.read_text().splitlines()
    path.write_text("\n".join(["00000007" + "00" * 32, *lines, ""]))


def with_a_later_place(path: Path, _older: bytes) -> None:
    mac, boot, epoch, sequence = path.read_text().splitlines()
    path.write_text("\n".join([mac, boot, epoch, str(int(sequence) - 1), ""]))


def of_a_process_that_lives(path: Path, _older: bytes) -> None:
    path.write_text(path.read_text() + "ins_dead\n")


@pytest.mark.spec("LED-06")
@pytest.mark.parametrize("forge", [forged, with_a_later_place, of_a_process_that_lives])
def test_a_forged_word_that_the_ledger_was_whole_saves_no_check(
    made: Made, checks: list[CheckReport], forge: Callable[[Path, bytes], None]
) -> None:
    path = made.ledger.parent / "checked"
    made.open().close()
    assert checks == []
    forge(path, b"")
    made.open().close()
    assert len(checks) == 1
    made.open().close()
    assert len(checks) == 1


@pytest.mark.spec("LED-06")
def test_the_word_of_another_ledger_or_of_a_further_one_saves_no_check(
    made: Made, tmp_path: Path, checks: list[CheckReport]
) -> None:
    other = standard_issuer(tmp_path / "other", port=9)
    checks.clear()
    shutil.copy(other.ledger.parent / "checked", made.ledger.parent / "checked")
    made.open().close()
    assert len(checks) == 1
    file = saved(made)
    with made.open() as issuer:
        published(issuer, "v1")
    (made.ledger.parent / "checked").unlink()
    made.open().close()
    assert len(checks) == 2
    # The ledger goes back to where it was; the word is of a later place, and the sink has nothing to say yet.
    put(file, made.ledger)
    made.open().close()
    assert len(checks) == 3


@pytest.mark.spec("LED-06", "AUD-02")
def test_a_sink_that_cannot_be_read_stops_no_reading_and_proves_no_rollback(made: Made) -> None:
    made.sink.write_bytes(json.dumps({"kind": "something else"}).encode() + b"\n")
    with made.open() as issuer:
        assert issuer.task_close("t1.a").code == "closed"
        assert refund(issuer).code == "audit_unavailable"
    assert Issuer.ledger_check(made.profile).code == "found"


@pytest.mark.spec("LED-08", "AUD-05")
def test_an_epoch_that_no_restore_began_is_found(made: Made) -> None:
    without_guards(made.ledger, "UPDATE spans SET epoch = 2 WHERE sequence > 3", "UPDATE head SET epoch = 2")
    found = Issuer.ledger_check(made.profile).more["findings"]
    wheres = {row["where"] for row in found if row["check"] == "span_place"}  # type: ignore[attr-defined]
    assert wheres == {"spans 4"}
