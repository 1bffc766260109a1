"""What a task may be used for: the classes, operations and resources it names, and how many admissions of each.

Rules: BUD-06 (what is unnamed is refused; a slot is held at the task and every ancestor), BUD-01 (a child is never
wider). Pure: how many slots are used is read by the caller, under the lock.
It does not decide whether an effect is permitted; that is `policies`.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from ledger.errors import Malformed
from ledger.model import CounterTake, Effect, PathNode, Scope, Slots
from ledger.refusals import Refusal, RefusalCode

INHERIT: Final = "inherit"
"""What is shown, and asked for, where only the levels above bound something."""

SCOPE_NAMES_MAX: Final = 64
"""Names of one kind in one scope, as actors of a task are bounded."""

SLOTS: Final = "slot|"
"""What counters of slots begin with."""

SLOTS_MAX: Final = 1_000_000
"""Admissions that one name may be given: far above the records a ledger keeps, and finite."""

SCOPE_NAME_BYTES_MAX: Final = 640
"""Bytes of one name: a resource is its type, a colon and an id of at most 512 bytes."""


def named(slots: Mapping[str, object], kind: str) -> Slots:
    """Freeze the names of one kind after checking each name and count.

    Raises:
        Malformed: no name or too many, a name that is none, or a count outside 1..`SLOTS_MAX`.
    """
    if not 1 <= len(slots) <= SCOPE_NAMES_MAX:
        raise Malformed("out_of_range", kind, f"a scope names 1 to {SCOPE_NAMES_MAX} of each kind it names")
    for name, count in slots.items():
        if (
            type(name) is not str
            or not name.isprintable()
            or not 0 < len(name.encode()) <= SCOPE_NAME_BYTES_MAX
        ):
            raise Malformed("not_a_name", kind, f"a name is 1 to {SCOPE_NAME_BYTES_MAX} printable bytes")
        if count is not None and type(count) is not int:
            raise Malformed("wrong_type", kind, "a number of admissions must be a whole number")
        if type(count) is int and not 1 <= count <= SLOTS_MAX:
            raise Malformed("out_of_range", kind, f"a number of admissions is between 1 and {SLOTS_MAX}")
    return MappingProxyType({name: slots[name] for name in sorted(slots)})  # type: ignore[misc]


def refuse_wider(path: tuple[PathNode, ...], child: Scope) -> Refusal | None:
    """Refuse a scope below `path`, its parent first, that is wider than any level of it (BUD-01).

    Wider is a kind left open that a level names, a name that a level does not have, or more admissions of it.
    """
    for node in path:
        for (kind, above), (_kind, below) in zip(node.task.scope.names(), child.names(), strict=True):
            if above is not None and (below is None or _is_wider(above, below)):
                return Refusal(code=RefusalCode.FORBIDDEN, field=kind, level=node.task.name)
    return None


def _is_wider(above: Slots, below: Slots) -> bool:
    """Say whether some name has more admissions below; None is bounded by the levels further up alone."""
    for name, count in below.items():
        bound = above.get(name, 0)
        if bound == 0 or (bound is not None and count is not None and count > bound):
            return True
    return False


def scope_lines(scope: Scope) -> tuple[str, ...]:
    """Return a scope as a span and a person see it: `class:payment=20`, `operation:pay_invoice=inherit`."""
    return tuple(
        f"{kind}:{name}={INHERIT if count is None else count}"
        for kind, slots in scope.names()
        for name, count in (slots or {}).items()
    )


def _used_by(effect: Effect) -> tuple[str, str, str]:
    """Return what an effect uses of each kind; a resource is its type and id: `Invoice:hetzner/R-118`."""
    return (effect.action_class, effect.operation, f"{effect.resource_type}:{effect.resource_id}")


def refuse_scope(path: tuple[PathNode, ...], effect: Effect) -> Refusal | None:
    """Refuse what a task on the path, leaf first, does not name (BUD-06)."""
    return refuse_names(path, _used_by(effect))


def refuse_names(path: tuple[PathNode, ...], names: tuple[str, str, str]) -> Refusal | None:
    """Refuse a class, an operation or a resource (`Type:id`) that a task on the path, leaf first, does not name.

    What is not an effect yet is asked about with this, before anything is looked at for it.
    """
    for node in path:
        for (kind, slots), name in zip(node.task.scope.names(), names, strict=True):
            if slots is not None and name not in slots:
                return Refusal(code=RefusalCode.OUTSIDE_TASK, field=kind, level=node.task.name)
    return None


def slot_takes(path: tuple[PathNode, ...], effect: Effect) -> tuple[CounterTake, ...]:
    """Return the slots that issuing a permit takes, at the task and every ancestor that counts (BUD-06)."""
    return tuple(
        take
        for node in path
        for (kind, slots), name in zip(node.task.scope.names(), _used_by(effect), strict=True)
        if (take := _slot(node, kind, slots, name)) is not None
    )


def slots_of(path: tuple[PathNode, ...], wanted: str, name: str) -> tuple[CounterTake, ...]:
    """Return the slots of one name of one kind, leaf first, at each level of the path that counts it."""
    return tuple(
        take
        for node in path
        for kind, slots in node.task.scope.names()
        if kind == wanted and (take := _slot(node, kind, slots, name)) is not None
    )


def _slot(node: PathNode, kind: str, slots: Slots | None, name: str) -> CounterTake | None:
    """Return one slot of a task, or None where the task does not count that name itself."""
    count = None if slots is None else slots.get(name)
    if count is None:
        return None
    counter = slot_counter(node.task.task_id, kind, name)
    return CounterTake(counter=counter, amount=1, ceiling=count, level=node.task.name)


def slot_counter(task_id: str, kind: str, name: str) -> str:
    """Return the counter of one name that a task counts."""
    return f"{SLOTS}{task_id}|{kind}|{name}"


def refuse_slots(takes: Iterable[CounterTake], used: Mapping[str, int]) -> Refusal | None:
    """Refuse where every admission of a name is taken, naming the kind and the level (BUD-06)."""
    for take in takes:
        if take.amount > take.ceiling - used[take.counter]:
            kind = take.counter.split("|")[2]
            return Refusal(code=RefusalCode.SLOTS_EXHAUSTED, field=kind, level=take.level)
    return None
