"""Faults: broken promises, each saying whose it was.

An expected "no" is never here: it is a `Refusal`, returned as a value. What is here is raised, because the
code that meets it cannot go on. Rules: a message is one sentence for an operator, and holds no payload value,
no key chosen by a caller and no secret; programs read `code` or `reason`, which are stable snake_case words.

This module does not decide which answer a surface gives for a fault: `issuer/wire` holds that one table.
"""

from typing import ClassVar, Literal

__all__ = [
    "Broken",
    "CommitUncertain",
    "Fault",
    "LedgerCorrupt",
    "LedgerUnavailable",
    "Malformed",
    "SpanNotRecorded",
]

Blame = Literal["caller", "world", "us"]


class Fault(Exception):  # noqa: N818 - "error" would not say that an expected no is something else
    """Base of every fault; `blame` says whose broken promise it is."""

    blame: ClassVar[Blame] = "us"

    def __init__(self, message: str) -> None:
        """Keep one sentence for an operator, free of payload values."""
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        """Return the sentence alone, whatever else the fault carries."""
        return self.message


class Malformed(Fault):
    """The caller sent something that cannot be read as what it should be (EFF-05).

    `code` is stable and the same on every surface, `field` is the declared field it concerns. `field` is None
    where the document as a whole is at fault, or where naming the place would repeat the caller's own words.
    """

    blame = "caller"

    def __init__(self, code: str, field: str | None, message: str) -> None:
        """Take a stable snake_case code, the declared field or None, and one sentence without values."""
        super().__init__(message)
        # All arguments stay in `args`, so that copying and pickling across processes rebuild the same fault.
        self.args = (code, field, message)
        self.code = code
        self.field = field


class _Reasoned(Fault):
    """A fault with a stable reason word beside its sentence."""

    def __init__(self, reason: str, message: str) -> None:
        """Take a stable snake_case reason and one sentence without values."""
        super().__init__(message)
        self.args = (reason, message)
        self.reason = reason


class LedgerUnavailable(_Reasoned):
    """The world kept the ledger from us: locked, full, read-only, missing; nothing was changed."""

    blame = "world"


class LedgerCorrupt(_Reasoned):
    """What the ledger holds cannot be what was written: broken MAC, foreign schema, rollback (LED-04)."""

    blame = "world"


class SpanNotRecorded(_Reasoned):
    """The audit span is not provably in this transaction, so the transition does not happen (AUD-01)."""

    blame = "world"


class CommitUncertain(Fault):
    """A commit may or may not have happened: send nothing, read the record afresh (ADM-03)."""

    blame = "world"

    def __init__(self, message: str, *, disk_was_full: bool = False) -> None:
        """Take one sentence, and whether it was the disk that had no room."""
        super().__init__(message)
        self.disk_was_full = disk_was_full


class Broken(Fault):
    """An invariant of our own does not hold; nothing a caller sends should be able to cause it."""

    blame = "us"
