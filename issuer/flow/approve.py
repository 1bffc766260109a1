"""Step 4 continued: what people answer to an effect that waits for them. A yes, a no, or the caller takes it back.

Rules: APP-01 (a signature over the one statement, by a registered key), APP-03 (duties, different people, in time),
APP-04 (policies, task, slots and money are asked as they are now), APP-05 (reasons are words of a closed list), PER-01,
PER-03, POL-05. Before the lock the statement is made again from the record, and the signature says who answers; who
calls is another question, and is on record as the caller. Under the lock, in order:
  1. it still waits, in time, and its row and its wait are those that the statement was made of
  2. nothing and nobody about it is stopped   3. this person may answer, has not yet, and counts for a place
  4. its invocation, its task and those above it   5. the policies of now still let people decide it
  6. where the quorum is full: room for it in its task; then the permit, of the approval tier, in this same transaction.
A no at 2 to 6 leaves the effect waiting and writes no answer. An effect found over at 1 ends there, as expired.
Next: step 5, `issuer.flow.admit`, which asks all of it again.
"""

from dataclasses import dataclass, replace
from typing import Final

from issuer.approving.statement import Declining
from issuer.flow import spans
from issuer.flow.approvers import (
    all_wanted,
    allowed_groups,
    counted,
    groups_of,
    is_key_good,
    is_revoked_for,
    is_stopped,
    refuse_person,
)
from issuer.flow.binding import Pinned
from issuer.flow.capacity import refuse_use
from issuer.flow.decide import Decided, decide, decision_attributes
from issuer.flow.invocations import named, obliged_steps, refuse_named
from issuer.flow.issue import sealed
from issuer.flow.lifetimes import lifetime_caps
from issuer.flow.overdue import expired_step
from issuer.flow.refusing import RefusedError, collected_since
from issuer.flow.statements import registered_keys, statement_digest
from issuer.flow.stops import refuse_stopped
from issuer.house import House, Locked, Visit
from issuer.sealing import SignatureRefused, signer_of
from ledger.authority import Approval, ApprovalWait, is_quorum
from ledger.changes import ApprovalGiven, DecisionRecorded, EffectMoved, PermitIssued, Step
from ledger.model import Effect, InstantMs, Tier
from ledger.port import Verdict, View
from ledger.refusals import Refusal, RefusalCode
from ledger.rules import refuse_expiry, refuse_path
from ledger.scope import slot_takes
from ledger.states import PENDING, SETTLED, UNRESOLVED, EffectState
from ledger.transitions import Transition, TransitionName
from policies import Decision

REASONS: Final = (
    "not_needed",
    "not_agreed",
    "wrong_amount",
    "wrong_target",
    "duplicate",
    "suspicious",
    "other",
)
"""Why a person declines (APP-05)."""

WITHDRAWALS: Final = ("not_needed", "wrong_amount", "wrong_target", "duplicate", "superseded", "other")
"""Why a caller takes its own request back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """An effect that waits, as it was read before the lock: what it is bound to, and what people were asked to sign."""

    effect: Effect
    pinned: Pinned
    statement: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """One person's answer: who signed what, proven before the lock.

    Attributes:
        person: whose registered key made the signature.
        key: its fingerprint.
        armored: the signature as it was handed in.
        statement: the yes that people were asked for.
        signed: what was signed: the same, or the statement of a no.
        declining: why, where it is a no.
    """

    person: str
    key: str
    armored: str
    statement: bytes
    signed: bytes
    declining: Declining | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What an answer came to: the effect as it stands, and the instant its permit expires where it has one now."""

    effect: Effect
    is_complete: bool = False


def signed_by(
    house: House, opened: Opened, signed: bytes, armored: str, declining: Declining | None = None
) -> Signed:
    """Return who signed `signed`: the one person with a registered key that did (APP-01).

    Raises:
        RefusedError: `signature_refused`, its field the reason.
    """
    owners = {key.fingerprint: name for name, keys in registered_keys(house).items() for key in keys}
    every = [key for keys in registered_keys(house).values() for key in keys]
    try:
        key = signer_of(signed, armored, every)
    except SignatureRefused as refused:
        raise RefusedError(RefusalCode.SIGNATURE_REFUSED, field=str(refused.reason)) from None
    return Signed(
        person=owners[key.fingerprint],
        key=key.fingerprint,
        armored=armored,
        statement=opened.statement,
        signed=signed,
        declining=declining,
    )


