"""The example's policies and the shipped starter decide as their comments say; all else is denied."""

import dataclasses
from typing import Any

import pytest

from policies import (
    ActorFact,
    ApprovalFacts,
    ApproverDecision,
    Attribute,
    Bundle,
    Catalogue,
    Decision,
    Directory,
    Earlier,
    Facts,
    PersonFact,
    PolicyTrouble,
    ResourceType,
    TierResult,
    decide,
    load_bundle,
    may_approve,
    starter_files,
)
from tests.support.policy_room import (
    ACTORS,
    CATALOGUE,
    DIRECTORY,
    EXPERIENCE,
    NOW_MS,
    PEOPLE,
    at,
    facts,
    invoice,
    package,
    record,
    task,
)

TEAMS = """
@id("pay-small") @obligation("log")
permit (principal is Actor in Group::"pay-bots", action == Action::"issue", resource is Invoice)
when { context.cost["EUR.cent"] <= 50000 };
@id("pay-larger") @approvers("finance") @obligation("two-eyes") @say("A person is asked.")
permit (principal is Actor in Group::"pay-bots", action == Action::"requestApproval", resource is Invoice)
when { context.cost["EUR.cent"] <= 5000000 };
@id("z-month-end") @say("Not at the end of the month.")
forbid (principal, action == Action::"issue", resource)
unless { context.clock.minute_of_day < 1200 };
@id("a-frozen") @say("Frozen.")
forbid (principal, action in Action::"permit", resource)
unless { context.task in Task::"accounts-payable" };
"""


@pytest.fixture(scope="module")
def example() -> Bundle:
    if not EXPERIENCE.is_dir():
        pytest.skip("the published example is not beside this repository")
    text = (EXPERIENCE / "policies" / "starter.cedar").read_text()
    return load_bundle({"starter.cedar": text}, CATALOGUE)


@pytest.fixture(scope="module")
def teams() -> Bundle:
    return load_bundle({"teams.cedar": TEAMS}, CATALOGUE)


TWICE = "never-twice-by-itself"
OPEN = "not-while-unresolved"
HOURS = "releases-mon-to-thu-9-to-16"


@pytest.mark.spec("POL-01", "POL-02")
@pytest.mark.parametrize(
    ("sentence", "asked", "code", "by"),
    [
        ("finance pays a small invoice without asking", invoice(14_950), "permit", ["pay-small"]),
        ("the limit itself is still small", invoice(50_000), "permit", ["pay-small"]),
        ("one cent above waits for finance", invoice(50_001), "approval", ["pay-larger"]),
        ("above the larger limit nobody can", invoice(5_000_001), "denied", []),
        (
            "an open outcome on the same invoice stops both ways",
            invoice(14_950, earlier=Earlier(same_resource_unresolved=1)),
            "denied",
            [TWICE, OPEN],
        ),
        (
            "paid before: not by itself, but a person may",
            invoice(14_950, earlier=Earlier(same_payload_succeeded=1)),
            "approval",
            ["pay-larger"],
        ),
        ("nobody pays for alice", invoice(14_950, subject="alice"), "denied", []),
        ("a release bot pays nothing", invoice(14_950, actor="rel-bot"), "denied", []),
        (
            "a candidate in the morning goes out",
            package("2.0.0-rc.1"),
            "permit",
            ["publish-candidate"],
        ),
        ("a release waits for platform", package("2.0.0"), "approval", ["publish-release"]),
        (
            "a candidate on Friday waits for platform",
            package("2.0.0-rc.1", clock=at(5, 10)),
            "approval",
            ["publish-release"],
        ),
        (
            "a candidate at four sharp waits for platform",
            package("2.0.0-rc.1", clock=at(2, 16)),
            "approval",
            ["publish-release"],
        ),
        (
            "a foreign package is not ours to publish",
            package(
                "2.0.0-rc.1", clock=at(2, 17), attributes={"name": "left", "version": "1", "integrity": ""}
            ),
            "denied",
            [HOURS],
        ),
        (
            "a steward is asked before a deletion",
            record(legal_hold=False),
            "approval",
            ["delete-with-steward"],
        ),
        ("a legal hold stops everybody", record(legal_hold=True), "denied", []),
    ],
)
def test_the_example_decides_as_its_comments_say(
    example: Bundle, sentence: str, asked: Facts, code: str, by: list[str]
) -> None:
    decision = decide(example, DIRECTORY, asked)
    assert (decision.code, list(decision.policy_ids)) == (code, by), sentence
    assert decision.errors == ()
    assert (decision.bundle_digest, decision.engine) == (example.digest, "cedarpy 4.12.2")


