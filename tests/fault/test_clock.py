"""A clock that cannot be believed stops what decides, until an operator says that it is right (PER-03)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from issuer.clock import machine_uptime, now_ms
from issuer.commands import ledger_check
from ledger.model import InstantMs
from ledger.timekeeping import NO_UPTIME
from tests.support.issuers import HOUR_MS, Made, permitted, refund, standard_issuer
from tests.support.service import Service, answer
from tests.support.shell import issuer_process

pytestmark = pytest.mark.spec("PER-03")

YEAR_MS = 365 * 24 * HOUR_MS


class Clock:
    """The machine's clock with an offset, as somebody sets the date."""

    def __init__(self) -> None:
        self.offset_ms = 0

    def __call__(self) -> InstantMs:
        return InstantMs(now_ms() + self.offset_ms)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(answer(201), answer(201)) as running:
        yield running


@pytest.fixture
def made(tmp_path: Path, service: Service) -> Made:
    return standard_issuer(tmp_path / "f0", port=service.port)


def test_a_clock_set_ahead_stops_requests_and_commits_and_spends_nothing(
    made: Made, clock: Clock, service: Service
) -> None:
    with made.open(clock=clock, uptime=machine_uptime()) as issuer:
        effect = permitted(refund(issuer))
        clock.offset_ms = YEAR_MS
        assert refund(issuer, order="o-2").code == "clock_untrusted"
        assert issuer.commit(effect).code == "clock_untrusted"
        clock.offset_ms = 0
        assert issuer.commit(effect).code == "succeeded"
    assert len(service.requests) == 1


def test_a_clock_far_ahead_does_not_make_a_ledger_useless_once_it_is_right_again(
    made: Made, clock: Clock
) -> None:
    with made.open(clock=clock, uptime=machine_uptime()) as issuer:
        clock.offset_ms = YEAR_MS
        assert issuer.clock_accept().code == "accepted"
        assert refund(issuer).code == "task_expired"
        clock.offset_ms = 0
        assert refund(issuer).code == "clock_untrusted"
        assert issuer.clock_accept().code == "accepted"
        assert refund(issuer).code == "permitted"
    assert ledger_check(made.profile).code == "found"


def test_what_was_prepared_in_a_time_that_never_was_cannot_outlast_its_lifetime(
    made: Made, clock: Clock, service: Service
) -> None:
    with made.open(clock=clock, uptime=machine_uptime()) as issuer:
        clock.offset_ms = HOUR_MS
        issuer.clock_accept()
        early = permitted(refund(issuer))
        clock.offset_ms = 0
        issuer.clock_accept()
        assert issuer.show(early).state == "expired"
        assert issuer.commit(early).code == "expired"
    assert service.connections == 0


def test_an_accepted_clock_is_on_record_with_the_entry_before(made: Made, clock: Clock) -> None:
    with made.open(clock=clock, uptime=machine_uptime()) as issuer:
        clock.offset_ms = HOUR_MS
        issuer.clock_accept()
        issuer.commit(permitted(refund(issuer)))
    spans = [line for line in made.sink.read_text().splitlines() if "ledger.clock_accepted" in line]
    assert len(spans) == 1
    assert "permit.clock.before_ms" in spans[0]


def test_the_command_line_accepts_the_clock_and_says_both_instants(made: Made, clock: Clock) -> None:
    with made.open(clock=clock, uptime=machine_uptime()) as issuer:
        clock.offset_ms = HOUR_MS
        issuer.clock_accept()
    listed = ("--json", "request", "refund", "--task", "t1", "--actor", "agent-7", "--payload", "-")
    payload = b'{"order": "o-1", "amount": 300}'
    refused = issuer_process(*listed, at=made.folder, stdin=payload)
    assert (refused.exit, refused.code, refused.answer["next"]) == (8, "clock_untrusted", "tell_a_person")
    accepted = issuer_process("--json", "ledger", "clock", "accept", at=made.folder)
    assert (accepted.exit, accepted.code) == (0, "accepted")
    assert sorted(accepted.answer["clock"]) == ["before", "now"]
    assert issuer_process(*listed, at=made.folder, stdin=payload).code == "permitted"


def test_without_a_boot_clock_only_a_silence_of_more_than_a_year_is_doubted(made: Made, clock: Clock) -> None:
    with made.open(clock=clock, uptime=lambda: NO_UPTIME) as issuer:
        clock.offset_ms = HOUR_MS
        assert refund(issuer).code == "permitted"
        clock.offset_ms = 2 * YEAR_MS
        assert refund(issuer, order="o-2").code == "clock_untrusted"
