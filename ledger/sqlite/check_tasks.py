"""The part of a check that recomputes tasks: their MACs, their tree, their grants, and at last their budgets.

Rules: LED-06 (tasks, grants and sinks carry a MAC), BUD-01 (a tree, `inherit`, absent is zero), BUD-02 and BUD-03 (what
is held, settled and overrun is what the rows of all effects add up to, and never above a ceiling), BUD-05.
Budgets come last: `ledger.sqlite.check_effects` has added up by then what effects hold and were charged.
"""

from ledger.model import Task, TaskState
from ledger.sqlite import rows
from ledger.sqlite.check_ground import UNREADABLE, Ground, Totals, Where


def check_tasks(ground: Ground) -> int:
    """Check every task, the closure table and every sink; return how many tasks there are."""
    tasks: dict[str, Task] = {}
    sql = f"SELECT {rows.TASK_COLUMNS}, sequence, mac FROM tasks ORDER BY task_id"
    for row in ground.raw.execute(sql):
        where = ("tasks", row[0])
        try:
            task = rows.task_from(row)
            authentic = ground.proofs.keys.is_authentic("row", rows.task_authority(task), row[11])
        except UNREADABLE:
            ground.find("task_unreadable", where, "The task's row cannot be read.")
            continue
        tasks[task.task_id] = task
        if not authentic:
            ground.find("task_mac", where, "The task was changed by someone without the keys.")
        _check_told(ground, task, row[10], where)
    for task_id in ground.trail.tasks_opened.keys() - tasks.keys():
        ground.find("task_missing", ("tasks", task_id), "The trail opened this task, and its row is gone.")
    for task in tasks.values():
        _check_place(ground, task, tasks)
    _check_closure(ground)
    _check_sinks(ground)
    return len(tasks)


def _check_told(ground: Ground, task: Task, sequence: int, where: Where) -> None:
    """Hold a task against what the trail tells of it: an earlier row of it is authentic as well."""
    trail = ground.trail
    closed = trail.tasks_closed.get(task.task_id)
    if task.task_id not in trail.tasks_opened:
        ground.find("task_without_trail", where, "The trail never opened this task.")
    if (closed is not None) != (task.state is TaskState.CLOSED):
        ground.find("task_set_back", where, "The task's state is not the last that the trail tells of it.")
    elif sequence != closed and closed is not None:
        ground.find("task_sequence", where, "The task does not name the span that closed it.")
    elif closed is None and _story_at(ground, sequence) != task.task_id:
        ground.find("task_sequence", where, "The task names a span that is not its own.")


def _story_at(ground: Ground, sequence: int) -> object:
    found = ground.rows("SELECT story FROM spans WHERE sequence = ?", sequence)
    return found[0][0] if found else None


def _check_place(ground: Ground, task: Task, tasks: dict[str, Task]) -> None:
    """Check a task's depth and root against its parent's, and keep its line of ancestors."""
    parent = None if task.parent_id is None else tasks.get(task.parent_id)
    where = ("tasks", task.task_id)
    if task.parent_id is None:
        fits = task.depth == 0 and task.root_id == task.task_id
    else:
        fits = parent is not None and (task.depth, task.root_id) == (parent.depth + 1, parent.root_id)
    if not fits:
        ground.find("task_tree", where, "The task's depth and root are not what its parent makes them.")
    line: list[str] = []
    at: Task | None = task
    # The depths of a bent tree may lie, so the walk also ends where it meets a task again.
    while at is not None and at.task_id not in line:
        line.append(at.task_id)
        at = None if at.parent_id is None else tasks.get(at.parent_id)
    ground.paths[task.task_id] = tuple(line)
    ground.roots[task.task_id] = task.root_id


def _check_closure(ground: Ground) -> None:
    stored: dict[str, dict[int, str]] = {}
    for task_id, distance, ancestor_id in ground.raw.execute(
        "SELECT task_id, distance, ancestor_id FROM task_path"
    ):
        stored.setdefault(task_id, {})[distance] = ancestor_id
    for task_id in sorted(ground.paths.keys() | stored.keys()):
        expected = dict(enumerate(ground.paths.get(task_id, ())))
        if stored.get(task_id, {}) != expected:
            where = ("task_path", task_id)
            ground.find("task_path", where, "The task's line of ancestors is not what its parents make it.")


