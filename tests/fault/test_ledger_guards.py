"""Each guard of the database fires by itself: raw statements per guard, past the port and past the rules.

The statements run over a bare connection, as a program would that has a bug or bad intentions and no keys. Whoever
drops the triggers first is the subject of `test_ledger_attacks`.
"""
# ruff: noqa: S608 - tables and columns come from the schema itself

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from issuer.flow.collect import tombstone_of
from ledger.changes import (
    DecisionRecorded,
    EffectCollected,
    OverrunAccepted,
    SinkRegistered,
    SpansArchived,
    Step,
)
from ledger.invocations import InvocationOutcome
from ledger.model import AMOUNT_MAX, CounterTake, DecisionRow, EffectId, InstantMs, SinkRegistration
from ledger.port import Ledger, Verdict, View
from ledger.sqlite.connection import DatabaseError, IntegrityError, open_database
from ledger.sqlite.rows import EFFECT_COLUMNS
from ledger.sqlite.store import journal_mode
from ledger.states import PENDING, UNRESOLVED, EffectState
from ledger.transitions import Transition, TransitionName
from tests.support.guard_rooms import (
    GONE,
    Room,
    S,
    charge_above,
    insert_effect,
    insert_task,
    large_span,
    lowered_lane,
    moved_after_closing,
    moved_in_closed_task,
    moved_on_old_span,
    moved_without_span,
    off_path,
    overrun_blocks,
    reserve_above,
    take_above,
    tombstone,
    update,
    used_in_another_transaction,
)
from tests.support.guard_rooms_authority import AUTHORITY_ATTEMPTS
from tests.support.guard_rooms_invocations import INVOCATION_ATTEMPTS
from tests.support.invocations import begin, closing, ending, obliging
from tests.support.ledger_authority import one_of_each
from tests.support.ledger_stages import (
    Stages,
    add_permit,
    add_reservations,
    add_settlements,
    add_span,
    add_use,
    effect_in,
    move,
    raw_move,
    stages,
)
from tests.support.ledgers import (
    CENT,
    HOUR_MS,
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
    accepted = OverrunAccepted(task_id=beyond.task_id, unit=CENT, amount=1)
    accepting = Transition(name=TransitionName.OVERRUN_ACCEPTED, story=beyond.task_id)
    commit_steps(ledger, Step(transition=accepting, changes=(accepted,)))
    counted = prepare(ledger, made.leaf, {CENT: 1})
    permit(ledger, counted, (CounterTake(counter="c", amount=2, ceiling=3, level="org"),))
    sink = SinkRegistered(sink=SinkRegistration(name="local", kind="jsonl", location="/a"))
    decision = DecisionRecorded(decision=DecisionRow(effect_id=counted.effect_id, body=b"{}", at_ms=START))
    transition = Transition(name=TransitionName.PROBE, story="led")
    commit_steps(ledger, Step(transition=transition, changes=(sink, decision)))
    for effect in (made.effects[S.SUCCEEDED], made.effects[S.FAILED]):
        commit_steps(ledger, obliging(effect.effect_id))
    commit_steps(ledger, closing(made.effects[S.FAILED].effect_id))
    done, ended = begin(ledger, made.leaf), begin(ledger, made.leaf)
    named = {"invocation_id": done.invocation_id}
    prepare(ledger, made.leaf, {CENT: 1}, request_key="named", **named)
    permit(ledger, prepare(ledger, made.leaf, {CENT: 1}, request_key="ready", **named))
    move(ledger, effect_in(ledger, made.leaf, S.AWAITING_APPROVAL), S.PERMITTED)
    one_of_each(ledger)
    unkept = admitted_effect(ledger, made.leaf, {CENT: 1}, request_key="unkept", **named)
    settle(ledger, unkept, S.SUCCEEDED, {CENT: 1})
    commit_steps(ledger, ending(ended.invocation_id, InvocationOutcome.CANCELLED))
    gone = admitted_effect(ledger, made.leaf, {CENT: 1}, effect_id=GONE, request_key="gone")
    settle(ledger, gone, S.SUCCEEDED, {CENT: 1})
    book.clock.now += HOUR_MS
    collect(ledger, gone.effect_id)
    archive(ledger)
    commit_steps(ledger, Step(transition=Transition(name=TransitionName.LEDGER_COLLECTED, story="led")))
    ledger.close()
    return book, made


def collect(ledger: Ledger, effect_id: EffectId) -> None:
    """Make a tombstone of an effect whose window is over."""

    def decide(view: View, _now: InstantMs) -> Verdict[None]:
        stood = view.effect(effect_id)
        assert stood is not None
        collected = EffectCollected(tombstone=tombstone_of(view, stood))
        named = {"permit.policy.ids": ("p1",)}
        transition = Transition(name=TransitionName.LEDGER_COLLECTED, story="led", attributes=named)
        return Verdict(value=None, steps=(Step(transition=transition, changes=(collected,)),))

    ledger.transact(decide)


def archive(ledger: Ledger) -> None:
    """Archive what is over."""

    def decide(view: View, _now: InstantMs) -> Verdict[None]:
        upto = view.head().sequence
        change = SpansArchived(upto=upto, leaving=view.leaving(upto))
        transition = Transition(name=TransitionName.AUDIT_ARCHIVED, story="led")
        return Verdict(value=None, steps=(Step(transition=transition, changes=(change,)),))

    ledger.transact(decide, check=lambda _raw: None)


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


def archived_and(statement: str, *, name: str, of: str = "refused") -> Callable[[Room], object]:
    """Return an attempt: the leaf of one span of a kind is archived, another span is last, then the statement."""

    def attempt(room: Room) -> object:
        add_span(room.raw, None, None, name=of)
        archived, _id = add_span(room.raw, None, None, name="audit.archived")
        put = "INSERT INTO archived_leaves SELECT sequence, epoch, leaf FROM spans WHERE sequence = ?"
        room.raw.execute(put, (archived - 1,))
        if name != "audit.archived":
            add_span(room.raw, None, None, name=name)
        return room.raw.execute(statement)

    return attempt


UNENDED = sorted(PENDING | UNRESOLVED)
REPLAYED = str(TransitionName.EFFECT_REPLAYED)
LATE = str(START + 1_000 * HOUR_MS)
Row = tuple[str, str, Callable[[Room], object]]
TOLD = "sequence, epoch, lane, span_id, trace_id, name, story, effect_id, state_to, at_ms, body, leaf"
ATTEMPTS: list[Row] = [
    ("guard:span_sequence", "a gap", update(f"INSERT INTO spans({TOLD}) SELECT sequence + 2, 1, 0, 'ffffffffffffffff', "
     "trace_id, name, story, NULL, NULL, 0, body, leaf FROM spans ORDER BY sequence DESC LIMIT 1")),
    ("guard:span_sequence", "a second first", update(f"INSERT INTO spans({TOLD}) SELECT 1, 1, 0, 'ffffffffffffffff', "
     "trace_id, name, story, NULL, NULL, 0, body, leaf FROM spans LIMIT 1")),
    ("guard:archived_without_archive", "in another step", update("INSERT INTO archived_leaves "
     "SELECT sequence, epoch, leaf FROM spans WHERE name = 'effect.prepared' LIMIT 1")),
    ("guard:archived_without_span", "of none", lambda room: (add_span(room.raw, None, None, name="audit.archived"),
        room.raw.execute("INSERT INTO archived_leaves SELECT max(sequence) + 1, 1, leaf FROM spans"))),
    ("guard:archived_without_span", "another leaf", lambda room: (
        add_span(room.raw, None, None, name="audit.archived"),
        room.raw.execute("INSERT INTO archived_leaves SELECT sequence, epoch, zeroblob(32) FROM spans "
                         "WHERE name = 'effect.prepared' LIMIT 1"))),
    ("guard:append_only_spans", "in no archive", archived_and(
        "DELETE FROM spans WHERE sequence IN (SELECT sequence FROM archived_leaves)", name="raw")),
    ("guard:append_only_spans", "without its leaf", archived_and(
        "DELETE FROM spans WHERE name = 'effect.prepared'", name="audit.archived")),
    ("guard:append_only_spans", "of a kind that stays", archived_and(
        "DELETE FROM spans WHERE sequence IN (SELECT sequence FROM archived_leaves) AND name = 'effect.admitted'",
        name="audit.archived", of="effect.admitted")),
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
    ("guard:task_identity", "closed and moved on", moved_after_closing),
    ("guard:task_identity", "without a new span", update("UPDATE tasks SET state = 'frozen' WHERE depth = 0")),
    *[("guard:task_identity", column, update(f"UPDATE tasks SET {column} = {value}, sequence = sequence + 1000 "
       "WHERE name = 'leaf'")) for column, value in {
        "task_id": "'t'", "name": "'n'", "parent_id": "NULL", "root_id": "'r'", "depth": "0", "subject": "'x'",
        "actors": "'[\"x\"]'", "expires_ms": "expires_ms + 1", "opened_ms": "1", "scope": "'{}'",
        "bucket": "63 - bucket"}.items()],
    ("guard:effect_begins_prepared", "permitted at once", lambda room: insert_effect(room, state="permitted")),
    ("guard:effect_begins_prepared", "unknown at once", lambda room: insert_effect(room, state="unknown")),
    ("guard:effect_begins_prepared", "unknown at a replay, and not replayed", lambda room: insert_effect(
        room, state="unknown", name=REPLAYED)),
    ("guard:effect_begins_prepared", "succeeded at a replay", lambda room: insert_effect(
        room, state="succeeded", name=REPLAYED, replayed="1")),
    ("guard:replayed_without_restore", "as if restored", lambda room: insert_effect(room, replayed="1")),
    ("guard:collected", "the same effect again", lambda room: insert_effect(room, effect_id=f"'{GONE}'")),
    ("guard:collected", "the same request again", lambda room: insert_effect(room, request_key="'gone'")),
    *[("guard:collected_too_early", f"{state} as succeeded", lambda room, state=state: tombstone(
        room, room.id_of(state), at_ms=LATE, state="'succeeded'")) for state in UNENDED],
    ("guard:collected_too_early", "within its window", lambda room: tombstone(
        room, room.id_of(S.SUCCEEDED), at_ms="(SELECT min(expires_ms) - 1 FROM effects)")),
    *[("guard:collected_too_early", f"another {name}", lambda room, name=name, value=value: tombstone(
        room, room.id_of(S.FAILED), at_ms=LATE, **{name: value})) for name, value in {
        "state": "'succeeded'", "caller": "'x'", "task_id": "e.root_id", "request_key": "'x'", "request": "x'7b'",
        "content_key": "zeroblob(32)", "resource_key": "zeroblob(32)", "permit_id": "NULL"}.items()],
    ("guard:use_without_effect", "of nothing", update("INSERT INTO permit_uses VALUES ('pmt_none', 'eff_none', 1)")),
    ("guard:use_without_effect", "of what was collected", update(
        f"INSERT INTO permit_uses VALUES ('pmt_none', '{GONE}', 1)")),
    ("guard:unknown_before_admission", "no restore", lambda room: raw_move(
        room.raw, room.made.effects[S.PERMITTED], S.UNKNOWN)),
    ("guard:unknown_before_admission", "nothing held", lambda room: raw_move(
        room.raw, room.made.effects[S.PERMITTED], S.UNKNOWN, without=(add_reservations,), name=REPLAYED)),
    ("guard:unknown_before_admission", "nothing spent", lambda room: raw_move(
        room.raw, room.made.effects[S.PERMITTED], S.UNKNOWN, without=(add_use, add_reservations), name=REPLAYED)),
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
    ("guard:no_overspend", "reserve", reserve_above),
    ("guard:no_overspend", "one more", lambda room: reserve_above(room, amount=2, settled=8)),
    ("guard:no_overspend", "nothing above a lowered ceiling", lambda room: reserve_above(room, amount=0, settled=12)),
    *INVOCATION_ATTEMPTS,
    *AUTHORITY_ATTEMPTS,
    ("no_overspend", "settle", update("UPDATE budgets SET settled = ceiling + 1 WHERE ceiling IS NOT NULL")),
    ("above_exact", "room that is not there", update("UPDATE budgets SET above = 1 WHERE ceiling IS NOT NULL")),
    ("above_range", "below zero", update("UPDATE budgets SET above = -1 WHERE ceiling IS NULL")),
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
    attempted = {guard for guard, _how, _attempt in ATTEMPTS}
    assert known_guards(room.raw) - append_only == attempted - append_only
    tables = set(_tables(room.raw))
    assert {name.removeprefix("guard:append_only_") for name in append_only} == tables


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


TOTALS = {"budgets", "counters", "repetition", "holdings", "collected_spend", "collected_takes"}
"""What only triggers change; the connection of the store refuses to write them (`test_ledger_connection`)."""


def _tables(raw: Any) -> list[str]:
    names = raw.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    return [name for (name,) in names if not name.startswith(("sqlite_", "_sqlite_"))]


@pytest.mark.spec("LED-05", "AUD-01")
def test_no_row_of_any_table_can_be_deleted(room: Room) -> None:
    tables = _tables(room.raw)
    assert len(tables) == 33
    for table in tables:
        assert room.raw.execute(f"SELECT count(*) FROM {table}").fetchone()[0] > 0, table
        with pytest.raises(IntegrityError, match=f"guard:append_only_{table}"):
            room.raw.execute(f"DELETE FROM {table}")


@pytest.mark.spec("LED-05", "AUD-01")
def test_rows_that_are_history_cannot_be_changed_in_any_column(room: Room) -> None:
    changing = {"head", "standing", "tasks", "effects", "invocations", "rulings"} | TOTALS
    for table in set(_tables(room.raw)) - changing:
        for (column,) in room.raw.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall():
            with pytest.raises(IntegrityError, match=f"guard:append_only_{table}"):
                room.raw.execute(f"UPDATE {table} SET {column} = {column}")


@pytest.mark.spec("ADM-02", "LED-05")
@pytest.mark.parametrize(
    "table",
    ["spans", "effects", "permits", "permit_uses", "claims", "reservations", "settlements", "tasks", "budgets",
     "head", "ledger", "counters", "grants", "sinks", "evidence", "standing", "holdings", "tombstones",
     "overruns_accepted", "collected_spend", "collected_takes", "invocations", "obligations", "obligations_done",
     "rulings", "approval_waits", "approvals"],
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
        "INSERT INTO claims VALUES ('eff_none', '', '', zeroblob(32), 0, 1, x'00')",
        "INSERT INTO grants VALUES ('tsk_none', 'EUR.cent', 1, 'set', 1, x'00')",
        "INSERT INTO overruns_accepted VALUES ('tsk_none', 'EUR.cent', 1, 1)",
        "INSERT INTO evidence VALUES ('eff_none', 1, 'c', 's', 'p', 'r', 0, 0, '{}')",
        "INSERT INTO decisions VALUES (1, 'eff_none', 0, x'')",
        "INSERT INTO counter_takes VALUES ('eff_none', 'c', 0)",
    ],
)
def test_a_row_about_nothing_cannot_be_written(room: Room, statement: str) -> None:
    with pytest.raises(IntegrityError, match="FOREIGN KEY"):
        room.raw.execute(statement)


@pytest.mark.spec("LED-02", "PER-04", "LED-05")
@pytest.mark.parametrize("state", UNENDED)
def test_what_is_not_over_has_no_tombstone(room: Room, state: EffectState) -> None:
    with pytest.raises(IntegrityError, match="CHECK constraint failed: state IN"):
        tombstone(room, room.id_of(state), at_ms=LATE)


@pytest.mark.spec("ADM-02", "PER-01", "LED-05")
@pytest.mark.parametrize("once", ["permit_id", "effect_id"])
def test_a_permit_has_one_use_and_an_effect_has_one(room: Room, once: str) -> None:
    permit, effect = room.raw.execute(
        "SELECT permit_id, effect_id FROM permit_uses JOIN effects USING (effect_id)"
    ).fetchone()
    other = room.id_of(S.PERMITTED)
    used = (permit, other) if once == "permit_id" else ("pmt_other", effect)
    sequence, _span = add_span(room.raw, None, None)
    with pytest.raises(IntegrityError, match=f"UNIQUE constraint failed: permit_uses.{once}"):
        room.raw.execute("INSERT INTO permit_uses VALUES (?, ?, ?)", (*used, sequence))
