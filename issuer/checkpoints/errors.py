"""Why no checkpoint was signed: the ledger contradicts an earlier one, or something that is needed does not serve."""

from typing import Final

from ledger.errors import Fault

__all__ = ["CheckpointRefused", "CheckpointUnavailable"]

_REFUSED: Final = {
    "smaller": "The ledger holds less than a checkpoint that was signed: it was rolled back.",
    "older_epoch": "A checkpoint was signed in a later epoch than this ledger is in: it was rolled back.",
    "inconsistent": "The ledger does not hold what a checkpoint that was signed says: its history was exchanged.",
    "altered": "The ledger's spans do not give the root that its head says: they were changed.",
    "note_altered": "A checkpoint beside the audit file is not as it was signed: it was changed or exchanged.",
}
_NEXT: Final = (
    "Nothing was signed. Keep ledger, audit file and checkpoints as they are, and find out who changed what; "
    "only a restore that is on record begins anew."
)


class CheckpointRefused(Fault):
    """The ledger contradicts what was signed before, so nothing is signed; it takes a person to find out why.

    `reason` is `smaller`, `older_epoch`, `inconsistent`, `altered` or `note_altered`.
    """

    blame = "world"

    def __init__(self, reason: str) -> None:
        """Take the stable reason; the sentence goes with it."""
        super().__init__(f"{_REFUSED[reason]} {_NEXT}")
        self.args = (reason,)
        self.reason = reason
        self.says, self.next = _REFUSED[reason], _NEXT


class CheckpointUnavailable(Fault):
    """A checkpoint cannot be signed now; `reason` is a word of a file's flaw, `busy` or `unwritable`."""

    blame = "world"

    def __init__(self, reason: str, message: str) -> None:
        """Take a stable reason and one sentence that says what to do."""
        super().__init__(message)
        self.args = (reason, message)
        self.reason = reason
