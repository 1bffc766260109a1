"""`request`: prepare an effect and ask for its permit; with `hold`, prepare and show only.

Prepare, decide and issue are one call and one transaction under a policy that issues by itself (EFF-06); nothing is
sent. The same request key and content give the same effect (EFF-11).
"""

from dataclasses import dataclass, replace

from issuer import answering
from issuer.caller import refuse_caller, refuse_speaker
from issuer.commands.edge import at_the_edge
from issuer.commands.standing import settled_answer
from issuer.flow import spans
from issuer.flow.capacity import refuse_use, restore_ballast
from issuer.flow.collect import collect_some
from issuer.flow.content import erase_content, sweep_content
from issuer.flow.decide import decide
from issuer.flow.invocations import named, refuse_named
from issuer.flow.issue import Issued, issue, issued
from issuer.flow.overdue import sweep
from issuer.flow.prepare import (
    Ask,
    Draft,
    ReadAsk,
    differing_field,
    drafted_effect,
    prepare,
    read_ask,
)
from issuer.flow.reference import bound_operation, find_effect, missing, open_binding, refuse_target
from issuer.flow.refusing import RefusedError, collected_since
from issuer.flow.statements import read_ahead
from issuer.flow.stops import refuse_stopped
from issuer.house import House, Locked, Visit
from issuer.ids import random_bytes
from issuer.notifying import tell_awaiting, tell_nearly_full
from issuer.sealing import NONCE_BYTES, ProtectedStoreFull
from issuer.wire import Answer, code_of
from ledger.changes import EffectPrepared, Step
from ledger.errors import Broken, Fault
from ledger.model import Effect, InstantMs, InvocationId, Tombstone
from ledger.port import Committed, Verdict, View
from ledger.refusals import Refusal, RefusalCode
from ledger.rules import refuse_actor, refuse_expiry, refuse_invocation, refuse_path
from ledger.states import SETTLED, EffectState
from ledger.transitions import AttributeValue


@dataclass(frozen=True, slots=True, kw_only=True)
class _Requested:
    """What a request's transaction made or found, and the owner's sentence where a policy spoke."""

    effect: Effect | None
    collected: Tombstone | None = None
    say: str = ""


def request(visit: Visit, ask: Ask, *, hold: bool = False) -> Answer:
    """Ask for a permit for a new effect, or find the one that this request key already stands for."""
    known = replace(visit, about=_declared(visit.house, ask))
    return at_the_edge(known, lambda: _requested(known, ask, hold=hold))


def _declared(house: House, ask: Ask) -> dict[str, AttributeValue]:
    """Return what an ask names, as far as the owner has declared it: words of a caller never reach a span."""
    named: dict[str, AttributeValue] = {}
    if ask.operation in house.operations:
        named["permit.operation"] = ask.operation
        named["permit.class"] = house.operations[ask.operation].action_class
    if ask.actor in house.profile.actors:
        named["permit.actor"] = ask.actor
    if ask.subject is not None and ask.subject in house.profile.people:
        named["permit.subject"] = ask.subject
    try:
        task = house.ledger.read(lambda view: view.task_named(ask.task))
    except Fault:
        task = None
    if task is not None:
        named["permit.task.id"] = task.task_id
        named["permit.task.name"] = task.name
    return named


def _requested(visit: Visit, ask: Ask, *, hold: bool) -> Answer:
    sweep(visit)
    collect_some(visit)
    read = read_ask(visit, ask)
    known = visit.house.ledger.read(lambda view: _known(visit, view, read.ask.task, read.request_key))
    if known is not None:
        return _again(visit, read, known)
    draft = prepare(visit, read)
    read_ahead(visit.house, draft.pinned)
    visit.house.delivery.probe()
    restore_ballast(visit.house)
    if draft.pinned.has_protected:
        _keep_content(visit.house, draft)
    committed = visit.house.ledger.transact(
        lambda view, now: _created(visit, draft, view, now, hold=hold),
    )
    effect = committed.value.effect
    is_ours = effect is not None and effect.effect_id == draft.effect_id
    if draft.pinned.has_protected and not (is_ours and committed.refusal is None):
        visit.house.protected.erase(draft.effect_id, durable=False)
    if is_ours:
        _tell(visit.house, committed)
    known = committed.value.collected or (None if is_ours else effect)
    return _answer(visit.house, committed) if known is None else _again(visit, read, known)


