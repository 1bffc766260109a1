"""Looking at effects of others: by policy, one by one, and on record before anything is shown (EFF-08, AUD-06).

Whoever may not reads "not found", by the path of a missing effect. A look at what is one's own is neither asked about
nor recorded. A tombstone is its caller's alone: what it would need to be asked about went with the effect.
Next: `issuer.looks`; `issuer.commands.looking` shows.
"""

from collections.abc import Mapping, Sequence

from issuer.commands.roles import OBSERVE, act_attributes, decided, is_asked
from issuer.flow import spans
from issuer.flow.reference import effect_reference, find_effect
from issuer.house import Visit
from issuer.looks import on_record
from ledger.model import Effect
from ledger.transitions import AttributeValue


def find_observed(visit: Visit, text: str) -> Effect | None:
    """Return the effect that `text` names, if it is the caller's, or one that it may observe, which is then on record.

    Raises:
        Fault: as `ledger.port.Ledger.transact`; then nothing may be shown.
    """
    effect = find_effect(visit, text)
    if effect is not None or not _observes(visit):
        return effect
    effect_id = effect_reference(text)
    other = None if effect_id is None else visit.house.ledger.read(lambda view: view.effect(effect_id))
    decision = None if other is None else decided(visit, OBSERVE, other)
    if other is None or decision is None or not decision.allowed:
        return None
    _record(visit, other, 1, act_attributes(decision))
    return other


def observed(visit: Visit, effects: Sequence[Effect]) -> list[Effect]:
    """Return the caller's own of `effects` and those that it may observe; how many of those is then on record.

    Raises:
        Fault: as `ledger.port.Ledger.transact`; then nothing may be shown.
    """
    name, observes = visit.caller.name, _observes(visit)
    shown = [
        effect
        for effect in effects
        if effect.caller == name or (observes and decided(visit, OBSERVE, effect).allowed)
    ]
    others = sum(effect.caller != name for effect in shown)
    if others:
        _record(visit, None, others, {})
    return shown


def _observes(visit: Visit) -> bool:
    return not visit.caller.is_agent and is_asked(visit, OBSERVE)


def _record(visit: Visit, effect: Effect | None, count: int, said: Mapping[str, AttributeValue]) -> None:
    on_record(visit, spans.observed(visit, effect, count=count, **said))
