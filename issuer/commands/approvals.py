"""`approvals`, `statement`, `approve`, `decline`, `withdraw`, and waiting: what people are asked, and what they answer.

Rules: APP-01, APP-02, APP-05, EFF-08 (a wrong reference reads like a missing one), EFF-10 and LED-03 (a statement shows
what is sensitive, so a span says so first), SEC-02 (a host or an actor answers nothing, whatever it hands in; the span
names who really called), PER-03.
Who calls is not who answers: an answer is the signature of a person's own key, in every mode.
Next: `issuer.flow.approve`.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from issuer import answering
from issuer.approving.statement import Declining
from issuer.caller import CallerKind, asking_caller, refuse_agent
from issuer.clock import instant_text, steady_s
from issuer.commands.approval_rows import approval_record
from issuer.commands.asking import standing
from issuer.commands.edge import at_the_edge
from issuer.commands.looking import swept
from issuer.commands.roles import OBSERVE, decided, is_asked
from issuer.commands.using import commit
from issuer.flow import spans
from issuer.flow.approve import (
    REASONS,
    WITHDRAWALS,
    Answered,
    Opened,
    Signed,
    answer,
    refuse_answer,
    signed_by,
)
from issuer.flow.approve import withdraw as withdraw_under_lock
from issuer.flow.approvers import groups_of, is_stopped, refuse_person
from issuer.flow.capacity import restore_ballast
from issuer.flow.content import erase_content
from issuer.flow.reference import bound_operation, effect_reference, find_effect, missing, open_binding
from issuer.flow.refusing import RefusedError
from issuer.flow.statements import statement_again
from issuer.house import House, Visit
from issuer.revised import RevisionMoved
from issuer.wire import Answer, code_of
from ledger.changes import Step
from ledger.errors import Malformed
from ledger.model import Effect, InstantMs, checked_name
from ledger.port import Committed, Verdict, View
from ledger.refusals import Refusal, RefusalCode
from ledger.states import UNUSED, EffectState

POLL_S: Final = 0.5
"""Seconds between two looks of somebody who waits: a read of one row, and a person takes minutes."""

_NOT_SENT_NOW: Final = (
    "Nothing was sent yet: the owner's files changed meanwhile; whoever asked for it can commit it."
)
_NOT_SENT: Final = "Nothing was sent: the credential of whoever asked for it does not count any more."

SHOWN_FOR: Final = "approval"
"""The reason on record where a statement shows what is sensitive."""

_NEXT: Final = (
    "Read one with 'issuer statement EFFECT'; answer with 'issuer approve EFFECT' or 'issuer decline EFFECT'."
)
_NOTHING_WAITS: Final = "Nothing waits for anybody."

_NOT_YOURS: Final = {
    "role": "Whose key that is has no role approver.",
    "subject": "It is done for the person whose key that is; somebody else has to say yes.",
    "answers_to": "The actor answers to the person whose key that is; somebody else has to say yes.",
    "caller": "The person whose key that is asked for it; somebody else has to say yes.",
    "approver": "The person whose key that is is not among those who are asked.",
    "suspended": "The person whose key that is is suspended.",
    "key": "That key is revoked, or registered to nobody any more.",
}
"""Why somebody's signature is not counted, by the field of the refusal (APP-03)."""

_SAID: Final = {
    "approval": "That yes is counted already; it waits for somebody else.",
    "key": "A yes of theirs is on record, by a key that counts no more. It has to be withdrawn and asked for anew.",
}
_HELD: Final = "It is only prepared; nobody is asked about it yet."
_PERMITTED: Final = (
    "It is permitted already. 'issuer revoke approval EFFECT PERSON' takes a yes back until it is sent."
)
_TOO_LATE_TO_ANSWER: Final = "Its time is over, and nothing was sent. Whoever wants it has to ask anew."


def approvals(visit: Visit) -> Answer:
    """List what waits for people: for whom, who is asked, who has said yes, and until when."""

    def run() -> Answer:
        _demand_person(visit, None)
        problem = swept(visit)
        waiting = (EffectState.AWAITING_APPROVAL,)
        effects = [
            effect
            for effect in visit.house.ledger.read(lambda view: view.effects(states=waiting))
            if _may_read(visit, effect)
        ]
        rows = visit.house.ledger.read(lambda view: [_row(view, effect) for effect in effects])
        more: dict[str, object] = {"waiting": rows}
        if problem is not None:
            more["not_swept"] = problem
        return answering.about(visit.house, "found", say=_NEXT if rows else _NOTHING_WAITS, more=more)

    return at_the_edge(visit, run)


def _row(view: View, effect: Effect) -> dict[str, object]:
    task = view.task(effect.task_id)
    return {
        "effect": effect.effect_id,
        "operation": effect.operation,
        "resource": f'{effect.resource_type}::"{effect.resource_id}"',
        "cost": {str(unit): amount for unit, amount in effect.cost.items()},
        "actor": effect.actor,
        "subject": effect.subject,
        "caller": effect.caller,
        "task": None if task is None else task.name,
        **approval_record(view, effect),
        "until": instant_text(effect.expires_ms),
    }


