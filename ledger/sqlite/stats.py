"""What a ledger holds, in numbers: for an owner who asks how full it is and what unknown effects keep bound.

Rules: LED-02 (fill is told), BUD-04 (what is unknown holds its maximum). It reads one snapshot and judges nothing.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ledger.errors import LedgerCorrupt
from ledger.sqlite.check_ground import UNREADABLE
from ledger.sqlite.connection import DatabaseError, as_fault, open_database
from ledger.sqlite.store import journal_mode
from ledger.states import EffectState


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerStats:
    """The numbers.

    Attributes:
        effects: per state, each state named.
        held_unknown: per unit, what the effects in state `unknown` hold; whole amounts.
        file_bytes, wal_bytes: as the files are on disk.
    """

    ledger_id: str
    effects: Mapping[str, int]
    spans: int
    tasks: int
    held_unknown: Mapping[str, int]
    file_bytes: int
    wal_bytes: int


def read_stats(path: Path) -> LedgerStats:
    """Count what the ledger at `path` holds.

    Raises:
        LedgerUnavailable, LedgerCorrupt: it cannot be read.
    """
    raw = open_database(path, journal_mode=journal_mode(), read_only=True)
    try:
        raw.execute("BEGIN")
        return _counted(raw, path)
    except DatabaseError as fault:
        raise as_fault(fault) from None
    except UNREADABLE:
        raise LedgerCorrupt("unreadable", "The ledger holds rows that were never written there.") from None
    finally:
        raw.close()


def _counted(raw: Any, path: Path) -> LedgerStats:  # noqa: ANN401 - untyped driver
    effects = dict.fromkeys(map(str, EffectState), 0)
    effects.update(dict(raw.execute("SELECT state, count(*) FROM effects GROUP BY state").fetchall()))
    held: dict[str, int] = {}
    for (cost,) in raw.execute("SELECT cost FROM effects WHERE state = 'unknown'"):
        for unit, amount in json.loads(cost).items():
            held[unit] = held.get(unit, 0) + amount
    found = raw.execute("SELECT ledger_id FROM ledger WHERE one = 1").fetchone()
    return LedgerStats(
        ledger_id="" if found is None else found[0],
        effects=effects,
        spans=raw.execute("SELECT count(*) FROM spans").fetchone()[0],
        tasks=raw.execute("SELECT count(*) FROM tasks").fetchone()[0],
        held_unknown=dict(sorted(held.items())),
        # Looked at from outside: opening one of these files in any other way would drop SQLite's locks.
        file_bytes=_size(path),
        wal_bytes=_size(path.with_name(path.name + "-wal")),
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
