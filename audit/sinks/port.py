"""The port of a sink: a place outside the ledger that holds a copy of the spans, in order and without gaps.

Rules: AUD-02 (an acknowledgement is a durable statement about one exact span), LED-06 (a sink is the anchor:
it knows when its ledger was rolled back).

A sink reads what it lacks from the ledger by itself, so that no message can be lost between the two. A call
may come from any thread, and should end within its deadline; `audit.delivery` guards against one that does
not.
Next: `audit.sinks.jsonl`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from ledger.model import InstantMs, LedgerId
from ledger.port import Ledger, View
from ledger.transitions import Position, SpanRow

__all__ = ["Acknowledged", "LedgerSpans", "Sink", "SinkClass", "SinkExpectation", "SpanSource", "class_of"]

LANE: Final = 0
"""The one lane of a ledger (AUD-05)."""


class SinkClass(StrEnum):
    """What an acknowledgement of a sink is worth to whoever reads the trail later."""

    DURABLE = "durable"
    """The span is on a medium, and can be read back and held against the ledger."""

    ACCEPTED = "accepted"
    """Another program said that it took the span; it may still lose it, and cannot be asked."""

    BEST_EFFORT = "best_effort"
    """Nothing waits for it, whatever it could say."""


class SpanSource(Protocol):
    """The committed spans of one ledger. It is read from the threads of the sinks, several at once."""

    @property
    def ledger_id(self) -> LedgerId:
        """The ledger whose spans these are."""
        ...

    def spans_after(self, sequence: int, *, limit: int) -> Sequence[SpanRow]:
        """Return at most `limit` spans with a larger sequence, in order."""
        ...

    def span_at(self, sequence: int) -> SpanRow | None:
        """Return the span at a sequence, or None where there is none.

        Of one that was archived the place and the leaf are there, and no body (AUD-08): enough to know it again.
        """
        ...

    def epoch_after(self, epoch: int) -> SpanRow | None:
        """Return the first span of the first epoch later than `epoch`, or None where there is none (LED-08)."""
        ...


def _archived(view: View, sequence: int) -> SpanRow | None:
    found = view.leaves_after(sequence - 1, limit=1)
    if not found or found[0].sequence != sequence:
        return None
    place = Position(
        ledger_id=view.head().ledger_id, epoch=found[0].epoch, lane=LANE, sequence=found[0].sequence
    )
    return SpanRow(
        position=place,
        span_id="",
        trace_id="",
        name="",
        story="",
        at_ms=InstantMs(0),
        body=b"",
        leaf=found[0].leaf,
    )


@dataclass(frozen=True, slots=True)
class LedgerSpans:
    """The spans of a ledger behind its port: each call reads one snapshot."""

    ledger: Ledger

    @property
    def ledger_id(self) -> LedgerId:
        """The ledger whose spans these are."""
        return self.ledger.ledger_id

    def spans_after(self, sequence: int, *, limit: int) -> Sequence[SpanRow]:
        """Return at most `limit` spans with a larger sequence, in order."""
        return self.ledger.read(lambda view: view.spans_after(sequence, limit=limit))

    def span_at(self, sequence: int) -> SpanRow | None:
        """Return the span at a sequence, without a body where it was archived; None where there is none."""
        return self.ledger.read(lambda view: view.span_at(sequence) or _archived(view, sequence))

    def epoch_after(self, epoch: int) -> SpanRow | None:
        """Return the first span of the first epoch later than `epoch`, or None where there is none (LED-08)."""
        return self.ledger.read(lambda view: view.epoch_after(epoch))


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkExpectation:
    """What a probe holds a sink against: the ledger, by which the sink's last span must be known.

    Attributes:
        source: that ledger.
        looks_only: hold it against the ledger, and ask no other program; an answer then says nothing of being ready.
    """

    source: SpanSource
    looks_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """A sink's statement: every span up to this one is durable. `leaf` is the hash of this one."""

    ledger_id: LedgerId
    epoch: int
    lane: int
    sequence: int
    leaf: bytes


class Sink(Protocol):
    """One place that takes spans."""

    @property
    def name(self) -> str:
        """The owner's name for it."""
        ...

    @property
    def kind(self) -> str:
        """What kind it is, such as `jsonl`."""
        ...

    @property
    def required(self) -> bool:
        """Whether dispatch waits for it."""
        ...

    def probe(self, expect: SinkExpectation, deadline_s: float) -> None:
        """Return if a span would very probably be taken now; write nothing.

        Raises:
            SinkUnavailable: it would not be taken, or `deadline_s` seconds were not enough to find out.
            SinkAhead: the sink holds what the ledger does not.
        """
        ...

    def ship(self, source: SpanSource, upto: Position, deadline_s: float) -> Acknowledged:
        """Write what is missing, at least up to `upto`, make it durable, and say up to where.

        Raises:
            SinkUnavailable: `upto` is not provably durable within `deadline_s` seconds; call again to go on.
            SinkAhead: the sink holds what the ledger does not.
        """
        ...

    def close(self) -> None:
        """Let go of files and connections, outside of any call; a later call may take them again."""
        ...


def class_of(sink: Sink) -> SinkClass:
    """Return what acknowledgements of a sink are worth; one that does not say is believed no more than a collector."""
    if not sink.required:
        return SinkClass.BEST_EFFORT
    said = getattr(sink, "sink_class", SinkClass.ACCEPTED)
    return said if isinstance(said, SinkClass) else SinkClass.ACCEPTED
