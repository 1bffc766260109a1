"""Step 5 of 8: admit. The one transaction that spends the permit, records the intent and holds the money.

Rules: ADM-01 (what is checked), ADM-02 (all or nothing), ADM-04 (exactly one winner), POL-05 and APP-04 (permission is
asked again), EFF-07 (nothing is widened to a changed target), LED-06. Under the lock, in order:
  1. where the effect stands; an orphaned admission ends here   2. its permit: there, unused, in time, and no
  admission of it in the trail   3. its row is genuine and the one that was opened, and the seal opens
  4. nothing of it is revoked or frozen; the invocation that it names, the task and its ancestors, and what they name
  5. the object's preconditions, looked at just before   6. whose call it is, policy and the bounds of the class, again;
  behind an approved permit also each person whose yes it rests on   7. the budget at every level, and space for the
  outcome   8. consume, claim, reserve, span.
Next: step 6, `issuer.flow.dispatch`, which only the winner reaches.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from issuer.caller import refuse_caller, refuse_speaker
from issuer.flow import spans
from issuer.flow.approvers import refuse_approval
from issuer.flow.binding import Pinned
from issuer.flow.capacity import refuse_space
from issuer.flow.content import erase_content
from issuer.flow.decide import decide, decision_attributes
from issuer.flow.invocations import named, refuse_named
from issuer.flow.overdue import expired_step, gone_senders, orphaned_step
from issuer.flow.refusing import collected_since
from issuer.flow.seal import seal_holds
from issuer.flow.stops import VOID, refuse_stopped, revoked_step, void_by
from issuer.house import House, Locked, Visit
from issuer.ids import new_claim
from issuer.notifying import tell_unknown
from ledger.budgets import refuse_cost, reserved_lines
from ledger.changes import CostReserved, DecisionRecorded, EffectMoved, PermitUsed, Step
from ledger.errors import Broken
from ledger.model import Claim, Effect, InstantMs, Permit, Tier
from ledger.port import Committed, Verdict, View
from ledger.refusals import Refusal, RefusalCode
from ledger.rules import refuse_path, refuse_permit, refuse_state
from ledger.scope import refuse_scope
from ledger.states import EffectState


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """The one caller that may act on an admission (ADM-04, ADM-07).

    Attributes:
        secret: what it reports with; only its hash is stored.
        instance: the process that holds the claim; empty where a host outside holds it.
    """

    secret: str
    instance: str
    boot: str

    @property
    def claim_hash(self) -> bytes:
        """What the ledger stores of the secret."""
        return claim_hash(self.secret)


def claim_hash(secret: str) -> bytes:
    """Return what the ledger stores of a claim's secret; what is no text is hashed too, and matches none."""
    said = secret.encode("utf-8", "surrogatepass") if type(secret) is str else b""
    return hashlib.sha256(said).digest()


def winner_here(house: House) -> Winner:
    """Return a claim for this process: its end is provable by its lock."""
    return Winner(secret=new_claim(), instance=house.instance.name, boot=house.instance.boot)


