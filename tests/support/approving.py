"""The standard issuer with people who can answer: keys of their own, made by `ssh-keygen`, and a policy about them.

Everybody asks as `ops`, whose account runs the tests; it is for `u-ana`, and the actors answer to `boss`. All three are
approvers in `finance` like `bob`, `carol` and `dan`, so that only the core keeps them apart from what is theirs.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from issuer import Issuer
from issuer.caller import Caller, CallerKind
from issuer.wire import Answer
from tests.support.issuers import STANDARD_POLICY, Made, refund, standard_issuer
from tests.support.revised import activated, rewritten
from tests.support.service import Service
from tests.support.ssh import hand_keys, sign

APPROVERS_POLICY = """
@id("approvers")
permit (principal is Person, action == Action::"approve", resource is Request)
when { principal in resource.approvers };
"""
POLICY = STANDARD_POLICY + APPROVERS_POLICY
GROUP = '@approvers("finance")'
NO_APPROVERS = "when { principal in resource.approvers };"
WHO = ("ops", "u-ana", "boss", "bob", "carol", "dan", "erin", "mallory")
UID = f"uid:{os.getuid()}"
PEOPLE = f"""
ops = {{ roles = ["owner", "approver"], groups = ["finance"], login = "{UID}", key = "people/ops.pub" }}
u-ana = {{ roles = ["approver"], groups = ["finance", "stewards"], key = "people/u-ana.pub" }}
boss = {{ roles = ["approver"], groups = ["finance"], key = "people/boss.pub" }}
bob = {{ roles = ["approver"], groups = ["finance"], key = "people/bob.pub" }}
carol = {{ roles = ["approver"], groups = ["finance", "stewards"], key = "people/carol.pub" }}
dan = {{ roles = ["approver"], groups = ["finance"], key = "people/dan.pub" }}
erin = {{ roles = ["approver"], groups = ["stewards"], key = "people/erin.pub" }}
mallory = {{ roles = ["reviewer"], groups = ["finance"], key = "people/mallory.pub" }}
"""
_ANA = f"""
u-ana = {{ roles = ["owner", "operator"], groups = ["finance"], login = "{UID}" }}
"""
ANSWERS_TO = 'answers_to = "u-ana"'


@dataclass(frozen=True, kw_only=True)
class Office:
    """One open issuer, its service, and everybody's private key."""

    issuer: Issuer
    service: Service
    made: Made
    keys: Mapping[str, Path] = field(repr=False)

    def ask(self, amount: int = 900, **options: object) -> str:
        """Return an effect that waits for people."""
        return waiting(refund(self.issuer, amount=amount, **options))  # type: ignore[arg-type]

    def statement(self, effect: str, **why: str) -> bytes:
        """Return the statement of an effect."""
        shown = self.issuer.statement(effect, **why)
        if "statement" not in shown.more:
            raise AssertionError(shown)
        return str(shown.more["statement"]).encode()

    def signature(self, person: str, statement: bytes) -> str:
        """Return a person's signature over a text."""
        return sign(self.keys[person], statement)

    def approve(self, effect: str, person: str) -> Answer:
        """Let a person say yes."""
        return self.issuer.approve(effect, self.signature(person, self.statement(effect)))

    def decline(self, effect: str, person: str, reason: str = "not_agreed") -> Answer:
        """Let a person say no."""
        text = self.statement(effect, decline=reason)
        return self.issuer.decline(effect, self.signature(person, text), reason=reason)

    def put(self, path: Path, text: str) -> None:
        """Write a file of the owner and put it in force; a draft that cannot be in force stays a draft."""
        rewritten(path, text)
        activated(self.made.profile)

    @property
    def policies(self) -> Path:
        """The file of the policies."""
        return self.made.folder / "policies" / "policies.cedar"

    def as_agent(self, name: str = "agent-7") -> Issuer:
        """Return the same open issuer as an agent with a credential of its own calls it."""
        caller = Caller(name=name, account="token", roles=(), kind=CallerKind.ACTOR)
        return Issuer(self.issuer._house, caller, self.issuer._current)


def asked_of(approvers: str) -> str:
    """Return the policy with other people asked."""
    return POLICY.replace(GROUP, f'@approvers("{approvers}")')


def waiting(answer: Answer) -> str:
    """Return the effect of an answer that must be `awaiting_approval`."""
    if answer.code != "awaiting_approval" or answer.effect is None:
        raise AssertionError(answer)
    return answer.effect


def made_office(
    folder: Path, *, port: int, policy: str = POLICY, changes: Mapping[str, str] | None = None
) -> tuple[Made, Mapping[str, Path]]:
    """Make an issuer with people in `folder`; return it with everybody's private key, which is elsewhere."""
    keys = hand_keys(WHO, private=folder.parent / f"{folder.name}-keys", public=folder / "people")
    people = {_ANA: PEOPLE, ANSWERS_TO: 'answers_to = "boss"'}
    made = standard_issuer(folder, port=port, policy=policy, changes=people | dict(changes or {}))
    return made, keys


@contextmanager
def opened_office(
    folder: Path, *, policy: str = POLICY, changes: Mapping[str, str] | None = None, **options: object
) -> Iterator[Office]:
    """Make an office in `folder` and close it at the end; `options` are those of `Issuer.open`."""
    with Service() as service:
        made, keys = made_office(folder, port=service.port, policy=policy, changes=changes)
        with made.open(**options) as issuer:
            yield Office(issuer=issuer, service=service, made=made, keys=keys)
