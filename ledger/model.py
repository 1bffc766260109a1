"""The frozen values of the ledger: what exists, what it costs, what state it is in.

Rules: EFF-01, EFF-02, EFF-04, BUD-01, ADM-07, AUD-05.
Values cannot exist in a bad state: constructors refuse. Nothing here reads a clock, a disk or a random source.
Next: `ledger.states`, `ledger.budgets`, `ledger.rules`; `ledger.port` says how they are stored.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NewType, Self

from ledger.errors import Broken, Malformed
from ledger.states import EffectState

EffectId = NewType("EffectId", str)
TaskId = NewType("TaskId", str)
PermitId = NewType("PermitId", str)
InvocationId = NewType("InvocationId", str)
LedgerId = NewType("LedgerId", str)
Unit = NewType("Unit", str)
Amounts = Mapping[Unit, int]
"""Whole amounts per unit."""
InstantMs = NewType("InstantMs", int)
"""Milliseconds since 1970-01-01T00:00:00Z."""
DurationMs = NewType("DurationMs", int)

AMOUNT_MAX: Final = 2**53 - 1
"""Largest amount of a unit: the largest whole number every JSON reader keeps (EFF-04)."""

TASK_DEPTH_MAX: Final = 32
"""Depth of a task tree (BUD-01): closure and Cedar entity cost grow with depth."""

NAME_LENGTH_MAX: Final = 128
"""Bytes of a task, actor, subject, caller or request key name."""

ACTORS_MAX: Final = 64
"""Actors of one task."""

BINDING_BYTES_MAX: Final = 64 * 1024
"""Bytes of one encoded record (LED-02)."""

EFFECT_ID_PATTERN: Final = re.compile(r"eff_[0-9a-f]{32}\Z")
TASK_ID_PATTERN: Final = re.compile(r"tsk_[0-9a-f]{32}\Z")
PERMIT_ID_PATTERN: Final = re.compile(r"pmt_[0-9a-f]{32}\Z")
UNIT_PATTERN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}(\.[A-Za-z][A-Za-z0-9_]{0,31}){0,3}\Z")
NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._:/@+-]{0,126}[A-Za-z0-9])?\Z")
"""Names that people and hosts choose: ASCII, no spaces, so that they read the same everywhere."""


def whole_amount(amount: object, unit: str) -> int:
    """Return `amount` as a whole number of `unit` in 0..2^53-1, or refuse it (EFF-04).

    Raises:
        Malformed: `wrong_type` for anything but an exact int (a bool is not one), `out_of_range` otherwise.
    """
    if type(amount) is not int:
        raise Malformed("wrong_type", unit, f"the amount of {unit} must be a whole number")
    if not 0 <= amount <= AMOUNT_MAX:
        raise Malformed("out_of_range", unit, f"the amount of {unit} must be between 0 and {AMOUNT_MAX}")
    return amount


def costs(amounts: Mapping[str, int]) -> Mapping[Unit, int]:
    """Freeze a cost per unit after checking every name and amount (EFF-04).

    Raises:
        Malformed: it is no mapping, or a unit name or an amount is not allowed.
    """
    if not isinstance(amounts, Mapping):
        raise Malformed("wrong_type", "cost", "a cost is a whole amount per unit")
    for unit, amount in amounts.items():
        if type(unit) is not str or not UNIT_PATTERN.match(unit):
            raise Malformed(
                "wrong_type", "unit", "a unit is a dotted name of letters, digits and underscores"
            )
        whole_amount(amount, unit)
    return MappingProxyType({Unit(unit): amounts[unit] for unit in sorted(amounts)})


def plain(amounts: Amounts) -> dict[str, int]:
    """Return amounts as a plain dict of text keys, as JSON and policies take them."""
    return {str(unit): amount for unit, amount in amounts.items()}


def checked_name(name: object, what: str) -> str:
    """Return `name` if it can name a task, actor, subject or key; otherwise refuse it.

    Raises:
        Malformed: `wrong_type`, or `not_a_name` where it does not match `NAME_PATTERN`.
    """
    if type(name) is not str:
        raise Malformed("wrong_type", what, f"{what} must be text")
    if not NAME_PATTERN.match(name):
        raise Malformed(
            "not_a_name",
            what,
            f"{what} must be 1 to {NAME_LENGTH_MAX} letters, digits or . _ : / @ + -, "
            "and start and end with a letter or digit",
        )
    return name


class TaskState(StrEnum):
    """Whether a task admits anything (BUD-05)."""

    OPEN = "open"
    FROZEN = "frozen"
    CLOSED = "closed"


class Tier(StrEnum):
    """Where the authority of a permit comes from (POL-01)."""

    ISSUE = "issue"
    APPROVAL = "approval"


Slots = Mapping[str, int | None]
"""How many admissions of each name; None where only the ancestors' counts hold (`inherit`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What one task names.

    Attributes:
        classes: the classes; None only in a task from before tasks named any, which leaves them open.
        operations: the exact operations; None leaves those of the classes open.
        resources: the exact resources; None leaves them open.
    """

    classes: Slots | None
    operations: Slots | None = None
    resources: Slots | None = None

    def names(self) -> tuple[tuple[str, Slots | None], ...]:
        """Return what is named, by kind, in the order in which a refusal speaks."""
        return (("class", self.classes), ("operation", self.operations), ("resource", self.resources))

    def inherited(self) -> Self:
        """Return the scope of a child that says nothing: the same names, bounded by its ancestors alone."""

        def open_counts(slots: Slots | None) -> Slots | None:
            return None if slots is None else MappingProxyType(dict.fromkeys(slots))

        return type(self)(
            classes=open_counts(self.classes),
            operations=open_counts(self.operations),
            resources=open_counts(self.resources),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One node of the task tree (BUD-01), as it stands now.

    `ceilings` is what its grants add up to: None is `inherit`, an absent unit is zero.
    """

    task_id: TaskId
    name: str
    parent_id: TaskId | None
    root_id: TaskId
    depth: int
    subject: str
    actors: tuple[str, ...]
    expires_ms: InstantMs
    state: TaskState
    opened_ms: InstantMs
    ceilings: Mapping[Unit, int | None]
    scope: Scope

    def __post_init__(self) -> None:
        """Refuse a task that could not stand in a tree."""
        if not 0 <= self.depth < TASK_DEPTH_MAX:
            raise Malformed("too_deep", "parent", f"a task tree is at most {TASK_DEPTH_MAX} levels deep")
        if (self.parent_id is None) != (self.depth == 0):
            raise Broken("a root task has depth 0 and no parent")
        checked_name(self.name, "task")
        if not 1 <= len(self.actors) <= ACTORS_MAX:
            raise Malformed("out_of_range", "actors", f"a task names 1 to {ACTORS_MAX} actors")


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLine:
    """What one task may spend of one unit, and what it has (BUD-01..03).

    `ceiling` None means the task has no bound of its own and only its ancestors' bounds hold (`inherit`). `above` is by
    how much reserved and settled stood over the ceiling when it was lowered, and still do: it blocks (BUD-03).
    """

    task_id: TaskId
    unit: Unit
    ceiling: int | None
    reserved: int
    settled: int
    overrun: int
    above: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PathNode:
    """A task on the way from an effect's task up to its root, with its budget lines by unit."""

    task: Task
    budget: Mapping[Unit, BudgetLine]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One intended external effect (EFF-01, EFF-02). Only `state`, `last_span` and `sequence` ever change.

    `binding` holds the canonical bytes whose digest the permit is sealed to. `request` holds the canonical
    fingerprint of what the caller asked for under `request_key` (EFF-11), as keyed hashes per field.
    """

    effect_id: EffectId
    state: EffectState
    caller: str
    task_id: TaskId
    root_id: TaskId
    subject: str
    actor: str
    operation: str
    action_class: str
    resource_type: str
    resource_id: str
    request_key: str
    request: bytes
    binding: bytes
    binding_digest: bytes
    content_key: bytes
    resource_key: bytes
    cost: Mapping[Unit, int]
    protected: bool
    prepared_ms: InstantMs
    expires_ms: InstantMs
    window_ends_ms: InstantMs = InstantMs(0)
    """From when on nothing outside can still refer to it: its permit is over, its sender's deadline too, and the
    service has forgotten its key (PER-04)."""
    replayed: bool = False
    """Whether a restore made it from its spans: its binding is then known by its digest only (LED-08)."""
    invocation_id: InvocationId | None = None
    """The invocation that it names; None where it is one of its own (INV-01)."""
    last_span: str = ""
    sequence: int = 0

    def __post_init__(self) -> None:
        """Refuse an effect that could not be stored or told apart."""
        if not EFFECT_ID_PATTERN.match(self.effect_id):
            raise Broken("an effect id is eff_ and 32 hex digits")
        if len(self.binding) > BINDING_BYTES_MAX:
            raise Malformed("too_large", "binding", f"a binding is at most {BINDING_BYTES_MAX} bytes")
        if not self.cost:
            raise Broken("an effect without a finite maximum cost cannot exist")


@dataclass(frozen=True, slots=True, kw_only=True)
class Permit:
    """One-use authority for one effect, sealed (PER-01, PER-02). The seal never leaves the core."""

    permit_id: PermitId
    effect_id: EffectId
    seal: str = field(repr=False)
    tier: Tier
    issued_ms: InstantMs
    expires_ms: InstantMs
    caps: Mapping[str, int]
    """Every cap on the lifetime by name, in milliseconds since the epoch; the earliest won (PER-03)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Who won an admission and until when it may act first-hand (ADM-07).

    `instance` is empty where the sender is a host outside this process: then only the deadline tells.
    """

    effect_id: EffectId
    instance: str
    boot: str
    claim_hash: bytes
    admitted_ms: InstantMs
    deadline_ms: InstantMs


class EvidenceClass(StrEnum):
    """What kind of word an outcome rests on (REC-05, REC-07)."""

    SERVICE = "service"
    INSPECTION = "inspection"
    WRAPPER = "wrapper"
    HOST_CLAIM = "host_claim"
    ACKNOWLEDGED = "acknowledged"
    NOT_SENT = "not_sent"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One piece of evidence about an effect's outcome, kept for ever (EFF-09, REC-05).

    `charged` is what it says that was charged, per unit, whatever was settled by it; empty where it says nothing.
    """

    effect_id: EffectId
    evidence_class: EvidenceClass
    source: str
    proves: str
    reference: str
    late: bool
    at_ms: InstantMs
    charged: Amounts = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRow:
    """One policy decision about an effect, with the bounded snapshot it was made on (POL-06)."""

    effect_id: EffectId
    body: bytes
    at_ms: InstantMs


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """How many earlier effects share a content key or a resource (POL-02), over the whole ledger."""

    pending: int
    unresolved: int
    succeeded: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterTake:
    """What issuing takes from one bound of an action class (POL-03): `used + amount <= ceiling` must hold."""

    counter: str
    amount: int
    ceiling: int
    level: str
    """The words a refusal gives for this bound: a task name, or the day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """What stays of an effect that was collected: enough to know it again, and to recreate nothing (PER-04, EFF-11)."""

    effect_id: EffectId
    state: EffectState
    caller: str
    task_id: TaskId
    subject: str
    actor: str
    operation: str
    request_key: str
    request: bytes
    content_key: bytes
    resource_key: bytes
    permit_id: PermitId | None
    prepared_ms: InstantMs
    ended_ms: InstantMs


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """How much the ledger holds (LED-02): retained effects and tombstones, bytes of records, spans and their bytes."""

    effects: int
    tombstones: int
    record_bytes: int
    spans: int
    span_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkRegistration:
    """A required or optional sink as the owner admitted it: its place cannot be moved by the environment (AUD-03)."""

    name: str
    kind: str
    location: str
