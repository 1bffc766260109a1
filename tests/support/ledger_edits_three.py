"""Edits of a ledger by somebody without keys, of what came with its third schema: each with what must be found.

They are made for the history of `tests.support.invoking`.
"""
# ruff: noqa: S608 - tables and columns come from the tables of this file

from typing import Final

from tests.support.editing import Edit, an_edit


def _one(which: str) -> str:
    return f"(SELECT invocation_id FROM invocations WHERE {which} ORDER BY invocation_id LIMIT 1)"


OPEN, CANCELLED = _one("outcome IS NULL"), _one("outcome = 'cancelled'")
GONE: Final = (
    "(SELECT story FROM spans WHERE name = 'invocation.ended' AND story NOT IN "
    "(SELECT invocation_id FROM invocations) LIMIT 1)"
)
NOTHING: Final = f"'inv_{'0' * 32}'"
KEPT: Final = "(SELECT effect_id FROM obligations_done)"
DUE: Final = f"(SELECT effect_id FROM obligations WHERE effect_id <> {KEPT} ORDER BY effect_id LIMIT 1)"
ROW: Final = "caller, task_id, actor, opened_ms, deadline_ms, outcome, ended_ms, bucket, sequence, mac"


def _changed(name: str, what: str, change: str, which: str = OPEN) -> Edit:
    return an_edit(
        name, what, "invocations", which, f"UPDATE invocations SET {change} WHERE invocation_id = {which}"
    )


def _copied(new: str) -> str:
    return (
        f"INSERT INTO invocations(invocation_id, {ROW}) SELECT {new}, {ROW} FROM invocations "
        f"WHERE invocation_id = {CANCELLED}"
    )


EDITS_THREE = (
    _changed("a later deadline", "invocation_mac", "deadline_ms = deadline_ms + 1"),
    _changed("another caller", "invocation_mac", "caller = 'u-eve'"),
    _changed("another actor", "invocation_mac", "actor = 'agent-8'"),
    _changed("another task", "invocation_mac", "task_id = (SELECT task_id FROM tasks WHERE name = 'org')"),
    _changed("another bucket", "invocation_bucket", "bucket = (bucket + 1) % 64"),
    _changed("another span", "invocation_place", "sequence = sequence + 1"),
    _changed("an invocation that cannot be read", "invocation_unreadable", "deadline_ms = 9007199254740993"),
    _changed("an end that nobody wrote", "invocation_set_back", "outcome = 'cancelled', ended_ms = 1"),
    _changed("open again", "invocation_set_back", "outcome = NULL, ended_ms = NULL", CANCELLED),
    _changed("another outcome", "invocation_set_back", "outcome = 'succeeded'", CANCELLED),
    an_edit(
        "an open one removed",
        "invocation_missing",
        "invocations",
        OPEN,
        "UPDATE effects SET invocation_id = NULL",
        f"DELETE FROM invocations WHERE invocation_id = {OPEN}",
    ),
    an_edit(
        "an ended one removed",
        "invocation_missing",
        "invocations",
        CANCELLED,
        f"DELETE FROM invocations WHERE invocation_id = {CANCELLED}",
    ),
    an_edit("a collected one back", "invocation_collected", "invocations", GONE, _copied(GONE)),
    an_edit("one of nothing", "invocation_without_trail", "invocations", NOTHING, _copied(NOTHING)),
    an_edit(
        "an effect taken out of its invocation",
        "effect_mac",
        "effects",
        DUE,
        f"UPDATE effects SET invocation_id = NULL WHERE effect_id = {DUE}",
    ),
    an_edit(
        "a duty removed",
        "obligation_missing",
        "obligations",
        DUE,
        f"DELETE FROM obligations WHERE effect_id = {DUE}",
    ),
    an_edit(
        "a later duty",
        "obligation_without_trail",
        "obligations",
        DUE,
        f"UPDATE obligations SET deadline_ms = deadline_ms + 1 WHERE effect_id = {DUE}",
    ),
    an_edit(
        "a duty closed by hand",
        "obligation_without_trail",
        "obligations_done",
        DUE,
        f"INSERT INTO obligations_done SELECT effect_id, name, 1, sequence FROM obligations WHERE effect_id = {DUE}",
    ),
    an_edit(
        "a duty open again",
        "obligation_missing",
        "obligations_done",
        KEPT,
        "DELETE FROM obligations_done",
    ),
    an_edit(
        "a duty closed earlier",
        "obligation_without_trail",
        "obligations_done",
        KEPT,
        "UPDATE obligations_done SET at_ms = at_ms - 1",
    ),
)
