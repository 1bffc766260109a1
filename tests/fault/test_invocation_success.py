"""An invocation succeeds only where every effect, every obligation and every required sink lets it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from audit import Acknowledged
from issuer import Issuer
from issuer.surfaces.cli.output import render
from issuer.wire import Answer
from ledger.transitions import TransitionName
from tests.support.invoking import (
    DUTY,
    MINUTE_MS,
    StandingClock,
    begun,
    done_in,
    obliging_issuer,
    outcome,
    spans_of,
    told,
)
from tests.support.issuers import Made, permitted, refund, standard_issuer
from tests.support.service import Service, accept_then_close, answer
from tests.support.sinks import RAISING, FaultySink


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as opened:
        yield opened


@pytest.fixture
def clock() -> StandingClock:
    return StandingClock()


@pytest.fixture
def made(tmp_path: Path, service: Service) -> Made:
    return standard_issuer(tmp_path / "f0", port=service.port)


@pytest.fixture
def issuer(made: Made, clock: StandingClock) -> Iterator[Issuer]:
    with made.open(clock=clock) as opened:
        yield opened


def against(said: Answer) -> tuple[str, object, object]:
    return said.code, said.more.get("level"), said.more.get("field")


@pytest.mark.spec("INV-02")
def test_success_needs_every_effect_settled_as_succeeded(
    issuer: Issuer, clock: StandingClock, service: Service
) -> None:
    invocation = begun(issuer, clock)
    done_in(issuer, service, invocation)
    denied = refund(issuer, order="o-2", amount=600, invocation=invocation)
    assert denied.code == "awaiting_approval"
    length = issuer._house.ledger.read(lambda view: view.head()).sequence
    refused = issuer.invocation_end(invocation, "succeeded")
    assert against(refused) == ("invocation_unsettled", denied.effect, "awaiting_approval")
    story = issuer._house.ledger.read(lambda view: view.spans_after(length, limit=10))
    assert [span.name for span in story] == [TransitionName.REFUSED]
    assert denied.effect is not None
    assert issuer.withdraw(denied.effect).code == "withdrawn_now"  # nothing of it was sent
    ended = issuer.invocation_end(invocation, "succeeded")
    assert (ended.code, told(ended)["outcome"]) == ("ended", "succeeded")


@pytest.mark.spec("INV-02", "REC-01")
@pytest.mark.parametrize(
    ("step", "state"), [(answer(409), "failed"), (answer(402), "no_effect"), (accept_then_close(), "unknown")]
)
def test_an_effect_that_did_not_succeed_stands_against_success_and_not_against_failure(
    issuer: Issuer, clock: StandingClock, service: Service, step: Any, state: str
) -> None:
    invocation = begun(issuer, clock)
    effect = permitted(refund(issuer, amount=100, invocation=invocation))
    service.then(step)
    issuer.commit(effect)
    assert against(issuer.invocation_end(invocation, "succeeded")) == ("invocation_unsettled", effect, state)
    assert outcome(issuer, invocation) is None
    assert issuer.invocation_end(invocation, "failed_application").code == "ended"


@pytest.mark.spec("INV-02", "EFF-09")
def test_success_needs_each_obligation_closed_in_time(
    tmp_path: Path, clock: StandingClock, service: Service
) -> None:
    made = obliging_issuer(tmp_path / "f1", port=service.port)
    with made.open(clock=clock) as issuer:
        invocation = begun(issuer, clock)
        effect = done_in(issuer, service, invocation)
        assert against(issuer.invocation_end(invocation, "succeeded")) == (
            "invocation_unsettled",
            effect,
            DUTY,
        )
        done = issuer.obligation_done(effect, DUTY)
        assert (done.code, done.more["late"]) == ("obligation_closed", False)
        assert issuer.obligation_done(effect, DUTY).code == "nothing_to_change"
        assert issuer.obligation_done(effect, "other").code == "unknown_reference"
        assert issuer.invocation_end(invocation, "succeeded").code == "ended"
        late = begun(issuer, clock)
        effect = done_in(issuer, service, late, order="o-2")
        clock.ahead_ms = 30 * MINUTE_MS
        listed = issuer.list()
        assert f"obligation {DUTY}: overdue" in render(listed)
        rows = listed.more["effects"]
        assert isinstance(rows, list)
        assert {row["effect"]: row["obligations"] for row in rows}[effect] == {DUTY: "overdue"}
        record = issuer.show(effect).more["record"]
        assert isinstance(record, dict)
        assert [row["overdue"] for row in record["obligations"]] == [True]
        done = issuer.obligation_done(effect, DUTY)
        assert (done.code, done.more["late"]) == ("obligation_closed", True)
        assert issuer.invocation_end(late, "succeeded").code == "invocation_unsettled"
        assert spans_of(issuer, effect)[-1] == TransitionName.OBLIGATION_DONE
    assert Issuer.ledger_check(made.profile).more["findings"] == []


@pytest.mark.spec("INV-02", "AUD-02")
def test_success_needs_every_required_sink_to_have_the_spans(
    made: Made, clock: StandingClock, service: Service
) -> None:
    sink = FaultySink()
    with made.open(clock=clock, further_sinks=(sink,)) as issuer:
        invocation = begun(issuer, clock)
        done_in(issuer, service, invocation)
        sink.fail(RAISING["unavailable"])
        assert issuer.invocation_end(invocation, "succeeded").code == "audit_unavailable"
        assert outcome(issuer, invocation) is None
        assert issuer.invocation_end(invocation, "failed_execution").code == "ended"


@pytest.mark.spec("INV-02", "AUD-02")
def test_what_is_told_while_the_sinks_are_heard_is_heard_as_well_before_success(
    tmp_path: Path, clock: StandingClock, service: Service
) -> None:
    sink, shipped = FaultySink(), list[int]()
    made = obliging_issuer(tmp_path / "f1", port=service.port)
    with made.open(clock=clock, further_sinks=(sink,)) as issuer:
        invocation = begun(issuer, clock)
        effect = done_in(issuer, service, invocation)

        def ship(_sink: FaultySink, honest: Acknowledged | None) -> Acknowledged | None:
            assert honest is not None
            shipped.append(honest.sequence)
            if len(shipped) == 1:
                assert issuer.obligation_done(effect, DUTY).code == "obligation_closed"
            return honest

        sink.fail(ship, probe=False)
        assert issuer.invocation_end(invocation, "succeeded").code == "ended"
        story = issuer._house.ledger.read(lambda view: view.story(effect))
        assert story[-1].name == TransitionName.OBLIGATION_DONE
        assert shipped[0] < story[-1].position.sequence <= shipped[-1]
