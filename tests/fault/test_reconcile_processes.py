"""Attempts by processes that are killed or stopped, and senders that stand still: only a certain end counts as one."""

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from issuer import Issuer
from issuer.clock import now_ms
from issuer.wire import Answer
from tests.support.cases import all_at, books, state_of
from tests.support.committing import Job, file_clock, pass_time
from tests.support.issuers import Made, permitted, refund, standard_issuer
from tests.support.kills import Child, Nursery, spans_named, step_number
from tests.support.reconciling import (
    AFTER_3S,
    DEADLINE_MS,
    KEPT,
    NOT_FOUND,
    RESEND,
    attempt_of,
    inspect_line,
)
from tests.support.service import Service, accept_then_close, answer, held

BEGUN = ("locked", "before_commit", "committed", "attempt_acknowledged", "looked", "locked", "before_commit")
"""The steps of one attempt, in order, as far as it can be killed without a result."""


@dataclass(kw_only=True)
class Ground:
    """An issuer whose clock is a file; `other` is this process."""

    made: Made
    other: Issuer
    service: Service
    nursery: Nursery
    time: Path

    def pass_ms(self, milliseconds: int) -> None:
        pass_time(self.time, milliseconds)

    def start(self, command: str, effect: str, *, at: int | None, sends: int, **arguments: object) -> Child:
        job = Job(
            profile=str(self.made.profile),
            command=command,
            arguments={"effect": effect, **arguments},
            at=at,
            sends=sends,
            clock=str(self.time),
        )
        return self.nursery.start(job)

    def look(self, effect: str, *steps: Any) -> Answer:
        self.service.then_on_lookup(*steps)
        return self.other.reconcile(effect)


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


@pytest.fixture
def ground(tmp_path: Path, nursery: Nursery) -> Iterator[Ground]:
    time = tmp_path / "time"
    with Service() as service:
        line = inspect_line(service.port, AFTER_3S)
        made = standard_issuer(tmp_path / "f0", port=service.port, changes={KEPT: f"{RESEND}\n{line}"})
        time.write_text(str(now_ms()))
        with made.open(clock=file_clock(time)) as other:
            yield Ground(made=made, other=other, service=service, nursery=nursery, time=time)


def lost(ground: Ground) -> str:
    ground.service.then(accept_then_close())
    effect = permitted(refund(ground.other, amount=300))
    assert ground.other.commit(effect).code == "outcome_unknown"
    return effect


@pytest.mark.spec("REC-01", "REC-06", "LED-01", "BUD-04")
@pytest.mark.parametrize("number", range(1, len(BEGUN) + 1))
def test_a_kill_between_the_two_records_leaves_it_unknown_and_a_later_attempt_finds_it(
    ground: Ground, number: int
) -> None:
    effect = lost(ground)
    with ground.start("reconcile", effect, at=number, sends=signal.SIGKILL) as child:
        assert child.ended() == -signal.SIGKILL
        assert child.steps == list(BEGUN[:number])
    assert state_of(ground.other, effect) == "unknown"
    assert books(ground.other) == all_at(reserved=300)
    assert len(ground.service.lookups) == (1 if "looked" in BEGUN[:number] else 0)
    assert spans_named(ground.other, effect, "effect.inspecting") == (1 if number >= 3 else 0)
    assert spans_named(ground.other, effect, "effect.inspected") == 0
    assert ground.look(effect).code == "succeeded"
    assert books(ground.other) == all_at(settled=300)
    assert len(ground.service.requests) == 1


@pytest.mark.spec("ADM-07", "REC-02", "BUD-04")
def test_a_sender_that_stands_still_is_not_gone_so_no_absence_is_conclusive_until_it_is_killed(
    ground: Ground,
) -> None:
    """It stands between the request and the answer, for days; only its end lets the delay begin."""
    ground.service.then(held("answer", answer(503, effect=False)))
    effect = permitted(refund(ground.other, amount=300))
    with ground.start("commit", effect, at=None, sends=signal.SIGKILL) as sender:
        ground.service.wait_for(requests=1)
        sender.send(signal.SIGSTOP)
        sender.stopped()
        assert ground.look(effect).code == "already_consumed"
        ground.pass_ms(DEADLINE_MS * 1440)
        for _ in range(2):
            said = ground.look(effect, NOT_FOUND)
            assert (said.code, attempt_of(said)) == ("outcome_unknown", ("absent", "sender_not_gone"))
            assert books(ground.other) == all_at(reserved=300)
        resent = ground.other.reconcile(effect, resend=True)
        assert (resent.code, resent.more["field"]) == ("outcome_unknown", "sender_not_gone")
        sender.kill()
    said = ground.look(effect, NOT_FOUND)
    assert attempt_of(said) == ("absent", "absence_too_early")
    ground.pass_ms(2_999)
    assert attempt_of(ground.look(effect, NOT_FOUND)) == ("absent", "absence_too_early")
    ground.pass_ms(1)
    assert ground.look(effect, NOT_FOUND).code == "no_effect"
    assert books(ground.other) == all_at()
    assert len(ground.service.requests) == 1


