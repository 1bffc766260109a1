"""How much a ledger may hold, from where on it says no, and for how long it will last.

Rules: LED-02 (finite bounds; new effects are refused first, admissions later, outcomes never; nothing that lives is
deleted to make room), ADM-01 (capacity is asked again at admission). Pure: what is held is read by the caller.
It does not decide what is collected; that is `issuer.flow.collect`. Next: `issuer.flow.capacity` asks under the lock.
"""

from dataclasses import dataclass
from typing import Final

from ledger.changes import Step
from ledger.model import Holdings
from ledger.refusals import Refusal, RefusalCode
from ledger.transitions import TransitionName

MEBIBYTE: Final = 1024 * 1024

EFFECTS_MAX: Final = 10_000
"""Effects with their whole record (LED-02): a full check of so many takes about a second."""

RECORD_BYTES_MAX: Final = 64 * MEBIBYTE
"""Bytes of those records and of tombstones (LED-02)."""

SPAN_BYTES_MAX: Final = 1024 * MEBIBYTE
"""Bytes of the trail: some 450,000 spans, and an effect leaves four to six. An archive makes room (AUD-08)."""

UNENDED_PER_TASK_MAX: Final = 200
"""Effects of one task that are not over: a fiftieth of the house, and more than one agent has in flight."""

_NEW_PERCENT: Final = 90
"""Of either bound of bytes: from here on no new effect, so that what lives can still be admitted and end."""

_ADMISSION_PERCENT: Final = 95
"""From here on no admission either: the rest is for how admitted effects end, which is never refused."""

PRESSED_PERCENT: Final = 75
"""From here on nothing is kept only because somebody may want to look at it."""

URGENT_PERCENT: Final = 85
"""From here on room is made at once, and no longer only when a whole batch is due."""

ANNOUNCED_PERCENT: Final = 80
"""From here on an owner is told, while everything still works."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The bounds of one ledger, as its owner chose them. The profile's reader holds them to their ranges."""

    effects_max: int = EFFECTS_MAX
    record_bytes_max: int = RECORD_BYTES_MAX
    span_bytes_max: int = SPAN_BYTES_MAX
    unended_per_task_max: int = UNENDED_PER_TASK_MAX

    @property
    def noise_bytes_max(self) -> int:
        """Bytes of the trail from where on it takes no refusal directly after another."""
        return self.span_bytes_max * _NEW_PERCENT // 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """How full one bound is. From `refused_from` on new effects are refused."""

    what: str
    used: int
    bound: int
    refused_from: int

    @property
    def percent(self) -> int:
        """The part of the bound that is used, rounded down; above 100 where outcomes went beyond it."""
        return self.used * 100 // self.bound


def fills(holdings: Holdings, capacity: Capacity) -> tuple[Fill, Fill, Fill]:
    """Return how full a ledger is, bound by bound: effects, bytes of records, bytes of spans."""
    bytes_of = (
        ("record_bytes", holdings.record_bytes, capacity.record_bytes_max),
        ("span_bytes", holdings.span_bytes, capacity.span_bytes_max),
    )
    records, spans = (
        Fill(what=what, used=used, bound=bound, refused_from=bound * _NEW_PERCENT // 100)
        for what, used, bound in bytes_of
    )
    effects = Fill(
        what="effects",
        used=holdings.effects,
        bound=capacity.effects_max,
        refused_from=capacity.effects_max,
    )
    return effects, records, spans


def refuse_new(holdings: Holdings, capacity: Capacity, *, stored: bool) -> Refusal | None:
    """Refuse one more effect where a bound is reached, naming it; a `stored` one is among the effects already."""
    effects, records, spans = fills(holdings, capacity)
    if not stored and effects.used >= effects.refused_from:
        return Refusal(code=RefusalCode.LEDGER_FULL, field=effects.what)
    for fill in (records, spans):
        if fill.used >= fill.refused_from:
            return Refusal(code=RefusalCode.LEDGER_FULL, field=fill.what)
    return None


def refuse_admission(holdings: Holdings, capacity: Capacity) -> Refusal | None:
    """Refuse an admission where only the room for outcomes is left, naming the bound (ADM-01)."""
    _effects, records, spans = fills(holdings, capacity)
    for fill in (records, spans):
        if fill.used >= fill.bound * _ADMISSION_PERCENT // 100:
            return Refusal(code=RefusalCode.LEDGER_FULL, field=fill.what)
    return None


def is_noise(steps: tuple[Step, ...]) -> bool:
    """Say whether steps tell of nothing but a no; with none there is nothing to tell."""
    return all(step.transition.name is TransitionName.REFUSED and not step.changes for step in steps)


def is_pressed(holdings: Holdings, capacity: Capacity) -> bool:
    """Say whether space is needed that collecting could give: a trail is not collected."""
    return _collectable_percent(holdings, capacity) >= PRESSED_PERCENT


def is_urgent(holdings: Holdings, capacity: Capacity) -> bool:
    """Say whether it is needed now."""
    return _collectable_percent(holdings, capacity) >= URGENT_PERCENT


def _collectable_percent(holdings: Holdings, capacity: Capacity) -> int:
    effects, records, _spans = fills(holdings, capacity)
    return max(effects.percent, records.percent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """What a ledger gained by the day of late, what was collected taken off; below zero where it shrank."""

    effects: float
    record_bytes: float
    span_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """Which bound is reached first at the pace of late, and in how many days, rounded down."""

    what: str
    days: int


def outlook(holdings: Holdings, capacity: Capacity, growth: Growth) -> Outlook | None:
    """Return when new effects will be refused if it goes on like this; None where it never will be."""
    paces = (growth.effects, growth.record_bytes, growth.span_bytes)
    reached = [
        Outlook(what=fill.what, days=max(0, int((fill.refused_from - fill.used) / pace)))
        for fill, pace in zip(fills(holdings, capacity), paces, strict=True)
        if pace > 0
    ]
    return min(reached, key=lambda one: one.days, default=None)
