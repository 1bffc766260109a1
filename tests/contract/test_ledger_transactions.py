"""What every store does with one call of `transact`: all of it or nothing, one span a step, one winner."""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

import pytest

from ledger.changes import PermitIssued, PermitUsed, Step
from ledger.errors import Broken, LedgerUnavailable, SpanNotRecorded
from ledger.model import InstantMs, LedgerId, TaskState
from ledger.port import Ledger, SpanRecorder, Verdict, View
from ledger.refusals import RefusalCode
from ledger.states import EffectState
from ledger.timekeeping import CLOCK_BACKWARD_TOLERANCE_MS
from ledger.transitions import Position, RecordedSpan, Transition, TransitionName
from ledger.tree import leaf_hash
from tests.contract.conftest import Store
from tests.support.ledgers import (
    CENT,
    START,
    admission,
    admission_changes,
    admit,
    admitted_effect,
    commit_steps,
    line,
    move_task,
    moving,
    new_claim,
    new_effect,
    new_permit,
    new_task,
    open_task,
    opening,
    permitted_effect,
    preparing,
    probe,
    probe_step,
    settle,
    state_of,
)
from tests.support.recorders import PlainRecorder

PATIENCE_S = 60.0


def whole(ledger: Ledger) -> tuple[Any, ...]:
    """Everything that the port shows of a ledger."""

    def look(view: View) -> tuple[Any, ...]:
        effects = view.effects(states=())
        return (
            view.head(),
            tuple(view.tasks()),
            tuple(sorted((task.task_id, tuple(view.budget(task.task_id).items())) for task in view.tasks())),
            tuple(effects),
            tuple((view.permit(item.effect_id), view.claim(item.effect_id)) for item in effects),
            tuple(tuple(sorted(view.reserved(item.effect_id).items())) for item in effects),
            tuple(
                (tuple(view.evidence(item.effect_id)), tuple(view.decisions(item.effect_id)))
                for item in effects
            ),
            tuple(view.spans_after(0, limit=10_000)),
            tuple(view.sinks()),
        )

    return ledger.read(look)


class FailsAfter(PlainRecorder):
    """Records honestly a number of times, then raises."""

    def __init__(self, honest: int, fault: BaseException) -> None:
        self._left = honest
        self._fault = fault

    def record(
        self, transition: Transition, *, position: Position, parent_span_id: str | None, at_ms: InstantMs
    ) -> RecordedSpan:
        if self._left == 0:
            raise self._fault
        self._left -= 1
        return super().record(transition, position=position, parent_span_id=parent_span_id, at_ms=at_ms)


def failing_after(honest: int, fault: BaseException) -> Callable[[LedgerId], SpanRecorder]:
    return lambda _ledger_id: FailsAfter(honest, fault)


@pytest.mark.spec("AUD-01")
def test_each_step_adds_exactly_one_span_at_the_next_sequence(ledger: Ledger) -> None:
    before = ledger.read(lambda view: view.head()).sequence
    committed = commit_steps(ledger, probe_step("a"), probe_step("b"), probe_step("a"))
    spans = ledger.read(lambda view: view.spans_after(before, limit=10))
    assert committed.sequence == before + 3
    assert [span.position.sequence for span in spans] == [before + 1, before + 2, before + 3]
    assert [span.story for span in spans] == ["a", "b", "a"]
    assert [span.leaf for span in spans] == [leaf_hash(span.body) for span in spans]
    assert {span.at_ms for span in spans} == {committed.at_ms}
    assert ledger.read(lambda view: view.head()) == spans[-1].position
    assert spans[-1].position.ledger_id == ledger.ledger_id


def test_a_verdict_without_steps_changes_nothing_and_still_answers(ledger: Ledger) -> None:
    before = whole(ledger)
    committed = ledger.transact(lambda _view, now: Verdict(value=("seen", now)))
    assert committed.value == ("seen", START)
    assert committed.sequence == before[0].sequence
    assert whole(ledger) == before


@pytest.mark.spec("ADM-02")
@pytest.mark.parametrize("fault", [RuntimeError("no"), KeyboardInterrupt(), Broken("no"), SystemExit(1)])
def test_a_decision_that_raises_leaves_nothing_and_frees_the_lock(
    ledger: Ledger, fault: BaseException
) -> None:
    before = whole(ledger)

    def decide(_view: View, _now: InstantMs) -> NoReturn:
        raise fault

    with pytest.raises(type(fault)):
        ledger.transact(decide)
    assert whole(ledger) == before
    assert probe(ledger).sequence == before[0].sequence + 1


