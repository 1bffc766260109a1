"""`freeze` and `thaw`: what an owner or operator holds up, and takes back; a suspension is the freeze of one name.

Rules: ADM-05 (the ruling is a transition of its own: from it on nothing of that name is admitted), BUD-05 (permits stay
as they are), POL-05, SEC-02, AUD-01. A thaw revives nothing that a revocation voided.
Next: `issuer.flow.stops`, which every step asks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from issuer import answering
from issuer.commands.edge import at_the_edge
from issuer.commands.stop_words import (
    TASK,
    demand_name,
    demand_person,
    late_rows,
    late_say,
    noted,
    read_kind,
    read_reason,
    read_stop,
    ruling_step,
)
from issuer.commands.task_changes import task_freeze, task_thaw
from issuer.flow import spans
from issuer.flow.signed_act import acting
from issuer.flow.stops import concerned
from issuer.house import Visit
from issuer.notifying import tell_frozen
from issuer.wire import Answer
from ledger.authority import NOTHING_VOID, Ruling, RulingKind, Stop, StopKind
from ledger.changes import Step
from ledger.model import Effect, InstantMs
from ledger.port import Verdict, View
from ledger.refusals import Refusal, RefusalCode
from ledger.states import EffectState
from ledger.transitions import TransitionName

_SUSPENDED: Final = (str(StopKind.PERSON), str(StopKind.ACTOR))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turned:
    """What a ruling met: effects that may have been sent, and what else is stopped."""

    sent: list[Effect] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)


def stopped_names(view: View) -> list[str]:
    """Return the names of everything that is stopped now, such as `all` and `actor:NAME`."""
    return [one.name for one in view.rulings(RulingKind.STOP) if one.value != Stop.OPEN]


def freeze(visit: Visit, kind: str = "all", name: str | None = None, *, reason: str = "other") -> Answer:
    """Freeze everything, or one name or task: nothing of it is issued, approved or admitted until it is thawed."""
    return _turned(visit, kind, name, reason, Stop.FROZEN)


def thaw(visit: Visit, kind: str = "all", name: str | None = None, *, reason: str = "other") -> Answer:
    """Take a freeze back, or let new effects be made of what was revoked; what was void stays void."""
    return _turned(visit, kind, name, reason, Stop.OPEN)


def suspend(visit: Visit, kind: str, name: str, *, reason: str = "other") -> Answer:
    """Suspend a person or an actor: the freeze of that name."""
    return _turned(visit, kind, name, reason, Stop.FROZEN, kinds=_SUSPENDED)


def resume(visit: Visit, kind: str, name: str, *, reason: str = "other") -> Answer:
    """Take the suspension of a person or an actor back: the thaw of that name."""
    return _turned(visit, kind, name, reason, Stop.OPEN, kinds=_SUSPENDED)


def _turned(
    visit: Visit,
    kind: str,
    name: str | None,
    reason: str,
    value: Stop,
    *,
    kinds: Sequence[str] = (TASK, *StopKind),
) -> Answer:
    def run() -> Answer:
        demand_person(visit)
        read, why = read_kind(kind, kinds), read_reason(reason)
        if not isinstance(read, StopKind):
            of_task = task_freeze if value is Stop.FROZEN else task_thaw
            return of_task(visit, demand_name(TASK, name))
        return _ruled(visit, read_stop(visit.house, read, name), why, value)

    return at_the_edge(visit, run)


def _ruled(visit: Visit, stop: str, reason: str, value: Stop) -> Answer:
    house = visit.house
    is_freeze = value is Stop.FROZEN

    def decide(view: View, now: InstantMs) -> Verdict[_Turned]:
        before = view.ruling(RulingKind.STOP, stop)
        is_open = before is None or before.value == Stop.OPEN
        if is_open is not is_freeze:
            no = Refusal(code=RefusalCode.NOTHING_TO_CHANGE, level=stop)
            step = Step(transition=spans.refused(visit, no, stop=stop))
            return Verdict(value=_Turned(), refusal=no, steps=(step,))
        ruling = Ruling(
            kind=RulingKind.STOP,
            name=stop,
            value=str(value),
            since_ms=now,
            # What was void stays void, whatever is frozen and thawed afterwards.
            voids_until_ms=NOTHING_VOID if before is None else before.voids_until_ms,
        )
        transition = TransitionName.STOP_FROZEN if is_freeze else TransitionName.STOP_THAWED
        step = ruling_step(visit, transition, ruling, {"stop": stop, "reason": reason})
        sent = concerned(view, house, stop)[1] if is_freeze else []
        still = [one for one in stopped_names(view) if one != stop]
        return Verdict(value=_Turned(sent=sent, stopped=still), steps=(step,))

    committed = house.ledger.transact(acting(visit, decide))
    if committed.refusal is not None:
        return answering.refused(house, committed.refusal)
    if is_freeze:
        tell_frozen(house, stop)
    turned = committed.value
    code = "suspended_now" if is_freeze else "resumed"
    open_ones = [one for one in turned.sent if one.state is EffectState.ADMITTED]
    parts = [answering.say_of(code), late_say(open_ones), noted(house, committed.sequence)]
    if not is_freeze and turned.stopped:
        parts.append(f"Still stopped: {', '.join(turned.stopped)}.")
    more: dict[str, object] = {"stop": stop, **(late_rows(open_ones) if is_freeze else {})}
    more["stopped"] = [*([stop] if is_freeze else []), *turned.stopped]
    return answering.about(house, code, say=" ".join(part for part in parts if part), more=more)
