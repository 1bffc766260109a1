"""Real ledgers in a temporary folder, driven with the core's own rules, without policies and operations.

Keys are a real key ring. The recorder is honest and plain: it needs no SDK, and equal positions give equal spans in
every process. What each function does under the lock is what the issuer's flow does, in its smallest form.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from issuer.ids import new_effect_id, new_ledger_id, new_permit_id, new_task_id
from issuer.sealing import create_key_ring, open_key_ring
from issuer.sealing.authenticator import RingAuthenticator
from ledger.budgets import refuse_cost
from ledger.changes import (
    Change,
    CostReserved,
    EffectMoved,
    EffectPrepared,
    PermitIssued,
    PermitUsed,
    Step,
    TaskMoved,
    TaskOpened,
)
from ledger.model import (
    Claim,
    CounterTake,
    Effect,
    EvidenceClass,
    InstantMs,
    LedgerId,
    Permit,
    Scope,
    Task,
    TaskState,
    Tier,
    Unit,
    costs,
)
from ledger.port import Committed, Decide, Ledger, SpanRecorder, Verdict, View
from ledger.refusals import Refusal
from ledger.rules import (
    evidence_of,
    outcome_changes,
    refuse_path,
    refuse_permit,
    refuse_settling,
    refuse_state,
    refuse_takes,
)
from ledger.scope import SLOTS_MAX, refuse_scope, refuse_slots, slot_takes
from ledger.sqlite import SqliteLedger
from ledger.sqlite.connection import DRIVER
from ledger.sqlite.creation import create_ledger
from ledger.states import EffectState
from ledger.timekeeping import NO_UPTIME, Uptime
from ledger.transitions import Transition, TransitionName
from tests.support.recorders import plain_recorder

HOUR_MS = 3_600_000
START = InstantMs(1_796_083_200_000)
CENT = Unit("EUR.cent")
CLASS = "payment"
CLAIM_HASH = b"\x07" * 32
ROOT_KEY = b"\x01" * 32

MOVE_NAMES: Mapping[EffectState, TransitionName] = {
    state: TransitionName(f"effect.{state}") for state in EffectState
}
"""Kinds of spans by the state they end in."""

TASK_MOVES: Mapping[TaskState, TransitionName] = {
    TaskState.OPEN: TransitionName.TASK_THAWED,
    TaskState.FROZEN: TransitionName.TASK_FROZEN,
    TaskState.CLOSED: TransitionName.TASK_CLOSED,
}


class Clock:
    """A clock that stands where it is put."""

    def __init__(self, now: int = START) -> None:
        self.now = now

    def __call__(self) -> InstantMs:
        return InstantMs(self.now)


def no_observer(_step: str) -> None:
    """Observe nothing."""


@dataclass(frozen=True, kw_only=True)
class Book:
    """One ledger in a folder, with its keys beside it and a clock of the test's own."""

    folder: Path
    clock: Clock = field(default_factory=Clock)

    @property
    def path(self) -> Path:
        """The ledger's file."""
        return self.folder / "ledger.sqlite"

    @property
    def keys(self) -> RingAuthenticator:
        """The keys that made it."""
        return RingAuthenticator(open_key_ring(self.folder / "keys"))

    def open(
        self,
        *,
        keys: RingAuthenticator | None = None,
        recorder: Callable[[LedgerId], SpanRecorder] = plain_recorder,
        observer: Callable[[str], None] = no_observer,
        clock: Callable[[], InstantMs] | None = None,
        uptime: Callable[[], Uptime] = lambda: NO_UPTIME,
    ) -> SqliteLedger:
        """Open it once more."""
        return SqliteLedger(
            self.path,
            recorder=recorder,
            keys=keys or self.keys,
            clock=clock or self.clock,
            uptime=uptime,
            observer=observer,
        )


def new_book(folder: Path) -> Book:
    """Make a ledger and its keys in `folder`, with every sync that this takes."""
    folder.mkdir(mode=0o700, parents=True)
    create_key_ring(folder / "keys", root=ROOT_KEY, key_id=7)
    book = Book(folder=folder)
    create_ledger(book.path, ledger_id=new_ledger_id(), keys=book.keys, now_ms=START)
    return book


