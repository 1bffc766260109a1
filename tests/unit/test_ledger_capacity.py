"""Bounds, the lines below them, and how long a ledger lasts: pure arithmetic, edges first."""

import pytest

from ledger.capacity import (
    Capacity,
    Growth,
    Outlook,
    fills,
    is_noise,
    is_pressed,
    is_urgent,
    outlook,
    refuse_admission,
    refuse_new,
)
from ledger.changes import EffectMoved, Step
from ledger.model import EffectId, Holdings
from ledger.refusals import RefusalCode
from ledger.states import EffectState
from ledger.transitions import Transition, TransitionName

BOUNDS = Capacity(effects_max=100, record_bytes_max=10_000, span_bytes_max=20_000, unended_per_task_max=5)
EMPTY = Holdings(effects=0, tombstones=0, record_bytes=0, spans=0, span_bytes=0)


def held(*, effects: int = 0, record_bytes: int = 0, span_bytes: int = 0) -> Holdings:
    return Holdings(effects=effects, tombstones=0, record_bytes=record_bytes, spans=0, span_bytes=span_bytes)


@pytest.mark.spec("LED-02")
def test_the_default_bounds_are_those_of_the_default_profile() -> None:
    default = Capacity()
    assert (default.effects_max, default.record_bytes_max) == (10_000, 64 * 1024 * 1024)
    assert 0 < default.unended_per_task_max < default.effects_max // 10
    assert 0 < default.span_bytes_max < 2**40


@pytest.mark.spec("LED-02", "ADM-01")
@pytest.mark.parametrize(
    ("holdings", "new", "admission"),
    [
        (EMPTY, None, None),
        (held(effects=99), None, None),
        (held(effects=100), "effects", None),
        (held(effects=140), "effects", None),
        (held(record_bytes=8_999), None, None),
        (held(record_bytes=9_000), "record_bytes", None),
        (held(record_bytes=9_499), "record_bytes", None),
        (held(record_bytes=9_500), "record_bytes", "record_bytes"),
        (held(record_bytes=12_000), "record_bytes", "record_bytes"),
        (held(span_bytes=17_999), None, None),
        (held(span_bytes=18_000), "span_bytes", None),
        (held(span_bytes=19_000), "span_bytes", "span_bytes"),
        (held(effects=100, record_bytes=9_500, span_bytes=19_000), "effects", "record_bytes"),
    ],
)
def test_new_effects_are_refused_first_and_admissions_later(
    holdings: Holdings, new: str | None, admission: str | None
) -> None:
    said = [refuse_new(holdings, BOUNDS, stored=False), refuse_admission(holdings, BOUNDS)]
    assert [None if no is None else no.field for no in said] == [new, admission]
    assert {no.code for no in said if no is not None} <= {RefusalCode.LEDGER_FULL}


@pytest.mark.spec("LED-02")
def test_an_effect_that_is_stored_already_is_not_counted_again() -> None:
    assert refuse_new(held(effects=100), BOUNDS, stored=True) is None
    assert refuse_new(held(effects=100, record_bytes=9_000), BOUNDS, stored=True) is not None


@pytest.mark.spec("LED-02")
@pytest.mark.parametrize(
    ("holdings", "pressed", "urgent"),
    [
        (EMPTY, False, False),
        (held(effects=74), False, False),
        (held(effects=75), True, False),
        (held(effects=84), True, False),
        (held(effects=85), True, True),
        (held(record_bytes=7_500), True, False),
        (held(record_bytes=8_500), True, True),
        (held(span_bytes=20_000), False, False),
    ],
)
def test_space_is_needed_where_collecting_can_give_it(
    holdings: Holdings, pressed: bool, urgent: bool
) -> None:
    assert (is_pressed(holdings, BOUNDS), is_urgent(holdings, BOUNDS)) == (pressed, urgent)


@pytest.mark.spec("LED-02")
def test_the_fill_is_told_bound_by_bound_and_may_pass_its_bound() -> None:
    found = fills(held(effects=7, record_bytes=2_599, span_bytes=22_000), BOUNDS)
    assert [(fill.what, fill.percent) for fill in found] == [
        ("effects", 7),
        ("record_bytes", 25),
        ("span_bytes", 110),
    ]


@pytest.mark.spec("LED-02")
@pytest.mark.parametrize(
    ("growth", "expected"),
    [
        (Growth(effects=0, record_bytes=0, span_bytes=0), None),
        (Growth(effects=-3, record_bytes=-5.5, span_bytes=0), None),
        (Growth(effects=9, record_bytes=0, span_bytes=0), Outlook(what="effects", days=5)),
        (Growth(effects=9, record_bytes=2_000, span_bytes=0), Outlook(what="record_bytes", days=2)),
        (Growth(effects=9, record_bytes=2_000, span_bytes=10**9), Outlook(what="span_bytes", days=0)),
    ],
)
def test_the_bound_that_is_reached_first_says_for_how_long_it_lasts(
    growth: Growth, expected: Outlook | None
) -> None:
    assert outlook(held(effects=50, record_bytes=4_000, span_bytes=1), BOUNDS, growth) == expected


@pytest.mark.spec("LED-02")
def test_what_is_full_already_is_full_today() -> None:
    growth = Growth(effects=1, record_bytes=1, span_bytes=1)
    assert outlook(held(span_bytes=30_000), BOUNDS, growth) == Outlook(what="span_bytes", days=0)


def step(name: TransitionName, *, moves: bool = False) -> Step:
    moved = EffectMoved(
        effect_id=EffectId("eff_" + "0" * 32), origin=EffectState.PREPARED, target=EffectState.DENIED
    )
    return Step(transition=Transition(name=name, story="led"), changes=(moved,) if moves else ())


@pytest.mark.spec("LED-02", "AUD-01")
def test_noise_is_a_no_and_nothing_else() -> None:
    no = step(TransitionName.REFUSED)
    assert is_noise((no,))
    assert is_noise((no, no))
    assert not is_noise((no, step(TransitionName.EFFECT_EXPIRED)))
    assert not is_noise((step(TransitionName.REFUSED, moves=True),))
    assert not is_noise((step(TransitionName.PROBE),))
