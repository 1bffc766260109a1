"""The files on disk against the revision in force: which of them differ, told without reading them where none changed.

Rules: POL-07 (files on disk are a draft until they are activated, and an owner should not forget that). It decides
nothing and nothing rests on it: what is remembered is only that a look has found no difference.
"""

import json
import os
from contextlib import suppress
from hashlib import sha256
from typing import Final

from issuer.places import PROFILE_NAME, Places
from issuer.policy_files import POLICY_BYTES_MAX, POLICY_SUFFIX
from issuer.profile.limits import REGISTRY_BYTES_MAX
from issuer.revisions import POLICIES, load_snapshot
from ledger.errors import LedgerUnavailable

_REMEMBERED: Final = ".same"
_BYTES_MAX: Final = 256 * 1024
"""Bytes of what is remembered: a line for each file, of which a profile cannot name more."""

Seen = list[list[object]]
"""Of each file: name, inode, size, and the instants of its last change, as the system tells them."""


def differing_files(places: Places, revision: str) -> tuple[str, ...]:
    """Return the names of the owner's files that are not as in `revision`, sorted; empty where that cannot be told."""
    known = _remembered(places, revision)
    if known is not None and known == _look(places, [str(one[0]) for one in known]):
        return ()
    try:
        files = load_snapshot(places, revision).files
    except LedgerUnavailable:
        return ()
    seen = _look(places, list(files))
    told = {name: sha256(data).digest() for name, data in files.items()}
    names = (str(one[0]) for one in seen)
    found = tuple(name for name in names if told.get(name) != _digest(places, name))
    if not found:
        _remember(places, revision, seen)
    return found


def _look(places: Places, names: list[str]) -> Seen:
    """Look at each named file, and at each policy that is there now."""
    with suppress(OSError):
        there = os.listdir(places.policies)  # noqa: PTH208 - names are enough here
        names = [*names, *(POLICIES + name for name in there if name.endswith(POLICY_SUFFIX))]
    seen: Seen = []
    for name in sorted(set(names)):
        try:
            found = os.stat(_path(places, name))  # noqa: PTH116 - one system call a file, for every command
            seen.append([name, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns])
        except OSError:
            seen.append([name, 0, 0, 0, 0])
    return seen


def _path(places: Places, name: str) -> str:
    return str(places.profile if name == PROFILE_NAME else places.folder / name)


def _digest(places: Places, name: str) -> bytes:
    path = _path(places, name)
    if not os.path.isfile(path):  # noqa: PTH113 - a name, not a path; and opening a pipe would wait for a writer
        return b""
    with suppress(OSError), open(path, "rb") as file:  # noqa: PTH123 - a name, not a path
        return sha256(file.read(max(REGISTRY_BYTES_MAX, POLICY_BYTES_MAX) + 1)).digest()
    return b""


def _remembered(places: Places, revision: str) -> Seen | None:
    with suppress(OSError, ValueError, KeyError, TypeError):
        with (places.revisions / _REMEMBERED).open("rb") as file:
            said = json.loads(file.read(_BYTES_MAX))
        if said["revision"] == revision and type(said["seen"]) is list:
            return [list(one) for one in said["seen"]]
    return None


def _remember(places: Places, revision: str, seen: Seen) -> None:
    with suppress(OSError):  # then the files are read again next time
        fresh = places.revisions / f"{_REMEMBERED}.{os.getpid()}"
        fresh.write_text(json.dumps({"revision": revision, "seen": seen}), encoding="utf-8")
        fresh.replace(places.revisions / _REMEMBERED)


__all__ = ["differing_files"]
