"""Every kind of change, on every store: written with its span, read back as it was, or not there at all."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import get_args

import pytest

from ledger.changes import (
    CeilingGranted,
    Change,
    CostReserved,
    CostSettled,
    DecisionRecorded,
    EffectMoved,
    EffectPrepared,
    EvidenceAdded,
    PermitIssued,
    PermitUsed,
    SinkRegistered,
    Step,
    TaskMoved,
    TaskOpened,
)
from ledger.errors import SpanNotRecorded
from ledger.model import (
    CounterTake,
    DecisionRow,
    Effect,
    Evidence,
    EvidenceClass,
    InstantMs,
    LedgerId,
    Position,
    RecordedSpan,
    SinkRegistration,
    Task,
    TaskState,
    Transition,
    TransitionName,
    Unit,
)
from ledger.port import Ledger, View
from ledger.states import EffectState
from tests.contract.conftest import Store
from tests.support.ledgers import (
    CENT,
    START,
    PlainRecorder,
    admit,
    admitted_effect,
    commit_steps,
    line,
    moving,
    new_claim,
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
    settle,
)

EXTRA = Unit("EUR.fee")


@dataclass(kw_only=True)
class Room:
    """A ledger with one task and one effect in each stage."""

    ledger: Ledger
    task: Task = field(init=False)
    prepared: Effect = field(init=False)
    permitted: Effect = field(init=False)
    admitted: Effect = field(init=False)

    def __post_init__(self) -> None:
        self.task = open_task(self.ledger, "org", {CENT: 1_000})
        self.prepared = prepare(self.ledger, self.task, {CENT: 10})
        self.permitted = permitted_effect(self.ledger, self.task, {CENT: 10})
        self.admitted = admitted_effect(self.ledger, self.task, {CENT: 10})


@dataclass(frozen=True, kw_only=True)
class Row:
    """A change that can be made in a room, and how to tell by the port whether it was."""

    make: Callable[[Room], tuple[Change, ...]]
    shows: Callable[[Room, View, Change], object]
    about: Callable[[Room], Effect | None] = lambda _room: None
    target: EffectState | None = None


NEW_TASK = new_task("new")
EVIDENCE_AT = InstantMs(START + 5)


def evidence(effect: Effect) -> Evidence:
    return Evidence(
        effect_id=effect.effect_id,
        evidence_class=EvidenceClass.SERVICE,
        source="answer 201",
        proves="succeeded",
        reference="pay_1",
        late=True,
        at_ms=EVIDENCE_AT,
    )


def used(room: Room) -> tuple[Change, ...]:
    issued = room.ledger.read(lambda view: view.permit(room.permitted.effect_id))
    assert issued is not None
    return (PermitUsed(permit=issued, claim=new_claim(room.permitted)),)


def held(room: Room) -> CostReserved:
    return CostReserved(
        effect_id=room.permitted.effect_id, task_id=room.task.task_id, cost=room.permitted.cost
    )


TAKES = (CounterTake(counter="payment/org", amount=3, ceiling=9, level="org"),)

ROWS: dict[type[Change], Row] = {
    TaskOpened: Row(
        make=lambda _room: (TaskOpened(task=NEW_TASK, ceilings={CENT: 7, EXTRA: 0}),),
        shows=lambda _room, view, _change: (
            view.task_named("new") == NEW_TASK and view.budget(NEW_TASK.task_id)[CENT].ceiling == 7
        ),
    ),
    TaskMoved: Row(
        make=lambda room: (TaskMoved(task_id=room.task.task_id, state=TaskState.FROZEN),),
        shows=lambda room, view, _change: view.path(room.task.task_id)[0].task.state is TaskState.FROZEN,
    ),
    CeilingGranted: Row(
        make=lambda room: (CeilingGranted(task_id=room.task.task_id, unit=CENT, amount=5),),
        shows=lambda room, view, _change: view.budget(room.task.task_id)[CENT].ceiling == 1_005,
    ),
    EffectPrepared: Row(
        make=lambda room: (
            EffectPrepared(effect=new_effect(room.task, {CENT: 1, EXTRA: 0}, protected=True)),
        ),
        shows=lambda _room, view, change: (
            isinstance(change, EffectPrepared)
            and (found := view.effect(change.effect.effect_id)) is not None
            and same(found, change.effect)
        ),
        target=EffectState.PREPARED,
    ),
    EffectMoved: Row(
        make=lambda room: (
            EffectMoved(
                effect_id=room.prepared.effect_id, origin=EffectState.PREPARED, target=EffectState.DENIED
            ),
        ),
        shows=lambda room, view, _change: (
            room.prepared.effect_id in [item.effect_id for item in view.effects(states=[EffectState.DENIED])]
        ),
        about=lambda room: room.prepared,
        target=EffectState.DENIED,
    ),
    DecisionRecorded: Row(
        make=lambda room: (
            DecisionRecorded(
                decision=DecisionRow(effect_id=room.prepared.effect_id, body=b'{"d":1}', at_ms=START)
            ),
        ),
        shows=lambda room, view, change: (
            isinstance(change, DecisionRecorded)
            and view.decisions(room.prepared.effect_id) == [change.decision]
        ),
    ),
    PermitIssued: Row(
        make=lambda room: (PermitIssued(permit=new_permit(room.prepared), takes=TAKES),),
        shows=lambda room, view, change: (
            isinstance(change, PermitIssued)
            and view.permit(room.prepared.effect_id) == change.permit
            and view.counter("payment/org") == 3
        ),
    ),
    PermitUsed: Row(
        make=used,
        shows=lambda room, view, change: (
            isinstance(change, PermitUsed)
            and view.is_used(change.permit.permit_id)
            and view.claim(room.permitted.effect_id) == change.claim
        ),
    ),
    CostReserved: Row(
        make=lambda room: (*used(room), held(room)),
        shows=lambda room, view, _change: (
            view.budget(room.task.task_id)[CENT].reserved == 20
            and dict(view.reserved(room.permitted.effect_id)) == {(room.task.task_id, CENT): 10}
        ),
    ),
    CostSettled: Row(
        make=lambda room: (
            CostSettled(effect_id=room.admitted.effect_id, task_id=room.task.task_id, charged={CENT: 12}),
        ),
        shows=lambda room, view, _change: (
            (
                (found := view.budget(room.task.task_id)[CENT]).reserved,
                found.settled,
                found.overrun,
            )
            == (0, 10, 2)
        ),
    ),
    EvidenceAdded: Row(
        make=lambda room: (EvidenceAdded(evidence=evidence(room.admitted)),),
        shows=lambda room, view, _change: (
            list(view.evidence(room.admitted.effect_id)) == [evidence(room.admitted)]
        ),
    ),
    SinkRegistered: Row(
        make=lambda _room: (
            SinkRegistered(sink=SinkRegistration(name="local", kind="jsonl", location="/var/audit.jsonl")),
        ),
        shows=lambda _room, view, _change: (
            list(view.sinks()) == [SinkRegistration(name="local", kind="jsonl", location="/var/audit.jsonl")]
        ),
    ),
}


def same(found: Effect, made: Effect) -> bool:
    """Whether a stored effect is the one that was made, apart from the span that it now names."""
    return all(
        getattr(found, name) == getattr(made, name)
        for name in Effect.__dataclass_fields__
        if name not in {"last_span", "sequence"}
    )


def step_of(room: Room, row: Row) -> tuple[Step, Change]:
    changes = row.make(room)
    change = changes[-1]
    about = change.effect if isinstance(change, EffectPrepared) else row.about(room)
    if about is not None and row.target is not None:
        return Step(transition=moving(about, row.target), changes=changes), change
    probing = Transition(name=TransitionName.PROBE, story="led")
    return Step(transition=probing, changes=changes), change


class BreaksNext(PlainRecorder):
    """Honest until it is armed; then the next span but one is not recorded."""

    armed = False

    def record(
        self, transition: Transition, *, position: Position, parent_span_id: str | None, at_ms: InstantMs
    ) -> RecordedSpan:
        if self.armed and transition.story == "breaks":
            raise SpanNotRecorded("sdk", "no")
        return super().record(transition, position=position, parent_span_id=parent_span_id, at_ms=at_ms)


def test_the_table_has_a_row_for_every_kind_of_change() -> None:
    assert set(ROWS) == set(get_args(Change))


@pytest.mark.spec("AUD-01", "ADM-02")
@pytest.mark.parametrize("kind", ROWS, ids=lambda kind: kind.__name__)
def test_a_change_stands_with_its_span_or_neither_is_there(store: Store, kind: type[Change]) -> None:
    recorder = BreaksNext()

    def made(_ledger_id: LedgerId) -> PlainRecorder:
        return recorder

    ledger = store.open(recorder=made)
    room = Room(ledger=ledger)
    row = ROWS[kind]
    step, change = step_of(room, row)
    head = ledger.read(lambda view: view.head())
    recorder.armed = True
    with pytest.raises(SpanNotRecorded):
        commit_steps(ledger, step, probe_step("breaks"))
    recorder.armed = False
    assert ledger.read(lambda view: view.head()) == head
    assert not ledger.read(lambda view: view.task_named("new")) or kind is not TaskOpened
    assert not ledger.read(lambda view: shown(row, room, view, change))
    committed = commit_steps(ledger, step)
    assert committed.sequence == head.sequence + 1
    assert ledger.read(lambda view: row.shows(room, view, change))
    span = ledger.read(lambda view: view.span_at(committed.sequence))
    assert span is not None
    assert span.name == str(step.transition.name)
    ledger.close()


def shown(row: Row, room: Room, view: View, change: Change) -> bool:
    """Whether a change shows; a line or row that is not there does not."""
    try:
        return bool(row.shows(room, view, change))
    except KeyError:
        return False


# ------------------------------------------------------------------------------------ what is counted


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
        ]

    assert ledger.read(look) == [None] * 9
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