def approver(person: str, group: str, **changes: Any) -> ApprovalFacts:
    known: dict[str, Any] = {
        "person": person,
        "effect_id": "ef_1",
        "action_class": "payment",
        "subject": "bob",
        "actor": "ap-bot",
        "approvers": group,
        "now_ms": NOW_MS,
    }
    return ApprovalFacts(**(known | changes))


@pytest.mark.spec("POL-01", "APP-03")
@pytest.mark.parametrize(
    ("sentence", "asked", "allowed"),
    [
        ("carol of finance may", approver("carol", "finance"), True),
        ("bob may not: it is for him", approver("bob", "finance"), False),
        ("alice may not: she answers for the actor", approver("alice", "platform"), False),
        ("alice may not: she is not of finance", approver("alice", "finance", actor="ap-bot"), False),
        ("bob may for somebody else", approver("bob", "finance", subject="carol"), True),
    ],
)
def test_an_approver_is_somebody_else_of_the_right_group(
    example: Bundle, sentence: str, asked: ApprovalFacts, allowed: bool
) -> None:
    answer = may_approve(example, DIRECTORY, asked)
    assert answer.allowed is allowed, sentence
    assert answer.policy_ids == (("approvers",) if allowed else ())
    assert answer.errors == ()


@pytest.mark.spec("POL-04")
@pytest.mark.parametrize(
    "change",
    [{"person": "ghost"}, {"group": "no-such-group"}, {"actor": "ghost"}, {"action_class": "gift"}],
)
def test_an_approver_question_about_nobody_is_a_no(example: Bundle, change: dict[str, str]) -> None:
    answer = may_approve(example, DIRECTORY, approver(**({"person": "carol", "group": "finance"} | change)))
    assert answer == ApproverDecision(
        allowed=False,
        policy_ids=(),
        errors=(PolicyTrouble(policy_id="", reason="missing_entity"),),
        bundle_digest=example.digest,
        engine=example.engine,
    )


@pytest.mark.spec("POL-06")
def test_a_decision_carries_what_follows_from_it(teams: Bundle) -> None:
    permit = decide(teams, DIRECTORY, invoice(1))
    assert (permit.code, permit.obligations, permit.approvers, permit.say) == ("permit", ("log",), {}, None)
    approval = decide(teams, DIRECTORY, invoice(50_001))
    assert (approval.code, approval.obligations, approval.approvers, approval.say) == (
        "approval",
        ("two-eyes",),
        {"finance": 1},
        "A person is asked.",
    )
    late = decide(teams, DIRECTORY, invoice(1, clock=at(2, 23)))
    assert (late.code, late.policy_ids) == ("approval", ("pay-larger",))
    assert late.issue == TierResult(
        allowed=False, policy_ids=("z-month-end",), say="Not at the end of the month."
    )


@pytest.mark.spec("SUR-05")
def test_a_denial_says_what_closed_both_ways_before_what_closed_one(teams: Bundle) -> None:
    elsewhere = (task("other"),)
    both = decide(teams, DIRECTORY, invoice(1, clock=at(2, 23), tasks=elsewhere))
    assert (both.code, both.policy_ids, both.say) == ("denied", ("a-frozen", "z-month-end"), "Frozen.")
    one = decide(teams, DIRECTORY, invoice(5_000_001, clock=at(2, 23)))
    assert (one.code, one.policy_ids, one.say) == (
        "denied",
        ("z-month-end",),
        "Not at the end of the month.",
    )


@pytest.mark.spec("POL-02")
def test_a_policy_can_ask_for_an_ancestor_by_name(teams: Bundle) -> None:
    deep = (task("leaf", depth=2), task("middle", depth=1), task("accounts-payable"))
    assert decide(teams, DIRECTORY, invoice(1, tasks=deep)).code == "permit"
    assert decide(teams, DIRECTORY, invoice(1, tasks=(task("leaf", depth=1), task("x")))).code == "denied"


@pytest.mark.spec("POL-03")
def test_an_exhausted_bound_closes_only_the_automatic_tier(teams: Bundle) -> None:
    small = decide(teams, DIRECTORY, invoice(1)).without_automatic()
    assert (small.code, small.policy_ids, small.approvers) == ("approval", ("pay-larger",), {"finance": 1})
    assert small.issue == TierResult(allowed=False, policy_ids=())
    only_automatic = load_bundle({"a.cedar": TEAMS.split("@id", 2)[1].join(["@id", ""])}, CATALOGUE)
    closed = decide(only_automatic, DIRECTORY, invoice(1)).without_automatic()
    assert (closed.code, closed.policy_ids) == ("denied", ())
    failed = decide(teams, DIRECTORY, invoice(1, actor="ghost"))
    assert failed.without_automatic() is failed


