"""The part of a check that recomputes what is counted: counters, slots, repetition, holdings, what was collected.

Rules: POL-02, POL-03 and BUD-06 (counters and repetition are what effects and tombstones make them; a slot belongs to a
task and a name that it counts), LED-02 (what is held is what is there). What a class's bound was when a permit was
issued is in no row and no span, so of the counters of bounds only the sum is recomputed.
`ledger.sqlite.check_effects` and `ledger.sqlite.check_collected` have added everything up by then.
"""

from collections.abc import Collection
from typing import Any, Final, NamedTuple

from ledger.model import Scope
from ledger.scope import SLOTS, slot_counter
from ledger.sqlite.check_ground import Counts, Ground
from ledger.sqlite.rows import EffectRow
from ledger.sqlite.triggers import HOLDINGS_RECOUNTED
from ledger.states import PENDING, SLOT_RETURNING, UNRESOLVED, EffectState

_SLOT_RETURNING: Final = frozenset(state.value for state in SLOT_RETURNING)
_COUNTED: Final = ("pending", "unresolved", "succeeded")
_COUNTED_AT: Final = {
    **dict.fromkeys((state.value for state in PENDING), 0),
    **dict.fromkeys((state.value for state in UNRESOLVED), 1),
    EffectState.SUCCEEDED.value: 2,
}
"""Which of the three counts an effect is in, by its state; in none where the state is not here."""

_NONE: Final = [0, 0, 0]
Row = tuple[Any, ...]


def add_repetition(counts: Counts, state: str, content_key: bytes, resource_key: bytes) -> None:
    """Add one effect, or one tombstone, to what is repeated (POL-02)."""
    at = _COUNTED_AT.get(state)
    if at is None:
        return
    for lines, key in ((counts.content, content_key), (counts.resource, resource_key)):
        line = lines.get(key)
        if line is None:
            line = lines[key] = [0, 0, 0]
        line[at] += 1


def add_effect(counts: Counts, row: EffectRow, takes: list[Row]) -> None:
    """Add one effect: what it repeats, and what it still takes from counters; `takes` are its `counter_takes`."""
    add_repetition(counts, row.state, row.content_key, row.resource_key)
    if row.state not in _SLOT_RETURNING:
        for _effect_id, counter, amount in takes:
            counts.counters[counter] += amount


def add_kept(counts: Counts, taken: Collection[str] | None) -> None:
    """Add the slots that one collected effect keeps; None says that it is not known which."""
    if taken is None or counts.slots is None:
        counts.slots = None
    else:
        counts.slots.update(taken)


class Used(NamedTuple):
    """What an effect uses of each kind that a task may count."""

    task_id: str
    action_class: str
    operation: str
    resource: str


class Slots:
    """Which counters a permit takes a slot of, at its task and every ancestor (BUD-06)."""

    def __init__(self, ground: Ground) -> None:
        """Look at each task when an effect names it."""
        self._ground = ground
        self._lines: dict[str, tuple[dict[str, list[str]], ...] | None] = {}

    def of(self, row: EffectRow) -> Collection[str] | None:
        """Return the counters of one effect; None where a task of its path cannot be relied on."""
        return self.used(
            Used(row.task_id, row.action_class, row.operation, f"{row.resource_type}:{row.resource_id}")
        )

    def used(self, used: Used | None) -> Collection[str] | None:
        """Return the same for what was used, where that is known."""
        if used is None:
            return None
        if used.task_id not in self._lines:
            self._lines[used.task_id] = self._line(used.task_id)
        line = self._lines[used.task_id]
        if line is None:
            return None
        return [
            counter for counted, name in zip(line, used[1:], strict=True) for counter in counted.get(name, ())
        ]

    def _line(self, task_id: str) -> tuple[dict[str, list[str]], ...] | None:
        """Return the counters that a task's path has by name, for each kind; a task that was edited is no help."""
        path = self._ground.paths.get(task_id, ())
        if not path or any(level not in self._ground.tasks for level in path):
            return None
        line: tuple[dict[str, list[str]], ...] = ({}, {}, {})
        for level in path:
            for counted, (kind, slots) in zip(line, self._ground.tasks[level].scope.names(), strict=True):
                for name, count in (slots or {}).items():
                    if count is not None:
                        counted.setdefault(name, []).append(slot_counter(level, kind, name))
        return line


