"""Rules of operations: one class, one adapter, finite costs, and nothing declared that cannot hold (OPR-01).

Rules: the class exists; each payload field has one kind and is not public and secret at once (EFF-10); a
cost comes from a constant or from a whole-number field whose range begins at zero or above (EFF-04); in an
automatic class each unit has an `each` bound that the least cost does not exceed (POL-03); exactly one
adapter; keys of one adapter are not mixed with another; answers prove one thing each; one resource type has
one type for each attribute, because all operations share the generated policy schema. What is asked of services
and taken from their answers has its rules in `issuer/profile/rules_services.py`, templates have theirs in
`issuer/profile/rules_templates.py`, which comes next. Pure.
"""

from collections.abc import Collection, Iterator
from typing import Final

from issuer.profile.draft import Draft, unknown_name
from issuer.profile.fields import FieldRef
from issuer.profile.findings import FindingCode, KeyPath, Problem
from issuer.profile.limits import PAYLOAD_FIELDS_MAX
from issuer.profile.models import ActionClass, FieldKind, Operation, PayloadField
from issuer.profile.rules_services import PROOFS, service_problems
from issuer.profile.template import EFFECT_ID_NAME

__all__ = ["operation_problems"]

_POLICY_TYPES: Final = {
    FieldKind.STRING: "string",
    FieldKind.ONE_OF: "string",
    FieldKind.REGISTRY: "string",
    FieldKind.INT: "int",
    FieldKind.BOOL: "bool",
}
_KINDS: Final = ", ".join(f"`{kind}`" for kind in FieldKind)


def operation_problems(draft: Draft) -> Iterator[Problem]:
    """Yield every problem of every operation, templates aside."""
    for name, operation in draft.operations.items():
        path: KeyPath = ("operation", name)
        yield from unknown_name(draft, (*path, "class"), "class", operation.action_class)
        yield from _payload_problems(draft, (*path, "payload"), operation)
        yield from _cost_problems(draft, (*path, "cost"), operation)
        yield from _adapter_problems(path, operation)
        yield from _proof_problems((*path, "proves"), operation)
        yield from _before_problems(path, operation)
        yield from service_problems(path, operation)
    yield from _attribute_problems(draft)


def _payload_problems(draft: Draft, path: KeyPath, operation: Operation) -> Iterator[Problem]:
    if len(operation.payload) > PAYLOAD_FIELDS_MAX:
        message = f"A payload has at most {PAYLOAD_FIELDS_MAX} fields."
        yield Problem(path=path, code=FindingCode.TOO_LARGE, message=message)
    for name, field in operation.payload.items():
        here = (*path, name)
        if name == EFFECT_ID_NAME:
            message = f"The issuer itself fills {{{EFFECT_ID_NAME}}}; the field needs another name."
            yield Problem(path=here, code=FindingCode.BAD_NAME, message=message)
        if len(field.kinds) != 1:
            given = " and ".join(f"`{kind}`" for kind in field.kinds) or "none"
            message = f"A field has exactly one of {_KINDS}; this one has {given}."
            yield Problem(path=here, code=FindingCode.NOT_EXACTLY_ONE, message=message)
        if field.public and field.secret:
            message = "A field cannot be public and secret; leave both out for sensitive."
            yield Problem(path=(*here, "secret"), code=FindingCode.CONFLICT, message=message)
        if field.one_of == ():
            message = "`one_of` needs at least one text."
            yield Problem(path=(*here, "one_of"), code=FindingCode.BAD_VALUE, message=message)
        if field.registry is not None:
            yield from unknown_name(draft, (*here, "registry"), "registry", field.registry)


def _cost_problems(draft: Draft, path: KeyPath, operation: Operation) -> Iterator[Problem]:
    if not operation.cost:
        message = "An operation names at least one unit of cost; without a bound it cannot be registered."
        yield Problem(path=path, code=FindingCode.UNBOUNDED_COST, message=message)
    action_class = draft.classes.get(operation.action_class)
    for unit, cost in operation.cost.items():
        here = (*path, unit)
        least = cost if isinstance(cost, int) else None
        if isinstance(cost, FieldRef):
            field = operation.payload.get(cost.field)
            yield from _cost_field_problems(here, cost.field, field, operation)
            least = field.int_range[0] if field is not None and field.int_range is not None else None
        # A class without any `each` has its own finding; repeating it for every unit would bury it.
        if action_class is not None and action_class.automatic and action_class.each:
            yield from _cost_bound_problems(here, unit, least, operation.action_class, action_class)


