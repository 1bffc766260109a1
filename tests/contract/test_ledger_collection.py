"""Collection on every store: what may go and what may not, whoever asks for it (LED-02, PER-04)."""

import pytest

from ledger.changes import EffectCollected, EffectMoved, Step, TombstonesForgotten
from ledger.errors import Broken
from ledger.model import Effect, EffectId, InstantMs, PermitId, Task, Tombstone
from ledger.port import Ledger, Verdict, View
from ledger.states import EffectState
from ledger.transitions import Transition, TransitionName
from tests.contract.conftest import Store
from tests.support.collecting import asked, collect
from tests.support.ledgers import (
    CENT,
    HOUR_MS,
    START,
    admit,
    admitted_effect,
    commit_steps,
    line,
    moving,
    open_task,
    permitted_effect,
    prepare,
    settle,
)

S = EffectState


def end(ledger: Ledger, effect: Effect, target: EffectState) -> None:
    """Let an effect that was never admitted be over."""
    current = ledger.read(lambda view: view.effect(effect.effect_id))
    assert current is not None
    moved = EffectMoved(effect_id=effect.effect_id, origin=current.state, target=target)
    commit_steps(ledger, Step(transition=moving(current, target), changes=(moved,)))


def denied(ledger: Ledger, task: Task) -> Effect:
    effect = prepare(ledger, task, {CENT: 1})
    end(ledger, effect, S.DENIED)
    return effect


@pytest.fixture
def task(ledger: Ledger) -> Task:
    return open_task(ledger, "org", {CENT: 1_000})


@pytest.mark.spec("LED-02")
def test_effects_that_were_never_admitted_are_given_but_for_the_newest(ledger: Ledger, task: Task) -> None:
    over = [denied(ledger, task).effect_id for _ in range(6)]
    permitted_effect(ledger, task, {CENT: 1})
    prepare(ledger, task, {CENT: 1})

    def beyond(newest: int, limit: int = 9) -> set[str]:
        return set(ledger.read(lambda view: view.unused_beyond(newest, limit=limit)))

    assert beyond(0) == set(over)
    assert beyond(2) == set(over[:4])
    assert beyond(6) == beyond(99) == set()
    assert len(beyond(1, limit=3)) == 3
    assert beyond(1, limit=3) < set(over[:5])


@pytest.mark.spec("PER-04")
def test_effects_with_an_outcome_are_given_from_the_end_of_their_window_on(
    store: Store, ledger: Ledger, task: Task
) -> None:
    ends = [START + HOUR_MS + ms for ms in (3, 1, 2)]
    effects = [
        admitted_effect(ledger, task, {CENT: 1}, window_ends_ms=InstantMs(until)) for until in (*ends, START)
    ]
    for effect, target in zip(effects, (S.SUCCEEDED, S.FAILED, S.NO_EFFECT), strict=False):
        settle(ledger, effect, target, {CENT: 0})

    def past(now: int, limit: int = 9) -> list[str]:
        return list(ledger.read(lambda view: view.settled_past(InstantMs(now), limit=limit)))

    first, second, third, _admitted = (effect.effect_id for effect in effects)
    assert past(ends[1] - 1) == []
    assert past(ends[1]) == [second]
    assert past(ends[0]) == [second, third, first]
    assert past(ends[0], limit=2) == [second, third]


@pytest.mark.spec("EFF-11", "PER-04")
def test_tombstones_of_effects_without_a_permit_are_given_but_for_the_newest(
    store: Store, ledger: Ledger, task: Task
) -> None:
    permitted = permitted_effect(ledger, task, {CENT: 1})
    end(ledger, permitted, S.EXPIRED)
    assert collect(ledger, asked()) == (permitted.effect_id,)
    over = []
    for _ in range(4):
        over.append(denied(ledger, task).effect_id)
        collect(ledger, asked())

    def beyond(newest: int) -> list[str]:
        return list(ledger.read(lambda view: view.tombstones_beyond(newest, limit=9)))

    assert set(beyond(0)) == set(over)
    assert set(beyond(1)) == set(over[:3])
    assert beyond(4) == []


def collecting(ledger: Ledger, effect: Effect, state: EffectState) -> None:
    """Ask a store to collect an effect, whatever stands against it."""

    def decide(view: View, now: InstantMs) -> Verdict[None]:
        permit = view.permit(effect.effect_id)
        # Not out of the row: the store is what is asked here.
        change = EffectCollected(
            tombstone=_tombstone(effect, state, None if permit is None else permit.permit_id)
        )
        transition = Transition(name=TransitionName.LEDGER_COLLECTED, story="led")
        return Verdict(value=None, steps=(Step(transition=transition, changes=(change,)),))

    ledger.transact(decide)


def _tombstone(effect: Effect, state: EffectState, permit_id: PermitId | None) -> Tombstone:
    return Tombstone(
        effect_id=effect.effect_id,
        state=state,
        caller=effect.caller,
        task_id=effect.task_id,
        subject=effect.subject,
        actor=effect.actor,
        operation=effect.operation,
        request_key=effect.request_key,
        request=effect.request,
        content_key=effect.content_key,
        resource_key=effect.resource_key,
        permit_id=permit_id,
        prepared_ms=effect.prepared_ms,
        ended_ms=START,
    )


