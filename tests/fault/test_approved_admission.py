"""What admission asks of an approved permit again, and what edited, revoked or missing approvals are worth: nothing."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.authority import Ruling, RulingKind
from ledger.changes import RulingMade, Step
from ledger.model import InstantMs
from ledger.port import Verdict, View
from ledger.transitions import Transition, TransitionName
from tests.fault.test_attacks import unguarded
from tests.support.approving import NO_APPROVERS, POLICY, Office, asked_of, opened_office
from tests.support.cases import refusals, state_of
from tests.support.service import answer


def profile_change(old: str, new: str) -> Callable[[Office], None]:
    def change(office: Office) -> None:
        text = office.made.profile.read_text(encoding="utf-8")
        assert text.count(old) == 1
        office.put(office.made.profile, text.replace(old, new))

    return change


def policy_change(text: str) -> Callable[[Office], None]:
    return lambda office: office.put(office.policies, text)


def other_key(office: Office) -> None:
    """Give bob dan's key, and dan none."""
    profile_change(
        'dan = { roles = ["approver"], groups = ["finance"], key = "people/dan.pub" }',
        'dan = { roles = ["approver"], groups = ["finance"] }',
    )(office)
    profile_change('key = "people/bob.pub"', 'key = "people/dan.pub"')(office)


BOB = 'bob = { roles = ["approver"], groups = ["finance"], key = "people/bob.pub" }'
BEFORE_COMMIT: dict[str, tuple[Callable[[Office], None], str, str | None]] = {
    "bob is no approver any more": (
        profile_change(BOB, BOB.replace('"approver"', '"reviewer"')),
        "revoked",
        "approval",
    ),
    "bob left the group": (profile_change(BOB, BOB.replace('"finance"', '"sales"')), "revoked", "approval"),
    "bob is gone": (profile_change(BOB, ""), "revoked", "approval"),
    "bob has another key": (other_key, "revoked", "approval"),
    "bob answers for the actor now": (
        lambda office: office.put(
            office.made.profile,
            office.made.profile.read_text(encoding="utf-8").replace(
                'answers_to = "boss"', 'answers_to = "bob"'
            ),
        ),
        "prepare_again",
        "statement",
    ),
    "nobody may approve any more": (
        policy_change(POLICY.replace(NO_APPROVERS, "when { principal == resource.subject };")),
        "denied",
        "approval",
    ),
    "two are wanted now": (policy_change(asked_of("finance:2")), "revoked", "approval"),
    "another group is wanted now": (policy_change(asked_of("stewards")), "revoked", "approval"),
    "this is not asked for any more": (policy_change(POLICY.replace("<= 100000", "<= 600")), "denied", None),
    "permits are shorter now": (
        profile_change('lifetime = "10m"', 'lifetime = "9m"'),
        "prepare_again",
        "statement",
    ),
}
"""What happens between the yes and the commit, and how the commit is refused."""


@pytest.mark.spec("APP-04", "POL-05", "ADM-01")
@pytest.mark.parametrize("case", BEFORE_COMMIT)
def test_admission_asks_every_approver_again_and_a_no_consumes_nothing(case: str, tmp_path: Path) -> None:
    change, code, field = BEFORE_COMMIT[case]
    with opened_office(tmp_path / "f0") as office:
        effect = office.ask()
        assert office.approve(effect, "bob").code == "permitted"
        before = {path: path.read_bytes() for path in (office.made.profile, office.policies)}
        change(office)
        no = office.issuer.commit(effect)
        assert (no.code, no.more.get("field")) == (code, field)
        assert (state_of(office.issuer, effect), office.service.connections) == ("permitted", 0)
        assert refusals(office.issuer)[-1][0] == code
        # As it was, it can be used: nothing was consumed.
        for path, text in before.items():
            office.put(path, text.decode())
        office.service.then(answer(201))
        assert office.issuer.commit(effect).code == "succeeded"


@pytest.mark.spec("APP-04", "POL-05")
def test_what_policies_now_issue_by_themselves_still_needs_who_said_yes(tmp_path: Path) -> None:
    with opened_office(
        tmp_path / "f0", changes={'each = { "USD.cent" = 500 }': 'each = { "USD.cent" = 5000 }'}
    ) as office:
        effect = office.ask()
        assert office.approve(effect, "bob").code == "permitted"
        policy_change(POLICY.replace("<= 500", "<= 5000"))(office)
        office.service.then(answer(201))
        assert office.issuer.commit(effect).code == "succeeded"


