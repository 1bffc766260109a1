"""The key ring: which root keys exist, what each may still do, and which subkey serves which purpose.

Rules:
1. One file a key, `<key id as 8 hex digits>.key`, mode 0600 in a folder of mode 0700, owned by the account
   that runs the issuer, with one hard link (SEC-03). A ring that is not exactly so is refused as a whole.
2. A file is one line: `v1 <key id> <state> <base64 of 32 bytes>`. There is one spelling for each key.
3. Exactly one key is `active`: it seals. `open_only` keys still open what they sealed. `retired` keys open no
   permit.
4. A root is never used itself. HKDF-SHA256 (RFC 5869) derives a subkey per purpose and key id, so that no
   subkey tells anything about another one.
5. MACs and protected content outlive a rotation: whoever stores one stores `ring.active_key_id` beside it and
   asks for the subkey of that id later. Retirement closes the purpose `seal` only, since history must stay
   verifiable; who must not trust a retired key's MAC (a compromised key) asks `state`.
6. No text form shows key bytes, a ring is not pickled or copied, and rings are compared in constant time.
7. The file `ledger` beside the keys says which one ledger the ring belongs to, under a MAC of the ring (ADM-06): it
   stands there before the first key does. Keys that were carried to another ledger serve nobody there. Since `v2` it
   says as well which schema that ledger has at least, so that a copy from before an upgrade is told from one that is
   due for it; `v1` was written beside schema 2.

What it does not do: draw random bytes (they come in as arguments), rotate, or keep roots in locked memory.
Next: `issuer.sealing.envelope` encrypts with these subkeys.
"""

import base64
import binascii
import hmac
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, NoReturn, SupportsIndex

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

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
]

ROOT_BYTES: Final = 32
"""Size of a root and of every subkey: AES-256 takes 32 bytes, and so does HMAC-SHA256 at full strength."""

KEY_ID_MAX: Final = 2**32 - 1
"""A key id is an unsigned 32-bit number in the header of a seal; 0 is left out so that a blank field names no
key."""

KEYS_MAX: Final = 64
"""More keys than five years of monthly rotation: a folder beyond that is not a ring that anybody tends."""

_LINE_BYTES_MAX: Final = 128
"""The longest legal line has 66 bytes; the rest is room to see that a file is too long without reading it
all."""

_LINE: Final = re.compile(rb"v1 ([0-9a-f]{8}) (active|open_only|retired) ([A-Za-z0-9+/]{43}=)\n")
_BINDING_NAME: Final = "ledger"
_BINDING: Final = re.compile(
    rb"(?:v1|v2 ([1-9][0-9]{0,3})) (led_[0-9a-f]{32}) ([0-9a-f]{8}) ([0-9a-f]{64})\n"
)
_SCHEMA_OF_V1: Final = 2
"""The schema of every ledger that a `v1` binding was written for."""

_NAME: Final = re.compile(r"([0-9a-f]{8})\.key")
_INFO: Final = b"permit-issuer/subkey/v1\x00"


class Purpose(StrEnum):
    """What a subkey is for; each value has its own HKDF info string, so no two share a key."""

    SEAL = "seal"
    HEAD_MAC = "head_mac"
    ROW_MAC = "row_mac"
    REPETITION = "repetition"
    SALTS = "salts"
    PROTECTED = "protected"
    MARKS = "marks"
    CREDENTIALS = "credentials"
    CHALLENGES = "challenges"
    STATEMENTS = "statements"


class KeyState(StrEnum):
    """What a key may still do for permits."""

    ACTIVE = "active"
    OPEN_ONLY = "open_only"
    RETIRED = "retired"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Key:
    key_id: int
    state: KeyState
    root: bytes = field(repr=False)


