"""One sink with its thread, and the callers that wait for it.

Rules: AUD-02, ADM-03 (an acknowledgement is proven against the ledger), AUD-09 (each failure is noted, to be recorded).
  1. A sink that hangs keeps its own thread and nobody else: who asks meanwhile is refused at once.
  2. Callers that wait at once share one write; no more than `PENDING_MAX` of them are kept.
  3. A sink that is far behind is not ready: it is brought up to date by its thread, and no permit is spent on waiting.
Next: `audit.delivery`, which asks all of them.
"""

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from audit.errors import AuditUnavailable, SinkAhead, SinkUnavailable
from audit.health import Health, SinkWord
from audit.sinks.port import Acknowledged, Sink, SinkExpectation, SpanSource
from audit.sinks.skipping import Kept, KeptBack

__all__ = ["GRACE_S", "LAG_SPANS_MAX", "PENDING_MAX", "Reaching", "SinkThread"]

GRACE_S: Final = 0.25
"""Seconds beyond a deadline in which the sink's own, better reason may still arrive."""

PENDING_MAX: Final = 4096
"""Callers that wait for one sink; more than threads of any process, so only abandoned ones can reach it."""

LAG_SPANS_MAX: Final = 4096
"""Spans that a sink may be behind when an admission asks: a file takes several times as many within its deadline."""

ROUNDS_MAX: Final = 64
"""Calls in a row in which a sink that is far behind is brought up to date; the next probe lets it go on."""


@runtime_checkable
class Reaching(Protocol):
    """A sink that can say how far it has come."""

    def reached(self, source: SpanSource) -> int | None:
        """Return the sequence up to which it holds the ledger's spans, 0 for none, None where that is not known.

        Raises:
            SinkUnavailable: it cannot be looked at.
            SinkAhead: it holds what the ledger does not.
        """
        ...


@dataclass(slots=True, eq=False)
class _Wish:
    """What one caller wants of a sink: a probe, or an acknowledgement of `sequence`.

    Nobody waits for one that `is_told`; one that `is_look` wants to know how far the sink is, ready or not.
    """

    sequence: int | None
    is_told: bool = False
    is_look: bool = False
    is_done: bool = False
    fault: AuditUnavailable | None = None


