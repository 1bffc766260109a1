"""Host watch: ends what was started for an effect, also when the process that started it is gone (OPR-06).

Decides which processes belong to an effect: those of its process group, and on Linux every process of this
account that still carries the effect's mark in its environment, wherever it moved. Started as a program of
its own it waits on a pipe; when the other end is closed without a word, or the deadline passes, it ends them.

Limits: a process that left the group *and* cleared its environment, or that runs under another account, is
not found; outside Linux only the group is. It imports the standard library alone, as it is run without the
package's path. Next: `issuer.operations.host_child` starts it.
"""

import os
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

MARK: Final = "PERMIT_EFFECT_ID"
"""Name of the variable that carries the effect id."""

SWEEPS_MAX: Final = 200
"""Looks at the process table until none is left: what forks while it is killed needs several."""

SWEEP_PAUSE_S: Final = 0.01

CLEAN_SWEEPS: Final = 2
"""Looks in a row that find nothing: one may pass a number just before a child is given it."""

_ENVIRONMENT_END: Final = 48
"""Where `env_end` stands behind the command's name in /proc/PID/stat (proc_pid_stat(5), field 51)."""

DONE: Final = b"done\n"
GROUP: Final = b"group "

_PROCESSES: Final = Path("/proc")
_MESSAGE_BYTES_MAX: Final = 64
_WAIT_S_MAX: Final = 1.0


def now_s() -> float:
    """Return seconds of a clock that goes on while the machine is suspended, as `issuer.clock.steady_s` does."""
    kind = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if kind is None else time.clock_gettime(kind)


def end_group(group: int, number: signal.Signals) -> None:
    """Send a signal to a whole process group; one that is empty or only a zombie is no error."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def end_marked(effect_id: str) -> None:
    """Kill every process that carries this effect's mark, but never this one; does nothing outside Linux."""
    if not _PROCESSES.joinpath("self", "environ").exists():
        return
    clean = 0
    for _ in range(SWEEPS_MAX):
        marked, is_settled = [], True
        for pid in _process_ids():
            if _is_marked(pid, effect_id):
                marked.append(pid)
            elif _is_turning(pid):
                is_settled = False
        for pid in marked:
            _kill_if_marked(pid, effect_id)
        clean = 0 if marked or not is_settled else clean + 1
        if clean == CLEAN_SWEEPS:
            return
        time.sleep(SWEEP_PAUSE_S)


def _process_ids() -> list[int]:
    """Every process but this one."""
    names = (entry.name for entry in _PROCESSES.iterdir())
    return [int(name) for name in names if name.isdecimal() and int(name) != os.getpid()]


def _is_marked(pid: int, effect_id: str) -> bool:
    """Whether the environment that a process was started with names this effect; a zombie has none."""
    try:
        environment = _PROCESSES.joinpath(str(pid), "environ").read_bytes()
    except OSError:
        # It is gone, or it belongs to another account.
        return False
    return f"{MARK}={effect_id}".encode() in environment.split(b"\0")


def _is_turning(pid: int) -> bool:
    """Whether a process is between two programs, where it has no environment to read yet, marked or not."""
    own = _PROCESSES.joinpath(str(pid))
    try:
        # A zombie and a thread of the kernel have no program; those of other accounts are not ours to ask.
        own.joinpath("exe").readlink()
        fields = own.joinpath("stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return False
    return len(fields) > _ENVIRONMENT_END and fields[_ENVIRONMENT_END] == b"0"


def _kill_if_marked(pid: int, effect_id: str) -> None:
    """Kill by descriptor, so that a number that was given to another process meanwhile is spared."""
    with suppress(OSError):
        descriptor = os.pidfd_open(pid)
        try:
            if _is_marked(pid, effect_id):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)


def watch(effect_id: str, seconds: float) -> None:
    """Wait for `DONE` on standard input; at its end, or after so many seconds, end the effect's processes."""
    end_s = now_s() + seconds
    heard = b""
    while DONE not in heard:
        left_s = max(end_s - now_s(), 0)
        # What is waited for in one piece is not counted while the machine is suspended.
        readable, _, _ = select.select([0], [], [], min(left_s, _WAIT_S_MAX))
        if not readable and left_s > _WAIT_S_MAX:
            continue
        message = os.read(0, _MESSAGE_BYTES_MAX) if readable else b""
        if not message:
            _end_all(heard, effect_id)
            return
        heard += message


def _end_all(heard: bytes, effect_id: str) -> None:
    """End the group, where its number was told, and whatever carries the mark."""
    for line in heard.splitlines():
        if line.startswith(GROUP):
            end_group(int(line.removeprefix(GROUP)), signal.SIGKILL)
    end_marked(effect_id)


if __name__ == "__main__":
    watch(sys.argv[1], float(sys.argv[2]))
