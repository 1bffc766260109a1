"""Since when a row of the owner's registry is exactly as it is: told by the activations of the trail and their copies.

Rules: APP-02 (an account that was changed an hour ago is what an approver must notice), POL-07 (what was in force is
told by the ledger, and each copy is proven by its digest), LED-07. In order:
  1. the activation that put the effect's revision in force   2. back from it without a gap, one activation at a time,
  as long as the one before had the same row   3. where that one had another row or none, the row is since then; where
  nobody can say what was before, it is since then or before.
A pure function of the trail up to the effect's preparation and of the copies. What a copy says never changes, so it is
remembered by digest in this process: a row as its hash, and never its text.
Next: `issuer.flow.statements` puts it into a statement.
"""

import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from issuer.approving.statement import Since
from issuer.places import PROFILE_NAME, Places
from issuer.profile import Registry, read_registry, registries_declared
from issuer.revisions import digests_of, load_file
from issuer.trail import Changed, activations_before
from ledger.canonical import canonical_bytes
from ledger.errors import LedgerUnavailable
from ledger.model import InstantMs
from ledger.port import View

WALK_MAX: Final = 32
"""Activations that are looked back: half a year of one a week, and bounded work where somebody activates all day."""

COPIES_MAX: Final = 256
"""Copies whose manifests and profiles are remembered: as many as are kept on disk, and some."""

TABLES_MAX: Final = WALK_MAX + 8
"""Different registry files whose rows are remembered: all that one walk can meet. One of 10,000 rows takes 1 MiB."""

K = TypeVar("K")
T = TypeVar("T")
Rows = frozenset[bytes]


class _Remembered(Generic[K, T]):
    """The latest values that were made, by key; one that could not be made is not remembered."""

    def __init__(self, most: int) -> None:
        """Keep at most `most`."""
        self._most = most
        self._held: dict[K, T] = {}
        self._turn = threading.Lock()

    def value(self, key: K, make: Callable[[], T]) -> T:
        """Return the value of a key, made where it is not known."""
        with self._turn:
            if key in self._held:
                self._held[key] = value = self._held.pop(key)  # used last
                return value
        value = make()
        with self._turn:
            self._held[key] = value
            while len(self._held) > self._most:
                del self._held[next(iter(self._held))]
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class _Declared:
    """What a profile declares of one registry."""

    file: str
    key: str
    fields: tuple[str, ...]


_digests: Final[_Remembered[tuple[str, str], Mapping[str, str]]] = _Remembered(COPIES_MAX)
_declared: Final[_Remembered[str, Mapping[str, _Declared]]] = _Remembered(COPIES_MAX)
_tables: Final[_Remembered[tuple[str, _Declared], Rows]] = _Remembered(TABLES_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A row that a payload chose: the registry's name in the profile, and every column with the key's."""

    registry: str
    row: Mapping[str, str]


def activations_until(view: View, sequence: int) -> tuple[Changed, ...]:
    """Return the activations before a place in the trail, the latest first: as many as are looked back."""
    return tuple(activations_before(view, sequence, limit=WALK_MAX))


def since(
    places: Places, activations: Iterable[Changed], chosen: Chosen, *, revision: str, at_ms: InstantMs
) -> Since:
    """Return since when a row has been as it is, for an effect that was prepared under `revision` at `at_ms`."""
    wanted = _row(chosen.row)
    found = Since(at_ms=at_ms, revision=revision, or_before=True)
    expected, is_first = revision, True
    for one in activations:
        if one.revision != expected:  # a gap: something else was in force than the trail goes on with
            break
        if not is_first:
            try:
                was_there = wanted in _rows(places, one.revision, chosen.registry)
            except (LedgerUnavailable, ValueError):  # the copy is gone, or this release cannot read it
                break
            if not was_there:
                return Since(at_ms=found.at_ms, revision=found.revision, or_before=False)
        found = Since(at_ms=one.at_ms, revision=one.revision, or_before=True)
        expected, is_first = one.before, False
    return found


def _rows(places: Places, revision: str, name: str) -> Rows:
    """Return the rows of one registry of a revision; empty where it has no such registry.

    Raises:
        LedgerUnavailable: its copy cannot be read.
        ValueError: it is not what this release reads.
    """
    digests = _digests.value((str(places.revisions), revision), lambda: digests_of(places, revision))
    profile = digests.get(PROFILE_NAME, "")
    declared = _declared.value(profile, lambda: _declarations(places, revision)).get(name)
    if declared is None:
        return frozenset()
    return _tables.value(
        (digests.get(declared.file, ""), declared), lambda: _table(places, revision, name, declared)
    )


def _declarations(places: Places, revision: str) -> Mapping[str, _Declared]:
    sources = registries_declared(load_file(places, revision, PROFILE_NAME))
    return {
        name: _Declared(file=source.file, key=source.key, fields=tuple(source.fields))
        for name, source in sources.items()
    }


def _table(places: Places, revision: str, name: str, declared: _Declared) -> Rows:
    source = registries_declared(load_file(places, revision, PROFILE_NAME))[name]
    read = read_registry(name, source, load_file(places, revision, declared.file))
    if not isinstance(read, Registry):
        raise ValueError("a registry of this copy is not one that this release reads")  # noqa: TRY004 - findings, not a type
    return frozenset(map(_row, read.rows.values()))


def _row(row: Mapping[str, str]) -> bytes:
    return hashlib.sha256(canonical_bytes(dict(row))).digest()


__all__ = ["WALK_MAX", "Chosen", "activations_until", "since"]