_OVER: Final = {
    EffectState.PERMITTED: RefusalCode.NOTHING_TO_CHANGE,
    EffectState.PREPARED: RefusalCode.NOTHING_TO_CHANGE,
    EffectState.DENIED: RefusalCode.DENIED,
    EffectState.DECLINED: RefusalCode.DECLINED,
    EffectState.WITHDRAWN: RefusalCode.WITHDRAWN,
    EffectState.EXPIRED: RefusalCode.EXPIRED,
    EffectState.REVOKED: RefusalCode.REVOKED,
}


def refuse_answer(effect: Effect) -> Refusal | None:
    """Refuse an answer to an effect that waits for nobody, by where it stands (APP-03)."""
    if effect.state is EffectState.AWAITING_APPROVAL:
        return None
    return Refusal(code=_OVER.get(effect.state, RefusalCode.TOO_LATE))


def answer(visit: Visit, opened: Opened, signed: Signed, view: View, now: InstantMs) -> Verdict[Answered]:
    """Decide about one person's answer under the lock; every no carries its span."""
    effect, pinned = opened.effect, opened.pinned
    current = view.effect(effect.effect_id)
    if current is None:
        return _no(visit, collected_since(view, effect), Refusal(code=RefusalCode.COLLECTED), signed)
    over = refuse_answer(current) or refuse_expiry(current, now)  # 1
    if over is not None:
        return _no(visit, current, over, signed)
    wait = view.approval_wait(current.effect_id)
    edited = _refuse_edited(view, current, effect, wait, signed)
    if edited is not None or wait is None:
        return _no(visit, current, edited or Refusal(code=RefusalCode.PERMIT_BROKEN), signed)
    locked = Locked(view=view, now=now, path=view.path(current.task_id), invocation=named(view, current))
    # A no is taken also of what is stopped: it can only end what must not go on.
    no = None if signed.declining is not None else refuse_stopped(view, visit.house, current)  # 2
    no = no or _refuse_signer(visit.house, current, locked, signed)  # 3
    if no is not None:
        return _no(visit, current, no, signed)
    if signed.declining is not None:
        no = _refuse_decliner(visit.house, current, locked, wait, signed.person)
        if no is not None:
            return _no(visit, current, no, signed)
        return _declined(visit, current, signed, signed.declining)
    no = refuse_named(current, locked) or refuse_path(locked.path, now)  # 4
    if no is not None:
        return _no(visit, current, no, signed)
    decided = decide(visit.house, pinned, current, locked, stored=True, taken=False)  # 5
    decision = decided.decision
    if not (decision.approval.allowed or decision.issue.allowed):
        code = RefusalCode.POLICY_ERROR if decision.code == "policy_error" else RefusalCode.DENIED
        return _no(visit, current, Refusal(code=code), signed)
    return _agreed(visit, pinned, current, locked, _Yes(signed=signed, wait=wait, decided=decided))


def _refuse_edited(
    view: View, current: Effect, opened: Effect, wait: ApprovalWait | None, signed: Signed
) -> Refusal | None:
    """Refuse rows that are not as they were written, or not those that the statement was made of (LED-06)."""
    view.demand_pending(current.effect_id)
    if not view.is_genuine(current) or current.binding_digest != opened.binding_digest:
        return Refusal(code=RefusalCode.PERMIT_BROKEN, field="binding")
    if wait is None or wait.statement_digest != statement_digest(signed.statement):
        return Refusal(code=RefusalCode.PREPARE_AGAIN, field="statement")
    return None


