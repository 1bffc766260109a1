"""Host child: runs the command of `issuer dispatch EFFECT -- CMD`, and leaves nothing of it behind (OPR-06).

Decides when the command counts as started, when it must end, and what its end proves. Rules:

1. A command that could not be executed was never started: `NotDispatchedError`. Everything later is unknown
   unless it ends by itself (REP-05).
2. It runs in a session and process group of its own, with a clean environment (`host_environment`). What it
   prints goes to our standard error; standard output belongs to the answer.
3. At the deadline it is dead: the group gets SIGTERM a short grace before, SIGKILL at the deadline. An
   interrupt of ours ends it the same way, and is reported, not raised. After the deadline nothing is started:
   the last look at the clock is in the new process itself (`host_launch`).
4. When the command ends, whatever it left running ends with it: the group, and what carries the effect's
   mark. A watching process does the same should we be killed.
5. Exit code 0 is the host's own claim of success (REC-07). Any other end proves nothing.

Limits: see `host_watch`. Next: `issuer.operations.host_adapter`; the flow records the claim.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Final

from issuer.clock import steady_s
from issuer.operations.contract import NotDispatchedError, Proof
from issuer.operations.host_environment import clean_environment
from issuer.operations.host_launch import LATE, NOT_STARTED
from issuer.operations.host_watch import DONE, GROUP, end_group, end_marked
from ledger.model import DurationMs, EffectId, InstantMs

GRACE_S_MAX: Final = 2.0
"""Seconds between SIGTERM and SIGKILL: enough to remove temporary files, too short to finish an upload."""

GRACE_SHARE: Final = 0.1
"""Share of a short deadline that may be grace, so that a command keeps most of its time."""

WATCH_MARGIN_S: Final = 0.25
"""Seconds after the deadline at which the watching process acts by itself, as when we are stopped."""

_POLL_S: Final = 0.01
_REAP_S_MAX: Final = 10.0
_INTERRUPTS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STDERR: Final = 2
_LAUNCHER: Final = Path(__file__).with_name("host_launch.py")
_LANGUAGE: Final = "LC_CTYPE"
_WORD_BYTES_MAX: Final = 64


class ChildEnd(StrEnum):
    """How the command ended. `LOST`: the system could not tell, because something else collected it."""

    EXITED = "exited"
    SIGNALLED = "signalled"
    DEADLINE = "deadline"
    INTERRUPTED = "interrupted"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildResult:
    """The end of the command.

    Attributes:
        end: who ended it.
        exit_code: 0 to 255 where it exited, also when we had asked it to; None otherwise.
        signal: number of the signal that ended it, or None.
    """

    end: ChildEnd
    exit_code: int | None = None
    signal: int | None = None

    @property
    def proof(self) -> Proof:
        """SUCCEEDED only for exit code 0 of a command that nobody ended, and then as the host's claim."""
        return Proof.SUCCEEDED if self.end is ChildEnd.EXITED and self.exit_code == 0 else Proof.NOTHING

    @property
    def source(self) -> str:
        """Who said so, as the stable word for the evidence."""
        return f"host:exit:{self.exit_code}" if self.end is ChildEnd.EXITED else f"host:{self.end}"


def run_child(
    argv: Sequence[str],
    *,
    effect_id: EffectId,
    deadline_ms: InstantMs,
    remaining_ms: DurationMs,
    env: Mapping[str, str],
    passes: Collection[str] = (),
) -> ChildResult:
    """Run a command to its end or to the deadline, whichever comes first.

    Args:
        argv: program and arguments; the program is looked up on the PATH of `env`. No shell.
        effect_id: goes into the environment as PERMIT_EFFECT_ID.
        deadline_ms: the claim's deadline; goes into the environment as PERMIT_DEADLINE.
        remaining_ms: milliseconds until then.
        env: the host's environment, of which little is passed on (`host_environment`).
        passes: further names that the owner lets through.

    Raises:
        NotDispatchedError: `deadline_passed`, `interrupted` before the start, or `command_not_started`.
    """
    end_s = steady_s() + remaining_ms / 1000
    if remaining_ms <= 0:
        raise NotDispatchedError("deadline_passed")
    environment = clean_environment(env, effect_id=effect_id, deadline_ms=deadline_ms, passes=passes)
    with _noted_interrupts() as noted, _watching(effect_id, remaining_ms / 1000) as watcher:
        if noted:
            raise NotDispatchedError("interrupted")
        child = _start(argv, environment, end_s)
        try:
            _tell(watcher, GROUP + str(child.pid).encode() + b"\n")
            grace_s = min(GRACE_S_MAX, GRACE_SHARE * remaining_ms / 1000)
            return _await_end(child, noted, end_s, grace_s)
        finally:
            # The leader is not collected yet, so its number still names this group and no other.
            end_group(child.pid, signal.SIGKILL)
            end_marked(effect_id)
            _tell(watcher, DONE)
            child.wait(_REAP_S_MAX)


