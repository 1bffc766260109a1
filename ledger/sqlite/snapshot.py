"""A database of spans for SQL of one's own: made anew from what may be seen, so that nothing else can be in it.

Rules: AUD-06, SEC-01 (no seal, MAC, claim, token, ruling or protected content: none of the ledger's own tables is
copied), LED-01 (nothing but this opens the new file, and the ledger's is not touched). One file without a log, its
journal mode `delete`, so that it can be opened read-only anywhere.
Next: `issuer.commands.audit_files`, which fills it.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from ledger.errors import LedgerUnavailable
from ledger.sqlite.connection import DRIVER, DatabaseError

__all__ = ["COLUMNS", "SnapshotWriter"]

COLUMNS: Final = (
    *("sequence", "epoch", "at", "at_ms", "name", "decision", "effect", "state_from", "state_to"),
    *("actor", "subject", "caller", "task", "task_id", "operation", "class", "resource_type", "resource"),
    *("tier", "refusal", "field", "reason", "signer", "command", "count", "attributes"),
)
"""The columns of `spans`, in order; `attributes` is JSON and has everything."""

_WHOLE: Final = frozenset({"sequence", "epoch", "at_ms", "count"})

_TABLES: Final = f"""
CREATE TABLE about(name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE spans(
  {", ".join(f"{name} {'INTEGER' if name in _WHOLE else 'TEXT'}" for name in COLUMNS)},
  PRIMARY KEY (sequence)
) STRICT;
CREATE TABLE policies(policy TEXT NOT NULL, sequence INTEGER NOT NULL, PRIMARY KEY (policy, sequence))
  STRICT, WITHOUT ROWID;
CREATE TABLE amounts(
  sequence INTEGER NOT NULL, what TEXT NOT NULL, unit TEXT NOT NULL, amount INTEGER NOT NULL,
  PRIMARY KEY (sequence, what, unit)
) STRICT, WITHOUT ROWID;
"""

_INDEXES: Final = """
CREATE INDEX spans_effect ON spans(effect, sequence);
CREATE INDEX spans_name ON spans(name, sequence);
CREATE INDEX spans_actor ON spans(actor, sequence);
CREATE INDEX spans_resource ON spans(resource, sequence);
CREATE VIEW effects AS
  SELECT p.effect, p.at AS prepared, s.state_to AS state, s.at AS since, p.operation, p.class,
    p.resource_type, p.resource, p.actor, p.subject, p.caller, p.task_id
  FROM spans AS p
  JOIN spans AS s ON s.sequence = (
    SELECT max(sequence) FROM spans WHERE effect = p.effect AND state_to IS NOT NULL)
  WHERE p.name = 'effect.prepared';
CREATE VIEW decisions AS
  SELECT sequence, at, decision, tier, effect, actor, subject, operation, resource_type, resource, refusal, field,
    signer, (SELECT group_concat(policy) FROM policies WHERE policies.sequence = spans.sequence) AS policies
  FROM spans WHERE decision IS NOT NULL;
CREATE VIEW looks AS
  SELECT sequence, at, name, caller, command, count, effect
  FROM spans WHERE name IN ('observed', 'effect.content_shown', 'audit.exported');
"""


class SnapshotWriter:
    """Fills one new database; `part` is an empty file that nobody else has open."""

    def __init__(self, part: Path) -> None:
        """Begin.

        Raises:
            LedgerUnavailable: `snapshot`.
        """
        try:
            self._raw = DRIVER.Connection(str(part), isolation_level=None)
            # Nobody reads it before it is whole, and what is not whole is thrown away.
            self._raw.execute("PRAGMA journal_mode = OFF")
            self._raw.execute("PRAGMA synchronous = OFF")
            self._raw.executescript(_TABLES)
            self._raw.execute("BEGIN")
        except DatabaseError as fault:
            raise _fault(fault) from None

    def add(
        self,
        rows: Iterable[Mapping[str, object]],
        policies: Sequence[tuple[str, int]],
        amounts: Sequence[tuple[int, str, str, int]],
    ) -> None:
        """Add spans by `COLUMNS`, the policies that decided, and amounts (sequence, what, unit, amount).

        Raises:
            LedgerUnavailable: `snapshot`.
        """
        marks = ", ".join("?" * len(COLUMNS))
        try:
            self._raw.executemany(
                f"INSERT INTO spans VALUES ({marks})", [[row.get(name) for name in COLUMNS] for row in rows]
            )
            self._raw.executemany("INSERT OR IGNORE INTO policies VALUES (?, ?)", policies)
            self._raw.executemany("INSERT OR IGNORE INTO amounts VALUES (?, ?, ?, ?)", amounts)
        except DatabaseError as fault:
            raise _fault(fault) from None

    def finish(self, about: Mapping[str, str]) -> None:
        """Write what it is about, its indexes and views, and close it.

        Raises:
            LedgerUnavailable: `snapshot`.
        """
        try:
            self._raw.executemany("INSERT INTO about VALUES (?, ?)", sorted(about.items()))
            self._raw.execute("COMMIT")
            self._raw.executescript(_INDEXES)
            self._raw.execute("PRAGMA journal_mode = DELETE")
        except DatabaseError as fault:
            raise _fault(fault) from None
        finally:
            self._raw.close()

    def close(self) -> None:
        """Let go of what was not finished."""
        self._raw.close()


def _fault(fault: Exception) -> LedgerUnavailable:
    return LedgerUnavailable("snapshot", f"The snapshot cannot be written: {type(fault).__name__}.")
