"""`check`: everything in a ledger recomputed and compared, and what is wrong named with its place.

Rules: LED-04, LED-05, LED-06, REP-07 (what cannot be proven is a finding). It reads one snapshot, beside any writer,
and writes nothing. The order of the parts is the order of the findings: the file, the trail, tasks, effects, what was
collected, counters, budgets, invocations, rulings and approvals, registers. What it cannot see: everything rolled back
together with every sink, and whatever has neither MAC, nor trail, nor sum (the source of evidence and what it says of
costs; what a permit took from the bounds of its class, where both the counter and the take were changed alike).
Next: `issuer.checking` sets or lifts the mark that stops new effects.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from ledger.errors import LedgerCorrupt
from ledger.model import LedgerId
from ledger.port import Authenticator
from ledger.sqlite.check_authority import check_authority
from ledger.sqlite.check_budgets import check_budgets, check_grants
from ledger.sqlite.check_collected import check_collected
from ledger.sqlite.check_counts import check_counts
from ledger.sqlite.check_effects import check_effects
from ledger.sqlite.check_file import check_file
from ledger.sqlite.check_ground import (
    UNREADABLE,
    CheckFinding,
    Ground,
    OpenSeal,
    Proofs,
    SpanHolds,
    SpanSays,
)
from ledger.sqlite.check_invocations import check_invocations
from ledger.sqlite.check_standing import check_standing
from ledger.sqlite.check_tasks import check_tasks
from ledger.sqlite.check_trail import check_trail
from ledger.sqlite.connection import DatabaseError, open_database
from ledger.sqlite.store import journal_mode

__all__ = ["CheckFinding", "CheckReport", "check_ledger", "demand_clean"]

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
    span_says: SpanSays | None = None,
    is_copy: bool = False,
) -> CheckReport:
    """Check the ledger at `path`, or a copy of one; what the four before prove is not judged where they are None.

    Raises:
        LedgerUnavailable: it is missing, locked, or cannot be read here; nothing is said about it.
        LedgerCorrupt: `schema_older` or `schema_version`; another release can judge it, and it is not damaged.
    """
    began = stopwatch_ms()
    proofs = Proofs(
        keys=keys,
        binding_digest=binding_digest,
        open_seal=open_seal,
        span_holds=span_holds,
        span_says=span_says,
    )
    try:
        raw = open_database(path, journal_mode=None if is_copy else journal_mode(), read_only=True)
    except LedgerCorrupt as fault:
        if fault.reason in {"schema_older", "schema_version"}:
            raise
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


def demand_clean(raw: Any, proofs: Proofs) -> None:  # noqa: ANN401 - untyped driver
    """Return where a check finds nothing in the ledger as the open transaction of `raw` sees it.

    Raises:
        LedgerCorrupt: `check_found`; the sentence is the first finding's.
    """
    found = check_within(raw, proofs)
    if found:
        message = f"A check finds {found[0].what} at {found[0].where}; run `issuer ledger check`."
        raise LedgerCorrupt("check_found", message)


def check_within(raw: Any, proofs: Proofs) -> tuple[CheckFinding, ...]:  # noqa: ANN401 - untyped driver
    """Check the ledger as the open transaction of `raw` sees it: what an upgrade is about to commit."""
    ground = Ground(raw=raw, ledger_id=LedgerId(""), proofs=proofs)
    _checked(ground)
    return tuple(ground.findings)


def _since(began: int, stopwatch_ms: Callable[[], int]) -> float:
    return (stopwatch_ms() - began) / _MS_PER_SECOND


def _checked(ground: Ground) -> tuple[int, int, int]:
    _part(ground, "file", check_file, None)
    ground.ledger_id = _part(ground, "ledger", _identity, LedgerId(""))
    spans = _part(ground, "spans", check_trail, 0)
    _part(ground, "grants", check_grants, None)
    tasks = _part(ground, "tasks", check_tasks, 0)
    effects = _part(ground, "effects", check_effects, 0)
    _part(ground, "tombstones", check_collected, None)
    _part(ground, "counters", check_counts, None)
    _part(ground, "budgets", check_budgets, None)
    _part(ground, "invocations", check_invocations, None)
    _part(ground, "authority", check_authority, None)
    _part(ground, "standing", check_standing, None)
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


def _identity(ground: Ground) -> LedgerId:
    found = ground.rows("SELECT ledger_id FROM ledger WHERE one = 1")
    if not found:
        ground.find("no_ledger", ("ledger",), "The ledger does not say which it is.")
        return LedgerId("")
    return LedgerId(found[0][0])
