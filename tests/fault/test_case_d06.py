"""Development case D06: 64 threads in four processes use one permit at once, and one of them has it."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from issuer import Issuer
from tests.support.cases import LEVELS, all_at, books, effect_ids, held_by, state_of, trail
from tests.support.issuers import Made, permitted, refund, standard_issuer
from tests.support.racing import Child
from tests.support.service import Service, Step, accept_then_close, answer, held

PROCESSES, THREADS = 4, 16
CALLS = PROCESSES * THREADS


@pytest.fixture(scope="module")
def processes() -> Iterator[list[Child]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Child()) for _ in range(PROCESSES)]


def all_at_once(processes: list[Child], made: Made, method: str, effect: str) -> list[Child]:
    """Let every thread of every process go at one barrier."""
    for child in processes:
        child.order(made, calls=[[method, effect]] * THREADS)
    for child in processes:
        child.ready()
    for child in processes:
        child.go()
    return processes


def assert_admitted_once(issuer: Issuer, effect: str, amount: int) -> None:
    """One admission in the trail, one use of the permit, one reservation at each level."""
    admitted = [entry for entry in trail(issuer) if entry.state_to == "admitted"]
    assert [entry.attributes["permit.effect.id"] for entry in admitted] == [effect]
    assert held_by(issuer, effect) == dict.fromkeys(LEVELS, amount)
    assert effect_ids(issuer) == [effect]


@pytest.mark.spec("ADM-02", "ADM-04", "REP-01", "BUD-02", "AUD-01")
def test_64_commits_of_one_permit_send_once_and_63_are_told_that_it_is_spent(
    processes: list[Child], tmp_path: Path
) -> None:
    with Service(held("go", answer(201))) as service:
        made = standard_issuer(tmp_path / "f0", port=service.port)
        with made.open() as issuer:
            effect = permitted(refund(issuer))
            children = all_at_once(processes, made, "commit", effect)
            # The service answers nobody yet, so that every loser is told before there is anything to know.
            service.wait_for(requests=1)
            losers = [child.said() for child in children for _ in range(THREADS - 1)]
            assert books(issuer) == all_at(reserved=300)
            assert state_of(issuer, effect) == "admitted"
            service.gate("go").set()
            rest = [child.said() for child in children]
            assert Counter(said["code"] for said in [*losers, *rest]) == {
                "already_consumed": CALLS - 1,
                "succeeded": 1,
            }
            assert {(said["exit"], said["retryable"], said["next"]) for said in losers} == {
                (7, False, "stop")
            }
            assert (service.connections, len(service.effects)) == (1, 1)
            assert_admitted_once(issuer, effect, 300)
            assert books(issuer) == all_at(settled=300)


@pytest.mark.spec("ADM-04", "REP-01", "REP-05", "BUD-04", "SUR-05")
@pytest.mark.parametrize(
    ("step", "code", "state"),
    [(accept_then_close(), "outcome_unknown", "unknown"), (answer(201), "succeeded", "succeeded")],
)
def test_64_commits_race_with_the_outcome_and_each_is_told_what_is_known_then(
    step: Step, code: str, state: str, processes: list[Child], tmp_path: Path
) -> None:
    with Service(step) as service:
        made = standard_issuer(tmp_path / "f0", port=service.port)
        with made.open() as issuer:
            effect = permitted(refund(issuer))
            children = all_at_once(processes, made, "commit", effect)
            said = Counter(child.said()["code"] for child in children for _ in range(THREADS))
            assert said.keys() <= {"already_consumed", code}
            assert (said.total(), said[code] >= 1) == (CALLS, True)
            assert (service.connections, len(service.effects)) == (1, 1)
            assert_admitted_once(issuer, effect, 300)
            assert state_of(issuer, effect) == state
            held = 300 if state == "unknown" else 0
            assert books(issuer) == all_at(reserved=held, settled=300 - held)


@pytest.mark.spec("ADM-04", "ADM-07", "REP-01")
def test_64_admissions_of_what_a_host_sends_give_one_claim(processes: list[Child], tmp_path: Path) -> None:
    with Service() as service:
        made = standard_issuer(tmp_path / "f0", port=service.port)
        with made.open() as issuer:
            asked = issuer.request("publish", {"name": "v1"}, task="t1", actor="agent-7")
            effect = permitted(asked)
            children = all_at_once(processes, made, "admit", effect)
            said = [child.said() for child in children for _ in range(THREADS)]
            assert Counter(one["code"] for one in said) == {"admitted": 1, "already_consumed": CALLS - 1}
            claims = [str(one["claim"]) for one in said if "claim" in one]
            assert len(claims) == 1
            assert_admitted_once(issuer, effect, 1)
            assert books(issuer) == all_at(reserved=1)
            assert issuer.report(effect, "clm_" + "0" * 32, succeeded=True).code == "forbidden"
            assert issuer.report(effect, claims[0], succeeded=True).code == "succeeded"
            assert books(issuer) == all_at(settled=1)
            assert service.connections == 0
