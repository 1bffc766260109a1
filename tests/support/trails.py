"""Trails in memory, signed and tampered with: lines of real spans, a checkpoint key, and one random edit at a time.

`reference_root` and its kin are RFC 9162 section 2.1 as it is written, by recursion over all leaves: slow, and made of
other steps than what ships, so that each can be held against the other.
"""

import hashlib
import io
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from audit.errors import TrailUnreadable
from audit.notes import VerifierKey, checkpoint_text, ledger_origin, signed, vkey
from audit.sinks.epochs import Left, left_text
from audit.sinks.lines import Tail, header_line, span_line
from audit.trail_lines import TrailFile, ledger_of, verify_files
from audit.verification import TrailReport
from issuer.verifying import Given
from ledger.model import EffectId
from ledger.transitions import SpanRow, Transition, TransitionName
from ledger.tree import GrowingTree
from tests.support.spans import LEDGER, SpansInMemory, sample, settled_story

ORIGIN = ledger_origin(LEDGER)
MALFORMED = "malformed"


# ------------------------------------------------------------------ RFC 9162 section 2.1, as it is written


def _k(count: int) -> int:
    k = 1
    while 2 * k < count:
        k *= 2
    return k


def reference_root(leaves: Sequence[bytes]) -> bytes:
    """MTH over leaf hashes (section 2.1.1)."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    k = _k(len(leaves))
    return hashlib.sha256(b"\x01" + reference_root(leaves[:k]) + reference_root(leaves[k:])).digest()


def reference_path(index: int, leaves: Sequence[bytes]) -> list[bytes]:
    """PATH (section 2.1.3.1)."""
    if len(leaves) == 1:
        return []
    k = _k(len(leaves))
    if index < k:
        return [*reference_path(index, leaves[:k]), reference_root(leaves[k:])]
    return [*reference_path(index - k, leaves[k:]), reference_root(leaves[:k])]


def reference_consistency(old: int, leaves: Sequence[bytes], *, whole: bool = True) -> list[bytes]:
    """SUBPROOF (section 2.1.4.1)."""
    if old == len(leaves):
        return [] if whole else [reference_root(leaves)]
    k = _k(len(leaves))
    if old <= k:
        return [*reference_consistency(old, leaves[:k], whole=whole), reference_root(leaves[k:])]
    return [*reference_consistency(old - k, leaves[k:], whole=False), reference_root(leaves[:k])]


# ------------------------------------------------------------------ keys and checkpoints


class CheckpointKey:
    """A key for checkpoints, made from a seed."""

    def __init__(self, seed: bytes = bytes(range(32)), name: str = ORIGIN) -> None:
        self.name = name
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = self._key.public_key().public_bytes_raw()

    @property
    def vkey(self) -> str:
        """The text of its public half."""
        return vkey(self.name, self.public)

    @property
    def verifier(self) -> VerifierKey:
        """Its public half."""
        return VerifierKey(name=self.name, public_key=self.public)

    def sign(self, message: bytes) -> bytes:
        """Sign anything."""
        return self._key.sign(message)

    def note(self, size: int, root: bytes, *, origin: str | None = None) -> bytes:
        """Sign a checkpoint."""
        text = checkpoint_text(origin or self.name, size, root)
        return signed(text, self.name, self.public, self.sign(text.encode()))

    def over(self, rows: Sequence[SpanRow], size: int | None = None) -> bytes:
        """Sign a checkpoint over the first `size` of these rows, which have to be one tree."""
        leaves = [row.leaf for row in rows[: len(rows) if size is None else size]]
        return self.note(len(leaves), reference_root(leaves))


# ------------------------------------------------------------------ trails


@dataclass(frozen=True)
class Signed:
    """A trail as files hold it: its lines without newlines, the header first, and a checkpoint over all spans."""

    lines: tuple[bytes, ...]
    note: bytes

    @property
    def data(self) -> bytes:
        """The bytes of the file."""
        return joined(self.lines)


def joined(lines: Sequence[bytes]) -> bytes:
    """Return a file of lines."""
    return b"".join(line + b"\n" for line in lines)


def header() -> bytes:
    """Return the header line of the tests' ledger."""
    return header_line(LEDGER)[:-1]


def line_of(row: SpanRow) -> bytes:
    """Return the line of a span, without its newline."""
    return span_line(row)[:-1]


