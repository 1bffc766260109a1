"""What reviewers ask of the trail: what a span is found by, and the questions that a ledger answers by its indexes.

Rules: AUD-06 (by time, subject, actor, task, resource, operation, state, decision, policy and approver, and the
standing questions), LED-07 (an answer costs what is in it, and not how long the trail is).
Frozen values and one protocol. Who may ask, and what is recorded of it, is decided elsewhere.
Next: `ledger.port` puts the questions among what a view shows; `ledger.sqlite.span_view` answers them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

from ledger.archive import LeafRow, Leaving
from ledger.model import EffectId, InstantMs, PermitId, TaskId
from ledger.states import EffectState
from ledger.transitions import SpanRow, TransitionName

__all__ = [
    "FOUND_BY",
    "MOVES_TO",
    "POLICY_IDS",
    "DeniedThenDone",
    "Questions",
    "SpanFilter",
    "UnusedPermit",
]

FOUND_BY: Final[Mapping[str, str]] = MappingProxyType(
    {
        "actor": "permit.actor",
        "subject": "permit.subject",
        "task_id": "permit.task.id",
        "operation": "permit.operation",
        "resource": "permit.resource.id",
        "signer": "permit.signer",
    }
)
"""The columns that spans are found by, in their order, and the attribute of the body that each repeats."""

POLICY_IDS: Final = "permit.policy.ids"
"""The attribute whose members are repeated in a table of their own."""

MOVES_TO: Final[Mapping[EffectState, frozenset[TransitionName]]] = MappingProxyType(
    {
        state: frozenset({TransitionName(f"effect.{state}")})
        | ({TransitionName.EFFECT_REPLAYED} if state is EffectState.UNKNOWN else frozenset())
        for state in EffectState
    }
)
"""The kinds of span that move an effect into each state: so a state is found by the index of names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanFilter:
    """Which spans are wanted: those that fit everything that is given; with nothing given, all.

    Attributes:
        story: an effect id, task id, invocation id or ledger id (AUD-05).
        actor, subject, task, operation, resource, signer: as the span says them, to the letter.
        policy: the id of a policy that decided.
        names: any of these kinds; any at all where empty.
        states: moving an effect into any of these states; whatever it does where empty.
        since_ms: at this instant or later.
        until_ms: before this instant.
    """

    story: str | None = None
    actor: str | None = None
    subject: str | None = None
    task: str | None = None
    operation: str | None = None
    resource: str | None = None
    signer: str | None = None
    policy: str | None = None
    names: frozenset[TransitionName] = frozenset()
    states: frozenset[EffectState] = frozenset()
    since_ms: InstantMs | None = None
    until_ms: InstantMs | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedPermit:
    """A permit that was issued and not used so far.

    Attributes:
        state: `permitted` where it may still be used; otherwise how it ended.
        sequence: of the span that last changed the effect, or collected it.
    """

    permit_id: PermitId
    effect_id: EffectId
    state: EffectState
    task_id: TaskId
    subject: str
    actor: str
    operation: str
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeniedThenDone:
    """A no, and what was admitted or done as it forbade shortly after it, in order; never nothing."""

    denied: SpanRow
    done: tuple[SpanRow, ...]


class Questions(Protocol):
    """What a view answers about the trail. Each is answered by an index (LED-07)."""

    def find_spans(
        self,
        wanted: SpanFilter,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int,
        newest_first: bool = False,
    ) -> Sequence[SpanRow]:
        """Return at most `limit` spans that are wanted, with sequences between `after` and `before`, both not included.

        They stand in the order of their sequence, or the other way round with `newest_first`: the last one of a page
        is where the next begins.
        """
        ...

    def sequence_at(self, at_ms: InstantMs) -> int:
        """Return the sequence of the first span at or after an instant; that of the next span where there is none."""
        ...

    def count_spans(self, first: int, last: int) -> Mapping[str, int]:
        """Count the spans from `first` to `last`, both included, by name; a name without one is not there."""
        ...

    def leaves_after(self, sequence: int, *, limit: int) -> Sequence[LeafRow]:
        """Return at most `limit` leaves with a larger sequence, in order, of spans that are there or archived."""
        ...

    def leaving(self, upto: int) -> Leaving:
        """Return what an archive up to the span `upto` would take away; it reads the whole trail (AUD-08)."""
        ...

    def permits_unused(self, *, after: tuple[int, str] = (0, ""), limit: int) -> Sequence[UnusedPermit]:
        """Return at most `limit` permits that were never used, in the order of their sequence and effect.

        `after` is the sequence and the effect of the last one that was told before: one span collects many effects.
        """
        ...

    def denied_then_done(
        self, wanted: SpanFilter, *, window_ms: int, after: int = 0, limit: int
    ) -> Sequence[DeniedThenDone]:
        """Return at most `limit` refusals and denials that are wanted, with what was done within a window after each.

        Only those are returned after which something was admitted or succeeded on the same resource, for the same
        subject and by the same operation where the no names them, and of that the first 64 spans. `names` and `states`
        of the filter count for nothing: a no is one of two kinds.
        """
        ...
