"""What one step of a transaction writes: a closed set of changes, each a frozen value.

Rules: AUD-01 (a change stands beside the transition whose span records it), LED-05.
Who decides them: `ledger.rules` and the flow. Who writes them: a store behind `ledger.port`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ledger.archive import Leaving
from ledger.authority import Approval, ApprovalWait, Ruling
from ledger.invocations import Invocation, InvocationOutcome, Obligation
from ledger.model import (
    Claim,
    CounterTake,
    DecisionRow,
    Effect,
    EffectId,
    Evidence,
    InvocationId,
    Permit,
    PermitId,
    SinkRegistration,
    Task,
    TaskId,
    TaskState,
    Tombstone,
    Unit,
)
from ledger.states import EffectState
from ledger.transitions import Transition


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOpened:
    """A new task with its ceilings and its scope (BUD-01, BUD-06)."""

    task: Task


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMoved:
    """A task changes state (BUD-05)."""

    task_id: TaskId
    state: TaskState


@dataclass(frozen=True, slots=True, kw_only=True)
class CeilingGranted:
    """An owner adds `amount` (at least 1) to a task's own ceiling of a unit: an append-only row."""

    task_id: TaskId
    unit: Unit
    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CeilingLowered:
    """An owner lowers a task's own ceiling of a unit to `ceiling`, or gives one to a unit that inherited (BUD-03)."""

    task_id: TaskId
    unit: Unit
    ceiling: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OverrunAccepted:
    """An owner counts `amount` of a task's overrun as spent; what is over the ceiling then blocks as usage (BUD-03)."""

    task_id: TaskId
    unit: Unit
    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectPrepared:
    """A new effect, in state `prepared`."""

    effect: Effect


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectMoved:
    """An effect moves along the table of `ledger.states`; some moves release what the effect holds."""

    effect_id: EffectId
    origin: EffectState
    target: EffectState


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRecorded:
    """A policy decision and its snapshot (POL-06)."""

    decision: DecisionRow


@dataclass(frozen=True, slots=True, kw_only=True)
class PermitIssued:
    """A sealed permit, and what it takes from the bounds of its class and the slots of its tasks (POL-03, BUD-06)."""

    permit: Permit
    takes: tuple[CounterTake, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PermitUsed:
    """The permit is spent for ever, and its winner's claim is on record (ADM-02, ADM-07)."""

    permit: Permit
    claim: Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class CostReserved:
    """The maximum cost is held at the task and every ancestor at once (BUD-02)."""

    effect_id: EffectId
    task_id: TaskId
    cost: Mapping[Unit, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSettled:
    """What is charged for the effect at every level; the rest of its reservation is released (BUD-03).

    A charge above the reservation, or in a unit that had none, is kept in full as an overrun.
    """

    effect_id: EffectId
    task_id: TaskId
    charged: Mapping[Unit, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceAdded:
    """One piece of evidence about an outcome (REC-05)."""

    evidence: Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionReplayed:
    """An admission that a restored ledger knows from its sink only: spent, and held in full (LED-08).

    `takes` is what issuing it had taken from slots and bounds; they count even where a bound is lower by now.
    """

    effect_id: EffectId
    permit_id: PermitId
    task_id: TaskId
    cost: Mapping[Unit, int]
    takes: tuple[CounterTake, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectCollected:
    """An effect that is over becomes a tombstone; its rows go, its uses and totals stay (LED-02, PER-04)."""

    tombstone: Tombstone


@dataclass(frozen=True, slots=True, kw_only=True)
class TombstonesForgotten:
    """Tombstones of effects that never had a permit go: at least one, each over without an admission (LED-02)."""

    effect_ids: tuple[EffectId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpansArchived:
    """Spans before the sequence `upto` that nothing alive needs go; their leaves stay (AUD-08).

    `leaving` is what the ledger said would go, and it goes in full or not at all.
    """

    upto: int
    leaving: Leaving


@dataclass(frozen=True, slots=True, kw_only=True)
class InvocationOpened:
    """A new invocation: open, or rejected before it began (INV-01, INV-02)."""

    invocation: Invocation


@dataclass(frozen=True, slots=True, kw_only=True)
class InvocationEnded:
    """An open invocation gets its one outcome (INV-02)."""

    invocation_id: InvocationId
    outcome: InvocationOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class InvocationsCollected:
    """Ended invocations that no effect on record names go: at least one (LED-02)."""

    invocation_ids: tuple[InvocationId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObligationOpened:
    """A permit obliges to something after its effect (EFF-09)."""

    obligation: Obligation


@dataclass(frozen=True, slots=True, kw_only=True)
class ObligationDone:
    """What an effect obliged to was done; a row of its own (EFF-09)."""

    effect_id: EffectId
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RulingMade:
    """The latest word about one name, in the place of the one before (POL-07, ADM-05, SEC-03).

    A step has one at most, beside a challenge: the one that its span tells, as a check of the ledger sees it.
    """

    ruling: Ruling


@dataclass(frozen=True, slots=True, kw_only=True)
class ChallengesDropped:
    """Used challenges go whose time is over: at least one (LED-02). No other ruling is ever dropped."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalAsked:
    """An effect begins to wait for people (APP-01)."""

    wait: ApprovalWait


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalGiven:
    """One person's signed yes: an append-only row (APP-01)."""

    approval: Approval


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkRegistered:
    """A sink and its place become part of this ledger (AUD-02, AUD-03)."""

    sink: SinkRegistration


Change = (
    TaskOpened
    | TaskMoved
    | CeilingGranted
    | CeilingLowered
    | OverrunAccepted
    | EffectPrepared
    | EffectMoved
    | DecisionRecorded
    | PermitIssued
    | PermitUsed
    | CostReserved
    | CostSettled
    | EvidenceAdded
    | AdmissionReplayed
    | EffectCollected
    | TombstonesForgotten
    | InvocationOpened
    | InvocationEnded
    | InvocationsCollected
    | ObligationOpened
    | ObligationDone
    | RulingMade
    | ChallengesDropped
    | ApprovalAsked
    | ApprovalGiven
    | SinkRegistered
    | SpansArchived
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One transition with everything that it changes; its span row is written first (AUD-01).

    With `begins_epoch` the span is the first of that later epoch (LED-08).
    """

    transition: Transition
    changes: tuple[Change, ...] = field(default=())
    begins_epoch: int | None = None
