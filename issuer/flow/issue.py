"""Step 4 of 8: issue. The decision becomes a sealed one-use permit, a wait for a person, or a no.

Rules: PER-01 to PER-03, POL-01, POL-03, APP-01 (who is asked, over which statement), AUD-01, EFF-09 (what
the deciding policies oblige to opens with the permit). It runs under the lock that the decision was made under, and
writes the decision, the permit or the wait, and what the permit takes from its class in that same transaction.
Next: step 5, `issuer.flow.admit`.
"""

from dataclasses import dataclass
from typing import Final

from issuer.flow import spans
from issuer.flow.approvers import nobody_can_answer
from issuer.flow.binding import Pinned
from issuer.flow.decide import Decided, decide, decision_attributes
from issuer.flow.invocations import obliged_steps
from issuer.flow.lifetimes import lifetime_caps
from issuer.flow.statements import Asked, first_statement, statement_digest
from issuer.house import House, Locked, Visit
from issuer.ids import new_permit_id, random_bytes
from issuer.sealing import NONCE_BYTES, PermitClaims, seal_permit
from ledger.authority import ApprovalWait
from ledger.changes import ApprovalAsked, DecisionRecorded, EffectMoved, PermitIssued, Step
from ledger.model import Effect, InstantMs, Permit, Tier
from ledger.refusals import Refusal, RefusalCode
from ledger.scope import slot_takes
from ledger.states import EffectState

