"""Who and what may act at all: the latest word of owners and operators, and the approvals of people.

Rules: APP-01 (an approval is a signature over one statement), APP-03 (different people), POL-07 (one revision is in
force), ADM-05 (stops are ordered before or after an admission), LED-06 (rows that give authority carry a MAC).
A *ruling* is the latest word about one name: which revision is in force, whose credential counts, what is stopped. Its
history is in the trail. Values cannot exist in a bad state. Pure.
Next: `ledger.rules` refuses by them; `ledger.port` says how they are stored.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ledger.errors import Broken
from ledger.model import EffectId, InstantMs, SinkRegistration
from ledger.transitions import TransitionName

RULING_TEXT_MAX: Final = 256
"""Bytes of a ruling's name: a resource's kind and a name, a fingerprint, a digest."""

RULING_VALUE_MAX: Final = 1024
"""Bytes of a ruling's value: the place of a sink is a path or an address, and all others are shorter than a name."""

STATEMENT_DIGEST_BYTES: Final = 32
SIGNATURE_BYTES_MAX: Final = 8192
"""Bytes of an armored OpenSSH signature: one of an RSA key with 16,384 bits, the longest there is, fits."""

APPROVERS_MAX: Final = 8
"""Groups that one effect can wait for, and people of each: more is a committee, and none is kept by a policy."""

CHANGES_OF_AUTHORITY: Final = frozenset(
    {
        *(TransitionName.LEDGER_CREATED, TransitionName.LEDGER_MIGRATED, TransitionName.LEDGER_RESTORED),
        *(TransitionName.CLOCK_ACCEPTED, TransitionName.SINK_REGISTERED, TransitionName.REVISION_ACTIVATED),
        *(TransitionName.SINK_REPLACED, TransitionName.SINK_QUARANTINED, TransitionName.AUDIT_ARCHIVED),
        *(TransitionName.TASK_OPENED, TransitionName.TASK_GRANTED, TransitionName.TASK_LOWERED),
        *(TransitionName.TASK_CLOSED, TransitionName.TASK_FROZEN, TransitionName.TASK_THAWED),
        TransitionName.OVERRUN_ACCEPTED,
        *(TransitionName.STOP_FROZEN, TransitionName.STOP_THAWED, TransitionName.STOP_REVOKED),
        *(TransitionName.CREDENTIAL_ISSUED, TransitionName.CREDENTIAL_REVOKED),
        *(TransitionName.KEY_ROTATED, TransitionName.KEY_RETIRED, TransitionName.KEY_REVOKED),
    }
)
"""Transitions that give authority to somebody or take it away (AUD-09): the trail is indexed by them.

What an effect was permitted by its policies is none, and neither is an approval: its own story tells both.
"""

NOTHING_VOID: Final = InstantMs(0)
ACTIVE_REVISION: Final = "active"

SINKS_CHANGED: Final = "*"
"""The name of the ruling that each change of a sink renews, so that one look tells of any; no sink can be called so."""

SINK_GONE: Final = "gone"
"""The value of a ruling about a sink that is none any more."""


class RulingKind(StrEnum):
    """What a ruling is about."""

    REVISION = "revision"
    TOKEN = "token"  # noqa: S105 - a kind of ruling, not a credential
    STOP = "stop"
    KEY = "key"
    CHALLENGE = "challenge"
    SINK = "sink"
    QUARANTINE = "quarantine"


class Stop(StrEnum):
    """How a name stands that was stopped. `frozen` is taken back by a thaw; what was revoked before stays void."""

    FROZEN = "frozen"
    REVOKED = "revoked"
    OPEN = "open"


class StopKind(StrEnum):
    """What can be stopped as a whole; permits, effects and tasks have states of their own."""

    ALL = "all"
    PERSON = "person"
    ACTOR = "actor"
    HOST = "host"
    OPERATION = "operation"
    CLASS = "class"


def stop_name(kind: StopKind, name: str) -> str:
    """Return the name of the ruling about one stop; `all` is the only one of its kind."""
    return str(kind) if kind is StopKind.ALL else f"{kind}:{name}"


