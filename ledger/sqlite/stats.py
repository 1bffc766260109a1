"""What a ledger holds, in numbers: how full it is, how fast it fills, and what unknown effects keep bound.

Rules: LED-02 (fill is told), BUD-04 (what is unknown holds its maximum). It reads one snapshot and judges nothing.
The pace is that of the ledger's own history: of its last week, or of its whole life where that is shorter.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ledger.capacity import Growth
from ledger.errors import LedgerCorrupt
from ledger.model import Holdings
from ledger.sqlite.check_ground import UNREADABLE
from ledger.sqlite.connection import DatabaseError, as_fault, open_database
from ledger.sqlite.store import journal_mode
from ledger.sqlite.triggers import TOMBSTONE_ROW_BYTES
from ledger.states import EffectState

_DAY_MS: Final = 24 * 3600 * 1000
_PACE_MS: Final = 7 * _DAY_MS
"""A week: every day of one's work is in it once."""

_PACE_MS_MIN: Final = 3600 * 1000

_HELD_UNKNOWN: Final = (
    "SELECT cost FROM effects AS e WHERE state = 'unknown' "
    "AND NOT EXISTS (SELECT 1 FROM settlements AS s WHERE s.effect_id = e.effect_id)"
)
"""What an operator's acknowledgement charged is spent, and held no more (REC-04)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerStats:
    """The numbers.

    Attributes:
        effects: per state, each state named.
        held_unknown: per unit, what the effects in state `unknown` hold; whole amounts.
        growth: the pace of late; None in the first hour, which tells nothing.
        file_bytes, wal_bytes: as the files are on disk.
    """

    ledger_id: str
    effects: Mapping[str, int]
    spans: int
    tasks: int
    held_unknown: Mapping[str, int]
    holdings: Holdings
    growth: Growth | None
    file_bytes: int
    wal_bytes: int


def read_stats(path: Path, *, now_ms: int) -> LedgerStats:
    """Count what the ledger at `path` holds, and how fast that has grown up to `now_ms`.

    Raises:
        LedgerUnavailable, LedgerCorrupt: it cannot be read.
    """
    raw = open_database(path, journal_mode=journal_mode(), read_only=True)
    try:
        raw.execute("BEGIN")
        return _counted(raw, path, now_ms)
    except DatabaseError as fault:
        raise as_fault(fault) from None
    except UNREADABLE:
        raise LedgerCorrupt("unreadable", "The ledger holds rows that were never written there.") from None
    finally:
        raw.close()


def _counted(raw: Any, path: Path, now_ms: int) -> LedgerStats:  # noqa: ANN401 - untyped driver
    effects = dict.fromkeys(map(str, EffectState), 0)
    effects.update(dict(raw.execute("SELECT state, count(*) FROM effects GROUP BY state").fetchall()))
    held: dict[str, int] = {}
    for (cost,) in raw.execute(_HELD_UNKNOWN):
        for unit, amount in json.loads(cost).items():
            held[unit] = held.get(unit, 0) + amount
    found = raw.execute("SELECT ledger_id, created_ms FROM ledger WHERE one = 1").fetchone()
    held_now = raw.execute(
        "SELECT effects, tombstones, record_bytes, spans, span_bytes FROM holdings"
    ).fetchone()
    holdings = Holdings(
        effects=held_now[0],
        tombstones=held_now[1],
        record_bytes=held_now[2],
        spans=held_now[3],
        span_bytes=held_now[4],
    )
    return LedgerStats(
        ledger_id="" if found is None else found[0],
        effects=effects,
        spans=raw.execute("SELECT count(*) FROM spans").fetchone()[0],
        tasks=raw.execute("SELECT count(*) FROM tasks").fetchone()[0],
        held_unknown=dict(sorted(held.items())),
        holdings=holdings,
        growth=None if found is None else _growth(raw, holdings, created_ms=found[1], now_ms=now_ms),
        # Looked at from outside: opening one of these files in any other way would drop SQLite's locks.
        file_bytes=_size(path),
        wal_bytes=_size(path.with_name(path.name + "-wal")),
    )


def _growth(raw: Any, holdings: Holdings, *, created_ms: int, now_ms: int) -> Growth | None:  # noqa: ANN401
    """Return what was gained by the day since `_PACE_MS` ago, or since the ledger was made."""
    begin = max(created_ms, now_ms - _PACE_MS)
    if now_ms - begin < _PACE_MS_MIN:
        return None
    days = (now_ms - begin) / _DAY_MS
    first = _first_since(raw, holdings.spans, begin)
    prepared = raw.execute("SELECT count(*) FROM effects WHERE prepared_ms >= ?", (begin,)).fetchone()[0]
    collected, older = raw.execute(
        "SELECT count(*), coalesce(sum(prepared_ms < ?), 0) FROM tombstones WHERE sequence >= ?",
        (begin, first),
    ).fetchone()
    requests = raw.execute("SELECT coalesce(sum(length(request)), 0) FROM tombstones").fetchone()[0]
    tombstone_bytes = requests + holdings.tombstones * TOMBSTONE_ROW_BYTES
    gained = prepared - older
    of_one_effect = (holdings.record_bytes - tombstone_bytes) / max(1, holdings.effects)
    of_one_tombstone = tombstone_bytes / max(1, holdings.tombstones)
    spans = holdings.spans - first + 1
    return Growth(
        effects=gained / days,
        record_bytes=(gained * of_one_effect + collected * of_one_tombstone) / days,
        span_bytes=spans * holdings.span_bytes / max(1, holdings.spans) / days,
    )


def _first_since(raw: Any, spans: int, begin_ms: int) -> int:  # noqa: ANN401 - untyped driver
    """Return the sequence of the first span at or after an instant, by halving: spans stand in the order of time."""
    low, high = 1, spans + 1
    while low < high:
        middle = (low + high) // 2
        row = raw.execute("SELECT at_ms FROM spans WHERE sequence = ?", (middle,)).fetchone()
        if row is not None and row[0] < begin_ms:
            low = middle + 1
        else:
            high = middle
    return low


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
