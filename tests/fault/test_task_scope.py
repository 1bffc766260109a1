"""A task names what it may be used for, and how often: held at every level, whoever asks at once (BUD-06, BUD-01)."""

import queue
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from issuer import Issuer
from issuer.clock import now_ms
from issuer.wire import Answer
from ledger.model import TASK_DEPTH_MAX, InstantMs, PathNode, Scope, TaskId
from ledger.port import Committed, Decide, Verdict, View
from tests.support.cases import Clock, effect_ids, length, rebuilt, refusals, trail
from tests.support.issuers import HOUR_MS, open_task, permitted, refund, standard_issuer
from tests.support.ledgers import without_guards
from tests.support.racing import Child
from tests.support.service import Service, Step, accept_then_close, answer
from tests.support.shops import EVERYTHING, RELEASES, Counts, Shop, assert_no, opened_shop
from tests.support.witness import witness


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with opened_shop(tmp_path_factory.mktemp("scope") / "f0") as made:
        yield made


# ----------------------------------------------------------------------------------------- what is unnamed


OUTSIDE: list[tuple[str, dict[str, Any], dict[str, Any], tuple[str, str]]] = [
    ("a class that nobody names", {"classes": {"refund": 5}}, {}, ("class", "root")),
    ("a class that the child leaves out", {}, {"classes": {"refund": 5}}, ("class", "leaf")),
    ("an operation that nobody names", {"operations": {"refund": 5}}, {}, ("operation", "root")),
    ("an operation that the child leaves out", {}, {"operations": {"refund": 5}}, ("operation", "leaf")),
    ("a resource that nobody names", {"resources": {"Release:other": 5}}, {}, ("resource", "root")),
    ("a resource that the child leaves out", {}, {"resources": {"Release:other": 5}}, ("resource", "leaf")),
]  # fmt: skip


@pytest.mark.spec("BUD-06")
@pytest.mark.parametrize(("what", "root", "child", "no"), OUTSIDE, ids=[row[0] for row in OUTSIDE])
def test_what_a_task_does_not_name_is_refused_and_stores_nothing(
    shop: Shop, what: str, root: Mapping[str, Counts], child: Mapping[str, Counts], no: tuple[str, str]
) -> None:
    name = what.replace(" ", "-")
    shop.root(f"{name}-root", **({"classes": EVERYTHING} | dict(root)))
    shop.child(f"{name}-leaf", f"{name}-root", **child)
    effects, start = effect_ids(shop.issuer), length(shop.issuer)
    kind, level = no
    # What the root leaves out the child has not either, so there the lowest level speaks first.
    no_answer = shop.publish(f"{name}-leaf")
    assert_no(shop, no_answer, "outside_task", kind, f"{name}-leaf")
    assert (int(no_answer.exit), no_answer.effect) == (7, None)
    at_the_root = shop.publish(f"{name}-root")
    if level == "root":
        assert_no(shop, at_the_root, "outside_task", kind, f"{name}-root")
        assert effect_ids(shop.issuer) == effects
        assert length(shop.issuer) == start + 2
    else:
        assert at_the_root.code == "permitted"
        assert len(effect_ids(shop.issuer)) == len(effects) + 1


@pytest.mark.spec("BUD-06")
def test_what_is_named_exactly_is_permitted_and_its_neighbour_is_not(shop: Shop) -> None:
    shop.root("exact", {"refund": 5}, operations={"refund": 5}, resources={"Order:o-1": 5, "Order:o-2": 5})
    permitted(shop.ask("exact", order="o-1"))
    permitted(shop.ask("exact", order="o-2"))
    for order in ("o-3", "o-", "o-10", "O-1"):
        assert_no(shop, shop.ask("exact", order=order), "outside_task", "resource", "exact")


@pytest.mark.spec("BUD-06", "LED-06")
def test_a_scope_that_was_edited_is_found_at_request_and_at_admission(tmp_path: Path) -> None:
    with Service(answer(201)) as service:
        made = standard_issuer(tmp_path / "f0", port=service.port, changes=RELEASES)
        with made.open() as issuer:
            open_task(issuer, "narrow", parent="t1", budget={"USD.cent": 100}, classes={"refund": 1})
            effect = permitted(refund(issuer, amount=1, task="narrow"))
        wider = """UPDATE tasks SET scope = replace(scope, '"refund":1', '"refund":9,"release":9') """
        without_guards(made.ledger, f"{wider} WHERE name = 'narrow'")
        with made.open() as issuer:
            for no in (
                refund(issuer, amount=1, task="narrow"),
                issuer.request("publish", {"name": "v1"}, task="narrow", actor="agent-7"),
                issuer.commit(effect),
            ):
                assert (no.code, no.more["reason"]) == ("ledger_unavailable", "task_mac")
        assert service.connections == 0


