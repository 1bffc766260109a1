"""Tokens and signatures as they are typed."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from issuer.clock import now_ms
from tests.support.callers import WITH_ROLES, Shop, opened_shop
from tests.support.shell import Ran, issuer_here
from tests.support.ssh import needs_ssh_keygen

PAYLOAD = b'{"order": "o-1", "amount": 100}'
ASK = ("request", "refund", "--task", "t1", "--actor", "agent-7", "--payload", "-")


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with opened_shop(tmp_path / "f0", policy=WITH_ROLES) as made:
        yield made


def ran(shop: Shop, *arguments: str, stdin: bytes = b"") -> Ran:
    return issuer_here("--json", *arguments, at=shop.made.folder, stdin=stdin)


def token_file(shop: Shop, text: str) -> str:
    path = shop.made.folder.parent / "token"
    path.write_text(text + "\n")
    path.chmod(0o600)
    return str(path)


@pytest.mark.spec("SEC-02", "SUR-01")
def test_a_program_calls_with_its_token_from_a_file_or_by_the_variable(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ran(shop, "host", "token", "till")
    assert (made.exit, made.code) == (0, "credential_issued")
    file = token_file(shop, str(made.answer["token"]))
    asked = ran(shop, "--token", file, *ASK, stdin=PAYLOAD)
    assert (asked.exit, asked.code) == (0, "permitted")
    effect = str(asked.answer["effect"])
    monkeypatch.setenv("ISSUER_TOKEN_FILE", file)
    assert ran(shop, "show", effect).answer["record"]["caller"] == "host:till"
    for command in (
        ("task", "list"),
        ("ledger", "check"),
        ("ledger", "stats"),
        ("ledger", "backup", "copy"),
        ("ledger", "restore", "copy"),
        ("activate",),
    ):
        no = ran(shop, *command)
        assert (no.exit, no.code) == (7, "forbidden"), command
    assert not (shop.made.folder / "copy").exists()
    monkeypatch.setenv("ISSUER_TOKEN_FILE", token_file(shop, "pit_host_till_" + "A" * 43))
    assert (ran(shop, "list").exit, ran(shop, "list").code) == (7, "unauthenticated")
    Path(file).chmod(0o644)
    assert ran(shop, "list").code == "malformed"


@needs_ssh_keygen
@pytest.mark.spec("APP-01", "SEC-02", "SUR-01")
def test_an_act_is_signed_at_once_or_in_two_steps(shop: Shop) -> None:
    elsewhere = shop.made.folder.parent
    at_once = ("--as", "olga", "--key", str(shop.keys["olga"]))
    granted = ran(shop, "task", "grant", "org", "--budget", "USD.cent=5", *at_once)
    assert (granted.exit, granted.code) == (0, "granted"), granted.err
    opened = ran(
        shop, "task", "open", "x", "--parent", "t1", "--class", "refund=1", "--expires", "2h", *at_once
    )
    assert (opened.exit, opened.code) == (0, "opened"), opened.out
    statement = issuer_here("task", "close", "x", "--as", "olga", "--statement", at=shop.made.folder)
    assert statement.exit == 0
    assert json.loads(statement.out.splitlines()[-1])["until"] > now_ms()
    text, signature = elsewhere / "act", elsewhere / "act.sig"
    text.write_text(statement.out)
    signature.write_text(shop.sign("olga", statement.out))
    given = ("--signature", str(signature), "--statement-file", str(text))
    other = ran(shop, "task", "close", "t1", *given)
    assert (other.exit, other.code, other.answer["field"]) == (7, "signature_refused", "arguments")
    assert (ran(shop, "task", "close", "x", *given).code, ran(shop, "task", "close", "x", *given).code) == (
        "closed",
        "signature_refused",
    )
    by_ben = ("--as", "ben", "--key", str(shop.keys["ben"]))
    assert ran(shop, "task", "freeze", "t1.b").code == "frozen"
    assert ran(shop, "task", "thaw", "t1.b", *by_ben).code == "forbidden"
    assert ran(shop, "task", "thaw", "t1.b", "--as", "olga").exit == 2
