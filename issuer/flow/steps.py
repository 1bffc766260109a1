"""The points between admission and the recorded outcome, by name, in the order in which one commit reaches them.

The ledger adds its own three in each of its two transactions: `locked`, `before_commit`, `committed`. A test stops
a process at each of them and looks at what is left. Nothing depends on being told.
"""

from enum import StrEnum


class Reached(StrEnum):
    """A point in the way of one commit, or of one attempt to reconcile; the value says what has just been done."""

    SINKS_PROBED = "sinks_probed"
    ACKNOWLEDGED = "admission_acknowledged"
    LOOKED_AGAIN = "looked_again"
    ANSWERED = "answered"
    SETTLED = "settled"
    OUTCOME_ACKNOWLEDGED = "outcome_acknowledged"
    ATTEMPT_ACKNOWLEDGED = "attempt_acknowledged"
    LOOKED = "looked"
