"""How full a ledger is, and making room, as they are typed: `ledger stats`, `ledger collect`, `doctor` (LED-02)."""

from pathlib import Path
from typing import Any

import pytest

from ledger.sqlite.ballast import Ballast
from tests.support.bounded import bounded_issuer, denied
from tests.support.cases import command
from tests.support.issuers import Made, permitted, refund
from tests.support.shell import issuer_here


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return bounded_issuer(tmp_path / "f0", port=9, effects=10)


def waiting(made: Made, number: int) -> list[str]:
    """Return so many effects that nobody has used yet."""
    with made.open() as issuer:
        return [permitted(refund(issuer, order=f"o-{one}", amount=1)) for one in range(number)]


def finding(made: Made, check: str) -> dict[str, Any]:
    told = issuer_here("doctor", "--json", at=made.folder).answer
    (row,) = [row for row in told["findings"] if row["check"] == check]
    return dict(row)


def fill_of(made: Made) -> dict[str, int]:
    stats = issuer_here("ledger", "stats", "--json", at=made.folder).answer["stats"]
    return {row["what"]: row["percent"] for row in stats["fill"]}


@pytest.mark.spec("LED-02", "SUR-03")
def test_stats_tell_how_full_each_bound_is_and_what_is_kept_for_outcomes(made: Made) -> None:
    waiting(made, 3)
    stats = issuer_here("ledger", "stats", "--json", at=made.folder).answer["stats"]
    rows = {row["what"]: row for row in stats["fill"]}
    assert list(rows) == ["effects", "record_bytes", "span_bytes"]
    assert (rows["effects"]["used"], rows["effects"]["bound"], rows["effects"]["percent"]) == (3, 10, 30)
    assert 0 < rows["span_bytes"]["used"] < rows["span_bytes"]["bound"] == 1024**3
    assert (stats["tombstones"], stats["ballast"], stats["full_in"]) == (0, True, None)
    assert stats["free_bytes"] > 0
    shown = issuer_here("ledger", "stats", at=made.folder).out
    assert "  full: effects 30% of 10, records 0% of 64 MiB, spans 0% of 1024 MiB\n" in shown
    assert "  full at this pace: not in sight\n" in shown
    assert "  kept for outcomes: the ballast stands, " in shown


@pytest.mark.spec("LED-02", "SUR-01", "SUR-03")
def test_collect_makes_room_and_says_how_much(made: Made) -> None:
    kept = waiting(made, 2)
    with made.open() as issuer:
        for number in range(3):
            denied(issuer, number)
    assert fill_of(made)["effects"] == 50
    ran = command(made, "ledger", "collect")
    assert (ran.exit, ran.answer["code"], ran.answer["next"]) == (0, "collected_now", "stop")
    assert ran.answer["collected"] == {"effects": 3, "tombstones": 0, "contents": 0, "invocations": 0}
    assert fill_of(made)["effects"] == 20
    shown = issuer_here("ledger", "collect", "--early", at=made.folder)
    assert shown.exit == 0
    assert "collected: effects 0, " in shown.out
    assert [command(made, "show", one).answer["state"] for one in kept] == ["permitted", "permitted"]


@pytest.mark.spec("LED-02", "SUR-03")
@pytest.mark.parametrize(
    ("number", "ok", "told", "exit_code"),
    [(7, True, "", 0), (8, True, "`issuer ledger collect`", 0), (10, False, "`issuer ledger collect`", 6)],
)
def test_doctor_announces_a_filling_ledger_before_it_is_full(
    number: int, ok: bool, told: str, exit_code: int, made: Made
) -> None:
    waiting(made, number)
    row = finding(made, "capacity")
    assert (row["ok"], told in row["next"], bool(row["next"])) == (ok, True, bool(told))
    assert f"effects {number * 10}%" in row["says"]
    assert issuer_here("doctor", at=made.folder).exit == exit_code


@pytest.mark.spec("LED-02")
def test_doctor_tells_a_missing_ballast_and_the_next_request_makes_it(made: Made) -> None:
    assert finding(made, "space")["next"] == ""
    assert Ballast(made.ledger).release()
    assert "makes it again" in finding(made, "space")["next"]
    assert not Ballast(made.ledger).stands
    waiting(made, 1)
    assert Ballast(made.ledger).stands
    assert finding(made, "space")["next"] == ""
