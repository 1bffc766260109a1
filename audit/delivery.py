"""The dispatch gate: nothing is sent before every required sink has acknowledged the span (ADM-03, AUD-02).

1. Each sink has one thread of its own, so that a sink that hangs keeps nobody else, and a caller that is
   interrupted leaves no write half done.
2. All required sinks work at the same time, each against its own deadline.
3. Callers that wait at once share one write and one sync: the thread ships up to the largest sequence.
4. An acknowledgement counts only if it names this ledger and a span that the ledger holds with the same leaf,
   at or after the one asked for, and if it came after the question. Nothing is answered from memory.
5. A sink whose thread does not come back is busy, hence not ready, until it does.
6. Best-effort sinks are told, and neither waited for nor listened to.

With no required sink every one of these would hold emptily, so there is none such `Delivery`.
It does not decide what a failure means for an effect; the flow does. Next: `issuer/flow`.
"""

import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from audit.errors import AuditUnavailable, NoRequiredSink, SinkAhead, SinkUnavailable
from audit.sinks.port import Acknowledged, Sink, SinkExpectation, SpanSource

__all__ = ["DEADLINE_S", "Delivery"]

DEADLINE_S: Final = 2.0
"""Seconds that a sink has: hundreds of times a sync of a healthy disk, and little to a person who waits."""

GRACE_S: Final = 0.25
"""Seconds beyond a deadline in which the sink's own, better reason may still arrive."""

PENDING_MAX: Final = 4096
"""Callers that wait for one sink; more than threads of any process, so only abandoned ones can reach it."""


@dataclass(slots=True, eq=False)
class _Wish:
    """What one caller wants of a sink: a probe, or an acknowledgement of `sequence`; nobody waits for one `is_told`."""

    sequence: int | None
    is_told: bool = False
    is_done: bool = False
    fault: AuditUnavailable | None = None


class Delivery:
    """Probes sinks before an admission, and waits for their acknowledgement after it."""

    def __init__(
        self,
        sinks: Sequence[Sink],
        source: SpanSource,
        *,
        probe_deadline_s: float = DEADLINE_S,
        ship_deadline_s: float = DEADLINE_S,
    ) -> None:
        """Take the sinks of a ledger; threads start when they are first needed.

        Raises:
            NoRequiredSink: none of the sinks is required.
            ValueError: two sinks have one name, or a deadline is not positive.
        """
        if not any(sink.required for sink in sinks):
            raise NoRequiredSink("At least one sink must be required, or dispatch would wait for nobody.")
        if len({sink.name for sink in sinks}) != len(sinks):
            raise ValueError("two sinks have the same name")
        if min(probe_deadline_s, ship_deadline_s) <= 0:
            raise ValueError("a deadline is a positive number of seconds")
        self._pid = os.getpid()
        self._probe_deadline_s = probe_deadline_s
        self._ship_deadline_s = ship_deadline_s
        workers = [(sink, _SinkThread(sink, source, probe_deadline_s, ship_deadline_s)) for sink in sinks]
        self._workers = {sink.name: worker for sink, worker in workers}
        self._required = tuple(worker for sink, worker in workers if sink.required)
        self._best_effort = tuple(worker for sink, worker in workers if not sink.required)

    def require(self, required: Mapping[str, bool]) -> None:
        """Wait from now on for the sinks that a revision requires; those that it does not name stay as they are.

        Raises:
            NoRequiredSink: none would be left to wait for; nothing is changed.
        """
        waited = {name for name, worker in self._workers.items() if worker in self._required}
        wanted = [name for name in self._workers if required.get(name, name in waited)]
        if not wanted:
            raise NoRequiredSink("At least one sink must be required, or dispatch would wait for nobody.")
        self._required = tuple(self._workers[name] for name in wanted)
        self._best_effort = tuple(worker for name, worker in self._workers.items() if name not in wanted)

    def probe(self) -> None:
        """Return once every required sink said that it is ready.

        Raises:
            AuditUnavailable: one did not; it is named, with the reason.
        """
        self._ask_all(None, self._probe_deadline_s)

    def acknowledge(self, sequence: int) -> None:
        """Return once every required sink holds the span at `sequence`, and all before it, durably.

        An interrupted caller stops waiting; the writing goes on and ends as it would have.

        Args:
            sequence: of a committed span, at least 1.

        Raises:
            AuditUnavailable: a required sink did not acknowledge; it is named, with the reason.
        """
        self.refuse_fork()
        for worker in self._best_effort:
            worker.tell(sequence)
        self._ask_all(sequence, self._ship_deadline_s)

    def close(self) -> None:
        """Let the threads end, and each sink let go; one that hangs is left behind, and keeps no process alive."""
        for worker in (*self._required, *self._best_effort):
            worker.close()

    def _ask_all(self, sequence: int | None, deadline_s: float) -> None:
        self.refuse_fork()
        until = time.monotonic() + deadline_s + GRACE_S
        # All are asked before any is waited for.
        wishes = [(worker, worker.ask(sequence)) for worker in self._required]
        for worker, wish in wishes:
            worker.wait_for(wish, until)

    def refuse_fork(self) -> None:
        """Refuse whoever is a forked copy of the process that these sinks belong to (AUD-03).

        Raises:
            AuditUnavailable: `forked`.
        """
        # Before any lock is touched: a child inherits locks whose holders it does not have.
        if os.getpid() != self._pid:
            raise AuditUnavailable("*", "forked", "These sinks belong to the parent process; open them anew.")


