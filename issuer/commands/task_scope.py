"""What a new task names: classes, and where it likes exact operations and resources, and how many admissions of each.

Rules: BUD-06 (what is unnamed is refused), BUD-01 (a child is never wider). A root names its classes; a child that says
nothing of a kind has its parent's names, bounded by its ancestors alone. A resource is named in clear, as `Type:id`;
one whose id repeats a field that is not public cannot be named (SEC-01).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from issuer.flow.binding import hides_resource
from issuer.flow.refusing import RefusedError, unknown_name
from issuer.house import House
from ledger.canonical import canonical_bytes
from ledger.errors import Malformed
from ledger.model import Scope, Slots, Task
from ledger.refusals import RefusalCode
from ledger.scope import INHERIT, named, scope_lines

NAMES_BYTES_MAX: Final = 12 * 1024
"""Bytes of a task's actors, ceilings and scope as its span tells them: three quarters of a span (`ledger.sqlite`)."""

Counts = Mapping[str, int | str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeAsk:
    """What is asked for: per name a number of admissions, or `inherit` in a child; None says nothing of a kind."""

    classes: Counts | None = None
    operations: Counts | None = None
    resources: Counts | None = None


def read_scope(house: House, ask: ScopeAsk, *, is_root: bool) -> Scope:
    """Return the scope that is asked for; in a child, what is left out stays None until its parent is known.

    Raises:
        RefusedError: a class, an operation or a type of resource that the owner has not declared, or one with ids
            that are not public.
        Malformed: a name or count that is none, a root without classes, or `inherit` in a root.
    """
    if is_root and ask.classes is None:
        message = "a root task names the classes it may use, and how often, such as --class payment=20"
        raise Malformed("missing", "class", message)
    classes = house.profile.classes
    _refuse_unknown(house, "class", ask.classes or {}, classes)
    _refuse_unknown(house, "operation", ask.operations or {}, house.operations)
    _refuse_resources(house, ask.resources or {})
    return Scope(
        classes=_slots("class", ask.classes, is_root=is_root),
        operations=_slots("operation", ask.operations, is_root=is_root),
        resources=_slots("resource", ask.resources, is_root=is_root),
    )


def _refuse_unknown(house: House, kind: str, said: Iterable[str], declared: Iterable[str]) -> None:
    for name in said:
        if name not in declared:
            raise unknown_name(house, kind, name, declared)


def _refuse_resources(house: House, said: Iterable[str]) -> None:
    declared = house.operations.values()
    types = {operation.resource_type for operation in declared}
    hidden = types - {operation.resource_type for operation in declared if not hides_resource(operation)}
    for name in said:
        resource_type, colon, _id = name.partition(":")
        if not colon or resource_type not in types:
            say = "A resource is named as Type:id, and its type is one that some operation declares."
            raise unknown_name(house, "resource", resource_type, types, say=say)
        if resource_type in hidden:
            say = (
                f"Ids of the type {resource_type} repeat a field that is not public, so no task can name one."
            )
            raise RefusedError(RefusalCode.UNSUPPORTED, field="resource", say=say)


def _slots(kind: str, said: Counts | None, *, is_root: bool) -> Slots | None:
    if said is None:
        return None
    if is_root and INHERIT in said.values():
        raise Malformed(
            "not_one_of", kind, "a root task has no parent to inherit a number of admissions from"
        )
    return named({name: None if count == INHERIT else count for name, count in said.items()}, kind)


def scope_below(parent: Scope, asked: Scope) -> Scope:
    """Return a child's scope; whether it is wider than its parent's, `ledger.scope.refuse_wider` says (BUD-01)."""
    open_counts = parent.inherited()
    return Scope(
        classes=open_counts.classes if asked.classes is None else asked.classes,
        operations=open_counts.operations if asked.operations is None else asked.operations,
        resources=open_counts.resources if asked.resources is None else asked.resources,
    )


def ceiling_lines(task: Task) -> tuple[str, ...]:
    """Return a task's ceilings as a span shows them: `EUR.cent=50000`, `publish=inherit`."""
    return tuple(
        f"{unit}={INHERIT if amount is None else amount}" for unit, amount in sorted(task.ceilings.items())
    )


def check_size(task: Task) -> None:
    """Refuse a task whose names would not fit the span that tells of it (AUD-01).

    Raises:
        Malformed: `too_large`.
    """
    told = [list(task.actors), list(ceiling_lines(task)), list(scope_lines(task.scope))]
    if len(canonical_bytes(told)) > NAMES_BYTES_MAX:
        message = f"actors, ceilings and names of a task are together at most {NAMES_BYTES_MAX} bytes"
        raise Malformed("too_large", "scope", message)
