"""Verify an audit trail of permit-issuer, or the proof of one effect, offline: Python 3.9+ and nothing else.

    python3 -I permit_audit_verifier.py --key VKEY|FILE --checkpoint FILE|FOLDER ... EXPORT ...
    python3 -I permit_audit_verifier.py --key VKEY|FILE --proof FILE

Get the key, and checkpoints, from somewhere else than the trail: they are what it is held against. Exit codes:
0 everything is proven, 8 something is not (`tampered`, `not_anchored`), 2 the input cannot be used.

It shares no code with the issuer: Ed25519 (RFC 8032 section 5.1), notes and checkpoints (C2SP signed-note,
tlog-checkpoint) and tree (RFC 9162 section 2.1) are written out below. That is slow, some milliseconds a signature, but
it is independent, and short enough to be read. It holds no secret, so nothing in it needs to run in constant time.

What `verified` says: the first N spans are exactly those that were signed, all of them and in order. It does not say
that what spans tell is true, nor anything of spans after the newest checkpoint, which are counted in the answer.
What a restore left behind in a file is proven by the first span of the epoch that it began.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import hashlib
import json
import re
import sys
from pathlib import Path

VERIFIED, NOT_ANCHORED, TAMPERED, MALFORMED = "verified", "not_anchored", "tampered", "malformed"
EXITS = {VERIFIED: 0, NOT_ANCHORED: 8, TAMPERED: 8, MALFORMED: 2}
LINE_MAX, NOTE_MAX = 64 * 1024 + 256, 256 * 1024
PROOF_SPANS_MAX = 256
RESTORED = "ledger.restored"
LEFT = re.compile(r"[^=]+=([0-9]{1,16}):([0-9]{1,16}):([0-9a-f]{64}):([0-9a-f]{64})\Z")
SIZE = re.compile(r"0|[1-9][0-9]{0,15}")
REFUSE: object = {}.__getitem__  # a fraction, or what is no number, is a KeyError
BAD = (ValueError, TypeError, KeyError, AttributeError, RecursionError)


class Unusable(Exception):
    """The input is no trail, proof, key or checkpoint at all."""


class Untrue(Exception):
    """Something does not hold."""


P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
ROOT_OF_MINUS_ONE = pow(2, (P - 1) // 4, P)
NEUTRAL = (0, 1, 1, 0)


def point_sum(one: tuple, two: tuple) -> tuple:
    """Add two points in extended homogeneous coordinates (RFC 8032 section 5.1.4)."""
    a = (one[1] - one[0]) * (two[1] - two[0]) % P
    b = (one[1] + one[0]) * (two[1] + two[0]) % P
    c = 2 * one[3] * two[3] * D % P
    d = 2 * one[2] * two[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return (e * f % P, g * h % P, f * g % P, e * h % P)


def point_times(scalar: int, point: tuple) -> tuple:
    """Multiply a point by double and add."""
    total = NEUTRAL
    while scalar:
        if scalar & 1:
            total = point_sum(total, point)
        point = point_sum(point, point)
        scalar >>= 1
    return total


def point_bytes(point: tuple) -> bytes:
    """Encode a point (RFC 8032 section 5.1.2)."""
    inverse = pow(point[2], P - 2, P)
    x, y = point[0] * inverse % P, point[1] * inverse % P
    return (y | (x & 1) << 255).to_bytes(32, "little")


def point_of(data: bytes) -> tuple | None:
    """Decode a point (RFC 8032 section 5.1.3); None where it is none, or not in its one form."""
    encoded = int.from_bytes(data, "little")
    sign, y = encoded >> 255, encoded & (2**255 - 1)
    if len(data) != 32 or y >= P:
        return None
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * ROOT_OF_MINUS_ONE % P
    if x * x % P != square or (x == 0 and sign):
        return None
    if x & 1 != sign:
        x = P - x
    return (x, y, 1, x * y % P)


BASE = point_of((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))


def is_signed(public_key: bytes, signature: bytes, message: bytes) -> bool:
    """Say whether the key made the signature (RFC 8032 section 5.1.7); a key of small order makes none."""
    point = point_of(public_key)
    if point is None or len(signature) != 64 or point_bytes(point_times(8, point)) == point_bytes(NEUTRAL):
        return False
    r, s = signature[:32], int.from_bytes(signature[32:], "little")
    if point_of(r) is None or s >= L:
        return False
    hashed = int.from_bytes(hashlib.sha512(r + public_key + message).digest(), "little") % L
    negative = (P - point[0], point[1], point[2], P - point[3])
    return point_bytes(point_sum(point_times(s, BASE), point_times(hashed, negative))) == r


def base64_of(data: bytes) -> str:
    """Encode base64 (RFC 4648 section 4)."""
    return base64.b64encode(data).decode("ascii")


def is_name(name: str) -> bool:
    """Say whether a text may name a key."""
    return 0 < len(name) <= 256 and not any(char == "+" or char < "!" or char.isspace() for char in name)


def key_hash(name: str, key: bytes) -> bytes:
    """Return the four bytes that a signature line names a key by."""
    return hashlib.sha256(name.encode() + b"\n\x01" + key).digest()[:4]


def read_key(text: str) -> tuple:
    """Return name and key of a verifier key in its one form."""
    try:
        name, hashed, encoded = text.split("+", 2)
        held = base64.b64decode(encoded, validate=True)
    except ValueError:
        raise Unusable("a key is not a verifier key") from None
    key = held[1:]
    proper = len(held) == 33 and held[0] == 1 and is_name(name) and base64_of(held) == encoded
    if not proper or key_hash(name, key).hex() != hashed:
        raise Unusable("a key is not a verifier key")
    return name, key


def signature_lines(lines: list) -> list:
    """Return name, key hash and signature of each line of a note."""
    read = []
    for line in lines:
        dash, name, encoded = line.split(" ")
        held = base64.b64decode(encoded, validate=True)
        if dash != "\u2014" or not is_name(name) or len(held) <= 4 or base64_of(held) != encoded:
            raise ValueError("no signature line")
        read.append((name, held[:4], held[4:]))
    return read


def opened(note: bytes, keys: list) -> tuple:
    """Return origin, size and root of a checkpoint that one of the keys signed."""
    for name, key in keys:
        with contextlib.suppress(*BAD, Untrue):
            return opened_with(note, name, key)
    raise Untrue("it is not a checkpoint that a given key signed")


def opened_with(note: bytes, name: str, key: bytes) -> tuple:
    """Return what a checkpoint says, if this key signed it under the name of its origin."""
    whole = note.decode()
    text, blank, last = whole.rpartition("\n\n")
    proper = len(note) <= NOTE_MAX and blank and last.endswith("\n")
    if not proper or re.search("[\x00-\x09\x0b-\x1f]", whole):
        raise Untrue("no note")
    lines = signature_lines(last[:-1].split("\n"))
    own = [each[2] for each in lines if each[:2] == (name, key_hash(name, key))]
    if len(lines) > 64 or not own or not all(is_signed(key, each, (text + "\n").encode()) for each in own):
        raise Untrue("not signed")
    origin, size, root = text.split("\n")
    held = base64.b64decode(root, validate=True)
    if origin != name or SIZE.fullmatch(size) is None or base64_of(held) != root or len(held) != 32:
        raise Untrue("no checkpoint")
    return origin, int(size), held


def node_of(left: bytes, right: bytes) -> bytes:
    """Hash a node."""
    return hashlib.sha256(b"\x01" + left + right).digest()


class Tree:
    """How many leaves there are, and the roots of the full subtrees over them, largest first."""

    def __init__(self) -> None:
        self.size = 0
        self.peaks: list = []

    def add(self, leaf: bytes) -> None:
        """Append a leaf."""
        number, self.size = self.size, self.size + 1
        while number & 1:
            leaf = node_of(self.peaks.pop(), leaf)
            number >>= 1
        self.peaks.append(leaf)

    def root(self) -> bytes:
        """Return the tree head."""
        if not self.peaks:
            return hashlib.sha256(b"").digest()
        root = self.peaks[-1]
        for peak in reversed(self.peaks[:-1]):
            root = node_of(peak, root)
        return root


def root_by_path(index: int, size: int, leaf: bytes, path: list) -> bytes:
    """Return the root that a leaf and its path lead to (RFC 9162 section 2.1.3.2)."""
    place, last = index, size - 1
    for element in path:
        if last == 0:
            raise Untrue("a path is too long")
        if place & 1 or place == last:
            leaf = node_of(element, leaf)
            while place and not place & 1:
                place, last = place >> 1, last >> 1
        else:
            leaf = node_of(leaf, element)
        place, last = place >> 1, last >> 1
    if last:
        raise Untrue("a path is too short")
    return leaf


def canonical(value: object) -> bytes:
    """Return the one form of a JSON document without fractions."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def document_of(line: bytes) -> dict:
    """Return the document of a line that is in its one form."""
    document = json.loads(line.decode(), parse_float=REFUSE, parse_constant=REFUSE)
    if type(document) is not dict or canonical(document) != line:
        raise ValueError("not in its one form")
    return document


