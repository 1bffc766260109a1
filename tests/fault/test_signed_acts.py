"""Signed acts: one signature is good for one act of one person on one ledger, once, for ten minutes.

A strict house cannot be opened by anybody yet (OPR-03), so the strict rows use `House.is_strict`.
"""

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from issuer import Issuer
from issuer.caller import Caller
from issuer.clock import now_ms
from issuer.commands.roles import COMMANDS
from issuer.flow.signed_act import CHALLENGE_MS_MAX, _text
from issuer.wire import Answer
from ledger.authority import RulingKind
from ledger.model import InstantMs
from tests.support.callers import WITH_ROLES, Shop, opened_shop
from tests.support.cases import Clock, length, trail
from tests.support.issuers import HOUR_MS, STANDARD_POLICY, permitted, refund
from tests.support.service import accept_then_close
from tests.support.ssh import make_key, sign

Act = Callable[[Issuer], Answer]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with opened_shop(tmp_path_factory.mktemp("signed") / "f0", policy=WITH_ROLES) as opened:
        yield opened


def done(shop: Shop, issuer: Issuer, act: Act, person: str = "u-ana") -> Answer:
    """Have a person sign an act, and give it."""
    statement = issuer.stated(person, act)
    return act(issuer.signed(shop.sign(person, statement), statement))


EXPIRES_MS = now_ms() + HOUR_MS
SIGNED: dict[str, tuple[Act, str]] = {
    "task-open": (
        lambda one: one.task_open(
            "fresh", parent="t1", budget={}, expires_ms=InstantMs(EXPIRES_MS), classes={"refund": 1}
        ),
        "opened",
    ),
    "task-grant": (lambda one: one.task_grant("org", budget={"USD.cent": 5}), "granted"),
    "task-lower": (lambda one: one.task_lower("org", budget={"USD.cent": 10_001}), "lowered"),
    "task-thaw": (lambda one: one.task_thaw("t1.b"), "thawed"),
    "task-close": (lambda one: one.task_close("t1.a"), "closed"),
    "thaw": (lambda one: one.thaw("class", "refund"), "resumed"),
    "revoke": (lambda one: one.revoke("operation", "publish"), "revoked_now"),
    "resume": (lambda one: one.resume("person", "mia"), "resumed"),
    "host-token": (lambda one: one.host_token("till"), "credential_issued"),
    "actor-token": (lambda one: one.actor_token("agent-8"), "credential_issued"),
    "clock-accept": (lambda one: one.clock_accept(), "accepted"),
    "keys-rotate": (lambda one: one.keys_rotate(), "rotated"),
    "sink-replace": (lambda one: one.sink_replace("local"), "sink_replaced"),
    "sink-quarantine": (lambda one: one.sink_quarantine("local", reason="other"), "unsupported"),
}


@pytest.mark.spec("SEC-02", "OPR-03", "AUD-01", "AUD-05")
@pytest.mark.parametrize("word", SIGNED)
def test_in_strict_an_act_needs_its_persons_signature_and_the_trail_names_it(shop: Shop, word: str) -> None:
    act, code = SIGNED[word]
    strict = shop.strict()
    assert strict.task_freeze("t1.b").code in {"frozen", "nothing_to_change"}
    assert strict.freeze("class", "refund").code in {"suspended_now", "nothing_to_change"}
    assert strict.suspend("person", "mia").code in {"suspended_now", "nothing_to_change"}
    before = length(shop.issuer)
    assert act(strict).code == "signature_needed"
    (entry,) = trail(shop.issuer, before)
    assert entry.attributes["permit.refusal"] == "signature_needed"
    before = length(shop.issuer)
    told = done(shop, strict, act)
    assert told.code == code
    entry = trail(shop.issuer, before)[0]
    assert (entry.attributes["permit.signer"], entry.attributes["permit.caller"]) == ("u-ana", "u-ana")
    assert len(str(entry.attributes["permit.statement.digest"])) == 64


def test_every_signed_command_that_exists_is_played_here() -> None:
    elsewhere = {
        "reconcile",
        "acknowledge",
        "ledger-collect",
        "task-accept-overrun",
        "keys-retire",
        "keys-revoke",
    }
    at_the_desk = {"activate", "ledger-backup", "ledger-restore"}  # tests.fault.test_desk
    signed = {word for word, demand in COMMANDS.items() if demand.signed}
    assert signed == set(SIGNED) | elsewhere | at_the_desk


