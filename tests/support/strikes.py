"""Blows at numbered system calls of one command: strace is attached to a process that stands still before it.

What is counted therefore begins with the command: neither the imports nor the opening of the issuer use up numbers.
strace counts each call by name and thread, so a blow is a name and a number from 1.
"""

import re
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.committing import Job
from tests.support.kills import Nursery

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
    inject = f"inject={blow.call}:{blow.what}:when={blow.number}"
    options = ["-e", f"trace={blow.call}", "-e", inject]
    if blow.path is not None:
        options += ["-P", str(blow.path)]
    ended, answer = _traced(nursery, job, options, log)
    fell = ended == -9 if blow.what == "signal=KILL" else "INJECTED" in log.read_text()
    return Struck(ended=ended, answer=answer, fell=fell)


def calls_of(nursery: Nursery, job: Job, log: Path) -> list[str]:
    """Run a job and return the names of the system calls it makes, the most frequent first."""
    ended, _answer = _traced(nursery, job, [], log)
    assert ended == 0
    seen: Counter[str] = Counter()
    for line in log.read_text().splitlines():
        found = _CALL.match(line)
        if found is not None:
            seen[found["name"]] += 1
    return [name for name, _count in seen.most_common() if name != "exit_group"]


def _traced(
    nursery: Nursery, job: Job, options: list[str], log: Path
) -> tuple[int, dict[str, object] | None]:
    assert job.traced
    with nursery.start(job) as child:
        child.stopped()
        own = [str(STRACE), "-f", "-o", str(log), *options, "-p", str(child.pid)]
        with subprocess.Popen(own, stderr=subprocess.PIPE, text=True) as tracer:
            assert tracer.stderr is not None
            said = tracer.stderr.readline()
            assert "attached" in said, said
            child.resume()
            ended = child.ended()
            tracer.communicate()
        answers = [line["answered"] for line in child.lines if "answered" in line]
    if not answers:
        return ended, None
    assert isinstance(answers[0], dict)
    return ended, answers[0]
