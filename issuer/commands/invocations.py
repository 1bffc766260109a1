"""`invocation ...` and `obligation done`: a host opens a run of its work, and says once how it ended.

Rules: INV-01 (one caller's, in a task, with a deadline), INV-02 (`rejected`, `cancelled`, `succeeded`,
`failed_application`, `failed_execution`; written once, whatever becomes of effects later), EFF-08 (of others nothing is
told), EFF-09, LED-02 (open ones are capped per task). Ending one touches no effect: what is in flight still settles.
Success is the only outcome that is proven: effects, obligations and sinks have to agree, under the lock.
Next: `issuer.commands.looking` shows what effects say of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from issuer import answering
from issuer.caller import refuse_caller, refuse_speaker
from issuer.clock import instant_text
from issuer.commands.edge import at_the_edge
from issuer.commands.looking import swept
from issuer.flow import spans
from issuer.flow.invocations import ended_step, rejected_attributes, transition_of
from issuer.flow.overdue import sweep
from issuer.flow.reference import find_effect, missing
from issuer.flow.refusing import RefusedError, unknown_name
from issuer.house import Visit
from issuer.ids import new_invocation_id
from issuer.wire import Answer
from ledger.capacity import refuse_new
from ledger.changes import InvocationOpened, ObligationDone, Step
from ledger.errors import Broken, Malformed
from ledger.invocations import INVOCATION_MS_MAX, OPEN_PER_TASK_MAX, Invocation, InvocationOutcome
from ledger.model import EffectId, InstantMs, InvocationId, checked_name
from ledger.port import Verdict, View
from ledger.refusals import Refusal, RefusalCode
from ledger.rules import refuse_path, refuse_success
from ledger.transitions import Transition, TransitionName

LISTED_MAX: Final = 1000
"""Invocations that a list shows at most: the open ones first, then the latest to end."""

SUCCESS_TRIES: Final = 3
"""How often success is tried anew because an effect moved between the sinks' word and the lock."""

SPANS_SINCE_MAX: Final = 1000
"""Spans that are looked through for one of the invocation's: what others write while sinks are heard is far less."""

_ENDS: Final = (
    InvocationOutcome.SUCCEEDED,
    InvocationOutcome.FAILED_APPLICATION,
    InvocationOutcome.FAILED_EXECUTION,
)
"""What a host may say of its own run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What is to be opened."""

    task: str
    actor: str
    deadline_ms: InstantMs


def invocation_open(visit: Visit, task: str, actor: str, deadline_ms: InstantMs) -> Answer:
    """Open an invocation of `actor` in `task` until `deadline_ms`; one that cannot start is `rejected`, on record."""

    def run() -> Answer:
        sweep(visit)
        _check_deadline(deadline_ms)
        house = visit.house
        speaking = refuse_speaker(visit.caller, actor, None)
        if speaking is not None:
            raise RefusedError(speaking.code, field=speaking.field)
        if actor not in house.profile.actors:
            raise unknown_name(house, "actor", actor, house.profile.actors)
        name = checked_name(task, "task")
        if house.ledger.read(lambda view: view.task_named(name)) is None:
            raise RefusedError(RefusalCode.UNKNOWN_REFERENCE, field="task")
        wanted = _Wanted(task=name, actor=actor, deadline_ms=deadline_ms)
        opened = house.ledger.transact(lambda view, now: _opened(visit, wanted, view, now))
        more = {} if opened.value is None else {"invocation": shown(visit, opened.value)}
        if opened.refusal is not None:
            answer = answering.refused(house, opened.refusal)
            return answering.about(house, answer.code, say=answer.say, more={**answer.more, **more})
        return answering.about(house, "opened", say="The invocation is open.", more=more)

    return at_the_edge(visit, run)


def _check_deadline(deadline_ms: object) -> None:
    if type(deadline_ms) is not int:
        raise Malformed("wrong_type", "deadline", "the deadline must be a whole number of milliseconds")


def _opened(visit: Visit, wanted: _Wanted, view: View, now: InstantMs) -> Verdict[Invocation | None]:
    task, actor = view.task_named(wanted.task), wanted.actor
    if task is None:
        raise Broken("a task that was read is gone")
    if not now < wanted.deadline_ms <= now + INVOCATION_MS_MAX:
        raise Malformed("out_of_range", "deadline", "the deadline must be within 31 days from now")
    path = view.path(task.task_id)
    full = refuse_caller(view, visit.caller) or refuse_speaker(visit.caller, actor, task.subject)
    full = full or refuse_new(view.holdings(), visit.house.profile.ledger.capacity, stored=True)
    if full is None and view.invocations_open(task.task_id) >= OPEN_PER_TASK_MAX:
        full = Refusal(code=RefusalCode.TASK_FULL, level=task.name)
    if full is None and actor not in task.actors:
        full = Refusal(code=RefusalCode.FORBIDDEN, field="actor", level=task.name)
    if full is not None:  # nothing is kept of an ask that there is no room for, or that is not this actor's
        return Verdict(value=None, refusal=full, steps=(Step(transition=spans.refused(visit, full)),))
    no = refuse_path(path, now)
    invocation = Invocation(
        invocation_id=new_invocation_id(),
        caller=visit.caller.name,
        task_id=task.task_id,
        actor=actor,
        opened_ms=now,
        deadline_ms=wanted.deadline_ms,
        outcome=None if no is None else InvocationOutcome.REJECTED,
        ended_ms=None if no is None else now,
    )
    if no is None:
        transition = transition_of(visit, TransitionName.INVOCATION_OPENED, invocation)
    else:
        said = rejected_attributes(no)
        transition = transition_of(visit, TransitionName.INVOCATION_ENDED, invocation, **said)
    step = Step(transition=transition, changes=(InvocationOpened(invocation=invocation),))
    return Verdict(value=invocation, refusal=no, steps=(step,))


