"""What an owner does to a task that is there: close, freeze, thaw, grant, lower, accept an overrun.

Rules: BUD-01 (never wider than the levels above), BUD-03 (a ceiling may be lowered to any value; an overrun is counted
and never lost), BUD-05 (what is stopped admits nothing and still settles), AUD-01. A closed task changes no more.
Each command gives one decision to `_changed`: the step that makes the change under the lock, or why not.
Next: `issuer.commands.task_views` shows the task as it then stands.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from issuer import answering
from issuer.commands.edge import at_the_edge
from issuer.commands.task_views import shown
from issuer.commands.task_words import Blocked, accepted_say, refused, thawed_say, wider_say
from issuer.flow import spans
from issuer.flow.refusing import unknown_unit
from issuer.flow.signed_act import acting
from issuer.house import House, Visit
from issuer.notifying import tell_frozen
from issuer.wire import Answer
from ledger.budgets import refuse_wider_ceiling
from ledger.changes import CeilingGranted, CeilingLowered, OverrunAccepted, Step, TaskMoved
from ledger.errors import Broken, Malformed
from ledger.model import AMOUNT_MAX, InstantMs, Task, TaskState, Unit, costs
from ledger.port import Verdict, View
from ledger.refusals import Refusal, RefusalCode
from ledger.rules import refuse_path
from ledger.transitions import TransitionName


@dataclass(frozen=True, slots=True, kw_only=True)
class _No:
    """Why a change is not made; `say` replaces the code's sentence."""

    refusal: Refusal
    say: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The task that a change was made to, or None, and the sentence of the no."""

    task: Task | None
    say: str = ""


_Decide = Callable[[View, Task], Step | _No]


def _changed(visit: Visit, name: str, decide: _Decide) -> Task | Answer:
    """Make a change of the task `name`; return the task as it was before, or the answer of the no."""

    def under_lock(view: View, _now: InstantMs) -> Verdict[_Found]:
        task = view.task_named(name)
        if task is None:
            done: Step | _No = _No(refusal=Refusal(code=RefusalCode.UNKNOWN_REFERENCE, field="task"))
        elif task.state is TaskState.CLOSED:
            done = _No(refusal=Refusal(code=RefusalCode.TASK_CLOSED, level=task.name))
        else:
            done = decide(view, task)
        if isinstance(done, _No):
            step = Step(transition=spans.refused(visit, done.refusal))
            return Verdict(value=_Found(task=task, say=done.say), refusal=done.refusal, steps=(step,))
        return Verdict(value=_Found(task=task), steps=(done,))

    committed = visit.house.ledger.transact(acting(visit, under_lock))
    found = committed.value
    if committed.refusal is not None:
        return refused(visit.house, committed.refusal, name, say=found.say)
    if found.task is None:
        raise Broken("a changed task is missing")
    return found.task


def _answered(
    visit: Visit, name: str, code: str, decide: _Decide, say: Callable[[House, Task], str] = lambda *_: ""
) -> Answer:
    """Make a change and answer with the task as it then stands; `say` may replace the code's sentence."""
    done = _changed(visit, name, decide)
    if isinstance(done, Answer):
        return done
    more = {"task": shown(visit.house, done.task_id)}
    return answering.about(visit.house, code, say=say(visit.house, done), more=more)


def _moved(
    visit: Visit,
    name: str,
    transition: TransitionName,
    target: TaskState,
    say: Callable[[House, Task], str] = lambda *_: "",
) -> Answer:
    """Move the task `name` to `target`, where it is not there already; the code is what the transition says."""

    def decide(_view: View, task: Task) -> Step | _No:
        if task.state is target:
            return _No(refusal=Refusal(code=RefusalCode.NOTHING_TO_CHANGE, level=task.name))
        moved = TaskMoved(task_id=task.task_id, state=target)
        return Step(transition=spans.of_task(visit, transition, task), changes=(moved,))

    code = str(transition).removeprefix("task.")
    return at_the_edge(visit, lambda: _answered(visit, name, code, decide, say))


def task_close(visit: Visit, name: str) -> Answer:
    """Close a task for good: it admits nothing more, and what it has in flight is still settled (BUD-05)."""
    return _moved(visit, name, TransitionName.TASK_CLOSED, TaskState.CLOSED)


def task_freeze(visit: Visit, name: str) -> Answer:
    """Freeze a task: it and all below it admit nothing until it is thawed; what is in flight still settles (BUD-05).

    Permits are left as they are: one that is still in time when the task is thawed can be used.
    """
    answer = _moved(visit, name, TransitionName.TASK_FROZEN, TaskState.FROZEN)
    match answer.more.get("task"):
        case {"id": str(task_id)}:  # only where it was frozen here
            tell_frozen(visit.house, task_id)
        case _:
            pass
    return answer


def task_thaw(visit: Visit, name: str) -> Answer:
    """Open a frozen task again; a level above that stops it still is named in the answer."""

    def say(house: House, task: Task) -> str:
        no = refuse_path(house.ledger.read(lambda view: view.path(task.task_id)), house.now())
        return "" if no is None else thawed_say(no)

    return _moved(visit, name, TransitionName.TASK_THAWED, TaskState.OPEN, say)


