"""`activate` and `revisions`: putting the owner's files in force, and which ones were.

Rules: POL-07, POL-04 (files that cannot serve are refused with every finding, and what is in force goes on), AUD-01.
`activate` takes a profile's path and not an open issuer: it is what helps where the revision in force cannot be read.
Next: `issuer.activation`.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from issuer import answering
from issuer.activation import BeforeMoved, Change, commit_change, common_of, forget_old
from issuer.backup import shipped
from issuer.caller import Caller, CallerKind, local_caller, nameless_caller, refuse_agent
from issuer.clock import instant_text, now_ms
from issuer.commands.edge import at_the_edge
from issuer.commands.looking import swept
from issuer.errors import SetupError
from issuer.flow.stops import suspended_names
from issuer.house import ID_SHOWN, Visit
from issuer.operations.registry import Handed
from issuer.places import Places
from issuer.profile import Profile, ProfileRefused
from issuer.revised import REVISION, RevisedLedger, in_force
from issuer.revisions import (
    PREFIX_DIGITS_MIN,
    OwnerFiles,
    keep_snapshot,
    load_snapshot,
    read_draft,
    stored_revisions,
)
from issuer.terms import profile_in, terms_of
from issuer.trail import Changed, activations, authority_changes
from issuer.wire import Answer
from issuer.wire.codes import CODES
from issuer.wiring import current_keys, open_ledger, registered_sinks
from ledger.authority import StopKind
from ledger.changes import Step
from ledger.errors import Fault, LedgerUnavailable
from ledger.model import AttributeValue, InstantMs, Transition, TransitionName
from ledger.port import Verdict, View
from ledger.refusals import Refusal, RefusalCode
from ledger.sqlite import SqliteLedger
from policies import ActFacts, BundleRefused, EngineUnfit, may_act

TURNS_MAX: Final = 3
"""How often an activation is told anew against what is in force, where others activate at the same time."""

_COMMAND: Final = "activate"
_DIGITS: Final = frozenset("0123456789abcdef")
_UNUSABLE = (ProfileRefused, BundleRefused, EngineUnfit, SetupError, ValueError)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Desk:
    """What an activation works with; `profile` is that of the revision in force, and says who calls."""

    places: Places
    ledger: SqliteLedger
    profile: Profile
    caller: Caller
    before: str | None
    known: OwnerFiles | None

    def answer(self, code: str, *, say: str = "", more: dict[str, object] | None = None) -> Answer:
        issuer = f"{self.profile.name}/{self.ledger.ledger_id[ID_SHOWN]}"
        say = say or CODES[code].say
        return Answer(issuer=issuer, code=code, mode=self.profile.mode, say=say, more=more or {})

    def refused(self, refusal: Refusal, *, say: str = "") -> Answer:
        """Put a no on record, and answer it."""
        said: dict[str, AttributeValue] = {
            **common_of(self.profile),
            "permit.command": _COMMAND,
            "permit.refusal": str(refusal.code),
        }
        if self.before is not None:
            said[REVISION] = self.before
        if refusal.field is not None:
            said["permit.refusal.field"] = refusal.field
        transition = Transition(name=TransitionName.REFUSED, story=self.ledger.ledger_id, attributes=said)

        def decide(_view: View, _now: InstantMs) -> Verdict[None]:
            return Verdict(value=None, steps=(Step(transition=transition),))

        with suppress(Fault):  # the no stands all the same
            RevisedLedger(self.ledger, None).record(decide)
        named = {} if refusal.field is None else {"field": refusal.field}
        return self.answer(str(refusal.code), say=answering.refusal_say(refusal, say), more=dict(named))


def activate(
    profile_path: Path,
    revision: str | None = None,
    *,
    adapters: Handed = MappingProxyType({}),
    clock: Callable[[], InstantMs] = now_ms,
    observe: Callable[[str], None] = lambda _step: None,
) -> Answer:
    """Put the files beside the profile in force, or with `revision` those of an earlier one (at least 8 digits of it).

    `observe` is told each step before it is done.

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
                return _activated(_desk(places, ledger), revision, adapters, observe)
            except BeforeMoved:
                continue
        say = "Others activate at the same time; look at `issuer revisions`, and try again."
        raise LedgerUnavailable("revision_moved", say)
    finally:
        ledger.close()


def _desk(places: Places, ledger: SqliteLedger) -> _Desk:
    before = ledger.read(in_force)
    known: OwnerFiles | None = None
    if before is not None:
        with suppress(LedgerUnavailable):
            known = load_snapshot(places, before)
    # Who calls is told by what is in force: a draft must not name its own owner. Without that it is told by no name.
    profile = profile_in(read_draft(places, policies=False) if known is None else known, places)
    return _Desk(
        places=places,
        ledger=ledger,
        profile=profile,
        caller=nameless_caller() if known is None and before is not None else local_caller(profile),
        before=before,
        known=known,
    )


