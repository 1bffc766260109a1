"""Host launch: becomes the command of an effect, unless its time is over (OPR-06, ADM-07).

Run as a program of its own, in the command's place and with its environment. It looks at the clock right before it
executes the command: a sender that was stopped after its own last look, and goes on after the deadline, starts nothing.
What stands in the way is told on a pipe; that the pipe closes without a word means that the command is running.
Between the look and the system call that executes lies nothing that waits. A process stopped exactly there starts the
command late; nobody can have released the effect meanwhile, since its sender is not gone.

It imports the standard library alone, as it is run without the package's path. Next: `issuer.operations.host_child`.
"""

import os
import signal
import sys
import time
from contextlib import suppress
from typing import Final, NoReturn

LATE: Final = b"deadline_passed"
NOT_STARTED: Final = b"command_not_started"

_LANGUAGE: Final = "LC_CTYPE"
_IGNORED: Final = ("SIGPIPE", "SIGXFZ", "SIGXFSZ")


def launch(pipe: int, end_s: float, language: str, argv: list[str]) -> NoReturn:
    """Execute the command, or tell why not and end.

    Args:
        pipe: descriptor that is told; closed by the system once the command runs.
        end_s: instant of `issuer.clock.steady_s` from which on nothing is started.
        language: `=` and the value of LC_CTYPE, or empty where there is none: Python sets one of its own.
        argv: program and arguments; the program is looked up on PATH.
    """
    os.set_inheritable(pipe, False)  # noqa: FBT003 - as the standard library has it
    os.environ.pop(_LANGUAGE, None)
    if language:
        os.environ[_LANGUAGE] = language[1:]
    for name in _IGNORED:
        if hasattr(signal, name):
            # Python ignores them, and a command that inherits that would not end with its reader.
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    if _now_s() >= end_s:
        os.write(pipe, LATE)
        os._exit(1)
    with suppress(OSError, ValueError):
        os.execvp(argv[0], argv)  # noqa: S606 - the host's own command, started without a shell
    os.write(pipe, NOT_STARTED)
    os._exit(1)


def _now_s() -> float:
    kind = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if kind is None else time.clock_gettime(kind)


if __name__ == "__main__":
    launch(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4:])
