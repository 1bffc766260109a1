"""`activate` and `revisions`: putting the owner's files in force, and which ones were.

Rules: POL-07, POL-04 (files that cannot serve are refused with every finding, and what is in force goes on), AUD-01.
`activate` takes a profile's path and not an open issuer: it is what helps where the revision in force cannot be read.
Next: `issuer.activation`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from issuer import answering
from issuer.activation import BeforeMoved, Change, commit_change, forget_old
from issuer.backup import shipped
from issuer.clock import instant_text, now_ms
from issuer.commands.edge import at_the_edge
from issuer.commands.looking import swept
from issuer.errors import SetupError
from issuer.flow.refusing import RefusedError
from issuer.grounds import Ground, ground_in
from issuer.house import Visit
from issuer.operations.registry import Handed
from issuer.places import Places
from issuer.profile import ProfileRefused
from issuer.revised import in_force
from issuer.revisions import (
    PREFIX_DIGITS_MIN,
    OwnerFiles,
    keep_snapshot,
    load_snapshot,
    read_draft,
    stored_revisions,
)
from issuer.sealing import KeyRing
from issuer.sink_places import stood
from issuer.terms import terms_of
from issuer.trail import Changed, activations
from issuer.unopened import UNSIGNED, Act, ActRefused, Gate, Given
from issuer.wire import Answer
from issuer.wire.codes import CODES
from issuer.wiring import current_keys, open_ledger
from ledger.errors import LedgerUnavailable
from ledger.model import InstantMs
from ledger.refusals import Refusal, RefusalCode
from ledger.sqlite import SqliteLedger
from policies import BundleRefused, EngineUnfit

TURNS_MAX: Final = 3
"""How often an activation is told anew against what is in force, where others activate at the same time."""

_COMMAND: Final = "activate"
_DIGITS: Final = frozenset("0123456789abcdef")
_UNUSABLE = (ProfileRefused, BundleRefused, EngineUnfit, SetupError, ValueError)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Desk:
    """What an activation works with; `ground` is what is in force, and says who calls."""

    places: Places
    ledger: SqliteLedger
    ground: Ground
    gate: Gate
    act: Act
    before: str | None
    adapters: Handed = field(default_factory=lambda: MappingProxyType({}))
    observe: Callable[[str], None] = lambda _step: None

    def answer(self, code: str, *, say: str = "", more: dict[str, object] | None = None) -> Answer:
        say = say or CODES[code].say
        return Answer(issuer=self.ground.issuer, code=code, mode=self.ground.mode, say=say, more=more or {})

    def refused(self, given: Given, refusal: Refusal, *, say: str = "") -> Answer:
        """Put a no on record, and answer it."""
        return ActRefused(given, _COMMAND, refusal, say).recorded(self.ledger).answer


def activate(
    profile_path: Path,
    revision: str | None = None,
    *,
    adapters: Handed = MappingProxyType({}),
    clock: Callable[[], InstantMs] = now_ms,
    observe: Callable[[str], None] = lambda _step: None,
    act: Act = UNSIGNED,
) -> Answer:
    """Put the files beside the profile in force, or with `revision` those of an earlier one (at least 8 digits of it).

    `observe` is told each step before it is done. A signature in `act` is over a statement that names the digest.

    Raises:
        ProfileRefused, BundleRefused, EngineUnfit, SetupError, ValueError: the files cannot be used; the no is on
            record, and the revision in force goes on.
        Fault: nothing was changed.
    """
    places = Places(profile_path.absolute())
    ring = current_keys(places, clock=clock)
    ledger = open_ledger(places, ring, clock=clock)
    try:
        for _turn in range(TURNS_MAX):
            try:
                return _activated(
                    replace(_desk(places, ring, ledger, act, clock), adapters=adapters, observe=observe),
                    revision,
                )
            except BeforeMoved:
                continue
        say = "Others activate at the same time; look at `issuer revisions`, and try again."
        raise LedgerUnavailable("revision_moved", say)
    finally:
        ledger.close()


def activation_statement(
    profile_path: Path,
    person: str,
    revision: str | None = None,
    *,
    clock: Callable[[], InstantMs] = now_ms,
) -> str:
    """Return what `person` signs to put these files in force: their digest stands in it, so no others come in under it.

    Raises:
        RefusedError: nobody of that name is in force, or no such revision is stored.
        ProfileRefused, SetupError: the files cannot be read.
        Fault: the ledger cannot be read.
    """
    places = Places(profile_path.absolute())
    ring = current_keys(places, clock=clock)
    ledger = open_ledger(places, ring, clock=clock)
    try:
        desk = _desk(places, ring, ledger, UNSIGNED, clock)
        found = read_draft(places) if revision is None else _stored(desk, revision)
        if isinstance(found, Refusal):
            raise RefusedError(found.code, field=found.field)
        return desk.gate.statement(_arguments(found), person)
    finally:
        ledger.close()


def _arguments(files: OwnerFiles) -> dict[str, object]:
    """Return what a statement of an activation says: the digest alone, whichever way the files were named."""
    return {"revision": files.digest}


def _desk(
    places: Places, ring: KeyRing, ledger: SqliteLedger, act: Act, clock: Callable[[], InstantMs]
) -> _Desk:
    before = ledger.read(in_force)
    ground = ground_in(places, ledger, is_strict=act.is_strict)
    gate = Gate(command=_COMMAND, ground=ground, places=places, ring=ring, ledger=ledger, now=clock)
    return _Desk(places=places, ledger=ledger, ground=ground, gate=gate, act=act, before=before)


def _activated(desk: _Desk, revision: str | None) -> Answer:
    try:
        given = desk.gate.first(desk.act)
        desk.observe("read")
        found = _read_or_refuse(desk, given) if revision is None else _stored(desk, revision)
        if isinstance(found, Refusal):
            return desk.refused(given, found, say=_stored_say(found, revision or ""))
        given = desk.gate.whole(desk.act, _arguments(found))
        return _put_in_force(desk, given, found, revision)
    except ActRefused as no:
        return no.recorded(desk.ledger).answer


def _put_in_force(desk: _Desk, given: Given, found: OwnerFiles, asked: str | None) -> Answer:
    desk.observe("judge")
    try:
        terms = terms_of(found, desk.places, adapters=desk.adapters)
        sinks, stand = stood(terms.profile, desk.ledger)
    except _UNUSABLE:
        desk.refused(given, Refusal(code=RefusalCode.MALFORMED, field="revision"))
        raise
    desk.observe("keep")
    made = keep_snapshot(desk.places, found)
    if found.digest == desk.before and not made:
        say = f"The revision {found.digest[:PREFIX_DIGITS_MIN]} is in force already."
        return desk.refused(given, Refusal(code=RefusalCode.NOTHING_TO_CHANGE, field="revision"), say=say)
    files = found.differing(None if desk.ground.is_former else desk.ground.files)
    change = Change(
        revision=found.digest,
        before=desk.before,
        files=files if found.digest != desk.before else (),
        bundle=terms.bundle.digest,
        reason=_reason(found.digest, desk.before, asked),
    )
    desk.observe("commit")
    try:
        sequence = commit_change(desk.ledger, change, given.attributes, given.signed)
    except RefusedError as no:
        return desk.refused(given, no.refusal)
    desk.observe("committed")
    forget_old(desk.places, desk.ledger)
    unshipped = shipped(sinks, desk.ledger, sequence)
    say = CODES["activated"].say
    if stand.trouble is not None:
        say, unshipped = f"{say} {stand.trouble[1]} Nothing is sent until then.", None
    if unshipped is not None:
        say = f"{say} The audit sink has not taken note of it yet ({unshipped})"
    more: dict[str, object] = {"revision": found.digest, "before": desk.before, "files": list(change.files)}
    return desk.answer("activated", say=say, more=more)


def _reason(revision: str, before: str | None, asked: str | None) -> str:
    if revision == before:
        return "repaired"
    if before is None:
        return "first"
    return "files" if asked is None else "stored"


def _read_or_refuse(desk: _Desk, given: Given) -> OwnerFiles:
    """Return the files beside the profile; raises what is wrong with them, after the no is on record."""
    try:
        return read_draft(desk.places)
    except _UNUSABLE:
        desk.refused(given, Refusal(code=RefusalCode.MALFORMED, field="revision"))
        raise


def _stored(desk: _Desk, prefix: str) -> OwnerFiles | Refusal:
    """Return the one stored revision whose digest begins so and that was in force before, or the no."""
    if not (PREFIX_DIGITS_MIN <= len(prefix) <= 64 and _DIGITS.issuperset(prefix)):  # noqa: PLR2004 - hex digits of SHA-256
        return Refusal(code=RefusalCode.MALFORMED, field="revision")
    # A folder may have been put there by anybody; that it was in force is told by the trail.
    once = desk.ledger.read(lambda view: {one.revision for one in activations(view)})
    found = [one for one in stored_revisions(desk.places) if one.startswith(prefix) and one in once]
    if len(found) != 1:
        return Refusal(code=RefusalCode.UNKNOWN_REFERENCE, field="revision")
    return load_snapshot(desk.places, found[0])


def _stored_say(no: Refusal, prefix: str) -> str:
    if no.code is RefusalCode.MALFORMED:
        return f"A revision is named by at least {PREFIX_DIGITS_MIN} digits of its digest, from `issuer revisions`."
    return f"There is not exactly one stored revision that begins with {prefix}; look at `issuer revisions`."


def revisions(visit: Visit, places: Places) -> Answer:
    """List every revision that was put in force, newest first: since when, by whom, and which files changed."""

    def run() -> Answer:
        swept(visit)
        active, changes = visit.house.ledger.read(lambda view: (in_force(view), activations(view)))
        stored = frozenset(stored_revisions(places))
        told = [*reversed(changes)]
        rows = [_row(one, active, stored, is_last=one is told[0]) for one in told]
        more: dict[str, object] = {"revisions": rows, "lines": [_line(row) for row in rows] or ["  none"]}
        return answering.about(visit.house, "found", more=more)

    return at_the_edge(visit, run)


def _row(one: Changed, active: str | None, stored: frozenset[str], *, is_last: bool) -> dict[str, object]:
    return {
        "revision": one.revision,
        "since": instant_text(one.at_ms),
        "by": one.by,
        "reason": one.reason,
        "files": list(one.files),
        "active": is_last and one.revision == active,
        "stored": one.revision in stored,
    }


def _line(row: dict[str, object]) -> str:
    mark = "*" if row["active"] else " "
    names = row["files"]
    files = ", ".join(map(str, names)) if isinstance(names, list) and names else "no file"
    kept = "" if row["stored"] else "; its copy is gone"
    digits = str(row["revision"])[: 2 * PREFIX_DIGITS_MIN]
    return f"  {mark} {digits}  {row['since']}  {row['by']} ({row['reason']}): {files}{kept}"