@pytest.mark.spec("POL-04")
def test_a_decision_cannot_claim_what_its_tiers_do_not_say(teams: Bundle) -> None:
    denied = decide(teams, DIRECTORY, invoice(5_000_001))
    with pytest.raises(ValueError, match="follow from its tiers"):
        dataclasses.replace(denied, code="permit")
    permit = decide(teams, DIRECTORY, invoice(1))
    trouble = (PolicyTrouble(policy_id="x", reason="overflow"),)
    with pytest.raises(ValueError, match="allows nothing"):
        dataclasses.replace(permit, code="policy_error", errors=trouble)


@pytest.mark.spec("POL-06")
def test_equal_questions_get_equal_answers_in_equal_order(teams: Bundle) -> None:
    asked = invoice(1, clock=at(2, 23), tasks=(task("other"),))
    first: Decision = decide(teams, DIRECTORY, asked)
    assert all(decide(teams, DIRECTORY, asked) == first for _ in range(50))


@pytest.mark.spec("POL-05")
def test_a_suspension_is_seen_with_the_next_directory(teams: Bundle) -> None:
    text = (
        TEAMS + '@id("suspended") forbid (principal, action in Action::"permit", resource) '
        "unless { !principal.suspended };"
    )
    bundle = load_bundle({"a.cedar": text}, CATALOGUE)
    actors = (dataclasses.replace(ACTORS[0], suspended=True), *ACTORS[1:])
    suspended = Directory(people=PEOPLE, actors=actors, catalogue=CATALOGUE)
    codes = [decide(bundle, directory, facts()).code for directory in (DIRECTORY, suspended, DIRECTORY)]
    assert codes == ["permit", "denied", "permit"]


FILES = Catalogue(
    classes=("files",),
    operations=("create_file", "replace_file", "delete_file"),
    units=("file",),
    resource_types=(
        ResourceType(name="File", attributes=(Attribute(name="path", kind="string", said=True),)),
    ),
)
WRITERS = Directory(
    people=(PersonFact(name="ann", groups=("owners",)), PersonFact(name="old", groups=(), suspended=True)),
    actors=(
        ActorFact(name="writer", groups=("writers",), answers_to="ann"),
        ActorFact(name="reader", groups=(), answers_to="ann"),
        ActorFact(name="orphan", groups=("writers",), answers_to="old"),
    ),
    catalogue=FILES,
)


def file(path: str, operation: str = "create_file", **changes: Any) -> Facts:
    known: dict[str, Any] = {
        "actor": "writer",
        "subject": "ann",
        "operation": operation,
        "action_class": "files",
        "resource_type": "File",
        "resource_id": path,
        "attributes": {"path": path},
        "cost": {"file": 1},
        "remaining": {"file": 5},
        "recipients": (),
        "tasks": (task(subject="ann"),),
    }
    return facts(**(known | changes))


@pytest.mark.spec("POL-01")
@pytest.mark.parametrize(
    ("asked", "code", "by"),
    [
        (file("notes/a.txt"), "permit", ["write-notes"]),
        (file("report.txt"), "approval", ["write-elsewhere"]),
        (file("notes/a.txt", "replace_file"), "approval", ["replace-file"]),
        (file("notes/a.txt", "delete_file"), "denied", []),
        (file("notes/a.txt", actor="reader"), "denied", []),
        (file("notes/a.txt", actor="orphan"), "denied", ["not-by-the-suspended"]),
        (file("notes/a.txt", subject="old"), "denied", ["not-by-the-suspended"]),
        (file("notes/a.txt", earlier=Earlier(same_payload_pending=1)), "approval", ["write-elsewhere"]),
        (file("notes/a.txt", earlier=Earlier(same_payload_succeeded=1)), "approval", ["write-elsewhere"]),
        (
            file("notes/a.txt", earlier=Earlier(same_resource_unresolved=1)),
            "denied",
            [TWICE, OPEN],
        ),
    ],
)
def test_the_shipped_starter_lets_bots_write_notes_and_asks_for_the_rest(
    asked: Facts, code: str, by: list[str]
) -> None:
    bundle = load_bundle(starter_files(), FILES)
    decision = decide(bundle, WRITERS, asked)
    assert (decision.code, list(decision.policy_ids), decision.errors) == (code, by, ())
    assert decision.approvers == ({"owners": 1} if code == "approval" else {})
    assert bundle.warnings == ()
