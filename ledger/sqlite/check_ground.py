"""What every part of a check stands on: one snapshot, the keys, what other rooms can prove, and the list of findings.

It decides nothing. Next: `ledger.sqlite.check` puts it together and runs the parts in order.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ledger.errors import Fault
from ledger.model import LedgerId, Task
from ledger.port import Authenticator, SealedEffect, SealedPermit, SpanColumns
from ledger.sqlite.rows import Head

FINDINGS_MAX: Final = 100
"""Findings of one check: a wrecked file has one per row, and nobody reads the second hundred."""

KEY_SHOWN_MAX: Final = 72
"""Characters shown of a row's key; ours are shorter, an edited one may be anything."""

BATCH: Final = 256
"""Rows looked at together, one question after the other. Row by row, each with all its questions, takes a third longer:
the code of a question and the pages of a table stay at hand while it is asked again."""

UNREADABLE: Final = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError, Fault)
"""What building a value from an edited row can end in."""

Where = tuple[object, ...]
"""A table and the key of a row; it becomes text only where something is wrong with it."""

OpenSeal = Callable[[LedgerId, SealedEffect, SealedPermit], bool]
SpanHolds = Callable[[LedgerId, SpanColumns], bool]
Said = Mapping[str, Any]
"""The attributes of a span as its body has them, a list where several are; empty where no body is read."""

SpanSays = Callable[[bytes], Said]
NOTHING_SAID: Final[Said] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFinding:
    """One thing that is wrong.

    Attributes:
        what: a stable snake_case word for the kind of problem.
        where: the table and the key of the row.
        says: one sentence, free of stored values.
    """

    what: str
    where: str
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Proofs:
    """What a check proves with.

    Attributes:
        keys: for the head and the rows that give authority.
        binding_digest: the digest of a binding's bytes; None where bindings are not judged.
        open_seal: whether a permit's seal opens and says what the rows say; None where seals are not judged.
        span_holds: whether a span's body says what its columns do; None likewise.
        span_says: the attributes in a span's body; None where no row is held against what a span says.
    """

    keys: Authenticator
    binding_digest: Callable[[bytes], bytes] | None
    open_seal: OpenSeal | None
    span_holds: SpanHolds | None
    span_says: SpanSays | None = None


def amounts_said(said: Said, name: str) -> dict[str, int] | None:
    """Return amounts that a span says as `unit=amount`; None where it says none, or not in full (a redacted one)."""
    texts = said.get(name)
    try:
        pairs = [text.rsplit("=", 1) for text in texts]  # type: ignore[union-attr]
        return {unit: int(amount) for unit, amount in pairs}
    except UNREADABLE:
        return None


class Move(NamedTuple):
    """One state that the trail tells of an effect; `replayed` where a restore told it (LED-08).

    A tuple, since there are nearly as many as spans.
    """

    state: str
    sequence: int
    span_id: str
    at_ms: int
    replayed: bool = False


@dataclass(slots=True, kw_only=True)
class TaskStory:
    """What the spans tell of one task.

    Attributes:
        opened: where it was opened; None where no span opens it.
        said: what that span says.
        state, sequence: its state after the last span that changed its row, and where that stands.
    """

    state: str
    sequence: int
    opened: int | None = None
    said: Said = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class InvocationStory:
    """What the spans tell of one invocation: where it was written last, whether it ended and, if said, how."""

    sequence: int
    is_ended: bool
    outcome: str | None = None


class Ceilings(NamedTuple):
    """One span that changed ceilings: whose, and the name of the span."""

    task_id: str
    name: str


class Accepted(NamedTuple):
    """One span by which an owner accepted overruns: whose, and what it says."""

    task_id: str
    said: Said


class RulingTold(NamedTuple):
    """The last span about one name: where it stands, and the value that it tells; None where it tells none."""

    sequence: int
    value: str | None


class ArchiveTold(NamedTuple):
    """One span by which the trail was archived: its last span, how many left, and all that are gone (AUD-08)."""

    sequence: int
    upto: object
    left: object
    digest: object


class WaitTold(NamedTuple):
    """The span by which an effect began to wait: its statement's digest, and for whom; None where not in full."""

    sequence: int
    digest: str
    approvers: dict[str, int] | None


class ApprovalTold(NamedTuple):
    """One span by which a person approved an effect, and the key that signed."""

    effect_id: str
    signer: str | None
    key: str | None
    at_ms: int


