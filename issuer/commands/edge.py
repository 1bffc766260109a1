"""The edge of every command: who may give it, each no on record and answered, each fault its code (SEC-02, AUD-01).

Nothing of a command runs before `issuer.commands.roles` has let it begin. A refusal from before a transaction gets
its own committed span here, once caller and operation are known.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from audit import AuditUnavailable
from issuer import answering
from issuer.caller import NOBODY
from issuer.commands.roles import demand_role
from issuer.flow import spans
from issuer.flow.refusing import RefusedError
from issuer.house import Visit
from issuer.notifying import tell_sink_down
from issuer.sink_words import record_words
from issuer.wire import Answer
from issuer.wire.codes import CODES, Next
from ledger.changes import Step
from ledger.errors import Fault, Malformed, SpanNotRecorded
from ledger.model import Effect, InstantMs, Tombstone
from ledger.port import Decide, Verdict, View
from ledger.refusals import Refusal, RefusalCode
from ledger.states import UNRESOLVED, EffectState
from ledger.transitions import AttributeValue

UNRECORDABLE: Final = "secret_in_span"
"""The reason of `audit.redaction` for a span that holds what looks like a credential."""


def record_refusal(
    visit: Visit,
    refusal: Refusal,
    effect: Effect | Tombstone | None,
    extra: Mapping[str, AttributeValue] = MappingProxyType({}),
) -> None:
    """Commit the span of a no that no transaction of its own could carry.

    Raises:
        Fault: as `ledger.port.Ledger.transact`; the no stands all the same.
        RevisionMoved: the no was said under a revision that is not in force any more (POL-07).
    """
    visit.house.ledger.transact(_refusing(visit, refusal, effect, extra))


def _refusing(
    visit: Visit,
    refusal: Refusal,
    effect: Effect | Tombstone | None,
    extra: Mapping[str, AttributeValue] = MappingProxyType({}),
) -> Decide[None]:
    step = Step(transition=spans.refused(visit, refusal, effect=effect, **extra))

    def decide(_view: View, _now: InstantMs) -> Verdict[None]:
        return Verdict(value=None, steps=(step,))

    return decide


def at_the_edge(
    visit: Visit,
    run: Callable[[], Answer],
    found: Sequence[Effect] = (),
) -> Answer:
    """Run a command and answer, whatever happens; only what is not ours to name goes on as an exception.

    `found` is filled by `run` once it knows which effect the command is about. What the command learnt of the sinks is
    put on record once its own answer stands (AUD-02).
    """
    answer = _answered(visit, run, found)
    record_words(visit.house)
    return answer


def _answered(visit: Visit, run: Callable[[], Answer], found: Sequence[Effect]) -> Answer:
    try:
        demand_role(visit)
        return run()
    except RefusedError as no:
        if no.refusal.code is RefusalCode.UNAUTHENTICATED:
            # Whoever it claims to be is not repeated, nor what it asked for.
            visit = replace(visit, caller=NOBODY, about={}, signed=None)
        if no.tombstone is not None:
            return _collected(visit, no.refusal, no.tombstone)
        return _recorded(visit, no.refusal, found, say=no.say, hint=no.hint, extra=no.extra)
    except Malformed as fault:
        return _malformed(visit, fault, found)
    except SpanNotRecorded as fault:
        if fault.reason != UNRECORDABLE or found:
            return _faulted(visit, fault, _as_it_stands(visit, found))
        # What was asked for cannot be put on record, and the no can: the trail is there, so nobody need repair it.
        return _malformed(replace(visit, about={}), _secret(fault), found)
    except AuditUnavailable as fault:
        tell_sink_down(visit.house)
        # The ledger is there, and a no is on record whatever the sinks say (AUD-01).
        with suppress(Fault):
            # Something may have been sent by now, so the command is not run again, whatever the owner has changed.
            audit_gone = Refusal(code=RefusalCode.AUDIT_UNAVAILABLE)
            visit.house.ledger.record(_refusing(visit, audit_gone, found[-1] if found else None))
        return _faulted(visit, fault, _as_it_stands(visit, found))
    except Fault as fault:
        return _faulted(visit, fault, _as_it_stands(visit, found))


def _secret(fault: SpanNotRecorded) -> Malformed:
    if not fault.message.startswith("permit.resource.id "):
        return Malformed(UNRECORDABLE, None, fault.message)
    say = f"{fault.message} If it is none, the owner can declare that field sensitive; it is on record as a hash then"
    return Malformed(UNRECORDABLE, "resource", say)


def _malformed(visit: Visit, fault: Malformed, found: Sequence[Effect]) -> Answer:
    recorded = _recorded(visit, Refusal(code=RefusalCode.MALFORMED, field=fault.field), found)
    if recorded.code != str(RefusalCode.MALFORMED):
        return recorded
    return answering.faulted(visit.house, fault, found[-1] if found else None)


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
    extra: Mapping[str, AttributeValue] = MappingProxyType({}),
) -> Answer:
    effect = _as_it_stands(visit, found)
    instead = _instead(str(refusal.code), effect)
    if instead is not None:
        refusal, say, hint = Refusal(code=instead, field=refusal.field), "", ""
    if visit.caller.is_agent:
        hint = ""  # near misses are for owners (SEC-04)
    try:
        record_refusal(visit, refusal, effect, extra)
    except Fault as fault:
        return _faulted(visit, fault, effect)
    return answering.refused(visit.house, refusal, effect, say=say, hint=hint)
