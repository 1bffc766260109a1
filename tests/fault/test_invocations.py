"""Invocations: effects name an open one, it ends once, and nothing that is not settled lets it succeed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from issuer import Issuer
from issuer.flow.binding import stored_member
from issuer.flow.steps import Reached
from ledger.invocations import INVOCATION_MS_MAX, OPEN_PER_TASK_MAX
from ledger.model import EffectId, InstantMs, InvocationId
from ledger.transitions import TransitionName
from tests.support.cases import books, state_of
from tests.support.invoking import (
    HOUR_MS,
    MINUTE_MS,
    StandingClock,
    begun,
    outcome,
    spans_of,
    told,
)
from tests.support.issuers import Made, permitted, refund, standard_issuer
from tests.support.revised import activated
from tests.support.service import Service


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


# ------------------------------------------------------------------------------------------- opening


@pytest.mark.spec("INV-01", "AUD-01")
def test_an_invocation_is_opened_shown_and_listed_and_has_a_story_of_its_own(
    issuer: Issuer, clock: StandingClock
) -> None:
    invocation = begun(issuer, clock)
    shown = told(issuer.invocation_show(invocation))
    assert (shown["task"], shown["actor"], shown["outcome"], shown["effects"]) == ("t1", "agent-7", None, [])
    listed = issuer.invocation_list().more["invocations"]
    assert isinstance(listed, list)
    assert [row["id"] for row in listed] == [invocation]
    assert spans_of(issuer, invocation) == [TransitionName.INVOCATION_OPENED]


@pytest.mark.spec("INV-01")
@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"task": "nowhere"}, "unknown_reference"),
        ({"task": "\x00"}, "malformed"),
        ({"actor": "nobody"}, "unknown_reference"),
        ({"actor": "agent-8", "task": "t1.a"}, "forbidden"),
        ({"deadline_ms": 0}, "malformed"),
        ({"deadline_ms": "soon"}, "malformed"),
        ({"deadline_ms": True}, "malformed"),
        ({"within_ms": 0}, "malformed"),
        ({"within_ms": INVOCATION_MS_MAX + 1}, "malformed"),
    ],
    ids=str,
)
def test_what_cannot_be_an_invocation_is_refused_and_nothing_is_kept_of_it(
    issuer: Issuer, clock: StandingClock, changed: dict[str, Any], code: str
) -> None:
    within_ms = changed.get("within_ms", HOUR_MS)
    asked = {"task": "t1", "actor": "agent-7", "deadline_ms": clock() + within_ms, **changed}
    asked.pop("within_ms", None)
    assert issuer.invocation_open(**asked).code == code
    assert issuer.invocation_list().more["invocations"] == []


@pytest.mark.spec("INV-02", "BUD-05")
@pytest.mark.parametrize(("stopped", "code"), [("task_close", "task_closed"), ("task_freeze", "task_frozen")])
def test_one_that_cannot_start_is_rejected_and_that_is_its_outcome_for_ever(
    issuer: Issuer, clock: StandingClock, stopped: str, code: str
) -> None:
    getattr(issuer, stopped)("t1")
    said = issuer.invocation_open("t1.a", "agent-7", InstantMs(clock() + HOUR_MS))
    assert (said.code, said.more["level"], told(said)["outcome"]) == (code, "t1", "rejected")
    invocation = told(said)["id"]
    assert spans_of(issuer, invocation) == [TransitionName.INVOCATION_ENDED]
    assert issuer.invocation_cancel(invocation).code == "invocation_over"
    assert outcome(issuer, invocation) == "rejected"


@pytest.mark.spec("LED-02", "INV-01")
def test_a_task_has_so_many_open_ones_and_no_more(issuer: Issuer, clock: StandingClock) -> None:
    first = begun(issuer, clock)
    for _ in range(OPEN_PER_TASK_MAX - 1):
        begun(issuer, clock)
    assert issuer.invocation_open("t1", "agent-7", InstantMs(clock() + HOUR_MS)).code == "task_full"
    assert issuer.invocation_open("org", "agent-7", InstantMs(clock() + HOUR_MS)).code == "opened"
    assert issuer.invocation_cancel(first).code == "ended"
    begun(issuer, clock)


# ------------------------------------------------------------------------------------------- naming one


@pytest.mark.spec("INV-01", "EFF-02", "EFF-09", "PER-03")
def test_an_effect_is_bound_to_the_invocation_that_it_names_and_its_permit_ends_with_it(
    issuer: Issuer, clock: StandingClock
) -> None:
    invocation = begun(issuer, clock, within_ms=5 * MINUTE_MS)
    effect = permitted(refund(issuer, amount=100, invocation=invocation))
    stored = issuer._house.ledger.read(lambda view: view.effect(EffectId(effect)))
    assert stored is not None
    assert stored.invocation_id == invocation == stored_member(stored.binding, "invocation")
    record = issuer.show(effect).more["record"]
    assert isinstance(record, dict)
    assert record["invocation"] == invocation
    assert record["permit"]["expires"] == record["permit"]["caps"]["invocation"]
    clock.ahead_ms = 5 * MINUTE_MS
    assert issuer.commit(effect).code in {"expired", "invocation_over"}


@pytest.mark.spec("INV-01", "EFF-02")
def test_an_effect_that_names_none_is_one_of_its_own_and_nothing_is_kept_beside_it(issuer: Issuer) -> None:
    effect = permitted(refund(issuer, amount=100))
    stored = issuer._house.ledger.read(lambda view: view.effect(EffectId(effect)))
    assert stored is not None
    assert (stored.invocation_id, stored_member(stored.binding, "invocation")) == (None, None)
    assert issuer.invocation_list().more["invocations"] == []


@pytest.mark.spec("INV-01", "EFF-08")
@pytest.mark.parametrize(
    ("at", "task", "code"),
    [
        ("t1", "t1", "permitted"),
        ("org", "t1.a", "permitted"),
        ("t1.a", "t1", "unknown_reference"),
        ("t1.a", "t1.b", "unknown_reference"),
    ],
)
def test_an_effect_names_one_of_its_own_task_or_of_one_above_it(
    issuer: Issuer, clock: StandingClock, at: str, task: str, code: str
) -> None:
    invocation = begun(issuer, clock, task=at)
    assert refund(issuer, amount=100, task=task, invocation=invocation).code == code


@pytest.mark.spec("INV-01", "EFF-08")
def test_one_of_another_caller_reads_like_a_missing_one(
    issuer: Issuer, clock: StandingClock, made: Made
) -> None:
    invocation = begun(issuer, clock)
    nobody = "inv_" + "0" * 32
    made.profile.write_text(
        made.profile.read_text().replace("u-ana = {", "u-eve = {").replace('"u-ana"', '"u-eve"')
    )
    activated(made.profile, clock=clock)
    with made.open(clock=clock) as other:
        for ask in (other.invocation_show, other.invocation_cancel):
            mine, none = ask(invocation), ask(nobody)
            assert (mine.code, mine.say) == (none.code, none.say)
            assert mine.code == "unknown_reference"
        assert other.invocation_list().more["invocations"] == []
        # The account is somebody else in every process by now, so the record is asked and nobody's view of it.
        kept = other._house.ledger.read(lambda view: view.invocation(InvocationId(invocation)))
    assert kept is not None
    assert kept.outcome is None


@pytest.mark.spec("EFF-11", "INV-01")
def test_the_same_key_for_another_invocation_is_another_request(issuer: Issuer, clock: StandingClock) -> None:
    one, two = begun(issuer, clock), begun(issuer, clock)
    first = refund(issuer, amount=100, invocation=one, request_key="k")
    assert refund(issuer, amount=100, invocation=one, request_key="k").effect == first.effect
    for other in (two, None):
        said = refund(issuer, amount=100, invocation=other, request_key="k")
        assert (said.code, said.more["field"]) == ("request_key_reused", "invocation")


# ------------------------------------------------------------------------------------------- being over


@pytest.mark.spec("INV-02", "ADM-01", "INV-01")
@pytest.mark.parametrize("how", ["cancelled", "failed_application", "failed_execution", "deadline"])
def test_an_invocation_that_is_over_admits_nothing(
    issuer: Issuer, clock: StandingClock, service: Service, how: str
) -> None:
    invocation = begun(issuer, clock, within_ms=5 * MINUTE_MS)
    ready = permitted(refund(issuer, order="o-1", amount=100, invocation=invocation))
    held = refund(issuer, order="o-2", amount=100, invocation=invocation, hold=True).effect
    if how == "deadline":
        clock.ahead_ms = 5 * MINUTE_MS
    elif how == "cancelled":
        assert issuer.invocation_cancel(invocation).code == "ended"
    else:
        assert issuer.invocation_end(invocation, how).code == "ended"
    # Past its deadline its permits are over as well, and whichever is looked at first is said.
    over = {"invocation_over", "expired"} if how == "deadline" else {"invocation_over"}
    assert {issuer.commit(ready).code, issuer.request_held(str(held)).code} <= over
    assert refund(issuer, order="o-3", amount=100, invocation=invocation).code == "invocation_over"
    assert service.effects == ()
    assert books(issuer, "t1")["t1"].reserved == 0
    assert outcome(issuer, invocation) == ("failed_execution" if how == "deadline" else how)


@pytest.mark.spec("INV-02", "ADM-01")
def test_it_is_said_that_the_invocation_is_over_before_that_the_task_is_closed(
    issuer: Issuer, clock: StandingClock
) -> None:
    invocation = begun(issuer, clock)
    effect = permitted(refund(issuer, amount=100, invocation=invocation))
    issuer.invocation_cancel(invocation)
    issuer.task_close("t1")
    assert issuer.commit(effect).code == "invocation_over"


@pytest.mark.spec("INV-02", "BUD-05")
def test_what_is_in_flight_is_still_settled_and_changes_no_outcome(
    issuer: Issuer, clock: StandingClock
) -> None:
    invocation = begun(issuer, clock)
    effect = permitted(
        issuer.request("publish", {"name": "v1"}, task="t1", actor="agent-7", invocation=invocation)
    )
    claim = str(issuer.admit(effect).more["claim"])
    assert issuer.invocation_cancel(invocation).code == "ended"
    assert issuer.report(effect, claim, succeeded=True).code == "succeeded"
    assert (state_of(issuer, effect), outcome(issuer, invocation)) == ("succeeded", "cancelled")


@pytest.mark.spec("INV-02")
@pytest.mark.parametrize("first", ["cancelled", "succeeded", "failed_application", "failed_execution"])
def test_an_outcome_is_written_once(issuer: Issuer, clock: StandingClock, first: str) -> None:
    invocation = begun(issuer, clock)
    ended = (
        issuer.invocation_cancel(invocation)
        if first == "cancelled"
        else issuer.invocation_end(invocation, first)
    )
    assert (ended.code, told(ended)["outcome"]) == ("ended", first)
    assert issuer.invocation_cancel(invocation).code == "invocation_over"
    for again in ("succeeded", "failed_application", "failed_execution"):
        assert issuer.invocation_end(invocation, again).code == "invocation_over"
    clock.ahead_ms = 2 * HOUR_MS
    assert outcome(issuer, invocation) == first
    assert spans_of(issuer, invocation).count(TransitionName.INVOCATION_ENDED) == 1


@pytest.mark.spec("INV-02")
def test_a_word_that_is_no_outcome_of_a_host_ends_nothing(issuer: Issuer, clock: StandingClock) -> None:
    invocation = begun(issuer, clock)
    for word in ("rejected", "cancelled", "", "done"):
        assert issuer.invocation_end(invocation, word).code == "malformed"
    assert outcome(issuer, invocation) is None


@pytest.mark.spec("INV-02", "PER-03")
def test_past_its_deadline_whoever_touches_it_ends_it_as_a_failed_execution(
    issuer: Issuer, clock: StandingClock
) -> None:
    invocation = begun(issuer, clock)
    clock.ahead_ms = HOUR_MS - 1
    assert issuer.list().code == "found"
    assert outcome(issuer, invocation) is None
    clock.ahead_ms = HOUR_MS
    assert issuer.list().code == "found"
    found = issuer._house.ledger.read(lambda view: view.invocation(InvocationId(invocation)))
    assert found is not None
    assert (found.outcome, found.ended_ms) == ("failed_execution", found.deadline_ms)
    assert issuer.invocation_end(invocation, "succeeded").code == "invocation_over"


@pytest.mark.spec("ADM-05", "INV-02", "REP-04")
def test_a_cancellation_that_comes_while_the_sinks_are_waited_for_keeps_the_winner_from_sending(
    made: Made, clock: StandingClock, service: Service
) -> None:
    steps: list[str] = []

    def observe(step: str) -> None:
        steps.append(step)
        if step == Reached.ACKNOWLEDGED:
            assert issuer.invocation_cancel(invocation).code == "ended"

    with made.open(clock=clock, observe=observe) as issuer:
        invocation = begun(issuer, clock)
        effect = permitted(refund(issuer, amount=100, invocation=invocation))
        assert issuer.commit(effect).state == "no_effect"
        assert Reached.ACKNOWLEDGED in steps
        assert service.effects == ()
        assert books(issuer, "t1")["t1"].reserved == 0
        assert outcome(issuer, invocation) == "cancelled"
