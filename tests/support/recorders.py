"""An honest and plain recorder of spans: it needs no SDK, and equal positions give equal spans in every process."""

import hashlib

from ledger.canonical import canonical_bytes
from ledger.model import InstantMs, LedgerId
from ledger.port import SpanRecorder
from ledger.transitions import Position, RecordedSpan, Transition


class PlainRecorder:
    """An honest recorder: what it returns follows from what it is asked, and nothing else."""

    def record(
        self, transition: Transition, *, position: Position, parent_span_id: str | None, at_ms: InstantMs
    ) -> RecordedSpan:
        """See `SpanRecorder`."""
        place = f"{position.ledger_id}/{position.epoch}/{position.lane}/{position.sequence}"
        body = canonical_bytes(
            {
                "at": at_ms,
                "name": str(transition.name),
                "parent": parent_span_id or "",
                "place": place,
                "story": transition.story,
                "to": str(transition.state_to or ""),
            }
        )
        story = hashlib.sha256(transition.story.encode()).hexdigest()
        span = hashlib.sha256(place.encode()).hexdigest()
        return RecordedSpan(
            span_id=span[:16], trace_id=story[:32], body=body, attributes=transition.attributes
        )


def plain_recorder(_ledger_id: LedgerId) -> SpanRecorder:
    """Make a `PlainRecorder` for whatever ledger."""
    return PlainRecorder()
