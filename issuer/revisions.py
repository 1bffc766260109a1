"""The owner's files as one revision: profile, policies, registries and people's keys under one digest; and its copies.

Rules: POL-07 (what is in force was activated, and nobody edits it), POL-04 (used as a whole or not at all), LED-01 (a
copy is durable before the ledger refers to it), LED-06 (a copy is proven by its digest each time it is read, so whoever
can write its folder gains nothing).
A copy is a folder named after the digest: `manifest` lists names and digests, each file has its number.
The files beside the profile are a draft. What they say is judged by `issuer.terms`.
Next: `issuer.activation` puts a revision in force.
"""

import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from issuer.errors import SetupError
from issuer.ids import random_bytes
from issuer.places import PROFILE_NAME, Places
from issuer.policy_files import read_policy_files
from issuer.profile import ProfileRefused, load_profile
from issuer.profile.limits import REGISTRY_BYTES_MAX
from issuer.sealing.private_files import (
    Flaw,
    create_folder,
    opened_folder,
    read_file,
    sync,
    write_new_file,
)
from ledger.canonical import canonical_bytes, digest, parse_strict
from ledger.errors import LedgerUnavailable, Malformed

SNAPSHOTS_MAX: Final = 200
"""Copies that are kept: years of changes, and at most as many megabytes for all but the largest registries."""

PREFIX_DIGITS_MIN: Final = 8
"""Digits of a digest that name a revision to a person, as `revisions` shows them at least."""

POLICIES: Final = "policies/"
_DOMAIN: Final = "permit-issuer/revision/v1"
_DIGEST: Final = re.compile(r"[0-9a-f]{64}\Z")
_MANIFEST: Final = "manifest"
_MANIFEST_BYTES_MAX: Final = 1024 * 1024
_FRESH: Final = ".new-"
_STALE_SECONDS: Final = 3600.0
"""Age from which a copy that was begun is one that nobody goes on with."""

_NEXT: Final = "Look at `issuer revisions`, and run `issuer activate` to put a revision in force."


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerFiles:
    """The bytes of every file of one revision, by name: as the profile writes it, and `policies/NAME` for policies."""

    files: Mapping[str, bytes]

    @property
    def manifest(self) -> bytes:
        """Name and SHA-256 of each file, one canonical line each, by name."""
        lines = (canonical_bytes([name, sha256(data).hexdigest()]) for name, data in self.files.items())
        return b"\n".join(sorted(lines))

    @property
    def digest(self) -> str:
        """The revision: SHA-256 over the manifest in lower-case hex."""
        return digest(_DOMAIN, self.manifest).hex()

    @property
    def policies(self) -> Mapping[str, bytes]:
        """The Cedar files by their own names."""
        named = {name.removeprefix(POLICIES): data for name, data in self.files.items() if _is_policy(name)}
        return MappingProxyType(named)

    def text(self, name: str) -> str:
        """Return one file as text.

        Raises:
            FileNotFoundError: the revision has no such file.
            UnicodeDecodeError: it is not UTF-8.
        """
        try:
            return self.files[name].decode("utf-8")
        except KeyError:
            raise FileNotFoundError(2, "No such file in this revision", name) from None

    def differing(self, other: "OwnerFiles | None") -> tuple[str, ...]:
        """Return the names of files that are not the same in both, sorted; all of them where there is no other."""
        others: Mapping[str, bytes] = {} if other is None else other.files
        names = self.files.keys() | others.keys()
        return tuple(sorted(name for name in names if self.files.get(name) != others.get(name)))


def _is_policy(name: str) -> bool:
    return name.startswith(POLICIES) and name.endswith(".cedar")


NO_REVISION: Final = digest(_DOMAIN, b"none").hex()
"""What stands for a revision where none may serve until an owner activates one; no files have this digest."""


