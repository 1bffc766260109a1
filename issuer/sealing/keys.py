"""The key ring: which root keys exist, what each may still do, and which subkey serves which purpose.

Rules:
1. A ring is private: a folder of mode 0700 with files of mode 0600, owned by the account that runs the issuer, each
   with one hard link (SEC-03). One that is not exactly so, or not as `issuer.sealing.ring_file` says, is refused as a
   whole.
2. Exactly one key is `active`: it seals. What a key may do by its state is one table, in `issuer.sealing.roots`.
3. MACs and protected content outlive a rotation: whoever stores one stores `ring.active_key_id` beside it and asks for
   the subkey of that id later.
4. An opened ring follows the files: `notice` reads them again where they changed, and a key id that is not known asks
   once more before it is refused. So a process that was open before a rotation knows the new key when it meets it, and
   one that begins a transaction knows what was retired or revoked (the ledger's head is the first tag it looks at). A
   ring that does not open any more, or is another one, changes nothing in a process that has its keys already.
5. Repetition is counted with one key for ever (EFF-11, POL-02): the first one, which a rotation does not change.
6. No text form shows key bytes, a ring is not pickled or copied, and rings are compared in constant time.
7. The file `ledger` beside the keys says which one ledger the ring belongs to, under a MAC of the ring (ADM-06): it
   stands there before the first key does. Keys that were carried to another ledger serve nobody there. Since `v2` it
   says as well which schema that ledger has at least, so that a copy from before an upgrade is told from one that is
   due for it; `v1` was written beside schema 2.

What it does not do: draw random bytes (they come in as arguments), change a ring, or keep roots in locked memory.
Next: `issuer.sealing.envelope` encrypts with these subkeys; `issuer.sealing.ring_changes` rotates, retires, revokes.
"""

import hmac
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn, SupportsIndex

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV

from issuer.sealing.errors import KeysUnavailable, KeyUnusable, StorageFault
from issuer.sealing.private_files import (
    Flaw,
    create_folder,
    list_names,
    opened_folder,
    read_file,
    sync,
    write_new_file,
)
from issuer.sealing.ring_file import BINDING_NAME, RING_NAME, Ring, key_line, read_ring
from issuer.sealing.roots import KEY_ID_MAX, ROOT_BYTES, Key, KeyState, Purpose, derived, may
from ledger.errors import Broken

__all__ = [
    "KEY_ID_MAX",
    "ROOT_BYTES",
    "KeyRing",
    "KeyState",
    "Purpose",
    "bind_key_ring",
    "create_key_ring",
    "open_key_ring",
    "rebind",
]

_LINE_BYTES_MAX: Final = 128
"""The longest legal word on the ledger has 117 bytes."""

_BINDING: Final = re.compile(
    rb"(?:v1|v2 ([1-9][0-9]{0,3})) (led_[0-9a-f]{32}) ([0-9a-f]{8}) ([0-9a-f]{64})\n"
)
_SCHEMA_OF_V1: Final = 2
"""The schema of every ledger that a `v1` binding was written for."""

_Stamp = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """What a ring object holds at a time: a ring, its word on its ledger, and how the files looked before the read."""

    ring: Ring
    ledger_id: str | None = None
    schema: int = 0
    binding_key_id: int | None = None
    seen: _Stamp = ()


