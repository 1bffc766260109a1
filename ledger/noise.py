"""Which refusals stand on record one by one, and which are only counted: repeats cannot fill the trail.

Rules: AUD-01 (a no is on record; what arrives before its caller is known, or cannot be read, is soon only counted),
LED-02 (the room for outcomes is not there for noise). ADR-0036 says where the numbers come from. In order:
  1. A no stands in full while its kind (caller, command, code) and its caller both have full spans left: a burst, and
  one more for each minute that passes.
  So does a denial of a new effect, with a burst of its own; the effect is made, and found under its key.
  2. Any other no is counted, together with all processes, and its answer is the same.
  3. At most once a minute for each caller, one span tells how many were counted: before the next no, or the next ask.
  4. What an attack is known by (`GRAVE`) has full spans and a count of its own for each such code, so that a flood of
  anything else hides none of it.
Noise is pure data; the ledger keeps it beside its file and under its lock. It grants nothing: where it is lost or was
changed, refusals stand in full again. Next: `ledger.sqlite.noise_file`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from types import MappingProxyType
from typing import Final

from ledger.changes import Step
from ledger.model import InstantMs, LedgerId
from ledger.refusals import RefusalCode
from ledger.transitions import AttributeValue, Transition, TransitionName

__all__ = [
    "BURST_MAX",
    "CALLER_BURST_MAX",
    "DENIED_BURST_MAX",
    "GRAVE",
    "INTERVAL_MS",
    "LINES_MAX",
    "NOBODY_BURST_MAX",
    "Kind",
    "Line",
    "Noise",
]

INTERVAL_MS: Final = 60_000
"""Until one more full span of a kind, and between two spans that count for one caller."""

BURST_MAX: Final = 64
"""Full spans of one kind at once: more than a person or an honest program needs to be told the same no."""

CALLER_BURST_MAX: Final = 256
"""Full spans of one caller at once, whatever it is refused: a quarter of a mebibyte at most (16 KiB only in theory)."""

NOBODY_BURST_MAX: Final = 16
"""Full spans at once of commands whose caller nobody knows: the first ones, for whoever looks for the cause."""

DENIED_BURST_MAX: Final = 1024
"""Denials of new effects by policies, of one caller and code, that are made and kept as effects at once (EFF-11)."""

LINES_MAX: Final = 512
"""Kinds that are told apart at once; what finds no place is counted for its caller alone."""

GRAVE: Final = frozenset(
    map(str, (RefusalCode.FORBIDDEN, RefusalCode.SIGNATURE_REFUSED, RefusalCode.DENIED)),
)
"""Codes of which a caller's full spans, and the count of the rest, are kept apart from those of all others."""

