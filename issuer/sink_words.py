"""What becomes of sinks, on record: one span when one begins to fail, and one when it works again (AUD-02, AUD-07).

Rules: a word is written after the command that met it, in a transaction of its own that waits for no sink, so no
outcome and no refusal depends on it; what cannot be written now is kept, counted, and written with a later command.
  1. A failure is a word where the last word about that sink is not a failure, or gives another reason.
  2. Two failures of one sink are at least `FAILURE_EVERY_MS` apart, whichever processes meet them: what comes between
     is counted, so that neither a flood of requests nor a sink that comes and goes fills the trail.
  3. That it works again is a word where the last one is a failure.
Two processes ask under the same lock, so the second has nothing to say. Next: `issuer.commands.edge` calls it.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from audit import SinkWord
from audit.comparison import span_says
from issuer.house import House
from ledger.changes import Step
from ledger.errors import Fault
from ledger.model import InstantMs
from ledger.port import Verdict, View
from ledger.questions import SpanFilter
from ledger.transitions import AttributeValue, Transition, TransitionName

FAILURE_EVERY_MS: Final = 60_000
"""Milliseconds between two failures of one sink on record: a person who reads the trail learns no more from more."""

LOOKED_AT_MAX: Final = 64
"""Words that are looked through for the last one about a sink: of all sinks together, the newest first."""

_WORDS: Final = SpanFilter(names=frozenset({TransitionName.SINK_FAILED, TransitionName.SINK_RECOVERED}))


_NEVER: Final = InstantMs(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastWord:
    """The newest word on record about one sink; `reason` is empty where it works.

    Attributes:
        failed_ms: when it last was said to fail; 0 where it never was, as far as was looked.
    """

    reason: str = ""
    since_ms: InstantMs = _NEVER
    failed_ms: InstantMs = _NEVER


def last_words(view: View) -> Mapping[str, LastWord]:
    """Return the newest word about each sink of which there is one among the last `LOOKED_AT_MAX`."""
    found: dict[str, LastWord] = {}
    for span in reversed(view.find_spans(_WORDS, limit=LOOKED_AT_MAX, newest_first=True)):
        said = span_says(span.body)
        name = str(said.get("permit.sink.name"))
        before = found.get(name, LastWord())
        if span.name == TransitionName.SINK_FAILED:
            since = before.since_ms if before.reason else span.at_ms
            reason = str(said.get("permit.reason"))
            found[name] = LastWord(reason=reason, since_ms=since, failed_ms=span.at_ms)
        else:
            found[name] = LastWord(since_ms=span.at_ms, failed_ms=before.failed_ms)
    return found


def record_words(house: House) -> None:
    """Put on record what this process has learnt of its sinks; whatever stands in the way, nothing else changes."""
    delivery = house.delivery
    words = delivery.words()
    if not words:
        return

    def decide(view: View, now: InstantMs) -> Verdict[tuple[SinkWord, ...]]:
        last = last_words(view)
        due = tuple(word for word in words if _is_due(word, last.get(word.name, LastWord()), now))
        done = tuple(word for word in words if word in due or _is_said(word, last.get(word.name, LastWord())))
        return Verdict(value=done, steps=tuple(_step(house, word) for word in due))

    with suppress(
        Fault, ValueError, TypeError, KeyError, AttributeError, RecursionError
    ):  # a body that is none is for a check
        if all(_is_nothing_new(word) for word in words):
            # Most processes only ever learn that the sinks work; that costs them a look, and no lock.
            last = house.ledger.read(last_words)
            if not any(last.get(word.name, LastWord()).reason for word in words):
                delivery.told(words)
                return
        delivery.told(house.ledger.record(decide).value)


def _is_nothing_new(word: SinkWord) -> bool:
    return not word.reason


def _is_said(word: SinkWord, last: LastWord) -> bool:
    return word.reason == last.reason


def _is_due(word: SinkWord, last: LastWord, now: InstantMs) -> bool:
    if _is_said(word, last):
        return False  # 1 and 3
    if not word.reason:
        return True  # 3
    return now >= last.failed_ms + FAILURE_EVERY_MS or last.failed_ms > now  # 2


def _step(house: House, word: SinkWord) -> Step:
    said: dict[str, AttributeValue] = {
        "permit.mode": house.mode,
        "permit.revision": house.revision,
        "permit.instance": house.instance.name,
        "permit.sink.name": word.name,
        "permit.count": word.count,
    }
    if word.reason:
        said["permit.reason"] = word.reason
    if word.upto is not None:
        said["permit.sink.upto"] = word.upto
    name = TransitionName.SINK_FAILED if word.reason else TransitionName.SINK_RECOVERED
    return Step(transition=Transition(name=name, story=house.ledger.ledger_id, attributes=said))


__all__ = ["LastWord", "last_words", "record_words"]
