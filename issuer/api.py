"""The Python API: the same commands as on the command line, as methods of `Issuer` (SUR-01).

A no is an answer, never an exception; what is raised is a fault in setting up. One `Issuer` may be shared between
threads, and must be opened anew in a forked child.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from audit import Sink
from issuer import commands
from issuer.caller import Caller, local_caller
from issuer.clock import now_ms
from issuer.closing import let_go
from issuer.commands.task_scope import ScopeAsk
from issuer.commands.tasks import NewTask
from issuer.flow.prepare import Ask
from issuer.flow.reference import Restated
from issuer.house import House, Visit
from issuer.operations.admitted_code import Factory
from issuer.places import Places
from issuer.terms import CurrentTerms, look_at_terms
from issuer.wire import Answer
from issuer.wiring import open_house, span_recorder
from ledger.model import InstantMs, LedgerId
from ledger.port import SpanRecorder
from ledger.timekeeping import Uptime


class Issuer:
    """One open issuer and the account that calls it."""

    def __init__(self, house: House, caller: Caller, current: Callable[[], House]) -> None:
        """Use `Issuer.open`; `current` gives the house under the terms in force."""
        self._house = house
        self._caller = caller
        self._current = current

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
    ) -> Self:
        """Open the issuer whose profile is at `profile`.

        `clock`, `uptime`, `recorder`, `observe` and `further_sinks` are for embedding hosts and tests: the time in
        milliseconds, the time since the machine began (by itself it goes with the machine's own clock), the maker of
        spans, who is told each numbered step, and sinks beside the profile's own. `adapters` are makers of adapters, by
        name, for operations with `python`; each is held to the admitted digest, as an installed one is (OPR-02).

        With `reading` it is opened to look at what is on record: nothing is permitted, and broken policies are no
        obstacle.

        Raises:
            ProfileRefused, BundleRefused, EngineUnfit, SetupError, Fault: it cannot be used; nothing was changed.
        """
        places = Places(Path(profile).absolute())
        seen = look_at_terms(places)
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
        current = (lambda: house) if reading else CurrentTerms(house, places, seen, adapters).house
        return cls(house, local_caller(house.profile.people), current)

    def _visit(self, command: str) -> Visit:
        return Visit(house=self._current(), caller=self._caller, command=command)

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

    def task_open(
        self,
        name: str,
        *,
        budget: Mapping[str, int | str],
        expires_ms: InstantMs,
        parent: str | None = None,
        subject: str | None = None,
        actors: Sequence[str] = (),
        classes: Mapping[str, int | str] | None = None,
        operations: Mapping[str, int | str] | None = None,
        resources: Mapping[str, int | str] | None = None,
    ) -> Answer:
        """Open a task; `budget` per unit is a whole amount or `inherit`.

        `classes`, `operations` and `resources` (each `Type:id`) name what may be done in it, and how many admissions of
        each, or `inherit` (BUD-06). A root names its classes; a child that says nothing of a kind has its parent's.
        """
        ask = NewTask(
            name=name,
            parent=parent,
            subject=subject,
            actors=tuple(actors),
            budget=budget,
            expires_ms=expires_ms,
            scope=ScopeAsk(classes=classes, operations=operations, resources=resources),
        )
        return commands.task_open(self._visit("task-open"), ask)

    def clock_accept(self) -> Answer:
        """Believe the clock as it reads now, after it ran behind or jumped ahead (PER-03)."""
        return commands.clock_accept(self._visit("clock-accept"))

    def ledger_collect(self, *, early: bool = False) -> Answer:
        """Turn what is over into tombstones; with `early` also what would be kept longer to be looked at (LED-02)."""
        return commands.ledger_collect(self._visit("ledger-collect"), early=early)

    def task_show(self, name: str) -> Answer:
        """Show one task with its budget."""
        return commands.task_show(self._visit("task-show"), name)

    def task_list(self) -> Answer:
        """List every task."""
        return commands.task_list(self._visit("task-list"))

    def task_close(self, name: str) -> Answer:
        """Close a task for good."""
        return commands.task_close(self._visit("task-close"), name)

    def task_freeze(self, name: str) -> Answer:
        """Freeze a task: it and all below it admit nothing until it is thawed."""
        return commands.task_freeze(self._visit("task-freeze"), name)

    def task_thaw(self, name: str) -> Answer:
        """Open a frozen task again."""
        return commands.task_thaw(self._visit("task-thaw"), name)

    def task_grant(self, name: str, *, budget: Mapping[str, int]) -> Answer:
        """Add to a task's own ceilings."""
        return commands.task_grant(self._visit("task-grant"), name, budget)

    def task_lower(self, name: str, *, budget: Mapping[str, int]) -> Answer:
        """Lower a task's own ceilings to what is given, be it below what is used; or give one where it inherited."""
        return commands.task_lower(self._visit("task-lower"), name, budget)

    def task_accept_overrun(self, name: str, *, unit: str | None = None) -> Answer:
        """Count the overrun of a task as spent, in one unit or in all; it blocks at that task no more."""
        return commands.task_accept_overrun(self._visit("task-accept-overrun"), name, unit)

    def request(
        self,
        operation: str,
        payload: bytes | Mapping[str, object],
        *,
        task: str,
        actor: str,
        subject: str | None = None,
        request_key: str | None = None,
        invocation: str | None = None,
        hold: bool = False,
    ) -> Answer:
        """Ask for a permit for a new effect; with `hold`, prepare and show only. Nothing is sent.

        `invocation` names an open one of this caller, in this task or above it; without it the effect is one of its own
        (INV-01).
        """
        ask = Ask(
            operation=operation,
            task=task,
            actor=actor,
            subject=subject,
            payload=payload,
            request_key=request_key,
            invocation=invocation,
        )
        return commands.request(self._visit("request"), ask, hold=hold)

    def request_held(self, effect: str) -> Answer:
        """Take a held effect further."""
        return commands.request_held(self._visit("request"), effect)

    def commit(
        self,
        effect: str,
        *,
        payload: bytes | Mapping[str, object] | None = None,
        task: str | None = None,
        actor: str | None = None,
    ) -> Answer:
        """Send a permitted effect, once. What is restated must be what was prepared."""
        restated = Restated(payload=payload, task=task, actor=actor)
        return commands.commit(self._visit("commit"), effect, restated)

    def approvals(self) -> Answer:
        """List what waits for people, with whom is asked and who has said yes."""
        return commands.approvals(self._visit("approvals"))

    def statement(self, effect: str, *, decline: str | None = None, reference: str | None = None) -> Answer:
        """Show the statement to sign for a yes, or with the reason `decline` for a no; that goes on record."""
        why = None if decline is None else (decline, reference)
        return commands.statement(self._visit("statement"), effect, why)

    def approve(self, effect: str, signature: str) -> Answer:
        """Count a person's yes: `signature` is the armored OpenSSH signature of the statement (APP-01)."""
        return commands.approve(self._visit("approve"), effect, signature)

    def decline(self, effect: str, signature: str, *, reason: str, reference: str | None = None) -> Answer:
        """Count a person's no, signed over the statement of a no with the same reason and reference (APP-05)."""
        return commands.decline(
            self._visit("decline"), effect, signature, reason=reason, reference_to=reference
        )

    def withdraw(self, effect: str, *, reason: str = "not_needed") -> Answer:
        """Take a request of this caller back, before it is admitted."""
        return commands.withdraw(self._visit("withdraw"), effect, reason)

    def wait(self, effect: str, *, for_ms: int) -> Answer:
        """Wait until people have answered an effect of this caller, at most `for_ms` milliseconds."""
        return commands.wait(lambda: self._visit("wait"), effect, for_ms=for_ms)

    def dispatch(self, effect: str, argv: Sequence[str]) -> Answer:
        """Run the host's own command for a permitted effect, once."""
        return commands.dispatch_child(self._visit("dispatch"), effect, argv)

    def admit(self, effect: str) -> Answer:
        """Admit an effect that a host outside sends; the answer carries its claim, once."""
        return commands.admit_host(self._visit("admit"), effect)

    def report(
        self,
        effect: str,
        claim: str,
        *,
        outcome: str | None = None,
        succeeded: bool | None = None,
        cost: Mapping[str, int] | None = None,
    ) -> Answer:
        """Report what became of an admitted effect, with its claim.

        `outcome` is `succeeded`, `failed`, `no_effect` or `unknown`; `succeeded` is short for the first or the last of
        them. A host's word releases nothing, unless the owner admitted it as a wrapper for the operation (REC-07).
        """
        said = outcome if outcome is not None else "succeeded" if succeeded else "unknown"
        return commands.report(self._visit("report"), effect, claim, outcome=said, cost=cost)

    def reconcile(self, effect: str, *, resend: bool = False) -> Answer:
        """Look once at what became of an effect; with `resend`, send it again under its key where that is safe."""
        return commands.reconcile(self._visit("reconcile"), effect, self._current, resend=resend)

    def acknowledge(self, effect: str, *, reason: str, charge: bool = False) -> Answer:
        """Accept the risk of an unknown effect, for `reason`; with `charge` its held maximum becomes a charge of it."""
        return commands.acknowledge(self._visit("acknowledge"), effect, reason=reason, charge=charge)

    def revoke(
        self, kind: str, name: str | None = None, person: str | None = None, *, reason: str = "other"
    ) -> Answer:
        """Revoke for good: `permit`, `effect`, `approval` (with `person`), `task`, `key`, a name, or `all` (ADM-05).

        `kind` may also be `person`, `actor`, `host`, `operation` or `class`. `reason` is `compromised`, `mistaken`,
        `superseded`, `left` or `other`.
        """
        return commands.revoke(self._visit("revoke"), kind, name, person, reason=reason)

    def freeze(self, kind: str = "all", name: str | None = None, *, reason: str = "other") -> Answer:
        """Freeze everything, or one name or task, until it is thawed; permits stay as they are."""
        return commands.freeze(self._visit("freeze"), kind, name, reason=reason)

    def thaw(self, kind: str = "all", name: str | None = None, *, reason: str = "other") -> Answer:
        """Take a freeze back; what was revoked stays void, and new effects can be made."""
        return commands.thaw(self._visit("thaw"), kind, name, reason=reason)

    def suspend(self, kind: str, name: str, *, reason: str = "other") -> Answer:
        """Suspend a `person` or an `actor`: the freeze of that name."""
        return commands.suspend(self._visit("suspend"), kind, name, reason=reason)

    def resume(self, kind: str, name: str, *, reason: str = "other") -> Answer:
        """Take a suspension back: the thaw of that name."""
        return commands.resume(self._visit("resume"), kind, name, reason=reason)

    def invocation_open(self, task: str, actor: str, deadline_ms: InstantMs) -> Answer:
        """Open an invocation in `task` until `deadline_ms` (ms since the epoch, at most 31 days ahead) (INV-01)."""
        return commands.invocation_open(self._visit("invocation-open"), task, actor, deadline_ms)

    def invocation_end(self, invocation: str, outcome: str) -> Answer:
        """End an open invocation once: `succeeded`, `failed_application` or `failed_execution` (INV-02)."""
        return commands.invocation_end(self._visit("invocation-end"), invocation, outcome)

    def invocation_cancel(self, invocation: str) -> Answer:
        """Cancel an open invocation, whatever its effects did (INV-02)."""
        return commands.invocation_cancel(self._visit("invocation-cancel"), invocation)

    def invocation_show(self, invocation: str) -> Answer:
        """Show one invocation with its effects."""
        return commands.invocation_show(self._visit("invocation-show"), invocation)

    def invocation_list(self) -> Answer:
        """List this caller's invocations."""
        return commands.invocation_list(self._visit("invocation-list"))

    def obligation_done(self, effect: str, name: str) -> Answer:
        """Say that what an effect obliged to was done (EFF-09)."""
        return commands.obligation_done(self._visit("obligation-done"), effect, name)

    def show(self, effect: str, *, content: bool = False) -> Answer:
        """Show one effect; with `content` the sensitive fields of its payload, once that is on record (LED-03)."""
        visit = self._visit("show")
        return commands.show_content(visit, effect) if content else commands.show(visit, effect)

    def list(self, states: Sequence[str] = ()) -> Answer:
        """List effects, in `states` where some are named."""
        return commands.list_effects(self._visit("list"), states)

    def timeline(self, effect: str) -> Answer:
        """Show the whole story of one effect."""
        return commands.timeline_of(self._visit("audit-timeline"), effect)

    def keys_list(self) -> Answer:
        """Show the issuer's own keys: id, state, since when, and the live permits that each still opens (SEC-03)."""
        return commands.keys_list(self._visit("keys-list"))

    def keys_rotate(self) -> Answer:
        """Make a new active key; permits of the one before stay valid until they expire."""
        return commands.keys_rotate(self._visit("keys-rotate"))

    def keys_retire(self, key: str) -> Answer:
        """Let `key` (8 hex digits) open no permit any more."""
        return commands.keys_retire(self._visit("keys-retire"), key)

    def keys_revoke(self, key: str) -> Answer:
        """Revoke the compromised `key` (8 hex digits): its permits are void, what it signed is signed anew."""
        return commands.keys_revoke(self._visit("keys-revoke"), key)

    @staticmethod
    def ledger_check(profile: str | Path) -> Answer:
        """Recompute everything in the ledger; what is wrong stops new effects, a clean check lets them go on.

        Raises:
            ProfileRefused, Fault: there is nothing that could be checked.
        """
        return commands.ledger_check(Path(profile))

    @staticmethod
    def ledger_stats(profile: str | Path) -> Answer:
        """Tell what the ledger holds, in numbers.

        Raises:
            ProfileRefused, Fault: it cannot be read.
        """
        return commands.ledger_stats(Path(profile))

    @staticmethod
    def ledger_backup(profile: str | Path, file: str | Path) -> Answer:
        """Copy the ledger to the new file `file`, while it is in use.

        Raises:
            ProfileRefused, SetupError, Fault: no copy is there.
        """
        return commands.ledger_backup(Path(profile), Path(file))

    @staticmethod
    def ledger_restore(profile: str | Path, file: str | Path) -> Answer:
        """Bring the ledger back as it was in the backup `file`, in a new epoch; nobody may have it open.

        Raises:
            ProfileRefused, Fault: it was not restored; the sentence says what to do.
        """
        return commands.ledger_restore(Path(profile), Path(file))

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
