"""A ceiling below what is used, and an overrun that is accepted: held by the store itself, whoever asks."""

from collections.abc import Mapping

import pytest

from ledger.changes import CeilingLowered, Change, OverrunAccepted, Step
from ledger.errors import Broken
from ledger.model import AMOUNT_MAX, BudgetLine, InstantMs, Task, TaskState, Unit
from ledger.port import Ledger, Verdict, View
from ledger.states import EffectState
from ledger.transitions import Transition, TransitionName
from tests.support.ledgers import (
    CENT,
    admission_changes,
    admit,
    admitted_effect,
    commit_steps,
    move_task,
    moving,
    new_claim,
    open_task,
    permitted_effect,
    settle,
)

FEE = Unit("EUR.fee")


def change_task(ledger: Ledger, task: Task, name: TransitionName, *changes: Change) -> None:
    """Change a task as an owner's command would, without asking anything."""
    commit_steps(ledger, Step(transition=Transition(name=name, story=task.task_id), changes=changes))


def lower(ledger: Ledger, task: Task, ceiling: int, unit: Unit = CENT) -> None:
    lowered = CeilingLowered(task_id=task.task_id, unit=unit, ceiling=ceiling)
    change_task(ledger, task, TransitionName.TASK_LOWERED, lowered)


def accept(ledger: Ledger, task: Task, amount: int) -> None:
    accepted = OverrunAccepted(task_id=task.task_id, unit=CENT, amount=amount)
    change_task(ledger, task, TransitionName.OVERRUN_ACCEPTED, accepted)


def line(ledger: Ledger, task: Task, unit: Unit = CENT) -> tuple[int | None, int, int, int, int]:
    """Ceiling, reserved, settled, overrun, and what stands above the ceiling."""
    found: BudgetLine = ledger.read(lambda view: view.budget(task.task_id))[unit]
    return found.ceiling, found.reserved, found.settled, found.overrun, found.above


def force(ledger: Ledger, task: Task, cost: Mapping[str, int]) -> None:
    """Admit an effect past every rule: only the store can say no."""
    effect = permitted_effect(ledger, task, cost)

    def decide(view: View, now: InstantMs) -> Verdict[None]:
        permit = view.permit(effect.effect_id)
        assert permit is not None
        changes = admission_changes(effect, permit, new_claim(effect, now))
        return Verdict(
            value=None, steps=(Step(transition=moving(effect, EffectState.ADMITTED), changes=changes),)
        )

    with pytest.raises(Broken, match="no_overspend"):
        ledger.transact(decide)
    assert ledger.read(lambda view: view.reserved(effect.effect_id)) == {}


@pytest.mark.spec("BUD-03", "BUD-02")
def test_nothing_is_reserved_above_a_lowered_ceiling_not_even_by_who_does_not_ask(ledger: Ledger) -> None:
    root = open_task(ledger, "root", {CENT: 100, FEE: 9})
    leaf = open_task(ledger, "leaf", {CENT: None, FEE: None}, root)
    flying = admitted_effect(ledger, leaf, {CENT: 60})
    settle(ledger, admitted_effect(ledger, leaf, {CENT: 30}), EffectState.SUCCEEDED, {CENT: 30})
    lower(ledger, root, 50)
    assert (line(ledger, root), line(ledger, leaf)) == ((50, 60, 30, 0, 40), (None, 60, 30, 0, 0))
    for cost in (0, 1, 20):
        force(ledger, leaf, {CENT: cost})
        no = admit(ledger, permitted_effect(ledger, leaf, {CENT: cost})).refusal
        assert no is not None
        assert (str(no.code), no.field, no.level) == ("budget_exceeded", CENT, "root")
    assert line(ledger, root) == (50, 60, 30, 0, 40)
    # Another unit is not concerned, and what is in flight ends as it would have.
    admitted_effect(ledger, leaf, {FEE: 9})
    settle(ledger, flying, EffectState.SUCCEEDED, {CENT: 19})
    assert (line(ledger, root), line(ledger, leaf)) == ((50, 0, 49, 0, 0), (None, 0, 49, 0, 0))
    force(ledger, leaf, {CENT: 2})
    admitted_effect(ledger, leaf, {CENT: 1})


@pytest.mark.spec("BUD-03", "BUD-04")
@pytest.mark.parametrize(
    ("ends", "charged", "after"),
    [
        (EffectState.UNKNOWN, {}, (10, 60, 0, 0, 50)),
        (EffectState.NO_EFFECT, {}, (10, 0, 0, 0, 0)),
        (EffectState.FAILED, {CENT: 60}, (10, 0, 60, 0, 50)),
        (EffectState.SUCCEEDED, {CENT: 75}, (10, 0, 60, 15, 50)),
        (EffectState.SUCCEEDED, {CENT: 10}, (10, 0, 10, 0, 0)),
    ],
)
def test_every_outcome_of_what_was_in_flight_is_recorded_under_a_lowered_ceiling(
    ledger: Ledger, ends: EffectState, charged: Mapping[Unit, int], after: tuple[int, int, int, int, int]
) -> None:
    root = open_task(ledger, "root", {CENT: 100})
    flying = admitted_effect(ledger, root, {CENT: 60})
    lower(ledger, root, 10)
    settle(ledger, flying, ends, charged)
    assert line(ledger, root) == after


@pytest.mark.spec("BUD-03", "LED-05")
def test_a_ceiling_is_lowered_and_never_raised_and_a_closed_task_keeps_its_own(ledger: Ledger) -> None:
    root = open_task(ledger, "root", {CENT: 100})
    leaf = open_task(ledger, "leaf", {CENT: None}, root)
    for ceiling in (100, 99, 0):
        lower(ledger, root, ceiling)
        assert line(ledger, root)[0] == ceiling
    with pytest.raises(Broken, match="not above"):
        lower(ledger, root, 1)
    lower(ledger, leaf, AMOUNT_MAX)
    with pytest.raises(Broken, match="not above"):
        lower(ledger, leaf, AMOUNT_MAX + 1)
    lower(ledger, leaf, 7)
    lower(ledger, leaf, 0, FEE)
    assert line(ledger, leaf, FEE) == (0, 0, 0, 0, 0)
    move_task(ledger, leaf, TaskState.CLOSED)
    with pytest.raises(Broken, match="guard:task_identity"):
        lower(ledger, leaf, 1)
    assert line(ledger, leaf) == (7, 0, 0, 0, 0)


@pytest.mark.spec("BUD-03")
def test_an_accepted_overrun_is_spent_and_no_more_of_it_than_there_is(ledger: Ledger) -> None:
    root = open_task(ledger, "root", {CENT: 100})
    leaf = open_task(ledger, "leaf", {CENT: None}, root)
    settle(ledger, admitted_effect(ledger, leaf, {CENT: 60}), EffectState.SUCCEEDED, {CENT: 110})
    assert line(ledger, root) == (100, 0, 60, 50, 0)
    with pytest.raises(Broken, match="overrun_range"):
        accept(ledger, root, 51)
    accept(ledger, root, 20)
    accept(ledger, leaf, 50)
    assert (line(ledger, root), line(ledger, leaf)) == ((100, 0, 80, 30, 0), (None, 0, 110, 0, 0))
    accept(ledger, root, 30)
    assert line(ledger, root) == (100, 0, 110, 0, 10)
    force(ledger, leaf, {CENT: 1})
