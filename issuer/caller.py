"""Who calls: one authenticated caller for every command (SEC-02).

In an embedded run the operating system authenticates: the caller is the account that runs the process, under the
name of the person whose `login` in the profile is that uid, else `uid:N`. Roles are recorded, not enforced, in
ordinary mode, and every answer says `ordinary`. Other transports come with `issuer serve`.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from issuer.profile import Person


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """An authenticated caller.

    Attributes:
        name: a person's or host's name in the profile, or `uid:N`.
        account: how it was authenticated, `uid:N`.
        roles: the roles that the profile gives it.
    """

    name: str
    account: str
    roles: tuple[str, ...]


def local_caller(people: Mapping[str, Person]) -> Caller:
    """Return the caller of an embedded run: whoever's account this process runs under."""
    account = f"uid:{os.getuid()}"
    for name, person in people.items():
        if person.login is not None and str(person.login) == account:
            return Caller(name=name, account=account, roles=tuple(person.roles))
    return Caller(name=account, account=account, roles=())
