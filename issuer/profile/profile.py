"""The owner's profile as the rest of the application sees it: accepted, complete, unchangeable.

An instance exists only for a profile that passed every rule; `issuer/profile/reading.py` is the one place
that makes it. It answers what may be done here, for whom and how much of it, and holds no secret:
credentials are named, never contained. What this release does not serve yet is told by
`issuer/profile/unserved.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from issuer.profile.digests import class_digest_of, operation_digest_of
from issuer.profile.fields import FieldRef
from issuer.profile.models import (
    ActionClass,
    Actor,
    Audit,
    Host,
    LedgerBounds,
    Notify,
    ObligationTerm,
    Operation,
    Person,
)
from issuer.profile.registry import Registry
from issuer.sealing import SshKey

__all__ = ["Profile", "class_digest", "cost_range", "operation_digest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One accepted profile.

    `where` is the name of the file as it was given, for messages; it is not part of `digest`, which is
    lower-case hex of SHA-256 over everything else here. `keys` has the registered public keys of each person who has
    some, 1 to 8 (APP-01). All mappings are read-only.
    """

    where: str
    format: int
    name: str
    mode: Literal["strict", "ordinary"]
    timezone: str
    audit: Audit
    ledger: LedgerBounds
    people: Mapping[str, Person]
    actors: Mapping[str, Actor]
    hosts: Mapping[str, Host]
    keys: Mapping[str, tuple[SshKey, ...]]
    registries: Mapping[str, Registry]
    classes: Mapping[str, ActionClass]
    operations: Mapping[str, Operation]
    obligations: Mapping[str, ObligationTerm]
    notices: Mapping[str, Notify]
    digest: str


def operation_digest(profile: Profile, name: str) -> str:
    """Return the digest of everything that defines the operation `name`: 64 hex characters (OPR-02).

    Its class enters by name only; see `class_digest`.

    Raises:
        KeyError: the profile has no such operation; whose fault: the caller's.
    """
    return operation_digest_of(name, profile.operations[name], profile.registries)


def class_digest(profile: Profile, name: str) -> str:
    """Return the digest of the class `name` with its bounds: 64 hex characters.

    Raises:
        KeyError: the profile has no such class; whose fault: the caller's.
    """
    return class_digest_of(name, profile.classes[name])


def cost_range(operation: Operation) -> Mapping[str, tuple[int, int]]:
    """Return the least and greatest cost of the operation, per unit, whatever the payload (EFF-04).

    Both are whole numbers from 0 to 2^53-1; an operation of an accepted profile always has both.
    """
    ranges: dict[str, tuple[int, int]] = {}
    for unit, cost in operation.cost.items():
        if isinstance(cost, FieldRef):
            bounds = operation.payload[cost.field].int_range
            if bounds is not None:
                ranges[unit] = bounds
        else:
            ranges[unit] = (cost, cost)
    return ranges
