"""What a store gives back, on every store: counts, whole stories in order, and nothing for what is not there."""

from itertools import pairwise

import pytest

from ledger.changes import EffectMoved, Step
from ledger.model import CounterTake, Effect, Task, Unit
from ledger.port import Ledger, View
from ledger.states import EffectState
from tests.support.ledgers import (
    CENT,
    admit,
    admitted_effect,
    commit_steps,
    line,
    moving,
    new_effect,
    new_permit,
    new_task,
    open_task,
    permit,
    permitted_effect,
    prepare,
    preparing,
    probe,
    probe_step,
    same,
    settle,
)

EXTRA = Unit("EUR.fee")


@pytest.mark.spec("POL-03", "BUD-05")
@pytest.mark.parametrize(
    ("ends", "returns"),
    [
        (EffectState.EXPIRED, True),
        (EffectState.WITHDRAWN, True),
        (EffectState.REVOKED, True),
        (EffectState.NO_EFFECT, True),
        (EffectState.SUCCEEDED, False),
        (EffectState.FAILED, False),
        (EffectState.UNKNOWN, False),
        (EffectState.ADMITTED, False),
    ],
)
def test_what_issuing_took_comes_back_for_proven_no_effect_only(
    ledger: Ledger, ends: EffectState, returns: bool
) -> None:
    task = open_task(ledger, "org", {CENT: 1_000})
    effect = prepare(ledger, task, {CENT: 10})
    takes = (
        CounterTake(counter="a", amount=2, ceiling=3, level="org"),
        CounterTake(counter="b", amount=0, ceiling=0, level="the day"),
    )
    assert permit(ledger, effect, takes).refusal is None
    assert ledger.read(lambda view: (view.counter("a"), view.counter("b"))) == (2, 0)
    other = prepare(ledger, task, {CENT: 10})
    refusal = permit(ledger, other, takes).refusal
    assert refusal is not None
    assert (str(refusal.code), refusal.level) == ("class_exhausted", "org")
    if ends in {EffectState.EXPIRED, EffectState.WITHDRAWN, EffectState.REVOKED}:
        stood = ledger.read(lambda view: view.effect(effect.effect_id))
        assert stood is not None
        moved = EffectMoved(effect_id=effect.effect_id, origin=stood.state, target=ends)
        commit_steps(ledger, Step(transition=moving(stood, ends), changes=(moved,)))
    else:
        admit(ledger, effect)
        if ends is not EffectState.ADMITTED:
            settle(ledger, effect, ends, {} if ends is EffectState.NO_EFFECT else {CENT: 10})
    assert ledger.read(lambda view: view.counter("a")) == (0 if returns else 2)
    # What it took stays on record, so that what is measured against a bound can leave it out.
    told = ledger.read(lambda view: view.takes(effect.effect_id))
    assert (told["a"], told["b"]) == (2, 0)
    assert (permit(ledger, other, takes).refusal is None) is returns


@pytest.mark.spec("EFF-01", "LED-05")
def test_repetition_counts_every_stage_by_content_and_by_resource(ledger: Ledger) -> None:
    task = open_task(ledger, "org", {CENT: 1_000})

    def counts(key: bytes) -> tuple[int, int, int]:
        found = ledger.read(lambda view: view.repetition_of_content(key))
        return found.pending, found.unresolved, found.succeeded

    def on_resource(key: bytes) -> tuple[int, int, int]:
        found = ledger.read(lambda view: view.repetition_of_resource(key))
        return found.pending, found.unresolved, found.succeeded

    content, resource = b"\x11" * 32, b"\x22" * 32
    assert counts(content) == on_resource(resource) == (0, 0, 0)
    first = permitted_effect(ledger, task, {CENT: 1}, content_key=content, resource_key=resource)
    prepare(ledger, task, {CENT: 1}, content_key=content, resource_key=b"\x33" * 32)
    assert (counts(content), on_resource(resource)) == ((2, 0, 0), (1, 0, 0))
    # The two kinds of keys do not meet, even where their bytes are equal.
    assert on_resource(content) == (0, 0, 0)
    admit(ledger, first)
    assert (counts(content), on_resource(resource)) == ((1, 1, 0), (0, 1, 0))
    settle(ledger, first, EffectState.UNKNOWN)
    assert counts(content) == (1, 1, 0)
    settle(ledger, first, EffectState.SUCCEEDED, {CENT: 1})
    assert (counts(content), on_resource(resource)) == ((1, 0, 1), (0, 0, 1))


