"""`commit`, `dispatch`, `admit` and `report`: the ways in which a permit is used, once.

`commit` is for operations that the issuer sends itself; `dispatch` runs a host's own command under the claim;
`admit` hands the claim to a host outside, which reports with it. Repeating any of them sends nothing: a settled
effect answers where it stands (REP-01, ADR-0005).
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from issuer import answering
from issuer.clock import instant_text
from issuer.commands.edge import at_the_edge
from issuer.commands.standing import settled_answer
from issuer.flow.admit import Admitted, Attempt, Winner, admit, claim_hash, winner_here, winner_outside
from issuer.flow.binding import Pinned
from issuer.flow.capacity import restore_ballast
from issuer.flow.dispatch import Send, Won, adapter_send, confirmed, dispatch, ended, held_back_code
from issuer.flow.host_word import HostWord, host_outcome
from issuer.flow.reference import (
    NOTHING_RESTATED,
    Restated,
    bound_operation,
    find_effect,
    missing,
    open_binding,
    refuse_restated,
    refuse_restated_over,
    refuse_target,
)
from issuer.flow.refusing import RefusedError, unknown_unit
from issuer.flow.settle import Outcome, host_claims, not_sent, settle
from issuer.flow.statements import statement_again
from issuer.flow.steps import Reached
from issuer.house import House, Visit
from issuer.operations.contract import Order, Proof
from issuer.operations.host_adapter import run_child
from issuer.wire import Answer
from ledger.errors import Fault, LedgerCorrupt, Malformed
from ledger.model import Effect, costs
from ledger.port import Committed
from ledger.refusals import RefusalCode
from ledger.rules import refuse_state
from ledger.states import SETTLED, UNRESOLVED, UNUSED, EffectState


def commit(visit: Visit, reference: str, restated: Restated = NOTHING_RESTATED) -> Answer:
    """Admit an effect that the issuer sends itself, send it once, and answer what became of it."""

    def run(effect: Effect) -> Answer:
        if effect.state in SETTLED:
            _demand_as_asked(visit.house, effect, restated)
            return settled_answer(visit.house, effect)
        pinned = _bound(visit.house, effect, restated)
        if pinned.operation.is_sent_by_host:
            _refuse_unresolved(effect)
            say = "The host sends this operation itself; use dispatch, or admit and report."
            raise RefusedError(RefusalCode.UNSUPPORTED, field="commit", say=say)
        return _used(visit, effect, pinned, adapter_send(visit.house, pinned))

    return _referenced(visit, reference, run)


def dispatch_child(visit: Visit, reference: str, argv: Sequence[str]) -> Answer:
    """Admit an effect that the host sends, run the host's command under the claim, and record what it says."""

    def run(effect: Effect) -> Answer:
        if effect.state in SETTLED:
            return settled_answer(visit.house, effect)
        pinned = _bound(visit.house, effect, NOTHING_RESTATED)
        _demand_host(effect, pinned, "dispatch")

        def send(order: Order) -> Outcome:
            declared = pinned.operation.host
            result = run_child(
                argv,
                effect_id=effect.effect_id,
                deadline_ms=order.deadline_ms,
                remaining_ms=order.remaining_ms,
                env=os.environ,
                passes=() if declared is None else declared.environment,
            )
            visit.house.observe(Reached.ANSWERED)
            succeeded = result.proof is Proof.SUCCEEDED
            return host_claims(effect, succeeded=succeeded, reported=None, source=result.source)

        return _used(visit, effect, pinned, send)

    return _referenced(visit, reference, run)


def admit_host(visit: Visit, reference: str) -> Answer:
    """Admit an effect that a host outside sends.

    The answer carries, once, the claim it reports with; until when it may send; and the key under which it sends where
    the service knows idempotency keys, which is the effect's id and no secret.
    """

    def run(effect: Effect) -> Answer:
        pinned = _bound(visit.house, effect, NOTHING_RESTATED)
        _demand_host(effect, pinned, "admit")
        winner = winner_outside()
        committed = _admitted(visit, effect, pinned, winner)
        claim = committed.value.claim
        if committed.refusal is not None or claim is None:
            return _refused(visit.house, committed)
        audited = confirmed(visit.house, committed.sequence)
        reason = ended(visit.house, effect, claim) if audited else "audit_unavailable"
        if reason is not None:
            settle(visit, effect, winner.claim_hash, not_sent(reason))
            none = replace(effect, state=EffectState.NO_EFFECT)
            return answering.about(visit.house, held_back_code(reason), none)
        more = {
            "claim": winner.secret,
            "deadline": instant_text(claim.deadline_ms),
            "service_key": effect.effect_id,
        }
        return answering.about(
            visit.house, "admitted", replace(effect, state=EffectState.ADMITTED), more=more
        )

    return _referenced(visit, reference, run)


