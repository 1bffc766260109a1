"""How is a request put to the engine? Facts become request dictionaries and the entities they bring. Pure.

Rules: references are dictionaries of type and id, never text (nothing to quote, nothing to break out of).
Every entity that a request or an entity of it refers to is either declared by the directory or brought
along; otherwise the question is not asked at all, because Cedar would skip the rule that follows such a
reference. One request per tier, identical but for the action.

Not here: asking. Next: `policies.engine.evaluate`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from policies.directory import Directory, FactsRefused, Uid, entity, uid
from policies.facts import ActFacts, ApprovalFacts, Facts, TaskFact, cedar_datetime
from policies.schema import (
    CLOCK_FIELDS,
    EARLIER_FIELDS,
    EFFECT_TYPE,
    ISSUER_ID,
    ISSUER_TYPE,
    LIMITS_FIELDS,
    USAGE_FIELDS,
    AttributeKind,
)

TIERS = ("issue", "requestApproval")
_KINDS: dict[AttributeKind, type] = {"string": str, "int": int, "bool": bool}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A batch of requests and, as JSON text, the entities that they bring beyond the directory's."""

    requests: tuple[dict[str, object], ...]
    entities_json: str


def _reference(kind: str, name: str) -> dict[str, object]:
    return {"__entity": uid(kind, name)}


def _record(source: object, names: tuple[str, ...]) -> dict[str, object]:
    return {name: getattr(source, name) for name in names}


def _units(amounts: Mapping[str, int], units: tuple[str, ...]) -> dict[str, int]:
    """Return an amount for every unit of the catalogue, 0 where none is given (absent means zero, BUD-01)."""
    if not amounts.keys() <= set(units):
        raise FactsRefused("bad_facts", "an amount in a unit that the catalogue does not declare")
    return {unit: amounts.get(unit, 0) for unit in units}


def _attributes(facts: Facts, directory: Directory) -> dict[str, object]:
    """Return the resource attributes, exactly as declared: none missing, none extra, each of its kind."""
    declared = directory.catalogue.resource_type(facts.resource_type)
    if declared is None:
        raise FactsRefused("bad_facts", "a resource type that the catalogue does not declare")
    kinds = declared.kinds()
    for name, kind in kinds.items():
        if name not in facts.attributes:
            raise FactsRefused("missing_attribute", "a declared attribute is missing", attribute=name)
        if type(facts.attributes[name]) is not _KINDS[kind]:
            raise FactsRefused("type_error", "an attribute is of another kind than declared", attribute=name)
    if facts.attributes.keys() - kinds.keys():
        raise FactsRefused("bad_facts", "an attribute that the catalogue does not declare")
    return dict(facts.attributes)


def _task(task: TaskFact, parent: TaskFact | None) -> dict[str, object]:
    attributes = {
        "subject": _reference("Person", task.subject),
        "depth": task.depth,
        "expires": cedar_datetime(task.expires_ms),
    }
    return entity("Task", task.name, attributes, () if parent is None else (("Task", parent.name),))


def _context(facts: Facts, units: tuple[str, ...]) -> dict[str, object]:
    clock = _record(facts.clock, CLOCK_FIELDS)
    return {
        "subject": _reference("Person", facts.subject),
        "task": _reference("Task", facts.tasks[0].name),
        "cost": _units(facts.cost, units),
        "remaining": _units(facts.remaining, units),
        "recipients": list(facts.recipients),
        "earlier": _record(facts.earlier, EARLIER_FIELDS),
        "usage": _record(facts.usage, USAGE_FIELDS),
        "limits": _record(facts.limits, LIMITS_FIELDS),
        "clock": {"now": cedar_datetime(facts.clock.now_ms), **clock},
    }


