"""Host adapter: the host itself sends; the issuer pins that, and never sends in its place.

Decides what stands in a binding where no endpoint is ours to resolve (EFF-02): who sends, and for how long it
may. What the host says afterwards is a claim (REC-07), unless the owner admitted it for this operation as a wrapper
that constrains and observes the effect (OPR-04, ADR-0018). `run_child` runs the host's command where `issuer
dispatch EFFECT -- CMD` was asked to; the command is the host's at that moment and not part of the binding,
because nothing here could hold it to what it says. Next: `issuer.flow` hands out the grant.
"""

from dataclasses import dataclass
from typing import Final

from issuer.operations.contract import Answer, NotDispatchedError, Order, Preparation, Proof, Request
from issuer.operations.declaration import NO_ABILITIES, Abilities
from issuer.operations.host_child import ChildEnd, ChildResult, run_child
from issuer.operations.implementation import implementation_digest
from ledger.model import DurationMs

__all__ = ["ChildEnd", "ChildResult", "HostAdapter", "HostSettings", "run_child"]

DEADLINE_MS_MAX: Final = 24 * 60 * 60 * 1000
"""Milliseconds that a host may take: past a day the reservation is better held as unknown."""

_SOURCES: Final = (
    *("host_adapter.py", "host_child.py", "host_environment.py", "host_launch.py", "host_watch.py"),
    *("contract.py", "implementation.py", "templates.py"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """What an owner declares about a host that sends by itself.

    Attributes:
        deadline_ms: how long the host may take from admission to its report, in milliseconds, 1 to a day.
        wrapper_because: what constrains and observes the effect, in the owner's words, where the host is admitted as
            a wrapper; else None, and its word releases nothing.
        environment: names that `issuer dispatch` passes to the command beside those of `host_environment`.
    """

    deadline_ms: DurationMs
    wrapper_because: str | None = None
    environment: tuple[str, ...] = ()

    @property
    def is_wrapper(self) -> bool:
        """Whether its first-hand report counts as it is (REC-07)."""
        return self.wrapper_because is not None

    def __post_init__(self) -> None:
        """Refuse what the owner cannot have meant, with a `ValueError`."""
        if type(self.deadline_ms) is not int or not 1 <= self.deadline_ms <= DEADLINE_MS_MAX:
            raise ValueError("A host's deadline is more than nothing and at most a day.")


class HostAdapter:
    """Implements `contract.Adapter` for operations that the host sends."""

    kind: Final = "host"

    def __init__(self, settings: HostSettings) -> None:
        """Take the owner's deadline."""
        self._settings = settings
        self._implementation = implementation_digest(
            self.kind,
            _SOURCES,
            {
                "deadline_ms": settings.deadline_ms,
                "wrapper": settings.wrapper_because,
                "environment": list(settings.environment),
            },
        )

    @property
    def implementation(self) -> str:
        """Digest (hex) of source and settings (OPR-02)."""
        return self._implementation

    @property
    def abilities(self) -> Abilities:
        """None where what the host says is a claim; all of them where the owner admitted it as a wrapper (REC-07)."""
        if not self._settings.is_wrapper:
            return NO_ABILITIES
        return Abilities(proofs=frozenset({Proof.SUCCEEDED, Proof.FAILED, Proof.NO_EFFECT}), charges=True)

    def prepare(self, request: Request) -> Preparation:
        """Pin that the host sends; the resource is what the contract derives from the payload."""
        del request
        return Preparation(
            actual={"kind": self.kind},
            destination={"kind": self.kind, "deadline_ms": self._settings.deadline_ms},
        )

    def still_holds(self, request: Request, preparation: Preparation) -> str | None:
        """Return `destination_changed` where the owner's deadline is another one now; else None."""
        return None if self.prepare(request) == preparation else "destination_changed"

    def dispatch(self, order: Order) -> Answer:
        """Never send: a grant, not the issuer, lets the host act.

        Raises:
            NotDispatchedError: always, `host_sends`.
        """
        del order
        raise NotDispatchedError("host_sends")