class Narrowed:
    """The real ledger, whose task `name` names another scope since its permits were issued: no command does it."""

    def __init__(self, issuer: Issuer, name: str, scope: Scope) -> None:
        self._ledger: Any = issuer._house.ledger
        self._name, self._scope = name, scope

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    def transact(self, decide: Decide[Any], **options: bool) -> Committed[Any]:
        """See `Ledger.transact`."""

        def narrowed(view: View, now: InstantMs) -> Verdict[Any]:
            return decide(NarrowedView(view, self._name, self._scope), now)

        committed: Committed[Any] = self._ledger.transact(narrowed, **options)
        return committed


class NarrowedView:
    """What it shows of a path; everything else is the real view's."""

    def __init__(self, view: View, name: str, scope: Scope) -> None:
        self._view, self._name, self._scope = view, name, scope

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)

    def path(self, task_id: TaskId) -> tuple[PathNode, ...]:
        """See `View.path`."""
        return tuple(
            replace(node, task=replace(node.task, scope=self._scope))
            if node.task.name == self._name
            else node
            for node in self._view.path(task_id)
        )


@pytest.mark.spec("BUD-06", "ADM-01")
@pytest.mark.parametrize("level", ["leaf", "root"])
def test_admission_asks_again_what_each_level_names(shop: Shop, level: str) -> None:
    shop.root(f"asked-{level}-root")
    shop.child(f"asked-{level}-leaf", f"asked-{level}-root")
    effect = permitted(shop.ask(f"asked-{level}-leaf"))
    before = shop.service.connections
    scope = Scope(classes={"release": 1})
    narrowed = rebuilt(shop.issuer, ledger=Narrowed(shop.issuer, f"asked-{level}-{level}", scope))
    assert_no(shop, narrowed.commit(effect), "outside_task", "class", f"asked-{level}-{level}")
    assert shop.service.connections == before
    assert shop.send(effect, answer(201)) == "succeeded"


# -------------------------------------------------------------------------------------------------- slots


ENDS: list[tuple[Step, str, bool]] = [
    (answer(201), "succeeded", False),
    (answer(409), "failed", False),
    (accept_then_close(), "outcome_unknown", False),
    (answer(402), "no_effect", True),
]


@pytest.mark.spec("BUD-06")
@pytest.mark.parametrize(("step", "code", "returns"), ENDS, ids=[row[1] for row in ENDS])
def test_a_slot_is_taken_at_issue_and_comes_back_only_where_nothing_happened(
    shop: Shop, step: Step, code: str, returns: bool
) -> None:
    name = f"slot-{code}"
    shop.root(name, {"refund": 2}, operations={"refund": 2}, resources={"Order:o-1": 1})
    kinds = (("class", "refund"), ("operation", "refund"), ("resource", "Order:o-1"))
    assert [shop.slots(name, *kind)[0] for kind in kinds] == [0, 0, 0]
    effect = permitted(shop.ask(name, order="o-1"))
    assert [shop.slots(name, *kind)[0] for kind in kinds] == [1, 1, 1]
    assert_no(shop, shop.ask(name, order="o-1"), "slots_exhausted", "resource", name)
    assert shop.send(effect, step) == code
    assert shop.issuer.commit(effect).code == code
    left = 0 if returns else 1
    assert [shop.slots(name, *kind)[0] for kind in kinds] == [left, left, left]
    again = shop.ask(name, order="o-1")
    assert again.code == ("permitted" if returns else "slots_exhausted")


@pytest.mark.spec("BUD-06", "PER-03")
def test_a_permit_that_expires_unused_gives_its_slots_back_at_every_level(tmp_path: Path) -> None:
    clock = Clock()
    with opened_shop(tmp_path / "f0", clock=clock) as shop:
        shop.root("root", {"refund": 1})
        shop.child("leaf", "root", {"refund": 1})
        effect = permitted(shop.ask("leaf"))
        assert (shop.slots("leaf"), shop.slots("root")) == ((1, 0, "leaf"), (1, 0, "root"))
        assert_no(shop, shop.ask("leaf"), "slots_exhausted", "class", "leaf")
        clock.ahead_ms = 600_001
        assert (shop.slots("leaf"), shop.slots("root")) == ((0, 1, "leaf"), (0, 1, "root"))
        assert shop.issuer.commit(effect).code == "expired"
        assert shop.slots("root") == (0, 1, "root")
        permitted(shop.ask("leaf"))
        assert shop.service.connections == 0