def _start(argv: Sequence[str], env: Mapping[str, str], end_s: float) -> subprocess.Popen[bytes]:
    """Start the command, or prove that it was not."""
    child, word = None, NOT_STARTED
    reading, writing = os.pipe()
    try:
        with os.fdopen(reading, "rb") as told:
            try:
                child = _launched(argv, env, end_s, writing)
            finally:
                os.close(writing)
            if child is not None:
                # Empty once it runs, and also where the launcher died: that may have been the command already.
                word = told.read(_WORD_BYTES_MAX)
    except BaseException:
        _discard(child)
        raise
    if child is not None and not word:
        return child
    _discard(child)
    raise NotDispatchedError((LATE if word == LATE else NOT_STARTED).decode())


def _launched(
    argv: Sequence[str], env: Mapping[str, str], end_s: float, pipe: int
) -> subprocess.Popen[bytes] | None:
    """Start what becomes the command; None where even that cannot be started."""
    language = f"={env[_LANGUAGE]}" if _LANGUAGE in env else ""
    own = [sys.executable, "-I", "-S", str(_LAUNCHER), str(pipe), repr(end_s), language]
    # ValueError is a NUL in an argument.
    with suppress(OSError, ValueError, subprocess.SubprocessError):
        if argv:
            return subprocess.Popen(  # noqa: S603 - the host's own command, started without a shell
                [*own, *argv],
                stdin=subprocess.DEVNULL,
                stdout=_STDERR,
                env=env,
                pass_fds=(pipe,),
                start_new_session=True,
            )
    return None


def _discard(child: subprocess.Popen[bytes] | None) -> None:
    """End a launcher that became nothing, and collect it."""
    if child is not None:
        child.kill()
        child.wait(_REAP_S_MAX)


def _await_end(
    child: subprocess.Popen[bytes],
    noted: list[int],
    end_s: float,
    grace_s: float,
) -> ChildResult:
    """Wait without collecting the child; ask it to end, and then make it end."""
    asked: ChildEnd | None = None
    kill_s = end_s
    while (ended := _look(child)) is None:
        now_s = steady_s()
        if asked is None and (noted or now_s >= end_s - grace_s):
            asked = ChildEnd.INTERRUPTED if noted else ChildEnd.DEADLINE
            kill_s = min(end_s, now_s + grace_s)
            end_group(child.pid, signal.SIGTERM)
        if now_s >= kill_s:
            end_group(child.pid, signal.SIGKILL)
        time.sleep(_POLL_S)
    return ChildResult(
        end=ended.end if asked is None else asked,
        exit_code=ended.exit_code,
        signal=ended.signal,
    )


def _look(child: subprocess.Popen[bytes]) -> ChildResult | None:
    """Return how the command ended, or None while it runs.

    `Popen.wait` would call an end that it cannot learn an exit code of 0, and would free the group's number.
    """
    if not hasattr(os, "waitid"):
        code = child.poll()
        return None if code is None else _result_of(code)
    try:
        state = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return ChildResult(end=ChildEnd.LOST)
    if state is None:
        return None
    return _result_of(state.si_status if state.si_code == os.CLD_EXITED else -state.si_status)


def _result_of(code: int) -> ChildResult:
    """Read an exit code, or the negative number of a signal."""
    if code < 0:
        return ChildResult(end=ChildEnd.SIGNALLED, signal=-code)
    return ChildResult(end=ChildEnd.EXITED, exit_code=code)


@contextmanager
def _noted_interrupts() -> Iterator[list[int]]:
    """Note interrupts instead of raising them, so that no moment exists in which a child is forgotten.

    Signals reach the main thread only; elsewhere nothing can interrupt, and nothing is installed. One that
    was ignored (nohup) stays ignored.
    """
    noted: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        noted.append(number)

    previous = {}
    if threading.current_thread() is threading.main_thread():
        for number in _INTERRUPTS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                previous[number] = signal.signal(number, note)
    try:
        yield noted
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def _watching(effect_id: EffectId, seconds: float) -> Iterator[subprocess.Popen[bytes]]:
    """Keep a process beside us that ends the command when we cannot; `NotDispatchedError` without one."""
    program = Path(__file__).with_name("host_watch.py")
    watcher = None
    with suppress(OSError, ValueError, subprocess.SubprocessError):
        watcher = subprocess.Popen(  # noqa: S603 - our own file, with our own interpreter
            [sys.executable, "-I", "-S", str(program), effect_id, str(seconds + WATCH_MARGIN_S)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
            start_new_session=True,
        )
    if watcher is None:
        raise NotDispatchedError("command_not_started")
    try:
        yield watcher
    finally:
        # Without a command it learns here that there is nothing to end.
        _tell(watcher, DONE)
        if watcher.stdin is not None:
            with suppress(OSError):
                watcher.stdin.close()
        try:
            watcher.wait(_REAP_S_MAX)
        except subprocess.TimeoutExpired:
            watcher.kill()
            watcher.wait(_REAP_S_MAX)


def _tell(watcher: subprocess.Popen[bytes], message: bytes) -> None:
    """Tell the watching process; if it has died, only the protection against our own death is lost."""
    if watcher.stdin is not None:
        with suppress(OSError, ValueError):
            watcher.stdin.write(message)
            watcher.stdin.flush()
