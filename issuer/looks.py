"""A look across scopes is on record before anything of it is shown, or nothing is shown (AUD-06, EFF-08).

Rules, in order: 1. looks that an earlier process could not record come first   2. the span of this one is committed
3. where the ledger takes nothing (read-only, full, damaged, its clock not believed), the look is kept in the spool, and
the answer says so (LED-04)   4. where that takes nothing either, or no span can be made at all, nothing is shown.
A look recorded later says so (`recorded_later`), and when it was.
Next: `issuer.look_spool`; `issuer.commands.auditing` and `issuer.commands.observing` call this.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from audit.redaction import without_secrets
from audit.vocabulary import check
from issuer.flow import spans
from issuer.house import House, Visit
from issuer.look_spool import Look, LookSpool
from ledger.changes import Step
from ledger.errors import CommitUncertain, Fault, LedgerCorrupt, LedgerUnavailable
from ledger.model import EffectId, InstantMs
from ledger.port import Verdict, View
from ledger.transitions import AttributeValue, Transition, TransitionName

RECORDED_LATER: Final = "recorded_later"
LATER_SAY: Final = (
    "The ledger cannot be written now; this look is kept beside it and will be on record as soon as it can."
)


def on_record(visit: Visit, transition: Transition) -> bool:
    """Put a look on record; return whether it is in the ledger now, else it is kept for later.

    Raises:
        LedgerUnavailable: `look_unrecorded`: it is nowhere on record, so nothing may be shown.
        SpanNotRecorded: no span could be made of it; nothing may be shown.
        RevisionMoved: another revision is in force; the command is run again.
    """
    record_waiting(visit.house)  # 1

    def decide(_view: View, _now: InstantMs) -> Verdict[None]:
        return Verdict(value=None, steps=(Step(transition=transition),))

    try:
        visit.house.ledger.transact(decide)  # 2
    except (LedgerUnavailable, LedgerCorrupt, CommitUncertain):
        look = Look(
            at_ms=visit.house.now(),
            name=str(transition.name),
            story=transition.story,
            effect_id=transition.effect_id,
            said=transition.attributes,
        )
        check(without_secrets(_later(look)))  # 4: what could never be recorded is not kept either
        _spool(visit.house).keep(look)  # 3 and 4
        return False
    return True


def observed(visit: Visit, *, count: int, **attributes: AttributeValue) -> Transition:
    """Return the transition of a look at `count` rows about more than one effect."""
    return spans.observed(visit, None, count=count, **attributes)


def exported(visit: Visit, *, form: str, count: int, **attributes: AttributeValue) -> Transition:
    """Return the transition of `count` spans or rows that were written to a file in the form `form`."""
    made = spans.observed(visit, None, count=count, **attributes)
    return Transition(
        name=TransitionName.AUDIT_EXPORTED,
        story=made.story,
        attributes={**made.attributes, "permit.format": form},
    )


def waiting(house: House) -> tuple[Look, ...]:
    """Return the looks that are not in the ledger yet."""
    return _spool(house).waiting()


def record_waiting(house: House) -> None:
    """Record the looks that an earlier process could not; where that still cannot be done they stay where they are."""
    with suppress(Fault):
        _spool(house).hand_over(lambda looks: _record(house, looks))


def _record(house: House, looks: tuple[Look, ...]) -> None:
    steps = tuple(Step(transition=_later(look)) for look in looks)

    def decide(_view: View, _now: InstantMs) -> Verdict[None]:
        return Verdict(value=None, steps=steps)

    house.ledger.record(decide)


def _later(look: Look) -> Transition:
    return Transition(
        name=TransitionName(look.name),
        story=look.story,
        effect_id=None if look.effect_id is None else EffectId(look.effect_id),
        attributes={
            **_values(look.said),
            "permit.reason": RECORDED_LATER,
            "permit.looked_ms": look.at_ms,
        },
    )


def _values(said: Mapping[str, object]) -> dict[str, AttributeValue]:
    kept: dict[str, AttributeValue] = {}
    for name, value in said.items():
        if isinstance(value, list):
            kept[name] = tuple(str(item) for item in value)
        elif isinstance(value, str | int):
            kept[name] = value
    return kept


def _spool(house: House) -> LookSpool:
    return LookSpool(house.places, house.ring, house.ledger.ledger_id)


__all__ = [
    "LATER_SAY",
    "RECORDED_LATER",
    "exported",
    "observed",
    "on_record",
    "record_waiting",
    "waiting",
]