def ruled(office: Office, kind: RulingKind, name: str, value: str) -> None:
    """Write the latest word about a name, as an owner's command does."""
    house = office.issuer._house
    stop = f"key:{name.removeprefix('SHA256:')}" if kind is RulingKind.KEY else name

    def decide(_view: View, now: InstantMs) -> Verdict[None]:
        transition = Transition(
            name=TransitionName.STOP_REVOKED,
            story=house.ledger.ledger_id,
            attributes={"permit.mode": "ordinary", "permit.stop": "all" if kind is RulingKind.KEY else stop},
        )
        ruling = Ruling(kind=kind, name=name, value=value, since_ms=now)
        step = Step(transition=transition, changes=(RulingMade(ruling=ruling),))
        return Verdict(value=None, steps=(step,))

    house.ledger.transact(decide)


def key_of(office: Office, person: str) -> str:
    return office.issuer._house.profile.keys[person][0].fingerprint


STOPPED: dict[str, tuple[Callable[[Office], None], str]] = {
    "the key is revoked": (lambda o: ruled(o, RulingKind.KEY, key_of(o, "bob"), "revoked"), "key"),
    "the person is frozen": (lambda o: ruled(o, RulingKind.STOP, "person:bob", "frozen"), "suspended"),
    "the person is revoked": (lambda o: ruled(o, RulingKind.STOP, "person:bob", "revoked"), "suspended"),
}


@pytest.mark.spec("SEC-03", "APP-01", "APP-04", "POL-05", "ADM-05")
@pytest.mark.parametrize("case", STOPPED)
def test_a_revoked_key_or_a_stopped_person_counts_for_nothing_before_and_after(
    case: str, tmp_path: Path
) -> None:
    stop, field = STOPPED[case]
    with opened_office(tmp_path / "f0") as office:
        said, unsaid = office.ask(task="t1"), office.ask(task="org", order="o-2")
        signature = office.signature("bob", office.statement(unsaid))
        assert office.approve(said, "bob").code == "permitted"
        stop(office)
        no = office.issuer.commit(said)
        assert no.code in {"revoked", "suspended"}
        assert state_of(office.issuer, said) in {"permitted", "revoked"}
        assert office.service.connections == 0
        late = office.issuer.approve(unsaid, signature)
        assert (late.code, late.more["field"]) == ("forbidden", field)
        assert office.approve(unsaid, "carol").code == "permitted"


EDITS = {
    "another person": "UPDATE approvals SET person = 'carol'",
    "another key": "UPDATE approvals SET key = 'SHA256:" + "A" * 43 + "'",
    "another time": "UPDATE approvals SET at_ms = at_ms - 1",
    "fewer are wanted": "UPDATE approval_waits SET approvers = replace(approvers, '2', '1')",
    "another statement": "UPDATE approval_waits SET statement_digest = zeroblob(32)",
}


@pytest.mark.spec("LED-06", "APP-01", "APP-04")
@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_approval_is_no_authority(edit: str, tmp_path: Path) -> None:
    with opened_office(tmp_path / "f0", policy=asked_of("finance:2")) as office:
        effect = office.ask()
        office.approve(effect, "bob")
        if edit != "fewer are wanted":
            assert office.approve(effect, "carol").code == "permitted"
        else:
            assert state_of(office.issuer, effect) == "awaiting_approval"
        with unguarded(office.made) as raw:
            if edit == "another person":
                raw.execute("DELETE FROM approvals WHERE person = 'carol'")
            raw.execute(EDITS[edit])
        no = office.issuer.commit(effect)
        if edit == "fewer are wanted":
            no = office.issuer.approve(effect, "x")
        assert no.code == "ledger_unavailable", no
        assert office.service.connections == 0


@pytest.mark.spec("LED-06", "APP-03", "APP-04")
def test_an_approval_row_that_is_gone_is_a_yes_that_is_gone(tmp_path: Path) -> None:
    with opened_office(tmp_path / "f0", policy=asked_of("finance:2")) as office:
        effect = office.ask()
        office.approve(effect, "bob")
        assert office.approve(effect, "carol").code == "permitted"
        with unguarded(office.made) as raw:
            raw.execute("DELETE FROM approvals WHERE person = 'carol'")
        no = office.issuer.commit(effect)
        assert (no.code, no.more["reason"]) == ("ledger_unavailable", "approval_missing")
        assert office.service.connections == 0
