"""Development case D03: killed between admission and record, at three points; starting again repeats nothing."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cases import NOTHING, all_at, books, command, state_of, trail
from tests.support.committing import Job
from tests.support.issuers import Made, permitted, refund, standard_issuer
from tests.support.kills import Nursery, step_number
from tests.support.service import Service, answer, hang

AMOUNT = 300

pytestmark = pytest.mark.spec("REP-05", "ADM-07", "BUD-04", "LED-01")


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as running:
        yield running


@pytest.fixture
def made(tmp_path: Path, service: Service) -> Made:
    return standard_issuer(tmp_path / "f0", port=service.port)


def permit(made: Made) -> str:
    with made.open() as issuer:
        return permitted(refund(issuer, amount=AMOUNT))


def job(made: Made, effect: str, at: str | None = None) -> Job:
    number = None if at is None else step_number(at)
    return Job(profile=str(made.profile), command="commit", arguments={"effect": effect}, at=number)


def started_again(made: Made, service: Service, effect: str, *, listed: str) -> None:
    """Give what a restart would give, in processes of their own; none of them dispatches."""
    connections = service.connections
    shown = command(made, "list", "--state", listed)
    assert shown.exit == 0
    assert effect in str(shown.answer)
    assert command(made, "ledger", "check").exit == 0
    assert command(made, "commit", effect).answer["code"] == (
        "outcome_unknown" if listed == "unknown" else listed
    )
    assert command(made, "admit", effect).exit in {5, 7}
    assert service.connections == connections


def test_a_killed_after_the_admission_and_before_the_socket_opens(
    made: Made, service: Service, nursery: Nursery
) -> None:
    effect = permit(made)
    with nursery.start(job(made, effect, at="admission:committed")) as child:
        assert child.ended() == -signal.SIGKILL
    assert service.connections == 0
    started_again(made, service, effect, listed="unknown")
    with made.open() as issuer:
        assert (state_of(issuer, effect), books(issuer)) == ("unknown", all_at(reserved=AMOUNT))
    assert (service.connections, len(service.effects)) == (0, 0)


def test_b_killed_after_the_service_recorded_it_and_before_the_reply_is_stored(
    made: Made, service: Service, nursery: Nursery
) -> None:
    effect = permit(made)
    service.then(hang(effect=True))
    with nursery.start(job(made, effect)) as child:
        service.wait_for(effects=1)
        child.kill()
    started_again(made, service, effect, listed="unknown")
    with made.open() as issuer:
        assert (state_of(issuer, effect), books(issuer)) == ("unknown", all_at(reserved=AMOUNT))
    assert (service.connections, len(service.effects)) == (1, 1)


def test_c_killed_after_the_reply_is_stored(made: Made, service: Service, nursery: Nursery) -> None:
    effect = permit(made)
    service.then(answer(201))
    with nursery.start(job(made, effect, at="settled")) as child:
        assert child.ended() == -signal.SIGKILL
    started_again(made, service, effect, listed="succeeded")
    with made.open() as issuer:
        assert (state_of(issuer, effect), books(issuer)) == ("succeeded", all_at(settled=AMOUNT))
        assert [entry.name for entry in trail(issuer) if "admitted" in entry.name] == ["effect.admitted"]
        assert books(issuer, "t1.a") == {"t1.a": NOTHING}
    assert (service.connections, len(service.effects)) == (1, 1)