@pytest.mark.spec("BUD-06", "BUD-02")
def test_a_child_that_names_no_count_is_held_to_those_above_it_and_takes_nothing_when_refused(
    shop: Shop,
) -> None:
    shop.root("up", {"refund": 2, "release": 9})
    shop.child("up.a", "up")
    shop.child("up.b", "up", {"refund": 2})
    assert shop.slots("up.a") == (None, 2, "up")
    permitted(shop.ask("up.a"))
    permitted(shop.ask("up.b"))
    assert (shop.slots("up.a"), shop.slots("up.b"), shop.slots("up")) == (
        (None, 0, "up"),
        (1, 0, "up"),
        (2, 0, "up"),
    )
    assert_no(shop, shop.ask("up.a"), "slots_exhausted", "class", "up")
    # The level that is full is named, and the one that has room keeps nothing of the try.
    assert_no(shop, shop.ask("up.b"), "slots_exhausted", "class", "up")
    assert shop.slots("up.b") == (1, 0, "up")
    assert shop.publish("up.a").code == "permitted"


@pytest.mark.spec("BUD-06", "EFF-06")
def test_what_is_held_or_waits_for_a_person_takes_no_slot_and_asks_for_one_when_it_is_issued(
    shop: Shop,
) -> None:
    shop.root("held", {"refund": 1})
    waits = [shop.ask("held", hold=True) for _each in range(2)]
    assert shop.ask("held", amount=501).code == "awaiting_approval"
    assert shop.slots("held") == (0, 1, "held")
    permitted(shop.issuer.request_held(str(waits[0].effect)))
    assert_no(shop, shop.issuer.request_held(str(waits[1].effect)), "slots_exhausted", "class", "held")
    assert shop.slots("held") == (1, 0, "held")


@pytest.mark.spec("BUD-06", "BUD-02")
def test_a_refused_admission_keeps_permit_and_slot(shop: Shop) -> None:
    shop.root("kept", {"refund": 2})
    open_task(shop.issuer, "kept.small", parent="kept", budget={"USD.cent": 400})
    one, two = (permitted(shop.ask("kept.small", amount=300)) for _each in range(2))
    assert shop.send(one, answer(201)) == "succeeded"
    assert shop.issuer.commit(two).code == "budget_exceeded"
    assert shop.slots("kept") == (2, 0, "kept")
    assert shop.issuer.task_grant("kept.small", budget={"USD.cent": 200}).code == "granted"
    assert shop.send(two, answer(201)) == "succeeded"
    assert shop.slots("kept") == (2, 0, "kept")


@pytest.fixture
def racers() -> Iterator[list[Child]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Child()) for _process in range(2)]


@pytest.mark.spec("BUD-06", "POL-05")
@pytest.mark.parametrize("kind", ["class", "operation", "resource"])
def test_two_processes_that_ask_for_the_last_slot_at_once_get_one_permit(
    tmp_path: Path, racers: list[Child], kind: str
) -> None:
    made = standard_issuer(tmp_path / "f0", port=9, changes=RELEASES)
    scope: dict[str, Any] = {"operations": {"refund": 1}} if kind == "operation" else {}
    scope |= {"resources": {"Order:o-1": 1}} if kind == "resource" else {}
    with made.open() as issuer:
        classes: Counts = {"refund": 1 if kind == "class" else 9}
        budget = {"USD.cent": 100}
        open_task(
            issuer, "race", budget=budget, subject="u-ana", actors=["agent-7"], classes=classes, **scope
        )
        for leaf in ("race.a", "race.b"):
            open_task(issuer, leaf, parent="race", budget={"USD.cent": "inherit"})
        held = [
            str(refund(issuer, amount=1, task=leaf, hold=True).effect)
            for leaf in ("race.a", "race.b")
            for _each in range(3)
        ]
    heard: queue.SimpleQueue[object] = queue.SimpleQueue()
    for number, child in enumerate(racers):
        child.order(made, heard, calls=[["request_held", effect] for effect in held[number::2]])
    for child in racers:
        child.ready()
    for child in racers:
        child.go()
    said = [racers[0].said() for _effect in held]
    assert sorted(str(answer["code"]) for answer in said) == ["permitted"] + ["slots_exhausted"] * 5
    assert {answer.get("level") for answer in said if answer["code"] != "permitted"} == {"race"}
    rows = witness(made).rows
    assert len(rows["permits"]) == 1
    (used,) = [row[1] for row in rows["counters"] if str(row[0]).endswith(f"|{kind}|" + _name(kind))]
    assert used == 1