def _refuse_by_policy(desk: _Desk) -> Refusal | None:
    """Refuse a person whom the policies in force do not let activate, where some policy names that (POL-01).

    Policies in force that cannot be read by this release are no obstacle in ordinary mode: this is what replaces them.
    """
    if desk.caller.kind is not CallerKind.PERSON or desk.known is None:
        return None
    if (StopKind.PERSON, desk.caller.name) in desk.ledger.read(suspended_names):
        return Refusal(code=RefusalCode.FORBIDDEN, field=_COMMAND)
    try:
        terms = terms_of(desk.known, desk.places, operations=False)
    except _UNUSABLE:
        return (
            None
            if desk.profile.mode == "ordinary"
            else Refusal(code=RefusalCode.POLICY_ERROR, field=_COMMAND)
        )
    if not terms.bundle.names_action(_COMMAND):
        return None
    facts = ActFacts(person=desk.caller.name, action=_COMMAND, command=_COMMAND, now_ms=now_ms())
    decision = may_act(terms.bundle, terms.directory, facts)
    if decision.allowed:
        return None
    return Refusal(
        code=RefusalCode.POLICY_ERROR if decision.errors else RefusalCode.FORBIDDEN, field=_COMMAND
    )


def _activated(desk: _Desk, revision: str | None, adapters: Handed, observe: Callable[[str], None]) -> Answer:
    no = refuse_agent(desk.caller) or _refuse_by_policy(
        desk
    )  # whose signature it takes is to be asked here as well
    if no is not None:
        return desk.refused(no)
    observe("read")
    found = read_draft_or_refuse(desk) if revision is None else _stored(desk, revision)
    if isinstance(found, Answer):
        return found
    observe("judge")
    try:
        terms = terms_of(found, desk.places, adapters=adapters)
        registered_sinks(terms.profile, desk.ledger)
    except _UNUSABLE:
        desk.refused(Refusal(code=RefusalCode.MALFORMED, field="revision"))
        raise
    observe("keep")
    made = keep_snapshot(desk.places, found)
    if found.digest == desk.before and not made:
        say = f"The revision {found.digest[:PREFIX_DIGITS_MIN]} is in force already."
        return desk.refused(Refusal(code=RefusalCode.NOTHING_TO_CHANGE, field="revision"), say=say)
    files = found.differing(desk.known)
    change = Change(
        revision=found.digest,
        before=desk.before,
        files=files if found.digest != desk.before else (),
        bundle=terms.bundle.digest,
        reason=_reason(found.digest, desk.before, revision),
    )
    observe("commit")
    sequence = commit_change(
        desk.ledger, change, {**common_of(desk.profile), "permit.caller": desk.caller.name}
    )
    observe("committed")
    forget_old(desk.places, desk.ledger)
    unshipped = shipped(terms.profile, desk.ledger, sequence)
    say = CODES["activated"].say
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


def read_draft_or_refuse(desk: _Desk) -> OwnerFiles:
    """Return the files beside the profile; raises what is wrong with them, after the no is on record."""
    try:
        return read_draft(desk.places)
    except _UNUSABLE:
        desk.refused(Refusal(code=RefusalCode.MALFORMED, field="revision"))
        raise


def _stored(desk: _Desk, prefix: str) -> OwnerFiles | Answer:
    """Return the one stored revision whose digest begins so and that was in force before, or the answer of the no."""
    if not (PREFIX_DIGITS_MIN <= len(prefix) <= 64 and _DIGITS.issuperset(prefix)):  # noqa: PLR2004 - hex digits of SHA-256
        say = f"A revision is named by at least {PREFIX_DIGITS_MIN} digits of its digest, from `issuer revisions`."
        return desk.refused(Refusal(code=RefusalCode.MALFORMED, field="revision"), say=say)
    # A folder may have been put there by anybody; that it was in force is told by the trail.
    once = desk.ledger.read(lambda view: {one.revision for one in activations(view)})
    found = [one for one in stored_revisions(desk.places) if one.startswith(prefix) and one in once]
    if len(found) != 1:
        what = "Two stored revisions begin" if found else "No stored revision begins"
        say = f"{what} with {prefix}; look at `issuer revisions`."
        return desk.refused(Refusal(code=RefusalCode.UNKNOWN_REFERENCE, field="revision"), say=say)
    return load_snapshot(desk.places, found[0])


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


def audit_changes(visit: Visit) -> Answer:
    """List every change of authority, oldest first (AUD-09): `issuer.trail` says which those are."""

    def run() -> Answer:
        swept(visit)
        changes = visit.house.ledger.read(authority_changes)
        more: dict[str, object] = {
            "changes": [one.as_json() for one in changes],
            "lines": [one.line() for one in changes] or ["  none"],
        }
        return answering.about(visit.house, "found", more=more)

    return at_the_edge(visit, run)
