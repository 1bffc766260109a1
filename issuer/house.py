"""Everything one running issuer works with, put together once by `issuer.wiring` and handed to every step.

It decides nothing. Each attribute is a room's public value; steps take what they need from here and nothing from
anywhere else.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from audit import Delivery, Sink
from issuer.caller import Caller
from issuer.instance import Instance
from issuer.operations.registry import Operation
from issuer.places import Places
from issuer.profile import Profile
from issuer.revised import RevisedLedger
from issuer.sealing import KeyRing, ProtectedStore
from issuer.sink_places import NO_MEANS, SinkMeans
from ledger.invocations import Invocation
from ledger.model import InstantMs, PathNode, Unit
from ledger.port import Ledger, View
from ledger.refusals import Refusal
from ledger.sqlite.ballast import Ballast
from ledger.transitions import AttributeValue, Transition
from policies import Bundle, Directory

ID_SHOWN: Final = slice(4, 12)
"""The digits of a ledger id that an issuer's name shows: enough to tell two ledgers apart at a glance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """One issuer, open.

    Attributes:
        ledger: refuses what is decided under another revision than the one in force (POL-07).
        revision: the digest of the owner's files that everything here was read from: 64 hex digits.
        units: every unit that some operation costs.
        ballast: the room that is kept for outcomes.
        open_anew: opens the same ledger once more, for an outcome that the open one could not take.
        places: where it keeps what.
        resign: signs anew what the compromised key of this id signed; the span is the transition (SEC-03).
        now: the clock; inside a transaction the ledger's own reading counts, and only that.
        observe: told the name of each numbered step as it is reached (`issuer.flow.steps`).
        late_bundle: the owner's policies, read where a house that only reads is asked who may look; None elsewhere.
        is_strict: strictness that something else than the profile demands; tests alone do yet.
    """

    places: Places
    profile: Profile
    revision: str
    ledger: RevisedLedger
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
    late_bundle: Callable[[], Bundle] | None = None
    sink_means: SinkMeans = NO_MEANS
    """What sinks are built with, where the ledger has changed them since."""
    further_sinks: tuple[Sink, ...] = ()
    """Sinks of an embedding host, beside those that the ledger has on record."""
    is_strict: bool = False

    @property
    def role_bundle(self) -> Bundle:
        """The policies that are asked about acts of people: in a house that only reads, those of the owner as well."""
        return self.bundle if self.late_bundle is None else self.late_bundle()

    @property
    def issuer(self) -> str:
        """The issuer's name and the first digits of its ledger id, as every answer carries it."""
        return f"{self.profile.name}/{self.ledger.ledger_id[ID_SHOWN]}"

    @property
    def mode(self) -> str:
        """`strict` or `ordinary` (OPR-03)."""
        return "strict" if self.is_strict else self.profile.mode


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedText:
    """What came with a command: a statement, and the armored OpenSSH signature over it; nothing of it is believed."""

    signature: str
    statement: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """A signature that is good for this command and its arguments, up to what only the lock can tell.

    Attributes:
        person: who signed; the caller of the act, unless a host or an actor brought it.
        key: fingerprint of the key that signed.
        digest: SHA-256 of the statement, in hex.
        challenge: its single-use part.
        until_ms: from when on it is too late.
    """

    person: str
    key: str
    digest: str
    challenge: str
    until_ms: InstantMs


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One call: whose house it is, who calls, and what was asked for; `command` is what a refusal's span names."""

    house: House
    caller: Caller
    command: str
    about: Mapping[str, AttributeValue] = field(default_factory=dict)
    """What a refusal's span says where there is no effect yet: declared names only, never a caller's free words."""
    signed: Signed | None = None
    trouble: Refusal | None = None
    """Why a signature that came with the command is none; the edge refuses the command for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Locked:
    """What a decision stands on: the view under the ledger's lock, its one instant, and the task with its ancestors.

    `invocation` is the one that the effect names, if any.
    """

    view: View
    now: InstantMs
    path: tuple[PathNode, ...]
    invocation: Invocation | None = None