class Line:
    """One span as its line holds it, after everything about it that needs no other line was checked."""

    def __init__(self, line: bytes, ledger: str) -> None:
        try:
            held = document_of(line)
            span = held["span"]
            said = span["attributes"]
            place = tuple(said["permit." + name] for name in ("ledger.id", "epoch", "lane", "sequence"))
            proper = (
                len(line) < LINE_MAX
                and set(held) == {"epoch", "lane", "leaf", "sequence", "span"}
                and type(span) is dict
                and 0 <= held["epoch"] < 10**16
                and 0 < held["sequence"] < 10**16
                and place == (ledger, held["epoch"], 0, held["sequence"])
                and held["lane"] == 0
                and {type(each) for each in (*place[1:], *map(held.get, ("epoch", "lane", "sequence")))}
                == {int}
                and span["name"] == "permit." + said["permit.transition"]
            )
        except BAD:
            raise Untrue("it is no line of this ledger in its one form") from None
        self.leaf = hashlib.sha256(b"\x00" + canonical(span)).digest()
        if not proper:
            raise Untrue("it is no line of this ledger, or its span stands elsewhere than it says")
        if held["leaf"] != self.leaf.hex():
            raise Untrue("its leaf is not the hash of its span")
        self.epoch, self.sequence, self.attributes = held["epoch"], held["sequence"], said

    def left(self) -> set:
        """Return where the first span of an epoch says that files stood, each with the root over all that it held."""
        texts = self.attributes.get("permit.sinks.left")
        texts = texts if type(texts) is list and {*map(type, texts)} <= {str} else []
        return {(int(each[1]), int(each[2]), each[3], each[4]) for each in map(LEFT.match, texts) if each}


