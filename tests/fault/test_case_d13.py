"""Development case D13: what is stopped between issue and admission is not dispatched; afterwards it is too late.

Two processes are open beside each other: the one that issues and the one that stops, and neither has seen the other's
act. (a) the permit, (b) the task, (c) the subject, and a task that is frozen or closed; (d) the approval behind it is
in `test_stops_of_approvals.py`.
"""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from issuer import Issuer
from issuer.wire import Answer
from ledger.model import EffectId
from tests.support.cases import NOTHING, all_at, books, command, state_of
from tests.support.issuers import Made, permitted, refund, standard_issuer
from tests.support.service import Service, answer, held

REVOKED: dict[str, Callable[[Issuer, str], Answer]] = {
    "a the permit": lambda issuer, effect: issuer.revoke("permit", permit_of(issuer, effect)),
    "b the task": lambda issuer, _effect: issuer.revoke("task", "t1"),
    "b a task above": lambda issuer, _effect: issuer.revoke("task", "org"),
    "c the subject": lambda issuer, _effect: issuer.revoke("person", "u-ana"),
}
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


# ------------------------------------------------------------------------------------ revoked


def permit_of(issuer: Issuer, effect: str) -> str:
    permit = issuer._house.ledger.read(lambda view: view.permit(EffectId(effect)))
    assert permit is not None
    return permit.permit_id


@pytest.mark.spec("ADM-05", "BUD-06", "POL-05")
@pytest.mark.parametrize("what", REVOKED)
def test_what_is_revoked_right_after_it_was_issued_is_refused_and_never_sent(
    made: Made, service: Service, what: str
) -> None:
    with made.open() as host, made.open() as operator:
        effect = permitted(refund(host))
        revoked = REVOKED[what](operator, effect)
        assert (revoked.code, revoked.more["voided"]) == ("revoked_now", 1)
        for _again in range(2):
            refused = host.commit(effect)
            assert (refused.code, refused.retryable, refused.state) == ("revoked", False, "revoked")
        assert books(host) == dict.fromkeys(("t1", "org"), NOTHING)
    assert service.connections == 0


@pytest.mark.spec("ADM-05", "REP-01")
@pytest.mark.parametrize("what", REVOKED)
def test_after_the_dispatch_began_a_revocation_is_too_late_and_the_outcome_is_the_real_one(
    made: Made, service: Service, what: str
) -> None:
    gate = service.gate("booked")
    service.then(held("booked", answer(201)))
    told: list[Answer] = []
    with made.open() as host, made.open() as operator:
        effect = permitted(refund(host))
        sending = threading.Thread(target=lambda: told.append(host.commit(effect)))
        sending.start()
        service.wait_for(requests=1)
        revoked = REVOKED[what](operator, effect)
        if what == "a the permit":
            assert (revoked.code, revoked.effect, revoked.state) == ("too_late", effect, "admitted")
        else:
            assert revoked.more["too_late"] == [{"effect": effect, "state": "admitted"}]
        gate.set()
        sending.join()
        assert [one.code for one in told] == ["succeeded"]
        assert (state_of(host, effect), books(host)) == ("succeeded", all_at(settled=300))
        assert operator.revoke("effect", effect).code == "too_late"
    assert len(service.requests) == 1


@pytest.mark.spec("ADM-05", "SUR-01")
def test_on_the_command_line_a_revoked_permit_is_refused_and_a_suspended_person_is_named(
    made: Made, service: Service
) -> None:
    with made.open() as host:
        effect = permitted(refund(host))
        ran = command(made, "revoke", "permit", permit_of(host, effect), "--reason", "compromised")
        assert (ran.exit, ran.answer["code"], ran.answer["effect"]) == (0, "revoked_now", effect)
        assert host.commit(effect).code == "revoked"
        assert command(made, "person", "suspend", "u-ana").answer["stop"] == "person:u-ana"
        assert refund(host, order="o-2").code == "suspended"
        assert command(made, "thaw", "person", "u-ana").answer["code"] == "resumed"
        permitted(refund(host, order="o-3"))
    assert service.connections == 0
