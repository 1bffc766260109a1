"""The part of a check about what was collected: each tombstone against the trail, and what must be left of its effect.

Rules: PER-04 (a collected permit stays spent for ever), LED-02 (only what is over is collected, and on record), EFF-11
(a tombstone answers its request key), LED-06 (tombstones carry a MAC). What collected effects were charged, and which
slots they keep, stands in sums without a MAC; here it is added up again from the spans that ended them.
Next: `ledger.sqlite.check_counts` holds the sums against that.
"""

from typing import Any, Final

from ledger.canonical import comparable_bytes
from ledger.sqlite import rows
from ledger.sqlite.check_counts import Slots, Used, add_kept, add_repetition
from ledger.sqlite.check_effects import Told, check_use, told_of
from ledger.sqlite.check_ground import BATCH, UNREADABLE, Beside, Ground, Move, Said, amounts_said
from ledger.states import UNUSED, EffectState

_UNUSED: Final = frozenset(state.value for state in UNUSED)
_CHARGED: Final = frozenset({EffectState.SUCCEEDED.value, EffectState.FAILED.value})
_EFFECTS: Final = "SELECT +effect_id FROM effects"
"""The ids of all effects, read from an index: without the plus SQLite reads the large rows one by one."""

_REDACTED: Final = "[redacted:"
"""What stands in a span for a value that must not be kept begins so (`audit.redaction`)."""

_LEFT_OVER: Final = ("claims", "reservations", "settlements")
"""Tables whose rows hang on the use of a permit, which stays; those that hang on the effect dangle by themselves."""

_COLUMNS: Final = f"{rows.TOMBSTONE_COLUMNS}, sequence, mac"
Row = tuple[Any, ...]


def check_collected(ground: Ground) -> None:
    """Check every tombstone, and that nothing is left of a collected effect but what its permit spent."""
    _check_risen(ground)
    uses = Beside(ground, "permit_uses", "effect_id, permit_id, sequence")
    slots = Slots(ground)
    cursor = ground.raw.execute(f"SELECT {_COLUMNS} FROM tombstones ORDER BY effect_id")
    while batch := cursor.fetchmany(BATCH):
        for row in batch:
            _check_tombstone(ground, row, uses.of(row[0]), slots)
    _check_gone(ground)


def _check_risen(ground: Ground) -> None:
    """Name effects that were collected and have rows; they were looked at as effects, so their story is not here."""
    for (effect_id,) in ground.raw.execute(
        f"SELECT effect_id FROM tombstones WHERE effect_id IN ({_EFFECTS}) ORDER BY effect_id"
    ):
        if effect_id not in ground.trail.collected:
            says = "The effect has a tombstone, and its row is there as well."
            ground.find("effect_collected", ("effects", effect_id), says)
    for table in _LEFT_OVER:
        for (effect_id,) in ground.raw.execute(
            f"SELECT DISTINCT effect_id FROM {table} WHERE effect_id NOT IN ({_EFFECTS}) ORDER BY effect_id"
        ):
            ground.find("left_over", (table, effect_id), "This row is of an effect that has none any more.")
    for (effect_id,) in ground.raw.execute(
        f"SELECT effect_id FROM permit_uses WHERE effect_id NOT IN ({_EFFECTS}) "
        "AND effect_id NOT IN (SELECT effect_id FROM tombstones) ORDER BY effect_id"
    ):
        says = "The permit of an effect is used that is nowhere."
        ground.find("use_without_effect", ("permit_uses", effect_id), says)


def _check_tombstone(ground: Ground, row: Row, uses: list[Row], slots: Slots) -> None:
    effect_id, sequence, mac = row[0], row[-2], row[-1]
    where = ("tombstones", effect_id)
    tombstone = dict(zip(_COLUMNS.split(", "), row, strict=True))
    try:
        authentic = ground.proofs.keys.is_authentic("row", comparable_bytes(rows.tombstone_signed(row)), mac)
    except UNREADABLE:
        authentic = False
    if not authentic:
        ground.find("tombstone_mac", where, "The tombstone was changed by someone without the keys.")
    add_repetition(ground.counts, tombstone["state"], tombstone["content_key"], tombstone["resource_key"])
    moves = ground.trail.effects.pop(effect_id, [])
    if not moves:
        if _is_archived(ground, tombstone, sequence):
            check_use(ground, effect_id, [], uses, None)
        elif not _is_risen(ground, effect_id):
            ground.find("tombstone_without_trail", where, "The trail tells nothing of this effect.")
        return
    told = told_of(moves)
    _check_story(ground, tombstone, told, sequence)
    permits = [] if tombstone["permit_id"] is None else [(effect_id, tombstone["permit_id"])]
    check_use(ground, effect_id, permits, uses, told.admitted)
    if told.settled is not None and told.settled.state in _CHARGED:
        add_kept(ground.counts, slots.used(_used(tombstone, _add_charge(ground, tombstone, told.settled))))
    elif told.settled is not None and effect_id in ground.trail.charges:
        _add_charge(ground, tombstone, told.settled)  # it had no effect, and its acknowledged charge stays