def check_counts(ground: Ground) -> None:
    """Hold counters, repetition and holdings against what effects and tombstones make them."""
    _check_spend(ground)
    _check_takes(ground)
    _check_counters(ground)
    _check_repetition(ground)
    held = ground.rows("SELECT one, effects, tombstones, record_bytes, spans, span_bytes FROM holdings")
    if held != ground.rows(HOLDINGS_RECOUNTED):
        says = "How much the ledger holds is not what its rows add up to."
        ground.find("holdings", ("holdings",), says)


def _check_spend(ground: Ground) -> None:
    """Take in what collected effects were charged, after holding it against the ends that the trail tells of them."""
    told = None if ground.counts.spend is None else dict(ground.counts.spend)
    sql = "SELECT task_id, unit, charged, overrun FROM collected_spend ORDER BY task_id, unit"
    for task_id, unit, charged, overrun in ground.raw.execute(sql):
        totals = ground.total(task_id, unit)
        totals.settled += charged
        totals.overrun += overrun
        if told is not None and told.pop((task_id, unit), [0, 0]) != [charged, overrun]:
            says = "What collected effects were charged is not what the trail tells of them."
            ground.find("collected_spend", ("collected_spend", task_id, unit), says)
    for task_id, unit in sorted(key for key, sums in (told or {}).items() if any(sums)):
        says = "The trail charged collected effects here, and the row that says so is gone."
        ground.find("collected_spend", ("collected_spend", task_id, unit), says)


def _check_takes(ground: Ground) -> None:
    """Take in what collected effects keep of counters, after holding the slots against their tasks."""
    slots = None if ground.counts.slots is None else dict(ground.counts.slots)
    for counter, amount in ground.raw.execute("SELECT counter, amount FROM collected_takes ORDER BY counter"):
        ground.counts.counters[counter] += amount
        if slots is not None and counter.startswith(SLOTS) and slots.pop(counter, 0) != amount:
            says = "The slots that collected effects keep are not those that they took."
            ground.find("collected_takes", ("collected_takes", counter), says)
    for counter in sorted(slots or {}):
        says = "Collected effects keep slots of this counter, and the row that says so is gone."
        ground.find("collected_takes", ("collected_takes", counter), says)


def _check_counters(ground: Ground) -> None:
    expected = dict(ground.counts.counters)
    for counter, used, ceiling in ground.raw.execute(
        "SELECT counter, used, ceiling FROM counters ORDER BY counter"
    ):
        told = expected.pop(counter, 0)
        where = ("counters", counter)
        if used != told:
            ground.find("counter", where, f"{used} is used, and the permits took {told}.")
        if counter.startswith(SLOTS):
            _check_slot_counter(ground, counter, ceiling)
    for counter in sorted(expected):
        ground.find(
            "counter_missing", ("counters", counter), "Permits took from this counter, and it is gone."
        )


def _check_slot_counter(ground: Ground, counter: str, ceiling: int) -> None:
    where = ("counters", counter)
    task_id, kind, name = (*counter.removeprefix(SLOTS).split("|", 2), "", "")[:3]
    task = ground.tasks.get(task_id)
    if task is None:
        if task_id not in ground.paths:
            ground.find("slot_of_nothing", where, "The counter is of a task that is not there.")
        return
    count = _count(task.scope, kind, name)
    if count is None:
        ground.find("slot_of_nothing", where, "The counter is of a name that its task does not count.")
    # A restore counts what happened, even beyond what the task has.
    elif ceiling != count and not (ground.trail.is_replayed and ceiling > count):
        ground.find("slot_ceiling", where, "The ceiling of the slots is not the number that the task has.")


def _count(scope: Scope, kind: str, name: str) -> int | None:
    slots = dict(scope.names()).get(kind)
    return None if slots is None else slots.get(name)


def _check_repetition(ground: Ground) -> None:
    says = "The counts of earlier effects are not what the effects make them."
    expected = {"content": ground.counts.content, "resource": ground.counts.resource}
    sql = f"SELECT kind, key, {', '.join(_COUNTED)} FROM repetition ORDER BY kind, key"
    for kind, key, *held in ground.raw.execute(sql):
        if held != expected[kind].pop(key, _NONE):
            ground.find("repetition", ("repetition", kind, key.hex()[:16]), says)
    # What repeats nothing any more needs no row: it goes with the effects that were collected.
    for kind, lines in expected.items():
        for key in sorted(lines):
            where = ("repetition", kind, key.hex()[:16])
            ground.find("repetition_missing", where, "The counts of earlier effects are gone.")
