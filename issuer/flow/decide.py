"""Step 3 of 8: decide. May this effect happen without a person, with a person's yes, or not at all?

Rules: POL-01 to POL-06. Facts are read under the ledger's lock, so that decision and counters are one story; the
effect that is decided never counts itself. The class bounds close the automatic tier and leave the other to policy;
they are asked at admission as well, as the owner has them then.
Cedar itself is asked in `policies`; here it is told what the core knows, and its answer becomes a record.
Next: step 4, `issuer.flow.issue`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from issuer.clock import LocalTime, local_time
from issuer.flow.binding import Pinned
from issuer.flow.stops import directory_now
from issuer.house import House, Locked
from issuer.operations.registry import Operation
from issuer.profile import ActionClass
from ledger.budgets import remaining
from ledger.canonical import canonical_bytes
from ledger.model import CounterTake, DecisionRow, Effect, PathNode, Repetition, plain
from ledger.port import View
from ledger.refusals import Refusal, RefusalCode
from ledger.rules import refuse_takes
from ledger.states import PENDING, UNRESOLVED
from policies import (
    UNBOUNDED,
    ActDecision,
    ClockFact,
    Decision,
    Earlier,
    Facts,
    FactsRefused,
    Limits,
    TaskFact,
    Usage,
    undecided,
)
from policies import decide as decide_by_policy

DECISION_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What was decided about an effect.

    Attributes:
        decision: the policies' answer, with the automatic tier closed where a bound of the class is used up.
        takes: what an automatic permit takes from the bounds of its class; empty for the approval tier.
        exhausted: the bound that closed the automatic tier, or None.
        row: the record (POL-06).
    """

    decision: Decision
    takes: tuple[CounterTake, ...]
    exhausted: Refusal | None
    row: DecisionRow


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counted:
    """How an effect stands to what is counted: the owner's wall clock, and how far it is in the counts itself.

    `own` is what its permit took, by counter; of a day's bound that is its own day's, also after midnight.
    """

    local: LocalTime
    stored: bool
    own: Mapping[str, int]


def class_takes(
    bounds: ActionClass, effect: Effect, path: tuple[PathNode, ...], day: str
) -> tuple[CounterTake, ...]:
    """Return what one automatic permit takes from each declared bound of its class (POL-03)."""
    name = effect.action_class
    takes: list[CounterTake] = []
    if bounds.per_task is not None:
        counter = f"task|{name}|{effect.task_id}"
        level = path[0].task.name
        takes.append(CounterTake(counter=counter, amount=1, ceiling=bounds.per_task.permits, level=level))
    if bounds.per_root is not None:
        counter = f"root|{name}|{effect.root_id}"
        level = path[-1].task.name
        takes.append(CounterTake(counter=counter, amount=1, ceiling=bounds.per_root.permits, level=level))
    for unit, ceiling in bounds.per_day.items():
        amount = 1 if unit == "permits" else effect.cost.get(unit, 0)  # type: ignore[call-overload]
        takes.append(
            CounterTake(counter=f"day|{name}|{day}|{unit}", amount=amount, ceiling=ceiling, level=day)
        )
    return tuple(takes)


def _outside_class(operation: Operation, effect: Effect) -> Refusal | None:
    """Return why the class, as the owner has it now, gives no automatic permit for `effect` alone (POL-03)."""
    if not operation.bounds.automatic:
        return Refusal(code=RefusalCode.CLASS_EXHAUSTED, level=operation.action_class)
    for unit, amount in effect.cost.items():
        if amount > operation.bounds.each.get(unit, 0):
            return Refusal(code=RefusalCode.CLASS_EXHAUSTED, field=unit, level=operation.action_class)
    return None


def _others(counted: Repetition, effect: Effect, *, stored: bool) -> Repetition:
    """Leave the effect itself out of a count of effects (POL-02)."""
    if not stored:
        return counted
    return Repetition(
        pending=counted.pending - (effect.state in PENDING),
        unresolved=counted.unresolved - (effect.state in UNRESOLVED),
        succeeded=counted.succeeded,
    )


def _earlier(view: View, effect: Effect, *, stored: bool) -> Earlier:
    content = _others(view.repetition_of_content(effect.content_key), effect, stored=stored)
    resource = _others(view.repetition_of_resource(effect.resource_key), effect, stored=stored)
    return Earlier(
        same_payload_pending=content.pending,
        same_payload_unresolved=content.unresolved,
        same_payload_succeeded=content.succeeded,
        same_resource_pending=resource.pending,
        same_resource_unresolved=resource.unresolved,
        same_resource_succeeded=resource.succeeded,
    )


def _usage(view: View, operation: Operation, effect: Effect, counted: _Counted) -> Usage:
    """Count the class's automatic permits, this effect's own left out where it has one."""
    name, day = operation.action_class, counted.local.day
    return Usage(
        task_permits=_used(view, f"task|{name}|{effect.task_id}", counted.own),
        root_permits=_used(view, f"root|{name}|{effect.root_id}", counted.own),
        day_permits=_used(view, f"day|{name}|{day}|permits", counted.own),
    )


def _used(view: View, counter: str, own: Mapping[str, int]) -> int:
    """Return what others have taken from a counter."""
    return max(0, view.counter(counter) - own.get(counter, 0))


def _limits(operation: Operation) -> Limits:
    bounds = operation.bounds
    per_day = bounds.permits_per_day
    return Limits(
        task_permits=UNBOUNDED if bounds.per_task is None else bounds.per_task.permits,
        root_permits=UNBOUNDED if bounds.per_root is None else bounds.per_root.permits,
        day_permits=UNBOUNDED if per_day is None else per_day,
        lifetime_s=bounds.lifetime_ms // 1000,
    )