def _is_archived(ground: Ground, tombstone: dict[str, Any], sequence: int) -> bool:
    """Say whether the whole story of a collected effect may have been archived: it ended without an admission.

    Which spans are archived is held against the trail by `ledger.sqlite.check_archived`.
    """
    at = ground.trail.collected.get(tombstone["effect_id"])
    is_told = at == sequence or (at is None and sequence in ground.trail.unnamed)
    return bool(ground.trail.archived_first) and is_told and tombstone["state"] in _UNUSED


def _is_risen(ground: Ground, effect_id: str) -> bool:
    return bool(ground.rows("SELECT 1 FROM effects WHERE effect_id = ?", effect_id))


def _check_story(ground: Ground, tombstone: dict[str, Any], told: Told, sequence: int) -> None:
    effect_id = tombstone["effect_id"]
    where, last = ("tombstones", effect_id), told.moves[-1]
    if (last.state, last.at_ms) != (tombstone["state"], tombstone["ended_ms"]):
        says = "The tombstone does not say how and when the effect ended by the trail."
        ground.find("tombstone_differs", where, says)
    is_permitted = told.permitted is not None or effect_id in ground.trail.headless
    if is_permitted != (tombstone["permit_id"] is not None):
        says = "The trail permitted this effect, or never did, and its tombstone says otherwise."
        ground.find("tombstone_differs", where, says)
    at = ground.trail.collected.get(effect_id)
    if at != sequence and not (at is None and sequence in ground.trail.unnamed):
        says = "The trail did not collect this effect where its tombstone says."
        ground.find("tombstone_without_trail", where, says)


def _add_charge(ground: Ground, tombstone: dict[str, Any], end: Move) -> Said:
    """Add what an effect stood charged with at every level when it ended; return what the span of its end says."""
    found = ground.rows("SELECT body FROM spans WHERE sequence = ?", end.sequence)
    said = ground.said(found[0][0]) if found else {}
    charged, overrun = amounts_said(said, "permit.charged"), amounts_said(said, "permit.overrun")
    path = ground.paths.get(tombstone["task_id"])
    if charged is None or path is None or (overrun is None and "permit.overrun" in said):
        ground.counts.spend = None
    elif ground.counts.spend is not None:
        for unit, amount in charged.items():
            above = (overrun or {}).get(unit, 0)
            for level in path:
                sums = ground.counts.spend.setdefault((level, unit), [0, 0])
                sums[0] += amount - above
                sums[1] += above
    return said


def _used(tombstone: dict[str, Any], said: Said) -> Used | None:
    """Return what a collected effect used, as a span of it says; None where that is not said in full."""
    parts = [said.get(f"permit.{name}") for name in ("class", "resource.type", "resource.id")]
    if not all(type(part) is str and not part.startswith(_REDACTED) for part in parts):
        return None
    return Used(
        task_id=tombstone["task_id"],
        action_class=str(parts[0]),
        operation=tombstone["operation"],
        resource=f"{parts[1]}:{parts[2]}",
    )


def _check_gone(ground: Ground) -> None:
    """Account for every effect that the trail tells of and that no row is left of.

    Only the tombstone of an effect that was collected, and never had a permit, may be forgotten (LED-02).
    """
    forgotten = 0
    for effect_id, moves in ground.trail.effects.items():
        told = told_of(moves)
        collected = effect_id in ground.trail.collected
        ended_unused = bool(moves) and moves[-1].state in _UNUSED and told.permitted is None
        if ended_unused and (collected or ground.trail.unnamed):
            forgotten += 1
        elif collected:
            says = "The trail collected this effect, and its tombstone is gone."
            ground.find("tombstone_missing", ("tombstones", effect_id), says)
        else:
            where = ("effects", effect_id)
            ground.find("effect_missing", where, "The trail tells of this effect, and its row is gone.")
    silent = _forgotten_archived(ground)
    forgotten += silent
    # Before an archive a trail may come from a release that did not count; what it forgot is then still told of.
    told_gone = ground.trail.forgotten if not silent else ground.trail.forgotten or 0
    if ground.trail.archived_first and ground.trail.unnamed:
        return  # an earlier release did not say whom it collected, and who was forgotten is archived
    if told_gone is not None and told_gone != forgotten:
        says = f"{forgotten} tombstones are gone, and the trail tells of {told_gone}."
        ground.find("tombstones_gone", ("tombstones",), says)


def _forgotten_archived(ground: Ground) -> int:
    """Count the effects that were collected, have no tombstone any more, and whose story was archived."""
    if not ground.trail.archived_first:
        return 0
    silent = ground.trail.collected.keys() - ground.trail.effects.keys()
    there = {effect_id for (effect_id,) in ground.raw.execute("SELECT effect_id FROM tombstones")}
    return len(silent - there)
