"""The parts of a check about ceilings and totals: every grant, every accepted overrun, and at last every budget line.

Rules: LED-06 (grants carry a MAC), BUD-01 (`inherit`, absent is zero), BUD-02 and BUD-03 (what is held, settled and
overrun is what the rows of all effects add up to; above a ceiling only where an owner lowered it or accepted an
overrun, or a restore held again what had been admitted).
Grants come before the tasks, whose ceilings they make. Budgets come last: `ledger.sqlite.check_effects` and
`ledger.sqlite.check_collected` have added up by then what effects hold and were charged.
"""

from typing import Any

from ledger.sqlite import rows
from ledger.sqlite.check_ground import UNREADABLE, Ground, Totals, amounts_said
from ledger.transitions import TransitionName

_OPENS = TransitionName.TASK_OPENED.value
_GRANTS = TransitionName.TASK_GRANTED.value
_LOWERS = TransitionName.TASK_LOWERED.value


def check_grants(ground: Ground) -> None:
    """Check every grant and every accepted overrun, and add up what they give."""
    seen: set[int] = set()
    sql = "SELECT task_id, unit, sequence, kind, amount, mac FROM grants ORDER BY task_id, unit, sequence"
    for task_id, unit, sequence, kind, amount, mac in ground.raw.execute(sql):
        where = ("grants", task_id, unit, sequence)
        try:
            signed = rows.grant_authority(task_id, unit, sequence, kind, amount)
            authentic = ground.proofs.keys.is_authentic("row", signed, mac)
        except UNREADABLE:
            authentic = False
        if not authentic:
            ground.find("grant_mac", where, "The grant was changed by someone without the keys.")
        key = (task_id, unit)
        if not _is_told(ground, key, sequence, kind):
            says = "The grant names a span that is not its task's, or gives nothing of its kind."
            ground.find("grant_without_trail", where, says)
        seen.add(sequence)
        before = ground.ceilings.get(key, 0)
        ground.ceilings[key] = amount if kind == "set" else None if before is None else before + amount
    for sequence, (task_id, name) in ground.trail.ceilings.items():
        # An opening may give no unit anything.
        if sequence not in seen and name != _OPENS:
            says = "The trail changed a ceiling here, and the grant that says so is gone."
            ground.find("grant_missing", ("grants", task_id, sequence), says)
    _check_accepted(ground)


def _is_told(ground: Ground, key: tuple[str, str], sequence: int, kind: str) -> bool:
    """Say whether the span of a grant is of its task and kind, and note a line that was lowered."""
    told = ground.trail.ceilings.get(sequence)
    if told is None or told.task_id != key[0]:
        return False
    if told.name == _LOWERS:
        ground.lowered.add(key)
    if told.name != _GRANTS:
        return kind == "set"
    # What an upgrade took over says `set` for the first grant of a unit, whichever span gave it.
    return kind == "add" or key not in ground.ceilings


def _check_accepted(ground: Ground) -> None:
    seen: dict[int, dict[str, int]] = {}
    sql = "SELECT task_id, unit, sequence, amount FROM overruns_accepted ORDER BY task_id, unit, sequence"
    for task_id, unit, sequence, amount in ground.raw.execute(sql):
        told = ground.trail.accepted.get(sequence)
        if told is None or told.task_id != task_id:
            says = "No span of this task accepts an overrun here."
            ground.find("accepted_without_trail", ("overruns_accepted", task_id, unit, sequence), says)
        seen.setdefault(sequence, {})[unit] = amount
        ground.lowered.add((task_id, unit))
        totals = ground.total(task_id, unit)
        totals.settled += amount
        totals.overrun -= amount
    for sequence, (task_id, said) in ground.trail.accepted.items():
        told_amounts = amounts_said(said, "permit.overrun")
        found = seen.get(sequence)
        if found is None or (told_amounts is not None and told_amounts != found):
            says = "The overruns that were accepted here are not those that the trail tells."
            ground.find("accepted_differs", ("overruns_accepted", task_id, sequence), says)


def check_budgets(ground: Ground) -> None:
    """Recompute every budget line from grants, reservations, settlements and what was collected."""
    lines: set[tuple[str, str]] = set()
    sql = f"SELECT {rows.BUDGET_COLUMNS} FROM budgets ORDER BY task_id, unit"
    for line in ground.raw.execute(sql):
        lines.add(line[:2])
        _check_line(ground, line)
    for task_id, unit in sorted((ground.ceilings.keys() | ground.totals.keys()) - lines):
        ground.find("budget_missing", ("budgets", task_id, unit), "The budget line is gone.")


def _check_line(ground: Ground, line: tuple[Any, ...]) -> None:
    task_id, unit, ceiling, reserved, settled, overrun, above = line
    key, where = (task_id, unit), ("budgets", task_id, unit)
    granted = ground.ceilings.get(key, 0)
    told = ground.totals.get(key, Totals())
    if ceiling != granted:
        ground.find("budget_ceiling", where, "The ceiling is not what the grants add up to.")
    for what, stored, expected, says in (
        ("budget_reserved", reserved, told.reserved, "reserved, and the effects in flight hold"),
        ("budget_settled", settled, told.settled, "settled, and the settlements say"),
        ("budget_overrun", overrun, told.overrun, "overrun, and the settlements say"),
    ):
        if stored != expected:
            ground.find(what, where, f"{stored} is {says} {expected}.")
    excess = 0 if granted is None else max(0, told.reserved + told.settled - granted)
    if above != excess:
        says = "By how much the line stands above its ceiling is not what it says."
        ground.find("budget_above", where, says)
    if excess > 0 and key not in ground.lowered and not ground.trail.is_replayed:
        ground.find(
            "overspend", where, "What is held and settled is above the ceiling, and nobody lowered it."
        )