def _found(visit: Visit, view: View, invocation_id: str) -> Invocation | None:
    """Return an invocation of this caller; one of another reads like a missing one (EFF-08)."""
    found = view.invocation(InvocationId(invocation_id)) if type(invocation_id) is str else None
    return found if found is not None and found.caller == visit.caller.name else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """What an end came to: the invocation as it stands, and whether to try again with a later word of the sinks."""

    invocation: Invocation | None
    is_behind: bool = False


def invocation_end(visit: Visit, invocation_id: str, outcome: str) -> Answer:
    """End an open invocation with one of `succeeded`, `failed_application` and `failed_execution`.

    `succeeded` is refused, and nothing is written, while an effect, an obligation or a sink stands against it.
    """

    def run() -> Answer:
        wanted = _outcome(outcome)
        for _ in range(SUCCESS_TRIES):
            sweep(visit)
            heard = _heard(visit) if wanted is InvocationOutcome.SUCCEEDED else None
            against = partial(_against, wanted=wanted, heard=heard)
            answer = _ended(visit, invocation_id, against, wanted)
            if answer is not None:
                return answer
        raise RefusedError(RefusalCode.INVOCATION_UNSETTLED, field="audit")

    return at_the_edge(visit, run)


def invocation_cancel(visit: Visit, invocation_id: str) -> Answer:
    """Cancel an open invocation: it admits nothing more, and is `cancelled` whatever its effects did or will do."""

    def run() -> Answer:
        sweep(visit)
        answer = _ended(visit, invocation_id, lambda _view, _one: None, InvocationOutcome.CANCELLED)
        if answer is None:
            raise Broken("a cancellation waits for nothing")
        return answer

    return at_the_edge(visit, run)


def _outcome(word: str) -> InvocationOutcome:
    if word not in _ENDS:
        raise Malformed("not_one_of", "outcome", f"an outcome is one of {', '.join(_ENDS)}")
    return InvocationOutcome(word)


def _heard(visit: Visit) -> int:
    """Return up to where every required sink has the spans, as of now.

    Raises:
        AuditUnavailable: one has not; then nothing is written.
    """
    sequence = visit.house.ledger.read(lambda view: view.head()).sequence
    visit.house.delivery.acknowledge(sequence)
    return sequence


_BEHIND: Final = Refusal(code=RefusalCode.INVOCATION_UNSETTLED, field="audit")


def _against(
    view: View, invocation: Invocation, wanted: InvocationOutcome, heard: int | None
) -> Refusal | None:
    """Return what stands against an outcome; against failure nothing does."""
    if wanted is not InvocationOutcome.SUCCEEDED or heard is None:
        return None
    effects = view.effects_of(invocation.invocation_id)
    no = refuse_success([(effect, view.obligations(effect.effect_id)) for effect in effects])
    if no is None and _is_behind(view, frozenset(effect.effect_id for effect in effects), heard):
        return _BEHIND
    return no


def _is_behind(view: View, effect_ids: frozenset[str], heard: int) -> bool:
    """Say whether something was told of these effects since the sinks were heard, as far as that can be seen."""
    since = view.spans_after(heard, limit=SPANS_SINCE_MAX)
    return len(since) == SPANS_SINCE_MAX or any(span.story in effect_ids for span in since)


def _ended(
    visit: Visit,
    invocation_id: str,
    against: Callable[[View, Invocation], Refusal | None],
    outcome: InvocationOutcome,
) -> Answer | None:
    """Give an invocation its outcome, or say why not; None where the sinks have to be asked again."""

    def decide(view: View, now: InstantMs) -> Verdict[_End]:
        found = _found(visit, view, invocation_id)
        no: Refusal | None = None
        if found is None:
            no = Refusal(code=RefusalCode.UNKNOWN_REFERENCE, field="invocation")
        elif found.outcome is not None or now >= found.deadline_ms:
            no = Refusal(code=RefusalCode.INVOCATION_OVER, field="invocation")
        else:
            no = against(view, found)
        if no is _BEHIND:
            return Verdict(value=_End(invocation=found, is_behind=True))
        if found is None or no is not None:
            step = Step(transition=spans.refused(visit, no or _BEHIND))
            return Verdict(value=_End(invocation=found), refusal=no, steps=(step,))
        reason = "cancelled" if outcome is InvocationOutcome.CANCELLED else "host_says_so"
        return Verdict(
            value=_End(invocation=found), steps=(ended_step(visit, found, outcome, reason=reason),)
        )

    committed = visit.house.ledger.transact(decide)
    if committed.value.is_behind:
        return None
    one = committed.value.invocation
    found = None if one is None else visit.house.ledger.read(lambda view: view.invocation(one.invocation_id))
    more = {} if found is None else {"invocation": shown(visit, found)}
    if committed.refusal is not None:
        answer = answering.refused(visit.house, committed.refusal)
        return answering.about(visit.house, answer.code, say=answer.say, more={**answer.more, **more})
    return answering.about(visit.house, "ended", more=more)


