"""`reconcile` and `acknowledge`: learning the truth about an effect, and accepting that nobody knows it.

Rules: REC-01 to REC-06, POL-01 and EFF-08 (a policy says which person may do it, to own effects and to those of hosts
and actors, who may not; without such a policy the effect has to be one of the caller's), SUR-05 (an effect that
stays unknown is answered so that nobody takes it for a reason to repeat). What is overdue becomes `unknown` first
(ADM-07).
Next: `issuer.flow.reconcile`, `issuer.flow.resend`, `issuer.flow.acknowledge`.
"""

import re
from dataclasses import replace
from typing import Final

from audit import AuditUnavailable
from issuer import answering
from issuer.clock import instant_text
from issuer.commands.edge import at_the_edge
from issuer.commands.roles import ACKNOWLEDGE, RECONCILE, find_to
from issuer.commands.standing import settled_answer
from issuer.flow import acknowledge as acknowledging
from issuer.flow.attempts import AttemptKind
from issuer.flow.capacity import restore_ballast
from issuer.flow.dispatch import confirmed
from issuer.flow.overdue import sweep
from issuer.flow.reconcile import Attempt, Reconciled, begin, carried_out, inspecting, rests_on_a_claim
from issuer.flow.reference import bound_operation, missing, open_binding, open_to_inspect
from issuer.flow.refusing import RefusedError
from issuer.flow.resend import demand_resendable, refuse_resend, resending
from issuer.house import House, Visit
from issuer.operations.registry import Operation
from issuer.wire import Answer, code_of
from ledger.errors import Fault, Malformed
from ledger.model import Effect
from ledger.refusals import Refusal, RefusalCode
from ledger.rules import refuse_settling
from ledger.states import SETTLED, EffectState

_WORD: Final = re.compile(r"[a-z][a-z0-9_]{0,63}\Z")
"""What a reason may be: a word of the operator's own, and no free text (AUD-07)."""

_SAYS: Final = {
    "absence_never_proves": "It was not found, and the contract does not take that as proof.",
    "contract_changed": "It was not found, and the contract that says what that proves is not the one it was bound to.",
    "sender_not_gone": "It was not found, and whoever sent it may still be sending.",
    "absence_too_early": "It was not found, and it is too early to take that as proof.",
    "another_found": "Something else was found in its place.",
    "inspection_unclear": "The service was asked, and its answer proves nothing.",
    "attempt_overdue": "The attempt took longer than it may, so it counts for nothing.",
    "terms_changed": "The owner's terms changed during the attempt, so it counts for nothing.",
    "resend_not_sent": "Nothing was sent again.",
    "resend_answer_lost": "It was sent again under the same key, and the answer was lost.",
}
_REFUSED_SAYS: Final = {
    "resend_in_flight": "Another resend may still be under way.",
    "sender_not_gone": "Whoever sent it may still be sending, so nothing is sent again.",
    "revoked": "It is revoked, so nothing is sent again; look at the service.",
    "suspended": "It is frozen, so nothing is sent again until it is thawed.",
    "key_forgotten": "The service may have forgotten the key by now, so nothing is sent again.",
}


def reconcile(visit: Visit, reference: str, *, resend: bool = False) -> Answer:
    """Look once at what became of an effect, or with `resend` send it again under its key; record what that proves.

    An attempt ends under the revision that it began under, or counts for nothing (REC-01).
    """
    kind = AttemptKind.RESEND if resend else AttemptKind.INSPECT
    found: list[Effect] = []

    def run() -> Answer:
        effect = _found(visit, reference, found, RECONCILE)
        if effect.state in SETTLED and (resend or not _is_claimed(visit.house, effect)):
            return settled_answer(visit.house, effect)
        if effect.state is not EffectState.UNKNOWN and effect.state not in SETTLED:
            raise _not_unknown(effect)
        restore_ballast(visit.house)
        try:
            return _attempted(visit, effect, kind)
        except RefusedError:
            if effect.state not in SETTLED:
                raise
            # It cannot be looked at any more (its content went with its end), and it is settled all the same.
            return settled_answer(visit.house, effect)

    return at_the_edge(visit, run, found)


def _found(visit: Visit, reference: str, found: list[Effect], action: str) -> Effect:
    """Return the effect that the caller may act on, as it stands once everything overdue has ended (EFF-08, ADM-07)."""
    effect = find_to(visit, reference, action)
    if effect is None:
        raise missing(visit, reference)
    found.append(effect)
    if effect.state is EffectState.ADMITTED:
        sweep(visit)
        effect_id = effect.effect_id
        effect = visit.house.ledger.read(lambda view: view.effect(effect_id)) or effect
        found.append(effect)
    return effect


