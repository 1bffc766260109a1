"""The functional core: what the ledger holds, a command and an instant in; a refusal, or nothing against it, out.

Rules: ADM-01, ADM-04, ADM-07, BUD-05, EFF-08, EFF-11, INV-01, INV-02, PER-03, REP-01..06, REC-07. No clock,
no disk, no randomness.
Each function checks one thing and says no in the words of `ledger.refusals`; the flow asks them in a numbered order.
What a policy says is not here; `policies` decides that on facts read under the same lock.
Next: `issuer.flow` asks, and `ledger.changes` carries what it decided.
"""

import hmac
from collections.abc import Mapping, Sequence
from typing import Final

from ledger.changes import Change, CostSettled, EffectMoved, EvidenceAdded
from ledger.invocations import Invocation, Obligation
from ledger.model import (
    AMOUNT_MAX,
    Amounts,
    Claim,
    CounterTake,
    Effect,
    Evidence,
    EvidenceClass,
    InstantMs,
    PathNode,
    Permit,
    TaskState,
    Unit,
    costs,
    plain,
)
from ledger.refusals import Refusal, RefusalCode
from ledger.states import SETTLED, UNUSED, EffectState

_NOT_ADMISSIBLE: Mapping[EffectState, RefusalCode] = {
    EffectState.PREPARED: RefusalCode.NOT_PERMITTED_YET,
    EffectState.AWAITING_APPROVAL: RefusalCode.NOT_PERMITTED_YET,
    EffectState.DENIED: RefusalCode.DENIED,
    EffectState.DECLINED: RefusalCode.DECLINED,
    EffectState.WITHDRAWN: RefusalCode.WITHDRAWN,
    EffectState.EXPIRED: RefusalCode.EXPIRED,
    EffectState.REVOKED: RefusalCode.REVOKED,
    EffectState.ADMITTED: RefusalCode.ALREADY_CONSUMED,
    EffectState.UNKNOWN: RefusalCode.OUTCOME_UNKNOWN,
    EffectState.SUCCEEDED: RefusalCode.ALREADY_CONSUMED,
    EffectState.FAILED: RefusalCode.ALREADY_CONSUMED,
    EffectState.NO_EFFECT: RefusalCode.ALREADY_CONSUMED,
}


def refuse_path(path: tuple[PathNode, ...], now: InstantMs) -> Refusal | None:
    """Refuse where the task or any ancestor is closed, frozen or expired (BUD-05); the lowest level speaks first."""
    if not path:
        return Refusal(code=RefusalCode.UNKNOWN_REFERENCE, field="task")
    for node in path:
        if node.task.state is not TaskState.OPEN:
            is_frozen = node.task.state is TaskState.FROZEN
            code = RefusalCode.TASK_FROZEN if is_frozen else RefusalCode.TASK_CLOSED
            return Refusal(code=code, level=node.task.name)
        if now >= node.task.expires_ms:
            return Refusal(code=RefusalCode.TASK_EXPIRED, level=node.task.name)
    return None


def refuse_invocation(
    invocation: Invocation | None, path: tuple[PathNode, ...], caller: str, now: InstantMs
) -> Refusal | None:
    """Refuse an invocation that an effect of `caller` in the task of `path` cannot name, or no longer (INV-01).

    One of another caller, or of a task that is not the effect's or above it, reads like a missing one (EFF-08). It is
    over at exactly its deadline, whether or not that was written down yet.
    """
    levels = {node.task.task_id for node in path}
    if invocation is None or invocation.caller != caller or invocation.task_id not in levels:
        return Refusal(code=RefusalCode.UNKNOWN_REFERENCE, field="invocation")
    if invocation.outcome is not None or now >= invocation.deadline_ms:
        return Refusal(code=RefusalCode.INVOCATION_OVER, field="invocation")
    return None


