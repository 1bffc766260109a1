"""A ledger under one owner revision: who decides under terms that are not in force any more decides nothing.

Rules: POL-07 (each process compares the revision in force under the lock), POL-05 (the facts a decision used are those
the transaction commits on), REP-05 and AUD-02 (what has happened is recorded whatever the owner has changed since).
Every span is told the revision that is in force at its place in the trail; an effect's own stands in its binding.
Next: `issuer.api` reads the terms again and runs the command once more.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from ledger.authority import ACTIVE_REVISION, RulingKind
from ledger.changes import Step
from ledger.errors import LedgerCorrupt
from ledger.model import InstantMs, LedgerId
from ledger.port import Committed, Decide, Ledger, Verdict, View, WholeCheck
from ledger.transitions import TransitionName

T = TypeVar("T")

REVISION: Final = "permit.revision"

FACTS: Final = frozenset(
    {
        *(TransitionName.EFFECT_SUCCEEDED, TransitionName.EFFECT_FAILED, TransitionName.EFFECT_NO_EFFECT),
        *(TransitionName.EFFECT_UNKNOWN, TransitionName.EFFECT_EXPIRED, TransitionName.EFFECT_REPORTED),
        *(TransitionName.EFFECT_INSPECTED, TransitionName.EFFECT_REVOKED_LATE),
        *(TransitionName.INVOCATION_ENDED, TransitionName.OBLIGATION_DONE, TransitionName.PROBE),
    }
)
"""What is recorded because it is so, and asks no terms: outcomes, evidence, ends that time has brought."""


UNRULED: Final = frozenset(
    {
        *(TransitionName.REFUSED, TransitionName.CLOCK_ACCEPTED),
        *(TransitionName.CONTENT_SHOWN, TransitionName.OBSERVED, TransitionName.AUDIT_EXPORTED),
    }
)
"""What else is recorded while no revision was ever in force: a no, a look, and that the clock is right again."""


class RevisionMoved(Exception):  # noqa: N818 - no fault: the command is run again under the terms in force
    """Another revision is in force than the one that was decided under; nothing was written."""


def in_force(view: View) -> str | None:
    """Return the digest of the revision in force, proven to be the latest; None where there never was one."""
    ruling = view.ruling(RulingKind.REVISION, ACTIVE_REVISION)
    return None if ruling is None else ruling.value


@dataclass(slots=True)
class Reached:
    """How far this process wrote in a ledger: the sequence of its last span, or 0 where it wrote none."""

    sequence: int = 0


class RevisedLedger:
    """A ledger whose decisions are made under one revision, and refused where it is not the one in force."""

    def __init__(self, ledger: Ledger, revision: str | None, reached: Reached | None = None) -> None:
        """Decide under `revision`; None is the state before any was ever activated, and then nothing is decided."""
        self.beneath = ledger
        self._revision = revision
        self.reached = reached or Reached()

    def under(self, revision: str | None) -> "RevisedLedger":
        """Return the same ledger under another revision."""
        return RevisedLedger(self.beneath, revision, self.reached)

    @property
    def ledger_id(self) -> LedgerId:
        """The identity that seals and sinks are bound to."""
        return self.beneath.ledger_id

    @property
    def noise_bytes_max(self) -> int | None:
        """From how many bytes on the trail takes no refusal directly after another (LED-02)."""
        return self.beneath.noise_bytes_max

    @noise_bytes_max.setter
    def noise_bytes_max(self, bytes_max: int | None) -> None:
        self.beneath.noise_bytes_max = bytes_max

    @property
    def damage(self) -> LedgerCorrupt | None:
        """What cannot be trusted in it, where it was opened to be looked at all the same (LED-04)."""
        return self.beneath.damage

    @property
    def is_uncertain(self) -> bool:
        """Whether a commit of this object ended uncertainly."""
        return self.beneath.is_uncertain

    def transact(
        self, decide: Decide[T], *, accept_clock: bool = False, check: WholeCheck | None = None
    ) -> Committed[T]:
        """Run one transaction under the revision of this house.

        Raises:
            RevisionMoved: another revision is in force, and more than facts would have been written; nothing was.
            Fault: as `ledger.port.Ledger.transact`.
        """

        def under_lock(view: View, now: InstantMs) -> Verdict[T]:
            verdict = decide(view, now)
            if not verdict.steps:
                return verdict
            active = in_force(view)
            free = FACTS if active is not None else FACTS | UNRULED
            if (active is None or active != self._revision) and not free.issuperset(_names(verdict)):
                raise RevisionMoved
            return _told(verdict, active)

        return self._written(self.beneath.transact(under_lock, accept_clock=accept_clock, check=check))

    def record(self, decide: Decide[T]) -> Committed[T]:
        """Run one transaction that records what has happened, whichever revision is in force (REP-05, AUD-02).

        Raises:
            Fault: as `ledger.port.Ledger.transact`.
        """

        def under_lock(view: View, now: InstantMs) -> Verdict[T]:
            verdict = decide(view, now)
            with suppress(LedgerCorrupt):  # who edited a ruling keeps no outcome from being recorded
                return _told(verdict, in_force(view)) if verdict.steps else verdict
            return verdict

        return self._written(self.beneath.transact(under_lock))

    def _written(self, committed: Committed[T]) -> Committed[T]:
        # Where nothing was written it is what somebody else reached; a checkpoint may then be asked for early.
        self.reached.sequence = max(self.reached.sequence, committed.sequence)
        return committed

    def read(self, look: Callable[[View], T]) -> T:
        """Let `look` read one consistent snapshot, as `ledger.port.Ledger.read`."""
        return self.beneath.read(look)

    def close(self) -> None:
        """Let go of the file."""
        self.beneath.close()


def _names(verdict: Verdict[T]) -> frozenset[TransitionName]:
    return frozenset(step.transition.name for step in verdict.steps)


def _told(verdict: Verdict[T], active: str | None) -> Verdict[T]:
    """Tell each span the revision that is in force where it stands."""
    return replace(verdict, steps=tuple(told_steps(verdict.steps, active)))


def told_steps(steps: tuple[Step, ...], active: str | None) -> list[Step]:
    """Return steps whose spans tell the revision in force at their place; an activation among them counts at once."""
    told = []
    for step in steps:
        attributes = dict(step.transition.attributes)
        if active is None:
            attributes.pop(REVISION, None)
        elif REVISION in attributes:
            attributes[REVISION] = active
        told.append(replace(step, transition=replace(step.transition, attributes=attributes)))
        if step.transition.name is TransitionName.REVISION_ACTIVATED:
            active = str(step.transition.attributes["permit.revision.activated"])
    return told


__all__ = ["FACTS", "REVISION", "Reached", "RevisedLedger", "RevisionMoved", "in_force", "told_steps"]
