"""The noise of refusals: how many stand in full, how many are counted, and that it stays small (LED-02)."""

import pytest

from ledger.changes import Step
from ledger.model import InstantMs, LedgerId
from ledger.noise import (
    BURST_MAX,
    CALLER_BURST_MAX,
    GRAVE,
    INTERVAL_MS,
    LINES_MAX,
    NOBODY_BURST_MAX,
    Noise,
    is_ask,
)
from ledger.transitions import Transition, TransitionName

LEDGER = LedgerId("led_" + "0" * 32)
NOW = InstantMs(1_800_000_000_000)


def no(
    caller: str = "u-ana", command: str = "show", refusal: str = "not_found", **more: str
) -> tuple[Step, ...]:
    said = {"caller": caller, "command": command, "refusal": refusal, "mode": "ordinary", **more}
    attributes = {f"permit.{name}": word for name, word in said.items() if word}
    transition = Transition(name=TransitionName.REFUSED, story=LEDGER, attributes=attributes)
    return (Step(transition=transition),)


def heard(noise: Noise, steps: tuple[Step, ...], times: int, now: int = NOW) -> tuple[Noise, int]:
    """Return the noise after so many, and how many of them stand in full."""
    full = 0
    for _ in range(times):
        noise, is_full = noise.heard(steps, InstantMs(now))
        full += is_full
    return noise, full


@pytest.mark.spec("LED-02", "AUD-01")
@pytest.mark.parametrize(
    ("refusal", "burst"),
    [("not_found", BURST_MAX), ("malformed", BURST_MAX), ("unauthenticated", NOBODY_BURST_MAX)],
)
def test_a_kind_has_a_burst_and_then_one_a_minute(refusal: str, burst: int) -> None:
    steps = no(refusal=refusal)
    noise, full = heard(Noise(), steps, burst + 10)
    assert full == burst
    for minutes in (1, 2):
        noise, full = heard(noise, steps, 10, NOW + minutes * INTERVAL_MS)
        assert full == 1
    noise, full = heard(noise, steps, burst + 10, NOW + 1000 * INTERVAL_MS)
    assert full == burst


@pytest.mark.spec("LED-02")
def test_a_caller_has_a_bound_over_all_its_kinds_and_another_has_its_own() -> None:
    noise, full = Noise(), 0
    for number in range(CALLER_BURST_MAX * 3):
        noise, is_full = noise.heard(no(command=f"c{number}"), NOW)
        full += is_full
    assert full == CALLER_BURST_MAX
    assert heard(noise, no(caller="host:till"), 1)[1] == 1


@pytest.mark.spec("LED-02", "AUD-01")
@pytest.mark.parametrize("grave", sorted(GRAVE))
def test_a_flood_of_anything_else_hides_nothing_that_an_attack_is_known_by(grave: str) -> None:
    noise = Noise()
    for number in range(CALLER_BURST_MAX * 2):
        noise, _full = noise.heard(no(command=f"c{number % 8}"), NOW)
    noise, full = heard(noise, no(command="approve", refusal=grave), BURST_MAX + 3)
    assert full == BURST_MAX, "the flood used up none of them"
    told = [one.transition.attributes for one in noise.told(LEDGER, InstantMs(NOW + INTERVAL_MS))[1]]
    counted = {one.get("permit.refusal"): (one["permit.count"], one.get("permit.command")) for one in told}
    assert counted == {"not_found": (CALLER_BURST_MAX, None), grave: (3, "approve")}


@pytest.mark.spec("LED-02")
def test_the_tally_stays_small_whatever_is_refused_and_no_refusal_is_lost() -> None:
    noise, full, asked = Noise(), 0, LINES_MAX * 4
    for number in range(asked):
        noise, is_full = noise.heard(no(caller=f"host:h{number % 3}", command=f"c{number}"), NOW)
        full += is_full
    assert len(noise.lines) <= LINES_MAX + 3
    assert sum(line.count for line in noise.lines.values()) + full == asked
    assert Noise.from_entries(list(noise.entries())).lines == noise.lines
    # What is neither recent nor counted goes by itself.
    noise, _steps = noise.told(LEDGER, InstantMs(NOW + INTERVAL_MS))
    noise, _full = heard(noise, no(), 1, NOW + 1000 * INTERVAL_MS)
    assert len(noise.lines) == 2


@pytest.mark.spec("LED-02", "AUD-01")
def test_each_caller_is_told_of_once_a_minute_and_every_count_once() -> None:
    noise, _full = heard(Noise(), no(), BURST_MAX + 5)
    noise, _full = heard(noise, no(caller="host:till"), BURST_MAX + 7)
    assert noise.told(LEDGER, NOW)[1] == ()
    later = InstantMs(NOW + INTERVAL_MS)
    noise, steps = noise.told(LEDGER, later)
    told = [
        (one.transition.attributes["permit.caller"], one.transition.attributes["permit.count"])
        for one in steps
    ]
    assert told == [("host:till", 7), ("u-ana", 5)]
    assert {one.transition.name for one in steps} == {TransitionName.NOISE}
    assert noise.told(LEDGER, later)[1] == ()
    noise, _full = heard(noise, no(), 3, later)
    assert noise.told(LEDGER, later)[1] == ()
    (step,) = noise.told(LEDGER, InstantMs(later + INTERVAL_MS))[1]
    assert step.transition.attributes["permit.count"] == 2  # a minute had given one back


@pytest.mark.spec("AUD-01")
@pytest.mark.parametrize("missing", ["caller", "command", "refusal", "mode"])
def test_what_does_not_say_whose_it_was_is_never_only_counted(missing: str) -> None:
    noise, full = heard(Noise(), no(**{missing: ""}), BURST_MAX * 3)
    assert full == BURST_MAX * 3
    assert not noise.lines


@pytest.mark.spec("LED-06")
@pytest.mark.parametrize(
    "entries",
    [None, {}, "x", [1], [["a"]], [["a", "b", "c", "m", True, 0, 0]], [[1, "b", "c", "m", 0, 0, 0]]],
)
def test_values_of_another_form_are_an_empty_noise(entries: object) -> None:
    assert not Noise.from_entries(entries).lines


@pytest.mark.spec("PER-03")
def test_a_time_that_cannot_be_holds_nothing_up() -> None:
    noise, _full = heard(Noise(), no(), BURST_MAX, NOW + 10_000 * INTERVAL_MS)
    assert heard(noise, no(), BURST_MAX + 1)[1] == BURST_MAX


@pytest.mark.spec("LED-02", "AUD-02")
@pytest.mark.parametrize("name", TransitionName)
def test_a_count_stands_before_an_ask_or_a_look_and_before_nothing_that_ends(name: TransitionName) -> None:
    steps = (Step(transition=Transition(name=name, story=LEDGER)),)
    assert is_ask(steps) is (name in {TransitionName.EFFECT_PREPARED, TransitionName.OBSERVED})
    assert not is_ask(())