def statement(visit: Visit, reference: str, why: tuple[str, str | None] | None = None) -> Answer:
    """Show the statement of an effect that waits, exactly as it is to be signed, once that is on record.

    `why`, a reason and a reference or None, asks for the statement of a no.
    """
    found: list[Effect] = []

    def run() -> Answer:
        declining = None if why is None else declining_of(*why)
        swept(visit)  # so that nobody reads and signs what is over already
        opened, text = _opened(visit, reference, found, declining)
        _record_shown(visit, opened)
        return answering.about(visit.house, "found", opened.effect, more={"statement": text.decode("ascii")})

    return at_the_edge(visit, run, found)


def approve(visit: Visit, reference: str, signature: str) -> Answer:
    """Count a person's signed yes to an effect; where it was the last one, it is permitted, or done at once."""
    answered = _answered(visit, reference, signature, None)
    effect = _any(visit, reference) if answered.code == "permitted" else None
    declared = None if effect is None else visit.house.profile.operations.get(effect.operation)
    if effect is None or declared is None or declared.after_approval is None:
        return answered
    return _sent(visit, effect, answered)


def _sent(visit: Visit, effect: Effect, answered: Answer) -> Answer:
    """Send what people have agreed to, where the owner wants that at once: as any commit of whoever asked for it.

    Who asked has to stand as for a commit of its own: a host or an actor whose credential is void by now, or that the
    owner lets in no more, has nothing sent in its name. The approval counts all the same, and the effect stays
    permitted; that nothing was sent is on record, and in the answer.
    """
    house, name, account = visit.house, effect.caller, visit.caller.account
    own = house.ledger.read(lambda view: asking_caller(house.profile, view, name, account))
    try:
        told = commit(
            replace(visit, caller=own, command="commit", signed=None, trouble=None), effect.effect_id
        )
    except RevisionMoved:  # the yes is written, and is not given once more; whoever asked can still send it
        say = f"{answered.say} {_NOT_SENT_NOW}"
        return replace(answered, say=say, more={**answered.more, "not_sent": "revision_moved"})
    if told.code != str(RefusalCode.UNAUTHENTICATED):
        return told
    return replace(answered, say=f"{answered.say} {_NOT_SENT}", more={**answered.more, "not_sent": told.code})


def decline(
    visit: Visit, reference: str, signature: str, *, reason: str, reference_to: str | None = None
) -> Answer:
    """Count a person's signed no: the effect is over. `reason` is one of `issuer.flow.approve.REASONS`."""
    return _answered(visit, reference, signature, (reason, reference_to))


def declining_of(reason: str, reference_to: str | None) -> Declining:
    """Return why somebody declines, checked.

    Raises:
        Malformed: the reason is not one of the closed list, or the reference no name.
    """
    named = None if reference_to is None else checked_name(reference_to, "reference")
    return Declining(reason=_one_of(reason, REASONS), reference=named)


def _one_of(reason: str, known: tuple[str, ...]) -> str:
    if reason not in known:
        raise Malformed("not_one_of", "reason", f"a reason is one of {', '.join(known)}")
    return reason


def withdraw(visit: Visit, reference: str, reason: str = "not_needed") -> Answer:
    """Take a request back: this caller's own, before it is admitted (APP-05)."""
    found: list[Effect] = []

    def run() -> Answer:
        effect = find_effect(visit, reference)
        if effect is None:
            raise missing(visit, reference)
        found.append(effect)
        why = _one_of(reason, WITHDRAWALS)
        committed = visit.house.ledger.transact(
            lambda view, now: withdraw_under_lock(visit, effect, why, view, now)
        )
        return _told(visit.house, committed, "withdrawn_now")

    return at_the_edge(visit, run, found)


def wait(visit_of: Callable[[], Visit], reference: str, *, for_ms: int) -> Answer:
    """Return where an effect of this caller stands once it waits for nobody any more, or when `for_ms` is over.

    It only reads, but for ending what is over; whoever is interrupted has changed nothing.
    """
    until = steady_s() + for_ms / 1000
    while True:
        visit = visit_of()
        answered = _where(visit, reference)
        left = until - steady_s()
        if answered.state != EffectState.AWAITING_APPROVAL or left <= 0:
            return answered
        time.sleep(min(POLL_S, left))


def _where(visit: Visit, reference: str) -> Answer:
    def run() -> Answer:
        swept(visit)
        effect = find_effect(visit, reference)
        if effect is None:
            raise missing(visit, reference)
        return standing(visit.house, effect)

    return at_the_edge(visit, run)


def _answered(visit: Visit, reference: str, signature: str, why: tuple[str, str | None] | None) -> Answer:
    found: list[Effect] = []

    def run() -> Answer:
        declining = None if why is None else declining_of(*why)
        opened, signed_text = _opened(visit, reference, found, declining)
        signed = signed_by(visit.house, opened, signed_text, signature, declining)
        if declining is None:
            visit.house.delivery.probe()
            restore_ballast(visit.house)
        committed = _transacted(visit, opened, signed)
        return _told(visit.house, committed, "approved" if declining is None else "declined_now")

    return at_the_edge(visit, run, found)


