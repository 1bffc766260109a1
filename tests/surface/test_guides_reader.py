"""Who follows a guide notices what is not so: an answer, a command, a question, a line of a file."""

from pathlib import Path

import pytest

from tests.support.guides import Reader, assert_same, commands_of
from tests.support.terminal import COLOUR, Terminal

PAGE = """```toml
name = "new"
more = 2
```

```console
$ cat shop/profile.toml
name = "new"
more = 2
$ read -p 'Type yes to go on: ' said; echo "you said $said"
Type yes to go on: yes
you said yes
$ echo eff_0123456789abcdef0123456789abcdef at 2026-12-01T10:00:00.000Z
eff_fedcba9876543210fedcba9876543210 at 2030-01-01T00:00:00.000Z
$ echo EFFECT; echo one; echo two; echo three
eff_fedcba9876543210fedcba9876543210
…
three
```
"""


def follow(folder: Path, page: str) -> None:
    with Terminal(folder) as terminal:
        (terminal.home / "shop").mkdir()
        (terminal.home / "shop" / "profile.toml").write_text('name = "old"\n')
        Reader(terminal, "shop", 1).follows(page)


def test_a_page_that_says_what_happens_is_followed_to_its_end(tmp_path: Path) -> None:
    follow(tmp_path, PAGE)


@pytest.mark.parametrize(
    ("true", "untrue"),
    [
        ("you said yes\n", "you said no\n"),
        ("you said yes\n", ""),
        ("you said yes\n", "you said yes\nand more\n"),
        ("$ cat shop/profile.toml\n", "$ dog shop/profile.toml\n"),
        ("more = 2\n$", "more = 3\n$"),
        ("…\nthree", "…\nfour"),
        ("…\nthree", "one\nthree"),
        ('name = "new"\nmore = 2\n```', 'nome = "new"\nmore = 2\n```'),
        ("10:00:00.000Z\neff_", "10:00:00.000Z\nEff_"),
    ],
)
def test_a_page_that_says_anything_else_fails(true: str, untrue: str, tmp_path: Path) -> None:
    assert PAGE.count(true) == 1
    with pytest.raises(AssertionError):
        follow(tmp_path, PAGE.replace(true, untrue))


def test_a_question_that_does_not_come_fails(tmp_path: Path) -> None:
    with Terminal(tmp_path) as terminal, pytest.raises(AssertionError):
        terminal.types("echo no question", {"Type yes: ": "yes"})


def test_what_is_typed_reaches_a_terminal_and_colour_is_compared_without_it(tmp_path: Path) -> None:
    with Terminal(tmp_path) as terminal:
        typed = Reader(terminal, "", 1).types("test -t 0 && test -t 1 && printf '\\033[32mgreen\\033[0m\\n'")
    assert COLOUR.search(typed.screen)
    ((_, shown),) = commands_of("$ green\ngreen\n")
    assert_same(type(typed)(command="green", page=shown, screen=typed.screen))


def test_the_shell_has_the_terminal_for_its_own_as_programs_that_ask_for_a_passphrase_need_it(
    tmp_path: Path,
) -> None:
    with Terminal(tmp_path) as terminal:
        assert terminal.types("echo asked > /dev/tty") == "asked\n"
