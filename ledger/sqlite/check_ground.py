"""What every part of a check stands on: one snapshot, the keys, what other rooms can prove, and the list of findings.

It decides nothing. Next: `ledger.sqlite.check` puts it together and runs the parts in order.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from ledger.errors import Fault
from ledger.model import Effect, LedgerId, Permit, SpanRow
from ledger.pending import EMPTY_SUM
from ledger.port import Authenticator

FINDINGS_MAX: Final = 100
"""Findings of one check: a wrecked file has one per row, and nobody reads the second hundred."""

KEY_SHOWN_MAX: Final = 72
"""Characters shown of a row's key; ours are shorter, an edited one may be anything."""

UNREADABLE: Final = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError, Fault)
"""What building a value from an edited row can end in."""

Where = tuple[object, ...]
"""A table and the key of a row; it becomes text only where something is wrong with it."""

OpenSeal = Callable[[LedgerId, Effect, Permit], bool]
SpanHolds = Callable[[SpanRow, str | None, str | None], bool]


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
        span_holds: whether a span's body says what its columns, effect and new state are; None likewise.
    """

    keys: Authenticator
    binding_digest: Callable[[bytes], bytes] | None
    open_seal: OpenSeal | None
    span_holds: SpanHolds | None


@dataclass(frozen=True, slots=True)
class Move:
    """One state that the trail tells of an effect."""

    state: str
    sequence: int
    span_id: str
    at_ms: int


@dataclass(slots=True, kw_only=True)
class Trail:
    """What the spans tell, kept per effect, task and kind; bounded by the effects and tasks, not by the spans."""

    effects: dict[str, list[Move]] = field(default_factory=dict)
    tasks_opened: dict[str, int] = field(default_factory=dict)
    tasks_closed: dict[str, int] = field(default_factory=dict)
    granted: dict[int, str] = field(default_factory=dict)
    sinks: set[int] = field(default_factory=set)


@dataclass(slots=True, kw_only=True)
class Totals:
    """What is held, settled and overrun of one unit at one task, as the rows of all effects add up to."""

    reserved: int = 0
    settled: int = 0
    overrun: int = 0


@dataclass(slots=True, kw_only=True)
class Ground:
    """One check under way.

    Attributes:
        raw: the connection, inside its one read transaction.
        paths: each task with its ancestors, leaf first, as its parents say.
        roots: the root that each task names.
        totals: by (task, unit), filled while effects are looked at.
        head_pending, pending: the sum of the effects that may still be admitted, as the head has it and as recounted.
    """

    raw: Any
    ledger_id: LedgerId
    proofs: Proofs
    trail: Trail = field(default_factory=Trail)
    paths: dict[str, tuple[str, ...]] = field(default_factory=dict)
    roots: dict[str, str] = field(default_factory=dict)
    totals: dict[tuple[str, str], Totals] = field(default_factory=dict)
    head_pending: bytes = EMPTY_SUM
    pending: bytes = EMPTY_SUM
    findings: list[CheckFinding] = field(default_factory=list)
    cut: bool = False

    def find(self, what: str, where: Where, says: str) -> None:
        """Note one finding; beyond `FINDINGS_MAX` only that there are more."""
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(CheckFinding(what=what, where=_place(where), says=says))
        else:
            self.cut = True

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the few rows of one question; what may be many is streamed from `raw`."""
        found: list[tuple[Any, ...]] = self.raw.execute(sql, values).fetchall()
        return found


def _place(where: Where) -> str:
    """Return where a row stands as text, each part bounded and on one line."""
    shown = [text if text.isprintable() else ascii(text)[1:-1] for text in map(str, where)]
    return " ".join(text[:KEY_SHOWN_MAX] for text in shown)
