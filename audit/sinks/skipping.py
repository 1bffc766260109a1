"""The spans of a ledger without those that an operator keeps from one sink (AUD-02: a named, audited act).

A span that a sink answers "no" to for ever would hold up everything after it. Nothing is left out by itself: the ranges
come from the ledger, each with a span of its own on record, and that span stands after the range, so there is always
one that the sink can acknowledge next. Pure. Next: `audit.sink_thread`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from audit.sinks.port import SpanSource
from ledger.model import LedgerId
from ledger.transitions import SpanRow

__all__ = ["Kept", "KeptBack", "next_given"]

PAGE_ROWS: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Spans that one sink is not given: sequences `first` to `last`, both included."""

    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptBack:
    """A ledger's spans as one sink is given them; implements `audit.sinks.port.SpanSource`."""

    source: SpanSource
    kept: tuple[Kept, ...]

    @property
    def ledger_id(self) -> LedgerId:
        """The ledger whose spans these are."""
        return self.source.ledger_id

    def given(self, sequence: int) -> int:
        """Return `sequence`, or the first one after it that the sink is given."""
        while (
            range_ := next((one for one in self.kept if one.first <= sequence <= one.last), None)
        ) is not None:
            sequence = range_.last + 1
        return sequence

    def spans_after(self, sequence: int, *, limit: int) -> Sequence[SpanRow]:
        """Return at most `limit` of the spans that the sink is given with a larger sequence, in order."""
        found: list[SpanRow] = []
        after = self.given(sequence + 1) - 1
        while len(found) < limit:
            rows = self.source.spans_after(after, limit=min(limit, PAGE_ROWS))
            if not rows:
                break
            found += [row for row in rows if self.given(row.position.sequence) == row.position.sequence]
            after = self.given(rows[-1].position.sequence + 1) - 1
        return found[:limit]

    def span_at(self, sequence: int) -> SpanRow | None:
        """Return the span at a sequence: a sink may hold one that was kept back later."""
        return self.source.span_at(sequence)

    def epoch_after(self, epoch: int) -> SpanRow | None:
        """Return the first span of the first epoch later than `epoch`, or None where there is none (LED-08)."""
        return self.source.epoch_after(epoch)


def next_given(source: SpanSource, sequence: int) -> int:
    """Return the sequence that follows `sequence` in what a sink is given: the next one, but for what is kept back."""
    return source.given(sequence + 1) if isinstance(source, KeptBack) else sequence + 1
