"""The part of a check that holds every effect against its trail: what it is, what it used, held and was charged.

Rules: LED-05, LED-06, ADM-02 (one use, one claim, one reservation at every level), BUD-02, BUD-03, REP-04 (`no_effect`
charges nothing), REC-05 (each outcome rests on evidence), POL-02, POL-03 and BUD-06 (counters and repetition are what
the effects make them).
Memory: one line per budget, counter and key; effects are streamed.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from ledger.model import Effect, Permit
from ledger.pending import element_data, with_effect
from ledger.sqlite import rows
from ledger.sqlite.check_ground import UNREADABLE, Ground, Move, Where
from ledger.sqlite.check_money import check_reservations, check_settlements
from ledger.states import PENDING, SLOT_RETURNING, UNRESOLVED, EffectState

_OUTCOMES: Final = frozenset(
    {EffectState.SUCCEEDED, EffectState.FAILED, EffectState.NO_EFFECT, EffectState.UNKNOWN}
)
_COUNTED: Final = ("pending", "unresolved", "succeeded")


@dataclass(slots=True, kw_only=True)
class _Counts:
    """What counters and repetition rows must hold, added up over all effects."""

    counters: Counter[str] = field(default_factory=Counter)
    repetition: dict[tuple[str, bytes], list[int]] = field(default_factory=dict)

    def add(self, effect: Effect) -> None:
        held = (
            effect.state in PENDING,
            effect.state in UNRESOLVED,
            effect.state is EffectState.SUCCEEDED,
        )
        for key in (("content", effect.content_key), ("resource", effect.resource_key)):
            line = self.repetition.setdefault(key, [0, 0, 0])
            for number, counts in enumerate(held):
                line[number] += counts


def check_effects(ground: Ground) -> int:
    """Check every effect with everything that hangs on it; return how many there are."""
    counts = _Counts()
    number = 0
    for row in ground.raw.execute(f"SELECT {rows.EFFECT_COLUMNS} FROM effects ORDER BY effect_id"):
        number += 1
        where = ("effects", row[0])
        moves = ground.trail.effects.pop(row[0], [])
        try:
            effect = rows.effect_from(row)
            authentic = ground.proofs.keys.is_authentic("row", rows.effect_authority(effect), row[23])
        except UNREADABLE:
            ground.find("effect_unreadable", where, "The effect's row cannot be read.")
            continue
        if not authentic:
            ground.find("effect_mac", where, "The effect was changed by someone without the keys.")
        if effect.state in PENDING:
            _recount(ground, effect, row[23])
        _check_row(ground, effect, where)
        _check_end(ground, effect, moves, where)
        _check_permit(ground, effect, moves)
        _check_use(ground, effect, moves)
        _check_evidence(ground, effect, moves)
        told = _moved_to(moves, EffectState.ADMITTED) is not None
        check_reservations(ground, effect, admitted=told)
        check_settlements(ground, effect, outcome=_settled_by(moves))
        _take(ground, effect, counts)
        counts.add(effect)
    for effect_id in ground.trail.effects:
        ground.find(
            "effect_missing",
            ("effects", effect_id),
            "The trail tells of this effect, and its row is gone.",
        )
    if ground.pending != ground.head_pending:
        says = "The effects that may still be admitted are not those that the head counts."
        ground.find("pending_set", ("head",), says)
    _check_owners(ground)
    _check_counters(ground, counts)
    _check_repetition(ground, counts)
    return number


def _recount(ground: Ground, effect: Effect, mac: bytes) -> None:
    """Count an effect among those that may still be admitted (`ledger.pending`)."""
    try:
        tag = ground.proofs.keys.tag("row", element_data(effect.effect_id), like=mac)
    except UNREADABLE:  # its MAC names no key of ours, which is a finding already
        return
    ground.pending = with_effect(ground.pending, tag)


def _moved_to(moves: list[Move], state: EffectState) -> Move | None:
    return next((move for move in moves if move.state == state), None)


def _settled_by(moves: list[Move]) -> Move | None:
    """Return the move that settled the effect, or None where nothing is settled (yet)."""
    last = moves[-1] if moves else None
    settles = last is not None and last.state in _OUTCOMES and last.state != EffectState.UNKNOWN
    return last if settles else None


def _check_row(ground: Ground, effect: Effect, where: Where) -> None:
    digest = ground.proofs.binding_digest
    if digest is not None and digest(effect.binding) != effect.binding_digest:
        ground.find("binding_digest", where, "The digest of the effect is not that of its binding.")
    if ground.roots.get(effect.task_id) != effect.root_id:
        ground.find("effect_root", where, "The effect's root is not that of its task.")


def _check_end(ground: Ground, effect: Effect, moves: list[Move], where: Where) -> None:
    """Hold where the effect stands against the last that its trail tells."""
    if not moves:
        ground.find("effect_without_trail", where, "The trail tells nothing of this effect.")
        return
    last = moves[-1]
    if effect.state != last.state:
        ground.find("effect_state", where, "The effect's state is not the last that the trail tells of it.")
    if (effect.last_span, effect.sequence) != (last.span_id, last.sequence):
        ground.find("effect_place", where, "The effect does not name the span that moved it last.")


def _check_permit(ground: Ground, effect: Effect, moves: list[Move]) -> None:
    where = ("permits", effect.effect_id)
    found = ground.rows(
        "SELECT permit_id, effect_id, seal, tier, issued_ms, expires_ms, caps, sequence FROM permits "
        "WHERE effect_id = ?",
        effect.effect_id,
    )
    told = _moved_to(moves, EffectState.PERMITTED)
    if not found:
        if told is not None:
            ground.find("permit_missing", where, "The trail permitted this effect, and its permit is gone.")
        return
    if told is None:
        ground.find("permit_without_trail", where, "The trail never permitted this effect.")
    elif found[0][7] != told.sequence:
        ground.find("permit_place", where, "The permit does not name the span that permitted the effect.")
    try:
        permit = rows.permit_from(found[0])
    except UNREADABLE:
        ground.find("permit_unreadable", where, "The permit's row cannot be read.")
        return
    _check_seal(ground, effect, permit, where)


def _check_seal(ground: Ground, effect: Effect, permit: Permit, where: Where) -> None:
    open_seal = ground.proofs.open_seal
    if open_seal is not None and not open_seal(ground.ledger_id, effect, permit):
        ground.find("seal", where, "The permit's seal does not open for what stands in its row.")
    if permit.caps and permit.expires_ms != min(permit.caps.values()):
        ground.find("permit_caps", where, "The permit does not end at the earliest of its caps.")


def _check_use(ground: Ground, effect: Effect, moves: list[Move]) -> None:
    """Check that the permit was used, and the admission claimed, exactly where the trail admitted the effect."""
    told = _moved_to(moves, EffectState.ADMITTED)
    where = ("permit_uses", effect.effect_id)
    uses = ground.rows(
        "SELECT u.sequence, p.permit_id IS u.permit_id FROM permit_uses AS u "
        "LEFT JOIN permits AS p ON p.effect_id = u.effect_id WHERE u.effect_id = ?",
        effect.effect_id,
    )
    if uses and told is None:
        ground.find(
            "use_without_trail", where, "The trail never admitted this effect, and its permit is used."
        )
    if not uses and told is not None:
        ground.find(
            "use_missing", where, "The trail admitted this effect, and the use of its permit is gone."
        )
    if uses and told is not None and (uses[0][0] != told.sequence or not uses[0][1]):
        ground.find("use_place", where, "The use does not name the permit and the span of the admission.")
    where = ("claims", effect.effect_id)
    claims = ground.rows(f"SELECT {rows.CLAIM_COLUMNS} FROM claims WHERE effect_id = ?", effect.effect_id)
    if claims and told is None:
        ground.find(
            "claim_without_trail", where, "The trail never admitted this effect, and somebody claims it."
        )
    if not claims and told is not None:
        ground.find("claim_missing", where, "The trail admitted this effect, and nobody claims it.")
    for row in claims:
        signed = rows.claim_authority(rows.claim_from(row))
        if not ground.proofs.keys.is_authentic("row", signed, row[len(row) - 1]):
            ground.find("claim_mac", where, "The claim was changed by someone without the keys.")
    if claims and told is not None and rows.claim_from(claims[0]).admitted_ms != told.at_ms:
        ground.find("claim_time", where, "The claim is not of the instant of the admission.")


def _check_evidence(ground: Ground, effect: Effect, moves: list[Move]) -> None:
    """Check that each outcome rests on evidence for itself (REC-05)."""
    outcomes = {move.sequence: move.state for move in moves if move.state in _OUTCOMES}
    if not outcomes:
        return
    proven = dict(ground.rows("SELECT sequence, proves FROM evidence WHERE effect_id = ?", effect.effect_id))
    for sequence, state in outcomes.items():
        where = ("evidence", effect.effect_id, sequence)
        if sequence not in proven:
            ground.find("evidence_missing", where, "The outcome rests on no evidence.")
        elif proven[sequence] != state:
            ground.find(
                "evidence_differs", where, "The evidence is for another outcome than the trail tells."
            )


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


def _take(ground: Ground, effect: Effect, counts: _Counts) -> None:
    """Add up what the effect still takes from the bounds of its class (BUD-06)."""
    if effect.state in SLOT_RETURNING:
        return
    for counter, amount in ground.rows(
        "SELECT counter, amount FROM counter_takes WHERE effect_id = ?", effect.effect_id
    ):
        counts.counters[counter] += amount


def _check_counters(ground: Ground, counts: _Counts) -> None:
    expected = dict(counts.counters)
    for counter, used in ground.raw.execute("SELECT counter, used FROM counters ORDER BY counter"):
        told = expected.pop(counter, 0)
        if used != told:
            ground.find("counter", ("counters", counter), f"{used} is used, and the permits took {told}.")
    for counter in sorted(expected):
        ground.find(
            "counter_missing", ("counters", counter), "Permits took from this counter, and it is gone."
        )


def _check_repetition(ground: Ground, counts: _Counts) -> None:
    expected = dict(counts.repetition)
    for kind, key, *held in ground.raw.execute(
        f"SELECT kind, key, {', '.join(_COUNTED)} FROM repetition ORDER BY kind, key"
    ):
        if held != expected.pop((kind, key), [0, 0, 0]):
            where = ("repetition", kind, key.hex()[:16])
            ground.find(
                "repetition", where, "The counts of earlier effects are not what the effects make them."
            )
    for kind, key in sorted(expected):
        where = ("repetition", kind, key.hex()[:16])
        ground.find("repetition_missing", where, "The counts of earlier effects are gone.")
