"""Acts that open no issuer: signed like any other, asked of what is in force, and stopped by no draft.

A strict house cannot be activated by anybody yet (OPR-03), so the strict rows use `Desk(..., is_strict=True)`.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from issuer import Issuer
from issuer.desk import Desk
from issuer.grounds import UNREAD
from issuer.places import Places
from issuer.wire import Answer
from ledger.errors import LedgerUnavailable
from tests.support.callers import WITH_ROLES, Shop, opened_shop
from tests.support.cases import trail
from tests.support.issuers import STANDARD_POLICY
from tests.support.restoring import published, sent
from tests.support.revised import activated, rewritten
from tests.support.shell import issuer_here

Act = Callable[[Desk], Answer]
ME = f'login = "uid:{os.getuid()}"'
DRAFT = "// a draft\n"


@pytest.fixture(name="shop")
def _shop(tmp_path: Path) -> Iterator[Shop]:
    with opened_shop(tmp_path / "f0", policy=WITH_ROLES) as shop:
        yield shop


def desk(shop: Shop) -> Desk:
    return Desk(shop.made.profile, is_strict=True)


def signed(shop: Shop, at: Desk, act: Act, person: str = "u-ana") -> Answer:
    statement = at.stated(person, act)
    return act(at.signed(shop.sign(person, statement), statement))


def edited(shop: Shop, more: str = DRAFT) -> None:
    rewritten(shop.made.folder / "policies" / "policies.cedar", WITH_ROLES + more)


def told(shop: Shop) -> dict[str, object]:
    """Return what the last span says."""
    with shop.made.open(reading=True) as issuer:
        return dict(trail(issuer)[-1].attributes)


def acts(shop: Shop, tmp_path: Path) -> dict[str, tuple[Act, str]]:
    file = tmp_path / "before.sqlite"
    assert Issuer.ledger_backup(shop.made.profile, file).code == "backed_up"
    edited(shop)
    return {
        "activate": (lambda one: one.activate(), "activated"),
        "ledger-backup": (lambda one: one.ledger_backup(tmp_path / "new.sqlite"), "backed_up"),
        "ledger-restore": (lambda one: one.ledger_restore(file), "restored"),
    }


WORDS = ("activate", "ledger-backup", "ledger-restore")


@pytest.mark.spec("SEC-02", "OPR-03", "LED-08", "POL-07")
@pytest.mark.parametrize("word", WORDS)
def test_in_strict_an_act_at_the_desk_takes_a_signature_once(shop: Shop, tmp_path: Path, word: str) -> None:
    act, code = acts(shop, tmp_path)[word]
    shop.issuer.close()
    assert act(desk(shop)).code == "signature_needed"
    last = told(shop)
    assert (last["permit.command"], last["permit.refusal"]) == (word, "signature_needed")
    assert signed(shop, desk(shop), act, "otto").code == "forbidden"
    assert told(shop)["permit.signer"] == "otto"
    statement = desk(shop).stated("u-ana", act)
    signature = shop.sign("u-ana", statement)
    wrong = act(desk(shop).signed(shop.sign("otto", statement), statement))
    assert (wrong.code, wrong.more["field"]) == ("signature_refused", "unknown_key")
    assert act(desk(shop).signed(signature, statement)).code == code
    last = told(shop)
    assert (last["permit.signer"], last["permit.caller"]) == ("u-ana", "u-ana")
    (tmp_path / "new.sqlite").unlink(missing_ok=True)
    again = act(desk(shop).signed(signature, statement))
    assert again.code == "signature_refused"
    assert again.more["field"] == ("epoch" if word == "ledger-restore" else "replayed")
    assert not (tmp_path / "new.sqlite").exists()


@pytest.mark.spec("POL-07", "APP-01", "SEC-02")
def test_files_that_changed_after_they_were_signed_do_not_come_in_under_the_signature(shop: Shop) -> None:
    edited(shop)
    act: Act = lambda one: one.activate()  # noqa: E731 - one act, given twice
    statement = desk(shop).stated("u-ana", act)
    signature = shop.sign("u-ana", statement)
    before = shop.issuer.revisions().more["revisions"]
    edited(shop, '@id("mine") permit (principal, action, resource);\n')
    for at in (desk(shop), Desk(shop.made.profile)):
        refused = act(at.signed(signature, statement))
        assert (refused.code, refused.more["field"]) == ("signature_refused", "arguments")
    assert shop.issuer.revisions().more["revisions"] == before
    edited(shop)
    done = act(desk(shop).signed(signature, statement))
    assert done.code == "activated"
    assert str(done.more["revision"]) in statement


@pytest.mark.spec("LED-08", "APP-01", "SEC-02")
def test_a_signature_for_one_backup_brings_no_other_back(shop: Shop, tmp_path: Path) -> None:
    file, later = tmp_path / "one.sqlite", tmp_path / "two.sqlite"
    assert Issuer.ledger_backup(shop.made.profile, file).code == "backed_up"
    assert Issuer.ledger_backup(shop.made.profile, later).code == "backed_up"
    shop.issuer.close()
    act: Act = lambda one: one.ledger_restore(later)  # noqa: E731 - one act, given twice
    statement = desk(shop).stated("u-ana", act)
    signature = shop.sign("u-ana", statement)
    file.replace(later)
    refused = act(desk(shop).signed(signature, statement))
    assert (refused.code, refused.more["field"]) == ("signature_refused", "arguments")


@pytest.mark.spec("POL-01", "SEC-02", "LED-08")
def test_in_ordinary_the_policies_in_force_are_asked_about_backup_and_restore(
    shop: Shop, tmp_path: Path
) -> None:
    """The account is u-ana's; a draft that gives the role back is not what is asked."""
    every = acts(shop, tmp_path)
    text = shop.made.profile.read_text()
    shop.made.profile.write_text(
        text.replace('u-ana = { roles = ["owner", "operator"]', "u-ana = { roles = []")
    )
    activated(shop.made.profile)
    shop.made.profile.write_text(text)
    shop.issuer.close()
    plain = Desk(shop.made.profile)
    for word in ("ledger-backup", "ledger-restore"):
        no = every[word][0](plain)
        assert (no.code, no.more["field"]) == ("forbidden", "activate")
        assert told(shop)["permit.command"] == word
    assert not (tmp_path / "new.sqlite").exists()
    assert signed(shop, plain, every["ledger-backup"][0], "olga").code == "backed_up"
    assert signed(shop, plain, every["ledger-restore"][0], "olga").code == "restored"


