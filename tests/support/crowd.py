"""A crowd of processes that want the same permits while they are killed, stopped and resumed at random.

Run as `python -m tests.support.crowd WHOSE PLACE WORKERS ATTEMPTS SECONDS SEED`; `whose` is `ours` (PLACE is a
profile) or `naive` (PLACE is a database file without our guards). It ends after so many attempts or seconds and
prints one JSON line. An attempt is one ask for a permit and, where there is one, the try to use it.

Every worker tells what it was answered on one pipe, in lines that the kernel keeps whole and that outlive their
writer. The parent, which never opens a ledger, deals a blow after a random number of lines, so the blows follow the
work and no clock. Silence means that somebody stopped holds the lock: then all go on.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from issuer import Issuer
from ledger.sqlite.connection import DRIVER
from tests.support.cases import HOUSE
from tests.support.polling import readable
from tests.support.transitions import ACTOR, TASK

SILENCE_S: Final = 0.2
LINES_BETWEEN_BLOWS: Final = (1, 60)
WINDOW: Final = 3
"""Names that one worker is ahead of the slowest teller at most when it starts anew: enough to meet the others."""

Tell = Callable[[str, str], None]


def work_ours(profile: str, first: int, tell: Tell) -> None:
    """Ask for, admit and report one effect after the other, each of which everybody wants."""
    with Issuer.open(profile) as issuer:
        for name in (f"n-{number}" for number in range(first, sys.maxsize)):
            asked = issuer.request("publish", {"name": name}, task=TASK, actor=ACTOR, request_key=name)
            tell("asked", name)
            if asked.effect is not None:
                admitted = issuer.admit(asked.effect)
                if admitted.code == "admitted":
                    tell("used", asked.effect)
                    issuer.report(asked.effect, str(admitted.more["claim"]), succeeded=True)
            tell("tried", name)


def make_naive(path: Path, ceiling: int) -> None:
    """Make a ledger as one writes it at first: a list and a number."""
    with closing(DRIVER.connect(str(path), isolation_level=None)) as raw:
        raw.execute("PRAGMA journal_mode = WAL")
        raw.execute("CREATE TABLE used (name TEXT NOT NULL)")
        raw.execute("CREATE TABLE budget (remaining INTEGER NOT NULL)")
        raw.execute("INSERT INTO budget VALUES (?)", (ceiling,))


def work_naive(path: str, first: int, tell: Tell) -> None:
    """The same against a ledger that checks in one statement and acts in the next."""
    raw: Any = DRIVER.connect(path, isolation_level=None, timeout=60)
    for name in (f"n-{number}" for number in range(first, sys.maxsize)):
        used = raw.execute("SELECT 1 FROM used WHERE name = ?", (name,)).fetchone()
        remaining = raw.execute("SELECT remaining FROM budget").fetchone()[0]
        tell("asked", name)
        if used is None and remaining > 0:
            raw.execute("INSERT INTO used VALUES (?)", (name,))
            raw.execute("UPDATE budget SET remaining = ?", (remaining - 1,))
            tell("used", name)
        tell("tried", name)


WORK: Final = {"ours": work_ours, "naive": work_naive}


@dataclass(kw_only=True)
class Crowd:
    """The parent: its workers, what they told, and the blows it dealt."""

    whose: str
    place: str
    rng: random.Random
    pipe: tuple[int, int] = field(default_factory=os.pipe)
    living: set[int] = field(default_factory=set)
    stopped: set[int] = field(default_factory=set)
    used: Counter[str] = field(default_factory=Counter)
    attempts: int = 0
    blows: Counter[str] = field(default_factory=Counter)
    furthest: int = 0
    faults: int = 0

    def spawn(self) -> None:
        """Make one worker that starts near where the others are."""
        first = max(0, self.furthest - WINDOW)
        pid = os.fork()
        if pid:
            self.living.add(pid)
            return
        code = 1
        try:
            os.close(self.pipe[0])
            WORK[self.whose](self.place, first, self._tell)
        finally:
            os._exit(code)

    def _tell(self, what: str, name: str) -> None:
        os.write(self.pipe[1], f"{what} {name}\n".encode())

    def lines(self) -> Iterator[list[str] | None]:
        """Give line after line of what is told; None is a silence."""
        rest = b""
        while True:
            ready = readable(self.pipe[0], SILENCE_S)
            if not ready:
                yield None
                continue
            *whole, rest = (rest + os.read(self.pipe[0], 1 << 16)).split(b"\n")
            for line in whole:
                yield line.decode().split()

    def hear(self, what: str, name: str) -> None:
        """Count one line."""
        if what == "used":
            self.used[name] += 1
            return
        self.attempts += what == "tried"
        self.furthest = max(self.furthest, int(name.removeprefix("n-")))

    def strike(self) -> None:
        """Kill, stop or resume one of them; whoever is killed is replaced."""
        blow = self.rng.choice(("kill", "stop", "stop", "resume"))
        victim = self.rng.choice(sorted(self.living))
        self.blows[blow] += 1
        if blow == "kill":
            self._end(victim)
            self.spawn()
        elif blow == "stop":
            os.kill(victim, signal.SIGSTOP)
            self.stopped.add(victim)
        else:
            self.resume()

    def resume(self) -> None:
        """Let all go on, and replace those that ended by themselves, which is a fault."""
        for pid in self.stopped:
            os.kill(pid, signal.SIGCONT)
        self.stopped.clear()
        for pid in sorted(self.living):
            if os.waitpid(pid, os.WNOHANG)[0]:
                self.living.discard(pid)
                self.faults += 1
                self.spawn()

    def _end(self, pid: int) -> None:
        # A killed child is not reaped by anybody else, so that its number is never another's here.
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        self.living.discard(pid)
        self.stopped.discard(pid)

    def run(self, *, workers: int, attempts: int, seconds: float) -> None:
        """Let them work until so many attempts were told, or the time is over; then end all with SIGKILL."""
        until = time.monotonic() + seconds
        for _ in range(workers):
            self.spawn()
        pause = self.rng.randint(*LINES_BETWEEN_BLOWS)
        for line in self.lines():
            if line is None:
                self.resume()
            else:
                self.hear(*line)
                pause -= 1
            if pause <= 0:
                self.strike()
                pause = self.rng.randint(*LINES_BETWEEN_BLOWS)
            if self.attempts >= attempts or time.monotonic() > until:
                break
        for pid in sorted(self.living):
            self._end(pid)
        # What was told before the end still counts, above all a use.
        os.close(self.pipe[1])
        with os.fdopen(self.pipe[0]) as told:
            for text in told:
                words = text.split()
                if len(words) == 2:
                    self.hear(*words)


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a crowd was answered: uses by permit, attempts, and blows by their name."""

    used: dict[str, int]
    attempts: int
    blows: dict[str, int]
    faults: int


