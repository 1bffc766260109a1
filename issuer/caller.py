"""Who calls: one authenticated caller for every command (SEC-02).

In an embedded run the operating system authenticates: the caller is the account that runs the process, under the
name of the person whose `login` in the profile is that uid, else `uid:N`. A host or an actor comes with a credential of
its own, can request, commit and observe what is its own, and nothing else. Roles of an account are recorded, not
enforced, in ordinary mode, and every answer says `ordinary`. Other transports come with `issuer serve`.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from issuer.profile import Person
from ledger.refusals import Refusal, RefusalCode


class CallerKind(StrEnum):
    """What somebody was authenticated as."""

    ACCOUNT = "account"
    PERSON = "person"
    HOST = "host"
    ACTOR = "actor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """An authenticated caller.

    Attributes:
        name: a person's, host's or actor's name in the profile, or `uid:N`.
        account: how it was authenticated: `uid:N`, or `token`.
        roles: the roles that the profile gives it.
        kind: what it was authenticated as; an account that the profile gives to a person is that person.
        actors, subjects: for whom it may speak; None where the tasks alone say so.
    """

    name: str
    account: str
    roles: tuple[str, ...]
    kind: CallerKind = CallerKind.ACCOUNT
    actors: tuple[str, ...] | None = None
    subjects: tuple[str, ...] | None = None

    @property
    def is_agent(self) -> bool:
        """Whether it is a host or an actor: never an owner, operator, approver or reviewer (SEC-02)."""
        return self.kind in {CallerKind.HOST, CallerKind.ACTOR}


def refuse_agent(caller: Caller) -> Refusal | None:
    """Refuse a host or an actor, whatever it says: what was asked for is a person's act (SEC-02, APP-01)."""
    return Refusal(code=RefusalCode.FORBIDDEN, field="caller") if caller.is_agent else None


def local_caller(people: Mapping[str, Person]) -> Caller:
    """Return the caller of an embedded run: whoever's account this process runs under."""
    account = f"uid:{os.getuid()}"
    for name, person in people.items():
        if person.login is not None and str(person.login) == account:
            return Caller(name=name, account=account, roles=tuple(person.roles), kind=CallerKind.PERSON)
    return Caller(name=account, account=account, roles=())