# ------------------------------------------------------------------------------------ a draft


@pytest.mark.spec("POL-07", "LED-04", "LED-08")
@pytest.mark.parametrize("draft", ["broken", "another sink", "gone", "the account is a host"])
def test_no_draft_stops_or_decides_what_the_desk_does(shop: Shop, tmp_path: Path, draft: str) -> None:
    text = shop.made.profile.read_text()
    changed = {
        "broken": text.replace("lifetime = ", "lifetme = "),
        "another sink": text.replace("sink.local", "sink.other"),
        "the account is a host": text.replace(f", {ME}", "").replace('login = "uid:4711"', ME),
    }
    if draft == "gone":
        shop.made.profile.unlink()
    else:
        shop.made.profile.write_text(changed[draft])
    stats = Issuer.ledger_stats(shop.made.profile)
    assert (stats.code, UNREAD in stats.say) == ("found", False)
    assert stats.more["stats"]["fill"] != []  # type: ignore[index]
    file = tmp_path / "b.sqlite"
    backup = Issuer.ledger_backup(shop.made.profile, file)
    assert (backup.code, UNREAD in backup.say) == ("backed_up", False)
    assert "not taken note" not in backup.say
    shop.issuer.close()
    restored = Issuer.ledger_restore(shop.made.profile, file)
    assert (restored.code, restored.more["frozen"]) == ("restored", [])
    checked = Issuer.ledger_check(shop.made.profile)
    assert (checked.code, checked.mode, checked.issuer) == ("found", "ordinary", backup.issuer)
    shop.made.profile.write_text(text)
    last = told(shop)
    assert last["permit.caller"] == "u-ana"


