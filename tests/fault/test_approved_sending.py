"""What is sent as soon as people have agreed is sent for whoever asked, and only while that one still may (OPR-01)."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from issuer import Issuer
from issuer.flow.steps import Reached
from ledger.authority import Ruling, RulingKind, Stop
from ledger.changes import RulingMade, Step
from ledger.model import InstantMs
from ledger.port import Verdict, View
from ledger.transitions import Transition, TransitionName
from tests.support.approving import Office, opened_office, waiting
from tests.support.callers import ACTOR, HOST
from tests.support.cases import trail
from tests.support.service import answer

AGENT_8 = 'agent-8 = { answers_to = "boss", groups = ["bots"] }\n'
HOSTS = """agent-8 = { answers_to = "boss", groups = ["bots"], login = "token" }
[host]
till = { actors = ["agent-7"], subjects = ["u-ana"], login = "token" }
"""
CHANGES = {
    'once = "Idempotency-Key" }': 'once = "Idempotency-Key" }\nafter_approval = "commit"',
    AGENT_8: HOSTS,
}
AGENTS = {HOST: "agent-7", ACTOR: "agent-8"}


@pytest.fixture(name="office")
def _office(tmp_path: Path) -> Iterator[Office]:
    with opened_office(tmp_path / "f0", changes=CHANGES) as office:
        yield office


def agent(office: Office, who: str) -> Issuer:
    owner = office.issuer
    told = owner.host_token("till") if who == HOST else owner.actor_token("agent-8")
    return owner.as_caller(token=str(told.more["token"]))


def asked(office: Office, who: str) -> str:
    payload = {"order": "o-1", "amount": 900}
    return waiting(agent(office, who).request("refund", payload, task="t1", actor=AGENTS[who]))


@pytest.mark.spec("OPR-01", "SEC-02", "AUD-01")
@pytest.mark.parametrize("who", [HOST, ACTOR])
def test_what_an_agent_asked_for_is_sent_in_its_name(office: Office, who: str) -> None:
    effect = asked(office, who)
    office.service.then(answer(201))
    assert office.approve(effect, "bob").code == "succeeded"
    admitted = next(one for one in trail(office.issuer) if one.state_to == "admitted")
    assert admitted.attributes["permit.caller"] == who
    assert office.service.connections == 1


ENDED = [
    (HOST, "revoked", "permitted"),
    (ACTOR, "revoked", "permitted"),
    (HOST, "stopped", "suspended"),
    (ACTOR, "stopped", "suspended"),
    (HOST, "no login", "permitted"),
    (ACTOR, "no login", "permitted"),
    (HOST, "not declared", "permitted"),
    (HOST, "for another actor", "forbidden"),
]


@pytest.mark.spec("OPR-01", "SEC-02", "ADM-05")
@pytest.mark.parametrize(("who", "end", "code"), ENDED)
def test_nothing_is_sent_for_an_agent_that_may_not_call_any_more(
    office: Office, who: str, end: str, code: str
) -> None:
    effect = asked(office, who)
    kind, _colon, name = who.partition(":")
    text = office.made.profile.read_text()
    line = next(one for one in text.splitlines() if one.startswith(f"{name} = "))
    changed = {
        "no login": line.replace(', login = "token"', ""),
        "not declared": "",
        "for another actor": line.replace("agent-7", "agent-8"),
    }
    if end == "revoked":
        revoke_credential(office, who)
    elif end == "stopped":
        assert office.issuer.freeze(kind, name).code == "suspended_now"
    else:
        office.put(office.made.profile, text.replace(line, changed[end]))
    told = office.approve(effect, "bob")
    assert told.code == code
    assert office.service.connections == 0
    if code == "permitted":
        assert told.more["not_sent"] == "unauthenticated"
        assert "Nothing was sent" in told.say
        (no,) = [
            one for one in trail(office.issuer) if one.attributes.get("permit.refusal") == "unauthenticated"
        ]
        assert no.attributes["permit.command"] == "commit"
        assert office.issuer.revoke("effect", effect).code == "revoked_now"


def revoke_credential(office: Office, who: str) -> None:
    """Void the token alone, as a restore does: nothing else stands in the way of its effects."""
    ledger = office.issuer._house.ledger
    transition = Transition(
        name=TransitionName.CREDENTIAL_REVOKED,
        story=ledger.ledger_id,
        attributes={
            "permit.mode": "ordinary",
            "permit.caller": "ops",
            "permit.credential": who,
            "permit.reason": "restored",
        },
    )

    def decide(_view: View, now: InstantMs) -> Verdict[None]:
        gone = Ruling(kind=RulingKind.TOKEN, name=who, value=str(Stop.REVOKED), since_ms=now)
        return Verdict(value=None, steps=(Step(transition=transition, changes=(RulingMade(ruling=gone),)),))

    ledger.record(decide)


@pytest.mark.spec("OPR-01", "ADM-05")
@pytest.mark.parametrize("who", [HOST, ACTOR])
def test_what_a_revoked_agent_asked_for_is_not_approved(office: Office, who: str) -> None:
    effect = asked(office, who)
    kind, _colon, name = who.partition(":")
    statement = office.statement(effect)
    assert office.issuer.revoke(kind, name).code == "revoked_now"
    told = office.issuer.approve(effect, office.signature("bob", statement))
    assert (told.code, told.state) == ("revoked", "revoked")
    assert office.service.connections == 0


@pytest.mark.spec("OPR-01", "SEC-02")
def test_a_person_who_asked_has_it_sent_whoever_approves(office: Office) -> None:
    effect = office.ask()
    office.service.then(answer(201))
    assert office.approve(effect, "bob").code == "succeeded"
    assert f"uid:{os.getuid()}" not in str(trail(office.issuer)[-1].attributes["permit.caller"])


@pytest.mark.spec("APP-04", "POL-07", "OPR-01")
def test_a_yes_stands_where_the_revision_moves_before_what_it_allows_is_sent(tmp_path: Path) -> None:
    offices: list[Office] = []

    def activating(step: str) -> None:
        if step == Reached.SINKS_PROBED and offices:
            office = offices.pop()
            office.put(office.policies, office.policies.read_text() + "// another revision\n")

    with opened_office(tmp_path / "f0", changes=CHANGES, observe=activating) as office:
        effect = office.ask()
        offices.append(office)
        told = office.approve(effect, "bob")
        assert (told.code, told.more["not_sent"], offices) == ("permitted", "revision_moved", [])
        assert office.service.connections == 0
        office.service.then(answer(201))
        assert office.issuer.commit(effect).code == "succeeded"