def _cost_field_problems(
    path: KeyPath, name: str, field: PayloadField | None, operation: Operation
) -> Iterator[Problem]:
    if field is None:
        yield Problem(
            path=path,
            code=FindingCode.UNKNOWN_PLACEHOLDER,
            message=f"The payload has no field {{{name}}}.",
            wanted=name,
            candidates=tuple(operation.payload),
        )
    elif field.kinds != (FieldKind.INT,) or field.int_range is None:
        message = f"The cost comes from `{name}`, which is not a whole-number field: int = [low, high]."
        yield Problem(path=path, code=FindingCode.UNBOUNDED_COST, message=message)
    elif field.int_range[0] < 0:
        message = (
            f"The cost comes from `{name}`, whose range begins at {field.int_range[0]}: it could be negative."
        )
        yield Problem(path=path, code=FindingCode.UNBOUNDED_COST, message=message)
    elif field.secret:
        # Policies see the cost, so a secret that is the cost would reach Cedar after all (EFF-10).
        message = f"The field `{name}` is secret, and a cost is shown to policies."
        yield Problem(path=path, code=FindingCode.SECRET_EXPOSED, message=message)


def _cost_bound_problems(
    path: KeyPath, unit: str, least: int | None, class_name: str, action_class: ActionClass
) -> Iterator[Problem]:
    each = action_class.each.get(unit)
    if each is None:
        yield Problem(
            path=path,
            code=FindingCode.MISSING_BOUND,
            message=f'The class "{class_name}" is automatic and has no `each` bound for the unit "{unit}".',
            wanted=unit,
            candidates=tuple(action_class.each),
        )
    elif least is not None and least > each:
        message = f'The least cost is {least}, above the {each} that the class "{class_name}" allows each.'
        yield Problem(path=path, code=FindingCode.IMPOSSIBLE_BOUND, message=message)


def _adapter_problems(path: KeyPath, operation: Operation) -> Iterator[Problem]:
    if len(operation.adapters) != 1:
        given = " and ".join(f"`{name}`" for name in operation.adapters) or "none"
        message = f"An operation has exactly one of `http`, `host`, `file`, `python`; this one has {given}."
        yield Problem(path=path, code=FindingCode.NOT_EXACTLY_ONE, message=message)
        return
    if operation.http is None:
        for key, value in (("body", operation.body), ("proves", operation.proves)):
            if value is not None:
                message = f"`{key}` belongs to `http`, and this operation has `{operation.adapter}`."
                yield Problem(path=(*path, key), code=FindingCode.CONFLICT, message=message)
    if operation.host is not None and operation.after_approval is not None:
        message = "The host sends this operation, so the issuer cannot commit it after approval."
        yield Problem(path=(*path, "after_approval"), code=FindingCode.CONFLICT, message=message)
    if operation.python is not None and operation.python.absent is not None and operation.inspect is not None:
        message = "`inspect` and `python.absent` name two inspections; one of them finds out."
        yield Problem(path=(*path, "python", "absent"), code=FindingCode.CONFLICT, message=message)
    file = operation.file
    if file is not None and file.action == "delete" and file.content is not None:
        message = "Deleting a file writes no `content`."
        yield Problem(path=(*path, "file", "content"), code=FindingCode.CONFLICT, message=message)
    if file is not None and file.action != "delete" and file.content is None:
        message = f'The action "{file.action}" needs `content`.'
        yield Problem(path=(*path, "file", "content"), code=FindingCode.MISSING_KEY, message=message)


