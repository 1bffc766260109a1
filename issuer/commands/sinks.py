"""`sink replace` and `sink quarantine`: what an operator does about a sink (AUD-02).

Rules: AUD-02 (both acts are audited, and nothing is ever left out by itself), AUD-09 (they are changes of authority),
LED-06 (an act never hides a rollback), SEC-02. Everything outside the ledger is done first; under the lock it is asked
once more whether the sinks, and the end of the trail, are still those that it was done for, and then one span and its
rulings say what holds from there on. Every process compares (`issuer.terms`, `audit.delivery`).
Next: `issuer.sink_moves`; `issuer.commands.sink_views` shows the sinks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from audit import Kept, LedgerSpans, Reaching, SinkAhead, SinkUnavailable
from issuer import answering
from issuer.backup import shipped
from issuer.checkpoints.folder import carry_along, checkpoint_folder
from issuer.commands.edge import at_the_edge
from issuer.flow import spans
from issuer.flow.overdue import sweep
from issuer.flow.refusing import RefusedError
from issuer.flow.signed_act import acting
from issuer.house import House, Visit
from issuer.sink_building import goes_to, is_carried, looked_sink
from issuer.sink_moves import (
    NewPlace,
    OldState,
    old_state,
    prepare_place,
    refusal,
    refuse_ahead,
    refuse_archived,
    tell_old,
)
from issuer.sink_places import kept_back, place_digest, sinks_version, stood, wanted_sink
from issuer.wire import Answer
from issuer.wire.codes import CODES
from ledger.authority import (
    RULING_VALUE_MAX,
    SINK_GONE,
    SINKS_CHANGED,
    Ruling,
    RulingKind,
    quarantine_name,
    sink_value,
)
from ledger.changes import RulingMade, Step
from ledger.errors import Malformed
from ledger.model import InstantMs, SinkRegistration
from ledger.port import Verdict, View
from ledger.refusals import RefusalCode
from ledger.states import EffectState
from ledger.transitions import AttributeValue, Transition, TransitionName

TURNS_MAX: Final = 16
"""How often a new place is filled anew because others went on writing before the lock was there."""

KEPT_SPANS_MAX: Final = 256
"""Spans that one act keeps from a sink: a poisoned one, or a few; whoever wants more leaves the sink."""

_IN_FLIGHT: Final = (
    "Something was admitted and is not over yet, and the sink that it waits for may not move under it; "
    "try again once it is over."
)
_LAST: Final = "Without {name} no sink that is required would be left, so nothing could ever be sent."
_BUSY: Final = "Others wrote to the ledger each time the new place had everything; try again."
_MOVED: Final = "Somebody else changed the sinks meanwhile; look at `issuer sink list`, and try again."
_NO_GAPS: Final = (
    "A sink of kind jsonl takes every span that the ledger has, and its file has no gaps: nothing can be kept from it. "
    "Repair it, or give it another place with `issuer sink replace`."
)
_UNTOLD: Final = "It is in force; but not every required sink has taken note of it yet ({why})."


class QuarantineReason(StrEnum):
    """Why spans are kept from a sink."""

    REJECTED = "rejected"
    TOO_LARGE = "too_large"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Move:
    """One change of one sink: from where to where; None is nowhere.

    Attributes:
        placed: every sink as the ledger had it, and `version` what that was read at.
        was_required: whether something in flight may wait for the old place.
    """

    name: str
    old: SinkRegistration | None
    new: SinkRegistration | None
    placed: tuple[SinkRegistration, ...]
    version: str
    was_required: bool
    state: OldState

    @property
    def reason(self) -> str:
        """The word of the act: `moved`, `lost`, `gained` or `dropped`."""
        if self.old is None:
            return "gained"
        if self.state.is_lost:
            return "lost"
        return "moved" if self.new is not None else "dropped"

    @property
    def shown(self) -> SinkRegistration:
        """The place that the span is about: the new one, or the one that is left for good."""
        shown = self.new or self.old
        if shown is None:
            raise RefusedError(RefusalCode.UNKNOWN_REFERENCE, field="sink")
        return shown


def sink_replace(visit: Visit, name: str, path: str | None = None) -> Answer:
    """Let a sink stand where the profile in force says now, or below the folder `path`; also one gained or lost since.

    The new place has every span of the ledger before it counts. An old place that can be read may not be ahead of the
    ledger; one that cannot is lost, and the span says so.
    """

    def run() -> Answer:
        house = visit.house
        sweep(visit)
        move = _planned(house, name, path)
        signer = checkpoint_folder(house.ledger)
        if move.new is not None:
            refuse_archived(move.new, house)
            prepare_place(move.new, house.ledger)
        sequence = _committed(visit, move)
        has_all = carry_along(signer, checkpoint_folder(house.ledger))
        if move.old is not None and not move.state.is_lost:
            tell_old(move.old, house.ledger, sequence)
        more: dict[str, object] = {
            "sink": name,
            "kind": move.shown.kind,
            "location": goes_to(move.shown),
            "reason": move.reason,
        }
        if move.old is not None and not move.state.is_lost:
            more["old_upto"] = move.state.upto
        if not has_all:
            more["checkpoints_left_in"] = str(signer)
        return told_to_sinks(house, "sink_replaced", sequence, more)

    return at_the_edge(visit, run)


def _planned(house: House, name: str, path: str | None) -> _Move:
    """Return what the act comes to, once nothing that can be asked outside the lock stands against it.

    Raises:
        RefusedError: neither profile nor ledger has the sink, it stands there already, or `issuer.sink_moves` says no.
        Malformed: the place is none.
    """
    placed, version = house.ledger.read(lambda view: (tuple(view.sinks()), sinks_version(view)))
    old = next((sink for sink in placed if sink.name == name), None)
    declared = house.profile.audit.sinks.get(name)
    if old is None and declared is None:
        say = "Neither the profile in force nor the ledger has a sink of that name."
        raise RefusedError(RefusalCode.UNKNOWN_REFERENCE, field="sink", say=say)
    if declared is None and path is not None:
        raise Malformed(
            "unexpected", "path", "the profile in force has no such sink, so it gets no new place"
        )
    if declared is not None and declared.type != "jsonl" and path is not None:
        raise Malformed(
            "unexpected", "path", "only a sink of kind jsonl is a file; another goes by the profile"
        )
    refuse_ahead(placed, house.ledger)
    new = (
        None
        if declared is None
        else wanted_sink(house.profile, name, house.ledger.ledger_id, path=path, old=old)
    )
    state = OldState() if old is None else old_state(old, house.ledger)
    move = _Move(
        name=name,
        old=old,
        new=new,
        placed=placed,
        version=version,
        was_required=declared is None or declared.required,
        state=state,
    )
    if new is not None:
        _demand_place(move, new)
    elif not any(_is_required(house, sink.name) for sink in placed):
        raise refusal(name, _LAST.format(name=name))
    return move


def _is_required(house: House, name: str) -> bool:
    declared = house.profile.audit.sinks.get(name)
    return declared is not None and declared.required


def _demand_place(move: _Move, new: SinkRegistration) -> None:
    if new == move.old and not move.state.is_lost:
        raise RefusedError(RefusalCode.NOTHING_TO_CHANGE, field="sink")
    if len(sink_value(new).encode()) > RULING_VALUE_MAX:
        raise Malformed("too_long", "path", f"a sink's place has at most {RULING_VALUE_MAX} bytes")
    if any(sink.location == new.location for sink in move.placed if sink.name != move.name):
        raise refusal(move.name, "Another sink of this ledger stands at that place.")


def _committed(visit: Visit, move: _Move) -> int:
    """Fill the new place, and put the change on record while that still has everything; return the span's sequence.

    Raises:
        RefusedError: `audit_unavailable`; something stands against it.
    """
    if move.new is None:
        sequence = _tried(visit, move, None)
    else:
        with NewPlace(move.new, visit.house) as place:
            tries = (_tried(visit, move, place.fill()) for _turn in range(TURNS_MAX))
            sequence = next((found for found in tries if found is not None), None)
    if sequence is None:
        raise refusal(move.name, _BUSY)
    return sequence


def _tried(visit: Visit, move: _Move, filled: int | None) -> int | None:
    """Commit the change; None where the trail went on since `filled`."""

    def decide(view: View, now: InstantMs) -> Verdict[bool]:
        if sinks_version(view) != move.version or tuple(view.sinks()) != move.placed:
            raise refusal(move.name, _MOVED)
        if move.old is not None and move.was_required and not move.state.is_lost:
            _refuse_in_flight(view, move.name)
        if filled is not None and view.head().sequence != filled:
            return Verdict(value=False)
        return Verdict(value=True, steps=(_step(visit, move, view, now),))

    committed = visit.house.ledger.transact(acting(visit, decide))
    return committed.sequence if committed.value else None


def _refuse_in_flight(view: View, name: str) -> None:
    """Refuse while something was admitted and is not over: it may yet be sent on the word of the sinks as they are."""
    if view.effects(states=[EffectState.ADMITTED]):
        raise refusal(name, _IN_FLIGHT)


def _step(visit: Visit, move: _Move, view: View, now: InstantMs) -> Step:
    shown = move.shown
    said: dict[str, AttributeValue] = {
        "permit.sink.name": move.name,
        "permit.sink.kind": shown.kind,
        "permit.sink.location_digest": place_digest(shown.location),
        "permit.reason": move.reason,
    }
    name = TransitionName.SINK_REGISTERED
    if move.old is not None:
        name = TransitionName.SINK_REPLACED
        said["permit.sink.upto"] = move.state.upto
        if move.state.leaf is not None:
            said["permit.sink.leaf"] = move.state.leaf.hex()
    value = SINK_GONE if move.new is None else sink_value(move.new)
    ruling = Ruling(kind=RulingKind.SINK, name=move.name, value=value, since_ms=now)
    transition = Transition(name=name, story=visit.house.ledger.ledger_id, attributes=said)
    return _changing(visit, transition, ruling, view)


def _changing(
    visit: Visit,
    transition: Transition,
    ruling: Ruling,
    view: View,
) -> Step:
    """Return the step of a change of the sinks: its own ruling, and the one by which every process learns of it."""
    changed = Ruling(
        kind=RulingKind.SINK,
        name=SINKS_CHANGED,
        value=str(view.head().sequence + 1),
        since_ms=ruling.since_ms,
    )
    told = {**spans.common(visit), **transition.attributes}
    return Step(
        transition=replace(transition, attributes=told),
        changes=(RulingMade(ruling=ruling), RulingMade(ruling=changed)),
    )


def told_to_sinks(house: House, code: str, sequence: int, more: Mapping[str, object]) -> Answer:
    """Bring an act to the sinks that the ledger has from here on, and answer."""
    sinks, stand = stood(house.profile, house.ledger, house.sink_means)
    say = [CODES[code].say]
    if stand.trouble is not None:
        say.append(f"Nothing is sent yet. {stand.trouble[1]}")
    else:
        why = shipped(sinks, house.ledger, sequence)
        say += [] if why is None else [_UNTOLD.format(why=why.rstrip("."))]
    return answering.about(house, code, say=" ".join(say), more=more)


def sink_quarantine(visit: Visit, name: str, *, reason: str, upto: int | None = None) -> Answer:
    """Keep spans from a sink that takes them never: the next one that it lacks, or all of those up to `upto`.

    They stay in the ledger, and in its other sinks. The sink goes on behind them.
    """

    def run() -> Answer:
        house = visit.house
        sweep(visit)
        why = _read_quarantine_reason(reason)
        version, kept = _proposed(house, name, upto)

        def decide(view: View, now: InstantMs) -> Verdict[None]:
            if sinks_version(view) != version:
                raise refusal(name, _MOVED)
            _refuse_in_flight(view, name)
            said: dict[str, AttributeValue] = {
                "permit.sink.name": name,
                "permit.sink.from": kept.first,
                "permit.sink.upto": kept.last,
                "permit.reason": why,
            }
            ruling = Ruling(
                kind=RulingKind.QUARANTINE,
                name=quarantine_name(name, kept.first),
                value=str(kept.last),
                since_ms=now,
            )
            transition = Transition(
                name=TransitionName.SINK_QUARANTINED, story=house.ledger.ledger_id, attributes=said
            )
            return Verdict(value=None, steps=(_changing(visit, transition, ruling, view),))

        sequence = house.ledger.transact(acting(visit, decide)).sequence
        more = {"sink": name, "from": kept.first, "upto": kept.last, "reason": why}
        return told_to_sinks(house, "sink_quarantined", sequence, more)

    return at_the_edge(visit, run)


def _read_quarantine_reason(reason: str) -> str:
    try:
        return str(QuarantineReason(reason))
    except ValueError:
        known = ", ".join(QuarantineReason)
        raise Malformed("not_one_of", "reason", f"a reason is one of {known}") from None


def _proposed(house: House, name: str, upto: int | None) -> tuple[str, Kept]:
    """Return the spans that are to be kept from a sink: from the first that it lacks on.

    Raises:
        RefusedError: there is no such sink, its kind has no gaps, it cannot say how far it is, or it lacks nothing.
        Malformed: `upto` is none of the spans that it lacks, or too far.
    """
    placed, version, kept, head = house.ledger.read(
        lambda view: (tuple(view.sinks()), sinks_version(view), kept_back(view), view.head().sequence)
    )
    registration = next((sink for sink in placed if sink.name == name), None)
    if registration is None:
        say = "The ledger has no sink of that name."
        raise RefusedError(RefusalCode.UNKNOWN_REFERENCE, field="sink", say=say)
    if not is_carried(registration):
        raise RefusedError(RefusalCode.UNSUPPORTED, field="sink", say=_NO_GAPS)
    first = 1 + _reached(house, registration)
    for before in kept.get(name, ()):
        first = before.last + 1 if before.first <= first <= before.last else first
    if first > head:
        say = "The sink has every span already, so none has to be kept from it."
        raise RefusedError(RefusalCode.NOTHING_TO_CHANGE, field="sink", say=say)
    last = first if upto is None else upto
    if not first <= last <= min(head, first + KEPT_SPANS_MAX - 1):
        says = f"spans from {first} on can be kept from it, at most {KEPT_SPANS_MAX} and none after {head}"
        raise Malformed("out_of_range", "upto", says)
    return version, Kept(first=first, last=last)


def _reached(house: House, registration: SinkRegistration) -> int:
    sink = looked_sink(registration, house.ledger.ledger_id)
    try:
        found = sink.reached(LedgerSpans(house.ledger)) if isinstance(sink, Reaching) else None
    except (SinkAhead, SinkUnavailable) as fault:
        raise refusal(registration.name, fault.message) from None
    finally:
        sink.close()
    if found is None:
        raise refusal(registration.name, "The sink does not say how far it has come.")
    return found
