"""An archive of a bare ledger: the change, its step, and how it shows."""

from dataclasses import replace

from ledger.changes import Change, SpansArchived, Step
from ledger.port import Ledger, View
from ledger.transitions import Transition, TransitionName
from tests.support.ledgers import commit_steps


def noticed(ledger: Ledger) -> int:
    """Record a refusal, which nothing hangs on, and return its sequence."""
    refusal = Transition(name=TransitionName.REFUSED, story=ledger.ledger_id)
    return commit_steps(ledger, Step(transition=refusal)).sequence


def archiving(ledger: Ledger) -> SpansArchived:
    """Return the change that archives everything that may leave by now."""
    return ledger.read(_up_to_here)


def _up_to_here(view: View) -> SpansArchived:
    upto = view.head().sequence
    return SpansArchived(upto=upto, leaving=view.leaving(upto))


def archive_step(ledger: Ledger) -> Step:
    """Return the step of an archive, as far as its span goes."""
    return Step(transition=Transition(name=TransitionName.AUDIT_ARCHIVED, story=ledger.ledger_id))


def is_archived(view: View, sequence: int, change: Change) -> bool:
    """Say whether a span is gone with its leaf left, and nothing more could go by that archive."""
    return (
        isinstance(change, SpansArchived)
        and view.span_at(sequence) is None
        and sequence in {row.sequence for row in view.leaves_after(0, limit=1000)}
        and view.leaving(change.upto) == replace(change.leaving, count=0)
    )
