"""One open issuer in somebody's hands: who calls, under which revision, and with whose signature (SEC-02, POL-07).

Each command is run under the revision that is in force as it begins, and once more where another was activated under
it; a credential is looked up at each command, and a signature is good for one. It decides nothing else.
Next: `issuer.api`, the commands themselves.
"""

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final, Self

from issuer import answering
from issuer.caller import Caller, local_caller
from issuer.checkpoints.keeper import Keeper
from issuer.closing import let_go
from issuer.errors import SetupError
from issuer.flow.signed_act import act_statement, signing_of, with_signature
from issuer.house import House, SignedText, Visit
from issuer.revised import RevisionMoved
from issuer.tokens import presented_caller, read_token
from issuer.wire import Answer
from ledger.errors import LedgerCorrupt, LedgerUnavailable

TURNS_MAX: Final = 3
"""How often a command is run where the owner activates a revision under it each time."""


class _StatedInstead(Exception):  # noqa: N818 - ends a command where its statement was wanted
    def __init__(self, statement: str) -> None:
        super().__init__()
        self.statement = statement


class Handle:
    """One open issuer and who calls it: the account of this process, or a host or actor by its token."""

    def __init__(
        self,
        house: House,
        caller: Caller,
        current: Callable[[], House],
        trouble: Callable[[], LedgerUnavailable | LedgerCorrupt | None] = lambda: None,
        *,
        token: str | None = None,
        text: SignedText | None = None,
        stated_by: str | None = None,
        keeper: Keeper | None = None,
    ) -> None:
        """Use `Issuer.open`; `current` gives the house under the revision in force, `trouble` why it is not that.

        With `token` the caller is whoever that belongs to, under the profile that is then in force.
        """
        self._house = house
        self._caller = caller
        self._is_local = caller == local_caller(house.profile)
        self._current = current
        self._trouble = trouble
        self._token = token
        self._text = text
        self._stated_by = stated_by
        self._keeper = keeper or Keeper()

    def _beside(
        self, *, token: str | None = None, text: SignedText | None = None, stated_by: str | None = None
    ) -> Self:
        return type(self)(
            self._house,
            self._caller,
            self._current,
            self._trouble,
            token=token,
            text=text,
            stated_by=stated_by,
            keeper=self._keeper,
        )

    def as_caller(self, *, token: str) -> Self:
        """Return another handle on this issuer, for whoever `token` belongs to; closing either closes both."""
        return self._beside(token=token)

    def signed(self, signature: str, statement: str) -> Self:
        """Return a handle for one act that a person signed: `issuer.signed(signature, statement).task_close("t1")`.

        `statement` is the whole text that `act_statement` or `stated` gave, `signature` the armored text of
        `ssh-keygen -Y sign -n permit-issuer`. It is good for that command with those arguments, once.
        """
        text = SignedText(signature=signature, statement=statement)
        return self._beside(token=self._token, text=text)

    def act_statement(self, command: str, arguments: Mapping[str, object], person: str) -> str:
        """Return what `person` signs for `command` (as refusals name it) with `arguments`, good for ten minutes.

        Raises:
            RefusedError: the profile has no such person.
            Malformed: an argument has no canonical form.
        """
        return act_statement(signing_of(self._current()), command, arguments, person)

    def stated(self, person: str, call: Callable[[Self], object]) -> str:
        """Return what `person` signs for the one command that `call` gives; nothing of it is carried out.

        Raises:
            RefusedError: the profile has no such person.
            SetupError: `call` gives no command.
        """
        try:
            call(self._beside(stated_by=person))
        except _StatedInstead as stated:
            return stated.statement
        raise SetupError("no_command", "There is no command to sign.")

    def _visit(self, command: str, **arguments: object) -> Visit:
        house = self._current()
        if self._stated_by is not None:
            raise _StatedInstead(act_statement(signing_of(house), command, arguments, self._stated_by))
        caller, token = self._caller, self._token
        if (
            self._is_local
        ):  # what an account is called, and whether it is a person's, is the revision's to say
            caller = local_caller(house.profile)
        if token is not None:
            caller = presented_caller(house.profile, read_token(token))
        visit = Visit(house=house, caller=caller, command=command)
        return visit if self._text is None else with_signature(visit, self._text, arguments)

    def _done(self, command: str, run: Callable[[Visit], Answer], **arguments: object) -> Answer:
        """Run a command under the revision in force, and once more where another was activated meanwhile (POL-07)."""
        for _turn in range(TURNS_MAX):
            visit = self._visit(command, **arguments)
            try:
                answer = run(visit)
            except RevisionMoved:  # nothing was written, and nothing was sent
                continue
            self._keeper.after(visit.house)
            return answer
        say = "The owner's files are being changed too quickly to decide anything; try again."
        moved = LedgerUnavailable("revision_moved", say)
        return answering.faulted(self._house, self._trouble() or moved)

    @property
    def name(self) -> str:
        """The issuer's name and the first digits of its ledger id."""
        return self._house.issuer

    @property
    def mode(self) -> str:
        """`strict` or `ordinary` (OPR-03)."""
        return self._house.mode

    @property
    def classes(self) -> tuple[str, ...]:
        """The action classes that the owner declared: what a root task can name (BUD-06)."""
        return tuple(self._house.profile.classes)

    def close(self) -> None:
        """Let go of everything, within `CLOSE_BUDGET_S` of `issuer.closing`, and `CLOSE_S` of its checkpoints (INV-03).

        Admissions of this process that are still open become `unknown` for others.
        """
        self._keeper.end()
        let_go(self._house)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()
