"""The disk of the ledger runs full: what is refused before, what is recorded all the same, what comes back after.

The issuer's folder is on a small memory disk of its own; its audit file is elsewhere.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from issuer import Issuer
from issuer.flow.steps import Reached
from issuer.wire import Answer
from ledger.sqlite.ballast import BALLAST_BYTES, FREE_BYTES_MIN, Ballast
from tests.support.cases import command, state_of
from tests.support.issuers import Made, budget_line, open_task, permitted, refund, standard_issuer
from tests.support.service import Service, answer

DISK_BYTES = 40 * 1024 * 1024
"""More than what has to be free beside the ballast, and little to fill."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=0700", "tmpfs", str(folder)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a disk of one's own needs the right to mount one")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as opened:
        yield opened


@pytest.fixture
def made(disk: Path, service: Service) -> Made:
    made = standard_issuer(disk / "f0", port=service.port)
    assert not made.sink.is_relative_to(disk)
    return made


@pytest.fixture
def plans() -> dict[str, Callable[[], None]]:
    return {}


@pytest.fixture
def issuer(made: Made, plans: dict[str, Callable[[], None]]) -> Iterator[Issuer]:
    def observe(step: str) -> None:
        plan = plans.pop(step, None)
        if plan is not None:
            plan()

    with made.open(observe=observe) as opened:
        yield opened