class KeyRing:
    """An opened key ring: subkeys by purpose and key id. Made by `open_key_ring` only."""

    __slots__ = ("_ciphers", "_folder", "_held", "_keys", "_subkeys", "_turn")

    _keys: Mapping[int, Key]
    _subkeys: dict[tuple[int, Purpose], bytes]
    _ciphers: dict[bytes, AESGCMSIV]

    def __init__(self, held: _Held, folder: Path | None = None) -> None:
        """Hold a ring that was judged; with `folder`, follow its files."""
        self._held = held
        self._keys = {key.key_id: key for key in held.ring.keys}
        self._folder = folder
        self._turn = 0
        self._subkeys = {}
        self._ciphers = {}

    @property
    def ledger_id(self) -> str | None:
        """The one ledger that the ring belongs to; None where it does not say (rule 7)."""
        return self._held.ledger_id

    @property
    def ledger_schema(self) -> int:
        """The schema that its ledger has at least; 0 where it belongs to none yet."""
        return self._held.schema

    @property
    def active_key_id(self) -> int:
        """The id to store beside a MAC or content that is being made now."""
        return self._held.ring.active_key_id

    @property
    def repetition_key_id(self) -> int:
        """The id of the key that counts repetition (rule 5).

        A ring that was never changed has not fixed it; then it is the key that its word on the ledger was given with.
        """
        fixed, said = self._held.ring.repetition_key_id, self._held.binding_key_id
        return next((known for known in (fixed, said) if known is not None), self.active_key_id)

    @property
    def key_ids(self) -> tuple[int, ...]:
        """Every key id of the ring, ascending."""
        return tuple(self._keys)

    @property
    def turn(self) -> int:
        """How often this object took in a change; what was kept from an earlier turn is to be asked for again."""
        return self._turn

    def state(self, key_id: int) -> KeyState:
        """Return what this key may still do.

        Raises:
            KeyUnusable: the ring has no such key.
        """
        return self._known(key_id).state

    def since_ms(self, key_id: int) -> int | None:
        """Return when this key came to its state, in ms since the epoch; None where that was not noted.

        Raises:
            KeyUnusable: the ring has no such key.
        """
        return self._known(key_id).since_ms

    def subkey(self, purpose: Purpose, key_id: int | None = None) -> bytes:
        """Return the 32 bytes for one purpose, of the active key or of the key named.

        Repetition is counted with its own key whatever is active.

        Raises:
            KeyUnusable: the ring has no such key, or its state does not serve the purpose (PER-02, SEC-03).
        """
        if key_id is None:
            key_id = self.repetition_key_id if purpose is Purpose.REPETITION else self.active_key_id
        key = self._known(key_id)
        if not may(key.state, purpose):
            raise KeyUnusable
        known = self._subkeys.get((key_id, purpose))
        if known is None:
            known = self._subkeys[key_id, purpose] = derived(key.root, key_id, purpose)
        return known

    def key_ids_for(self, purpose: Purpose) -> tuple[int, ...]:
        """Return the ids of the keys that serve a purpose still, the active one first.

        For what was made with the key that was active then, and does not say which that was.
        """
        serving = [key_id for key_id, key in self._keys.items() if may(key.state, purpose)]
        return tuple(sorted(serving, key=lambda key_id: (key_id != self.active_key_id, key_id)))

    def cipher(self, purpose: Purpose, key_id: int) -> AESGCMSIV:
        """Return AES-256-GCM-SIV under that subkey, made once: making it costs as much as opening a permit.

        Raises:
            KeyUnusable: as `subkey`.
        """
        subkey = self.subkey(purpose, key_id)
        known = self._ciphers.get(subkey)
        if known is None:
            known = self._ciphers[subkey] = AESGCMSIV(subkey)
        return known

    def notice(self) -> None:
        """Take in what another process changed in the ring since it was read here; costs two looks (rule 4)."""
        if self._folder is None or _stamp(self._folder) == self._held.seen:
            return
        try:
            found = _read(self._folder)
        except Flaw:
            return
        roots = {key.key_id: key.root for key in found.ring.keys}
        is_same = all(
            hmac.compare_digest(roots.get(key.key_id, b""), key.root) for key in self._keys.values()
        )
        if is_same and found.ledger_id == self._held.ledger_id:
            # The keys first: another thread that meets the new active key finds it among them.
            self._keys = {key.key_id: key for key in found.ring.keys}
            self._held = found
            self._turn += 1

    def _known(self, key_id: int) -> Key:
        key = self._keys.get(key_id)
        if key is None:
            self.notice()
            key = self._keys.get(key_id)
        if key is None:
            raise KeyUnusable
        return key

    def __repr__(self) -> str:
        """Show ids only."""
        return f"KeyRing(keys={len(self._keys)}, active={self.active_key_id:08x})"

    def __eq__(self, other: object) -> bool:
        """Compare ids, states and roots without an early exit that would tell where two roots differ."""
        if not isinstance(other, KeyRing):
            return NotImplemented
        return hmac.compare_digest(self._comparable(), other._comparable())

    __hash__ = None  # type: ignore[assignment]  # a set would compare rings by a hash of their roots first

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuse to be pickled or copied: roots stay in the process that read them."""
        del protocol
        raise TypeError("A key ring cannot be pickled or copied.")

    def __getstate__(self) -> NoReturn:
        """Refuse to hand out the inside of the ring as a value."""
        raise TypeError("A key ring cannot be pickled or copied.")

    def _comparable(self) -> bytes:
        return b"".join(
            key.key_id.to_bytes(4, "big") + key.state.value.ljust(9).encode() + key.root
            for key in self._keys.values()
        )


def create_key_ring(
    folder: Path, *, root: bytes, key_id: int, ledger_id: str | None = None, schema: int = _SCHEMA_OF_V1
) -> None:
    """Create a ring with one active key, durable when this returns.

    `root` is 32 random bytes and `key_id` is 1 to 2^32-1, both drawn by the caller. With `ledger_id` (`led_` and 32 hex
    digits) it belongs to that ledger, which has `schema` (1 to 9999) at least. The folder is created with mode 0700, or
    is an empty private folder already.

    Raises:
        Broken: a root or key id of the wrong type or size; no value is in the text.
        KeysUnavailable: the folder holds something already, is not private, or cannot be written.
    """
    if type(root) is not bytes or len(root) != ROOT_BYTES:
        raise Broken("A root key is exactly 32 bytes.")
    if type(key_id) is not int or not 1 <= key_id <= KEY_ID_MAX:
        raise Broken("A key id is a whole number from 1 to 2^32-1.")
    name = f"{key_id:08x}.key"
    line = key_line(key_id, root)
    first = Key(key_id=key_id, state=KeyState.ACTIVE, root=root)
    ring = Ring(keys=(first,), active_key_id=key_id, repetition_key_id=None, changes=0)
    made = KeyRing(_Held(ring=ring))
    binding = None if ledger_id is None else _binding_line(made, ledger_id, schema)
    try:
        create_folder(folder)
        with opened_folder(folder) as descriptor:
            if list_names(descriptor) == [BINDING_NAME]:
                # An earlier run was interrupted before it made a key, so nothing belongs to anything yet.
                os.unlink(BINDING_NAME, dir_fd=descriptor)
            if list_names(descriptor):
                raise Flaw(StorageFault.EXISTS)  # noqa: TRY301  one place below turns flaws into the room's error
            if binding is not None:
                write_new_file(descriptor, BINDING_NAME, binding)
                sync(descriptor)
            write_new_file(descriptor, name, line)
            sync(descriptor)
    except Flaw as flaw:
        raise KeysUnavailable(flaw.fault, folder / flaw.name) from None
    except FileExistsError:
        raise KeysUnavailable(StorageFault.EXISTS, folder / name) from None
    except OSError:
        raise KeysUnavailable(StorageFault.UNWRITABLE, folder / name) from None


def open_key_ring(folder: Path) -> KeyRing:
    """Read the whole ring, or refuse it as a whole.

    Raises:
        KeysUnavailable: anything about the folder or one of its files is not as rule 1 to 3 of the module
            say, or this build cannot encrypt as it must; `reason` and `path` tell which.
    """
    try:
        AESGCMSIV(bytes(ROOT_BYTES))
    except UnsupportedAlgorithm:
        raise KeysUnavailable(StorageFault.CIPHER_MISSING, folder) from None
    try:
        return KeyRing(_read(folder), folder)
    except Flaw as flaw:
        raise KeysUnavailable(flaw.fault, folder / flaw.name) from None


def _read(folder: Path) -> _Held:
    # Looked at before it is read: a change that comes between shows at the next look.
    seen = _stamp(folder)
    with opened_folder(folder) as descriptor:
        ring = read_ring(descriptor)
        said = _read_binding(descriptor, KeyRing(_Held(ring=ring)))
    if said is None:
        return _Held(ring=ring, seen=seen)
    ledger_id, schema, key_id = said
    return _Held(ring=ring, ledger_id=ledger_id, schema=schema, binding_key_id=key_id, seen=seen)


def bind_key_ring(folder: Path, ledger_id: str, *, schema: int) -> None:
    """Let a ring belong to `ledger_id`, which has `schema` at least, at once and durably.

    A ring that belongs to another ledger is left alone, and so is one that says as much already.

    Raises:
        Broken: the id is of another form.
        KeysUnavailable: the ring does not open, or its folder cannot be written.
    """
    ring = open_key_ring(folder)
    if ring.ledger_id not in {None, ledger_id} or ring.ledger_schema >= schema:
        return
    try:
        with opened_folder(folder) as descriptor:
            _write_binding(folder, descriptor, _binding_line(ring, ledger_id, schema))
    except Flaw as flaw:
        raise KeysUnavailable(flaw.fault, folder / flaw.name) from None
    except OSError:
        raise KeysUnavailable(StorageFault.UNWRITABLE, folder / BINDING_NAME) from None


def rebind(folder: Path, descriptor: int, ring: KeyRing) -> None:
    """Give the word of `ring` on its ledger anew, with the active key; it says the same as before.

    Raises:
        OSError: as the system reports it.
    """
    if ring.ledger_id is not None:
        _write_binding(folder, descriptor, _binding_line(ring, ring.ledger_id, ring.ledger_schema))


def _write_binding(folder: Path, descriptor: int, line: bytes) -> None:
    # Made beside the folder, in which a stray file would stop every start, and given its name in one step.
    draft = folder.with_name(f".{folder.name}-{BINDING_NAME}.new")
    draft.unlink(missing_ok=True)
    write_new_file(descriptor, str(draft.absolute()), line)
    os.rename(draft.absolute(), BINDING_NAME, dst_dir_fd=descriptor)
    sync(descriptor)


def _binding_line(ring: KeyRing, ledger_id: str, schema: int) -> bytes:
    key_id = ring.active_key_id
    mac = _binding_mac(ring, key_id, ledger_id, str(schema))
    line = f"v2 {schema} {ledger_id} {key_id:08x} {mac.hex()}\n".encode()
    if _BINDING.fullmatch(line) is None:
        raise Broken("A ledger id is led_ and 32 hex digits.")
    return line


def _binding_mac(ring: KeyRing, key_id: int, *said: str) -> bytes:
    return hmac.digest(ring.subkey(Purpose.MARKS, key_id), "\x00".join(("keys", *said)).encode(), "sha256")


def _read_binding(folder: int, ring: KeyRing) -> tuple[str, int, int] | None:
    """Return the ledger that the ring says it belongs to, its schema, and the key that says so.

    A word that is not the ring's own refuses it.
    """
    try:
        line = read_file(folder, BINDING_NAME, bytes_max=_LINE_BYTES_MAX, links_max=1)
    except Flaw as flaw:
        if flaw.fault is StorageFault.MISSING:
            return None
        raise
    said = _BINDING.fullmatch(line)
    if said is None:
        raise Flaw(StorageFault.MALFORMED, BINDING_NAME)
    schema, ledger_id = None if said[1] is None else said[1].decode(), said[2].decode()
    try:
        expected = _binding_mac(ring, int(said[3], 16), ledger_id, *(() if schema is None else (schema,)))
    except KeyUnusable:
        raise Flaw(StorageFault.UNBOUND, BINDING_NAME) from None
    if not hmac.compare_digest(expected.hex().encode(), said[4]):
        raise Flaw(StorageFault.UNBOUND, BINDING_NAME)
    return ledger_id, _SCHEMA_OF_V1 if schema is None else int(schema), int(said[3], 16)


def _stamp(folder: Path) -> _Stamp:
    """Return what changes when a ring is changed: of the folder, and of the file that holds it all."""
    seen: list[int] = []
    for path in (folder, folder / RING_NAME):
        try:
            found = path.lstat()
        except OSError:
            continue
        seen += (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)
    return tuple(seen)
