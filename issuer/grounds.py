"""What is in force, told without opening an issuer: the revision's own files, or what keys and ledger alone still tell.

Rules: POL-07 (files on disk are a draft, and a draft decides neither sinks nor caller nor bounds), LED-04 (a broken
draft stops neither a check nor a backup), SEC-02 (who calls is told by what is in force). In order:
  1. the ledger tells the revision in force   2. its files are read from their copy, or from the disk where those are,
  byte for byte, what was activated   3. where neither can be read nobody has a name: sinks and mode are what the ledger
  has on record, and bounds are not known.
A ledger in which none was ever activated takes the files on disk: they were in force until then.
Next: `issuer.unopened` asks who may; `issuer.backup`, `issuer.restore` and `issuer.commands` go by it.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from audit import Sink
from audit.comparison import span_says
from issuer.caller import Caller, local_caller, nameless_caller
from issuer.checking import registered
from issuer.errors import SetupError
from issuer.house import ID_SHOWN
from issuer.look import open_to_look
from issuer.places import Places
from issuer.profile import Profile, ProfileRefused
from issuer.revised import in_force
from issuer.revisions import NO_REVISION, OwnerFiles, load_snapshot, read_draft
from issuer.sealing import KeyRing
from issuer.sink_places import stood
from issuer.terms import profile_in
from issuer.trail import activations
from ledger.errors import Fault, LedgerUnavailable
from ledger.port import Ledger, View

_LAST_SPANS: Final = 256
"""How many of the newest spans are asked for the mode, where no file tells it."""

UNREAD: Final = "The owner's files that are in force cannot be read, so this rests on keys and ledger alone."


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What an act without an open issuer goes by.

    Attributes:
        ledger_id: empty where the ledger cannot be read.
        epoch: that of the ledger, 0 where it cannot be read.
        revision: the digest in force; None where there is none, or where it cannot be read.
        files: its files; None where they cannot be read, or none was ever activated.
        profile: what they say; None where nothing says it.
        is_former: whether none is in force since a restore, and these are the files of the one before: they say who may
            activate the next, and no policy of theirs is in force.
        told_mode: the mode that the newest span tells; empty where none does.
        is_strict: strictness that something else than the profile demands; tests alone do yet.
    """

    ledger_id: str = ""
    epoch: int = 0
    revision: str | None = None
    files: OwnerFiles | None = None
    profile: Profile | None = None
    is_former: bool = False
    told_mode: str = ""
    is_strict: bool = False

    @property
    def issuer(self) -> str:
        """The issuer's name, as far as it is known, with the first digits of its ledger id."""
        name = "issuer" if self.profile is None else self.profile.name
        return f"{name}/{self.ledger_id[ID_SHOWN]}" if self.ledger_id else name

    @property
    def mode(self) -> str:
        """`strict` or `ordinary`; empty where nothing tells (OPR-03)."""
        if self.is_strict:
            return "strict"
        return self.told_mode if self.profile is None else self.profile.mode

    @property
    def caller(self) -> Caller:
        """Whoever's account this is, by what is in force; without that it has no name."""
        return nameless_caller() if self.profile is None else local_caller(self.profile)

    @property
    def unread(self) -> str:
        """The sentence to add where no file tells what is in force; empty where one does."""
        return UNREAD if self.profile is None else ""


def ground_in(places: Places, ledger: Ledger | None, *, is_strict: bool = False) -> Ground:
    """Return what is in force in a ledger; None stands for one that cannot be opened."""
    if ledger is None:
        return Ground(is_strict=is_strict)
    try:
        revision, epoch = ledger.read(lambda view: (in_force(view), view.head().epoch))  # 1
    except Fault:
        return Ground(ledger_id=ledger.ledger_id, is_strict=is_strict)
    is_former = revision == NO_REVISION
    if revision is None:
        files, profile = None, _draft_profile(places)
    else:
        files, profile = _activated(places, _former(ledger) if is_former else revision)
    return Ground(
        ledger_id=ledger.ledger_id,
        epoch=epoch,
        revision=revision,
        files=files,
        profile=profile,
        is_former=is_former,
        told_mode="" if profile is not None else _told_mode(ledger),  # 3
        is_strict=is_strict,
    )


def _former(ledger: Ledger) -> str:
    """Return the last revision that was activated before a restore put it out of force, as the trail tells it."""
    with suppress(Fault):
        told = [
            one.revision for one in ledger.read(activations) if one.revision not in {None, "", NO_REVISION}
        ]
        return str(told[-1]) if told else NO_REVISION
    return NO_REVISION


def _draft_profile(places: Places) -> Profile | None:
    with suppress(ProfileRefused, SetupError, OSError, ValueError):
        return profile_in(read_draft(places, policies=False), places)
    return None


def _activated(places: Places, revision: str) -> tuple[OwnerFiles | None, Profile | None]:
    files = files_of(places, revision)  # 2
    with suppress(ProfileRefused):
        return files, None if files is None else profile_in(files, places)
    return files, None


def files_of(places: Places, revision: str) -> OwnerFiles | None:
    """Return the files of a revision from its copy, or from the disk where they are the same; None for neither."""
    with suppress(LedgerUnavailable):
        return load_snapshot(places, revision)
    with suppress(ProfileRefused, SetupError, OSError, ValueError):
        found = read_draft(places)
        return found if found.digest == revision else None
    return None


def _told_mode(ledger: Ledger) -> str:
    def newest(view: View) -> str:
        spans = view.spans_after(max(0, view.head().sequence - _LAST_SPANS), limit=_LAST_SPANS)
        told = [str(mode) for span in spans if (mode := span_says(span.body).get("permit.mode"))]
        return told[-1] if told else ""

    with suppress(Fault):
        return ledger.read(newest)
    return ""


@contextmanager
def looked_at(places: Places, ring: KeyRing) -> Iterator[Ledger | None]:
    """Give the ledger to look at, be it damaged; None where it cannot be opened."""
    try:
        ledger = open_to_look(places, ring, tolerant=True)
    except Fault:
        yield None
        return
    try:
        yield ledger
    finally:
        ledger.close()


def sinks_in_force(profile: Profile | None, ledger: Ledger) -> tuple[Sink, ...]:
    """Return the sinks that ledger and profile in force both have; without a profile, every one of the ledger's."""
    return registered(ledger) if profile is None else stood(profile, ledger)[0]


__all__ = ["UNREAD", "Ground", "files_of", "ground_in", "looked_at", "sinks_in_force"]
