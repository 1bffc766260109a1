"""The port of the ledger: one call is one transaction, decided by a pure callback on what the lock holds still.

Rules: ADM-02 (all or nothing), ADM-03 (confirmed before anyone acts), AUD-01 (no span row, no transition),
POL-05 (the facts a decision used are those the transaction commits on).
A store may call `decide` again, so it must not act on the world. What comes back is durable, or an exception says
whose fault it was; a `Refusal` is part of a verdict and may itself be on record.
Next: `ledger.sqlite.store` implements it; `tests/contract` is the suite every store passes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ledger.authority import Approval, ApprovalWait, Ruling, RulingKind
from ledger.changes import Step
from ledger.errors import LedgerCorrupt
from ledger.invocations import Invocation, Obligation
from ledger.model import (
    Amounts,
    BudgetLine,
    Claim,
    DecisionRow,
    Effect,
    EffectId,
    Evidence,
    Holdings,
    InstantMs,
    InvocationId,
    LedgerId,
    PathNode,
    Permit,
    PermitId,
    Repetition,
    SinkRegistration,
    Task,
    TaskId,
    Tombstone,
    Unit,
)
from ledger.questions import Questions
from ledger.questions import SpanFilter as SpanFilter  # noqa: PLC0414 - whoever asks takes both from here
from ledger.refusals import Refusal
from ledger.states import EffectState
from ledger.transitions import Position, RecordedSpan, SpanRow, Transition, TransitionName
from ledger.tree import Frontier

T = TypeVar("T")


class SpanRecorder(Protocol):
    """Makes the span of a transition. The store proves by itself that the span's row is there."""

    def record(
        self,
        transition: Transition,
        *,
        position: Position,
        parent_span_id: str | None,
        at_ms: InstantMs,
    ) -> RecordedSpan:
        """Return the finished span, complete, or raise.

        Raises:
            SpanNotRecorded: anything at all stood in the way of a complete span (AUD-03).
        """
        ...


