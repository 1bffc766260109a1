"""Verifying files of spans as the JSONL sink writes them: a sink's own, an export, or the parts of one in order.

Rules: AUD-04 (offline, and without a profile), AUD-07. No line is believed for what it says: its leaf is the hash of
its body, its body is canonical and says the same place, and the line before it comes before it; else nothing after it
is read. A last line without its end is not read: it was cut off in writing, or by somebody. Files are read a block at a
time, so a line without an end needs no more memory than another.
Next: `audit.verification` for the argument; `audit.line_forms` for one line; `audit.sinks.epochs` for the joints.
"""

import hashlib
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final, NoReturn

from audit.errors import TrailUnreadable
from audit.line_forms import LINE, READ_FAULTS, LineForms, body_document
from audit.sinks.epochs import EPOCH_BEGINS, left_roots
from audit.sinks.lines import HEADER_BYTES_MAX, LINE_BYTES_MAX, Header, Tail, read_header
from audit.verification import Finding, KeptCheckpoint, TrailReport, TrailWalk

__all__ = ["TrailFile", "header_of", "ledger_of", "verify_files"]

READ_BYTES: Final = 64 * 1024
"""Bytes read at a time: some sixty lines; with what is left of the block before, no more than malloc keeps at hand."""

_SPAN: Final = b'"span":'

Tick = Callable[[int], None]
"""Hears how many bytes were read since the last time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrailFile:
    """One file to read from its first span on.

    Attributes:
        name: what findings call it.
        file: open, behind its header.
        after: the span after which its header says that it goes on; None where it does not say so.
    """

    name: str
    file: BinaryIO
    after: Tail | None = None


class _Stop(Exception):  # noqa: N818 - it carries a finding, and no fault
    """Nothing after this line can be proven."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.what)
        self.finding = finding


def header_of(file: BinaryIO, name: str) -> Header:
    """Return what the header line of a file says; the file is then at its first span.

    Raises:
        TrailUnreadable: it does not begin as a file of spans.
    """
    line = file.readline(HEADER_BYTES_MAX)
    try:
        return read_header(line)
    except ValueError:
        pass
    if b'"kind":"permit-audit-part"' in line:
        raise TrailUnreadable(f"{name} is a selection, which proves nothing by itself; take the whole trail.")
    raise TrailUnreadable(f"{name} does not begin as a file of spans does.")


def ledger_of(file: BinaryIO, name: str) -> str:
    """Return the ledger that the header line of a file names; the file is then at its first span.

    Raises:
        TrailUnreadable: it does not begin as a file of spans.
    """
    return header_of(file, name).ledger_id


def verify_files(
    files: Sequence[TrailFile],
    ledger_id: str,
    checkpoints: Sequence[KeptCheckpoint],
    *,
    before: Iterable[bytes] = (),
    tick: Tick = lambda _read: None,
    columns: bool = True,
) -> TrailReport:
    """Read files that follow each other, each at its first span, and hold them against checkpoints of their ledger.

    Args:
        files: in order; `header_of` has read the header of each.
        ledger_id: the ledger that all of them name.
        checkpoints: opened checkpoints of this ledger.
        before: the leaves of all spans before the first file, where that goes on after an archive (AUD-08).
        tick: told of progress.
        columns: whether each line is held against its body; False leaves the root and the joints of epochs alone.

    Raises:
        OSError: a file cannot be read.
    """
    with TrailWalk(ledger_id, checkpoints) as walk:
        walk.extend(tuple(before))
        reader = _Reader(walk, LineForms(ledger_id), columns=columns)
        try:
            for turn, file in enumerate(files, start=1):
                reader.read(file, tick, is_last=turn == len(files))
        except _Stop as stop:
            return walk.report(stop.finding)
        return walk.report(is_torn=reader.is_torn)


