"""`init`: everything an issuer needs beside its profile, made once; a second run changes nothing.

Rules: SEC-03 (keys in a folder of their own, owner only; approver keys are never made here), LED-01 (durable before
it is trusted), POL-07 (what is there is in force), AUD-02 and AUD-03 (each sink is made
and registered, and stays where it was registered).
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from audit import SinkUnavailable
from issuer.activation import activate_first
from issuer.caller import local_caller
from issuer.clock import now_ms
from issuer.errors import SetupError
from issuer.ids import new_key_id, new_ledger_id, random_bytes
from issuer.places import PROFILE_NAME, Places
from issuer.policy_files import POLICY_SUFFIX
from issuer.profile import Profile, load_profile
from issuer.revised import in_force
from issuer.sealing import create_key_ring, create_protected_folder, open_key_ring
from issuer.sealing.authenticator import RingAuthenticator
from issuer.sink_building import goes_to, make_place
from issuer.sink_places import place_digest, wanted_sinks
from issuer.starter import family_files, starter_profile
from issuer.terms import load_policies
from issuer.wiring import current_keys, open_ledger, own_ledger
from ledger.changes import SinkRegistered, Step
from ledger.model import InstantMs, SinkRegistration
from ledger.port import Ledger, Verdict, View
from ledger.sqlite import library_version
from ledger.sqlite.ballast import Ballast
from ledger.sqlite.creation import create_ledger
from ledger.sqlite.schema import SCHEMA_VERSION
from ledger.transitions import Transition, TransitionName
from policies import starter_files

ROOT_BYTES: Final = 32
FOLDER_MODE: Final = 0o700
_SLUG: Final = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What `init` made now, and what was there already; names relative to the folder, sinks in full."""

    issuer: str
    made: tuple[str, ...]
    kept: tuple[str, ...]
    sinks: tuple[str, ...]


class _Progress:
    def __init__(self) -> None:
        self.made: list[str] = []
        self.kept: list[str] = []

    def note(self, what: str, *, made: bool) -> None:
        (self.made if made else self.kept).append(what)


def initialise(folder: Path, *, uid: int, families: Sequence[str] = ()) -> Made:
    """Make an issuer in `folder`, or complete one whose profile is there already.

    `families` are the example families of a new profile; where a profile is there already they are refused, because
    nothing is merged into an owner's file.

    Raises:
        ProfileRefused, BundleRefused, SetupError, Fault: what stands in the way; what is there stays as it is.
    """
    try:
        return _initialised(folder, uid, families)
    except OSError as fault:
        say = f"The folder {folder.name}/ cannot be made or written: {fault.strerror}."
        raise SetupError("folder_unusable", say) from None


def _initialised(folder: Path, uid: int, families: Sequence[str]) -> Made:
    progress = _Progress()
    places = Places((folder / PROFILE_NAME).absolute())
    if families:
        _refuse_owned(places, families)
    folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    if families:
        _write_families(places, uid, families, progress)
    elif not places.profile.exists():
        _write_starter(places, uid, progress)
    else:
        progress.note(PROFILE_NAME, made=False)
    profile = load_profile(places.profile)
    if profile.mode == "strict":
        raise SetupError(
            "strict", "Not supported yet: mode strict needs `issuer serve`. Use ordinary for now."
        )
    load_policies(profile, places)
    _make_folders(places, progress)
    _make_keys(places, progress)
    _keep_out_of_git(places, progress)
    return _make_ledger(places, profile, progress)


def _slug(text: str) -> str:
    slug = _SLUG.sub("-", text.lower()).strip("-") or "issuer"
    # A name begins with a letter, and a folder need not.
    return (slug if slug[0].isalpha() else f"issuer-{slug}")[:64]


def _write_starter(places: Places, uid: int, progress: _Progress) -> None:
    places.profile.write_text(
        starter_profile(name=_slug(places.folder.resolve().name), uid=uid), encoding="utf-8"
    )
    progress.note(PROFILE_NAME, made=True)
    if not places.policies.exists():
        places.policies.mkdir()
        for name, text in starter_files().items():
            (places.policies / name).write_text(text, encoding="utf-8")
            progress.note(f"policies/{name}", made=True)
    notes = places.folder / "outbox" / "notes"
    notes.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    notes.parent.chmod(FOLDER_MODE)
    progress.note("outbox/notes/", made=True)


def _refuse_owned(places: Places, families: Sequence[str]) -> None:
    """Refuse where an owner's file stands in the way of a family's; one that an interrupted run left is none.

    Raises:
        SetupError: `in_the_way`; nothing was made.
    """
    ours = family_files(families)
    owned = [places.profile.name] if os.path.lexists(places.profile) else []
    for name, text in ours.items():
        path = places.folder / name
        if os.path.lexists(path) and not (path.is_file() and path.read_bytes() == text.encode()):
            owned.append(name)
    found = sorted(places.policies.glob(f"*{POLICY_SUFFIX}"))
    owned += [f"policies/{path.name}" for path in found if f"policies/{path.name}" not in ours]
    if owned:
        say = f"{places.folder.name}/ has {owned[0]} already, and --with changes nothing of an owner's"
        raise SetupError("in_the_way", f"{say}: name a new folder.")