@cache
def _template() -> tempfile.TemporaryDirectory[str]:
    """Make one ledger for all tests to start from; the folder goes when the process ends."""
    folder = tempfile.TemporaryDirectory(prefix="ledger-")
    new_book(Path(folder.name) / "made")
    return folder


def made_book(folder: Path) -> Book:
    """Return a fresh ledger in `folder`: a copy, since making one anew costs a test a fifth of a second."""
    shutil.copytree(Path(_template().name) / "made", folder)
    return Book(folder=folder)


def attacker(path: Path) -> Any:
    """Open the file as somebody who can write it and has no keys: no pragmas, no authorizer, no foreign keys."""
    return DRIVER.Connection(str(path), isolation_level=None)


def without_guards(path: Path, *statements: str) -> None:
    """Drop every trigger, run statements, put the triggers back: the schema looks as before."""
    raw = attacker(path)
    try:
        raw.execute("PRAGMA ignore_check_constraints = ON")
        triggers = raw.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
        for name, _sql in triggers:
            raw.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            if raw.execute(statement).rowcount == 0:
                raise AssertionError(f"the attack changed nothing: {statement}")
        for _name, sql in triggers:
            raw.execute(sql)
    finally:
        raw.close()


def moving(effect: Effect, target: EffectState) -> Transition:
    """Return the transition of an effect into `target`."""
    name = MOVE_NAMES[target]
    origin = None if target is EffectState.PREPARED else effect.state
    return Transition(
        name=name, story=effect.effect_id, effect_id=effect.effect_id, state_from=origin, state_to=target
    )


def probe_step(story: str = "led") -> Step:
    """Return a step that changes nothing but the trail."""
    return Step(transition=Transition(name=TransitionName.PROBE, story=story))


def probe(ledger: Ledger) -> Committed[None]:
    """Commit one span that belongs to no effect."""
    return ledger.transact(lambda _view, _now: Verdict(value=None, steps=(probe_step(),)))


def commit_steps(ledger: Ledger, *steps: Step) -> Committed[None]:
    """Commit steps without asking anything."""
    return ledger.transact(lambda _view, _now: Verdict(value=None, steps=steps))


def refused_step(refusal: Refusal, story: str) -> Step:
    """Return the step that puts a no on record."""
    attributes = {"permit.refusal": str(refusal.code)}
    return Step(transition=Transition(name=TransitionName.REFUSED, story=story, attributes=attributes))


def _no(refusal: Refusal, story: str) -> Verdict[None]:
    return Verdict(value=None, refusal=refusal, steps=(refused_step(refusal, story),))


def new_task(
    name: str,
    parent: Task | None = None,
    *,
    ceilings: Mapping[Unit, int | None] | None = None,
    scope: Scope | None = None,
    expires_ms: int = START + 24 * HOUR_MS,
    opened_ms: int = START,
) -> Task:
    """Return a task value, a root or below `parent`; a root may be used for `CLASS`, a child for what its parent is."""
    task_id = new_task_id()
    said = Scope(classes={CLASS: SLOTS_MAX}) if parent is None else parent.scope.inherited()
    return Task(
        task_id=task_id,
        name=name,
        parent_id=None if parent is None else parent.task_id,
        root_id=task_id if parent is None else parent.root_id,
        depth=0 if parent is None else parent.depth + 1,
        subject="u-ana",
        actors=("agent-7",),
        expires_ms=InstantMs(expires_ms),
        state=TaskState.OPEN,
        opened_ms=InstantMs(opened_ms),
        ceilings=dict(ceilings or {}),
        scope=scope or said,
    )


def opening(task: Task) -> Step:
    """Return the step that opens a task."""
    transition = Transition(name=TransitionName.TASK_OPENED, story=task.task_id)
    return Step(transition=transition, changes=(TaskOpened(task=task),))


def open_task(
    ledger: Ledger,
    name: str,
    ceilings: Mapping[Unit, int | None],
    parent: Task | None = None,
    *,
    scope: Scope | None = None,
    expires_ms: int = START + 24 * HOUR_MS,
) -> Task:
    """Open a task and return it."""
    task = new_task(name, parent, ceilings=ceilings, scope=scope, expires_ms=expires_ms)
    commit_steps(ledger, opening(task))
    return task