def read_draft(places: Places, *, policies: bool = True) -> OwnerFiles:
    """Read the files of the owner as they lie on disk, each once: what is judged is what the digest is over.

    Without `policies` those are left out, and what is read is no revision, but enough to read by (LED-04).

    Raises:
        ProfileRefused: the profile, a registry or a key file cannot be used; with every finding.
        SetupError: the policies cannot be read, or a file changed while it was read.
    """
    files: dict[str, bytes] = {}

    def keep(name: str, data: bytes) -> None:
        if files.setdefault(name, data) != data:
            say = f"The file {name} changed while it was read, or two files go by that name; run it again."
            raise SetupError("files_changed", say)

    profile = iter((PROFILE_NAME,))
    load_profile(
        places.profile, keep=lambda name, text: keep(next(profile, None) or name, text.encode("utf-8"))
    )
    for name, data in read_policy_files(places.policies).items() if policies else ():
        keep(POLICIES + name, data)
    return OwnerFiles(files=MappingProxyType(dict(sorted(files.items()))))


def keep_snapshot(places: Places, files: OwnerFiles) -> bool:
    """Store a durable copy of a revision, or prove the one that is there; say whether it had to be made.

    One that was edited or is incomplete is taken away and made anew.

    Raises:
        LedgerUnavailable: it cannot be stored.
    """
    revision, folder = files.digest, places.revisions
    try:
        create_folder(folder)
        if os.path.lexists(folder / revision):
            try:
                load_snapshot(places, revision)
            except LedgerUnavailable:
                (folder / revision).rename(folder / f"{_FRESH}broken-{random_bytes(8).hex()}")
            else:
                os.utime(folder / revision)  # used again, so it is none of the oldest
                return False
        _written(folder, files)
    except Flaw as fault:
        raise LedgerUnavailable("revision_unwritable", _unwritable(fault.fault.value)) from None
    except OSError as fault:
        raise LedgerUnavailable(
            "revision_unwritable", _unwritable(fault.strerror or "unknown reason")
        ) from None
    return True


def _unwritable(why: str) -> str:
    return f"The copy of this revision cannot be stored ({why}), so it was not activated."


def _written(folder: Path, files: OwnerFiles) -> None:
    """Write the copy under another name, and give it its own once every byte is durable."""
    fresh = folder / f"{_FRESH}{random_bytes(8).hex()}"
    create_folder(fresh)
    try:
        with opened_folder(fresh) as inside:
            # In the manifest's order, in which they are read: it is that of its lines, not that of the names alone.
            for number, line in enumerate(files.manifest.split(b"\n")):
                name, _told = _entry(line)
                write_new_file(inside, _place(number, name), files.files[name])
            write_new_file(inside, _MANIFEST, files.manifest)
            sync(inside)
        try:
            fresh.rename(folder / files.digest)
        except OSError:
            if not (folder / files.digest).is_dir():
                raise
            shutil.rmtree(fresh, ignore_errors=True)  # another process stored the same bytes
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    with opened_folder(folder) as inside:
        sync(inside)


_UNPLAIN: Final = re.compile(r"[^A-Za-z0-9._-]")


def _place(number: int, name: str) -> str:
    """Return under which name a file lies in its copy: names of the owner may lead out of any folder."""
    return f"{number:04d}.{_UNPLAIN.sub('_', name.rpartition('/')[2])[-64:]}"


def load_snapshot(places: Places, revision: str) -> OwnerFiles:
    """Read the copy of a revision, and prove every byte of it.

    Raises:
        LedgerUnavailable: `revision_open`, where none is in force; `revision_missing`; `revision_broken`.
    """
    try:
        with _opened_copy(places, revision) as (folder, entries):
            files = {name: _proven(folder, entry, revision) for name, entry in entries.items()}
    except LedgerUnavailable as fault:
        again = _same_draft(places, revision) if fault.reason == "revision_missing" else None
        if again is None:
            raise
        return again
    return OwnerFiles(files=MappingProxyType(files))


def digests_of(places: Places, revision: str) -> Mapping[str, str]:
    """Return name and SHA-256, in lower-case hex, of each file of a revision; no file of it is read.

    Raises:
        LedgerUnavailable: as `load_snapshot`.
    """
    with _opened_copy(places, revision) as (_folder, entries):
        return MappingProxyType({name: entry.told for name, entry in entries.items()})


def load_file(places: Places, revision: str, name: str) -> str:
    """Read one file of the copy of a revision, and prove it.

    Raises:
        LedgerUnavailable: as `load_snapshot`; also where it has no such file, or this one is no text.
    """
    with _opened_copy(places, revision) as (folder, entries):
        return _proven(folder, entries[name], revision).decode("utf-8")