@pytest.mark.spec("AUD-05")
def test_a_story_is_told_in_order_and_apart_from_every_other(ledger: Ledger) -> None:
    task = open_task(ledger, "org", {CENT: 1_000})
    effect = permitted_effect(ledger, task, {CENT: 1})
    probe(ledger)
    other = admitted_effect(ledger, task, {CENT: 1})
    admit(ledger, effect)
    settle(ledger, effect, EffectState.SUCCEEDED, {CENT: 1})
    story = ledger.read(lambda view: view.story(effect.effect_id))
    assert [span.name for span in story] == [
        "effect.prepared",
        "effect.permitted",
        "effect.admitted",
        "effect.succeeded",
    ]
    sequences = [span.position.sequence for span in story]
    assert sequences == sorted(sequences)
    assert {span.story for span in ledger.read(lambda view: view.story(other.effect_id))} == {other.effect_id}
    # Each span of a story names the one before it as its parent.
    assert [span.span_id in after.body.decode() for span, after in pairwise(story)] == [True, True, True]
    assert ledger.read(lambda view: view.story("eff_" + "0" * 32)) == []


def test_spans_are_read_in_pages_and_by_place(ledger: Ledger) -> None:
    commit_steps(ledger, *(probe_step(str(number)) for number in range(7)))
    head = ledger.read(lambda view: view.head()).sequence

    def page(after: int) -> list[int]:
        return [span.position.sequence for span in ledger.read(lambda view: view.spans_after(after, limit=3))]

    paged = page(0)
    while len(paged) < head:
        following = page(paged[-1])
        assert 1 <= len(following) <= 3
        paged += following
    assert paged == list(range(1, head + 1))
    assert page(head) == []
    assert ledger.read(lambda view: (view.span_at(0), view.span_at(head + 1))) == (None, None)


def test_missing_things_are_told_as_missing(ledger: Ledger) -> None:
    task, effect = new_task("none"), new_effect(new_task("none"), {CENT: 1})
    permitted = new_permit(effect)

    def look(view: View) -> list[object]:
        return [
            view.task_named("none"),
            view.task(task.task_id),
            view.effect(effect.effect_id),
            view.effect_for_key("host-1", task.task_id, "k"),
            view.permit(effect.effect_id),
            view.claim(effect.effect_id),
            view.is_used(permitted.permit_id) or None,
            view.was_admitted(effect.effect_id) or None,
            view.counter("none") or None,
            dict(view.takes(effect.effect_id)) or None,
            view.tombstone(effect.effect_id),
            view.tombstone_for_key("host-1", task.task_id, "k"),
            view.unended(task.task_id, limit=1) or None,
        ]

    assert ledger.read(look) == [None] * 13
    assert ledger.read(lambda view: view.path(task.task_id)) == ()
    assert dict(ledger.read(lambda view: view.budget(task.task_id))) == {}
    assert ledger.read(lambda view: view.evidence(effect.effect_id)) == []
    assert ledger.read(lambda view: view.claims_open()) == []


@pytest.mark.spec("ADM-04")
def test_open_claims_are_those_of_effects_that_are_still_admitted(ledger: Ledger) -> None:
    task = open_task(ledger, "org", {CENT: 1_000})
    effects = [admitted_effect(ledger, task, {CENT: 1}) for _ in range(3)]
    settle(ledger, effects[0], EffectState.UNKNOWN)
    settle(ledger, effects[1], EffectState.SUCCEEDED, {CENT: 1})
    claims = ledger.read(lambda view: view.claims_open())
    assert [claim.effect_id for claim in claims] == [effects[2].effect_id]
    assert ledger.read(lambda view: view.was_admitted(effects[0].effect_id))


def test_an_effect_is_found_by_its_key_in_its_task_and_for_its_caller_only(ledger: Ledger) -> None:
    task = open_task(ledger, "org", {CENT: 1_000})
    other = open_task(ledger, "other", {CENT: 1_000})
    effect = new_effect(task, {CENT: 1}, request_key="k")
    commit_steps(ledger, preparing(effect))

    def found(caller: str, where: Task) -> Effect | None:
        return ledger.read(lambda view: view.effect_for_key(caller, where.task_id, "k"))

    mine = found("host-1", task)
    assert mine is not None
    assert same(mine, effect)
    assert found("host-2", task) is None
    assert found("host-1", other) is None
    in_task = ledger.read(lambda view: view.effects(states=[], task_id=other.task_id))
    assert list(in_task) == []


@pytest.mark.spec("BUD-03")
def test_an_overrun_is_kept_in_full_at_every_level_also_in_a_unit_without_a_line(ledger: Ledger) -> None:
    org = open_task(ledger, "org", {CENT: 1_000})
    leaf = open_task(ledger, "leaf", {CENT: None}, org)
    effect = admitted_effect(ledger, leaf, {CENT: 100})
    settle(ledger, effect, EffectState.FAILED, {CENT: 150, EXTRA: 3})
    for task, ceiling in ((leaf, None), (org, 1_000)):
        assert line(ledger, task) == (ceiling, 0, 100, 50)
        assert line(ledger, task, EXTRA) == (0, 0, 0, 3)
    refused = admit(ledger, permitted_effect(ledger, leaf, {CENT: 1})).refusal
    assert refused is not None
    assert (str(refused.code), refused.field, refused.level) == ("budget_overrun", CENT, "leaf")
