"""The tally of refusals: how many stand in full, how many are counted, and that it stays small (LED-02)."""

import pytest

from ledger.changes import Step
from ledger.model import InstantMs, LedgerId
from ledger.noise import (
    BURST_MAX,
    CALLER_BURST_MAX,
    INTERVAL_MS,
    LINES_MAX,
    NOBODY_BURST_MAX,
    Tally,
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


def heard(tally: Tally, steps: tuple[Step, ...], times: int, now: int = NOW) -> tuple[Tally, int]:
    """Return the tally after so many, and how many of them stand in full."""
    full = 0
    for _ in range(times):
        tally, is_full = tally.heard(steps, InstantMs(now))
        full += is_full
    return tally, full


@pytest.mark.spec("LED-02", "AUD-01")
@pytest.mark.parametrize(
    ("refusal", "burst"),
    [("not_found", BURST_MAX), ("malformed", BURST_MAX), ("unauthenticated", NOBODY_BURST_MAX)],
)
def test_a_kind_has_a_burst_and_then_one_a_minute(refusal: str, burst: int) -> None:
    steps = no(refusal=refusal)
    tally, full = heard(Tally(), steps, burst + 10)
    assert full == burst
    for minutes in (1, 2):
        tally, full = heard(tally, steps, 10, NOW + minutes * INTERVAL_MS)
        assert full == 1
    tally, full = heard(tally, steps, burst + 10, NOW + 1000 * INTERVAL_MS)
    assert full == burst


@pytest.mark.spec("LED-02")
def test_a_caller_has_a_bound_over_all_its_kinds_and_another_has_its_own() -> None:
    tally, full = Tally(), 0
    for number in range(CALLER_BURST_MAX * 3):
        tally, is_full = tally.heard(no(command=f"c{number}"), NOW)
        full += is_full
    assert full == CALLER_BURST_MAX
    assert heard(tally, no(caller="host:till"), 1)[1] == 1


@pytest.mark.spec("LED-02")
def test_the_tally_stays_small_whatever_is_refused_and_no_refusal_is_lost() -> None:
    tally, full, asked = Tally(), 0, LINES_MAX * 4
    for number in range(asked):
        tally, is_full = tally.heard(no(caller=f"host:h{number % 3}", command=f"c{number}"), NOW)
        full += is_full
    assert len(tally.lines) <= LINES_MAX + 3
    assert sum(line.count for line in tally.lines.values()) + full == asked
    assert Tally.from_entries(list(tally.entries())).lines == tally.lines
    # What is neither recent nor counted goes by itself.
    tally, _steps = tally.told(LEDGER, InstantMs(NOW + INTERVAL_MS))
    tally, _full = heard(tally, no(), 1, NOW + 1000 * INTERVAL_MS)
    assert len(tally.lines) == 2


@pytest.mark.spec("LED-02", "AUD-01")
def test_each_caller_is_told_of_once_a_minute_and_every_count_once() -> None:
    tally, _full = heard(Tally(), no(), BURST_MAX + 5)
    tally, _full = heard(tally, no(caller="host:till"), BURST_MAX + 7)
    assert tally.told(LEDGER, NOW)[1] == ()
    later = InstantMs(NOW + INTERVAL_MS)
    tally, steps = tally.told(LEDGER, later)
    told = [
        (one.transition.attributes["permit.caller"], one.transition.attributes["permit.count"])
        for one in steps
    ]
    assert told == [("host:till", 7), ("u-ana", 5)]
    assert {one.transition.name for one in steps} == {TransitionName.NOISE}
    assert tally.told(LEDGER, later)[1] == ()
    tally, _full = heard(tally, no(), 3, later)
    assert tally.told(LEDGER, later)[1] == ()
    (step,) = tally.told(LEDGER, InstantMs(later + INTERVAL_MS))[1]
    assert step.transition.attributes["permit.count"] == 2  # a minute had given one back


@pytest.mark.spec("AUD-01")
@pytest.mark.parametrize("missing", ["caller", "command", "refusal", "mode"])
def test_what_does_not_say_whose_it_was_is_never_only_counted(missing: str) -> None:
    tally, full = heard(Tally(), no(**{missing: ""}), BURST_MAX * 3)
    assert full == BURST_MAX * 3
    assert not tally.lines


@pytest.mark.spec("LED-06")
@pytest.mark.parametrize(
    "entries",
    [None, {}, "x", [1], [["a"]], [["a", "b", "c", "m", True, 0, 0]], [[1, "b", "c", "m", 0, 0, 0]]],
)
def test_values_of_another_form_are_an_empty_tally(entries: object) -> None:
    assert not Tally.from_entries(entries).lines


@pytest.mark.spec("PER-03")
def test_a_time_that_cannot_be_holds_nothing_up() -> None:
    tally, _full = heard(Tally(), no(), BURST_MAX, NOW + 10_000 * INTERVAL_MS)
    assert heard(tally, no(), BURST_MAX + 1)[1] == BURST_MAX


@pytest.mark.spec("LED-02", "AUD-02")
@pytest.mark.parametrize("name", TransitionName)
def test_a_count_stands_before_an_ask_or_a_look_and_before_nothing_that_ends(name: TransitionName) -> None:
    steps = (Step(transition=Transition(name=name, story=LEDGER)),)
    assert is_ask(steps) is (name in {TransitionName.EFFECT_PREPARED, TransitionName.OBSERVED})
    assert not is_ask(())
