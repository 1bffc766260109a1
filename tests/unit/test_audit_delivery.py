"""The dispatch gate: every required sink, each in time, each telling the truth, or nothing is sent."""

import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from audit.delivery import Delivery
from audit.errors import AuditUnavailable, NoRequiredSink, SinkAhead, SinkUnavailable
from audit.sinks.jsonl import JsonlSink, create
from audit.sinks.port import Acknowledged, Sink, SinkExpectation, SpanSource
from ledger.model import LedgerId
from ledger.transitions import Position
from tests.support.spans import LEDGER, SpansInMemory, sequences_in

HOUSE = Path(__file__).resolve().parents[2]
PATIENCE_S = 30.0
"""Longer than any healthy step takes on a busy machine; no test waits for it to pass."""

Answer = Callable[[SpanSource, Position], Acknowledged]


def truthful(source: SpanSource, upto: Position) -> Acknowledged:
    row = source.span_at(upto.sequence)
    assert row is not None
    return Acknowledged(
        ledger_id=source.ledger_id, epoch=upto.epoch, lane=upto.lane, sequence=upto.sequence, leaf=row.leaf
    )


class FakeSink:
    """A sink that does what it is told, holds at a gate where one is closed, and counts."""

    kind = "fake"

    def __init__(self, name: str, *, required: bool = True, answer: Answer = truthful) -> None:
        self.name, self.required, self.answer = name, required, answer
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)
        self.probe_fault: BaseException | None = None
        self.shipped: list[int] = []
        self.threads: set[int] = set()
        self.closed = 0

    def _pass(self) -> None:
        self.threads.add(threading.get_ident())
        self.entered.release()
        assert self.gate.wait(PATIENCE_S)

    def probe(self, expect: SinkExpectation, deadline_s: float) -> None:
        assert expect.source.ledger_id == LEDGER
        assert deadline_s > 0
        self._pass()
        if self.probe_fault is not None:
            raise self.probe_fault

    def ship(self, source: SpanSource, upto: Position, deadline_s: float) -> Acknowledged:
        assert deadline_s > 0
        self._pass()
        self.shipped.append(upto.sequence)
        return self.answer(source, upto)

    def close(self) -> None:
        self.closed += 1


Make = Callable[..., Delivery]


@pytest.fixture
def make() -> Iterator[Make]:
    """Build deliveries that are closed, and fakes that are let go, when the test ends."""
    made: list[tuple[Delivery, tuple[Sink, ...]]] = []

    def build(*sinks: Sink, source: SpansInMemory | None = None, deadline_s: float = PATIENCE_S) -> Delivery:
        delivery = Delivery(
            sinks, source or SpansInMemory(5), probe_deadline_s=deadline_s, ship_deadline_s=deadline_s
        )
        made.append((delivery, sinks))
        return delivery

    yield build
    for delivery, sinks in made:
        delivery.close()
        for sink in sinks:
            if isinstance(sink, FakeSink):
                sink.gate.set()


def why_not(act: Callable[[], None]) -> tuple[str, str]:
    with pytest.raises(AuditUnavailable) as caught:
        act()
    return caught.value.sink, caught.value.reason


@pytest.mark.spec("AUD-02")
def test_without_a_required_sink_there_is_no_delivery() -> None:
    for sinks in ([], [FakeSink("siem", required=False)]):
        with pytest.raises(NoRequiredSink):
            Delivery(sinks, SpansInMemory(1))


def test_two_sinks_of_one_name_and_a_deadline_of_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="name"):
        Delivery([FakeSink("a"), FakeSink("a")], SpansInMemory(1))
    with pytest.raises(ValueError, match="deadline"):
        Delivery([FakeSink("a")], SpansInMemory(1), probe_deadline_s=0)


@pytest.mark.spec("AUD-02", "ADM-03")
def test_every_required_sink_is_probed_and_acknowledges(make: Make) -> None:
    first, second = FakeSink("first"), FakeSink("second")
    delivery = make(first, second)
    delivery.probe()
    delivery.acknowledge(3)
    assert first.shipped == second.shipped == [3]
    assert threading.get_ident() not in first.threads | second.threads
    assert first.threads.isdisjoint(second.threads)