def task_grant(visit: Visit, name: str, budget: Mapping[str, int]) -> Answer:
    """Add to a task's own ceilings; each amount is at least 1, and no level above may have less than the sum."""

    def run() -> Answer:
        granted = _amounts(visit.house, budget, least=1)

        def decide(view: View, task: Task) -> Step | _No:
            raised: dict[Unit, int] = {}
            for unit, amount in granted.items():
                before = task.ceilings.get(unit, 0)
                if before is None:
                    refusal = Refusal(code=RefusalCode.UNSUPPORTED, field="budget", level=task.name)
                    say = f"{task.name} inherits {unit} and has no ceiling of its own to add to; a task above has."
                    return _No(refusal=refusal, say=say)
                raised[unit] = before + amount
            if max(raised.values()) > AMOUNT_MAX:
                return _No(refusal=Refusal(code=RefusalCode.MALFORMED, field="budget", level=task.name))
            wider = refuse_wider_ceiling(view.path(task.task_id)[1:], raised)
            if wider is not None:
                return _No(refusal=wider, say=wider_say(wider))
            attributes = {"granted": spans.amounts(granted)}
            return Step(
                transition=spans.of_task(visit, TransitionName.TASK_GRANTED, task, **attributes),
                changes=tuple(
                    CeilingGranted(task_id=task.task_id, unit=unit, amount=amount)
                    for unit, amount in granted.items()
                ),
            )

        return _answered(visit, name, "granted", decide)

    return at_the_edge(visit, run)


def task_lower(visit: Visit, name: str, budget: Mapping[str, int]) -> Answer:
    """Set a task's own ceilings to what `budget` says, which is not above what they are (BUD-03).

    It may be below what is used, which then blocks. A unit that inherited gets a ceiling of its own.
    """

    def run() -> Answer:
        lowered = _amounts(visit.house, budget, least=0)

        def decide(view: View, task: Task) -> Step | _No:
            for unit, ceiling in lowered.items():
                before = task.ceilings.get(unit, 0)
                if before is not None and ceiling > before:
                    refusal = Refusal(code=RefusalCode.MALFORMED, field="budget", level=task.name)
                    say = f"The ceiling is {before} {unit}, and lowering does not raise it; a grant does."
                    return _No(refusal=refusal, say=say)
            wider = refuse_wider_ceiling(view.path(task.task_id)[1:], _given(task, lowered))
            if wider is not None:
                return _No(refusal=wider, say=wider_say(wider))
            attributes = {"lowered": spans.amounts(lowered)}
            return Step(
                transition=spans.of_task(visit, TransitionName.TASK_LOWERED, task, **attributes),
                changes=tuple(
                    CeilingLowered(task_id=task.task_id, unit=unit, ceiling=ceiling)
                    for unit, ceiling in lowered.items()
                ),
            )

        return _answered(visit, name, "lowered", decide)

    return at_the_edge(visit, run)


def _given(task: Task, lowered: Mapping[Unit, int]) -> Mapping[Unit, int]:
    """Return the ceilings that units which inherited are given: a number that was there cannot become too wide."""
    return {unit: ceiling for unit, ceiling in lowered.items() if task.ceilings.get(unit, 0) is None}


def _amounts(house: House, budget: Mapping[str, int], *, least: int) -> Mapping[Unit, int]:
    amounts = costs(budget)
    if not amounts or min(amounts.values()) < least:
        raise Malformed("out_of_range", "budget", f"give some unit an amount of at least {least}")
    unknown = [unit for unit in amounts if unit not in house.units]
    if unknown:
        raise unknown_unit(house, "budget", unknown[0])
    return amounts


def task_accept_overrun(visit: Visit, name: str, unit: str | None = None) -> Answer:
    """Count a task's overrun as spent, in one unit or in all, at exactly that task (BUD-03).

    The answer names the other levels of its line that are still blocked, and the command for each.
    """

    def run() -> Answer:
        wanted = None if unit is None else next(iter(costs({unit: 0})))

        def decide(view: View, task: Task) -> Step | _No:
            accepted: dict[Unit, int] = {}
            for line in view.budget(task.task_id).values():
                if line.overrun == 0 or wanted not in {None, line.unit}:
                    continue
                if line.overrun > AMOUNT_MAX - line.settled - line.reserved:
                    refusal = Refusal(code=RefusalCode.UNSUPPORTED, field=line.unit, level=task.name)
                    return _No(
                        refusal=refusal, say="That is more than a budget can count, so it stays blocked."
                    )
                accepted[line.unit] = line.overrun
            if not accepted:
                refusal = Refusal(code=RefusalCode.NOTHING_TO_CHANGE, field="unit", level=task.name)
                return _No(
                    refusal=refusal, say=f"There is no such overrun at {task.name}; nothing was changed."
                )
            attributes = {"overrun": spans.amounts(accepted)}
            return Step(
                transition=spans.of_task(visit, TransitionName.OVERRUN_ACCEPTED, task, **attributes),
                changes=tuple(
                    OverrunAccepted(task_id=task.task_id, unit=each, amount=amount)
                    for each, amount in accepted.items()
                ),
            )

        done = _changed(visit, name, decide)
        if isinstance(done, Answer):
            return done
        blocked = visit.house.ledger.read(lambda view: _blocked(view, done, wanted))
        more = {"task": shown(visit.house, done.task_id), "blocked": [row.as_json() for row in blocked]}
        return answering.about(visit.house, "accepted", say=accepted_say(done.name, blocked), more=more)

    return at_the_edge(visit, run)


def _blocked(view: View, task: Task, unit: Unit | None) -> list[Blocked]:
    """Return what still is blocked in the task's line, root first: by an overrun, or above a lowered ceiling."""
    above = {node.task.task_id for node in view.path(task.task_id)}
    rows: list[Blocked] = []
    for other in sorted(view.tasks(), key=lambda each: each.depth):
        if other.root_id != task.root_id or other.state is TaskState.CLOSED:
            continue
        below = any(node.task.task_id == task.task_id for node in view.path(other.task_id))
        if other.task_id in above or below:
            rows += [
                Blocked(task=other.name, unit=line.unit, overrun=line.overrun, above=line.above)
                for line in view.budget(other.task_id).values()
                if (line.overrun or line.above) and unit in {None, line.unit}
            ]
    return rows
