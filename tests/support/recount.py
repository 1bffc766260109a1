"""Counts a ledger's file anew, out of rows alone, and holds every total against it: what a collection must leave true.

Read over a bare connection, so that no code of the ledger has a say. Amounts are whole; bytes are those of
`ledger.sqlite.triggers`.
"""
# ruff: noqa: S608 - only constants of this file are put into SQL text

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ledger.sqlite.triggers import (
    EFFECT_ROW_BYTES,
    INVOCATION_ROW_BYTES,
    LEAF_ROW_BYTES,
    ROW_BYTES,
    SPAN_ROW_BYTES,
    TOMBSTONE_ROW_BYTES,
)
from ledger.states import PENDING, SLOT_RETURNING, UNRESOLVED, UNUSED
from tests.support.ledgers import attacker


def _in(states: object) -> str:
    return ", ".join(f"'{state}'" for state in sorted(states))  # type: ignore[call-overload]


HOLDINGS: Final = f"""
SELECT (SELECT count(*) FROM effects), (SELECT count(*) FROM tombstones),
  (SELECT coalesce(sum(length(request) + length(binding) + {EFFECT_ROW_BYTES}), 0) FROM effects)
    + (SELECT coalesce(sum(length(body) + {ROW_BYTES}), 0) FROM decisions)
    + (SELECT coalesce(sum(length(reference) + length(charged) + {ROW_BYTES}), 0) FROM evidence)
    + (SELECT coalesce(sum(length(request) + {TOMBSTONE_ROW_BYTES}), 0) FROM tombstones)
    + (SELECT count(*) * {INVOCATION_ROW_BYTES} FROM invocations)
    + (SELECT count(*) * {ROW_BYTES} FROM obligations) + (SELECT count(*) * {ROW_BYTES} FROM obligations_done)
    + (SELECT count(*) * 2 * {ROW_BYTES} FROM rulings) + (SELECT count(*) * {ROW_BYTES} FROM approval_waits)
    + (SELECT coalesce(sum(length(signature) + {ROW_BYTES}), 0) FROM approvals),
  (SELECT count(*) FROM spans), (SELECT coalesce(sum(length(body) + {SPAN_ROW_BYTES}), 0) FROM spans)
    + (SELECT count(*) * {LEAF_ROW_BYTES} FROM archived_leaves)
"""

BUDGETS: Final = f"""
SELECT b.task_id, b.unit, b.reserved, b.settled, b.overrun,
  (SELECT coalesce(sum(r.amount), 0) FROM reservations AS r JOIN effects AS e ON e.effect_id = r.effect_id
    WHERE r.task_id = b.task_id AND r.unit = b.unit AND e.state IN ({_in(UNRESOLVED)})),
  (SELECT coalesce(sum(charged), 0) FROM settlements WHERE task_id = b.task_id AND unit = b.unit)
    + (SELECT coalesce(sum(charged), 0) FROM collected_spend WHERE task_id = b.task_id AND unit = b.unit)
    + (SELECT coalesce(sum(amount), 0) FROM overruns_accepted WHERE task_id = b.task_id AND unit = b.unit),
  (SELECT coalesce(sum(overrun), 0) FROM settlements WHERE task_id = b.task_id AND unit = b.unit)
    + (SELECT coalesce(sum(overrun), 0) FROM collected_spend WHERE task_id = b.task_id AND unit = b.unit)
    - (SELECT coalesce(sum(amount), 0) FROM overruns_accepted WHERE task_id = b.task_id AND unit = b.unit)
FROM budgets AS b
"""

COUNTERS: Final = f"""
SELECT c.counter, c.used,
  (SELECT coalesce(sum(t.amount), 0) FROM counter_takes AS t JOIN effects AS e ON e.effect_id = t.effect_id
    WHERE t.counter = c.counter AND e.state NOT IN ({_in(SLOT_RETURNING)}))
  + (SELECT coalesce(sum(amount), 0) FROM collected_takes WHERE counter = c.counter)
FROM counters AS c
"""

REPETITION: Final = f"""
SELECT key, sum(pending), sum(unresolved), sum(succeeded) FROM (
  SELECT {{column}} AS key, state IN ({_in(PENDING)}) AS pending, state IN ({_in(UNRESOLVED)}) AS unresolved,
    state = 'succeeded' AS succeeded FROM effects
  UNION ALL SELECT {{column}}, 0, 0, state = 'succeeded' FROM tombstones)
GROUP BY key
"""


def totals(path: Path) -> Mapping[str, object]:
    """Return the money, the counters and the counts of repetition as they stand: what collecting must not change."""
    raw = attacker(path)
    try:
        return {
            "budgets": raw.execute("SELECT * FROM budgets ORDER BY task_id, unit").fetchall(),
            "counters": raw.execute("SELECT * FROM counters ORDER BY counter").fetchall(),
            "uses": raw.execute("SELECT * FROM permit_uses ORDER BY permit_id").fetchall(),
            "repetition": {
                row[:2]: row[2:]
                for row in raw.execute("SELECT * FROM repetition ORDER BY kind, key")
                if any(row[2:])
            },
        }
    finally:
        raw.close()


def recounted(path: Path) -> None:
    """Assert that every total of the ledger is what its rows add up to, and that nothing is there twice."""
    raw = attacker(path)
    try:
        _counted(raw)
    finally:
        raw.close()


def _counted(raw: Any) -> None:
    held = raw.execute("SELECT effects, tombstones, record_bytes, spans, span_bytes FROM holdings").fetchone()
    assert held == raw.execute(HOLDINGS).fetchone()
    for _task, unit, reserved, settled, overrun, *expected in raw.execute(BUDGETS):
        assert [reserved, settled, overrun] == expected, unit
    for counter, used, expected in raw.execute(COUNTERS):
        assert used == expected, counter
    for kind, column in (("content", "content_key"), ("resource", "resource_key")):
        stored = {
            row[0]: row[1:]
            for row in raw.execute(
                "SELECT key, pending, unresolved, succeeded FROM repetition WHERE kind = ?", (kind,)
            )
            if any(row[1:])
        }
        made = {row[0]: row[1:] for row in raw.execute(REPETITION.format(column=column)) if any(row[1:])}
        assert stored == made, kind
    twice = "SELECT effect_id FROM tombstones WHERE effect_id IN (SELECT effect_id FROM effects)"
    assert raw.execute(twice).fetchall() == []
    lost = (
        "SELECT effect_id FROM permit_uses WHERE effect_id NOT IN (SELECT effect_id FROM effects) "
        "AND effect_id NOT IN (SELECT effect_id FROM tombstones)"
    )
    assert raw.execute(lost).fetchall() == []
    # A story that no row ends any more was that of an effect that never had a permit, and told to be collected.
    gone = raw.execute(
        "SELECT DISTINCT effect_id FROM spans WHERE state_to IS NOT NULL AND effect_id NOT IN "
        "(SELECT effect_id FROM effects) AND effect_id NOT IN (SELECT effect_id FROM tombstones)"
    ).fetchall()
    for (effect_id,) in gone:
        states = [
            row[0]
            for row in raw.execute(
                "SELECT state_to FROM spans WHERE effect_id = ? AND state_to IS NOT NULL ORDER BY sequence",
                (effect_id,),
            )
        ]
        assert states[-1] in UNUSED
        assert "permitted" not in states