class Trail:
    """A trail as it is read, held against each checkpoint at its size."""

    def __init__(self, checkpoints: list) -> None:
        self.tree = Tree()
        self.before: Line | None = None
        self.anchored = self.believed_from = 0
        self.read: list = []  # each leaf, and for each epoch the places in here of its trail
        self.trails: dict = {}
        self.waiting: dict = {}
        for name, size, root in checkpoints:
            self.waiting.setdefault(size, []).append([name, root, "not reached"])
        self.hold()

    def take(self, line: Line) -> None:
        """Take the next span, or refuse it where it does not follow."""
        begins, left = line.attributes["permit.transition"] == RESTORED, None
        base: list = []
        old: list = []
        if self.before is None:
            follows = line.sequence == 1
        elif line.epoch == self.before.epoch:
            base = self.trails[line.epoch]
            follows = line.sequence == len(base) + 1 and not begins
        else:
            old = self.trails[self.before.epoch]
            left = self.left(line, self.before) if begins else None
            base = old[:] if left is None else left
            follows = begins and line.epoch > self.before.epoch and line.sequence == len(base) + 1
        if not follows:
            raise Untrue("it does not follow the line before it")
        if left is not None:
            self.go_back(left, old)
        self.trails[line.epoch] = base
        base.append(len(self.read))
        self.read.append(line.leaf)
        self.tree.add(line.leaf)
        self.before = line
        self.hold()

    def left(self, line: Line, last: Line) -> list | None:
        """Return the trail of the backup, if the first span of an epoch names exactly what was read as its file."""
        epoch = line.attributes.get("permit.base.epoch")
        trail = self.trails.get(epoch, [])[: line.sequence - 1] if type(epoch) is int else []
        stood, kept = (last.epoch, last.sequence, last.leaf.hex()), set(trail)
        if len(trail) != line.sequence - 1 or stood not in {each[:3] for each in line.left()}:
            return None
        whole = Tree()
        for place in trail + [each for each in range(len(self.read)) if each not in kept]:
            whole.add(self.read[place])
        return trail if (*stood, whole.root().hex()) in line.left() else None

    def go_back(self, trail: list, old: list) -> None:
        """Leave behind what a restore did, and take up the trail of its backup."""
        pairs = enumerate(zip(trail, old))  # noqa: B905 - the shorter one ends it
        size = next((at for at, (one, other) in pairs if one != other), len(trail))
        self.tree = Tree()
        for place in trail[:size]:
            self.tree.add(self.read[place])
        self.anchored, self.believed_from = min(self.anchored, size), len(trail) + 1
        for reached, waiting in self.waiting.items():
            for each in waiting if reached > size else ():
                each[2] = {"holds": "left behind", "differs": "not reached"}.get(each[2], each[2])
        for place in trail[size:]:
            self.tree.add(self.read[place])
            self.hold()

    def hold(self) -> None:
        """Hold the root against the checkpoints of this size."""
        for each in self.waiting.get(self.tree.size, ()):
            if each[1] == self.tree.root():
                each[2], self.anchored = "holds", self.tree.size
            elif each[2] != "left behind":
                each[2] = "differs"

    def verdict(self, *, stopped: bool, refused: bool) -> str:
        """Return what it comes to, worst first."""
        standings = {each[2] for waiting in self.waiting.values() for each in waiting}
        if stopped or standings & {"differs", "not reached"}:
            return TAMPERED
        covered = self.anchored >= self.believed_from and (self.anchored or not self.tree.size)
        return VERIFIED if standings and covered and not refused else NOT_ANCHORED