@pytest.mark.spec("ADM-07", "REC-02", "REC-05", "REP-06")
def test_a_sender_that_wakes_late_finds_its_effect_unreleased_and_settles_it_once(ground: Ground) -> None:
    effect = permitted(refund(ground.other, amount=300))
    ground.service.then(answer(201))
    with ground.start("commit", effect, at=step_number("answered"), sends=signal.SIGSTOP) as sender:
        sender.stopped()
        ground.pass_ms(DEADLINE_MS * 60)
        assert attempt_of(ground.look(effect, NOT_FOUND)) == ("absent", "sender_not_gone")
        assert books(ground.other) == all_at(reserved=300)
        sender.resume()
        assert sender.answer()["code"] == "succeeded"
    assert books(ground.other) == all_at(settled=300)
    assert ground.service.effects_of(effect) == 1


@pytest.mark.spec("REC-03", "ADM-07", "REC-02")
def test_a_resend_that_stands_still_is_a_sender_as_well(ground: Ground) -> None:
    """Absence stays inconclusive, and nobody resends beside it, until its process is gone."""
    effect = lost(ground)
    ground.service.then(held("answer", answer(201)))
    with ground.start("reconcile", effect, at=None, sends=signal.SIGKILL, resend=True) as resender:
        ground.service.wait_for(requests=2)
        resender.send(signal.SIGSTOP)
        resender.stopped()
        busy = ground.other.reconcile(effect, resend=True)
        assert (busy.code, busy.more["field"]) == ("outcome_unknown", "resend_in_flight")
        ground.pass_ms(DEADLINE_MS * 2)
        assert attempt_of(ground.look(effect, NOT_FOUND)) == ("absent", "sender_not_gone")
        again = ground.other.reconcile(effect, resend=True)
        assert (again.code, again.more["field"]) == ("outcome_unknown", "sender_not_gone")
        resender.kill()
    assert attempt_of(ground.look(effect, NOT_FOUND)) == ("absent", "absence_too_early")
    assert len(ground.service.requests) == 2
    ground.pass_ms(3_000)
    assert ground.look(effect, NOT_FOUND).code == "no_effect"


@pytest.mark.spec("REC-03", "REC-06", "REP-05")
@pytest.mark.parametrize(("number", "sent"), [(3, 1), (4, 1), (5, 2), (7, 2)])
def test_a_resend_that_is_killed_leaves_it_unknown_and_on_record(
    ground: Ground, number: int, sent: int
) -> None:
    effect = lost(ground)
    ground.service.then(answer(201, effect=False), answer(201, effect=False))
    with ground.start("reconcile", effect, at=number, sends=signal.SIGKILL, resend=True) as child:
        assert child.ended() == -signal.SIGKILL
    assert state_of(ground.other, effect) == "unknown"
    assert books(ground.other) == all_at(reserved=300)
    assert len(ground.service.requests) == sent
    ground.pass_ms(30_001)
    done = ground.other.reconcile(effect, resend=True)
    assert (done.code, books(ground.other)) == ("succeeded", all_at(settled=300))
    assert len(ground.service.requests) == sent + 1
    assert {received.key for received in ground.service.requests} == {effect}
    assert len({received.body for received in ground.service.requests}) == 1


@pytest.mark.spec("ADM-07", "REC-02", "REC-05")
def test_a_sender_that_wakes_late_and_loses_its_answer_is_over_by_its_own_word(ground: Ground) -> None:
    """Its process ends in good order and leaves no lock to look at, so only what it said can prove its end."""
    ground.service.then(held("answer", accept_then_close()))
    effect = permitted(refund(ground.other, amount=300))
    with ground.start("commit", effect, at=None, sends=signal.SIGKILL) as sender:
        ground.service.wait_for(requests=1)
        sender.send(signal.SIGSTOP)
        sender.stopped()
        ground.pass_ms(DEADLINE_MS * 2)
        assert attempt_of(ground.look(effect, NOT_FOUND)) == ("absent", "sender_not_gone")
        ground.service.gate("answer").set()
        ground.service.wait_for(closed=1)
        sender.resume()
        assert sender.answer()["code"] == "outcome_unknown"
        assert sender.ended() == 0
    assert attempt_of(ground.look(effect, NOT_FOUND)) == ("absent", "absence_too_early")
    ground.pass_ms(3_000)
    assert attempt_of(ground.look(effect, NOT_FOUND)) == ("absent", "absence_conclusive")
