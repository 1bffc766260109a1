"""The courier: takes one notice to commands and spools, within ten seconds, and keeps what could not be told.

Run as a program of its own, so that nobody waits for it: whoever was answered has been answered. It is given one job
file and removes it once everybody was told. Otherwise the file stays under the name `failed-…`, with what failed and
one word why; `issuer doctor` tells how many there are. Rules:

1. Commands of all deliveries run beside each other, each in a session and process group of its own, without a shell,
   with the notice on standard input and nothing else: no argument, no variable, no open file. Output goes nowhere.
2. Exit code 0 within the time is "told"; anything else is not. At its end, or at the deadline, the whole group is
   killed. A process that leaves its group on purpose (a mail queue's own daemon) is its owner's.
3. A spool is a folder of this account's alone. A notice appears in it by rename, whole or not at all.
4. It is told to end by SIGTERM: then its commands end with it. A courier that is killed leaves its job where it was,
   and the next notice calls that failed.

It imports the standard library alone, as it is run without the package's path. It decides nothing, and nobody reads
what became of it but a person.
"""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final

FAILED: Final = "failed-"
FAILED_MAX: Final = 100
"""Failures that are kept; the oldest goes first. A person reads the last few."""

SPOOL_MAX: Final = 1_000
"""Notices in a spool; one that nobody empties must not fill the disk."""

_POLL_S: Final = 0.02
_FEED_BYTES_MAX: Final = 32_768
"""Half of what a pipe takes without waiting (pipe(7), 64 KiB): feeding a command never hangs."""


class _End(BaseException):
    """Somebody ends the courier."""


def carry(job_file: Path) -> None:
    """Do the deliveries of one job, and remove its file or keep it as failed."""
    job = json.loads(job_file.read_bytes())
    document = (json.dumps(job["document"], ensure_ascii=True) + "\n").encode("ascii")
    why: dict[str, str] = {}
    try:
        for delivery in job["deliveries"]:
            if "spool" in delivery:
                why[delivery["name"]] = _spooled(Path(delivery["spool"]), job_file.name, document)
        commands = [delivery for delivery in job["deliveries"] if "command" in delivery]
        why |= _commanded(commands, document, time.monotonic() + job["seconds"])
    except _End:
        why["courier"] = "ended"
    _close(job_file, job, {name: word for name, word in why.items() if word})


def _close(job_file: Path, job: dict[str, Any], why: dict[str, str]) -> None:
    if not why:
        job_file.unlink(missing_ok=True)
        return
    kept = job_file.with_name(FAILED + job_file.name)
    text = json.dumps({"document": job["document"], "why": why}, ensure_ascii=True)
    _write(job_file.with_name(f".{job_file.name}"), text.encode("ascii"), kept)
    job_file.unlink(missing_ok=True)
    for old in sorted(kept.parent.glob(f"{FAILED}*"))[:-FAILED_MAX]:
        old.unlink(missing_ok=True)


def _spooled(folder: Path, name: str, document: bytes) -> str:
    """Put the notice into a spool; return one word why not, or an empty text."""
    try:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        seen = folder.lstat()
        if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.getuid() or seen.st_mode & 0o077:
            return "spool_not_private"
        if len(os.listdir(folder)) >= SPOOL_MAX:  # noqa: PTH208 - names are enough here
            return "spool_full"
        _write(folder / f".{name}", document, folder / name)
    except OSError:
        return "spool_unwritable"
    return ""


def _write(draft: Path, content: bytes, place: Path) -> None:
    """Write `content` to `place` by way of `draft`, for this account alone."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    with os.fdopen(os.open(draft, flags, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(place)


def _commanded(deliveries: list[dict[str, Any]], document: bytes, end_s: float) -> dict[str, str]:
    """Run the commands until all have ended or the time is over; return one word each, empty where told."""
    why: dict[str, str] = {}
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for delivery in deliveries:
            try:
                running[delivery["name"]] = _started(delivery["command"], document)
            except (OSError, ValueError):
                why[delivery["name"]] = "not_started"
        while running and time.monotonic() < end_s:
            for name in [name for name, child in running.items() if _has_ended(child)]:
                why[name] = "" if _end(running.pop(name)) == 0 else "exit_code"
            time.sleep(_POLL_S)
        return why | dict.fromkeys(running, "deadline_passed")
    finally:
        for child in running.values():
            _end(child)


def _started(command: list[str], document: bytes) -> subprocess.Popen[bytes]:
    child = subprocess.Popen(  # noqa: S603 - the owner's own command, started without a shell
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
    )
    if child.stdin is not None:
        # A command need not listen: only its exit code says whether somebody was told.
        with suppress(OSError):
            child.stdin.write(document[:_FEED_BYTES_MAX])
        with suppress(OSError):
            child.stdin.close()
    return child


def _has_ended(child: subprocess.Popen[bytes]) -> bool:
    """Say whether it has ended, without collecting it: until then its number names its group and no other."""
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end(child: subprocess.Popen[bytes]) -> int:
    with suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    return child.wait()


def _told_to_end(_number: int, _frame: FrameType | None) -> None:
    raise _End


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _told_to_end)
    carry(Path(sys.argv[1]))