def _keep_content(house: House, draft: Draft) -> None:
    """Store the protected content of a draft, durably; where there is no room, once more without the orphans."""
    content, nonce = draft.pinned.protected_content(), random_bytes(NONCE_BYTES)
    try:
        house.protected.put(draft.effect_id, content, nonce)
    except ProtectedStoreFull:
        sweep_content(house)
        house.protected.put(draft.effect_id, content, nonce)


def _known(visit: Visit, view: View, task_name: str, request_key: str) -> Effect | Tombstone | None:
    """Return the effect that a request key stands for, or what stays of it (EFF-11)."""
    task = view.task_named(task_name)
    if task is None:
        return None
    of = (visit.caller.name, task.task_id, request_key)
    return view.effect_for_key(*of) or view.tombstone_for_key(*of)


def _again(visit: Visit, read: ReadAsk, known: Effect | Tombstone) -> Answer:
    """Answer a repeated request: the same effect, or the field that differs (EFF-11)."""
    field = differing_field(known.request, read.request)
    if field is not None:
        raise RefusedError(RefusalCode.REQUEST_KEY_REUSED, field=field.removeprefix("payload."))
    if isinstance(known, Tombstone):
        raise RefusedError(RefusalCode.COLLECTED, tombstone=known)
    return standing(visit.house, known)


def standing(house: House, effect: Effect) -> Answer:
    """Answer where a known effect stands, with its permit's own expiry; an outcome as `commit` would tell it."""
    if effect.state in SETTLED:
        return settled_answer(house, effect)
    permit = house.ledger.read(lambda view: view.permit(effect.effect_id))
    shown = effect if permit is None else replace(effect, expires_ms=permit.expires_ms)
    return answering.about(house, code_of(effect.state), shown)


def _created(
    visit: Visit,
    draft: Draft,
    view: View,
    now: InstantMs,
    *,
    hold: bool,
) -> Verdict[_Requested]:
    known = _known(visit, view, draft.ask.task, draft.request_key)
    if isinstance(known, Tombstone):
        return Verdict(value=_Requested(effect=None, collected=known))
    if known is not None:  # another process was faster with the same key
        return Verdict(value=_Requested(effect=known))
    task = view.task_named(draft.ask.task)
    path = () if task is None else view.path(task.task_id)
    wanted = draft.ask.invocation
    invocation = None if wanted is None else view.invocation(InvocationId(wanted))
    no = None if wanted is None else refuse_invocation(invocation, path, visit.caller.name, now)
    no = refuse_caller(view, visit.caller) or no
    no = no or refuse_path(path, now) or refuse_actor(path, draft.ask.actor, draft.subject)
    locked = Locked(view=view, now=now, path=path, invocation=invocation)
    effect = None if no is not None else drafted_effect(visit, draft, locked)
    if effect is not None:
        no = refuse_stopped(view, visit.house, effect)
        no = no or refuse_use(visit.house, view, path, effect, stored=False)
    if effect is None or no is not None:
        no = no or Refusal(code=RefusalCode.UNKNOWN_REFERENCE, field="task")
        step = Step(transition=spans.refused(visit, no))
        return Verdict(value=_Requested(effect=None), refusal=no, steps=(step,))
    if hold:
        return Verdict(value=_Requested(effect=effect), steps=(_prepared(visit, effect),))
    decided = decide(visit.house, draft.pinned, effect, locked, stored=False, taken=False)
    if decided.decision.code == "approval":
        # What people are asked about waits as long as they are given, so it is bound to that expiry (APP-03). No
        # decision depends on it.
        effect = drafted_effect(visit, draft, locked, waits=True)
    made = issued(visit, draft.pinned, effect, locked, decided)
    verdict = _issued(effect, made, before=(_prepared(visit, effect),))
    # A flood of denials makes no effects any more, and is answered all the same (LED-02).
    return replace(verdict, counted=_Requested(effect=None, say=made.say)) if made.refusal else verdict