def _facts(house: House, pinned: Pinned, effect: Effect, locked: Locked, counted: _Counted) -> Facts:
    operation = pinned.operation
    visible = {
        field.name: pinned.values[field.name] for field in operation.fields if field.exposure != "secret"
    }
    local = counted.local
    return Facts(
        actor=effect.actor,
        subject=effect.subject,
        operation=operation.name,
        action_class=operation.action_class,
        resource_type=operation.resource_type,
        resource_id=pinned.resource_id,
        attributes={**visible, **pinned.preparation.facts},
        cost=plain(effect.cost),
        remaining=plain(remaining(locked.path, house.units)),
        recipients=pinned.recipients,
        tasks=tuple(
            TaskFact(
                name=node.task.name,
                task_id=node.task.task_id,
                subject=node.task.subject,
                depth=node.task.depth,
                expires_ms=node.task.expires_ms,
            )
            for node in locked.path
        ),
        earlier=_earlier(locked.view, effect, stored=counted.stored),
        usage=_usage(locked.view, operation, effect, counted),
        limits=_limits(operation),
        clock=ClockFact(now_ms=locked.now, minute_of_day=local.minute_of_day, weekday=local.weekday),
    )


def decide(
    house: House, pinned: Pinned, effect: Effect, locked: Locked, *, stored: bool, taken: bool
) -> Decided:
    """Decide about `effect` on what the lock holds still.

    `stored` says that the ledger already has the effect, `taken` that it has already taken from its class bounds;
    both are left out of what it is measured against, and what it took of a day stays in the day of its issue.
    Facts that cannot be stated deny as `policy_error`.
    """
    local = local_time(locked.now, house.profile.timezone)
    permit = locked.view.permit(effect.effect_id) if taken else None
    issued = local if permit is None else local_time(permit.issued_ms, house.profile.timezone)
    own = {} if permit is None else locked.view.takes(effect.effect_id)
    counted = _Counted(local=local, stored=stored, own=own)
    facts: Facts | None = None
    try:
        facts = _facts(house, pinned, effect, locked, counted)
        decision = decide_by_policy(house.bundle, directory_now(house, locked.view), facts)
    except FactsRefused as refused:
        decision = undecided(house.bundle, refused.reason)
    takes: tuple[CounterTake, ...] = ()
    exhausted: Refusal | None = None
    if decision.issue.allowed:
        takes = class_takes(pinned.operation.bounds, effect, locked.path, issued.day)
        used = {take.counter: _used(locked.view, take.counter, own) for take in takes}
        exhausted = _outside_class(pinned.operation, effect) or refuse_takes(takes, used)
        if exhausted is not None:
            decision, takes = decision.without_automatic(), ()
    row = DecisionRow(effect_id=effect.effect_id, body=_record(pinned, facts, decision), at_ms=locked.now)
    return Decided(decision=decision, takes=takes, exhausted=exhausted, row=row)


def _record(pinned: Pinned, facts: Facts | None, decision: Decision) -> bytes:
    """Return the record of a decision with a bounded snapshot; what is not public is named and withheld (POL-06).

    What was read of an object is withheld wherever a field is: it is bound as a commitment there, as it may repeat it.
    """
    fields = pinned.operation.fields
    hidden = [field.name for field in fields if field.exposure != "public"]
    withheld = sorted({*hidden, *(pinned.preparation.facts if hidden else ())})
    return canonical_bytes(
        {
            "v": DECISION_VERSION,
            "bundle": decision.bundle_digest,
            "engine": decision.engine,
            "code": decision.code,
            "policies": list(decision.policy_ids),
            "errors": [f"{error.policy_id}:{error.reason}" for error in decision.errors],
            "obligations": list(decision.obligations),
            "approvers": dict(decision.approvers),
            "withheld": withheld,
            "facts": None if facts is None else _snapshot(facts, withheld),
        },
    )


def _snapshot(facts: Facts, withheld: list[str]) -> dict[str, object]:
    """Return the facts of a decision as far as they may stand in clear; None stands for what is withheld."""
    hidden = bool(withheld)
    return {
        "actor": facts.actor,
        "subject": facts.subject,
        "operation": facts.operation,
        "class": facts.action_class,
        "resource_type": facts.resource_type,
        "resource_id": None if hidden else facts.resource_id,
        "attributes": {name: value for name, value in facts.attributes.items() if name not in withheld},
        "cost": dict(facts.cost),
        "remaining": dict(facts.remaining),
        "recipients": None if hidden else list(facts.recipients),
        "tasks": [[task.name, task.depth, task.expires_ms] for task in facts.tasks],
        "earlier": _numbers(facts.earlier),
        "usage": _numbers(facts.usage),
        "limits": _numbers(facts.limits),
        "clock": _numbers(facts.clock),
    }


def _numbers(record: Earlier | Usage | Limits | ClockFact) -> dict[str, int]:
    """Return the whole numbers of a small fact record by name."""
    return {name: getattr(record, name) for name in type(record).__dataclass_fields__}


def error_words(decision: Decision | ActDecision) -> tuple[str, ...]:
    """Return a decision's troubles as a span shows them: `policy-id:reason`."""
    return tuple(f"{error.policy_id or '-'}:{error.reason}" for error in decision.errors)


def decision_attributes(decision: Decision) -> Mapping[str, str | tuple[str, ...]]:
    """Return what a span says about a decision (POL-06)."""
    said: dict[str, str | tuple[str, ...]] = {
        "bundle_digest": decision.bundle_digest,
        "engine": decision.engine,
        "policy_ids": decision.policy_ids,
    }
    if decision.errors:
        said["policy_errors"] = error_words(decision)
    if decision.obligations:
        said["obligations"] = decision.obligations
    return said
