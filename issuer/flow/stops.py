"""What owners and operators stopped: read under the lock at every step that gives or uses authority.

Rules: ADM-05 (a stop is a transition of its own, before or after each admission, never beside it), ADM-01 and POL-05
(revocations are asked at request, approval and admission, and once more just before sending), BUD-06 (what is void
gives its slots back). Two things are told apart:
  1. *void*: prepared no later than its name was revoked, or approved with a revoked key. For good: no thaw revives it
  2. *stopped*: its name is frozen, or revoked and not thawed. What is not void can go on after a thaw.
Each ruling is read by its key and proven by the head's register, so that a missing one is no removed one (LED-06).
Next: `issuer.flow.admit` and `issuer.flow.dispatch` ask; `issuer.commands.revoking` makes the rulings.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from issuer.flow import spans
from issuer.flow.content import erase_content
from issuer.house import House, Visit
from ledger.authority import NOTHING_VOID, Ruling, RulingKind, Stop, StopKind, stop_name
from ledger.changes import EffectMoved, Step
from ledger.model import Effect, InstantMs
from ledger.port import Verdict, View
from ledger.refusals import Refusal, RefusalCode
from ledger.states import PENDING, UNRESOLVED, EffectState
from ledger.transitions import TransitionName
from policies import Directory

VOIDED_MAX: Final = 64
"""How many effects one transaction moves to `revoked`; the next goes on with the rest."""

_BY_HOST: Final = stop_name(StopKind.HOST, "")
"""How the caller of an effect begins that a host asked for, and so the name of a stop of that host."""

VOID: Final = "void"
"""The reason of an effect's end where a sweep, and not the command itself, found it void."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Concern:
    """One ruling that can concern an effect: its name, and whether the effect's own caller may read that name."""

    kind: RulingKind
    name: str
    is_own: bool = True

    def refusal(self, code: RefusalCode) -> Refusal:
        """Return the no: what kind of name stopped it; and which, unless it is that of somebody else (SEC-04)."""
        field = self.name.partition(":")[0] if self.kind is RulingKind.STOP else str(self.kind)
        return Refusal(code=code, field=field, level=self.name if self.is_own else None)


def _concerns(view: View, house: House, effect: Effect) -> Iterator[_Concern]:
    """Give every ruling that can concern an effect, the widest first; those about its approvers last."""
    own = [
        stop_name(StopKind.ALL, ""),
        stop_name(StopKind.CLASS, effect.action_class),
        stop_name(StopKind.OPERATION, effect.operation),
        *([effect.caller] if effect.caller.startswith(_BY_HOST) else []),
        *([] if ":" in effect.caller else [stop_name(StopKind.PERSON, effect.caller)]),
        stop_name(StopKind.ACTOR, effect.actor),
        stop_name(StopKind.PERSON, effect.subject),
    ]
    yield from (_Concern(kind=RulingKind.STOP, name=name) for name in own)
    actor = house.profile.actors.get(effect.actor)
    others = [] if actor is None else [actor.answers_to]
    given = view.approvals(effect.effect_id)
    for person in dict.fromkeys([*others, *(approval.person for approval in given)]):
        if person != effect.subject:
            yield _Concern(kind=RulingKind.STOP, name=stop_name(StopKind.PERSON, person), is_own=False)
    for key in dict.fromkeys(approval.key for approval in given):
        yield _Concern(kind=RulingKind.KEY, name=key, is_own=False)


def _is_void(ruling: Ruling, effect: Effect) -> bool:
    if ruling.kind is RulingKind.KEY:
        return True
    return effect.prepared_ms <= ruling.voids_until_ms


