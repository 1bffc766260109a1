"""Rows that the keys once signed, put back by somebody without the keys: the head says which are the latest."""
# ruff: noqa: S608 - tables and columns come from the tables of this file

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from ledger.changes import CeilingGranted, CeilingLowered, EffectMoved, Step
from ledger.errors import LedgerCorrupt
from ledger.model import EffectId, Task, TaskId, TaskState
from ledger.sqlite import SqliteLedger
from ledger.sqlite.register import recomputed
from ledger.standing import Standing, bucket_of
from ledger.states import EffectState
from ledger.transitions import Transition, TransitionName
from tests.fault.test_ledger_attacks import why_corrupt
from tests.support.ledger_stages import stages
from tests.support.ledgers import (
    CENT,
    Book,
    admit,
    attacker,
    commit_steps,
    made_book,
    move_task,
    moving,
    new_effect,
    new_task,
    open_task,
    opening,
    permitted_effect,
    preparing,
    without_guards,
)


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return made_book(tmp_path / "book")


@pytest.fixture
def ledger(book: Book) -> SqliteLedger:
    return book.open()


OLDER = ("state", "ceilings", "sequence", "mac")


@pytest.mark.spec("LED-06", "BUD-03", "BUD-05")
@pytest.mark.parametrize("later", ["frozen", "lowered"])
def test_a_task_that_is_set_back_to_before_an_owner_stopped_or_lowered_it_admits_nothing(
    book: Book, ledger: SqliteLedger, later: str
) -> None:
    task, beside = open_task(ledger, "org", {CENT: 10}), open_task(ledger, "beside", {CENT: 10})
    effect = permitted_effect(ledger, task, {CENT: 5})
    raw = attacker(book.path)
    older = raw.execute(
        f"SELECT {', '.join(f'quote({name})' for name in OLDER)} FROM tasks WHERE name = 'org'"
    )
    values = dict(zip(OLDER, older.fetchone(), strict=True))
    raw.close()
    if later == "frozen":
        move_task(ledger, task, TaskState.FROZEN)
    else:
        lowered = CeilingLowered(task_id=task.task_id, unit=CENT, ceiling=1)
        transition = Transition(name=TransitionName.TASK_LOWERED, story=task.task_id)
        commit_steps(ledger, Step(transition=transition, changes=(lowered,)))
    assert admit(ledger, effect).refusal is not None
    change = ", ".join(f"{name} = {value}" for name, value in values.items())
    budget = f"UPDATE budgets SET ceiling = 10, above = 0 WHERE task_id = '{task.task_id}'"
    without_guards(book.path, f"UPDATE tasks SET {change} WHERE name = 'org'", budget)
    for act in (
        lambda: admit(ledger, effect),
        lambda: permitted_effect(ledger, task, {CENT: 1}),
        lambda: ledger.read(lambda view: view.task(task.task_id)),
        lambda: ledger.read(lambda view: view.tasks()),
        lambda: move_task(ledger, task, TaskState.CLOSED),
    ):
        assert why_corrupt(act) == "standing"
    # What lies in another bucket goes on; only what was set back, and its neighbours, stand still.
    if bucket_of(beside.task_id) != bucket_of(task.task_id):
        assert admit(ledger, permitted_effect(ledger, beside, {CENT: 1})).refusal is None


@pytest.mark.spec("LED-06", "BUD-05")
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE tasks SET bucket = (bucket + 1) % 64 WHERE name = 'org'",
        "UPDATE standing SET register = zeroblob(length(register)) WHERE kind = 'tasks'",
        "DELETE FROM standing WHERE kind = 'tasks'",
        "UPDATE standing SET register = (SELECT register FROM standing WHERE kind = 'effects') WHERE kind = 'tasks'",
    ],
)
def test_a_register_or_a_row_out_of_its_bucket_proves_nothing(
    book: Book, ledger: SqliteLedger, statement: str
) -> None:
    task = open_task(ledger, "org", {CENT: 10})
    effect = permitted_effect(ledger, task, {CENT: 5})
    without_guards(book.path, statement)
    assert why_corrupt(lambda: admit(ledger, effect)) == "standing"
    assert why_corrupt(lambda: move_task(ledger, task, TaskState.FROZEN)) == "standing"


# -- an edit that nothing of ours makes good


def set_back(book: Book, ledger: SqliteLedger, name: str) -> Task:
    """Open a task, close it, and put the row back that was signed when it was open."""
    task = open_task(ledger, name, {CENT: 10})
    raw = attacker(book.path)
    (mac, sequence) = raw.execute(
        "SELECT quote(mac), sequence FROM tasks WHERE task_id = ?", (task.task_id,)
    ).fetchone()
    raw.close()
    move_task(ledger, task, TaskState.CLOSED)
    older = f"state = 'open', sequence = {sequence}, mac = {mac}"
    without_guards(book.path, f"UPDATE tasks SET {older} WHERE task_id = '{task.task_id}'")
    return task