def _transacted(visit: Visit, opened: Opened, signed: Signed) -> Committed[Answered]:
    def decide(view: View, now: InstantMs) -> Verdict[Answered]:
        return answer(visit, opened, signed, view, now)

    return visit.house.ledger.transact(decide)


def _told(house: House, committed: Committed[Answered], done: str) -> Answer:
    answered = committed.value
    if answered.effect.state in UNUSED:
        erase_content(house, (answered.effect,))
    if committed.refusal is not None:
        return answering.refused(
            house, committed.refusal, answered.effect, say=_no_say(committed.refusal, answered.effect)
        )
    code = code_of(answered.effect.state) if answered.is_complete else done
    return answering.about(house, code, answered.effect)


def _no_say(no: Refusal, effect: Effect) -> str:
    """Return what a no to somebody's answer comes to for them, or "" where the code says it all."""
    if no.code is RefusalCode.FORBIDDEN:
        return _NOT_YOURS.get(no.field or "", "")
    if no.code is RefusalCode.NOTHING_TO_CHANGE:
        if effect.state is EffectState.PREPARED:
            return _HELD
        return _SAID.get(no.field or "", _PERMITTED)
    is_late = no.code is RefusalCode.EXPIRED and effect.state is EffectState.EXPIRED
    return _TOO_LATE_TO_ANSWER if is_late else ""


def _demand_person(visit: Visit, effect: Effect | None) -> None:
    # The edge has asked it for these commands; what an answer rests on is asked where it is opened as well.
    no = refuse_agent(visit.caller)
    if no is not None:
        raise RefusedError(no.code, field=no.field)
    if effect is not None and not _may_read(visit, effect):
        raise RefusedError(RefusalCode.NOT_FOUND)


def _may_read(visit: Visit, effect: Effect) -> bool:
    """Say whether a caller may read what waits: its own, what waits for them, or what they may observe (EFF-08).

    In ordinary mode without a policy about observing, everybody may, as with any act.
    """
    if effect.caller == visit.caller.name or not is_asked(visit, OBSERVE):
        return True
    if visit.caller.kind is not CallerKind.PERSON:
        return False
    is_asked_about_it = visit.house.ledger.read(lambda view: _waits_for(visit, view, effect))
    return is_asked_about_it or decided(visit, OBSERVE, effect).allowed


def _waits_for(visit: Visit, view: View, effect: Effect) -> bool:
    """Say whether an effect waits for the caller: a person of a group that is asked, and who may answer."""
    name, wait = visit.caller.name, view.approval_wait(effect.effect_id)
    if wait is None or is_stopped(view, name) or refuse_person(visit.house, effect, name) is not None:
        return False
    return bool(groups_of(visit.house, name, wait.approvers))


def _any(visit: Visit, reference: str) -> Effect | None:
    """Return the effect of anybody's that a reference names: an approver is not its caller."""
    effect_id = effect_reference(reference)
    return None if effect_id is None else visit.house.ledger.read(lambda view: view.effect(effect_id))


def _opened(
    visit: Visit, reference: str, found: list[Effect], declining: Declining | None
) -> tuple[Opened, bytes]:
    """Open an effect that waits, and make its statement again; return it with the text that is to be signed.

    Raises:
        RefusedError: there is none for this caller, it waits for nobody, or what was bound or said has changed.
    """
    effect = _any(visit, reference)
    if effect is None:
        raise RefusedError(RefusalCode.NOT_FOUND)
    _demand_person(visit, effect)
    found.append(effect)
    over = refuse_answer(effect)
    if over is not None:
        raise RefusedError(over.code, field=over.field, say=_no_say(over, effect))
    house = visit.house
    pinned = open_binding(house, effect, bound_operation(house, effect))

    def make(view: View, of: Declining | None) -> bytes | None:
        return statement_again(house, view, effect, pinned, of)

    agreed = house.ledger.read(lambda view: make(view, None))
    text = agreed if declining is None else house.ledger.read(lambda view: make(view, declining))
    if agreed is None or text is None:
        raise RefusedError(RefusalCode.PREPARE_AGAIN, field="statement")
    return Opened(effect=effect, pinned=pinned, statement=agreed), text


def _record_shown(visit: Visit, opened: Opened) -> None:
    """Commit the span that names the sensitive fields which the statement shows.

    Raises:
        Fault: as `ledger.port.Ledger.transact`; then nothing may be shown.
    """
    fields = tuple(one.name for one in opened.pinned.operation.fields if one.exposure == "sensitive")
    step = Step(transition=spans.content_shown(visit, opened.effect, fields, reason=SHOWN_FOR))

    def decide(_view: View, _now: InstantMs) -> Verdict[None]:
        return Verdict(value=None, steps=(step,))

    visit.house.ledger.transact(decide)