def _refuse_signer(house: House, effect: Effect, locked: Locked, signed: Signed) -> Refusal | None:
    """Do 3: whoever may not answer is refused by one code, and its field says what stands against them."""
    view, person = locked.view, signed.person
    why = refuse_person(house, effect, person)
    if why is None and is_stopped(view, person):
        why = "suspended"
    if why is None and signed.declining is None and is_revoked_for(view, effect, person):
        why = "revoked"
    if why is None and not is_key_good(house, view, person, signed.key):
        why = "key"
    if why is not None:
        return Refusal(code=RefusalCode.FORBIDDEN, field=why)
    before = [one for one in view.approvals(effect.effect_id) if one.person == person]
    if signed.declining is None and before:
        is_good = is_key_good(house, view, person, before[0].key)
        return Refusal(code=RefusalCode.NOTHING_TO_CHANGE, field="approval" if is_good else "key")
    return None


def _refuse_decliner(
    house: House, effect: Effect, locked: Locked, wait: ApprovalWait, person: str
) -> Refusal | None:
    """Refuse a no of somebody who could not have said yes."""
    groups = groups_of(house, person, wait.approvers)
    allowed, has_errors = allowed_groups(house, effect, person, groups, locked.now)
    return None if allowed else _not_an_approver(has_errors=has_errors)


def _not_an_approver(*, has_errors: bool) -> Refusal:
    code = RefusalCode.POLICY_ERROR if has_errors else RefusalCode.FORBIDDEN
    return Refusal(code=code, field="approver")


def _no(visit: Visit, effect: Effect, refusal: Refusal, signed: Signed) -> Verdict[Answered]:
    """Return a no with its span, which names who called and who signed; what is found over ends with it."""
    if refusal.code is RefusalCode.EXPIRED and effect.state is EffectState.AWAITING_APPROVAL:
        ended = replace(effect, state=EffectState.EXPIRED)
        step = Step(transition=_refused(visit, refusal, ended, signed))
        return Verdict(
            value=Answered(effect=ended), refusal=refusal, steps=(expired_step(visit, effect), step)
        )
    step = Step(transition=_refused(visit, refusal, effect, signed))
    return Verdict(value=Answered(effect=effect), refusal=refusal, steps=(step,))