@pytest.mark.spec("LED-02", "PER-04", "LED-05")
@pytest.mark.parametrize("said", [S.PREPARED, S.PERMITTED, S.ADMITTED, S.UNKNOWN, S.DENIED, S.SUCCEEDED])
@pytest.mark.parametrize("stands", [S.PREPARED, S.PERMITTED, S.ADMITTED, S.UNKNOWN])
def test_nothing_that_lives_is_collected_by_any_store_whatever_its_tombstone_says(
    stands: EffectState, said: EffectState, store: Store, ledger: Ledger, task: Task
) -> None:
    effect = prepare(ledger, task, {CENT: 1}, window_ends_ms=InstantMs(START))
    if stands is not S.PREPARED:
        effect = permitted_effect(ledger, task, {CENT: 1}, window_ends_ms=InstantMs(START))
    if stands in {S.ADMITTED, S.UNKNOWN}:
        admit(ledger, effect)
    if stands is S.UNKNOWN:
        settle(ledger, effect, S.UNKNOWN)
    store.clock.now = START + 10 * HOUR_MS
    with pytest.raises(Broken):
        collecting(ledger, effect, said)
    found = ledger.read(lambda view: (view.effect(effect.effect_id), view.tombstone(effect.effect_id)))
    assert (found[0] is not None and found[0].state, found[1]) == (stands, None)


@pytest.mark.spec("PER-04")
@pytest.mark.parametrize("early_ms", [1, HOUR_MS])
def test_no_store_collects_an_outcome_within_its_window(
    early_ms: int, store: Store, ledger: Ledger, task: Task
) -> None:
    effect = admitted_effect(ledger, task, {CENT: 1}, window_ends_ms=InstantMs(START + 3 * HOUR_MS))
    settle(ledger, effect, S.SUCCEEDED, {CENT: 1})
    store.clock.now = START + 3 * HOUR_MS - early_ms
    with pytest.raises(Broken):
        collecting(ledger, effect, S.SUCCEEDED)
    store.clock.now = START + 3 * HOUR_MS
    collecting(ledger, effect, S.SUCCEEDED)
    assert ledger.read(lambda view: view.effect(effect.effect_id)) is None


@pytest.mark.spec("PER-04", "ADM-02", "BUD-03")
def test_what_was_spent_stays_spent_and_nothing_is_made_under_its_names(
    store: Store, ledger: Ledger, task: Task
) -> None:
    effect = admitted_effect(ledger, task, {CENT: 10}, window_ends_ms=InstantMs(START))
    permit = ledger.read(lambda view: view.permit(effect.effect_id))
    assert permit is not None
    settle(ledger, effect, S.SUCCEEDED, {CENT: 7})
    before = line(ledger, task)
    store.clock.now = START + 2 * HOUR_MS
    assert collect(ledger, asked()) == (effect.effect_id,)
    assert line(ledger, task) == before
    assert ledger.read(
        lambda view: (
            view.is_used(permit.permit_id),
            view.was_admitted(effect.effect_id),
            view.permit(effect.effect_id),
        )
    ) == (True, True, None)
    assert ledger.read(lambda view: view.repetition_of_content(effect.content_key)).succeeded == 1
    with pytest.raises(Broken):
        prepare(ledger, task, {CENT: 1}, effect_id=effect.effect_id)
    with pytest.raises(Broken):
        prepare(ledger, task, {CENT: 1}, request_key=effect.request_key)
    prepare(ledger, task, {CENT: 1}, request_key=effect.request_key, caller="host-2")


@pytest.mark.spec("EFF-11", "PER-04")
def test_only_tombstones_without_a_permit_can_be_forgotten(store: Store, ledger: Ledger, task: Task) -> None:
    used = admitted_effect(ledger, task, {CENT: 1}, window_ends_ms=InstantMs(START))
    settle(ledger, used, S.NO_EFFECT)
    unused = permitted_effect(ledger, task, {CENT: 1})
    end(ledger, unused, S.WITHDRAWN)
    refused = denied(ledger, task)
    store.clock.now = START + 2 * HOUR_MS
    assert len(collect(ledger, asked())) == 3

    def forget(effect: Effect) -> None:
        change = TombstonesForgotten(effect_ids=(EffectId(effect.effect_id),))
        transition = Transition(name=TransitionName.LEDGER_COLLECTED, story="led")
        commit_steps(ledger, Step(transition=transition, changes=(change,)))

    for effect in (used, unused):
        with pytest.raises(Broken):
            forget(effect)
    forget(refused)
    held = ledger.read(lambda view: view.holdings())
    assert (held.effects, held.tombstones) == (0, 2)
    # Its key is free again: a new effect under it is a new one.
    prepare(ledger, task, {CENT: 1}, request_key=refused.request_key)
