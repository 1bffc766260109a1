"""Putting a revision in force: judged as opening judges it, copied, and then one ruling with its span, or nothing.

Rules: POL-07 (an audited transition; the ledger says what is in force), POL-04 (a revision that cannot serve is refused
as a whole, and the one before goes on), AUD-02 (sinks are not moved by it), LED-01 (the copy is durable before the
ledger refers to it). In order:
  1. the files are read once   2. everything that opening demands of them is demanded   3. the copy is stored
  4. under the lock: the ruling, in the place of the one that the change was told against.
A ledger that never had one takes the files as they lie there, once: they were in force until then.
Next: every process compares under the lock (`issuer.revised`) and reads the copy (`issuer.terms`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final
from urllib.parse import quote

from issuer.caller import local_caller
from issuer.flow.binding import stored_member
from issuer.flow.signed_act import once
from issuer.house import Signed
from issuer.operations.registry import Handed
from issuer.places import Places
from issuer.profile import Profile
from issuer.revised import REVISION, in_force
from issuer.revisions import (
    SNAPSHOTS_MAX,
    OwnerFiles,
    forget_snapshots,
    keep_snapshot,
    load_snapshot,
    read_draft,
    stored_revisions,
)
from issuer.terms import Terms, terms_of
from ledger.authority import ACTIVE_REVISION, Ruling, RulingKind
from ledger.changes import RulingMade, Step
from ledger.errors import Fault, LedgerCorrupt, LedgerUnavailable
from ledger.model import InstantMs
from ledger.port import Ledger, Verdict, View
from ledger.states import PENDING, UNRESOLVED
from ledger.transitions import AttributeValue, Transition, TransitionName

UNACTIVATED: Final = ""
"""The revision of a house that reads a ledger in which none was ever activated."""

FILES_SHOWN_MAX: Final = 32
"""Names of changed files in one span; `permit.count` says how many there were."""

_NAME_MAX: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What puts a revision in force.

    Attributes:
        before: the revision that it was told against; None where there never was one.
        files: names of the files that differ between the two.
        reason: a word; `repaired` where only the copy of the one in force is made anew.
    """

    revision: str
    before: str | None
    files: tuple[str, ...]
    bundle: str
    reason: str


class BeforeMoved(Exception):  # noqa: N818 - no fault: whoever activates looks again
    """Another revision is in force than the one that a change was told against; nothing was written."""


def activation_step(change: Change, common: Mapping[str, AttributeValue], view: View, now: InstantMs) -> Step:
    """Return the step that puts a revision in force; `common` is what its span says of caller and mode."""
    attributes: dict[str, AttributeValue] = {
        **common,
        "permit.revision.activated": change.revision,
        "permit.reason": change.reason,
        "permit.count": len(change.files),
    }
    if change.bundle:
        attributes["permit.bundle.digest"] = change.bundle
    if change.before is not None:
        attributes["permit.revision.before"] = attributes[REVISION] = change.before
    if change.files:
        attributes["permit.files"] = tuple(_shown(name) for name in change.files[:FILES_SHOWN_MAX])
    transition = Transition(
        name=TransitionName.REVISION_ACTIVATED, story=view.head().ledger_id, attributes=attributes
    )
    ruling = Ruling(kind=RulingKind.REVISION, name=ACTIVE_REVISION, value=change.revision, since_ms=now)
    return Step(transition=transition, changes=(RulingMade(ruling=ruling),))


def _shown(name: str) -> str:
    """Return a file's name as a span may carry it: what is not plain ASCII is escaped as in a URL (RFC 3986)."""
    return quote(name, safe="/._-~+@")[-_NAME_MAX:]


def commit_change(
    ledger: Ledger,
    change: Change,
    common: Mapping[str, AttributeValue],
    signed: Signed | None = None,
) -> int:
    """Do 4, and use the signature that came with it; return the sequence of the span.

    Raises:
        BeforeMoved: another process was faster.
        RefusedError: the signature counts no more.
        Fault: as `ledger.port.Ledger.transact`.
    """

    def decide(view: View, now: InstantMs) -> Verdict[None]:
        if in_force(view) != change.before:
            raise BeforeMoved
        return Verdict(value=None, steps=(activation_step(change, common, view, now),))

    return ledger.transact(once(signed, decide)).sequence


