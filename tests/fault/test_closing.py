"""Closing takes one bounded time whatever hangs, finds nothing out, and leaves what happened to be seen (INV-03)."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from issuer import Issuer
from issuer.closing import CLOSE_BUDGET_S
from issuer.places import Places
from ledger.changes import Step
from ledger.errors import LedgerUnavailable
from ledger.model import EffectId, InstantMs
from ledger.port import Verdict, View
from ledger.transitions import Transition, TransitionName
from tests.support.cases import state_of
from tests.support.invoking import MINUTE_MS, StandingClock
from tests.support.issuers import Made, permitted, refund, standard_issuer
from tests.support.ledgers import attacker
from tests.support.service import Service
from tests.support.sinks import FaultySink, hangs
from tests.support.transitions import soak_issuer

PATIENCE_S = 30.0


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as opened:
        yield opened


@pytest.fixture
def made(tmp_path: Path, service: Service) -> Made:
    return standard_issuer(tmp_path / "f0", port=service.port)


def seconds_to_close(issuer: Issuer) -> float:
    began = time.monotonic()
    issuer.close()
    return time.monotonic() - began


def locks(made: Made) -> list[str]:
    return [path.name for path in Places(made.profile).instances.iterdir()]


def test_closing_lets_go_of_everything_even_where_its_lock_file_cannot_be_removed(tmp_path: Path) -> None:
    """What a command was answered must not be lost to an exception of `with Issuer.open(...)`."""
    made = soak_issuer(tmp_path / "i")
    issuer = made.open()
    instances = Places(made.profile).instances
    instances.rename(tmp_path / "away")
    instances.touch()
    issuer.close()
    with pytest.raises(LedgerUnavailable):
        issuer._house.ledger.read(lambda view: view.head())


@pytest.mark.spec("INV-03")
def test_a_read_that_never_comes_back_holds_closing_up_for_its_budget_and_no_longer(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("issuer.closing.CLOSE_BUDGET_S", 0.5)
    issuer = made.open()
    reading, free = threading.Event(), threading.Event()

    def look(_view: View) -> None:
        reading.set()
        free.wait()

    reader = threading.Thread(target=lambda: issuer._house.ledger.read(look))
    reader.start()
    try:
        assert reading.wait(PATIENCE_S)
        assert seconds_to_close(issuer) < 0.5 + CLOSE_BUDGET_S
        # What could not be asked is not called closed well: the next start looks.
        assert len(locks(made)) == 1
    finally:
        free.set()
        reader.join(PATIENCE_S)


@pytest.mark.spec("INV-03", "LED-01")
def test_a_transaction_that_is_under_way_ends_before_the_ledger_is_closed(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("issuer.closing.CLOSE_BUDGET_S", 0.5)
    issuer = made.open()
    ledger, inside, free = issuer._house.ledger, threading.Event(), threading.Event()
    done: list[int] = []

    def decide(view: View, _now: InstantMs) -> Verdict[None]:
        inside.set()
        free.wait()
        probing = Transition(name=TransitionName.PROBE, story=view.head().ledger_id)
        return Verdict(value=None, steps=(Step(transition=probing),))

    writer = threading.Thread(target=lambda: done.append(ledger.transact(decide).sequence))
    writer.start()
    try:
        assert inside.wait(PATIENCE_S)
        assert seconds_to_close(issuer) < 0.5 + CLOSE_BUDGET_S
    finally:
        free.set()
        writer.join(PATIENCE_S)
    with made.open() as again:
        assert done == [again._house.ledger.read(lambda view: view.head()).sequence]


@pytest.mark.spec("INV-03", "ADM-03", "REP-04")
def test_a_sink_that_hangs_keeps_nobody_from_closing_and_what_waited_for_it_was_not_sent(
    made: Made, service: Service
) -> None:
    sink = FaultySink()
    issuer = made.open(further_sinks=(sink,))
    effect = permitted(refund(issuer, amount=100))
    sink.fail(hangs, probe=False)
    sender = threading.Thread(target=lambda: issuer.commit(effect))
    sender.start()
    try:
        until = time.monotonic() + PATIENCE_S
        while state_of(issuer, effect) != "admitted":
            assert time.monotonic() < until
        assert seconds_to_close(issuer) < CLOSE_BUDGET_S + 1
    finally:
        sender.join(PATIENCE_S)
        sink.recover()
    assert not sender.is_alive()
    assert service.effects == ()
    with made.open() as again:
        assert again.show(effect).state in {"no_effect", "unknown"}


@pytest.mark.spec("INV-03", "ADM-07")
def test_closing_settles_and_sweeps_nothing(made: Made) -> None:
    clock = StandingClock()
    issuer = made.open(clock=clock)
    effect = permitted(issuer.request("publish", {"name": "v1"}, task="t1", actor="agent-7"))
    assert issuer.admit(effect).code == "admitted"
    clock.ahead_ms = 10 * MINUTE_MS  # its sender is overdue, and its permit over
    spans = issuer._house.ledger.read(lambda view: view.head()).sequence
    issuer.close()
    raw = attacker(made.ledger)
    assert raw.execute("SELECT max(sequence) FROM spans").fetchone() == (spans,)
    assert raw.execute("SELECT state FROM effects WHERE effect_id = ?", (EffectId(effect),)).fetchone() == (
        "admitted",
    )
    raw.close()
