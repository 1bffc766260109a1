"""`commit`, `dispatch`, `admit` and `report`: the ways in which a permit is used, once.

`commit` is for operations that the issuer sends itself; `dispatch` runs a host's own command under the claim;
`admit` hands the claim to a host outside, which reports with it. Repeating any of them sends nothing: a settled
effect answers where it stands (REP-01, ADR-0005).
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from issuer import answering
from issuer.caller import Caller
from issuer.clock import instant_text
from issuer.commands.edge import at_the_edge
from issuer.commands.standing import SETTLED, settled_answer
from issuer.flow.admit import Admitted, Winner, admit, claim_hash, winner_here, winner_outside
from issuer.flow.binding import Pinned
from issuer.flow.dispatch import Send, adapter_send, confirmed, dispatch
from issuer.flow.reference import (
    NOTHING_RESTATED,
    Restated,
    bound_operation,
    find_effect,
    open_binding,
    refuse_restated,
    refuse_target,
)
from issuer.flow.refusing import RefusedError
from issuer.flow.settle import Outcome, host_claims, not_sent, settle
from issuer.flow.steps import Reached
from issuer.house import House
from issuer.operations.contract import Order, Proof
from issuer.operations.host_adapter import run_child
from issuer.wire import Answer
from ledger.errors import CommitUncertain, Fault
from ledger.model import Effect, costs
from ledger.port import Committed
from ledger.refusals import RefusalCode
from ledger.states import EffectState


def commit(house: House, caller: Caller, reference: str, restated: Restated = NOTHING_RESTATED) -> Answer:
    """Admit an effect that the issuer sends itself, send it once, and answer what became of it."""

    def run(effect: Effect) -> Answer:
        if effect.state in SETTLED and restated == NOTHING_RESTATED:
            return settled_answer(house, effect)
        pinned = _bound(house, effect, restated)
        if effect.state in SETTLED:
            return settled_answer(house, effect)
        if pinned.operation.is_sent_by_host:
            say = "The host sends this operation itself; use dispatch, or admit and report."
            raise RefusedError(RefusalCode.UNSUPPORTED, field="commit", say=say)
        return _used(house, caller, effect, pinned, adapter_send(house, pinned), "commit")

    return _referenced(house, caller, "commit", reference, run)


def dispatch_child(house: House, caller: Caller, reference: str, argv: Sequence[str]) -> Answer:
    """Admit an effect that the host sends, run the host's command under the claim, and record what it says."""

    def run(effect: Effect) -> Answer:
        if effect.state in SETTLED:
            return settled_answer(house, effect)
        pinned = _bound(house, effect, NOTHING_RESTATED)
        _demand_host(pinned, "dispatch")

        def send(order: Order) -> Outcome:
            result = run_child(
                argv, effect_id=effect.effect_id, remaining_ms=order.remaining_ms, env=os.environ
            )
            house.observe(Reached.ANSWERED)
            succeeded = result.proof is Proof.SUCCEEDED
            return host_claims(effect, succeeded=succeeded, reported=None, source=result.source)

        return _used(house, caller, effect, pinned, send, "dispatch")

    return _referenced(house, caller, "dispatch", reference, run)


def admit_host(house: House, caller: Caller, reference: str) -> Answer:
    """Admit an effect that a host outside sends; the answer carries, once, the claim it reports with."""

    def run(effect: Effect) -> Answer:
        pinned = _bound(house, effect, NOTHING_RESTATED)
        _demand_host(pinned, "admit")
        winner = winner_outside()
        committed = _admitted(house, caller, effect, pinned, winner, "admit")
        claim = committed.value.claim
        if committed.refusal is not None or claim is None:
            return _refused(house, committed)
        if not confirmed(house, committed.sequence):
            settle(house, caller, effect, winner.claim_hash, not_sent("audit_unavailable"), "admit")
            none = replace(effect, state=EffectState.NO_EFFECT)
            return answering.about(house, str(RefusalCode.PREPARE_AGAIN), none)
        more = {"claim": winner.secret, "deadline": instant_text(claim.deadline_ms)}
        return answering.about(house, "admitted", replace(effect, state=EffectState.ADMITTED), more=more)

    return _referenced(house, caller, "admit", reference, run)