def _refused(visit: Visit, refusal: Refusal, effect: Effect, signed: Signed) -> Transition:
    return spans.refused(
        visit,
        refusal,
        effect=effect,
        signer=signed.person,
        key_fingerprint=signed.key,
        statement_digest=statement_digest(signed.signed).hex(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Yes:
    """A yes that may be written, and what it was decided on."""

    signed: Signed
    wait: ApprovalWait
    decided: Decided


def _agreed(visit: Visit, pinned: Pinned, effect: Effect, locked: Locked, yes: _Yes) -> Verdict[Answered]:
    """Write a yes; with the last one of the quorum also the permit (6)."""
    signed, decision = yes.signed, yes.decided.decision
    given = Approval(
        effect_id=effect.effect_id,
        person=signed.person,
        key=signed.key,
        signature=signed.armored,
        at_ms=locked.now,
    )
    wanted = all_wanted(yes.wait.approvers, decision.approval.approvers)
    found = counted(
        visit.house,
        effect,
        locked,
        signed.statement,
        wanted,
        given=(*locked.view.approvals(effect.effect_id), given),
    )
    counting = {person: groups for person, groups in found.allowed.items() if groups}
    if signed.person not in counting:
        return _no(visit, effect, _not_an_approver(has_errors=found.has_errors), signed)
    is_full = is_quorum(wanted, counting)
    if is_full:
        no_room = refuse_use(visit.house, locked.view, locked.path, effect, stored=True)
        if no_room is not None:
            return _no(visit, effect, no_room, signed)
    persons = tuple(sorted(counting))
    transition = spans.beside(
        visit,
        TransitionName.EFFECT_APPROVED,
        effect,
        signer=signed.person,
        key_fingerprint=signed.key,
        statement_digest=statement_digest(signed.statement).hex(),
        approvers=spans.amounts_of_people(wanted),
        approvals=persons,
        **decision_attributes(decision),
    )
    changes = (DecisionRecorded(decision=yes.decided.row), ApprovalGiven(approval=given))
    step = Step(transition=transition, changes=changes)
    if not is_full:
        return Verdict(value=Answered(effect=effect), steps=(step,))
    return _permitted(visit, pinned, effect, locked, decision, persons=persons, given=step)


def _permitted(
    visit: Visit,
    pinned: Pinned,
    effect: Effect,
    locked: Locked,
    decision: Decision,
    *,
    persons: tuple[str, ...],
    given: Step,
) -> Verdict[Answered]:
    """Return the permit of an approved effect: slots are taken, bounds of the class are not (POL-03, BUD-06)."""
    # The yes covers what the statement says, its expiry included (APP-01).
    caps = lifetime_caps(pinned.operation, locked) | {"approval": effect.expires_ms}
    permit = sealed(visit.house, effect, Tier.APPROVAL, caps, locked.now)
    transition = spans.moved(
        visit,
        effect,
        EffectState.PERMITTED,
        tier=str(Tier.APPROVAL),
        expires__ms=permit.expires_ms,
        approvals=persons,
        **decision_attributes(decision),
    )
    step = Step(
        transition=transition,
        changes=(
            PermitIssued(permit=permit, takes=slot_takes(locked.path, effect)),
            EffectMoved(effect_id=effect.effect_id, origin=effect.state, target=EffectState.PERMITTED),
        ),
    )
    names = (*decision.approval.obligations, *decision.obligations, *pinned.operation.terms.cleanup)
    obliged = obliged_steps(visit, effect, tuple(dict.fromkeys(names)), locked.now)
    moved = replace(effect, state=EffectState.PERMITTED, expires_ms=permit.expires_ms)
    return Verdict(value=Answered(effect=moved, is_complete=True), steps=(given, step, *obliged))


def _declined(visit: Visit, effect: Effect, signed: Signed, why: Declining) -> Verdict[Answered]:
    reference = {} if why.reference is None else {"reference": why.reference}
    transition = spans.moved(
        visit,
        effect,
        EffectState.DECLINED,
        signer=signed.person,
        key_fingerprint=signed.key,
        statement_digest=statement_digest(signed.signed).hex(),
        reason=why.reason,
        **reference,
    )
    moved = EffectMoved(effect_id=effect.effect_id, origin=effect.state, target=EffectState.DECLINED)
    ended = replace(effect, state=EffectState.DECLINED)
    return Verdict(value=Answered(effect=ended), steps=(Step(transition=transition, changes=(moved,)),))


def withdraw(visit: Visit, effect: Effect, reason: str, view: View, now: InstantMs) -> Verdict[Answered]:
    """Decide about taking an effect back under the lock: by its own caller, before it is admitted (APP-05)."""
    current = view.effect(effect.effect_id)
    if current is None:
        over = collected_since(view, effect)
        return _not_withdrawn(visit, over, Refusal(code=RefusalCode.COLLECTED))
    no = _refuse_withdrawal(view, current)
    if no is None and refuse_expiry(current, now) is not None:
        ended = replace(current, state=EffectState.EXPIRED)
        late = Refusal(code=RefusalCode.EXPIRED)
        return Verdict(value=Answered(effect=ended), refusal=late, steps=(expired_step(visit, current),))
    if no is not None:
        return _not_withdrawn(visit, current, no)
    moved = EffectMoved(effect_id=current.effect_id, origin=current.state, target=EffectState.WITHDRAWN)
    transition = spans.moved(visit, current, EffectState.WITHDRAWN, reason=reason)
    ended = replace(current, state=EffectState.WITHDRAWN)
    return Verdict(value=Answered(effect=ended), steps=(Step(transition=transition, changes=(moved,)),))


def _refuse_withdrawal(view: View, effect: Effect) -> Refusal | None:
    if effect.state in UNRESOLVED | SETTLED or view.was_admitted(effect.effect_id):
        return Refusal(code=RefusalCode.TOO_LATE)
    if effect.state is EffectState.WITHDRAWN:
        return Refusal(code=RefusalCode.NOTHING_TO_CHANGE)
    if effect.state not in PENDING:
        return Refusal(code=_OVER[effect.state])
    view.demand_pending(effect.effect_id)
    return None if view.is_genuine(effect) else Refusal(code=RefusalCode.PERMIT_BROKEN, field="effect")


def _not_withdrawn(visit: Visit, effect: Effect, refusal: Refusal) -> Verdict[Answered]:
    step = Step(transition=spans.refused(visit, refusal, effect=effect))
    return Verdict(value=Answered(effect=effect), refusal=refusal, steps=(step,))
