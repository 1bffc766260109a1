"""The part of a check that holds every effect against its trail: what it is, what it used, held and was charged.

Rules: LED-05, LED-06, ADM-02 (one use, one claim, one reservation at every level), BUD-02, BUD-03, REP-04 (`no_effect`
charges nothing), REC-05 (each outcome rests on evidence), BUD-06 (a permit takes the slots of its tasks), PER-04 (what
was collected has no row again). It adds to what `ledger.sqlite.check_counts` holds counters and repetition against.
Memory: one line per budget, counter and key; effects and the rows that hang on them are streamed side by side.
"""

import json
from collections.abc import Collection
from functools import lru_cache
from typing import Any, Final, NamedTuple

from ledger.canonical import comparable_bytes
from ledger.model import Amounts, Tier
from ledger.port import SealedEffect, SealedPermit
from ledger.scope import SLOTS
from ledger.sqlite import rows
from ledger.sqlite.check_counts import Slots, add_effect
from ledger.sqlite.check_ground import BATCH, UNREADABLE, Beside, Ground, Move
from ledger.sqlite.check_money import check_reservations, check_settlements
from ledger.sqlite.rows import EffectRow
from ledger.standing import bucket_of
from ledger.states import EffectState

# Plain text: what the trail tells is text, and an enum's own hash costs more than the comparison.
_STATES: Final = frozenset(state.value for state in EffectState)
_TIERS: Final = frozenset(tier.value for tier in Tier)
_PERMITTED: Final = EffectState.PERMITTED.value
_ADMITTED: Final = EffectState.ADMITTED.value
_SETTLING: Final = frozenset(
    state.value for state in (EffectState.SUCCEEDED, EffectState.FAILED, EffectState.NO_EFFECT)
)
_OUTCOMES: Final = _SETTLING | {EffectState.UNKNOWN.value}
_CLAIMED_AT: Final = rows.CLAIM_COLUMNS.split(", ").index("admitted_ms")
_PERMIT: Final = "permit_id, seal, tier, issued_ms, expires_ms, caps, sequence"
Row = tuple[Any, ...]


class Told(NamedTuple):
    """What the trail tells of one effect: its moves, and among them where it was permitted, admitted and settled.

    A restore that held an effect again admitted it (LED-08).
    """

    moves: list[Move]
    permitted: Move | None
    admitted: Move | None
    settled: Move | None


def told_of(moves: list[Move]) -> Told:
    """Return what an effect's moves amount to."""
    permitted = admitted = None
    for move in reversed(moves):
        if move.state == _PERMITTED:
            permitted = move
        elif move.state == _ADMITTED or move.replayed:
            admitted = move
    return Told(moves, permitted, admitted, moves[-1] if moves and moves[-1].state in _SETTLING else None)


class _Tables:
    """What hangs on effects, each table read once beside them."""

    def __init__(self, ground: Ground) -> None:
        self.permits = Beside(ground, "permits", f"effect_id, {_PERMIT}")
        self.uses = Beside(ground, "permit_uses", "effect_id, permit_id, sequence")
        self.claims = Beside(ground, "claims", rows.CLAIM_COLUMNS)
        self.evidence = Beside(ground, "evidence", "effect_id, sequence, proves")
        self.reservations = Beside(ground, "reservations", "effect_id, task_id, unit, amount")
        self.settlements = Beside(
            ground, "settlements", "effect_id, task_id, unit, charged, overrun, sequence"
        )
        self.takes = Beside(ground, "counter_takes", "effect_id, counter, amount")


def check_effects(ground: Ground) -> int:
    """Check every effect with everything that hangs on it; return how many there are."""
    tables = _Tables(ground)
    slots = Slots(ground)
    number = 0
    cursor = ground.raw.execute(f"SELECT bucket, {rows.EFFECT_COLUMNS} FROM effects ORDER BY effect_id")
    while batch := cursor.fetchmany(BATCH):
        number += len(batch)
        for row in batch:
            _check_place(ground, row[0], row[1])
        _check_batch(ground, [EffectRow._make(row[1:]) for row in batch], tables, slots)
    _check_owners(ground)
    return number


def _check_place(ground: Ground, bucket: int, effect_id: str) -> None:
    """Check that an effect is where its id puts it, and was not collected."""
    try:
        is_in_bucket = bucket_of(effect_id) == bucket
    except UNREADABLE:
        is_in_bucket = False
    if not is_in_bucket:
        says = "The effect is not in the bucket that its id puts it in."
        ground.find("effect_bucket", ("effects", effect_id), says)
    if effect_id in ground.trail.headless:
        says = "The story of this effect does not begin with its preparation."
        ground.find("trail_begin", ("effects", effect_id), says)
    if effect_id in ground.trail.collected:
        says = "The trail collected this effect, and its row is there again."
        ground.find("effect_collected", ("effects", effect_id), says)


