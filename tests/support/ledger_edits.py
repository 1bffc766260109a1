"""Edits of a ledger by somebody who can write its file and has no keys, each with what a check must find, and where.

They are made for the history of `tests.support.busy`. A place is text, and where it names a row SQL for its key, which
is asked before the edit.
"""
# ruff: noqa: S608 - tables and columns come from the tables of this file

from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, kw_only=True)
class Edit:
    """One edit: statements that each change something; what is found; the table and SQL for the key."""

    name: str
    what: str
    table: str
    key: str = ""
    statements: tuple[str, ...]

    def place(self, raw: Any) -> str:
        """Return where the finding must stand, as the ledger behind `raw` is before the edit."""
        if not self.key:
            return self.table
        (key,) = raw.execute(f"SELECT {self.key}").fetchone()
        if key is None:
            raise AssertionError(f"{self.name}: there is no such row")
        return f"{self.table} {key}"


def _edit(name: str, what: str, table: str, key: str, *statements: str) -> Edit:
    return Edit(name=name, what=what, table=table, key=key, statements=statements)


def _of(state: str) -> str:
    # The first one below `org`, not any one: ids are random, and the edits name levels of that tree.
    return (
        f"(SELECT effect_id FROM effects WHERE state = '{state}' AND root_id = "
        "(SELECT task_id FROM tasks WHERE name = 'org') ORDER BY prepared_ms, sequence LIMIT 1)"
    )


def _named(name: str) -> str:
    return f"(SELECT task_id FROM tasks WHERE name = '{name}')"


DONE, UNKNOWN, READY, HELD = _of("succeeded"), _of("unknown"), _of("permitted"), _of("prepared")
OPEN, NOTHING, OVER = _of("admitted"), _of("no_effect"), _of("expired")
T1, ORG, LEAF, OTHER, SHUT = _named("t1"), _named("org"), _named("t1.a"), _named("over"), _named("t1.b")
NOWHERE = "'eff_0'"
CENTS: Final = " || ' USD.cent'"


def _row(name: str, what: str, table: str, change: str, effect: str, *further: str) -> Edit:
    """Change one effect's row in a table; the finding names that row."""
    return _edit(
        name, what, table, effect, f"UPDATE {table} SET {change} WHERE effect_id = {effect}", *further
    )


def _gone(name: str, what: str, table: str, effect: str, *further: str) -> Edit:
    """Delete one effect's rows in a table; the finding names them."""
    return _edit(name, what, table, effect, f"DELETE FROM {table} WHERE effect_id = {effect}", *further)


def _task(name: str, what: str, table: str, change: str, task: str, *further: str) -> Edit:
    """Change the rows of one task in a table; the finding names them."""
    return _edit(name, what, table, task, f"UPDATE {table} SET {change} WHERE task_id = {task}", *further)


def _line(name: str, what: str, change: str, task: str) -> Edit:
    """Change one budget line; the finding names it."""
    return _edit(name, what, "budgets", task + CENTS, f"UPDATE budgets SET {change} WHERE task_id = {task}")


def _span(name: str, what: str, change: str, sequence: str = "6") -> Edit:
    """Change one span; the finding names it."""
    return _edit(name, what, "spans", sequence, f"UPDATE spans SET {change} WHERE sequence = {sequence}")


def _told(name: str, effect: str) -> str:
    return f"(SELECT sequence FROM spans WHERE name = 'effect.{name}' AND effect_id = {effect})"


