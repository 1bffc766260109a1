"""`ledger clock accept`: an operator says that the clock is right now, after it ran behind or jumped ahead.

Rules: PER-03 (a clock that cannot be believed stops admission until an operator decides). What was prepared in the time
that never was ends as expired: a lifetime that was measured from there could outlast the one it was meant to have.
"""

from issuer import answering
from issuer.clock import instant_text
from issuer.commands.edge import at_the_edge
from issuer.flow import spans
from issuer.flow.overdue import expired_step
from issuer.flow.signed_act import acting
from issuer.house import Visit
from issuer.wire import Answer
from ledger.changes import Step
from ledger.model import InstantMs
from ledger.port import Verdict, View
from ledger.states import PENDING
from ledger.timekeeping import CLOCK_BACKWARD_TOLERANCE_MS
from ledger.transitions import Transition, TransitionName


def clock_accept(visit: Visit) -> Answer:
    """Take the clock as it reads for the ledger's time, with the entry before on record."""

    def decide(view: View, now: InstantMs) -> Verdict[InstantMs]:
        before = view.last_entry_ms()
        transition = Transition(
            name=TransitionName.CLOCK_ACCEPTED,
            story=visit.house.ledger.ledger_id,
            attributes={**spans.common(visit), "permit.clock.before_ms": before},
        )
        ends = [
            expired_step(visit, effect, reason="clock_accepted")
            for effect in view.effects(states=sorted(PENDING))
            if effect.prepared_ms > now + CLOCK_BACKWARD_TOLERANCE_MS
        ]
        return Verdict(value=before, steps=(Step(transition=transition), *ends))

    def run() -> Answer:
        committed = visit.house.ledger.transact(acting(visit, decide), accept_clock=True)
        clock = {"before": instant_text(committed.value), "now": instant_text(committed.at_ms)}
        say = f"The clock is believed as it reads: {clock['now']}. The entry before was at {clock['before']}."
        return answering.about(visit.house, "accepted", say=say, more={"clock": clock})

    return at_the_edge(visit, run)
