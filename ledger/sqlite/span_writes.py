"""Writing spans, with the columns that they are found by beside their bodies.

Rules: AUD-01, AUD-06 (what reviewers ask by has a column), LED-06 (only the body is in the tree: a check holds the
columns against it). The columns repeat what the body says as it was kept, so a value that was redacted there stands
redacted here. Next: `ledger.sqlite.span_view` finds spans by them; `audit.comparison` compares.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from ledger.questions import FOUND_BY, POLICY_IDS
from ledger.sqlite import rows
from ledger.sqlite.earlier import RENAMED
from ledger.transitions import SpanRow, Transition

_TOLD: Final = f"{rows.SPAN_COLUMNS}, effect_id, state_to"
_COLUMNS: Final = f"{_TOLD}, {', '.join(FOUND_BY)}"
_INSERT: Final = f"INSERT INTO spans({_COLUMNS}) VALUES ({', '.join('?' * len(_COLUMNS.split(',')))})"
_NAME_POLICY: Final = "INSERT INTO span_policies(policy, sequence) VALUES (?, ?)"
_ATTRIBUTES: Final = tuple(FOUND_BY.values())
_BODY: Final = rows.SPAN_COLUMNS.split(", ").index("body")
_SEQUENCE: Final = rows.SPAN_COLUMNS.split(", ").index("sequence")


def insert_span(raw: Any, transition: Transition, row: SpanRow, attributes: Mapping[str, Any]) -> None:  # noqa: ANN401 - untyped driver
    """Insert the row of a span whose body holds `attributes`, and a row for each policy that they name."""
    position = row.position
    raw.execute(
        _INSERT,
        (
            position.epoch,
            position.lane,
            position.sequence,
            row.span_id,
            row.trace_id,
            row.name,
            row.story,
            row.at_ms,
            row.body,
            row.leaf,
            transition.effect_id,
            None if transition.state_to is None else str(transition.state_to),
            *map(attributes.get, _ATTRIBUTES),
        ),
    )
    for policy in dict.fromkeys(attributes.get(POLICY_IDS, ())):
        raw.execute(_NAME_POLICY, (policy, position.sequence))


def take_over_spans(raw: Any) -> frozenset[str]:  # noqa: ANN401 - untyped driver
    """Take over the spans of a schema that had none of these columns, each filled from its body (LED-04).

    A body that cannot be read fills none: the full check of the upgrade names it.
    """
    for told in raw.execute(f"SELECT {_TOLD} FROM {RENAMED}spans ORDER BY sequence"):
        attributes = _said(told[_BODY])
        found = map(attributes.get, _ATTRIBUTES)
        raw.execute(_INSERT, (*told, *(value if isinstance(value, str) else None for value in found)))
        policies = attributes.get(POLICY_IDS)
        for policy in dict.fromkeys(map(str, policies)) if isinstance(policies, list) else ():
            raw.execute(_NAME_POLICY, (policy, told[_SEQUENCE]))
    return frozenset({"spans"})


def _said(body: bytes) -> Mapping[str, Any]:
    try:
        attributes = json.loads(body)["attributes"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return {}
    return attributes if isinstance(attributes, dict) else {}
