"""A guide followed word by word at a terminal: its files edited, its commands typed, its answers compared.

A page has blocks of four kinds. `toml` and `cedar` are what the reader writes: a block that begins with a table (or a
policy) is added at the end of the file; each line of any other block takes the place of the line with that key, or is
put under the line before it.
`console` is what is typed after `$ ` and all that the terminal then shows. A line `…` stands for any number of lines
that the page leaves out; ids, instants, digests and the address of the service differ from run to run and are not
compared. Words in capitals, such as EFFECT, are what the reader has to put in: the last one that was shown.
"""

import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.support.terminal import COLOUR, PATIENCE_S, Terminal

BLOCK: Final = re.compile(r"^```([a-z]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILES: Final = {"toml": "profile.toml", "cedar": "policies/starter.cedar"}
LEFT_OUT: Final = "…"
QUESTION: Final = re.compile(r"^(Type yes [^:]*: |Enter [^:]*: )(.*)$")

PLACES: Final[Mapping[str, re.Pattern[str]]] = {
    "EFFECT": re.compile(r"eff_[0-9a-f]{32}"),
}
"""What the reader puts in for a word, everywhere: the last one shown."""

VARYING: Final = (
    (re.compile(r'\{"act":.*\}'), "MACHINE"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| [+-]\d\d:\d\d)?"), "TIME"),
    (re.compile(r"\b\d\d:\d\d:\d\d\.\d{3}\b"), "CLOCK"),
    (re.compile(r"SHA256:[A-Za-z0-9+/]{43}"), "FINGERPRINT"),
    (re.compile(r"\b(eff|led|tsk|inv|pmt)_[0-9a-f]{32}\b"), r"\1_ID"),
    (re.compile(r"\b[0-9a-f]{8,64}\b"), "DIGEST"),
    (re.compile(r"\bpit_(?:host|actor)_[a-z-]+_[A-Za-z0-9_-]{20,}"), "SECRET"),
)
"""What differs from run to run, and what it is compared as; in order."""


@dataclass(frozen=True)
class Typed:
    """One command of a page with what the page shows under it, and what was shown."""

    command: str
    page: str
    screen: str


@dataclass
class Reader:
    """Somebody who follows a guide in `folder` of their home, with the service of the guide at `port`."""

    terminal: Terminal
    folder: str
    port: int
    places: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    """What else the reader puts in for a word, as the group or whole of what was shown."""
    waits: Mapping[str, Callable[[], bool]] = field(default_factory=dict)
    """What a reader sees to before a command: something that comes by itself, soon."""
    shown: list[Typed] = field(default_factory=list)
    _known: dict[str, str] = field(default_factory=dict)

    def follows(self, page: str) -> None:
        """Do what a page says, in order; stop where the terminal shows something else.

        Raises:
            AssertionError: the page and the terminal differ, or a line that the page changes is not there.
        """
        for kind, block in BLOCK.findall(page):
            if kind in FILES:
                self.writes(FILES[kind], block)
            elif kind == "console":
                for command, page_shows in commands_of(block):
                    typed = self.types(command, page_shows)
                    assert_same(typed)

    def writes(self, name: str, block: str) -> None:
        """Put a block of the page into a file, as its reader would."""
        place = self.terminal.home / self.folder / name
        text, block = place.read_text(encoding="utf-8"), self._here(block)
        if block.startswith(("[", "@", "//")):
            place.write_text(f"{text}\n{block}", encoding="utf-8")
            return
        place.write_text(changed(text, block), encoding="utf-8")

    def types(self, command: str, page_shows: str = "") -> Typed:
        """Type one command of the page, answering what the page shows an answer to."""
        if command in self.waits:
            come(self.waits[command])
        line = command
        for word, value in self._known.items():
            line = re.sub(rf"\b{word}\b", value, line)
        asked = [QUESTION.match(row) for row in page_shows.splitlines()]
        answers = {found[1]: found[2] for found in asked if found is not None}
        screen = self.terminal.types(line, answers)
        plain = COLOUR.sub("", screen)
        for word, pattern in {**PLACES, **self.places}.items():
            found = pattern.findall(plain)
            if found:
                self._known[word] = found[-1]
        typed = Typed(command=command, page=page_shows, screen=self._there(screen))
        self.shown.append(typed)
        return typed

    def _here(self, text: str) -> str:
        text = text.replace("https://bank.example", f"http://127.0.0.1:{self.port}")
        return text.replace("uid:1000", f"uid:{os.getuid()}")

    def _there(self, text: str) -> str:
        """Return a text of this machine as the page has it: at the bank, in the home of a reader."""
        for here, there in (
            (f"http://127.0.0.1:{self.port}", "https://bank.example"),
            ('destination.addresses[0]: "127.0.0.1"', 'destination.addresses[0]: "203.0.113.7"'),
            ('destination.host: "127.0.0.1"', 'destination.host: "bank.example"'),
            ('destination.scheme: "http"\n', 'destination.scheme: "https"\n'),
            (f"destination.port: {self.port}\n", "destination.port: 443\n"),
            (f"uid:{os.getuid()}", "uid:1000"),
            (str(self.terminal.home), "/home/you"),
        ):
            text = text.replace(here, there)
        return text


def changed(text: str, block: str) -> str:
    """Return a file in which each line of `block` stands in place of that with its key, or under the line before."""
    above = ""
    for line in block.splitlines():
        key = line.partition("=")[0].strip()
        rows = text.split("\n")
        held = [at for at, row in enumerate(rows) if re.match(rf"{re.escape(key)} *=", row)]
        assert len(held) == 1 or (not held and above in rows), f"the file has {len(held)} lines for: {line}"
        if held:
            rows[held[0]] = line
        else:
            rows.insert(rows.index(above) + 1, line)
        text, above = "\n".join(rows), line
    return text


def commands_of(block: str) -> Iterator[tuple[str, str]]:
    """Return each command of a block with what the page shows under it."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


def assert_same(typed: Typed) -> None:
    """See that the terminal showed what the page shows, line by line."""
    page, screen = lines_of(typed.page), lines_of(COLOUR.sub("", typed.screen))
    parts = ["(?:[^\n]*\n)*?" if line == LEFT_OUT else re.escape(line + "\n") for line in page]
    told = "".join(line + "\n" for line in screen)
    assert re.fullmatch("".join(parts), told), f"$ {typed.command}\n--- the page\n{page}\n--- shown\n{screen}"


def come(has_come: Callable[[], bool]) -> None:
    """Return as soon as something has come by itself.

    Raises:
        AssertionError: it has not, in the patience of a terminal.
    """
    end = time.monotonic() + PATIENCE_S
    pause = threading.Event()
    while not has_come():
        assert time.monotonic() < end
        pause.wait(0.05)


def lines_of(text: str) -> list[str]:
    """Return the lines of a text with all that varies masked."""
    for pattern, word in VARYING:
        text = pattern.sub(word, text)
    return [line.rstrip() for line in text.splitlines()]
