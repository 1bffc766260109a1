"""What a restored ledger begins its new epoch with: the steps of one transaction.

Rules: LED-08. In order: the span that begins the epoch; tasks that were opened, narrowed or ended after the backup;
admissions after it, replayed as `unknown` with all that they hold; admissions of the backup, `unknown` as well, since
their senders are gone; every other permit and preparation, revoked; every open invocation, ended; what was stopped
since, stopped again; the owner's revision, out of force where it was replaced since. Without a complete sink, every
open task is frozen, and everything is.
Nothing here releases anything or gives authority.
Next: `issuer.restore.restoring` writes them.
"""

from audit.sinks.epochs import LEFT, left_text
from issuer.restore.effect_steps import EffectSteps
from issuer.restore.invocation_steps import invocation_steps
from issuer.restore.plan import Outcome, Plan, common
from issuer.restore.revision_steps import revision_steps
from issuer.restore.stop_steps import stop_steps
from issuer.restore.task_steps import TaskSteps
from issuer.revised import in_force, told_steps
from ledger.changes import Step
from ledger.model import InstantMs
from ledger.port import Verdict, View
from ledger.transitions import AttributeValue, Transition, TransitionName


def first_steps(plan: Plan, view: View, now: InstantMs) -> Verdict[Outcome]:
    """Return the steps, and what they do.

    Raises:
        ValueError: what was told cannot have been; nothing is restored from it.
    """
    tasks = TaskSteps(plan, {task.task_id: task for task in view.tasks()})
    tasks.retell(plan.retold.tasks)
    narrowed = len(tasks.steps)
    effects = EffectSteps(plan, view, now, tasks)
    effects.replay_admissions()
    effects.end_open_admissions()
    effects.revoke_pending()
    if not plan.is_complete:
        tasks.freeze_all()
    outcome = effects.outcome
    outcome.frozen = tasks.frozen
    first = Step(transition=_begins(plan, len(outcome.replayed)), begins_epoch=plan.epoch)
    ended, stops = invocation_steps(plan, view), stop_steps(plan, view, now, outcome)
    revised = revision_steps(plan, view, now, outcome)
    steps = (
        first,
        *tasks.steps[:narrowed],
        *effects.steps,
        *ended,
        *stops,
        *tasks.steps[narrowed:],
        *revised,
    )
    return Verdict(value=outcome, steps=tuple(told_steps(steps, in_force(view))))


def _begins(plan: Plan, replayed: int) -> Transition:
    lefts = [sink.left for sink in plan.sinks if sink.is_usable and sink.left is not None]
    attributes: dict[str, AttributeValue] = {
        **common(plan),
        "permit.base.epoch": plan.base.epoch,
        "permit.base.sequence": plan.base.sequence,
        "permit.reason": "with_sink" if plan.is_complete else "without_sink",
        "permit.count": replayed,
    }
    if lefts:
        attributes[LEFT] = tuple(left_text(left) for left in lefts)
    return Transition(name=TransitionName.LEDGER_RESTORED, story=plan.base.ledger_id, attributes=attributes)
