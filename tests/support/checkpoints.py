"""Checkpoints seen from outside: verified with `cryptography` alone, and roots made again by the book.

`Whole` keeps a copy of everything that a rollback would put back, and `trees` makes the root over bodies that are read
past every room (RFC 9162 section 2.1.1, the recursive definition and not the frontier that the ledger keeps).
"""

import base64
import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from issuer import Issuer
from issuer.wire import Answer
from tests.support.issuers import Made
from tests.support.ledgers import attacker

TABLE = 'checkpoint = { every = "1h", copy_to = "@ELSEWHERE@" }\n'


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A note that was verified: what it says."""

    origin: str
    size: int
    root: bytes


def verified(note: str | bytes, vkey: str) -> Seen:
    """Verify a note with the text of a key, and return what it says; raises where it does not verify."""
    text, _, lines = (note if isinstance(note, str) else note.decode()).rpartition("\n\n")
    text += "\n"
    name, hash_hex, key_text = vkey.strip().split("+", 2)
    key = base64.b64decode(key_text)
    assert (key[0], hashlib.sha256(name.encode() + b"\n" + key).hexdigest()[:8]) == (1, hash_hex)
    dash, signer, signature_text = lines.rstrip("\n").split(" ")
    signature = base64.b64decode(signature_text)
    assert (dash, signer, signature[:4].hex()) == ("\u2014", name, hash_hex)
    Ed25519PublicKey.from_public_bytes(key[1:]).verify(signature[4:], text.encode())
    origin, size, root = text.splitlines()
    assert origin == name
    return Seen(origin=origin, size=int(size), root=base64.b64decode(root))


def root_over(leaves: Sequence[bytes]) -> bytes:
    """Return the root over leaf hashes, by the recursive definition."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    split = 1 << (len(leaves) - 1).bit_length() - 1
    left, right = root_over(leaves[:split]), root_over(leaves[split:])
    return hashlib.sha256(b"\x01" + left + right).digest()


def bodies(made: Made) -> list[bytes]:
    """Return the body of every span, read past every room."""
    raw = attacker(made.ledger)
    try:
        return [row[0] for row in raw.execute("SELECT body FROM spans ORDER BY sequence")]
    finally:
        raw.close()


def leaves(made: Made) -> list[bytes]:
    """Return the leaf hash of every span."""
    return [hashlib.sha256(b"\x00" + body).digest() for body in bodies(made)]


def folder(made: Made) -> Path:
    """Return where the notes are."""
    return made.sink.parent / "checkpoints"


def notes(where: Path) -> list[Path]:
    """Return the notes in a folder, oldest first."""
    return sorted(where.glob("*.note"))


def spans_of_checkpoints(made: Made) -> list[dict[str, Any]]:
    """Return what each checkpoint's span says, in order."""
    read = [json.loads(body)["attributes"] for body in bodies(made)]
    return [said for said in read if said["permit.transition"] == "audit.checkpoint_signed"]


def vkey(issuer: Issuer) -> str:
    """Return the active public key of checkpoints."""
    return str(issuer.audit_key().more["vkeys"]).splitlines()[0]


def signed(issuer: Issuer) -> Answer:
    """Demand a checkpoint, which must be given."""
    answer = issuer.audit_checkpoint()
    if answer.code != "checkpointed":
        raise AssertionError(answer)
    return answer


def demand_true(made: Made) -> None:
    """Demand that each note verifies, is of this ledger's tree, and has exactly one span; and no span has no note."""
    with made.open(reading=True) as issuer:
        key = vkey(issuer)
    read = [verified(path.read_bytes(), key) for path in notes(folder(made))]
    grown = leaves(made)
    for seen in read:
        assert seen.root == root_over(grown[: seen.size])
    told = [said["permit.tree.size"] for said in spans_of_checkpoints(made)]
    assert sorted(told) == sorted({seen.size for seen in read})


class Whole:
    """A copy of an issuer's ledger and audit file; and of its checkpoints, which are put back only if asked for."""

    def __init__(self, made: Made, where: Path) -> None:
        self._made = made
        self._where = where
        shutil.copytree(made.ledger.parent, where / "ledger")
        shutil.copytree(made.sink.parent, where / "audit")

    def put_back(self, *, checkpoints: bool = False) -> None:
        """Put the ledger and its audit file back, as they were; nobody has them open."""
        shutil.rmtree(self._made.ledger.parent)
        shutil.copytree(self._where / "ledger", self._made.ledger.parent)
        shutil.copy2(self._where / "audit" / self._made.sink.name, self._made.sink)
        if checkpoints:
            shutil.rmtree(folder(self._made), ignore_errors=True)
            if (self._where / "audit" / "checkpoints").exists():
                shutil.copytree(self._where / "audit" / "checkpoints", folder(self._made))