def report(
    visit: Visit,
    reference: str,
    claim: str,
    *,
    outcome: str,
    cost: Mapping[str, int] | None = None,
) -> Answer:
    """Record a host's word about an effect that it was admitted to send (REC-07).

    `outcome` is one of `HostWord`. A word of success settles at the maximum at least, any other leaves the effect
    `unknown`; but the first-hand report of a host that the owner admitted as a wrapper counts as it is.
    """

    def run(effect: Effect) -> Answer:
        word = _host_word(outcome)
        reported = None if cost is None else costs(cost)
        for unit in reported or ():
            if unit not in visit.house.units and unit not in effect.cost:
                # A unit is a name that the owner chose, now or when the effect was bound; a host's own words have no
                # place in the trail (SEC-01).
                raise unknown_unit(visit.house, "cost", unit)
        said = host_outcome(
            effect,
            word,
            reported=reported,
            source="host:report",
            is_wrapper=_is_wrapper(visit.house, effect),
        )
        committed = settle(visit, effect, claim_hash(claim), said)
        if committed.refusal is not None:
            return answering.refused(visit.house, committed.refusal, committed.value)
        effect_id = effect.effect_id
        after = visit.house.ledger.read(lambda view: view.effect(effect_id)) or committed.value
        if after.state is EffectState.UNKNOWN:
            return answering.about(visit.house, str(RefusalCode.OUTCOME_UNKNOWN), after)
        return settled_answer(visit.house, after)

    return _referenced(visit, reference, run)


def _host_word(outcome: str) -> HostWord:
    try:
        return HostWord(outcome)
    except ValueError:
        known = ", ".join(HostWord)
        raise Malformed("not_one_of", "outcome", f"an outcome is one of {known}") from None


def _is_wrapper(house: House, effect: Effect) -> bool:
    """Say whether the host is an admitted wrapper under the contract that was bound (OPR-02, OPR-04).

    Where that contract is not the one in force any more, nobody admits this host: its word is a claim.
    """
    try:
        declared = bound_operation(house, effect).host
    except (RefusedError, LedgerCorrupt):
        return False
    return declared is not None and declared.is_wrapper


def _referenced(
    visit: Visit,
    reference: str,
    run: Callable[[Effect], Answer],
) -> Answer:
    """Run a command on the effect that `reference` names; a missing one and another's read the same (EFF-08)."""
    found: list[Effect] = []

    def look_and_run() -> Answer:
        effect = find_effect(visit, reference)
        if effect is None:
            raise missing(visit, reference)
        found.append(effect)
        return run(effect)

    return at_the_edge(visit, look_and_run, found)


def _bound(house: House, effect: Effect, restated: Restated) -> Pinned:
    """Open an effect's binding exactly as it was bound, and compare what was restated with it.

    Of one that is over nothing is opened, since its content is gone: it is refused for where it stands.
    """
    over = refuse_state(effect) if effect.state in SETTLED | UNUSED else None
    if over is not None:
        _demand_as_asked(house, effect, restated)
        raise RefusedError(over.code)
    operation = bound_operation(house, effect)
    pinned = open_binding(house, effect, operation)
    no = refuse_restated(house, effect, pinned, restated)
    if no is not None:
        raise RefusedError(no.code, field=no.field)
    return pinned


def _demand_as_asked(house: House, effect: Effect, restated: Restated) -> None:
    no = refuse_restated_over(house, effect, restated)
    if no is not None:
        raise RefusedError(no.code, field=no.field)


def _refuse_unresolved(effect: Effect) -> None:
    """Refuse what may have been sent for where it stands, before anything else is wrong with the command (SUR-05).

    To be told of another command that sends would read like a reason to give it.
    """
    over = refuse_state(effect) if effect.state in UNRESOLVED else None
    if over is not None:
        raise RefusedError(over.code)


def _demand_host(effect: Effect, pinned: Pinned, command: str) -> None:
    if not pinned.operation.is_sent_by_host:
        _refuse_unresolved(effect)
        say = "The issuer sends this operation itself; use commit."
        raise RefusedError(RefusalCode.UNSUPPORTED, field=command, say=say)


def _admitted(visit: Visit, effect: Effect, pinned: Pinned, winner: Winner) -> Committed[Admitted]:
    """Probe the sinks, look at the object, and run the admission (AUD-02, EFF-07, ADM-02).

    What cannot be admitted from where it stands is told so without asking a sink: an `unknown` effect must not be
    answered with "nothing was sent" because a sink is away (SUR-05).
    """
    target, statement = None, None
    if effect.state is EffectState.PERMITTED:
        visit.house.delivery.probe()
        restore_ballast(visit.house)
        target = refuse_target(visit.house, effect, pinned)
        statement = visit.house.ledger.read(lambda view: statement_again(visit.house, view, effect, pinned))
    visit.house.observe(Reached.SINKS_PROBED)
    attempt = Attempt(pinned=pinned, winner=winner, target=target, statement=statement)
    return admit(visit, effect, attempt)


def _used(visit: Visit, effect: Effect, pinned: Pinned, send: Send) -> Answer:
    """Admit, and dispatch where this caller won."""
    winner = winner_here(visit.house)
    committed = _admitted(visit, effect, pinned, winner)
    claim = committed.value.claim
    if committed.refusal is not None or claim is None:
        return _refused(visit.house, committed)
    won = Won(effect=effect, pinned=pinned, winner=winner, claim=claim, sequence=committed.sequence)
    try:
        done = dispatch(visit, won, send)
    except Fault:
        # The outcome could not be recorded: the effect stays admitted, and that counts as possibly sent.
        admitted = replace(effect, state=EffectState.ADMITTED)
        return answering.about(visit.house, str(RefusalCode.OUTCOME_UNKNOWN), admitted)
    return answering.about(visit.house, done.code, done.effect)


def _refused(house: House, committed: Committed[Admitted]) -> Answer:
    """Answer a refused admission; a settled effect answers where it stands, with nothing sent."""
    admitted = committed.value
    if committed.refusal is None:
        return answering.about(house, "fault", admitted.effect)
    return answering.refused(house, committed.refusal, admitted.effect, say=admitted.say)
