"""Everything one running issuer works with, put together once by `issuer.wiring` and handed to every step.

It decides nothing. Each attribute is a room's public value; steps take what they need from here and nothing from
anywhere else.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from audit import Delivery
from issuer.caller import Caller
from issuer.instance import Instance
from issuer.operations.registry import Operation
from issuer.places import Places
from issuer.profile import Profile
from issuer.sealing import KeyRing, ProtectedStore
from ledger.invocations import Invocation
from ledger.model import AttributeValue, InstantMs, PathNode, Transition, Unit
from ledger.port import Ledger, View
from ledger.sqlite.ballast import Ballast
from policies import Bundle, Directory

ID_SHOWN: Final = slice(4, 12)
"""The digits of a ledger id that an issuer's name shows: enough to tell two ledgers apart at a glance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """One issuer, open.

    Attributes:
        units: every unit that some operation costs.
        ballast: the room that is kept for outcomes.
        open_anew: opens the same ledger once more, for an outcome that the open one could not take.
        places: where it keeps what.
        resign: signs anew what the compromised key of this id signed; the span is the transition (SEC-03).
        now: the clock; inside a transaction the ledger's own reading counts, and only that.
        observe: told the name of each numbered step as it is reached (`issuer.flow.steps`).
    """

    places: Places
    profile: Profile
    ledger: Ledger
    ring: KeyRing
    protected: ProtectedStore
    bundle: Bundle
    directory: Directory
    operations: Mapping[str, Operation]
    units: tuple[Unit, ...]
    delivery: Delivery
    instance: Instance
    ballast: Ballast
    open_anew: Callable[[], Ledger]
    resign: Callable[[int, Transition], int]
    now: Callable[[], InstantMs]
    observe: Callable[[str], None]
    voids_swept: set[tuple[str, int]] = field(default_factory=set)
    """Revocations, by ruling and instant, under which this process has found nothing void that is still pending."""

    @property
    def issuer(self) -> str:
        """The issuer's name and the first digits of its ledger id, as every answer carries it."""
        return f"{self.profile.name}/{self.ledger.ledger_id[ID_SHOWN]}"

    @property
    def mode(self) -> str:
        """`strict` or `ordinary` (OPR-03)."""
        return self.profile.mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One call: whose house it is, who calls, and what was asked for; `command` is what a refusal's span names."""

    house: House
    caller: Caller
    command: str
    about: Mapping[str, AttributeValue] = field(default_factory=dict)
    """What a refusal's span says where there is no effect yet: declared names only, never a caller's free words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Locked:
    """What a decision stands on: the view under the ledger's lock, its one instant, and the task with its ancestors.

    `invocation` is the one that the effect names, if any.
    """

    view: View
    now: InstantMs
    path: tuple[PathNode, ...]
    invocation: Invocation | None = None
