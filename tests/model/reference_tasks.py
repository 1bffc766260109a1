"""The model's commands about tasks: what an owner opens, changes and looks at.

Rules: BUD-01, BUD-03, BUD-05, BUD-06. A closed task changes no more; no child is opened wider than a level above.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.model.terms import ACTORS, AMOUNT_MAX, CLASSES, OPERATIONS, PEOPLE, UNITS
from tests.model.world import KINDS, ClockUntrusted, Said, Scope, Task, World, about

Counts = Mapping[str, int | str]


@dataclass(frozen=True, kw_only=True)
class NewTask:
    """What an owner asks for; `inherit` stands for no bound of its own."""

    name: str
    parent: str | None
    budget: Counts
    expires: int
    scope: Mapping[str, Counts | None] = field(default_factory=dict)
    actors: tuple[str, ...] = ()
    subject: str | None = None


def plain(said: Counts) -> dict[str, int | None]:
    """Return counts with None for `inherit`."""
    return {name: count if isinstance(count, int) else None for name, count in said.items()}


class TaskCommands(World):
    """Commands about tasks; each returns the answer that the product must give."""

    def task_open(self, ask: NewTask) -> Said:
        """Open a root, or a task below another."""
        try:
            return self._unknown_words(ask) or self._opened(ask)
        except ClockUntrusted:
            return Said(code="clock_untrusted")

    def _unknown_words(self, ask: NewTask) -> Said | None:
        if ask.parent is None and "inherit" in ask.budget.values():
            return self.refused("malformed", field="budget")
        if not set(ask.budget) <= set(UNITS):
            return self.refused("unknown_reference", field="budget")
        if not set(ask.actors) <= set(ACTORS):
            return self.refused("unknown_reference", field="actor")
        if ask.subject is not None and ask.subject not in PEOPLE:
            return self.refused("unknown_reference", field="subject")
        if ask.parent is None and ask.scope.get("class") is None:
            return self.refused("malformed", field="class")
        for kind, declared in (("class", CLASSES), ("operation", OPERATIONS)):
            if not set(ask.scope.get(kind) or {}) <= set(declared):
                return self.refused("unknown_reference", field=kind)
        for kind in KINDS:
            if ask.parent is None and "inherit" in (ask.scope.get(kind) or {}).values():
                return self.refused("malformed", field=kind)
        return None

    def _opened(self, ask: NewTask) -> Said:
        now = self.time()
        if ask.name in self.tasks:
            return self.refused("name_taken", field="task")
        if now >= ask.expires:
            return self.refused("task_expired", level=ask.name)
        if ask.parent is None:
            if not ask.actors or ask.subject is None:
                return self.refused("malformed", field="subject" if ask.actors else "actor")
            parent = None
            scope: Scope = {kind: self._names(ask, kind, None) for kind in KINDS}
        else:
            parent = self.tasks.get(ask.parent)
            if parent is None:
                return self.refused("unknown_reference", field="parent")
            scope = {kind: self._names(ask, kind, parent) for kind in KINDS}
            no = self._refuse_child(ask, parent, scope, now)
            if no is not None:
                return no
        task = Task(
            name=ask.name,
            parent=parent,
            subject=ask.subject or (parent.subject if parent else ""),
            actors=ask.actors or (parent.actors if parent else ()),
            expires=min(ask.expires, parent.expires) if parent else ask.expires,
            ceilings=plain(ask.budget),
            scope=scope,
        )
        self.tasks[task.name] = task
        self.record(now, "task.opened")
        return Said(code="opened", more={"task": self.view(task)})

    def _names(self, ask: NewTask, kind: str, parent: Task | None) -> dict[str, int | None] | None:
        """Return what a new task names of a kind: what is said, else what its parent names, uncounted."""
        said = ask.scope.get(kind)
        if said is not None:
            return plain(said)
        above = parent.scope[kind] if parent else None
        return None if above is None else dict.fromkeys(above)

    def _refuse_child(self, ask: NewTask, parent: Task, scope: Scope, now: int) -> Said | None:
        no = self.stopped(parent, now)
        if no is not None:
            return self.refused(no[0], level=no[1])
        if not set(ask.actors) <= set(parent.actors):
            return self.refused("forbidden", field="actor", level=parent.name)
        if ask.subject not in {None, parent.subject}:
            return self.refused("forbidden", field="subject", level=parent.name)
        wide = self._wider(parent.path, plain(ask.budget))
        if wide is not None:
            return self.refused("forbidden", field="budget", level=wide)
        for level in parent.path:
            for kind in KINDS:
                above, below = level.scope[kind], scope[kind]
                if above is not None and (below is None or any_wider(above, below)):
                    return self.refused("forbidden", field=kind, level=level.name)
        return None

    def _wider(self, path: list[Task], ceilings: Mapping[str, int | None]) -> str | None:
        """Return the level whose ceiling one of `ceilings` is above; the nearest that has one of its own counts."""
        for unit, ceiling in sorted(ceilings.items()):
            for level in path:
                bound = level.ceilings.get(unit, 0)
                if bound is None:
                    continue
                if ceiling is not None and ceiling > bound:
                    return level.name
                break
        return None

    # ---------------------------------------------------------------------------------- the changes

    def _change(self, name: str, change: Callable[[Task, int], Said]) -> Said:
        """Change a task that is there and not closed."""
        try:
            task, now = self.tasks.get(name), self.time()
            if task is None:
                return self.refused("unknown_reference", field="task")
            if task.state == "closed":
                return self.refused("task_closed", level=name)
            return change(task, now)
        except ClockUntrusted:
            return Said(code="clock_untrusted")

    def task_move(self, name: str, word: str) -> Said:
        """Make a task `frozen`, `thawed` or `closed`."""
        state = "open" if word == "thawed" else word

        def change(task: Task, now: int) -> Said:
            if task.state == state:
                return self.refused("nothing_to_change", level=name)
            task.state = state
            self.record(now, f"task.{word}")
            return Said(code=word, more={"task": self.view(task)})

        return self._change(name, change)

    def task_grant(self, name: str, budget: Mapping[str, int]) -> Said:
        """Add to ceilings."""

        def change(task: Task, now: int) -> Said:
            raised = {}
            for unit, amount in sorted(budget.items()):
                before = task.ceilings.get(unit, 0)
                if before is None:
                    return self.refused("unsupported", field="budget", level=name)
                raised[unit] = before + amount
            if max(raised.values()) > AMOUNT_MAX:
                return self.refused("malformed", field="budget", level=name)
            wide = self._wider(task.path[1:], raised)
            if wide is not None:
                return self.refused("forbidden", field="budget", level=wide)
            task.ceilings |= raised
            self.record(now, "task.granted")
            return Said(code="granted", more={"task": self.view(task)})

        return self._amounts(budget, 1) or self._change(name, change)

    def task_lower(self, name: str, budget: Mapping[str, int]) -> Said:
        """Lower ceilings, be it below what is used."""

        def change(task: Task, now: int) -> Said:
            for unit, ceiling in sorted(budget.items()):
                before = task.ceilings.get(unit, 0)
                if before is not None and ceiling > before:
                    return self.refused("malformed", field="budget", level=name)
            given = {unit: to for unit, to in budget.items() if task.ceilings.get(unit, 0) is None}
            wide = self._wider(task.path[1:], given)
            if wide is not None:
                return self.refused("forbidden", field="budget", level=wide)
            task.ceilings |= budget
            self.record(now, "task.lowered")
            return Said(code="lowered", more={"task": self.view(task)})

        return self._amounts(budget, 0) or self._change(name, change)

    def _amounts(self, budget: Mapping[str, int], least: int) -> Said | None:
        if not budget or min(budget.values()) < least:
            return self.refused("malformed", field="budget")
        return None if set(budget) <= set(UNITS) else self.refused("unknown_reference", field="budget")

    def task_accept_overrun(self, name: str, unit: str | None) -> Said:
        """Count an overrun as spent, at exactly that task."""

        def change(task: Task, now: int) -> Said:
            wanted = UNITS if unit is None else (unit,)
            accepted = {each: self.money(task, each).overrun for each in wanted}
            if not any(accepted.values()):
                return self.refused("nothing_to_change", field="unit", level=name)
            for each, amount in accepted.items():
                task.accepted[each] = task.accepted.get(each, 0) + amount
            self.record(now, "task.overrun_accepted")
            blocked = self._blocked(task, wanted)
            return Said(code="accepted", more={"task": self.view(task), "blocked": blocked})

        return self._change(name, change)

    def _blocked(self, task: Task, units: tuple[str, ...]) -> set[tuple[str, str, int, int]]:
        """Return the lines above and below a task that admit nothing: level, unit, overrun, above its ceiling."""
        rows = set()
        for other in self.tasks.values():
            if other.state != "closed" and (other in task.path or task in other.path):
                for unit in units:
                    line = self.money(other, unit)
                    if line.overrun or line.above:
                        rows.add((other.name, unit, line.overrun, line.above))
        return rows

    # -------------------------------------------------------------------------------------- looking

    def view(self, task: Task) -> dict[str, object]:
        """Return a task as it is shown; instants in milliseconds."""
        no = self.stopped(task, self.clock.wall)
        return {
            "name": task.name,
            "parent": task.parent.name if task.parent else None,
            "depth": len(task.path) - 1,
            "state": task.state,
            "stopped": None if no is None else {"code": no[0], "level": no[1]},
            "subject": task.subject,
            "actors": list(task.actors),
            "expires": task.expires,
            "scope": {kind: self._shown(task, kind) for kind in KINDS},
            "budget": {unit: self._line(task, unit) for unit in sorted(self.lines(task))},
        }

    def _line(self, task: Task, unit: str) -> dict[str, object]:
        line = self.money(task, unit)
        return {
            "ceiling": "inherit" if line.ceiling is None else line.ceiling,
            "reserved": line.reserved,
            "settled": line.settled,
            "overrun": line.overrun,
            "above": line.above,
            "available": None if line.ceiling is None else line.left,
        }

    def _shown(self, task: Task, kind: str) -> dict[str, object] | None:
        names = task.scope[kind]
        return None if names is None else {name: self._slot(task, kind, name) for name in names}

    def _slot(self, task: Task, kind: str, name: str) -> dict[str, object]:
        counts = [(level, (level.scope[kind] or {}).get(name)) for level in task.path]
        left = [
            (count - self.slots_used(level, kind, name), level.name)
            for level, count in counts
            if count is not None
        ]
        least, level = min(left, key=lambda row: row[0], default=(None, None))
        own = counts[0][1]
        return {
            "count": "inherit" if own is None else own,
            "used": None if own is None else self.slots_used(task, kind, name),
            "left": least,
            "level": level,
        }


def any_wider(above: Mapping[str, int | None], below: Mapping[str, int | None]) -> bool:
    """Say whether some name has more admissions below, or is not there above at all."""
    for name, count in below.items():
        if name not in above:
            return True
        bound = above[name]
        if bound is not None and count is not None and count > bound:
            return True
    return False


__all__ = ["NewTask", "TaskCommands", "about"]
