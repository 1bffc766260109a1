"""Invocations and obligations in a bare ledger: the steps that a host's commands commit, in their smallest form."""

from typing import Any

from issuer.ids import new_invocation_id
from ledger.changes import (
    Change,
    InvocationEnded,
    InvocationOpened,
    InvocationsCollected,
    ObligationDone,
    ObligationOpened,
    Step,
)
from ledger.invocations import Invocation, InvocationOutcome, Obligation
from ledger.model import EffectId, InstantMs, InvocationId, Task
from ledger.port import Ledger
from ledger.transitions import Transition, TransitionName
from tests.support.ledgers import HOUR_MS, START, commit_steps


def new_invocation(task: Task, **changed: Any) -> Invocation:
    """Return an open invocation of the caller that `tests.support.ledgers` uses."""
    made: dict[str, Any] = {
        "invocation_id": new_invocation_id(),
        "caller": "host-1",
        "task_id": task.task_id,
        "actor": "agent-7",
        "opened_ms": START,
        "deadline_ms": InstantMs(START + HOUR_MS),
    }
    return Invocation(**{**made, **changed})


def telling(name: TransitionName, story: str, *, effect: bool = False) -> Transition:
    """Return a bare transition of an invocation, or one about an effect that moves no state."""
    return Transition(name=name, story=story, effect_id=EffectId(story) if effect else None)


def beginning(invocation: Invocation) -> Step:
    """Return the step that opens an invocation."""
    transition = telling(TransitionName.INVOCATION_OPENED, invocation.invocation_id)
    return Step(transition=transition, changes=(InvocationOpened(invocation=invocation),))


def ending(invocation_id: InvocationId, outcome: InvocationOutcome) -> Step:
    """Return the step that ends one."""
    ended: Change = InvocationEnded(invocation_id=invocation_id, outcome=outcome)
    return Step(transition=telling(TransitionName.INVOCATION_ENDED, invocation_id), changes=(ended,))


def going(invocation_id: InvocationId) -> Step:
    """Return the step that collects one."""
    gone: Change = InvocationsCollected(invocation_ids=(invocation_id,))
    return Step(transition=telling(TransitionName.LEDGER_COLLECTED, "led"), changes=(gone,))


def obliging(effect_id: EffectId, name: str = "tell", *, deadline_ms: int = START + HOUR_MS) -> Step:
    """Return the step that opens an obligation."""
    obligation = Obligation(effect_id=effect_id, name=name, deadline_ms=InstantMs(deadline_ms))
    transition = telling(TransitionName.EFFECT_OBLIGED, effect_id, effect=True)
    return Step(transition=transition, changes=(ObligationOpened(obligation=obligation),))


def closing(effect_id: EffectId, name: str = "tell") -> Step:
    """Return the step that closes one."""
    transition = telling(TransitionName.OBLIGATION_DONE, effect_id, effect=True)
    return Step(transition=transition, changes=(ObligationDone(effect_id=effect_id, name=name),))


def begin(ledger: Ledger, task: Task, **changed: Any) -> Invocation:
    """Open an invocation and return it."""
    invocation = new_invocation(task, **changed)
    commit_steps(ledger, beginning(invocation))
    return invocation
