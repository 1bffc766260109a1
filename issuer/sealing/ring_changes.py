"""Changing a key ring: a new key, one that opens nothing any more, one that is compromised.

Rules: SEC-03 (no downtime; a compromised key's permits are void), PER-02. Each change replaces the whole ring in one
step (`issuer.sealing.ring_file`), under a lock on the folder: of two who change it at once one is told so and changes
nothing. A change that stands already is made no second time, so a command that was interrupted is simply run again.
  rotate            a new active key; the one before opens what it sealed
  retire            an `open_only` key opens no permit any more
  begin_revocation  a new active key, always, and the compromised one opens no permit; its MACs are read once more
  end_revocation    the ring's word on its ledger is the active key's; what the compromised key signed proves nothing
A revocation makes a new key even where another is active: from then on the ledger's head names it, and a copy of the
ring from before the revocation cannot read that head.

What it does not do: sign anything in the ledger anew; between the two ends of a revocation `issuer.commands.keys` has
that done.
"""

import fcntl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from issuer.sealing.errors import KeyForbids, KeysUnavailable, StorageFault
from issuer.sealing.keys import open_key_ring, rebind
from issuer.sealing.private_files import Flaw, opened_folder
from issuer.sealing.ring_file import RING_NAME, Ring, read_ring, write_ring
from issuer.sealing.roots import KEY_ID_MAX, KEYS_MAX, ROOT_BYTES, Key, KeyState
from ledger.errors import Broken

__all__ = ["begin_revocation", "end_revocation", "retire_key", "rotate_key"]

_UNUSABLE = frozenset({KeyState.REVOKING, KeyState.REVOKED})


def rotate_key(folder: Path, *, root: bytes, key_id: int, now_ms: int) -> None:
    """Make `key_id` the active key; the one before is `open_only` from now on. Durable when this returns.

    `root` is 32 random bytes and `key_id` is 1 to 2^32-1 and new in the ring, both drawn by the caller; `now_ms` is the
    instant, in ms since the epoch.

    Raises:
        Broken: a root or key id of the wrong type or size, or one that the ring has.
        KeysUnavailable: the ring does not open, is full, cannot be written, or is being changed by another process.
    """
    new = _new_key(root, key_id, now_ms)
    with _changing(folder) as (descriptor, ring):
        write_ring(descriptor, _changed(ring, _beside(ring.keys, new, now_ms)))


def retire_key(folder: Path, key_id: int, *, now_ms: int) -> bool:
    """Let an `open_only` key open no permit any more; return whether that is new.

    Raises:
        KeyForbids: `unknown`, `active`, or `revoked`.
        KeysUnavailable: as `rotate_key`.
    """
    with _changing(folder) as (descriptor, ring):
        key = _named(ring, key_id)
        if key.state is KeyState.ACTIVE:
            raise KeyForbids("active")
        if key.state in _UNUSABLE:
            raise KeyForbids("revoked")
        if key.state is KeyState.RETIRED:
            return False
        write_ring(descriptor, _changed(ring, _with_state(ring.keys, key_id, KeyState.RETIRED, now_ms)))
        return True


def begin_revocation(folder: Path, key_id: int, *, root: bytes, new_key_id: int, now_ms: int) -> bool:
    """Let a compromised key open no permit, and make `new_key_id` the active one; return whether that is new.

    Where it was begun before, nothing is changed, and no second key is made.

    Raises:
        KeyForbids: `unknown`.
        Broken, KeysUnavailable: as `rotate_key`.
    """
    new = _new_key(root, new_key_id, now_ms)
    with _changing(folder) as (descriptor, ring):
        if _named(ring, key_id).state in _UNUSABLE:
            return False
        keys = _with_state(_beside(ring.keys, new, now_ms), key_id, KeyState.REVOKING, now_ms)
        write_ring(descriptor, _changed(ring, keys))
        return True


def end_revocation(folder: Path, key_id: int, *, now_ms: int) -> bool:
    """Believe nothing any more that a compromised key signed; return whether that is new.

    Raises:
        KeyForbids: `unknown`, or `active` where its revocation was not begun.
        KeysUnavailable: as `rotate_key`.
    """
    with _changing(folder) as (descriptor, ring):
        state = _named(ring, key_id).state
        if state not in _UNUSABLE:
            raise KeyForbids("active")
        if state is KeyState.REVOKED:
            return False
        # The word on the ledger first: a ring whose word is a revoked key's would open for nobody.
        rebind(folder, descriptor, open_key_ring(folder))
        write_ring(descriptor, _changed(ring, _with_state(ring.keys, key_id, KeyState.REVOKED, now_ms)))
        return True


@contextmanager
def _changing(folder: Path) -> Iterator[tuple[int, Ring]]:
    """Yield the opened folder and its ring, alone among all that change it; what goes wrong is the room's error."""
    try:
        # A ring that does not open is not changed: that would hide what is wrong with it.
        before = open_key_ring(folder)
        with opened_folder(folder) as descriptor:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Flaw(StorageFault.BUSY) from None
            ring = read_ring(descriptor)
            fixed = ring.repetition_key_id
            yield (
                descriptor,
                replace(ring, repetition_key_id=before.repetition_key_id if fixed is None else fixed),
            )
    except Flaw as flaw:
        raise KeysUnavailable(flaw.fault, folder / flaw.name) from None
    except OSError:
        raise KeysUnavailable(StorageFault.UNWRITABLE, folder / RING_NAME) from None


def _new_key(root: bytes, key_id: int, now_ms: int) -> Key:
    if type(root) is not bytes or len(root) != ROOT_BYTES:
        raise Broken("A root key is exactly 32 bytes.")
    if type(key_id) is not int or not 1 <= key_id <= KEY_ID_MAX:
        raise Broken("A key id is a whole number from 1 to 2^32-1.")
    return Key(key_id=key_id, state=KeyState.ACTIVE, root=root, since_ms=now_ms)


def _named(ring: Ring, key_id: int) -> Key:
    key = next((key for key in ring.keys if key.key_id == key_id), None)
    if key is None:
        raise KeyForbids("unknown")
    return key


def _beside(keys: Sequence[Key], new: Key, now_ms: int) -> tuple[Key, ...]:
    """Return the keys with a new active one, and the one before as `open_only`."""
    if len(keys) >= KEYS_MAX:
        raise Flaw(StorageFault.TOO_MANY)
    if any(key.key_id == new.key_id or key.root == new.root for key in keys):
        raise Broken("A new key is drawn anew.")
    before = next(key.key_id for key in keys if key.state is KeyState.ACTIVE)
    left = _with_state(keys, before, KeyState.OPEN_ONLY, now_ms)
    return tuple(sorted((*left, new), key=lambda key: key.key_id))


def _with_state(keys: Sequence[Key], key_id: int, state: KeyState, now_ms: int) -> tuple[Key, ...]:
    return tuple(replace(key, state=state, since_ms=now_ms) if key.key_id == key_id else key for key in keys)


def _changed(ring: Ring, keys: tuple[Key, ...]) -> Ring:
    active = next(key.key_id for key in keys if key.state is KeyState.ACTIVE)
    return replace(ring, keys=keys, active_key_id=active, changes=ring.changes + 1)
