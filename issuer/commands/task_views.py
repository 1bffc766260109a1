"""`task show` and `task list`: a task as it stands, with what is left of its budget and its slots, and what stops it.

Rules: BUD-01 (absent is zero, `inherit` has no bound of its own), BUD-03 (an overrun and what stands above a ceiling
are shown, since they block), BUD-05 (a task below a frozen one is stopped as well), BUD-06, SUR-03. It decides nothing.
"""

from issuer import answering
from issuer.clock import instant_text
from issuer.commands.edge import at_the_edge
from issuer.commands.looking import swept
from issuer.commands.task_words import task_hint
from issuer.flow.refusing import RefusedError
from issuer.house import House, Visit
from issuer.wire import Answer
from ledger.budgets import available
from ledger.model import BudgetLine, PathNode, TaskId
from ledger.port import View
from ledger.refusals import RefusalCode
from ledger.rules import refuse_path
from ledger.scope import INHERIT, slots_of


def task_show(visit: Visit, name: str) -> Answer:
    """Show one task with its budget at every unit and its slots."""

    def run() -> Answer:
        swept(visit)
        task = visit.house.ledger.read(lambda view: view.task_named(name))
        if task is None:
            no, hint = RefusalCode.UNKNOWN_REFERENCE, task_hint(visit.house, name)
            raise RefusedError(no, field="task", hint=hint)
        return answering.about(visit.house, "found", more={"task": shown(visit.house, task.task_id)})

    return at_the_edge(visit, run)


def task_list(visit: Visit) -> Answer:
    """List every task, oldest first."""

    def run() -> Answer:
        swept(visit)
        tasks = visit.house.ledger.read(lambda view: view.tasks())
        rows = [shown(visit.house, task.task_id) for task in tasks]
        return answering.about(visit.house, "found", more={"tasks": rows})

    return at_the_edge(visit, run)


def shown(house: House, task_id: TaskId) -> dict[str, object]:
    """Return one task as JSON.

    `stopped` is None, or the code and level for which the task admits nothing: its own state, or an ancestor's.
    """
    now = house.now()

    def look(view: View) -> dict[str, object]:
        path = view.path(task_id)
        task = path[0].task
        no = refuse_path(path, now)
        return {
            "name": task.name,
            "id": task.task_id,
            "parent": path[1].task.name if len(path) > 1 else None,
            "depth": task.depth,
            "state": str(task.state),
            "stopped": None if no is None else {"code": str(no.code), "level": no.level},
            "subject": task.subject,
            "actors": list(task.actors),
            "expires": instant_text(task.expires_ms),
            "scope": _scope(view, path),
            "budget": {str(unit): _line(line) for unit, line in path[0].budget.items()},
        }

    return house.ledger.read(look)


def _line(line: BudgetLine) -> dict[str, object]:
    return {
        "ceiling": INHERIT if line.ceiling is None else line.ceiling,
        "reserved": line.reserved,
        "settled": line.settled,
        "overrun": line.overrun,
        "above": line.above,
        "available": None if line.ceiling is None else available(line),
    }


def _scope(view: View, path: tuple[PathNode, ...]) -> dict[str, object]:
    """Return what a task names, by kind; None where a kind is left open."""
    return {
        kind: None if slots is None else {name: _slots(view, path, kind, name) for name in slots}
        for kind, slots in path[0].task.scope.names()
    }


def _slots(view: View, path: tuple[PathNode, ...], kind: str, name: str) -> dict[str, object]:
    """Return the count of one name and what is used of it here, and what every level together leaves of it.

    `level` is the task that leaves the least; with `left` it is None only where no level counts the name at all.
    """
    takes = slots_of(path, kind, name)
    left = [(take.ceiling - view.counter(take.counter), take.level) for take in takes]
    here = takes[0] if takes and takes[0].level == path[0].task.name else None
    least, level = min(left, key=lambda row: row[0], default=(None, None))
    return {
        "count": INHERIT if here is None else here.ceiling,
        "used": None if here is None else view.counter(here.counter),
        "left": least,
        "level": level,
    }
