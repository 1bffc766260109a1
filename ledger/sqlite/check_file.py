"""The part of a check about the file itself: what SQLite says of it, its schema, and rows that name rows.

Rules: LED-04 (a damaged file, another schema), REP-07. A question of any later part rests on the indexes, so they are
looked at here.
Next: `ledger.sqlite.check_trail`.
"""

from collections import Counter
from typing import Final

from ledger.sqlite.check_ground import Ground
from ledger.sqlite.connection import schema_rows
from ledger.sqlite.schema import expected_digest, schema_digest

DAMAGES_MAX: Final = 10
"""Lines of SQLite's own check: one already stops the ledger."""

_LINE_SHOWN_MAX: Final = 120

_HELD_AGAINST_THE_TRAIL: Final = frozenset({("effects", "sequence")})
"""References to spans that another part holds against the trail; asked here as well, each large row is read twice."""


def check_file(ground: Ground) -> None:
    """Ask SQLite itself. `integrity_check` is `quick_check` and the indexes, which a question of ours rests on."""
    for (line,) in ground.rows(f"PRAGMA integrity_check({DAMAGES_MAX})"):
        if line != "ok":
            shown = " ".join(str(line).split())[:_LINE_SHOWN_MAX]
            ground.find("malformed", ("file",), f"SQLite finds the file damaged: {shown}.")
    is_ours = schema_digest(schema_rows(ground.raw)) == expected_digest()
    if not is_ours:
        ground.find("schema", ("file",), "The tables or guards are not those this release makes.")
    for (table, parent), number in sorted((_dangling if is_ours else _dangling_anywhere)(ground).items()):
        says = f"{number} rows name a row of {parent} that is not there."
        ground.find("foreign_key", (table,), says)


def _dangling_anywhere(ground: Ground) -> Counter[tuple[str, str]]:
    """Count rows that name a missing one, by table and parent, as SQLite does in whatever schema."""
    found: Counter[tuple[str, str]] = Counter()
    for table, _rowid, parent, _key in ground.raw.execute("PRAGMA foreign_key_check"):
        found[str(table), parent] += 1
    return found


def _dangling(ground: Ground) -> Counter[tuple[str, str]]:
    """Count the same in our own schema, in a tenth of the time: the foreign keys are those that the schema declares.

    SQLite looks up each row's parent by itself, and reads all of a large row to compare its key.
    """
    found: Counter[tuple[str, str]] = Counter()
    spans = _gapless_spans(ground)
    for (table,) in ground.rows("SELECT name FROM sqlite_schema WHERE type = 'table'"):
        keys: dict[int, tuple[str, list[str], list[str]]] = {}
        for number, _place, parent, column, key, *_rest in ground.rows(f"PRAGMA foreign_key_list({table})"):
            _parent, columns, key_columns = keys.setdefault(number, (parent, [], []))
            columns.append(column)
            key_columns.append(key)
        for parent, columns, key_columns in keys.values():
            if spans is not None and (table, columns[0]) in _HELD_AGAINST_THE_TRAIL:
                continue
            dangles = _dangles(parent, columns, key_columns, spans)
            found[table, parent] += ground.rows(f"SELECT count(*) FROM {table} WHERE {dangles}")[0][0]
    return +found


def _gapless_spans(ground: Ground) -> int | None:
    """Return how many spans there are where they are numbered from one without a gap, else None."""
    number, first, last = ground.rows("SELECT count(*), min(sequence), max(sequence) FROM spans")[0]
    return number if number == 0 or (first, last) == (1, number) else None


def _dangles(parent: str, columns: list[str], key: list[str], spans: int | None) -> str:
    """Return the condition under which a row's columns name no row of `parent`; one with a NULL names none."""
    if parent == "spans" and spans is not None:
        return f"{columns[0]} NOT BETWEEN 1 AND {spans}"
    # The plus makes SQLite read the keys of all effects once, from an index, and not the rows one by one.
    plus = "+" if parent == "effects" else ""
    named, there = ", ".join(columns), ", ".join(plus + column for column in key)
    told = " AND ".join(f"{column} IS NOT NULL" for column in columns)
    return f"{told} AND ({named}) NOT IN (SELECT {there} FROM {parent})"
