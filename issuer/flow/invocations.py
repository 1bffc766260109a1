"""Invocations beside the eight steps: what an effect names, how one ends, and what a permit obliges to afterwards.

Rules: INV-01 (an effect names an open one of its caller, at its task or above), INV-02 (one outcome, written once;
past its deadline whoever touches it next ends it as `failed_execution`), EFF-09 (obligations open with the permit).
An effect that names none is an invocation of its own: its deadline is its expiry, its outcome its state (ADR-0021).
Next: `issuer.flow.issue` and `issuer.flow.admit` ask; `issuer.commands.invocations` opens and ends them.
"""

from collections.abc import Sequence
from typing import Final

from issuer.flow import spans
from issuer.house import House, Locked, Visit
from ledger.changes import InvocationEnded, ObligationOpened, Step
from ledger.invocations import Invocation, InvocationOutcome, Obligation
from ledger.model import Effect, InstantMs
from ledger.port import View
from ledger.refusals import Refusal
from ledger.rules import refuse_invocation
from ledger.transitions import AttributeValue, Transition, TransitionName

OVERDUE_MAX: Final = 64
"""How many invocations one transaction ends as overdue; the next touch goes on with the rest."""

WITHIN_MS: Final = 24 * 3_600_000
"""How long there is to do what a permit obliges to, where the profile does not say."""


def named(view: View, effect: Effect) -> Invocation | None:
    """Return the invocation that an effect on record names; None where it is one of its own."""
    return None if effect.invocation_id is None else view.invocation(effect.invocation_id)


def refuse_named(effect: Effect, locked: Locked) -> Refusal | None:
    """Refuse an effect on record whose invocation is over, or is not one that it could name (INV-01)."""
    if effect.invocation_id is None:
        return None
    return refuse_invocation(locked.invocation, locked.path, effect.caller, locked.now)


def transition_of(
    visit: Visit, name: TransitionName, invocation: Invocation, **more: AttributeValue
) -> Transition:
    """Return the transition of an invocation, whose story is its own."""
    return Transition(
        name=name,
        story=invocation.invocation_id,
        attributes={
            **spans.common(visit),
            "permit.invocation.id": invocation.invocation_id,
            "permit.task.id": invocation.task_id,
            "permit.actor": invocation.actor,
            "permit.deadline_ms": invocation.deadline_ms,
            **{f"permit.{key}": value for key, value in more.items()},
        },
    )


def ended_step(visit: Visit, invocation: Invocation, outcome: InvocationOutcome, *, reason: str) -> Step:
    """Return the step that gives an open invocation its one outcome."""
    transition = transition_of(
        visit, TransitionName.INVOCATION_ENDED, invocation, outcome=str(outcome), reason=reason
    )
    ended = InvocationEnded(invocation_id=invocation.invocation_id, outcome=outcome)
    return Step(transition=transition, changes=(ended,))


def overdue_steps(visit: Visit, view: View, now: InstantMs) -> tuple[Step, ...]:
    """Return the steps that end what is past its deadline at `now`."""
    return tuple(
        ended_step(visit, over, InvocationOutcome.FAILED_EXECUTION, reason="deadline_passed")
        for over in view.invocations_over(now, limit=OVERDUE_MAX)
    )


def rejected_attributes(refusal: Refusal) -> dict[str, AttributeValue]:
    """Return what the span of a rejection says of the no."""
    said: dict[str, AttributeValue] = {"outcome": str(InvocationOutcome.REJECTED), "reason": "not_started"}
    said["refusal"] = str(refusal.code)
    return said if refusal.level is None else {**said, "refusal.level": refusal.level}


def obliged_steps(visit: Visit, effect: Effect, names: Sequence[str], now: InstantMs) -> tuple[Step, ...]:
    """Return the step that opens what a permit issued at `now` obliges to; none where it obliges to nothing."""
    if not names:
        return ()
    opened = [
        Obligation(
            effect_id=effect.effect_id, name=name, deadline_ms=InstantMs(now + within_ms(visit.house, name))
        )
        for name in sorted(set(names))
    ]
    transition = Transition(
        name=TransitionName.EFFECT_OBLIGED,
        story=effect.effect_id,
        effect_id=effect.effect_id,
        attributes={
            **spans.effect_attributes(visit, effect),
            "permit.obligations": tuple(f"{one.name}={one.deadline_ms}" for one in opened),
        },
    )
    return (Step(transition=transition, changes=tuple(ObligationOpened(obligation=one) for one in opened)),)


def within_ms(house: House, name: str) -> int:
    """Return how long there is to do what `name` stands for, as the owner says."""
    term = house.profile.obligations.get(name)
    return WITHIN_MS if term is None else term.within_ms