def tier_ask(directory: Directory, facts: Facts) -> Ask:
    """Return both tiers' requests, in the order of `TIERS`.

    Raises:
        FactsRefused: `missing_attribute`, `type_error`, `missing_entity` or `bad_facts`.
    """
    parents = (("Class", facts.action_class), ("Operation", facts.operation))
    resource = entity(facts.resource_type, facts.resource_id, _attributes(facts, directory), parents)
    above: tuple[TaskFact | None, ...] = (*facts.tasks[1:], None)
    tasks = [_task(task, parent) for task, parent in zip(facts.tasks, above, strict=True)]
    context = _context(facts, directory.catalogue.units)
    requests = tuple(
        {
            "principal": uid("Actor", facts.actor),
            "action": uid("Action", tier),
            "resource": uid(facts.resource_type, facts.resource_id),
            "context": context,
        }
        for tier in TIERS
    )
    return _closed(directory, requests, [resource, *tasks])


def approval_ask(directory: Directory, facts: ApprovalFacts) -> Ask:
    """Return the one request that asks whether a person may approve.

    Raises:
        FactsRefused: `missing_entity`.
    """
    attributes = {
        "subject": _reference("Person", facts.subject),
        "actor": _reference("Actor", facts.actor),
        "approvers": _reference("Group", facts.approvers),
    }
    brought = entity("Request", facts.effect_id, attributes, (("Class", facts.action_class),))
    request: dict[str, object] = {
        "principal": uid("Person", facts.person),
        "action": uid("Action", "approve"),
        "resource": uid("Request", facts.effect_id),
        "context": {"now": cedar_datetime(facts.now_ms)},
    }
    return _closed(directory, (request,), [brought])


def act_ask(directory: Directory, facts: ActFacts) -> Ask:
    """Return the one request that asks whether a person may do something to an effect or to the issuer.

    Raises:
        FactsRefused: `missing_entity`; of an effect, also where its class or operation is declared no more.
    """
    effect = facts.effect
    resource, brought = uid(ISSUER_TYPE, ISSUER_ID), []
    if effect is not None:
        attributes = {
            "subject": _reference("Person", effect.subject),
            "actor": _reference("Actor", effect.actor),
            "state": effect.state,
            "own": effect.own,
        }
        parents = (("Class", effect.action_class), ("Operation", effect.operation))
        resource = uid(EFFECT_TYPE, effect.effect_id)
        brought = [entity(EFFECT_TYPE, effect.effect_id, attributes, parents)]
    request: dict[str, object] = {
        "principal": uid("Person", facts.person),
        "action": uid("Action", facts.action),
        "resource": resource,
        "context": {"now": cedar_datetime(facts.now_ms), "command": facts.command},
    }
    return _closed(directory, (request,), brought)


def references(*values: object) -> Iterator[Uid]:
    """Yield every entity reference inside some values: a dictionary of exactly a type and an id, both text.

    It looks at every value that is sent instead of listing the places that hold references today, so that
    a fact added tomorrow is covered. Only exact dicts, lists and tuples are sent.
    """
    pending = list(values)
    while pending:
        value = pending.pop()
        if type(value) is dict:
            kind, name = value.get("type"), value.get("id")
            if len(value) == len(("type", "id")) and type(kind) is str and type(name) is str:
                yield kind, name
            else:
                pending.extend(value.values())
        elif type(value) in {list, tuple}:
            pending.extend(value)  # type: ignore[arg-type]  # narrowed by the exact types above


def _closed(
    directory: Directory, requests: tuple[dict[str, object], ...], brought: list[dict[str, object]]
) -> Ask:
    """Refuse a question that refers to anything nobody declared (POL-04), then write the entities down.

    Attribute and context records are entered by their values, never as a whole: an owner may well have
    attributes called `type` and `id`, and those two together are no reference. Actions are left out, since
    they are the schema's own entities and the engine adds them to every set that is built with it.
    """
    sent: list[object] = []
    for one in brought:
        sent += [one["uid"], one["parents"], *_values(one["attrs"])]
    for place in ("principal", "resource"):
        sent += [request[place] for request in requests]
    # The requests of a batch differ in their action only and share one context, so it is read once.
    sent += _values(requests[0]["context"])
    known = directory.known | {named for one in brought for named in references(one["uid"])}
    for kind, name in references(*sent):
        if (kind, name) not in known:
            raise FactsRefused("missing_entity", f"a {kind} that nobody declared")
    return Ask(requests=requests, entities_json=json.dumps(brought))


def _values(record: object) -> list[object]:
    return list(record.values()) if isinstance(record, dict) else [record]
