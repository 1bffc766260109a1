"""A flood of refusals is counted and does not fill the trail, from however many processes it comes (LED-02)."""

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from issuer import Issuer
from issuer.wire import Answer
from ledger.model import EffectId
from ledger.noise import BURST_MAX, CALLER_BURST_MAX, INTERVAL_MS, NOBODY_BURST_MAX
from ledger.sqlite.noise_file import NAME
from tests.support.bounded import DENIES, denied, holdings, with_bounds
from tests.support.callers import HOST, opened_shop
from tests.support.cases import Clock, length, state_of, trail
from tests.support.issuers import STANDARD_POLICY, Made, permitted, refund, standard_issuer
from tests.support.service import Service, answer
from tests.support.shell import PROCESS_S, environment, issuer_here

NOBODYS = "eff_" + "0" * 32


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as opened:
        yield opened


@pytest.fixture
def made(tmp_path: Path, service: Service) -> Made:
    return standard_issuer(tmp_path / "f0", port=service.port)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def issuer(made: Made, clock: Clock) -> Iterator[Issuer]:
    with made.open(clock=clock) as opened:
        yield opened


def flood(issuer: Issuer, times: int) -> None:
    for _ in range(times):
        said = issuer.show(NOBODYS)
        assert (said.code, said.retryable, said.effect) == ("not_found", False, None)


def names_since(issuer: Issuer, before: int) -> dict[str, int]:
    entries = trail(issuer, before)
    return {
        name: sum(entry.name == name for entry in entries) for name in sorted({one.name for one in entries})
    }


def counted_since(issuer: Issuer, before: int) -> int:
    """Return how many refusals the trail tells of: one by one, and as counts."""
    return sum(
        int(str(entry.attributes["permit.count"])) if entry.name == "noise" else 1
        for entry in trail(issuer, before)
        if entry.name in {"noise", "refused"}
    )


def play_flood(issuer: Issuer, clock: Clock, service: Service, times: int) -> None:
    """Flood a small quota; then everything of an effect that was admitted before still comes to its end on record."""
    reported = permitted(issuer.request("publish", {"name": "v1"}, task="t1", actor="agent-7"))
    claim = str(issuer.admit(reported).more["claim"])
    revoked, expiring = (permitted(refund(issuer, order=f"o-{n}", amount=1)) for n in range(2))
    small = with_bounds(issuer, span_bytes=holdings(issuer).span_bytes + 200 * 1024)
    issuer._house.ledger.noise_bytes_max = small._house.profile.ledger.capacity.noise_bytes_max
    before = length(issuer)
    began_ms = clock()
    flood(small, times)
    minutes = (clock() - began_ms) // INTERVAL_MS + 1
    seen = names_since(issuer, before)
    assert BURST_MAX <= seen.pop("refused") <= BURST_MAX + minutes
    assert seen.pop("noise", 0) <= minutes
    assert not seen
    assert small.report(reported, claim, succeeded=True).code == "succeeded"
    assert small.revoke("effect", revoked).code == "revoked_now"
    clock.ahead_ms += 11 * 60_000
    assert small.show(expiring).state == "expired"
    assert [state_of(issuer, one) for one in (reported, revoked, expiring)] == [
        "succeeded",
        "revoked",
        "expired",
    ]
    service.then(answer(201))
    assert small.commit(permitted(refund(small, order="o-9", amount=1))).code == "succeeded"
    flood(small, 1)
    assert counted_since(issuer, before) == times + 1


@pytest.mark.spec("LED-02", "AUD-01", "AUD-02")
def test_after_a_flood_an_outcome_a_revocation_and_an_expiry_are_on_record(
    issuer: Issuer, clock: Clock, service: Service
) -> None:
    play_flood(issuer, clock, service, 500)


@pytest.mark.spec("LED-02", "AUD-01")
def test_what_was_only_counted_is_told_once_a_minute_with_what_it_had_in_common(
    issuer: Issuer, clock: Clock
) -> None:
    before = length(issuer)
    flood(issuer, BURST_MAX + 40)
    assert names_since(issuer, before) == {"refused": BURST_MAX}
    clock.ahead_ms += INTERVAL_MS
    flood(issuer, 30)
    (noise,) = [entry for entry in trail(issuer, before) if entry.name == "noise"]
    said = {
        name: noise.attributes.get(f"permit.{name}")
        for name in ("caller", "command", "refusal", "reason", "count")
    }
    assert said == {
        "caller": "u-ana",
        "command": "show",
        "refusal": "not_found",
        "reason": "repeated",
        "count": 40,
    }
    # A minute gave one full span back, and the rest is told with the next ask after another.
    assert names_since(issuer, before) == {"noise": 1, "refused": BURST_MAX + 1}
    clock.ahead_ms += INTERVAL_MS
    permitted(refund(issuer))
    assert [entry.name for entry in trail(issuer, before)][-4:-1] == ["refused", "noise", "effect.prepared"]
    assert counted_since(issuer, before) == BURST_MAX + 70