@pytest.mark.spec("AUD-01", "ADM-02")
@pytest.mark.parametrize("fault", [SpanNotRecorded("sdk", "no"), MemoryError(), KeyboardInterrupt()])
@pytest.mark.parametrize("honest", [0, 1, 2])
def test_a_recorder_that_fails_at_any_step_leaves_nothing_at_all(
    store: Store, fault: BaseException, honest: int
) -> None:
    ledger = store.open()
    before = whole(ledger)
    failing = store.open(recorder=failing_after(honest, fault))
    root = new_task("org", ceilings={CENT: 5})
    effect = new_effect(root, {CENT: 1})
    # Whatever an exception of a recorder is, the span is not recorded; an interruption stays one.
    with pytest.raises(SpanNotRecorded if isinstance(fault, Exception) else type(fault)):
        commit_steps(failing, opening(root), preparing(effect), probe_step())
    assert whole(ledger) == before
    assert probe(ledger).sequence == before[0].sequence + 1
    ledger.close()
    failing.close()


@pytest.mark.spec("LED-01")
def test_what_was_committed_is_there_for_whoever_opens_next(store: Store) -> None:
    first = store.open()
    task = open_task(first, "org", {CENT: 1_000})
    effect = admitted_effect(first, task, {CENT: 300})
    settle(first, effect, EffectState.SUCCEEDED, {CENT: 200})
    known = whole(first)
    first.close()
    second = store.open()
    assert whole(second) == known
    assert line(second, task) == (1_000, 0, 200, 0)
    second.close()


def test_readers_see_one_snapshot_while_others_write(store: Store) -> None:
    reader, writer = store.open(), store.open()

    def look(view: View) -> tuple[int, int, int, bool]:
        before = view.head().sequence
        open_task(writer, "org", {CENT: 1})
        return before, view.head().sequence, len(view.spans_after(0, limit=9)), view.task_named("org") is None

    before, after, spans, is_unseen = reader.read(look)
    assert (after, spans, is_unseen) == (before, before, True)
    assert reader.read(lambda view: view.head()).sequence == before + 1
    reader.close()
    writer.close()


def test_a_closed_ledger_refuses_everything(store: Store) -> None:
    ledger, never_read = store.open(), store.open()
    ledger.read(lambda view: view.head())
    for closed in (ledger, never_read):
        closed.close()
        closed.close()
        with pytest.raises(LedgerUnavailable):
            closed.read(lambda view: view.head())
        with pytest.raises(LedgerUnavailable):
            probe(closed)


@pytest.mark.spec("ADM-02", "BUD-02")
def test_an_admission_reserves_at_every_level_or_at_none(ledger: Ledger) -> None:
    org = open_task(ledger, "org", {CENT: 500})
    mid = open_task(ledger, "mid", {CENT: None}, org)
    leaf = open_task(ledger, "leaf", {CENT: 400}, mid)
    first = permitted_effect(ledger, leaf, {CENT: 300})
    other = permitted_effect(ledger, mid, {CENT: 201})
    assert admit(ledger, first).refusal is None
    assert [line(ledger, task) for task in (leaf, mid, org)] == [
        (400, 300, 0, 0),
        (None, 300, 0, 0),
        (500, 300, 0, 0),
    ]
    refused = admit(ledger, other).refusal
    assert refused is not None
    assert (refused.code, refused.field, refused.level) == (RefusalCode.BUDGET_EXCEEDED, CENT, "org")
    assert [line(ledger, task)[1] for task in (leaf, mid, org)] == [300, 300, 300]
    assert ledger.read(lambda view: view.reserved(other.effect_id)) == {}


@pytest.mark.spec("BUD-02", "ADM-02", "LED-05")
def test_a_reservation_above_a_ceiling_cannot_be_written_even_by_a_wrong_decision(ledger: Ledger) -> None:
    org = open_task(ledger, "org", {CENT: 100})
    leaf = open_task(ledger, "leaf", {CENT: None}, org)
    effect = permitted_effect(ledger, leaf, {CENT: 101})
    permit = ledger.read(lambda view: view.permit(effect.effect_id))
    assert permit is not None
    before = whole(ledger)
    step = Step(
        transition=moving(effect, EffectState.ADMITTED),
        changes=admission_changes(effect, permit, new_claim(effect)),
    )
    with pytest.raises(Broken, match="CostReserved"):
        commit_steps(ledger, step)
    assert whole(ledger) == before
    assert not ledger.read(lambda view: view.is_used(permit.permit_id))


@pytest.mark.spec("ADM-02", "ADM-04")
def test_a_permit_can_be_used_once_even_by_a_wrong_decision(ledger: Ledger) -> None:
    task = open_task(ledger, "org", {CENT: 1_000})
    effect = admitted_effect(ledger, task, {CENT: 1})
    permit = ledger.read(lambda view: view.permit(effect.effect_id))
    assert permit is not None
    again = Step(
        transition=Transition(name=TransitionName.EFFECT_REPORTED, story=effect.effect_id),
        changes=(PermitUsed(permit=permit, claim=new_claim(effect)),),
    )
    before = whole(ledger)
    with pytest.raises(Broken, match="PermitUsed"):
        commit_steps(ledger, again)
    assert whole(ledger) == before