@pytest.mark.spec("SEC-02")
@pytest.mark.parametrize("kind", ["host", "actor"])
def test_a_host_or_an_actor_by_its_account_gives_none_of_these(tmp_path: Path, kind: str) -> None:
    with opened_shop(tmp_path / "f0", policy=STANDARD_POLICY) as shop:
        file = tmp_path / "b.sqlite"
        assert Issuer.ledger_backup(shop.made.profile, file).code == "backed_up"
        text = shop.made.profile.read_text().replace(f", {ME}", "")
        last = 'groups = ["bots"], login = "token"'
        agent = (
            text.replace('login = "uid:4711"', ME)
            if kind == "host"
            else text.replace(last, f'groups = ["bots"], {ME}')
        )
        shop.made.profile.write_text(agent)
        activated(shop.made.profile)
        shop.made.profile.write_text(text)
        shop.issuer.close()
        acts: dict[str, Callable[[], Answer]] = {
            "ledger-check": lambda: Issuer.ledger_check(shop.made.profile),
            "ledger-stats": lambda: Issuer.ledger_stats(shop.made.profile),
            "ledger-backup": lambda: Issuer.ledger_backup(shop.made.profile, tmp_path / "c.sqlite"),
            "ledger-restore": lambda: Issuer.ledger_restore(shop.made.profile, file),
            "activate": lambda: Issuer.activate(shop.made.profile),
        }
        for word, act in acts.items():
            no = act()
            assert (no.code, no.more["field"]) == ("forbidden", "caller"), word
            last_span = told(shop)
            assert last_span["permit.command"] == word
            assert str(last_span["permit.caller"]).startswith(f"{kind}:")
        assert not (tmp_path / "c.sqlite").exists()


# ------------------------------------------------------------------------------ where nothing tells what is in force


def unreadable(shop: Shop) -> None:
    """Lose the copies of every revision, and change the files on disk."""
    shutil.rmtree(Places(shop.made.profile).revisions)
    edited(shop)


@pytest.mark.spec("POL-07", "LED-04", "LED-08")
def test_where_no_file_tells_what_is_in_force_keys_and_ledger_do_and_everything_is_frozen(
    shop: Shop, tmp_path: Path
) -> None:
    held = published(shop.issuer, "held")
    unreadable(shop)
    file = tmp_path / "b.sqlite"
    backup = Issuer.ledger_backup(shop.made.profile, file)
    assert backup.code == "backed_up"
    assert UNREAD in backup.say
    assert (backup.mode, "not taken note" in backup.say) == ("ordinary", False)
    stats = Issuer.ledger_stats(shop.made.profile)
    assert (stats.code, UNREAD in stats.say, stats.more["stats"]["fill"]) == ("found", True, [])  # type: ignore[index]
    assert UNREAD in Issuer.ledger_check(shop.made.profile).say
    shop.issuer.close()
    restored = Issuer.ledger_restore(shop.made.profile, file)
    assert restored.code == "restored"
    assert "all" in restored.more["stopped"]  # type: ignore[operator]
    assert UNREAD in restored.say
    assert str(told(shop)["permit.caller"]).startswith("uid:")
    activated(shop.made.profile)
    with shop.made.open() as issuer:
        assert issuer.show(held).state == "revoked"


@pytest.mark.spec("LED-08", "POL-03")
def test_admissions_that_nobody_can_count_are_not_restored_without_the_files_that_say_how(
    shop: Shop, tmp_path: Path
) -> None:
    file = tmp_path / "b.sqlite"
    assert Issuer.ledger_backup(shop.made.profile, file).code == "backed_up"
    effect = sent(shop.issuer, "since")
    unreadable(shop)
    shop.issuer.close()
    with pytest.raises(LedgerUnavailable) as refused:
        Issuer.ledger_restore(shop.made.profile, file)
    assert refused.value.reason == "revision_unread"
    rewritten(
        shop.made.folder / "policies" / "policies.cedar", WITH_ROLES
    )  # byte for byte what was activated
    assert Issuer.ledger_restore(shop.made.profile, file).more["replayed"] == 1
    assert Issuer.activate(shop.made.profile).code == "activated"
    with shop.made.open() as issuer:
        assert issuer.show(effect).state == "unknown"


