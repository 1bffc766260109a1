"""The guide "Own an issuer", followed word by word at a terminal, from the owner's seat."""

import re
from pathlib import Path

import pytest

from tests.support.guides import Reader
from tests.support.service import Service, Step, answer
from tests.support.ssh import needs_ssh_keygen
from tests.support.terminal import COLOUR, ROOT, Terminal

GUIDE = (ROOT / "docs" / "guides" / "own-an-issuer.md").read_text(encoding="utf-8")
PLACES = {
    "TOKEN": re.compile(r"token: (pit_\S+)"),
    "REVISION": re.compile(r"before: ([0-9a-f]{8})"),
}


def script() -> list[Step]:
    """The bank takes one payment; whatever else arrives fails the test."""
    return [answer(201)]


def reader(terminal: Terminal, port: int) -> Reader:
    return Reader(terminal, "shop", port, places=PLACES)


@needs_ssh_keygen
@pytest.mark.spec("POL-07", "SEC-02", "SEC-03", "SEC-04", "ADM-05", "AUD-09", "APP-01", "SUR-01", "SUR-03")
def test_an_owner_follows_the_guide_word_by_word(tmp_path: Path) -> None:
    with Service(*script()) as bank, Terminal(tmp_path) as terminal:
        following = reader(terminal, bank.port)
        following.follows(GUIDE)
        plain = terminal.types("NO_COLOR=1 issuer revisions")
    assert [request.method for request in bank.requests] == ["POST"]
    (stopped,) = [typed for typed in following.shown if typed.command == "issuer freeze"]
    assert COLOUR.search(stopped.screen), "a terminal shows colour"
    assert "\n  * " in plain
    assert "\x1b" not in plain
