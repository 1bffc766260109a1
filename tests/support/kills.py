"""Kills and stops of real processes at numbered steps, and what the ledger then says before anybody touches it.

`Nursery` makes the processes (`tests.support.committing`); a `Child` is one of them, seen from the test. Nothing
here waits for a fixed time: every wait is for a line that a process or the kernel's own word put on a pipe.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from issuer import Issuer
from ledger.model import EffectId
from ledger.states import EffectState
from tests.support.committing import Job
from tests.support.polling import readable

PATIENCE_S: Final = 30.0
"""Longest wait for a line: a test that is wrong ends, one that is right never comes near it."""

TRANSACTION: Final = ("locked", "before_commit", "committed")

WAY: Final = (
    "sinks_probed",
    *(f"admission:{step}" for step in TRANSACTION),
    "admission_acknowledged",
    "looked_again",
    "answered",
    *(f"outcome:{step}" for step in TRANSACTION),
    "settled",
    "outcome_acknowledged",
)
"""Every step of one commit, in order; the two transactions told apart."""


def step_number(name: str) -> int:
    """Return the number of a step of `WAY`, from 1."""
    return WAY.index(name) + 1


def plain_steps() -> list[str]:
    """Return the steps of `WAY` as a process tells them."""
    return [step.rpartition(":")[2] for step in WAY]


class Child:
    """One process, seen from outside. Leaving it as a context manager ends the process, whatever it does."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._rest = b""
        self._lines: list[dict[str, object]] = []
        self.pid = int(str(self._first("pid")))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(ProcessLookupError):
            self.send(signal.SIGKILL)
        self._first("ended")
        os.close(self._pipe)

    @property
    def steps(self) -> list[str]:
        """The steps told so far."""
        return [str(line["step"]) for line in self._lines if "step" in line]

    @property
    def lines(self) -> list[dict[str, object]]:
        """Everything told so far."""
        return list(self._lines)

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless its end was told: then its number may belong to another."""
        if not self._has("ended"):
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it with SIGKILL, and return once the kernel says so."""
        self.send(signal.SIGKILL)
        assert self.ended() == -signal.SIGKILL

    def stopped(self, times: int = 1) -> None:
        """Return once the kernel says that it stands still, for the `times`th time."""
        assert self._first("stopped", times) == signal.SIGSTOP

    def resume(self) -> None:
        """Let it go on."""
        self.send(signal.SIGCONT)

    def ended(self) -> int:
        """Return its exit code, or the negative number of the signal that ended it."""
        return int(str(self._first("ended")))

    def answer(self) -> dict[str, object]:
        """Return the answer of its command, in JSON."""
        said = self._first("answer")
        assert isinstance(said, dict)
        return said

    def answered(self) -> dict[str, object]:
        """Return the answer of its command as soon as it has it, where its job says `traced`."""
        said = self._first("answered")
        assert isinstance(said, dict)
        return said

    def raised(self) -> str:
        """Return the name of what its command raised."""
        return str(self._first("raised"))

    def _has(self, fact: str, times: int = 1) -> bool:
        return sum(fact in line for line in self._lines) >= times

    def _first(self, fact: str, times: int = 1) -> object:
        """Wait for so many lines with this fact and return the first; every process ends, so the wait does too."""
        until = time.monotonic() + PATIENCE_S
        while not self._has(fact, times):
            if self._has("ended"):
                raise AssertionError(f"it ended without {fact}: {self._lines}")
            ready = readable(self._pipe, until - time.monotonic())
            if not ready:
                raise AssertionError(f"waited in vain for {fact}: {self._lines}")
            data = os.read(self._pipe, 1 << 16)
            if not data:
                raise AssertionError(f"the pipe closed without {fact}: {self._lines}")
            *whole, self._rest = (self._rest + data).split(b"\n")
            self._lines.extend(json.loads(line) for line in whole)
        return next(line[fact] for line in self._lines if fact in line)


class Nursery:
    """The process that makes processes: it imports everything once and never opens an issuer."""

    def __enter__(self) -> Self:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.committing"], stdin=theirs.fileno()
            )
        self._jobs = ours
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._jobs.close()
        self._process.wait(PATIENCE_S)

    def start(self, job: Job) -> Child:
        """Start a process for a job."""
        reading, writing = os.pipe()
        try:
            socket.send_fds(self._jobs, [job.encoded()], [writing])
        finally:
            os.close(writing)
        return Child(reading)


def untouched_state(issuer: Issuer, effect: str) -> EffectState:
    """Return the state on record, read past every command so that nothing sweeps on the way."""
    found = issuer._house.ledger.read(lambda view: view.effect(EffectId(effect)))
    assert found is not None
    return found.state


def state_of(issuer: Issuer, effect: str) -> str | None:
    """Return the state that `show` tells, which is a touch."""
    return issuer.show(effect).state


def spans_named(issuer: Issuer, effect: str, name: str) -> int:
    """Count the spans of this name in the story of an effect, without touching it."""
    story = issuer._house.ledger.read(lambda view: view.story(effect))
    return sum(span.name == name for span in story)
