"""The part of a check about one effect's money: what it held at every level, and what it was charged there.

Rules: BUD-02 (a reservation counts at the task and all ancestors, or not at all), BUD-03 (a charge within the
reservation, the rest as an overrun, at every level alike), BUD-04 (unknown holds its maximum), REP-04.
It adds to the totals that `ledger.sqlite.check_tasks` holds the budgets against.
"""

from ledger.model import Effect
from ledger.sqlite.check_ground import Ground, Move, Totals
from ledger.states import UNRESOLVED, EffectState


def _totals(ground: Ground, task_id: str, unit: str) -> Totals:
    return ground.totals.setdefault((task_id, unit), Totals())


def check_reservations(ground: Ground, effect: Effect, *, admitted: bool) -> None:
    """Check that an admitted effect holds its whole cost at every level of its path, and any other nothing."""
    found = {
        (task_id, unit): amount
        for task_id, unit, amount in ground.rows(
            "SELECT task_id, unit, amount FROM reservations WHERE effect_id = ?", effect.effect_id
        )
    }
    if effect.state in UNRESOLVED:
        for (task_id, unit), amount in found.items():
            _totals(ground, task_id, unit).reserved += amount
    where = ("reservations", effect.effect_id)
    if not admitted:
        if found:
            says = "The trail never admitted this effect, and it holds money."
            ground.find("reservation_without_trail", where, says)
        return
    path = ground.paths.get(effect.task_id, ())
    expected = {(level, str(unit)): amount for level in path for unit, amount in effect.cost.items()}
    if expected.keys() - found.keys():
        ground.find("reservation_missing", where, "The effect's cost is not held at every level of its path.")
    if any(expected.get(key) != amount for key, amount in found.items()):
        ground.find(
            "reservation_differs", where, "What the effect holds is not its cost, or is not on its path."
        )


def check_settlements(ground: Ground, effect: Effect, *, outcome: Move | None) -> None:
    """Check that an effect is settled at every level by its outcome, alike, within what it held; or not at all."""
    found = ground.rows(
        "SELECT task_id, unit, charged, overrun, sequence FROM settlements WHERE effect_id = ?",
        effect.effect_id,
    )
    for task_id, unit, charged, overrun, _sequence in found:
        totals = _totals(ground, task_id, unit)
        totals.settled += charged
        totals.overrun += overrun
    where = ("settlements", effect.effect_id)
    if outcome is None:
        if found:
            ground.find(
                "settlement_without_trail", where, "The trail tells of no outcome, and something is settled."
            )
        return
    path = ground.paths.get(effect.task_id, ())
    units = {str(unit) for unit in effect.cost} | {unit for _task, unit, *_rest in found}
    expected = {(level, unit) for level in path for unit in units}
    if expected - {(task_id, unit) for task_id, unit, *_rest in found}:
        ground.find("settlement_missing", where, "The outcome is not settled at every level of the path.")
    charges: dict[str, tuple[int, int]] = {}
    for task_id, unit, charged, overrun, sequence in found:
        alike = charges.setdefault(unit, (charged, overrun)) == (charged, overrun)
        fits = (task_id, unit) in expected and sequence == outcome.sequence
        if not (alike and fits and _is_chargeable(effect, outcome, unit, charged, overrun)):
            says = "What is charged is not alike at every level, not within what was held, or not by the outcome."
            ground.find("settlement_differs", where, says)
            return


def _is_chargeable(effect: Effect, outcome: Move, unit: str, charged: int, overrun: int) -> bool:
    """Say whether an outcome can have charged this: an overrun begins where the reservation ends."""
    held = {str(name): amount for name, amount in effect.cost.items()}.get(unit, 0)
    if outcome.state == EffectState.NO_EFFECT:
        return (charged, overrun) == (0, 0)
    return 0 <= charged <= held and overrun >= 0 and (overrun == 0 or charged == held)
