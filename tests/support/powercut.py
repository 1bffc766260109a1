"""Power cuts, replayed: what a disk may hold at each moment of a recorded run, and what our ledger makes of it.

A recording is every write, truncation, sync and change of a name on the ledger's files and the sink, with its data,
in the order in which the calls returned, and between them what the process had answered. At each moment the disk
holds what was synced, and of what was not: nothing, everything, or any part, each write torn at 512 bytes. Changes of
names reach it in their order, when their folder is synced or before.
The shared-memory file is left out: SQLite makes it anew from the WAL.
"""

import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.support.strikes import STRACE

SECTOR_BYTES: Final = 512
DATA_BYTES_MAX: Final = 1 << 20
"""Longest write that strace shows whole; a longer one is noticed and fails the recording."""

_CALLS: Final = "openat,pwrite64,write,ftruncate,fsync,fdatasync,unlink,unlinkat,link,linkat,rename,renameat2"
_UNFINISHED: Final = re.compile(r"^(\d+)\s+(.*) <unfinished \.\.\.>$")
_RESUMED: Final = re.compile(r"^(\d+)\s+<\.\.\. \w+ resumed>(.*)$")
_LINE: Final = re.compile(r"^\d+\s+(?P<call>\w+)\((?P<rest>.*)$")
_FILE: Final = r"^\d+<(?P<file>[^>]*)>"
_WRITE: Final = re.compile(
    _FILE + r', "(?P<data>[^"]*)", (?P<size>\d+)(?:, (?P<at>\d+))?\)\s+= (?P<done>\d+)$'
)
_CUT: Final = re.compile(_FILE + r", (?P<size>\d+)\)\s+= 0$")
_SYNC: Final = re.compile(_FILE + r"\)\s+= 0$")
_OPENED: Final = re.compile(r"O_CREAT.* = \d+<(?P<file>[^>]*)>$")
_UNLINKED: Final = re.compile(r'^"(?P<file>[^"]*)"\)\s+= 0$')


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One thing that happened: `write cut sync make unlink` to a file, or `said` with words."""

    what: str
    file: str = ""
    at: int | None = None
    data: bytes = b""
    words: tuple[str, ...] = ()


def record(profile: Path, watched: tuple[Path, ...], *, count: int, how: str, log: Path) -> list[Op]:
    """Run `tests.support.recorded_effects` under strace and return what happened to the `watched` files."""
    own = [sys.executable, "-m", "tests.support.recorded_effects", str(profile), str(count), how]
    traced = [
        *(str(STRACE), "-f", "-y", "-qq", "-xx", "-s", str(DATA_BYTES_MAX)),
        *("-e", "signal=none", "-e", f"trace={_CALLS}", "-o", str(log)),
    ]
    subprocess.run([*traced, *own], check=True, capture_output=True)
    names = {str(path) for path in watched}
    folders = {str(path.parent) for path in watched}
    outbox = str(profile.parent / "outbox")
    ops = [op for line in _whole_lines(log) for op in _ops(line, names, folders, outbox)]
    assert sum(op.words[:1] == ("succeeded",) for op in ops) == count
    return ops


def _whole_lines(log: Path) -> Iterator[str]:
    """Put together the calls that another thread cut in two; they count where they returned."""
    begun: dict[str, str] = {}
    for line in log.read_text().splitlines():
        unfinished, resumed = _UNFINISHED.match(line), _RESUMED.match(line)
        if unfinished is not None:
            begun[unfinished[1]] = unfinished[2]
        elif resumed is not None:
            yield f"{resumed[1]} {begun.pop(resumed[1])}{resumed[2]}"
        else:
            yield line


def _plain(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", "")) if text.startswith("\\x") else text.encode()


def _ops(line: str, names: set[str], folders: set[str], outbox: str) -> list[Op]:
    found = _LINE.match(line)
    if found is None:
        return []
    call, rest = found["call"], found["rest"]
    if call in {"write", "pwrite64"}:
        return _writes(rest, names)
    if call in {"link", "linkat", "rename", "renameat2"}:
        told = re.findall(r'"([^"]*)"', rest)
        into = re.findall(r"<([^>]*)>", rest)
        assert not {_plain(one).decode() for one in told} & names, "a watched file got another name"
        in_outbox = bool(into) and _plain(into[-1]).decode() == outbox and rest.endswith("= 0")
        return [Op(what="said", words=("sent", _plain(told[-1]).decode()))] if in_outbox else []
    pattern = {"ftruncate": _CUT, "fsync": _SYNC, "fdatasync": _SYNC, "openat": _OPENED, "unlink": _UNLINKED}
    match = pattern[call].search(rest) if call in pattern else None
    if match is None:
        return []
    file = _plain(match["file"]).decode()
    if call in {"fsync", "fdatasync"}:
        return [Op(what="sync", file=file)] if file in names | folders else []
    if file not in names:
        return []
    if call == "ftruncate":
        return [Op(what="cut", file=file, at=int(match["size"]))]
    return [Op(what="make" if call == "openat" else "unlink", file=file)]


def _writes(rest: str, names: set[str]) -> list[Op]:
    match = _WRITE.match(rest)
    if match is None:
        return []
    data = _plain(match["data"])
    file = _plain(match["file"]).decode()
    if rest.startswith("1<"):
        return [Op(what="said", words=tuple(line.split())) for line in data.decode().splitlines()]
    if file not in names:
        return []
    assert len(data) == int(match["size"]) == int(match["done"]), "a write was not recorded whole"
    return [Op(what="write", file=file, at=None if match["at"] is None else int(match["at"]), data=data)]


@dataclass(slots=True)
class _Inode:
    """One file, whatever its name: what the disk has, what it has not yet, and its length as processes see it."""

    durable: bytearray
    pending: list[Op] = field(default_factory=list)
    length: int = 0


def _apply(content: bytearray, op: Op, upto: int | None = None) -> None:
    at = op.at or 0
    if op.what == "cut":
        del content[at:]
        content.extend(bytes(at - len(content)))
        return
    data = op.data[:upto]
    if len(content) < at:
        content.extend(bytes(at - len(content)))
    content[at : at + len(data)] = data


class Disk:
    """What a disk may hold while a recording is replayed, from files that lay there whole at the start."""

    def __init__(self, start: dict[str, bytes], rng: random.Random) -> None:
        self._seen = {name: _Inode(bytearray(data), length=len(data)) for name, data in start.items()}
        self._names = dict(self._seen)
        self._changes: list[tuple[str, _Inode | None]] = []
        self._rng = rng

    def replay(self, op: Op) -> None:
        """Let one thing happen."""
        if op.what == "make":
            if op.file not in self._seen:
                self._seen[op.file] = _Inode(bytearray())
                self._changes.append((op.file, self._seen[op.file]))
        elif op.what == "unlink":
            self._seen.pop(op.file)
            self._changes.append((op.file, None))
        elif op.what == "sync" and op.file not in self._seen:
            here = [one for one in self._changes if str(Path(one[0]).parent) == op.file]
            self._changes = [one for one in self._changes if one not in here]
            _rename(self._names, here)
        elif op.what == "sync":
            inode = self._seen[op.file]
            for each in inode.pending:
                _apply(inode.durable, each)
            inode.pending.clear()
        elif op.what in {"write", "cut"}:
            inode = self._seen[op.file]
            at = inode.length if op.at is None else op.at
            placed = Op(what=op.what, at=at, data=op.data)
            inode.length = at if op.what == "cut" else max(inode.length, at + len(op.data))
            inode.pending.append(placed)

    def images(self, at_random: int) -> Iterator[dict[str, bytes]]:
        """Give what the disk may hold now: nothing unsynced, all of it, all but names, and parts at random."""
        everything = len(self._changes)
        yield self._image(lambda: 0, 0)
        yield self._image(lambda: 1, everything)
        yield self._image(lambda: 1, 0)
        for _ in range(at_random):
            yield self._image(lambda: self._rng.choice((0, 1, 1, 2)), self._rng.randint(0, everything))

    def _image(self, pick: Callable[[], int], changes: int) -> dict[str, bytes]:
        """Build one image; `pick` says of each unsynced write whether it is lost (0), there (1) or torn (2)."""
        names = dict(self._names)
        _rename(names, self._changes[:changes])
        return {name: self._content(inode, pick) for name, inode in names.items()}

    def _content(self, inode: _Inode, pick: Callable[[], int]) -> bytes:
        content = bytearray(inode.durable)
        for op in inode.pending:
            fate = pick()
            if fate == 1:
                _apply(content, op)
            elif fate == 2 and op.what == "write" and len(op.data) > SECTOR_BYTES:
                _apply(content, op, SECTOR_BYTES * self._rng.randint(1, len(op.data) // SECTOR_BYTES))
        return bytes(content)


def _rename(names: dict[str, _Inode], changes: list[tuple[str, _Inode | None]]) -> None:
    for name, inode in changes:
        if inode is None:
            names.pop(name, None)
        else:
            names[name] = inode