def is_trusted(ledger: SqliteLedger, task: Task) -> bool:
    """Whether the ledger shows a task's row as it stands."""
    try:
        return ledger.read(lambda view: view.task(task.task_id)) is not None
    except LedgerCorrupt as fault:
        if fault.reason != "standing":
            raise
        return False


@pytest.mark.spec("LED-06", "BUD-05")
def test_a_register_that_was_made_to_fit_is_not_the_heads(book: Book, ledger: SqliteLedger) -> None:
    task = set_back(book, ledger, "org")
    raw = attacker(book.path)
    register = recomputed(raw, Standing.TASKS)
    raw.close()
    without_guards(book.path, f"UPDATE standing SET register = x'{register.hex()}' WHERE kind = 'tasks'")
    assert not is_trusted(ledger, task)
    assert why_corrupt(lambda: open_task(ledger, "another", {CENT: 1})) == "standing"


@pytest.mark.spec("LED-06", "BUD-05")
def test_a_change_of_a_task_makes_no_older_row_good(book: Book, ledger: SqliteLedger) -> None:
    task = set_back(book, ledger, "org")
    granted = CeilingGranted(task_id=task.task_id, unit=CENT, amount=5)
    transition = Transition(name=TransitionName.TASK_GRANTED, story=task.task_id)
    step = Step(transition=transition, changes=(granted,))
    assert why_corrupt(lambda: commit_steps(ledger, step)) == "standing"
    assert not is_trusted(ledger, task)


@pytest.mark.spec("LED-06", "BUD-05")
def test_a_new_task_in_its_bucket_makes_no_older_row_good(book: Book, ledger: SqliteLedger) -> None:
    task = set_back(book, ledger, "org")
    for number in range(20):
        beside = new_task(f"t{number}", ceilings={CENT: 1})
        same_bucket = TaskId(task.task_id[:6] + beside.task_id[6:])
        beside = replace(beside, task_id=same_bucket, root_id=same_bucket)
        assert why_corrupt(partial(commit_steps, ledger, opening(beside))) == "standing"
    assert not is_trusted(ledger, task)


@pytest.mark.spec("LED-06", "BUD-05")
def test_a_task_that_was_removed_is_missed_when_one_beside_it_is_read(
    book: Book, ledger: SqliteLedger
) -> None:
    task = open_task(ledger, "org", {CENT: 10})
    beside = new_task("beside", ceilings={CENT: 10})
    same_bucket = TaskId(task.task_id[:6] + beside.task_id[6:])
    beside = replace(beside, task_id=same_bucket, root_id=same_bucket)
    commit_steps(ledger, opening(beside))
    gone = [
        f"DELETE FROM {table} WHERE task_id = '{task.task_id}'"
        for table in ("grants", "budgets", "task_path")
    ]
    without_guards(book.path, *gone, f"DELETE FROM tasks WHERE task_id = '{task.task_id}'")
    assert not is_trusted(ledger, beside)
    assert why_corrupt(lambda: move_task(ledger, beside, TaskState.FROZEN)) == "standing"


@pytest.mark.spec("LED-06", "ADM-02")
@pytest.mark.parametrize("over", [EffectState.DENIED, EffectState.EXPIRED, EffectState.SUCCEEDED])
def test_an_effect_that_is_over_and_was_put_back_is_moved_on_by_nobody(
    book: Book, ledger: SqliteLedger, over: EffectState
) -> None:
    effect = stages(ledger).effects[over]
    without_guards(book.path, f"UPDATE effects SET state = 'prepared' WHERE effect_id = '{effect.effect_id}'")
    moved = EffectMoved(effect_id=effect.effect_id, origin=EffectState.PREPARED, target=EffectState.WITHDRAWN)
    back = replace(effect, state=EffectState.PREPARED)
    step = Step(transition=moving(back, EffectState.WITHDRAWN), changes=(moved,))
    assert why_corrupt(lambda: commit_steps(ledger, step)) == "pending_set"


@pytest.mark.spec("LED-06", "ADM-02")
def test_a_new_effect_in_its_bucket_makes_no_older_row_good(book: Book, ledger: SqliteLedger) -> None:
    made = stages(ledger)
    effect = made.effects[EffectState.DENIED]
    without_guards(book.path, f"UPDATE effects SET state = 'prepared' WHERE effect_id = '{effect.effect_id}'")
    beside = new_effect(made.leaf, {CENT: 1})
    beside = replace(beside, effect_id=EffectId(effect.effect_id[:6] + beside.effect_id[6:]))
    assert why_corrupt(lambda: commit_steps(ledger, preparing(beside))) == "pending_set"
