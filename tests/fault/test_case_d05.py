"""Development case D05: only the people themselves approve, by their own keys, whatever anybody says."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from issuer.wire import Answer
from tests.support.approving import Office, opened_office, waiting
from tests.support.cases import length, small_tree, state_of, trail
from tests.support.issuers import refund
from tests.support.ssh import make_key, sign


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    with opened_office(tmp_path_factory.mktemp("d05") / "f0") as opened:
        yield opened


@pytest.fixture(scope="module")
def effect(office: Office) -> str:
    """Return an effect of the agent's own, which waits for a person."""
    task, _root = small_tree(office.issuer, "d05")
    return waiting(refund(office.as_agent(), amount=900, task=task))


@pytest.fixture(scope="module")
def other(office: Office) -> str:
    task, _root = small_tree(office.issuer, "d05-other")
    return waiting(refund(office.as_agent(), amount=900, order="o-2", task=task))


def flipped(signature: str) -> str:
    lines = signature.split("\n")
    lines[2] = ("A" if lines[2][0] != "A" else "B") + lines[2][1:]
    return "\n".join(lines)


Attack = Callable[[Office, str, str], str]

SIGNATURES: dict[str, tuple[Attack, str, str | None]] = {
    "nothing": (lambda _o, _e, _x: "", "signature_refused", "malformed"),
    "the name of a boss": (lambda _o, _e, _x: "boss", "signature_refused", "malformed"),
    "the name of a real person": (lambda _o, _e, _x: "bob", "signature_refused", "malformed"),
    "an echoed digest": (
        lambda o, e, _x: o.as_agent().show(e).more["record"]["approvals"]["statement"],  # type: ignore[index]
        "signature_refused",
        "malformed",
    ),
    "the statement itself": (
        lambda o, e, _x: o.statement(e).decode(),
        "signature_refused",
        "malformed",
    ),
    "a signature for git": (
        lambda o, e, _x: sign(o.keys["bob"], o.statement(e), namespace="git"),
        "signature_refused",
        "namespace",
    ),
    "a key that nobody registered": (
        lambda o, e, _x: sign(new_key(o), o.statement(e)),
        "signature_refused",
        "unknown_key",
    ),
    "a signature with a bit changed": (
        lambda o, e, _x: flipped(o.signature("bob", o.statement(e))),
        "signature_refused",
        None,
    ),
    "the right key over the digest alone": (
        lambda o, e, _x: sign(o.keys["bob"], o.as_agent().show(e).more["record"]["binding_digest"].encode()),  # type: ignore[index]
        "signature_refused",
        "bad_signature",
    ),
    "a yes to another effect": (
        lambda o, _e, x: o.signature("bob", o.statement(x)),
        "signature_refused",
        "bad_signature",
    ),
    "a no to this effect": (
        lambda o, e, _x: o.signature("bob", o.statement(e, decline="not_agreed")),
        "signature_refused",
        "bad_signature",
    ),
    "the statement with one cent more": (
        lambda o, e, _x: sign(o.keys["bob"], o.statement(e).replace(b"900", b"901")),
        "signature_refused",
        "bad_signature",
    ),
    "the statement with another line end": (
        lambda o, e, _x: sign(o.keys["bob"], o.statement(e) + b"\n"),
        "signature_refused",
        "bad_signature",
    ),
    "the subject's own key": (lambda o, e, _x: o.signature("u-ana", o.statement(e)), "forbidden", "subject"),
    "the key of who the actor answers to": (
        lambda o, e, _x: o.signature("boss", o.statement(e)),
        "forbidden",
        "answers_to",
    ),
    "somebody without the role": (
        lambda o, e, _x: o.signature("mallory", o.statement(e)),
        "forbidden",
        "role",
    ),
    "an approver of another group": (
        lambda o, e, _x: o.signature("erin", o.statement(e)),
        "forbidden",
        "approver",
    ),
}
"""What is handed in, and the code and field it is refused with."""


def new_key(office: Office) -> Path:
    place = office.keys["bob"].parent / "nobody"
    if not place.exists():
        make_key(place)
    return place


def spans_since(office: Office, start: int) -> list[Any]:
    return [entry for entry in trail(office.issuer, start) if entry.name != "permit.effect.content_shown"]