def refuse_success(effects: Sequence[tuple[Effect, Sequence[Obligation]]]) -> Refusal | None:
    """Refuse success while an effect stands against it, and name the first (INV-02).

    Each effect that was admitted has to be settled as succeeded, with everything that it obliges to closed in time;
    one that is over without an admission stands against nothing.
    """
    for effect, obligations in effects:
        if effect.state in UNUSED:
            continue
        if effect.state is not EffectState.SUCCEEDED:
            return Refusal(
                code=RefusalCode.INVOCATION_UNSETTLED, field=str(effect.state), level=effect.effect_id
            )
        open_one = next((one.name for one in obligations if not one.is_kept()), None)
        if open_one is not None:
            return Refusal(code=RefusalCode.INVOCATION_UNSETTLED, field=open_one, level=effect.effect_id)
    return None


def refuse_actor(path: tuple[PathNode, ...], actor: str, subject: str) -> Refusal | None:
    """Refuse an actor that the task does not name, or a subject that is not the task's (BUD-01)."""
    leaf = path[0].task
    if actor not in leaf.actors:
        return Refusal(code=RefusalCode.FORBIDDEN, field="actor", level=leaf.name)
    if subject != leaf.subject:
        return Refusal(code=RefusalCode.FORBIDDEN, field="subject", level=leaf.name)
    return None


def refuse_state(effect: Effect) -> Refusal | None:
    """Refuse an effect that cannot be admitted from where it stands (ADM-04, REP-01)."""
    code = _NOT_ADMISSIBLE.get(effect.state)
    return None if code is None else Refusal(code=code)


def refuse_permit(permit: Permit | None, *, used: bool, in_trail: bool, now: InstantMs) -> Refusal | None:
    """Refuse a permit that is missing, spent, or over at exactly its instant (PER-03, ADM-02, LED-06).

    `in_trail` says that the trail holds an admission of this effect: then the effect's row was set back by someone.
    """
    if permit is None:
        return Refusal(code=RefusalCode.NOT_PERMITTED_YET)
    if used or in_trail:
        return Refusal(code=RefusalCode.ALREADY_CONSUMED)
    if now >= permit.expires_ms:
        return Refusal(code=RefusalCode.EXPIRED)
    return None


def refuse_expiry(effect: Effect, now: InstantMs) -> Refusal | None:
    """Refuse a prepared effect whose binding is over, at exactly its instant (PER-03)."""
    return Refusal(code=RefusalCode.EXPIRED) if now >= effect.expires_ms else None


def refuse_takes(takes: tuple[CounterTake, ...], used: Mapping[str, int]) -> Refusal | None:
    """Refuse where a bound of the class is used up, naming the level (POL-03)."""
    for take in takes:
        if take.amount > take.ceiling - used[take.counter]:
            return Refusal(code=RefusalCode.CLASS_EXHAUSTED, level=take.level)
    return None


def refuse_claim(claim: Claim | None, claim_hash: bytes) -> Refusal | None:
    """Refuse whoever is not the winner of the admission (ADM-07), compared in constant time."""
    if claim is None or not hmac.compare_digest(claim.claim_hash, claim_hash):
        return Refusal(code=RefusalCode.FORBIDDEN, field="claim")
    return None


def refuse_settling(effect: Effect) -> Refusal | None:
    """Refuse to settle what was never admitted, or is settled already: an outcome is written once."""
    if effect.state in {EffectState.ADMITTED, EffectState.UNKNOWN}:
        return None
    return refuse_state(effect) or Refusal(code=RefusalCode.NOT_PERMITTED_YET)


def is_orphaned(claim: Claim, *, now: InstantMs, sender_is_gone: bool) -> bool:
    """Say whether anybody may turn an admission into `unknown`: overdue, or its sender provably gone (ADM-07)."""
    return now >= claim.deadline_ms or sender_is_gone


