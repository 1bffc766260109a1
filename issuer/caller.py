"""Who calls: one authenticated caller for every command (SEC-02).

In an embedded run the operating system authenticates: the caller is the account that runs the process, under the name
of the person, host or actor whose `login` in the profile is that uid, else `uid:N`. A host or an actor with `login =
"token"` comes with a credential of its own, which `issuer.tokens` reads. Both can request, commit and observe what is
their own, and nothing else (`issuer.commands.roles`).

A person's name and `uid:N` stand in records as they are; a host's is `host:NAME` and an actor's `actor:NAME`, since no
name in a profile has a colon: what belongs to one can never be read as another's of the same name, today or after the
owner renames somebody (EFF-08). Other transports come with `issuer serve`.
"""

import hmac
import os
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from issuer.profile import Profile
from ledger.authority import RulingKind, Stop
from ledger.port import View
from ledger.refusals import Refusal, RefusalCode


class CallerKind(StrEnum):
    """What somebody was authenticated as."""

    ACCOUNT = "account"
    PERSON = "person"
    HOST = "host"
    ACTOR = "actor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """An authenticated caller; one with a `credential` is not one before `refuse_caller` has said nothing against it.

    Attributes:
        name: a person's name in the profile, `host:NAME`, `actor:NAME`, or `uid:N`.
        account: how it was authenticated: `uid:N`, or `token`.
        roles: the roles that the profile gives it.
        kind: what it was authenticated as; an account that the profile gives to a person is that person.
        actors, subjects: for whom it may speak; None where the tasks alone say so.
        credential: the name of the ruling that its token has to match; None for an account.
        digest: SHA-256 of the token that was presented, in hex.
    """

    name: str
    account: str
    roles: tuple[str, ...]
    kind: CallerKind = CallerKind.ACCOUNT
    actors: tuple[str, ...] | None = None
    subjects: tuple[str, ...] | None = None
    credential: str | None = None
    digest: str = field(default="", repr=False)

    @property
    def is_agent(self) -> bool:
        """Whether it is a host or an actor: never an owner, operator, approver or reviewer (SEC-02)."""
        return self.kind in {CallerKind.HOST, CallerKind.ACTOR}


NOBODY: Final = Caller(
    name="caller:unauthenticated",
    account="token",
    roles=(),
    kind=CallerKind.HOST,
    actors=(),
    subjects=(),
    credential="host:",
)
"""Whoever presented a credential that is not one: no name that it gave is ever repeated, and no ruling is its own."""


def agent_name(kind: CallerKind, name: str) -> str:
    """Return the name of a host or an actor as records have it; it is the name of its credential as well."""
    return f"{kind}:{name}"


def refuse_caller(view: View, caller: Caller) -> Refusal | None:
    """Refuse a caller whose credential is not, or not any more, the one on record (SEC-02); one answer for each case.

    Asked at each command, and again under the lock where a permit is made or used: a token that was replaced or
    revoked in between gives nothing.
    """
    if caller.credential is None:
        return None
    ruling = view.ruling(RulingKind.TOKEN, caller.credential)
    stored = "-" if ruling is None else ruling.value
    if hmac.compare_digest(stored.encode(), caller.digest.encode()):
        return None
    return Refusal(code=RefusalCode.UNAUTHENTICATED)


def refuse_agent(caller: Caller) -> Refusal | None:
    """Refuse a host or an actor, whatever it says: what was asked for is a person's act (SEC-02, APP-01)."""
    return Refusal(code=RefusalCode.FORBIDDEN, field="caller") if caller.is_agent else None


def refuse_speaker(caller: Caller, actor: str | None, subject: str | None) -> Refusal | None:
    """Refuse a host or an actor that speaks for somebody it may not; None stands for what is not said (EFF-08)."""
    if caller.actors is not None and actor is not None and actor not in caller.actors:
        return Refusal(code=RefusalCode.FORBIDDEN, field="actor")
    if caller.subjects is not None and subject is not None and subject not in caller.subjects:
        return Refusal(code=RefusalCode.FORBIDDEN, field="subject")
    return None


def person_caller(profile: Profile, name: str, account: str) -> Caller:
    """Return a person of the profile as a caller that was authenticated as `account`."""
    roles = tuple(profile.people[name].roles)
    return Caller(name=name, account=account, roles=roles, kind=CallerKind.PERSON)


def host_caller(profile: Profile, name: str, account: str, *, digest: str | None = None) -> Caller:
    """Return a host of the profile as a caller; with `digest` it presented a token, and has to prove it."""
    host, known = profile.hosts[name], agent_name(CallerKind.HOST, name)
    return Caller(
        name=known,
        account=account,
        roles=(),
        kind=CallerKind.HOST,
        actors=tuple(host.actors),
        subjects=tuple(host.subjects),
        credential=None if digest is None else known,
        digest=digest or "",
    )


def actor_caller(name: str, account: str, *, digest: str | None = None) -> Caller:
    """Return an actor of the profile as a caller: it speaks for itself; for whom, its tasks say."""
    known = agent_name(CallerKind.ACTOR, name)
    return Caller(
        name=known,
        account=account,
        roles=(),
        kind=CallerKind.ACTOR,
        actors=(name,),
        credential=None if digest is None else known,
        digest=digest or "",
    )


def asking_caller(profile: Profile, view: View, name: str, account: str) -> Caller:
    """Return whoever asked for an effect under `name`, as it would have to call now; for what is sent in its name.

    A host or an actor is what the profile says it is today, and its credential is the one on record at this moment, so
    that the lock refuses it where that changes. Where the profile knows it no more, lets it in no more, or its
    credential is void, it is nobody. `account` is whose command sends.
    """
    kind, colon, own = name.partition(":")
    if not colon:
        return person_caller(profile, name, account) if name in profile.people else NOBODY
    if kind not in {CallerKind.HOST, CallerKind.ACTOR}:
        return Caller(name=name, account=account, roles=())
    declared = profile.hosts.get(own) if kind == CallerKind.HOST else profile.actors.get(own)
    if declared is None or declared.login is None:
        return NOBODY
    digest: str | None = None
    if declared.login == "token":
        ruling = view.ruling(RulingKind.TOKEN, name)
        if ruling is None or ruling.value == Stop.REVOKED:
            return NOBODY
        digest = ruling.value
    if kind == CallerKind.HOST:
        return host_caller(profile, own, account, digest=digest)
    return actor_caller(own, account, digest=digest)


def local_caller(profile: Profile) -> Caller:
    """Return the caller of an embedded run: whoever's account this process runs under."""
    account = nameless_caller().account
    for name, person in profile.people.items():
        if person.login == account:
            return person_caller(profile, name, account)
    for name, host in profile.hosts.items():
        if host.login == account:
            return host_caller(profile, name, account)
    for name, actor in profile.actors.items():
        if actor.login == account:
            return actor_caller(name, account)
    return nameless_caller()


def nameless_caller() -> Caller:
    """Return the account of this process as a caller that no profile has told anything of."""
    account = f"uid:{os.getuid()}"
    return Caller(name=account, account=account, roles=())