@pytest.mark.spec("LED-02", "SEC-04")
def test_another_kind_of_no_of_the_same_caller_stands_in_full_and_all_kinds_together_have_a_bound(
    issuer: Issuer, clock: Clock
) -> None:
    flood(issuer, BURST_MAX + 5)
    before = length(issuer)
    assert issuer.timeline(NOBODYS).code == "not_found"
    assert refund(issuer, task="no-such-task").code == "unknown_reference"
    assert names_since(issuer, before) == {"refused": 2}
    kinds: list[Callable[[str], Answer]] = [
        issuer.timeline,
        issuer.commit,
        issuer.withdraw,
        issuer.admit,
        issuer.invocation_show,
        issuer.request_held,
    ]
    start = length(issuer)
    for act in kinds:
        for _ in range(BURST_MAX):
            act(NOBODYS)
    assert length(issuer) - start == CALLER_BURST_MAX - BURST_MAX - 2
    clock.ahead_ms += INTERVAL_MS
    flood(issuer, 1)
    (noise,) = [entry for entry in trail(issuer, start) if entry.name == "noise"]
    assert "permit.command" not in noise.attributes


@pytest.mark.spec("AUD-01", "SEC-02", "SEC-04")
def test_whoever_is_nobody_is_soon_only_counted_and_takes_nothing_from_others(tmp_path: Path) -> None:
    clock = Clock()
    with opened_shop(tmp_path / "f0") as shop, shop.made.open(clock=clock) as owner:
        nobody = owner.as_caller(token="CANARY-who")
        before = length(owner)
        for _ in range(NOBODY_BURST_MAX + 25):
            assert nobody.show(NOBODYS).code == "unauthenticated"
        assert names_since(owner, before) == {"refused": NOBODY_BURST_MAX}
        assert shop.host().show(NOBODYS).code == "not_found"
        flood(owner, 1)
        assert names_since(owner, before)["refused"] == NOBODY_BURST_MAX + 2
        clock.ahead_ms += INTERVAL_MS
        assert nobody.show(NOBODYS).code == "unauthenticated"
        (noise,) = [entry for entry in trail(owner, before) if entry.name == "noise"]
        assert (noise.attributes["permit.count"], noise.attributes["permit.reason"]) == (
            25,
            "unauthenticated",
        )
        assert HOST not in str(noise.attributes)
        assert b"CANARY" not in (shop.made.ledger.parent / NAME).read_bytes()


@pytest.mark.spec("LED-02", "AUD-01")
def test_one_shot_commands_count_together(made: Made, clock: Clock) -> None:
    with made.open() as issuer:
        before = length(issuer)
        flood(issuer, BURST_MAX - 1)
    for _ in range(3):
        assert issuer_here("--json", "show", NOBODYS, at=made.folder).code == "not_found"
    with made.open(clock=clock) as issuer:
        assert names_since(issuer, before) == {"refused": BURST_MAX}
        clock.ahead_ms += INTERVAL_MS
        flood(issuer, 1)
        assert counted_since(issuer, before) == BURST_MAX + 3
    file = made.ledger.parent / NAME
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.stat().st_size < 4096


_FLOOD = """
import sys
from issuer import Issuer
from issuer.wire import Answer
with Issuer.open(sys.argv[1]) as issuer:
    print("open", flush=True)
    while True:
        issuer.show(sys.argv[2])
"""


@pytest.mark.spec("LED-02", "LED-01")
def test_a_process_that_is_killed_in_the_flood_leaves_a_ledger_that_goes_on(made: Made) -> None:
    command = [sys.executable, "-c", _FLOOD, str(made.profile), NOBODYS]
    with (
        made.open() as issuer,
        subprocess.Popen(command, stdout=subprocess.PIPE, env=environment({}), cwd=made.folder) as flooding,
    ):
        before = length(issuer)
        try:
            assert flooding.stdout is not None
            assert flooding.stdout.readline() == b"open\n"
            flood(issuer, 200)
        finally:
            os.kill(flooding.pid, signal.SIGKILL)
            flooding.wait(PROCESS_S)
        assert names_since(issuer, before)["refused"] <= BURST_MAX + 1
        assert permitted(refund(issuer))
    assert issuer_here("--json", "ledger", "check", at=made.folder).code == "found"


