"""What a decision stands on: facts under the lock that leave the effect itself out, and bounds nobody slips past."""

import json
import queue
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from issuer import Issuer
from issuer.clock import local_time, now_ms
from ledger.model import EffectId, InstantMs
from tests.support.issuers import Made, permitted, refund, standard_issuer
from tests.support.racing import Child
from tests.support.service import Service, accept_then_close, answer
from tests.support.witness import witness

DAY_MS = 24 * 3_600_000
issuer_for_days = partial(standard_issuer, hours=72)
NOON_MS = now_ms() // DAY_MS * DAY_MS + DAY_MS + DAY_MS // 2
"""Tomorrow's noon in UTC: the ledger's first entries are of today, and no clock goes back behind them."""
TODAY, TOMORROW = (local_time(InstantMs(NOON_MS + days * DAY_MS), "UTC").day for days in range(2))
"""The days that the tests' clock shows."""

AUTOMATIC_ONLY = """
@id("any-refund")
permit (principal is Actor in Group::"bots", action == Action::"issue", resource is Order);
"""
BOTH_TIERS = (
    AUTOMATIC_ONLY
    + """
@id("by-a-person") @approvers("finance")
permit (principal is Actor in Group::"bots", action == Action::"requestApproval", resource is Order);
"""
)
ALONE = """
@id("alone")
permit (principal is Actor in Group::"bots", action == Action::"issue", resource is Order)
when {{ {facts} }};
"""
EARLIER = tuple(
    f"same_{what}_{state}"
    for what in ("payload", "resource")
    for state in ("pending", "unresolved", "succeeded")
)


def alone(*names: str) -> str:
    """A policy that issues only where each of these facts is zero."""
    return ALONE.format(facts=" && ".join(f"context.{name} == 0" for name in names))


def snapshot(issuer: Issuer, effect: str, number: int = -1) -> dict[str, dict[str, int]]:
    """Return the facts that one recorded decision about an effect used."""
    rows = issuer._house.ledger.read(lambda view: view.decisions(EffectId(effect)))
    facts = json.loads(rows[number].body)["facts"]
    assert isinstance(facts, dict)
    return facts


class Clock:
    """The time that a test says."""

    def __init__(self) -> None:
        self.now = NOON_MS

    def __call__(self) -> InstantMs:
        return InstantMs(self.now)


@pytest.mark.spec("POL-02")
@pytest.mark.parametrize("hold", [False, True])
def test_the_effect_being_decided_counts_itself_nowhere_neither_at_issue_nor_at_admission(
    tmp_path: Path, hold: bool
) -> None:
    facts = (
        *(f"earlier.{name}" for name in EARLIER),
        "usage.task_permits",
        "usage.root_permits",
        "usage.day_permits",
    )
    with Service(answer(201)) as service:
        made = issuer_for_days(
            tmp_path / "f0",
            port=service.port,
            policy=alone(*facts),
            changes={'lifetime = "10m"': 'per_day = { permits = 40 }\nlifetime = "10m"'},
        )
        with made.open() as issuer:
            asked = refund(issuer, hold=hold)
            effect = permitted(issuer.request_held(str(asked.effect)) if hold else asked)
            assert issuer.commit(effect).code == "succeeded"
            for number in (0, 1):
                facts_used = snapshot(issuer, effect, number)
                assert set(facts_used["earlier"].values()) == {0}
                assert set(facts_used["usage"].values()) == {0}


@pytest.mark.spec("POL-02", "REP-03")
def test_an_earlier_effect_is_seen_by_content_and_by_resource_where_it_stands(tmp_path: Path) -> None:
    with Service(accept_then_close(), answer(201), answer(402)) as service:
        made = issuer_for_days(tmp_path / "f0", port=service.port)
        with made.open() as issuer:
            seen: list[dict[str, int]] = []

            def ask(amount: int, task: str = "org") -> str:
                effect = permitted(refund(issuer, amount=amount, task=task))
                counts = snapshot(issuer, effect)["earlier"]
                seen.append({name: count for name, count in counts.items() if count})
                return effect

            first = ask(100)
            second = ask(100)
            assert issuer.commit(first).code == "outcome_unknown"
            third = ask(100, task="t1")
            assert issuer.commit(second).code == "succeeded"
            ask(101)
            assert issuer.commit(third).code == "no_effect"
            ask(100)
    assert seen == [
        {},
        {"same_payload_pending": 1, "same_resource_pending": 1},
        {"same_payload_pending": 1, "same_payload_unresolved": 1, "same_resource_pending": 1,
         "same_resource_unresolved": 1},
        {"same_resource_pending": 1, "same_resource_unresolved": 1, "same_resource_succeeded": 1},
        {"same_payload_unresolved": 1, "same_payload_succeeded": 1, "same_resource_pending": 1,
         "same_resource_unresolved": 1, "same_resource_succeeded": 1},
    ]  # fmt: skip


