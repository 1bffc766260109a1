"""A key ring on the disk: one file a key as it was made, and one file for all of them once it was changed.

Rules:
1. A ring that was never changed is one file a key, `<key id as 8 hex digits>.key`: one line `v1 <key id> <state>
   <base64 of 32 bytes>`. There is one spelling for each key.
2. The first change puts the whole ring into the file `ring`, and every later one replaces that file in one step:
   whoever reads meets one ring or the other, and a kill leaves one of them, whole (SEC-03). It is
       `v2 <changes> <key id that counts repetition>`, then
       `<key id> <state> <ms since the epoch, or -> <base64 of 32 bytes>` for each key, by id, then
       `mac <active key id> <HMAC-SHA256 in hex>`
   under the active key's `marks` subkey, so that a file that was edited, cut or put together is refused.
3. Beside `ring`, the key files of rule 1 say nothing any more. A kill leaves them for the next change to remove; one
   that says another root than the ring is a stranger, and refuses it. `ring.new` is a change that was never made.

What it does not do: decide what may change.
Next: `issuer.sealing.keys` opens it, `issuer.sealing.ring_changes` changes it.
"""

import base64
import binascii
import hmac
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from issuer.sealing.errors import StorageFault
from issuer.sealing.private_files import Flaw, list_names, read_file, sync, write_new_file
from issuer.sealing.roots import KEYS_MAX, ROOT_BYTES, Key, KeyState, Purpose, derived

__all__ = ["BINDING_NAME", "DRAFT_NAME", "RING_NAME", "Ring", "key_line", "read_ring", "write_ring"]

BINDING_NAME: Final = "ledger"
RING_NAME: Final = "ring"
DRAFT_NAME: Final = "ring.new"

_OWN: Final = frozenset({BINDING_NAME, DRAFT_NAME, RING_NAME})

_LINE_BYTES_MAX: Final = 128
"""The longest legal line of a key file has 66 bytes; the rest is room to see that it is too long without reading it."""

_RING_BYTES_MAX: Final = 8 * 1024
"""64 keys with the longest lines, of 82 bytes each, and the two lines around them, of at most 94."""