def _write_families(places: Places, uid: int, families: Sequence[str], progress: _Progress) -> None:
    """Write the profile of `families` and what stands beside it; the profile last, since it says that all is there."""
    for name, text in family_files(families).items():
        path = places.folder / name
        made = not path.exists()
        path.parent.mkdir(exist_ok=True)
        if made:
            path.write_text(text, encoding="utf-8")
        progress.note(name, made=made)
    text = starter_profile(name=_slug(places.folder.resolve().name), uid=uid, families=families)
    places.profile.write_text(text, encoding="utf-8")
    progress.note(PROFILE_NAME, made=True)


def _make_folders(places: Places, progress: _Progress) -> None:
    made = not places.credentials.exists()
    places.credentials.mkdir(mode=FOLDER_MODE, exist_ok=True)
    progress.note("credentials/", made=made)
    places.ledger_folder.mkdir(mode=FOLDER_MODE, exist_ok=True)  # told of once there is a ledger in it
    made = not places.protected.exists()
    create_protected_folder(places.protected)
    progress.note("protected/", made=made)


_IGNORED: Final = "/keys/\n/credentials/\n/protected/\n/ledger/\n"


def _keep_out_of_git(places: Places, progress: _Progress) -> None:
    """Write a `.gitignore` where there is none: keys, credentials and the ledger belong into no repository."""
    path = places.folder / ".gitignore"
    made = not path.exists()
    if made:
        path.write_text(_IGNORED, encoding="utf-8")
    progress.note(".gitignore", made=made)


def _make_keys(places: Places, progress: _Progress) -> None:
    made = not places.keys.exists()
    if made:
        if places.ledger.exists():
            raise SetupError(
                "keys_gone", "There is a ledger but no keys; bring the keys back, nothing else opens it."
            )
        # Until the ledger is made as well: later, keys without a ledger mean that it was lost (ADM-06).
        places.founding.touch(mode=0o600)
        create_key_ring(
            places.keys,
            root=random_bytes(ROOT_BYTES),
            key_id=new_key_id(),
            ledger_id=new_ledger_id(),
            schema=SCHEMA_VERSION,
        )
    progress.note("keys/", made=made)


def _make_ledger(places: Places, profile: Profile, progress: _Progress) -> Made:
    made = not places.ledger.exists()
    ring = open_key_ring(places.keys) if made else current_keys(places)
    if made:
        if not places.founding.exists():
            raise SetupError(
                "ledger_gone",
                "There are keys, but the ledger that they belong to is gone; bring it back with "
                "`issuer ledger restore FILE`, or begin anew in another folder.",
            )
        create_ledger(
            places.ledger,
            ledger_id=own_ledger(ring, places),
            keys=RingAuthenticator(ring),
            now_ms=now_ms(),
        )
    progress.note("ledger/", made=made)
    Ballast(places.ledger).restore()
    ledger = open_ledger(places, ring)
    try:
        wanted = wanted_sinks(profile, ledger.ledger_id)
        registered = ledger.read(lambda view: view.sinks())
        if not registered:
            for sink in wanted:
                _make_sink(sink, ledger)
            ledger.transact(lambda view, now: _registered(profile, wanted, view, now))
            registered = ledger.read(lambda view: view.sinks())
        if ledger.read(in_force) is None:
            activate_first(places, ledger, operations=False)
        places.founding.unlink(missing_ok=True)
        for sink in registered:
            progress.note(f"sink {sink.name}", made=made)
        return Made(
            issuer=f"{profile.name}/{ledger.ledger_id[4:12]}",
            made=tuple(progress.made),
            kept=tuple(progress.kept),
            sinks=tuple(goes_to(sink) for sink in registered),
        )
    finally:
        ledger.close()


def _make_sink(sink: SinkRegistration, ledger: Ledger) -> None:
    try:
        make_place(sink, ledger.ledger_id)
    except SinkUnavailable as fault:
        # An earlier run may have made the file and stopped before it was registered: its header names our ledger,
        # which every probe checks, so it can be taken as it is.
        if fault.reason != "exists":
            raise


def _registered(
    profile: Profile,
    sinks: Sequence[SinkRegistration],
    view: View,
    _now: InstantMs,
) -> Verdict[None]:
    head = view.head()
    common = {"permit.mode": profile.mode, "permit.caller": local_caller(profile).name}
    first = Step(
        transition=Transition(
            name=TransitionName.LEDGER_CREATED,
            story=head.ledger_id,
            attributes={**common, "permit.sqlite": library_version()},
        ),
    )
    steps = [first] if head.sequence == 0 else []
    for sink in sinks:
        transition = Transition(
            name=TransitionName.SINK_REGISTERED,
            story=head.ledger_id,
            attributes={
                **common,
                "permit.sink.name": sink.name,
                "permit.sink.kind": sink.kind,
                "permit.sink.location_digest": place_digest(sink.location),
            },
        )
        steps.append(Step(transition=transition, changes=(SinkRegistered(sink=sink),)))
    return Verdict(value=None, steps=tuple(steps))