@pytest.mark.spec("REC-01", "REC-04", "SEC-02")
def test_an_operator_signs_for_a_look_and_for_a_risk(tmp_path: Path) -> None:
    with opened_shop(tmp_path / "f0", policy=WITH_ROLES) as shop:
        shop.service.then(accept_then_close())
        host = shop.host()
        effect = permitted(host.request("refund", {"order": "o", "amount": 1}, task="t1", actor="agent-7"))
        assert host.commit(effect).code == "outcome_unknown"
        strict = shop.strict()
        acts: tuple[Act, ...] = (
            lambda one: one.reconcile(effect),
            lambda one: one.acknowledge(effect, reason="lost"),
            lambda one: one.task_accept_overrun("t1"),
            lambda one: one.ledger_collect(),
        )
        for act in acts:
            assert act(strict).code == "signature_needed"
        risk: Act = lambda one: one.acknowledge(effect, reason="lost")  # noqa: E731 - one act, given twice
        assert done(shop, strict, risk, "ben").code == "not_found"
        assert done(shop, strict, risk, "otto").code == "acknowledged"
        assert done(shop, strict, lambda one: one.reconcile(effect), "otto").code == "unsupported"


@pytest.mark.spec("SEC-02", "POL-01")
def test_in_ordinary_a_signature_is_not_needed_and_says_who_acts(shop: Shop) -> None:
    """The account is u-ana's; who signs is the one that the policies are asked about."""
    freeze: Act = lambda one: one.task_grant("org", budget={"USD.cent": 1})  # noqa: E731 - one act, given thrice
    assert freeze(shop.issuer).code == "granted"
    assert done(shop, shop.issuer, freeze, "olga").code == "granted"
    assert trail(shop.issuer)[-1].attributes["permit.caller"] == "olga"
    told = done(shop, shop.issuer, freeze, "ben")
    assert (told.code, told.more["field"]) == ("forbidden", "openTask")
    assert trail(shop.issuer)[-1].attributes["permit.signer"] == "ben"


# ------------------------------------------------------------------------------------ what is no signature of it

GRANT: Act = lambda one: one.task_grant("org", budget={"USD.cent": 7})  # noqa: E731 - one act, given many times


def refused(shop: Shop, field: str, signature: str, statement: str, act: Act = GRANT) -> None:
    before = length(shop.issuer)
    told = act(shop.strict().signed(signature, statement))
    assert (told.code, told.more["field"]) == ("signature_refused", field)
    (entry,) = trail(shop.issuer, before)
    assert entry.name == "refused"
    assert entry.attributes["permit.caller"] == "u-ana"
    assert "permit.signer" not in entry.attributes or field in {"replayed", "expired", "key"}


@pytest.mark.spec("APP-01", "SEC-02")
def test_a_signature_is_used_once(shop: Shop) -> None:
    statement = shop.strict().stated("u-ana", GRANT)
    signature = shop.sign("u-ana", statement)
    assert GRANT(shop.strict().signed(signature, statement)).code == "granted"
    refused(shop, "replayed", signature, statement)
    # Another signature over the same statement is the same challenge.
    refused(shop, "replayed", shop.sign("u-ana", statement, hash_name="sha256"), statement)
    with shop.made.open() as other:
        again = Issuer(dataclasses.replace(other._house, is_strict=True), other._caller, lambda: other._house)
        assert GRANT(again.signed(signature, statement)).code == "signature_refused"


@pytest.mark.spec("APP-01", "SEC-02")
def test_an_act_that_is_refused_uses_no_challenge(shop: Shop) -> None:
    act: Act = lambda one: one.task_thaw("t1")  # noqa: E731 - one act, given twice
    statement = shop.strict().stated("u-ana", act)
    signature = shop.sign("u-ana", statement)
    assert act(shop.strict().signed(signature, statement)).code == "nothing_to_change"
    assert shop.issuer.task_freeze("t1").code == "frozen"
    assert act(shop.strict().signed(signature, statement)).code == "thawed"
    refused(shop, "replayed", signature, statement, act)


def key_of(issuer: Issuer, state: str) -> str:
    """Return the id of a key of the ring in this state."""
    rows = issuer.keys_list().more["keys"]
    return next(str(row["key"]) for row in rows if row["state"] == state)  # type: ignore[attr-defined]


def used(shop: Shop, statement: str) -> bool:
    """Say whether the ledger remembers the challenge of a statement as used."""
    kept = shop.issuer._house.ledger.read(lambda view: view.rulings(RulingKind.CHALLENGE))
    return any(one.name in statement for one in kept)