def _name(kind: str) -> str:
    return "Order:o-1" if kind == "resource" else "refund"


# --------------------------------------------------------------------------------------------- delegation


def _open(shop: Shop, name: str, **options: Any) -> Answer:
    """Ask for a task that may be refused."""
    given: dict[str, Any] = {"budget": {}, "expires_ms": InstantMs(now_ms() + HOUR_MS), **options}
    return shop.issuer.task_open(name, **given)


WIDER: list[tuple[str, dict[str, Any], str]] = [
    ("an actor more", {"actors": ["agent-7", "agent-8"]}, "actor"),
    ("another actor", {"actors": ["agent-8"]}, "actor"),
    ("another subject", {"subject": "u-bob"}, "subject"),
    ("a higher ceiling", {"budget": {"USD.cent": 1_001}}, "budget"),
    ("another class", {"classes": {"refund": 1, "release": 1}}, "class"),
    ("an admission more", {"classes": {"refund": 6}}, "class"),
    ("another operation", {"operations": {"publish": 1}}, "operation"),
    ("an operation's admission more", {"operations": {"refund": 5}}, "operation"),
    ("another resource", {"resources": {"Order:o-2": 1}}, "resource"),
    ("a resource's admission more", {"resources": {"Order:o-1": 4}}, "resource"),
]


@pytest.mark.spec("BUD-01", "BUD-06")
@pytest.mark.parametrize(("what", "options", "field"), WIDER, ids=[row[0] for row in WIDER])
def test_a_child_that_would_be_wider_is_not_opened(
    tmp_path: Path, what: str, options: dict[str, Any], field: str
) -> None:
    people = {
        "[actor]": '[person.u-bob]\nroles = ["owner"]\ngroups = ["finance"]\n[actor]',
    }
    made = standard_issuer(tmp_path / "f0", port=9, changes=RELEASES | people)
    with made.open() as issuer:
        open_task(
            issuer,
            "above",
            budget={"USD.cent": 1_000},
            subject="u-ana",
            actors=["agent-7"],
            classes={"refund": 5},
            operations={"refund": 4},
            resources={"Order:o-1": 3},
        )
        # A level in between that says nothing hides nothing of what stands above it.
        open_task(issuer, "between", parent="above", budget={"USD.cent": "inherit"})
        rows = len(issuer.task_list().more["tasks"])  # type: ignore[arg-type]
        given: dict[str, Any] = {"budget": {}, "expires_ms": InstantMs(now_ms() + HOUR_MS)} | options
        no = issuer.task_open("below", parent="between", **given)
        assert (no.code, no.more["field"]) == ("forbidden", field), what
        assert no.more["level"] in {"between", "above"}
        assert "never wider" in no.say
        assert len(issuer.task_list().more["tasks"]) == rows  # type: ignore[arg-type]


@pytest.mark.spec("BUD-01", "BUD-06")
def test_a_child_that_is_as_wide_as_its_parent_or_narrower_is_opened_and_ends_with_it(shop: Shop) -> None:
    scope: dict[str, Counts] = {"operations": {"refund": 4}, "resources": {"Order:o-1": 3}}
    shop.root("wide", {"refund": 5}, **scope)
    parent: Any = shop.issuer.task_show("wide").more["task"]
    shop.child("wide.same", "wide", {"refund": 5}, **scope)
    shop.child("wide.same.again", "wide.same", {"refund": "inherit"})
    opened = _open(shop, "wide.long", parent="wide", expires_ms=InstantMs(now_ms() + 999 * HOUR_MS))
    child: Any = opened.more["task"]
    assert (child["expires"], child["subject"], child["actors"]) == (
        parent["expires"],
        parent["subject"],
        parent["actors"],
    )
    assert child["scope"]["class"] == {
        "refund": {"count": "inherit", "used": None, "left": 5, "level": "wide"}
    }
    assert child["scope"]["resource"]["Order:o-1"]["left"] == 3
    short = _open(shop, "wide.short", parent="wide", expires_ms=InstantMs(now_ms() + 1_000))
    assert short.code == "opened"