def invocation_show(visit: Visit, invocation_id: str) -> Answer:
    """Show one invocation with its effects and what stands against its success."""

    def run() -> Answer:
        swept(visit)
        found = visit.house.ledger.read(lambda view: _found(visit, view, invocation_id))
        if found is None:
            raise RefusedError(RefusalCode.UNKNOWN_REFERENCE, field="invocation")
        more = {"invocation": shown(visit, found)}
        return answering.about(visit.house, "found", more=more)

    return at_the_edge(visit, run)


def invocation_list(visit: Visit) -> Answer:
    """List this caller's invocations: the open ones first, then the latest to end."""

    def run() -> Answer:
        swept(visit)
        found = visit.house.ledger.read(lambda view: view.invocations(limit=LISTED_MAX))
        rows = [_row(visit, one) for one in found if one.caller == visit.caller.name]
        return answering.about(visit.house, "found", more={"invocations": rows})

    return at_the_edge(visit, run)


def _row(visit: Visit, invocation: Invocation) -> dict[str, object]:
    task = visit.house.ledger.read(lambda view: view.task(invocation.task_id))
    return {
        "id": invocation.invocation_id,
        "task": None if task is None else task.name,
        "actor": invocation.actor,
        "opened": instant_text(invocation.opened_ms),
        "deadline": instant_text(invocation.deadline_ms),
        "outcome": None if invocation.outcome is None else str(invocation.outcome),
        "ended": None if invocation.ended_ms is None else instant_text(invocation.ended_ms),
    }


def shown(visit: Visit, invocation: Invocation) -> dict[str, object]:
    """Return an invocation as an answer tells it, with the effects that name it."""

    def look(view: View) -> tuple[list[dict[str, object]], Refusal | None]:
        effects = view.effects_of(invocation.invocation_id)
        rows: list[dict[str, object]] = [
            {"effect": one.effect_id, "state": str(one.state)} for one in effects
        ]
        return rows, refuse_success([(one, view.obligations(one.effect_id)) for one in effects])

    effects, no = visit.house.ledger.read(look)
    stands = None if no is None else {"effect": no.level, "what": no.field}
    return {**_row(visit, invocation), "effects": effects, "against_success": stands}


def obligation_done(visit: Visit, reference: str, name: str) -> Answer:
    """Say that what an effect obliged to was done; late is said as late, and closes it all the same (EFF-09)."""

    def run() -> Answer:
        sweep(visit)
        effect = find_effect(visit, reference)
        if effect is None:
            raise missing(visit, reference)
        word = checked_name(name, "obligation")
        committed = visit.house.ledger.transact(
            lambda view, now: _done(visit, view, now, effect.effect_id, word)
        )
        if committed.refusal is not None:
            return answering.refused(visit.house, committed.refusal, effect)
        return answering.about(visit.house, "obligation_closed", effect, more={"late": committed.value})

    return at_the_edge(visit, run)


def _done(visit: Visit, view: View, now: InstantMs, effect_id: EffectId, name: str) -> Verdict[bool]:
    effect = view.effect(effect_id)
    wanted = next((one for one in view.obligations(effect_id) if one.name == name), None)
    no: Refusal | None = None
    if wanted is None:
        no = Refusal(code=RefusalCode.UNKNOWN_REFERENCE, field="obligation")
    elif wanted.done_ms is not None:
        no = Refusal(code=RefusalCode.NOTHING_TO_CHANGE, field="obligation")
    if effect is None or wanted is None or no is not None:
        no = no or Refusal(code=RefusalCode.COLLECTED)
        step = Step(transition=spans.refused(visit, no, effect=effect))
        return Verdict(value=False, refusal=no, steps=(step,))
    late = now >= wanted.deadline_ms
    transition = Transition(
        name=TransitionName.OBLIGATION_DONE,
        story=effect.effect_id,
        effect_id=effect.effect_id,
        attributes={
            **spans.effect_attributes(visit, effect),
            "permit.obligation": name,
            "permit.late": late,
        },
    )
    done = ObligationDone(effect_id=effect.effect_id, name=name)
    return Verdict(value=late, steps=(Step(transition=transition, changes=(done,)),))