def winner_outside() -> Winner:
    """Return a claim for a host outside: only its deadline tells that it is over."""
    return Winner(secret=new_claim(), instance="", boot="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """What admission found or made of an effect.

    Attributes:
        effect: as it stands after the transaction.
        claim: the winner's; None where this caller did not win.
        say: the owner's sentence where a policy refused.
    """

    effect: Effect
    claim: Claim | None = None
    say: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One caller's try at an admission.

    Attributes:
        pinned: what the effect is bound to, opened and proven.
        winner: the claim it will hold if it wins.
        target: what the last look at the object said against it, or None (rule 5).
        statement: what people signed, made again from the record; None where there is none to make (rule 6).
    """

    pinned: Pinned
    winner: Winner
    target: Refusal | None
    statement: bytes | None = None


def admit(visit: Visit, effect: Effect, attempt: Attempt) -> Committed[Admitted]:
    """Admit `effect`, or say why not; a no leaves permit and budget untouched, and is on record.

    Raises:
        Fault: as `ledger.port.Ledger.transact`.
    """
    known = visit.house.ledger.read(lambda view: view.claim(effect.effect_id))
    gone = gone_senders(visit.house, () if known is None else (known,))

    def decide_under_lock(view: View, now: InstantMs) -> Verdict[Admitted]:
        current = view.effect(effect.effect_id)
        if current is None:
            over = collected_since(view, effect)
            return _refused(visit, over, Refusal(code=RefusalCode.COLLECTED))
        claim, is_gone = view.claim(current.effect_id), current.effect_id in gone
        orphaned = orphaned_step(visit, current, claim, now, sender_is_gone=is_gone)
        if orphaned is not None:  # 1
            no = Refusal(code=RefusalCode.OUTCOME_UNKNOWN)
            lost = replace(current, state=EffectState.UNKNOWN)
            return Verdict(value=Admitted(effect=lost), refusal=no, steps=(orphaned,))
        locked = Locked(view=view, now=now, path=view.path(current.task_id), invocation=named(view, current))
        no_yet = _refuse_before_policy(visit.house, current, locked, attempt.target)
        no_yet = no_yet or _refuse_calling(visit, view, current)  # 6
        if no_yet is None and effect.state is not EffectState.PERMITTED:
            # It was permitted after this caller looked at it, so neither target nor approval was looked at for it.
            no_yet = Refusal(code=RefusalCode.NOT_PERMITTED_YET)
        if no_yet is None and current.binding_digest != effect.binding_digest:
            # What will be sent was opened from the earlier row, so it must be this one, not only a genuine one.
            no_yet = Refusal(code=RefusalCode.PERMIT_BROKEN, field="binding")
        if no_yet is not None:
            return _void(visit, current, no_yet, view) or _refused(visit, current, no_yet)
        # 2: that it is unused does not rest on the absence of rows alone
        view.demand_pending(current.effect_id)
        return _decided(visit, attempt, current, locked)

    committed = visit.house.ledger.transact(decide_under_lock)
    if committed.refusal is not None and committed.refusal.code in {RefusalCode.EXPIRED, RefusalCode.REVOKED}:
        erase_content(visit.house, (effect,))
    if committed.value.effect.state is EffectState.UNKNOWN:
        tell_unknown(visit.house, committed.value.effect)
    return committed


def _refuse_before_policy(
    house: House, effect: Effect, locked: Locked, target: Refusal | None
) -> Refusal | None:
    view = locked.view
    permit = view.permit(effect.effect_id)
    return (
        refuse_state(effect)  # 1
        or refuse_permit(  # 2
            permit,
            used=permit is not None and view.is_used(permit.permit_id),
            in_trail=view.was_admitted(effect.effect_id),
            now=locked.now,
        )
        or _refuse_row(view, effect)  # 3
        or _refuse_seal(house, effect, permit)
        or refuse_stopped(view, house, effect)  # 4
        or refuse_named(effect, locked)
        or refuse_path(locked.path, locked.now)
        or refuse_scope(locked.path, effect)
        or target  # 5
    )


def _refuse_calling(visit: Visit, view: View, effect: Effect) -> Refusal | None:
    """Refuse a caller whose credential is void by now, or that may not speak for this actor or person any more."""
    no = refuse_caller(view, visit.caller)
    return no or refuse_speaker(visit.caller, effect.actor, effect.subject)


def _refuse_row(view: View, effect: Effect) -> Refusal | None:
    """Refuse an effect whose row was edited: the seal covers the binding, this covers the rest of it (LED-06)."""
    return None if view.is_genuine(effect) else Refusal(code=RefusalCode.PERMIT_BROKEN, field="effect")


def _refuse_seal(house: House, effect: Effect, permit: Permit | None) -> Refusal | None:
    """Refuse a permit whose seal does not open for exactly this effect, binding and ledger (PER-02)."""
    if permit is not None and seal_holds(house.ring, house.ledger.ledger_id, effect, permit):
        return None
    return Refusal(code=RefusalCode.PERMIT_BROKEN, field="seal")


def _decided(visit: Visit, attempt: Attempt, effect: Effect, locked: Locked) -> Verdict[Admitted]:
    permit = locked.view.permit(effect.effect_id)
    if permit is None:
        raise Broken("a permit that was read is gone")
    taken = permit.tier is Tier.ISSUE
    decided = decide(visit.house, attempt.pinned, effect, locked, stored=True, taken=taken)  # 6
    decision = decided.decision
    if not (decision.issue.allowed or (permit.tier is Tier.APPROVAL and decision.approval.allowed)):
        said = decision_attributes(decision)
        if (
            decided.exhausted is not None
        ):  # no policy says no: the owner has lowered a bound of the class since
            return _refused(visit, effect, decided.exhausted, extra=said)
        code = RefusalCode.POLICY_ERROR if decision.code == "policy_error" else RefusalCode.DENIED
        return _refused(
            visit, effect, Refusal(code=code), say=decision.issue.say or decision.say or "", extra=said
        )
    approvals: dict[str, tuple[str, ...]] = {}
    if permit.tier is Tier.APPROVAL:
        current = decision.approval.approvers
        gone, persons = refuse_approval(visit.house, effect, locked, attempt.statement, current)
        if gone is not None:
            return _refused(visit, effect, gone, extra=decision_attributes(decision))
        approvals = {"approvals": persons}
    no_room = refuse_cost(locked.path, effect.cost) or refuse_space(visit.house, locked.view)  # 7
    if no_room is not None:
        return _refused(visit, effect, no_room)
    claim = _claim(attempt, effect, locked.now)  # 8
    transition = spans.moved(
        visit,
        effect,
        EffectState.ADMITTED,
        tier=str(permit.tier),
        cost=spans.amounts(effect.cost),
        deadline__ms=claim.deadline_ms,
        permit_id=permit.permit_id,
        reservation=reserved_lines(locked.path, effect.cost),
        **approvals,
        **decision_attributes(decision),
    )
    step = Step(
        transition=transition,
        changes=(
            DecisionRecorded(decision=decided.row),
            PermitUsed(permit=permit, claim=claim),
            CostReserved(effect_id=effect.effect_id, task_id=effect.task_id, cost=effect.cost),
            EffectMoved(effect_id=effect.effect_id, origin=effect.state, target=EffectState.ADMITTED),
        ),
    )
    return Verdict(value=Admitted(effect=effect, claim=claim), steps=(step,))


def _claim(attempt: Attempt, effect: Effect, now: InstantMs) -> Claim:
    return Claim(
        effect_id=effect.effect_id,
        instance=attempt.winner.instance,
        boot=attempt.winner.boot,
        claim_hash=attempt.winner.claim_hash,
        admitted_ms=now,
        deadline_ms=InstantMs(now + attempt.pinned.operation.deadline_ms),
    )


def _void(visit: Visit, effect: Effect, refusal: Refusal, view: View) -> Verdict[Admitted] | None:
    """Return the end of a permit that is found void under the lock, a move of its own; None for any other no."""
    if refusal.code is not RefusalCode.REVOKED or effect.state is not EffectState.PERMITTED:
        return None
    step = revoked_step(visit, effect, reason=VOID, stop=void_by(view, visit.house, effect))
    over = replace(effect, state=EffectState.REVOKED)
    return Verdict(value=Admitted(effect=over), refusal=refusal, steps=(step,))


def _refused(
    visit: Visit,
    effect: Effect,
    refusal: Refusal,
    *,
    say: str = "",
    extra: Mapping[str, str | tuple[str, ...]] | None = None,
) -> Verdict[Admitted]:
    """Return a no with its span. A permit found expired under the lock ends its effect: a move of its own."""
    if refusal.code is RefusalCode.EXPIRED and effect.state is EffectState.PERMITTED:
        over = replace(effect, state=EffectState.EXPIRED)
        return Verdict(value=Admitted(effect=over), refusal=refusal, steps=(expired_step(visit, effect),))
    step = Step(transition=spans.refused(visit, refusal, effect=effect, **(extra or {})))
    return Verdict(value=Admitted(effect=effect, say=say), refusal=refusal, steps=(step,))
