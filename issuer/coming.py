"""How somebody comes to an issuer: by account, by token, with a person's signature, or to be told what to sign.

It believes nothing: a token is a claim until `issuer.commands.roles` has asked the ledger, a signature until
`issuer.flow.signed_act` and the lock have looked at it. The caller is made anew for each command, from the profile in
force, so that a login that an owner took away ends at the next one (SEC-02).
Next: `issuer.commands.edge`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from issuer.caller import Caller
from issuer.errors import SetupError
from issuer.flow.signed_act import act_statement, with_signature
from issuer.house import House, SignedText, Visit
from issuer.tokens import presented_caller, read_token


class StatedInstead(Exception):  # noqa: N818 - ends a command where its statement was wanted
    """The statement of a command, in place of the command."""

    def __init__(self, statement: str) -> None:
        """Carry it."""
        super().__init__()
        self.statement = statement


@dataclass(frozen=True, slots=True, kw_only=True)
class Coming:
    """How the caller of a handle comes.

    Attributes:
        token: what a host or an actor presents; None where the account calls.
        text: a person's signature over the one command that follows.
        stated_by: the person for whom a statement is wanted, and nothing done.
    """

    token: str | None = field(default=None, repr=False)
    text: SignedText | None = None
    stated_by: str | None = None

    def visit(self, house: House, account: Caller, command: str, arguments: Mapping[str, object]) -> Visit:
        """Return one call; `account` is the caller where no token was presented.

        Raises:
            StatedInstead: only the statement was wanted.
            RefusedError, Malformed: as `issuer.flow.signed_act.act_statement`.
        """
        if self.stated_by is not None:
            raise StatedInstead(act_statement(house, command, arguments, self.stated_by))
        caller = account if self.token is None else presented_caller(house.profile, read_token(self.token))
        visit = Visit(house=house, caller=caller, command=command)
        return visit if self.text is None else with_signature(visit, self.text, arguments)


BY_ACCOUNT: Final = Coming()


def stated_instead(call: Callable[[], object]) -> str:
    """Return the statement of the command that `call` gives.

    Raises:
        SetupError: it gives none.
    """
    try:
        call()
    except StatedInstead as stated:
        return stated.statement
    raise SetupError("no_command", "There is no command to sign.")
