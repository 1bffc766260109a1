"""Development case D14: one instant is one instant, whatever the time zone of the process that looks at it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from issuer.clock import instant_text, now_ms, parse_instant
from tests.support.cases import HOUSE, PATIENCE_S
from tests.support.issuers import Made, standard_issuer
from tests.support.service import Service, answer
from tests.support.shell import environment

ZONES = ("Asia/Kolkata", "America/New_York")
INDIAN, UTC_SAME = "2030-01-01T00:00:00+05:30", "2029-12-31T18:30:00Z"
MINUTE_MS = 60_000
LIFETIME_MS = 10 * MINUTE_MS
"""Of the standard profile's class."""

SCRIPT = """
import json, sys
from pathlib import Path
from issuer import Issuer
from issuer.clock import parse_instant
from ledger.errors import Malformed
from tests.support.committing import file_clock

def instant(text):
    try:
        return parse_instant(text, "expires")
    except Malformed as fault:
        return fault.code

profile, clock, steps = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
told = []
with Issuer.open(profile, clock=file_clock(clock)) as issuer:
    for at_ms, command, arguments in steps:
        clock.write_text(str(at_ms))
        if command == "instant":
            told.append(instant(arguments["text"]))
            continue
        answer = getattr(issuer, command)(**arguments)
        told.append({"code": answer.code, "effect": answer.effect, "expires": answer.expires})
print(json.dumps(told))
"""

pytestmark = pytest.mark.spec("PER-03", "EFF-03", "EFF-05")


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(*[answer(201)] * 4) as running:
        yield running


@pytest.fixture
def made(tmp_path: Path, service: Service) -> Made:
    return standard_issuer(tmp_path / "f0", port=service.port)


def told(made: Made, zone: str, *steps: tuple[int, str, dict[str, object]]) -> list[Any]:
    """Give commands, each at its instant, in one process that lives in `zone`; return what each answered."""
    clock = made.folder / "clock"
    clock.write_text(str(steps[0][0]))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(made.profile), str(clock), json.dumps(steps)],
        capture_output=True,
        cwd=HOUSE,
        env=environment({"TZ": zone}),
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return list(json.loads(done.stdout))


def asking(order: str, task: str = "t1") -> dict[str, object]:
    return {"operation": "refund", "payload": {"order": order, "amount": 7}, "task": task, "actor": "agent-7"}


@pytest.mark.parametrize("zone", ZONES)
def test_two_ways_to_write_one_instant_are_one_and_a_time_without_an_offset_is_none(
    made: Made, zone: str
) -> None:
    now = now_ms()
    texts = (INDIAN, UTC_SAME, "2030-01-01T00:00:00", "2030-01-01 00:00:00")
    steps: list[tuple[int, str, dict[str, object]]] = [(now, "instant", {"text": text}) for text in texts]
    found = told(made, zone, *steps)
    same = parse_instant(UTC_SAME, "expires")
    assert found == [same, same, "not_a_time", "not_a_time"]


@pytest.mark.parametrize(("asks", "commits"), [ZONES, ZONES[::-1]])
def test_a_permit_is_admitted_just_before_its_instant_and_refused_at_it_in_every_zone(
    made: Made, service: Service, asks: str, commits: str
) -> None:
    begun = now_ms()
    early, late = told(made, asks, (begun, "request", asking("o-1")), (begun, "request", asking("o-2")))
    assert {early["expires"], late["expires"]} == {instant_text(begun + LIFETIME_MS)}
    ends = begun + LIFETIME_MS
    steps = ((ends - 1, "commit", {"effect": early["effect"]}), (ends, "commit", {"effect": late["effect"]}))
    assert [one["code"] for one in told(made, commits, *steps)] == ["succeeded", "expired"]
    assert len(service.requests) == 1


@pytest.mark.parametrize(("opens", "asks"), [ZONES, ZONES[::-1]])
def test_a_task_ends_at_exactly_its_instant_in_every_zone(
    made: Made, service: Service, opens: str, asks: str
) -> None:
    begun = now_ms()
    ends = begun + 5 * MINUTE_MS
    short = {"name": "short", "parent": "t1", "budget": {"USD.cent": 50}, "expires_ms": ends}
    told(made, opens, (begun, "task_open", short))
    permit, over = told(
        made, asks, (ends - 1, "request", asking("o-1", "short")), (ends, "request", asking("o-2", "short"))
    )
    assert (permit["code"], permit["expires"]) == ("permitted", instant_text(ends))
    assert over["code"] == "task_expired"
    (late,) = told(made, opens, (ends, "commit", {"effect": permit["effect"]}))
    assert late["code"] == "expired"
    assert service.connections == 0
