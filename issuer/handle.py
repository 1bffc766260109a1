"""An open issuer before any command: how it is opened, who calls, under which revision, and how it is let go of.

Rules: POL-07 (a command that was decided under terms of yesterday is run again), SEC-02 (who calls is a claim until the
edge of the command has proven it). Next: `issuer.api` has the commands.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Final, Self

from audit import Sink
from issuer import answering
from issuer.caller import Caller, local_caller
from issuer.clock import now_ms
from issuer.closing import let_go
from issuer.coming import BY_ACCOUNT, Coming, stated_instead
from issuer.flow.signed_act import act_statement
from issuer.house import House, SignedText, Visit
from issuer.operations.admitted_code import Factory
from issuer.places import Places
from issuer.revised import RevisionMoved
from issuer.terms import CurrentTerms
from issuer.wire import Answer
from issuer.wiring import open_house, span_recorder
from ledger.errors import LedgerUnavailable
from ledger.model import InstantMs, LedgerId
from ledger.port import SpanRecorder
from ledger.timekeeping import Uptime

TURNS_MAX: Final = 3
"""How often a command is run where the owner activates a revision under it each time."""


class Handle:
    """One open issuer and who calls it: the account of this process, or a host or actor by its token."""

    def __init__(
        self,
        house: House,
        caller: Caller,
        current: Callable[[], House],
        trouble: Callable[[], LedgerUnavailable | None] = lambda: None,
        coming: Coming = BY_ACCOUNT,
    ) -> None:
        """Use `Issuer.open`; `current` gives the house under the revision in force, `trouble` why it is not that."""
        self._house = house
        self._caller = caller
        self._coming = coming
        self._current = current
        self._trouble = trouble

    @classmethod
    def open(
        cls,
        profile: str | Path,
        *,
        clock: Callable[[], InstantMs] = now_ms,
        uptime: Callable[[], Uptime] | None = None,
        recorder: Callable[[LedgerId], SpanRecorder] = span_recorder,
        observe: Callable[[str], None] = lambda _step: None,
        further_sinks: Sequence[Sink] = (),
        adapters: Mapping[str, Factory] = MappingProxyType({}),
        reading: bool = False,
        token: str | None = None,
    ) -> Self:
        """Open the issuer whose profile is at `profile`.

        `clock`, `uptime`, `recorder`, `observe` and `further_sinks` are for embedding hosts and tests: the time in
        milliseconds, the time since the machine began (by itself it goes with the machine's own clock), the maker of
        spans, who is told each numbered step, and sinks beside the profile's own. `adapters` are makers of adapters, by
        name, for operations with `python`; each is held to the admitted digest, as an installed one is (OPR-02).

        With `reading` it is opened to look at what is on record: nothing is permitted, and broken policies are no
        obstacle. With `token` whoever it belongs to calls; whether it counts is asked at each command (SEC-02).

        Raises:
            ProfileRefused, BundleRefused, EngineUnfit, SetupError, Fault: it cannot be used; nothing was changed.
        """
        house = open_house(
            Path(profile),
            clock=clock,
            uptime=uptime,
            recorder=recorder,
            observe=observe,
            further_sinks=further_sinks,
            adapters=adapters,
            reading=reading,
        )
        places = Places(Path(profile).absolute())
        current = CurrentTerms(house, places, adapters, reading=reading)
        coming = BY_ACCOUNT if token is None else Coming(token=token)
        return cls(house, local_caller(house.profile), current.house, lambda: current.trouble, coming)

    def _coming_as(self, coming: Coming) -> Self:
        return type(self)(self._house, self._caller, self._current, self._trouble, coming)

    def as_caller(self, *, token: str) -> Self:
        """Return another handle on this issuer, for whoever `token` belongs to; closing either closes both."""
        return self._coming_as(Coming(token=token))

    def signed(self, signature: str, statement: str) -> Self:
        """Return a handle for one act that a person signed: `issuer.signed(signature, statement).task_close("t1")`.

        `statement` is the whole text that `act_statement` or `stated` gave, `signature` the armored text of
        `ssh-keygen -Y sign -n permit-issuer`. It is good for that command with those arguments, once.
        """
        text = SignedText(signature=signature, statement=statement)
        return self._coming_as(replace(self._coming, text=text))

    def act_statement(self, command: str, arguments: Mapping[str, object], person: str) -> str:
        """Return what `person` signs for `command` (as refusals name it) with `arguments`, good for ten minutes.

        Raises:
            RefusedError: the profile has no such person.
            Malformed: an argument has no canonical form.
        """
        return act_statement(self._current(), command, arguments, person)

    def stated(self, person: str, call: Callable[[Self], object]) -> str:
        """Return what `person` signs for the one command that `call` gives; nothing of it is carried out.

        Raises:
            RefusedError: the profile has no such person.
            SetupError: `call` gives no command.
        """
        return stated_instead(lambda: call(self._coming_as(Coming(stated_by=person))))

    def _visit(self, command: str, **arguments: object) -> Visit:
        return self._coming.visit(self._current(), self._caller, command, arguments)

    def _done(self, command: str, run: Callable[[Visit], Answer], **arguments: object) -> Answer:
        """Run a command under the revision in force, and once more where another was activated meanwhile (POL-07)."""
        for _turn in range(TURNS_MAX):
            visit = self._visit(command, **arguments)
            try:
                return run(visit)
            except RevisionMoved:  # nothing was written, and nothing was sent
                continue
        say = "The owner's files are being changed too quickly to decide anything; try again."
        moved = LedgerUnavailable("revision_moved", say)
        return answering.faulted(self._house, self._trouble() or moved)

    def close(self) -> None:
        """Let go of everything, within `issuer.closing.CLOSE_BUDGET_S` seconds (INV-03).

        Admissions of this process that are still open become `unknown` for others.
        """
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
