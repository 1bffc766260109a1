"""The dispatch gate: nothing is sent before every required sink has acknowledged the span (ADM-03, AUD-02).

1. Each sink has one thread of its own, so that a sink that hangs keeps nobody else, and a caller that is
   interrupted leaves no write half done.
2. All required sinks work at the same time, each against its own deadline.
3. Callers that wait at once share one write and one sync: the thread ships up to the largest sequence.
4. An acknowledgement counts only if it names this ledger and a span that the ledger holds with the same leaf,
   at or after the one asked for, and if it came after the question. Nothing is answered from memory.
5. A sink whose thread does not come back is busy, hence not ready, until it does.
6. Best-effort sinks are told, and neither waited for nor listened to.
7. Where an operator has changed the sinks meanwhile, what the old ones said counts for nothing.
8. What was admitted waits for the sinks that its own revision requires, whatever another one has put in force since.

With no required sink every one of these would hold emptily, so there is none such `Delivery`.
It does not decide what a failure means for an effect; the flow does. Next: `issuer/flow`.
"""

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from audit.errors import AuditUnavailable, NoRequiredSink
from audit.health import SinkWord
from audit.sink_thread import GRACE_S, SinkThread
from audit.sinks.port import Sink, SpanSource
from audit.sinks.skipping import Kept
from ledger.errors import Fault

__all__ = ["DEADLINE_S", "Delivery", "SinkLook", "Stand"]

DEADLINE_S: Final = 2.0
"""Seconds that a sink has: hundreds of times a sync of a healthy disk, and little to a person who waits."""

LINGER_S: Final = 0.3
"""Seconds at the end for what best-effort sinks were told of: a handshake and an answer from another city."""

_NONE_REQUIRED: Final = "At least one sink must be required, or dispatch would wait for nobody."


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """What the ledger says of its sinks, as a delivery was set up.

    Attributes:
        version: another one means that sinks were changed since.
        trouble: why nothing can be acknowledged as they stand: the name of a sink and a sentence.
        kept: by sink, the spans that it is not given.
    """

    version: str = ""
    trouble: tuple[str, str] | None = None
    kept: Mapping[str, tuple[Kept, ...]] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkLook:
    """What a look at one sink found: how far it has come, as far as that is known, and why it is not ready."""

    sink: Sink
    reached: int | None
    fault: AuditUnavailable | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Crew:
    """The sinks at one time; replaced as a whole, so that whoever waits goes by one and the same."""

    required: tuple[SinkThread, ...]
    best_effort: tuple[SinkThread, ...]
    stand: Stand

    @property
    def all(self) -> tuple[SinkThread, ...]:
        return (*self.required, *self.best_effort)