def crowd(whose: str, place: Path, *, workers: int, attempts: int, seconds: float, seed: int) -> Told:
    """Let a crowd loose in processes of its own; return what it was told."""
    numbers = [str(one) for one in (workers, attempts, seconds, seed)]
    own = [sys.executable, "-m", "tests.support.crowd", whose, str(place), *numbers]
    ran = subprocess.run(own, check=True, stdout=subprocess.PIPE, cwd=HOUSE)
    return Told(**json.loads(ran.stdout))


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """What a ledger says at the end: the permits that it holds for used, and what it has spent and may spend."""

    used: frozenset[str]
    spent: int
    ceiling: int


def violations(told: Told, recorded: Recorded) -> list[str]:
    """Name every invariant that the end breaks: the same for every ledger. Each effect costs 1."""
    found = [f"{name} used {count} times" for name, count in told.used.items() if count > 1]
    found += [f"{name} used and not on record" for name in told.used if name not in recorded.used]
    uses = sum(told.used.values())
    if recorded.spent > recorded.ceiling or uses > recorded.ceiling:
        found.append(f"ceiling {recorded.ceiling}: {uses} uses, {recorded.spent} on record")
    if recorded.spent < uses:
        found.append(f"{uses} uses, and only {recorded.spent} on record as spent")
    return found


def main(arguments: list[str]) -> None:
    """Run one crowd and print what it was told."""
    whose, place, workers, attempts, seconds, seed = arguments
    loose = Crowd(whose=whose, place=place, rng=random.Random(int(seed)))  # noqa: S311 - blows, not secrets
    loose.run(workers=int(workers), attempts=int(attempts), seconds=float(seconds))
    told = {
        "used": loose.used,
        "attempts": loose.attempts,
        "blows": loose.blows,
        "faults": loose.faults,
    }
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
