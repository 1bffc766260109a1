"""Each guard of the database fires by itself: raw statements per guard, past the port and past the rules.

The statements run over a bare connection, as a program would that has a bug or bad intentions and no keys. Whoever
drops the triggers first is the subject of `test_ledger_attacks`.
"""
# ruff: noqa: S608 - tables and columns come from the schema itself

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from ledger.changes import DecisionRecorded, SinkRegistered, Step
from ledger.model import AMOUNT_MAX, CounterTake, DecisionRow, SinkRegistration, Transition, TransitionName
from ledger.sqlite.connection import DatabaseError, IntegrityError, open_database
from ledger.sqlite.rows import EFFECT_COLUMNS
from ledger.sqlite.store import journal_mode
from ledger.states import EffectState
from tests.support.ledger_stages import (
    Stages,
    add_permit,
    add_reservations,
    add_settlements,
    add_span,
    add_use,
    raw_move,
    stages,
)
from tests.support.ledgers import (
    CENT,
    START,
    Book,
    admitted_effect,
    attacker,
    commit_steps,
    made_book,
    open_task,
    permit,
    prepare,
    settle,
)

S = EffectState


@dataclass(frozen=True, kw_only=True)
class Room:
    """A ledger with every kind of row in it, and a bare connection inside a transaction that is undone."""

    raw: Any
    made: Stages

    def id_of(self, state: EffectState) -> str:
        """The id of the effect in a state."""
        return self.made.effects[state].effect_id


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Book, Stages]:
    """One ledger for all rows: every attempt is undone."""
    book = made_book(tmp_path_factory.mktemp("guards") / "book")
    ledger = book.open()
    made = stages(ledger)
    over = admitted_effect(ledger, made.leaf, {"EUR.over": 0})
    settle(ledger, over, S.FAILED, {CENT: 0})
    beyond = open_task(ledger, "beyond", {CENT: 50})
    settle(ledger, admitted_effect(ledger, beyond, {CENT: 5}), S.FAILED, {CENT: 9})
    counted = prepare(ledger, made.leaf, {CENT: 1})
    permit(ledger, counted, (CounterTake(counter="c", amount=2, ceiling=3, level="org"),))
    sink = SinkRegistered(sink=SinkRegistration(name="local", kind="jsonl", location="/a"))
    decision = DecisionRecorded(decision=DecisionRow(effect_id=counted.effect_id, body=b"{}", at_ms=START))
    transition = Transition(name=TransitionName.PROBE, story="led")
    commit_steps(ledger, Step(transition=transition, changes=(sink, decision)))
    ledger.close()
    return book, made


@pytest.fixture
def room(filled: tuple[Book, Stages]) -> Iterator[Room]:
    book, made = filled
    raw = attacker(book.path)
    raw.execute("PRAGMA foreign_keys = ON")
    raw.execute("PRAGMA recursive_triggers = ON")
    raw.execute("BEGIN")
    yield Room(raw=raw, made=made)
    raw.execute("ROLLBACK")
    raw.close()


def insert_effect(room: Room, *, state: str = "prepared", task: str = "", span: bool = True) -> None:
    """Insert an effect by copying one."""
    sequence, span_id = add_span(room.raw, "eff_new" if span else None, state)
    columns = EFFECT_COLUMNS.split(", ")
    changed = {
        "effect_id": "'eff_new'",
        "state": f"'{state}'",
        "task_id": f"'{task or room.made.leaf.task_id}'",
        "request_key": "'new'",
        "last_span": f"'{span_id}'",
        "sequence": str(sequence),
    }
    picked = ", ".join(changed.get(name, name) for name in columns)
    room.raw.execute(
        f"INSERT INTO effects({EFFECT_COLUMNS}) SELECT {picked} FROM effects WHERE effect_id = ?",
        (room.id_of(S.PREPARED),),
    )


