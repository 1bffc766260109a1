"""A trail as a list of spans, and the ways to doctor a copy of it: what a liar, or an issuer with a hole, would leave.

Sequences are given anew after each change, so that the change itself has to be noticed, and no gap that it left.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.support.lawful import Span


@dataclass(frozen=True, kw_only=True)
class Trail:
    """Spans in order, and the effects in it by the names that a test gave them."""

    spans: tuple[Span, ...]
    effects: dict[str, str]

    def place(self, name: str, of: str = "", nth: int = 0, **said: Any) -> int:
        """Return where the `nth` span of a kind stands, of one effect, or with the attributes that are given."""
        found = [
            number
            for number, span in enumerate(self.spans)
            if span.name == name
            and (not of or span.effect == self.effects[of])
            and all(span[key] == value for key, value in said.items())
        ]
        return found[nth]

    def at(self, place: int) -> Span:
        """Return the span at a place."""
        return self.spans[place]

    def _with(self, spans: Sequence[Span]) -> "Trail":
        numbered = tuple(replace(span, sequence=number) for number, span in enumerate(spans, start=1))
        return replace(self, spans=numbered)

    def without(self, *places: int) -> "Trail":
        """Drop spans."""
        return self._with([span for number, span in enumerate(self.spans) if number not in places])

    def edited(self, place: int, *, at_ms: int | None = None, **said: Any) -> "Trail":
        """Change the instant or attributes of one span."""
        span = self.spans[place]
        told = {**span.said, **{f"permit.{name.replace('__', '.')}": value for name, value in said.items()}}
        fresh = replace(span, said=told, at_ms=span.at_ms if at_ms is None else at_ms)
        return self._with([*self.spans[:place], fresh, *self.spans[place + 1 :]])

    def inserted(self, place: int, name: str, effect: str | None = None, **said: Any) -> "Trail":
        """Put another span before one, at its instant and under its revision; of an effect also its own names."""
        beside = self.spans[place]
        about = {} if effect is None else self.spans[self.place("effect.prepared", effect)].said
        told = {**about, "permit.revision": beside["revision"]}
        told |= {f"permit.{key.replace('__', '.')}": value for key, value in said.items()}
        identity = None if effect is None else self.effects[effect]
        span = Span(sequence=0, at_ms=beside.at_ms, name=name, effect=identity, said=told)
        return self._with([*self.spans[:place], span, *self.spans[place:]])

    def moved(self, place: int, before: int) -> "Trail":
        """Put a span before an earlier one, at its instant."""
        span = replace(self.spans[place], at_ms=self.spans[before].at_ms)
        rest = [one for number, one in enumerate(self.spans) if number != place]
        return self._with([*rest[:before], span, *rest[before:]])

    def renamed(self, place: int, name: str) -> "Trail":
        """Give a span another kind."""
        fresh = replace(self.spans[place], name=name)
        return self._with([*self.spans[:place], fresh, *self.spans[place + 1 :]])

    def activated(self, place: int, revision: str) -> "Trail":
        """Let another revision be in force from a place on to the next activation, as every span there then tells."""
        before = self.spans[place]["revision"]
        trail = self.inserted(
            place, "revision.activated", revision__activated=revision, revision__before=before
        )
        for number in range(place + 1, len(trail.spans)):
            if trail.spans[number].name == "revision.activated":
                return trail.edited(number, revision__before=revision, revision=revision)
            trail = trail.edited(number, revision=revision)
        return trail


Doctor = Callable[[Trail], Trail]
