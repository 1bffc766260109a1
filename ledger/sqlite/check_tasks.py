"""The part of a check that recomputes tasks: their MACs, their tree, their ceilings and scopes, and the sinks.

Rules: LED-06 (tasks and sinks carry a MAC), BUD-01 (a tree; a child is never wider), BUD-05 (a task stands where the
trail left it), BUD-06. An earlier row of a task is authentic as well, so each is held against its own story.
Next: `ledger.sqlite.check_budgets`, which has added up by then what the grants give.
"""

from ledger.model import PathNode, Task
from ledger.scope import refuse_wider, scope_lines
from ledger.sqlite import rows
from ledger.sqlite.check_ground import UNREADABLE, Ground, Said, Where
from ledger.standing import bucket_of


def check_tasks(ground: Ground) -> int:
    """Check every task, the closure table and every sink; return how many tasks there are."""
    tasks: dict[str, Task] = {}
    granted = _granted(ground)
    sql = f"SELECT {rows.TASK_COLUMNS}, sequence, mac, bucket FROM tasks ORDER BY task_id"
    for row in ground.raw.execute(sql):
        where = ("tasks", row[0])
        try:
            task = rows.task_from(row)
            authentic = ground.proofs.keys.is_authentic("row", rows.task_authority(task, row[12]), row[13])
            is_in_bucket = bucket_of(task.task_id) == row[14]
        except UNREADABLE:
            ground.find("task_unreadable", where, "The task's row cannot be read.")
            continue
        tasks[task.task_id] = task
        if authentic:
            ground.tasks[task.task_id] = task
        else:
            ground.find("task_mac", where, "The task was changed by someone without the keys.")
        if not is_in_bucket:
            ground.find("task_bucket", where, "The task is not in the bucket that its id puts it in.")
        if dict(task.ceilings) != granted.get(task.task_id, {}):
            ground.find("task_ceilings", where, "The task's ceilings are not what its grants add up to.")
        _check_told(ground, task, row[12], where)
    for task_id, story in ground.trail.tasks.items():
        if story.opened is not None and task_id not in tasks:
            ground.find(
                "task_missing", ("tasks", task_id), "The trail opened this task, and its row is gone."
            )
    for task in tasks.values():
        _check_place(ground, task, tasks)
    for task in ground.tasks.values():
        _check_scope(ground, task)
    _check_closure(ground)
    _check_sinks(ground)
    return len(tasks)


def _granted(ground: Ground) -> dict[str, dict[str, int | None]]:
    """Return what grants add up to, by task and unit."""
    granted: dict[str, dict[str, int | None]] = {}
    for (task_id, unit), ceiling in ground.ceilings.items():
        granted.setdefault(task_id, {})[unit] = ceiling
    return granted


def _check_told(ground: Ground, task: Task, sequence: int, where: Where) -> None:
    """Hold a task against what the trail tells of it: an earlier row of it is authentic as well."""
    story = ground.trail.tasks.get(task.task_id)
    if story is None or story.opened is None:
        ground.find("task_without_trail", where, "The trail never opened this task.")
    if story is None:
        return
    if story.state != task.state.value:
        ground.find("task_set_back", where, "The task's state is not the last that the trail tells of it.")
    elif story.sequence != sequence:
        ground.find("task_sequence", where, "The task does not name the span that changed it last.")
    if not _says(story.said, task):
        says = "The task is not what its opening tells of it."
        ground.find("task_differs", where, says)


def _says(said: Said, task: Task) -> bool:
    """Say whether the opening tells of this task; spans of earlier releases tell less."""
    told = {
        "permit.task.name": task.name,
        "permit.root.id": task.root_id,
        "permit.parent.id": task.parent_id,
        "permit.subject": task.subject,
        "permit.actors": list(task.actors),
        "permit.expires_ms": task.expires_ms,
    }
    if any(said.get(name, value) != value for name, value in told.items()):
        return False
    scope = said.get("permit.scope")
    return scope is None or (isinstance(scope, list) and sorted(scope) == sorted(scope_lines(task.scope)))


def _check_scope(ground: Ground, task: Task) -> None:
    """Check that a task names nothing that its parent does not; a parent that was edited is a finding of its own."""
    parent = None if task.parent_id is None else ground.tasks.get(task.parent_id)
    if parent is not None and refuse_wider((PathNode(task=parent, budget={}),), task.scope) is not None:
        says = "The task names more than its parent does."
        ground.find("task_wider", ("tasks", task.task_id), says)


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
