"""A person at a terminal: a real shell on a pseudo-terminal, to which lines are typed and whose answers are read.

The shell has a home of its own and finds `issuer` on its path, as a reader of a guide would. What a program asks is
answered while it waits, so that a question that never comes fails the test.
"""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.support.polling import readable

ROOT: Final = Path(__file__).resolve().parents[2]
PROGRAM: Final = "from issuer.surfaces.cli.main import main; main()"
SIT_DOWN: Final = (
    "import fcntl, os, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv('/bin/sh', ['sh', '-i'])"
)
READY: Final = "<ready> "
PATIENCE_S: Final = 90
ROWS, COLUMNS = 50, 1000
COLOUR: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A shell in `folder`, on a pseudo-terminal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program = folder / "bin" / "issuer"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{PROGRAM}" "$@"\n')
        program.chmod(0o755)
        self.home = folder / "home"
        self.home.mkdir()
        environment = {
            "HOME": str(self.home),
            "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "TERM": "xterm-256color",
            "TZ": "UTC",
            "LANG": "C.UTF-8",
            "PS1": READY,
            "PS2": "",
        }
        self._screen, keyboard = pty.openpty()
        # Not `pty.fork`: the scripted service has threads. The shell takes the terminal as its own, so that it is also
        # `/dev/tty`, where `ssh-keygen` asks for a passphrase.
        self._shell = subprocess.Popen(
            [sys.executable, "-c", SIT_DOWN],
            stdin=keyboard,
            stdout=keyboard,
            stderr=keyboard,
            cwd=self.home,
            env=environment,
            start_new_session=True,
        )
        os.close(keyboard)
        fcntl.ioctl(self._screen, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self._until_ready({})

    def __enter__(self) -> Self:
        """Sit down at it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the shell, whatever it runs."""
        os.close(self._screen)  # hangs up: the shell and its jobs get SIGHUP
        self._shell.wait(PATIENCE_S)

    def types(self, line: str, answers: dict[str, str] | None = None) -> str:
        """Type one line, answer each question of `answers` once, and return what the screen showed, colour and all.

        Raises:
            AssertionError: the shell was not ready again in time, or a question did not come.
        """
        os.write(self._screen, line.encode() + b"\n")
        waiting = dict(answers or {})
        shown = self._until_ready(waiting)
        assert waiting == {}, (line, waiting, shown)
        # The first line is what was typed, as the terminal echoes it.
        return shown.partition("\n")[2]

    def _until_ready(self, waiting: dict[str, str]) -> str:
        end = time.monotonic() + PATIENCE_S
        seen = b""
        while True:
            assert readable(self._screen, end - time.monotonic()), seen.decode(errors="replace")
            seen += os.read(self._screen, 65_536)
            text = seen.decode(errors="replace").replace("\r\n", "\n")
            if text.endswith(READY):
                return text.removesuffix(READY)
            for question in [asked for asked in waiting if text.endswith(asked)]:
                os.write(self._screen, waiting.pop(question).encode() + b"\n")
