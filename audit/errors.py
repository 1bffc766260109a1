"""Faults of the audit: why a span cannot be shown to be where the owner wants it.

Rules: AUD-02 (a required sink gates dispatch), LED-06 (a sink ahead of its ledger is the anchor).
A sink raises `SinkUnavailable` or `SinkAhead`; the rest of the house meets `AuditUnavailable` only.
As with every fault, a message holds no value of a span, and programs read `reason`.
Next: `audit.delivery`, which turns the first two into the third.
"""

from ledger.errors import Fault

__all__ = [
    "AuditUnavailable",
    "NoRequiredSink",
    "NotProven",
    "NoteRefused",
    "SinkAhead",
    "SinkUnavailable",
    "TrailUnreadable",
]


class _OfSink(Fault):
    """A fault that names a sink and carries a stable reason word beside its sentence."""

    blame = "world"

    def __init__(self, sink: str, reason: str, message: str) -> None:
        """Take the sink's name, a stable snake_case reason and one sentence without values."""
        super().__init__(message)
        self.args = (sink, reason, message)
        self.sink = sink
        self.reason = reason


class SinkUnavailable(_OfSink):
    """This sink does not take spans now; whatever it holds is as it was acknowledged."""


class SinkAhead(_OfSink):
    """The sink holds what its ledger does not: the ledger was rolled back or replaced (LED-06)."""


class AuditUnavailable(_OfSink):
    """A required sink did not acknowledge: nothing may be dispatched on the strength of it (AUD-02)."""


class NoRequiredSink(Fault):
    """The owner named no required sink; with none, every promise about dispatch would hold emptily."""

    blame = "caller"


class NotProven(Fault):
    """A proof does not prove what it should (AUD-04)."""

    blame = "world"


class NoteRefused(Fault):
    """A note, a checkpoint or a key is not in its one form, or not signed by the key that it should be (AUD-04)."""

    blame = "world"


class TrailUnreadable(Fault):
    """What was given to verify is no file of spans, no proof, or cannot be read at all."""

    blame = "caller"
