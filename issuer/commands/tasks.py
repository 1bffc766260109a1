"""`task open|show|list|close|grant`: the tree of tasks and its budgets (BUD-01, BUD-05).

A child is never wider than its parent: its expiry is capped, its actors and subject are the parent's or fewer, and
what it spends is held at every ancestor anyway.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from issuer import answering
from issuer.clock import instant_text
from issuer.commands.edge import at_the_edge
from issuer.commands.looking import swept
from issuer.flow import spans
from issuer.flow.prepare import refuse_unserved
from issuer.flow.refusing import RefusedError
from issuer.house import House, Visit
from issuer.ids import new_task_id
from issuer.wire import Answer
from ledger.budgets import available
from ledger.changes import CeilingGranted, Step, TaskMoved, TaskOpened
from ledger.errors import Broken, Malformed
from ledger.model import (
    AMOUNT_MAX,
    BudgetLine,
    InstantMs,
    PathNode,
    Task,
    TaskId,
    TaskState,
    TransitionName,
    Unit,
    checked_name,
    costs,
)
from ledger.port import Verdict, View
from ledger.refusals import Refusal, RefusalCode
from ledger.rules import refuse_path

INHERIT = "inherit"
EXPIRES_MS_MAX: Final = 253_402_300_799_999
"""The last millisecond of the year 9999: no later instant can be written (RFC 3339, section 5.6)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTask:
    """What an owner asks for. `budget` gives a whole amount or `inherit` per unit; an absent unit is zero."""

    name: str
    parent: str | None
    subject: str | None
    actors: tuple[str, ...]
    budget: Mapping[str, int | str]
    expires_ms: InstantMs


def task_open(visit: Visit, ask: NewTask) -> Answer:
    """Open a task, a root or below a parent."""

    def run() -> Answer:
        refuse_unserved(visit.house.profile, None)
        ceilings = _ceilings(visit.house, ask)
        checked_name(ask.name, "task")
        _check_expiry(ask.expires_ms)
        _known(visit.house, ask)
        committed = visit.house.ledger.transact(lambda view, now: _opened(visit, ask, ceilings, view, now))
        if committed.refusal is not None or committed.value is None:
            return answering.refused(
                visit.house, committed.refusal or Refusal(code=RefusalCode.UNKNOWN_REFERENCE)
            )
        return answering.about(
            visit.house, "opened", more={"task": _shown(visit.house, committed.value.task_id)}
        )

    return at_the_edge(visit, run)


def _ceilings(house: House, ask: NewTask) -> Mapping[Unit, int | None]:
    inherits = [unit for unit, ceiling in ask.budget.items() if ceiling == INHERIT]
    if inherits and ask.parent is None:
        raise Malformed("not_one_of", "budget", "a root task has no parent to inherit a ceiling from")
    amounts = costs({unit: ceiling for unit, ceiling in ask.budget.items() if ceiling != INHERIT})  # type: ignore[misc]
    ceilings: dict[Unit, int | None] = {**amounts, **{Unit(unit): None for unit in inherits}}
    unknown = [unit for unit in ceilings if unit not in house.units]
    if unknown:
        raise RefusedError(
            RefusalCode.UNKNOWN_REFERENCE, field="budget", say=f"No operation costs {unknown[0]}."
        )
    return ceilings


def _check_expiry(expires_ms: object) -> None:
    """Refuse an expiry that is no instant that could be shown; a stored one would break every later view of it."""
    if type(expires_ms) is not int:
        raise Malformed("wrong_type", "expires", "the expiry must be a whole number of milliseconds")
    if not 0 <= expires_ms <= EXPIRES_MS_MAX:
        raise Malformed("out_of_range", "expires", "the expiry must be between the years 1970 and 9999")


def _known(house: House, ask: NewTask) -> None:
    for actor in ask.actors:
        if actor not in house.profile.actors:
            raise RefusedError(RefusalCode.UNKNOWN_REFERENCE, field="actor")
    if ask.subject is not None and ask.subject not in house.profile.people:
        raise RefusedError(RefusalCode.UNKNOWN_REFERENCE, field="subject")


