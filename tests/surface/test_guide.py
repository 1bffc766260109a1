"""The guide "Describe a service once", followed as a reader would: its files written, its commands typed.

What the text says of the service is what the scripted one does. An effect id in what a command prints is the EFFECT of
the commands after it.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.service import Service, accept_then_close, answer

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guides" / "describe-a-service.md"
BLOCK = re.compile(r"^```(toml|cedar|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EFFECT_ID = re.compile(r"eff_[0-9a-f]{32}")
PROGRAM = f'exec {sys.executable} -c "from issuer.surfaces.cli.main import main; main()" "$@"\n'


def record(tag: str) -> bytes:
    """The record as the service shows it at one revision."""
    return b'{"legal_hold": false, "revision": "' + tag.encode() + b'"}'


def reads(tag: str) -> dict[str, str]:
    return {"etag": f'"{tag}"'}


@pytest.fixture
def service() -> Iterator[Service]:
    looks = [answer(200, reads(tag), record(tag), effect=False) for tag in ("v1", "v2", "v1", "v1")]
    with Service(accept_then_close(), *looks, answer(204, body=b"")) as service:
        yield service


class Reader:
    """Somebody at a shell who follows the guide."""

    def __init__(self, folder: Path, port: int) -> None:
        program = folder / "bin" / "issuer"
        program.parent.mkdir()
        program.write_text("#!/bin/sh\n" + PROGRAM)
        program.chmod(0o755)
        self.here = folder
        self.effect = ""
        self._port = port
        path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}

    def adds(self, name: str, text: str) -> None:
        """Write a block to the end of a file; the services of the guide are on this machine."""
        here = re.sub(r"https://[a-z]+\.example", f"http://127.0.0.1:{self._port}", text)
        with (self.here / name).open("a") as file:
            file.write("\n" + here)

    def types(self, line: str) -> str:
        """Run one line, and return what it printed."""
        command = line.replace("EFFECT", self.effect)
        if command.startswith("cd "):
            self.here /= command.removeprefix("cd ")
            return ""
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=self.here,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        printed = done.stdout + done.stderr
        found = EFFECT_ID.search(printed)
        self.effect = self.effect if found is None else found[0]
        return printed


def lines_of(block: str) -> Iterator[tuple[str, list[str]]]:
    """Return each command of a block with the lines that the guide shows under it."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, *shown = part.rstrip("\n").split("\n")
        yield command, shown


@pytest.mark.spec("OPR-01", "REC-01", "REP-05", "EFF-06", "EFF-07", "SUR-03")
def test_the_guide_does_what_it_says(tmp_path: Path, service: Service) -> None:
    reader = Reader(tmp_path, service.port)
    files = {"toml": "profile.toml", "cedar": "policies/files.cedar"}
    for kind, block in BLOCK.findall(GUIDE.read_text(encoding="utf-8")):
        if kind != "console":
            reader.adds(files[kind], block)
            continue
        for command, shown in lines_of(block):
            printed = reader.types(command)
            assert [line for line in shown if line not in printed] == [], (command, printed)
    assert (len(service.effects), len(service.lookups)) == (2, 1)
    sent = [request.method for request in service.requests]
    assert sent == ["POST", "GET", "GET", "GET", "GET", "DELETE"]
