"""Histories to be archived: real commands of one issuer, some of it over and collected, some of it alive."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from issuer import Issuer
from issuer.wire import Answer
from tests.support.bounded import DENIES, denied
from tests.support.cases import HOUSE, Clock
from tests.support.issuers import STANDARD_POLICY, Made, permitted, refund, standard_issuer
from tests.support.service import Service, answer

DAY_MS = 86_400_000
PATIENCE_S = 60


@dataclass(kw_only=True)
class Lived:
    """An issuer with a past: effects by what became of them, each told by its reference."""

    made: Made
    clock: Clock
    service: Service
    issuer: Issuer
    sent: str
    unused: str
    live: str
    folder: Path

    def archive(self, name: str = "archive.jsonl", **how: object) -> Answer:
        """Archive into a file of that name beside the issuer."""
        return self.issuer.audit_archive(self.folder / name, **how)  # type: ignore[arg-type]

    def archived(self, name: str = "archive.jsonl", **how: object) -> Answer:
        """Archive, which must be possible."""
        said = self.archive(name, **how)
        if said.code != "archived" or "not every required sink" in said.say:
            raise AssertionError(said)
        return said

    def checkpoint(self) -> int:
        """Sign a checkpoint and return its size."""
        said = self.issuer.audit_checkpoint()
        if said.code != "checkpointed":
            raise AssertionError(said)
        return int(str(said.more["size"]))


def past(
    issuer: Issuer, service: Service, clock: Clock, *, mark: str = "a", days: int = 40
) -> tuple[str, str]:
    """Let effects be done, denied, refused and expire, and be collected; return one sent and one never used.

    With no days to pass, what was done stays, and the other is withdrawn.
    """
    sent = permitted(refund(issuer, order=f"{mark}-1", amount=100, request_key=f"{mark}-1"))
    service.then(answer(201))
    assert issuer.commit(sent).code == "succeeded"
    unused = permitted(refund(issuer, order=f"{mark}-2", amount=100, request_key=f"{mark}-2"))
    denied(issuer, int.from_bytes(mark.encode()))
    assert issuer.commit("eff_" + "0" * 32).code == "not_found"
    assert issuer.audit_query().code == "found"
    clock.ahead_ms += days * DAY_MS
    if not days:
        assert issuer.withdraw(unused).state == "withdrawn"
    said = issuer.ledger_collect(early=True)
    assert said.code == "collected_now", said
    return sent, unused


@contextmanager
def lived(folder: Path, service: Service, *, days: int = 40) -> Iterator[Lived]:
    """Give an open issuer with a past that was collected, and one effect that waits, ready to be archived."""
    changes = {"[person]": '[ledger]\nkeep = "1d"\n[person]'}
    made = standard_issuer(
        folder / "f0", port=service.port, policy=STANDARD_POLICY + DENIES, changes=changes, hours=24 * 300
    )
    clock = Clock()
    with made.open(clock=clock) as issuer:
        sent, unused = past(issuer, service, clock, days=days)
        live = permitted(refund(issuer, order="live-1", amount=100, request_key="live-1"))
        assert issuer.audit_query().code == "found"  # so that the last span is about nothing that lives
        yield Lived(
            made=made,
            clock=clock,
            service=service,
            issuer=issuer,
            sent=sent,
            unused=unused,
            live=live,
            folder=folder,
        )


def dies_at(step: str, house: Lived, out: Path) -> None:
    """Archive in a process of its own that is killed where it reaches `step` and the file is there, or not yet."""
    command = [sys.executable, "-m", "tests.support.archiving", str(house.made.profile), str(out), step]
    command.append(str(house.clock.ahead_ms))
    ended = subprocess.run(command, cwd=HOUSE, capture_output=True, timeout=PATIENCE_S, check=False)
    if ended.returncode != -signal.SIGKILL:
        raise AssertionError(ended)


def _die() -> None:
    out, step, clock = Path(sys.argv[2]), sys.argv[3], Clock()
    clock.ahead_ms = int(sys.argv[4])

    def observe(reached: str) -> None:
        if reached == step and out.exists():
            os.kill(os.getpid(), signal.SIGKILL)

    def progress(_done: int, _of: int) -> None:
        if step == "writing":
            os.kill(os.getpid(), signal.SIGKILL)

    with Issuer.open(Path(sys.argv[1]), clock=clock, observe=observe) as issuer:
        issuer.audit_archive(out, progress=progress)


if __name__ == "__main__":
    _die()