@pytest.mark.spec("AUD-02")
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (SinkUnavailable("second", "no_space", "x"), "no_space"),
        (SinkAhead("second", "ahead", "x"), "ahead"),
        (RuntimeError("canary-4711"), "failed"),
        (SystemExit(1), "failed"),
        (KeyboardInterrupt(), "failed"),
    ],
)
def test_one_sink_that_is_not_ready_is_named_and_does_not_end_its_thread(
    make: Make, fault: BaseException, reason: str
) -> None:
    first, second = FakeSink("first"), FakeSink("second")
    delivery = make(first, second)
    second.probe_fault = fault
    with pytest.raises(AuditUnavailable) as caught:
        delivery.probe()
    assert (caught.value.sink, caught.value.reason) == ("second", reason)
    assert "4711" not in caught.value.message
    second.probe_fault = None
    delivery.probe()


def lies() -> list[tuple[str, Answer]]:
    def said(**changed: object) -> Answer:
        def answer(source: SpanSource, upto: Position) -> Acknowledged:
            true = truthful(source, upto)
            fields = {
                name: getattr(true, name) for name in ("ledger_id", "epoch", "lane", "sequence", "leaf")
            }
            return Acknowledged(**(fields | changed))

        return answer

    def earlier(source: SpanSource, upto: Position) -> Acknowledged:
        before = source.span_at(upto.sequence - 1)
        assert before is not None
        return truthful(source, before.position)

    return [
        ("an earlier span", earlier),
        ("another ledger", said(ledger_id=LedgerId("ldg_other"))),
        ("another epoch", said(epoch=1)),
        ("another lane", said(lane=1)),
        ("another leaf", said(leaf=bytes(32))),
        ("a span that is not there", said(sequence=99)),
        ("nothing", lambda _source, _upto: cast("Acknowledged", None)),
    ]


@pytest.mark.spec("AUD-02")
@pytest.mark.parametrize("answer", [answer for _, answer in lies()], ids=[name for name, _ in lies()])
def test_a_sink_that_acknowledges_something_else_has_not_acknowledged(make: Make, answer: Answer) -> None:
    sink, reason = why_not(lambda: make(FakeSink("liar", answer=answer)).acknowledge(3))
    assert sink == "liar"
    assert reason in {"untrue", "failed"}


@pytest.mark.spec("AUD-02")
def test_a_sink_may_acknowledge_more_than_it_was_asked_for(make: Make) -> None:
    def more(source: SpanSource, upto: Position) -> Acknowledged:
        last = source.span_at(upto.sequence + 2)
        assert last is not None
        return truthful(source, last.position)

    make(FakeSink("eager", answer=more)).acknowledge(3)


@pytest.mark.spec("AUD-02")
def test_a_span_that_the_ledger_does_not_hold_is_not_acknowledged(make: Make) -> None:
    sink = FakeSink("local")
    assert why_not(lambda: make(sink).acknowledge(6)) == ("local", "no_such_span")
    assert sink.shipped == []


@pytest.mark.spec("AUD-02")
def test_nothing_is_answered_from_memory(make: Make) -> None:
    sink = FakeSink("local")
    delivery = make(sink)
    delivery.acknowledge(3)
    sink.answer = lambda _source, _upto: (_ for _ in ()).throw(SinkUnavailable("local", "missing", "x"))
    assert why_not(lambda: delivery.acknowledge(3)) == ("local", "missing")


# ---------------------------------------------------------------------------------------- hanging


@pytest.mark.spec("AUD-02", "AUD-03")
def test_a_sink_that_hangs_costs_its_deadline_once_and_is_busy_until_it_returns(make: Make) -> None:
    hanging, healthy = FakeSink("hanging"), FakeSink("healthy")
    delivery = make(hanging, healthy, deadline_s=0.05)
    hanging.gate.clear()
    assert why_not(lambda: delivery.acknowledge(3)) == ("hanging", "deadline")
    assert healthy.shipped == [3]
    worker = delivery._required[0]
    wait_until(worker._is_hanging)
    # From here on nobody waits: had one been queued, the reason would be its deadline.
    assert why_not(delivery.probe) == ("hanging", "busy")
    assert why_not(lambda: delivery.acknowledge(4)) == ("hanging", "busy")
    assert worker._pending == []
    hanging.gate.set()
    with worker._changed:
        assert worker._changed.wait_for(lambda: worker._overdue_at is None, PATIENCE_S)
    patient = Delivery([hanging, healthy], SpansInMemory(5))
    patient.acknowledge(5)
    patient.close()
    delivery._ship_deadline_s = PATIENCE_S
    delivery.acknowledge(4)


