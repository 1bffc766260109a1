"""A process of its own that gives one command to an issuer, tells every step, and may end or stop at one of them.

Run as `python -m tests.support.committing`, with a socket as standard input, it imports everything once and then
makes a fresh process for each `Job` it is sent. No issuer is ever open where a process is made. Beside each stands
a witness, its parent, that only waits: what it says about a kill or a stop is what the kernel told it.
Everything is told in JSON lines, on a pipe that comes with the job. `tests.support.kills` is the other end.
"""

import ctypes
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, NoReturn

from issuer.api import Issuer
from issuer.clock import now_ms
from issuer.wire import Answer
from ledger.changes import Step
from ledger.model import InstantMs
from ledger.port import Verdict
from ledger.transitions import Transition, TransitionName

JOB_BYTES_MAX: Final = 1 << 16
PR_SET_PTRACER: Final = 0x59616D61
"""From linux/prctl.h; elsewhere an unknown number changes nothing."""

PROBE: Final = Step(transition=Transition(name=TransitionName.PROBE, story="led"))

FAILED: Final = 70
"""Exit code of a process whose command raised something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One command.

    Attributes:
        profile: path of the issuer to open.
        command: a method of `Issuer`, called with `arguments`.
        at: number of the step, from 1 and counted from the call on, at which `sends` is sent to the process itself.
        clock: a file that holds the time in milliseconds; None is the machine's own.
        traced: stand still before the call, let any process trace this one, and tell the answer as soon as it is
            there, as `answered`.
        forks: at step `at`, make a child instead of sending anything. Both go on with the command; the one named here
            (`parent` or `child`) waits until the other one has ended. The child's answer is told as `forked`.
        stays: stand still once more when `answered` is told, with the issuer open.
        early: what is counted, and where it stands still if `traced`, begins before the issuer is opened.
    """

    profile: str
    command: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    at: int | None = None
    sends: int = signal.SIGKILL
    clock: str | None = None
    traced: bool = False
    forks: str | None = None
    stays: bool = False
    early: bool = False

    def encoded(self) -> bytes:
        """Return the job as it travels."""
        return json.dumps(asdict(self)).encode()


def file_clock(path: Path) -> Callable[[], InstantMs]:
    """Return a clock that shows what the file says."""
    return lambda: InstantMs(int(path.read_text()))


def show_time(clock: Path, instant_ms: int) -> None:
    """Let the clock in this file show an instant; whoever reads it finds one or the other."""
    fresh = clock.with_suffix(".new")
    fresh.write_text(str(instant_ms))
    fresh.replace(clock)


def pass_time(clock: Path, milliseconds: int) -> None:
    """Let the clock in this file go on by so much."""
    show_time(clock, int(clock.read_text()) + milliseconds)


def do(job: Job, pipe: int) -> int:
    """Do the job in this process and tell it on `pipe`; return the exit code."""
    told = 0
    counts = job.early
    twins = Twins(job.forks)

    def observe(step: str) -> None:
        nonlocal told
        if not counts:
            return
        told += 1
        tell(pipe, step=str(step))
        if told == job.at and job.forks is not None:
            twins.fork()
        elif told == job.at:
            os.kill(os.getpid(), job.sends)

    clock = now_ms if job.clock is None else file_clock(Path(job.clock))
    try:
        stand(job, early=True)
        with Issuer.open(job.profile, clock=clock, observe=observe) as issuer:
            stand(job, early=False)
            counts = True
            try:
                answer = call(issuer, job)
            except BaseException as raised:
                twins.done(pipe, type(raised).__name__)
                raise
            counts = False
            twins.done(pipe, answer.code)
            if job.traced:
                tell(pipe, answered=answer.as_json())
            if job.stays:
                os.kill(os.getpid(), signal.SIGSTOP)
    except BaseException as raised:  # noqa: BLE001 - what went wrong is what the test wants to know
        tell(pipe, raised=type(raised).__name__, message=str(raised))
        return FAILED
    tell(pipe, answer=answer.as_json())
    return 0


def call(issuer: Issuer, job: Job) -> Answer:
    """Give the command; `read_afresh` is no command of the issuer but what an uncertain commit is read with."""
    if job.command == "read_afresh":
        return read_afresh(issuer, str(job.arguments["effect"]))
    answer: Answer = getattr(issuer, job.command)(**job.arguments)
    return answer


def read_afresh(issuer: Issuer, effect: str) -> Answer:
    """Commit a probe span, and only then read: what is seen then is what stays."""
    issuer._house.ledger.transact(lambda _view, _now: Verdict(value=None, steps=(PROBE,)))
    return issuer.show(effect)


class Twins:
    """A process and the child that it makes in the middle of a command; one waits until the other is done."""

    def __init__(self, waits: str | None) -> None:
        self._waits = waits
        self._parent = os.getpid()
        self._child = 0
        self._answered = os.pipe()

    def fork(self) -> None:
        """Make the child; both return from here."""
        self._child = os.fork()
        if self._child == 0:
            os.close(self._answered[1])
            if self._waits == "child":
                os.read(self._answered[0], 1)
        elif self._waits == "parent":
            os.waitpid(self._child, 0)
            self._child = 0

    def done(self, pipe: int, said: str) -> None:
        """End the child here, and tell what it was answered; the parent waits for it."""
        if os.getpid() != self._parent:
            tell(pipe, forked=said)
            os._exit(0)
        os.close(self._answered[1])
        if self._child:
            os.waitpid(self._child, 0)


def stand(job: Job, *, early: bool) -> None:
    """Stand still if this is where the job does."""
    if job.traced and job.early is early:
        await_tracer()


def await_tracer() -> None:
    """Let any process trace this one (Yama's default is ancestors only), and stand still until one goes on with it."""
    ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(-1), 0, 0, 0)
    os.kill(os.getpid(), signal.SIGSTOP)


def tell(pipe: int, **fact: object) -> None:
    """Write one line, at once and in one piece."""
    os.write(pipe, json.dumps(fact).encode() + b"\n")


def witness(job: Job, pipe: int) -> NoReturn:
    """Make the process of the job and tell when the kernel says that it stopped or ended."""
    worker = os.fork()
    if worker == 0:
        # A shell that starts a test run in the background has it ignore interrupts.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code = FAILED
        try:
            code = do(job, pipe)
        finally:
            os._exit(code)
    tell(pipe, pid=worker)
    while True:
        _pid, status = os.waitpid(worker, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            tell(pipe, stopped=os.WSTOPSIG(status))
        else:
            # A test that was given up has closed the other end.
            with suppress(BrokenPipeError):
                tell(pipe, ended=os.waitstatus_to_exitcode(status))
            os._exit(0)


def main() -> None:
    """Make processes until the other end is closed."""
    # Witnesses are nobody's business here: the kernel collects them.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    jobs = socket.socket(fileno=os.dup(sys.stdin.fileno()))
    while True:
        data, pipes, _flags, _address = socket.recv_fds(jobs, JOB_BYTES_MAX, 1)
        if not data:
            return
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            jobs.close()
            witness(Job(**json.loads(data)), pipes[0])
        os.close(pipes[0])


if __name__ == "__main__":
    main()