def fill(made: Made, *, leave: int = 0) -> None:
    """Write to the disk until so many bytes are free, whole pages."""
    filler = made.folder / "filler"
    room = Ballast(made.ledger).free_bytes() - leave
    with filler.open("ab", buffering=0) as file, suppress(OSError):
        file.write(b"\x00" * max(0, room // 4096 * 4096))
    if leave == 0:
        with filler.open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"\x00" * 4096)
    assert Ballast(made.ledger).free_bytes() <= max(leave, 0) + 4096


def empty(made: Made) -> None:
    (made.folder / "filler").unlink()


def is_full(said: Answer) -> bool:
    return (said.code, said.more, int(said.exit)) == ("ledger_full", {"field": "disk"}, 6)


@pytest.mark.spec("LED-02")
def test_an_issuer_has_its_ballast_from_the_first_day_and_it_is_really_written(made: Made) -> None:
    path = made.ledger.with_name("ballast")
    seen = path.stat()
    assert (seen.st_size, seen.st_mode & 0o777) == (BALLAST_BYTES, 0o600)
    assert seen.st_blocks * 512 >= BALLAST_BYTES
    assert len(set(path.read_bytes()[:4096])) > 200  # nothing that a disk could leave out


@pytest.mark.spec("LED-02", "ADM-01", "SUR-05")
def test_below_the_margin_nothing_new_begins_and_what_was_admitted_ends(
    issuer: Issuer, made: Made, service: Service
) -> None:
    waits = permitted(refund(issuer, order="o-1", amount=100))
    sent = permitted(issuer.request("publish", {"name": "v1"}, task="t1", actor="agent-7"))
    claim = str(issuer.admit(sent).more["claim"])
    fill(made, leave=FREE_BYTES_MIN - 8192)
    before = service.connections
    assert is_full(refund(issuer, order="o-2", amount=100))
    assert is_full(refund(issuer, order="o-2", amount=100, hold=True))
    assert is_full(issuer.commit(waits))
    assert (state_of(issuer, waits), service.connections) == ("permitted", before)
    assert issuer.report(sent, claim, succeeded=True).code == "succeeded"
    assert Ballast(made.ledger).stands
    empty(made)
    service.then(answer(201))
    assert issuer.commit(waits).code == "succeeded"
    assert permitted(refund(issuer, order="o-2", amount=100))


@pytest.mark.spec("LED-02", "ADM-01")
def test_without_its_ballast_nothing_begins_until_it_can_be_made_again(issuer: Issuer, made: Made) -> None:
    waits = permitted(refund(issuer, order="o-1", amount=100))
    ballast = Ballast(made.ledger)
    assert ballast.release()
    fill(made, leave=FREE_BYTES_MIN + BALLAST_BYTES - 8192)
    assert is_full(refund(issuer, order="o-2", amount=100))
    assert is_full(issuer.commit(waits))
    assert not ballast.stands
    empty(made)
    assert permitted(refund(issuer, order="o-2", amount=100))
    assert ballast.stands


@pytest.mark.spec("LED-02", "LED-01", "REP-06", "BUD-03")
def test_an_outcome_that_meets_a_full_disk_is_recorded_in_the_room_of_the_ballast(
    issuer: Issuer, made: Made, service: Service, plans: dict[str, Callable[[], None]]
) -> None:
    effect = permitted(refund(issuer, order="o-1", amount=300))
    service.then(answer(201))
    plans[str(Reached.ANSWERED)] = lambda: fill(made)
    done = issuer.commit(effect)
    assert (done.code, done.state) == ("succeeded", "succeeded")
    assert state_of(issuer, effect) == "succeeded"
    assert (budget_line(issuer, "t1")["settled"], budget_line(issuer, "t1")["reserved"]) == (300, 0)
    assert not Ballast(made.ledger).stands
    assert len(service.effects) == 1


@pytest.mark.spec("LED-02", "REP-05", "SUR-05")
def test_without_a_ballast_the_same_outcome_is_unknown_and_never_sent_again(
    issuer: Issuer, made: Made, service: Service, plans: dict[str, Callable[[], None]]
) -> None:
    effect = permitted(refund(issuer, order="o-1", amount=300))
    service.then(answer(201))

    def happen() -> None:
        Ballast(made.ledger).release()
        fill(made)

    plans[str(Reached.ANSWERED)] = happen
    assert issuer.commit(effect).code == "outcome_unknown"
    empty(made)
    with made.open() as anew:
        assert anew.commit(effect).code in {"already_consumed", "outcome_unknown"}
    assert len(service.effects) == 1


@pytest.mark.spec("LED-02", "REC-07")
def test_a_report_to_a_fresh_process_on_a_full_disk_is_recorded(made: Made) -> None:
    with made.open() as issuer:
        sent = permitted(issuer.request("publish", {"name": "v1"}, task="t1", actor="agent-7"))
        claim = str(issuer.admit(sent).more["claim"])
    fill(made)
    with made.open() as anew:
        assert anew.report(sent, claim, succeeded=True).code == "succeeded"
        assert state_of(anew, sent) == "succeeded"


@pytest.mark.spec("LED-02", "LED-04")
def test_on_a_full_disk_reading_goes_on_and_everything_does_once_there_is_room(
    made: Made, service: Service
) -> None:
    with made.open() as issuer:
        effect = permitted(refund(issuer, order="o-1", amount=300))
    fill(made)
    ran = command(made, "show", effect)
    assert (ran.exit, ran.answer["code"], ran.answer["state"]) == (0, "found", "permitted")
    ran = command(made, "commit", effect)
    assert (ran.exit, ran.answer["code"]) == (6, "ledger_full")
    assert len(service.effects) == 0
    empty(made)
    service.then(answer(201))
    ran = command(made, "commit", effect)
    assert (ran.exit, ran.answer["code"]) == (0, "succeeded")
    assert Ballast(made.ledger).stands


@pytest.mark.spec("LED-02", "LED-01")
def test_two_outcomes_at_once_on_a_full_disk_are_both_recorded(
    issuer: Issuer, made: Made, plans: dict[str, Callable[[], None]]
) -> None:
    open_task(issuer, "wide", budget={"USD.cent": 1_000}, subject="u-ana", actors=["agent-7"])
    sent = [
        permitted(issuer.request("publish", {"name": f"v{n}"}, task="wide", actor="agent-7"))
        for n in range(2)
    ]
    claims = [str(issuer.admit(one).more["claim"]) for one in sent]
    with made.open() as other:
        fill(made)
        said = [
            one.report(effect, claim, succeeded=True).code
            for one, effect, claim in zip((issuer, other), sent, claims, strict=True)
        ]
        assert said == ["succeeded", "succeeded"]
        assert [state_of(other, one) for one in sent] == ["succeeded", "succeeded"]
