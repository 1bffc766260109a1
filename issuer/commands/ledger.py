"""`ledger check` and `ledger stats`: is what is stored what was written, and how much is it?

Both take a profile's path and not an open issuer, since a ledger that does not open is what they are needed for.
Rules: LED-04 (one sentence why, reading goes on), REP-07, LED-02 (fill is told).
"""

from pathlib import Path
from typing import Final

from issuer.checking import Judged, judge
from issuer.house import ID_SHOWN
from issuer.places import Places
from issuer.profile import Profile, load_profile
from issuer.sealing import open_key_ring
from issuer.wire import Answer
from ledger.sqlite.check import CheckReport
from ledger.sqlite.halt import standing_halt
from ledger.sqlite.stats import LedgerStats, read_stats

_RESTORE: Final = "Keep the file as evidence, and restore the newest backup of the ledger."


def ledger_check(profile_path: Path) -> Answer:
    """Recompute everything in the ledger; what is wrong stops new effects, and a clean check lets them go on.

    Raises:
        ProfileRefused, Fault: there is nothing that could be checked, or its result stops nothing.
    """
    places = Places(profile_path.absolute())
    profile = load_profile(profile_path)
    judged = judge(places, open_key_ring(places.keys))
    report = judged.report
    return Answer(
        issuer=_issuer(profile, report.ledger_id),
        code="found" if report.is_clean and not judged.halted else "ledger_unavailable",
        mode=profile.mode,
        say=_check_say(judged),
        more={
            "findings": _rows(report),
            "effects_checked": report.effects,
            "spans_checked": report.spans,
            "tasks_checked": report.tasks,
            "took_ms": round(report.seconds * 1000),
            "halted": judged.halted,
        },
    )


def _issuer(profile: Profile, ledger_id: str) -> str:
    """Return the issuer's name as every answer carries it; without the ledger's digits where it does not tell them."""
    return f"{profile.name}/{ledger_id[ID_SHOWN]}" if ledger_id else profile.name


def _rows(report: CheckReport) -> list[dict[str, object]]:
    found: list[dict[str, object]] = [
        {"check": row.what, "ok": False, "where": row.where, "says": row.says, "next": ""}
        for row in report.findings
    ]
    if report.cut:
        says = "There is more than is shown."
        found.append({"check": "more", "ok": False, "where": "", "says": says, "next": ""})
    return found


def _check_say(judged: Judged) -> str:
    report = judged.report
    number = len(report.findings)
    if number:
        told = (
            "1 problem"
            if number == 1
            else f"{number} problems"
            if not report.cut
            else f"over {number} problems"
        )
        return f"The ledger has {told}; new effects are stopped, and reading goes on. {_RESTORE}"
    if judged.halted:
        return "No problem was found, and another check has found one since; run this again."
    return "No problem was found."


def ledger_stats(profile_path: Path) -> Answer:
    """Tell what the ledger holds, in numbers.

    Raises:
        ProfileRefused, Fault: it cannot be read.
    """
    places = Places(profile_path.absolute())
    profile = load_profile(profile_path)
    stats = read_stats(places.ledger)
    halt = standing_halt(places.ledger)
    numbers: dict[str, object] = {
        "effects": dict(stats.effects),
        "spans": stats.spans,
        "tasks": stats.tasks,
        "held_unknown": dict(stats.held_unknown),
        "file_bytes": stats.file_bytes,
        "wal_bytes": stats.wal_bytes,
        "halted": None if halt is None else halt.word,
    }
    more = {"stats": numbers, "lines": _lines(stats, None if halt is None else halt.word)}
    return Answer(issuer=_issuer(profile, stats.ledger_id), code="found", mode=profile.mode, more=more)


def _lines(stats: LedgerStats, halt: str | None) -> list[str]:
    """Return the numbers for people; a state that no effect is in is left out."""
    states = [f"{state} {number}" for state, number in stats.effects.items() if number]
    held = [f"{unit}={amount}" for unit, amount in stats.held_unknown.items()]
    lines = [
        f"  effects: {', '.join(states) or 'none'}",
        f"  held by unknown effects: {', '.join(held) or 'nothing'}",
        f"  spans: {stats.spans}, tasks: {stats.tasks}",
        f"  bytes: {stats.file_bytes} in the file, {stats.wal_bytes} in its write-ahead log",
    ]
    return lines if halt is None else [*lines, f"  new effects are stopped: a check found {halt}"]