def _not_unknown(effect: Effect) -> RefusedError:
    no = refuse_settling(effect) or Refusal(code=RefusalCode.ALREADY_CONSUMED)
    is_live = effect.state is EffectState.ADMITTED
    say = "Its sender may still be at work, so nobody looks yet." if is_live else ""
    if no.code is RefusalCode.NOT_PERMITTED_YET:
        say = "It was never admitted, so there is nothing to find out; nothing was sent."
    return RefusedError(no.code, say=say)


def _is_claimed(house: House, effect: Effect) -> bool:
    return rests_on_a_claim(effect, house.ledger.read(lambda view: view.evidence(effect.effect_id)))


def _attempted(visit: Visit, effect: Effect, kind: AttemptKind) -> Answer:
    house = visit.house
    if kind is AttemptKind.RESEND:
        operation = _bound(house, effect)
        demand_resendable(operation)
        pinned, is_contract = open_binding(house, effect, operation), True
        committed = begin(
            visit, effect, pinned, kind, is_contract=is_contract, allow=refuse_resend(house, pinned)
        )
    else:
        pinned, is_contract = open_to_inspect(house, effect)
        if pinned.operation.inspector is None:
            say = "The contract of this operation names no way to find out what became of it."
            raise RefusedError(RefusalCode.UNSUPPORTED, field="inspect", say=say)
        committed = begin(
            visit,
            effect,
            pinned,
            kind,
            is_contract=is_contract,
            allow=lambda _view, _effect, _story, _now: None,
        )
    attempt = committed.value
    if not isinstance(attempt, Attempt):
        return _refused(house, committed.refusal, attempt)
    ask = resending(house, attempt) if kind is AttemptKind.RESEND else inspecting(house, attempt)
    try:
        return _answer(house, carried_out(visit, attempt, ask))
    except AuditUnavailable:
        raise  # before anything was asked
    except Fault:
        # What was asked, or sent again, could not be recorded: the effect stands as it did.
        return answering.about(house, str(RefusalCode.OUTCOME_UNKNOWN), attempt.effect)


def _bound(house: House, effect: Effect) -> Operation:
    try:
        return bound_operation(house, effect)
    except RefusedError as no:
        say = "What was sent cannot be made again byte for byte, so nothing is sent again."
        raise RefusedError(RefusalCode.UNSUPPORTED, field=no.refusal.field or "contract", say=say) from None


def _refused(house: House, refusal: Refusal | None, effect: Effect) -> Answer:
    if refusal is None:
        return answering.about(house, "fault", effect)
    if effect.state in SETTLED:
        return settled_answer(house, effect)
    if refusal.retryable:
        # An unknown effect is never answered so that something repeats by itself (SUR-05).
        refusal = Refusal(code=RefusalCode.OUTCOME_UNKNOWN, field=str(refusal.code), level=refusal.level)
    return answering.refused(house, refusal, effect, say=_REFUSED_SAYS.get(refusal.field or "", ""))


def _answer(house: House, done: Reconciled) -> Answer:
    more = {"attempt": _attempt(done)}
    if done.effect.state in SETTLED:
        answer = settled_answer(house, done.effect)
        return replace(answer, more={**answer.more, **more})
    confirmed(house, done.effect.sequence)  # nothing is reported as done, so nobody waits for a yes
    fixed = answering.say_of(code_of(done.effect.state))
    why = _SAYS.get(done.outcome.reason, "")
    if done.contradicts:
        why = "What was seen contradicts what is on record, so a person has to look."
    return answering.about(
        house, code_of(done.effect.state), done.effect, say=f"{why} {fixed}".strip(), more=more
    )


def _attempt(done: Reconciled) -> dict[str, object]:
    return {
        "kind": str(done.kind),
        "seen": done.outcome.seen,
        "reason": done.outcome.reason,
        "source": done.outcome.source,
        "contradicts": done.contradicts,
        "began": instant_text(done.began_ms),
        "deadline": instant_text(done.deadline_ms),
    }


def acknowledge(visit: Visit, reference: str, *, reason: str, charge: bool = False) -> Answer:
    """Record that an operator accepts the risk of an unknown effect; with `charge` its maximum is charged (REC-04)."""
    found: list[Effect] = []

    def run() -> Answer:
        effect = _found(visit, reference, found, ACKNOWLEDGE)
        if type(reason) is not str or not _WORD.match(reason):
            message = "a reason is one word of small letters, digits and underscores"
            raise Malformed("not_a_word", "reason", message)
        if type(charge) is not bool:
            raise Malformed("wrong_type", "charge", "charge is true or false")
        if effect.state is not EffectState.UNKNOWN:
            raise _not_unknown(effect)
        committed = acknowledging.acknowledge(visit, effect, reason=reason, charge=charge)
        if committed.refusal is not None:
            return answering.refused(visit.house, committed.refusal, committed.value)
        say = "" if charge is False else "Its whole maximum is charged; the effect stays unknown."
        return answering.about(visit.house, "acknowledged", committed.value, say=say)

    return at_the_edge(visit, run, found)
