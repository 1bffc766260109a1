"""An issuer's ledger made to grow, and what one admission costs in it: pages read and written, and time of the CPU.

Run as `python -m tests.support.growth PROFILE MARKS COUNT`, it admits COUNT effects one by one, each between two marks,
for a tracer of system calls to see. The cache of pages is thrown away before each, so that what is counted is what an
admission needs and not what is left from the one before. Sinks are not waited for: they do not grow it.
"""

import os
import statistics
import sys
import time
from pathlib import Path

from audit import JsonlSink, LedgerSpans
from issuer.api import Issuer
from issuer.flow.admit import Attempt, admit, winner_outside
from issuer.flow.reference import bound_operation, open_binding
from issuer.sealing import open_key_ring
from issuer.sealing.authenticator import RingAuthenticator
from ledger.changes import Step
from ledger.model import EffectId
from ledger.sqlite import SqliteLedger
from ledger.transitions import Transition, TransitionName
from tests.support.full_ledger import Maker, quick_recorder
from tests.support.issuers import Made, open_task, permitted
from tests.support.ledgers import commit_steps

MARK = b"mark\n"
BATCH = 250
SPANS_A_BATCH = 5_000
UNIT = "USD.cent"
SHIP_S = 600.0


def grow(made: Made, *, effects: int, spans: int) -> None:
    """Add effects with their whole way, in a task of their own, and spans of no effect, up to `spans` in all."""
    with made.open() as issuer:
        open_task(issuer, "grown", parent=None, budget={UNIT: 10**9}, subject="u-ana", actors=["agent-7"])
        now = issuer._house.now()
    ledger = SqliteLedger(
        made.ledger,
        recorder=quick_recorder,
        keys=RingAuthenticator(open_key_ring(made.folder / "keys")),
        clock=lambda: now,
    )
    try:
        task = ledger.read(lambda view: view.task_named("grown"))
        assert task is not None
        maker = Maker(made.folder, ledger, (task,), unit=UNIT)
        for first in range(0, effects, BATCH):
            steps = tuple(
                step for number in range(first, min(effects, first + BATCH)) for step in maker.steps(number)
            )
            commit_steps(ledger, *steps)
        probe = Step(transition=Transition(name=TransitionName.PROBE, story=ledger.ledger_id))
        while (missing := spans - ledger.read(lambda view: view.head().sequence)) > 0:
            commit_steps(ledger, *(probe,) * min(missing, SPANS_A_BATCH))
        # A sink that lacks more than a few thousand spans keeps everybody waiting.
        sink = JsonlSink(made.sink, ledger.ledger_id, name="local", required=True)
        sink.ship(LedgerSpans(ledger), ledger.read(lambda view: view.head()), SHIP_S)
        sink.close()
    finally:
        ledger.close()


def permits(issuer: Issuer, count: int, *, name: str) -> list[str]:
    """Ask for permits of effects that the host would send."""
    return [
        permitted(issuer.request("publish", {"name": f"{name}-{number}"}, task="t1", actor="agent-7"))
        for number in range(count)
    ]


def admit_one(issuer: Issuer, reference: str) -> int:
    """Admit one effect and send nothing; return the nanoseconds of CPU that the transaction took."""
    house = issuer._house
    effect = house.ledger.read(lambda view: view.effect(EffectId(reference)))
    assert effect is not None
    pinned = open_binding(house, effect, bound_operation(house, effect))
    attempt = Attempt(pinned=pinned, winner=winner_outside(), target=None)
    began = time.process_time_ns()
    committed = admit(issuer._visit("admit"), effect, attempt)
    took = time.process_time_ns() - began
    assert committed.value.claim is not None, committed
    return took


def median_admission_ns(issuer: Issuer, count: int, *, name: str) -> float:
    """Return the median of the CPU that `count` admissions took, after a first that is not counted."""
    first, *rest = [admit_one(issuer, reference) for reference in permits(issuer, count + 1, name=name)]
    del first
    return statistics.median(rest)


def main(profile: str, marks: str, count: int) -> None:
    """Admit, with a mark before, between and after, and an empty cache at each."""
    descriptor = os.open(marks, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with Issuer.open(Path(profile)) as issuer:
        references = permits(issuer, count + 1, name="traced")
        for reference in references:
            issuer._house.ledger.beneath._raw.execute("PRAGMA shrink_memory")  # type: ignore[attr-defined]
            os.write(descriptor, MARK)
            admit_one(issuer, reference)
        os.write(descriptor, MARK)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
