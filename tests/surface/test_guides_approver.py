"""The guide "Approve an effect", followed word by word at a terminal, from the approver's seat."""

from pathlib import Path

import pytest

from tests.support.guides import Reader
from tests.support.service import Service, Step, answer
from tests.support.ssh import needs_ssh_keygen
from tests.support.terminal import COLOUR, ROOT, Terminal

GUIDE = (ROOT / "docs" / "guides" / "approve-an-effect.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def script() -> list[Step]:
    """The bank takes one payment; whatever else arrives fails the test."""
    return [answer(201)]


def reader(terminal: Terminal, port: int) -> Reader:
    spool = terminal.home / "shop" / "spool"
    return Reader(terminal, "shop", port, waits={"cat spool/*": lambda: len(list(spool.glob("[!.]*"))) == 1})


@needs_ssh_keygen
@pytest.mark.spec("APP-01", "APP-02", "APP-03", "APP-05", "ADM-05", "POL-07", "SUR-01", "SUR-03")
def test_an_approver_follows_the_guide_word_by_word(tmp_path: Path) -> None:
    with Service(*script()) as bank, Terminal(tmp_path) as terminal:
        following = reader(terminal, bank.port)
        following.follows(GUIDE)
        plain = terminal.types("NO_COLOR=1 issuer approvals")
    assert [request.method for request in bank.requests] == ["POST"]
    assert len(bank.effects) == 1
    (sent,) = [typed for typed in following.shown if typed.command.startswith("issuer commit")]
    assert COLOUR.search(sent.screen), "a terminal shows colour"
    assert "Nothing waits for anybody." in plain
    assert "\x1b" not in plain


@needs_ssh_keygen
@pytest.mark.spec("APP-01", "APP-02", "SUR-03")
def test_the_readme_shows_how_a_person_says_yes(tmp_path: Path) -> None:
    asked, rest = GUIDE.split("## Something waits")
    assert rest
    with Service() as bank, Terminal(tmp_path) as terminal:
        following = reader(terminal, bank.port)
        following.follows(asked)
        before = len(following.shown)
        following.follows(README)
    assert len(following.shown) == before + 3
    assert not bank.requests