def move_task(ledger: Ledger, task: Task, state: TaskState) -> None:
    """Move a task to another state."""
    transition = Transition(name=TASK_MOVES[state], story=task.task_id)
    commit_steps(ledger, Step(transition=transition, changes=(TaskMoved(task_id=task.task_id, state=state),)))


def new_effect(task: Task, cost: Mapping[str, int], **changed: object) -> Effect:
    """Return a prepared effect of a task that differs from every other."""
    effect_id = new_effect_id()
    fields: dict[str, object] = {
        "effect_id": effect_id,
        "state": EffectState.PREPARED,
        "caller": "host-1",
        "task_id": task.task_id,
        "root_id": task.root_id,
        "subject": task.subject,
        "actor": task.actors[0],
        "operation": "pay",
        "action_class": CLASS,
        "resource_type": "Invoice",
        "resource_id": "r-1",
        "request_key": effect_id,
        "request": b"{}",
        "binding": b'{"v":1}',
        "binding_digest": hashlib.sha256(effect_id.encode()).digest(),
        "content_key": b"\x0c" * 32,
        "resource_key": b"\x0e" * 32,
        "cost": costs(cost),
        "protected": False,
        "prepared_ms": START,
        "expires_ms": InstantMs(START + HOUR_MS),
    }
    return Effect(**(fields | changed))  # type: ignore[arg-type]  # rows of tables name their own types


def preparing(effect: Effect) -> Step:
    """Return the step that prepares an effect."""
    return Step(transition=moving(effect, EffectState.PREPARED), changes=(EffectPrepared(effect=effect),))


def new_permit(effect: Effect, *, expires_ms: int | None = None, tier: Tier = Tier.ISSUE) -> Permit:
    """Return a permit for an effect; its seal is not looked at by the ledger."""
    until = InstantMs(effect.expires_ms if expires_ms is None else expires_ms)
    return Permit(
        permit_id=new_permit_id(),
        effect_id=effect.effect_id,
        seal="sealed",
        tier=tier,
        issued_ms=effect.prepared_ms,
        expires_ms=until,
        caps={"binding": effect.expires_ms},
    )


def permitting(effect: Effect, permit: Permit, takes: tuple[CounterTake, ...] = ()) -> Step:
    """Return the step that issues a permit."""
    moved = EffectMoved(effect_id=effect.effect_id, origin=effect.state, target=EffectState.PERMITTED)
    return Step(
        transition=moving(effect, EffectState.PERMITTED),
        changes=(PermitIssued(permit=permit, takes=takes), moved),
    )


def new_claim(effect: Effect, now: int = START, *, deadline_ms: int | None = None) -> Claim:
    """Return a claim on an admission; by default its deadline is a minute away."""
    until = now + 60_000 if deadline_ms is None else deadline_ms
    return Claim(
        effect_id=effect.effect_id,
        instance="ins-1",
        boot="boot-1",
        claim_hash=CLAIM_HASH,
        admitted_ms=InstantMs(now),
        deadline_ms=InstantMs(until),
    )


def admission_changes(effect: Effect, permit: Permit, claim: Claim) -> tuple[Change, ...]:
    """Return everything that an admission changes (ADM-02)."""
    return (
        PermitUsed(permit=permit, claim=claim),
        CostReserved(effect_id=effect.effect_id, task_id=effect.task_id, cost=effect.cost),
        EffectMoved(effect_id=effect.effect_id, origin=EffectState.PERMITTED, target=EffectState.ADMITTED),
    )


def prepare(ledger: Ledger, task: Task, cost: Mapping[str, int], **changed: object) -> Effect:
    """Prepare an effect and return it."""
    effect = new_effect(task, cost, **changed)
    commit_steps(ledger, preparing(effect))
    return effect