def insert_task(room: Room, *, parent: str, depth: int, root: str = "") -> None:
    """Insert a child by raw SQL."""
    sequence, _span = add_span(room.raw, None, None)
    room.raw.execute(
        "INSERT INTO tasks VALUES ('tsk_new', 'new', ?, ?, ?, 's', '[]', 9, 'open', 0, ?, x'00')",
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


def reserve_above(room: Room) -> None:
    """Reserve more than any level has left."""
    room.raw.execute(
        "INSERT INTO budgets(task_id, unit, ceiling) VALUES (?, 'EUR.x', 9)", (room.made.org.task_id,)
    )
    room.raw.execute(
        "INSERT INTO reservations VALUES (?, ?, 'EUR.x', 10)", (room.id_of(S.ADMITTED), room.made.org.task_id)
    )


def take_above(room: Room) -> None:
    """Take more of a class bound than it has."""
    room.raw.execute("INSERT INTO counter_takes VALUES (?, 'c', 2)", (room.id_of(S.PERMITTED),))


def large_span(room: Room) -> None:
    """Insert a span that is one byte too long."""
    room.raw.execute(
        "INSERT INTO spans SELECT max(sequence) + 1, 1, 0, 'f' || substr(span_id, 2), trace_id, name, "
        "story, NULL, NULL, 0, zeroblob(16385), leaf FROM spans"
    )


def lowered_lane(room: Room) -> None:
    """Move the head on without a span of that sequence."""
    room.raw.execute("UPDATE head SET sequence = sequence + 1")


Row = tuple[str, str, Callable[[Room], object]]
ATTEMPTS: list[Row] = [
    ("guard:span_sequence", "a gap", update("INSERT INTO spans SELECT sequence + 2, 1, 0, 'ffffffffffffffff', "
     "trace_id, name, story, NULL, NULL, 0, body, leaf FROM spans ORDER BY sequence DESC LIMIT 1")),
    ("guard:span_sequence", "a second first", update("INSERT INTO spans SELECT 1, 1, 0, 'ffffffffffffffff', "
     "trace_id, name, story, NULL, NULL, 0, body, leaf FROM spans LIMIT 1")),
    ("guard:head_behind", "back", update("UPDATE head SET sequence = sequence - 1")),
    ("guard:head_behind", "on the spot", update("UPDATE head SET mac = x'00'")),
    ("guard:head_behind", "ahead of the trail", lowered_lane),
    ("guard:head_behind", "an earlier time", lambda room: (add_span(room.raw, None, None), room.raw.execute(
        "UPDATE head SET sequence = sequence + 1, clock_ms = clock_ms - 1"))),
    ("guard:head_behind", "an earlier epoch", lambda room: (add_span(room.raw, None, None), room.raw.execute(
        "UPDATE head SET sequence = sequence + 1, epoch = epoch - 1"))),
    ("guard:task_parent", "too deep a leap", lambda room: insert_task(room, parent=room.made.org.task_id, depth=2)),
    ("guard:task_parent", "another root", lambda room: insert_task(
        room, parent=room.made.org.task_id, depth=1, root="tsk_other")),
    ("guard:task_parent", "a closed parent", lambda room: insert_task(
        room, parent=room.made.closed.task_id, depth=2)),
    ("guard:task_identity", "opened again", update("UPDATE tasks SET state = 'open', sequence = 9999 "
     "WHERE state = 'closed'")),
    ("guard:task_identity", "without a new span", update("UPDATE tasks SET state = 'frozen' WHERE depth = 0")),
    *[("guard:task_identity", column, update(f"UPDATE tasks SET {column} = {value}, sequence = sequence + 1000 "
       "WHERE name = 'leaf'")) for column, value in {
        "task_id": "'t'", "name": "'n'", "parent_id": "NULL", "root_id": "'r'", "depth": "0", "subject": "'x'",
        "actors": "'[\"x\"]'", "expires_ms": "expires_ms + 1", "opened_ms": "1"}.items()],
    ("guard:effect_begins_prepared", "permitted at once", lambda room: insert_effect(room, state="permitted")),
    ("guard:state_without_span", "made without one", lambda room: insert_effect(room, span=False)),
    ("guard:state_without_span", "moved on another's", moved_without_span),
    ("guard:state_without_span", "moved on an old one", moved_on_old_span),
    ("guard:task_not_open", "made in a closed task", lambda room: insert_effect(room, task=room.made.closed.task_id)),
    ("guard:task_not_open", "admitted below a closed task", moved_in_closed_task),
    ("guard:illegal_move", "back", lambda room: raw_move(room.raw, room.made.effects[S.UNKNOWN], S.PERMITTED)),
    ("guard:permitted_without_permit", "no permit", lambda room: raw_move(
        room.raw, room.made.effects[S.PREPARED], S.PERMITTED, without=(add_permit,))),
    ("guard:admitted_without_use", "no use", lambda room: raw_move(
        room.raw, room.made.effects[S.PERMITTED], S.ADMITTED, without=(add_use, add_reservations))),
    ("guard:admitted_without_use", "another span's use", used_in_another_transaction),
    ("guard:admitted_without_reservation", "nothing held", lambda room: raw_move(
        room.raw, room.made.effects[S.PERMITTED], S.ADMITTED, without=(add_reservations,))),
    ("guard:outcome_without_settlement", "held for ever", lambda room: raw_move(
        room.raw, room.made.effects[S.UNKNOWN], S.SUCCEEDED, without=(add_settlements,))),
    *[("guard:effect_identity", column, update(f"UPDATE effects SET {column} = {column}"))
      for column in EFFECT_COLUMNS.split(", ") if column not in {"state", "last_span", "sequence"}],
    ("guard:reservation_off_path", "a cousin", off_path),
    ("guard:overrun_blocks", "after an overrun", overrun_blocks),
    ("guard:charge_above_reservation", "one more", charge_above),
    ("no_overspend", "reserve", reserve_above),
    ("no_overspend", "settle", update("UPDATE budgets SET settled = ceiling + 1 WHERE ceiling IS NOT NULL")),
    ("reserved_range", "below zero", update("UPDATE budgets SET reserved = -1")),
    ("reserved_range", "too much", update(f"UPDATE budgets SET reserved = {AMOUNT_MAX + 1} WHERE ceiling IS NULL")),
    ("settled_range", "below zero", update("UPDATE budgets SET settled = -1")),
    ("overrun_range", "below zero", update("UPDATE budgets SET overrun = -1")),
    ("charged_range", "below zero", update("INSERT INTO settlements SELECT effect_id, task_id, unit, -1, 0, 1 "
     "FROM reservations")),
    ("class_bound", "one more", take_above),
    ("span_size", "one byte more", large_span),
]  # fmt: skip


def known_guards(raw: Any) -> set[str]:
    """The names of every guard that the live schema has."""
    text = "\n".join(sql or "" for (sql,) in raw.execute("SELECT sql FROM sqlite_schema"))
    return set(re.findall(r"'(guard:[a-z_]+)'", text)) | set(re.findall(r"CONSTRAINT ([a-z_]+) CHECK", text))


def test_there_is_an_attempt_against_every_guard_of_the_live_schema(room: Room) -> None:
    append_only = {name for name in known_guards(room.raw) if name.startswith("guard:append_only_")}
    assert known_guards(room.raw) - append_only == {guard for guard, _how, _attempt in ATTEMPTS}
    assert len(append_only) >= 13


@pytest.mark.spec("LED-05")
@pytest.mark.parametrize(
    ("guard", "how", "attempt"), ATTEMPTS, ids=[f"{row[0]}-{row[1]}" for row in ATTEMPTS]
)
def test_a_guard_fires_on_raw_sql(
    room: Room, guard: str, how: str, attempt: Callable[[Room], object]
) -> None:
    with pytest.raises(IntegrityError) as caught:
        attempt(room)
    assert str(caught.value).removeprefix("CHECK constraint failed: ") == guard, how


def _tables(raw: Any) -> list[str]:
    names = raw.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    return [name for (name,) in names if not name.startswith(("sqlite_", "_sqlite_"))]


@pytest.mark.spec("LED-05", "AUD-01")
def test_no_row_of_any_table_can_be_deleted(room: Room) -> None:
    tables = _tables(room.raw)
    assert len(tables) == 19
    for table in tables:
        assert room.raw.execute(f"SELECT count(*) FROM {table}").fetchone()[0] > 0, table
        with pytest.raises(IntegrityError, match=f"guard:append_only_{table}"):
            room.raw.execute(f"DELETE FROM {table}")


@pytest.mark.spec("LED-05", "AUD-01")
def test_rows_that_are_history_cannot_be_changed_in_any_column(room: Room) -> None:
    changing = {"head", "tasks", "budgets", "effects", "counters", "repetition"}
    for table in set(_tables(room.raw)) - changing:
        for (column,) in room.raw.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall():
            with pytest.raises(IntegrityError, match=f"guard:append_only_{table}"):
                room.raw.execute(f"UPDATE {table} SET {column} = {column}")


@pytest.mark.spec("ADM-02", "LED-05")
@pytest.mark.parametrize(
    "table",
    ["spans", "effects", "permits", "permit_uses", "claims", "reservations", "settlements", "tasks", "budgets",
     "head", "ledger", "counters", "grants", "sinks", "evidence"],
)  # fmt: skip
def test_insert_or_replace_overwrites_nothing_on_the_connection_of_the_store(
    filled: tuple[Book, Stages], table: str
) -> None:
    raw = open_database(filled[0].path, journal_mode=journal_mode())
    raw.execute("BEGIN IMMEDIATE")
    before = raw.execute(f"SELECT * FROM {table}").fetchall()
    assert before
    with pytest.raises(DatabaseError, match=r"guard:|constraint failed"):
        raw.execute(f"INSERT OR REPLACE INTO {table} SELECT * FROM {table} LIMIT 1")
    assert raw.execute(f"SELECT * FROM {table}").fetchall() == before
    raw.execute("ROLLBACK")
    raw.close()


@pytest.mark.spec("LED-05")
@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO permits SELECT 'eff_none', 'pmt_none', 's', 'issue', 0, 1, '{}', 1",
        "INSERT INTO permit_uses VALUES ('pmt_none', 'eff_none', 1)",
        "INSERT INTO claims VALUES ('eff_none', '', '', zeroblob(32), 0, 1, x'00')",
        "INSERT INTO grants VALUES ('tsk_none', 'EUR.cent', 1, 1, x'00')",
        "INSERT INTO evidence VALUES ('eff_none', 1, 'c', 's', 'p', 'r', 0, 0)",
        "INSERT INTO decisions VALUES (1, 'eff_none', 0, x'')",
        "INSERT INTO counter_takes VALUES ('eff_none', 'c', 0)",
    ],
)
def test_a_row_about_nothing_cannot_be_written(room: Room, statement: str) -> None:
    with pytest.raises(IntegrityError, match="FOREIGN KEY"):
        room.raw.execute(statement)


@pytest.mark.spec("ADM-02", "PER-01", "LED-05")
@pytest.mark.parametrize("once", ["permit_id", "effect_id"])
def test_a_permit_has_one_use_and_an_effect_has_one(room: Room, once: str) -> None:
    permit, effect = room.raw.execute("SELECT permit_id, effect_id FROM permit_uses").fetchone()
    other = room.id_of(S.PERMITTED)
    used = (permit, other) if once == "permit_id" else ("pmt_other", effect)
    sequence, _span = add_span(room.raw, None, None)
    with pytest.raises(IntegrityError, match=f"UNIQUE constraint failed: permit_uses.{once}"):
        room.raw.execute("INSERT INTO permit_uses VALUES (?, ?, ?)", (*used, sequence))
