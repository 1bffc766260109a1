"""Writing what changes a task: its row as it stands now, its grants, its overruns, and the register over it.

Rules: BUD-01, BUD-03 (a ceiling may be lowered to any value; an overrun is counted and never lost), BUD-05, LED-06 (the
row carries a MAC, and the head says that it is the latest). Totals follow by trigger.
Next: `ledger.sqlite.writes` calls it inside the transaction of a step.
"""

from dataclasses import replace
from typing import Any, Final

from ledger import changes
from ledger.errors import Broken
from ledger.model import Task, TaskId, Unit
from ledger.port import Authenticator
from ledger.sqlite import rows
from ledger.sqlite.register import Register
from ledger.standing import Standing, bucket_of

_MARKS: Final = ", ".join("?" * (len(rows.TASK_COLUMNS.split(",")) + 3))


class TaskWriter:
    """Writes the changes of tasks in one transaction."""

    def __init__(
        self,
        raw: Any,  # noqa: ANN401 - untyped driver
        *,
        keys: Authenticator,
        standing: bytes,
    ) -> None:
        """Write over `raw`; `standing` is what the head holds of the register before the transaction."""
        self._raw = raw
        self._keys = keys
        self.register: Final = Register(raw, Standing.TASKS, standing)

    @property
    def standing(self) -> bytes:
        """What the head is to hold of the register, as the changes so far leave it."""
        return self.register.digest

    def opened(self, change: changes.TaskOpened, sequence: int) -> None:
        """Insert a task with the grants that its ceilings come from."""
        task = change.task
        self.register.prove(task.task_id)
        self._raw.execute(
            f"INSERT INTO tasks({rows.TASK_COLUMNS}, bucket, sequence, mac) VALUES ({_MARKS})",
            (*rows.task_row(task), bucket_of(task.task_id), sequence, self._mac(task, sequence)),
        )
        for unit, ceiling in sorted(task.ceilings.items()):
            self._grant(task.task_id, unit, sequence, kind="set", amount=ceiling)
        self.register.renew(task.task_id)

    def moved(self, change: changes.TaskMoved, sequence: int) -> None:
        """Give a task another state."""
        self._renew(replace(self._task(change.task_id), state=change.state), sequence)

    def granted(self, change: changes.CeilingGranted, sequence: int) -> None:
        """Add to a ceiling; a unit that had none had zero (BUD-01)."""
        task = self._task(change.task_id)
        before = task.ceilings.get(change.unit, 0)
        if before is None:
            raise Broken("a unit that inherits has no ceiling to add to")
        self._grant(task.task_id, change.unit, sequence, kind="add", amount=change.amount)
        self._renew(_with_ceiling(task, change.unit, before + change.amount), sequence)

    def lowered(self, change: changes.CeilingLowered, sequence: int) -> None:
        """Set a ceiling to a lower value, or give one to a unit that inherited."""
        task = self._task(change.task_id)
        before = task.ceilings.get(change.unit, 0)
        if before is not None and change.ceiling > before:
            raise Broken("a lowered ceiling is not above the one before")
        self._grant(task.task_id, change.unit, sequence, kind="set", amount=change.ceiling)
        self._renew(_with_ceiling(task, change.unit, change.ceiling), sequence)

    def accepted(self, change: changes.OverrunAccepted, sequence: int) -> None:
        """Count an overrun as spent."""
        self._raw.execute(
            "INSERT INTO overruns_accepted(task_id, unit, sequence, amount) VALUES (?, ?, ?, ?)",
            (change.task_id, change.unit, sequence, change.amount),
        )

    def _task(self, task_id: TaskId) -> Task:
        row = self._raw.execute(
            f"SELECT {rows.TASK_COLUMNS} FROM tasks WHERE task_id = ?", (task_id,)
        ).fetchone()
        if row is None:
            raise Broken("a change names a task that does not exist")
        # Proven before it is changed: an edit of this row, or of one beside it, must not be signed as ours.
        self.register.prove(task_id)
        return rows.task_from(row)

    def _renew(self, task: Task, sequence: int) -> None:
        values = rows.task_row(task)
        self._raw.execute(
            "UPDATE tasks SET state = ?, ceilings = ?, sequence = ?, mac = ? WHERE task_id = ?",
            (values[8], values[10], sequence, self._mac(task, sequence), task.task_id),
        )
        self.register.renew(task.task_id)

    def _mac(self, task: Task, sequence: int) -> bytes:
        return self._keys.tag("row", rows.task_authority(task, sequence))

    def _grant(self, task_id: TaskId, unit: Unit, sequence: int, *, kind: str, amount: int | None) -> None:
        mac = self._keys.tag("row", rows.grant_authority(task_id, unit, sequence, kind, amount))
        self._raw.execute(
            "INSERT INTO grants(task_id, unit, sequence, kind, amount, mac) VALUES (?, ?, ?, ?, ?, ?)",
            (task_id, unit, sequence, kind, amount, mac),
        )


def _with_ceiling(task: Task, unit: Unit, ceiling: int) -> Task:
    return replace(task, ceilings=dict(sorted({**task.ceilings, unit: ceiling}.items())))
