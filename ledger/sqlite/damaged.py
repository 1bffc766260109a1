"""Looking into a ledger that is damaged: every row as it stands, with nothing proven.

Rules: LED-04 (reading goes on where new effects stop). What it shows may have been written by anybody, and who shows
it further says so. It serves no decision: a transaction never sees this view.
Next: `ledger.sqlite.store`, which reads with it once something was found that cannot be trusted.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ledger.authority import Approval, Ruling, RulingKind
from ledger.invocations import Invocation
from ledger.model import BudgetLine, EffectId, InstantMs, LedgerId, PathNode, Task, TaskId, Unit
from ledger.questions import SpanFilter
from ledger.sqlite import rows
from ledger.sqlite.authority_rows import APPROVAL_COLUMNS, RULING_COLUMNS, approval_from, ruling_from
from ledger.sqlite.invocation_rows import invocation_from
from ledger.sqlite.span_view import parts_of
from ledger.sqlite.view import SqliteView
from ledger.transitions import Position, SpanRow


class _Unproven:
    """An `Authenticator` that vouches for nothing, and asks for no proof."""

    def tag(self, domain: str, data: bytes, *, like: bytes | None = None) -> bytes:
        """Return nothing."""
        del domain, data, like
        return b""

    def is_authentic(self, domain: str, data: bytes, tag: bytes) -> bool:
        """Let it pass."""
        del domain, data, tag
        return True


class DamagedView(SqliteView):
    """What stands in a damaged ledger."""

    # The rows count, and not what an index says of them: it may be what is damaged, or not be there.
    _by_changes = "NOT INDEXED"
    _by_name = "NOT INDEXED"
    _by_story = "NOT INDEXED"
    _by_unused = "NOT INDEXED"
    _by_collected = "NOT INDEXED"

    def __init__(self, raw: Any, *, ledger_id: LedgerId) -> None:  # noqa: ANN401 - untyped driver
        """Read over `raw`, whose transaction belongs to the caller."""
        super().__init__(raw, ledger_id=ledger_id, keys=_Unproven())

    def head(self) -> Position:
        """Return the position of the last span that is there, whatever the head says."""
        row = self._one("SELECT epoch, lane, sequence FROM spans ORDER BY sequence DESC LIMIT 1")
        epoch, lane, sequence = row or (1, 0, 0)
        return Position(ledger_id=self._ledger_id, epoch=epoch, lane=lane, sequence=sequence)

    def last_entry_ms(self) -> InstantMs:
        """Return the instant of that span."""
        row = self._one("SELECT at_ms FROM spans ORDER BY sequence DESC LIMIT 1")
        return InstantMs(0 if row is None else row[0])

    def _task(self, row: rows.Row | None) -> Task | None:
        return None if row is None else rows.task_from(row)

    def _invocation(self, row: rows.Row | None) -> Invocation | None:
        return None if row is None else invocation_from(row)

    def find_spans(
        self,
        wanted: SpanFilter,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int,
        newest_first: bool = False,
    ) -> Sequence[SpanRow]:
        """Return what is wanted, row by row: neither an index nor the order of time is to be relied on."""
        where, values = ["sequence > ?"], list[object]([after])
        for condition, value in (
            ("sequence < ?", before),
            ("at_ms >= ?", wanted.since_ms),
            ("at_ms < ?", wanted.until_ms),
        ):
            if value is not None:
                where.append(condition)
                values.append(value)
        for part in parts_of(wanted):
            marks = ", ".join("?" * len(part.values))
            fits = f"{part.column} IN ({marks})"
            if part.column == "policy":
                fits = f"sequence IN (SELECT sequence FROM span_policies WHERE {fits})"
            where.append(fits)
            values += part.values
        order = "DESC" if newest_first else "ASC"
        sql = (
            f"SELECT {rows.SPAN_COLUMNS} FROM spans NOT INDEXED WHERE {' AND '.join(where)} "
            f"ORDER BY sequence {order} LIMIT ?"
        )
        return self._spans(sql, *values, limit)

    def count_spans(self, first: int, last: int) -> Mapping[str, int]:
        """Count the rows that are there."""
        sql = "SELECT name, count(*) FROM spans NOT INDEXED WHERE sequence BETWEEN ? AND ? GROUP BY name ORDER BY name"
        return MappingProxyType(dict(self._all(sql, first, last)))

    def ruling(self, kind: RulingKind, name: str) -> Ruling | None:
        """Return what stands of one name."""
        row = self._one(f"SELECT {RULING_COLUMNS} FROM rulings WHERE kind = ? AND name = ?", str(kind), name)
        return None if row is None else ruling_from(row)

    def rulings(self, kind: RulingKind) -> Sequence[Ruling]:
        """Return every ruling of one kind that is there, by name."""
        found = self._all(f"SELECT {RULING_COLUMNS} FROM rulings WHERE kind = ? ORDER BY name", str(kind))
        return [ruling_from(row) for row in found]

    def approvals(self, effect_id: EffectId) -> Sequence[Approval]:
        """Return every approval that is there, oldest first."""
        sql = f"SELECT {APPROVAL_COLUMNS} FROM approvals WHERE effect_id = ? ORDER BY sequence"
        return [approval_from(row) for row in self._all(sql, effect_id)]

    def _budget(self, task: Task) -> Mapping[Unit, BudgetLine]:
        found = self._all(
            f"SELECT {rows.BUDGET_COLUMNS} FROM budgets WHERE task_id = ? ORDER BY unit", task.task_id
        )
        return MappingProxyType({line.unit: line for line in map(rows.budget_from, found)})

    def path(self, task_id: TaskId) -> tuple[PathNode, ...]:
        """Return the task and what ancestors of it are there, leaf first."""
        found = self._all("SELECT ancestor_id FROM task_path WHERE task_id = ? ORDER BY distance", task_id)
        tasks = [self.task(TaskId(row[0])) for row in found] or [self.task(task_id)]
        return tuple(PathNode(task=task, budget=self._budget(task)) for task in tasks if task is not None)
