"""How an edit of a ledger by somebody without the keys is written down: its statements, and what a check must find.

The ids are SQL for the first effect in each state, and for the tasks, of the history of `tests.support.busy`.
"""
# ruff: noqa: S608 - tables and columns come from the tables of `tests.support.ledger_edits`

from dataclasses import dataclass
from typing import Any, Final

from tests.support.busy import Busy
from tests.support.ledgers import attacker


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


def an_edit(name: str, what: str, table: str, key: str, *statements: str) -> Edit:
    """Return an edit."""
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


def row_of(name: str, what: str, table: str, change: str, effect: str, *further: str) -> Edit:
    """Change one effect's row in a table; the finding names that row."""
    return an_edit(
        name, what, table, effect, f"UPDATE {table} SET {change} WHERE effect_id = {effect}", *further
    )


def gone_of(name: str, what: str, table: str, effect: str, *further: str) -> Edit:
    """Delete one effect's rows in a table; the finding names them."""
    return an_edit(name, what, table, effect, f"DELETE FROM {table} WHERE effect_id = {effect}", *further)


def task_of(name: str, what: str, table: str, change: str, task: str, *further: str) -> Edit:
    """Change the rows of one task in a table; the finding names them."""
    return an_edit(name, what, table, task, f"UPDATE {table} SET {change} WHERE task_id = {task}", *further)


def line_of(name: str, what: str, change: str, task: str) -> Edit:
    """Change one budget line; the finding names it."""
    return an_edit(name, what, "budgets", task + CENTS, f"UPDATE budgets SET {change} WHERE task_id = {task}")


def span_at(name: str, what: str, change: str, sequence: str = "6") -> Edit:
    """Change one span; the finding names it."""
    return an_edit(name, what, "spans", sequence, f"UPDATE spans SET {change} WHERE sequence = {sequence}")


def blank_register(kind: str) -> str:
    """Return the statement that empties a register."""
    return f"UPDATE standing SET register = zeroblob(length(register)) WHERE kind = '{kind}'"


def told_at(name: str, effect: str) -> str:
    """Return SQL for the sequence at which the trail tells of an effect's move."""
    return f"(SELECT sequence FROM spans WHERE name = 'effect.{name}' AND effect_id = {effect})"


def assert_named(busy: Busy, edit: Edit) -> None:
    """Make an edit and assert that a check names it with its place, and says whatever it says in one sentence each."""
    raw = attacker(busy.places.ledger)
    where = edit.place(raw)
    raw.close()
    busy.attack(*edit.statements)
    found = busy.check().findings
    assert any(row.what == edit.what and row.where.startswith(where) for row in found), (where, found)
    for row in found:
        assert row.says.endswith(".")
        assert row.says.count(". ") == 0
        assert row.what.replace("_", "").isalpha()