def opening_terms(
    places: Places, ledger: Ledger, *, reading: bool, adapters: Handed = MappingProxyType({})
) -> tuple[str, Terms]:
    """Return the revision in force and its terms, read from its copy; the files on disk count for nothing (POL-07).

    A ledger that never had one takes the files as they are now, and that is on record. With `reading` nothing is made,
    nothing is permitted, and a copy that is gone or edited is no obstacle (LED-04).

    Raises:
        ProfileRefused, BundleRefused, EngineUnfit, SetupError, ValueError: the revision cannot be used.
        Fault: its copy cannot be read, or the ledger not be used.
    """
    active = _active(ledger, reading=reading)
    if active is None:
        if reading:
            return UNACTIVATED, terms_of(read_draft(places, policies=False), places, reading=True)
        return _first_or_none(places, ledger, adapters)
    try:
        return active, terms_of(load_snapshot(places, active), places, reading=reading, adapters=adapters)
    except LedgerUnavailable:
        if not reading:
            raise
        return active, terms_of(read_draft(places, policies=False), places, reading=True)


def _first_or_none(places: Places, ledger: Ledger, adapters: Handed) -> tuple[str, Terms]:
    """Activate the first revision; where the ledger takes nothing now, go on without one.

    Nothing is decided then (`issuer.revised`); but it can be read, and a clock be believed again (PER-03, LED-04).
    """
    try:
        return activate_first(places, ledger, adapters)
    except (LedgerCorrupt, LedgerUnavailable):
        return UNACTIVATED, terms_of(read_draft(places), places, adapters=adapters)


def _active(ledger: Ledger, *, reading: bool) -> str | None:
    try:
        return ledger.read(in_force)
    except Fault:
        if not reading:
            raise
        return None


def activate_first(
    places: Places, ledger: Ledger, adapters: Handed = MappingProxyType({}), *, operations: bool = True
) -> tuple[str, Terms]:
    """Put the files as they lie there in force, in a ledger where none ever was; return what is in force then.

    That there never was one is proven by the ledger's register of rulings, under the lock.

    Raises:
        As `opening_terms`.
    """

    def judge(files: OwnerFiles) -> Terms:
        return terms_of(files, places, operations=operations, adapters=adapters)

    files = read_draft(places)
    terms = judge(files)
    keep_snapshot(places, files)
    change = Change(
        revision=files.digest,
        before=None,
        files=tuple(files.files),
        bundle=terms.bundle.digest,
        reason="first",
    )
    try:
        commit_change(ledger, change, common_of(terms.profile))
    except BeforeMoved:
        active = ledger.read(in_force)
        if active is None or active == files.digest:
            return files.digest, terms
        return active, judge(load_snapshot(places, active))
    return files.digest, terms


def common_of(profile: Profile) -> dict[str, AttributeValue]:
    """Return what the span of an activation says of mode and caller, who is known by `profile`."""
    return {"permit.mode": profile.mode, "permit.caller": local_caller(profile).name}


_UNENDED: Final = sorted({*PENDING, *UNRESOLVED})


def forget_old(places: Places, ledger: Ledger) -> None:
    """Remove copies beyond those that are kept, but none that is in force or that an effect still rests on."""
    if len(stored_revisions(places)) <= SNAPSHOTS_MAX:
        return

    def needed(view: View) -> frozenset[str]:
        unended = view.effects(states=_UNENDED)
        bound = {str(stored_member(one.binding, "revision")) for one in unended if not one.replayed}
        return frozenset({in_force(view) or "", *bound})

    forget_snapshots(places, ledger.read(needed))


__all__ = [
    "UNACTIVATED",
    "BeforeMoved",
    "Change",
    "activate_first",
    "activation_step",
    "commit_change",
    "common_of",
    "forget_old",
    "opening_terms",
]