BOUNDS = [
    ("per_task = { permits = 100 }", "per_task = { permits = 2 }", "t1", "t1"),
    ("per_root = { permits = 200 }", "per_root = { permits = 2 }", "t1.b", "org"),
    ('lifetime = "10m"', 'per_day = { permits = 2 }\nlifetime = "10m"', "t1.b", TODAY),
    ('lifetime = "10m"', 'per_day = { "USD.cent" = 699 }\nlifetime = "10m"', "t1.b", TODAY),
]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "task", "level"), BOUNDS, ids=[row[1].partition("\n")[0] for row in BOUNDS]
)
@pytest.mark.parametrize(
    ("policy", "code"), [(BOTH_TIERS, "awaiting_approval"), (AUTOMATIC_ONLY, "class_exhausted")]
)
@pytest.mark.spec("POL-03", "POL-01")
def test_a_bound_that_is_used_up_closes_the_automatic_tier_and_leaves_the_other_to_policy(
    *, tmp_path: Path, old: str, new: str, task: str, level: str, policy: str, code: str
) -> None:
    changes = _possible(old, new, per_task=1)
    with issuer_for_days(tmp_path / "f0", port=9, policy=policy, changes=changes).open(
        clock=Clock()
    ) as issuer:
        permitted(refund(issuer, order="o-1", task="t1"))
        permitted(refund(issuer, order="o-2", amount=200 if "USD" in new else 300, task=task))
        third = refund(issuer, order="o-3", task="t1.a" if task == "t1.b" else "t1")
        assert third.code == code
        assert third.more.get("level") == (level if code == "class_exhausted" else None)
        if "USD" in new:
            assert refund(issuer, order="o-4", amount=199, task="t1").code == "permitted"


@pytest.mark.spec("POL-03", "BUD-04", "REP-04")
def test_what_is_unknown_or_done_keeps_counting_and_what_provably_did_not_happen_is_given_back(
    tmp_path: Path,
) -> None:
    with Service(accept_then_close(), answer(201), answer(402)) as service:
        made = issuer_for_days(
            tmp_path / "f0",
            port=service.port,
            policy=AUTOMATIC_ONLY,
            changes={"per_task = { permits = 100 }": "per_task = { permits = 3 }"},
        )
        with made.open() as issuer:
            effects = [permitted(refund(issuer, order=f"o-{number}")) for number in range(3)]
            codes = [issuer.commit(effect).code for effect in effects]
            assert codes == ["outcome_unknown", "succeeded", "no_effect"]
            assert refund(issuer, order="o-3").code == "permitted"
            assert refund(issuer, order="o-4").code == "class_exhausted"


@pytest.mark.spec("POL-03", "PER-03")
def test_a_permit_that_expired_unused_gives_its_place_back(tmp_path: Path) -> None:
    clock = Clock()
    changes = {"per_task = { permits = 100 }": "per_task = { permits = 1 }"}
    made = issuer_for_days(tmp_path / "f0", port=9, policy=AUTOMATIC_ONLY, changes=changes)
    with made.open(clock=clock) as issuer:
        effect = permitted(refund(issuer))
        clock.now += 599_999
        assert refund(issuer, order="o-2").code == "class_exhausted"
        clock.now += 1
        assert issuer.commit(effect).code == "expired"
        assert refund(issuer, order="o-2").code == "permitted"
        assert refund(issuer, order="o-3").code == "class_exhausted"


