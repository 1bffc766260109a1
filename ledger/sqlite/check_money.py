"""The part of a check about one effect's money: what it held at every level, and what it was charged there.

Rules: BUD-02 (a reservation counts at the task and all ancestors, or not at all), BUD-03 (a charge within the
reservation, the rest as an overrun, at every level alike), BUD-04 (unknown holds its maximum), REP-04, REC-04 (an
acknowledged charge is that maximum, and is settled before the outcome).
It adds to the totals that `ledger.sqlite.check_budgets` holds the budgets against.
"""

from typing import Any, Final

from ledger.model import Amounts, Unit
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
    if effect.state in _UNRESOLVED and effect.effect_id not in ground.trail.charges:
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
    """Check that an effect is settled at every level, alike, within what it held: by its outcome, or not at all.

    What an operator acknowledged as a charge is settled by that span, as the whole of what is held; its outcome then
    adds what was charged beyond it, and nothing else (REC-04).
    `found` are its rows: (effect_id, task_id, unit, charged, overrun, sequence).
    """
    charged_at = ground.trail.charges.get(effect.effect_id)
    acknowledged: list[Row] = []
    ended: list[Row] = []
    for row in found:
        _effect_id, task_id, unit, charged, overrun, sequence = row
        totals = ground.total(task_id, unit)
        totals.settled += charged
        totals.overrun += overrun
        (acknowledged if sequence == charged_at else ended).append(row)
    if charged_at is not None:
        _check_acknowledged(ground, effect, acknowledged)
    where = ("settlements", effect.effect_id)
    if outcome is None:
        if ended:
            says = "The trail tells of no outcome, and something is settled."
            ground.find("settlement_without_trail", where, says)
        return
    charges: dict[str, tuple[int, int]] = {}
    is_one_charge = all(
        charges.setdefault(unit, (charged, overrun)) == (charged, overrun) and sequence == outcome.sequence
        for _effect_id, _task_id, unit, charged, overrun, sequence in ended
    )
    held: Amounts = effect.cost if charged_at is None else {}
    settled = {(row[1], row[2]) for row in ended}
    levels = ground.paths.get(effect.task_id, ())
    expected = {(level, unit) for unit in {*held, *charges} for level in levels}
    if expected - settled:
        ground.find("settlement_missing", where, "The outcome is not settled at every level of the path.")
    is_chargeable = all(_is_chargeable(held, outcome, unit, *charge) for unit, charge in charges.items())
    if not (is_one_charge and is_chargeable and settled <= expected):
        says = "What is charged is not alike at every level, not within what was held, or not by the outcome."
        ground.find("settlement_differs", where, says)


def _check_acknowledged(ground: Ground, effect: SealedEffect, found: list[Row]) -> None:
    """Check that an acknowledged charge is exactly what the effect held, at every level of its path."""
    charged = {(task_id, unit): (amount, above) for _effect_id, task_id, unit, amount, above, _at in found}
    expected = {
        (level, str(unit)): (amount, 0)
        for level in ground.paths.get(effect.task_id, ())
        for unit, amount in effect.cost.items()
    }
    if charged != expected:
        says = "An operator acknowledged a charge of all that is held, and this is not what is settled."
        ground.find("acknowledged_differs", ("settlements", effect.effect_id), says)


def _is_chargeable(held: Amounts, outcome: Move, unit: str, charged: int, overrun: int) -> bool:
    """Say whether an outcome can have charged this: an overrun begins where the reservation ends."""
    within = held.get(Unit(unit), 0)
    if outcome.state == _NO_EFFECT:
        return (charged, overrun) == (0, 0)
    return 0 <= charged <= within and overrun >= 0 and (overrun == 0 or charged == within)