class KeyRing:
    """An opened key ring: subkeys by purpose and key id. Made by `open_key_ring` only."""

    __slots__ = ("_active_key_id", "_ciphers", "_keys", "_ledger_id", "_schema", "_subkeys")

    _active_key_id: int
    _keys: Mapping[int, _Key]
    _ledger_id: str | None
    _schema: int
    _subkeys: dict[tuple[int, Purpose], bytes]
    _ciphers: dict[bytes, AESGCMSIV]

    def __init__(self, keys: Sequence[_Key], active_key_id: int) -> None:
        """Hold keys that `open_key_ring` has judged."""
        self._keys = {key.key_id: key for key in sorted(keys, key=lambda key: key.key_id)}
        self._active_key_id = active_key_id
        self._ledger_id = None
        self._schema = 0
        self._subkeys = {}
        self._ciphers = {}

    @property
    def ledger_id(self) -> str | None:
        """The one ledger that the ring belongs to; None where it does not say (rule 7)."""
        return self._ledger_id

    @property
    def ledger_schema(self) -> int:
        """The schema that its ledger has at least; 0 where it belongs to none yet."""
        return self._schema

    @property
    def active_key_id(self) -> int:
        """The id to store beside a MAC or content that is being made now."""
        return self._active_key_id

    @property
    def key_ids(self) -> tuple[int, ...]:
        """Every key id of the ring, ascending."""
        return tuple(self._keys)

    def state(self, key_id: int) -> KeyState:
        """Return what this key may still do.

        Raises:
            KeyUnusable: the ring has no such key.
        """
        key = self._keys.get(key_id)
        if key is None:
            raise KeyUnusable
        return key.state

    def subkey(self, purpose: Purpose, key_id: int | None = None) -> bytes:
        """Return the 32 bytes for one purpose, of the active key or of the key named.

        Raises:
            KeyUnusable: the ring has no such key, or it is retired and the purpose is `seal` (PER-02).
        """
        wanted = self._active_key_id if key_id is None else key_id
        key = self._keys.get(wanted)
        if key is None or (key.state is KeyState.RETIRED and purpose is Purpose.SEAL):
            raise KeyUnusable
        known = self._subkeys.get((wanted, purpose))
        if known is not None:
            return known
        # The key id is part of the info: a root that was copied under a second id still gives other subkeys.
        info = _INFO + purpose.value.encode() + b"\x00" + wanted.to_bytes(4, "big")
        derived = HKDF(algorithm=SHA256(), length=ROOT_BYTES, salt=None, info=info).derive(key.root)
        self._subkeys[(wanted, purpose)] = derived
        return derived

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

    def __repr__(self) -> str:
        """Show ids only."""
        return f"KeyRing(keys={len(self._keys)}, active={self._active_key_id:08x})"

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
    line = b" ".join((b"v1", f"{key_id:08x}".encode(), b"active", base64.b64encode(root))) + b"\n"
    made = KeyRing([_Key(key_id=key_id, state=KeyState.ACTIVE, root=root)], key_id)
    binding = None if ledger_id is None else _binding_line(made, ledger_id, schema)
    try:
        create_folder(folder)
        with opened_folder(folder) as descriptor:
            if list_names(descriptor) == [_BINDING_NAME]:
                # An earlier run was interrupted before it made a key, so nothing belongs to anything yet.
                os.unlink(_BINDING_NAME, dir_fd=descriptor)
            if list_names(descriptor):
                raise Flaw(StorageFault.EXISTS)  # noqa: TRY301  one place below turns flaws into the room's error
            if binding is not None:
                write_new_file(descriptor, _BINDING_NAME, binding)
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
        with opened_folder(folder) as descriptor:
            keys = _read_keys(descriptor)
            ring = KeyRing(keys, _judge_ring(keys))
            binding = _read_binding(descriptor, ring)
            if binding is not None:
                ring._ledger_id, ring._schema = binding  # noqa: SLF001 - the ring's own maker
    except Flaw as flaw:
        raise KeysUnavailable(flaw.fault, folder / flaw.name) from None
    return ring


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
    # Made beside the folder, in which a stray file would stop every start, and given its name in one step.
    draft = folder.with_name(f".{folder.name}-{_BINDING_NAME}.new")
    line = _binding_line(ring, ledger_id, schema)
    try:
        draft.unlink(missing_ok=True)
        with opened_folder(folder) as descriptor:
            write_new_file(descriptor, str(draft.absolute()), line)
            os.rename(draft.absolute(), _BINDING_NAME, dst_dir_fd=descriptor)
            sync(descriptor)
    except Flaw as flaw:
        raise KeysUnavailable(flaw.fault, folder / flaw.name) from None
    except OSError:
        raise KeysUnavailable(StorageFault.UNWRITABLE, folder / _BINDING_NAME) from None


