"""`revoke`: what an owner or operator voids for good: a permit, an approval, a task, a name, a key, or everything.

Rules: ADM-05 (before or after each admission, by the ledger's lock; afterwards `too_late`, and the effect keeps its
real outcome), BUD-05, BUD-06 (slots come back), SEC-02 (no agent revokes), AUD-01. In order:
  1. under the lock: the ruling, the closed task or the effect's end, with its span; from here on it admits nothing
  2. what is pending and void ends as `revoked`, batch by batch; what may have been sent is named as too late.
A kill between the two leaves the rest void; `issuer.flow.stops.sweep_void` goes on with it.
Next: `issuer.flow.stops`, which every step asks.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from issuer import answering
from issuer.commands.edge import at_the_edge
from issuer.commands.stop_words import (
    SHOWN_MAX,
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
from issuer.flow import spans
from issuer.flow.content import erase_content
from issuer.flow.reference import effect_reference
from issuer.flow.refusing import RefusedError, collected_since, unknown_name
from issuer.flow.signed_act import acting
from issuer.flow.stops import (
    Why,
    concerned,
    end_revoked,
    revoked_late_step,
    revoked_step,
    void_by,
)
from issuer.house import House, Visit
from issuer.wire import Answer
from ledger.authority import NOTHING_VOID, Ruling, RulingKind, Stop, StopKind
from ledger.changes import Step, TaskMoved
from ledger.model import PERMIT_ID_PATTERN, Effect, InstantMs, PermitId, TaskState
from ledger.port import Verdict, View
from ledger.refusals import Refusal, RefusalCode
from ledger.states import PENDING, UNRESOLVED, UNUSED
from ledger.transitions import AttributeValue, TransitionName

REVOKED: Final = str(Stop.REVOKED)
"""What a credential's or key's ruling says where it counts no more."""

_FINGERPRINT: Final = re.compile(r"SHA256:[A-Za-z0-9+/]{43}\Z")
_CREDENTIAL_OF: Final = frozenset({StopKind.HOST, StopKind.ACTOR, StopKind.PERSON})


class RevokeKind(StrEnum):
    """What can be revoked beside the names of `StopKind`."""

    PERMIT = "permit"
    EFFECT = "effect"
    APPROVAL = "approval"
    TASK = TASK
    KEY = "key"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Met:
    """What a revocation met under the lock: effects to end, and effects that may have been sent."""

    pending: Sequence[Effect] = field(default_factory=list)
    sent: Sequence[Effect] = field(default_factory=list)


def revoke(
    visit: Visit, kind: str, name: str | None = None, person: str | None = None, *, reason: str = "other"
) -> Answer:
    """Revoke something for good.

    `kind` is one of `RevokeKind` or `StopKind`; `name` an id, a name, or a key's fingerprint or its person; `person`
    whose yes an `approval` is. Answers how many effects it ended, and names those that it came too late for.
    """

    def run() -> Answer:
        demand_person(visit)
        read, why = read_kind(kind, (*RevokeKind, *StopKind)), read_reason(reason)
        if isinstance(read, StopKind):
            return _named(visit, read, name, why)
        match RevokeKind(read):
            case RevokeKind.TASK:
                return _task(visit, demand_name(kind, name), why)
            case RevokeKind.KEY:
                return _key(visit, demand_name(kind, name), why)
            case RevokeKind.APPROVAL:
                whose = demand_name("person", person)
                return _effect(visit, demand_name(kind, name), why, approver=whose)
            case RevokeKind.PERMIT | RevokeKind.EFFECT:
                return _effect(visit, demand_name(kind, name), why)

    return at_the_edge(visit, run)


# ------------------------------------------------------------------------------------ one effect


def _found(visit: Visit, text: str) -> Effect:
    """Return the effect of an effect's or permit's id, whoever's it is: a person who may revoke may revoke any.

    Raises:
        RefusedError: `not_found` or `collected`.
    """

    def look(view: View) -> Effect | None:
        if PERMIT_ID_PATTERN.match(text):
            return view.effect_permitted(PermitId(text))
        effect_id = effect_reference(text)
        return None if effect_id is None else view.effect(effect_id)

    effect = visit.house.ledger.read(look)
    if effect is not None:
        return effect
    effect_id = effect_reference(text)
    gone = None if effect_id is None else visit.house.ledger.read(lambda view: view.tombstone(effect_id))
    raise RefusedError(RefusalCode.NOT_FOUND if gone is None else RefusalCode.COLLECTED, tombstone=gone)


def _effect(visit: Visit, text: str, reason: str, *, approver: str | None = None) -> Answer:
    """End one pending effect; of one that was admitted, say that it is too late."""
    house, found = visit.house, _found(visit, text)

    def decide(view: View, _now: InstantMs) -> Verdict[Effect]:
        effect = view.effect(found.effect_id)
        if effect is None:
            return _no(visit, collected_since(view, found), RefusalCode.COLLECTED)
        given = {one.person for one in view.approvals(effect.effect_id)}
        if approver is not None and approver not in given:
            return _no(visit, effect, RefusalCode.UNKNOWN_REFERENCE, field="person")
        if effect.state in PENDING:
            return Verdict(value=effect, steps=(revoked_step(visit, effect, reason=reason),))
        if effect.state in UNUSED:
            return _no(visit, effect, RefusalCode.NOTHING_TO_CHANGE)
        too_late = _no(visit, effect, RefusalCode.TOO_LATE)
        if effect.state not in UNRESOLVED or view.was_revoked_late(effect.effect_id):
            return too_late
        late = revoked_late_step(visit, effect, reason=reason)
        return Verdict(value=effect, refusal=too_late.refusal, steps=(late, *too_late.steps))

    committed = house.ledger.transact(acting(visit, decide))
    unnoted = noted(house, committed.sequence)
    if committed.refusal is not None:
        say = (
            "That person has given no approval of it."
            if committed.refusal.code is RefusalCode.UNKNOWN_REFERENCE
            else ""
        )
        return answering.refused(house, committed.refusal, committed.value, say=say)
    erase_content(house, (committed.value,))
    over = house.ledger.read(lambda view: view.effect(found.effect_id)) or committed.value
    say = f"It is revoked; nothing of it was sent. {unnoted}".strip()
    return answering.about(house, "revoked_now", over, say=say, more=_ended([over]))


def _no(visit: Visit, effect: Effect, code: RefusalCode, *, field: str | None = None) -> Verdict[Effect]:
    no = Refusal(code=code, field=field)
    return Verdict(
        value=effect, refusal=no, steps=(Step(transition=spans.refused(visit, no, effect=effect)),)
    )


# ------------------------------------------------------------------------------------ a name, a key, a task


def _named(visit: Visit, kind: StopKind, name: str | None, reason: str) -> Answer:
    house, stop = visit.house, read_stop(visit.house, kind, name)

    def decide(view: View, now: InstantMs) -> Verdict[_Met]:
        pending, sent = concerned(view, house, stop)
        met = _Met(pending=pending, sent=sent)
        before = view.ruling(RulingKind.STOP, stop)
        if before is not None and before.value == Stop.REVOKED:
            return _nothing(visit, met, stop)
        # Instants of an accepted clock may lie ahead: all that was prepared is void, whenever that was said to be.
        kept = NOTHING_VOID if before is None else before.voids_until_ms
        until = max([now, kept, *(effect.prepared_ms for effect in (*pending, *sent))])
        ruling = Ruling(
            kind=RulingKind.STOP, name=stop, value=REVOKED, since_ms=now, voids_until_ms=InstantMs(until)
        )
        said: dict[str, AttributeValue] = {"stop": stop, "reason": reason, "count": len(pending)}
        steps = [ruling_step(visit, TransitionName.STOP_REVOKED, ruling, said)]
        token = view.ruling(RulingKind.TOKEN, stop) if kind in _CREDENTIAL_OF else None
        if token is not None and token.value != REVOKED:
            gone = Ruling(kind=RulingKind.TOKEN, name=stop, value=REVOKED, since_ms=now)
            about: dict[str, AttributeValue] = {"credential": stop, "reason": reason}
            steps.append(ruling_step(visit, TransitionName.CREDENTIAL_REVOKED, gone, about))
        return Verdict(value=met, steps=tuple(steps))

    return _carried_out(visit, decide, stop, reason, lambda view, effect: void_by(view, house, effect))


def _key(visit: Visit, name: str, reason: str) -> Answer:
    """Revoke one key by its fingerprint, or every key of a person: those registered, and those that signed."""
    house = visit.house
    if _FINGERPRINT.match(name) is None and name not in house.profile.people:
        say = "A key is named by its fingerprint (SHA256:...), or by its person."
        raise unknown_name(house, "key", name, house.profile.people, say=say)

    def decide(view: View, now: InstantMs) -> Verdict[_Met]:
        keys = [name] if _FINGERPRINT.match(name) else _keys_of(house, view, name)
        new = [key for key in keys if view.ruling(RulingKind.KEY, key) is None]
        effects = view.effects(states=tuple(sorted(PENDING | UNRESOLVED)))
        by = [one for one in effects if any(each.key in keys for each in view.approvals(one.effect_id))]
        met = _Met(
            pending=[one for one in by if one.state in PENDING],
            sent=[one for one in by if one.state in UNRESOLVED],
        )
        if not new:
            return _nothing(visit, met, f"key:{name}")
        steps = []
        for key in new:
            ruling = Ruling(kind=RulingKind.KEY, name=key, value=REVOKED, since_ms=now)
            said: dict[str, AttributeValue] = {
                "stop": f"key:{key}",
                "reason": reason,
                "count": len(met.pending),
            }
            steps.append(ruling_step(visit, TransitionName.STOP_REVOKED, ruling, said))
        return Verdict(value=met, steps=tuple(steps))

    stop = f"key:{name}"
    return _carried_out(visit, decide, stop, reason, lambda view, effect: void_by(view, house, effect))


def _keys_of(house: House, view: View, person: str) -> list[str]:
    registered = [key.fingerprint for key in house.profile.keys.get(person, ())]
    pending = view.effects(states=tuple(sorted(PENDING | UNRESOLVED)))
    given = [one for effect in pending for one in view.approvals(effect.effect_id)]
    return sorted({*registered, *(one.key for one in given if one.person == person)})


def _task(visit: Visit, name: str, reason: str) -> Answer:
    """Close a task for good, and end what is pending in it and below."""
    house, stop = visit.house, f"{TASK}:{name}"
    known = house.ledger.read(lambda view: [task.name for task in view.tasks()])
    if name not in known:
        raise unknown_name(house, TASK, name, known, say="There is no task of that name.")

    def decide(view: View, _now: InstantMs) -> Verdict[_Met]:
        task = view.task_named(name)
        if task is None:
            no = Refusal(code=RefusalCode.UNKNOWN_REFERENCE, field=TASK)
            return Verdict(value=_Met(), refusal=no, steps=(Step(transition=spans.refused(visit, no)),))
        below = _below(view, task.task_id)
        effects = view.effects(states=tuple(sorted(PENDING | UNRESOLVED)))
        within = [one for one in effects if one.task_id in below]
        met = _Met(
            pending=[one for one in within if one.state in PENDING],
            sent=[one for one in within if one.state in UNRESOLVED],
        )
        if task.state is TaskState.CLOSED:
            # One that was closed, or whose revocation was ended in between: what is left in it is void from here on.
            return Verdict(value=met) if met.pending else _nothing(visit, met, stop)
        closed = spans.of_task(visit, TransitionName.TASK_CLOSED, task, reason=reason)
        moved = TaskMoved(task_id=task.task_id, state=TaskState.CLOSED)
        return Verdict(value=met, steps=(Step(transition=closed, changes=(moved,)),))

    def why(view: View, effect: Effect) -> str | None:
        path = view.path(effect.task_id)
        return stop if any(node.task.name == name for node in path) else None

    return _carried_out(visit, decide, stop, reason, why)


def _below(view: View, task_id: str) -> set[str]:
    """Return the ids of a task and of all below it."""
    found = {task_id}
    for task in sorted(view.tasks(), key=lambda one: one.depth):
        if task.parent_id in found:
            found.add(task.task_id)
    return found


def _nothing(visit: Visit, met: _Met, stop: str) -> Verdict[_Met]:
    no = Refusal(code=RefusalCode.NOTHING_TO_CHANGE, level=stop)
    return Verdict(value=met, refusal=no, steps=(Step(transition=spans.refused(visit, no)),))


def _carried_out(
    visit: Visit, decide: Callable[[View, InstantMs], Verdict[_Met]], stop: str, reason: str, why: Why
) -> Answer:
    """Do 1, then 2, and answer; what an earlier revocation left is ended as well."""
    house = visit.house
    committed = house.ledger.transact(acting(visit, decide))  # 1
    met = committed.value
    over = end_revoked(visit, met.pending, reason=reason, why=why)  # 2
    if committed.refusal is not None:
        return answering.refused(house, committed.refusal)
    count = len(over)
    ended = (
        "1 effect that was pending is void." if count == 1 else f"{count} effects that were pending are void."
    )
    noted_say = noted(house, house.ledger.read(lambda view: view.head()).sequence)
    parts = (answering.say_of("revoked_now"), ended, late_say(met.sent), noted_say)
    say = " ".join(part for part in parts if part)
    more = {"stop": stop, **_ended(over), **late_rows(met.sent)}
    return answering.about(house, "revoked_now", say=say, more=more)


def _ended(effects: Sequence[Effect]) -> dict[str, object]:
    return {"voided": len(effects), "effects": [one.effect_id for one in effects[:SHOWN_MAX]]}
