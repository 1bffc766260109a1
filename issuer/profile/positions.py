"""Where each key of a TOML text stands, because `tomllib` does not say.

Decides nothing about validity: `tomllib` does that, and this index only answers "which line and column". It
walks the text once (TOML 1.0): tables, arrays of tables, dotted and quoted keys, inline tables, lists, and
the four kinds of string, whose content and comments it steps over. On text that TOML refuses it keeps what
it saw up to there, which is enough to point at the first repeated key. Paths longer than `DEPTH_MAX` stop
it, and it says so: they are refused before a recursive reader meets them.

It reads no values. `issuer/profile/reading.py` comes next.
"""

import contextlib
import re
import tomllib
from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

from issuer.profile.findings import KeyPath
from issuer.profile.limits import DEPTH_MAX

__all__ = ["Position", "PositionIndex", "Repeat", "index_positions"]

_BLANK: Final = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_SPACE: Final = re.compile(r"[ \t]*")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_BASIC: Final = re.compile(r'"(?:[^"\\\n]|\\.)*+"')
_LITERAL: Final = re.compile(r"'[^'\n]*+'")
# A multi-line string may end in up to two quotes of its own before the closing three (TOML 1.0, "String").
_BASIC_LINES: Final = re.compile(r'"""(?:[^"\\]|\\.|"{1,2}(?!"))*+"{3,5}', re.DOTALL)
_LITERAL_LINES: Final = re.compile(r"'''(?:[^']|'{1,2}(?!'))*+'{3,5}", re.DOTALL)
_PLAIN: Final = re.compile(r"[^,\]}#\n]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A place in a text: line and column from 1, the column in characters."""

    line: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """A key or table that is given a second time: TOML allows each once."""

    path: KeyPath
    first: Position
    again: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionIndex:
    """The places of all keys and list items of one text."""

    places: dict[KeyPath, Position]
    repeat: Repeat | None
    too_deep: Position | None

    def at(self, path: KeyPath) -> Position:
        """Return the place of `path`, or of the nearest table that holds it; 1:1 where nothing does."""
        for length in range(len(path), 0, -1):
            found = self.places.get(path[:length])
            if found is not None:
                return found
        return Position(line=1, column=1)


class _Stop(Exception):  # noqa: N818  # ends the walk, nothing is wrong with it
    """The text is no longer TOML here, or too deep: keep what was seen."""


def index_positions(text: str) -> PositionIndex:
    """Walk `text` (line ends are single line feeds) and return where its keys stand; never raises."""
    walk = _Walk(text)
    # Where the walk stops, tomllib refuses the same text and says why; what was seen stays useful.
    with contextlib.suppress(_Stop):
        walk.document()
    return PositionIndex(places=walk.places, repeat=walk.repeat, too_deep=walk.too_deep)


class _Walk:
    """One pass over one text; `offset` is the next unread character."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.offset = 0
        self.places: dict[KeyPath, Position] = {}
        self.repeat: Repeat | None = None
        self.too_deep: Position | None = None
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._assigned: set[KeyPath] = set()
        self._tables: set[KeyPath] = set()
        self._array_sizes: dict[KeyPath, int] = {}

    def document(self) -> None:
        """Read statements to the end of the text."""
        table: KeyPath = ()
        while True:
            self._skip(_BLANK)
            if self.offset >= len(self.text):
                return
            if self.text.startswith("[", self.offset):
                table = self._header()
            else:
                self._assignment(table)
            self._skip(_SPACE)
            if self.offset < len(self.text) and self.text[self.offset] not in "\n#":
                raise _Stop

    def _header(self) -> KeyPath:
        """Read `[a.b]` or `[[a.b]]` and return the path that the following keys belong to."""
        is_array = self.text.startswith("[[", self.offset)
        self.offset += 2 if is_array else 1
        parts = self._key()
        self._expect("]]" if is_array else "]")
        path: KeyPath = ()
        for depth, (name, start) in enumerate(parts, start=1):
            path = (*path, name)
            is_last = depth == len(parts)
            if path in self._assigned or (is_last and path in self._tables):
                self._note_repeat(path, start)
            self._record(path, start)
            if is_last and is_array:
                self._array_sizes[path] = self._array_sizes.get(path, 0) + 1
            if path in self._array_sizes:
                if is_last and not is_array:
                    self._note_repeat(path, start)
                # Keys below an array of tables belong to the table that was opened last.
                path = (*path, self._array_sizes[path] - 1)
                self._record(path, start)
        if not is_array:
            self._tables.add(path)
        return path

    def _assignment(self, table: KeyPath) -> None:
        """Read `a.b = value` inside `table`."""
        parts = self._key()
        self._expect("=")
        path = table
        for depth, (name, start) in enumerate(parts, start=1):
            path = (*path, name)
            is_last = depth == len(parts)
            if path in self._assigned or path in self._tables or (is_last and path in self.places):
                self._note_repeat(path, start)
            self._record(path, start)
        self._assigned.add(path)
        self._skip(_SPACE)
        self._value(path)

    def _key(self) -> list[tuple[str, int]]:
        """Read a key of one or more dotted parts; each with the offset where it starts."""
        parts: list[tuple[str, int]] = []
        while True:
            self._skip(_SPACE)
            start = self.offset
            if self._take(_BARE):
                parts.append((self.text[start : self.offset], start))
            elif self._take(_BASIC):
                parts.append((_unescaped(self.text[start : self.offset]), start))
            elif self._take(_LITERAL):
                parts.append((self.text[start + 1 : self.offset - 1], start))
            else:
                raise _Stop
            if len(parts) > DEPTH_MAX:
                self._stop_too_deep(start)
            self._skip(_SPACE)
            if not self.text.startswith(".", self.offset):
                return parts
            self.offset += 1

    def _value(self, path: KeyPath) -> None:
        """Step over one value; lists and inline tables record what they hold."""
        if self.text.startswith("[", self.offset):
            self._list(path)
        elif self.text.startswith("{", self.offset):
            self._inline_table(path)
        elif not any(
            self._take(pattern) for pattern in (_BASIC_LINES, _LITERAL_LINES, _BASIC, _LITERAL, _PLAIN)
        ):
            raise _Stop

    def _list(self, path: KeyPath) -> None:
        """Read `[a, b]`, which may span lines and hold comments."""
        self.offset += 1
        index = 0
        while True:
            self._skip(_BLANK)
            if self._take_text("]"):
                return
            item = (*path, index)
            self._record(item, self.offset)
            self._value(item)
            index += 1
            self._skip(_BLANK)
            if not self._take_text(","):
                self._expect("]")
                return

    def _inline_table(self, path: KeyPath) -> None:
        """Read `{ a = 1, b = 2 }`."""
        self.offset += 1
        # Later TOML allows line ends and a trailing comma here; stepping over them harms nobody.
        self._skip(_BLANK)
        while not self._take_text("}"):
            self._assignment(path)
            self._skip(_BLANK)
            if not self._take_text(","):
                self._expect("}")
                return
            self._skip(_BLANK)

    def _record(self, path: KeyPath, offset: int) -> None:
        if len(path) > DEPTH_MAX:
            self._stop_too_deep(offset)
        self.places.setdefault(path, self._position(offset))

    def _note_repeat(self, path: KeyPath, offset: int) -> None:
        if self.repeat is None and path in self.places:
            self.repeat = Repeat(path=path, first=self.places[path], again=self._position(offset))

    def _stop_too_deep(self, offset: int) -> None:
        self.too_deep = self._position(offset)
        raise _Stop

    def _position(self, offset: int) -> Position:
        line = bisect_right(self._line_starts, offset)
        return Position(line=line, column=offset - self._line_starts[line - 1] + 1)

    def _skip(self, pattern: re.Pattern[str]) -> None:
        self._take(pattern)

    def _take(self, pattern: re.Pattern[str]) -> bool:
        match = pattern.match(self.text, self.offset)
        if match is None:
            return False
        self.offset = match.end()
        return True

    def _take_text(self, text: str) -> bool:
        if not self.text.startswith(text, self.offset):
            return False
        self.offset += len(text)
        return True

    def _expect(self, text: str) -> None:
        if not self._take_text(text):
            raise _Stop


def _unescaped(token: str) -> str:
    """Return the text of a quoted key; its escapes are read by tomllib itself."""
    if "\\" not in token:
        return token[1:-1]
    try:
        value: object = tomllib.loads(f"key = {token}")["key"]
    except tomllib.TOMLDecodeError:
        raise _Stop from None
    return str(value)
