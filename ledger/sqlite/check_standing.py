"""The part of a check that recomputes the registers: what stands of tasks, invocations, and effects to be admitted.

Rules: LED-06, LED-04. An effect or task that was set back, put back or taken away is named by the parts that look at
its row; here it is seen even where every other trace of it was wiped out.
"""

from typing import Final

from ledger.sqlite.check_ground import Ground
from ledger.sqlite.register import REASONS, recomputed
from ledger.sqlite.rows import Head
from ledger.standing import Standing, register_digest

_SAYS: Final = {
    Standing.TASKS: "The tasks and open invocations are not those that the head says stand.",
    Standing.EFFECTS: "The effects that may still be admitted are not those that the head says stand.",
}


def check_standing(ground: Ground) -> None:
    """Hold both registers against the rows, and the head against both."""
    if ground.head is None:
        return
    for kind in Standing:
        if not _stands(ground, ground.head, kind):
            ground.find(REASONS[kind], ("head",), _SAYS[kind])


def _stands(ground: Ground, head: Head, kind: Standing) -> bool:
    found = recomputed(ground.raw, kind)
    stored = ground.rows("SELECT register FROM standing WHERE kind = ?", str(kind))
    held = head.standing if kind is Standing.TASKS else head.pending
    return [(found,)] == stored and register_digest(found) == held