def _cost(ground: Ground, row: EffectRow) -> Amounts | None:
    """Return what an effect costs after its MAC was checked, or None where its row cannot be read.

    A MAC that holds over the row as it stands says that an effect was written so, all but its state.
    """
    keys = ground.proofs.keys
    try:
        is_as_written = keys.is_authentic("row", comparable_bytes(rows.effect_signed(row)), row.mac)
        effect = None if is_as_written and row.state in _STATES else rows.effect_from(row)
        is_authentic = effect is None or keys.is_authentic("row", rows.effect_authority(effect), row.mac)
    except UNREADABLE:
        ground.find("effect_unreadable", ("effects", row.effect_id), "The effect's row cannot be read.")
        return None
    if not is_authentic:
        says = "The effect was changed by someone without the keys."
        ground.find("effect_mac", ("effects", row.effect_id), says)
    return _amounts(row.cost) if effect is None else effect.cost


_amounts: Final = lru_cache(maxsize=1024)(rows.amounts_from)
"""Most effects cost one of few amounts."""


def _check_batch(ground: Ground, batch: list[EffectRow], tables: _Tables, slots: Slots) -> None:
    """Ask one question of every effect of a batch, then the next."""
    stories = [told_of(ground.trail.effects.pop(row.effect_id, [])) for row in batch]
    costs = [_cost(ground, row) for row in batch]
    looked = [
        (SealedEffect(row.effect_id, row.task_id, row.state, row.binding_digest, cost), told)
        for row, told, cost in zip(batch, stories, costs, strict=True)
        if cost is not None
    ]
    readable = [row for row, cost in zip(batch, costs, strict=True) if cost is not None]
    for row, (_effect, told) in zip(readable, looked, strict=True):
        _check_row(ground, row, told.moves)
        _check_end(ground, row, told.moves)
    permits = [tables.permits.of(effect.effect_id) for effect, _told in looked]
    for (effect, told), found in zip(looked, permits, strict=True):
        _check_permit(ground, effect, found, told.permitted)
    for (effect, told), found in zip(looked, permits, strict=True):
        check_use(ground, effect.effect_id, found, tables.uses.of(effect.effect_id), told.admitted)
    for effect, told in looked:
        claimed = None if told.admitted is None or told.admitted.replayed else told.admitted
        _check_claim(ground, effect.effect_id, tables.claims.of(effect.effect_id), claimed)
    for effect, told in looked:
        _check_evidence(ground, effect.effect_id, tables.evidence.of(effect.effect_id), told.moves)
    for effect, told in looked:
        admitted = told.admitted is not None
        check_reservations(ground, effect, tables.reservations.of(effect.effect_id), admitted=admitted)
    for effect, told in looked:
        check_settlements(ground, effect, tables.settlements.of(effect.effect_id), outcome=told.settled)
    for row, (_effect, told) in zip(readable, looked, strict=True):
        takes = tables.takes.of(row.effect_id)
        add_effect(ground.counts, row, takes)
        # A replayed effect took its slots as if its permit were known.
        took = told.permitted is not None or (told.admitted is not None and told.admitted.replayed)
        _check_slots(ground, row, takes, slots.of(row) if took else ())


def _check_row(ground: Ground, row: EffectRow, moves: list[Move]) -> None:
    digest = ground.proofs.binding_digest
    # One that a restore made from its spans has the digest of a binding that nobody has any more.
    if digest is not None and not row.replayed and digest(row.binding) != row.binding_digest:
        says = "The digest of the effect is not that of its binding."
        ground.find("binding_digest", ("effects", row.effect_id), says)
    if bool(row.replayed) != bool(moves and moves[0].replayed):
        says = "The trail does not tell that a restore made this effect."
        ground.find("effect_replayed", ("effects", row.effect_id), says)
    if ground.roots.get(row.task_id) != row.root_id:
        says = "The effect's root is not that of its task."
        ground.find("effect_root", ("effects", row.effect_id), says)


def _check_end(ground: Ground, row: EffectRow, moves: list[Move]) -> None:
    """Hold where the effect stands against the last that its trail tells."""
    where = ("effects", row.effect_id)
    if not moves:
        ground.find("effect_without_trail", where, "The trail tells nothing of this effect.")
        return
    last = moves[-1]
    if row.state != last.state:
        ground.find("effect_state", where, "The effect's state is not the last that the trail tells of it.")
    if row.last_span != last.span_id or row.sequence != last.sequence:
        ground.find("effect_place", where, "The effect does not name the span that moved it last.")


