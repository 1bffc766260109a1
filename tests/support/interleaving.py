"""Several processes that ask, answer, stop, thaw, activate and send at random, while some of them are killed.

Run as `python -m tests.support.interleaving WORLD WORKERS ACTS SECONDS SEED`: WORLD is the file that
`tests.support.interleaved` writes. It ends after so many acts once every code in `WANTED` was heard, or after so many
seconds, and prints one JSON line. Every worker tells what it was answered on one pipe, in lines that the kernel keeps
whole and that outlive their writer; the parent never opens a ledger. A worker that ends by itself is a fault.
"""

import json
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.support.interleaving_acts import Worker, World
from tests.support.polling import readable

WANTED: Final = frozenset(
    {
        *(
            "permitted",
            "awaiting_approval",
            "approved",
            "declined_now",
            "withdrawn_now",
            "expired",
            "revoked_now",
        ),
        *("revoked", "suspended", "suspended_now", "resumed", "too_late", "denied", "budget_exceeded"),
        *("succeeded", "activated", "forbidden", "task_frozen", "held_back"),
    }
)
"""What has to be answered at least once; `held_back` is an admission that its winner took back after a second look."""

LINES_BETWEEN_KILLS: Final = (60, 240)
SILENCE_S: Final = 0.2


@dataclass(kw_only=True)
class Crew:
    """The parent: its workers, what they told, and whom it killed."""

    world: World
    rng: random.Random
    pipe: tuple[int, int] = field(default_factory=os.pipe)
    living: set[int] = field(default_factory=set)
    codes: Counter[str] = field(default_factory=Counter)
    looks: list[tuple[str, int, int]] = field(default_factory=list)
    given: Counter[str] = field(default_factory=Counter)
    acts: int = 0
    kills: int = 0
    faults: int = 0

    def spawn(self) -> None:
        """Make one worker."""
        seed = self.rng.getrandbits(64)
        pid = os.fork()
        if pid:
            self.living.add(pid)
            return
        try:
            os.close(self.pipe[0])
            Worker(self.world, random.Random(seed), self._tell).work()  # noqa: S311 - a test's choices, no secrets
        except BaseException:  # noqa: BLE001 - the parent counts it, and the test shows it
            traceback.print_exc()
        finally:
            os._exit(1)

    def _tell(self, *words: object) -> None:
        os.write(self.pipe[1], (" ".join(map(str, words)) + "\n").encode())

    def lines(self) -> Iterator[list[str] | None]:
        """Give line after line of what is told; None is a silence."""
        rest = b""
        while True:
            if not readable(self.pipe[0], SILENCE_S):
                yield None
                continue
            *whole, rest = (rest + os.read(self.pipe[0], 1 << 16)).split(b"\n")
            for line in whole:
                yield line.decode().split()

    def hear(self, what: str, *said: str) -> None:
        """Count one line."""
        match what:
            case "look":
                self.looks.append((said[0], int(said[1]), int(said[2])))
            case "given":
                self.given[said[0]] += 1
            case _:
                self.acts += 1
                self.codes[said[1]] += 1

    def _end(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        _pid, status = os.waitpid(pid, 0)
        self.living.discard(pid)
        self.faults += not os.WIFSIGNALED(status)

    def run(self, *, workers: int, acts: int, seconds: float) -> None:
        """Let them act and kill some; at the end, all of them."""
        until = time.monotonic() + seconds
        for _worker in range(workers):
            self.spawn()
        pause = self.rng.randint(*LINES_BETWEEN_KILLS)
        for line in self.lines():
            if line is not None:
                self.hear(*line)
                pause -= 1
            if pause <= 0:
                self._end(self.rng.choice(sorted(self.living)))
                self.kills += 1
                self.spawn()
                pause = self.rng.randint(*LINES_BETWEEN_KILLS)
            is_done = self.acts >= acts and self.codes.keys() >= WANTED
            if is_done or time.monotonic() >= until:
                break
        for pid in sorted(self.living):
            self._end(pid)
        os.close(self.pipe[1])
        with os.fdopen(self.pipe[0]) as told:
            for text in told:
                self.hear(*text.split())


def main(arguments: list[str]) -> None:
    """Run one crew and print what it was told."""
    world, workers, acts, seconds, seed = arguments
    crew = Crew(world=World.read(Path(world)), rng=random.Random(int(seed)))  # noqa: S311 - a test's choices
    crew.run(workers=int(workers), acts=int(acts), seconds=float(seconds))
    told = {name: getattr(crew, name) for name in ("codes", "looks", "given", "acts", "kills", "faults")}
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
