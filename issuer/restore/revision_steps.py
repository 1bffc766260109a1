"""What a restored ledger says of the owner's revision: one that was replaced after the backup serves no more.

Rules: LED-08, POL-07. Which revision came after the backup is told by a sink, and whoever can write there could tell of
a laxer one; so none is in force until an owner activates one, and until then everything is refused.
Every span of a restore tells the revision that the backup had.
Next: `issuer.restore.steps`.
"""

from issuer.activation import Change, activation_step
from issuer.restore.plan import REASON, Outcome, Plan, common
from issuer.revised import in_force
from issuer.revisions import NO_REVISION
from ledger.changes import Step
from ledger.model import InstantMs
from ledger.port import View


def revision_steps(plan: Plan, view: View, now: InstantMs, outcome: Outcome) -> tuple[Step, ...]:
    """Return the step that takes the backup's revision out of force, where a sink tells of a later activation."""
    if not plan.retold.is_revised:
        return ()
    outcome.is_unruled = True
    change = Change(revision=NO_REVISION, before=in_force(view), files=(), bundle="", reason=REASON)
    return (activation_step(change, common(plan), view, now),)
