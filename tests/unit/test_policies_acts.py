"""Acts of people: what Cedar is asked about openTask, observe, reconcile, acknowledge, revoke and activate (POL-01)."""

import dataclasses
from typing import Any, get_args

import pytest

from issuer.profile.models import Role
from policies import (
    ACTS,
    ROLES,
    ActFacts,
    Bundle,
    BundleRefused,
    CatalogueRefused,
    Directory,
    EffectFact,
    FactsRefused,
    PersonFact,
    ResourceType,
    load_bundle,
    may_act,
    role_policies,
)
from tests.support.policy_room import ACTORS, CATALOGUE, EXPERIENCE, NOW_MS

PEOPLE = (
    PersonFact(name="alice", groups=("platform",), roles=("owner", "operator")),
    PersonFact(name="bob", groups=("finance",), roles=("approver",)),
    PersonFact(name="erin", groups=(), roles=("reviewer",)),
    PersonFact(name="otto", groups=(), roles=("operator",)),
    PersonFact(name="olga", groups=(), roles=("owner",)),
    PersonFact(name="gone", groups=(), roles=("owner", "operator", "reviewer"), suspended=True),
)
DIRECTORY = Directory(people=PEOPLE, actors=ACTORS, catalogue=CATALOGUE)
EFFECT = EffectFact(
    effect_id="eff_" + "1" * 32,
    action_class="payment",
    operation="pay_invoice",
    subject="bob",
    actor="ap-bot",
    state="unknown",
    own=False,
)
ISSUER_ACTS = [act for act, types in ACTS.items() if "Issuer" in types]
EFFECT_ACTS = [act for act, types in ACTS.items() if "Effect" in types]
MAY = {
    "openTask": {"alice", "olga"},
    "activate": {"alice", "olga"},
    "observe": {"alice", "olga", "otto", "erin"},
    "revoke": {"alice", "olga", "otto"},
    "reconcile": {"alice", "otto"},
    "acknowledge": {"alice", "otto"},
}


@pytest.fixture(scope="module")
def starter() -> Bundle:
    return load_bundle({"roles.cedar": role_policies()}, CATALOGUE)


def act(person: str, action: str, effect: EffectFact | None = None) -> ActFacts:
    return ActFacts(person=person, action=action, command="some-command", now_ms=NOW_MS, effect=effect)


def bundle(*policies: str) -> Bundle:
    return load_bundle({"p.cedar": "\n".join(policies)}, CATALOGUE)


@pytest.mark.spec("POL-01", "SEC-02")
@pytest.mark.parametrize("person", [one.name for one in PEOPLE])
def test_the_starter_gives_each_role_its_acts_and_no_more(starter: Bundle, person: str) -> None:
    assert starter.warnings == ()
    for effect, actions in ((None, ISSUER_ACTS), (EFFECT, EFFECT_ACTS)):
        for action in actions:
            decision = may_act(starter, DIRECTORY, act(person, action, effect))
            assert decision.allowed is (person in MAY[action]), action
            assert decision.errors == ()
            assert bool(decision.policy_ids) is decision.allowed


def test_the_roles_of_policies_are_those_of_a_profile() -> None:
    assert set(ROLES) == set(get_args(Role))


@pytest.mark.spec("POL-01")
def test_the_published_example_still_loads_and_names_no_act() -> None:
    if not EXPERIENCE.is_dir():
        pytest.skip("the published example is not beside this repository")
    example = bundle((EXPERIENCE / "policies" / "starter.cedar").read_text())
    assert not any(example.names_action(action) for action in ACTS)
    assert not may_act(example, DIRECTORY, act("alice", "activate")).allowed


@pytest.mark.spec("POL-01", "POL-04")
def test_a_forbid_that_cannot_be_evaluated_is_a_no_and_not_skipped() -> None:
    allow = '@id("yes") permit (principal is Person, action == Action::"reconcile", resource is Effect);'
    assert may_act(bundle(allow), DIRECTORY, act("erin", "reconcile", EFFECT)).allowed
    decision = may_act(bundle(allow, BROKEN), DIRECTORY, act("erin", "reconcile", EFFECT))
    assert (decision.allowed, decision.policy_ids) == (False, ())
    assert [error.policy_id for error in decision.errors] == ["broken"]