_NAME: Final = re.compile(r"([0-9a-f]{8})\.key")
_LINE: Final = re.compile(rb"v1 ([0-9a-f]{8}) (active|open_only|retired) ([A-Za-z0-9+/]{43}=)\n")
_FIRST: Final = re.compile(rb"v2 ([1-9][0-9]{0,8}) ([0-9a-f]{8})\n")
_KEY: Final = re.compile(
    rb"([0-9a-f]{8}) (active|open_only|retired|revoking|revoked) (-|0|[1-9][0-9]{0,15}) ([A-Za-z0-9+/]{43}=)\n"
)
_LAST: Final = re.compile(rb"mac ([0-9a-f]{8}) ([0-9a-f]{64})\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """A ring as its files say it, judged: one key is active, and no two have one root.

    Attributes:
        keys: by ascending id.
        active_key_id: the key that seals.
        repetition_key_id: the key that counts repetition, whatever is active; None where no change has fixed it yet.
        changes: how often the ring was changed; 0 for one that never was.
    """

    keys: tuple[Key, ...]
    active_key_id: int
    repetition_key_id: int | None
    changes: int


def key_line(key_id: int, root: bytes) -> bytes:
    """Return the file of a first key, which is active."""
    return b" ".join((b"v1", f"{key_id:08x}".encode(), b"active", base64.b64encode(root))) + b"\n"


def read_ring(folder: int) -> Ring:
    """Read the ring in an opened folder, or refuse it as a whole.

    Raises:
        Flaw: anything about it is not as the rules say.
    """
    try:
        names = [name for name in list_names(folder) if name not in {BINDING_NAME, DRAFT_NAME}]
        if RING_NAME not in names:
            return _first_ring(folder, names)
    except Flaw as flaw:
        # The first change of a ring takes its key files away, and may do so between the list and the look.
        if flaw.fault is not StorageFault.MISSING or RING_NAME not in _names(folder):
            raise
    except OSError:
        raise Flaw(StorageFault.UNREADABLE) from None
    ring = _parsed(read_file(folder, RING_NAME, bytes_max=_RING_BYTES_MAX, links_max=1))
    _judge_left_over(folder, [name for name in _names(folder) if name not in _OWN], ring)
    return ring


def write_ring(folder: int, ring: Ring) -> None:
    """Put `ring` in the place of the one in the folder, in one step, durable when this returns.

    1. a draft, synced  2. its name  3. the folder synced  4. the key files that it took over are removed, and the
    folder synced. A kill before 2 leaves the old ring, one after it the new one.

    Raises:
        OSError: as the system reports it.
    """
    with suppress(FileNotFoundError):
        os.unlink(DRAFT_NAME, dir_fd=folder)
    write_new_file(folder, DRAFT_NAME, _encoded(ring))  # 1
    os.rename(DRAFT_NAME, RING_NAME, src_dir_fd=folder, dst_dir_fd=folder)  # 2
    sync(folder)  # 3
    left_over = [name for name in list_names(folder) if name not in _OWN]
    for name in left_over:  # 4
        os.unlink(name, dir_fd=folder)
    if left_over:
        sync(folder)


def _names(folder: int) -> list[str]:
    try:
        return list_names(folder)
    except OSError:
        raise Flaw(StorageFault.UNREADABLE) from None


def _first_ring(folder: int, names: Sequence[str]) -> Ring:
    if not names:
        raise Flaw(StorageFault.MISSING)
    if len(names) > KEYS_MAX:
        raise Flaw(StorageFault.TOO_MANY)
    keys = tuple(_read_key(folder, name) for name in names)
    return Ring(keys=keys, active_key_id=_judged(keys), repetition_key_id=None, changes=0)


def _judge_left_over(folder: int, names: Sequence[str], ring: Ring) -> None:
    roots = {key.key_id: key.root for key in ring.keys}
    for name in names:
        try:
            key = _read_key(folder, name)
        except Flaw as flaw:
            if flaw.fault is StorageFault.MISSING:
                continue  # removed by the change that put it into the ring
            raise
        if not hmac.compare_digest(roots.get(key.key_id, b""), key.root):
            raise Flaw(StorageFault.UNEXPECTED_ENTRY, name)


def _read_key(folder: int, name: str) -> Key:
    named = _NAME.fullmatch(name)
    if named is None:
        # A forgotten copy of a key is the likeliest stray file here, so it stops the start instead of being skipped.
        raise Flaw(StorageFault.UNEXPECTED_ENTRY, name)
    line = _LINE.fullmatch(read_file(folder, name, bytes_max=_LINE_BYTES_MAX, links_max=1))
    if line is None:
        raise Flaw(StorageFault.MALFORMED, name)
    key_id_text, state_text, root_text = line.groups()
    if key_id_text.decode() != named[1] or named[1] == "00000000":
        raise Flaw(StorageFault.MALFORMED, name)
    root = _root(root_text, name)
    return Key(key_id=int(named[1], 16), state=KeyState(state_text.decode()), root=root)


def _root(text: bytes, name: str) -> bytes:
    try:
        root = base64.b64decode(text, validate=True)
    except binascii.Error:
        raise Flaw(StorageFault.MALFORMED, name) from None
    # Forty-three characters carry two bits more than 32 bytes: encoding again refuses the spellings that use them.
    if not hmac.compare_digest(base64.b64encode(root), text) or len(root) != ROOT_BYTES:
        raise Flaw(StorageFault.MALFORMED, name)
    return root


def _parsed(data: bytes) -> Ring:
    first, *lines = data.splitlines(keepends=True) or [b""]
    said, last = _FIRST.fullmatch(first), _LAST.fullmatch(lines[-1] if lines else b"")
    found = [_KEY.fullmatch(line) for line in lines[:-1]]
    if said is None or last is None or not found or len(found) > KEYS_MAX:
        raise Flaw(StorageFault.MALFORMED, RING_NAME)
    keys = tuple(_key(line) for line in found)
    ids = [key.key_id for key in keys]
    if ids != sorted(set(ids)) or ids[0] == 0:
        raise Flaw(StorageFault.MALFORMED, RING_NAME)
    active, repetition = _judged(keys), int(said[2], 16)
    root = next(key.root for key in keys if key.key_id == active)
    body = data[: -len(lines[-1])]
    if int(last[1], 16) != active or not hmac.compare_digest(_mac(root, active, body), last[2]):
        raise Flaw(StorageFault.ALTERED, RING_NAME)
    if repetition not in ids:
        raise Flaw(StorageFault.MALFORMED, RING_NAME)
    return Ring(keys=keys, active_key_id=active, repetition_key_id=repetition, changes=int(said[1]))


def _key(line: re.Match[bytes] | None) -> Key:
    if line is None:
        raise Flaw(StorageFault.MALFORMED, RING_NAME)
    key_id, state, since, root = line.groups()
    return Key(
        key_id=int(key_id, 16),
        state=KeyState(state.decode()),
        root=_root(root, RING_NAME),
        since_ms=None if since == b"-" else int(since),
    )


def _judged(keys: Sequence[Key]) -> int:
    """Return the active key of keys that make a ring."""
    if len({key.root for key in keys}) != len(keys):
        raise Flaw(StorageFault.REPEATED_ROOT)
    active = [key.key_id for key in keys if key.state is KeyState.ACTIVE]
    if not active:
        raise Flaw(StorageFault.NO_ACTIVE_KEY)
    if len(active) > 1:
        raise Flaw(StorageFault.TWO_ACTIVE_KEYS, f"{active[1]:08x}.key")
    return active[0]


def _encoded(ring: Ring) -> bytes:
    lines = [f"v2 {ring.changes} {ring.repetition_key_id:08x}\n".encode()]
    for key in ring.keys:
        since = "-" if key.since_ms is None else str(key.since_ms)
        lines.append(
            f"{key.key_id:08x} {key.state} {since} ".encode() + base64.b64encode(key.root) + b"\n",
        )
    body = b"".join(lines)
    active = next(key for key in ring.keys if key.key_id == ring.active_key_id)
    return body + f"mac {active.key_id:08x} ".encode() + _mac(active.root, active.key_id, body) + b"\n"


def _mac(root: bytes, key_id: int, body: bytes) -> bytes:
    subkey = derived(root, key_id, Purpose.MARKS)
    return hmac.digest(subkey, b"ring\x00" + body, "sha256").hex().encode()
