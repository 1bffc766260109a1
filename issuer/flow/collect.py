"""Collecting: what is over and serves nobody any more becomes a tombstone, or space runs out (ADR-0015).

Rules: LED-02 (by itself, audited; never what is unresolved or live), PER-04 (not before the permit's whole lifetime and
the service's window are over; the permit stays spent for ever), EFF-11 (a tombstone answers its request key), AUD-02
(nothing of which a required sink has not the last span). What goes, in batches:
1. Over without an admission: nothing was sent. The newest `UNUSED_KEPT` may stand, for whoever wants to know why.
2. Over with an outcome, its window closed, and kept as long as the owner said.
3. Where space is needed, or an operator asks, all of either kind whose window is closed.
4. Tombstones of effects that never had a permit, but the newest `TOMBSTONES_KEPT`: no refused request leaves anything
   for ever.
5. Invocations that are over, kept as long, and that no effect on record names. What settled under an open one stays
   until that ends, since its success rests on it (INV-02).
The choice is made under the lock. The database refuses what is not over, or within its window, once more.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from issuer.flow import spans
from issuer.flow.content import sweep_content
from issuer.flow.dispatch import confirmed
from issuer.flow.signed_act import acting
from issuer.house import House, Visit
from issuer.sealing import ProtectedStoreUnavailable
from ledger.capacity import is_pressed, is_urgent
from ledger.changes import EffectCollected, InvocationsCollected, Step, TombstonesForgotten
from ledger.errors import CommitUncertain, LedgerCorrupt
from ledger.model import Effect, EffectId, InstantMs, InvocationId, Tombstone
from ledger.port import Verdict, View
from ledger.transitions import Transition, TransitionName

BATCH: Final = 32
"""Effects of each kind in one transaction: a few milliseconds under the writers' lock."""

UNUSED_KEPT: Final = 128
"""Effects that are over without an admission and still show their whole record: what a person looks through."""