BROKEN = """@id("broken") forbid (principal, action == Action::"reconcile", resource)
unless { resource.subject == principal || !Person::"nobody".suspended };"""


@pytest.mark.spec("POL-04")
@pytest.mark.parametrize(
    "effect",
    [
        {"subject": "nobody"},
        {"actor": "no-bot"},
        {"operation": "no_longer"},
        {"action_class": "no_longer"},
    ],
)
def test_an_effect_of_something_that_is_declared_no_more_is_nobodys_to_act_on(
    starter: Bundle, effect: dict[str, Any]
) -> None:
    decision = may_act(starter, DIRECTORY, act("alice", "acknowledge", dataclasses.replace(EFFECT, **effect)))
    assert not decision.allowed
    assert [error.reason for error in decision.errors] == ["missing_entity"]


@pytest.mark.spec("POL-04")
def test_who_is_no_person_of_the_directory_may_do_nothing(starter: Bundle) -> None:
    for name in ("uid:1000", "host:ap-service", "ap-bot", "nobody"):
        decision = may_act(starter, DIRECTORY, act(name, "observe"))
        assert (decision.allowed, decision.errors[0].reason) == (False, "missing_entity")


@pytest.mark.parametrize(
    ("action", "effect"),
    [("openTask", EFFECT), ("activate", EFFECT), ("reconcile", None), ("acknowledge", None), ("issue", None)],
)
def test_an_act_is_asked_only_about_what_it_applies_to(action: str, effect: EffectFact | None) -> None:
    with pytest.raises(FactsRefused):
        act("alice", action, effect)


@pytest.mark.spec("POL-01")
def test_policies_see_whose_effect_it_is_its_state_class_and_the_command() -> None:
    only = bundle(
        '@id("mine")\n'
        'permit (principal is Person, action == Action::"acknowledge", resource is Effect in Class::"payment")\n'
        'when { resource.own && resource.state == "unknown" && context.command == "some-command" &&'
        " resource.subject == principal };"
    )
    told: list[dict[str, Any]] = [
        {"own": True},
        {},
        {"own": True, "state": "admitted"},
        {"own": True, "action_class": "release"},
    ]
    asked = [act("bob", "acknowledge", dataclasses.replace(EFFECT, **one)) for one in told]
    assert [may_act(only, DIRECTORY, one).allowed for one in asked] == [True, False, False, False]


@pytest.mark.parametrize(
    "text",
    [
        '@id("x") permit (principal is Actor, action == Action::"observe", resource is Effect);',
        '@id("x") permit (principal, action == Action::"observe", resource is Effect);',
        '@id("x") permit (principal is Person, action == Action::"observe", resource);',
        '@id("x") permit (principal is Person, action == Action::"openTask", resource is Effect);',
        '@id("x") permit (principal is Person in Role::"boss", action == Action::"openTask", resource is Issuer);',
        '@id("x") @approvers("a") permit (principal is Person, action == Action::"openTask", resource is Issuer);',
        '@id("x") permit (principal is Person, action in [Action::"observe", Action::"revoke"], resource is Effect);',
    ],
)
def test_a_permit_of_an_act_that_says_too_little_or_nonsense_is_refused(text: str) -> None:
    with pytest.raises(BundleRefused):
        bundle(text)


@pytest.mark.parametrize("name", ["Role", "Host", "Issuer", "Effect"])
def test_no_resource_type_takes_a_name_of_the_issuers_own(name: str) -> None:
    with pytest.raises(CatalogueRefused):
        ResourceType(name=name, attributes=())


def test_roles_are_part_of_a_directorys_revision() -> None:
    other = (*PEOPLE[:-1], PersonFact(name="gone", groups=(), suspended=True))
    assert Directory(people=other, actors=ACTORS, catalogue=CATALOGUE).revision != DIRECTORY.revision
    with pytest.raises(FactsRefused):
        PersonFact(name="x", groups=(), roles=("boss",))