class View(Questions, Protocol):
    """What a decision may read, as it stands under the lock (or at one instant, outside a transaction)."""

    def head(self) -> Position:
        """Return the position of the last span."""
        ...

    def frontier(self) -> Frontier:
        """Return the frontier of the tree over every span, as the head says it; under the lock it is proven (LED-06).

        Raises:
            LedgerCorrupt: there is no head, or what it holds is no frontier.
        """
        ...

    def last_entry_ms(self) -> InstantMs:
        """Return the instant of the last entry: the clock is held against it (PER-03)."""
        ...

    def task_named(self, name: str) -> Task | None:
        """Return the task of that name."""
        ...

    def task(self, task_id: TaskId) -> Task | None:
        """Return the task of that id."""
        ...

    def tasks(self) -> Sequence[Task]:
        """Return every task, oldest first."""
        ...

    def path(self, task_id: TaskId) -> tuple[PathNode, ...]:
        """Return the task and its ancestors, leaf first, with their budget lines; empty where there is none."""
        ...

    def effect(self, effect_id: EffectId) -> Effect | None:
        """Return the effect of that id."""
        ...

    def is_genuine(self, effect: Effect) -> bool:
        """Say whether an effect is as it was prepared, and not as someone without the keys wrote it (LED-06)."""
        ...

    def demand_pending(self, effect_id: EffectId) -> None:
        """Prove that the effects that may still be admitted are those that the head knows (LED-06).

        Only those that share a bucket of the register with `effect_id` are read (LED-07).

        Raises:
            LedgerCorrupt: someone without the keys put one among them, or took one away.
        """
        ...

    def effect_for_key(self, caller: str, task_id: TaskId, request_key: str) -> Effect | None:
        """Return the effect that this caller made in this task under this key (EFF-11)."""
        ...

    def effects(self, *, states: Sequence[EffectState], task_id: TaskId | None = None) -> Sequence[Effect]:
        """Return the effects in any of `states` (all where empty), oldest first."""
        ...

    def effects_over(self, now: InstantMs, *, limit: int) -> Sequence[Effect]:
        """Return at most `limit` effects whose binding is over at `now` and that were never admitted or ended."""
        ...

    def unused_beyond(self, newest: int, *, limit: int) -> Sequence[EffectId]:
        """Return at most `limit` effects that are over without an admission, but none of the `newest` to end."""
        ...

    def settled_past(self, now: InstantMs, *, limit: int) -> Sequence[EffectId]:
        """Return at most `limit` effects with an outcome whose window is over at `now`, the longest over first.

        Those that an open invocation is to be judged by are left out (INV-02).
        """
        ...

    def tombstones_beyond(self, newest: int, *, limit: int) -> Sequence[EffectId]:
        """Return at most `limit` tombstones of effects that never had a permit, but none of the `newest`."""
        ...

    def permit(self, effect_id: EffectId) -> Permit | None:
        """Return the permit of an effect."""
        ...

    def effect_permitted(self, permit_id: PermitId) -> Effect | None:
        """Return the effect of a permit; whether the two belong together is for the seal to say (PER-02)."""
        ...

    def is_used(self, permit_id: PermitId) -> bool:
        """Say whether this permit was ever consumed."""
        ...

    def claim(self, effect_id: EffectId) -> Claim | None:
        """Return who won the admission of an effect."""
        ...

    def claims_open(self) -> Sequence[Claim]:
        """Return the claims of every effect that is still `admitted`."""
        ...

    def reserved(self, effect_id: EffectId) -> Mapping[tuple[TaskId, Unit], int]:
        """Return what the admission of an effect held, per task and unit; settling does not remove it."""
        ...

    def charged(self, effect_id: EffectId) -> Mapping[Unit, int]:
        """Return what an effect was charged so far, overruns included; empty where nothing is settled."""
        ...

    def evidence(self, effect_id: EffectId) -> Sequence[Evidence]:
        """Return the evidence about an effect, oldest first."""
        ...

    def decisions(self, effect_id: EffectId) -> Sequence[DecisionRow]:
        """Return the recorded decisions about an effect, oldest first."""
        ...

    def counter(self, counter: str) -> int:
        """Return how much of a class bound or of a task's slots is used (POL-03, BUD-06); 0 where nothing ever was."""
        ...

    def takes(self, effect_id: EffectId) -> Mapping[str, int]:
        """Return what the permit of an effect took, by counter; giving it back does not remove it."""
        ...

    def repetition_of_content(self, content_key: bytes) -> Repetition:
        """Count the effects with this content key."""
        ...

    def repetition_of_resource(self, resource_key: bytes) -> Repetition:
        """Count the effects on this resource."""
        ...

    def was_admitted(self, effect_id: EffectId) -> bool:
        """Say whether the trail holds an admission of this effect, whatever its row says (LED-06)."""
        ...

    def story(self, story: str) -> Sequence[SpanRow]:
        """Return the spans of one effect, task or ledger story, in order (AUD-05)."""
        ...

    def spans_after(self, sequence: int, *, limit: int) -> Sequence[SpanRow]:
        """Return at most `limit` spans with a larger sequence, in order."""
        ...

    def changes(self, after: int, *, limit: int, name: TransitionName | None = None) -> Sequence[SpanRow]:
        """Return at most `limit` changes of authority with a larger sequence, in order; with `name` those of one kind.

        Raises:
            Broken: `name` is none of `CHANGES_OF_AUTHORITY`, so that no index has it.
        """
        ...

    def changes_before(self, before: int, *, limit: int, name: TransitionName) -> Sequence[SpanRow]:
        """Return at most `limit` changes of one kind with a smaller sequence, the latest first.

        Raises:
            Broken: as `changes`.
        """
        ...

    def span_at(self, sequence: int) -> SpanRow | None:
        """Return the span at a sequence."""
        ...

    def epoch_after(self, epoch: int) -> SpanRow | None:
        """Return the first span of the first epoch later than `epoch` (LED-08)."""
        ...

    def tombstone(self, effect_id: EffectId) -> Tombstone | None:
        """Return what stays of a collected effect (PER-04)."""
        ...

    def tombstone_for_key(self, caller: str, task_id: TaskId, request_key: str) -> Tombstone | None:
        """Return what stays of the collected effect that this caller made in this task under this key (EFF-11)."""
        ...

    def holdings(self) -> Holdings:
        """Return how much the ledger holds (LED-02)."""
        ...

    def unended(self, task_id: TaskId, *, limit: int) -> int:
        """Count a task's effects that are pending or unresolved, up to `limit` (LED-02)."""
        ...

    def invocation(self, invocation_id: InvocationId) -> Invocation | None:
        """Return the invocation of that id (INV-01)."""
        ...

    def invocations(self, *, limit: int) -> Sequence[Invocation]:
        """Return at most `limit` invocations: the open ones first, then the latest to end."""
        ...

    def invocations_over(self, now: InstantMs, *, limit: int) -> Sequence[Invocation]:
        """Return at most `limit` open invocations whose deadline is over at `now`, the longest over first."""
        ...

    def invocations_open(self, task_id: TaskId) -> int:
        """Count the open invocations of one task (LED-02)."""
        ...

    def invocations_past(self, ended: InstantMs, *, limit: int) -> Sequence[InvocationId]:
        """Return at most `limit` invocations that ended at `ended` at the latest and that no effect names."""
        ...

    def effects_of(self, invocation_id: InvocationId) -> Sequence[Effect]:
        """Return the effects that name this invocation, oldest first."""
        ...

    def obligations(self, effect_id: EffectId) -> Sequence[Obligation]:
        """Return what an effect obliges to, by name (EFF-09)."""
        ...

    def obligations_open(self) -> Mapping[EffectId, Sequence[Obligation]]:
        """Return every obligation that is not closed, by effect."""
        ...

    def ruling(self, kind: RulingKind, name: str) -> Ruling | None:
        """Return the latest word about one name, proven to be the latest (LED-06)."""
        ...

    def rulings(self, kind: RulingKind) -> Sequence[Ruling]:
        """Return every ruling of one kind, by name."""
        ...

    def approval_wait(self, effect_id: EffectId) -> ApprovalWait | None:
        """Return what an effect waits for, or waited for (APP-01)."""
        ...

    def approvals(self, effect_id: EffectId) -> Sequence[Approval]:
        """Return the signed yes of each person, oldest first (APP-01)."""
        ...

    def was_revoked_late(self, effect_id: EffectId) -> bool:
        """Say whether a revocation came after the admission of an effect (ADM-05)."""
        ...

    def sinks(self) -> Sequence[SinkRegistration]:
        """Return the sinks of this ledger as they were placed last, by name."""
        ...

    def budget(self, task_id: TaskId) -> Mapping[Unit, BudgetLine]:
        """Return the budget lines of one task by unit."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(Generic[T]):
    """What a decision wants done: steps to commit (a refusal's own span among them) and what to tell the caller.

    With no steps nothing is written and nothing is synced.

    Attributes:
        value: what the decision returns.
        refusal: the no, where it was one.
        steps: what is written, each with its span.
        counted: what it returns instead where its steps, a denial of something new, were only counted (`ledger.noise`);
            None where they must stand.
    """

    value: T
    refusal: Refusal | None = None
    steps: tuple[Step, ...] = ()
    counted: T | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed(Generic[T]):
    """A verdict that is durable.

    Attributes:
        value: what the decision returned.
        refusal: the no, where it was one.
        at_ms: the one instant of the transaction, read after the lock was held (PER-03).
        sequence: the sequence of the last span after it.
    """

    value: T
    refusal: Refusal | None
    at_ms: InstantMs
    sequence: int


Decide = Callable[[View, InstantMs], Verdict[T]]


WholeCheck = Callable[[Any], None]
"""Takes a store's own connection inside its transaction, and raises where anything in the ledger is wrong."""


class Ledger(Protocol):
    """A ledger that all processes with the same authority share (ADM-06)."""

    noise_bytes_max: int | None
    """From how many bytes on the trail takes no refusal directly after another (LED-02); None is without end."""

    @property
    def ledger_id(self) -> LedgerId:
        """The identity that seals and sinks are bound to."""
        ...

    @property
    def damage(self) -> LedgerCorrupt | None:
        """What cannot be trusted in it, where it was opened to be looked at all the same (LED-04)."""
        ...

    @property
    def is_uncertain(self) -> bool:
        """Whether a commit of this object ended uncertainly: then only a fresh process can say what became of it."""
        ...

    def transact(
        self, decide: Decide[T], *, accept_clock: bool = False, check: WholeCheck | None = None
    ) -> Committed[T]:
        """Take the lock, read the time, let `decide` look and choose, write every step with its span, commit.

        With `accept_clock` the clock is believed as it reads, by an operator's decision (PER-03). With `check` the
        whole ledger is checked before `decide` looks and again before the commit: for what takes spans away (AUD-08).

        Raises:
            LedgerUnavailable: nothing was written (locked, full, read-only, replaced, unsafe).
            LedgerCorrupt: nothing was written; what is stored cannot be trusted (LED-04, LED-06).
            SpanNotRecorded: nothing was written, since a span could not be made or found (AUD-01).
            CommitUncertain: the commit may or may not have happened; this object is dead from here on.
            Malformed, Broken: nothing was written.
        """
        ...

    def read(self, look: Callable[[View], T]) -> T:
        """Let `look` read one consistent snapshot, without the writers' lock.

        Raises:
            LedgerUnavailable: the ledger cannot be read.
        """
        ...

    def close(self) -> None:
        """Let go of the file. A closed ledger refuses everything."""
        ...


class Authenticator(Protocol):
    """Tags what gives authority, with keys that are not in the ledger (LED-06)."""

    def tag(self, domain: str, data: bytes, *, like: bytes | None = None) -> bytes:
        """Return a tag over `data` in `domain` (`head` or `row`), which names its key: the active one.

        With `like`, it is made with the key that an earlier tag names, so that equal data give equal tags for ever.
        """
        ...

    def is_authentic(self, domain: str, data: bytes, tag: bytes) -> bool:
        """Say whether `tag` was made for exactly this domain and data by a key that still counts."""
        ...


class SealedEffect(NamedTuple):
    """What an effect's row says of all that its permit's seal holds; `cost` is read from its text."""

    effect_id: str
    task_id: str
    state: str
    binding_digest: bytes
    cost: Amounts


class SealedPermit(NamedTuple):
    """What a permit's row says of all that its seal holds, and the seal."""

    permit_id: str
    seal: str
    tier: str
    issued_ms: int
    expires_ms: int


class SpanColumns(NamedTuple):
    """A span as its row says it, for holding the body against the columns beside it; a check makes one per span.

    `policies` are the rows that name it in `span_policies`, sorted.
    """

    epoch: int
    lane: int
    sequence: int
    span_id: str
    trace_id: str
    name: str
    story: str
    at_ms: int
    body: bytes
    leaf: bytes
    effect_id: str | None
    state_to: str | None
    actor: str | None = None
    subject: str | None = None
    task_id: str | None = None
    operation: str | None = None
    resource: str | None = None
    signer: str | None = None
    policies: tuple[str, ...] = ()
