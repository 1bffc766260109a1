"""Edits of what spans are found by, by somebody without keys: each column, and the policies (AUD-06, LED-06).

Only bodies are in the tree, so each of these would hide a span from whoever asks, or show another.
"""
# ruff: noqa: S608 - tables and columns come from the tables of this file

from typing import Final

from ledger.questions import FOUND_BY
from tests.support.editing import Edit, an_edit, span_at

DECIDED: Final = "(SELECT min(sequence) FROM span_policies)"
NAMELESS: Final = (
    "(SELECT max(sequence) FROM spans WHERE sequence NOT IN (SELECT sequence FROM span_policies))"
)
HERE: Final = "(SELECT max(sequence) FROM spans)"


def _filled(column: str) -> str:
    return f"(SELECT max(sequence) FROM spans WHERE {column} IS NOT NULL)"


def _empty(column: str) -> str:
    return f"(SELECT min(sequence) FROM spans WHERE {column} IS NULL)"


_COLUMNS: Final = [column for column in FOUND_BY if column != "signer"]
"""In the history that is edited nobody signs."""

_ARCHIVES_SIXTH: Final = (
    "INSERT INTO archived_leaves SELECT sequence, epoch, leaf FROM spans WHERE sequence = 6"
)
EDITS_OF_SPANS: Final[tuple[Edit, ...]] = (
    *(
        span_at(f"another {column}", "span_differs", f"{column} = {column} || 'x'", _filled(column))
        for column in _COLUMNS
    ),
    *(span_at(f"no {column}", "span_differs", f"{column} = NULL", _filled(column)) for column in _COLUMNS),
    *(
        span_at(f"a new {column}", "span_differs", f"{column} = 'u-eve'", _empty(column))
        for column in FOUND_BY
    ),
    span_at(
        "what one column says in another",
        "span_differs",
        "subject = actor, actor = subject",
        _filled("actor"),
    ),
    an_edit(
        "another policy",
        "span_differs",
        "spans",
        DECIDED,
        f"UPDATE span_policies SET policy = policy || 'x' WHERE sequence = {DECIDED}",
    ),
    an_edit(
        "no policy",
        "span_differs",
        "spans",
        DECIDED,
        f"DELETE FROM span_policies WHERE sequence = {DECIDED}",
    ),
    an_edit(
        "one policy more",
        "span_differs",
        "spans",
        DECIDED,
        f"INSERT INTO span_policies VALUES ('zz', {DECIDED})",
    ),
    an_edit(
        "a policy of a span without one",
        "span_differs",
        "spans",
        NAMELESS,
        f"INSERT INTO span_policies VALUES ('zz', {NAMELESS})",
    ),
    an_edit(
        "a policy of a span that is not there",
        "span_differs",
        "span_policies",
        f"{HERE} + 1",
        f"INSERT INTO span_policies VALUES ('zz', {HERE} + 1)",
    ),
    an_edit(
        "a policy of a span before the first",
        "span_differs",
        "span_policies",
        "0",
        "INSERT INTO span_policies VALUES ('zz', 0)",
    ),
    an_edit("a leaf beside its span", "archived_twice", "archived_leaves", "6", _ARCHIVES_SIXTH),
    an_edit(
        "a span that is gone as if archived",
        "archived_differs",
        "archived_leaves",
        "",
        _ARCHIVES_SIXTH,
        "DELETE FROM spans WHERE sequence = 6",
    ),
)
