"""Invocations and obligations as frozen values: one run of a host's work, and what a permit obliges to afterwards.

Rules: INV-01, INV-02, EFF-09. Values cannot exist in a bad state: constructors refuse.
Next: `ledger.rules` says what may name one and what stands against its success; `ledger.port` says how they are read.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ledger.errors import Broken, Malformed
from ledger.model import DurationMs, EffectId, InstantMs, InvocationId, TaskId

INVOCATION_ID_PATTERN: Final = re.compile(r"inv_[0-9a-f]{32}\Z")

INVOCATION_MS_MAX: Final = DurationMs(31 * 24 * 3_600_000)
"""The longest that an invocation may last: what it settled stays on record as long, and a month bounds that."""

OPEN_PER_TASK_MAX: Final = 64
"""Open invocations of one task (LED-02): more than one host runs at once, and no agent fills the house with them."""


class InvocationOutcome(StrEnum):
    """How an invocation ended; written once (INV-02)."""

    REJECTED = "rejected"
    CANCELLED = "cancelled"
    SUCCEEDED = "succeeded"
    FAILED_APPLICATION = "failed_application"
    FAILED_EXECUTION = "failed_execution"


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One run of a host's work in a task, which effects may name while it is open and in time (INV-01, INV-02).

    Only `outcome` and `ended_ms` ever change, together and once; they are None while it is open.
    """

    invocation_id: InvocationId
    caller: str
    task_id: TaskId
    actor: str
    opened_ms: InstantMs
    deadline_ms: InstantMs
    outcome: InvocationOutcome | None = None
    ended_ms: InstantMs | None = None

    def __post_init__(self) -> None:
        """Refuse an invocation that could not be stored or was over before it began."""
        if not INVOCATION_ID_PATTERN.match(self.invocation_id):
            raise Broken("an invocation id is inv_ and 32 hex digits")
        if self.deadline_ms <= self.opened_ms:
            raise Malformed("out_of_range", "deadline", "an invocation ends after it was opened")
        if (self.outcome is None) != (self.ended_ms is None):
            raise Broken("an outcome and its instant stand together")


@dataclass(frozen=True, slots=True, kw_only=True)
class Obligation:
    """What a permit obliges to after its effect, until when; `done_ms` is None while it is open (EFF-09)."""

    effect_id: EffectId
    name: str
    deadline_ms: InstantMs
    done_ms: InstantMs | None = None

    def is_overdue(self, now: InstantMs) -> bool:
        """Say whether it is still open at `now`, and its deadline over."""
        return self.done_ms is None and now >= self.deadline_ms

    def is_kept(self) -> bool:
        """Say whether it was closed in time: before its deadline, not at it."""
        return self.done_ms is not None and self.done_ms < self.deadline_ms
