"""Programs of their own process that use a ledger: `python -m tests.support.ledger_children WHAT FOLDER …`.

A parent talks with one by lines: the child prints a word when it has reached a point, and waits for a line where it
is told to hold. Nothing waits for a fixed time.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from issuer.clock import now_ms
from ledger.errors import CommitUncertain, Fault, LedgerUnavailable
from ledger.model import CounterTake, EffectId, InstantMs
from ledger.port import Verdict, View
from ledger.sqlite import SqliteLedger
from tests.support.ledgers import (
    CENT,
    Book,
    admit,
    commit_steps,
    permit,
    prepare,
    probe,
    probe_step,
)

HOUSE = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0


def started(what: str, folder: Path, *arguments: str, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """Start one of these programs, `before` it a tracer and its options."""
    return subprocess.Popen(
        [*before, sys.executable, "-m", "tests.support.ledger_children", what, str(folder), *arguments],
        cwd=HOUSE,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def heard(child: subprocess.Popen[str], word: str) -> None:
    """Wait for a child's next line, which must be `word`."""
    if child.stdout is None:
        raise AssertionError("the child has no output")
    said = child.stdout.readline().strip()
    if said != word:
        child.kill()
        raise AssertionError(f"{said!r} instead of {word!r}: {child.communicate()[1]}")


def go(children: Sequence[subprocess.Popen[str]]) -> None:
    """Wait until every child is ready, then let all of them go on at once."""
    for child in children:
        heard(child, "ready")
    for child in children:
        if child.stdin is None:
            raise AssertionError("the child has no input")
        child.stdin.write("\n")
        child.stdin.flush()


def ended(child: subprocess.Popen[str]) -> tuple[int, str]:
    """Let a child go on, wait for its end, return its code and what else it said."""
    out, err = child.communicate("\n", timeout=PATIENCE_S)
    return child.returncode, out.strip() or err.strip()


def say(word: str) -> None:
    """Tell the parent."""
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


def hold() -> None:
    """Wait for the parent."""
    sys.stdin.readline()


def holds(folder: Path) -> None:
    """Take the writers' lock, say so, hold it until told, then commit."""
    ledger = Book(folder=folder).open()

    def decide(_view: View, _now: InstantMs) -> Verdict[None]:
        say("held")
        hold()
        return Verdict(value=None, steps=(probe_step("child"),))

    ledger.transact(decide)
    ledger.close()
    say("done")


def dies(folder: Path, step: str) -> None:
    """Commit one transaction, then a second that is killed at a step."""
    armed = False

    def observe(reached: str) -> None:
        if armed and reached == step:
            os.kill(os.getpid(), signal.SIGKILL)

    ledger = Book(folder=folder).open(observer=observe)
    commit_steps(ledger, probe_step("first"))
    armed = True
    commit_steps(ledger, probe_step("second"))


def admits(folder: Path, name: str, count: str) -> None:
    """Prepare, permit and try to admit `count` effects of one unit each in the one task there is."""
    ledger = Book(folder=folder).open(clock=now_ms)
    task = ledger.read(lambda view: view.tasks())[0]
    say("ready")
    hold()
    won = permitted = 0
    for number in range(int(count)):
        effect = prepare(
            ledger,
            task,
            {CENT: 1},
            request_key=f"{name}/{number}",
            actor=name,
            expires_ms=task.expires_ms,
            prepared_ms=now_ms(),
        )
        take = CounterTake(counter="all", amount=1, ceiling=10**6, level="org")
        if permit(ledger, effect, (take,)).refusal is None:
            permitted += 1
            won += admit(ledger, effect).refusal is None
    ledger.close()
    say(json.dumps({"won": won, "permitted": permitted}))


def probes(folder: Path, name: str, count: str) -> None:
    """Commit `count` spans of an own story, as fast as it can."""
    ledger = Book(folder=folder).open(clock=now_ms)
    say("ready")
    hold()
    for _ in range(int(count)):
        commit_steps(ledger, probe_step(name))
    ledger.close()
    say("done")


def contends(folder: Path, *effects: str) -> None:
    """Try to admit the same effects as everybody else; tell which were won."""
    ledger = Book(folder=folder).open()
    found = ledger.read(lambda view: [view.effect(EffectId(name)) for name in effects])
    say("ready")
    hold()
    won = [
        effect.effect_id for effect in found if effect is not None and admit(ledger, effect).refusal is None
    ]
    ledger.close()
    say(json.dumps(won))


def _answer(act: Callable[[], object]) -> str:
    try:
        act()
    except LedgerUnavailable as fault:
        return f"unavailable:{fault.reason}"
    except CommitUncertain:
        return "uncertain"
    except Fault as fault:
        return type(fault).__name__
    return "done"


def forks(folder: Path) -> None:
    """Open, fork, use it in the child; the child tells by its exit code, the parent goes on."""
    ledger: SqliteLedger = Book(folder=folder).open()
    probe(ledger)
    child = os.fork()
    if child == 0:
        answers = [_answer(lambda: probe(ledger)), _answer(lambda: ledger.read(lambda view: view.head()))]
        ledger.close()
        os._exit(0 if answers == ["unavailable:forked"] * 2 else 1)
    _pid, status = os.waitpid(child, 0)
    say(json.dumps([os.waitstatus_to_exitcode(status), probe(ledger).sequence]))
    ledger.close()


def commits_on_bad_disk(folder: Path) -> None:
    """Commit until a fault, and tell what this object says afterwards."""
    ledger = Book(folder=folder).open()
    first = _answer(lambda: probe(ledger))
    say(json.dumps([first, _answer(lambda: probe(ledger))]))
    os._exit(0)


PROGRAMS: Mapping[str, Callable[..., None]] = {
    program.__name__: program
    for program in (holds, dies, admits, probes, contends, forks, commits_on_bad_disk)
}


if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
