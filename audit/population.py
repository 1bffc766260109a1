"""The population of a period: how many of what, by whose word, for how much money, and who looked (AUD-09).

Pure. Kinds of span are counted by the ledger's index; only those are read that say something further: permits (by a
policy or by people), admissions and charges (money), answers of people, looks, and what stands for refusals and denials
that were only counted (`ledger.noise`). What an effect was charged in an
acknowledgement is not counted again where its outcome says the same.
Next: `issuer.commands.audit_report`.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from audit.queries import LOOKS, Found, found_of
from audit.standing import person_answer
from ledger.authority import CHANGES_OF_AUTHORITY
from ledger.model import EffectId, Tier
from ledger.port import View
from ledger.questions import SpanFilter
from ledger.states import EffectState
from ledger.transitions import TransitionName

__all__ = ["READ", "Counting"]

_SETTLED: Final = frozenset(
    {TransitionName.EFFECT_SUCCEEDED, TransitionName.EFFECT_FAILED, TransitionName.EFFECT_NO_EFFECT}
)
READ: Final = (
    frozenset(
        {
            *(TransitionName.EFFECT_PERMITTED, TransitionName.EFFECT_ADMITTED, TransitionName.EFFECT_UNKNOWN),
            *(TransitionName.EFFECT_REPLAYED, TransitionName.EFFECT_ACKNOWLEDGED, TransitionName.REFUSED),
            *(TransitionName.EFFECT_APPROVED, TransitionName.EFFECT_DECLINED, TransitionName.NOISE),
        }
    )
    | _SETTLED
    | LOOKS
)
"""The kinds of span that a report reads; the rest it counts."""

_COUNTED: Final = {
    "begun": TransitionName.EFFECT_PREPARED,
    "awaiting_approval": TransitionName.EFFECT_AWAITING_APPROVAL,
    "declined": TransitionName.EFFECT_DECLINED,
    "denied": TransitionName.EFFECT_DENIED,
    "refused": TransitionName.REFUSED,
    "expired": TransitionName.EFFECT_EXPIRED,
    "withdrawn": TransitionName.EFFECT_WITHDRAWN,
    "revoked": TransitionName.EFFECT_REVOKED,
    "admitted": TransitionName.EFFECT_ADMITTED,
    "succeeded": TransitionName.EFFECT_SUCCEEDED,
    "failed": TransitionName.EFFECT_FAILED,
    "no_effect": TransitionName.EFFECT_NO_EFFECT,
    "unknown": TransitionName.EFFECT_UNKNOWN,
}


class Counting:
    """What is counted of a period so far."""

    def __init__(self) -> None:
        """Have nothing yet."""
        self._permitted: Counter[str] = Counter()
        self._still_unknown = 0
        self._repeats = 0
        self._reserved: Counter[str] = Counter()
        self._charged: Counter[str] = Counter()
        self._people: dict[str, Counter[str]] = {}
        self._lookers: Counter[str] = Counter()

    def add(self, view: View, found: Found) -> None:
        """Count one span of the kinds in `READ`."""
        name = found.entry.name
        if name == TransitionName.EFFECT_PERMITTED:
            by = "permitted_by_policy" if found.text("tier") == Tier.ISSUE else "permitted_by_people"
            self._permitted[by] += 1
        elif name == TransitionName.EFFECT_ADMITTED:
            self._reserved.update(amounts_in(found, "cost"))
        elif name in {TransitionName.EFFECT_UNKNOWN, TransitionName.EFFECT_REPLAYED}:
            self._still_unknown += _stands_unknown(view, found)
        elif name == TransitionName.NOISE:
            self._repeats += int(found.text("count") or 0)
        elif name in LOOKS:
            self._lookers[found.text("caller") or "-"] += 1
        elif name == TransitionName.EFFECT_ACKNOWLEDGED:
            self._charged.update(amounts_in(found, "charged"))
        elif name in _SETTLED:
            self._charged.update(_charged_now(view, found))
        answer = person_answer(found)
        if answer is not None:
            self._people.setdefault(answer.person or "-", Counter())[str(answer.answered)] += 1

    def as_json(self, transitions: Mapping[str, int]) -> dict[str, object]:
        """Return everything that was counted; `transitions` are the spans of the period by kind."""
        effects = {word: transitions.get(str(name), 0) for word, name in _COUNTED.items()}
        permitted = {word: self._permitted[word] for word in ("permitted_by_policy", "permitted_by_people")}
        return {
            "transitions": dict(sorted(transitions.items())),
            "effects": {
                **effects,
                "refused_repeats": self._repeats,
                **permitted,
                "still_unknown": self._still_unknown,
            },
            "money": {
                "reserved": dict(sorted(self._reserved.items())),
                "charged": dict(sorted(self._charged.items())),
            },
            "people": {person: dict(sorted(of.items())) for person, of in sorted(self._people.items())},
            "changes": {
                str(name): transitions[name] for name in sorted(CHANGES_OF_AUTHORITY & transitions.keys())
            },
            "looks": dict(sorted(self._lookers.items())),
        }


def amounts_in(found: Found, name: str) -> dict[str, int]:
    """Return the amounts that an attribute of a span lists, per unit."""
    pairs = (text.rpartition("=") for text in found.texts(name))
    return {unit: int(amount) for unit, _, amount in pairs}


def _charged_now(view: View, found: Found) -> dict[str, int]:
    """Return what an outcome charges beyond what an acknowledgement charged before (REC-04)."""
    charged, effect = amounts_in(found, "charged"), found.text("effect.id")
    if found.entry.state_from != EffectState.UNKNOWN or effect is None:
        return charged
    wanted = SpanFilter(story=effect, names=frozenset({TransitionName.EFFECT_ACKNOWLEDGED}))
    for row in view.find_spans(wanted, before=found.sequence, limit=16):
        before = amounts_in(found_of(row), "charged")
        charged = {unit: max(0, amount - before.get(unit, 0)) for unit, amount in charged.items()}
    return charged


def _stands_unknown(view: View, found: Found) -> bool:
    effect_id = found.text("effect.id")
    effect = None if effect_id is None else view.effect(EffectId(effect_id))
    return effect is not None and effect.state is EffectState.UNKNOWN and effect.sequence == found.sequence
