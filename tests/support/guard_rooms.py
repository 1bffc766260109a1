"""What attempts against the guards of the database are made with: a filled ledger, and raw SQL past port and rules.

Statements run over a bare connection, as a program would that has a bug or bad intentions and no keys.
"""
# ruff: noqa: S608 - tables and columns come from the schema itself

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ledger.model import EffectId
from ledger.sqlite.rows import EFFECT_COLUMNS, TASK_COLUMNS, TOMBSTONE_COLUMNS
from ledger.states import EffectState
from tests.support.ledger_stages import Stages, add_settlements, add_span, raw_move

S = EffectState
GONE = EffectId("eff_" + "9" * 32)


@dataclass(frozen=True, kw_only=True)
class Room:
    """A ledger with every kind of row in it, and a bare connection inside a transaction that is undone."""

    raw: Any
    made: Stages

    def id_of(self, state: EffectState) -> str:
        """The id of the effect in a state."""
        return self.made.effects[state].effect_id


def insert_effect(
    room: Room,
    *,
    state: str = "prepared",
    task: str = "",
    span: bool = True,
    name: str = "raw",
    **more: str,
) -> None:
    """Insert an effect by copying one; `more` is SQL for further columns."""
    effect_id = more.get("effect_id", "'eff_new'").strip("'")
    sequence, span_id = add_span(room.raw, effect_id if span else None, state, name=name)
    columns = EFFECT_COLUMNS.split(", ")
    changed = {
        "effect_id": "'eff_new'",
        "state": f"'{state}'",
        "task_id": f"'{task or room.made.leaf.task_id}'",
        "request_key": "'new'",
        "last_span": f"'{span_id}'",
        "sequence": str(sequence),
        **more,
    }
    picked = ", ".join(changed.get(name, name) for name in columns)
    room.raw.execute(
        f"INSERT INTO effects({EFFECT_COLUMNS}, bucket) SELECT {picked}, bucket FROM effects WHERE effect_id = ?",
        (room.id_of(S.PREPARED),),
    )


def insert_task(room: Room, *, parent: str, depth: int, root: str = "") -> None:
    """Insert a child by raw SQL."""
    sequence, _span = add_span(room.raw, None, None)
    room.raw.execute(
        f"INSERT INTO tasks({TASK_COLUMNS}, bucket, sequence, mac) "
        "VALUES ('tsk_new', 'new', ?, ?, ?, 's', '[]', 9, 'open', 0, '{}', '{}', 0, ?, x'00')",
        (parent, root or room.made.org.task_id, depth, sequence),
    )


def update(sql: str) -> Callable[[Room], object]:
    """Run one statement."""
    return lambda room: room.raw.execute(sql)


def moved_in_closed_task(room: Room) -> None:
    """Admit an effect whose ancestor was closed meanwhile."""
    sequence, _span = add_span(room.raw, None, None)
    room.raw.execute(
        "UPDATE tasks SET state = 'closed', sequence = ? WHERE task_id = ?", (sequence, room.made.org.task_id)
    )
    raw_move(room.raw, room.made.effects[S.PERMITTED], S.ADMITTED)


def moved_after_closing(room: Room) -> None:
    """Change a closed task at a new span of its own."""
    sequence, _span = add_span(room.raw, None, None)
    room.raw.execute("UPDATE tasks SET ceilings = '{}', sequence = ? WHERE state = 'closed'", (sequence,))


def moved_without_span(room: Room) -> None:
    """Move with a span that is another effect's."""
    sequence, span_id = add_span(room.raw, room.id_of(S.DENIED), "expired")
    room.raw.execute(
        "UPDATE effects SET state = 'expired', last_span = ?, sequence = ? WHERE effect_id = ?",
        (span_id, sequence, room.id_of(S.PREPARED)),
    )


def moved_on_old_span(room: Room) -> None:
    """Move on the span of an earlier move of the same effect."""
    old = room.made.effects[S.UNKNOWN]
    row = room.raw.execute(
        "SELECT sequence, span_id FROM spans WHERE effect_id = ? AND state_to = 'admitted'", (old.effect_id,)
    ).fetchone()
    add_settlements(room.raw, old.effect_id, row[0])
    room.raw.execute(
        "UPDATE effects SET state = 'failed', sequence = ?, last_span = ? WHERE effect_id = ?",
        (*row, old.effect_id),
    )