def refuse_stopped(view: View, house: House, effect: Effect) -> Refusal | None:
    """Refuse what is void for good as `revoked`, else what is stopped for now as `suspended` (ADM-05).

    `effect` may be one that is not stored yet. `field` is the kind of name; `level` the name, where it is one that
    the caller gave itself.

    Raises:
        LedgerCorrupt: a ruling is not the latest of its name, or was removed (LED-06).
    """
    stopped: Refusal | None = None
    for concern in _concerns(view, house, effect):
        ruling = view.ruling(concern.kind, concern.name)
        if ruling is None:
            continue
        if _is_void(ruling, effect):
            return concern.refusal(RefusalCode.REVOKED)
        if ruling.value != Stop.OPEN and stopped is None:
            stopped = concern.refusal(RefusalCode.SUSPENDED)
    return stopped


def refuse_before_reading(view: View, names: Mapping[StopKind, str]) -> Refusal | None:
    """Refuse an ask that is stopped before a service is read for it (EFF-06); the decision asks again, of more."""
    for kind, name in {StopKind.ALL: "", **names}.items():
        concern = _Concern(kind=RulingKind.STOP, name=stop_name(kind, name))
        ruling = view.ruling(concern.kind, concern.name)
        if ruling is not None and ruling.value != Stop.OPEN:
            return concern.refusal(RefusalCode.SUSPENDED)
    return None


def stops_on(view: View, house: House, effect: Effect) -> list[str]:
    """Return what stops an effect that is pending, for whoever looks: names, of somebody else's the kind alone."""
    if effect.state not in PENDING:
        return []
    found = []
    for concern in _concerns(view, house, effect):
        ruling = view.ruling(concern.kind, concern.name)
        if ruling is not None and (_is_void(ruling, effect) or ruling.value != Stop.OPEN):
            no = concern.refusal(RefusalCode.SUSPENDED)
            found.append(no.level or str(no.field))
    return list(dict.fromkeys(found))


def void_by(view: View, house: House, effect: Effect) -> str | None:
    """Return the name that makes an effect void for good, as its span says it (`permit.stop`); None for none."""
    for concern in _concerns(view, house, effect):
        ruling = view.ruling(concern.kind, concern.name)
        if ruling is not None and _is_void(ruling, effect):
            return concern.name if concern.kind is RulingKind.STOP else f"{concern.kind}:{concern.name}"
    return None


def revoked_step(visit: Visit, effect: Effect, *, reason: str, stop: str | None = None) -> Step:
    """Return the step that ends a pending effect as revoked; its slots and bounds come back with it (BUD-06)."""
    said = {"reason": reason} if stop is None else {"reason": reason, "stop": stop}
    transition = spans.moved(visit, effect, EffectState.REVOKED, **said)
    moved = EffectMoved(effect_id=effect.effect_id, origin=effect.state, target=EffectState.REVOKED)
    return Step(transition=transition, changes=(moved,))


def revoked_late_step(visit: Visit, effect: Effect, *, reason: str) -> Step:
    """Return the step that says that a revocation came after the admission; no state moves (ADM-05)."""
    transition = spans.beside(visit, TransitionName.EFFECT_REVOKED_LATE, effect, reason=reason)
    return Step(transition=transition)


def concerned(view: View, house: House, stop: str) -> tuple[list[Effect], list[Effect]]:
    """Return the effects that a stop of this name concerns: the pending ones, and those that may have been sent."""

    def of(states: frozenset[EffectState]) -> list[Effect]:
        return [
            effect
            for effect in view.effects(states=tuple(sorted(states)))
            if any(one.kind is RulingKind.STOP and one.name == stop for one in _concerns(view, house, effect))
        ]

    return of(PENDING), of(UNRESOLVED)


Why = Callable[[View, Effect], str | None]
"""Says under the lock by which name an effect is void, or None where it is not."""