@pytest.mark.spec("LED-02", "AUD-01", "EFF-11", "SEC-01")
def test_a_flood_of_denials_makes_no_more_effects_and_is_answered_and_told(
    tmp_path: Path, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledger.noise.DENIED_BURST_MAX", 5)
    clock = Clock()
    hidden = {"amount = { int = [1, 1_000_000], public = true }": "amount = { int = [1, 1_000_000] }"}
    made = standard_issuer(
        tmp_path / "f0", port=service.port, policy=STANDARD_POLICY + DENIES, changes=hidden
    )
    with made.open(clock=clock) as issuer:
        sentence = denied(issuer, 0).say
        for number in range(1, 5):
            assert state_of(issuer, denied(issuer, number).effect or "") == "denied"
        before, held = length(issuer), holdings(issuer)
        kept = {path for path in made.folder.rglob("*") if path.is_file()}
        for number in range(4, 24):
            said = denied(issuer, number)
            assert (said.code, said.retryable) == ("denied", False)
            # What was made is found under its key; the owner's sentence is told of what was not made as well.
            assert bool(said.effect) is (number == 4)
            assert number == 4 or said.say == sentence
        assert (length(issuer), holdings(issuer)) == (before, held)
        # Of what was only counted nothing stays, not even its content.
        assert {path for path in made.folder.rglob("*") if path.is_file()} <= {
            *kept,
            made.ledger.parent / NAME,
        }
        assert permitted(refund(issuer, amount=1))
        clock.ahead_ms += INTERVAL_MS
        flood(issuer, 1)
        (noise,) = [entry for entry in trail(issuer, before) if entry.name == "noise"]
        told = {
            name: noise.attributes[f"permit.{name}"] for name in ("count", "command", "refusal", "caller")
        }
        assert told == {"count": 19, "command": "request", "refusal": "denied", "caller": "u-ana"}
        assert denied(issuer, 99).effect
    assert issuer_here("--json", "ledger", "check", at=made.folder).code == "found"


# ------------------------------------------------------------------------------- the file grants nothing


def _garbage(file: Path) -> None:
    file.write_bytes(b"{" * 100)


def _edited(file: Path) -> None:
    data = file.read_bytes()
    assert b'"u-ana"' in data
    file.write_bytes(data.replace(b'"u-ana"', b'"u-bob"'))


def _gone(file: Path) -> None:
    file.unlink()


def _link(file: Path) -> None:
    file.rename(file.with_name("elsewhere"))
    file.symlink_to("elsewhere")


def _pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def _folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.spec("LED-06", "AUD-01")
@pytest.mark.parametrize("harm", [_garbage, _edited, _gone, _link, _pipe, _folder])
def test_a_tally_that_is_not_ours_silences_nobody(made: Made, harm: object) -> None:
    with made.open() as issuer:
        flood(issuer, BURST_MAX + 1)
        harm(made.ledger.parent / NAME)  # type: ignore[operator]
        before = length(issuer)
        flood(issuer, 3)
        assert names_since(issuer, before) == {"refused": 3}
        assert permitted(refund(issuer))


@pytest.mark.spec("LED-06", "AUD-01")
def test_a_tally_of_another_ledger_silences_nobody(made: Made, tmp_path: Path, service: Service) -> None:
    other = standard_issuer(tmp_path / "f1", port=service.port)
    with other.open() as issuer:
        flood(issuer, BURST_MAX + 1)
    (made.ledger.parent / NAME).write_bytes((other.ledger.parent / NAME).read_bytes())
    with made.open() as issuer:
        before = length(issuer)
        flood(issuer, 1)
        assert names_since(issuer, before) == {"refused": 1}


@pytest.mark.spec("PER-03", "LED-02")
def test_a_clock_that_was_set_back_holds_no_refusal_up(made: Made) -> None:
    clock = Clock()
    clock.ahead_ms = 90 * 60_000
    with made.open(clock=clock) as issuer:
        flood(issuer, BURST_MAX + 1)
        clock.ahead_ms = 0
        assert issuer.clock_accept().exit == 0
        before = length(issuer)
        flood(issuer, 2)
        assert names_since(issuer, before) == {"noise": 1, "refused": 2}


@pytest.mark.spec("LED-02", "AUD-01")
def test_a_nearly_full_trail_counts_what_it_does_not_take(issuer: Issuer, clock: Clock) -> None:
    flood(issuer, 1)
    before = length(issuer)
    issuer._house.ledger.noise_bytes_max = 1
    for _ in range(7):
        assert issuer.show(NOBODYS).code == "ledger_full"
    assert length(issuer) == before
    issuer._house.ledger.noise_bytes_max = None
    clock.ahead_ms += INTERVAL_MS
    flood(issuer, 1)
    assert counted_since(issuer, before) == 8


@pytest.mark.spec("ADM-04", "SUR-05")
def test_a_counted_refusal_says_what_a_recorded_one_says(issuer: Issuer, service: Service) -> None:
    service.then(answer(201))
    effect = permitted(refund(issuer))
    assert issuer.commit(effect).code == "succeeded"
    said = {repr(replace(issuer.admit(effect), expires=None)) for _ in range(BURST_MAX + 10)}
    assert len(said) == 1
    assert service.counts()["requests"] == 1
    assert state_of(issuer, EffectId(effect)) == "succeeded"


@pytest.mark.spec("LED-02")
def test_what_cannot_be_counted_stands_in_full(made: Made) -> None:
    with made.open() as issuer:
        flood(issuer, BURST_MAX)
        before = length(issuer)
        file = made.ledger.parent / NAME
        file.unlink()
        file.mkdir()
        flood(issuer, BURST_MAX * 2)
        assert names_since(issuer, before) == {"refused": BURST_MAX * 2}
