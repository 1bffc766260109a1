"""`sink list`: every sink of profile and ledger as it is now, asked afresh (AUD-02, SEC-02).

It writes nothing, waits for no sink longer than a probe may take, and works while a required one is dead.
Next: `issuer.commands.sinks`, what an operator does about it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from audit import Kept, SinkLook, class_of
from audit.comparison import span_says
from issuer import answering
from issuer.clock import instant_text
from issuer.commands.edge import at_the_edge
from issuer.house import House, Visit
from issuer.sink_building import goes_to
from issuer.sink_moves import AHEAD
from issuer.sink_places import kept_back
from issuer.sink_words import LastWord, last_words
from issuer.wire import Answer
from ledger.model import InstantMs, SinkRegistration
from ledger.port import View
from ledger.questions import SpanFilter
from ledger.transitions import TransitionName

PLACES_SHOWN_MAX: Final = 1000
"""Changes of sinks that are read to say since when each stands where it does: a sink moves a few times in its life."""

_PLACED: Final = SpanFilter(names=frozenset({TransitionName.SINK_REGISTERED, TransitionName.SINK_REPLACED}))


def sink_list(visit: Visit) -> Answer:
    """Show every sink of profile and ledger: where it is, how far, in what state, and what is kept from it."""

    def run() -> Answer:
        house = visit.house
        looks = {look.sink.name: look for look in house.delivery.look()}
        placed, kept, words, head, since = house.ledger.read(
            lambda view: (
                {sink.name: sink for sink in view.sinks()},
                kept_back(view),
                last_words(view),
                view.head().sequence,
                _since(view),
            )
        )
        names = sorted({*placed, *house.profile.audit.sinks, *looks})
        rows = [
            _row(
                house,
                name,
                _Known(
                    registration=placed.get(name),
                    look=looks.get(name),
                    word=words.get(name, LastWord()),
                    kept=kept.get(name, ()),
                    head=head,
                    since=since.get(name),
                ),
            )
            for name in names
        ]
        return answering.about(house, "found", more={"sinks": rows})

    return at_the_edge(visit, run)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What is known of one sink: as the ledger has it, as a look found it, and what is on record about it."""

    registration: SinkRegistration | None
    look: SinkLook | None
    word: LastWord
    kept: Sequence[Kept]
    head: int
    since: InstantMs | None


def _row(house: House, name: str, known: _Known) -> dict[str, object]:
    declared, look = house.profile.audit.sinks.get(name), known.look
    state, reason = _state(known, is_declared=declared is not None)
    reached = None if look is None else look.reached
    is_failing = state == "failing" and bool(known.word.reason)
    return {
        "sink": name,
        "kind": look.sink.kind if look is not None else "" if declared is None else declared.type,
        "class": None if look is None else str(class_of(look.sink)),
        "required": look.sink.required if look is not None else declared is not None and declared.required,
        "location": None if known.registration is None else goes_to(known.registration),
        "since": None if known.since is None else instant_text(known.since),
        "reached": reached,
        "behind": None if reached is None else max(0, known.head - reached),
        "state": state,
        "reason": reason,
        "failing_since": instant_text(known.word.since_ms) if is_failing else None,
        "quarantined": [[kept.first, kept.last] for kept in known.kept],
    }


def _state(known: _Known, *, is_declared: bool) -> tuple[str, str]:
    """Return one of `ready`, `failing`, `ahead`, `unknown`, `unregistered` and `undeclared`, and why."""
    if known.look is None:
        return ("undeclared", "") if not is_declared else ("unregistered", "")
    fault = known.look.fault
    if fault is None:
        return "ready", ""
    if fault.reason == "not_loaded":  # who only looks loads no code of a third party
        return "unknown", fault.reason
    return ("ahead" if fault.reason in AHEAD else "failing"), fault.reason


def _since(view: View) -> dict[str, InstantMs]:
    """Return since when each sink stands where it is, as the trail tells it."""
    found: dict[str, InstantMs] = {}
    for span in view.find_spans(_PLACED, limit=PLACES_SHOWN_MAX):
        found[str(span_says(span.body).get("permit.sink.name"))] = span.at_ms
    return found