@pytest.mark.spec("ADM-02")
def test_an_effect_has_one_permit_for_ever(ledger: Ledger) -> None:
    task = open_task(ledger, "org", {CENT: 1_000})
    effect = permitted_effect(ledger, task, {CENT: 1})
    again = Step(
        transition=Transition(name=TransitionName.EFFECT_REPORTED, story=effect.effect_id),
        changes=(PermitIssued(permit=new_permit(effect), takes=()),),
    )
    with pytest.raises(Broken, match="PermitIssued"):
        commit_steps(ledger, again)


@pytest.mark.spec("EFF-01")
def test_an_effect_id_and_a_request_key_stand_for_one_effect(ledger: Ledger) -> None:
    task = open_task(ledger, "org", {CENT: 1_000})
    effect = new_effect(task, {CENT: 1}, request_key="k-1")
    commit_steps(ledger, preparing(effect))
    twins = [
        replace(effect, request_key="k-2"),
        new_effect(task, {CENT: 1}, request_key="k-1"),
    ]
    for twin in twins:
        with pytest.raises(Broken, match="EffectPrepared"):
            commit_steps(ledger, preparing(twin))
    assert len(ledger.read(lambda view: view.effects(states=()))) == 1
    commit_steps(ledger, preparing(new_effect(task, {CENT: 1}, request_key="k-1", caller="host-2")))


@pytest.mark.spec("ADM-04")
def test_of_many_threads_over_several_openings_exactly_one_admits(store: Store) -> None:
    ledgers = [store.open() for _ in range(3)]
    task = open_task(ledgers[0], "org", {CENT: 1_000})
    effect = permitted_effect(ledgers[0], task, {CENT: 10})
    start, answers = threading.Barrier(9), []

    def run(number: int) -> None:
        start.wait(PATIENCE_S)
        answers.append(ledgers[number % 3].transact(admission(effect)).refusal)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    codes = sorted("won" if answer is None else str(answer.code) for answer in answers)
    assert codes == ["already_consumed"] * 8 + ["won"]
    assert line(ledgers[0], task) == (1_000, 10, 0, 0)
    for ledger in ledgers:
        ledger.close()


@pytest.mark.spec("BUD-05", "LED-05")
def test_a_closed_ancestor_stops_preparing_issuing_and_admitting_but_not_settling(ledger: Ledger) -> None:
    org = open_task(ledger, "org", {CENT: 1_000})
    leaf = open_task(ledger, "leaf", {CENT: 1_000}, org)
    flying = admitted_effect(ledger, leaf, {CENT: 100})
    ready = permitted_effect(ledger, leaf, {CENT: 100})
    move_task(ledger, org, TaskState.CLOSED)
    refusal = admit(ledger, ready).refusal
    assert refusal is not None
    assert (refusal.code, refusal.level) == (RefusalCode.TASK_CLOSED, "org")
    permit = ledger.read(lambda view: view.permit(ready.effect_id))
    assert permit is not None
    wrong = Step(
        transition=moving(ready, EffectState.ADMITTED),
        changes=admission_changes(ready, permit, new_claim(ready)),
    )
    with pytest.raises(Broken, match="guard:task_not_open"):
        commit_steps(ledger, wrong)
    with pytest.raises(Broken, match="guard:task_not_open"):
        commit_steps(ledger, preparing(new_effect(leaf, {CENT: 1})))
    assert settle(ledger, flying, EffectState.SUCCEEDED, {CENT: 60}).refusal is None
    assert line(ledger, org) == (1_000, 0, 60, 0)
    assert state_of(ledger, flying) is EffectState.SUCCEEDED


@pytest.mark.spec("PER-03")
def test_time_never_runs_backwards_in_the_ledger_and_small_steps_back_are_borne(store: Store) -> None:
    ledger = store.open()
    store.clock.now = START + 10_000
    first = probe(ledger).at_ms
    store.clock.now = first - CLOCK_BACKWARD_TOLERANCE_MS
    assert probe(ledger).at_ms == first
    store.clock.now = first - CLOCK_BACKWARD_TOLERANCE_MS - 1
    with pytest.raises(LedgerUnavailable) as caught:
        probe(ledger)
    assert caught.value.reason == "clock_behind"
    store.clock.now = first + 1
    assert probe(ledger).at_ms == first + 1
    times = [span.at_ms for span in ledger.read(lambda view: view.spans_after(0, limit=99))]
    assert times == sorted(times)
    ledger.close()


@pytest.mark.spec("PER-03")
def test_the_time_of_a_transaction_is_read_after_the_lock(store: Store) -> None:
    holder, waiting = store.open(), store.open()
    seen: list[int] = []
    started = threading.Event()

    def late() -> None:
        started.set()
        seen.append(probe(waiting).at_ms)

    thread = threading.Thread(target=late)

    def hold(_view: View, _now: InstantMs) -> Verdict[None]:
        thread.start()
        started.wait(PATIENCE_S)
        store.clock.now = START + 5_000
        return Verdict(value=None, steps=(probe_step(),))

    assert holder.transact(hold).at_ms == START
    thread.join(PATIENCE_S)
    assert seen == [START + 5_000]
    holder.close()
    waiting.close()
