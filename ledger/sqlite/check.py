"""`check`: everything in a ledger recomputed and compared, and what is wrong named with its place.

Rules: LED-04, LED-05, LED-06, REP-07 (what cannot be proven is a finding). It reads one snapshot, beside any writer,
and writes nothing. The order of the parts is the order of the findings: the file, the trail, tasks, effects, budgets.
What it cannot see: everything rolled back together with every sink, and whatever has neither MAC, nor trail, nor sum
(a claim's hash and deadline, the source of evidence).
Next: `issuer.checking` sets or lifts the mark that stops new effects.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from ledger.errors import LedgerCorrupt
from ledger.model import LedgerId
from ledger.port import Authenticator
from ledger.sqlite.check_effects import check_effects
from ledger.sqlite.check_ground import UNREADABLE, CheckFinding, Ground, OpenSeal, Proofs, SpanHolds
from ledger.sqlite.check_tasks import check_budgets, check_tasks
from ledger.sqlite.check_trail import check_trail
from ledger.sqlite.connection import DatabaseError, open_database, schema_rows
from ledger.sqlite.schema import expected_digest, schema_digest
from ledger.sqlite.store import journal_mode

__all__ = ["CheckFinding", "CheckReport", "check_ledger"]

DAMAGES_MAX: Final = 10
"""Lines of SQLite's own check: one already stops the ledger."""

_LINE_SHOWN_MAX: Final = 120
_MS_PER_SECOND: Final = 1000
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """What a check found.

    Attributes:
        ledger_id: as the ledger says it; empty where it does not.
        findings: what is wrong, most basic first; at most `FINDINGS_MAX`, and `cut` says that there is more.
        effects, spans, tasks: how many were looked at.
        seconds: how long it took.
    """

    ledger_id: str
    findings: tuple[CheckFinding, ...]
    effects: int
    spans: int
    tasks: int
    seconds: float
    cut: bool = False

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings


def check_ledger(
    path: Path,
    *,
    keys: Authenticator,
    stopwatch_ms: Callable[[], int],
    binding_digest: Callable[[bytes], bytes] | None = None,
    open_seal: OpenSeal | None = None,
    span_holds: SpanHolds | None = None,
) -> CheckReport:
    """Check the ledger at `path`; what the last three arguments prove is not judged where they are None.

    Raises:
        LedgerUnavailable: it is missing, locked, or cannot be read here; nothing is said about it.
    """
    began = stopwatch_ms()
    proofs = Proofs(keys=keys, binding_digest=binding_digest, open_seal=open_seal, span_holds=span_holds)
    try:
        raw = open_database(path, journal_mode=journal_mode(), read_only=True)
    except LedgerCorrupt as fault:
        finding = CheckFinding(what=fault.reason, where="file", says=fault.message)
        seconds = _since(began, stopwatch_ms)
        return CheckReport(ledger_id="", findings=(finding,), effects=0, spans=0, tasks=0, seconds=seconds)
    ground = Ground(raw=raw, ledger_id=LedgerId(""), proofs=proofs)
    try:
        raw.execute("BEGIN")
        effects, spans, tasks = _checked(ground)
    finally:
        raw.close()
    return CheckReport(
        ledger_id=ground.ledger_id,
        findings=tuple(ground.findings),
        effects=effects,
        spans=spans,
        tasks=tasks,
        seconds=_since(began, stopwatch_ms),
        cut=ground.cut,
    )


def _since(began: int, stopwatch_ms: Callable[[], int]) -> float:
    return (stopwatch_ms() - began) / _MS_PER_SECOND


def _checked(ground: Ground) -> tuple[int, int, int]:
    _part(ground, "file", _check_file, None)
    ground.ledger_id = _part(ground, "ledger", _identity, LedgerId(""))
    spans = _part(ground, "spans", check_trail, 0)
    tasks = _part(ground, "tasks", check_tasks, 0)
    effects = _part(ground, "effects", check_effects, 0)
    _part(ground, "budgets", check_budgets, None)
    return effects, spans, tasks


def _part(ground: Ground, name: str, run: Callable[[Ground], T], nothing: T) -> T:
    """Run one part; one that the damage stops is a finding, and the next part still runs."""
    try:
        return run(ground)
    except DatabaseError:
        ground.find("malformed", (name,), "SQLite cannot read this part of the ledger.")
    except UNREADABLE:
        ground.find(
            "unreadable", (name,), "This part of the ledger holds rows that were never written there."
        )
    return nothing


def _check_file(ground: Ground) -> None:
    """Ask SQLite itself. `integrity_check` is `quick_check` and the indexes, which a question of ours rests on."""
    for (line,) in ground.rows(f"PRAGMA integrity_check({DAMAGES_MAX})"):
        if line != "ok":
            shown = " ".join(str(line).split())[:_LINE_SHOWN_MAX]
            ground.find("malformed", ("file",), f"SQLite finds the file damaged: {shown}.")
    if schema_digest(schema_rows(ground.raw)) != expected_digest():
        ground.find("schema", ("file",), "The tables or guards are not those this release makes.")
    missing: dict[tuple[Any, ...], int] = {}
    for table, _rowid, parent, _key in ground.raw.execute("PRAGMA foreign_key_check"):
        missing[table, parent] = missing.get((table, parent), 0) + 1
    for (table, parent), number in sorted(missing.items()):
        says = f"{number} rows name a row of {parent} that is not there."
        ground.find("foreign_key", (str(table),), says)


def _identity(ground: Ground) -> LedgerId:
    found = ground.rows("SELECT ledger_id FROM ledger WHERE one = 1")
    if not found:
        ground.find("no_ledger", ("ledger",), "The ledger does not say which it is.")
        return LedgerId("")
    return LedgerId(found[0][0])
