"""Budget arithmetic, leaf to root: what a task and all its ancestors can still bear. Pure.

Rules: BUD-01 (absent is zero, `inherit` has no bound of its own), BUD-02 (every level or none), BUD-03 (an overrun
blocks the path). SQLite holds the same inequality as CHECK `no_overspend`.
It does not decide whether an effect is permitted; that is `policies`, and `ledger.rules` for the rest.
"""

from collections.abc import Iterable, Mapping

from ledger.model import AMOUNT_MAX, BudgetLine, PathNode, Unit
from ledger.refusals import Refusal, RefusalCode


def available(line: BudgetLine | None) -> int:
    """Return what one task can still reserve of a unit: 0 where it names none, `AMOUNT_MAX` where it inherits."""
    if line is None or line.overrun > 0 or line.above > 0:
        return 0
    if line.ceiling is None:
        return AMOUNT_MAX
    return max(0, line.ceiling - line.settled - line.reserved)


def remaining(path: tuple[PathNode, ...], units: Iterable[Unit]) -> Mapping[Unit, int]:
    """Return per unit the least that any level of `path` can still bear (POL-02)."""
    return {unit: min((available(node.budget.get(unit)) for node in path), default=0) for unit in units}


def refuse_cost(path: tuple[PathNode, ...], cost: Mapping[Unit, int]) -> Refusal | None:
    """Refuse a cost that any level of `path` cannot bear, naming unit and level; the lowest level speaks first.

    An overrun anywhere on the path blocks a unit whatever is left of it, and so does usage above a lowered ceiling
    (BUD-03).
    """
    for node in path:
        for unit, amount in cost.items():
            line = node.budget.get(unit)
            if line is not None and line.overrun > 0:
                return Refusal(code=RefusalCode.BUDGET_OVERRUN, field=unit, level=node.task.name)
            # Above its ceiling a unit bears nothing, not even nothing: the CHECK would refuse it less politely.
            if amount > available(line) or (line is not None and line.above > 0):
                return Refusal(code=RefusalCode.BUDGET_EXCEEDED, field=unit, level=node.task.name)
    return None


def refuse_wider_ceiling(path: tuple[PathNode, ...], ceilings: Mapping[Unit, int | None]) -> Refusal | None:
    """Refuse ceilings of a task below `path`, its parent first, above the nearest one up there (BUD-01).

    A level that inherits is passed over, and one that does not name the unit has zero.
    """
    for unit, ceiling in ceilings.items():
        bounds = ((node.task.name, node.task.ceilings.get(unit, 0)) for node in path)
        level, above = next(((name, bound) for name, bound in bounds if bound is not None), ("", AMOUNT_MAX))
        if ceiling is not None and ceiling > above:
            return Refusal(code=RefusalCode.FORBIDDEN, field="budget", level=level)
    return None


def reserved_lines(path: tuple[PathNode, ...], cost: Mapping[Unit, int]) -> tuple[str, ...]:
    """Return the reservation of a cost as `task:unit=amount`, leaf first, as a span shows it (EFF-09)."""
    return tuple(f"{node.task.name}:{unit}={amount}" for node in path for unit, amount in cost.items())
