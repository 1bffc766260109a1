"""Which rows carry a MAC of their own, and over which bytes: one list, for whoever has to sign them anew.

Rules: LED-06. The head is not among them: it is signed in every transaction. A table with a MAC that is missing here
is a broken rule of ours, and nothing is signed anew then.
Next: `ledger.sqlite.resigning`.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ledger.errors import Broken
from ledger.sqlite import authority_rows as authority
from ledger.sqlite import rows
from ledger.sqlite.invocation_rows import INVOCATION_COLUMNS, invocation_authority, invocation_from

Row = tuple[Any, ...]


class Signed(NamedTuple):
    """The columns of a table's key, those that its rows are built from, and the bytes that such a row signs."""

    key: str
    columns: str
    authority: Callable[[Row], bytes]


SIGNED: Final[Mapping[str, Signed]] = MappingProxyType(
    {
        "tasks": Signed(
            "task_id",
            f"{rows.TASK_COLUMNS}, sequence",
            lambda row: rows.task_authority(rows.task_from(row), row[-1]),
        ),
        "grants": Signed(
            "task_id, unit, sequence",
            "task_id, unit, sequence, kind, amount",
            lambda row: rows.grant_authority(*row),
        ),
        "invocations": Signed(
            "invocation_id",
            f"{INVOCATION_COLUMNS}, sequence",
            lambda row: invocation_authority(invocation_from(row), row[-1]),
        ),
        "effects": Signed(
            "effect_id", rows.EFFECT_COLUMNS, lambda row: rows.effect_authority(rows.effect_from(row))
        ),
        "tombstones": Signed(
            "effect_id",
            rows.TOMBSTONE_COLUMNS,
            lambda row: rows.tombstone_authority(rows.tombstone_from(row)),
        ),
        "claims": Signed(
            "effect_id", rows.CLAIM_COLUMNS, lambda row: rows.claim_authority(rows.claim_from(row))
        ),
        "rulings": Signed(
            "ruling_id",
            f"{authority.RULING_COLUMNS}, sequence",
            lambda row: authority.ruling_authority(authority.ruling_from(row), row[-1]),
        ),
        "approval_waits": Signed(
            "effect_id",
            authority.WAIT_COLUMNS,
            lambda row: authority.wait_authority(authority.wait_from(row)),
        ),
        "approvals": Signed(
            "effect_id, person",
            authority.APPROVAL_COLUMNS,
            lambda row: authority.approval_authority(authority.approval_from(row)),
        ),
        "sinks": Signed("name", "name, kind, location", lambda row: rows.sink_authority(*row)),
    }
)


def demand_every_table(raw: Any) -> None:  # noqa: ANN401 - untyped driver
    """Return if every table whose rows carry a MAC is in `SIGNED`, and no other is.

    Raises:
        Broken: the list is not that of this schema.
    """
    sql = (
        "SELECT m.name FROM sqlite_schema AS m JOIN pragma_table_info(m.name) AS c "
        "WHERE m.type = 'table' AND c.name = 'mac'"
    )
    if {name for (name,) in raw.execute(sql)} != {"head", *SIGNED}:
        raise Broken("the list of the tables that carry a MAC is not that of this schema")
