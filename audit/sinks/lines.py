r"""The bytes of the JSONL sink: one header line, then one line a span.

Rules: AUD-07 (the same shape everywhere), AUD-04 (each line carries the leaf, so that a file proves itself
against a checkpoint). A line is canonical JSON and holds the body of the span, byte for byte as hashed:

    {"kind":"permit-audit","ledger":"…","v":1}
    {"epoch":0,"lane":0,"leaf":"…","sequence":1,"span":{…}}

A file that goes on where another one was full says in its header after which span:

    {"after":{"epoch":0,"lane":0,"leaf":"…","sequence":90210},"kind":"permit-audit","ledger":"…","v":1}

Equal spans give equal lines, so a line can be written again without harm. This module does no input
or output.
Next: `audit.sinks.jsonl`.
"""

import json
import re
from dataclasses import dataclass
from typing import Final

from ledger.canonical import canonical_bytes
from ledger.model import BINDING_BYTES_MAX
from ledger.transitions import SpanRow
from ledger.tree import leaf_hash

__all__ = [
    "HEADER_BYTES_MAX",
    "LINE_BYTES_MAX",
    "Header",
    "Tail",
    "header_line",
    "read_header",
    "read_span_line",
    "span_body",
    "span_line",
]

FORMAT_VERSION: Final = 1
KIND: Final = "permit-audit"

HEADER_BYTES_MAX: Final = 512
"""Bytes of a header line: a ledger id is a name of at most 128 bytes, and a place with its leaf of at most 170."""

LINE_BYTES_MAX: Final = BINDING_BYTES_MAX + 256
"""Bytes of a span's line: a record of at most 64 KiB (LED-02) and the members around it."""

PLACE_END: Final = 10**16
"""Epochs, lanes and sequences are below this, as a span's line has them."""

LEAF_BYTES: Final = 32

_LINE: Final = re.compile(
    rb'\{"epoch":(0|[1-9][0-9]{0,15}),"lane":(0|[1-9][0-9]{0,15}),"leaf":"([0-9a-f]{64})",'
    rb'"sequence":([1-9][0-9]{0,15}),"span":(\{[^\n]*\})\}\n\Z'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """What a line says about the span that it holds."""

    epoch: int
    lane: int
    sequence: int
    leaf: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What the first line of a file says: whose spans these are, and the last span of the file before, if any."""

    ledger_id: str
    after: Tail | None


def header_line(ledger_id: str, after: Tail | None = None) -> bytes:
    """Return the first line of a file of a ledger, newline included; it goes on after the span `after`."""
    held: dict[str, object] = {"v": FORMAT_VERSION, "ledger": str(ledger_id), "kind": KIND}
    if after is not None:
        held["after"] = {
            "epoch": after.epoch,
            "lane": after.lane,
            "leaf": after.leaf.hex(),
            "sequence": after.sequence,
        }
    return canonical_bytes(held) + b"\n"


def read_header(line: bytes) -> Header:
    """Read a first line, newline included.

    Raises:
        ValueError: it is not the one form of a header.
    """
    try:
        held = json.loads(line)
        ledger_id, said = held["ledger"], held.get("after")
        after = None if said is None else _read_place(said)
        if type(ledger_id) is str and header_line(ledger_id, after) == line:
            return Header(ledger_id=ledger_id, after=after)
    except (TypeError, KeyError, AttributeError, RecursionError, ValueError):
        pass
    raise ValueError("not a header")


def _read_place(said: dict[str, object]) -> Tail:
    numbers = [said[name] for name in ("epoch", "lane", "sequence")]
    leaf = said["leaf"]
    if not isinstance(leaf, str) or not all(
        type(number) is int and 0 <= number < PLACE_END for number in numbers
    ):
        raise ValueError("not a place")
    epoch, lane, sequence = (int(str(number)) for number in numbers)
    read = bytes.fromhex(leaf)
    if sequence == 0 or len(read) != LEAF_BYTES:
        raise ValueError("not a place")
    return Tail(epoch=epoch, lane=lane, sequence=sequence, leaf=read)


def span_line(row: SpanRow) -> bytes:
    """Return the line of a span, newline included.

    Raises:
        ValueError: the row is not what was recorded: its leaf is no hash of its body, or that is no line.
    """
    place = row.position
    if leaf_hash(row.body) != row.leaf:
        raise ValueError("the leaf is not the hash of the body")
    line = b'{"epoch":%d,"lane":%d,"leaf":"%s","sequence":%d,"span":%s}\n' % (
        place.epoch,
        place.lane,
        row.leaf.hex().encode("ascii"),
        place.sequence,
        row.body,
    )
    if len(line) > LINE_BYTES_MAX or _LINE.match(line) is None:
        raise ValueError("the body has no place in one line")
    return line


def span_body(line: bytes) -> bytes:
    """Return the body of a line that `read_span_line` has read."""
    match = _LINE.match(line)
    return b"" if match is None else match[5]


def read_span_line(line: bytes) -> Tail:
    """Read a whole line, newline included.

    Raises:
        ValueError: it is not a line of ours, or its body was changed: the leaf is not its hash.
    """
    match = _LINE.match(line)
    if match is None:
        raise ValueError("not a span line")
    epoch, lane, leaf, sequence, body = match.groups()
    if leaf_hash(body).hex().encode("ascii") != leaf:
        raise ValueError("the leaf is not the hash of the body")
    return Tail(
        epoch=int(epoch), lane=int(lane), sequence=int(sequence), leaf=bytes.fromhex(leaf.decode("ascii"))
    )
