"""Collecting on a bare ledger: one batch as the issuer's flow makes it, with what a test wants kept."""

from issuer.flow.collect import TOMBSTONES_KEPT, Keeping, due, forgettable, tombstone_of
from ledger.changes import EffectCollected, Step, TombstonesForgotten
from ledger.model import EffectId, InstantMs
from ledger.port import Ledger, Verdict, View
from ledger.transitions import Transition, TransitionName
from tests.support.ledgers import HOUR_MS

WINDOW_MS = 2 * HOUR_MS
"""When the window of a test's effect is over, counted from its start: an hour after its permit."""


def asked(*, unused: int = 0, keep_ms: int = 0, tombstones: int = TOMBSTONES_KEPT) -> Keeping:
    """Return what an operator asks for."""
    return Keeping(unused=unused, keep_ms=keep_ms, reason="asked", tombstones=tombstones)


def collect(ledger: Ledger, wanted: Keeping) -> tuple[EffectId, ...]:
    """Collect one batch of what is due; return the effects that went."""

    def decide(view: View, now: InstantMs) -> Verdict[tuple[EffectId, ...]]:
        effects = due(view, now, wanted)
        forgotten = tuple(forgettable(view, wanted))
        if not effects and not forgotten:
            return Verdict(value=())
        changes = [EffectCollected(tombstone=tombstone_of(view, effect)) for effect in effects]
        forgets = (TombstonesForgotten(effect_ids=forgotten),) if forgotten else ()
        transition = Transition(name=TransitionName.LEDGER_COLLECTED, story=view.head().ledger_id)
        step = Step(transition=transition, changes=(*changes, *forgets))
        return Verdict(value=tuple(effect.effect_id for effect in effects), steps=(step,))

    return ledger.transact(decide).value
