"""Reading: `ledger.port.View` over one SQLite connection.

Inside a transaction it shows what the lock holds still; outside, one snapshot. It decides nothing, and every query
that an admission needs is answered by a key, so its work does not grow with the ledger (LED-07).
"""

import hmac
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from ledger.errors import LedgerCorrupt
from ledger.model import (
    NAME_PATTERN,
    BudgetLine,
    Claim,
    DecisionRow,
    Effect,
    EffectId,
    Evidence,
    InstantMs,
    LedgerId,
    PathNode,
    Permit,
    PermitId,
    Position,
    Repetition,
    SinkRegistration,
    SpanRow,
    Task,
    TaskId,
    TaskState,
    TransitionName,
    Unit,
)
from ledger.pending import element_data, sum_of
from ledger.port import Authenticator
from ledger.sqlite import rows
from ledger.states import PENDING, EffectState

_NO_REPETITION: Final = Repetition(pending=0, unresolved=0, succeeded=0)


class SqliteView:
    """What a decision may read. Rows that give authority are checked against their MAC as they are read (LED-06)."""

    def __init__(self, raw: Any, *, ledger_id: LedgerId, keys: Authenticator) -> None:  # noqa: ANN401 - untyped driver
        """Read over `raw`, whose transaction belongs to the caller."""
        self._raw = raw
        self._ledger_id = ledger_id
        self._keys = keys

    def _one(self, sql: str, *values: object) -> rows.Row | None:
        row: rows.Row | None = self._raw.execute(sql, values).fetchone()
        return row

    def _all(self, sql: str, *values: object) -> list[rows.Row]:
        found: list[rows.Row] = self._raw.execute(sql, values).fetchall()
        return found

    def head(self) -> Position:
        """Return the position of the last span."""
        row = self._one("SELECT epoch, lane, sequence FROM head WHERE lane = 0")
        if row is None:
            raise LedgerCorrupt("no_head", "The ledger has no head row.")
        return Position(ledger_id=self._ledger_id, epoch=row[0], lane=row[1], sequence=row[2])

    def _task(self, row: rows.Row | None) -> Task | None:
        if row is None:
            return None
        task = rows.task_from(row)
        if not self._keys.is_authentic("row", rows.task_authority(task), row[len(row) - 1]):
            raise LedgerCorrupt("task_mac", "A task row was changed by someone without the keys.")
        # An earlier row of a task is authentic as well, so the trail is asked whether the task was closed since.
        if task.state is not TaskState.CLOSED and self._in_trail(task.task_id, TransitionName.TASK_CLOSED):
            raise LedgerCorrupt("task_set_back", "A task that was closed stands open again.")
        return task

    def task_named(self, name: str) -> Task | None:
        """Return the task of that name; what cannot be a name, such as half a character, names none."""
        if NAME_PATTERN.match(name) is None:
            return None
        return self._task(self._one(f"SELECT {rows.TASK_COLUMNS}, mac FROM tasks WHERE name = ?", name))

    def task(self, task_id: TaskId) -> Task | None:
        """Return the task of that id."""
        return self._task(self._one(f"SELECT {rows.TASK_COLUMNS}, mac FROM tasks WHERE task_id = ?", task_id))

    def tasks(self) -> Sequence[Task]:
        """Return every task, oldest first."""
        found = self._all(f"SELECT {rows.TASK_COLUMNS}, mac FROM tasks ORDER BY sequence, task_id")
        return [task for row in found if (task := self._task(row)) is not None]

    def budget(self, task_id: TaskId) -> Mapping[Unit, BudgetLine]:
        """Return the budget lines of one task by unit."""
        found = self._all(
            "SELECT task_id, unit, ceiling, reserved, settled, overrun FROM budgets WHERE task_id = ? ORDER BY unit",
            task_id,
        )
        lines = {line.unit: line for line in map(rows.budget_from, found)}
        granted = self._granted(task_id)
        ceilings = {unit: line.ceiling for unit, line in lines.items()}
        # A unit without a grant has a line of zero where something was held or charged (BUD-01).
        if ceilings != {**dict.fromkeys(lines, 0), **granted}:
            raise LedgerCorrupt("ceiling", "A task's ceiling is not what its grants add up to.")
        return MappingProxyType(lines)

    def _granted(self, task_id: TaskId) -> dict[Unit, int | None]:
        """Return what a task's grants add up to by unit, None for `inherit`; each is proven by its MAC (LED-06)."""
        totals: dict[Unit, int | None] = {}
        for unit, sequence, amount, mac in self._all(
            "SELECT unit, sequence, amount, mac FROM grants WHERE task_id = ?", task_id
        ):
            if not self._keys.is_authentic("row", rows.grant_authority(task_id, unit, sequence, amount), mac):
                raise LedgerCorrupt("grant_mac", "A grant was changed by someone without the keys.")
            before = totals.get(Unit(unit), 0)
            totals[Unit(unit)] = None if amount is None or before is None else before + amount
        return totals

    def path(self, task_id: TaskId) -> tuple[PathNode, ...]:
        """Return the task and its ancestors, leaf first, with their budget lines; empty where there is none."""
        found = self._all("SELECT ancestor_id FROM task_path WHERE task_id = ? ORDER BY distance", task_id)
        nodes = []
        for (ancestor,) in found:
            task = self.task(ancestor)
            if task is None:
                raise LedgerCorrupt("task_path", "A task's ancestor is missing.")
            nodes.append(PathNode(task=task, budget=self.budget(ancestor)))
        if nodes and nodes[0].task.task_id != task_id:
            raise LedgerCorrupt("task_path", "A task's line of ancestors does not begin with the task.")
        if nodes and [node.task.parent_id for node in nodes[:-1]] != [
            node.task.task_id for node in nodes[1:]
        ]:
            raise LedgerCorrupt("task_path", "A task's ancestors do not form a line.")
        if nodes and nodes[-1].task.parent_id is not None:
            raise LedgerCorrupt("task_path", "A task's line of ancestors does not reach its root.")
        return tuple(nodes)

    def effect(self, effect_id: EffectId) -> Effect | None:
        """Return the effect of that id."""
        row = self._one(f"SELECT {rows.EFFECT_COLUMNS} FROM effects WHERE effect_id = ?", effect_id)
        return None if row is None else rows.effect_from(row)

    def is_genuine(self, effect: Effect) -> bool:
        """Say whether an effect is as it was prepared, and not as someone without the keys wrote it (LED-06)."""
        row = self._one("SELECT mac FROM effects WHERE effect_id = ?", effect.effect_id)
        return row is not None and self._keys.is_authentic("row", rows.effect_authority(effect), row[0])

    def demand_pending(self) -> None:
        """Recount the effects that may still be admitted, and compare with the head (LED-06).

        Raises:
            LedgerCorrupt: someone without the keys put one among them, or took one away.
        """
        marks = ", ".join("?" * len(PENDING))
        tags = [
            self._keys.tag("row", element_data(effect_id), like=mac)
            for effect_id, mac in self._all(
                f"SELECT effect_id, mac FROM effects WHERE state IN ({marks})", *sorted(PENDING)
            )
        ]
        row = self._one("SELECT pending FROM head WHERE lane = 0")
        if row is None or not hmac.compare_digest(row[0], sum_of(tags)):
            message = (
                "The effects that may still be admitted are not those that were prepared; run the full check."
            )
            raise LedgerCorrupt("pending_set", message)

    def effect_for_key(self, caller: str, task_id: TaskId, request_key: str) -> Effect | None:
        """Return the effect that this caller made in this task under this key (EFF-11)."""
        row = self._one(
            f"SELECT {rows.EFFECT_COLUMNS} FROM effects WHERE caller = ? AND task_id = ? AND request_key = ?",
            caller,
            task_id,
            request_key,
        )
        return None if row is None else rows.effect_from(row)

    def effects(self, *, states: Sequence[EffectState], task_id: TaskId | None = None) -> Sequence[Effect]:
        """Return the effects in any of `states` (all where empty), oldest first."""
        wanted = [str(state) for state in (states or tuple(EffectState))]
        marks = ", ".join("?" * len(wanted))
        sql = f"SELECT {rows.EFFECT_COLUMNS} FROM effects WHERE state IN ({marks})"
        if task_id is not None:
            sql += " AND task_id = ?"
            wanted.append(task_id)
        return [rows.effect_from(row) for row in self._all(sql + " ORDER BY prepared_ms, effect_id", *wanted)]

    def effects_over(self, now: InstantMs, *, limit: int) -> Sequence[Effect]:
        """Return at most `limit` effects whose binding is over at `now` and that were never admitted or ended."""
        found: list[Effect] = []
        for state in sorted(PENDING):
            sql = f"SELECT {rows.EFFECT_COLUMNS} FROM effects WHERE state = ? AND expires_ms <= ? LIMIT ?"
            found += [rows.effect_from(row) for row in self._all(sql, str(state), now, limit - len(found))]
        return found

    def permit(self, effect_id: EffectId) -> Permit | None:
        """Return the permit of an effect."""
        row = self._one(
            "SELECT permit_id, effect_id, seal, tier, issued_ms, expires_ms, caps FROM permits WHERE effect_id = ?",
            effect_id,
        )
        return None if row is None else rows.permit_from(row)

    def is_used(self, permit_id: PermitId) -> bool:
        """Say whether this permit was ever consumed."""
        return self._one("SELECT 1 FROM permit_uses WHERE permit_id = ?", permit_id) is not None

    def _claim(self, row: rows.Row) -> Claim:
        claim = rows.claim_from(row)
        if not self._keys.is_authentic("row", rows.claim_authority(claim), row[len(row) - 1]):
            raise LedgerCorrupt("claim_mac", "A claim was changed by someone without the keys.")
        return claim

    def claim(self, effect_id: EffectId) -> Claim | None:
        """Return who won the admission of an effect."""
        row = self._one(f"SELECT {rows.CLAIM_COLUMNS} FROM claims WHERE effect_id = ?", effect_id)
        return None if row is None else self._claim(row)

    def claims_open(self) -> Sequence[Claim]:
        """Return the claims of every effect that is still `admitted`."""
        columns = ", ".join(f"c.{column}" for column in rows.CLAIM_COLUMNS.split(", "))
        found = self._all(
            f"SELECT {columns} FROM effects AS e JOIN claims AS c ON c.effect_id = e.effect_id "
            "WHERE e.state = 'admitted' ORDER BY c.admitted_ms, c.effect_id",
        )
        return [self._claim(row) for row in found]

    def reserved(self, effect_id: EffectId) -> Mapping[tuple[TaskId, Unit], int]:
        """Return what the admission of an effect held, per task and unit; settling does not remove it."""
        found = self._all("SELECT task_id, unit, amount FROM reservations WHERE effect_id = ?", effect_id)
        return MappingProxyType({(TaskId(row[0]), Unit(row[1])): row[2] for row in found})

    def evidence(self, effect_id: EffectId) -> Sequence[Evidence]:
        """Return the evidence about an effect, oldest first."""
        found = self._all(
            "SELECT effect_id, class, source, proves, reference, late, at_ms FROM evidence "
            "WHERE effect_id = ? ORDER BY sequence",
            effect_id,
        )
        return [rows.evidence_from(row) for row in found]

    def decisions(self, effect_id: EffectId) -> Sequence[DecisionRow]:
        """Return the recorded decisions about an effect, oldest first."""
        found = self._all(
            "SELECT effect_id, body, at_ms FROM decisions WHERE effect_id = ? ORDER BY sequence", effect_id
        )
        return [rows.decision_from(row) for row in found]

    def counter(self, counter: str) -> int:
        """Return how much of a class bound is used (POL-03); 0 where nothing ever was."""
        row = self._one("SELECT used FROM counters WHERE counter = ?", counter)
        return 0 if row is None else int(row[0])

    def _repetition(self, kind: str, key: bytes) -> Repetition:
        row = self._one(
            "SELECT pending, unresolved, succeeded FROM repetition WHERE kind = ? AND key = ?", kind, key
        )
        return (
            _NO_REPETITION if row is None else Repetition(pending=row[0], unresolved=row[1], succeeded=row[2])
        )

    def repetition_of_content(self, content_key: bytes) -> Repetition:
        """Count the effects with this content key."""
        return self._repetition("content", content_key)

    def repetition_of_resource(self, resource_key: bytes) -> Repetition:
        """Count the effects on this resource."""
        return self._repetition("resource", resource_key)

    def was_admitted(self, effect_id: EffectId) -> bool:
        """Say whether the trail holds an admission of this effect, whatever its row says (LED-06)."""
        return self._in_trail(effect_id, TransitionName.EFFECT_ADMITTED)

    def _in_trail(self, story: str, name: TransitionName) -> bool:
        found = self._one("SELECT 1 FROM spans WHERE story = ? AND name = ? LIMIT 1", story, str(name))
        return found is not None

    def story(self, story: str) -> Sequence[SpanRow]:
        """Return the spans of one effect, task or ledger story, in order (AUD-05)."""
        found = self._all(f"SELECT {rows.SPAN_COLUMNS} FROM spans WHERE story = ? ORDER BY sequence", story)
        return [rows.span_from(self._ledger_id, row) for row in found]

    def spans_after(self, sequence: int, *, limit: int) -> Sequence[SpanRow]:
        """Return at most `limit` spans with a larger sequence, in order."""
        sql = f"SELECT {rows.SPAN_COLUMNS} FROM spans WHERE sequence > ? ORDER BY sequence LIMIT ?"
        return [rows.span_from(self._ledger_id, row) for row in self._all(sql, sequence, limit)]

    def span_at(self, sequence: int) -> SpanRow | None:
        """Return the span at a sequence."""
        row = self._one(f"SELECT {rows.SPAN_COLUMNS} FROM spans WHERE sequence = ?", sequence)
        return None if row is None else rows.span_from(self._ledger_id, row)

    def sinks(self) -> Sequence[SinkRegistration]:
        """Return the sinks registered with this ledger."""
        registered = []
        for name, kind, location, mac in self._all(
            "SELECT name, kind, location, mac FROM sinks ORDER BY name"
        ):
            if not self._keys.is_authentic("row", rows.sink_authority(name, kind, location), mac):
                raise LedgerCorrupt(
                    "sink_mac", "The place of a sink was changed by someone without the keys."
                )
            registered.append(SinkRegistration(name=name, kind=kind, location=location))
        return registered
