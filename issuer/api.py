"""The Python API: the same commands as on the command line, as methods of `Issuer` (SUR-01).

A no is an answer, never an exception; what is raised is a fault in setting up. One `Issuer` may be shared between
threads, and must be opened anew in a forked child.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Self

from audit import Sink
from issuer import commands
from issuer.activation import activate_first
from issuer.api_audit import AuditHandle
from issuer.api_checkpoints import CheckpointCommands
from issuer.api_hash import HashHandle
from issuer.api_sinks import SinkCommands
from issuer.caller import local_caller
from issuer.clock import now_ms
from issuer.commands.task_scope import ScopeAsk
from issuer.commands.tasks import NewTask
from issuer.desk import Desk
from issuer.drafts import differing_files
from issuer.flow.prepare import Ask
from issuer.flow.reference import Restated
from issuer.looks import record_waiting
from issuer.operations.admitted_code import Factory
from issuer.places import Places
from issuer.terms import CurrentTerms
from issuer.wire import Answer
from issuer.wiring import open_house, span_recorder
from ledger.model import InstantMs, LedgerId
from ledger.port import SpanRecorder
from ledger.timekeeping import Uptime


class Issuer(AuditHandle, CheckpointCommands, HashHandle, SinkCommands):
    """One open issuer, its commands as methods."""

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
        first = None if reading else partial(activate_first, places, house.ledger.beneath, adapters)
        current = CurrentTerms(house, places, adapters, first=first)
        caller = local_caller(house.profile)
        if not reading:
            record_waiting(house)
        return cls(house, caller, current.house, lambda: current.trouble, token=token)

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
        return self._done(
            "task-open",
            lambda visit: commands.task_open(visit, ask),
            name=name,
            budget=budget,
            expires_ms=expires_ms,
            parent=parent,
            subject=subject,
            actors=actors,
            classes=classes,
            operations=operations,
            resources=resources,
        )

    def clock_accept(self) -> Answer:
        """Believe the clock as it reads now, after it ran behind or jumped ahead (PER-03)."""
        return self._done("clock-accept", commands.clock_accept)

    def ledger_collect(self, *, early: bool = False) -> Answer:
        """Turn what is over into tombstones; with `early` also what would be kept longer to be looked at (LED-02)."""
        return self._done(
            "ledger-collect", lambda visit: commands.ledger_collect(visit, early=early), early=early
        )

    def task_show(self, name: str) -> Answer:
        """Show one task with its budget."""
        return self._done("task-show", lambda visit: commands.task_show(visit, name), name=name)

    def task_list(self) -> Answer:
        """List every task."""
        return self._done("task-list", commands.task_list)

    def task_close(self, name: str) -> Answer:
        """Close a task for good."""
        return self._done("task-close", lambda visit: commands.task_close(visit, name), name=name)

    def task_freeze(self, name: str) -> Answer:
        """Freeze a task: it and all below it admit nothing until it is thawed."""
        return self._done("task-freeze", lambda visit: commands.task_freeze(visit, name), name=name)

    def task_thaw(self, name: str) -> Answer:
        """Open a frozen task again."""
        return self._done("task-thaw", lambda visit: commands.task_thaw(visit, name), name=name)

    def task_grant(self, name: str, *, budget: Mapping[str, int]) -> Answer:
        """Add to a task's own ceilings."""
        return self._done(
            "task-grant", lambda visit: commands.task_grant(visit, name, budget), name=name, budget=budget
        )

    def task_lower(self, name: str, *, budget: Mapping[str, int]) -> Answer:
        """Lower a task's own ceilings to what is given, be it below what is used; or give one where it inherited."""
        return self._done(
            "task-lower", lambda visit: commands.task_lower(visit, name, budget), name=name, budget=budget
        )

    def task_accept_overrun(self, name: str, *, unit: str | None = None) -> Answer:
        """Count the overrun of a task as spent, in one unit or in all; it blocks at that task no more."""
        return self._done(
            "task-accept-overrun",
            lambda visit: commands.task_accept_overrun(visit, name, unit),
            name=name,
            unit=unit,
        )

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
        return self._done("request", lambda visit: commands.request(visit, ask, hold=hold))

    def request_held(self, effect: str) -> Answer:
        """Take a held effect further."""
        return self._done("request", lambda visit: commands.request_held(visit, effect))

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
        return self._done("commit", lambda visit: commands.commit(visit, effect, restated))

    def approvals(self) -> Answer:
        """List what waits for people, with whom is asked and who has said yes."""
        return self._done("approvals", commands.approvals)

    def statement(self, effect: str, *, decline: str | None = None, reference: str | None = None) -> Answer:
        """Show the statement to sign for a yes, or with the reason `decline` for a no; that goes on record."""
        why = None if decline is None else (decline, reference)
        return self._done("statement", lambda visit: commands.statement(visit, effect, why))

    def approve(self, effect: str, signature: str) -> Answer:
        """Count a person's yes: `signature` is the armored OpenSSH signature of the statement (APP-01)."""
        return self._done("approve", lambda visit: commands.approve(visit, effect, signature))

    def decline(self, effect: str, signature: str, *, reason: str, reference: str | None = None) -> Answer:
        """Count a person's no, signed over the statement of a no with the same reason and reference (APP-05)."""
        return self._done(
            "decline",
            lambda visit: commands.decline(visit, effect, signature, reason=reason, reference_to=reference),
        )

    def withdraw(self, effect: str, *, reason: str = "not_needed") -> Answer:
        """Take a request of this caller back, before it is admitted."""
        return self._done("withdraw", lambda visit: commands.withdraw(visit, effect, reason))

    def wait(self, effect: str, *, for_ms: int) -> Answer:
        """Wait until people have answered an effect of this caller, at most `for_ms` milliseconds."""
        return self._done(
            "wait", lambda _visit: commands.wait(lambda: self._visit("wait"), effect, for_ms=for_ms)
        )

    def dispatch(self, effect: str, argv: Sequence[str]) -> Answer:
        """Run the host's own command for a permitted effect, once."""
        return self._done("dispatch", lambda visit: commands.dispatch_child(visit, effect, argv))

    def admit(self, effect: str) -> Answer:
        """Admit an effect that a host outside sends; the answer carries its claim, once."""
        return self._done("admit", lambda visit: commands.admit_host(visit, effect))

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
        return self._done(
            "report", lambda visit: commands.report(visit, effect, claim, outcome=said, cost=cost)
        )

    def reconcile(self, effect: str, *, resend: bool = False) -> Answer:
        """Look once at what became of an effect; with `resend`, send it again under its key where that is safe."""
        return self._done(
            "reconcile",
            lambda visit: commands.reconcile(visit, effect, resend=resend),
            effect=effect,
            resend=resend,
        )

    def acknowledge(self, effect: str, *, reason: str, charge: bool = False) -> Answer:
        """Accept the risk of an unknown effect, for `reason`; with `charge` its held maximum becomes a charge of it."""
        return self._done(
            "acknowledge",
            lambda visit: commands.acknowledge(visit, effect, reason=reason, charge=charge),
            effect=effect,
            reason=reason,
            charge=charge,
        )

    def revoke(
        self, kind: str, name: str | None = None, person: str | None = None, *, reason: str = "other"
    ) -> Answer:
        """Revoke for good: `permit`, `effect`, `approval` (with `person`), `task`, `key`, a name, or `all` (ADM-05).

        `kind` may also be `person`, `actor`, `host`, `operation` or `class`. `reason` is `compromised`, `mistaken`,
        `superseded`, `left` or `other`.
        """
        return self._done(
            "revoke",
            lambda visit: commands.revoke(visit, kind, name, person, reason=reason),
            kind=kind,
            name=name,
            person=person,
            reason=reason,
        )

    def freeze(self, kind: str = "all", name: str | None = None, *, reason: str = "other") -> Answer:
        """Freeze everything, or one name or task, until it is thawed; permits stay as they are."""
        return self._done(
            "freeze",
            lambda visit: commands.freeze(visit, kind, name, reason=reason),
            kind=kind,
            name=name,
            reason=reason,
        )

    def thaw(self, kind: str = "all", name: str | None = None, *, reason: str = "other") -> Answer:
        """Take a freeze back; what was revoked stays void, and new effects can be made."""
        return self._done(
            "thaw",
            lambda visit: commands.thaw(visit, kind, name, reason=reason),
            kind=kind,
            name=name,
            reason=reason,
        )

    def suspend(self, kind: str, name: str, *, reason: str = "other") -> Answer:
        """Suspend a `person` or an `actor`: the freeze of that name."""
        return self._done(
            "suspend",
            lambda visit: commands.suspend(visit, kind, name, reason=reason),
            kind=kind,
            name=name,
            reason=reason,
        )

    def resume(self, kind: str, name: str, *, reason: str = "other") -> Answer:
        """Take a suspension back: the thaw of that name."""
        return self._done(
            "resume",
            lambda visit: commands.resume(visit, kind, name, reason=reason),
            kind=kind,
            name=name,
            reason=reason,
        )

    def invocation_open(self, task: str, actor: str, deadline_ms: InstantMs) -> Answer:
        """Open an invocation in `task` until `deadline_ms` (ms since the epoch, at most 31 days ahead) (INV-01)."""
        return self._done(
            "invocation-open", lambda visit: commands.invocation_open(visit, task, actor, deadline_ms)
        )

    def invocation_end(self, invocation: str, outcome: str) -> Answer:
        """End an open invocation once: `succeeded`, `failed_application` or `failed_execution` (INV-02)."""
        return self._done("invocation-end", lambda visit: commands.invocation_end(visit, invocation, outcome))

    def invocation_cancel(self, invocation: str) -> Answer:
        """Cancel an open invocation, whatever its effects did (INV-02)."""
        return self._done("invocation-cancel", lambda visit: commands.invocation_cancel(visit, invocation))

    def invocation_show(self, invocation: str) -> Answer:
        """Show one invocation with its effects."""
        return self._done("invocation-show", lambda visit: commands.invocation_show(visit, invocation))

    def invocation_list(self) -> Answer:
        """List this caller's invocations."""
        return self._done("invocation-list", commands.invocation_list)

    def obligation_done(self, effect: str, name: str) -> Answer:
        """Say that what an effect obliged to was done (EFF-09)."""
        return self._done("obligation-done", lambda visit: commands.obligation_done(visit, effect, name))

    def show(self, effect: str, *, content: bool = False) -> Answer:
        """Show one effect; with `content` the sensitive fields of its payload, once that is on record (LED-03)."""
        if content:
            return self._done("show-content", lambda visit: commands.show_content(visit, effect))
        return self._done("show", lambda visit: commands.show(visit, effect))

    def list(self, states: Sequence[str] = ()) -> Answer:
        """List effects, in `states` where some are named."""
        return self._done("list", lambda visit: commands.list_effects(visit, states))

    def draft(self) -> tuple[str, ...]:
        """Return the names of the owner's files on disk that are not as in the revision in force (POL-07)."""
        house = self._current()
        return differing_files(Places(Path(house.profile.where)), house.revision)

    def host_token(self, name: str) -> Answer:
        """Make a host's credential, shown once in `more.token`; the one before is void (SEC-02)."""
        return self._done("host-token", lambda visit: commands.host_token(visit, name), name=name)

    def actor_token(self, name: str) -> Answer:
        """Make an actor's own credential, shown once in `more.token`; the one before is void (SEC-02)."""
        return self._done("actor-token", lambda visit: commands.actor_token(visit, name), name=name)

    def revisions(self) -> Answer:
        """List every revision of the owner's files that was put in force, newest first (POL-07)."""
        places = Places(Path(self._house.profile.where).absolute())
        return self._done("revisions", lambda visit: commands.revisions(visit, places))

    @staticmethod
    def desk(profile: str | Path) -> Desk:
        """Return the desk of the issuer whose profile is at `profile`: its acts can be signed without opening it."""
        return Desk(Path(profile))

    @staticmethod
    def activate(
        profile: str | Path,
        revision: str | None = None,
        *,
        adapters: Mapping[str, Factory] = MappingProxyType({}),
    ) -> Answer:
        """Put the files beside `profile` in force, or those of an earlier `revision` (at least 8 digits) (POL-07).

        `adapters` are as those of `open`. Every process decides its next command under what is in force then.

        Raises:
            ProfileRefused, BundleRefused, EngineUnfit, SetupError: the files cannot be used; what is in force goes on.
            Fault: nothing was changed.
        """
        return commands.activate(Path(profile), revision, adapters=adapters)

    def keys_list(self) -> Answer:
        """Show the issuer's own keys: id, state, since when, and the live permits that each still opens (SEC-03)."""
        return self._done("keys-list", commands.keys_list)

    def keys_rotate(self) -> Answer:
        """Make a new active key; permits of the one before stay valid until they expire."""
        return self._done("keys-rotate", commands.keys_rotate)

    def keys_retire(self, key: str) -> Answer:
        """Let `key` (8 hex digits) open no permit any more."""
        return self._done("keys-retire", lambda visit: commands.keys_retire(visit, key), key=key)

    def keys_revoke(self, key: str) -> Answer:
        """Revoke the compromised `key` (8 hex digits): its permits are void, what it signed is signed anew."""
        return self._done("keys-revoke", lambda visit: commands.keys_revoke(visit, key), key=key)

    @staticmethod
    def ledger_check(profile: str | Path) -> Answer:
        """Recompute everything in the ledger; what is wrong stops new effects, a clean check lets them go on.

        Raises:
            Fault: there is nothing that could be checked.
        """
        return commands.ledger_check(Path(profile))

    @staticmethod
    def ledger_stats(profile: str | Path) -> Answer:
        """Tell what the ledger holds, in numbers.

        Raises:
            Fault: it cannot be read.
        """
        return commands.ledger_stats(Path(profile))

    @staticmethod
    def ledger_backup(profile: str | Path, file: str | Path) -> Answer:
        """Copy the ledger to the new file `file`, while it is in use.

        Raises:
            SetupError, Fault: no copy is there.
        """
        return commands.ledger_backup(Path(profile), Path(file))

    @staticmethod
    def ledger_restore(profile: str | Path, file: str | Path) -> Answer:
        """Bring the ledger back as it was in the backup `file`, in a new epoch; nobody may have it open.

        Raises:
            SetupError, Fault: it was not restored; the sentence says what to do.
        """
        return commands.ledger_restore(Path(profile), Path(file))
