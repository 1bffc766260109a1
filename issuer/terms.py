"""The owner's terms: one revision of profile, policies and registries, read together; and which is in force now.

Rules: POL-04 (invalid terms are refused as a whole), POL-05 and POL-07 (permission is asked under the revision in
force, in a process that lives long as well), EFF-12 and OPR-02 (a changed registry or operation voids its permits:
digests that enter bindings follow from what is read here).
What is in force is told by the ledger and read from its copy (`issuer.revisions`); files on disk are a draft.
Next: `issuer.wiring` puts the terms into a house.
"""

import functools
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from audit import Stand
from issuer.credentials import credential_reader
from issuer.errors import SetupError
from issuer.house import House
from issuer.operations.registry import Handed, Operation, all_units, build_catalogue, build_operations
from issuer.places import PROFILE_NAME, Places
from issuer.policy_files import policy_texts, read_policies
from issuer.profile import Profile, ProfileRefused, parse_profile
from issuer.revised import in_force
from issuer.revisions import OwnerFiles, load_snapshot
from issuer.sealing import open_key_ring
from issuer.sink_places import sinks_version, stood
from ledger.errors import Fault, LedgerCorrupt, LedgerUnavailable
from ledger.model import Unit
from policies import (
    ActorFact,
    Bundle,
    BundleRefused,
    Catalogue,
    Directory,
    EngineUnfit,
    PersonFact,
    load_bundle,
    run_canaries,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the owner wrote, accepted as a whole."""

    profile: Profile
    bundle: Bundle
    directory: Directory
    operations: Mapping[str, Operation]
    units: tuple[Unit, ...]


def build_directory(profile: Profile, catalogue: Catalogue) -> Directory:
    """Return who exists, as policies see it."""
    people = tuple(
        PersonFact(name=name, groups=tuple(person.groups), roles=tuple(person.roles))
        for name, person in profile.people.items()
    )
    actors = tuple(
        ActorFact(name=name, groups=tuple(actor.groups), answers_to=actor.answers_to)
        for name, actor in profile.actors.items()
    )
    return Directory(people=people, actors=actors, catalogue=catalogue)


@functools.cache
def _prove_engine() -> None:
    """Run the engine's canaries once in a process: it does not change while it runs, and they cost most of opening.

    Raises:
        EngineUnfit: one of them failed.
    """
    run_canaries()


_CLOSED: Final = {"closed.cedar": '@id("reading-only")\nforbid (principal, action, resource);\n'}
"""What a house that only reads decides by: nothing is permitted."""


def load_policies(profile: Profile, places: Places) -> tuple[Bundle, Directory]:
    """Return bundle and directory of the policies as they lie on disk, or refuse the bundle as a whole (POL-04).

    Raises:
        BundleRefused, EngineUnfit, SetupError: nothing of it is used.
    """
    return _policies(profile, read_policies(places.policies))


def _policies(profile: Profile, texts: Mapping[str, str]) -> tuple[Bundle, Directory]:
    catalogue = build_catalogue(profile)
    _prove_engine()
    return load_bundle(texts, catalogue), build_directory(profile, catalogue)


def _closed(profile: Profile) -> tuple[Bundle, Directory]:
    """Return what permits nothing: what is on record can be read while policies are broken (LED-04)."""
    catalogue = build_catalogue(profile)
    return load_bundle(_CLOSED, catalogue), build_directory(profile, catalogue)


def late_policies(profile: Profile, places: Places, revision: str) -> Bundle:
    """Return the owner's policies for a house that only reads, so that people can be asked about; or none that permits.

    They are read when somebody wants to see what is not their own, and broken ones permit nobody (POL-04).
    """
    try:
        return _policies(profile, policy_texts(load_snapshot(places, revision).policies))[0]
    except (BundleRefused, EngineUnfit, SetupError, LedgerUnavailable, OSError, ValueError):
        return _closed(profile)[0]


def profile_in(files: OwnerFiles, places: Places) -> Profile:
    """Return the profile of a revision; `places` says what its findings are told about.

    Raises:
        ProfileRefused: with every finding.
    """
    text = files.text(PROFILE_NAME)
    return parse_profile(text, where=str(places.profile), registries=files.text)


def terms_of(
    files: OwnerFiles,
    places: Places,
    *,
    reading: bool = False,
    operations: bool = True,
    adapters: Handed = MappingProxyType({}),
) -> Terms:
    """Return the terms that the files of a revision say, or refuse them as a whole.

    Paths in a profile are relative to the folder of the real one. `adapters` are an embedding host's, by name; with
    `reading` nothing is permitted, whatever the policies say, and no code of a third party is loaded. Without
    `operations` none is built: an embedding host that has their adapters may come later.

    Raises:
        ProfileRefused, BundleRefused, EngineUnfit, SetupError, ValueError: nothing of it is used.
    """
    profile = profile_in(files, places)
    bundle, directory = _closed(profile) if reading else _policies(profile, policy_texts(files.policies))
    credentials = credential_reader(places.credentials, functools.cache(lambda: open_key_ring(places.keys)))
    handed = None if reading else adapters
    built: Mapping[str, Operation] = {}
    if operations:
        built = build_operations(profile, folder=places.folder, credentials=credentials, adapters=handed)
    return Terms(
        profile=profile,
        bundle=bundle,
        directory=directory,
        operations=built,
        units=all_units(profile),
    )


def _told_alike(before: Profile, profile: Profile) -> bool:
    """Say whether two profiles say the same of each sink that another program keeps, but for whether it is required.

    One that was built by the other, such as with a bearer that is not that of the tenant any more, is not gone on with.
    """
    old, new = (
        {
            name: sink.model_copy(update={"required": True})
            for name, sink in one.audit.sinks.items()
            if sink.type != "jsonl"
        }
        for one in (before, profile)
    )
    return old == new


UNREAD: Final = "unread"
"""The version of sinks that could not be read: no ledger says it, so they are read again with the next command."""

First = Callable[[], tuple[str, Terms]]
"""Puts the files as they lie there in force where none ever was, and says what is then."""


class CurrentTerms:
    """A house under the revision that is in force now: read again as soon as the ledger tells another."""

    def __init__(
        self,
        house: House,
        places: Places,
        adapters: Handed,
        *,
        first: First | None = None,
    ) -> None:
        """Begin with the house as it was opened; `first` activates where none ever was, None where it is only read."""
        self._first = first
        self._adapters = adapters
        self._house = house
        self._places = places
        self._reading = first is None
        self._turn = threading.Lock()
        self.trouble: LedgerUnavailable | LedgerCorrupt | None = None
        """Why the revision in force cannot be used here, where that is so: then nothing is decided."""

    def house(self) -> House:
        """Return the house under the revision in force.

        Where that one cannot be used here, the house stays under the one before; it reads and records, and the ledger
        refuses each of its decisions under the lock (POL-07).
        """
        with self._turn:
            try:
                active, version = self._house.ledger.read(lambda view: (in_force(view), sinks_version(view)))
            except Fault:  # whatever is asked for next meets it too, and says so
                return self._house
            if active != (self._house.revision or None):
                self._take_over(active)
            elif active is None and self._first is not None:
                self._take_over(None)
            if version != self._house.delivery.stand.version:
                self._take_sinks(self._house.profile)
            return self._house

    def _read(self, active: str | None) -> tuple[str, Terms]:
        if active is None:
            if self._first is None:
                raise LedgerUnavailable("revision_open", "No revision was ever activated here.")
            return self._first()
        files = load_snapshot(self._places, active)
        return active, terms_of(files, self._places, reading=self._reading, adapters=self._adapters)

    def _take_sinks(self, profile: Profile) -> None:
        """Go on with the sinks that the ledger has now, under this profile; where that cannot be read, with none.

        Those that stay where they are keep what is known of them.
        """
        house = self._house
        try:
            sinks, stand = stood(profile, house.ledger, house.sink_means)
        except (Fault, SetupError) as fault:
            house.delivery.replace(
                house.further_sinks, Stand(version=UNREAD, trouble=("*", f"{fault.message} Nothing is sent."))
            )
            return
        if stand == house.delivery.stand and _told_alike(house.profile, profile):
            house.delivery.require({sink.name: sink.required for sink in sinks})
        else:
            house.delivery.replace((*sinks, *house.further_sinks), stand)

    def _take_over(self, active: str | None) -> None:
        try:
            revision, terms = self._read(active)
        except (LedgerUnavailable, LedgerCorrupt) as fault:
            self.trouble = fault
            return
        except (ProfileRefused, BundleRefused, EngineUnfit, SetupError, ValueError):
            say = "The revision in force cannot be used by this process; start it anew, and look at `issuer doctor`."
            self.trouble = LedgerUnavailable("revision_unusable", say)
            return
        self.trouble = None
        # Before anything is decided under it: an admission waits for the sinks of its own revision (ADM-03).
        self._take_sinks(terms.profile)
        self._house.ledger.noise_bytes_max = terms.profile.ledger.capacity.noise_bytes_max
        self._house = replace(
            self._house,
            ledger=self._house.ledger.under(revision),
            revision=revision,
            profile=terms.profile,
            bundle=terms.bundle,
            directory=terms.directory,
            operations=terms.operations,
            units=terms.units,
            late_bundle=(
                functools.cache(functools.partial(late_policies, terms.profile, self._places, revision))
                if self._reading
                else None
            ),
        )