def ring_of(shop: Shop) -> dict[str, bytes]:
    folder = shop.made.folder / "keys"
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


@pytest.mark.spec("SEC-03", "SEC-02", "APP-01")
def test_a_key_of_the_ring_is_changed_once_by_one_signature_and_the_ring_stays_as_it_was(
    tmp_path: Path,
) -> None:
    with opened_shop(tmp_path / "f0", policy=WITH_ROLES) as shop:
        rotate: Act = lambda one: one.keys_rotate()  # noqa: E731 - one act, given thrice
        statement = shop.strict().stated("u-ana", rotate)
        signature = shop.sign("u-ana", statement)
        assert rotate(shop.strict().signed(signature, statement)).code == "rotated"
        before = ring_of(shop)
        refused(
            shop, "challenge", signature, statement, rotate
        )  # the key that made it is not the active one any more
        assert used(shop, statement)
        assert ring_of(shop) == before
        old = key_of(shop.issuer, "open_only")
        rows: tuple[tuple[Act, str, str], ...] = (
            (lambda one: one.keys_retire(old), "retired_now", "replayed"),
            (lambda one: one.keys_revoke(old), "revoked_now", "challenge"),
        )
        for act, code, again in rows:
            before = ring_of(shop)
            assert act(shop.strict()).code == "signature_needed"
            statement = shop.strict().stated("u-ana", act)
            wrong = shop.sign("otto", statement)
            assert act(shop.strict().signed(wrong, statement)).code == "signature_refused"
            assert ring_of(shop) == before
            signature, at = shop.sign("u-ana", statement), length(shop.issuer)
            assert act(shop.strict().signed(signature, statement)).code == code
            told = {entry.attributes["permit.signer"] for entry in trail(shop.issuer, at)}
            assert told == {"u-ana"}
            assert used(shop, statement)
            before = ring_of(shop)
            refused(shop, again, signature, statement, act)
            assert ring_of(shop) == before


@pytest.mark.spec("SEC-03", "SEC-02")
def test_who_may_not_activate_changes_no_key_and_neither_does_a_revoked_key(tmp_path: Path) -> None:
    with opened_shop(tmp_path / "f0", policy=WITH_ROLES) as shop:
        before = ring_of(shop)
        act: Act = lambda one: one.keys_rotate()  # noqa: E731 - one act, given twice
        told = done(shop, shop.strict(), act, "otto")
        assert (told.code, told.more["field"]) == ("forbidden", "activate")
        statement = shop.strict().stated("olga", act)
        signature = shop.sign("olga", statement)
        assert shop.issuer.revoke("key", "olga").code == "revoked_now"
        told = act(shop.strict().signed(signature, statement))
        assert (told.code, told.more["field"]) == ("signature_refused", "key")
        assert ring_of(shop) == before


@pytest.mark.spec("LED-08", "APP-01", "SEC-02")
def test_a_restore_brings_no_used_signature_back(tmp_path: Path) -> None:
    folder = tmp_path / "f0"
    with opened_shop(folder, policy=WITH_ROLES) as shop:
        file = tmp_path / "backup.sqlite"
        assert Issuer.ledger_backup(shop.made.profile, file).code == "backed_up"
        statement = shop.strict().stated("u-ana", GRANT)
        signature = shop.sign("u-ana", statement)
        assert GRANT(shop.strict().signed(signature, statement)).code == "granted"
        shop.issuer.close()
        assert Issuer.ledger_restore(shop.made.profile, file).code == "restored"
        with shop.made.open() as issuer:
            again = dataclasses.replace(shop, issuer=issuer)
            refused(again, "epoch", signature, statement)
            forged = edited(statement, epoch=2)
            refused(again, "challenge", shop.sign("u-ana", forged), forged)
            assert done(again, again.strict(), GRANT).code == "granted"


OTHERS: dict[str, tuple[str, Act]] = {
    "another amount": ("arguments", lambda one: one.task_grant("org", budget={"USD.cent": 8})),
    "another task": ("arguments", lambda one: one.task_grant("t1", budget={"USD.cent": 7})),
    "one unit more": ("arguments", lambda one: one.task_grant("org", budget={"USD.cent": 7, "x": 1})),
    "another command": ("command", lambda one: one.task_lower("org", budget={"USD.cent": 7})),
    "no arguments": ("command", lambda one: one.clock_accept()),
}