class _Entry(NamedTuple):
    """A line of the manifest: under which name the file lies in the copy, and its SHA-256."""

    place: str
    told: str


def _proven(folder: int, entry: _Entry, revision: str) -> bytes:
    data = read_file(folder, entry.place, bytes_max=REGISTRY_BYTES_MAX, links_max=1)
    if sha256(data).hexdigest() != entry.told:
        raise _broken(revision)
    return data


@contextmanager
def _opened_copy(places: Places, revision: str) -> Iterator[tuple[int, Mapping[str, _Entry]]]:
    """Yield the opened folder of a copy, and its manifest by name of the file, proven.

    Raises:
        LedgerUnavailable: as `load_snapshot`, whatever goes wrong while it is open.
    """
    if revision == NO_REVISION:
        say = "Since the ledger was restored no revision of the owner's files is in force."
        raise LedgerUnavailable("revision_open", f"{say} {_NEXT}")
    if not _DIGEST.match(revision):
        raise _broken(revision)
    try:
        with opened_folder(places.revisions / revision) as folder:
            manifest = read_file(folder, _MANIFEST, bytes_max=_MANIFEST_BYTES_MAX, links_max=1)
            if digest(_DOMAIN, manifest).hex() != revision:
                raise _broken(revision)
            told = [_entry(line) for line in manifest.split(b"\n")]
            yield folder, {name: _Entry(_place(at, name), sha) for at, (name, sha) in enumerate(told)}
    except Flaw as fault:
        if fault.fault.value == "missing" and not fault.name:
            say = f"The copy of the revision {revision[:PREFIX_DIGITS_MIN]} that is in force is gone."
            raise LedgerUnavailable("revision_missing", f"{say} {_NEXT}") from None
        raise _broken(revision) from None
    except (OSError, KeyError, ValueError, TypeError, Malformed):
        raise _broken(revision) from None


def _same_draft(places: Places, revision: str) -> OwnerFiles | None:
    """Return the files as they lie on disk, where they are that revision, byte for byte; None where they are not.

    A copy is lost with the ledger's folder, and what is in force is then still there: the digest proves it.
    """
    try:
        draft = read_draft(places)
    except (ProfileRefused, SetupError):
        return None
    return draft if draft.digest == revision else None


def _entry(line: bytes) -> tuple[str, str]:
    match parse_strict(line):
        case [str(name), str(told)]:
            return name, told
        case _:
            raise TypeError


def _broken(revision: str) -> LedgerUnavailable:
    shown = revision[:PREFIX_DIGITS_MIN] if _DIGEST.match(revision) else "in force"
    say = f"The copy of the revision {shown} is not what was activated."
    return LedgerUnavailable("revision_broken", f"{say} {_NEXT}")


def stored_revisions(places: Places) -> tuple[str, ...]:
    """Return the digests of which a copy is stored, the one that was stored or used last first."""
    try:
        with os.scandir(places.revisions) as entries:
            found = [(entry.stat().st_mtime_ns, entry.name) for entry in entries if _DIGEST.match(entry.name)]
    except OSError:
        return ()
    return tuple(name for _when, name in sorted(found, reverse=True))


def forget_snapshots(places: Places, needed: Collection[str], *, keep: int = SNAPSHOTS_MAX) -> None:
    """Remove the copies beyond the newest `keep`, but none that is `needed`; and what was begun and left behind.

    What cannot be removed stays: it is in nobody's way.
    """
    stored = stored_revisions(places)
    for revision in stored[keep:]:
        if revision not in needed:
            shutil.rmtree(places.revisions / revision, ignore_errors=True)
    for left in places.revisions.glob(f"{_FRESH}*"):
        _forget_stale(left, places.revisions)


def _forget_stale(left: Path, folder: Path) -> None:
    try:
        age = folder.stat().st_mtime - left.stat().st_mtime
    except OSError:
        return
    if age > _STALE_SECONDS:
        shutil.rmtree(left, ignore_errors=True)


__all__ = [
    "NO_REVISION",
    "PREFIX_DIGITS_MIN",
    "SNAPSHOTS_MAX",
    "OwnerFiles",
    "digests_of",
    "forget_snapshots",
    "keep_snapshot",
    "load_file",
    "load_snapshot",
    "read_draft",
    "stored_revisions",
]
