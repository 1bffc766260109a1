"""A sink that another program keeps, and that cannot be read back: a watermark of ours, and whoever carries the spans.

Rules: AUD-02 (in order, without a gap, at least once), AUD-05 (epoch, lane and sequence stand in every span, so whoever
gets one twice can tell), LED-06 (a watermark ahead of its ledger proves that this was set back), LED-08 (a new epoch
goes on from where it says that it left the sink).

1. One process at a time ships to one place.
2. The watermark is a span that the ledger holds with the same leaf, or the one that a later epoch says it left.
3. What is missing is read from the ledger in batches of bounded size, and each row proves itself.
4. A batch counts only once the carrier came back without a fault, and only then the watermark moves: what was
   received and not answered is sent again.
5. The acknowledgement names what the watermark names.

A batch that was not answered in time, or not taken, is followed by a smaller one: a slow place still gets on, and one
that never takes one span has all before it.
What carries is asked for nothing else; `audit.sinks.otlp` and `audit.sinks.plugin` are the two that there are.
Next: `audit.delivery`.
"""

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn, Protocol

from audit.errors import SinkAhead, SinkUnavailable
from audit.sinks.epochs import left_at
from audit.sinks.lines import Tail
from audit.sinks.port import Acknowledged, SinkClass, SinkExpectation, SpanSource
from audit.sinks.skipping import next_given
from audit.sinks.watermark import Watermark
from ledger.model import LedgerId
from ledger.transitions import Position, SpanRow
from ledger.tree import leaf_hash

__all__ = ["BATCH_BYTES_MAX", "BATCH_ROWS", "CarriedSink", "Carrier"]

BATCH_ROWS: Final = 256
"""Spans that are read and carried at a time, so that a long backlog needs little memory."""

BATCH_BYTES_MAX: Final = 1024 * 1024
"""Bytes of bodies in one batch, which the usual collector takes twenty times over."""

SMALLER: Final = 4
"""How much smaller a batch gets after one that was not answered in time."""

SPARE: Final = 2.0
"""How many times as long as the last answer took there has to be left, for one more batch in the same call."""

TOO_SLOW: Final = "no_answer"
"""The reason by which a carrier says that its deadline passed before an answer came."""

SMALLER_AFTER: Final = frozenset({TOO_SLOW, "rejected", "status", "too_large", "warned", "failed"})
"""Reasons after which a smaller batch is tried: it was too much at once, or one span of it is what is not taken.

So the watermark comes to stand right before a span that is never taken, and an operator can keep that one back.
"""


class Carrier(Protocol):
    """What brings spans to a place that somebody else keeps; it is called by one thread at a time."""

    @property
    def sink_class(self) -> SinkClass:
        """What an acknowledgement of that place is worth."""
        ...

    def probe(self, deadline_s: float) -> None:
        """Return if the place would very probably take spans now.

        Raises:
            SinkUnavailable: it would not, or did not say so within `deadline_s` seconds.
        """
        ...

    def carry(self, rows: Sequence[SpanRow], deadline_s: float) -> None:
        """Return once the place acknowledged all of `rows`, which are in order and at least one.

        Raises:
            SinkUnavailable: it did not, or not within `deadline_s` seconds; `no_answer` where that is all there is.
        """
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