@pytest.mark.spec("APP-01", "SEC-02")
@pytest.mark.parametrize("name", OTHERS)
def test_a_signature_is_for_one_command_with_its_arguments(shop: Shop, name: str) -> None:
    field, other = OTHERS[name]
    statement = shop.strict().stated("u-ana", GRANT)
    refused(shop, field, shop.sign("u-ana", statement), statement, other)


@pytest.mark.spec("APP-01", "SEC-02")
def test_a_signature_of_somebody_else_or_for_something_else_is_none(shop: Shop, tmp_path: Path) -> None:
    statement = shop.strict().stated("u-ana", GRANT)
    make_key(tmp_path / "stranger")
    refused(shop, "unknown_key", shop.sign("otto", statement), statement)
    refused(shop, "unknown_key", sign(tmp_path / "stranger", statement.encode()), statement)
    refused(shop, "namespace", shop.sign("u-ana", statement, namespace="git"), statement)
    refused(shop, "bad_signature", shop.sign("u-ana", statement + "\n"), statement)
    refused(shop, "malformed", "yes", statement)
    refused(shop, "malformed", "", statement)
    keyless = shop.strict().stated("till", GRANT)
    refused(shop, "unknown_key", shop.sign("u-ana", keyless), keyless)


def edited(statement: str, **changes: object) -> str:
    """Return a statement that says something else, made as the core would make it."""
    return _text({**json.loads(statement.split("\n")[-2]), **changes})


@pytest.mark.spec("APP-01", "SEC-02", "SEC-03")
def test_a_statement_that_the_core_did_not_write_is_none_however_well_signed(shop: Shop) -> None:
    statement = shop.strict().stated("u-ana", GRANT)
    now = now_ms()
    rows = {
        "challenge": edited(statement, challenge="0" * 32),
        "challenge ": edited(statement, until=now + 30 * CHALLENGE_MS_MAX),
        "challenge  ": edited(statement, since=now - 1, until=now + CHALLENGE_MS_MAX),
        "challenge   ": edited(statement, mac="0" * 64),
        "ledger": edited(statement, ledger="led_" + "0" * 32),
        "arguments": edited(statement, arguments={"name": "org"}),
        "person": edited(statement, who="nobody"),
        "statement": statement.replace("7", "8", 1),
        "statement ": statement.replace("\n", "\r\n"),
        "statement  ": "argument: small print\n" + statement,
        "statement   ": statement.split("\n")[-2] + "\n",
        "statement    ": "",
        "statement     ": "x" * 100_000,
    }
    for name, text in rows.items():
        refused(shop, name.strip(), shop.sign("u-ana", text), text)


@pytest.mark.spec("APP-01", "SEC-02", "LED-02")
def test_a_signature_is_good_for_ten_minutes_and_a_used_challenge_is_forgotten_after_them(
    tmp_path: Path,
) -> None:
    clock = Clock()
    with opened_shop(tmp_path / "f0", policy=WITH_ROLES, clock=clock) as shop:
        used = shop.strict().stated("u-ana", GRANT)
        assert GRANT(shop.strict().signed(shop.sign("u-ana", used), used)).code == "granted"
        late = shop.strict().stated("u-ana", GRANT)
        signature = shop.sign("u-ana", late)
        clock.ahead_ms += CHALLENGE_MS_MAX + 1_000
        refused(shop, "expired", signature, late)
        refused(shop, "expired", shop.sign("u-ana", used), used)
        assert done(shop, shop.strict(), GRANT).code == "granted"
        kept = shop.issuer._house.ledger.read(lambda view: view.rulings(RulingKind.CHALLENGE))
        assert [one.name in used for one in kept] == [False]


@pytest.mark.spec("APP-01", "SEC-02", "SEC-03")
def test_another_ledgers_statement_and_a_revoked_key_are_refused(tmp_path: Path) -> None:
    with opened_shop(tmp_path / "f0", policy=WITH_ROLES) as shop, opened_shop(tmp_path / "f1") as other:
        foreign = other.strict().stated("u-ana", GRANT)
        refused(shop, "ledger", shop.sign("u-ana", foreign), foreign)
        statement = shop.strict().stated("otto", GRANT)
        signature = shop.sign("otto", statement)
        assert shop.issuer.revoke("key", "otto").code == "revoked_now"
        told = GRANT(shop.issuer.signed(signature, statement))
        assert told.code in {"signature_refused", "forbidden"}
        olga = shop.issuer.stated("olga", GRANT)
        by_olga = shop.sign("olga", olga)
        assert shop.issuer.revoke("key", "olga").code == "revoked_now"
        told = GRANT(shop.issuer.signed(by_olga, olga))
        assert (told.code, told.more["field"]) == ("signature_refused", "key")