@pytest.mark.spec("APP-01", "APP-03", "SUR-02", "AUD-01")
@pytest.mark.parametrize("case", SIGNATURES)
def test_nothing_but_a_persons_own_signature_over_exactly_this_is_a_yes(
    case: str, office: Office, effect: str, other: str
) -> None:
    make, code, field = SIGNATURES[case]
    handed_in = make(office, effect, other)
    start, connections = length(office.issuer), office.service.connections
    no = office.issuer.approve(effect, handed_in)
    assert no.code == code
    if field is not None:
        assert no.more["field"] == field
    assert (no.retryable, int(no.exit)) == (False, 7)
    spans = trail(office.issuer, start)
    assert [entry.attributes["permit.refusal"] for entry in spans] == [code]
    assert (spans[0].attributes["permit.caller"], spans[0].attributes["permit.command"]) == ("ops", "approve")
    assert state_of(office.issuer, effect) == state_of(office.issuer, other) == "awaiting_approval"
    assert office.issuer.commit(effect).code in {"not_found", "not_permitted_yet"}
    assert office.service.connections == connections


AGENT_SAYS: dict[str, Callable[[Any, Office, str], Answer]] = {
    "approves as boss": lambda agent, _o, e: agent.approve(e, "boss"),
    "approves as a real person": lambda agent, _o, e: agent.approve(e, "bob"),
    "hands in a real signature": lambda agent, o, e: agent.approve(e, o.signature("bob", o.statement(e))),
    "declines": lambda agent, _o, e: agent.decline(e, "bob", reason="not_agreed"),
}


@pytest.mark.spec("SEC-02", "APP-01", "AUD-01")
@pytest.mark.parametrize("case", AGENT_SAYS)
def test_an_agent_never_answers_and_the_record_names_the_agent(
    case: str, office: Office, effect: str
) -> None:
    agent = office.as_agent()
    start = length(office.issuer)
    no = AGENT_SAYS[case](agent, office, effect)
    assert (no.code, no.more["field"], no.effect) == ("forbidden", "caller", None)
    (span,) = (one for one in trail(office.issuer, start) if "permit.refusal" in one.attributes)
    assert span.attributes["permit.caller"] == "agent-7"
    assert span.attributes["permit.refusal"] == "forbidden"
    assert state_of(office.issuer, effect) == "awaiting_approval"
    # Of an effect that is not there it learns nothing else.
    missing = agent.approve("eff_" + "0" * 32, "bob")
    assert (missing.code, missing.say, missing.more) == (no.code, no.say, no.more)


@pytest.mark.spec("SEC-02", "EFF-08")
def test_an_agent_reads_no_statement_and_no_list(office: Office, effect: str) -> None:
    agent = office.as_agent()
    for no in (agent.statement(effect), agent.approvals()):
        assert (no.code, no.more["field"]) == ("forbidden", "caller")
        assert "statement" not in no.more


@pytest.mark.spec("APP-01", "EFF-05")
@pytest.mark.parametrize(
    "claim",
    [
        {"approved": True, "approved_by": "boss"},
        {"approval": "bob"},
        {"signature": "x"},
        {"approvers": []},
        {"tier": "issue"},
    ],
)
def test_an_approval_in_the_payload_is_an_unknown_field(claim: dict[str, object], office: Office) -> None:
    payload = {"order": "o-1", "amount": 900, **claim}
    no = office.as_agent().request("refund", payload, task="t1", actor="agent-7")
    assert (no.code, no.effect) == ("malformed", None)


@pytest.mark.spec("EFF-08", "SEC-04")
@pytest.mark.parametrize(
    "reference", ["", "eff_", "eff_" + "0" * 32, "x" * 300, "permit", "../eff", "\u0435ff_"]
)
def test_a_guessed_reference_reads_like_any_missing_one(reference: str, office: Office) -> None:
    known = office.issuer.approve("eff_" + "1" * 32, "bob")
    for no in (
        office.issuer.approve(reference, "bob"),
        office.issuer.decline(reference, "bob", reason="not_agreed"),
        office.issuer.statement(reference),
    ):
        assert (no.code, no.say, no.more, no.effect) == ("not_found", known.say, {}, None)
    assert office.issuer.withdraw(reference).code == "not_found"


@pytest.mark.spec("APP-03", "EFF-08")
def test_after_all_of_it_the_person_s_own_yes_still_counts_and_for_this_one_only(
    office: Office, effect: str, other: str
) -> None:
    assert office.approve(effect, "bob").code == "permitted"
    assert state_of(office.issuer, other) == "awaiting_approval"
    # A yes is used once: it cannot be said again, nor for the other one.
    again = office.issuer.approve(effect, "anything")
    assert again.code == "nothing_to_change"
