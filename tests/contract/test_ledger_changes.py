"""Every kind of change, on every store: written with its span, read back as it was, or not there at all."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import get_args

import pytest

from ledger.authority import RulingKind, Stop
from ledger.changes import (
    AdmissionReplayed,
    ApprovalAsked,
    ApprovalGiven,
    CeilingGranted,
    CeilingLowered,
    ChallengesDropped,
    Change,
    CostReserved,
    CostSettled,
    DecisionRecorded,
    EffectCollected,
    EffectMoved,
    EffectPrepared,
    EvidenceAdded,
    InvocationEnded,
    InvocationOpened,
    InvocationsCollected,
    ObligationDone,
    ObligationOpened,
    OverrunAccepted,
    PermitIssued,
    PermitUsed,
    RulingMade,
    SinkRegistered,
    SpansArchived,
    Step,
    TaskMoved,
    TaskOpened,
    TombstonesForgotten,
)
from ledger.errors import SpanNotRecorded
from ledger.invocations import Invocation, InvocationOutcome
from ledger.model import (
    CounterTake,
    DecisionRow,
    Effect,
    Evidence,
    EvidenceClass,
    InstantMs,
    LedgerId,
    SinkRegistration,
    Task,
    TaskState,
    Tombstone,
    Unit,
    costs,
)
from ledger.port import Ledger, View
from ledger.states import EffectState
from ledger.transitions import Position, RecordedSpan, Transition, TransitionName
from tests.contract.conftest import Store
from tests.support.archived import archive_step, archiving, is_archived, noticed
from tests.support.invocations import begin, beginning, closing, ending, going, new_invocation, obliging
from tests.support.ledger_authority import OPERATION, approving, asking, dropping, rule, ruling, ruling_step
from tests.support.ledgers import (
    CENT,
    START,
    admitted_effect,
    commit_steps,
    moving,
    new_claim,
    new_effect,
    new_permit,
    new_task,
    open_task,
    permitted_effect,
    prepare,
    probe_step,
    same,
)
from tests.support.recorders import PlainRecorder

EXTRA = Unit("EUR.fee")


@dataclass(kw_only=True)
class Room:
    """A ledger with one task and one effect in each stage."""

    ledger: Ledger
    task: Task = field(init=False)
    prepared: Effect = field(init=False)
    permitted: Effect = field(init=False)
    admitted: Effect = field(init=False)
    begun: Invocation = field(init=False)
    over: Invocation = field(init=False)
    invocation: Invocation = field(init=False)
    waiting: Effect = field(init=False)

    def __post_init__(self) -> None:
        self.task = open_task(self.ledger, "org", {CENT: 1_000})
        self.noticed = noticed(self.ledger)
        self.prepared = prepare(self.ledger, self.task, {CENT: 10})
        self.permitted = permitted_effect(self.ledger, self.task, {CENT: 10})
        self.admitted = admitted_effect(self.ledger, self.task, {CENT: 10})
        commit_steps(self.ledger, obliging(self.admitted.effect_id))
        self.begun, self.over = begin(self.ledger, self.task), begin(self.ledger, self.task)
        commit_steps(self.ledger, ending(self.over.invocation_id, InvocationOutcome.SUCCEEDED))
        self.invocation = new_invocation(self.task)
        self.waiting = prepare(self.ledger, self.task, {CENT: 10})
        commit_steps(self.ledger, asking(self.waiting))
        rule(self.ledger, RulingKind.STOP, OPERATION, Stop.FROZEN)
        rule(self.ledger, RulingKind.CHALLENGE, "chl-1", str(START))


@dataclass(frozen=True, kw_only=True)
class Row:
    """A change that can be made in a room, and how to tell by the port whether it was."""

    make: Callable[[Room], tuple[Change, ...]]
    shows: Callable[[Room, View, Change], object]
    about: Callable[[Room], Effect | None] = lambda _room: None
    target: EffectState | None = None
    name: TransitionName | None = None
    """The kind of span where it is not the one that the move has by itself."""
    like: Callable[[Room], Step] | None = None
    """The step whose span it has, where it moves no effect and is no probe."""


REVOKED = ruling(RulingKind.STOP, OPERATION, Stop.REVOKED, voids_until_ms=START)
NEW_TASK = new_task("new", ceilings={CENT: 7, EXTRA: 0})
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
        charged=costs({CENT: 3, EXTRA: 0}),
    )


def used(room: Room) -> tuple[Change, ...]:
    issued = room.ledger.read(lambda view: view.permit(room.permitted.effect_id))
    assert issued is not None
    return (PermitUsed(permit=issued, claim=new_claim(room.permitted)),)


def held(room: Room) -> CostReserved:
    return CostReserved(
        effect_id=room.permitted.effect_id, task_id=room.task.task_id, cost=room.permitted.cost
    )


def settled(room: Room) -> CostSettled:
    return CostSettled(effect_id=room.admitted.effect_id, task_id=room.task.task_id, charged={CENT: 12})


def replayed(room: Room) -> tuple[Change, ...]:
    issued = room.ledger.read(lambda view: view.permit(room.permitted.effect_id))
    assert issued is not None
    return (
        AdmissionReplayed(
            effect_id=room.permitted.effect_id,
            permit_id=issued.permit_id,
            task_id=room.task.task_id,
            cost=room.permitted.cost,
        ),
        EffectMoved(
            effect_id=room.permitted.effect_id, origin=EffectState.PERMITTED, target=EffectState.UNKNOWN
        ),
    )


def tombstone(effect: Effect, state: EffectState) -> Tombstone:
    return Tombstone(
        effect_id=effect.effect_id,
        state=state,
        caller=effect.caller,
        task_id=effect.task_id,
        subject=effect.subject,
        actor=effect.actor,
        operation=effect.operation,
        request_key=effect.request_key,
        request=effect.request,
        content_key=effect.content_key,
        resource_key=effect.resource_key,
        permit_id=None,
        prepared_ms=effect.prepared_ms,
        ended_ms=START,
    )


TAKES = (CounterTake(counter="payment/org", amount=3, ceiling=9, level="org"),)

ROWS: dict[type[Change], Row] = {
    TaskOpened: Row(
        make=lambda _room: (TaskOpened(task=NEW_TASK),),
        shows=lambda _room, view, _change: (
            view.task_named("new") == NEW_TASK
            and [view.budget(NEW_TASK.task_id)[unit].ceiling for unit in (CENT, EXTRA)] == [7, 0]
        ),
    ),
    TaskMoved: Row(
        make=lambda room: (TaskMoved(task_id=room.task.task_id, state=TaskState.FROZEN),),
        shows=lambda room, view, _change: view.path(room.task.task_id)[0].task.state is TaskState.FROZEN,
    ),
    CeilingGranted: Row(
        make=lambda room: (CeilingGranted(task_id=room.task.task_id, unit=CENT, amount=5),),
        shows=lambda room, view, _change: ceiling_of(room, view) == (1_005, 1_005, 0),
    ),
    CeilingLowered: Row(
        make=lambda room: (CeilingLowered(task_id=room.task.task_id, unit=CENT, ceiling=4),),
        shows=lambda room, view, _change: ceiling_of(room, view) == (4, 4, 6),
    ),
    OverrunAccepted: Row(
        make=lambda room: (settled(room), OverrunAccepted(task_id=room.task.task_id, unit=CENT, amount=2)),
        shows=lambda room, view, _change: money_of(room, view) == (0, 12, 0),
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
            and view.takes(room.prepared.effect_id) == {"payment/org": 3}
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
        make=lambda room: (settled(room),),
        shows=lambda room, view, _change: money_of(room, view) == (0, 10, 2),
    ),
    EvidenceAdded: Row(
        make=lambda room: (EvidenceAdded(evidence=evidence(room.admitted)),),
        shows=lambda room, view, _change: (
            list(view.evidence(room.admitted.effect_id)) == [evidence(room.admitted)]
        ),
    ),
    AdmissionReplayed: Row(
        make=replayed,
        shows=lambda room, view, _change: (
            view.budget(room.task.task_id)[CENT].reserved == 20
            and dict(view.reserved(room.permitted.effect_id)) == {(room.task.task_id, CENT): 10}
            and (issued := view.permit(room.permitted.effect_id)) is not None
            and view.is_used(issued.permit_id)
            and view.claim(room.permitted.effect_id) is None
        ),
        about=lambda room: room.permitted,
        target=EffectState.UNKNOWN,
        name=TransitionName.EFFECT_REPLAYED,
    ),
    EffectCollected: Row(
        make=lambda room: (
            EffectMoved(
                effect_id=room.prepared.effect_id, origin=EffectState.PREPARED, target=EffectState.DENIED
            ),
            EffectCollected(tombstone=tombstone(room.prepared, EffectState.DENIED)),
        ),
        shows=lambda room, view, change: (
            isinstance(change, EffectCollected)
            and view.effect(room.prepared.effect_id) is None
            and view.tombstone(room.prepared.effect_id) == change.tombstone
            and view.tombstone_for_key("host-1", room.task.task_id, room.prepared.request_key)
            == change.tombstone
        ),
        about=lambda room: room.prepared,
        target=EffectState.DENIED,
    ),
    SpansArchived: Row(
        make=lambda room: (archiving(room.ledger),),
        shows=lambda room, view, change: is_archived(view, room.noticed, change),
        like=lambda room: archive_step(room.ledger),
    ),
    TombstonesForgotten: Row(
        make=lambda room: (
            EffectMoved(
                effect_id=room.prepared.effect_id, origin=EffectState.PREPARED, target=EffectState.DENIED
            ),
            EffectCollected(tombstone=tombstone(room.prepared, EffectState.DENIED)),
            TombstonesForgotten(effect_ids=(room.prepared.effect_id,)),
        ),
        shows=lambda room, view, _change: (
            view.effect(room.prepared.effect_id) is None
            and view.tombstone(room.prepared.effect_id) is None
            and view.holdings().tombstones == 0
        ),
        about=lambda room: room.prepared,
        target=EffectState.DENIED,
    ),
    InvocationOpened: Row(
        make=lambda room: (InvocationOpened(invocation=room.invocation),),
        shows=lambda room, view, _change: (
            view.invocation(room.invocation.invocation_id) == room.invocation
            and view.invocations_open(room.task.task_id) == 2
        ),
        like=lambda room: beginning(room.invocation),
    ),
    InvocationEnded: Row(
        make=lambda room: ending(room.begun.invocation_id, InvocationOutcome.CANCELLED).changes,
        shows=lambda room, view, _change: (
            (found := view.invocation(room.begun.invocation_id)) is not None
            and (found.outcome, found.ended_ms) == (InvocationOutcome.CANCELLED, START)
            and view.invocations_open(room.task.task_id) == 0
        ),
        like=lambda room: ending(room.begun.invocation_id, InvocationOutcome.CANCELLED),
    ),
    InvocationsCollected: Row(
        make=lambda room: going(room.over.invocation_id).changes,
        shows=lambda room, view, _change: view.invocation(room.over.invocation_id) is None,
        like=lambda room: going(room.over.invocation_id),
    ),
    ObligationOpened: Row(
        make=lambda room: obliging(room.permitted.effect_id).changes,
        shows=lambda room, view, change: (
            isinstance(change, ObligationOpened)
            and list(view.obligations(room.permitted.effect_id)) == [change.obligation]
            and list(view.obligations_open()[room.permitted.effect_id]) == [change.obligation]
        ),
        like=lambda room: obliging(room.permitted.effect_id),
    ),
    ObligationDone: Row(
        make=lambda room: closing(room.admitted.effect_id).changes,
        shows=lambda room, view, _change: (
            [one.done_ms for one in view.obligations(room.admitted.effect_id)] == [START]
            and room.admitted.effect_id not in view.obligations_open()
        ),
        like=lambda room: closing(room.admitted.effect_id),
    ),
    RulingMade: Row(
        make=lambda _room: ruling_step(REVOKED).changes,
        shows=lambda _room, view, _change: (
            view.ruling(RulingKind.STOP, OPERATION) == REVOKED
            and list(view.rulings(RulingKind.STOP)) == [REVOKED]
        ),
        like=lambda _room: ruling_step(REVOKED),
    ),
    ChallengesDropped: Row(
        make=lambda _room: dropping("chl-1").changes,
        shows=lambda _room, view, _change: (
            view.ruling(RulingKind.CHALLENGE, "chl-1") is None and not view.rulings(RulingKind.CHALLENGE)
        ),
    ),
    ApprovalAsked: Row(
        make=lambda room: asking(room.prepared).changes,
        shows=lambda room, view, change: (
            isinstance(change, ApprovalAsked)
            and view.approval_wait(room.prepared.effect_id) == change.wait
            and list(view.approvals(room.prepared.effect_id)) == []
        ),
        like=lambda room: asking(room.prepared),
    ),
    ApprovalGiven: Row(
        make=lambda room: approving(room.waiting).changes,
        shows=lambda room, view, change: (
            isinstance(change, ApprovalGiven)
            and list(view.approvals(room.waiting.effect_id)) == [change.approval]
        ),
        like=lambda room: approving(room.waiting),
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


def ceiling_of(room: Room, view: View) -> tuple[int | None, int | None, int]:
    """The ceiling as the task's row says it, as its budget line does, and how much stands above it."""
    node, found = view.path(room.task.task_id)[0], view.budget(room.task.task_id)[CENT]
    return node.task.ceilings[CENT], found.ceiling, found.above


def money_of(room: Room, view: View) -> tuple[int, int, int]:
    """What is reserved, settled and overrun."""
    found = view.budget(room.task.task_id)[CENT]
    return found.reserved, found.settled, found.overrun


def step_of(room: Room, row: Row) -> tuple[Step, Change]:
    change = (changes := row.make(room))[-1]
    about = change.effect if isinstance(change, EffectPrepared) else row.about(room)
    if about is not None and row.target is not None:
        transition = moving(about, row.target)
        transition = transition if row.name is None else replace(transition, name=row.name)
        return Step(transition=transition, changes=changes), change
    if row.like is not None:
        return replace(row.like(room), changes=changes), change
    return Step(transition=Transition(name=TransitionName.PROBE, story="led"), changes=changes), change


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