@dataclass(slots=True, kw_only=True)
class Trail:
    """What the spans tell, kept per effect, task and kind; bounded by the effects and tasks, not by the spans.

    Attributes:
        effects: each effect's moves; those whose rows were looked at are taken out.
        ceilings, accepted: by the sequence of the span.
        charges: the span by which an operator turned what an unknown effect holds into a charge, by effect.
        collected: where each effect was collected, as far as spans name it.
        unnamed: the collections that name no effect.
        forgotten: how many tombstones were forgotten; None where no span says it.
        is_replayed: whether a restore held an effect again.
        invocations, invocations_gone: each invocation's story, and those that were collected.
        obligations: (table, effect, name, instant, sequence) of each row that a span tells of.
        archives: what each archive's span says, in order.
        archived_first: the first span that was archived; 0 where none is.
        headless: effects whose story begins with their admission, since what was before it was archived.
        rulings, waits, approvals: by (kind, name), by effect, and by the sequence of the span.
    """

    effects: dict[str, list[Move]] = field(default_factory=dict)
    tasks: dict[str, TaskStory] = field(default_factory=dict)
    ceilings: dict[int, Ceilings] = field(default_factory=dict)
    accepted: dict[int, Accepted] = field(default_factory=dict)
    charges: dict[str, int] = field(default_factory=dict)
    sinks: set[int] = field(default_factory=set)
    collected: dict[str, int] = field(default_factory=dict)
    unnamed: set[int] = field(default_factory=set)
    forgotten: int | None = None
    is_replayed: bool = False
    invocations: dict[str, InvocationStory] = field(default_factory=dict)
    invocations_gone: set[str] = field(default_factory=set)
    obligations: set[tuple[str, str, str, int, int]] = field(default_factory=set)
    archives: list[ArchiveTold] = field(default_factory=list)
    archived_first: int = 0
    headless: set[str] = field(default_factory=set)
    rulings: dict[tuple[str, str], RulingTold] = field(default_factory=dict)
    waits: dict[str, WaitTold] = field(default_factory=dict)
    approvals: dict[int, ApprovalTold] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Totals:
    """What is held, settled and overrun of one unit at one task, as the rows of all effects add up to."""

    reserved: int = 0
    settled: int = 0
    overrun: int = 0


@dataclass(slots=True, kw_only=True)
class Counts:
    """What counters, repetition rows and collected sums must hold, added up over all effects and tombstones.

    Attributes:
        counters: what is taken, by counter.
        content, resource: (pending, unresolved, succeeded) by the key of repetition.
        slots: the part of `counters` that collected effects keep of slots; None where that is not known.
        spend: (charged, overrun) of collected effects by (task, unit); None likewise.
    """

    counters: Counter[str] = field(default_factory=Counter)
    content: dict[bytes, list[int]] = field(default_factory=dict)
    resource: dict[bytes, list[int]] = field(default_factory=dict)
    slots: Counter[str] | None = field(default_factory=Counter)
    spend: dict[tuple[str, str], list[int]] | None = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Ground:
    """One check under way.

    Attributes:
        raw: the connection, inside its one read transaction.
        paths: each task with its ancestors, leaf first, as its parents say.
        roots: the root that each task names.
        tasks: those whose MAC holds.
        ceilings: what grants add up to by (task, unit); None is `inherit`.
        lowered: the lines (task, unit) that an owner lowered, or whose overrun an owner accepted.
        totals: by (task, unit), filled while effects are looked at.
        head: the head as it stands; None where there is none that can be read.
    """

    raw: Any
    ledger_id: LedgerId
    proofs: Proofs
    trail: Trail = field(default_factory=Trail)
    paths: dict[str, tuple[str, ...]] = field(default_factory=dict)
    roots: dict[str, str] = field(default_factory=dict)
    tasks: dict[str, Task] = field(default_factory=dict)
    ceilings: dict[tuple[str, str], int | None] = field(default_factory=dict)
    lowered: set[tuple[str, str]] = field(default_factory=set)
    totals: dict[tuple[str, str], Totals] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    head: Head | None = None
    findings: list[CheckFinding] = field(default_factory=list)
    cut: bool = False

    def find(self, what: str, where: Where, says: str) -> None:
        """Note one finding; beyond `FINDINGS_MAX` only that there are more."""
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(CheckFinding(what=what, where=_place(where), says=says))
        else:
            self.cut = True

    def said(self, body: bytes) -> Said:
        """Return what a span's body says; nothing where it is no span, which is a finding of the trail."""
        says = self.proofs.span_says
        if says is None:
            return NOTHING_SAID
        try:
            return says(body)
        except UNREADABLE:
            return NOTHING_SAID

    def total(self, task_id: str, unit: str) -> Totals:
        """Return the totals of one line, to be added to."""
        totals = self.totals.get((task_id, unit))
        if totals is None:
            totals = self.totals[task_id, unit] = Totals()
        return totals

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the few rows of one question; what may be many is streamed from `raw`."""
        found: list[tuple[Any, ...]] = self.raw.execute(sql, values).fetchall()
        return found


class Beside:
    """The rows of one table that hang on effects, handed out effect by effect, so that no effect asks for them."""

    def __init__(self, ground: Ground, table: str, columns: str) -> None:
        """Read `columns` of `table`, of which `effect_id` is the first."""
        sql = f"SELECT {columns} FROM {table} ORDER BY effect_id"
        self._rows: Iterator[tuple[Any, ...]] = iter(ground.raw.execute(sql))
        self._next = next(self._rows, None)

    def of(self, effect_id: str) -> list[tuple[Any, ...]]:
        """Return the rows of one effect; effects are asked for in the order of their ids.

        What belongs to no effect is passed over: that such a row names none is found by its foreign key.
        """
        found = []
        row = self._next
        while row is not None and row[0] <= effect_id:
            if row[0] == effect_id:
                found.append(row)
            row = next(self._rows, None)
        self._next = row
        return found


def _place(where: Where) -> str:
    """Return where a row stands as text, each part bounded and on one line."""
    shown = [text if text.isprintable() else ascii(text)[1:-1] for text in map(str, where)]
    return " ".join(text[:KEY_SHOWN_MAX] for text in shown)