def _prepared(visit: Visit, effect: Effect) -> Step:
    return Step(
        transition=spans.moved(
            visit,
            effect,
            EffectState.PREPARED,
            cost=spans.amounts(effect.cost),
            expires__ms=effect.expires_ms,
            content_key=effect.content_key.hex(),
            resource_key=effect.resource_key.hex(),
        ),
        changes=(EffectPrepared(effect=effect),),
    )


def _issued(effect: Effect, issued: Issued, *, before: tuple[Step, ...] = ()) -> Verdict[_Requested]:
    moved = replace(effect, state=issued.state, expires_ms=issued.expires_ms or effect.expires_ms)
    return Verdict(
        value=_Requested(effect=moved, say=issued.say),
        refusal=issued.refusal,
        steps=(*before, *issued.steps),
    )


def _tell(house: House, committed: Committed[_Requested]) -> None:
    """Tell people of what this request itself brought about: a wait for one of them, a ledger that fills up."""
    effect = committed.value.effect
    if effect is not None and effect.state is EffectState.AWAITING_APPROVAL:
        tell_awaiting(house, effect)
    tell_nearly_full(house)


def _answer(house: House, committed: Committed[_Requested]) -> Answer:
    requested = committed.value
    if committed.refusal is not None:
        return answering.refused(house, committed.refusal, requested.effect, say=requested.say)
    if requested.effect is None:
        raise Broken("a request ended with neither an effect nor a refusal")
    return answering.about(house, code_of(requested.effect.state), requested.effect, say=requested.say)


def request_held(visit: Visit, reference: str) -> Answer:
    """Take a held effect further: decide and issue."""
    found: list[Effect] = []

    def run() -> Answer:
        effect = find_effect(visit, reference)
        if effect is None:
            raise missing(visit, reference)
        found.append(effect)
        return _held(visit, effect)

    return at_the_edge(visit, run, found)


def _held(visit: Visit, effect: Effect) -> Answer:
    if effect.state is not EffectState.PREPARED:
        return standing(visit.house, effect)
    operation = bound_operation(visit.house, effect)
    pinned = open_binding(visit.house, effect, operation)
    changed = refuse_target(visit.house, effect, pinned)
    read_ahead(visit.house, pinned)
    visit.house.delivery.probe()
    restore_ballast(visit.house)

    def decide_held(view: View, now: InstantMs) -> Verdict[_Requested]:
        current = view.effect(effect.effect_id)
        if current is None:
            gone, over = collected_since(view, effect), Refusal(code=RefusalCode.COLLECTED)
            step = Step(transition=spans.refused(visit, over, effect=gone))
            return Verdict(value=_Requested(effect=gone), refusal=over, steps=(step,))
        if current.state is not EffectState.PREPARED:  # another process was faster
            return Verdict(value=_Requested(effect=current))
        path = view.path(current.task_id)
        locked = Locked(view=view, now=now, path=path, invocation=named(view, current))
        no = (
            refuse_caller(view, visit.caller)
            or refuse_speaker(visit.caller, current.actor, current.subject)
            or _refuse_edited(view, current, effect)
            or refuse_stopped(view, visit.house, current)
            or refuse_named(current, locked)
            or refuse_path(path, now)
            or refuse_expiry(current, now)
            or changed
            or refuse_use(visit.house, view, path, current, stored=True)
        )
        if no is not None:
            step = Step(transition=spans.refused(visit, no, effect=current))
            return Verdict(value=_Requested(effect=current), refusal=no, steps=(step,))
        return _issued(current, issue(visit, pinned, current, locked, stored=True))

    committed = visit.house.ledger.transact(decide_held)
    after = committed.value.effect
    if after is not None and after.state is EffectState.DENIED:
        erase_content(visit.house, (effect,))
    _tell(visit.house, committed)
    return _answer(visit.house, committed)


def _refuse_edited(view: View, current: Effect, opened: Effect) -> Refusal | None:
    """Refuse a held effect that is not as it was prepared, or not the one that was opened before the lock.

    No seal proves it yet, so its MAC has to (LED-06).
    """
    view.demand_pending(current.effect_id)
    if view.is_genuine(current) and current.binding_digest == opened.binding_digest:
        return None
    return Refusal(code=RefusalCode.PERMIT_BROKEN, field="binding")
