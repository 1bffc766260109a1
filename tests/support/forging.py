"""The scene of an attack on authority: an office, the effect that it is about, what attackers and owners do there."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from issuer import Issuer
from issuer.wire import Answer
from tests.support.approving import POLICY, Office
from tests.support.cases import Clock, state_of
from tests.support.issuers import Made
from tests.support.ledgers import without_guards
from tests.support.revised import activated, rewritten
from tests.support.ssh import make_key

AUTOMATIC = POLICY.replace("<= 500", "<= 100000")
TWO = POLICY.replace('@approvers("finance")', '@approvers("finance:2")')
NOBODY = POLICY.replace('context.cost["USD.cent"] <= 100000', 'context.cost["USD.cent"] <= 501')

HOSTS = """
[host]
till = { actors = ["agent-7"], subjects = ["u-ana"], login = "token" }
[class.refund]
"""
CHANGES: Final = {
    'agent-8 = { answers_to = "boss", groups = ["bots"] }\n': (
        'agent-8 = { answers_to = "boss", groups = ["bots"], login = "token" }\n'
    ),
    "[class.refund]\n": HOSTS.lstrip(),
}

Attack = Callable[["Scene"], Answer | None]


class Scene:
    """One office under attack, and the effect that the attack is about."""

    def __init__(self, office: Office, clock: Clock, folder: Path) -> None:
        self.office = office
        self.clock = clock
        self.folder = folder
        self.issuer = office.issuer
        self.effect = office.ask()

    @property
    def made(self) -> Made:
        return self.office.made

    def approve(self, signature: str, effect: str | None = None, issuer: Issuer | None = None) -> Answer:
        return (issuer or self.issuer).approve(effect or self.effect, signature)

    def signed_by(self, person: str, effect: str | None = None) -> str:
        return self.office.signature(person, self.office.statement(effect or self.effect))

    def approved(self, *people: str) -> None:
        """Let people say yes, so that the effect has its permit; the attack comes after it."""
        for person in people or ("bob",):
            assert self.office.approve(self.effect, person).code in {"approved", "permitted"}
        assert state_of(self.issuer, self.effect) == "permitted"

    def commit(self) -> Answer:
        return self.issuer.commit(self.effect)

    def activate(self, old: str, new: str, file: str = "profile.toml") -> None:
        """Let the owner change a file and put it in force."""
        path = self.made.folder / file
        text = path.read_text(encoding="utf-8")
        assert old in text
        rewritten(path, text.replace(old, new))
        activated(self.made.profile, clock=self.clock)

    def draft(self, old: str, new: str, file: str = "profile.toml") -> None:
        """Change a file of the owner's on the disk, and activate nothing."""
        path = self.made.folder / file
        text = path.read_text(encoding="utf-8")
        assert old in text
        rewritten(path, text.replace(old, new))

    def new_key(self) -> Path:
        path = self.folder / "new-key"
        make_key(path)
        return path

    def token(self, kind: str = "host") -> str:
        told = self.issuer.host_token("till") if kind == "host" else self.issuer.actor_token("agent-8")
        return str(told.more["token"])

    def agent(self, kind: str = "host") -> Issuer:
        return self.issuer.as_caller(token=self.token(kind))

    def by_sql(self, *statements: str) -> Answer:
        """Edit the file without keys while nobody has it open, and then use the effect."""
        self.issuer.close()
        without_guards(self.made.ledger, *statements)
        try:
            with self.made.open(clock=self.clock) as issuer:
                self.issuer = issuer
                return issuer.commit(self.effect)
        except Exception as refused:  # noqa: BLE001 - not to open at all is a no as well
            return Answer(issuer="", code="ledger_unavailable", mode="ordinary", say=type(refused).__name__)
