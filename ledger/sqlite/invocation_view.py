"""Reading invocations and obligations over one SQLite connection; what `ledger.sqlite.view` stands on.

Rules: LED-06 (an invocation is checked against its MAC as it is read, and an open one against the head's register),
LED-07 (what an admission asks is answered by a key). It decides nothing.
Next: `ledger.sqlite.view`.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ledger.errors import LedgerCorrupt
from ledger.invocations import INVOCATION_ID_PATTERN, Invocation, Obligation
from ledger.model import Effect, EffectId, InstantMs, InvocationId, LedgerId, TaskId
from ledger.port import Authenticator
from ledger.sqlite import rows
from ledger.sqlite.invocation_rows import (
    INVOCATION_COLUMNS,
    Row,
    invocation_authority,
    invocation_from,
    obligation_from,
)
from ledger.sqlite.register import Register
from ledger.standing import Standing

_OBLIGATIONS = (
    "SELECT o.effect_id, o.name, o.deadline_ms, d.at_ms FROM obligations AS o LEFT JOIN obligations_done AS d "
    "ON d.effect_id = o.effect_id AND d.name = o.name"
)


class InvocationReading:
    """What a decision may read of invocations and obligations."""

    def __init__(self, raw: Any, *, ledger_id: LedgerId, keys: Authenticator) -> None:  # noqa: ANN401 - untyped driver
        """Read over `raw`, whose transaction belongs to the caller."""
        self._raw = raw
        self._ledger_id = ledger_id
        self._keys = keys
        self._register: Register | None = None

    def _one(self, sql: str, *values: object) -> Row | None:
        row: Row | None = self._raw.execute(sql, values).fetchone()
        return row

    def _all(self, sql: str, *values: object) -> list[Row]:
        found: list[Row] = self._raw.execute(sql, values).fetchall()
        return found

    def _standing(self) -> Register:
        if self._register is None:
            row = self._one("SELECT standing FROM head WHERE lane = 0")
            if row is None:
                raise LedgerCorrupt("no_head", "The ledger has no head row.")
            self._register = Register(self._raw, Standing.TASKS, row[0])
        return self._register

    def _invocation(self, row: Row | None) -> Invocation | None:
        if row is None:
            return None
        invocation = invocation_from(row)
        signed = invocation_authority(invocation, row[len(row) - 2])
        if not self._keys.is_authentic("row", signed, row[len(row) - 1]):
            raise LedgerCorrupt("invocation_mac", "An invocation was changed by someone without the keys.")
        # Its row from before it ended is authentic as well; the head says which ones are open.
        self._standing().prove(invocation.invocation_id)
        return invocation

    def invocation(self, invocation_id: InvocationId) -> Invocation | None:
        """Return the invocation of that id; what cannot be an id names none."""
        if INVOCATION_ID_PATTERN.match(invocation_id) is None:
            return None
        return self._invocation(
            self._one(
                f"SELECT {INVOCATION_COLUMNS}, sequence, mac FROM invocations WHERE invocation_id = ?",
                invocation_id,
            )
        )

    def invocations(self, *, limit: int) -> Sequence[Invocation]:
        """Return at most `limit` invocations: the open ones first, then the latest to end."""
        found = self._all(
            f"SELECT {INVOCATION_COLUMNS}, sequence, mac FROM invocations "
            "ORDER BY outcome IS NOT NULL, coalesce(ended_ms, opened_ms) DESC, invocation_id LIMIT ?",
            limit,
        )
        return [one for row in found if (one := self._invocation(row)) is not None]

    def invocations_over(self, now: InstantMs, *, limit: int) -> Sequence[Invocation]:
        """Return at most `limit` open invocations whose deadline is over at `now`, the longest over first."""
        found = self._all(
            f"SELECT {INVOCATION_COLUMNS}, sequence, mac FROM invocations INDEXED BY invocations_deadline "
            f"WHERE outcome IS NULL AND deadline_ms <= ? ORDER BY deadline_ms {rows.AT_MOST}",
            *(now, limit),
        )
        return [one for row in found if (one := self._invocation(row)) is not None]

    def invocations_open(self, task_id: TaskId) -> int:
        """Count the open invocations of one task."""
        sql = "SELECT count(*) FROM invocations WHERE task_id = ? AND outcome IS NULL"
        row = self._one(sql, task_id)
        return 0 if row is None else int(row[0])

    def invocations_past(self, ended: InstantMs, *, limit: int) -> Sequence[InvocationId]:
        """Return at most `limit` invocations that ended at `ended` at the latest and that no effect names."""
        found = self._all(
            "SELECT invocation_id FROM invocations AS i INDEXED BY invocations_ended WHERE outcome IS NOT NULL "
            "AND ended_ms <= ? AND NOT EXISTS (SELECT 1 FROM effects WHERE invocation_id = i.invocation_id) "
            f"ORDER BY ended_ms {rows.AT_MOST}",
            *(ended, limit),
        )
        return [InvocationId(row[0]) for row in found]

    def effects_of(self, invocation_id: InvocationId) -> Sequence[Effect]:
        """Return the effects that name this invocation, oldest first."""
        found = self._all(
            f"SELECT {rows.EFFECT_COLUMNS} FROM effects WHERE invocation_id = ? ORDER BY prepared_ms, effect_id",
            invocation_id,
        )
        return [rows.effect_from(row) for row in found]

    def obligations(self, effect_id: EffectId) -> Sequence[Obligation]:
        """Return what an effect obliges to, by name."""
        found = self._all(f"{_OBLIGATIONS} WHERE o.effect_id = ? ORDER BY o.name", effect_id)
        return [obligation_from(row) for row in found]

    def obligations_open(self) -> Mapping[EffectId, Sequence[Obligation]]:
        """Return every obligation that is not closed, by effect."""
        found: dict[EffectId, list[Obligation]] = {}
        for row in self._all(f"{_OBLIGATIONS} WHERE d.at_ms IS NULL ORDER BY o.effect_id, o.name"):
            found.setdefault(EffectId(row[0]), []).append(obligation_from(row))
        return MappingProxyType(found)