def header_of(line: bytes, path: Path) -> tuple:
    """Return the ledger that the first line of a file names, and where the file before ends, or ()."""
    with contextlib.suppress(*BAD):
        held = document_of(line[:-1])
        after = held.pop("after", ())
        kind = (set(held), held["kind"], held["v"], type(held["v"]), type(held["ledger"]), line[-1:])
        if kind == ({"kind", "ledger", "v"}, "permit-audit", 1, int, str, b"\n"):
            return held["ledger"], after
    raise Unusable(f"{path.name} does not begin as a file of spans does")


def verify_export(paths: list, keys: list, notes: list) -> tuple:
    """Verify files of spans as one trail; return a verdict and lines that say what is proven."""
    ledgers = set()
    for path in paths:
        with path.open("rb") as file:
            ledgers.add(header_of(file.readline(512), path)[0])
    if len(ledgers) != 1:
        raise Unusable("the files are of different ledgers")
    ledger, told, checkpoints = ledgers.pop(), [], []
    for name, note in notes:
        try:
            origin, size, root = opened(note, keys)
            if origin != "permit-issuer/" + ledger:
                raise Untrue("it is of another ledger")
            checkpoints.append((name, size, root))
        except Untrue as fault:
            told.append(f"checkpoint {name} does not count: {fault}")
    refused, trail, stopped = bool(told), Trail(checkpoints), ""
    for path in paths:
        stopped = stopped or read_into(trail, path, ledger, is_last=path is paths[-1], told=told)
    told.append(stopped or "every line was read")
    for size, waiting in sorted(trail.waiting.items()):
        told += [f"checkpoint {name} of {size} spans: {standing}" for name, _root, standing in waiting]
    proven = f"proven: spans 1 to {trail.anchored}, all of them, in order"
    told.append(proven if trail.anchored else "nothing is proven")
    told.append(f"not anchored: {trail.tree.size - trail.anchored} newer spans")
    return trail.verdict(stopped=bool(stopped), refused=refused), told


def read_into(trail: Trail, path: Path, ledger: str, *, is_last: bool, told: list) -> str:
    """Read a file into a trail; return what stopped it, or an empty text."""
    with path.open("rb") as file:
        after, last = header_of(file.readline(512), path)[1], trail.before
        place = last and {"epoch": last.epoch, "lane": 0, "leaf": last.leaf.hex(), "sequence": last.sequence}
        if after != () and (place is None or canonical(after) != canonical(place)):
            return f"{path.name} line 1: it goes on after another span than the last one before it"
        for number, line in enumerate(iter(lambda: file.readline(LINE_MAX + 1), b""), start=2):
            try:
                if not line.endswith(b"\n"):
                    if not is_last or len(line) >= LINE_MAX:
                        raise Untrue("it is cut off, or too long")
                    told.append("the last line has no end, and was not read")
                    break
                trail.take(Line(line[:-1], ledger))
            except Untrue as fault:
                return f"{path.name} line {number}: {fault}"
    return ""