@pytest.mark.spec("AUD-02")
def test_a_caller_that_gave_up_leaves_nothing_behind_in_the_queue_of_a_sink_that_hangs(make: Make) -> None:
    hanging = FakeSink("hanging")
    delivery = make(hanging, deadline_s=0.3)
    hanging.gate.clear()
    first = threading.Thread(target=lambda: why_not(lambda: delivery.acknowledge(3)))
    first.start()
    assert hanging.entered.acquire(timeout=PATIENCE_S)
    assert why_not(lambda: delivery.acknowledge(4))[0] == "hanging"
    first.join(PATIENCE_S)
    assert delivery._required[0]._pending == []


@pytest.mark.spec("AUD-02")
def test_required_sinks_work_at_the_same_time(make: Make) -> None:
    meeting = threading.Barrier(3)

    def meet(source: SpanSource, upto: Position) -> Acknowledged:
        meeting.wait(PATIENCE_S)
        return truthful(source, upto)

    make(*(FakeSink(f"sink-{place}", answer=meet) for place in range(3))).acknowledge(3)


@pytest.mark.spec("AUD-02")
def test_a_best_effort_sink_is_told_and_neither_waited_for_nor_listened_to(make: Make) -> None:
    required = FakeSink("local")
    hanging = FakeSink("siem", required=False)
    broken = FakeSink("copy", required=False, answer=lies()[-1][1])
    hanging.gate.clear()
    delivery = make(required, hanging, broken)
    delivery.probe()
    for sequence in (1, 2, 3, 4, 5):
        delivery.acknowledge(sequence)
    assert required.shipped == [1, 2, 3, 4, 5]
    assert hanging.shipped == []
    assert len(delivery._best_effort[0]._pending) <= 1
    hanging.gate.set()
    assert hanging.entered.acquire(timeout=PATIENCE_S)
    assert hanging.entered.acquire(timeout=PATIENCE_S)


@pytest.mark.spec("AUD-02", "POL-07")
def test_which_sinks_are_waited_for_follows_the_owner_and_is_never_nobody(make: Make) -> None:
    local, siem = FakeSink("local"), FakeSink("siem", required=False)
    delivery = make(local, siem)
    siem.probe_fault = SinkUnavailable("siem", "gone", "It is gone.")
    delivery.probe()
    delivery.require({"siem": True, "nobody": True})
    with pytest.raises(AuditUnavailable) as refused:
        delivery.probe()
    assert refused.value.sink == "siem"
    with pytest.raises(NoRequiredSink):
        delivery.require({"local": False, "siem": False})
    delivery.require({"siem": False})
    delivery.probe()
    delivery.acknowledge(3)
    assert local.shipped == [3]


@pytest.mark.spec("AUD-02", "ADM-03")
def test_what_is_told_to_a_sink_never_stands_for_what_somebody_waits_for(make: Make) -> None:
    sink = FakeSink("local")
    delivery = make(sink)
    sink.gate.clear()
    delivery._required[0].ask(1)
    assert sink.entered.acquire(timeout=PATIENCE_S)
    wish = delivery._required[0].ask(5)
    delivery._required[0].tell(2)
    assert wish.sequence == 5
    sink.gate.set()
    delivery.acknowledge(4)
    assert max(sink.shipped) == 5


# ------------------------------------------------------------------------------- many callers at once


@pytest.mark.spec("AUD-02")
def test_callers_that_wait_at_once_share_one_write(make: Make) -> None:
    sink = FakeSink("local")
    delivery = make(sink, source=SpansInMemory(40))
    sink.gate.clear()
    callers = [threading.Thread(target=delivery.acknowledge, args=(sequence,)) for sequence in range(1, 41)]
    callers[0].start()
    assert sink.entered.acquire(timeout=PATIENCE_S)
    for caller in callers[1:]:
        caller.start()
    worker = delivery._required[0]
    wait_until(lambda: len(worker._pending) == 39)
    sink.gate.set()
    for caller in callers:
        caller.join(PATIENCE_S)
        assert not caller.is_alive()
    assert sink.shipped == [1, 40]


def wait_until(condition: Callable[[], bool]) -> None:
    waited = threading.Event()
    for _ in range(3000):
        if condition():
            return
        waited.wait(0.01)
    pytest.fail("the condition never held")


@pytest.mark.spec("AUD-02")
def test_a_failed_write_fails_those_who_waited_for_it_each_with_a_fault_of_its_own(make: Make) -> None:
    def refuse(_source: SpanSource, _upto: Position) -> Acknowledged:
        raise SinkUnavailable("local", "sync_failed", "x")

    sink = FakeSink("local", answer=refuse)
    delivery = make(sink)
    sink.gate.clear()
    faults: list[AuditUnavailable] = []

    def call() -> None:
        try:
            delivery.acknowledge(3)
        except AuditUnavailable as fault:
            faults.append(fault)

    callers = [threading.Thread(target=call) for _ in range(8)]
    for caller in callers:
        caller.start()
    assert sink.entered.acquire(timeout=PATIENCE_S)
    sink.gate.set()
    for caller in callers:
        caller.join(PATIENCE_S)
    assert [fault.reason for fault in faults] == ["sync_failed"] * 8
    assert len({id(fault) for fault in faults}) == 8