def _check_permit(ground: Ground, effect: SealedEffect, found: list[Row], told: Move | None) -> None:
    where = ("permits", effect.effect_id)
    if not found:
        if told is not None:
            ground.find("permit_missing", where, "The trail permitted this effect, and its permit is gone.")
        return
    _effect_id, permit_id, seal, tier, issued_ms, expires_ms, caps, sequence = found[0]
    if told is None:
        ground.find("permit_without_trail", where, "The trail never permitted this effect.")
    elif sequence != told.sequence:
        ground.find("permit_place", where, "The permit does not name the span that permitted the effect.")
    try:
        earliest = min(json.loads(caps).values(), default=expires_ms)
    except UNREADABLE:
        earliest = None
    if earliest is None or tier not in _TIERS:
        ground.find("permit_unreadable", where, "The permit's row cannot be read.")
        return
    open_seal = ground.proofs.open_seal
    permit = SealedPermit(permit_id, seal, tier, issued_ms, expires_ms)
    if open_seal is not None and not open_seal(ground.ledger_id, effect, permit):
        ground.find("seal", where, "The permit's seal does not open for what stands in its row.")
    if expires_ms != earliest:
        ground.find("permit_caps", where, "The permit does not end at the earliest of its caps.")


def check_use(ground: Ground, effect_id: str, permits: list[Row], uses: list[Row], told: Move | None) -> None:
    """Check that the permit was used exactly where the trail admitted the effect.

    `permits` and `uses` are rows that begin with (effect_id, permit_id).
    """
    where = ("permit_uses", effect_id)
    if uses and told is None:
        says = "The trail never admitted this effect, and its permit is used."
        ground.find("use_without_trail", where, says)
    if told is None:
        return
    if not uses:
        says = "The trail admitted this effect, and the use of its permit is gone."
        ground.find("use_missing", where, says)
        return
    _effect_id, permit_id, sequence = uses[0]
    # The permit of an admission that a restore held again may be one that the restored ledger never had.
    is_of_permit = permits[0][1] == permit_id if permits else told.replayed
    if sequence != told.sequence or not is_of_permit:
        ground.find("use_place", where, "The use does not name the permit and the span of the admission.")


def _check_claim(ground: Ground, effect_id: str, claims: list[Row], told: Move | None) -> None:
    """Check that the admission is claimed exactly where the trail admitted the effect."""
    where = ("claims", effect_id)
    if claims and told is None:
        says = "The trail never admitted this effect, and somebody claims it."
        ground.find("claim_without_trail", where, says)
    if not claims and told is not None:
        ground.find("claim_missing", where, "The trail admitted this effect, and nobody claims it.")
    for claim in claims:
        if not ground.proofs.keys.is_authentic("row", comparable_bytes(rows.claim_signed(claim)), claim[-1]):
            ground.find("claim_mac", where, "The claim was changed by someone without the keys.")
        if told is not None and claim[_CLAIMED_AT] != told.at_ms:
            ground.find("claim_time", where, "The claim is not of the instant of the admission.")


def _check_evidence(ground: Ground, effect_id: str, found: list[Row], moves: list[Move]) -> None:
    """Check that each outcome rests on evidence for itself (REC-05)."""
    for move in moves:
        if move.state not in _OUTCOMES:
            continue
        where = ("evidence", effect_id, move.sequence)
        proves = [proven for _effect_id, sequence, proven in found if sequence == move.sequence]
        if not proves:
            ground.find("evidence_missing", where, "The outcome rests on no evidence.")
        elif proves[0] != move.state:
            says = "The evidence is for another outcome than the trail tells."
            ground.find("evidence_differs", where, says)


def _check_slots(ground: Ground, row: EffectRow, takes: list[Row], expected: Collection[str] | None) -> None:
    """Check that a permit took one slot of each name that its tasks count, and no other (BUD-06)."""
    found = {counter: amount for _effect_id, counter, amount in takes if counter.startswith(SLOTS)}
    if expected is not None and found != dict.fromkeys(expected, 1):
        says = "The permit did not take the slots of its tasks, or others."
        ground.find("slots", ("counter_takes", row.effect_id), says)


def _check_owners(ground: Ground) -> None:
    """Check that evidence and decisions name a span of their own effect."""
    for effect_id, sequence in ground.raw.execute(
        "SELECT e.effect_id, e.sequence FROM evidence AS e LEFT JOIN spans AS s ON s.sequence = e.sequence "
        "WHERE s.effect_id IS NOT e.effect_id"
    ):
        where = ("evidence", effect_id, sequence)
        ground.find("evidence_without_trail", where, "The evidence names a span that is not its effect's.")
    for (sequence,) in ground.raw.execute(
        "SELECT d.sequence FROM decisions AS d LEFT JOIN spans AS s ON s.sequence = d.sequence "
        "WHERE s.effect_id IS NOT d.effect_id"
    ):
        says = "The decision names a span that is not its effect's."
        ground.find("decision_without_trail", ("decisions", sequence), says)
