"""The last of a bound is one: it commits, since it does not count itself; two that compete for it do not both."""

import queue
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.fault.test_class_bounds import AUTOMATIC, BEFORE, bounds
from tests.support.issuers import STANDARD_PROFILE, Made, open_task, permitted, refund, standard_issuer
from tests.support.racing import Child
from tests.support.service import Service, answer

WIDE = STANDARD_PROFILE[
    STANDARD_PROFILE.index("[class.refund]") : STANDARD_PROFILE.index("[operation.refund]")
]
AMOUNT = 500

# name, the class, the scope of the task: each leaves room for exactly one refund of AMOUNT
BOUNDS: list[tuple[str, str, dict[str, Any]]] = [
    ("per task", bounds(per_task=1), {}),
    ("per root", bounds(per_task=1, per_root=1), {}),
    ("permits a day", bounds(per_day="permits = 1"), {}),
    ("cents a day, exactly", bounds(per_day=f'"USD.cent" = {AMOUNT}'), {}),
    ("cents a day, one short of two", bounds(per_day=f'"USD.cent" = {2 * AMOUNT - 1}'), {}),
    ("slot of a class", BEFORE, {"classes": {"refund": 1}}),
    ("slot of an operation", BEFORE, {"classes": {"refund": 9}, "operations": {"refund": 1}}),
    ("slot of a resource", BEFORE, {"classes": {"refund": 9}, "resources": {"Order:o-1": 1}}),
]
ALL = pytest.mark.parametrize(("bound", "scope"), [row[1:] for row in BOUNDS], ids=[row[0] for row in BOUNDS])


def made_with(folder: Path, port: int, bound: str, scope: dict[str, Any]) -> Made:
    made = standard_issuer(folder, port=port, policy=AUTOMATIC, changes={WIDE: bound})
    with made.open() as issuer:
        budget = {"USD.cent": 10_000}
        open_task(issuer, "last", budget=budget, subject="u-ana", actors=["agent-7"], **scope)
    return made


@pytest.mark.spec("POL-02", "POL-03", "BUD-06", "ADM-01")
@ALL
def test_the_permit_that_takes_the_last_of_a_bound_commits(
    tmp_path: Path, bound: str, scope: dict[str, Any]
) -> None:
    with Service(answer(201)) as service:
        made = made_with(tmp_path / "f0", service.port, bound, scope)
        with made.open() as issuer:
            effect = permitted(refund(issuer, amount=AMOUNT, task="last"))
            second = refund(issuer, amount=AMOUNT, task="last")
            assert second.code in {"class_exhausted", "slots_exhausted"}
            assert issuer.commit(effect).code == "succeeded"
        assert len(service.effects) == 1


@pytest.fixture
def racers() -> Iterator[list[Child]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Child()) for _process in range(2)]


@pytest.mark.spec("POL-03", "BUD-06", "ADM-04")
@ALL
def test_two_processes_that_compete_for_the_last_of_a_bound_do_not_both_commit(
    tmp_path: Path, racers: list[Child], bound: str, scope: dict[str, Any]
) -> None:
    with Service(*[answer(201)] * 4) as service:
        made = made_with(tmp_path / "f0", service.port, bound, scope)
        with made.open() as issuer:
            held = [str(refund(issuer, amount=AMOUNT, task="last", hold=True).effect) for _each in range(4)]
        for method in ("request_held", "commit"):
            heard: queue.SimpleQueue[object] = queue.SimpleQueue()
            for number, child in enumerate(racers):
                child.order(made, heard, calls=[[method, effect] for effect in held[number::2]])
            for child in racers:
                child.ready()
            for child in racers:
                child.go()
            codes = sorted(str(racers[0].said()["code"]) for _effect in held)
            assert codes.count("permitted" if method == "request_held" else "succeeded") == 1, codes
        assert len(service.effects) == 1
