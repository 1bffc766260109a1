"""Backups and restores of real issuers: `python -m tests.support.restoring WHAT PROFILE FILE STEP` dies at a step.

Operations are sent by the host, so that no service is needed: what a host was allowed to send counts as possibly sent.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from issuer import Issuer
from issuer.backup import back_up
from issuer.restore.restoring import restore
from issuer.wire import Answer
from ledger.errors import Fault, LedgerCorrupt, LedgerUnavailable
from tests.support.issuers import Made, open_task, permitted

HOUSE = Path(__file__).resolve().parents[2]
PATIENCE_S = 120.0

BACKUP_STEPS = ("copy", "verify", "record", "ship")
RESTORE_STEPS = (
    *("copy", "check_backup", "read_sinks", "clock", "transact", "check_built", "exchange"),
    *("marked", "moved sqlite", "placed", "sinks", "ship"),
)
"""Every step that is told, in order, where the old ledger has no write-ahead log."""


def published(issuer: Issuer, name: str, task: str = "t1") -> str:
    """Return a permitted effect that a host sends."""
    return permitted(issuer.request("publish", {"name": name}, task=task, actor="agent-7"))


def sent(issuer: Issuer, name: str, task: str = "t1") -> str:
    """Return an effect that a host was allowed to send and has not reported."""
    effect = published(issuer, name, task)
    answer = issuer.admit(effect)
    if answer.code != "admitted":
        raise AssertionError(answer)
    return effect


def saved(made: Made, name: str = "backup.sqlite") -> Path:
    """Make a backup beside the issuer's folder and return it."""
    file = made.folder.parent / name
    answer = Issuer.ledger_backup(made.profile, file)
    if answer.code != "backed_up" or "not taken note" in answer.say:
        raise AssertionError(answer)
    return file


def restored(made: Made, file: Path) -> Answer:
    """Restore, and demand that it was and that what is there now passes the full check."""
    answer = Issuer.ledger_restore(made.profile, file)
    if answer.code != "restored":
        raise AssertionError(answer)
    checked = Issuer.ledger_check(made.profile)
    if checked.code != "found":
        raise AssertionError(checked.more)
    return answer


def root(issuer: Issuer, name: str, cents: int, *, refunds: int = 1000) -> None:
    """Open a root task of the owner's."""
    budget = {"USD.cent": cents}
    open_task(issuer, name, budget=budget, classes={"refund": refunds}, subject="u-ana", actors=["agent-7"])


def refused(act: Callable[[], object]) -> str:
    """Return why the ledger refuses, in one sentence."""
    with pytest.raises(Fault) as caught:
        act()
    assert isinstance(caught.value, LedgerUnavailable | LedgerCorrupt)
    assert "\n" not in caught.value.message
    return caught.value.reason


def tree_of(folder: Path) -> Mapping[str, bytes]:
    """Return every file below a folder, but for the one that a restore builds in."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "restoring" not in path.parts and path.suffix != ".lock"
    }


def tasks(issuer: Issuer) -> dict[str, str]:
    """Return the state of each task by name."""
    rows = issuer.task_list().more["tasks"]
    assert isinstance(rows, list)
    return {row["name"]: row["state"] for row in rows}


def states(made: Made, effects: Sequence[str]) -> list[str | None]:
    """Return where effects stand; None where the ledger never heard of one."""
    with made.open(reading=True) as issuer:
        return [issuer.show(effect).state for effect in effects]


def dies_at(what: str, made: Made, file: Path, step: str) -> None:
    """Run a backup or a restore in a process of its own that is killed when it reaches `step`."""
    command = [sys.executable, "-m", "tests.support.restoring", what, str(made.profile), str(file), step]
    ended = subprocess.run(command, cwd=HOUSE, capture_output=True, timeout=PATIENCE_S, check=False)
    if ended.returncode != -signal.SIGKILL:
        raise AssertionError(ended)


def _die(step: str) -> None:
    def observe(reached: str) -> None:
        if reached == step:
            os.kill(os.getpid(), signal.SIGKILL)

    run = {"backup": back_up, "restore": restore}[sys.argv[1]]
    run(Path(sys.argv[2]), Path(sys.argv[3]), observe=observe)


if __name__ == "__main__":
    _die(sys.argv[4])
