"""Development case D13, its last part: an approval that is revoked, or whose person or key is, permits nothing more."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from issuer.wire import Answer
from ledger.model import EffectId
from tests.support.approving import POLICY, Office, opened_office
from tests.support.cases import NOTHING, books, state_of, trail
from tests.support.service import answer, held

TWO = POLICY.replace('@approvers("finance")', '@approvers("finance:2")')
ACTS: dict[str, Callable[[Office, str], Answer]] = {
    "the approval": lambda office, effect: office.issuer.revoke("approval", effect, "bob"),
    "the key": lambda office, effect: office.issuer.revoke("key", key_of(office, effect)),
    "every key of the person": lambda office, _effect: office.issuer.revoke("key", "bob"),
    "the person": lambda office, _effect: office.issuer.revoke("person", "bob"),
    "whom the actor answers to": lambda office, _effect: office.issuer.revoke("person", "boss"),
}

pytestmark = pytest.mark.spec("ADM-05", "POL-05", "APP-03")


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    with opened_office(tmp_path / "f0") as opened:
        yield opened


def key_of(office: Office, effect: str) -> str:
    (given, *_more) = office.issuer._house.ledger.read(lambda view: view.approvals(EffectId(effect)))
    return given.key


def approved(office: Office) -> str:
    effect = office.ask()
    assert office.approve(effect, "bob").code == "permitted"
    return effect


@pytest.mark.spec("BUD-06")
@pytest.mark.parametrize("act", ACTS)
def test_a_permit_whose_approval_was_revoked_is_refused_and_nothing_is_sent(office: Office, act: str) -> None:
    effect = approved(office)
    with office.made.open() as host:
        told = ACTS[act](office, effect)
        assert (told.code, told.more["voided"], told.more["effects"]) == ("revoked_now", 1, [effect])
        for _again in range(2):
            refused = host.commit(effect)
            assert (refused.code, refused.state, refused.retryable) == ("revoked", "revoked", False)
        assert books(host) == dict.fromkeys(("t1", "org"), NOTHING)
    for kind, name in (("person", "bob"), ("person", "boss")):
        office.issuer.thaw(kind, name)
    assert office.issuer.commit(effect).code == "revoked"
    assert office.service.connections == 0


@pytest.mark.parametrize("act", ACTS)
def test_an_effect_that_still_waits_for_another_person_ends_as_well(tmp_path: Path, act: str) -> None:
    with opened_office(tmp_path / "f0", policy=TWO) as office:
        effect = office.ask()
        assert office.approve(effect, "bob").code == "approved"
        signed = office.signature("carol", office.statement(effect))
        assert ACTS[act](office, effect).more["voided"] == 1
        assert office.issuer.approve(effect, signed).code == "revoked"
        assert state_of(office.issuer, effect) == "revoked"


@pytest.mark.spec("REP-01")
@pytest.mark.parametrize("act", ACTS)
def test_after_the_dispatch_began_it_is_too_late(office: Office, act: str) -> None:
    gate = office.service.gate("booked")
    office.service.then(held("booked", answer(201)))
    effect = approved(office)
    told: list[Answer] = []
    with office.made.open() as host:
        sending = threading.Thread(target=lambda: told.append(host.commit(effect)))
        sending.start()
        office.service.wait_for(requests=1)
        said = ACTS[act](office, effect)
        late = said.code == "too_late" or said.more["too_late"] == [{"effect": effect, "state": "admitted"}]
        assert late, said
        gate.set()
        sending.join()
    assert [(one.code, one.state) for one in told] == [("succeeded", "succeeded")]


def test_while_an_approver_is_suspended_the_permit_rests_and_it_is_not_told_who(office: Office) -> None:
    office.service.then(answer(201))
    effect = approved(office)
    office.issuer.suspend("person", "bob", reason="left")
    said = office.issuer.commit(effect)
    assert (said.code, said.more["field"], said.more.get("level")) == ("suspended", "person", None)
    assert "bob" not in said.say
    assert office.issuer.resume("person", "bob").code == "resumed"
    assert office.issuer.commit(effect).code == "succeeded"


def test_another_approver_another_key_and_an_approval_that_was_not_given_stop_nothing(office: Office) -> None:
    office.service.then(answer(201))
    effect = approved(office)
    assert office.issuer.revoke("key", "carol").more["voided"] == 0
    assert office.issuer.revoke("person", "dan").more["voided"] == 0
    no = office.issuer.revoke("approval", effect, "carol")
    assert (no.code, no.more["field"]) == ("unknown_reference", "person")
    assert office.issuer.commit(effect).code == "succeeded"


@pytest.mark.spec("APP-01")
def test_a_revoked_key_approves_nothing_more_and_the_span_names_it(office: Office) -> None:
    effect = approved(office)
    key = key_of(office, effect)
    office.issuer.revoke("key", "bob", reason="compromised")
    said = [one.attributes for one in trail(office.issuer) if one.name == "stop.revoked"]
    assert [(one["permit.stop"], one["permit.reason"]) for one in said] == [(f"key:{key}", "compromised")]
    other = office.ask(order="o-2")
    refused = office.approve(other, "bob")
    assert (refused.code, refused.more["field"]) == ("forbidden", "key")
    assert office.approve(other, "carol").code == "permitted"


def test_whoever_was_revoked_and_thawed_says_no_yes_to_what_was_asked_before(office: Office) -> None:
    """Admission would find it void, so that nobody gets a permit that is void from the start."""
    before = office.ask()
    assert office.issuer.revoke("person", "bob").code == "revoked_now"
    assert office.issuer.thaw("person", "bob").code == "resumed"
    no = office.approve(before, "bob")
    assert (no.code, no.more["field"], state_of(office.issuer, before)) == (
        "forbidden",
        "revoked",
        "awaiting_approval",
    )
    assert office.decline(before, "bob").code == "declined_now"
    after = office.ask(order="o-2")
    assert office.approve(after, "bob").code == "permitted"
    office.service.then(answer(201))
    assert office.issuer.commit(after).code == "succeeded"
