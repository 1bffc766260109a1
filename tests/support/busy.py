"""A real issuer with a busy history: every way an effect can go, on a tree of tasks, with bounds and an overrun.

Made once and copied: an attack on a copy costs a test a few milliseconds.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from issuer.checking import checked_ledger
from issuer.clock import now_ms
from issuer.places import Places
from issuer.sealing import KeyRing, open_key_ring
from ledger.sqlite.check import CheckReport
from tests.support.issuers import STANDARD_POLICY, Made, open_task, permitted, refund, standard_issuer
from tests.support.ledgers import Clock, without_guards
from tests.support.service import Service, answer

DAY_BOUND = {
    "per_root = { permits = 200 }": 'per_root = { permits = 200 }\nper_day = { permits = 300, "USD.cent" = 50000 }'
}
POLICY = STANDARD_POLICY.replace("<= 100000", "<= 900")
STATES = frozenset(
    {
        *("prepared", "awaiting_approval", "permitted", "denied", "expired", "admitted"),
        *("succeeded", "failed", "no_effect", "unknown"),
    }
)
"""The states that the history ends in: all that this release reaches."""


@dataclass(frozen=True, kw_only=True)
class Busy:
    """One copy of the issuer, closed."""

    folder: Path

    @property
    def made(self) -> Made:
        """As other tests take it; its sink is shared by all copies, so they are looked at and not written to."""
        return Made(folder=self.folder, sink=self.folder / "nowhere")

    @property
    def places(self) -> Places:
        """Where it keeps what."""
        return Places(self.folder / "profile.toml")

    @property
    def ring(self) -> KeyRing:
        """Its keys."""
        return open_key_ring(self.places.keys)

    def check(self) -> CheckReport:
        """Check its ledger."""
        return checked_ledger(self.places, self.ring)

    def attack(self, *statements: str) -> None:
        """Edit its ledger as somebody without keys, every guard out of the way and put back."""
        without_guards(self.places.ledger, *statements)

    def copied(self, folder: Path) -> "Busy":
        """Return a copy of it in `folder`."""
        shutil.copytree(self.folder, folder)
        return Busy(folder=folder)


def busy_issuer(folder: Path) -> Busy:
    """Make the issuer and its history in `folder`."""
    with Service(answer(201), answer(409), answer(422), answer(500), answer(201)) as service:
        made = standard_issuer(folder, port=service.port, policy=POLICY, changes=DAY_BOUND)
        clock = Clock(now_ms())
        with made.open(clock=clock) as issuer:
            for number, task in enumerate(("t1.a", "t1.b", "t1", "org", "t1.b")):
                issuer.commit(permitted(refund(issuer, amount=10 + number, order=f"o-{number}", task=task)))
            issuer.task_grant("t1.a", budget={"USD.cent": 50})
            open_task(issuer, "over", budget={"USD.cent": 100}, subject="u-ana", actors=["agent-7"])
            open_task(issuer, "over.leaf", parent="over", budget={"USD.cent": 50})
            issuer.task_close("t1.b")

            def published(task: str, name: str) -> tuple[str, str]:
                effect = permitted(issuer.request("publish", {"name": name}, task=task, actor="agent-7"))
                return effect, str(issuer.admit(effect).more["claim"])

            late = published("t1", "late")
            refund(issuer, order="o-expires", amount=7)
            clock.now += 360_000
            issuer.list()
            issuer.report(*late, succeeded=True)
            clock.now += 360_000
            issuer.list()
            issuer.report(*published("over.leaf", "over"), succeeded=True, cost={"USD.cent": 9})
            published("t1", "open")
            refund(issuer, order="o-person", amount=700)
            refund(issuer, order="o-much", amount=901)
            refund(issuer, order="o-held", amount=5, hold=True)
            refund(issuer, order="o-ready", amount=6)
    return Busy(folder=folder)
