"""Development case D13: what is stopped between issue and admission is not dispatched; afterwards it is too late.

What a release without approvals can stop is a task, by freezing or closing it or one above it. Revoking a permit, a
subject and an approval stand beside these once they exist.
"""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from issuer import Issuer
from issuer.wire import Answer
from tests.support.cases import NOTHING, all_at, books, state_of
from tests.support.issuers import Made, permitted, refund, standard_issuer
from tests.support.service import Service, answer, held

STOPS = [("task_freeze", "t1"), ("task_freeze", "org"), ("task_close", "t1"), ("task_close", "org")]
REFUSALS = {"task_freeze": "task_frozen", "task_close": "task_closed"}

pytestmark = pytest.mark.spec("BUD-05", "ADM-01", "PER-05")


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as running:
        yield running


@pytest.fixture
def made(tmp_path: Path, service: Service) -> Made:
    return standard_issuer(tmp_path / "f0", port=service.port)


def stop(issuer: Issuer, how: str, task: str) -> Answer:
    stopped: Answer = getattr(issuer, how)(task)
    assert stopped.code in {"frozen", "closed"}, stopped
    return stopped


@pytest.mark.parametrize(("how", "task"), STOPS)
def test_a_permit_issued_just_before_is_not_admitted_and_nothing_is_sent(
    made: Made, service: Service, how: str, task: str
) -> None:
    """The one that issues and the one that stops are open beside each other, and neither has seen the other's act."""
    with made.open() as host, made.open() as operator:
        effect = permitted(refund(host))
        stop(operator, how, task)
        for _again in range(2):
            refused = host.commit(effect)
            assert (refused.code, refused.more["level"], refused.retryable) == (
                REFUSALS[how],
                task,
                how == "task_freeze",
            )
        assert (state_of(host, effect), books(host)) == ("permitted", dict.fromkeys(("t1", "org"), NOTHING))
    assert service.connections == 0


def test_a_thawed_task_admits_the_permit_that_was_issued_before(made: Made, service: Service) -> None:
    service.then(answer(201))
    with made.open() as host, made.open() as operator:
        effect = permitted(refund(host))
        stop(operator, "task_freeze", "org")
        assert host.commit(effect).code == "task_frozen"
        assert operator.task_thaw("org").code == "thawed"
        assert host.commit(effect).code == "succeeded"
    assert len(service.effects) == 1


@pytest.mark.parametrize(("how", "task"), STOPS)
def test_after_the_dispatch_began_the_effect_keeps_its_real_outcome(
    made: Made, service: Service, how: str, task: str
) -> None:
    gate = service.gate("booked")
    service.then(held("booked", answer(201)))
    told: list[Answer] = []
    with made.open() as host, made.open() as operator:
        effect = permitted(refund(host))
        sending = threading.Thread(target=lambda: told.append(host.commit(effect)))
        sending.start()
        service.wait_for(requests=1)
        stop(operator, how, task)
        gate.set()
        sending.join()
        assert [one.code for one in told] == ["succeeded"]
        assert (state_of(host, effect), books(host)) == ("succeeded", all_at(settled=300))
        assert refund(host, order="o-2").code == REFUSALS[how]
    assert len(service.requests) == 1