@pytest.mark.spec("BUD-01")
def test_a_tree_is_thirty_two_levels_deep_and_no_deeper(shop: Shop) -> None:
    shop.root("deep-0", {"refund": 1})
    for depth in range(1, TASK_DEPTH_MAX):
        shop.child(f"deep-{depth}", f"deep-{depth - 1}")
    no = _open(shop, "deep-32", parent="deep-31")
    assert (no.code, no.more["field"], no.more["reason"]) == ("malformed", "parent", "too_deep")
    assert shop.issuer.task_show("deep-32").code == "unknown_reference"
    # The root's only slot and its money are held from the deepest level as from any.
    effect = permitted(shop.ask("deep-31"))
    assert_no(shop, shop.ask("deep-31"), "slots_exhausted", "class", "deep-0")
    assert shop.send(effect, answer(201)) == "succeeded"
    (admitted,) = [
        entry for entry in trail(shop.issuer) if entry.name == "effect.admitted" and effect in str(entry)
    ]
    assert len(admitted.attributes["permit.reservation"]) == TASK_DEPTH_MAX  # type: ignore[arg-type]


# ----------------------------------------------------------------------------------- what cannot be named


UNCERTAIN: list[tuple[str, dict[str, Any], str, str]] = [
    ("no class", {}, "malformed", "class"),
    ("an empty list of classes", {"classes": {}}, "malformed", "class"),
    ("a class that nobody declared", {"classes": {"refnud": 1}}, "unknown_reference", "class"),
    ("an operation that nobody declared", {"operations": {"refnud": 1}}, "unknown_reference", "operation"),
    ("a type that nobody declared", {"resources": {"Ordre:o-1": 1}}, "unknown_reference", "resource"),
    ("a resource without a type", {"resources": {"o-1": 1}}, "unknown_reference", "resource"),
    ("a count of zero", {"classes": {"refund": 0}}, "malformed", "class"),
    ("a count below zero", {"operations": {"refund": -1}}, "malformed", "operation"),
    ("a count with a fraction", {"resources": {"Order:o-1": 1.5}}, "malformed", "resource"),
    ("a count too large", {"classes": {"refund": 1_000_001}}, "malformed", "class"),
    ("a count that is a truth", {"classes": {"refund": True}}, "malformed", "class"),
    ("a root that inherits", {"classes": {"refund": "inherit"}}, "malformed", "class"),
    ("a resource that cannot be shown", {"resources": {"Order:a\u202eb": 1}}, "malformed", "resource"),
    ("more names than a task has", {"resources": {f"Order:{n}": 1 for n in range(65)}}, "malformed",
     "resource"),
    ("more than a span tells", {"resources": {f"Order:{n}{'x' * 400}": 1 for n in range(60)}}, "malformed",
     "scope"),
]  # fmt: skip


@pytest.mark.spec("BUD-06", "EFF-05", "SUR-02")
@pytest.mark.parametrize(("what", "options", "code", "field"), UNCERTAIN, ids=[row[0] for row in UNCERTAIN])
def test_a_scope_that_says_nothing_certain_opens_no_task(
    shop: Shop, what: str, options: dict[str, Any], code: str, field: str
) -> None:
    classes = {} if what == "no class" else {"classes": {"refund": 1}}
    no = _open(shop, "never", subject="u-ana", actors=["agent-7"], **(classes | options))
    assert (no.code, no.more["field"]) == (code, field), what
    assert shop.issuer.task_show("never").code == "unknown_reference"
    assert refusals(shop.issuer)[-2][0] == code


@pytest.mark.spec("BUD-06", "AUD-01")
def test_the_longest_names_that_a_task_may_have_stand_in_its_span(shop: Shop) -> None:
    resources = {f"Order:{number}{'ü' * 150}": 1_000_000 for number in range(36)}
    shop.root("longest", {"refund": 5}, resources=resources)
    opened = trail(shop.issuer)[-1]
    assert opened.name == "task.opened"
    assert len(opened.attributes["permit.scope"]) == 37  # type: ignore[arg-type]


@pytest.mark.spec("BUD-06", "SEC-01", "EFF-10")
def test_a_resource_whose_name_is_not_public_cannot_be_named_and_is_outside_every_task_that_names_some(
    tmp_path: Path,
) -> None:
    hidden = {"order = { string = 40, public = true }": "order = { string = 40 }"}
    made = standard_issuer(tmp_path / "f0", port=9, changes=hidden)
    with made.open() as issuer:
        expires = InstantMs(now_ms() + HOUR_MS)
        no = issuer.task_open(
            "secret", parent="t1", budget={}, expires_ms=expires, resources={"Order:CANARY-1": 1}
        )
        assert (no.code, no.more["field"]) == ("unsupported", "resource")
        open_task(issuer, "other", parent="t1", budget={"USD.cent": 9}, resources={"Release:v1": 1})
        assert refund(issuer, order="CANARY-1", amount=1, task="other").code == "outside_task"
        assert "CANARY" not in str(trail(issuer))
        permitted(refund(issuer, order="CANARY-1", amount=1, task="t1"))
