"""Blows at numbered system calls of one command: strace is attached to a process that stands still before it.

What is counted therefore begins with the command: neither the imports nor the opening of the issuer use up numbers.
strace counts each call by name and thread, so a blow is a name and a number from 1.
"""

import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.committing import Job
from tests.support.kills import Child, Nursery

STRACE: Final = shutil.which("strace")

_CALL: Final = re.compile(r"^(?P<thread>\d+)\s+(?P<name>[a-z_0-9]+)\(")


def can_trace() -> bool:
    """Say whether strace is here and may trace."""
    if STRACE is None:
        return False
    tried = subprocess.run([STRACE, "-o", "/dev/null", "true"], check=False, capture_output=True)
    return tried.returncode == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Blow:
    """What happens at the `number`-th call of this name: `what` is `signal=KILL` or `error=EIO`, as strace says it.

    Attributes:
        path: only calls on this file count; None is every call.
    """

    call: str
    number: int
    what: str
    path: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """How a command ended: the exit code, its answer where it told one, and whether the blow fell."""

    ended: int
    answer: dict[str, object] | None
    fell: bool

    @property
    def code(self) -> str | None:
        """The code it was answered with."""
        return None if self.answer is None else str(self.answer["code"])


def strike(nursery: Nursery, job: Job, blow: Blow, log: Path) -> Struck:
    """Run a job whose `traced` is set and let the blow fall; `log` is a file for strace."""
    with struck(nursery, job, blow, log) as child:
        ended = child.ended()
        answer = answer_of(child)
    fell = ended == -9 if blow.what == "signal=KILL" else has_fallen(log)
    return Struck(ended=ended, answer=answer, fell=fell)


@contextmanager
def struck(nursery: Nursery, job: Job, blow: Blow, log: Path) -> Iterator[Child]:
    """Start a job whose `traced` is set, for the blow to fall, and give the process; it does not outlive this."""
    inject = f"inject={blow.call}:{blow.what}:when={blow.number}"
    options = ["-e", f"trace={blow.call}", "-e", inject]
    if blow.path is not None:
        options += ["-P", str(blow.path)]
    with _traced(nursery, job, options, log) as child:
        yield child


def has_fallen(log: Path) -> bool:
    """Say whether an error that was to be injected was; the process has ended."""
    return "INJECTED" in log.read_text()


def calls_of(nursery: Nursery, job: Job, log: Path) -> dict[str, int]:
    """Run a job and return the names of the system calls it makes, each with the most that one thread makes of it."""
    with _traced(nursery, job, [], log) as child:
        assert child.ended() == 0
    seen: Counter[tuple[str, str]] = Counter()
    for line in log.read_text().splitlines():
        found = _CALL.match(line)
        if found is not None and found["name"] != "exit_group":
            seen[found["name"], found["thread"]] += 1
    most: dict[str, int] = {}
    for (name, _thread), count in seen.most_common():
        most.setdefault(name, count)
    return most


def meddled(
    nursery: Nursery, job: Job, meddle: Callable[[int], None]
) -> tuple[int, dict[str, object] | None]:
    """Run a job, and `meddle` with the process of this number once it stands still; return its end and answer."""
    with nursery.start(job) as child:
        child.stopped()
        meddle(child.pid)
        child.resume()
        return child.ended(), answer_of(child)


def answer_of(child: Child) -> dict[str, object] | None:
    """Return the answer that a process told, or None where it told none."""
    answers = [line[name] for line in child.lines for name in ("answered", "answer") if name in line]
    if not answers:
        return None
    assert isinstance(answers[0], dict)
    return answers[0]


@contextmanager
def _traced(nursery: Nursery, job: Job, options: list[str], log: Path) -> Iterator[Child]:
    assert job.traced
    with nursery.start(job) as child:
        child.stopped()
        own = [str(STRACE), "-f", "-o", str(log), *options, "-p", str(child.pid)]
        with subprocess.Popen(own, stderr=subprocess.PIPE, text=True) as tracer:
            assert tracer.stderr is not None
            said = tracer.stderr.readline()
            assert "attached" in said, said
            child.resume()
            try:
                yield child
            finally:
                with suppress(ProcessLookupError):
                    child.send(signal.SIGKILL)
                tracer.communicate()
