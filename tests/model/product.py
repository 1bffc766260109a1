"""The real issuer as the machine drives it: one file, two open issuers on it, a clock and a service that a test moves.

Everything is the product's own but three things that its `open` takes for such ends: both clocks, and who is told each
step. What is sent by the issuer is sent to an adapter in memory, whose answer is scripted.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from issuer import Issuer
from issuer.operations.contract import Answer, NotDispatchedError, Order, Proof
from ledger.errors import LedgerUnavailable
from ledger.model import InstantMs
from ledger.timekeeping import Uptime
from tests.model.reference import Outcome
from tests.model.terms import POLICY, PROFILE
from tests.model.world import Clock
from tests.support.charging import ChargingAdapter, with_adapter
from tests.support.issuers import Made, made_issuer

MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a folder of its own is made in it
START: Final = 1_900_018_320_000
"""2030-03-17 23:52 in the owner's zone: a day ends in a moment, and that of UTC an hour later."""


class ScriptedAdapter(ChargingAdapter):
    """Answers what the next outcome says; a word that is no proof is an answer that never comes."""

    def __init__(self) -> None:
        super().__init__()
        self.outcome = Outcome(word="succeeded")

    def dispatch(self, order: Order) -> Answer:
        """See `Adapter.dispatch`."""
        word = self.outcome.word
        if word == "not_sent":
            raise NotDispatchedError("connect_refused")
        if word == "lost":
            raise ConnectionResetError
        self.proof, self.charged = Proof(word), self.outcome.charged
        return super().dispatch(order)


@dataclass(frozen=True, kw_only=True)
class Book:
    """A folder in which one issuer can be played again and again; `made` is the issuer, `kept` how it was at first."""

    made: Made
    kept: Path
    folder: Path

    def restore(self) -> None:
        """Put everything back to how it was at first."""
        shutil.rmtree(self.folder)
        shutil.copytree(self.kept, self.folder)


@contextmanager
def made_book() -> Iterator[Book]:
    """Make the issuer once. No power is cut here, so a memory file system, where there is one, saves the syncs."""
    place = Path(tempfile.mkdtemp(prefix="machine-", dir=MEMORY if MEMORY.is_dir() else None))
    try:
        folder = place / "play"
        folder.mkdir()
        audit = str(folder / "audit")
        text = PROFILE.replace("@AUDIT@", audit).replace("@UID@", str(os.getuid()))
        made = made_issuer(folder / "book", text, {"policies.cedar": POLICY})
        # The ledger was made just now, and the play begins in its own time: an operator says that this is right.
        process = Process("first", made, Clock(wall=START), ScriptedAdapter())
        if process.issuer.clock_accept().code != "accepted":
            raise AssertionError("the clock of the play was not accepted")
        process.issuer.close()
        shutil.copytree(folder, place / "kept")
        yield Book(made=made, kept=place / "kept", folder=folder)
    finally:
        shutil.rmtree(place)


class Process:
    """One open issuer. `stop_at` is called with each point of a command that is reached, while it is set."""

    def __init__(self, name: str, made: Made, clock: Clock, adapter: ScriptedAdapter) -> None:
        self.name = name
        self.stop_at: Callable[[str], None] | None = None
        self.locks_until_failure = -1
        """How many transactions may begin until one fails before it began; below zero, any number."""
        opened = made.open(
            clock=lambda: InstantMs(clock.wall),
            uptime=lambda: Uptime(boot=f"boot-{clock.boot}", since_ms=clock.since),
            observe=self._observed,
        )
        self.issuer: Issuer = with_adapter(opened, adapter)

    def _observed(self, step: str) -> None:
        if step == "locked" and self.locks_until_failure >= 0:
            self.locks_until_failure -= 1
            if self.locks_until_failure < 0:
                raise LedgerUnavailable("test", "The ledger cannot be written just now.")
        if self.stop_at is not None:
            self.stop_at(step)
