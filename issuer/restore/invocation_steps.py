"""What a restored ledger does again to its invocations: none goes on, and none succeeds by a sink's word.

Rules: LED-08 (earlier permits are void, and so is the run that they were part of), INV-02 (one outcome). What a sink
tells of a cancellation or a failure is done again; a success would vouch for effects that are unknown now, so an
invocation of which one is told ends as a failed execution like one of which nothing is.
Next: `issuer.restore.steps`.
"""

from typing import Final

from issuer.restore.plan import REASON, Plan, common
from ledger.changes import InvocationEnded, Step
from ledger.invocations import InvocationOutcome
from ledger.model import AMOUNT_MAX, InstantMs
from ledger.port import View
from ledger.transitions import Transition, TransitionName

_FOR_EVER: Final = InstantMs(AMOUNT_MAX)
_ALL: Final = AMOUNT_MAX


def invocation_steps(plan: Plan, view: View) -> tuple[Step, ...]:
    """Return the steps that end every invocation that is open in the backup."""
    steps = []
    for one in view.invocations_over(_FOR_EVER, limit=_ALL):
        told = plan.retold.invocations.get(one.invocation_id)
        is_heard = told in {InvocationOutcome.CANCELLED, InvocationOutcome.FAILED_APPLICATION}
        outcome = told if told is not None and is_heard else InvocationOutcome.FAILED_EXECUTION
        transition = Transition(
            name=TransitionName.INVOCATION_ENDED,
            story=one.invocation_id,
            attributes={
                **common(plan),
                "permit.invocation.id": one.invocation_id,
                "permit.task.id": one.task_id,
                "permit.actor": one.actor,
                "permit.outcome": str(outcome),
                "permit.reason": REASON,
            },
        )
        ended = InvocationEnded(invocation_id=one.invocation_id, outcome=outcome)
        steps.append(Step(transition=transition, changes=(ended,)))
    return tuple(steps)
