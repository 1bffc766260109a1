"""A real issuer with a long history: what an owner did to its tasks, a restore, an accepted clock, and collections.

What `tests.support.busy` is to effects, this is to all that comes after them. Every row is made by a command, but for
one tombstone that is forgotten: by itself that takes ten thousand of them.
"""

from collections.abc import Mapping
from pathlib import Path

from issuer import Issuer
from issuer.clock import now_ms
from issuer.wire import Answer
from ledger.changes import Step, TombstonesForgotten
from ledger.port import Verdict, View
from ledger.transitions import Transition, TransitionName
from tests.support.bounded import DENIES, denied
from tests.support.busy import Busy
from tests.support.issuers import STANDARD_POLICY, Made, open_task, permitted, refund, standard_issuer
from tests.support.ledgers import Clock
from tests.support.restoring import published, restored, saved, sent
from tests.support.service import Service, answer

DAYS = 2 * 365
DAY_MS = 86_400_000
HOURS = 2 * 24 * DAYS


def aged_issuer(folder: Path) -> Busy:
    """Make the issuer and its history in `folder`."""
    with Service(*(answer(201) for _ in range(4))) as service:
        made = standard_issuer(folder, port=service.port, policy=STANDARD_POLICY + DENIES)
        with made.open() as issuer:
            _spend(issuer)
            _change_tasks(issuer)
        file = saved(made)
        with made.open() as issuer:
            sent(issuer, "after", task="t1.b")
            open_task(issuer, "late", parent="org", budget={"USD.cent": 10})
            sent(issuer, "there", task="late")
        restored(made, file)
        _grow_old(made)
    return Busy(folder=folder)


def _spend(issuer: Issuer) -> None:
    """Let effects end in every way that can be collected, and two overrun."""
    _open_root(issuer, "cap", 500, classes={"refund": 30})
    for name, ceiling in (("cap.a", 300), ("cap.b", 200)):
        open_task(
            issuer,
            name,
            parent="cap",
            budget={"USD.cent": ceiling},
            hours=HOURS,
            classes={"refund": 20},
            operations={"refund": 8, "publish": "inherit"},
            resources={"Order:o-gone": 5, "Order:o-kept": 3, "Release:over": 2},
        )
    _open_root(issuer, "over", 100)
    for order, amount in (("o-gone", 30), ("o-gone", 40)):
        must(issuer.commit(permitted(refund(issuer, order=order, amount=amount, task="cap.a"))), "succeeded")
    for task in ("cap.a", "over"):
        effect = published(issuer, "over", task)
        claim = str(issuer.admit(effect).more["claim"])
        must(issuer.report(effect, claim, succeeded=True, cost={"USD.cent": 9}), "succeeded")
    for number in range(3):
        denied(issuer, number)


def _open_root(
    issuer: Issuer, name: str, ceiling: int, *, classes: Mapping[str, int | str] | None = None
) -> None:
    open_task(
        issuer,
        name,
        budget={"USD.cent": ceiling},
        subject="u-ana",
        actors=["agent-7"],
        hours=HOURS,
        classes=classes,
    )


def _change_tasks(issuer: Issuer) -> None:
    """Accept, lower, grant, freeze and thaw."""
    for task in ("cap.a", "cap"):
        must(issuer.task_accept_overrun(task), "accepted")
    must(issuer.task_lower("cap.a", budget={"USD.cent": 60}), "lowered")
    must(issuer.task_grant("t1", budget={"USD.cent": 50}), "granted")
    for task in ("t1.a", "t1.b"):
        must(issuer.task_freeze(task), "frozen")
    must(issuer.task_thaw("t1.b"), "thawed")
    must(refund(issuer, order="o-kept", amount=3, task="cap.b"), "permitted")  # the restore revokes it


def _grow_old(made: Made) -> None:
    """Accept a clock that ran two years ahead, collect what is over by then, and do something new."""
    with made.open(clock=Clock(now_ms() + DAYS * DAY_MS)) as issuer:
        must(issuer.clock_accept(), "accepted")
        must(issuer.ledger_collect(early=True), "collected_now")
        _forget_one(issuer)
        must(refund(issuer, order="o-kept", amount=7, task="cap.b"), "permitted")
        sent(issuer, "over", task="cap.b")


def _forget_one(issuer: Issuer) -> None:
    def decide(view: View, _now: object) -> Verdict[None]:
        oldest = tuple(view.tombstones_beyond(0, limit=1))
        forgotten = Transition(
            name=TransitionName.LEDGER_COLLECTED,
            story=view.head().ledger_id,
            attributes={
                "permit.mode": "ordinary",
                "permit.count": 0,
                "permit.collected": (),
                "permit.forgotten": len(oldest),
                "permit.reason": "over",
            },
        )
        return Verdict(
            value=None, steps=(Step(transition=forgotten, changes=(TombstonesForgotten(effect_ids=oldest),)),)
        )

    issuer._house.ledger.transact(decide)


def must(said: Answer, code: str) -> None:
    """Demand an answer."""
    if said.code != code:
        raise AssertionError(said)