def _binding_line(ring: KeyRing, ledger_id: str, schema: int) -> bytes:
    key_id = ring.active_key_id
    mac = _binding_mac(ring, key_id, ledger_id, str(schema))
    line = f"v2 {schema} {ledger_id} {key_id:08x} {mac.hex()}\n".encode()
    if _BINDING.fullmatch(line) is None:
        raise Broken("A ledger id is led_ and 32 hex digits.")
    return line


def _binding_mac(ring: KeyRing, key_id: int, *said: str) -> bytes:
    return hmac.digest(ring.subkey(Purpose.MARKS, key_id), "\x00".join(("keys", *said)).encode(), "sha256")


def _read_binding(folder: int, ring: KeyRing) -> tuple[str, int] | None:
    """Return the ledger that the ring says it belongs to, and its schema; a word that is not its own refuses it."""
    try:
        line = read_file(folder, _BINDING_NAME, bytes_max=_LINE_BYTES_MAX, links_max=1)
    except Flaw as flaw:
        if flaw.fault is StorageFault.MISSING:
            return None
        raise
    said = _BINDING.fullmatch(line)
    if said is None:
        raise Flaw(StorageFault.MALFORMED, _BINDING_NAME)
    schema, ledger_id = None if said[1] is None else said[1].decode(), said[2].decode()
    try:
        expected = _binding_mac(ring, int(said[3], 16), ledger_id, *(() if schema is None else (schema,)))
    except KeyUnusable:
        raise Flaw(StorageFault.UNBOUND, _BINDING_NAME) from None
    if not hmac.compare_digest(expected.hex().encode(), said[4]):
        raise Flaw(StorageFault.UNBOUND, _BINDING_NAME)
    return ledger_id, _SCHEMA_OF_V1 if schema is None else int(schema)


def _read_keys(folder: int) -> list[_Key]:
    try:
        names = [name for name in list_names(folder) if name != _BINDING_NAME]
    except OSError:
        raise Flaw(StorageFault.UNREADABLE) from None
    if not names:
        raise Flaw(StorageFault.MISSING)
    if len(names) > KEYS_MAX:
        raise Flaw(StorageFault.TOO_MANY)
    return [_read_key(folder, name) for name in names]


def _read_key(folder: int, name: str) -> _Key:
    named = _NAME.fullmatch(name)
    if named is None:
        # A forgotten copy of a key is the likeliest stray file here, so it stops the start instead of being
        # skipped.
        raise Flaw(StorageFault.UNEXPECTED_ENTRY, name)
    line = _LINE.fullmatch(read_file(folder, name, bytes_max=_LINE_BYTES_MAX, links_max=1))
    if line is None:
        raise Flaw(StorageFault.MALFORMED, name)
    key_id_text, state_text, root_text = line.groups()
    try:
        root = base64.b64decode(root_text, validate=True)
    except binascii.Error:
        raise Flaw(StorageFault.MALFORMED, name) from None
    # Forty-three characters carry two bits more than 32 bytes: encoding again refuses the spellings that use
    # them.
    canonical = hmac.compare_digest(base64.b64encode(root), root_text)
    if not canonical or len(root) != ROOT_BYTES or key_id_text.decode() != named[1] or named[1] == "00000000":
        raise Flaw(StorageFault.MALFORMED, name)
    return _Key(key_id=int(named[1], 16), state=KeyState(state_text.decode()), root=root)


def _judge_ring(keys: Sequence[_Key]) -> int:
    if len({key.root for key in keys}) != len(keys):
        raise Flaw(StorageFault.REPEATED_ROOT)
    active = [key.key_id for key in keys if key.state is KeyState.ACTIVE]
    if not active:
        raise Flaw(StorageFault.NO_ACTIVE_KEY)
    if len(active) > 1:
        raise Flaw(StorageFault.TWO_ACTIVE_KEYS, f"{active[1]:08x}.key")
    return active[0]
