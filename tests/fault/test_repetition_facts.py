"""What policies see of earlier effects: by content and by resource, over the whole ledger, at every stage (POL-02)."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from issuer import Issuer
from issuer.flow.steps import Reached
from issuer.wire import Answer
from ledger.model import EffectId
from tests.support.cases import Clock
from tests.support.issuers import open_task, permitted, refund
from tests.support.service import accept_then_close, answer
from tests.support.shops import Shop, opened_shop

POLICY = """
@id("small-refunds")
permit (principal is Actor in Group::"bots", action == Action::"issue", resource is Order)
when { context.cost["USD.cent"] <= 400 };
@id("by-a-person") @approvers("finance")
permit (principal is Actor in Group::"bots", action == Action::"requestApproval", resource is Order)
when { context.cost["USD.cent"] > 400 && context.cost["USD.cent"] <= 500 };
"""
"""Up to 400 by itself, up to 500 with a person, above that denied."""

STAGES = ("pending", "unresolved", "succeeded")


class Here:
    """One order in one shop, and what its next request is told of the earlier ones."""

    def __init__(self, shop: Shop, clock: Clock) -> None:
        self.shop, self.clock = shop, clock

    def ask(self, *, amount: int = 100, order: str = "o-1", task: str = "t1", hold: bool = False) -> Answer:
        return refund(self.shop.issuer, order=order, amount=amount, task=task, hold=hold)

    def told(self, *, amount: int = 100, order: str = "o-1", task: str = "t1") -> tuple[list[int], list[int]]:
        """What one more request is told, by content and by resource; it ends without effect and counts no more."""
        effect = permitted(self.ask(amount=amount, order=order, task=task))
        facts = _earlier(self.shop.issuer, effect)
        self.shop.service.then(answer(402))
        assert self.shop.issuer.commit(effect).code == "no_effect"
        return facts

    def committed(self, status: int) -> str:
        self.shop.service.then(answer(status))
        effect = permitted(self.ask())
        return self.shop.issuer.commit(effect).code


def _earlier(issuer: Issuer, effect: str) -> tuple[list[int], list[int]]:
    rows = issuer._house.ledger.read(lambda view: view.decisions(EffectId(effect)))
    facts: Any = json.loads(rows[0].body)["facts"]["earlier"]
    return tuple([facts[f"same_{what}_{stage}"] for stage in STAGES] for what in ("payload", "resource"))  # type: ignore[return-value]  # two lists


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    clock = Clock()
    with opened_shop(tmp_path / "f0", clock=clock, policy=POLICY) as shop:
        yield Here(shop, clock)


NOTHING = [0, 0, 0]


def held(here: Here) -> None:
    assert here.ask(hold=True).code == "prepared"


def waits(here: Here) -> None:
    assert here.ask(amount=450).code == "awaiting_approval"


def is_permitted(here: Here) -> None:
    permitted(here.ask())


def admitted_and_lost(here: Here) -> None:
    effect = permitted(here.ask())
    here.shop.service.then(accept_then_close())
    assert here.shop.issuer.commit(effect).code == "outcome_unknown"


def succeeded(here: Here) -> None:
    assert here.committed(201) == "succeeded"


def failed(here: Here) -> None:
    assert here.committed(409) == "failed"


def no_effect(here: Here) -> None:
    assert here.committed(402) == "no_effect"


def denied(here: Here) -> None:
    assert here.ask(amount=501).code == "denied"


def expired(here: Here) -> None:
    permitted(here.ask())
    held(here)
    here.clock.ahead_ms += 600_001
    here.shop.issuer.list()


@pytest.mark.spec("POL-02", "REP-03", "REP-04", "REP-05")
@pytest.mark.parametrize(
    ("stage", "content", "resource"),
    [
        (held, [1, 0, 0], [1, 0, 0]),
        (waits, NOTHING, [1, 0, 0]),
        (is_permitted, [1, 0, 0], [1, 0, 0]),
        (admitted_and_lost, [0, 1, 0], [0, 1, 0]),
        (succeeded, [0, 0, 1], [0, 0, 1]),
        (failed, NOTHING, NOTHING),
        (no_effect, NOTHING, NOTHING),
        (denied, NOTHING, NOTHING),
        (expired, NOTHING, NOTHING),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_an_earlier_effect_counts_by_content_and_resource_where_it_stands(
    here: Here, stage: Callable[[Here], None], content: list[int], resource: list[int]
) -> None:
    assert here.told() == (NOTHING, NOTHING)
    stage(here)
    assert here.told() == (content, resource)
    # Another content on the same resource meets the resource only; another resource meets nothing.
    assert here.told(amount=101) == (NOTHING, resource)
    assert here.told(order="o-2") == (NOTHING, NOTHING)


@pytest.mark.spec("POL-02", "REP-05")
def test_an_effect_that_is_being_sent_counts_as_unresolved(here: Here) -> None:
    seen: list[tuple[list[int], list[int]]] = []

    def look(step: str) -> None:
        if step == Reached.LOOKED_AGAIN:
            seen.append(here.told())
            here.shop.service.then(answer(201))

    with here.shop.made.open(clock=here.clock, observe=look) as sender:
        assert sender.commit(permitted(here.ask())).code == "succeeded"
    assert seen == [([0, 1, 0], [0, 1, 0])]
    assert here.told() == ([0, 0, 1], [0, 0, 1])


@pytest.mark.spec("POL-02", "BUD-04")
def test_the_whole_ledger_is_counted_across_tasks_roots_processes_and_days(here: Here) -> None:
    open_task(here.shop.issuer, "elsewhere", budget={"USD.cent": 900}, subject="u-ana", actors=["agent-7"])
    effect = permitted(here.ask(task="elsewhere"))
    here.shop.service.then(accept_then_close())
    assert here.shop.issuer.commit(effect).code == "outcome_unknown"
    assert here.shop.issuer.task_close("elsewhere").code == "closed"
    succeeded(here)
    here.clock.ahead_ms += 10 * 3_600_000
    with here.shop.made.open(clock=here.clock) as issuer:
        last = refund(issuer, order="o-1", amount=100, task="t1.b")
        assert _earlier(issuer, str(last.effect)) == ([0, 1, 1], [0, 1, 1])