class _Reader:
    """Where the reading stands: the epoch, and the line before."""

    def __init__(self, walk: TrailWalk, forms: LineForms, *, columns: bool) -> None:
        self._walk = walk
        self._forms = forms
        self._columns = columns
        self._epoch = -1
        self._prefix = b""
        self._before = b""
        self._name = ""
        self._number = 0
        self.is_torn = False

    def read(self, file: TrailFile, tick: Tick, *, is_last: bool) -> None:
        """Read a whole file, and stop at the first line that does not hold."""
        self._name, self._number = file.name, 1
        if file.after is not None and file.after != self._last():
            where = f"goes on after span {file.after.sequence}, which is not the last one before it"
            self._stop(0, "gap", where)
        self._number, rest = 2, b""
        while block := file.file.read(READ_BYTES):
            *lines, rest = (rest + block).split(b"\n")
            longest = max(map(len, (*lines, rest)))
            self._take(lines if longest < LINE_BYTES_MAX else [line[:LINE_BYTES_MAX] for line in lines])
            if len(rest) >= LINE_BYTES_MAX:
                self._stop(0, "line", "is longer than any line of ours")
            tick(len(block))
        if rest and not is_last:
            self._stop(0, "line", "is cut off, and another file follows")
        self.is_torn = bool(rest)

    def _take(self, lines: Sequence[bytes]) -> None:
        at = 0
        while at < len(lines):
            if not self._prefix or not lines[at].startswith(self._prefix):
                self._join(at, lines[at])
                at += 1
                continue
            run = _while_begins(lines[at:], self._prefix)
            self._follow(at, run)
            at += len(run)
        self._number += len(lines)

    def _follow(self, at: int, run: Sequence[bytes]) -> None:
        """Take lines of the epoch that is being read."""
        leaves = _leaves(run)
        if self._columns:
            holds, epoch = self._forms.holds, self._epoch
            for place, line in enumerate(run):
                sequence = self._walk.size + 1 + place
                if holds(line, leaf=leaves[place], epoch=epoch, sequence=sequence):
                    continue
                leaves[place] = _leaf(line)
                if not holds(line, leaf=leaves[place], epoch=epoch, sequence=sequence):
                    self._walk.extend(leaves[:place])
                    self._refuse(at + place, line)
        self._walk.extend(leaves)
        self._before = run[-1]

    def _join(self, at: int, line: bytes) -> None:
        """Take the first line of an epoch: of the file's own, or of one that a restore began."""
        match = LINE.fullmatch(line)
        if match is None:
            self._stop(at, "line", "is no line of ours")
        epoch, leaf, sequence, body = int(match[1]), bytes.fromhex(match[2].decode()), int(match[3]), match[4]
        if hashlib.sha256(b"\x00" + body).digest() != leaf:
            self._stop(at, "leaf", "was changed: its leaf is not the hash of its span")
        try:
            document = body_document(body)
            says = self._forms.says(document)
        except READ_FAULTS:
            self._stop(at, "body", "holds a span that is not in its one form, or is another ledger's")
        if says != (epoch, sequence):
            self._stop(at, "place", "stands elsewhere than its span says")
        if not self._prefix:
            follows, base = sequence == self._walk.size + 1, None
        else:
            begins = epoch > self._epoch and document["attributes"]["permit.transition"] == EPOCH_BEGINS
            base = self._left(document["attributes"], body, sequence) if begins else None
            follows = begins and (base is not None or sequence == self._walk.size + 1)
        if not follows:
            self._stop(at, "gap", "does not follow the line before it")
        self._walk.begin_epoch(epoch, sequence - 1, base)
        self._walk.extend([leaf])
        self._epoch, self._before = epoch, line
        self._prefix = b'{"epoch":%d,"lane":0,"leaf":"' % epoch

    def _last(self) -> Tail | None:
        """Return what the line before says about its span; None where none was read yet."""
        match = LINE.fullmatch(self._before)
        if match is None:
            return None
        return Tail(
            epoch=int(match[1]), lane=0, sequence=int(match[3]), leaf=bytes.fromhex(match[2].decode())
        )

    def _left(self, says: Mapping[str, object], body: bytes, sequence: int) -> int | None:
        """Return the epoch of the backup, where the span names exactly all that was read as what its file held.

        That is the line before as its last one, and the root over the backup's spans and then all others.
        """
        before, base = self._last(), says.get("permit.base.epoch")
        if before is None or type(base) is not int:
            return None
        roots = left_roots(body, before)
        return base if roots and self._walk.root_left(base, sequence - 1) in roots else None

    def _refuse(self, at: int, line: bytes) -> NoReturn:
        """Stop at a line of the right epoch, with the most exact word for what is wrong with it."""
        match = LINE.fullmatch(line)
        if match is None:
            self._stop(at, "line", "is no line of ours")
        if hashlib.sha256(b"\x00" + match[4]).hexdigest().encode() != match[2]:
            self._stop(at, "leaf", "was changed: its leaf is not the hash of its span")
        if int(match[3]) != self._walk.size + 1:
            self._stop(at, "gap", "does not follow the line before it")
        self._stop(
            at, "body", "holds a span that is not in its one form, or stands elsewhere than its line says"
        )

    def _stop(self, at: int, what: str, says: str) -> NoReturn:
        number = self._number + at
        raise _Stop(Finding(what=what, where=f"{self._name} line {number}", says=f"Line {number} {says}."))


def _while_begins(lines: Sequence[bytes], prefix: bytes) -> Sequence[bytes]:
    """Return the first of `lines` that begin with `prefix`; what lies between two such lines in order does as well."""
    if min(lines).startswith(prefix) and max(lines).startswith(prefix):
        return lines
    return list(itertools.takewhile(lambda line: line.startswith(prefix), lines))


def _leaves(lines: Sequence[bytes]) -> list[bytes]:
    """Return the hash of the body of each line, where their sequence numbers follow each other; else of anything."""
    begin = lines[0].find(_SPAN)
    if begin != lines[-1].find(_SPAN):
        return [_leaf(line) for line in lines]
    # Numbers of one length: each body begins at the same place.
    sha256, begin = hashlib.sha256, begin + len(_SPAN)
    return [sha256(b"\x00" + line[begin:-1]).digest() for line in lines]


def _leaf(line: bytes) -> bytes:
    return hashlib.sha256(b"\x00" + line[line.find(_SPAN) + len(_SPAN) : -1]).digest()
