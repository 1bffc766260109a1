r"""Signed notes and checkpoints: the text by which a tree head is known outside, and the key that vouches for it.

Rules: AUD-04 (C2SP signed-note, tlog-checkpoint). A checkpoint is a note of three lines, origin, size and root, that
the key with the name of the origin signs:

    permit-issuer/led_…
    2031
    CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=

    — permit-issuer/led_… Az3grlgtzPICa5OS8npVmf1My…

A text has one reading, and a note is read only if writing it again gives the same bytes. Key and origin come from
whoever verifies and never from the file; lines of other keys, such as witnesses, are passed over. Signing and the
arithmetic of Ed25519 stand behind `issuer.sealing`, and come in as a function. Pure.
Next: `audit.merkle`, which proves what is under the root.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from audit.errors import NoteRefused
from ledger.tree import HASH_BYTES

__all__ = [
    "NOTE_BYTES_MAX",
    "ORIGIN_PREFIX",
    "Checkpoint",
    "Note",
    "NoteSignature",
    "VerifierKey",
    "VerifySignature",
    "checkpoint_text",
    "key_hash",
    "ledger_origin",
    "opened_checkpoint",
    "read_checkpoint",
    "read_note",
    "read_vkey",
    "signed",
    "vkey",
]

ORIGIN_PREFIX: Final = "permit-issuer/"

ED25519: Final = 0x01
"""The type byte of an Ed25519 signature (C2SP signed-note, signature types)."""

KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
KEY_HASH_BYTES: Final = 4

NOTE_BYTES_MAX: Final = 256 * 1024
"""Bytes of a note: room for sixteen signatures of the longest kind, as C2SP demands, and the same again."""

SIGNATURES_MAX: Final = 64
NAME_CHARACTERS_MAX: Final = 256

_SIZE: Final = re.compile(r"0|[1-9][0-9]{0,15}")
_DASH: Final = "\u2014 "
_FIRST_PRINTABLE: Final = " "

VerifySignature = Callable[[bytes, bytes, bytes], bool]
"""Says whether a public key (32 bytes) made a signature (64 bytes) over a message (RFC 8032 section 5.1.7)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierKey:
    """An Ed25519 key and its name, as the verifier gives it.

    Attributes:
        name: what it signs as; for checkpoints also their origin.
        public_key: 32 bytes (RFC 8032 section 5.1.5).
    """

    name: str
    public_key: bytes

    def __post_init__(self) -> None:
        """Refuse a key without a proper name, or of another length."""
        _demand_name(self.name)
        if len(self.public_key) != KEY_BYTES:
            raise NoteRefused("an Ed25519 key is 32 bytes")

    @property
    def hash(self) -> bytes:
        """The 4 bytes by which a signature line names this key."""
        return key_hash(self.name, self.public_key)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteSignature:
    """One signature line: the name of a key, its 4-byte hash, and a signature that nobody has verified."""

    name: str
    key_hash: bytes
    unverified_signature: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A note in its one form; whatever it says is worth nothing before a signature is verified."""

    unverified_text: str
    signatures: tuple[NoteSignature, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A tree head: whose log, how many leaves, and the root over them (C2SP tlog-checkpoint)."""

    origin: str
    size: int
    root: bytes

    def __post_init__(self) -> None:
        """Refuse what has no text of its own."""
        _demand_name(self.origin)
        if _SIZE.fullmatch(str(self.size)) is None or len(self.root) != HASH_BYTES:
            raise NoteRefused("a checkpoint has a size and a root of 32 bytes")


def ledger_origin(ledger_id: str) -> str:
    """Return the origin of a ledger's checkpoints, which is also the name of the key that signs them."""
    return f"{ORIGIN_PREFIX}{ledger_id}"


def key_hash(name: str, public_key: bytes) -> bytes:
    """Return SHA-256(name || 0x0A || 0x01 || key)[:4] (C2SP signed-note, Ed25519 signatures)."""
    return hashlib.sha256(name.encode() + b"\n" + bytes((ED25519,)) + public_key).digest()[:KEY_HASH_BYTES]


def vkey(name: str, public_key: bytes) -> str:
    """Return the text of a verifier's key: name, hash and key, joined by plus signs.

    Raises:
        NoteRefused: the name or the key is none.
    """
    key = VerifierKey(name=name, public_key=public_key)
    return f"{name}+{key.hash.hex()}+{_text(bytes((ED25519,)) + public_key)}"


def read_vkey(text: str) -> VerifierKey:
    """Return the key of a text that `vkey` wrote; white space around it is passed over.

    Raises:
        NoteRefused: it is none, is not Ed25519, or its hash is not its own.
    """
    name, plus, rest = text.strip().partition("+")
    _hash, plus_again, encoded = rest.partition("+")
    held = _bytes(encoded)
    if not plus or not plus_again or held[:1] != bytes((ED25519,)):
        raise NoteRefused("that is no Ed25519 verifier key")
    key = VerifierKey(name=name, public_key=held[1:])
    if vkey(key.name, key.public_key) != text.strip():
        raise NoteRefused("that is not the one text of a verifier key")
    return key


