"""A tiny ledger in plain Python predicts every answer of the real one: tasks, budgets, bounds, effects, repetition.

The model shares no arithmetic with the product: it keeps what each effect holds and was charged, and adds up.
"""

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from ledger.changes import CeilingGranted, CeilingLowered, Change, EffectMoved, OverrunAccepted, Step
from ledger.errors import Broken
from ledger.model import CounterTake, Effect, Scope, Task, TaskState, Unit
from ledger.port import Committed
from ledger.states import EffectState
from ledger.transitions import Transition, TransitionName
from tests.support.ledgers import (
    CENT,
    CLASS,
    HOUR_MS,
    START,
    admit,
    commit_steps,
    made_book,
    move_task,
    moving,
    open_task,
    permit,
    prepare,
    settle,
)

FEE = Unit("EUR.fee")
UNITS = (CENT, FEE)
S = EffectState
COUNTER_CEILING = 6
MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of its own is made in it
LIFE_MS = 10 * HOUR_MS

Ceilings = dict[Unit, int | None]
amounts = st.integers(0, 12)
costs_of = st.dictionaries(st.sampled_from(UNITS), amounts, min_size=1)
charges = st.dictionaries(st.sampled_from(UNITS), st.integers(0, 20))
ceilings_of = st.dictionaries(st.sampled_from(UNITS), st.one_of(st.none(), st.integers(0, 40)))