@pytest.mark.spec("AUD-02", "AUD-03")
def test_an_interrupted_caller_leaves_a_write_that_ends_as_it_would_have(tmp_path: Path) -> None:
    """The signal is real: the caller waits for a sink that the test process holds by its lock."""
    path = tmp_path / "audit.jsonl"
    create(path, LEDGER)
    script = """
import signal, sys, threading
from pathlib import Path
from audit.delivery import Delivery
from audit.sinks.jsonl import JsonlSink
from tests.support.spans import LEDGER, SpansInMemory

class Announcing(JsonlSink):
    def ship(self, source, upto, deadline_s):
        print("shipping", flush=True)
        said = super().ship(source, upto, deadline_s)
        print("shipped", said.sequence, flush=True)
        return said

signal.signal(signal.SIGINT, signal.default_int_handler)
delivery = Delivery([Announcing(Path(sys.argv[1]), LEDGER, name="local", required=True)], SpansInMemory(3),
                    ship_deadline_s=30.0)
try:
    delivery.acknowledge(3)
except KeyboardInterrupt:
    print("interrupted", flush=True)
sys.stdin.read()
delivery.acknowledge(3)
"""
    lock = os.open(path, os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)],
        cwd=HOUSE,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stdout.readline() == "shipping\n"
        child.send_signal(2)
        assert child.stdout.readline() == "interrupted\n"
        os.close(lock)
        assert child.stdout.readline() == "shipped 3\n"
        assert sequences_in(path) == [1, 2, 3]
        child.stdin.close()
        assert child.wait(PATIENCE_S) == 0


# --------------------------------------------------------------------------------- forks and the end


@pytest.mark.spec("AUD-03")
def test_a_forked_child_is_refused() -> None:
    script = """
import os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of exactly what is tried here
from audit.delivery import Delivery
from audit.errors import AuditUnavailable
from tests.support.spans import SpansInMemory
from tests.unit.test_audit_delivery import FakeSink
delivery = Delivery([FakeSink("local")], SpansInMemory(3))
delivery.acknowledge(1)
child = os.fork()
if child == 0:
    refused = 0
    for act in (delivery.probe, lambda: delivery.acknowledge(2)):
        try:
            act()
        except AuditUnavailable as fault:
            refused += fault.reason == "forked"
    os._exit(17 if refused == 2 else 18)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
delivery.acknowledge(2)
"""
    subprocess.run([sys.executable, "-c", script], cwd=HOUSE, check=True, timeout=60)


@pytest.mark.spec("AUD-02")
def test_a_closed_delivery_refuses(make: Make) -> None:
    delivery = make(FakeSink("local"))
    delivery.acknowledge(1)
    delivery.close()
    assert why_not(delivery.probe) == ("local", "closed")


@pytest.mark.spec("AUD-02", "AUD-03")
def test_a_hanging_sink_does_not_keep_the_process_alive() -> None:
    script = """
from audit.delivery import Delivery
from audit.errors import AuditUnavailable
from tests.support.spans import SpansInMemory
from tests.unit.test_audit_delivery import FakeSink
sink = FakeSink("local")
sink.gate.clear()
delivery = Delivery([sink], SpansInMemory(3), ship_deadline_s=0.05)
try:
    delivery.acknowledge(1)
except AuditUnavailable as fault:
    assert fault.reason == "deadline"
delivery.close()
"""
    subprocess.run([sys.executable, "-c", script], cwd=HOUSE, check=True, timeout=20)


@pytest.mark.spec("AUD-02", "ADM-03")
def test_the_file_sink_behind_the_gate_holds_every_span_once(tmp_path: Path, make: Make) -> None:
    path = tmp_path / "audit.jsonl"
    create(path, LEDGER)
    source = SpansInMemory(60)
    delivery = make(JsonlSink(path, LEDGER, name="local", required=True, free_bytes_min=0), source=source)
    delivery.probe()
    callers = [threading.Thread(target=delivery.acknowledge, args=(sequence,)) for sequence in range(1, 61)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(PATIENCE_S)
    assert sequences_in(path) == list(range(1, 61))
