"""A process that uses permits from many threads at a barrier; started as `python -m tests.support.racing`.

Standard input: one JSON line `{"profile": PATH, "calls": [["commit", EFFECT], ...]}`, then `go`; and so on until it
ends. It says `ready` once every thread stands at the barrier, and one JSON line with the answer of each call as soon
as it has it. `watch` instead of `calls` reads budgets in a loop until the next line comes, and says what it sees.
"""

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, Self

from issuer import Issuer
from tests.support.cases import HOUSE, PATIENCE_S, books
from tests.support.issuers import Made


def say(line: object) -> None:
    """Write one line for the parent."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def use_at_once(issuer: Issuer, calls: Sequence[tuple[str, ...]]) -> None:
    """Make every call from a thread of its own, all at once."""
    barrier = threading.Barrier(len(calls) + 1)
    turn = threading.Lock()

    def run(method: str, *arguments: str) -> None:
        barrier.wait(PATIENCE_S)
        try:
            answer = getattr(issuer, method)(*arguments)
            said = {"exit": int(answer.exit), **answer.as_json()}
        except BaseException as fault:  # noqa: BLE001 - the parent asserts on it
            said = {"code": f"raised:{type(fault).__name__}:{fault}"}
        with turn:
            say(said)

    threads = [threading.Thread(target=run, args=tuple(call), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    say("ready")
    sys.stdin.readline()
    barrier.wait(PATIENCE_S)
    for thread in threads:
        thread.join(PATIENCE_S)


def watch(issuer: Issuer, tasks: Sequence[str]) -> None:
    """Sample budgets as fast as they can be read until the next line; say each sample that differs from the last."""
    stopped = threading.Event()

    def sample() -> None:
        last: list[list[int]] = []
        while not stopped.is_set():
            now = [[line.reserved, line.settled, line.overrun] for line in books(issuer, *tasks).values()]
            if now != last:
                say(now)
                last = now

    thread = threading.Thread(target=sample)
    thread.start()
    say("ready")
    sys.stdin.readline()
    stopped.set()
    thread.join(PATIENCE_S)
    say("stopped")


def main() -> None:
    """Do what each line says, with an issuer opened for it alone."""
    for line in iter(sys.stdin.readline, ""):
        order = json.loads(line)
        with Issuer.open(order["profile"]) as issuer:
            if "watch" in order:
                watch(issuer, order["watch"])
            else:
                use_at_once(issuer, order["calls"])


class Child:
    """One such process, from the parent's side; leaving it as a context manager ends it."""

    def __init__(self) -> None:
        self.heard: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.racing"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=HOUSE,
            text=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_args: object) -> None:
        self._process.kill()
        self._process.wait()
        self._listener.join(PATIENCE_S)
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(BrokenPipeError):
                _opened(pipe).close()

    def order(self, made: Made, heard: "queue.SimpleQueue[object] | None" = None, **order: object) -> None:
        """Tell it what to do next; what it says from now on goes to `heard`, which several children may share."""
        self.heard = queue.SimpleQueue() if heard is None else heard
        self._tell(json.dumps({"profile": str(made.profile), **order}))

    def next(self) -> object:
        """Return the next line, whatever it is; waits."""
        return self.heard.get(timeout=PATIENCE_S)

    def said(self) -> dict[str, object]:
        """Return what it says next; waits."""
        line = self.heard.get(timeout=PATIENCE_S)
        assert isinstance(line, dict), line
        return line

    def ready(self) -> None:
        """Return once it stands at its barrier; of children that share what is heard, once one of them does."""
        assert self.heard.get(timeout=PATIENCE_S) == "ready"

    def go(self) -> None:
        """Let it go, or stop watching."""
        self._tell("go")

    def _tell(self, text: str) -> None:
        pipe = _opened(self._process.stdin)
        pipe.write(text + "\n")
        pipe.flush()

    def _listen(self) -> None:
        for line in _opened(self._process.stdout):
            self.heard.put(json.loads(line))


def _opened(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


if __name__ == "__main__":
    main()
