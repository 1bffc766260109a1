"""What a restore goes by, and what it did: the values that its steps share (LED-08).

Next: `issuer.restore.steps`.
"""

from dataclasses import dataclass, field
from typing import Final

from issuer.profile import Profile
from issuer.restore.retold import Retold
from issuer.restore.sinks import SinkSeen, SinkState
from issuer.revised import REVISION
from issuer.revisions import NO_REVISION
from issuer.unopened import Given
from ledger.model import EffectId
from ledger.transitions import AttributeValue, Position

REASON: Final = "restored"
"""The word that every span of a restore gives as its reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a restore goes by.

    Attributes:
        base: the last span of the backup.
        epoch: the one that begins.
        retold: what the sinks saw after the backup.
        given: what is in force, who restores, and whose signature it uses.
    """

    base: Position
    epoch: int
    sinks: tuple[SinkSeen, ...]
    retold: Retold
    given: Given

    @property
    def profile(self) -> Profile | None:
        """The profile in force; None where nothing says it, and then no bound is known and no sink is required."""
        return self.given.ground.profile

    @property
    def is_complete(self) -> bool:
        """Whether some required sink, where the ledger had it in the end, proves that no admission is missed."""
        return any(
            sink.required
            and sink.state is SinkState.COMPLETE
            and sink.registration.name not in self.retold.left_sinks
            for sink in self.sinks
        )


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What the transaction did, for its answer: effects by what became of them, names of tasks that are frozen now.

    `stopped` are the names that were stopped again, such as `all` or `actor:NAME`; `credentials` those that are void;
    `is_unruled` says that no revision of the owner's files is in force any more.
    """

    replayed: list[EffectId] = field(default_factory=list)
    unknown: list[EffectId] = field(default_factory=list)
    revoked: list[EffectId] = field(default_factory=list)
    frozen: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    credentials: list[str] = field(default_factory=list)
    is_unruled: bool = False


def common(plan: Plan) -> dict[str, AttributeValue]:
    """Return what every span of a restore says."""
    return {**plan.given.attributes, REVISION: plan.given.ground.revision or NO_REVISION}
