"""Reading: `ledger.port.View` over one SQLite connection.

Inside a transaction it shows what the lock holds still; outside, one snapshot. It decides nothing, and every query
that an admission needs is answered by a key, so its work does not grow with the ledger (LED-07).
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from ledger.authority import SINKS_CHANGED, RulingKind, sink_from
from ledger.canonical import comparable_bytes
from ledger.errors import LedgerCorrupt
from ledger.model import (
    NAME_PATTERN,
    BudgetLine,
    Claim,
    DecisionRow,
    Effect,
    EffectId,
    Evidence,
    Holdings,
    InstantMs,
    PathNode,
    Permit,
    PermitId,
    Repetition,
    SinkRegistration,
    Task,
    TaskId,
    Tombstone,
    Unit,
)
from ledger.sqlite import rows
from ledger.sqlite.register import Register
from ledger.sqlite.span_view import SpanReading
from ledger.sqlite.tables import names
from ledger.standing import Standing
from ledger.states import PENDING, SETTLED, UNRESOLVED, UNUSED, EffectState
from ledger.transitions import Position, TransitionName
from ledger.tree import Frontier, decoded_frontier

_UNUSED_BEYOND: Final = (
    f"SELECT effect_id FROM effects WHERE state IN ({names(UNUSED)}) "
    f"ORDER BY sequence DESC {rows.AT_MOST} OFFSET ? + 0"
)
_SETTLED_PAST: Final = (
    "SELECT effect_id FROM effects INDEXED BY effects_window "
    f"WHERE state IN ({names(SETTLED)}) AND window_ends_ms <= ? AND NOT EXISTS ("
    "SELECT 1 FROM invocations AS i WHERE i.invocation_id = effects.invocation_id AND i.outcome IS NULL) "
    f"ORDER BY window_ends_ms {rows.AT_MOST}"
)
_TOMBSTONES_BEYOND: Final = (
    "SELECT effect_id FROM tombstones INDEXED BY tombstones_unpermitted "
    f"WHERE permit_id IS NULL AND state IN ({names(UNUSED)}) ORDER BY sequence DESC {rows.AT_MOST} OFFSET ? + 0"
)
_NO_REPETITION: Final = Repetition(pending=0, unresolved=0, succeeded=0)


class SqliteView(SpanReading):
    """What a decision may read. Rows that give authority are checked against their MAC as they are read (LED-06)."""

    def head(self) -> Position:
        """Return the position of the last span."""
        row = self._one("SELECT epoch, lane, sequence FROM head WHERE lane = 0")
        if row is None:
            raise LedgerCorrupt("no_head", "The ledger has no head row.")
        return Position(ledger_id=self._ledger_id, epoch=row[0], lane=row[1], sequence=row[2])

    def frontier(self) -> Frontier:
        """Return the frontier of the tree over every span, as the head says it."""
        row = self._one("SELECT frontier FROM head WHERE lane = 0")
        if row is None:
            raise LedgerCorrupt("no_head", "The ledger has no head row.")
        try:
            return decoded_frontier(row[0])
        except ValueError:
            raise LedgerCorrupt("frontier", "The tree of the ledger's spans is damaged.") from None

    def last_entry_ms(self) -> InstantMs:
        """Return the instant of the last entry: the clock is held against it (PER-03)."""
        row = self._one("SELECT clock_ms FROM head WHERE lane = 0")
        if row is None:
            raise LedgerCorrupt("no_head", "The ledger has no head row.")
        return InstantMs(row[0])

    def _task(self, row: rows.Row | None) -> Task | None:
        if row is None:
            return None
        # Proven as it stands in its row, before any of it is read: a decision asks for the same few tasks many times.
        if not self._keys.is_authentic("row", comparable_bytes(rows.task_signed(row)), row[len(row) - 1]):
            raise LedgerCorrupt("task_mac", "A task row was changed by someone without the keys.")
        task = rows.task_from(row)
        # An earlier row of a task is authentic as well; the head says which is the latest.
        self._standing().prove(task.task_id)
        return task

    def task_named(self, name: str) -> Task | None:
        """Return the task of that name; what cannot be a name, such as half a character, names none."""
        if NAME_PATTERN.match(name) is None:
            return None
        return self._task(
            self._one(f"SELECT {rows.TASK_COLUMNS}, sequence, mac FROM tasks WHERE name = ?", name)
        )

    def task(self, task_id: TaskId) -> Task | None:
        """Return the task of that id."""
        return self._task(
            self._one(f"SELECT {rows.TASK_COLUMNS}, sequence, mac FROM tasks WHERE task_id = ?", task_id)
        )

    def tasks(self) -> Sequence[Task]:
        """Return every task, oldest first."""
        found = self._all(
            f"SELECT {rows.TASK_COLUMNS}, sequence, mac FROM tasks ORDER BY opened_ms, depth, task_id"
        )
        return [task for row in found if (task := self._task(row)) is not None]

    def budget(self, task_id: TaskId) -> Mapping[Unit, BudgetLine]:
        """Return the budget lines of one task by unit."""
        task = self.task(task_id)
        return MappingProxyType({}) if task is None else self._budget(task)

    def _budget(self, task: Task) -> Mapping[Unit, BudgetLine]:
        found = self._all(
            f"SELECT {rows.BUDGET_COLUMNS} FROM budgets WHERE task_id = ? ORDER BY unit", task.task_id
        )
        lines = {line.unit: line for line in map(rows.budget_from, found)}
        ceilings = {unit: line.ceiling for unit, line in lines.items()}
        # A unit without a grant has a line of zero where something was held or charged (BUD-01).
        if ceilings != {**dict.fromkeys(lines, 0), **task.ceilings}:
            raise LedgerCorrupt("ceiling", "A task's ceiling is not what its row gives it.")
        return MappingProxyType(lines)

    def path(self, task_id: TaskId) -> tuple[PathNode, ...]:
        """Return the task and its ancestors, leaf first, with their budget lines; empty where there is none."""
        found = self._all("SELECT ancestor_id FROM task_path WHERE task_id = ? ORDER BY distance", task_id)
        nodes = []
        for (ancestor,) in found:
            task = self.task(ancestor)
            if task is None:
                raise LedgerCorrupt("task_path", "A task's ancestor is missing.")
            nodes.append(PathNode(task=task, budget=self._budget(task)))
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

    def demand_pending(self, effect_id: EffectId) -> None:
        """Prove that the effects that may still be admitted are those that the head knows (LED-06).

        Raises:
            LedgerCorrupt: someone without the keys put one among them, or took one away.
        """
        row = self._one("SELECT pending FROM head WHERE lane = 0")
        if row is None:
            raise LedgerCorrupt("no_head", "The ledger has no head row.")
        Register(self._raw, Standing.EFFECTS, row[0]).prove(effect_id)

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
            sql = f"SELECT {rows.EFFECT_COLUMNS} FROM effects WHERE state = ? AND expires_ms <= ? {rows.AT_MOST}"
            found += [rows.effect_from(row) for row in self._all(sql, str(state), now, limit - len(found))]
        return found

    def unused_beyond(self, newest: int, *, limit: int) -> Sequence[EffectId]:
        """Return at most `limit` effects that are over without an admission, but none of the `newest` to end."""
        # Few are ever left to stand, so sorting them is cheap.
        return [EffectId(row[0]) for row in self._all(_UNUSED_BEYOND, limit, newest)]

    def settled_past(self, now: InstantMs, *, limit: int) -> Sequence[EffectId]:
        """Return at most `limit` effects with an outcome whose window is over at `now`, the longest over first."""
        return [EffectId(row[0]) for row in self._all(_SETTLED_PAST, now, limit)]

    def tombstones_beyond(self, newest: int, *, limit: int) -> Sequence[EffectId]:
        """Return at most `limit` tombstones of effects that never had a permit, but none of the `newest`."""
        return [EffectId(row[0]) for row in self._all(_TOMBSTONES_BEYOND, limit, newest)]

    def permit(self, effect_id: EffectId) -> Permit | None:
        """Return the permit of an effect."""
        row = self._one(
            "SELECT permit_id, effect_id, seal, tier, issued_ms, expires_ms, caps FROM permits WHERE effect_id = ?",
            effect_id,
        )
        return None if row is None else rows.permit_from(row)

    def effect_permitted(self, permit_id: PermitId) -> Effect | None:
        """Return the effect of a permit; whether the two belong together is for the seal to say."""
        row = self._one("SELECT effect_id FROM permits WHERE permit_id = ?", permit_id)
        return None if row is None else self.effect(EffectId(row[0]))

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

    def charged(self, effect_id: EffectId) -> Mapping[Unit, int]:
        """Return what an effect was charged so far, overruns included; empty where nothing is settled."""
        found = self._all(
            # Alike at every level: the rows of one of them are enough.
            "SELECT unit, sum(charged + overrun) FROM settlements WHERE effect_id = ?1 AND task_id = "
            "(SELECT min(task_id) FROM settlements WHERE effect_id = ?1) GROUP BY unit",
            effect_id,
        )
        return MappingProxyType({Unit(row[0]): row[1] for row in found})

    def evidence(self, effect_id: EffectId) -> Sequence[Evidence]:
        """Return the evidence about an effect, oldest first."""
        found = self._all(
            "SELECT effect_id, class, source, proves, reference, late, at_ms, charged FROM evidence "
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
        """Return how much of a class bound or of a task's slots is used (POL-03, BUD-06); 0 where nothing ever was."""
        row = self._one("SELECT used FROM counters WHERE counter = ?", counter)
        return 0 if row is None else int(row[0])

    def takes(self, effect_id: EffectId) -> Mapping[str, int]:
        """Return what the permit of an effect took, by counter; giving it back does not remove it."""
        found = self._all("SELECT counter, amount FROM counter_takes WHERE effect_id = ?", effect_id)
        return MappingProxyType(dict(found))

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

    def tombstone(self, effect_id: EffectId) -> Tombstone | None:
        """Return what stays of a collected effect (PER-04)."""
        return self._tombstone("effect_id = ?", effect_id)

    def tombstone_for_key(self, caller: str, task_id: TaskId, request_key: str) -> Tombstone | None:
        """Return what stays of the collected effect that this caller made in this task under this key (EFF-11)."""
        return self._tombstone("caller = ? AND task_id = ? AND request_key = ?", caller, task_id, request_key)

    def _tombstone(self, where: str, *values: str) -> Tombstone | None:
        row = self._one(f"SELECT {rows.TOMBSTONE_COLUMNS}, mac FROM tombstones WHERE {where}", *values)
        if row is None:
            return None
        found = rows.tombstone_from(row)
        if not self._keys.is_authentic("row", rows.tombstone_authority(found), row[len(row) - 1]):
            raise LedgerCorrupt("tombstone_mac", "A tombstone was changed by someone without the keys.")
        return found

    def holdings(self) -> Holdings:
        """Return how much the ledger holds (LED-02)."""
        row = self._one(
            "SELECT effects, tombstones, record_bytes, spans, span_bytes FROM holdings WHERE one = 1"
        )
        if row is None:
            raise LedgerCorrupt("no_holdings", "The ledger does not say how much it holds.")
        return Holdings(
            effects=row[0], tombstones=row[1], record_bytes=row[2], spans=row[3], span_bytes=row[4]
        )

    def unended(self, task_id: TaskId, *, limit: int) -> int:
        """Count a task's effects that are pending or unresolved, up to `limit` (LED-02)."""
        wanted = sorted(PENDING | UNRESOLVED)
        marks = ", ".join("?" * len(wanted))
        row = self._one(
            f"SELECT count(*) FROM (SELECT 1 FROM effects WHERE task_id = ? AND state IN ({marks}) {rows.AT_MOST})",
            *(task_id, *map(str, wanted), limit),
        )
        return 0 if row is None else int(row[0])

    def sinks(self) -> Sequence[SinkRegistration]:
        """Return the sinks of this ledger as they were placed last: each was registered, and may have moved since."""
        registered = {}
        for name, kind, location, mac in self._all(
            "SELECT name, kind, location, mac FROM sinks ORDER BY name"
        ):
            if not self._keys.is_authentic("row", rows.sink_authority(name, kind, location), mac):
                raise LedgerCorrupt(
                    "sink_mac", "The place of a sink was changed by someone without the keys."
                )
            registered[name] = SinkRegistration(name=name, kind=kind, location=location)
        if self.ruling(RulingKind.SINK, SINKS_CHANGED) is None:
            return list(registered.values())
        for ruling in self.rulings(RulingKind.SINK):
            if ruling.name == SINKS_CHANGED:
                continue
            moved = sink_from(ruling)
            if moved is None:
                registered.pop(ruling.name, None)
            else:
                registered[ruling.name] = moved
        return [registered[name] for name in sorted(registered)]