def _opened(
    visit: Visit,
    ask: NewTask,
    ceilings: Mapping[Unit, int | None],
    view: View,
    now: InstantMs,
) -> Verdict[Task | None]:
    no = _refuse_opening(ask, view, now)
    if no is not None:
        step = Step(transition=spans.refused(visit, no))
        return Verdict(value=None, refusal=no, steps=(step,))
    parent = None if ask.parent is None else view.task_named(ask.parent)
    task_id = new_task_id()
    task = Task(
        task_id=task_id,
        name=ask.name,
        parent_id=None if parent is None else parent.task_id,
        root_id=task_id if parent is None else parent.root_id,
        depth=0 if parent is None else parent.depth + 1,
        subject=ask.subject or (parent.subject if parent is not None else ""),
        actors=ask.actors or (parent.actors if parent is not None else ()),
        expires_ms=ask.expires_ms if parent is None else InstantMs(min(ask.expires_ms, parent.expires_ms)),
        state=TaskState.OPEN,
        opened_ms=now,
    )
    transition = spans.of_task(
        visit,
        TransitionName.TASK_OPENED,
        task,
        ceiling=tuple(
            f"{unit}={INHERIT if amount is None else amount}" for unit, amount in sorted(ceilings.items())
        ),
        expires__ms=task.expires_ms,
    )
    step = Step(transition=transition, changes=(TaskOpened(task=task, ceilings=ceilings),))
    return Verdict(value=task, steps=(step,))


def _refuse_opening(ask: NewTask, view: View, now: InstantMs) -> Refusal | None:
    if view.task_named(ask.name) is not None:
        return Refusal(code=RefusalCode.NAME_TAKEN, field="task")
    if now >= ask.expires_ms:
        return Refusal(code=RefusalCode.TASK_EXPIRED, level=ask.name)
    if ask.parent is None:
        missing = "actor" if not ask.actors else "subject" if ask.subject is None else None
        return None if missing is None else Refusal(code=RefusalCode.MALFORMED, field=missing)
    parent = view.task_named(ask.parent)
    if parent is None:
        return Refusal(code=RefusalCode.UNKNOWN_REFERENCE, field="parent")
    path: tuple[PathNode, ...] = view.path(parent.task_id)
    no = refuse_path(path, now)
    if no is not None:
        return no
    if not set(ask.actors) <= set(parent.actors):
        return Refusal(code=RefusalCode.FORBIDDEN, field="actor", level=parent.name)
    if ask.subject not in {None, parent.subject}:
        return Refusal(code=RefusalCode.FORBIDDEN, field="subject", level=parent.name)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """One change of an open task: why not, or the step that makes it."""

    code: str
    refuse: Callable[[View, Task], Refusal | None]
    step: Callable[[Task], Step]


def _changed(visit: Visit, name: str, change: _Change) -> Answer:
    def decide(view: View, _now: InstantMs) -> Verdict[Task | None]:
        task = view.task_named(name)
        missing = Refusal(code=RefusalCode.UNKNOWN_REFERENCE, field="task")
        no = missing if task is None else change.refuse(view, task)
        if task is None or no is not None:
            step = Step(transition=spans.refused(visit, no or missing))
            return Verdict(value=None, refusal=no or missing, steps=(step,))
        return Verdict(value=task, steps=(change.step(task),))

    committed = visit.house.ledger.transact(decide)
    if committed.refusal is not None:
        return answering.refused(visit.house, committed.refusal)
    if committed.value is None:
        raise Broken("a changed task is missing")
    return answering.about(
        visit.house, change.code, more={"task": _shown(visit.house, committed.value.task_id)}
    )