def checkpoint_text(origin: str, size: int, root: bytes) -> str:
    """Return the text that is signed: three lines, the last newline included.

    Raises:
        NoteRefused: one of them is none.
    """
    made = Checkpoint(origin=origin, size=size, root=root)
    return f"{made.origin}\n{made.size}\n{_text(made.root)}\n"


def read_checkpoint(text: str) -> Checkpoint:
    """Return what a checkpoint's text says; extension lines are refused, since nobody can audit them.

    Raises:
        NoteRefused: it is not the one text of a checkpoint.
    """
    lines = text.split("\n")
    if len(lines) != 4 or _SIZE.fullmatch(lines[1]) is None:  # noqa: PLR2004 - three lines and their last newline
        raise NoteRefused("a checkpoint is three lines")
    read = Checkpoint(origin=lines[0], size=int(lines[1]), root=_bytes(lines[2]))
    if checkpoint_text(read.origin, read.size, read.root) != text:
        raise NoteRefused("that is not the one text of a checkpoint")
    return read


def signed(text: str, name: str, public_key: bytes, signature: bytes) -> bytes:
    """Return the note of a text and one Ed25519 signature of its bytes.

    Raises:
        NoteRefused: a part has no place in a note.
    """
    if len(signature) != SIGNATURE_BYTES:
        raise NoteRefused("an Ed25519 signature is 64 bytes")
    key = VerifierKey(name=name, public_key=public_key)
    line = NoteSignature(name=name, key_hash=key.hash, unverified_signature=signature)
    note = _written(Note(unverified_text=text, signatures=(line,)))
    read_note(note)
    return note


def read_note(data: bytes) -> Note:
    """Return the parts of a note; no signature is verified here.

    Raises:
        NoteRefused: it is not in its one form.
    """
    if len(data) > NOTE_BYTES_MAX:
        raise NoteRefused("the note is too long")
    try:
        whole = data.decode()
    except UnicodeDecodeError:
        raise NoteRefused("a note is UTF-8") from None
    if any(character < _FIRST_PRINTABLE and character != "\n" for character in whole):
        raise NoteRefused("a note has no control characters")
    text, blank, lines = whole.rpartition("\n\n")
    if not blank or not lines.endswith("\n"):
        raise NoteRefused("a note is a text, an empty line and signatures")
    read = tuple(_signature(line) for line in lines[:-1].split("\n"))
    if len(read) > SIGNATURES_MAX:
        raise NoteRefused("the note has too many signatures")
    note = Note(unverified_text=f"{text}\n", signatures=read)
    if _written(note) != data:
        raise NoteRefused("that is not the one form of a note")
    return note


def opened_checkpoint(data: bytes, key: VerifierKey, verify: VerifySignature) -> Checkpoint:
    """Return the checkpoint of a note that `key` signed, under the name of its origin.

    1. The note is in its one form. 2. A line names this key by name and hash. 3. Every such line verifies.
    4. The text is a checkpoint. 5. Its origin is the name of the key, which the verifier has from elsewhere.

    Raises:
        NoteRefused: one of these does not hold.
    """
    # 1
    note = read_note(data)
    # 2
    own = [line for line in note.signatures if (line.name, line.key_hash) == (key.name, key.hash)]
    if not own:
        raise NoteRefused("the note is not signed by this key")
    # 3
    message = note.unverified_text.encode()
    for line in own:
        signature = line.unverified_signature
        if len(signature) != SIGNATURE_BYTES or not verify(key.public_key, signature, message):
            raise NoteRefused("the signature of the note does not verify")
    # 4
    checkpoint = read_checkpoint(note.unverified_text)
    # 5
    if checkpoint.origin != key.name:
        raise NoteRefused("the checkpoint is of another log than its key")
    return checkpoint


def _signature(line: str) -> NoteSignature:
    dash, (name, space, encoded) = line[: len(_DASH)], line[len(_DASH) :].partition(" ")
    held = _bytes(encoded)
    if dash != _DASH or not space or len(held) <= KEY_HASH_BYTES:
        raise NoteRefused("that is no signature line")
    _demand_name(name)
    return NoteSignature(
        name=name, key_hash=held[:KEY_HASH_BYTES], unverified_signature=held[KEY_HASH_BYTES:]
    )


def _written(note: Note) -> bytes:
    lines = (
        f"{_DASH}{line.name} {_text(line.key_hash + line.unverified_signature)}\n" for line in note.signatures
    )
    return f"{note.unverified_text}\n{''.join(lines)}".encode()


def _demand_name(name: str) -> None:
    """Refuse what is no key name (C2SP signed-note, format)."""
    if not 0 < len(name) <= NAME_CHARACTERS_MAX or any(
        character == "+" or character < "!" or character.isspace() for character in name
    ):
        raise NoteRefused("a key name is not empty and has no space and no plus sign")


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes(text: str) -> bytes:
    """Return the bytes of a base64 text (RFC 4648 section 4); the caller compares with the text of them."""
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (ValueError, binascii.Error):
        raise NoteRefused("that is no base64") from None
