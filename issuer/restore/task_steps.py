"""What a restored ledger does again to its tasks, and what it does not (LED-08).

A task that was opened after the backup is opened again, frozen, so that what it holds has a place. A freeze, a closure
and a lower ceiling are done again; a grant, a thaw and an accepted overrun are not: they give authority, and an owner
gives it anew.
Next: `issuer.restore.effect_steps`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from issuer.restore.plan import REASON, Plan, common
from issuer.restore.retold import TaskEvent, ceilings_in, scope_in
from ledger.changes import CeilingLowered, Change, Step, TaskMoved, TaskOpened
from ledger.model import InstantMs, PathNode, Task, TaskId, TaskState, Unit
from ledger.transitions import AttributeValue, Transition, TransitionName

_OF_ANOTHER_CALL: Final = frozenset({"permit.caller", "permit.instance", "permit.host.trace_id"})
"""What a span says of the call that it was made by."""


class TaskSteps:
    """The steps as they come, over the tasks as they stand meanwhile; `frozen` are the names that it froze."""

    def __init__(self, plan: Plan, tasks: Mapping[TaskId, Task]) -> None:
        """Begin with the tasks of the backup."""
        self._plan = plan
        self._tasks = dict(tasks)
        self.steps: list[Step] = []
        self.frozen: list[str] = []

    def path(self, task_id: TaskId) -> tuple[PathNode, ...]:
        """Return a task and its ancestors, leaf first, without their budgets.

        Raises:
            ValueError: there is no such task.
        """
        nodes: list[PathNode] = []
        at = self._tasks.get(task_id)
        while at is not None:
            nodes.append(PathNode(task=at, budget={}))
            at = None if at.parent_id is None else self._tasks.get(at.parent_id)
        if not nodes:
            raise ValueError("an effect is told of whose task was never opened")
        return tuple(nodes)

    def _step(self, transition: Transition, *changes: Change) -> None:
        self.steps.append(Step(transition=transition, changes=changes))

    def retell(self, events: Sequence[TaskEvent]) -> None:
        """Open what was opened, frozen; freeze, close and lower what was frozen, closed and lowered."""
        for event in events:
            task = self._tasks.get(event.task_id)
            if event.name is TransitionName.TASK_OPENED:
                if task is None:
                    self._open(event)
                continue
            if task is None:
                raise ValueError("a task is told of that was never opened")
            match event.name:
                case TransitionName.TASK_FROZEN:
                    self._freeze(task)
                case TransitionName.TASK_CLOSED if task.state is not TaskState.CLOSED:
                    self._move(task, TaskState.CLOSED, TransitionName.TASK_CLOSED)
                case TransitionName.TASK_LOWERED if task.state is not TaskState.CLOSED:
                    self._lower(task, ceilings_in(event.attributes["permit.lowered"]))
                case _:
                    pass

    def _open(self, event: TaskEvent) -> None:
        said = event.attributes
        parent_id = said.get("permit.parent.id")
        parent = self._tasks.get(TaskId(str(parent_id)))
        if parent_id is not None and parent is None:
            raise ValueError("a task is told of whose parent was never opened")
        name, actors = str(said["permit.task.name"]), said.get("permit.actors", ())
        if name in {task.name for task in self._tasks.values()}:
            name = f"restored.{event.task_id}"
        expires_ms = said.get("permit.expires_ms", event.at_ms)
        task = Task(
            task_id=event.task_id,
            name=name,
            parent_id=None if parent is None else parent.task_id,
            root_id=event.task_id if parent is None else parent.root_id,
            depth=0 if parent is None else parent.depth + 1,
            subject=str(said["permit.subject"]),
            actors=actors if isinstance(actors, tuple) and actors else (str(said["permit.subject"]),),
            expires_ms=InstantMs(expires_ms if type(expires_ms) is int else event.at_ms),
            # Frozen from the first, so that its parent may be anything; the span after it says so in the trail.
            state=TaskState.FROZEN,
            opened_ms=event.at_ms,
            ceilings=ceilings_in(said["permit.ceiling"]),
            scope=scope_in(said.get("permit.scope", ())),
        )
        about = {name: value for name, value in said.items() if name not in _OF_ANOTHER_CALL}
        attributes = {**about, **common(self._plan), "permit.task.name": name, "permit.reason": REASON}
        opened = Transition(name=TransitionName.TASK_OPENED, story=task.task_id, attributes=attributes)
        self._step(opened, TaskOpened(task=task))
        self._tasks[task.task_id] = task
        self._move(task, TaskState.FROZEN, TransitionName.TASK_FROZEN)

    def _freeze(self, task: Task) -> None:
        if task.state is TaskState.OPEN:
            self._move(task, TaskState.FROZEN, TransitionName.TASK_FROZEN)

    def _move(self, task: Task, state: TaskState, name: TransitionName) -> None:
        self._step(self._of_task(task, name), TaskMoved(task_id=task.task_id, state=state))
        self._tasks[task.task_id] = replace(task, state=state)
        if state is TaskState.FROZEN:
            self.frozen.append(task.name)

    def _lower(self, task: Task, ceilings: Mapping[Unit, int | None]) -> None:
        lower: dict[Unit, int] = {}
        for unit, ceiling in ceilings.items():
            now = task.ceilings.get(unit, 0)
            if ceiling is not None and (now is None or ceiling < now):
                lower[unit] = ceiling
        if not lower:
            return
        said = tuple(f"{unit}={ceiling}" for unit, ceiling in sorted(lower.items()))
        changes = (
            CeilingLowered(task_id=task.task_id, unit=unit, ceiling=ceiling)
            for unit, ceiling in lower.items()
        )
        self._step(self._of_task(task, TransitionName.TASK_LOWERED, lowered=said), *changes)
        self._tasks[task.task_id] = replace(task, ceilings={**task.ceilings, **lower})

    def freeze_all(self) -> None:
        """Freeze every open task: what was admitted in it after the backup is not known (LED-08)."""
        for task in list(self._tasks.values()):
            self._freeze(task)

    def _of_task(self, task: Task, name: TransitionName, **more: AttributeValue) -> Transition:
        return Transition(
            name=name,
            story=task.task_id,
            attributes={
                **common(self._plan),
                "permit.task.id": task.task_id,
                "permit.task.name": task.name,
                "permit.root.id": task.root_id,
                "permit.subject": task.subject,
                "permit.reason": REASON,
                **{f"permit.{key}": value for key, value in more.items()},
            },
        )
