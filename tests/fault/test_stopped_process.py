"""A sender that stands still (SIGSTOP) is not gone: others wait for its deadline, and it looks at the clock again.

Time is a file that both processes read, so that a deadline passes when a test says so.
"""

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from issuer import Issuer
from issuer.clock import now_ms
from issuer.operations.deriving import DISPATCH_DEADLINE_MS
from ledger.sqlite import lock
from ledger.states import EffectState
from tests.support.committing import Job, file_clock, pass_time
from tests.support.issuers import Made, budget_line, permitted, refund, standard_issuer
from tests.support.kills import (
    Child,
    Nursery,
    plain_steps,
    spans_named,
    state_of,
    step_number,
    untouched_state,
)
from tests.support.service import Service, answer, held

LEFT_MS = 20_000
"""What is left to a sender that wakes in time: the service answers at once, but machines can be slow."""


@dataclass(kw_only=True)
class Ground:
    """An issuer whose clock is a file; `other` is the second process, open before the first one begins."""

    made: Made
    other: Issuer
    service: Service
    nursery: Nursery
    time: Path

    def pass_ms(self, milliseconds: int) -> None:
        pass_time(self.time, milliseconds)

    def permitted(self) -> str:
        return permitted(refund(self.other, amount=300))

    def start(self, effect: str, at: str | None) -> Child:
        job = Job(
            profile=str(self.made.profile),
            command="commit",
            arguments={"effect": effect},
            at=None if at is None else step_number(at),
            sends=signal.SIGSTOP,
            clock=str(self.time),
        )
        return self.nursery.start(job)

    def record(self, effect: str) -> dict[str, object]:
        shown = self.other.show(effect).more["record"]
        assert isinstance(shown, dict)
        return shown

    def money(self) -> tuple[object, object]:
        line = budget_line(self.other, "t1")
        return line["reserved"], line["settled"]


@pytest.fixture
def ground(tmp_path: Path, nursery: Nursery) -> Iterator[Ground]:
    time = tmp_path / "time"
    with Service() as service:
        made = standard_issuer(tmp_path / "f0", port=service.port)
        time.write_text(str(now_ms()))
        with made.open(clock=file_clock(time)) as other:
            yield Ground(made=made, other=other, service=service, nursery=nursery, time=time)


def evidence(record: dict[str, object]) -> list[tuple[object, ...]]:
    """Class, source, what it proves and whether it came late, of each piece of evidence."""
    rows = record["evidence"]
    assert isinstance(rows, list)
    return [(row["class"], row["source"], row["proves"], row["late"]) for row in rows]


DEADLINE_PASSED = ("none", "deadline_passed", "unknown", False)


@pytest.mark.spec("ADM-07", "ADM-04", "REP-01")
@pytest.mark.parametrize("at", ["admission_acknowledged", "looked_again", "answered"])
def test_before_the_deadline_nobody_changes_what_a_stopped_sender_may_still_prove(
    ground: Ground, at: str
) -> None:
    effect = ground.permitted()
    ground.service.then(answer(201))
    with ground.start(effect, at) as first:
        first.stopped()
        sent = ground.service.connections
        assert sent == (at == "answered")
        ground.pass_ms(DISPATCH_DEADLINE_MS - LEFT_MS)
        with ground.made.open(clock=file_clock(ground.time)) as fresh:
            for other in (fresh, ground.other):
                other.list()
                other.timeline(effect)
                assert other.commit(effect).code == "already_consumed"
                assert (state_of(other, effect), ground.money()) == ("admitted", (300, 0))
        assert ground.service.connections == sent
        first.resume()
        assert first.answer()["code"] == "succeeded"
        assert first.ended() == 0
    assert ground.service.effects_of(effect) == ground.service.connections == 1
    assert evidence(ground.record(effect)) == [("service", "http:201", "succeeded", False)]
    assert ground.money() == (0, 300)


@pytest.mark.spec("ADM-05", "ADM-07", "REP-04", "BUD-04")
@pytest.mark.parametrize("swept", [True, False])
@pytest.mark.parametrize(
    ("at", "code"), [("admission_acknowledged", "prepare_again"), ("looked_again", "not_dispatched")]
)
def test_a_sender_that_wakes_after_its_deadline_sends_nothing_and_withdraws_late(
    ground: Ground, at: str, code: str, swept: bool
) -> None:
    """`swept`: whether somebody looked meanwhile, so that the effect was unknown when the sender came back."""
    effect = ground.permitted()
    with ground.start(effect, at) as first:
        first.stopped()
        ground.pass_ms(DISPATCH_DEADLINE_MS - 1)
        if swept:
            assert state_of(ground.other, effect) == "admitted"
        ground.pass_ms(1)
        if swept:
            assert (state_of(ground.other, effect), ground.money()) == ("unknown", (300, 0))
            assert ground.other.commit(effect).code == "outcome_unknown"
        first.resume()
        assert first.answer()["code"] == code
    assert ground.service.connections == 0
    assert untouched_state(ground.other, effect) is EffectState.NO_EFFECT
    reason = "no_longer_admitted" if swept and at == "admission_acknowledged" else "deadline_passed"
    withdrawn = ("not_sent", "winner", "no_effect", True)
    assert evidence(ground.record(effect)) == ([DEADLINE_PASSED, withdrawn] if swept else [withdrawn])
    assert reason in str(ground.other.timeline(effect).more["timeline"])
    assert ground.money() == (0, 0)
    assert ground.other.commit(effect).code == "not_dispatched"
    assert ground.service.connections == 0


