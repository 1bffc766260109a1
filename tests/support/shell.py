"""The command line as a user meets it: as a process of its own, or in this one where a process adds nothing.

Both run the same entry point with the same bytes on standard input, and keep what went to each stream apart.
"""

import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from issuer.surfaces.cli import main

HOUSE = Path(__file__).parents[2]
ANSWER_KEYS = (
    "v", "issuer", "effect", "code", "state", "mode", "operation", "resource", "cost", "expires", "retryable", "next",
    "say",
)  # fmt: skip
"""The documented order of an answer's keys."""

PROCESS_S = 60
"""Longest life of one process: a loaded machine needs a few seconds to import everything."""

_ENTRY = "from issuer.surfaces.cli import main; main()"


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What one run left: its exit code and both streams."""

    exit: int
    out: str
    err: str

    @property
    def answer(self) -> dict[str, Any]:
        """The one JSON object on standard output; anything else there fails."""
        line, end, rest = self.out.partition("\n")
        if not end or rest:
            raise AssertionError(f"not exactly one line on standard output: {self.out!r} {self.err!r}")
        document = json.loads(line)
        if tuple(document)[: len(ANSWER_KEYS)] != ANSWER_KEYS:
            raise AssertionError(f"keys out of order: {tuple(document)}")
        return document  # type: ignore[no-any-return]  # checked by the keys

    @property
    def code(self) -> str:
        """The answer's code."""
        return str(self.answer["code"])

    @property
    def effect(self) -> str:
        """The answer's effect reference, which must be there."""
        effect = self.answer["effect"]
        if not effect:
            raise AssertionError(self.out)
        return str(effect)


def environment(changes: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process that runs this copy of the product."""
    return {**os.environ, "PYTHONPATH": str(HOUSE), **changes}


def issuer_process(
    *arguments: str | bytes,
    at: Path,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    user: int | None = None,
) -> Ran:
    """Run `issuer` with `arguments` in the folder `at`, as a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", _ENTRY, *arguments],
        cwd=at,
        input=stdin,
        env=environment(env or {}),
        capture_output=True,
        timeout=PROCESS_S,
        check=False,
        user=user,
    )
    return Ran(exit=done.returncode, out=done.stdout.decode(), err=done.stderr.decode())


def issuer_here(*arguments: str, at: Path, stdin: bytes = b"") -> Ran:
    """Run the same entry point in this process."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _stream in range(2)]
    given = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    code: object = None
    with (
        chdir(at),
        redirect_stdout(streams[0]),
        redirect_stderr(streams[1]),
        patch.object(sys, "stdin", given),
    ):
        try:
            main(list(arguments))
        except SystemExit as ended:
            code = ended.code
    out, err = (_text(stream) for stream in streams)
    if type(code) is not int:
        raise AssertionError(f"no exit code: {code!r} {err}")
    return Ran(exit=code, out=out, err=err)


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    return buffer.getvalue().decode() if isinstance(buffer, io.BytesIO) else ""