def told_spans(count: int, *, seed: int = 0) -> SpansInMemory:
    """Return spans of stories, refusals and probes, at least `count` of them."""
    source = SpansInMemory(seed=seed)
    number = 0
    while source_size(source) < count:
        number += 1
        settled_story(source, EffectId(f"eff_{number:032x}"))
        if number % 5 == 0:
            source.add(sample(TransitionName.REFUSED))
    return source


def source_size(source: SpansInMemory) -> int:
    """Return how many spans there are."""
    return len(source.spans_after(0, limit=1_000_000_000))


def rows_of(source: SpansInMemory) -> Sequence[SpanRow]:
    """Return all spans."""
    return source.spans_after(0, limit=1_000_000_000)


def signed_trail(count: int, key: CheckpointKey) -> Signed:
    """Return a trail of `count` spans and a checkpoint over all of them."""
    rows = rows_of(told_spans(count))[:count]
    return Signed(lines=(header(), *map(line_of, rows)), note=key.over(rows))


def restored(
    source: SpansInMemory,
    upto: int,
    left: SpanRow | None,
    *,
    root: bytes | None = None,
    base_epoch: int | None = None,
) -> SpanRow:
    """Go back to the first `upto` spans and begin an epoch, which names where a sink stood.

    `root` is over all that the sink held, the backup's spans first; without it over what `source` has up to `left`. The
    backup is of the epoch before, or of `base_epoch`.
    """
    if left is not None and root is None:
        root = reference_root([row.leaf for row in rows_of(source)[: left.position.sequence]])
    source.roll_back_to(upto)
    source.epoch += 1
    attributes: dict[str, Any] = {
        "permit.mode": "ordinary",
        "permit.base.epoch": source.epoch - 1 if base_epoch is None else base_epoch,
        "permit.base.sequence": upto,
        "permit.reason": "with_sink",
        "permit.count": 0,
    }
    if left is not None:
        place = left.position
        tail = Tail(epoch=place.epoch, lane=0, sequence=place.sequence, leaf=left.leaf)
        attributes["permit.sinks.left"] = (left_text(Left(name="local", tail=tail, root=root or b"")),)
    return source.add(
        Transition(name=TransitionName.LEDGER_RESTORED, story=source.ledger_id, attributes=attributes)
    )


def report_of(
    data: bytes | Sequence[bytes],
    notes: Sequence[bytes],
    key: CheckpointKey | None,
    *,
    columns: bool = True,
) -> tuple[TrailReport, list[tuple[str, str]]]:
    """Verify files in memory; return what was found, and the checkpoints that do not count."""
    parts = [data] if isinstance(data, bytes) else data
    files = [TrailFile(name=f"part{turn}", file=io.BytesIO(part)) for turn, part in enumerate(parts)]
    ledgers = {ledger_of(file.file, file.name) for file in files}
    (ledger_id,) = ledgers
    named = tuple((f"c{turn}.note", note) for turn, note in enumerate(notes))
    checkpoints, refused = Given(keys=() if key is None else (key.verifier,), notes=named).opened(ledger_id)
    return verify_files(files, ledger_id, checkpoints, columns=columns), refused


def verdict_of(data: bytes, notes: Sequence[bytes], key: CheckpointKey | None) -> str:
    """Return the code that a verification ends with."""
    try:
        report, refused = report_of(data, notes, key)
    except TrailUnreadable:
        return MALFORMED
    return "not_anchored" if refused and report.verdict == "verified" else str(report.verdict)


# ------------------------------------------------------------------ one edit at a time

Edit = Callable[[Signed, random.Random], Signed]


def document(line: bytes) -> dict[str, Any]:
    """Return a line as a document."""
    read: dict[str, Any] = json.loads(line)
    return read


def spelled(read: dict[str, Any], *, leaf: bool = True, place: bool = False) -> bytes:
    """Return a document as a line; with `place` its span says where the line stands, with `leaf` the leaf is right."""
    if place:
        for name in ("epoch", "lane", "sequence"):
            read["span"]["attributes"][f"permit.{name}"] = read[name]
    if leaf:
        read["leaf"] = hashlib.sha256(b"\x00" + _canonical(read["span"])).hexdigest()
    return _canonical(read)