def read_proof(data: bytes) -> tuple:
    """Return ledger, effect, note, lines and paths of a proof."""
    with contextlib.suppress(*BAD):
        head, *lines = data[:-1].split(b"\n")
        held = document_of(head)
        paths = [[bytes.fromhex(each) for each in path] for path in held["paths"]]
        if (
            set(held) == {"checkpoint", "effect", "kind", "ledger", "paths", "v"}
            and (held["kind"], held["v"], type(held["v"])) == ("permit-proof", 1, int)
            and type(held["ledger"]) is type(held["effect"]) is str
            and [[each.hex() for each in path] for path in paths] == held["paths"]
            and 0 < len(lines) == len(paths) <= PROOF_SPANS_MAX
            and data.endswith(b"\n")
        ):
            return held["ledger"], held["effect"], held["checkpoint"].encode(), lines, paths
    raise Unusable("that is no proof in its one form")


def verify_proof(data: bytes, keys: list) -> tuple:
    """Verify the proof of one effect's story; return a verdict and what is proven."""
    ledger, effect, note, lines, paths = read_proof(data)
    try:
        origin, size, root = opened(note, keys)
    except Untrue as fault:
        return NOT_ANCHORED, [f"the checkpoint in the proof does not count: {fault}"]
    try:
        before = 0
        for line, path in zip(lines, paths):  # noqa: B905 - as long as each other, and 3.9 has no strict
            span = Line(line, ledger)
            if span.attributes.get("permit.story") != effect or not before < span.sequence <= size:
                raise Untrue("a span is about something else, or out of order")
            before = span.sequence
            if len(path) > 64 or any(len(each) != 32 for each in path):
                raise Untrue("a path holds something else than hashes")
            if root_by_path(span.sequence - 1, size, span.leaf, path) != root:
                raise Untrue(f"span {span.sequence} is not in the tree that was signed")
        if origin != "permit-issuer/" + ledger:
            raise Untrue("the checkpoint is of another ledger")
    except Untrue as fault:
        return TAMPERED, [f"the proof does not hold: {fault}"]
    return VERIFIED, [f"proven: {len(lines)} spans of {effect} are among the first {size} of {ledger}"]


def verify(arguments: argparse.Namespace) -> tuple:
    """Verify what was asked for."""
    held = [Path(key).read_text().splitlines() if Path(key).is_file() else [key] for key in arguments.key]
    keys = [read_key(text.strip()) for lines in held for text in lines if text.strip()]
    if arguments.proof is not None:
        return verify_proof(arguments.proof.read_bytes(), keys)
    places = arguments.checkpoint
    files = [each for one in places for each in (sorted(one.glob("*.note")) if one.is_dir() else [one])]
    if (places and not files) or ((files or arguments.key) and not keys):
        raise Unusable("there is no checkpoint, or no key")
    return verify_export(arguments.export, keys, [(file.name, file.read_bytes()) for file in files])


def main() -> int:
    """Read what was typed, verify, and say what is proven."""
    parser = argparse.ArgumentParser(description="Verify an audit trail of permit-issuer offline.")
    parser.add_argument("export", nargs="*", type=Path, help="files of spans, in order")
    parser.add_argument("--checkpoint", action="append", default=[], type=Path, help="a note, or a folder")
    parser.add_argument("--key", action="append", default=[], help="a verifier key, or a file of such")
    parser.add_argument("--proof", type=Path, help="the proof of one effect")
    arguments = parser.parse_args()
    if (arguments.proof is None) == (not arguments.export):
        parser.error("name files of spans, or a proof")
    try:
        verdict, told = verify(arguments)
    except (Unusable, OSError, UnicodeDecodeError) as fault:
        verdict, told = MALFORMED, [str(fault)]
    print(verdict, *("  " + line.encode("unicode_escape").decode("ascii") for line in told), sep="\n")
    return EXITS[verdict]


if __name__ == "__main__":
    sys.exit(main())