def used_in_another_transaction(room: Room) -> None:
    """Admit on a use of the permit that stands at another span than the admission's own."""
    effect = room.made.effects[S.PERMITTED]
    sequence, _span = add_span(room.raw, None, None)
    issued = room.raw.execute(
        "SELECT permit_id FROM permits WHERE effect_id = ?", (effect.effect_id,)
    ).fetchone()[0]
    room.raw.execute("INSERT INTO permit_uses VALUES (?, ?, ?)", (issued, effect.effect_id, sequence))
    room.raw.execute("INSERT INTO claims VALUES (?, '', '', zeroblob(32), 0, 1, x'00')", (effect.effect_id,))
    raw_move(room.raw, effect, S.ADMITTED)


def off_path(room: Room) -> None:
    """Reserve at a task that the effect is not below."""
    effect = room.id_of(S.ADMITTED)
    room.raw.execute(
        "INSERT INTO reservations SELECT ?, task_id, unit, 1 FROM budgets WHERE task_id = ?",
        (effect, room.made.closed.task_id),
    )


def overrun_blocks(room: Room) -> None:
    """Reserve where an overrun stands, on its own path and within its ceiling."""
    raw = room.raw
    task, effect = raw.execute(
        "SELECT e.task_id, e.effect_id FROM effects AS e JOIN tasks AS t USING (task_id) WHERE t.name = 'beyond'"
    ).fetchone()
    raw.execute("INSERT INTO budgets(task_id, unit, ceiling, overrun) VALUES (?, 'EUR.x', 9, 1)", (task,))
    raw.execute("INSERT INTO reservations VALUES (?, ?, 'EUR.x', 1)", (effect, task))


def charge_above(room: Room) -> None:
    """Charge more within the bound than was reserved."""
    sequence, _span = add_span(room.raw, None, None)
    room.raw.execute(
        "INSERT INTO settlements VALUES (?, ?, 'EUR.cent', 11, 0, ?)",
        (room.id_of(S.ADMITTED), room.made.org.task_id, sequence),
    )


def reserve_above(room: Room, *, amount: int = 10, settled: int = 0, ceiling: int = 9) -> None:
    """Reserve more than any level has left."""
    above = max(0, settled - ceiling)
    room.raw.execute(
        "INSERT INTO budgets(task_id, unit, ceiling, settled, above) VALUES (?, 'EUR.x', ?, ?, ?)",
        (room.made.org.task_id, ceiling, settled, above),
    )
    room.raw.execute(
        "INSERT INTO reservations VALUES (?, ?, 'EUR.x', ?)",
        (room.id_of(S.ADMITTED), room.made.org.task_id, amount),
    )


def tombstone(room: Room, effect_id: str, *, at_ms: str, **changed: str) -> None:
    """Insert a tombstone by raw SQL, at a span of `at_ms`, with SQL in place of what the effect says."""
    sequence, _span = add_span(room.raw, None, None)
    room.raw.execute("DROP TRIGGER spans_never_updated")
    room.raw.execute(f"UPDATE spans SET at_ms = {at_ms} WHERE sequence = ?", (sequence,))
    picked = ", ".join(
        changed.get(name, {"permit_id": "p.permit_id", "ended_ms": "1"}.get(name, f"e.{name}"))
        for name in TOMBSTONE_COLUMNS.split(", ")
    )
    room.raw.execute(
        f"INSERT INTO tombstones({TOMBSTONE_COLUMNS}, sequence, mac) SELECT {picked}, ?, x'00' "
        "FROM effects AS e LEFT JOIN permits AS p ON p.effect_id = e.effect_id WHERE e.effect_id = ?",
        (sequence, effect_id),
    )


def take_above(room: Room) -> None:
    """Take more of a class bound than it has."""
    room.raw.execute("INSERT INTO counter_takes VALUES (?, 'c', 2)", (room.id_of(S.PERMITTED),))


def large_span(room: Room) -> None:
    """Insert a span that is one byte too long."""
    room.raw.execute(
        "INSERT INTO spans(sequence, epoch, lane, span_id, trace_id, name, story, effect_id, state_to, at_ms, "
        "body, leaf) "
        "SELECT max(sequence) + 1, 1, 0, 'f' || substr(span_id, 2), trace_id, name, "
        "story, NULL, NULL, 0, zeroblob(16385), leaf FROM spans"
    )


def lowered_lane(room: Room) -> None:
    """Move the head on without a span of that sequence."""
    room.raw.execute("UPDATE head SET sequence = sequence + 1")
