"""The edge of every command: each no is on record and answered, each fault has its code (AUD-01, SUR-02).

A refusal from before a transaction gets its own committed span here, once caller and operation are known.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress

from audit import AuditUnavailable
from issuer import answering
from issuer.flow import spans
from issuer.flow.refusing import RefusedError
from issuer.house import Visit
from issuer.notifying import tell_sink_down
from issuer.wire import Answer
from issuer.wire.codes import CODES, Next
from ledger.changes import Step
from ledger.errors import Fault, Malformed
from ledger.model import Effect, InstantMs, Tombstone
from ledger.port import Verdict, View
from ledger.refusals import Refusal, RefusalCode
from ledger.states import UNRESOLVED, EffectState


def record_refusal(visit: Visit, refusal: Refusal, effect: Effect | Tombstone | None) -> None:
    """Commit the span of a no that no transaction of its own could carry.

    Raises:
        Fault: as `ledger.port.Ledger.transact`; the no stands all the same.
    """
    step = Step(transition=spans.refused(visit, refusal, effect=effect))

    def decide(_view: View, _now: InstantMs) -> Verdict[None]:
        return Verdict(value=None, steps=(step,))

    visit.house.ledger.transact(decide)


def at_the_edge(
    visit: Visit,
    run: Callable[[], Answer],
    found: Sequence[Effect] = (),
) -> Answer:
    """Run a command and answer, whatever happens; only what is not ours to name goes on as an exception.

    `found` is filled by `run` once it knows which effect the command is about.
    """
    try:
        return run()
    except RefusedError as no:
        if no.tombstone is not None:
            return _collected(visit, no.refusal, no.tombstone)
        return _recorded(visit, no.refusal, found, say=no.say, hint=no.hint)
    except Malformed as fault:
        refusal = Refusal(code=RefusalCode.MALFORMED, field=fault.field)
        recorded = _recorded(visit, refusal, found)
        return (
            recorded
            if recorded.code != str(RefusalCode.MALFORMED)
            else answering.faulted(visit.house, fault, found[-1] if found else None)
        )
    except AuditUnavailable as fault:
        tell_sink_down(visit.house)
        # The ledger is there, and a no is on record whatever the sinks say (AUD-01).
        with suppress(Fault):
            record_refusal(visit, Refusal(code=RefusalCode.AUDIT_UNAVAILABLE), found[-1] if found else None)
        return _faulted(visit, fault, _as_it_stands(visit, found))
    except Fault as fault:
        return _faulted(visit, fault, _as_it_stands(visit, found))


def _collected(visit: Visit, refusal: Refusal, tombstone: Tombstone) -> Answer:
    try:
        record_refusal(visit, refusal, tombstone)
    except Fault as fault:
        return answering.faulted(visit.house, fault)
    return answering.collected(visit.house, str(refusal.code), tombstone)


def _as_it_stands(visit: Visit, found: Sequence[Effect]) -> Effect | None:
    """Return the effect in question as it is now, or as it was found where it cannot be read."""
    if not found:
        return None
    effect_id = found[-1].effect_id
    try:
        return visit.house.ledger.read(lambda view: view.effect(effect_id)) or found[-1]
    except Fault:
        return found[-1]


def _instead(code: str, effect: Effect | None) -> RefusalCode | None:
    """Return the code to give where `code` would invite a repeat of what may have been sent (SUR-05), else None."""
    invites = CODES[code].retryable or CODES[code].next is Next.PREPARE_AGAIN
    if effect is None or not invites:
        return None
    if effect.state in UNRESOLVED:
        return RefusalCode.OUTCOME_UNKNOWN
    return RefusalCode.ALREADY_CONSUMED if effect.state in _SENT else None


_SENT = frozenset({EffectState.SUCCEEDED, EffectState.FAILED})


def _faulted(visit: Visit, fault: Fault, effect: Effect | None) -> Answer:
    answer = answering.faulted(visit.house, fault, effect)
    instead = _instead(answer.code, effect)
    if instead is None:
        return answer
    return answering.about(visit.house, str(instead), effect, more=answer.more)


def _recorded(
    visit: Visit,
    refusal: Refusal,
    found: Sequence[Effect],
    *,
    say: str = "",
    hint: str = "",
) -> Answer:
    effect = _as_it_stands(visit, found)
    instead = _instead(str(refusal.code), effect)
    if instead is not None:
        refusal, say, hint = Refusal(code=instead, field=refusal.field), "", ""
    try:
        record_refusal(visit, refusal, effect)
    except Fault as fault:
        return _faulted(visit, fault, effect)
    return answering.refused(visit.house, refusal, effect, say=say, hint=hint)