LAST: Final = "(SELECT max(sequence) FROM spans)"
SEVENTH: Final = "(SELECT {column} FROM spans WHERE sequence = 7)"
TRAIL: Final = (
    _edit("a head of another root", "head_mac", "head", "", "UPDATE head SET root = zeroblob(32)"),
    _edit("a head of a later clock", "head_mac", "head", "", "UPDATE head SET clock_ms = clock_ms + 1"),
    _edit("a head of another frontier", "frontier", "head", "", "UPDATE head SET frontier = zeroblob(8)"),
    _edit("an earlier head", "head_behind", "head", "", "UPDATE head SET clock_ms = 1"),
    _edit(
        "an effect set back",
        "pending_set",
        "head",
        "",
        f"UPDATE effects SET state = 'permitted' WHERE effect_id = {OPEN}",
    ),
    _edit(
        "a permitted effect ended",
        "pending_set",
        "head",
        "",
        f"UPDATE effects SET state = 'expired' WHERE effect_id = {READY}",
    ),
    _edit(
        "another count of pending effects", "head_mac", "head", "", "UPDATE head SET pending = zeroblob(384)"
    ),
    _edit("no head", "no_head", "head", "", "DELETE FROM head"),
    _edit(
        "another ledger id",
        "head_mac",
        "head",
        "",
        "UPDATE ledger SET ledger_id = 'led_' || hex(zeroblob(16))",
    ),
    _edit("no ledger", "no_ledger", "ledger", "", "DELETE FROM ledger"),
    _edit(
        "a cut trail",
        "trail_length",
        "head",
        "",
        "DELETE FROM spans WHERE sequence = (SELECT max(sequence) FROM spans)",
    ),
    _edit("a gap in the trail", "span_gap", "spans", "9", "DELETE FROM spans WHERE sequence = 8"),
    _edit(
        "a body and its leaf",
        "tree",
        "head",
        "",
        f"UPDATE spans SET body = {SEVENTH.format(column='body')}, leaf = {SEVENTH.format(column='leaf')} "
        "WHERE sequence = 6",
    ),
    _edit(
        "two spans swapped",
        "tree",
        "head",
        "",
        "UPDATE spans SET sequence = -sequence WHERE sequence IN (6, 7)",
        "UPDATE spans SET sequence = 13 + sequence WHERE sequence < 0",
    ),
    _span("a body alone", "span_leaf", "body = CAST(body || ' ' AS BLOB)"),
    _span("a leaf alone", "span_leaf", "leaf = zeroblob(32)"),
    _span("another epoch", "span_differs", "epoch = 2"),
    _edit("an epoch that falls", "span_place", "spans", "7", "UPDATE spans SET epoch = 2 WHERE sequence = 6"),
    _edit(
        "a head of an earlier epoch",
        "head_behind",
        "head",
        "",
        f"UPDATE spans SET epoch = 2 WHERE sequence = {LAST}",
    ),
    _span("another lane", "span_place", "lane = 1"),
    _span("an earlier time", "span_time", "at_ms = 1"),
    _span("a later time", "span_differs", "at_ms = at_ms + 1"),
    _span("another span id", "span_differs", "span_id = 'ffffffffffffffff'"),
    _span("another trace", "span_differs", "trace_id = '0' || substr(trace_id, 2, 30) || 'x'"),
    _span("an admission under another name", "span_names", "name = 'refused'", _told("admitted", OPEN)),
    _span("an admission in another story", "span_names", f"story = {HELD}", _told("admitted", OPEN)),
    _span("an admission without its state", "span_names", "state_to = NULL", _told("admitted", DONE)),
    _span("an outcome of another kind", "span_differs", "state_to = 'failed'", _told("unknown", UNKNOWN)),
    _span("a state that does not exist", "trail_move", "state_to = 'paid'", _told("unknown", UNKNOWN)),
    _edit(
        "a move that is not legal",
        "trail_move",
        "spans",
        _told("admitted", DONE),
        f"UPDATE spans SET state_to = NULL WHERE sequence = {_told('permitted', DONE)}",
    ),
    _edit(
        "a story without its beginning",
        "trail_begin",
        "spans",
        _told("permitted", DONE),
        f"UPDATE spans SET effect_id = NULL WHERE sequence = {_told('prepared', DONE)}",
    ),
)
SENT: Final = "(SELECT sequence FROM spans WHERE name = 'task.granted')"
TASKS: Final = (
    _task("a task's expiry", "task_mac", "tasks", "expires_ms = expires_ms + 1", T1),
    _task("a task's actors", "task_mac", "tasks", "actors = '[\"agent-9\"]'", T1),
    _task("a task's actors that are no list", "task_unreadable", "tasks", "actors = '['", T1),
    _task("a closed task set open", "task_set_back", "tasks", "state = 'open'", SHUT),
    _task("an open task set closed", "task_set_back", "tasks", "state = 'closed'", T1),
    _task("a task's parent", "task_tree", "tasks", f"parent_id = {ORG}", LEAF),
    _task("a task below its own child", "task_tree", "tasks", f"parent_id = {LEAF}", T1),
    _task("a task's span", "task_sequence", "tasks", "sequence = 1", T1),
    _task("a closed task's span", "task_sequence", "tasks", "sequence = 1", SHUT),
    _edit("a task removed", "task_missing", "tasks", LEAF, f"DELETE FROM tasks WHERE task_id = {LEAF}"),
    _span(
        "a task that was never opened",
        "span_differs",
        f"story = {ORG}",
        f"(SELECT sequence FROM spans WHERE name = 'task.opened' AND story = {T1})",
    ),
    _edit(
        "a task without its opening",
        "task_without_trail",
        "tasks",
        T1,
        f"UPDATE spans SET name = 'refused' WHERE name = 'task.opened' AND story = {T1}",
    ),
    _edit(
        "a level removed",
        "task_path",
        "task_path",
        T1,
        f"DELETE FROM task_path WHERE task_id = {T1} AND distance = 1",
    ),
    _edit(
        "a level added", "task_path", "task_path", ORG, f"INSERT INTO task_path VALUES ({ORG}, 1, {OTHER})"
    ),
    _task(
        "two levels swapped",
        "task_path",
        "task_path",
        "distance = -distance",
        LEAF,
        f"UPDATE task_path SET distance = 3 + distance WHERE task_id = {LEAF} AND distance < 0",
    ),
    _edit(
        "a grant's amount",
        "grant_mac",
        "grants",
        f"{T1} || ' USD.cent'",
        f"UPDATE grants SET amount = 999999 WHERE task_id = {T1}",
    ),
    _edit(
        "a grant and the ceiling",
        "grant_mac",
        "grants",
        f"{T1} || ' USD.cent'",
        f"UPDATE grants SET amount = 999999 WHERE task_id = {T1}",
        f"UPDATE budgets SET ceiling = 999999 WHERE task_id = {T1}",
    ),
    _edit(
        "a grant lent to another task",
        "grant_without_trail",
        "grants",
        f"{ORG} || ' USD.cent ' || {SENT}",
        f"UPDATE grants SET task_id = {ORG} WHERE sequence = {SENT}",
    ),
    _edit(
        "a grant taken back",
        "grant_missing",
        "grants",
        f"{LEAF} || ' ' || {SENT}",
        f"DELETE FROM grants WHERE sequence = {SENT}",
        f"UPDATE budgets SET ceiling = 400 WHERE task_id = {LEAF}",
    ),
    _edit("a sink's place", "sink_mac", "sinks", "'local'", "UPDATE sinks SET location = '/dev/null'"),
    _edit("a sink's name", "sink_mac", "sinks", "'other'", "UPDATE sinks SET name = 'other'"),
    _edit("a sink's span", "sink_without_trail", "sinks", "'local'", "UPDATE sinks SET sequence = 1"),
    _edit("a required sink removed", "sink_missing", "sinks", "'at 2'", "DELETE FROM sinks"),
)
UNKNOWN_TASKS: Final = f"(SELECT task_id FROM reservations WHERE effect_id = {UNKNOWN})"
UNKNOWN_AMOUNT: Final = (
    f"(SELECT amount FROM reservations AS r WHERE r.effect_id = {UNKNOWN} AND r.task_id = budgets.task_id)"
)
MONEY: Final = (
    _line("a ceiling", "budget_ceiling", "ceiling = 999999", T1),
    _line("no ceiling", "budget_ceiling", "ceiling = NULL", T1),
    _line("less reserved", "budget_reserved", "reserved = 0", ORG),
    _line("less settled", "budget_settled", "settled = 0", T1),
    _line("an overrun forgotten", "budget_overrun", "overrun = 0", OTHER),
    _edit(
        "a line removed", "budget_missing", "budgets", T1 + CENTS, f"DELETE FROM budgets WHERE task_id = {T1}"
    ),
    _edit(
        "more settled than the ceiling",
        "overspend",
        "budgets",
        ORG + CENTS,
        f"UPDATE settlements SET charged = 20000 WHERE task_id = {ORG}",
    ),
    _edit(
        "an unknown effect's money released",
        "reservation_missing",
        "reservations",
        UNKNOWN,
        f"UPDATE budgets SET reserved = reserved - {UNKNOWN_AMOUNT} WHERE task_id IN {UNKNOWN_TASKS}",
        f"DELETE FROM reservations WHERE effect_id = {UNKNOWN}",
    ),
    _row("a reservation halved", "reservation_differs", "reservations", "amount = amount / 2", UNKNOWN),
    _edit(
        "a level's reservation removed",
        "reservation_missing",
        "reservations",
        DONE,
        f"DELETE FROM reservations WHERE effect_id = {DONE} AND task_id = {ORG}",
    ),
    _edit(
        "a reservation off the path",
        "reservation_differs",
        "reservations",
        DONE,
        f"INSERT INTO reservations VALUES ({DONE}, {OTHER}, 'USD.cent', 1)",
    ),
    _edit(
        "money held for nothing",
        "reservation_without_trail",
        "reservations",
        READY,
        f"INSERT INTO reservations VALUES ({READY}, {T1}, 'USD.cent', 1)",
    ),
    _edit(
        "a settlement removed",
        "settlement_missing",
        "settlements",
        DONE,
        f"DELETE FROM settlements WHERE effect_id = {DONE} AND task_id = {ORG}",
    ),
    _edit(
        "a charge lowered at one level",
        "settlement_differs",
        "settlements",
        DONE,
        f"UPDATE settlements SET charged = charged - 1 WHERE effect_id = {DONE} AND task_id = {ORG}",
    ),
    _row("a charge above what was held", "settlement_differs", "settlements", "charged = 999", DONE),
    _row("no effect charged", "settlement_differs", "settlements", "charged = 1", NOTHING),
    _row("an overrun of no effect", "settlement_differs", "settlements", "overrun = 1", NOTHING),
    _row(
        "an overrun beside a lower charge",
        "settlement_differs",
        "settlements",
        "charged = 0, overrun = 1",
        DONE,
    ),
    _row("a settlement under another span", "settlement_differs", "settlements", "sequence = 1", DONE),
    _edit(
        "an unknown effect settled at nothing",
        "settlement_without_trail",
        "settlements",
        UNKNOWN,
        "INSERT INTO settlements SELECT effect_id, task_id, unit, 0, 0, 1 FROM reservations "
        f"WHERE effect_id = {UNKNOWN}",
        f"UPDATE budgets SET reserved = 0 WHERE task_id IN {UNKNOWN_TASKS}",
    ),
)
EFFECTS: Final = (
    _row("an admitted effect set back", "effect_state", "effects", "state = 'permitted'", OPEN),
    _row("an unknown effect resolved", "effect_state", "effects", "state = 'no_effect'", UNKNOWN),
    _row("an effect's span", "effect_place", "effects", "sequence = sequence - 1", DONE),
    _row("an effect's last span", "effect_place", "effects", "last_span = 'ffffffffffffffff'", DONE),
    _row("an effect's cost", "effect_mac", "effects", "cost = '{\"USD.cent\":1}'", READY),
    _row("a cost that is none", "effect_unreadable", "effects", "cost = '[]'", READY),
    _row(
        "a cost that nests too deep",
        "effect_unreadable",
        "effects",
        "cost = replace(hex(zeroblob(50000)), '0', '[')",
        READY,
    ),
    _row("an effect's actor", "effect_mac", "effects", "actor = 'agent-8'", HELD),
    _row("an effect's task", "effect_root", "effects", f"task_id = {OTHER}", HELD),
    _row(
        "a binding",
        "binding_digest",
        "effects",
        "binding = CAST(replace(binding, '\"v\":1', '\"v\":2') AS BLOB)",
        HELD,
    ),
    _gone("an effect removed", "effect_missing", "effects", HELD),
    _edit(
        "an effect that never was",
        "effect_without_trail",
        "effects",
        HELD,
        f"UPDATE spans SET effect_id = NULL, state_to = NULL WHERE effect_id = {HELD}",
    ),
    _row("a permit's end", "seal", "permits", "expires_ms = expires_ms + 1", READY),
    _row("a permit's beginning", "seal", "permits", "issued_ms = issued_ms - 1", READY),
    _row("a permit's tier", "seal", "permits", "tier = 'approval'", READY),
    _row("a permit's id", "seal", "permits", "permit_id = 'pmt_0'", READY),
    _row("a permit's caps", "permit_caps", "permits", "caps = '{\"task\":1}'", READY),
    _row("a permit's caps that are none", "permit_unreadable", "permits", "caps = '['", READY),
    _row(
        "a seal lent to another effect",
        "seal",
        "permits",
        f"seal = (SELECT seal FROM permits WHERE effect_id = {DONE})",
        READY,
    ),
    _row("a permit's span", "permit_place", "permits", "sequence = 1", READY),
    _edit(
        "a cost that was not sealed",
        "seal",
        "permits",
        READY,
        f"UPDATE effects SET cost = '{{\"USD.cent\":1}}' WHERE effect_id = {READY}",
    ),
    _gone("a permit removed", "permit_missing", "permits", READY),
    _edit(
        "a permit for a held effect",
        "permit_without_trail",
        "permits",
        HELD,
        f"UPDATE permits SET effect_id = {HELD} WHERE effect_id = {OVER}",
    ),
    _edit(
        "a seal for another binding",
        "seal",
        "permits",
        READY,
        f"UPDATE effects SET binding_digest = zeroblob(32) WHERE effect_id = {READY}",
    ),
    _gone("a use removed", "use_missing", "permit_uses", OPEN),
    _edit(
        "a use of a permit that was not used",
        "use_without_trail",
        "permit_uses",
        READY,
        f"UPDATE permit_uses SET effect_id = {READY} WHERE effect_id = {OPEN}",
    ),
    _row("a use of another permit", "use_place", "permit_uses", "permit_id = 'pmt_0'", OPEN),
    _row("a use at another span", "use_place", "permit_uses", "sequence = 1", OPEN),
    _gone("a claim removed", "claim_missing", "claims", OPEN),
    _edit(
        "a claim moved",
        "claim_without_trail",
        "claims",
        READY,
        f"UPDATE claims SET effect_id = {READY} WHERE effect_id = {OPEN}",
    ),
    _row("a claim of another time", "claim_time", "claims", "admitted_ms = 0", OPEN),
    _row("a claim of somebody else", "claim_mac", "claims", "claim_hash = zeroblob(32)", OPEN),
    _gone("evidence removed", "evidence_missing", "evidence", UNKNOWN),
    _row("evidence of something else", "evidence_differs", "evidence", "proves = 'no_effect'", UNKNOWN),
    _edit(
        "evidence lent to another effect",
        "evidence_without_trail",
        "evidence",
        DONE,
        f"UPDATE evidence SET effect_id = {DONE} WHERE effect_id = {UNKNOWN}",
    ),
    _edit(
        "a decision lent to another effect",
        "decision_without_trail",
        "decisions",
        f"(SELECT min(sequence) FROM decisions WHERE effect_id = {READY})",
        f"UPDATE decisions SET effect_id = {DONE} WHERE effect_id = {READY}",
    ),
    _edit(
        "a counter lowered",
        "counter",
        "counters",
        f"'root|refund|' || {ORG}",
        "UPDATE counters SET used = 0 WHERE counter LIKE 'root|%'",
    ),
    _edit(
        "a counter removed",
        "counter_missing",
        "counters",
        f"'task|refund|' || {T1}",
        "DELETE FROM counters WHERE counter LIKE 'task|%'",
    ),
    _edit(
        "a slot given back",
        "counter",
        "counters",
        f"'root|refund|' || {ORG}",
        f"DELETE FROM counter_takes WHERE effect_id = {UNKNOWN}",
    ),
    _edit(
        "repetition forgotten",
        "repetition",
        "repetition content",
        "",
        "UPDATE repetition SET succeeded = 0 WHERE kind = 'content'",
    ),
    _edit(
        "repetition removed",
        "repetition_missing",
        "repetition resource",
        "",
        "DELETE FROM repetition WHERE kind = 'resource'",
    ),
    _edit(
        "a row for nobody",
        "foreign_key",
        "evidence",
        "",
        f"UPDATE evidence SET effect_id = {NOWHERE} WHERE effect_id = {UNKNOWN}",
    ),
    _edit(
        "a value that no column allows",
        "malformed",
        "file",
        "",
        f"UPDATE permits SET tier = 'gift' WHERE effect_id = {READY}",
    ),
)
EDITS: Final = (*TRAIL, *TASKS, *MONEY, *EFFECTS)
