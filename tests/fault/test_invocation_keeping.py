"""What becomes of invocations where a ledger is collected or restored, and on the command line."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from issuer import Issuer
from tests.support.cases import command, state_of
from tests.support.invoking import MINUTE_MS, StandingClock, begun, done_in, outcome, spans_of
from tests.support.issuers import Made, permitted, refund, standard_issuer
from tests.support.recount import recounted
from tests.support.restoring import restored, saved
from tests.support.service import Service

DAY_MS = 86_400_000
OLD_MS = 29 * DAY_MS
"""The service has forgotten the key by then, and an invocation may still be open."""


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as opened:
        yield opened


@pytest.fixture
def made(tmp_path: Path, service: Service) -> Made:
    return standard_issuer(tmp_path / "f0", port=service.port)


def collected(issuer: Issuer) -> tuple[int, int]:
    """Collect early; return how many effects and invocations went."""
    said = issuer.ledger_collect(early=True)
    assert said.code == "collected_now", said
    gone = said.more["collected"]
    assert isinstance(gone, dict)
    return gone["effects"], gone["invocations"]


@pytest.mark.spec("LED-02", "INV-02", "PER-04")
def test_what_settled_under_an_open_invocation_stays_until_that_ends_and_then_both_go(
    made: Made, service: Service
) -> None:
    clock = StandingClock()
    with made.open(clock=clock) as issuer:
        invocation = begun(issuer, clock, within_ms=30 * DAY_MS)
        effect = done_in(issuer, service, invocation)
        alone = permitted(refund(issuer, order="o-2", amount=1))
        clock.ahead_ms = OLD_MS
        assert collected(issuer) == (1, 0)
        record = issuer.show(alone).more["record"]
        assert isinstance(record, dict)
        assert (state_of(issuer, effect), record["collected"]) == ("succeeded", True)
        assert issuer.invocation_end(invocation, "succeeded").code == "ended"
        assert collected(issuer) == (1, 1)
        assert issuer.invocation_show(invocation).code == "unknown_reference"
        assert collected(issuer) == (0, 0)
    assert Issuer.ledger_check(made.profile).more["findings"] == []
    recounted(made.ledger)


@pytest.mark.spec("LED-08", "INV-02", "BUD-04")
def test_a_restore_ends_every_open_invocation_and_believes_no_success(made: Made, service: Service) -> None:
    clock = StandingClock()
    clock.start_ms -= MINUTE_MS
    with made.open(clock=clock) as issuer:
        names = {
            how: begun(issuer, clock) for how in ("open", "cancelled", "failed_application", "succeeded")
        }
        ready = permitted(refund(issuer, amount=100, invocation=names["open"]))
        before = begun(issuer, clock)
        issuer.invocation_cancel(before)
    file = saved(made)
    with made.open() as issuer:
        issuer.invocation_cancel(names["cancelled"])
        for how in ("failed_application", "succeeded"):
            assert issuer.invocation_end(names[how], how).code == "ended"
        after = issuer.invocation_open("t1", "agent-7", clock() + 60 * MINUTE_MS)  # type: ignore[arg-type]
        assert after.code == "opened"
        house = issuer._house
        house.delivery.acknowledge(house.ledger.read(lambda view: view.head()).sequence)
    restored(made, file)
    with made.open() as issuer:
        found = {how: outcome(issuer, name) for how, name in names.items()}
        assert found == {
            "open": "failed_execution",
            "cancelled": "cancelled",
            "failed_application": "failed_application",
            "succeeded": "failed_execution",
        }
        assert outcome(issuer, before) == "cancelled"
        assert spans_of(issuer, before).count("invocation.ended") == 1
        assert state_of(issuer, ready) == "revoked"
        assert refund(issuer, order="o-9", amount=1, invocation=names["open"]).code == "invocation_over"
        gone = after.more["invocation"]
        assert isinstance(gone, dict)
        assert issuer.invocation_show(gone["id"]).code == "unknown_reference"


@pytest.mark.spec("INV-01", "SUR-01")
def test_on_the_command_line_an_invocation_is_opened_named_shown_and_ended(made: Made) -> None:
    opened = command(made, "invocation", "open", "t1", "--actor", "agent-7", "--deadline", "1h")
    assert (opened.exit, opened.answer["code"]) == (0, "opened")
    said = opened.answer["invocation"]
    assert isinstance(said, dict)
    asked = command(
        made,
        *("request", "publish", "--task", "t1", "--actor", "agent-7", "--payload", "-"),
        *("--invocation", str(said["id"]), "--hold"),
        stdin=b'{"name": "v1"}',
    )
    assert asked.answer["code"] == "prepared"
    refused = command(made, "invocation", "end", str(said["id"]), "--outcome", "succeeded")
    assert (refused.exit, refused.answer["code"]) == (7, "invocation_unsettled")
    assert refused.answer["level"] == asked.answer["effect"]
    assert command(made, "invocation", "cancel", str(said["id"])).answer["code"] == "ended"
    over = command(made, "request", str(asked.answer["effect"]))
    assert (over.exit, over.answer["code"], over.answer["next"]) == (7, "invocation_over", "stop")
