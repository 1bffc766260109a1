"""The part of a check about one effect's money: what it held at every level, and what it was charged there.

Rules: BUD-02 (a reservation counts at the task and all ancestors, or not at all), BUD-03 (a charge within the
reservation, the rest as an overrun, at every level alike), BUD-04 (unknown holds its maximum), REP-04.
It adds to the totals that `ledger.sqlite.check_budgets` holds the budgets against.
"""

from typing import Any, Final

from ledger.model import Unit
from ledger.port import SealedEffect
from ledger.sqlite.check_ground import Ground, Move
from ledger.states import UNRESOLVED, EffectState

_UNRESOLVED: Final = frozenset(state.value for state in UNRESOLVED)
_NO_EFFECT: Final = EffectState.NO_EFFECT.value
Row = tuple[Any, ...]


def check_reservations(ground: Ground, effect: SealedEffect, found: list[Row], *, admitted: bool) -> None:
    """Check that an admitted effect holds its whole cost at every level of its path, and any other nothing.

    `found` are its rows: (effect_id, task_id, unit, amount).
    """
    held = {(task_id, unit): amount for _effect_id, task_id, unit, amount in found}
    if effect.state in _UNRESOLVED:
        for (task_id, unit), amount in held.items():
            ground.total(task_id, unit).reserved += amount
    if not admitted:
        if held:
            says = "The trail never admitted this effect, and it holds money."
            ground.find("reservation_without_trail", ("reservations", effect.effect_id), says)
        return
    cost = effect.cost.items()
    expected: dict[tuple[str, str], int] = {
        (level, unit): amount for level in ground.paths.get(effect.task_id, ()) for unit, amount in cost
    }
    if held == expected:
        return
    where = ("reservations", effect.effect_id)
    if expected.keys() - held.keys():
        ground.find("reservation_missing", where, "The effect's cost is not held at every level of its path.")
    if any(expected.get(key) != amount for key, amount in held.items()):
        says = "What the effect holds is not its cost, or is not on its path."
        ground.find("reservation_differs", where, says)


def check_settlements(
    ground: Ground, effect: SealedEffect, found: list[Row], *, outcome: Move | None
) -> None:
    """Check that an effect is settled at every level by its outcome, alike, within what it held; or not at all.

    `found` are its rows: (effect_id, task_id, unit, charged, overrun, sequence).
    """
    told = None if outcome is None else outcome.sequence
    charges: dict[str, tuple[int, int]] = {}
    settled: set[tuple[str, str]] = set()
    is_one_charge = True
    for _effect_id, task_id, unit, charged, overrun, sequence in found:
        totals = ground.total(task_id, unit)
        totals.settled += charged
        totals.overrun += overrun
        settled.add((task_id, unit))
        charge = (charged, overrun)
        if charges.setdefault(unit, charge) != charge or sequence != told:
            is_one_charge = False
    where = ("settlements", effect.effect_id)
    if outcome is None:
        if found:
            says = "The trail tells of no outcome, and something is settled."
            ground.find("settlement_without_trail", where, says)
        return
    levels = ground.paths.get(effect.task_id, ())
    expected = {(level, unit) for unit in {*effect.cost, *charges} for level in levels}
    if expected - settled:
        ground.find("settlement_missing", where, "The outcome is not settled at every level of the path.")
    is_chargeable = all(_is_chargeable(effect, outcome, unit, *charge) for unit, charge in charges.items())
    if not (is_one_charge and is_chargeable and settled <= expected):
        says = "What is charged is not alike at every level, not within what was held, or not by the outcome."
        ground.find("settlement_differs", where, says)


def _is_chargeable(effect: SealedEffect, outcome: Move, unit: str, charged: int, overrun: int) -> bool:
    """Say whether an outcome can have charged this: an overrun begins where the reservation ends."""
    held = effect.cost.get(Unit(unit), 0)
    if outcome.state == _NO_EFFECT:
        return (charged, overrun) == (0, 0)
    return 0 <= charged <= held and overrun >= 0 and (overrun == 0 or charged == held)