class _SinkThread:
    """One sink with its thread, and the callers that wait for it."""

    def __init__(
        self, sink: Sink, source: SpanSource, probe_deadline_s: float, ship_deadline_s: float
    ) -> None:
        self._sink = sink
        self._source = source
        self._probe_deadline_s = probe_deadline_s
        self._ship_deadline_s = ship_deadline_s
        self._changed = threading.Condition()
        self._pending: list[_Wish] = []
        self._thread: threading.Thread | None = None
        self._overdue_at: float | None = None
        self._is_closed = False

    def ask(self, sequence: int | None) -> _Wish:
        """Queue a wish, or refuse at once where the sink hangs."""
        with self._changed:
            if self._is_closed:
                raise self._fault("closed", "The sinks were closed.")
            if self._is_hanging() or len(self._pending) >= PENDING_MAX:
                raise self._fault("busy", "The sink has not come back from an earlier call.")
            wish = _Wish(sequence)
            self._pending.append(wish)
            self._start()
            self._changed.notify_all()
            return wish

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
                raise self._fault("deadline", "The sink did not answer within its deadline.")
            if wish.fault is not None:
                # A fault of its own for each caller: one raised in several threads would mix their traces.
                raise AuditUnavailable(wish.fault.sink, wish.fault.reason, wish.fault.message)

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
                self._changed.wait_for(lambda: self._pending or self._is_closed)
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

    def _answer(self, wishes: list[_Wish], sequence: int | None, deadline_s: float) -> None:
        """Do the one thing that all of `wishes` wait for, and tell them."""
        with self._changed:
            # Earlier than its callers give up, so that the next one meets a sink that is known to hang.
            self._overdue_at = time.monotonic() + deadline_s + GRACE_S / 2
        reached = 0
        fault: AuditUnavailable | None = None
        try:
            if sequence is None:
                self._sink.probe(SinkExpectation(source=self._source), deadline_s)
            else:
                reached = self._shipped(sequence, deadline_s)
        except (AuditUnavailable, SinkAhead, SinkUnavailable) as refused:
            fault = self._fault(refused.reason, refused.message)
        except BaseException as broken:  # noqa: BLE001 - a plug-in may raise anything, and silence is no answer
            fault = self._fault("failed", f"The sink failed: {type(broken).__name__}.")
        with self._changed:
            self._overdue_at = None
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
        row = self._source.span_at(sequence)
        if row is None:
            raise self._fault("no_such_span", "The ledger does not hold the span to acknowledge.")
        said = self._sink.ship(self._source, row.position, deadline_s)
        self._refuse_untrue(said, sequence)
        return said.sequence

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
