"""The standard issuer F0 with programs that come by token: a host `till` for agent-7, and agent-8 by itself.

People have roles and keys of their own: `u-ana` is the owner and operator whose account runs the tests, `ben` reviews,
`otto` operates, `olga` owns, and `mia` is nobody in particular.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from issuer import Issuer
from issuer.caller import Caller, CallerKind
from policies import role_policies
from tests.support.issuers import STANDARD_POLICY, Made, standard_issuer
from tests.support.service import Service
from tests.support.ssh import hand_keys, sign

WHO = ("u-ana", "ben", "otto", "olga", "mia")
HOST, ACTOR = "host:till", "actor:agent-8"
_LOGIN = f'login = "uid:{os.getuid()}"'
_ANA = f'u-ana = {{ roles = ["owner", "operator"], groups = ["finance"], {_LOGIN} }}\n'
_PEOPLE = (
    f'u-ana = {{ roles = ["owner", "operator"], groups = ["finance"], {_LOGIN}, key = "people/u-ana.pub" }}\n'
    'ben = { roles = ["reviewer"], key = "people/ben.pub" }\n'
    'otto = { roles = ["operator"], key = "people/otto.pub" }\n'
    'olga = { roles = ["owner"], key = "people/olga.pub" }\n'
    'mia = { key = "people/mia.pub" }\n'
    "till = { }\n"
)
_AGENT_8 = 'agent-8 = { answers_to = "u-ana", groups = ["bots"] }\n'
_HOSTS = """agent-8 = { answers_to = "u-ana", groups = ["bots"], login = "token" }
[host]
till = { actors = ["agent-7"], subjects = ["u-ana"], login = "token" }
depot = { actors = ["agent-7", "agent-8"], subjects = ["u-ana", "mia"], login = "token" }
desk = { actors = ["agent-7"], subjects = ["u-ana"], login = "uid:4711" }
"""
CHANGES = {_ANA: _PEOPLE, _AGENT_8: _HOSTS}
WITH_ROLES = STANDARD_POLICY + role_policies()


@dataclass(frozen=True, kw_only=True)
class Shop:
    """One open issuer with its service, and everybody's private key."""

    issuer: Issuer
    made: Made
    service: Service
    keys: Mapping[str, Path] = field(repr=False)

    def token(self, kind: str = "host", name: str = "till") -> str:
        """Return a fresh token, which replaces the one before."""
        answer = self.issuer.host_token(name) if kind == "host" else self.issuer.actor_token(name)
        if answer.code != "credential_issued":
            raise AssertionError(answer)
        return str(answer.more["token"])

    def host(self, name: str = "till") -> Issuer:
        """Return a handle for a host with a fresh token."""
        return self.issuer.as_caller(token=self.token("host", name))

    def actor(self) -> Issuer:
        """Return a handle for agent-8 with a fresh token."""
        return self.issuer.as_caller(token=self.token("actor", "agent-8"))

    def person(self, name: str, *, issuer: Issuer | None = None) -> Issuer:
        """Return a handle for another person, as their own account would have."""
        of = issuer or self.issuer
        roles: Sequence[str] = of._house.profile.people[name].roles
        who = Caller(name=name, account="uid:4712", roles=tuple(roles), kind=CallerKind.PERSON)
        return Issuer(of._house, who, of._current)

    def strict(self, **changes: object) -> Issuer:
        """Return the issuer as it would be under a strictness that the profile cannot say yet (OPR-03)."""
        house = replace(self.issuer._house, is_strict=True, **changes)  # type: ignore[arg-type]  # parts of the house
        return Issuer(house, self.issuer._caller, lambda: house)

    def sign(self, person: str, statement: str, **options: str) -> str:
        """Return a person's signature over a statement."""
        return sign(self.keys[person], statement.encode(), **options)


def make_shop(
    folder: Path, port: int, policy: str, changes: Mapping[str, str] | None
) -> tuple[Made, Mapping[str, Path]]:
    """Make the issuer, and everybody's key pair elsewhere."""
    keys = hand_keys(WHO, private=folder.parent / f"{folder.name}-keys", public=folder / "people")
    made = standard_issuer(folder, port=port, policy=policy, changes=CHANGES | dict(changes or {}))
    return made, keys


@contextmanager
def opened_shop(
    folder: Path,
    *,
    policy: str = STANDARD_POLICY,
    changes: Mapping[str, str] | None = None,
    **options: object,
) -> Iterator[Shop]:
    """Make a shop in `folder` and close it at the end; `options` are those of `Issuer.open`."""
    with Service() as service:
        made, keys = make_shop(folder, service.port, policy, changes)
        with made.open(**options) as issuer:
            yield Shop(issuer=issuer, made=made, service=service, keys=keys)