class SinkThread:
    """One sink with its thread, and the callers that wait for it."""

    def __init__(
        self,
        sink: Sink,
        source: SpanSource,
        probe_deadline_s: float,
        ship_deadline_s: float,
        kept: Sequence[Kept] = (),
    ) -> None:
        """Remember the sink; its thread starts when it is first needed. `kept` are spans that it is not given."""
        self._sink = sink
        self._source = KeptBack(source=source, kept=tuple(kept))
        self._health = Health(sink.name)
        self._behind: int | None = None
        self._rounds = 0
        self._probe_deadline_s = probe_deadline_s
        self._ship_deadline_s = ship_deadline_s
        self._changed = threading.Condition()
        self._pending: list[_Wish] = []
        self._thread: threading.Thread | None = None
        self._overdue_at: float | None = None
        self._is_closed = False

    def ask(self, sequence: int | None, *, is_look: bool = False) -> _Wish:
        """Queue a wish, or refuse at once where the sink hangs."""
        with self._changed:
            if self._is_closed:
                raise self._fault("closed", "The sinks were closed.")
            if self._is_hanging() or len(self._pending) >= PENDING_MAX:
                self._health.failed("busy")
                raise self._fault("busy", "The sink has not come back from an earlier call.")
            wish = _Wish(sequence, is_look=is_look)
            self._pending.append(wish)
            self._start()
            self._changed.notify_all()
            return wish

    def look(self) -> _Wish:
        """Queue a look as `ask` does a probe; where it is refused at once, that is how it ended."""
        try:
            return self.ask(None, is_look=True)
        except AuditUnavailable as fault:
            return _Wish(None, is_done=True, fault=fault)

    def fault_of(self, wish: _Wish, until: float) -> AuditUnavailable | None:
        """Wait as `wait_for` does; return why the wish was not granted, None where it was."""
        try:
            self.wait_for(wish, until)
        except AuditUnavailable as fault:
            return fault
        return None

    def tell(self, sequence: int) -> None:
        """Queue an acknowledgement that nobody waits for; never waits and never fails."""
        with self._changed:
            if self._is_closed or self._is_hanging():
                return
            if self._pending and self._pending[-1].is_told:
                # Nobody reads the answer, so one wish with the latest sequence stands for all.
                self._pending[-1].sequence = sequence
                return
            self._pending.append(_Wish(sequence, is_told=True))
            try:
                self._start()
            except AuditUnavailable:
                self._pending.pop()
            self._changed.notify_all()

    def wait_for(self, wish: _Wish, until: float) -> None:
        """Return once the wish was granted; raise its fault, or `deadline` when `until` has passed."""
        with self._changed:
            if not self._changed.wait_for(lambda: wish.is_done, max(0.0, until - time.monotonic())):
                if wish in self._pending:
                    self._pending.remove(wish)
                self._health.failed("deadline")
                raise self._fault("deadline", "The sink did not answer within its deadline.")
            if wish.fault is not None:
                # A fault of its own for each caller: one raised in several threads would mix their traces.
                raise AuditUnavailable(wish.fault.sink, wish.fault.reason, wish.fault.message)

    @property
    def sink(self) -> Sink:
        """The sink itself."""
        return self._sink

    @property
    def reached(self) -> int | None:
        """The last sequence that it is known to hold in this process, None where nothing is known."""
        with self._changed:
            return self._health.reached

    def word(self) -> SinkWord | None:
        """Return what of it should be on record and is not yet."""
        with self._changed:
            return self._health.word()

    def told(self, word: SinkWord) -> None:
        """Take note that `word` is on record, or need not be."""
        with self._changed:
            self._health.told(word)

    def linger(self, until: float) -> None:
        """Return once the thread has nothing more to do, or it hangs, or `until` has passed."""
        with self._changed:
            self._changed.wait_for(
                lambda: (not self._pending and self._overdue_at is None) or self._is_hanging(),
                max(0.0, until - time.monotonic()),
            )

    def close(self) -> None:
        """Let the thread end after what it is doing; whoever still waits is refused."""
        with self._changed:
            self._is_closed = True
            self._settle(self._pending, self._fault("closed", "The sinks were closed."))
            self._pending = []
            is_running = self._thread is not None and self._thread.is_alive()
        if not is_running:
            self._let_go()

    def _let_go(self) -> None:
        """Let the sink let go of what it holds: a process that opens and closes many issuers would run out of files."""
        with suppress(Exception):  # a plug-in may raise anything, and nothing is waiting for it any more
            self._sink.close()

    def _is_hanging(self) -> bool:
        return self._overdue_at is not None and time.monotonic() > self._overdue_at

    def _start(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            return
        thread = threading.Thread(target=self._run, name=f"audit-sink-{self._sink.name}", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            raise self._fault("no_thread", "The process can start no further thread.") from None
        self._thread = thread

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self._is_closed or self._behind is not None)
                is_over = self._is_closed
                batch, self._pending = self._pending, []
            if is_over:
                self._let_go()
                return
            probes = [wish for wish in batch if wish.sequence is None]
            wanted = [(wish.sequence, wish) for wish in batch if wish.sequence is not None]
            if probes:
                self._answer(probes, None, self._probe_deadline_s)
            if wanted:
                self._answer(
                    [wish for _, wish in wanted], max(asked for asked, _ in wanted), self._ship_deadline_s
                )
            if not batch:
                self._catch_up()

    def _answer(self, wishes: list[_Wish], sequence: int | None, deadline_s: float) -> None:
        """Do the one thing that all of `wishes` wait for, and tell them."""
        with self._changed:
            # Earlier than its callers give up, so that the next one meets a sink that is known to hang.
            self._overdue_at = time.monotonic() + deadline_s + GRACE_S / 2
        reached = 0
        fault: AuditUnavailable | None = None
        try:
            if sequence is None:
                if any(wish.is_look for wish in wishes):
                    self._look()
                self._sink.probe(SinkExpectation(source=self._source), deadline_s)
                self._refuse_behind()
            else:
                reached = self._shipped(sequence, deadline_s)
        except (AuditUnavailable, SinkAhead, SinkUnavailable) as refused:
            fault = self._fault(refused.reason, refused.message)
        except BaseException as broken:  # noqa: BLE001 - a plug-in may raise anything, and silence is no answer
            fault = self._fault("failed", f"The sink failed: {type(broken).__name__}.")
        with self._changed:
            self._overdue_at = None
            if fault is not None:
                self._health.failed(fault.reason)
            elif sequence is not None:
                self._health.worked(reached)
            self._settle(wishes, fault)
            if fault is None and sequence is not None:
                # Whoever asked while this ran, for what it covers, has the answer too.
                covered = [
                    wish for wish in self._pending if wish.sequence is not None and wish.sequence <= reached
                ]
                self._settle(covered, None)
                self._pending = [wish for wish in self._pending if not wish.is_done]

    def _settle(self, wishes: list[_Wish], fault: AuditUnavailable | None) -> None:
        for wish in wishes:
            wish.is_done, wish.fault = True, fault
        self._changed.notify_all()

    def _shipped(self, sequence: int, deadline_s: float) -> int:
        """Ship up to `sequence`; return the sequence acknowledged, once that is proved true."""
        sequence = self._source.given(sequence)
        row = self._source.span_at(sequence)
        if row is None:
            raise self._fault("no_such_span", "The ledger does not hold the span to acknowledge.")
        said = self._sink.ship(self._source, row.position, deadline_s)
        self._refuse_untrue(said, sequence)
        return said.sequence

    def _look(self) -> None:
        """Find out how far the sink is, even where it will turn out not to be ready."""
        if isinstance(self._sink, Reaching):
            with suppress(SinkAhead, SinkUnavailable):
                self._note_reached(self._sink.reached(self._source))

    def _note_reached(self, sequence: int | None) -> None:
        if sequence is not None:
            with self._changed:
                self._health.reached = max(sequence, self._health.reached or 0)

    def _refuse_behind(self) -> None:
        """Refuse where more than `LAG_SPANS_MAX` spans are missing, and let the thread bring them (3).

        Raises:
            AuditUnavailable: `behind`.
        """
        if not isinstance(self._sink, Reaching):
            return
        at = self._health.reached
        if at is None or self._beyond(at) is not None:
            # Another process may have brought it on since: only what the sink itself says counts against it.
            at = self._sink.reached(self._source)
        if at is None:
            return
        self._note_reached(at)
        missing = self._beyond(at)
        if missing is not None:
            self._behind, self._rounds = missing, 0
            say = f"The sink lacks more than {LAG_SPANS_MAX} spans; it is being brought up to date."
            raise self._fault("behind", say)

    def _beyond(self, sequence: int) -> int | None:
        """Return the sequence of a span that lies farther ahead than a sink may be behind, None where there is none."""
        rows = self._source.spans_after(sequence + LAG_SPANS_MAX, limit=1)
        return rows[0].position.sequence if rows else None

    def _catch_up(self) -> None:
        """Bring a sink that is far behind a little nearer, in calls that keep those that wait only shortly."""
        wanted, self._behind = self._behind, None
        if wanted is None or self._rounds >= ROUNDS_MAX:
            return
        self._rounds += 1
        told = _Wish(wanted, is_told=True)
        self._answer([told], wanted, self._ship_deadline_s / 4)
        if told.fault is None:
            reached = self._health.reached
            self._behind = None if reached is None else self._beyond(reached)
        elif told.fault.reason == "backlog":
            self._behind = wanted

    def _refuse_untrue(self, said: Acknowledged, sequence: int) -> None:
        if said.ledger_id != self._source.ledger_id or said.sequence < sequence:
            raise self._fault("untrue", "The sink acknowledged something else than it was asked for.")
        row = self._source.span_at(said.sequence)
        if row is None or (row.position.epoch, row.position.lane, row.leaf) != (
            said.epoch,
            said.lane,
            said.leaf,
        ):
            raise self._fault("untrue", "The sink acknowledged a span that the ledger does not hold.")

    def _fault(self, reason: str, message: str) -> AuditUnavailable:
        return AuditUnavailable(self._sink.name, reason, message)