def report(
    house: House,
    caller: Caller,
    reference: str,
    claim: str,
    *,
    succeeded: bool,
    cost: Mapping[str, int] | None = None,
) -> Answer:
    """Record a host's word about an effect that it was admitted to send (REC-07).

    A word of success settles at the maximum at least; any other leaves the effect `unknown`.
    """

    def run(effect: Effect) -> Answer:
        reported = None if cost is None else costs(cost)
        outcome = host_claims(effect, succeeded=succeeded, reported=reported, source="host:report")
        committed = settle(house, caller, effect, claim_hash(claim), outcome, "report")
        if committed.refusal is not None:
            return answering.refused(house, committed.refusal, committed.value)
        after = replace(committed.value, state=outcome.target, sequence=committed.sequence)
        if outcome.target is EffectState.UNKNOWN:
            return answering.about(house, str(RefusalCode.OUTCOME_UNKNOWN), after)
        return settled_answer(house, after)

    return _referenced(house, caller, "report", reference, run)


def _referenced(
    house: House,
    caller: Caller,
    command: str,
    reference: str,
    run: Callable[[Effect], Answer],
) -> Answer:
    """Run a command on the effect that `reference` names; a missing one and another's read the same (EFF-08)."""
    found: list[Effect] = []

    def look_and_run() -> Answer:
        effect = find_effect(house, caller, reference)
        if effect is None:
            raise RefusedError(RefusalCode.NOT_FOUND)
        found.append(effect)
        return run(effect)

    return at_the_edge(house, caller, command, look_and_run, found)


def _bound(house: House, effect: Effect, restated: Restated) -> Pinned:
    """Open an effect's binding exactly as it was bound, and compare what was restated with it."""
    operation = bound_operation(house, effect)
    pinned = open_binding(house, effect, operation)
    no = refuse_restated(house, effect, pinned, restated)
    if no is not None:
        raise RefusedError(no.code, field=no.field)
    return pinned


def _demand_host(pinned: Pinned, command: str) -> None:
    if not pinned.operation.is_sent_by_host:
        say = "The issuer sends this operation itself; use commit."
        raise RefusedError(RefusalCode.UNSUPPORTED, field=command, say=say)


def _admitted(
    house: House,
    caller: Caller,
    effect: Effect,
    pinned: Pinned,
    winner: Winner,
    command: str,
) -> Committed[Admitted]:
    """Probe the sinks, look at the object, and run the admission (AUD-02, EFF-07, ADM-02)."""
    house.delivery.probe()
    house.observe(Reached.SINKS_PROBED)
    target = refuse_target(house, pinned) if effect.state is EffectState.PERMITTED else None
    return admit(house, caller, effect, pinned, winner, target, command)


def _used(
    house: House,
    caller: Caller,
    effect: Effect,
    pinned: Pinned,
    send: Send,
    command: str,
) -> Answer:
    """Admit, and dispatch where this caller won."""
    winner = winner_here(house)
    try:
        committed = _admitted(house, caller, effect, pinned, winner, command)
    except CommitUncertain as fault:
        return answering.faulted(house, fault, effect)
    claim = committed.value.claim
    if committed.refusal is not None or claim is None:
        return _refused(house, committed)
    try:
        done = dispatch(house, caller, effect, pinned, winner, claim, committed.sequence, send)
    except Fault:
        # The outcome could not be recorded: the effect stays admitted, and that counts as possibly sent.
        admitted = replace(effect, state=EffectState.ADMITTED)
        return answering.about(house, str(RefusalCode.OUTCOME_UNKNOWN), admitted)
    return answering.about(house, done.code, done.effect)


def _refused(house: House, committed: Committed[Admitted]) -> Answer:
    """Answer a refused admission; a settled effect answers where it stands, with nothing sent."""
    admitted = committed.value
    if committed.refusal is None:
        return answering.about(house, "fault", admitted.effect)
    return answering.refused(house, committed.refusal, admitted.effect, say=admitted.say)