def task_close(visit: Visit, name: str) -> Answer:
    """Close a task: it admits nothing more, and what it has in flight is still settled (BUD-05)."""

    def refuse(_view: View, task: Task) -> Refusal | None:
        return (
            Refusal(code=RefusalCode.TASK_CLOSED, level=task.name) if task.state is TaskState.CLOSED else None
        )

    def step(task: Task) -> Step:
        transition = spans.of_task(visit, TransitionName.TASK_CLOSED, task)
        return Step(transition=transition, changes=(TaskMoved(task_id=task.task_id, state=TaskState.CLOSED),))

    change = _Change(code="closed", refuse=refuse, step=step)
    return at_the_edge(visit, lambda: _changed(visit, name, change))


def task_grant(visit: Visit, name: str, budget: Mapping[str, int]) -> Answer:
    """Add to a task's own ceilings; each amount is at least 1."""

    def run() -> Answer:
        granted = _granted(visit.house, budget)

        def refuse(view: View, task: Task) -> Refusal | None:
            if task.state is TaskState.CLOSED:
                return Refusal(code=RefusalCode.TASK_CLOSED, level=task.name)
            lines = view.budget(task.task_id)
            for unit, amount in granted.items():
                line = lines.get(unit)
                if line is not None and line.ceiling is None:
                    return Refusal(code=RefusalCode.UNSUPPORTED, field="budget", level=task.name)
                if line is not None and line.ceiling is not None and line.ceiling + amount > AMOUNT_MAX:
                    return Refusal(code=RefusalCode.MALFORMED, field="budget", level=task.name)
            return None

        def step(task: Task) -> Step:
            transition = spans.of_task(
                visit, TransitionName.TASK_GRANTED, task, granted=spans.amounts(granted)
            )
            grants = tuple(
                CeilingGranted(task_id=task.task_id, unit=unit, amount=amount)
                for unit, amount in granted.items()
            )
            return Step(transition=transition, changes=grants)

        return _changed(visit, name, _Change(code="granted", refuse=refuse, step=step))

    return at_the_edge(visit, run)


def _granted(house: House, budget: Mapping[str, int]) -> Mapping[Unit, int]:
    granted = costs(budget)
    if not granted or min(granted.values()) < 1:
        raise Malformed("out_of_range", "budget", "a grant adds at least 1 of some unit")
    unknown = [unit for unit in granted if unit not in house.units]
    if unknown:
        raise RefusedError(
            RefusalCode.UNKNOWN_REFERENCE, field="budget", say=f"No operation costs {unknown[0]}."
        )
    return granted


def task_show(visit: Visit, name: str) -> Answer:
    """Show one task with its budget at every unit."""

    def run() -> Answer:
        swept(visit)
        task = visit.house.ledger.read(lambda view: view.task_named(name))
        if task is None:
            raise RefusedError(RefusalCode.UNKNOWN_REFERENCE, field="task")
        return answering.about(visit.house, "found", more={"task": _shown(visit.house, task.task_id)})

    return at_the_edge(visit, run)


def task_list(visit: Visit) -> Answer:
    """List every task, oldest first."""

    def run() -> Answer:
        swept(visit)
        tasks = visit.house.ledger.read(lambda view: view.tasks())
        return answering.about(
            visit.house, "found", more={"tasks": [_shown(visit.house, task.task_id) for task in tasks]}
        )

    return at_the_edge(visit, run)


def _line(line: BudgetLine) -> dict[str, object]:
    return {
        "ceiling": INHERIT if line.ceiling is None else line.ceiling,
        "reserved": line.reserved,
        "settled": line.settled,
        "overrun": line.overrun,
        "available": None if line.ceiling is None else available(line),
    }


def _shown(house: House, task_id: TaskId) -> dict[str, object]:
    """Return one task as JSON."""

    def look(view: View) -> dict[str, object]:
        path = view.path(task_id)
        task = path[0].task
        return {
            "name": task.name,
            "id": task.task_id,
            "parent": path[1].task.name if len(path) > 1 else None,
            "depth": task.depth,
            "state": str(task.state),
            "subject": task.subject,
            "actors": list(task.actors),
            "expires": instant_text(task.expires_ms),
            "budget": {str(unit): _line(line) for unit, line in path[0].budget.items()},
        }

    return house.ledger.read(look)
