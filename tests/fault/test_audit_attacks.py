"""What silenced, delayed or doubled other people's audit trails, done to ours (`tests/unit/test_audit_reports.py`).

Each test holds the same three things: nothing is sent in a failure before the send, nothing is called a success that is
not on record, and nothing is sent twice afterwards (AUD-01 to AUD-03).
"""

import asyncio
import random
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest
from opentelemetry import trace as host_trace
from opentelemetry.sdk.trace import SynchronousMultiSpanProcessor, TracerProvider

from audit import Delivery, LedgerSpans, timeline
from issuer import Issuer
from issuer.clock import now_ms
from issuer.flow import spans as flow_spans
from ledger.model import EffectId
from ledger.sqlite.connection import DRIVER
from ledger.states import LEGAL_MOVES, EffectState
from ledger.transitions import TransitionName
from tests.support.cases import Clock, books, length, state_of, trail
from tests.support.issuers import Made, permitted, refund, standard_issuer
from tests.support.kills import WAY
from tests.support.service import Service, accept_then_close, answer
from tests.support.sinks import FaultySink, hangs

DAY_MS: Final = 86_400_000
SOON_S: Final = 20.0


class NobodyWaits(FaultySink):
    """A sink that is told and not waited for."""

    required = False  # type: ignore[misc]  # what it is at all


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as opened:
        yield opened


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """An issuer for tests that leave nothing unknown and nothing frozen behind; its service is each test's own."""
    return standard_issuer(tmp_path_factory.mktemp("attacks") / "f0", port=9)


@pytest.fixture
def served(tmp_path: Path, service: Service) -> Made:
    return standard_issuer(tmp_path / "f0", port=service.port)


def sent_once(issuer: Issuer, service: Service, order: str) -> str:
    """Have one effect done, and everything of it on record once; return it."""
    service.then(answer(201))
    effect = permitted(refund(issuer, order=order, amount=1))
    assert issuer.commit(effect).code == "succeeded"
    assert issuer.commit(effect).code == "succeeded"
    assert service.effects_of(effect) == 1
    names = [entry.name for entry in issuer._house.ledger.read(lambda view: timeline(view, effect))]
    assert names[:4] == ["effect.prepared", "effect.permitted", "effect.admitted", "effect.succeeded"]
    return effect


# --------------------------------------------------------------------------------------- the host around us


