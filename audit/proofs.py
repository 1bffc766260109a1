r"""The proof of one effect's story, in one file that can be carried away: its spans, their paths, and a checkpoint.

Rules: AUD-04, AUD-05. The file is lines, each in its one form:

    {"checkpoint":"…","effect":"eff_…","kind":"permit-proof","ledger":"led_…","paths":[["…"],…],"v":1}
    {"epoch":0,"lane":0,"leaf":"…","sequence":5,"span":{…}}
    …

The first holds the signed note (C2SP tlog-checkpoint) and, for each line that follows, the path of its leaf to the root
(RFC 9162 section 2.1.3): hashes in hex, from the sibling of the leaf to the child of the root. The others are the lines
that the JSONL sink holds of these spans, byte for byte. C2SP tlog-proof carries one leaf and no body, and a story has
several. What it cannot prove: that no other span is about the effect. Pure. Next: `audit.merkle`, `audit.notes`.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

from audit.errors import NotProven, TrailUnreadable
from audit.line_forms import LINE, READ_FAULTS, LineForms, body_document
from audit.merkle import PATH_MAX, verify_inclusion
from audit.notes import NOTE_BYTES_MAX, Checkpoint, ledger_origin
from audit.sinks.lines import LINE_BYTES_MAX, read_span_line
from ledger.canonical import canonical_bytes
from ledger.errors import Fault
from ledger.tree import HASH_BYTES

__all__ = ["PROOF_BYTES_MAX", "SPANS_MAX", "PermitProof", "proof_bytes", "read_proof", "verify_proof"]

KIND: Final = "permit-proof"
VERSION: Final = 1

SPANS_MAX: Final = 256
"""Spans of one story in a proof: an effect has some ten, and one more for each attempt and look."""

PROOF_BYTES_MAX: Final = 2 * NOTE_BYTES_MAX + SPANS_MAX * (LINE_BYTES_MAX + PATH_MAX * (2 * HASH_BYTES + 3))


@dataclass(frozen=True, slots=True, kw_only=True)
class PermitProof:
    """What the file holds; nothing of it is believed before `verify_proof`.

    Attributes:
        ledger_id: the ledger that it names.
        effect: the effect that it is about.
        note: the checkpoint, signed, byte for byte.
        lines: the lines of the spans, without their newlines, in order.
        paths: for each line the hashes that lead to the root.
    """

    ledger_id: str
    effect: str
    note: bytes
    lines: tuple[bytes, ...]
    paths: tuple[tuple[bytes, ...], ...]


def proof_bytes(proof: PermitProof) -> bytes:
    """Return the file of a proof."""
    head = {
        "kind": KIND,
        "v": VERSION,
        "ledger": proof.ledger_id,
        "effect": proof.effect,
        "checkpoint": proof.note.decode(),
        "paths": [[element.hex() for element in path] for path in proof.paths],
    }
    return b"".join(line + b"\n" for line in (canonical_bytes(head), *proof.lines))


def read_proof(data: bytes) -> PermitProof:
    """Return what a file of a proof holds.

    Raises:
        TrailUnreadable: it is none, or not in its one form.
    """
    if len(data) > PROOF_BYTES_MAX or not data.endswith(b"\n"):
        raise TrailUnreadable("That is no proof: it is too long, or cut off.")
    head, *lines = data[:-1].split(b"\n")
    try:
        said: dict[str, Any] = json.loads(head)
        proof = PermitProof(
            ledger_id=said["ledger"],
            effect=said["effect"],
            note=said["checkpoint"].encode(),
            lines=tuple(lines),
            paths=tuple(tuple(bytes.fromhex(element) for element in path) for path in said["paths"]),
        )
        if 0 < len(lines) == len(proof.paths) <= SPANS_MAX and proof_bytes(proof) == data:
            return proof
    except (*READ_FAULTS, Fault):
        pass
    raise TrailUnreadable("That is no proof, or not in its one form.")


def verify_proof(proof: PermitProof, checkpoint: Checkpoint) -> str | None:
    """Return None if every span is in the tree of an opened checkpoint and about the effect; else what is wrong.

    1. The checkpoint is of the ledger that the proof names. 2. Each line is in its one form, and its span says the same
    place. 3. Each is about the effect, and comes after the one before. 4. Its path leads to the root.
    """
    # 1
    if checkpoint.origin != ledger_origin(proof.ledger_id):
        return "the checkpoint is of another ledger."
    forms, before = LineForms(proof.ledger_id), 0
    for line, path in zip(proof.lines, proof.paths, strict=True):
        # 2
        try:
            tail = read_span_line(line + b"\n")
            document = _document(line, forms, (tail.epoch, tail.sequence))
        except READ_FAULTS:
            return "a line is not one of ours, or its span stands elsewhere than it says."
        # 3
        if document["attributes"].get("permit.story") != proof.effect or tail.sequence <= before:
            return "a span is about something else, or is not in order."
        before = tail.sequence
        # 4
        try:
            verify_inclusion(
                index=tail.sequence - 1,
                size=checkpoint.size,
                leaf=tail.leaf,
                proof=path,
                root=checkpoint.root,
            )
        except NotProven as fault:
            return f"span {tail.sequence}: {fault.message}."
    return None


def _document(line: bytes, forms: LineForms, place: tuple[int, int]) -> dict[str, Any]:
    match = LINE.fullmatch(line)
    if match is None:
        raise ValueError("no line of ours")
    document = body_document(match[4])
    if forms.says(document) != place:
        raise ValueError("the span stands elsewhere")
    return document