def _canonical(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def _with(trail: Signed, lines: Sequence[bytes]) -> Signed:
    return Signed(lines=tuple(lines), note=trail.note)


def _some(trail: Signed, draw: random.Random) -> int:
    return draw.randrange(1, len(trail.lines))


def _at(trail: Signed, at: int, line: bytes) -> Signed:
    return _with(trail, (*trail.lines[:at], line, *trail.lines[at + 1 :]))


def changed_byte(trail: Signed, draw: random.Random) -> Signed:
    """Change one byte of one line, the header as well."""
    at = draw.randrange(len(trail.lines))
    line = bytearray(trail.lines[at])
    line[draw.randrange(len(line))] ^= 1 << draw.randrange(8)
    return _at(trail, at, bytes(line))


def _changed(trail: Signed, draw: random.Random) -> tuple[int, dict[str, Any]]:
    at = _some(trail, draw)
    read = document(trail.lines[at])
    said = read["span"]["attributes"]
    name = draw.choice(
        [name for name in said if name not in {"permit.epoch", "permit.lane", "permit.sequence"}]
    )
    value = said[name]
    said[name] = (
        f"{value}x"
        if isinstance(value, str)
        else value + 1
        if type(value) is int
        else [*value, "x"]
        if isinstance(value, list)
        else not value
    )
    return at, read


def changed_value(trail: Signed, draw: random.Random) -> Signed:
    """Change a value of a span and nothing else."""
    at, read = _changed(trail, draw)
    return _at(trail, at, spelled(read, leaf=False))


def changed_value_and_leaf(trail: Signed, draw: random.Random) -> Signed:
    """Change a value of a span, and its leaf with it."""
    at, read = _changed(trail, draw)
    return _at(trail, at, spelled(read))


def dropped_value(trail: Signed, draw: random.Random) -> Signed:
    """Take an attribute away, and set the leaf right."""
    at = _some(trail, draw)
    read = document(trail.lines[at])
    said = read["span"]["attributes"]
    del said[draw.choice(list(said))]
    return _at(trail, at, spelled(read))


def changed_place(trail: Signed, draw: random.Random) -> Signed:
    """Say another place on a line, or on a line and in its span."""
    at = _some(trail, draw)
    read = document(trail.lines[at])
    read[draw.choice(["epoch", "lane", "sequence"])] += draw.choice([-1, 1])
    return _at(trail, at, spelled(read, place=draw.random() < 0.5))


def other_form(trail: Signed, draw: random.Random) -> Signed:
    """Write a line in another form that reads the same, with the leaf of that form."""
    at = _some(trail, draw)
    line = trail.lines[at]
    read = document(line)
    body = json.dumps(read["span"], sort_keys=draw.random() < 0.5, separators=(", ", ":")).encode()
    if draw.random() < 0.5:
        body = _canonical(read["span"]).replace(b'"permit.', b'"\\u0070ermit.', 1)
    leaf = hashlib.sha256(b"\x00" + body).hexdigest().encode()
    begin = line.index(b'"span":') + len(b'"span":')
    return _at(trail, at, line[:begin].replace(read["leaf"].encode(), leaf) + body + b"}")


def removed(trail: Signed, draw: random.Random) -> Signed:
    """Take a line away."""
    at = _some(trail, draw)
    return _with(trail, (*trail.lines[:at], *trail.lines[at + 1 :]))


def removed_and_chained(trail: Signed, draw: random.Random) -> Signed:
    """Take a line away and number all later ones anew."""
    at = _some(trail, draw)
    return _with(trail, (*trail.lines[:at], *_numbered(trail.lines[at + 1 :], at)))


def put_in_and_chained(trail: Signed, draw: random.Random) -> Signed:
    """Put a copy of a span in, under another span id, and number all later ones anew."""
    at = _some(trail, draw)
    read = document(trail.lines[at])
    read["span"]["span"] = f"{draw.getrandbits(64):016x}"
    return _with(trail, (*trail.lines[:at], *_numbered([spelled(read), *trail.lines[at:]], at)))


def _numbered(lines: Sequence[bytes], first: int) -> list[bytes]:
    numbered = []
    for sequence, line in enumerate(lines, start=first):
        read = document(line)
        read["sequence"] = sequence
        numbered.append(spelled(read, place=True))
    return numbered


def doubled(trail: Signed, draw: random.Random) -> Signed:
    """Write a line twice."""
    at = _some(trail, draw)
    return _with(trail, (*trail.lines[: at + 1], *trail.lines[at:]))


def swapped(trail: Signed, draw: random.Random) -> Signed:
    """Swap two lines."""
    one, two = _two(trail, draw)
    lines = list(trail.lines)
    lines[one], lines[two] = lines[two], lines[one]
    return _with(trail, lines)


def swapped_and_chained(trail: Signed, draw: random.Random) -> Signed:
    """Swap two spans, and let each say the place of the other."""
    one, two = _two(trail, draw)
    lines = list(trail.lines)
    lines[one], lines[two] = (
        _numbered([trail.lines[other]], place)[0] for other, place in ((two, one), (one, two))
    )
    return _with(trail, lines)


def _two(trail: Signed, draw: random.Random) -> tuple[int, int]:
    one, two = draw.sample(range(1, len(trail.lines)), 2)
    return one, two


def cut(trail: Signed, draw: random.Random) -> Signed:
    """Cut the end off, between two lines."""
    return _with(trail, trail.lines[: _some(trail, draw)])


def forged_restore(trail: Signed, draw: random.Random) -> Signed:
    """Put in a restore that goes back, names the line before as what it left, and go on with what follows it."""
    at = _some(trail, draw)
    last, base = document(trail.lines[at]), draw.randrange(1, at + 1)
    read = document(trail.lines[base])
    read["epoch"], read["sequence"] = last["epoch"] + 1, base
    read["span"]["attributes"]["permit.transition"] = "ledger.restored"
    read["span"]["name"] = "permit.ledger.restored"
    leaves = [bytes.fromhex(document(line)["leaf"]) for line in trail.lines[1 : at + 1]]
    read["span"]["attributes"]["permit.base.epoch"] = last["epoch"]
    read["span"]["attributes"]["permit.sinks.left"] = [
        f"local={last['epoch']}:{last['sequence']}:{last['leaf']}:{reference_root(leaves).hex()}"
    ]
    return _with(trail, (*trail.lines[: at + 1], spelled(read, place=True)))


def changed_note(trail: Signed, draw: random.Random) -> Signed:
    """Change one byte of the checkpoint."""
    note = bytearray(trail.note)
    note[draw.randrange(len(note))] ^= 1 << draw.randrange(8)
    return Signed(lines=trail.lines, note=bytes(note))


EDITS: tuple[Edit, ...] = (
    changed_byte,
    changed_value,
    changed_value_and_leaf,
    dropped_value,
    changed_place,
    other_form,
    removed,
    doubled,
    swapped,
    swapped_and_chained,
    cut,
    forged_restore,
    changed_note,
)
"""Every kind that is cheap to make; the two that number everything anew come beside them."""

CHAINED: tuple[Edit, ...] = (removed_and_chained, put_in_and_chained)


def edited(trail: Signed, turn: int, draw: random.Random) -> tuple[str, Signed]:
    """Return the edit of one turn, every kind in its turn, and what it made of the trail: never the trail itself."""
    edit = CHAINED[turn % 2] if turn % 29 == 0 else EDITS[turn % len(EDITS)]
    while True:
        made = edit(trail, draw)
        if (made.lines, made.note) != (trail.lines, trail.note):
            return edit.__name__, made


def grown_trail(path: Path, count: int, key: CheckpointKey) -> bytes:
    """Write a file of `count` spans, made of a thousand real ones at other places; return a checkpoint over them."""
    templates = [document(line_of(row)) for row in rows_of(told_spans(1000))]
    tree = GrowingTree()
    with path.open("wb") as file:
        file.write(header() + b"\n")
        for sequence in range(1, count + 1):
            read = templates[sequence % len(templates)]
            read["sequence"] = sequence
            file.write(spelled(read, place=True) + b"\n")
            tree.add(bytes.fromhex(read["leaf"]))
    return key.note(count, tree.frontier().root())


def restored_twice(base: int) -> tuple[list[SpanRow], list[SpanRow]]:
    """Return what a file holds after two restores, the second from a backup that the first left behind; and its trail.

    The first goes back from 60 spans to 40; `base` is the size of the second's backup, up to 60.
    """
    source, again = told_spans(60), told_spans(60)
    first = list(rows_of(source))
    restored(source, 40, first[-1])
    for _ in range(10):
        source.add()
    file = [*first, *rows_of(source)[40:]]
    root = reference_root([row.leaf for row in (*first[:base], *first[base:], *file[len(first) :])])
    again.epoch = 1
    restored(again, base, file[-1], root=root, base_epoch=0)
    for _ in range(10):
        again.add()
    trail = list(rows_of(again))
    return [*file, *trail[base:]], trail
