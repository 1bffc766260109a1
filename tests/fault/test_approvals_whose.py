"""Whose effect it is, once it waits: who may read it, who asked for it, and what the owner has said of them since."""

from collections.abc import Callable
from pathlib import Path

import pytest

from issuer import Issuer
from issuer.caller import Caller, CallerKind
from policies import role_policies
from tests.support.approving import POLICY, UID, Office, asked_of, opened_office, waiting
from tests.support.cases import state_of
from tests.support.issuers import permitted, refund
from tests.support.service import answer
from tests.support.ssh import make_key, sign

_TILL = 'till = { actors = ["agent-7"], subjects = ["u-ana"], login = "token" }'
_AGENT_8 = 'agent-8 = { answers_to = "boss", groups = ["bots"] }\n'
_ONCE = 'once = "Idempotency-Key" }'
SENT_ON_YES = {
    _AGENT_8: f"{_AGENT_8}[host]\n{_TILL}\n",
    'answers_to = "u-ana"': 'answers_to = "boss"',
    _ONCE: f'{_ONCE}\nafter_approval = "commit"',
}


def changed(office: Office, old: str, new: str) -> None:
    """Let the owner put a profile in force in which `new` stands for `old`."""
    text = office.made.profile.read_text(encoding="utf-8")
    assert old in text
    office.put(office.made.profile, text.replace(old, new))


GONE: dict[str, tuple[str, str, str]] = {
    "nobody is left": (_TILL, "", "permitted"),
    "another actor's by now": (_TILL, _TILL.replace("agent-7", "agent-8"), "forbidden"),
}
"""What stands for a host in the profile, what the owner makes of it, and what the last yes then comes to."""


@pytest.mark.spec("SEC-02", "EFF-08", "ADM-01")
@pytest.mark.parametrize("case", GONE)
def test_after_the_last_yes_nothing_is_sent_for_whom_could_not_send_it(case: str, tmp_path: Path) -> None:
    old, new, code = GONE[case]
    with opened_office(tmp_path / "f0", changes=SENT_ON_YES) as office:
        host = office.issuer.as_caller(token=str(office.issuer.host_token("till").more["token"]))
        effect = waiting(refund(host, amount=900))
        changed(office, old, new)
        office.service.then(answer(201))
        assert office.approve(effect, "bob").code == code
        assert state_of(office.issuer, effect) == "permitted"
        assert office.service.connections == 0


@pytest.mark.spec("APP-03", "SEC-02")
def test_who_asked_as_an_account_does_not_approve_it_once_that_account_is_theirs(tmp_path: Path) -> None:
    with opened_office(tmp_path / "f0", changes={f'login = "{UID}", ': ""}) as office:
        effect = office.ask()
        changed(office, "bob = { ", f'bob = {{ login = "{UID}", ')
        no = office.approve(effect, "bob")
        assert (no.code, no.more["field"]) == ("forbidden", "caller")
        assert office.approve(effect, "carol").code == "permitted"


@pytest.mark.spec("ADM-05", "SEC-02")
def test_what_a_person_asked_for_is_void_with_that_person(tmp_path: Path) -> None:
    with opened_office(tmp_path / "f0") as office:
        asked, held = office.ask(), permitted(refund(office.issuer, task="org"))
        assert office.approve(asked, "bob").code == "permitted"
        assert office.issuer.revoke("person", "ops").code == "revoked_now"
        assert [office.issuer.commit(effect).code for effect in (asked, held)] == ["revoked"] * 2
        no = refund(office.issuer, task="org", order="o-2")
        assert no.code == "suspended"
        assert office.service.connections == 0


def _as_person(office: Office, name: str) -> Issuer:
    roles = tuple(office.issuer._house.profile.people[name].roles)
    who = Caller(name=name, account="uid:4712", roles=roles, kind=CallerKind.PERSON)
    return Issuer(office.issuer._house, who, office.issuer._current)


@pytest.mark.spec("EFF-08", "EFF-10", "SEC-02")
def test_where_a_policy_says_who_observes_a_statement_is_read_by_them_and_by_whom_it_waits_for(
    tmp_path: Path,
) -> None:
    with opened_office(tmp_path / "f0", policy=POLICY + role_policies()) as office:
        effect = office.ask()
        # erin approves for others, bob is asked, mallory reviews, and ops asked for it.
        seen = {"erin": "not_found", "bob": "found", "mallory": "found", "ops": "found"}
        for name, code in seen.items():
            person = _as_person(office, name)
            assert person.statement(effect).code == code, name
            rows = person.approvals().more["waiting"]
            assert [one["effect"] for one in rows] == ([effect] if code == "found" else [])  # type: ignore[attr-defined]
        assert office.issuer.suspend("person", "bob").code == "suspended_now"
        assert _as_person(office, "bob").statement(effect).code == "not_found"


def _replaced(office: Office, effect: str, keys: Path) -> str:
    assert office.approve(effect, "bob").code == "approved"
    office.put(office.made.folder / "people" / "bob.pub", make_key(keys))
    return sign(keys, office.statement(effect))


def _held(office: Office, _effect: str, _keys: Path) -> str:
    return "none"


TOLD: dict[str, tuple[Callable[[Office, str, Path], str], bool, str]] = {
    "a yes by a key that was replaced": (_replaced, False, "by a key that counts no more"),
    "what is only prepared": (_held, True, "only prepared"),
}


@pytest.mark.spec("APP-03", "SUR-05")
@pytest.mark.parametrize("case", TOLD)
def test_a_yes_that_changes_nothing_is_told_why(case: str, tmp_path: Path) -> None:
    signed, hold, words = TOLD[case]
    with opened_office(tmp_path / "f0", policy=asked_of("finance:2")) as office:
        effect = str(refund(office.issuer, amount=900, hold=hold).effect)
        told = office.issuer.approve(effect, signed(office, effect, tmp_path / "new"))
        assert told.code == "nothing_to_change"
        assert words in told.say


@pytest.mark.spec("APP-02", "SEC-01")
@pytest.mark.parametrize("card", ["mail@example.org", "http", "127.0"])
def test_no_secret_that_an_actor_chooses_hides_who_receives_or_where_it_goes(
    card: str, tmp_path: Path
) -> None:
    changes = {
        "payload = { order": "payload = { card = { string = 60, secret = true }, to = { string = 60 }, order",
        'id = "{order}" }': 'id = "{order}", recipients = ["{to}"] }',
        'body = { order = "{order}",': 'body = { card = "{card}", order = "{order}",',
    }
    with opened_office(tmp_path / "f0", changes=changes) as office:
        payload = {"order": "o-1", "amount": 900, "to": "mail@example.org", "card": card}
        effect = waiting(office.issuer.request("refund", payload, task="t1", actor="agent-7"))
        lines = office.statement(effect).decode().splitlines()
        assert 'recipients[0]: "mail@example.org"' in lines
        assert 'destination.host: "127.0.0.1"' in lines
        assert any(line.startswith("payload.card: secret, commitment ") for line in lines)