@pytest.mark.spec("SEC-02", "OPR-03", "LED-08")
def test_a_strict_restore_onto_no_ledger_goes_by_the_backups_own_people(shop: Shop, tmp_path: Path) -> None:
    file = tmp_path / "b.sqlite"
    assert Issuer.ledger_backup(shop.made.profile, file).code == "backed_up"
    shop.issuer.close()
    for path in Places(shop.made.profile).ledger_folder.glob("ledger.sqlite*"):
        path.unlink()
    act: Act = lambda one: one.ledger_restore(file)  # noqa: E731 - one act, given four times
    assert act(desk(shop)).code == "signature_needed"
    assert signed(shop, desk(shop), act, "otto").code == "forbidden"
    assert signed(shop, desk(shop), act).code == "restored"


@pytest.mark.spec("SEC-02", "OPR-03", "LED-08", "POL-07")
def test_after_a_restore_that_left_none_in_force_the_people_of_the_one_before_sign_for_the_next(
    shop: Shop, tmp_path: Path
) -> None:
    file = tmp_path / "b.sqlite"
    assert Issuer.ledger_backup(shop.made.profile, file).code == "backed_up"
    edited(shop)
    activated(shop.made.profile)
    shop.issuer.close()
    assert Issuer.ledger_restore(shop.made.profile, file).more["activate"] is True
    act: Act = lambda one: one.activate()  # noqa: E731 - one act, given thrice
    assert act(desk(shop)).code == "signature_needed"
    assert signed(shop, desk(shop), act, "otto").code == "forbidden"
    assert signed(shop, desk(shop), act, "olga").code == "activated"


@pytest.mark.spec("SEC-03", "LED-08", "APP-01")
def test_a_key_that_a_sink_tells_was_revoked_restores_nothing(shop: Shop, tmp_path: Path) -> None:
    file = tmp_path / "b.sqlite"
    assert Issuer.ledger_backup(shop.made.profile, file).code == "backed_up"
    act: Act = lambda one: one.ledger_restore(file)  # noqa: E731 - one act, given twice
    assert shop.issuer.revoke("key", "olga").code == "revoked_now"
    shop.issuer.close()
    refused = signed(shop, desk(shop), act, "olga")
    assert (refused.code, refused.more["field"]) == ("signature_refused", "key")
    for path in Places(shop.made.profile).ledger_folder.glob("ledger.sqlite*"):
        path.unlink()
    refused = signed(shop, desk(shop), act, "olga")
    assert (refused.code, refused.more["field"]) == ("signature_refused", "key")
    assert not Places(shop.made.profile).ledger.exists()


@pytest.mark.spec("SEC-02", "OPR-03")
def test_in_strict_without_any_file_in_force_the_answer_says_what_to_bring_back(
    shop: Shop, tmp_path: Path
) -> None:
    unreadable(shop)
    acts: tuple[Act, ...] = (
        lambda one: one.activate(),
        lambda one: one.ledger_backup(tmp_path / "b.sqlite"),
    )
    for act in acts:
        no = act(desk(shop))
        assert no.code == "signature_needed"
        assert "bring back" in no.say
    assert not (tmp_path / "b.sqlite").exists()


@pytest.mark.spec("SUR-01", "SEC-02")
def test_the_command_line_signs_at_the_desk_at_once_and_in_two_steps(shop: Shop, tmp_path: Path) -> None:
    file = tmp_path / "b.sqlite"
    words = ("ledger", "backup", str(file), "--as", "u-ana")
    stated = issuer_here(*words, "--statement", at=shop.made.folder)
    assert stated.exit == 0
    assert not file.exists()
    statement, signature = tmp_path / "statement", tmp_path / "statement.sig"
    statement.write_text(stated.out, encoding="utf-8", newline="")
    signature.write_text(shop.sign("u-ana", stated.out))
    given = ("--signature", str(signature), "--statement-file", str(statement))
    assert issuer_here("ledger", "backup", str(file), *given, at=shop.made.folder).exit == 0
    assert told(shop)["permit.signer"] == "u-ana"
    edited(shop)
    done = issuer_here("activate", "--as", "olga", "--key", str(shop.keys["olga"]), at=shop.made.folder)
    assert done.exit == 0
    assert told(shop)["permit.signer"] == "olga"