def _proof_problems(path: KeyPath, operation: Operation) -> Iterator[Problem]:
    proves = operation.proves
    if proves is None:
        return
    seen: dict[int, str] = {}
    for key in PROOFS:
        codes: tuple[int, ...] = getattr(proves, key)
        for index, code in enumerate(codes):
            if seen.setdefault(code, key) != key:
                message = f"The status {code} already proves `{seen[code]}`; it cannot prove two things."
                yield Problem(path=(*path, key, index), code=FindingCode.CONFLICT, message=message)
    if proves.key_kept_ms is not None and (operation.http is None or operation.http.once is None):
        message = "`key_kept` speaks of an idempotency key, and `http.once` names no header for one."
        yield Problem(path=(*path, "key_kept"), code=FindingCode.CONFLICT, message=message)
    if proves.resend is not None and proves.key_kept_ms is None:
        message = "`resend` rests on a key that the service remembers: it needs `http.once` and `key_kept`."
        yield Problem(path=(*path, "resend"), code=FindingCode.CONFLICT, message=message)
    if proves.resend is not None and operation.http is not None and operation.http.if_match:
        message = "`resend` and `if_match` exclude each other: its own first success would make the second one fail."
        yield Problem(path=(*path, "resend"), code=FindingCode.CONFLICT, message=message)


def _before_problems(path: KeyPath, operation: Operation) -> Iterator[Problem]:
    before, http = operation.before, operation.http
    if http is not None and http.if_match and (before is None or not before.etag):
        message = (
            "`if_match` sends the entity tag that `before` reads; it needs before = { ..., etag = true }."
        )
        yield Problem(path=(*path, "http", "if_match"), code=FindingCode.CONFLICT, message=message)
    if before is not None:
        for name in before.facts:
            if name in operation.payload:
                # POL-02: what an actor said and what the issuer knows may never share a name.
                message = (
                    f"`{name}` is also a payload field; what is known and what is said need different names."
                )
                yield Problem(
                    path=(*path, "before", "facts", name), code=FindingCode.CONFLICT, message=message
                )


def _attribute_problems(draft: Draft) -> Iterator[Problem]:
    """Yield where two operations give one attribute of a resource type two types."""
    seen: dict[tuple[str, str], tuple[str, str]] = {}
    conflicting: set[str] = set()
    for name, operation in draft.operations.items():
        for path, attribute, policy_type in _attributes(name, operation):
            key = (operation.resource.type, attribute)
            first, first_type = seen.setdefault(key, (name, policy_type))
            if first_type != policy_type:
                conflicting.add(operation.resource.type)
                message = (
                    f"`{attribute}` of {operation.resource.type} is {policy_type} here and {first_type} in "
                    f'"{first}"; policies know one type for it.'
                )
                yield Problem(path=path, code=FindingCode.CONFLICT, message=message)
    yield from _missing_attributes(draft, conflicting)


def _missing_attributes(draft: Draft, conflicting: Collection[str]) -> Iterator[Problem]:
    """Yield where operations share a resource type and not its attributes: every request of them would be denied."""
    types: dict[str, dict[str, set[str]]] = {}
    for name, operation in draft.operations.items():
        known = {attribute for _path, attribute, _type in _attributes(name, operation)}
        types.setdefault(operation.resource.type, {})[name] = known
    for resource_type, operations in types.items():
        if resource_type in conflicting:
            continue
        for name, known in operations.items():
            for attribute in sorted(set().union(*operations.values()) - known):
                other = next(one for one, attributes in operations.items() if attribute in attributes)
                message = (
                    f"Operations that share the type {resource_type} share its attributes, and `{attribute}` is one in "
                    f'"{other}" only. Give one of them a type of its own.'
                )
                path: KeyPath = ("operation", name, "resource", "type")
                yield Problem(path=path, code=FindingCode.CONFLICT, message=message)


def _attributes(name: str, operation: Operation) -> Iterator[tuple[KeyPath, str, str]]:
    for attribute, field in operation.payload.items():
        if len(field.kinds) == 1 and not field.secret:
            yield ("operation", name, "payload", attribute), attribute, _POLICY_TYPES[field.kind]
    facts = operation.before.facts if operation.before is not None else {}
    for attribute, policy_type in facts.items():
        yield ("operation", name, "before", "facts", attribute), attribute, policy_type