def outcome_changes(
    effect: Effect,
    *,
    target: EffectState,
    charged: Mapping[Unit, int],
    evidence: Evidence,
    before: Mapping[Unit, int] | None = None,
) -> tuple[Change, ...]:
    """Return the changes that record an outcome.

    `unknown` settles nothing: the maximum stays held (BUD-04, REP-05). Every other outcome settles what is charged
    and releases the rest (BUD-03); `no_effect` charges nothing (REP-04). An effect that is `unknown` and stays so
    only gains evidence. Of what an operator acknowledged as a charge `before`, nothing comes back: only what is
    charged beyond it is settled (REC-04).
    """
    added = EvidenceAdded(evidence=evidence)
    if target is effect.state:
        return (added,)
    moved = EffectMoved(effect_id=effect.effect_id, origin=effect.state, target=target)
    if target is EffectState.UNKNOWN:
        return (added, moved)
    beyond = charged
    if before:
        beyond = {unit: amount - before.get(unit, 0) for unit, amount in charged.items()}
        beyond = {unit: amount for unit, amount in beyond.items() if amount > 0}
    if before and not beyond:
        return (added, moved)
    settled = CostSettled(effect_id=effect.effect_id, task_id=effect.task_id, charged=beyond)
    return (added, settled, moved)


_PROVES_A_CHARGE: Final = frozenset({EvidenceClass.SERVICE, EvidenceClass.INSPECTION, EvidenceClass.WRAPPER})


def proven_charge(known: Sequence[Evidence]) -> Mapping[Unit, int]:
    """Return the most that evidence of a service proves so far, per unit: no later settlement goes below it (REC-05).

    A host's word is not among it (REC-07), nor what an operator acknowledged, which is settled already.
    """
    highest: dict[Unit, int] = {}
    for item in known:
        if item.evidence_class in _PROVES_A_CHARGE:
            for unit, amount in item.charged.items():
                highest[unit] = max(highest.get(unit, 0), amount)
    return highest


def final_charge(
    effect: Effect,
    target: EffectState,
    *,
    measured: Mapping[Unit, int] | None,
    known: Sequence[Evidence],
    before: Mapping[Unit, int],
) -> Mapping[Unit, int]:
    """Return what an effect stands charged with once it ends in `target`: nothing for `no_effect`, else the measured.

    A unit that nobody measured is charged its maximum: silence about it releases nothing (REP-06). What was proven
    before, or charged `before` by an operator's acknowledgement, is the least.
    """
    is_nothing = target is EffectState.NO_EFFECT
    charge = dict.fromkeys(effect.cost, 0) if is_nothing else {**effect.cost, **(measured or {})}
    for least in (proven_charge(known), before):
        charge.update({unit: max(charge.get(unit, 0), amount) for unit, amount in least.items()})
    return charge


def contradicted(effect: Effect, known: Sequence[Evidence], target: EffectState) -> str | None:
    """Return what evidence for `target` contradicts, as one word, or None (REC-05).

    Of an effect that is over: its outcome, where that is another. Of one that is not: a charge or an answer of the
    service that is on record, where the evidence says that there was no effect.
    """
    if target is EffectState.UNKNOWN:
        return None
    if effect.state in SETTLED:
        return None if target is effect.state else str(effect.state)
    if target is not EffectState.NO_EFFECT:
        return None
    if any(proven_charge(known).values()):
        return "charge"
    heard = any(item.evidence_class in {EvidenceClass.SERVICE, EvidenceClass.WRAPPER} for item in known)
    return "service_answer" if heard else None


def host_claim_charge(effect: Effect, reported: Mapping[Unit, int] | None) -> Mapping[Unit, int]:
    """Return what a host's word can charge: never less than the maximum of any unit (REC-07), more in full (BUD-03)."""
    units = {**dict.fromkeys(effect.cost, 0), **(reported or {})}
    return {
        unit: min(AMOUNT_MAX, max(effect.cost.get(unit, 0), (reported or {}).get(unit, 0)))
        for unit in sorted(units)
    }


def evidence_of(
    effect: Effect,
    *,
    evidence_class: EvidenceClass,
    source: str,
    proves: str,
    reference: str,
    late: bool,
    now: InstantMs,
    charged: Amounts | None = None,
) -> Evidence:
    """Return one piece of evidence about `effect` as of `now`; `charged` is what it says of costs (REC-05)."""
    return Evidence(
        effect_id=effect.effect_id,
        evidence_class=evidence_class,
        source=source,
        proves=proves,
        reference=reference,
        late=late,
        at_ms=now,
        charged=costs(plain(charged or {})),
    )
