"""Development case D07: ten permits of 300 against 1,000, all at once, while the service holds every call."""

import queue
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from issuer import Issuer
from ledger.states import EffectState
from tests.support.cases import PATIENCE_S, Books, all_at, books, effect_ids, held_by, refusals
from tests.support.issuers import Made, open_task, permitted, refund, standard_issuer
from tests.support.racing import Child
from tests.support.service import Service, Step, accept_then_close, answer, held

PERMITS, PROCESSES, FIT = 10, 2, 3
SHAPES: dict[str, tuple[Mapping[str, int | str], str]] = {
    "the task itself": ({"root": 10_000, "middle": "inherit", "leaf": 1_000}, "leaf"),
    "the task above": ({"root": 10_000, "middle": 1_000, "leaf": "inherit"}, "middle"),
    "the root": ({"root": 1_000, "middle": 5_000, "leaf": 4_000}, "root"),
}
"""Ceilings from the root to the leaf, the root's once it is lowered, and the level that is too small."""
TREE = ("leaf", "middle", "root")


@pytest.fixture(scope="module")
def processes() -> Iterator[list[Child]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Child()) for _ in range(1 + PROCESSES)]


def ten_permits(made: Made, ceilings: Mapping[str, int | str]) -> list[str]:
    """Open a tree with these ceilings and return ten permits in its leaf: each alone would fit."""
    with made.open() as issuer:
        open_task(issuer, "root", budget={"USD.cent": 10_000}, subject="u-ana", actors=["agent-7"])
        open_task(issuer, "middle", parent="root", budget={"USD.cent": ceilings["middle"]})
        open_task(issuer, "leaf", parent="middle", budget={"USD.cent": ceilings["leaf"]})
        assert issuer.task_lower("root", budget={"USD.cent": int(ceilings["root"])}).code == "lowered"
        return [permitted(refund(issuer, order=f"o-{n}", task="leaf")) for n in range(PERMITS)]


def watched_until(watcher: Child, reserved: int, settled: int) -> None:
    """Read the watcher's samples until it saw this on the whole path; none of them was over 1,000 or in between."""
    while True:
        sample = watcher.next()
        if sample == "ready":
            continue
        assert isinstance(sample, list)
        assert len({tuple(line) for line in sample}) == 1, sample
        held, spent, overrun = sample[0]
        assert 0 <= held + spent <= 1_000, sample
        assert (held % 300, spent % 300, overrun) == (0, 0, 0), sample
        if (held, spent) == (reserved, settled):
            return


def assert_refused_keep_their_permits(issuer: Issuer, service: Service, level: str) -> None:
    """A refusal took nothing from anybody: no permit, no reservation; a higher ceiling is all that it lacked."""
    waiting = effect_ids(issuer, EffectState.PERMITTED)
    assert len(waiting) == PERMITS - FIT
    assert [held_by(issuer, effect) for effect in waiting] == [{}] * len(waiting)
    before = service.connections
    assert issuer.commit(waiting[0]).code == "budget_exceeded"
    assert service.connections == before
    assert issuer.task_grant(level, budget={"USD.cent": 200}).code == "granted"
    assert issuer.commit(waiting[0]).code == "succeeded"
    assert service.connections == before + 1
    assert issuer.commit(waiting[1]).code == "budget_exceeded"
    assert books(issuer, *TREE) == all_at(*TREE, settled=1_200)


@pytest.mark.spec("BUD-02", "ADM-01", "ADM-02", "ADM-03")
@pytest.mark.parametrize("shape", SHAPES)
def test_three_of_ten_are_admitted_and_seven_refused_before_a_socket_opens(
    shape: str, processes: list[Child], tmp_path: Path
) -> None:
    ceilings, level = SHAPES[shape]
    with Service(*[held("go", answer(201))] * PERMITS) as service:
        made = standard_issuer(tmp_path / "f0", port=service.port)
        effects = ten_permits(made, ceilings)
        watcher, *children = processes
        watcher.order(made, watch=TREE)
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for part, child in enumerate(children):
            child.order(made, answers, calls=[["commit", one] for one in effects[part :: len(children)]])
        watched_until(watcher, 0, 0)
        for child in children:
            child.ready()
        for child in children:
            child.go()
        # The service answers nobody yet: whoever is told anything now was refused, and opened no socket.
        noes = [answers.get(timeout=PATIENCE_S) for _ in range(PERMITS - FIT)]
        service.wait_for(requests=FIT)
        assert service.connections == FIT
        assert {(no["code"], no["level"], no["field"]) for no in noes} == {
            ("budget_exceeded", level, "USD.cent")
        }
        assert {(no["exit"], no["state"], no["retryable"]) for no in noes} == {(6, "permitted", True)}
        watched_until(watcher, 900, 0)
        with made.open() as issuer:
            assert books(issuer, *TREE) == all_at(*TREE, reserved=900)
            service.gate("go").set()
            done = Counter(answers.get(timeout=PATIENCE_S)["code"] for _ in range(FIT))
            assert done == {"succeeded": FIT}
            watched_until(watcher, 0, 900)
            watcher.go()
            assert watcher.next() == "stopped"
            told = [no for no in refusals(issuer) if no[0] == "budget_exceeded"]
            assert told == [("budget_exceeded", "USD.cent", level)] * (PERMITS - FIT)
            assert_refused_keep_their_permits(issuer, service, level)
        assert len(service.effects) == FIT + 1


@pytest.mark.spec("BUD-02", "BUD-04", "REP-04", "REP-05")
@pytest.mark.parametrize(
    ("step", "left"),
    [
        (accept_then_close(), Books(reserved=900, settled=0)),
        (answer(409), Books(reserved=0, settled=900)),
        (answer(422, effect=False), Books(reserved=0, settled=0)),
    ],
)
def test_only_proof_of_no_effect_gives_the_budget_to_the_next(
    step: Step, left: Books, tmp_path: Path
) -> None:
    with Service(*[step] * FIT, answer(201)) as service:
        made = standard_issuer(tmp_path / "f0", port=service.port)
        effects = ten_permits(made, SHAPES["the task itself"][0])
        with made.open() as issuer:
            for effect in effects[:FIT]:
                issuer.commit(effect)
            assert books(issuer, *TREE) == dict.fromkeys(TREE, left)
            fits = left == Books(reserved=0, settled=0)
            assert issuer.commit(effects[FIT]).code == ("succeeded" if fits else "budget_exceeded")
        assert service.connections == FIT + fits