@pytest.mark.spec("AUD-03", "SEC-01")
def test_a_host_that_instruments_every_connection_to_sqlite_sees_none_of_ours(
    served: Made, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []

    def traced(*arguments: object, **_more: object) -> object:
        seen.append(arguments)
        raise RuntimeError("a bug in the host's own instrumentation")

    import sqlite3  # noqa: PLC0415 - the host's module, wherever ours comes from
    import sqlite3.dbapi2  # noqa: PLC0415

    for module in (sqlite3, sqlite3.dbapi2, DRIVER):
        monkeypatch.setattr(module, "connect", traced)
    with served.open() as issuer:
        sent_once(issuer, service, "o-1")
        assert issuer.list().code == "found"
    assert seen == []


@pytest.mark.spec("AUD-03", "AUD-05")
def test_a_host_that_reseeds_its_random_numbers_makes_no_two_spans_or_effects_alike(
    served: Made, service: Service
) -> None:
    effects = []
    for _ in range(2):
        random.seed(42)
        with served.open() as issuer:
            effects.append(sent_once(issuer, service, "o-1"))
    with served.open() as issuer:
        rows = LedgerSpans(issuer._house.ledger).spans_after(0, limit=1000)
    assert len(set(effects)) == 2
    assert len({row.span_id for row in rows}) == len(rows)


class _Hostile(TracerProvider):
    """A host's provider that lets nobody have a tracer."""

    def get_tracer(self, *_arguments: object, **_more: object) -> Any:
        raise RuntimeError("the host's provider")


@pytest.mark.spec("AUD-03")
def test_a_hosts_global_provider_is_not_asked_and_exchanging_it_changes_nothing(
    served: Made, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served.open() as issuer:
        sent_once(issuer, service, "o-1")
        monkeypatch.setattr(host_trace, "_TRACER_PROVIDER", _Hostile())
        sent_once(issuer, service, "o-2")
    with served.open() as issuer:
        sent_once(issuer, service, "o-3")


def _swallowed(self: SynchronousMultiSpanProcessor, span: object) -> None:
    """As a later SDK may: no processor is heard, and nothing is raised."""
    del self, span


def _spoilt(self: SynchronousMultiSpanProcessor, span: Any, parent_context: object = None) -> None:
    """As a processor of the host's may: another value, and nothing is raised."""
    del self, parent_context
    span.set_attribute("permit.actor", "nobody")


_SPOILING: Final = {"on_start": _spoilt, "on_end": _swallowed}


@pytest.mark.spec("AUD-01", "ADM-03")
@pytest.mark.parametrize("method", _SPOILING)
def test_an_sdk_that_swallows_what_its_processors_say_is_no_span_and_nothing_is_sent(
    made: Made, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with made.open() as issuer:
        effect = permitted(refund(issuer, order=f"swallow-{method}", amount=1))
        before, line = length(issuer), books(issuer)
        monkeypatch.setattr(SynchronousMultiSpanProcessor, method, _SPOILING[method])
        told = [
            issuer.commit(effect),
            refund(issuer, order="other", amount=1),
            issuer.revoke("effect", effect),
        ]
        assert [one.code for one in told] == ["audit_unavailable"] * 3
        assert (length(issuer), books(issuer), state_of(issuer, effect)) == (before, line, "permitted")
        monkeypatch.undo()
        assert issuer.revoke("effect", effect).code == "revoked_now"


# ------------------------------------------------------------------------------------- callers that go away


@pytest.mark.spec("AUD-03", "ADM-07", "REP-05")
def test_a_caller_whose_task_is_cancelled_at_any_step_loses_no_outcome(
    served: Made, service: Service
) -> None:
    reached: dict[str, threading.Event] = {}
    wanted = {"step": ""}
    count = {"seen": 0}

    def observe(step: str) -> None:
        if wanted["step"]:
            count["seen"] += 1
            if count["seen"] == WAY.index(wanted["step"]) + 1:
                reached["now"].set()
                reached["go"].wait(SOON_S)

    async def cancelled(issuer: Issuer, effect: str) -> None:
        task = asyncio.create_task(asyncio.to_thread(issuer.commit, effect))
        await asyncio.to_thread(reached["now"].wait, SOON_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        reached["go"].set()

    with served.open(observe=observe) as issuer:
        for number, step in enumerate(WAY):
            effect = permitted(refund(issuer, order=f"o-{number}", amount=1))
            service.then(answer(201))
            reached.update(now=threading.Event(), go=threading.Event())
            wanted["step"], count["seen"] = step, 0
            asyncio.run(cancelled(issuer, effect))
            wanted["step"] = ""
            assert reached["now"].is_set(), step
            until = time.monotonic() + SOON_S
            while state_of(issuer, effect) != "succeeded" and time.monotonic() < until:
                time.sleep(0.01)  # the thread of the cancelled caller goes on
            assert (state_of(issuer, effect), service.effects_of(effect)) == ("succeeded", 1), step
            assert issuer.commit(effect).code == "succeeded"


# ------------------------------------------------------------------------------------------ sinks that fail


@pytest.mark.spec("AUD-02", "ADM-05")
def test_while_a_sink_hangs_looking_revoking_and_expiring_go_on(served: Made, service: Service) -> None:
    clock, sink = Clock(), FaultySink()
    with served.open(clock=clock, further_sinks=[sink]) as issuer:
        sent, revoked, expiring = (permitted(refund(issuer, order=f"o-{n}", amount=1)) for n in range(3))
        sink.fail(hangs, probe=False)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(issuer.commit, sent)
            while not sink.ships:
                time.sleep(0.01)  # until the sender waits for it
            began = time.monotonic()
            assert issuer.show(sent).code == "found"
            assert issuer.list().code == issuer.timeline(sent).code == "found"
            assert issuer.revoke("effect", revoked).code == "revoked_now"
            assert time.monotonic() - began < SOON_S
            assert waiting.result(SOON_S).code == "prepare_again"
        clock.ahead_ms = 11 * 60_000
        assert issuer.show(expiring).state == "expired"
        assert [state_of(issuer, one) for one in (sent, revoked)] == ["no_effect", "revoked"]
        assert service.connections == 0
        sink.recover()
        sent_once(issuer, service, "o-9")


@pytest.mark.spec("AUD-02")
def test_a_sink_that_nobody_waits_for_delays_no_dispatch_even_where_it_hangs(
    served: Made, service: Service
) -> None:
    sink = NobodyWaits()
    sink.fail(hangs)
    with served.open(further_sinks=[sink]) as issuer:
        began = time.monotonic()
        for number in range(4):
            sent_once(issuer, service, f"o-{number}")
        assert time.monotonic() - began < SOON_S
        assert sink.sequences == []
        sink.recover()


@pytest.mark.spec("AUD-02", "LED-02")
def test_ten_thousand_spans_that_a_sink_does_not_take_need_no_more_memory_than_one(made: Made) -> None:
    slow, quick = NobodyWaits("slow"), FaultySink("quick")
    slow.fail(hangs)
    with made.open() as issuer:
        source = LedgerSpans(issuer._house.ledger)
        delivery = Delivery([quick, slow], source)
        last = length(issuer)
        delivery.acknowledge(last)
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(10_000):
                for worker in delivery._best_effort:
                    worker.tell(last)
            grown = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        slow.recover()
        delivery.close()
    assert grown < 256 * 1024


@pytest.mark.spec("AUD-02", "LED-04", "AUD-06")
def test_with_a_dead_sink_an_issuer_opens_and_shows_everything_and_permits_nothing(
    served: Made, service: Service
) -> None:
    with served.open() as issuer:
        effect = permitted(refund(issuer, order="o-1", amount=1))
    away = served.sink.with_suffix(".away")
    served.sink.rename(away)
    with served.open() as issuer:
        assert [told.code for told in (issuer.show(effect), issuer.list(), issuer.timeline(effect))] == [
            "found"
        ] * 3
        assert [issuer.commit(effect).code, refund(issuer, order="o-2").code] == ["audit_unavailable"] * 2
        assert service.connections == 0
        assert issuer.revoke("effect", effect).code == "revoked_now"
        away.rename(served.sink)
        sent_once(issuer, service, "o-3")


# -------------------------------------------------------------------------------------------- what is counted


@pytest.mark.spec("AUD-01", "AUD-02", "AUD-04")
def test_sixteen_writers_leave_as_many_rows_as_lines_as_leaves(served: Made) -> None:
    def write(number: int) -> list[str]:
        with served.open() as issuer:
            effects = [permitted(refund(issuer, order=f"o-{number}-{n}", amount=1)) for n in range(2)]
            assert issuer.show("eff_" + "0" * 32).code == "not_found"
            claims = [issuer.request("publish", {"name": f"{number}"}, task="t1", actor="agent-7")]
            assert issuer.admit(permitted(claims[0])).code == "admitted"
            return effects

    with ThreadPoolExecutor(16) as pool:
        effects = [effect for several in pool.map(write, range(16)) for effect in several]
    with served.open() as issuer:
        permitted(refund(issuer, order="last", amount=1))
        assert issuer.admit(
            permitted(issuer.request("publish", {"name": "z"}, task="t1", actor="agent-7"))
        ).code
        rows = LedgerSpans(issuer._house.ledger).spans_after(0, limit=10_000)
        head = issuer._house.ledger.read(lambda view: view.head())
    lines = [line for line in served.sink.read_bytes().splitlines() if b'"name":"permit.' in line]
    assert len(set(effects)) == 32
    assert [row.position.sequence for row in rows] == list(range(1, len(rows) + 1))
    assert len(rows) == len(lines) == head.sequence
    assert all(row.body in line for row, line in zip(rows, lines, strict=True))


@pytest.mark.spec("AUD-01", "LED-05")
def test_every_move_of_an_effect_has_one_kind_of_span_and_no_other(made: Made) -> None:
    with made.open() as issuer:
        visit = issuer._visit("show")
        effect_id = permitted(refund(issuer, order="moves", amount=1))
        effect = issuer._house.ledger.read(lambda view: view.effect(EffectId(effect_id)))
        assert effect is not None
        reached: dict[EffectState, set[TransitionName]] = {state: set() for state in EffectState}
        for targets in LEGAL_MOVES.values():
            for target in targets:
                moved = flow_spans.moved(visit, effect, target)
                assert moved.state_to is target
                reached[target].add(moved.name)
        reached[EffectState.PREPARED].add(flow_spans.moved(visit, effect, EffectState.PREPARED).name)
    assert all(len(names) == 1 for names in reached.values())
    assert len({name for names in reached.values() for name in names}) == len(EffectState)


@pytest.mark.spec("AUD-01", "ADM-02", "PER-01")
def test_a_denial_a_replay_and_a_move_that_there_is_not_each_leave_a_row(
    served: Made, service: Service
) -> None:
    with served.open() as issuer:
        done = sent_once(issuer, service, "o-1")
        other = permitted(refund(issuer, order="o-2", amount=1))
        assert issuer.withdraw(other).state == "withdrawn"
        acts: list[tuple[str, Callable[[], Any]]] = [
            ("denied", lambda: refund(issuer, order="o-3", amount=999_999, task="org")),
            ("replay", lambda: issuer.admit(done)),
            ("illegal", lambda: issuer.commit(other)),
            ("illegal", lambda: issuer.withdraw(done)),
            ("unknown", lambda: issuer.commit("eff_" + "0" * 32)),
        ]
        for what, act in acts:
            before = length(issuer)
            told = act()
            assert told.exit != 0 or told.code == "succeeded", what
            names = [entry.name for entry in trail(issuer, before)]
            assert names, what
            assert set(names) <= {"effect.prepared", "effect.denied", "refused"}, what
        assert service.effects_of(done) == 1


@pytest.mark.spec("AUD-05", "REC-04")
def test_an_effect_that_goes_on_for_ten_days_tells_its_whole_story(served: Made, service: Service) -> None:
    clock = Clock()
    with served.open(clock=clock) as issuer:
        effect = permitted(refund(issuer, order="o-1", amount=1))
        service.then(accept_then_close())
        assert issuer.commit(effect).code == "outcome_unknown"
    for day in range(1, 11):
        clock.ahead_ms = day * DAY_MS
        with served.open(clock=clock) as issuer:
            assert issuer.show(effect).state == "unknown"
    with served.open(clock=clock) as issuer:
        assert issuer.acknowledge(effect, reason="checked").code == "acknowledged"
        story = issuer._house.ledger.read(lambda view: view.story(effect))
        names = [entry.name for entry in issuer._house.ledger.read(lambda view: timeline(view, effect))]
    assert names[:4] == ["effect.prepared", "effect.permitted", "effect.admitted", "effect.unknown"]
    assert names[-1] == "effect.acknowledged"
    assert len({row.trace_id for row in story}) == 1
    assert story[-1].at_ms - story[0].at_ms >= 10 * DAY_MS - 60_000
    assert now_ms() < story[-1].at_ms
