"""One service and one open issuer with two classes, and tasks on them for each test: what tests of tasks start from."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from issuer import Issuer
from issuer.clock import now_ms
from issuer.wire import Answer
from ledger.model import InstantMs
from tests.support.cases import refusals
from tests.support.issuers import STANDARD_POLICY, Made, open_task, refund, standard_issuer
from tests.support.service import Service, Step

RELEASES = {
    '[operation.publish]\nclass = "refund"': """[class.release]
each = { "USD.cent" = 500 }
per_task = { permits = 100 }
per_root = { permits = 200 }
lifetime = "10m"
[operation.publish]
class = "release\"""",
}
"""Puts the second operation of F0 into a class of its own."""

Counts = Mapping[str, int | str]
MONEY = {"USD.cent": 10_000}
EVERYTHING: Counts = {"refund": 50, "release": 50}


@dataclass(kw_only=True)
class Shop:
    """One service and one open issuer; each test has tasks of its own on them."""

    service: Service
    issuer: Issuer
    made: Made
    orders: int = 0

    def root(self, name: str, classes: Counts = EVERYTHING, **scope: Any) -> None:
        open_task(
            self.issuer, name, budget=MONEY, subject="u-ana", actors=["agent-7"], classes=classes, **scope
        )

    def child(self, name: str, parent: str, classes: Counts | None = None, **scope: Any) -> None:
        open_task(self.issuer, name, parent=parent, budget={"USD.cent": "inherit"}, classes=classes, **scope)

    def ask(self, task: str, *, order: str | None = None, amount: int = 1, hold: bool = False) -> Answer:
        """Ask for a refund, of an order that nobody asked for before where none is named."""
        self.orders += 1
        return refund(self.issuer, order=order or f"n-{self.orders}", amount=amount, task=task, hold=hold)

    def publish(self, task: str) -> Answer:
        self.orders += 1
        return self.issuer.request("publish", {"name": f"v{self.orders}"}, task=task, actor="agent-7")

    def admitted(self, task: str) -> tuple[str, str]:
        """Admit an effect of one cent that its host sends; return it with the claim to report it by."""
        effect = str(self.publish(task).effect)
        return effect, str(self.issuer.admit(effect).more["claim"])

    def overrun(self, task: str, above: int = 30) -> str:
        """Let a host report that it cost `above` more than the one cent that was reserved for it."""
        effect, claim = self.admitted(task)
        assert (
            self.issuer.report(effect, claim, succeeded=True, cost={"USD.cent": 1 + above}).code
            == "succeeded"
        )
        return effect

    def send(self, effect: str, step: Step) -> str:
        self.service.then(step)
        return self.issuer.commit(effect).code

    def slots(self, task: str, kind: str = "class", name: str = "refund") -> tuple[object, object, object]:
        """What is used of a name at a task, what all levels leave of it, and which of them leaves the least."""
        shown: Any = self.issuer.task_show(task).more["task"]
        line = shown["scope"][kind][name]
        return line["used"], line["left"], line["level"]


def assert_no(shop: Shop, no: Answer, code: str, field: str, level: str) -> None:
    """The no names what is at fault and whose bound it is, in the answer and on record."""
    assert (no.code, no.more["field"], no.more["level"]) == (code, field, level)
    assert f"(field: {field}, level: {level})" in no.say
    assert refusals(shop.issuer)[-1] == (code, field, level)


@contextmanager
def opened_shop(
    folder: Path,
    *,
    clock: Callable[[], InstantMs] = now_ms,
    policy: str = STANDARD_POLICY,
    changes: Mapping[str, str] | None = None,
    hours: int = 72,
) -> Iterator[Shop]:
    """Make a shop in `folder` and close it at the end; `changes` replaces further texts of its profile."""
    with Service() as service:
        made = standard_issuer(
            folder, port=service.port, policy=policy, changes={**RELEASES, **(changes or {})}, hours=hours
        )
        with made.open(clock=clock) as issuer:
            yield Shop(service=service, issuer=issuer, made=made)
