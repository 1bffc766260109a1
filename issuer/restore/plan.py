"""What a restore goes by, and what it did: the values that its steps share (LED-08).

Next: `issuer.restore.steps`.
"""

from dataclasses import dataclass, field
from typing import Final

from issuer.profile import Profile
from issuer.restore.retold import Retold
from issuer.restore.sinks import SinkSeen, SinkState
from ledger.model import AttributeValue, EffectId, Position

REASON: Final = "restored"
"""The word that every span of a restore gives as its reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a restore goes by.

    Attributes:
        base: the last span of the backup.
        epoch: the one that begins.
        retold: what the sinks saw after the backup.
        caller: who restores.
    """

    base: Position
    epoch: int
    sinks: tuple[SinkSeen, ...]
    retold: Retold
    profile: Profile
    caller: str

    @property
    def is_complete(self) -> bool:
        """Whether some required sink proves that no admission is missed."""
        return any(sink.required and sink.state is SinkState.COMPLETE for sink in self.sinks)


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
    return {
        "permit.mode": plan.profile.mode,
        "permit.caller": plan.caller,
        "permit.revision": plan.profile.digest,
    }