@pytest.mark.spec("POL-03", "POL-02")
def test_a_day_begins_at_midnight_of_the_owners_zone(tmp_path: Path) -> None:
    changes = {
        'timezone = "UTC"': 'timezone = "Asia/Kolkata"',
        'lifetime = "10m"': 'per_day = { permits = 1 }\nlifetime = "10m"',
    }
    clock = Clock()
    clock.now += (
        6 * 3_600_000 + 1_800_000 - 1
    )  # 23:59:59.999 on that day in Kolkata, five and a half hours ahead
    made = issuer_for_days(tmp_path / "f0", port=9, policy=AUTOMATIC_ONLY, changes=changes)
    with made.open(clock=clock) as issuer:
        effect = permitted(refund(issuer, order="o-1"))
        assert snapshot(issuer, effect)["clock"]["minute_of_day"] == 24 * 60 - 1
        assert (refund(issuer, order="o-2").code, refund(issuer, order="o-2").more["level"]) == (
            "class_exhausted",
            TODAY,
        )
        clock.now += 1
        effect = permitted(refund(issuer, order="o-3"))
        assert snapshot(issuer, effect)["clock"]["minute_of_day"] == 0
        assert refund(issuer, order="o-4").more["level"] == TOMORROW
        assert clock.now < NOON_MS + DAY_MS


@pytest.mark.parametrize(("amount", "code"), [(500, "permitted"), (501, "awaiting_approval")])
@pytest.mark.spec("POL-03")
def test_a_policy_cannot_issue_above_what_one_permit_of_the_class_may_cost(
    tmp_path: Path, amount: int, code: str
) -> None:
    with issuer_for_days(tmp_path / "f0", port=9, policy=BOTH_TIERS).open() as issuer:
        assert refund(issuer, amount=amount).code == code


@pytest.mark.spec("POL-03", "POL-01")
def test_a_class_that_is_never_automatic_leaves_everything_to_a_person(tmp_path: Path) -> None:
    bounds = 'each = { "USD.cent" = 500 }\nper_task = { permits = 100 }\nper_root = { permits = 200 }\n'
    free = {'cost = { "USD.cent" = 1 }': 'cost = { "USD.cent" = 0 }'}
    policy = BOTH_TIERS + BOTH_TIERS.replace("Order", "Release").replace('@id("', '@id("release-')
    made = issuer_for_days(
        tmp_path / "f0", port=9, policy=policy, changes={bounds: "automatic = false\n", **free}
    )
    with made.open() as issuer:
        assert refund(issuer).code == "awaiting_approval"
        assert refund(issuer, amount=1).code == "awaiting_approval"
        costs_nothing = issuer.request("publish", {"name": "v1"}, task="t1", actor="agent-7")
        assert (costs_nothing.code, costs_nothing.cost) == ("awaiting_approval", {"USD.cent": 0})
    assert witness(made).rows["permits"] == []


@pytest.fixture
def racers() -> Iterator[list[Child]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Child()) for _process in range(2)]


def _race(made: Made, racers: list[Child], effects: list[str]) -> list[str]:
    """Let every process take its share of held effects further at once; return the codes."""
    heard: queue.SimpleQueue[object] = queue.SimpleQueue()
    for number, child in enumerate(racers):
        child.order(
            made, heard, calls=[["request_held", effect] for effect in effects[number :: len(racers)]]
        )
    for child in racers:
        child.ready()
    for child in racers:
        child.go()
    return sorted(str(racers[0].said()["code"]) for _effect in effects)


@pytest.mark.spec("POL-03", "POL-05")
def test_processes_that_ask_at_once_cannot_slip_past_a_count_of_any_kind(
    tmp_path: Path, racers: list[Child]
) -> None:
    for number, (old, new, _task, _level) in enumerate(BOUNDS):
        bound = new.replace("= 699", "= 900").replace("= 2 ", "= 3 ")
        made = issuer_for_days(tmp_path / f"f{number}", port=9, changes=_possible(old, bound, per_task=3))
        with made.open() as issuer:
            effects = [str(refund(issuer, order=f"o-{each}", hold=True).effect) for each in range(8)]
        assert _race(made, racers, effects) == ["awaiting_approval"] * 5 + ["permitted"] * 3, new
        rows = witness(made).rows
        assert len(rows["permits"]) == 3
        assert all(used <= ceiling for _counter, used, ceiling in rows["counters"])  # type: ignore[operator]


def _possible(old: str, new: str, *, per_task: int) -> dict[str, str]:
    """Return the change of a bound; beside a root's the one of a task is lowered too, or the profile is refused."""
    changes = {old: new}
    if "per_root" in old:
        changes["per_task = { permits = 100 }"] = f"per_task = {{ permits = {per_task} }}"
    return changes