class CarriedSink:
    """Spans for a place that somebody else keeps; implements `audit.sinks.port.Sink` for any thread of one process."""

    def __init__(
        self,
        carrier: Carrier | None,
        ledger_id: LedgerId,
        *,
        name: str,
        kind: str,
        required: bool,
        folder: Path,
        place: str,
    ) -> None:
        """Remember everything; nothing is opened before it is needed.

        Args:
            carrier: brings the spans there; None for a look at the watermark alone, by which nothing is shipped.
            ledger_id: the ledger whose spans are shipped.
            name: the owner's name for this sink.
            kind: such as `otlp`.
            required: whether dispatch waits for it.
            folder: where its watermark stands.
            place: what acknowledges, such as a URL; a watermark of another place is refused.
        """
        self.name: Final = name
        self.kind: Final = kind
        self.required: Final = required
        self.sink_class: Final = SinkClass.ACCEPTED if carrier is None else carrier.sink_class
        self._carrier = carrier
        self._ledger_id = ledger_id
        self._watermark = Watermark(folder, ledger_id, name=name, place=place)
        self._pid = os.getpid()
        self._turn = threading.Lock()
        self._acknowledged: Tail | None = None
        self._rows_max = BATCH_ROWS
        self._took_s = 0.0

    def probe(self, expect: SinkExpectation, deadline_s: float) -> None:
        """See `Sink.probe`: the watermark is held against the ledger, then the carrier asks its place."""
        deadline = time.monotonic() + deadline_s
        self._refuse_fork()
        self._stand(expect.source)
        if expect.looks_only:
            return
        self._the_carrier().probe(max(0.0, deadline - time.monotonic()))

    def ship(self, source: SpanSource, upto: Position, deadline_s: float) -> Acknowledged:
        """See `Sink.ship`; the steps are numbered as in the description of this module."""
        deadline = time.monotonic() + deadline_s
        self._refuse_fork()
        carrier = self._the_carrier()
        if upto.ledger_id != self._ledger_id:
            self._refuse("foreign_ledger", "The span belongs to another ledger than this sink.")
        if not self._turn.acquire(timeout=max(0.0, deadline_s)):
            self._refuse("busy", "Another thread is still shipping to this sink.")
        try:
            # 1
            with self._watermark.held(deadline):
                # 2
                tail, sequence, owed = self._stand(source)
                due, begun = max(upto.sequence, owed), sequence
                while tail is None or sequence < due:
                    # 3 and 4
                    rows = self._batch(source, sequence)
                    self._carried(carrier, rows, deadline, is_first=sequence == begun)
                    tail, sequence = _tail(rows[-1]), rows[-1].position.sequence
                    self._watermark.write(tail)
                    self._acknowledged = tail
        finally:
            self._turn.release()
        # 5
        return Acknowledged(
            ledger_id=self._ledger_id,
            epoch=tail.epoch,
            lane=tail.lane,
            sequence=tail.sequence,
            leaf=tail.leaf,
        )

    def reached(self, source: SpanSource) -> int:
        """Return the sequence up to which the place acknowledged the ledger's spans, 0 for none.

        Raises:
            SinkUnavailable: the watermark cannot be believed, or the ledger is another one.
            SinkAhead: as `ship`.
        """
        return self._stand(source)[1]

    def make(self) -> None:
        """Make the folder of the watermark; one that is there has to be this sink's.

        Raises:
            SinkUnavailable: as `Watermark.make`.
        """
        self._watermark.make()

    def resend_from(self, source: SpanSource, sequence: int, deadline_s: float) -> None:
        """Let everything after `sequence` be shipped again, since the place lost it; 0 is everything (AUD-02).

        Nothing is sent here. A watermark that stands earlier stays where it is: nothing is ever left out.

        Raises:
            SinkUnavailable: the ledger has no such span, or as `Watermark`.
            SinkAhead: as `ship`.
        """
        self._refuse_fork()
        row = source.span_at(sequence)
        if sequence and row is None:
            self._refuse("no_such_span", "The ledger does not hold the span to go on from.")
        with self._watermark.held(time.monotonic() + deadline_s):
            _tail_now, standing, _owed = self._stand(source)
            if sequence < standing:
                self._watermark.write(None if row is None else _tail(row))

    def close(self) -> None:
        """Let go of the carrier's connections; a later call makes new ones."""
        if self._carrier is not None:
            self._carrier.close()

    # ------------------------------------------------------------------------- 2: where the place stands

    def _stand(self, source: SpanSource) -> tuple[Tail | None, int, int]:
        """Return the last span of the place, how far in the ledger that is, and the first span owed to it, or 0.

        A watermark behind what this process was acknowledged was lost or set back. Then that is held against the ledger
        too, as one that was set back with it would go unnoticed.
        """
        if source.ledger_id != self._ledger_id:
            self._refuse("foreign_ledger", "The ledger is another one than that of this sink.")
        tail = self._watermark.read()
        sequence, owed = (0, 0) if tail is None else self._followed(tail, source, is_last=True)
        known = self._acknowledged
        if known is not None and (tail is None or _place(tail) < _place(known)):
            self._followed(known, source, is_last=False)
        return tail, sequence, owed

    def _followed(self, tail: Tail, source: SpanSource, *, is_last: bool) -> tuple[int, int]:
        """Return how far in the ledger a span of the place is, and the first span of a new epoch that left it there.

        Where the span is not the place's last, one before where it was left is as good (`audit.sinks.jsonl`).
        """
        row = source.span_at(tail.sequence)
        if row is not None and _tail(row) == tail:
            return tail.sequence, 0
        joint = source.epoch_after(tail.epoch)
        left = None if joint is None else left_at(joint.body, self.name)
        if (
            joint is not None
            and left is not None
            and (left == tail or (not is_last and _place(tail) < _place(left)))
        ):
            return joint.position.sequence - 1, joint.position.sequence
        if row is None:
            raise SinkAhead(self.name, "ahead", "The sink acknowledged spans that its ledger has lost.")
        if row.position.epoch < tail.epoch:
            raise SinkAhead(
                self.name, "later_epoch", "The sink acknowledged spans of a later epoch than its ledger."
            )
        raise SinkAhead(self.name, "diverged", "The sink acknowledged another story than its ledger tells.")

    # --------------------------------------------------------------------------------- 3: one batch, and 4

    def _batch(self, source: SpanSource, after: int) -> Sequence[SpanRow]:
        """Return the next spans after `after`: at least one, in order, without a gap, each as it was recorded."""
        rows = source.spans_after(after, limit=self._rows_max)
        if not rows:
            self._refuse("no_such_span", "The ledger does not hold the span to ship.")
        size, before = 0, after
        for number, row in enumerate(rows):
            expected, before = next_given(source, before), row.position.sequence
            if row.position.sequence != expected or row.position.ledger_id != self._ledger_id:
                self._refuse("gap", "The ledger left out a span, and a sink has no gaps.")
            if leaf_hash(row.body) != row.leaf:
                self._refuse("broken_span", "A span of the ledger is not what was recorded.")
            size += len(row.body)
            if number and size > BATCH_BYTES_MAX:
                return rows[:number]
        return rows

    def _carried(self, carrier: Carrier, rows: Sequence[SpanRow], deadline: float, *, is_first: bool) -> None:
        """Carry a batch; only the first of a call is tried where another answer may not come in what is left of it.

        What would be given up on is received all the same, and would come twice.
        """
        begun = time.monotonic()
        left = deadline - begun
        if left <= 0 or (not is_first and left < SPARE * self._took_s):
            self._refuse("backlog", "The backlog is longer than the deadline; the next call goes on.")
        try:
            carrier.carry(rows, left)
        except SinkUnavailable as fault:
            # A later batch had only the rest of the time, which says nothing of its size.
            if fault.reason in SMALLER_AFTER and (is_first or fault.reason != TOO_SLOW):
                self._rows_max = max(1, len(rows) // SMALLER)
            raise
        self._took_s = time.monotonic() - begun
        self._rows_max = min(BATCH_ROWS, 2 * self._rows_max)

    # ---------------------------------------------------------------------------------------------- shared

    def _the_carrier(self) -> Carrier:
        if self._carrier is None:
            self._refuse("not_loaded", "This sink is only looked at here, and nothing is shipped to it.")
        return self._carrier

    def _refuse_fork(self) -> None:
        if os.getpid() != self._pid:
            self._refuse("forked", "This sink belongs to the parent process; open it anew.")

    def _refuse(self, reason: str, message: str) -> NoReturn:
        raise SinkUnavailable(self.name, reason, message)


def _tail(row: SpanRow) -> Tail:
    place = row.position
    return Tail(epoch=place.epoch, lane=place.lane, sequence=place.sequence, leaf=row.leaf)


def _place(tail: Tail) -> tuple[int, int]:
    return tail.epoch, tail.sequence
