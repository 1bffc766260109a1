"""Attempts by raw SQL against the guards of invocations and obligations; `tests.fault.test_ledger_guards` runs them."""
# ruff: noqa: S608 - tables and columns come from the schema itself

from collections.abc import Callable
from dataclasses import replace

from ledger.states import EffectState
from ledger.transitions import TransitionName
from tests.support.guard_rooms import Room, insert_effect, tombstone, update
from tests.support.ledger_stages import add_span, raw_move
from tests.support.ledgers import HOUR_MS, START

S = EffectState
LATE = str(START + 1_000 * HOUR_MS)
INVOCATION = "SELECT invocation_id FROM invocations WHERE outcome IS NULL"


def ended_by_hand(room: Room, outcome: str, *, which: str = "outcome IS NULL", span: str = "") -> None:
    """Give an invocation an outcome by raw SQL, at a next span of its story."""
    (invocation,) = room.raw.execute(f"SELECT invocation_id FROM invocations WHERE {which}").fetchone()
    sequence = add_story(room, invocation, span or TransitionName.INVOCATION_ENDED)
    room.raw.execute(
        "UPDATE invocations SET outcome = ?, ended_ms = 1, sequence = ? WHERE invocation_id = ?",
        (outcome, sequence, invocation),
    )


def add_story(room: Room, story: str, name: str) -> int:
    """Insert a next span of another story than an effect's."""
    sequence, span_id = add_span(room.raw, None, None, name=str(name))
    room.raw.execute("DROP TRIGGER IF EXISTS spans_never_updated")
    room.raw.execute("UPDATE spans SET story = ? WHERE span_id = ?", (story, span_id))
    return sequence


def invocation_by_hand(room: Room, *, outcome: str = "NULL", span: str, task: str = "") -> None:
    """Insert an invocation by raw SQL at a next span of its story."""
    sequence = add_story(room, "inv_new", span)
    room.raw.execute(
        "INSERT INTO invocations SELECT 'inv_new', 'host-1', ?, 'agent-7', 0, 1, "
        f"{outcome}, iif({outcome} IS NULL, NULL, 1), 0, ?, x'00'",
        (task or room.made.leaf.task_id, sequence),
    )


def named_by(room: Room, *, task: str = "", caller: str = "caller") -> None:
    """Insert an effect by raw SQL that names an invocation."""
    insert_effect(room, task=task, caller=caller, invocation_id=f"({INVOCATION})")


def moved_after_the_end(room: Room) -> None:
    """Admit an effect whose invocation was ended meanwhile."""
    ended_by_hand(room, "cancelled")
    row = room.raw.execute(
        "SELECT effect_id FROM effects WHERE invocation_id IS NOT NULL AND state = 'permitted'"
    ).fetchone()
    raw_move(room.raw, replace(room.made.effects[S.PERMITTED], effect_id=row[0]), S.ADMITTED)


def unkept_alone(room: Room) -> None:
    """End as succeeded where only an obligation stands against it."""
    effect = room.raw.execute(
        "SELECT effect_id FROM effects WHERE invocation_id IS NOT NULL AND state = 'succeeded'"
    ).fetchone()[0]
    sequence, _span = add_span(room.raw, effect, None, name=str(TransitionName.EFFECT_OBLIGED))
    room.raw.execute("INSERT INTO obligations VALUES (?, 'tell', 9, ?)", (effect, sequence))
    room.raw.execute("DROP TRIGGER effects_fixed")
    room.raw.execute("UPDATE effects SET invocation_id = NULL WHERE effect_id <> ?", (effect,))
    ended_by_hand(room, "succeeded")


def under_open(room: Room) -> str:
    """The id of an effect that succeeded under an open invocation."""
    sql = "SELECT effect_id FROM effects WHERE invocation_id IS NOT NULL AND state = 'succeeded'"
    return str(room.raw.execute(sql).fetchone()[0])


INVOCATION_ATTEMPTS: list[tuple[str, str, Callable[[Room], object]]] = [
    ("guard:invocation_without_span", "opened at another's span", update(
        "INSERT INTO invocations SELECT 'inv_new', caller, task_id, actor, 0, 1, NULL, NULL, 0, sequence, x'00' "
        "FROM invocations")),
    ("guard:invocation_without_span", "ended at its opening", lambda room: ended_by_hand(
        room, "cancelled", span=TransitionName.INVOCATION_OPENED)),
    ("guard:outcome_before_start", "succeeded at once", lambda room: invocation_by_hand(
        room, outcome="'succeeded'", span=TransitionName.INVOCATION_ENDED)),
    ("guard:task_not_open", "opened in a closed task", lambda room: invocation_by_hand(
        room, span=TransitionName.INVOCATION_OPENED, task=room.made.closed.task_id)),
    ("guard:outcome_once", "another outcome", lambda room: ended_by_hand(
        room, "failed_execution", which="outcome IS NOT NULL")),
    ("guard:outcome_once", "open again", update(
        "UPDATE invocations SET outcome = NULL, ended_ms = NULL WHERE outcome IS NOT NULL")),
    ("guard:outcome_once", "rejected after it began", lambda room: ended_by_hand(room, "rejected")),
    *[("guard:invocation_identity", column, update(
        f"UPDATE invocations SET {column} = {value}, outcome = 'cancelled', ended_ms = 1 WHERE outcome IS NULL"))
      for column, value in {"invocation_id": "'inv_x'", "caller": "'x'", "task_id": "'x'", "actor": "'x'",
                            "opened_ms": "1", "deadline_ms": "deadline_ms + 1", "bucket": "63 - bucket"}.items()],
    ("guard:succeeded_unsettled", "an effect that is prepared", lambda room: ended_by_hand(room, "succeeded")),
    ("guard:succeeded_unsettled", "an obligation that is open", unkept_alone),
    ("guard:invocation_over", "named after its end", lambda room: insert_effect(
        room, invocation_id="(SELECT invocation_id FROM invocations WHERE outcome IS NOT NULL)")),
    ("guard:invocation_over", "named from above", lambda room: named_by(room, task=room.made.org.task_id)),
    ("guard:invocation_over", "named by another", lambda room: named_by(room, caller="'x'")),
    ("guard:invocation_over", "admitted after its end", moved_after_the_end),
    ("guard:collected_too_early", "under an open invocation", lambda room: tombstone(
        room, under_open(room), at_ms=LATE)),
    ("guard:obligation_without_span", "of another's span", update(
        "INSERT INTO obligations SELECT effect_id, 'new', 1, 1 FROM effects LIMIT 1")),
    ("guard:obligation_without_span", "closed at no span", update(
        "INSERT INTO obligations_done SELECT effect_id, name, 0, 1 FROM obligations LIMIT 1")),
]  # fmt: skip