_REASONS: Final = {
    str(RefusalCode.UNAUTHENTICATED): "unauthenticated",
    str(RefusalCode.MALFORMED): "unreadable",
}
_REPEATED: Final = "repeated"
_REQUEST: Final = "request"
_DENIAL: Final = (TransitionName.EFFECT_PREPARED, TransitionName.EFFECT_DENIED)
_ASKS: Final = frozenset({TransitionName.EFFECT_PREPARED, TransitionName.OBSERVED})
"""What a count may stand before: an ask or a look, and never what records how something ended."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Kind:
    """One kind of refusal; with an empty command, all those of a caller with that grave code, or all its others."""

    caller: str
    command: str = ""
    refusal: str = ""
    is_denial: bool = False

    @property
    def burst(self) -> int:
        """Full spans that it has at once."""
        if self.is_denial:
            return DENIED_BURST_MAX
        if not self.command:
            return CALLER_BURST_MAX
        return NOBODY_BURST_MAX if self.refusal == RefusalCode.UNAUTHENTICATED else BURST_MAX

    @property
    def whole(self) -> "Kind":
        """What it is a part of: every kind of this caller, or those with the same grave code."""
        return Kind(caller=self.caller, refusal=self.refusal if self.refusal in GRAVE else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What is known of one kind.

    Attributes:
        used_until_ms: when all of its full spans will be there again; in the past where they are.
        count: refusals that stand nowhere yet.
        told_ms: when a span last counted for this caller.
        mode: the mode in which they were refused.
    """

    used_until_ms: int = 0
    count: int = 0
    told_ms: int = 0
    mode: str = ""

    def has_full(self, kind: Kind, now: int) -> bool:
        """Say whether one more may stand in full."""
        return self.used(kind, now) + INTERVAL_MS <= now + kind.burst * INTERVAL_MS

    def used(self, kind: Kind, now: int) -> int:
        """Return `used_until_ms` as it counts now; one of a clock that was set back holds nobody up."""
        is_possible = self.used_until_ms <= now + kind.burst * INTERVAL_MS
        return max(now, self.used_until_ms) if is_possible else now


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Every kind of refusal of late, by kind."""

    lines: Mapping[Kind, Line] = field(default_factory=lambda: MappingProxyType({}))

    def heard(
        self, steps: tuple[Step, ...], now: InstantMs, *, may_stand: bool = True
    ) -> tuple["Noise", bool]:
        """Return the noise after one more refusal, and whether that stands in full; it does not unless it `may_stand`.

        What does not say its caller, command, code and mode stands in full: nobody could say later whose it was.
        """
        transition = steps[-1].transition
        is_denial = transition.name is TransitionName.EFFECT_DENIED
        attributes = (
            {"permit.command": _REQUEST, **transition.attributes} if is_denial else transition.attributes
        )
        said = [attributes.get(f"permit.{name}") for name in ("caller", "command", "refusal", "mode")]
        if not all(type(word) is str and word for word in said):
            return self, may_stand
        caller, command, refusal, mode = map(str, said)
        kind = Kind(caller=caller, command=command, refusal=refusal, is_denial=is_denial)
        whole = kind.whole
        lines = self._kept(now)
        if kind not in lines and len(lines) >= LINES_MAX:
            kind = whole
        one, all_of_it = lines.get(kind, Line(mode=mode)), lines.get(whole, Line(mode=mode, told_ms=now))
        is_full = may_stand and one.has_full(kind, now) and (is_denial or all_of_it.has_full(whole, now))
        if is_full:
            used = all_of_it.used_until_ms if is_denial else all_of_it.used(whole, now) + INTERVAL_MS
            lines[whole] = replace(all_of_it, used_until_ms=used)
            lines[kind] = replace(lines.get(kind, one), used_until_ms=one.used(kind, now) + INTERVAL_MS)
        else:
            lines[whole] = all_of_it
            before = lines.get(kind, one)
            lines[kind] = replace(before, count=before.count + 1)
        return Noise(lines=MappingProxyType(lines)), is_full

    def told(self, ledger_id: LedgerId, now: InstantMs) -> tuple["Noise", tuple[Step, ...]]:
        """Return the noise after its counts were told, and the steps that tell them.

        One for each caller at most, and one for each grave code of it. Those for which a span counted less than
        `INTERVAL_MS` ago have to wait.
        """
        lines, steps = dict(self.lines), []
        for whole in sorted({kind.whole for kind, line in lines.items() if line.count}):
            last = lines.get(whole, Line())
            if last.told_ms <= now < last.told_ms + INTERVAL_MS:
                continue
            counted = {kind: line for kind, line in lines.items() if kind.whole == whole and line.count}
            steps.append(Step(transition=_noise(ledger_id, whole.caller, counted)))
            lines.update({kind: replace(line, count=0) for kind, line in counted.items()})
            lines[whole] = replace(lines.get(whole, last), told_ms=now)
        return Noise(lines=MappingProxyType(lines)), tuple(steps)

    def _kept(self, now: int) -> dict[Kind, Line]:
        """Return the lines without those that say nothing any more; whose refusals wait to be told stays."""
        waiting = {kind.whole for kind, line in self.lines.items() if line.count}
        return {
            kind: line
            for kind, line in self.lines.items()
            if line.count or kind in waiting or _is_recent(line, now)
        }

    def entries(self) -> Iterator[list[str | int]]:
        """Yield each line as plain values, in a fixed order."""
        for kind, line in sorted(self.lines.items()):
            numbers = (line.used_until_ms, line.count, line.told_ms, int(kind.is_denial))
            yield [kind.caller, kind.command, kind.refusal, line.mode, *numbers]

    @classmethod
    def from_entries(cls, entries: object) -> "Noise":
        """Return the noise of plain values that `entries` yielded; what has another form is left out."""
        lines: dict[Kind, Line] = {}
        for entry in islice(entries if isinstance(entries, list) else [], LINES_MAX * 2):
            if not isinstance(entry, list) or [type(value) for value in entry] != [str] * 4 + [int] * 4:
                continue
            caller, command, refusal, mode, used, count, told, is_denial = entry
            line = Line(used_until_ms=used, count=count, told_ms=told, mode=mode)
            kind = Kind(caller=caller, command=command, refusal=refusal, is_denial=bool(is_denial))
            lines[kind] = line
        return cls(lines=MappingProxyType(lines))


def is_denial(steps: tuple[Step, ...]) -> bool:
    """Say whether these steps make an effect and deny it at once, and so leave nothing that could be used."""
    return tuple(step.transition.name for step in steps) == _DENIAL


def is_ask(steps: tuple[Step, ...]) -> bool:
    """Say whether a count may stand before these steps: they begin with an ask or a look."""
    return bool(steps) and steps[0].transition.name in _ASKS


def _is_recent(line: Line, now: int) -> bool:
    return line.used_until_ms > now or line.told_ms <= now < line.told_ms + INTERVAL_MS


def _noise(ledger_id: LedgerId, caller: str, counted: Mapping[Kind, Line]) -> Transition:
    """Return the transition that counts; what all of it has in common stands beside the number."""
    attributes: dict[str, AttributeValue] = {
        "permit.mode": next(iter(counted.values())).mode,
        "permit.caller": caller,
        "permit.count": sum(line.count for line in counted.values()),
        "permit.reason": _REPEATED,
    }
    commands, refusals = ({getattr(kind, name) for kind in counted} for name in ("command", "refusal"))
    if len(commands) == 1 and "" not in commands:
        attributes["permit.command"] = commands.pop()
    if len(refusals) == 1 and "" not in refusals:
        refusal = refusals.pop()
        attributes["permit.refusal"] = refusal
        attributes["permit.reason"] = _REASONS.get(refusal, _REPEATED)
    return Transition(name=TransitionName.NOISE, story=ledger_id, attributes=attributes)