def permit(
    ledger: Ledger,
    effect: Effect,
    takes: tuple[CounterTake, ...] = (),
    *,
    expires_ms: int | None = None,
    tier: Tier = Tier.ISSUE,
) -> Committed[None]:
    """Issue a permit, or put on record why not: the task's path, what it names, its slots, the class bounds."""
    issued = new_permit(effect, expires_ms=expires_ms, tier=tier)

    def decide(view: View, now: InstantMs) -> Verdict[None]:
        path = view.path(effect.task_id)
        slots = slot_takes(path, effect)
        used = {take.counter: view.counter(take.counter) for take in (*takes, *slots)}
        no = (
            refuse_path(path, now)
            or refuse_scope(path, effect)
            or refuse_slots(slots, used)
            or refuse_takes(takes, used)
        )
        if no is not None:
            return _no(no, effect.effect_id)
        return Verdict(value=None, steps=(permitting(effect, issued, (*takes, *slots)),))

    return ledger.transact(decide)


def admission(effect: Effect) -> Decide[None]:
    """Return the decision that admits an effect, or puts on record why not, in the flow's own order."""

    def decide(view: View, now: InstantMs) -> Verdict[None]:
        current = view.effect(effect.effect_id)
        if current is None:
            raise AssertionError("the effect is gone")
        issued = view.permit(effect.effect_id)
        path = view.path(effect.task_id)
        no = (
            refuse_state(current)
            or refuse_permit(
                issued,
                used=issued is not None and view.is_used(issued.permit_id),
                in_trail=view.was_admitted(effect.effect_id),
                now=now,
            )
            or refuse_path(path, now)
            or refuse_scope(path, current)
            or refuse_cost(path, current.cost)
        )
        if no is not None or issued is None:
            return _no(no or Refusal(code=_unreachable()), effect.effect_id)
        changes = admission_changes(current, issued, new_claim(current, now))
        return Verdict(
            value=None, steps=(Step(transition=moving(current, EffectState.ADMITTED), changes=changes),)
        )

    return decide


def _unreachable() -> Any:
    raise AssertionError("a missing permit is refused")


def admit(ledger: Ledger, effect: Effect) -> Committed[None]:
    """Admit an effect, or put on record why not."""
    return ledger.transact(admission(effect))


def settle(
    ledger: Ledger, effect: Effect, target: EffectState, charged: Mapping[Unit, int] | None = None
) -> Committed[None]:
    """Record an outcome, or put on record why not."""

    def decide(view: View, now: InstantMs) -> Verdict[None]:
        current = view.effect(effect.effect_id)
        if current is None:
            raise AssertionError("the effect is gone")
        no = refuse_settling(current)
        if no is not None:
            return _no(no, effect.effect_id)
        evidence = evidence_of(
            current,
            evidence_class=EvidenceClass.SERVICE,
            source="answer 201",
            proves=str(target),
            reference="pay_1",
            late=False,
            now=now,
        )
        changes = outcome_changes(current, target=target, charged=charged or {}, evidence=evidence)
        return Verdict(value=None, steps=(Step(transition=moving(current, target), changes=changes),))

    return ledger.transact(decide)


def permitted_effect(ledger: Ledger, task: Task, cost: Mapping[str, int], **changed: object) -> Effect:
    """Prepare an effect and permit it."""
    effect = prepare(ledger, task, cost, **changed)
    committed = permit(ledger, effect)
    if committed.refusal is not None:
        raise AssertionError(committed)
    return effect


def admitted_effect(ledger: Ledger, task: Task, cost: Mapping[str, int], **changed: object) -> Effect:
    """Prepare, permit and admit an effect."""
    effect = permitted_effect(ledger, task, cost, **changed)
    committed = admit(ledger, effect)
    if committed.refusal is not None:
        raise AssertionError(committed)
    return effect


def state_of(ledger: Ledger, effect: Effect) -> EffectState:
    """Return where an effect stands now."""
    found = ledger.read(lambda view: view.effect(effect.effect_id))
    if found is None:
        raise AssertionError("the effect is gone")
    return found.state


def line(ledger: Ledger, task: Task, unit: Unit = CENT) -> tuple[int | None, int, int, int]:
    """Return (ceiling, reserved, settled, overrun) of a task's unit."""
    found = ledger.read(lambda view: view.budget(task.task_id))[unit]
    return found.ceiling, found.reserved, found.settled, found.overrun


def same(found: Effect, made: Effect) -> bool:
    """Whether a stored effect is the one that was made, apart from the span that it now names."""
    return all(
        getattr(found, name) == getattr(made, name)
        for name in Effect.__dataclass_fields__
        if name not in {"last_span", "sequence"}
    )
