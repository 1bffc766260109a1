"""`ledger check` and `ledger stats`: is what is stored what was written, and how much is it?

Both take a profile's path and not an open issuer, since a ledger that does not open is what they are needed for.
Rules: LED-04 (one sentence why, reading goes on), REP-07, LED-02 (fill is told).
"""

from pathlib import Path
from typing import Final

from issuer.answering import damaged_say
from issuer.checking import Judged, judge
from issuer.clock import now_ms
from issuer.commands.room import Room
from issuer.house import ID_SHOWN
from issuer.look import open_to_look
from issuer.places import Places
from issuer.profile import Profile, load_profile
from issuer.sealing import open_key_ring
from issuer.wire import Answer
from issuer.wire.codes import CODES
from ledger.capacity import fills, outlook
from ledger.errors import Fault, LedgerCorrupt
from ledger.sqlite.ballast import Ballast
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
    stats = read_stats(places.ledger, now_ms=now_ms())
    halt = standing_halt(places.ledger)
    ballast = Ballast(places.ledger)
    room = Room(
        fills=fills(stats.holdings, profile.ledger.capacity),
        outlook=None
        if stats.growth is None
        else outlook(stats.holdings, profile.ledger.capacity, stats.growth),
        has_ballast=ballast.stands,
        free_bytes=ballast.free_bytes(),
    )
    numbers: dict[str, object] = {
        "effects": dict(stats.effects),
        "tombstones": stats.holdings.tombstones,
        "spans": stats.spans,
        "tasks": stats.tasks,
        "held_unknown": dict(stats.held_unknown),
        "file_bytes": stats.file_bytes,
        "wal_bytes": stats.wal_bytes,
        "halted": None if halt is None else halt.word,
        **room.as_json(),
    }
    more: dict[str, object] = {
        "stats": numbers,
        "lines": _lines(stats, room, None if halt is None else halt.word),
    }
    issuer, say, damage = _issuer(profile, stats.ledger_id), "", _damage(places)
    if damage is not None:
        say, more["damaged"] = f"{CODES['found'].say} {damaged_say(damage)}", damage.reason
    return Answer(issuer=issuer, code="found", mode=profile.mode, say=say, more=more)


def _damage(places: Places) -> LedgerCorrupt | None:
    """Return what of the ledger cannot be trusted at a glance; numbers are told without keys as well."""
    try:
        ledger = open_to_look(places, open_key_ring(places.keys), tolerant=True)
    except Fault:
        return None
    ledger.close()
    return ledger.damage


def _lines(stats: LedgerStats, room: Room, halt: str | None) -> list[str]:
    """Return the numbers for people; a state that no effect is in is left out."""
    states = [f"{state} {number}" for state, number in stats.effects.items() if number]
    held = [f"{unit}={amount}" for unit, amount in stats.held_unknown.items()]
    lines = [
        f"  effects: {', '.join(states) or 'none'}",
        f"  held by unknown effects: {', '.join(held) or 'nothing'}",
        f"  spans: {stats.spans}, tasks: {stats.tasks}",
        f"  tombstones: {stats.holdings.tombstones}",
        f"  bytes: {stats.file_bytes} in the file, {stats.wal_bytes} in its write-ahead log",
        *room.lines(),
    ]
    return lines if halt is None else [*lines, f"  new effects are stopped: a check found {halt}"]