def ruling_id(kind: RulingKind, name: str) -> str:
    """Return the id of the one ruling about a name: `rul_` and 32 hex digits, from both."""
    said = b"\x00".join((str(kind).encode(), name.encode()))
    return f"rul_{hashlib.sha256(said).hexdigest()[:32]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """The latest word about one name.

    Attributes:
        value: what was said: a revision digest, the SHA-256 of a token, a `Stop`, an instant, a sink's kind and place,
            the last sequence that a sink is not given; at most 1024 bytes.
        voids_until_ms: effects prepared at or before this instant are void for good; 0 voids none. An instant and not a
            sequence, since it is what an effect's MAC holds.
        since_ms: when it was said.
    """

    kind: RulingKind
    name: str
    value: str
    since_ms: InstantMs
    voids_until_ms: InstantMs = NOTHING_VOID

    def __post_init__(self) -> None:
        """Refuse what could not be stored or told apart."""
        for text, bytes_max in ((self.name, RULING_TEXT_MAX), (self.value, RULING_VALUE_MAX)):
            if not 0 < len(text.encode()) <= bytes_max:
                raise Broken(
                    f"a ruling's name has 1 to {RULING_TEXT_MAX} bytes, its value {RULING_VALUE_MAX}"
                )
        if self.voids_until_ms < 0:
            raise Broken("a ruling voids nothing before 1970")

    @property
    def ruling_id(self) -> str:
        """The id of its row."""
        return ruling_id(self.kind, self.name)


def sink_value(sink: SinkRegistration) -> str:
    """Return what a ruling about a sink says where it has this kind and this place."""
    return f"{sink.kind} {sink.location}"


def sink_from(ruling: Ruling) -> SinkRegistration | None:
    """Return the sink as a ruling places it; None where it says that it is none any more."""
    if ruling.value == SINK_GONE:
        return None
    kind, _space, location = ruling.value.partition(" ")
    return SinkRegistration(name=ruling.name, kind=kind, location=location)


def quarantine_name(sink: str, first: int) -> str:
    """Return the name of the ruling that keeps spans from `first` on from a sink; its value is the last of them."""
    return f"{sink}:{first}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalWait:
    """An effect that waits for people.

    Attributes:
        approvers: how many different people of each group have to say yes; at least one of one.
        statement_digest: SHA-256 of the statement that they read and sign.
    """

    effect_id: EffectId
    approvers: Mapping[str, int]
    statement_digest: bytes
    asked_ms: InstantMs

    def __post_init__(self) -> None:
        """Refuse a wait that nobody, or nobody in particular, could end."""
        counts = tuple(self.approvers.values())
        if not 1 <= len(counts) <= APPROVERS_MAX or not all(1 <= count <= APPROVERS_MAX for count in counts):
            raise Broken(f"an effect waits for 1 to {APPROVERS_MAX} people of 1 to {APPROVERS_MAX} groups")
        if len(self.statement_digest) != STATEMENT_DIGEST_BYTES:
            raise Broken("a statement's digest has 32 bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """One person's signature over the statement of one effect (APP-01).

    Attributes:
        key: the fingerprint of the key that signed, as `ssh-keygen -lf` prints it.
        signature: the armored signature, proven when it was given and again at each use.
    """

    effect_id: EffectId
    person: str
    key: str
    signature: str
    at_ms: InstantMs

    def __post_init__(self) -> None:
        """Refuse a signature that could not be stored."""
        if not 0 < len(self.signature.encode()) <= SIGNATURE_BYTES_MAX:
            raise Broken(f"a signature has 1 to {SIGNATURE_BYTES_MAX} bytes")


def is_quorum(wanted: Mapping[str, int], may_count: Mapping[str, Iterable[str]]) -> bool:
    """Say whether different people fill every place (APP-03): `may_count` gives each person's groups.

    Places are filled by augmenting paths (Hopcroft and Karp 1973, in its simple form): a person who counts for two
    groups fills one place, whichever leaves the others best served.
    """
    places = [group for group, count in sorted(wanted.items()) for _ in range(count)]
    groups = {person: frozenset(names) for person, names in may_count.items()}
    filled: dict[int, str] = {}

    def seat(person: str, tried: set[int]) -> bool:
        for place, group in enumerate(places):
            if group in groups[person] and place not in tried:
                tried.add(place)
                if place not in filled or seat(filled[place], tried):
                    filled[place] = person
                    return True
        return False

    for person in sorted(groups):
        seat(person, set())
    return bool(places) and len(filled) == len(places)