NOBODY_CAN_ANSWER: Final = (
    "A person has to approve this, and nobody who could is registered with a key: tell the owner. "
    "Nothing may be sent."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """What became of a prepared effect: its new state, the steps to write, and the no where it is one."""

    state: EffectState
    steps: tuple[Step, ...]
    refusal: Refusal | None
    say: str
    expires_ms: InstantMs | None = None


def issue(
    visit: Visit,
    pinned: Pinned,
    effect: Effect,
    locked: Locked,
    *,
    stored: bool,
) -> Issued:
    """Decide about a prepared effect and return the steps that record it.

    `stored` says that the ledger already has the effect (it was held).
    """
    decided = decide(visit.house, pinned, effect, locked, stored=stored, taken=False)
    return issued(visit, pinned, effect, locked, decided)


def issued(visit: Visit, pinned: Pinned, effect: Effect, locked: Locked, decided: Decided) -> Issued:
    """Return the steps that record what was decided about a prepared effect."""
    match decided.decision.code:
        case "permit":
            return _permitted(visit, pinned, effect, locked, decided)
        case "approval":
            return _awaiting(visit, pinned, effect, locked, decided)
        case "denied" | "policy_error":
            return _denied(visit, effect, decided)


def _permitted(
    visit: Visit,
    pinned: Pinned,
    effect: Effect,
    locked: Locked,
    decided: Decided,
) -> Issued:
    caps = lifetime_caps(pinned.operation, locked)
    permit = sealed(visit.house, effect, Tier.ISSUE, caps, locked.now)
    transition = spans.moved(
        visit,
        effect,
        EffectState.PERMITTED,
        tier=str(Tier.ISSUE),
        expires__ms=permit.expires_ms,
        **decision_attributes(decided.decision),
    )
    step = Step(
        transition=transition,
        changes=(
            DecisionRecorded(decision=decided.row),
            PermitIssued(permit=permit, takes=(*decided.takes, *slot_takes(locked.path, effect))),
            EffectMoved(effect_id=effect.effect_id, origin=effect.state, target=EffectState.PERMITTED),
        ),
    )
    # What a policy asks for, and what the operation's contract says has to be put in order afterwards (OPR-01).
    named = (*decided.decision.obligations, *pinned.operation.terms.cleanup)
    obliged = obliged_steps(visit, effect, named, locked.now)
    return Issued(
        state=EffectState.PERMITTED,
        steps=(step, *obliged),
        refusal=None,
        say="",
        expires_ms=permit.expires_ms,
    )


def sealed(house: House, effect: Effect, tier: Tier, caps: dict[str, int], now: InstantMs) -> Permit:
    """Return a sealed permit for `effect`: one use, the earliest of all caps, bound to its digest (PER-02, PER-03)."""
    caps = {**caps, "binding": effect.expires_ms}
    expires = InstantMs(min(caps.values()))
    permit_id = new_permit_id()
    claims = PermitClaims(
        permit_id=permit_id,
        effect_id=effect.effect_id,
        task_id=effect.task_id,
        issued_ms=now,
        expires_ms=expires,
        tier=str(tier),
        bundle_digest=house.bundle.digest,
        costs={str(unit): amount for unit, amount in effect.cost.items()},
    )
    seal = seal_permit(
        house.ring,
        claims,
        ledger_id=house.ledger.ledger_id,
        effect_id=effect.effect_id,
        binding_digest=effect.binding_digest,
        nonce=random_bytes(NONCE_BYTES),
    )
    return Permit(
        permit_id=permit_id,
        effect_id=effect.effect_id,
        seal=seal,
        tier=tier,
        issued_ms=now,
        expires_ms=expires,
        caps=caps,
    )


def _awaiting(visit: Visit, pinned: Pinned, effect: Effect, locked: Locked, decided: Decided) -> Issued:
    """Return the wait for people: whom, and the digest of the one statement that they can sign (APP-01)."""
    wanted = decided.decision.approvers
    asked = Asked(
        task=locked.path[0].task.name, decision=decided.row.body, approvers=wanted, asked_ms=locked.now
    )
    statement = first_statement(visit.house, locked.view, effect, pinned, asked)
    wait = ApprovalWait(
        effect_id=effect.effect_id,
        approvers=wanted,
        statement_digest=statement_digest(statement),
        asked_ms=locked.now,
    )
    transition = spans.moved(
        visit,
        effect,
        EffectState.AWAITING_APPROVAL,
        tier=str(Tier.APPROVAL),
        expires__ms=effect.expires_ms,
        approvers=spans.amounts_of_people(wanted),
        statement_digest=wait.statement_digest.hex(),
        **decision_attributes(decided.decision),
    )
    moved = EffectMoved(effect_id=effect.effect_id, origin=effect.state, target=EffectState.AWAITING_APPROVAL)
    changes = (DecisionRecorded(decision=decided.row), moved, ApprovalAsked(wait=wait))
    say = NOBODY_CAN_ANSWER if nobody_can_answer(visit.house, effect, wanted) else ""
    return Issued(
        state=EffectState.AWAITING_APPROVAL,
        steps=(Step(transition=transition, changes=changes),),
        refusal=None,
        say=say,
    )


def _denied(visit: Visit, effect: Effect, decided: Decided) -> Issued:
    decision = decided.decision
    refusal = decided.exhausted
    if decision.code == "policy_error":
        refusal = Refusal(code=RefusalCode.POLICY_ERROR)
    refusal = refusal or Refusal(code=RefusalCode.DENIED)
    transition = spans.moved(
        visit,
        effect,
        EffectState.DENIED,
        refusal=str(refusal.code),
        **decision_attributes(decision),
    )
    moved = EffectMoved(effect_id=effect.effect_id, origin=effect.state, target=EffectState.DENIED)
    step = Step(transition=transition, changes=(DecisionRecorded(decision=decided.row), moved))
    return Issued(
        state=EffectState.DENIED, steps=(step,), refusal=refusal, say=decision.say or _class_words(refusal)
    )


def _class_words(refusal: Refusal) -> str:
    """Return which bound of the class closed the automatic tier; empty for any other no."""
    if refusal.code is not RefusalCode.CLASS_EXHAUSTED:
        return ""
    if refusal.field is not None:
        return f"One effect of the class {refusal.level} may not cost that much {refusal.field} without a person."
    return f"The bound on automatic permits of this class is used up at {refusal.level}, and no policy asks a person."
