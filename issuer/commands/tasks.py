"""`task open`: a new task in the tree, a root or below a parent (BUD-01, BUD-05, BUD-06).

A child is never wider than its parent: its expiry is capped, its actors, subject, ceilings, names and slots are the
parent's or fewer; and what it spends is held at every ancestor anyway.
Next: `issuer.commands.task_changes` changes a task, `issuer.commands.task_views` shows it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from issuer import answering
from issuer.commands.edge import at_the_edge
from issuer.commands.task_scope import (
    ScopeAsk,
    ceiling_lines,
    check_size,
    read_scope,
    scope_below,
)
from issuer.commands.task_views import shown
from issuer.commands.task_words import opened_say, refused, wider_say
from issuer.flow import spans
from issuer.flow.prepare import refuse_unserved
from issuer.flow.refusing import unknown_name, unknown_unit
from issuer.flow.signed_act import acting
from issuer.house import House, Visit
from issuer.ids import new_task_id
from issuer.wire import Answer
from ledger.budgets import refuse_wider_ceiling
from ledger.changes import Step, TaskOpened
from ledger.errors import Malformed
from ledger.model import InstantMs, PathNode, Scope, Task, TaskState, Unit, checked_name, costs
from ledger.port import Verdict, View
from ledger.refusals import Refusal, RefusalCode
from ledger.rules import refuse_path
from ledger.scope import INHERIT, refuse_wider, scope_lines
from ledger.transitions import TransitionName

EXPIRES_MS_MAX: Final = 253_402_300_799_999
"""The last millisecond of the year 9999: no later instant can be written (RFC 3339, section 5.6)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTask:
    """What an owner asks for. `budget` gives a whole amount or `inherit` per unit; an absent unit is zero."""

    name: str
    parent: str | None
    subject: str | None
    actors: tuple[str, ...]
    budget: Mapping[str, int | str]
    expires_ms: InstantMs
    scope: ScopeAsk = field(default_factory=ScopeAsk)


def task_open(visit: Visit, ask: NewTask) -> Answer:
    """Open a task, a root or below a parent."""

    def run() -> Answer:
        refuse_unserved(visit.house.profile, None)
        ceilings = _ceilings(visit.house, ask)
        checked_name(ask.name, "task")
        _check_expiry(ask.expires_ms)
        _known(visit.house, ask)
        asked = read_scope(visit.house, ask.scope, is_root=ask.parent is None)
        draft = _Draft(ask=ask, ceilings=ceilings, scope=asked)
        committed = visit.house.ledger.transact(
            acting(visit, lambda view, now: _opened(visit, draft, view, now))
        )
        if committed.refusal is not None or committed.value is None:
            no = committed.refusal or Refusal(code=RefusalCode.UNKNOWN_REFERENCE)
            return refused(visit.house, no, ask.parent, say=wider_say(no))
        return answering.about(
            visit.house,
            "opened",
            say=opened_say(ask.name, ceilings),
            more={"task": shown(visit.house, committed.value.task_id)},
        )

    return at_the_edge(visit, run)


def _ceilings(house: House, ask: NewTask) -> Mapping[Unit, int | None]:
    inherits = costs({unit: 0 for unit, ceiling in ask.budget.items() if ceiling == INHERIT})
    if inherits and ask.parent is None:
        raise Malformed("not_one_of", "budget", "a root task has no parent to inherit a ceiling from")
    amounts = costs({unit: ceiling for unit, ceiling in ask.budget.items() if ceiling != INHERIT})  # type: ignore[misc]
    ceilings: dict[Unit, int | None] = {**amounts, **dict.fromkeys(inherits)}
    unknown = [unit for unit in ceilings if unit not in house.units]
    if unknown:
        raise unknown_unit(house, "budget", unknown[0])
    return ceilings


def _check_expiry(expires_ms: object) -> None:
    """Refuse an expiry that is no instant that could be shown; a stored one would break every later view of it."""
    if type(expires_ms) is not int:
        raise Malformed("wrong_type", "expires", "the expiry must be a whole number of milliseconds")
    if not 0 <= expires_ms <= EXPIRES_MS_MAX:
        raise Malformed("out_of_range", "expires", "the expiry must be between the years 1970 and 9999")


def _known(house: House, ask: NewTask) -> None:
    for actor in ask.actors:
        if actor not in house.profile.actors:
            raise unknown_name(house, "actor", actor, house.profile.actors)
    if ask.subject is not None and ask.subject not in house.profile.people:
        raise unknown_name(house, "subject", ask.subject, house.profile.people)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """A new task as far as it is known before its parent is."""

    ask: NewTask
    ceilings: Mapping[Unit, int | None]
    scope: Scope


def _opened(visit: Visit, draft: _Draft, view: View, now: InstantMs) -> Verdict[Task | None]:
    ask = draft.ask
    no = _refuse_opening(ask, view, now)
    parent = None if ask.parent is None or no is not None else view.task_named(ask.parent)
    scope = draft.scope if parent is None else scope_below(parent.scope, draft.scope)
    if parent is not None:
        above = view.path(parent.task_id)
        no = refuse_wider_ceiling(above, draft.ceilings) or refuse_wider(above, scope)
    if no is not None:
        step = Step(transition=spans.refused(visit, no))
        return Verdict(value=None, refusal=no, steps=(step,))
    task_id = new_task_id()
    task = Task(
        task_id=task_id,
        name=ask.name,
        parent_id=None if parent is None else parent.task_id,
        root_id=task_id if parent is None else parent.root_id,
        depth=0 if parent is None else parent.depth + 1,
        subject=ask.subject or (parent.subject if parent is not None else ""),
        actors=ask.actors or (parent.actors if parent is not None else ()),
        expires_ms=ask.expires_ms if parent is None else InstantMs(min(ask.expires_ms, parent.expires_ms)),
        state=TaskState.OPEN,
        opened_ms=now,
        ceilings=draft.ceilings,
        scope=scope,
    )
    check_size(task)
    transition = spans.of_task(
        visit,
        TransitionName.TASK_OPENED,
        task,
        ceiling=ceiling_lines(task),
        expires__ms=task.expires_ms,
        actors=task.actors,
        scope=scope_lines(scope),
        **({} if parent is None else {"parent_id": parent.task_id}),
    )
    step = Step(transition=transition, changes=(TaskOpened(task=task),))
    return Verdict(value=task, steps=(step,))


def _refuse_opening(ask: NewTask, view: View, now: InstantMs) -> Refusal | None:
    if view.task_named(ask.name) is not None:
        return Refusal(code=RefusalCode.NAME_TAKEN, field="task")
    if now >= ask.expires_ms:
        return Refusal(code=RefusalCode.TASK_EXPIRED, level=ask.name)
    if ask.parent is None:
        missing = "actor" if not ask.actors else "subject" if ask.subject is None else None
        return None if missing is None else Refusal(code=RefusalCode.MALFORMED, field=missing)
    parent = view.task_named(ask.parent)
    if parent is None:
        return Refusal(code=RefusalCode.UNKNOWN_REFERENCE, field="parent")
    path: tuple[PathNode, ...] = view.path(parent.task_id)
    no = refuse_path(path, now)
    if no is not None:
        return no
    if not set(ask.actors) <= set(parent.actors):
        return Refusal(code=RefusalCode.FORBIDDEN, field="actor", level=parent.name)
    if ask.subject not in {None, parent.subject}:
        return Refusal(code=RefusalCode.FORBIDDEN, field="subject", level=parent.name)
    return None