@dataclass(kw_only=True)
class ModelTask:
    """A task as the model knows it."""

    name: str
    parent: "ModelTask | None"
    ceilings: Ceilings
    real: Task
    expires: int
    slots: int | None
    state: TaskState = TaskState.OPEN
    accepted: dict[Unit, int] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Whether it is neither frozen nor closed."""
        return self.state is TaskState.OPEN

    def path(self) -> "list[ModelTask]":
        """Itself and its ancestors, leaf first."""
        return [self, *(self.parent.path() if self.parent else [])]


@dataclass(kw_only=True)
class ModelEffect:
    """An effect as the model knows it: what it holds now, what it was charged, and what it took."""

    task: ModelTask
    cost: dict[Unit, int]
    real: Effect
    content: bytes
    state: EffectState = S.PREPARED
    expires: int = 0
    holds: dict[Unit, int] = field(default_factory=dict)
    charged: dict[Unit, int] = field(default_factory=dict)
    over: dict[Unit, int] = field(default_factory=dict)
    took: int = 0
    slot: int = 0


class LedgerMachine(RuleBasedStateMachine):
    """Random commands to both, and every answer and every total compared."""

    tasks = Bundle("tasks")
    effects = Bundle("effects")

    def __init__(self) -> None:
        super().__init__()
        # No power is cut here: a memory file system, where there is one, saves a thousand syncs.
        self.folder = Path(tempfile.mkdtemp(prefix="machine-", dir=MEMORY if MEMORY.is_dir() else None))
        self.book = made_book(self.folder / "book")
        self.ledger = self.book.open()
        self.all_tasks: list[ModelTask] = []
        self.all_effects: list[ModelEffect] = []
        self.spans = 0

    def teardown(self) -> None:
        self.ledger.close()
        shutil.rmtree(self.folder)

    # ------------------------------------------------------------------------------- the model's sums

    def below(self, task: ModelTask) -> list[ModelEffect]:
        return [effect for effect in self.all_effects if task in effect.task.path()]

    def total(self, task: ModelTask, what: str, unit: Unit) -> int:
        return sum(getattr(effect, what).get(unit, 0) for effect in self.below(task))

    def counted(self) -> int:
        return sum(effect.took for effect in self.all_effects)

    def money(self, task: ModelTask, unit: Unit) -> tuple[int, int, int, int]:
        """Reserved, settled and overrun, an accepted overrun being settled; and how much stands above the ceiling."""
        held, charged, over = (self.total(task, what, unit) for what in ("holds", "charged", "over"))
        accepted, ceiling = task.accepted.get(unit, 0), task.ceilings.get(unit, 0)
        settled = charged + accepted
        above = 0 if ceiling is None else max(0, held + settled - ceiling)
        return held, settled, over - accepted, above

    def full(self, task: ModelTask) -> str | None:
        """Why no slot is free: each level that counts holds those of all below it."""
        for level in task.path():
            if level.slots is not None and sum(effect.slot for effect in self.below(level)) >= level.slots:
                return "slots_exhausted"
        return None

    def stopped(self, task: ModelTask) -> str | None:
        for level in task.path():
            if not level.is_open:
                return f"task_{level.state}"
            if self.book.clock.now >= level.expires:
                return "task_expired"
        return None

    def short(self, effect: ModelEffect) -> str | None:
        """Why the money does not suffice: the lowest level first, units by name."""
        for level in effect.task.path():
            for unit in sorted(effect.cost):
                held, settled, over, above = self.money(level, unit)
                if over:
                    return "budget_overrun"
                ceiling = level.ceilings.get(unit, 0)
                if above or (ceiling is not None and held + settled + effect.cost[unit] > ceiling):
                    return "budget_exceeded"
        return None

    def answered(self, committed: Committed[Any], expected: str | None) -> None:
        found = None if committed.refusal is None else str(committed.refusal.code)
        assert found == expected
        self.spans += 1

    # -------------------------------------------------------------------------------------- commands

    @initialize(target=tasks, left=st.integers(20, 60))
    def first_task(self, left: int) -> ModelTask:
        return self.new_task(None, {CENT: left, FEE: 30}, START + LIFE_MS, slots=40)

    @rule(
        target=tasks,
        ceilings=st.sampled_from([{CENT: None, FEE: 10}, {CENT: 25, FEE: None}, {CENT: 9}]),
        slots=st.sampled_from([None, 3]),
    )
    @precondition(lambda self: len(self.all_tasks) in {1, 2} and self.all_tasks[-1].is_open)
    def useful_child(self, ceilings: Ceilings, slots: int | None) -> ModelTask:
        return self.new_task(self.all_tasks[-1], ceilings, START + LIFE_MS, slots=slots)

    def new_task(
        self, parent: ModelTask | None, ceilings: Ceilings, expires: int, *, slots: int | None
    ) -> ModelTask:
        name = f"t{len(self.all_tasks)}"
        above = None if parent is None else parent.real
        scope = Scope(classes={CLASS: slots})
        real = open_task(self.ledger, name, ceilings, above, scope=scope, expires_ms=expires)
        task = ModelTask(
            name=name, parent=parent, ceilings=dict(ceilings), real=real, expires=expires, slots=slots
        )
        self.all_tasks.append(task)
        self.spans += 1
        return task

    @precondition(lambda self: len(self.all_tasks) < 7)
    @rule(
        target=tasks,
        parent=tasks,
        ceilings=ceilings_of,
        hours=st.integers(1, 10),
        slots=st.sampled_from([None, 1, 4]),
    )
    def child_task(self, parent: ModelTask, ceilings: Ceilings, hours: int, slots: int | None) -> ModelTask:
        if parent.is_open:
            return self.new_task(parent, ceilings, START + hours * HOUR_MS, slots=slots)
        with pytest.raises(Broken):
            open_task(self.ledger, "never", ceilings, parent.real)
        return parent

    def change(self, task: ModelTask, name: TransitionName, change: Change, *, may: bool) -> bool:
        """Try one change of a task; the ledger refuses what the model says it may not."""
        step = Step(transition=Transition(name=name, story=task.real.task_id), changes=(change,))
        if may:
            commit_steps(self.ledger, step)
            self.spans += 1
        else:
            with pytest.raises(Broken):
                commit_steps(self.ledger, step)
        return may

    @rule(task=tasks, unit=st.sampled_from(UNITS), amount=st.integers(1, 15))
    def grant(self, task: ModelTask, unit: Unit, amount: int) -> None:
        ceiling = task.ceilings.get(unit, 0)
        granted = CeilingGranted(task_id=task.real.task_id, unit=unit, amount=amount)
        may = ceiling is not None and task.state is not TaskState.CLOSED
        if self.change(task, TransitionName.TASK_GRANTED, granted, may=may) and ceiling is not None:
            task.ceilings[unit] = ceiling + amount

    @rule(task=tasks, unit=st.sampled_from(UNITS), to=st.integers(0, 30))
    def lower(self, task: ModelTask, unit: Unit, to: int) -> None:
        ceiling = task.ceilings.get(unit, 0)
        lowered = CeilingLowered(task_id=task.real.task_id, unit=unit, ceiling=to)
        may = (ceiling is None or to <= ceiling) and task.state is not TaskState.CLOSED
        if self.change(task, TransitionName.TASK_LOWERED, lowered, may=may):
            task.ceilings[unit] = to

    @rule(task=tasks, unit=st.sampled_from(UNITS), amount=st.integers(1, 9))
    def accept_overrun(self, task: ModelTask, unit: Unit, amount: int) -> None:
        accepted = OverrunAccepted(task_id=task.real.task_id, unit=unit, amount=amount)
        may = amount <= self.money(task, unit)[2]
        if self.change(task, TransitionName.OVERRUN_ACCEPTED, accepted, may=may):
            task.accepted[unit] = task.accepted.get(unit, 0) + amount

    @precondition(lambda self: sum(task.is_open for task in self.all_tasks) > 2)
    @rule(task=tasks, state=st.sampled_from([TaskState.CLOSED, TaskState.FROZEN]))
    def stop_task(self, task: ModelTask, state: TaskState) -> None:
        if task.is_open:
            move_task(self.ledger, task.real, state)
            self.spans += 1
            task.state = state

    @rule(task=tasks)
    def thaw(self, task: ModelTask) -> None:
        if task.state is TaskState.FROZEN:
            move_task(self.ledger, task.real, TaskState.OPEN)
            self.spans += 1
            task.state = TaskState.OPEN
        elif task.state is TaskState.CLOSED:
            with pytest.raises(Broken):
                move_task(self.ledger, task.real, TaskState.OPEN)

    @rule(target=effects, task=tasks, cost=costs_of, same=st.booleans(), hours=st.integers(1, 10))
    def prepare(self, task: ModelTask, cost: dict[Unit, int], same: bool, hours: int) -> ModelEffect | None:
        content = (b"\x00" if same else bytes([len(self.all_effects) + 1])) * 32
        expires = START + hours * HOUR_MS
        fields: dict[str, object] = {"content_key": content, "expires_ms": expires}
        plain = {str(unit): amount for unit, amount in cost.items()}
        if not all(level.is_open for level in task.path()):
            with pytest.raises(Broken):
                prepare(self.ledger, task.real, plain, **fields)
            return None
        real = prepare(self.ledger, task.real, plain, **fields)
        self.spans += 1
        effect = ModelEffect(task=task, cost=dict(cost), real=real, content=content, expires=expires)
        self.all_effects.append(effect)
        return effect

    @rule(effect=effects, amount=st.integers(0, 3))
    def permit(self, effect: ModelEffect | None, amount: int) -> None:
        if effect is None or effect.state is not S.PREPARED:
            return
        take = CounterTake(counter="all", amount=amount, ceiling=COUNTER_CEILING, level="org")
        expected = self.stopped(effect.task) or self.full(effect.task)
        if expected is None and self.counted() + amount > COUNTER_CEILING:
            expected = "class_exhausted"
        self.answered(permit(self.ledger, effect.real, (take,)), expected)
        if expected is None:
            effect.state, effect.took, effect.slot = S.PERMITTED, amount, 1

    @rule(effect=effects, ending=st.sampled_from([S.WITHDRAWN, S.EXPIRED, S.DENIED, S.REVOKED]))
    def end_early(self, effect: ModelEffect | None, ending: EffectState) -> None:
        if effect is None:
            return
        moved = EffectMoved(effect_id=effect.real.effect_id, origin=effect.state, target=ending)
        step = Step(transition=moving(effect.real, ending), changes=(moved,))
        may = effect.state is S.PREPARED or (effect.state is S.PERMITTED and ending is not S.DENIED)
        if may:
            commit_steps(self.ledger, step)
            self.spans += 1
            effect.state, effect.took, effect.slot = ending, 0, 0
        else:
            with pytest.raises(Broken):
                commit_steps(self.ledger, step)

    def admission_of(self, effect: ModelEffect) -> str | None:
        """What admission must answer, in the order of the flow."""
        if effect.state in {S.PREPARED, S.AWAITING_APPROVAL}:
            return "not_permitted_yet"
        if effect.state in {S.ADMITTED, S.SUCCEEDED, S.FAILED, S.NO_EFFECT}:
            return "already_consumed"
        if effect.state is S.UNKNOWN:
            return "outcome_unknown"
        if effect.state is not S.PERMITTED:
            return str(effect.state)
        if self.book.clock.now >= effect.expires:
            return "expired"
        return self.stopped(effect.task) or self.short(effect)

    @rule(effect=effects)
    def admit(self, effect: ModelEffect | None) -> None:
        if effect is None:
            return
        expected = self.admission_of(effect)
        self.answered(admit(self.ledger, effect.real), expected)
        if expected is None:
            effect.state, effect.holds = S.ADMITTED, dict(effect.cost)

    @rule(
        effect=effects,
        outcome=st.sampled_from([S.SUCCEEDED, S.SUCCEEDED, S.FAILED, S.NO_EFFECT, S.UNKNOWN]),
        charged=charges,
    )
    def settle(self, effect: ModelEffect | None, outcome: EffectState, charged: dict[Unit, int]) -> None:
        if effect is None:
            return
        charged = {} if outcome is S.NO_EFFECT else charged
        expected = None if effect.state in {S.ADMITTED, S.UNKNOWN} else self.settling_of(effect)
        self.answered(settle(self.ledger, effect.real, outcome, charged), expected)
        if expected is not None or outcome is S.UNKNOWN:
            effect.state = S.UNKNOWN if expected is None else effect.state
            return
        effect.state = outcome
        for unit, charge in charged.items():
            effect.charged[unit] = min(charge, effect.holds.get(unit, 0))
            effect.over[unit] = charge - effect.charged[unit]
        effect.holds = {}
        if outcome is S.NO_EFFECT:
            effect.took = effect.slot = 0

    def settling_of(self, effect: ModelEffect) -> str:
        if effect.state in {S.PREPARED, S.PERMITTED}:
            return "not_permitted_yet"
        return (
            "already_consumed" if effect.state in {S.SUCCEEDED, S.FAILED, S.NO_EFFECT} else str(effect.state)
        )

    # Left to chance few effects would come far: these rules take one that stands where it can go on.

    def in_state(self, number: int, *states: EffectState) -> ModelEffect | None:
        found = [effect for effect in self.all_effects if effect.state in states]
        return found[number % len(found)] if found else None

    @rule(number=st.integers(0, 9), amount=st.sampled_from([0, 0, 1]))
    def permit_one(self, number: int, amount: int) -> None:
        self.permit(self.in_state(number, S.PREPARED), amount)

    @rule(number=st.integers(0, 9))
    def admit_one(self, number: int) -> None:
        self.admit(self.in_state(number, S.PERMITTED))

    @rule(task=tasks, cost=costs_of)
    def go_all_the_way(self, task: ModelTask, cost: dict[Unit, int]) -> None:
        effect = self.prepare(task, cost, same=False, hours=10)
        self.permit(effect, 0)
        self.admit(effect)

    @rule(task=tasks, above=st.integers(1, 9), lost=st.booleans())
    def cost_more_than_held(self, task: ModelTask, above: int, lost: bool) -> None:
        effect = self.prepare(task, {CENT: 2}, same=False, hours=10)
        self.permit(effect, 0)
        self.admit(effect)
        if lost:
            self.settle(effect, S.UNKNOWN, {CENT: 2 + above})
        self.settle(effect, S.FAILED, {CENT: 2 + above})

    @rule(
        number=st.integers(0, 9),
        outcome=st.sampled_from([S.SUCCEEDED, S.FAILED, S.NO_EFFECT, S.UNKNOWN]),
        charged=charges,
    )
    def settle_one(self, number: int, outcome: EffectState, charged: dict[Unit, int]) -> None:
        self.settle(self.in_state(number, S.ADMITTED, S.UNKNOWN), outcome, charged)

    @rule(minutes=st.integers(1, 40))
    def wait(self, minutes: int) -> None:
        self.book.clock.now += minutes * 60_000

    @rule()
    def reopen(self) -> None:
        self.ledger.close()
        self.ledger = self.book.open()

    # ----------------------------------------------------------------------------------- comparison

    @invariant()
    def totals_agree_at_every_level_and_no_ceiling_is_passed(self) -> None:
        ids = [task.real.task_id for task in self.all_tasks]
        budgets = self.ledger.read(lambda view: [view.budget(task_id) for task_id in ids])
        for task, lines in zip(self.all_tasks, budgets, strict=True):
            for unit in UNITS:
                held, settled, over, above = self.money(task, unit)
                ceiling = task.ceilings.get(unit, 0)
                if unit not in lines:
                    assert (ceiling, held, settled, over) == (0, 0, 0, 0)
                    continue
                found = lines[unit]
                assert (found.ceiling, found.reserved, found.settled) == (ceiling, held, settled)
                assert (found.overrun, found.above) == (over, above)
                assert found.ceiling is None or found.settled + found.reserved <= found.ceiling + above

    @invariant()
    def slots_agree_at_every_level_that_counts_and_none_is_used_twice(self) -> None:
        counters = [f"slot|{task.real.task_id}|class|{CLASS}" for task in self.all_tasks]
        used = self.ledger.read(lambda view: [view.counter(counter) for counter in counters])
        for task, found in zip(self.all_tasks, used, strict=True):
            told = sum(effect.slot for effect in self.below(task))
            assert found == (0 if task.slots is None else told)
            assert task.slots is None or found <= task.slots

    @invariant()
    def states_counters_and_trail_agree(self) -> None:
        states, counted, head, repeated = self.ledger.read(
            lambda view: (
                {item.effect_id: item.state for item in view.effects(states=())},
                view.counter("all"),
                view.head().sequence,
                view.repetition_of_content(b"\x00" * 32),
            )
        )
        assert states == {effect.real.effect_id: effect.state for effect in self.all_effects}
        assert counted == self.counted() <= COUNTER_CEILING
        assert head == self.spans
        same = [effect.state for effect in self.all_effects if effect.content == b"\x00" * 32]
        assert (repeated.pending, repeated.unresolved, repeated.succeeded) == (
            sum(state in {S.PREPARED, S.PERMITTED} for state in same),
            sum(state in {S.ADMITTED, S.UNKNOWN} for state in same),
            sum(state is S.SUCCEEDED for state in same),
        )


# The base class of Hypothesis has no marks of its own; a test case of this name carries ours.
TestLedgerMachine = pytest.mark.spec(
    "BUD-01", "BUD-02", "BUD-03", "BUD-04", "BUD-05", "BUD-06", "ADM-02", "PER-03", "POL-03", "LED-05"
)(LedgerMachine.TestCase)
TestLedgerMachine.settings = settings(max_examples=20, stateful_step_count=40, deadline=None)


class LongLedgerMachine(LedgerMachine):
    """The same, for as long as `make soak` likes."""


TestLedgerMachineForLong = pytest.mark.soak(LongLedgerMachine.TestCase)
TestLedgerMachineForLong.settings = settings(max_examples=1_000, stateful_step_count=80, deadline=None)