def end_revoked(visit: Visit, effects: Sequence[Effect], *, reason: str, why: Why) -> list[Effect]:
    """Move those of `effects` that are pending and void to `revoked`, `VOIDED_MAX` a transaction; return them.

    What was found before the lock is looked at again under it. A kill in between leaves the rest as void as it was.

    Raises:
        Fault: as `ledger.port.Ledger.transact`; what was not moved is as void as it was.
    """
    moved: list[Effect] = []
    for start in range(0, len(effects), VOIDED_MAX):
        batch = effects[start : start + VOIDED_MAX]

        def decide(view: View, _now: InstantMs, batch: Sequence[Effect] = batch) -> Verdict[list[Effect]]:
            steps, over = [], []
            for found in batch:
                effect = view.effect(found.effect_id)
                if effect is None or effect.state not in PENDING:
                    continue
                stop = why(view, effect)
                if stop is not None:
                    steps.append(revoked_step(visit, effect, reason=reason, stop=stop))
                    over.append(effect)
            return Verdict(value=over, steps=tuple(steps))

        # It follows from a ruling that stands already, whichever revision is in force by now.
        moved += visit.house.ledger.record(decide).value
    erase_content(visit.house, moved)
    return moved


def end_void(visit: Visit, effects: Sequence[Effect], *, reason: str) -> list[Effect]:
    """Move those of `effects` that a ruling makes void to `revoked`, as `end_revoked` does."""
    return end_revoked(
        visit, effects, reason=reason, why=lambda view, effect: void_by(view, visit.house, effect)
    )


def sweep_void(visit: Visit) -> int:
    """Move what a revocation left void to `revoked`, at most `VOIDED_MAX`; return how many.

    The command that revokes does it all; this is for one that was ended in between. A process looks at the pending
    effects once for each revocation: none can become void by it later.

    Raises:
        Fault: as `ledger.port.Ledger.transact`; then nothing changed.
    """
    house = visit.house
    voiding = {
        (ruling.kind, ruling.name): ruling
        for ruling in house.ledger.read(_voiding)
        if (ruling.ruling_id, ruling.since_ms) not in house.voids_swept
    }
    if not voiding:
        return 0

    def look(view: View) -> list[Effect]:
        return [
            effect
            for effect in view.effects(states=tuple(sorted(PENDING)))
            if any(
                (found := voiding.get((one.kind, one.name))) is not None and _is_void(found, effect)
                for one in _concerns(view, house, effect)
            )
        ]

    void = house.ledger.read(look)
    moved = end_void(visit, void[:VOIDED_MAX], reason=VOID)
    if len(void) <= VOIDED_MAX:
        house.voids_swept.update((ruling.ruling_id, ruling.since_ms) for ruling in voiding.values())
    return len(moved)


def _voiding(view: View) -> list[Ruling]:
    stops = [one for one in view.rulings(RulingKind.STOP) if one.voids_until_ms > NOTHING_VOID]
    return [*stops, *view.rulings(RulingKind.KEY)]


def suspended_names(view: View) -> frozenset[tuple[StopKind, str]]:
    """Return the people and actors that are stopped: what policies see as `suspended`."""
    found = set()
    for ruling in view.rulings(RulingKind.STOP):
        kind, _colon, name = ruling.name.partition(":")
        if kind in {StopKind.PERSON, StopKind.ACTOR} and ruling.value != Stop.OPEN:
            found.add((StopKind(kind), name))
    return frozenset(found)


def directory_now(house: House, view: View) -> Directory:
    """Return who exists, as policies see it now: with everybody that is stopped suspended.

    What policies make of it is theirs: `refuse_stopped` stops an effect by itself.
    """
    suspended = suspended_names(view)
    return _suspending(house.directory, suspended) if suspended else house.directory


@functools.lru_cache(maxsize=8)
def _suspending(directory: Directory, suspended: frozenset[tuple[StopKind, str]]) -> Directory:
    people = tuple(
        replace(one, suspended=(StopKind.PERSON, one.name) in suspended) for one in directory.people
    )
    actors = tuple(
        replace(one, suspended=(StopKind.ACTOR, one.name) in suspended) for one in directory.actors
    )
    return replace(directory, people=people, actors=actors)