TOMBSTONES_KEPT: Final = 10_000
"""Tombstones of effects that never had a permit: as many as effects, and a sixth of the default's bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """What is to go.

    Attributes:
        unused: how many effects without an admission may stand.
        tombstones: how many tombstones of effects without a permit may stand.
        slack: how many more of either may stand, or how many with an outcome be due, before any of them goes: so that
            one request in many pays for a batch, and not every one for one effect.
        keep_ms: how long a record is kept after its end and its window.
        reason: one snake_case word for the span.
    """

    unused: int
    keep_ms: int
    reason: str
    slack: int = 0
    tombstones: int = TOMBSTONES_KEPT


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """What one batch took: effects that are tombstones now, and tombstones that are nothing any more."""

    collected: int = 0
    forgotten: int = 0
    invocations: int = 0

    def __bool__(self) -> bool:
        """Say whether it took anything."""
        return bool(self.collected or self.forgotten or self.invocations)


def keeping(house: House, view: View, *, asked: bool, early: bool) -> Keeping:
    """Return what is to go: by itself, when an operator `asked`, or `early`, with nothing kept for being looked at."""
    bounds, held = house.profile.ledger, view.holdings()
    pressed = early or is_pressed(held, bounds.capacity)
    at_once = asked or early or is_urgent(held, bounds.capacity)
    return Keeping(
        unused=0 if asked or pressed else UNUSED_KEPT,
        keep_ms=0 if pressed else bounds.keep_ms,
        slack=0 if at_once else BATCH,
        reason="asked" if asked or early else "space" if pressed else "over",
    )


def due(view: View, now: InstantMs, wanted: Keeping) -> list[Effect]:
    """Return the effects that one batch may take at `now`."""
    unused: Sequence[EffectId] = ()
    if view.unused_beyond(wanted.unused + wanted.slack, limit=1):
        unused = view.unused_beyond(wanted.unused, limit=BATCH)
    latest = InstantMs(now - wanted.keep_ms)
    settled = view.settled_past(latest, limit=2 * BATCH)
    # What settled long after its window, since it was unknown for so long, is kept from its end on.
    kept_long_enough = [
        effect
        for effect in _read(view, settled)
        if effect.expires_ms <= now and _ended_ms(view, effect) <= latest
    ]
    if len(kept_long_enough) < wanted.slack:
        kept_long_enough = []
    return [*_read(view, unused), *kept_long_enough[:BATCH]]


def ended(view: View, now: InstantMs, wanted: Keeping) -> Sequence[InvocationId]:
    """Return the invocations that one batch may take at `now`: over, kept long enough, and named by no effect."""
    found = view.invocations_past(InstantMs(now - wanted.keep_ms), limit=BATCH)
    return () if len(found) < wanted.slack else found


def _read(view: View, effect_ids: Sequence[EffectId]) -> list[Effect]:
    found = (view.effect(effect_id) for effect_id in effect_ids)
    return [effect for effect in found if effect is not None]


def forgettable(view: View, wanted: Keeping) -> Sequence[EffectId]:
    """Return the tombstones that one batch may forget."""
    if not view.tombstones_beyond(wanted.tombstones + wanted.slack, limit=1):
        return ()
    return view.tombstones_beyond(wanted.tombstones, limit=BATCH)


def _ended_ms(view: View, effect: Effect) -> InstantMs:
    span = view.span_at(effect.sequence)
    if span is None:
        raise LedgerCorrupt("effect_place", "An effect names a span that is not there; run the full check.")
    return span.at_ms


def tombstone_of(view: View, effect: Effect) -> Tombstone:
    """Return what stays of an effect."""
    permit = view.permit(effect.effect_id)
    return Tombstone(
        effect_id=effect.effect_id,
        state=effect.state,
        caller=effect.caller,
        task_id=effect.task_id,
        subject=effect.subject,
        actor=effect.actor,
        operation=effect.operation,
        request_key=effect.request_key,
        request=effect.request,
        content_key=effect.content_key,
        resource_key=effect.resource_key,
        permit_id=None if permit is None else permit.permit_id,
        prepared_ms=effect.prepared_ms,
        ended_ms=_ended_ms(view, effect),
    )


def collect_batch(visit: Visit, *, asked: bool = False, early: bool = False) -> Gone:
    """Collect one batch of what is due, if anything is; where nothing is, nothing is written and no writer waits.

    Raises:
        Fault: as `ledger.port.Ledger.transact`; then nothing was collected.
    """
    house = visit.house
    looked = house.ledger.read(lambda view: _looked(house, view, asked=asked, early=early))
    if not looked.effects and not looked.forgotten and not looked.invocations:
        return Gone()
    newest = max((effect.sequence for effect in looked.effects), default=0)
    if newest and not confirmed(house, newest):
        return Gone()

    def decide(view: View, now: InstantMs) -> Verdict[Gone]:
        wanted = keeping(house, view, asked=asked, early=early)
        effects = [effect for effect in due(view, now, wanted) if effect.sequence <= newest]
        forgotten = forgettable(view, wanted)
        over = ended(view, now, wanted)
        gone = Gone(collected=len(effects), forgotten=len(forgotten), invocations=len(over))
        return Verdict(value=gone, steps=_steps(visit, view, effects, (forgotten, over), wanted.reason))

    return house.ledger.transact(acting(visit, decide)).value


@dataclass(frozen=True, slots=True, kw_only=True)
class _Looked:
    effects: Sequence[Effect]
    forgotten: Sequence[EffectId]
    invocations: Sequence[InvocationId]


def _looked(house: House, view: View, *, asked: bool, early: bool) -> _Looked:
    wanted = keeping(house, view, asked=asked, early=early)
    now = house.now()
    return _Looked(
        effects=due(view, now, wanted),
        forgotten=forgettable(view, wanted),
        invocations=ended(view, now, wanted),
    )


def _steps(
    visit: Visit,
    view: View,
    effects: Sequence[Effect],
    others: tuple[Sequence[EffectId], Sequence[InvocationId]],
    reason: str,
) -> tuple[Step, ...]:
    forgotten, over = others
    if not effects and not forgotten and not over:
        return ()
    transition = Transition(
        name=TransitionName.LEDGER_COLLECTED,
        story=visit.house.ledger.ledger_id,
        attributes={
            **spans.common(visit),
            "permit.count": len(effects),
            "permit.collected": tuple(effect.effect_id for effect in effects),
            "permit.forgotten": len(forgotten),
            "permit.reason": reason,
            **({"permit.invocations": tuple(over)} if over else {}),
        },
    )
    changes = [EffectCollected(tombstone=tombstone_of(view, effect)) for effect in effects]
    forgets = (TombstonesForgotten(effect_ids=tuple(forgotten)),) if forgotten else ()
    ends = (InvocationsCollected(invocation_ids=tuple(over)),) if over else ()
    return (Step(transition=transition, changes=(*changes, *forgets, *ends)),)


def collect_some(visit: Visit) -> None:
    """Collect one batch on the way of a command that needs space; what protected content nobody needs goes with it.

    Raises:
        Fault: the ledger cannot be written; then nothing was collected.
    """
    # Neither an uncertain end of this nor a store that cannot be swept is what the command was asked about: the ledger
    # that died of it says so in its own words, and the next batch sweeps again.
    with suppress(CommitUncertain, ProtectedStoreUnavailable):
        if collect_batch(visit):
            sweep_content(visit.house)
