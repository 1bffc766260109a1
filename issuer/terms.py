"""The owner's terms: profile, policies, registries, read together; and whether the files have changed since.

Rules: POL-04 (invalid terms are refused as a whole, and the previous good ones keep serving), POL-05 (permission is
asked under the current terms, in a process that lives long as well), EFF-12 and OPR-02 (a changed registry or operation
voids its permits: digests that enter bindings follow from what is read here).
Activation as an audited act of an owner comes later (POL-07). Next: `issuer.wiring` puts the terms into a house.
"""

import functools
import os
import threading
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from issuer.credentials import credential_reader
from issuer.errors import SetupError
from issuer.house import House
from issuer.operations.registry import Handed, Operation, all_units, build_catalogue, build_operations
from issuer.places import Places
from issuer.policy_files import POLICY_SUFFIX, read_policies
from issuer.profile import Profile, ProfileRefused, load_profile
from issuer.sealing import open_key_ring
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


def load_policies(profile: Profile, places: Places, *, reading: bool = False) -> tuple[Bundle, Directory]:
    """Return bundle and directory, or refuse the bundle as a whole (POL-04).

    With `reading` the owner's policies are not looked at and nothing is permitted: what is on record can be read while
    they are broken (LED-04).

    Raises:
        BundleRefused, EngineUnfit, SetupError: nothing of it is used.
    """
    catalogue = build_catalogue(profile)
    if reading:
        return load_bundle(_CLOSED, catalogue), build_directory(profile, catalogue)
    _prove_engine()
    return load_bundle(read_policies(places.policies), catalogue), build_directory(profile, catalogue)


def read_terms(places: Places, *, reading: bool = False, adapters: Handed = MappingProxyType({})) -> Terms:
    """Read profile, policies and registries, or refuse them as a whole.

    `adapters` are an embedding host's, by name; with `reading` no code of a third party is loaded.

    Raises:
        ProfileRefused, BundleRefused, EngineUnfit, SetupError: nothing of it is used.
    """
    profile = load_profile(places.profile)
    bundle, directory = load_policies(profile, places, reading=reading)
    operations = build_operations(
        profile,
        folder=places.folder,
        credentials=credential_reader(
            places.credentials, functools.cache(lambda: open_key_ring(places.keys))
        ),
        adapters=None if reading else adapters,
    )
    return Terms(
        profile=profile,
        bundle=bundle,
        directory=directory,
        operations=operations,
        units=all_units(profile),
    )


Seen = tuple[tuple[str, int, int, int, int], ...]
"""Of each file of the owner: name, inode, size, and the instants of its last change, as the system tells them."""


def _registry_files(places: Places) -> list[Path]:
    """Return the registry files that the profile names; none where it cannot be read."""
    try:
        tables = tomllib.loads(places.profile.read_text(encoding="utf-8")).get("registry", {})
        return [places.folder / str(table["file"]) for table in tables.values()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def _look(paths: list[Path]) -> Seen:
    seen = []
    for path in paths:
        try:
            found = os.stat(path)  # noqa: PTH116 - one system call a file, for every command
        except OSError:
            seen.append((str(path), 0, 0, 0, 0))
            continue
        seen.append((str(path), found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns))
    return tuple(seen)


def look_at_terms(places: Places) -> Seen:
    """Return what tells whether any file of the owner has changed: a look at each, without reading the policies."""
    try:
        names = sorted(os.listdir(places.policies))  # noqa: PTH208 - names are enough here
    except OSError:
        names = []
    cedar = [places.policies / name for name in names if name.endswith(POLICY_SUFFIX)]
    return _look([places.profile, *cedar, *_registry_files(places)])


class CurrentTerms:
    """A house under the terms that are in force now: read again as soon as a file of the owner has changed."""

    def __init__(self, house: House, places: Places, seen: Seen, adapters: Handed) -> None:
        """Begin with the house as it was opened; `seen` is a look from before its terms were read."""
        self._adapters = adapters
        self._house = house
        self._places = places
        self._turn = threading.Lock()
        self._seen = seen

    def house(self) -> House:
        """Return the house under the terms in force.

        Terms that cannot be used are not used: the previous good ones keep serving (POL-04), until the files change
        once more. Sinks are not changed by an edit; they stay where they were registered.
        """
        with self._turn:
            seen = look_at_terms(self._places)
            if seen != self._seen:
                self._seen = seen
                self._take_over()
            return self._house

    def _take_over(self) -> None:
        try:
            terms = read_terms(self._places, adapters=self._adapters)
        except (ProfileRefused, BundleRefused, EngineUnfit, SetupError, ValueError):
            return
        if terms.profile.audit.sinks.keys() != self._house.profile.audit.sinks.keys():
            return
        self._house = replace(
            self._house,
            profile=terms.profile,
            bundle=terms.bundle,
            directory=terms.directory,
            operations=terms.operations,
            units=terms.units,
        )
