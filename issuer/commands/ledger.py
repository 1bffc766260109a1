"""`ledger check` and `ledger stats`: is what is stored what was written, and how much is it?

Both take a profile's path and not an open issuer, since a ledger that does not open is what they are needed for.
Rules: LED-04 (one sentence why, reading goes on), REP-07, LED-02 (fill is told).
"""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from issuer.answering import damaged_say
from issuer.caller import refuse_agent
from issuer.checking import Judged, judge
from issuer.clock import now_ms
from issuer.commands.room import Room
from issuer.grounds import Ground, ground_in, looked_at
from issuer.look import open_to_look
from issuer.places import Places
from issuer.sealing import KeyRing, KeysUnavailable, open_key_ring
from issuer.unopened import ActRefused, Given, on_record
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
        Fault: there is nothing that could be checked, or its result stops nothing.
    """
    places = Places(profile_path.absolute())
    ring = open_key_ring(places.keys)
    try:
        ground = _ground(places, ring, "ledger-check")
    except ActRefused as no:
        return no.answer
    judged = judge(places, ring)
    report = judged.report
    ground = replace(ground, ledger_id=ground.ledger_id or report.ledger_id)
    return Answer(
        issuer=ground.issuer,
        code="found" if report.is_clean and not judged.halted else "ledger_unavailable",
        mode=ground.mode,
        say=f"{_check_say(judged)} {ground.unread}".rstrip(),
        more={
            "findings": _rows(report),
            "effects_checked": report.effects,
            "spans_checked": report.spans,
            "tasks_checked": report.tasks,
            "took_ms": round(report.seconds * 1000),
            "halted": judged.halted,
        },
    )


def _ground(places: Places, ring: KeyRing, command: str) -> Ground:
    """Return what is in force, and refuse a host or an actor; a draft on disk says neither.

    Raises:
        ActRefused: it calls by its account; that is on record where the ledger takes it.
    """
    with looked_at(places, ring) as ledger:
        ground = ground_in(places, ledger)
    no = refuse_agent(ground.caller)
    if no is None:
        return ground
    raise on_record(ActRefused(Given(ground=ground, caller=ground.caller), command, no), places, ring)


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
        Fault: it cannot be read.
    """
    places = Places(profile_path.absolute())
    ground = Ground()
    with suppress(KeysUnavailable):  # numbers are told without keys as well
        try:
            ground = _ground(places, open_key_ring(places.keys), "ledger-stats")
        except ActRefused as no:
            return no.answer
    stats = read_stats(places.ledger, now_ms=now_ms())
    halt = standing_halt(places.ledger)
    ballast = Ballast(places.ledger)
    bounds = None if ground.profile is None else ground.profile.ledger.capacity
    room = Room(
        fills=() if bounds is None else fills(stats.holdings, bounds),
        outlook=None
        if bounds is None or stats.growth is None
        else outlook(stats.holdings, bounds, stats.growth),
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
    ground, damage = replace(ground, ledger_id=ground.ledger_id or stats.ledger_id), _damage(places)
    say = ground.unread
    if damage is not None:
        said, more["damaged"] = f"{CODES['found'].say} {damaged_say(damage)}", damage.reason
        say = f"{said} {say}".rstrip()
    return Answer(issuer=ground.issuer, code="found", mode=ground.mode, say=say, more=more)


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
