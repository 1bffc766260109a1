"""The signed report of a period, where an operator set the clock back, and where refusals were only counted."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from audit.errors import NoteRefused
from audit.reports import recount
from issuer.clock import instant_text, machine_uptime, now_ms
from ledger.model import InstantMs
from ledger.noise import BURST_MAX, INTERVAL_MS
from ledger.tree import leaf_hash
from tests.support.cases import Clock
from tests.support.issuers import HOUR_MS, Made, refund, standard_issuer
from tests.support.reviewing import whole_trail
from tests.support.service import Service

YEAR_MS = 365 * 24 * HOUR_MS


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    with Service() as service:
        yield standard_issuer(tmp_path / "f0", port=service.port)


def instant(clock: Clock, ahead_ms: int = 0) -> str:
    return instant_text(InstantMs(clock() + ahead_ms))


@pytest.mark.spec("AUD-09", "PER-03")
def test_a_clock_that_was_set_back_leaves_no_span_out_of_a_report(made: Made) -> None:
    clock = Clock()
    with made.open(clock=clock, uptime=machine_uptime()) as issuer:
        before = instant(clock)
        refund(issuer, order="o-1")
        clock.ahead_ms = YEAR_MS
        issuer.clock_accept()
        refund(issuer, order="o-2")
        clock.ahead_ms = 0
        issuer.clock_accept()
        since = instant(clock, 1)
        clock.ahead_ms = 2
        refund(issuer, order="o-3")
        until = instant(clock, 1_000)
        clock.ahead_ms = 3_000
        trail = whole_trail(issuer)
        asked: Any = issuer.audit_query(since=since, until=until).more["rows"]
        # What lies in one stretch of time is counted alone.
        told: Any = issuer.audit_report(since=since, until=until).more["population"]
        assert [row["sequence"] for row in asked] == list(range(told["first"], told["last"] + 1))
        assert (told["effects"]["begun"], "outside" in told) == (1, False)
        # What lies before and after the wrong time is counted with what was done in that time, and the report says so.
        both: Any = issuer.audit_report(since=before, until=until)
        told = both.more["population"]
        within = [one for one in trail if told["first"] <= one.sequence <= told["last"]]
        assert told["spans"] == len(within)
        assert told["outside"] == sum(one.at_ms > now_ms() + HOUR_MS for one in within) > 0
        assert (
            f"  {told['outside']} of them carry a time outside of it: the clock was set in between"
            in (both.more["lines"])
        )
        # Until now is until now, whatever time the clock once told.
        latest: Any = issuer.audit_report(since=since).more["population"]
        assert latest["effects"]["begun"] == 1


@pytest.mark.spec("AUD-09", "PER-03")
def test_a_clock_that_was_set_back_hides_no_change_of_authority(made: Made) -> None:
    clock = Clock()
    with made.open(clock=clock, uptime=machine_uptime()) as issuer:
        clock.ahead_ms = YEAR_MS
        issuer.clock_accept()
        issuer.task_freeze("t1")
        clock.ahead_ms = 0
        issuer.clock_accept()
        since = instant(clock, 1)
        clock.ahead_ms = 5
        issuer.suspend("actor", "agent-8")
        until = instant(clock, 1_000)
        rows: Any = issuer.audit_changes(since=since, until=until).more["changes"]
        asked: Any = issuer.audit_query(since=since, until=until).more["rows"]
        assert len(rows) == 1
        assert rows[0]["sequence"] in [row["sequence"] for row in asked]


@pytest.mark.spec("AUD-09", "AUD-01")
def test_refusals_that_were_only_counted_are_in_the_number_that_is_signed(made: Made) -> None:
    clock = Clock()
    with made.open(clock=clock) as issuer:
        for _ in range(BURST_MAX + 5):
            assert issuer.commit("eff_" + "0" * 32).code == "not_found"
        clock.ahead_ms = INTERVAL_MS + 1
        issuer.audit_unknowns()  # a look tells what was counted
        told: Any = issuer.audit_report().more["population"]
        effects = told["effects"]
        assert (effects["refused"], effects["refused_repeats"]) == (BURST_MAX, 5)


@pytest.mark.spec("AUD-09")
@pytest.mark.parametrize("inside", [b"[" * 20_000 + b"]" * 20_000, b"[]", b'"x"', b"7"])
def test_a_line_that_is_no_span_is_refused_whatever_it_holds(inside: bytes) -> None:
    body = b'{"attributes":' + inside + b"}"
    leaf = leaf_hash(body).hex().encode()
    line = b'{"epoch":1,"lane":0,"leaf":"' + leaf + b'","sequence":1,"span":' + body + b"}\n"
    with pytest.raises(NoteRefused):
        recount({"first": 1, "last": 1}, [line])