@pytest.mark.spec("ADM-07", "REP-06", "BUD-03")
@pytest.mark.parametrize("swept", [True, False])
def test_the_late_answer_of_the_one_that_sent_settles_an_unknown_effect_once(
    ground: Ground, swept: bool
) -> None:
    effect = ground.permitted()
    ground.service.then(answer(201))
    with ground.start(effect, "answered") as first:
        first.stopped()
        ground.pass_ms(DISPATCH_DEADLINE_MS)
        if swept:
            ground.other.list()
            assert untouched_state(ground.other, effect) is EffectState.UNKNOWN
            assert ground.money() == (300, 0)
        first.resume()
        assert first.answer()["code"] == "succeeded"
    late = ("service", "http:201", "succeeded", True)
    assert evidence(ground.record(effect)) == ([DEADLINE_PASSED, late] if swept else [late])
    assert ground.money() == (0, 300)
    assert spans_named(ground.other, effect, "effect.succeeded") == 1
    assert ground.other.commit(effect).code == "succeeded"
    assert ground.service.effects_of(effect) == ground.service.connections == 1


@pytest.mark.spec("ADM-07", "REP-05")
def test_a_sender_that_is_stopped_while_the_service_works_reads_its_answer_late(ground: Ground) -> None:
    effect = ground.permitted()
    ground.service.then(held("answer", answer(201)))
    with ground.start(effect, None) as first:
        ground.service.wait_for(requests=1)
        first.send(signal.SIGSTOP)
        first.stopped()
        ground.pass_ms(DISPATCH_DEADLINE_MS)
        assert state_of(ground.other, effect) == "unknown"
        ground.service.gate("answer").set()
        ground.service.wait_for(closed=1)
        first.resume()
        assert first.answer()["code"] == "succeeded"
    assert evidence(ground.record(effect))[-1] == ("service", "http:201", "succeeded", True)
    assert ground.service.effects_of(effect) == ground.service.connections == 1


@pytest.mark.spec("ADM-07", "REP-05", "BUD-04")
def test_a_stopped_sender_that_is_then_killed_leaves_an_unknown_effect(ground: Ground) -> None:
    effect = ground.permitted()
    with ground.start(effect, "looked_again") as first:
        first.stopped()
        assert state_of(ground.other, effect) == "admitted"
        first.kill()
    assert (state_of(ground.other, effect), ground.money()) == ("unknown", (300, 0))
    assert evidence(ground.record(effect)) == [("none", "sender_gone", "unknown", False)]


@pytest.mark.spec("ADM-03", "LED-04", "PER-05")
@pytest.mark.parametrize(
    ("at", "state"),
    [
        ("admission:before_commit", EffectState.PERMITTED),
        ("admission:committed", EffectState.ADMITTED),
        ("outcome:before_commit", EffectState.ADMITTED),
    ],
)
def test_a_sender_that_stands_still_under_the_lock_blocks_writers_and_no_reader(
    ground: Ground, at: str, state: EffectState, monkeypatch: pytest.MonkeyPatch
) -> None:
    effect = ground.permitted()
    ground.service.then(answer(201))
    with ground.start(effect, at) as first:
        first.stopped()
        sent = ground.service.connections
        monkeypatch.setattr(lock, "WAIT_MAX_S", 0.2)
        ground.pass_ms(DISPATCH_DEADLINE_MS - LEFT_MS)
        refused = ground.other.commit(effect)
        # Only where nothing was admitted may "nothing was sent" be said.
        expected = (
            ("ledger_unavailable", True) if state is EffectState.PERMITTED else ("outcome_unknown", False)
        )
        assert (refused.code, refused.retryable) == expected
        assert refund(ground.other, order="o-2").code == "ledger_unavailable"
        assert ground.other.show(effect).state == state
        assert ground.service.connections == sent
        first.resume()
        assert first.answer()["code"] == "succeeded"
        assert first.steps == plain_steps()
    assert ground.service.effects_of(effect) == ground.service.connections == 1