class Delivery:
    """Probes sinks before an admission, and waits for their acknowledgement after it."""

    def __init__(
        self,
        sinks: Sequence[Sink],
        source: SpanSource,
        *,
        probe_deadline_s: float = DEADLINE_S,
        ship_deadline_s: float = DEADLINE_S,
        stand: Stand | None = None,
        version_now: Callable[[], str] | None = None,
    ) -> None:
        """Take the sinks of a ledger; threads start when they are first needed.

        `version_now` reads what the ledger says of its sinks by now, as `Stand.version`.

        Raises:
            NoRequiredSink: none of the sinks is required.
            ValueError: two sinks have one name, or a deadline is not positive.
        """
        if min(probe_deadline_s, ship_deadline_s) <= 0:
            raise ValueError("a deadline is a positive number of seconds")
        self._pid = os.getpid()
        self._source = source
        self._probe_deadline_s = probe_deadline_s
        self._ship_deadline_s = ship_deadline_s
        self._version_now = version_now
        self._crew = _Crew(required=(), best_effort=(), stand=Stand())
        self.replace(sinks, stand or Stand())

    @property
    def stand(self) -> Stand:
        """What the ledger said of its sinks when these were taken."""
        return self._crew.stand

    @property
    def _required(self) -> tuple[SinkThread, ...]:
        return self._crew.required

    @property
    def _best_effort(self) -> tuple[SinkThread, ...]:
        return self._crew.best_effort

    def replace(self, sinks: Sequence[Sink], stand: Stand) -> None:
        """Go on with these sinks; of those before, only the same objects stay, and the others are let go.

        Raises:
            NoRequiredSink: none of them is required, and no trouble says why; nothing is changed.
            ValueError: two of them have one name; nothing is changed.
        """
        if os.getpid() != self._pid:
            return  # nothing is acknowledged there anyway, and the locks below may be held by nobody who is there
        if stand.trouble is None and not any(sink.required for sink in sinks):
            raise NoRequiredSink(_NONE_REQUIRED)
        if len({sink.name for sink in sinks}) != len(sinks):
            raise ValueError("two sinks have the same name")
        before = {id(worker.sink): worker for worker in self._crew.all}
        workers = [
            before.pop(id(sink)) if id(sink) in before else self._worker(sink, stand) for sink in sinks
        ]
        self._crew = _Crew(
            required=tuple(worker for worker in workers if worker.sink.required),
            best_effort=tuple(worker for worker in workers if not worker.sink.required),
            stand=stand,
        )
        for worker in before.values():
            worker.close()

    def _worker(self, sink: Sink, stand: Stand) -> SinkThread:
        kept = stand.kept.get(sink.name, ())
        return SinkThread(sink, self._source, self._probe_deadline_s, self._ship_deadline_s, kept)

    def require(self, required: Mapping[str, bool]) -> None:
        """Wait from now on for the sinks that a revision requires; those that it does not name stay as they are.

        Raises:
            NoRequiredSink: none would be left to wait for; nothing is changed.
        """
        crew = self._crew
        waited = {worker.sink.name for worker in crew.required}
        wanted = {
            worker.sink.name
            for worker in crew.all
            if required.get(worker.sink.name, worker.sink.name in waited)
        }
        if not wanted and crew.stand.trouble is None:
            raise NoRequiredSink(_NONE_REQUIRED)
        self._crew = _Crew(
            required=tuple(worker for worker in crew.all if worker.sink.name in wanted),
            best_effort=tuple(worker for worker in crew.all if worker.sink.name not in wanted),
            stand=crew.stand,
        )

    def probe(self) -> None:
        """Return once every required sink said that it is ready.

        Raises:
            AuditUnavailable: one did not; it is named, with the reason.
        """
        self._ask_all(self._crew, None, self._probe_deadline_s)

    def acknowledge(self, sequence: int, *, demanded: Collection[str] = ()) -> None:
        """Return once every required sink holds the span at `sequence`, and all before it, durably.

        An interrupted caller stops waiting; the writing goes on and ends as it would have.

        Args:
            sequence: of a committed span, at least 1.
            demanded: names of sinks that were required when the span was decided on.

        Raises:
            AuditUnavailable: a required sink did not acknowledge; it is named, with the reason.
        """
        self.refuse_fork()
        crew = self._crew
        waited = {worker.sink.name for worker in crew.required}
        if crew.stand.trouble is None and not waited.issuperset(demanded):  # 8
            say = "A sink that was required when this was admitted is not any more; give it again."
            raise AuditUnavailable("*", "sinks_changed", say)
        for worker in crew.best_effort:
            worker.tell(sequence)
        self._ask_all(crew, sequence, self._ship_deadline_s)
        self._refuse_moved(crew)  # 7

    def look(self) -> tuple[SinkLook, ...]:
        """Probe every sink, the best-effort ones too, all at once; say of each how far it is and what is wrong.

        Raises:
            AuditUnavailable: this is a forked copy of the process.
        """
        self.refuse_fork()
        until = time.monotonic() + self._probe_deadline_s + GRACE_S
        asked = [(worker, worker.look()) for worker in self._crew.all]
        return tuple(
            SinkLook(sink=worker.sink, fault=worker.fault_of(wish, until), reached=worker.reached)
            for worker, wish in asked
        )

    def words(self) -> tuple[SinkWord, ...]:
        """Return what of the sinks should be on record and is not yet, by this process's knowledge.

        A forked copy knows nothing: the locks that guard it may be held by threads that the copy does not have.
        """
        if os.getpid() != self._pid:
            return ()
        return tuple(word for worker in self._crew.all if (word := worker.word()) is not None)

    def told(self, words: Sequence[SinkWord]) -> None:
        """Take note that these words are on record, or need not be."""
        by_name = {word.name: word for word in words}
        for worker in self._crew.all:
            if worker.sink.name in by_name:
                worker.told(by_name[worker.sink.name])

    def close(self) -> None:
        """Let the threads end, and each sink let go; one that hangs is left behind, and keeps no process alive.

        What best-effort sinks were told of is on its way, and a program that runs for one command would cut it off each
        time; so they get `LINGER_S` together, after whoever waits was refused.
        """
        crew = self._crew
        for worker in crew.required:
            worker.close()
        until = time.monotonic() + LINGER_S
        for worker in crew.best_effort:
            worker.linger(until)
            worker.close()

    def _ask_all(self, crew: _Crew, sequence: int | None, deadline_s: float) -> None:
        self.refuse_fork()
        if crew.stand.trouble is not None:
            name, say = crew.stand.trouble
            raise AuditUnavailable(name, "sinks_changed", say)
        until = time.monotonic() + deadline_s + GRACE_S
        # All are asked before any is waited for.
        wishes = [(worker, worker.ask(sequence)) for worker in crew.required]
        for worker, wish in wishes:
            worker.wait_for(wish, until)

    def _refuse_moved(self, crew: _Crew) -> None:
        """Refuse an acknowledgement of sinks that are not the ledger's any more.

        Raises:
            AuditUnavailable: `sinks_changed`, or `ledger_unavailable` where that cannot be read.
        """
        if self._version_now is None:
            return
        try:
            version = self._version_now()
        except Fault:
            say = "It cannot be read which sinks the ledger has."
            raise AuditUnavailable("*", "ledger_unavailable", say) from None
        if version != crew.stand.version:
            raise AuditUnavailable("*", "sinks_changed", "The sinks were changed meanwhile; give it again.")

    def refuse_fork(self) -> None:
        """Refuse whoever is a forked copy of the process that these sinks belong to (AUD-03).

        Raises:
            AuditUnavailable: `forked`.
        """
        # Before any lock is touched: a child inherits locks whose holders it does not have.
        if os.getpid() != self._pid:
            raise AuditUnavailable("*", "forked", "These sinks belong to the parent process; open them anew.")