def _check_sinks(ground: Ground) -> None:
    registered = set(ground.trail.sinks)
    for name, kind, location, sequence, mac in ground.rows(
        "SELECT name, kind, location, sequence, mac FROM sinks ORDER BY name"
    ):
        where = ("sinks", name)
        try:
            authentic = ground.proofs.keys.is_authentic("row", rows.sink_authority(name, kind, location), mac)
        except UNREADABLE:
            authentic = False
        if not authentic:
            ground.find("sink_mac", where, "The place of the sink was changed by someone without the keys.")
        if sequence not in registered:
            ground.find(
                "sink_without_trail", where, "The trail does not register this sink where its row says."
            )
        registered.discard(sequence)
    for sequence in sorted(registered):
        where = ("sinks", f"at {sequence}")
        ground.find("sink_missing", where, "The trail registered a sink here, and its row is gone.")


def check_budgets(ground: Ground) -> None:
    """Recompute every budget line from grants, reservations and settlements."""
    ceilings = _granted(ground)
    lines: set[tuple[str, str]] = set()
    sql = "SELECT task_id, unit, ceiling, reserved, settled, overrun FROM budgets ORDER BY task_id, unit"
    for task_id, unit, ceiling, reserved, settled, overrun in ground.raw.execute(sql):
        key = (task_id, unit)
        lines.add(key)
        where = ("budgets", task_id, unit)
        granted = ceilings.get(key, 0)
        told = ground.totals.get(key, Totals())
        if ceiling != granted:
            ground.find("budget_ceiling", where, "The ceiling is not what the grants add up to.")
        if reserved != told.reserved:
            says = f"{reserved} is reserved, and the effects in flight hold {told.reserved}."
            ground.find("budget_reserved", where, says)
        if settled != told.settled:
            ground.find(
                "budget_settled", where, f"{settled} is settled, and the settlements say {told.settled}."
            )
        if overrun != told.overrun:
            ground.find(
                "budget_overrun", where, f"{overrun} is overrun, and the settlements say {told.overrun}."
            )
        if granted is not None and told.reserved + told.settled > granted:
            ground.find("overspend", where, "What is held and settled is above the ceiling.")
    for task_id, unit in sorted((ceilings.keys() | ground.totals.keys()) - lines):
        ground.find("budget_missing", ("budgets", task_id, unit), "The budget line is gone.")


def _granted(ground: Ground) -> dict[tuple[str, str], int | None]:
    """Return what grants add up to, None for `inherit`, after checking each grant."""
    ceilings: dict[tuple[str, str], int | None] = {}
    seen: set[int] = set()
    sql = (
        "SELECT g.task_id, g.unit, g.sequence, g.amount, g.mac, s.story FROM grants AS g "
        "LEFT JOIN spans AS s ON s.sequence = g.sequence ORDER BY g.task_id, g.unit, g.sequence"
    )
    for task_id, unit, sequence, amount, mac, story in ground.raw.execute(sql):
        where = ("grants", task_id, unit, sequence)
        try:
            signed = rows.grant_authority(task_id, unit, sequence, amount)
            authentic = ground.proofs.keys.is_authentic("row", signed, mac)
        except UNREADABLE:
            authentic = False
        if not authentic:
            ground.find("grant_mac", where, "The grant was changed by someone without the keys.")
        if story != task_id:
            ground.find("grant_without_trail", where, "The grant names a span that is not its task's.")
        seen.add(sequence)
        before = ceilings.get((task_id, unit), 0)
        ceilings[task_id, unit] = None if amount is None or before is None else before + amount
    for sequence, task_id in ground.trail.granted.items():
        # A task that is frozen or opened again is told under this name too, and changes its own row instead.
        if sequence not in seen and not ground.rows("SELECT 1 FROM tasks WHERE sequence = ?", sequence):
            says = "The trail granted something here, and the grant is gone."
            ground.find("grant_missing", ("grants", task_id, sequence), says)
    return ceilings