@pytest.mark.spec("SEC-02", "APP-01")
def test_a_persons_signature_lends_an_agent_nothing(tmp_path: Path) -> None:
    with opened_shop(tmp_path / "f0", policy=STANDARD_POLICY) as shop:
        statement = shop.issuer.stated("u-ana", GRANT)
        signature = shop.sign("u-ana", statement)
        told = GRANT(shop.host().signed(signature, statement))
        assert (told.code, told.more["field"]) == ("forbidden", "caller")
        assert trail(shop.issuer)[-1].attributes["permit.caller"] == "host:till"


@pytest.mark.spec("APP-02", "APP-01")
def test_what_is_signed_reads_line_by_line_and_differs_with_every_argument(shop: Shop) -> None:
    text = shop.issuer.stated("u-ana", lambda one: one.task_close("a\u202etxt\nwho: olga"))
    lines = text.split("\n")
    assert lines[0] == "permit-issuer act, version 1"
    assert 'argument "name": "a\\u202etxt\\nwho: olga"' in lines
    assert [line for line in lines if line.startswith("who: ")] == ['who: "u-ana"']
    same = shop.issuer.act_statement("task-close", {"name": "a\u202etxt\nwho: olga"}, "u-ana")
    alike = [one for one, other in zip(lines, same.split("\n"), strict=True) if one == other]
    assert len(alike) >= len(lines) - 4  # since, until, challenge, and the line for machines
    texts = {
        _said(shop.issuer.stated("u-ana", act))
        for act in (
            GRANT,
            *(act for _field, act in OTHERS.values()),
            *(act for act, _code in SIGNED.values()),
        )
    }
    assert len(texts) == 1 + len(OTHERS) + len(SIGNED) - 1  # clock-accept stands in both tables


def _said(text: str) -> str:
    """Return the lines of a statement that say what is done."""
    return "\n".join(line for line in text.split("\n") if line.startswith(("command", "argument")))


LOOKS: dict[str, Callable[[Issuer, str], Answer]] = {
    "show": lambda one, effect: one.show(effect),
    "show-content": lambda one, effect: one.show(effect, content=True),
    "withdraw": lambda one, effect: one.withdraw(effect),
    "commit": lambda one, effect: one.commit(effect),
    "statement": lambda one, effect: one.statement(effect),
    "list": lambda one, _effect: one.list(),
}
"""Commands whose statement would name no arguments, and that use no challenge up."""


@pytest.mark.spec("APP-01", "SEC-02", "EFF-08")
@pytest.mark.parametrize("word", LOOKS)
def test_a_signature_for_what_is_no_act_makes_nobody_its_signer(word: str, tmp_path: Path) -> None:
    with opened_shop(tmp_path / "f0", policy=WITH_ROLES) as shop:
        effect = permitted(refund(shop.issuer))
        nobody = Caller(name="uid:99", account="uid:99", roles=())
        stranger = Issuer(shop.issuer._house, nobody, shop.issuer._current)
        statement = stranger.stated("u-ana", lambda one: LOOKS[word](one, "eff_" + "0" * 32))
        told = LOOKS[word](stranger.signed(shop.sign("u-ana", statement), statement), effect)
        assert (told.code, told.more["field"]) == ("signature_refused", "command")
        assert shop.issuer.show(effect).state == "permitted"


@pytest.mark.spec("APP-01", "APP-02", "BUD-06")
def test_a_task_that_may_do_nothing_is_not_signed_like_one_that_may_do_all(shop: Shop) -> None:
    def opening(classes: dict[str, int | str] | None) -> Act:
        expires = InstantMs(EXPIRES_MS)
        return lambda one: one.task_open("none", parent="t1", budget={}, expires_ms=expires, classes=classes)

    statement = shop.issuer.stated("u-ana", opening({}))
    assert 'argument "classes": {}' in statement
    told = opening(None)(shop.issuer.signed(shop.sign("u-ana", statement), statement))
    assert (told.code, told.more["field"]) == ("signature_refused", "arguments")


@pytest.mark.spec("APP-02")
def test_a_terminal_obeys_nothing_in_what_is_signed(shop: Shop) -> None:
    statement = shop.issuer.stated("u-ana", lambda one: one.task_close("a\x9b2J\u202eb\x7f"))
    assert all(char == "\n" or " " <= char <= "~" for char in statement)
