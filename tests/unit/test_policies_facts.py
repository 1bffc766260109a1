"""Only exact, bounded, complete facts reach a policy; everything else is refused where it is made."""

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from policies import (
    UNBOUNDED,
    ActorFact,
    ApprovalFacts,
    ClockFact,
    Directory,
    Earlier,
    FactsRefused,
    Limits,
    PersonFact,
    Usage,
)
from policies.ask import references, tier_ask
from policies.facts import (
    FACTS_BYTES_MAX,
    RECIPIENTS_MAX,
    STRING_BYTES_MAX,
    TASKS_MAX,
    TIME_MS_MAX,
    cedar_datetime,
)
from tests.support.policy_room import ACTORS, CATALOGUE, DIRECTORY, NOW_MS, PEOPLE, facts, task


class Sly(int):
    """A number that says something else when it is compared."""


def chain(length: int) -> tuple[Any, ...]:
    return tuple(task(f"t{depth}", depth=depth) for depth in range(length - 1, -1, -1))


@pytest.mark.spec("POL-02", "EFF-04")
@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda: facts(cost={"EUR.cent": 1.0}), "type_error"),
        (lambda: facts(cost={"EUR.cent": True}), "type_error"),
        (lambda: facts(cost={"EUR.cent": "1"}), "type_error"),
        (lambda: facts(cost={"EUR.cent": Sly(1)}), "type_error"),
        (lambda: facts(cost={"EUR.cent": -1}), "overflow"),
        (lambda: facts(cost={"EUR.cent": UNBOUNDED + 1}), "overflow"),
        (lambda: facts(remaining={"EUR.cent": -UNBOUNDED - 1}), "overflow"),
        (lambda: facts(attributes={"amount_cents": UNBOUNDED + 1}), "overflow"),
        (lambda: facts(attributes={"amount_cents": 1.5}), "type_error"),
        (lambda: facts(attributes={"amount_cents": None}), "type_error"),
        (lambda: facts(attributes={"vendor": {"__entity": {"type": "Person", "id": "bob"}}}), "type_error"),
        (lambda: facts(attributes={"vendor": "\ud800"}), "type_error"),
        (lambda: facts(attributes={"vendor": "x" * (STRING_BYTES_MAX + 1)}), "bad_facts"),
        (lambda: facts(attributes={"vendor": "\u00e4" * (STRING_BYTES_MAX // 2 + 1)}), "bad_facts"),
        (lambda: facts(recipients=("x" * STRING_BYTES_MAX,) * 5), "bad_facts"),
        (lambda: facts(recipients=("x",) * (RECIPIENTS_MAX + 1)), "bad_facts"),
        (lambda: facts(recipients=["x"]), "bad_facts"),
        (lambda: facts(recipients=(1,)), "type_error"),
        (lambda: facts(resource_id=b"x"), "type_error"),
        (lambda: facts(actor=""), "type_error"),
        (lambda: facts(actor="a" * 257), "type_error"),
        (lambda: facts(subject="\udc00"), "type_error"),
        (lambda: facts(tasks=()), "bad_facts"),
        (lambda: facts(tasks=chain(TASKS_MAX) + chain(1)), "bad_facts"),
        (lambda: facts(tasks=(task("a", depth=1),)), "bad_facts"),
        (lambda: facts(tasks=(task("a"), task("b", depth=1))), "bad_facts"),
        (lambda: facts(tasks=(task("a", depth=1), task("a"))), "bad_facts"),
        (lambda: facts(tasks=list(chain(1))), "bad_facts"),
        (lambda: task(depth=TASKS_MAX), "overflow"),
        (lambda: task(expires_ms=TIME_MS_MAX + 1), "overflow"),
        (lambda: task(expires_ms=-1), "overflow"),
        (lambda: task(expires_ms=1.0), "type_error"),
        (lambda: Earlier(same_payload_pending=-1), "overflow"),
        (lambda: Earlier(same_resource_unresolved=False), "type_error"),
        (lambda: Usage(day_permits=UNBOUNDED + 1), "overflow"),
        (lambda: Limits(lifetime_s=-1), "overflow"),
        (lambda: ClockFact(now_ms=NOW_MS, minute_of_day=1440, weekday=1), "overflow"),
        (lambda: ClockFact(now_ms=NOW_MS, minute_of_day=0, weekday=0), "overflow"),
        (lambda: ClockFact(now_ms=NOW_MS, minute_of_day=0, weekday=8), "overflow"),
        (lambda: PersonFact(name="x", groups=["g"]), "type_error"),  # type: ignore[arg-type]
        (lambda: PersonFact(name="x", groups=("",)), "type_error"),
        (lambda: PersonFact(name="x", groups=(), suspended=0), "type_error"),  # type: ignore[arg-type]
        (lambda: ActorFact(name="x", groups=(), answers_to=""), "type_error"),
    ],
)
def test_a_fact_that_is_not_what_it_claims_to_be_cannot_exist(
    build: Callable[[], object], reason: str
) -> None:
    with pytest.raises(FactsRefused) as refused:
        build()
    assert refused.value.reason == reason


@pytest.mark.spec("SEC-01")
def test_a_refusal_never_repeats_the_value() -> None:
    with pytest.raises(FactsRefused) as refused:
        facts(attributes={"vendor": "canary-4711" + "\ud800"})
    assert "canary" not in str(refused.value)


@pytest.mark.spec("POL-02")
@pytest.mark.parametrize(
    ("changes", "reason", "attribute"),
    [
        ({"attributes": {"vendor": "v", "number": "n"}}, "missing_attribute", "amount_cents"),
        (
            {"attributes": {"vendor": "v", "number": "n", "amount_cents": "5000"}},
            "type_error",
            "amount_cents",
        ),
        ({"attributes": {"vendor": "v", "number": "n", "amount_cents": True}}, "type_error", "amount_cents"),
        ({"attributes": {"vendor": "v", "number": 1, "amount_cents": 1}}, "type_error", "number"),
        (
            {"attributes": {"vendor": "v", "number": "n", "amount_cents": 1, "approved": True}},
            "bad_facts",
            "",
        ),
        ({"cost": {"USD.cent": 1}}, "bad_facts", ""),
        ({"remaining": {"publish": 1, "__proto__": 1}}, "bad_facts", ""),
        ({"resource_type": "Truck"}, "bad_facts", ""),
        ({"resource_type": "Person"}, "bad_facts", ""),
        ({"actor": "nobody"}, "missing_entity", ""),
        ({"actor": "alice"}, "missing_entity", ""),
        ({"subject": "nobody"}, "missing_entity", ""),
        ({"action_class": "gift"}, "missing_entity", ""),
        ({"operation": "pay_anyone"}, "missing_entity", ""),
        ({"tasks": (task(subject="nobody"),)}, "missing_entity", ""),
        ({"tasks": (task("a", depth=1), task("b", subject="ghost"))}, "missing_entity", ""),
    ],
)
def test_facts_that_do_not_fit_the_catalogue_or_the_directory_are_not_asked_about(
    changes: dict[str, Any], reason: str, attribute: str
) -> None:
    with pytest.raises(FactsRefused) as refused:
        tier_ask(DIRECTORY, facts(**changes))
    assert (refused.value.reason, refused.value.attribute) == (reason, attribute)


@pytest.mark.spec("BUD-01")
def test_a_unit_that_is_left_out_reads_zero() -> None:
    ask = tier_ask(DIRECTORY, facts(cost={"publish": 2}, remaining={}))
    context = ask.requests[0]["context"]
    assert isinstance(context, dict)
    assert context["cost"] == {"EUR.cent": 0, "publish": 2, "record": 0}
    assert context["remaining"] == {"EUR.cent": 0, "publish": 0, "record": 0}


@pytest.mark.spec("POL-01")
def test_both_tiers_are_asked_the_same_question() -> None:
    issue, approval = tier_ask(DIRECTORY, facts()).requests
    assert issue["action"] == {"type": "Action", "id": "issue"}
    assert issue | {"action": None} == approval | {"action": None}


def test_a_chain_goes_from_leaf_to_root_under_the_names_that_policies_use() -> None:
    ask = tier_ask(DIRECTORY, facts(tasks=chain(3)))
    tasks = [one for one in json.loads(ask.entities_json) if one["uid"]["type"] == "Task"]
    assert [(one["uid"]["id"], one["parents"]) for one in tasks] == [
        ("t2", [{"type": "Task", "id": "t1"}]),
        ("t1", [{"type": "Task", "id": "t0"}]),
        ("t0", []),
    ]


def test_attributes_called_type_and_id_are_not_taken_for_a_reference() -> None:
    assert list(
        references({"a": [{"type": "T", "id": "x"}], "b": {"__entity": {"type": "U", "id": "y"}}})
    ) == [
        ("U", "y"),
        ("T", "x"),
    ]
    assert list(references({"type": "T", "id": "x", "more": 1}, {"type": 1, "id": 2})) == []


@pytest.mark.parametrize(
    ("at_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_800_000_000_007, "2027-01-15T08:00:00.007Z"),
        (TIME_MS_MAX, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_instants_are_written_to_the_millisecond_in_utc(at_ms: int, text: str) -> None:
    assert cedar_datetime(at_ms) == {"__extn": {"fn": "datetime", "arg": text}}


def test_facts_do_not_change_after_they_were_checked() -> None:
    cost = {"EUR.cent": 1}
    made = facts(cost=cost)
    cost["EUR.cent"] = 10**9
    assert made.cost == {"EUR.cent": 1}
    with pytest.raises(TypeError):
        made.cost["EUR.cent"] = 2  # type: ignore[index]


def test_the_largest_legal_facts_can_be_asked_about() -> None:
    recipients = ("r" * 300,) * RECIPIENTS_MAX
    assert len(recipients) * 300 < FACTS_BYTES_MAX
    assert len(tier_ask(DIRECTORY, facts(recipients=recipients, tasks=chain(TASKS_MAX))).requests) == 2


@pytest.mark.spec("POL-05")
def test_a_directory_revision_is_its_content_and_not_its_order() -> None:
    same = Directory(people=PEOPLE[::-1], actors=ACTORS[::-1], catalogue=CATALOGUE)
    assert same.revision == DIRECTORY.revision
    for people, actors in (
        ((*PEOPLE[1:], dataclasses.replace(PEOPLE[0], suspended=True)), ACTORS),
        ((*PEOPLE[1:], dataclasses.replace(PEOPLE[0], groups=("finance",))), ACTORS),
        (PEOPLE, (ACTORS[0], dataclasses.replace(ACTORS[1], answers_to="bob"))),
        (PEOPLE, ACTORS[:1]),
    ):
        assert Directory(people=people, actors=actors, catalogue=CATALOGUE).revision != DIRECTORY.revision


@pytest.mark.parametrize(
    ("people", "actors", "reason"),
    [
        (PEOPLE + PEOPLE[:1], ACTORS, "bad_facts"),
        (PEOPLE, ACTORS + ACTORS[:1], "bad_facts"),
        (PEOPLE[1:], ACTORS, "missing_entity"),
        (tuple(PersonFact(name=f"p{n}", groups=()) for n in range(5_001)), (), "bad_facts"),
    ],
)
def test_a_directory_that_refers_to_nobody_cannot_exist(
    people: tuple[PersonFact, ...], actors: tuple[ActorFact, ...], reason: str
) -> None:
    with pytest.raises(FactsRefused) as refused:
        Directory(people=people, actors=actors, catalogue=CATALOGUE)
    assert refused.value.reason == reason


def test_approval_facts_are_bounded_too() -> None:
    known: dict[str, Any] = {
        "person": "bob",
        "effect_id": "e",
        "action_class": "payment",
        "subject": "bob",
        "actor": "ap-bot",
        "approvers": "finance",
        "now_ms": NOW_MS,
    }
    for change in ({"person": ""}, {"now_ms": 1.0}, {"effect_id": "x" * 257}, {"approvers": None}):
        with pytest.raises(FactsRefused):
            ApprovalFacts(**(known | change))
