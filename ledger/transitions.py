"""What happens, one name per kind, and the span that tells of it.

Rules: AUD-01 (a transition has its span or has not happened), AUD-05 (where a span stands), AUD-07.
Frozen values, as in `ledger.model`. Next: `audit.vocabulary` says what each kind carries; `ledger.changes` what
happens with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ledger.model import EffectId, InstantMs, LedgerId
from ledger.states import EffectState


class TransitionName(StrEnum):
    """What happened, one name per kind of transition; `audit.vocabulary` lists the attributes of each."""

    LEDGER_CREATED = "ledger.created"
    SINK_REGISTERED = "sink.registered"
    SINK_REPLACED = "sink.replaced"
    SINK_QUARANTINED = "sink.quarantined"
    SINK_FAILED = "sink.failed"
    SINK_RECOVERED = "sink.recovered"
    PROBE = "ledger.probe"
    LEDGER_MIGRATED = "ledger.migrated"
    LEDGER_COLLECTED = "ledger.collected"
    LEDGER_BACKED_UP = "ledger.backed_up"
    LEDGER_RESTORED = "ledger.restored"
    CLOCK_ACCEPTED = "ledger.clock_accepted"
    TASK_OPENED = "task.opened"
    TASK_FROZEN = "task.frozen"
    TASK_THAWED = "task.thawed"
    TASK_CLOSED = "task.closed"
    TASK_GRANTED = "task.granted"
    TASK_LOWERED = "task.lowered"
    OVERRUN_ACCEPTED = "task.overrun_accepted"
    EFFECT_PREPARED = "effect.prepared"
    EFFECT_PERMITTED = "effect.permitted"
    EFFECT_AWAITING_APPROVAL = "effect.awaiting_approval"
    EFFECT_APPROVED = "effect.approved"
    EFFECT_DECLINED = "effect.declined"
    EFFECT_REVOKED_LATE = "effect.revoked_late"
    EFFECT_DENIED = "effect.denied"
    EFFECT_EXPIRED = "effect.expired"
    EFFECT_WITHDRAWN = "effect.withdrawn"
    EFFECT_REVOKED = "effect.revoked"
    EFFECT_ADMITTED = "effect.admitted"
    EFFECT_SUCCEEDED = "effect.succeeded"
    EFFECT_FAILED = "effect.failed"
    EFFECT_NO_EFFECT = "effect.no_effect"
    EFFECT_UNKNOWN = "effect.unknown"
    EFFECT_REPLAYED = "effect.replayed"
    EFFECT_REPORTED = "effect.reported"
    EFFECT_INSPECTING = "effect.inspecting"
    EFFECT_INSPECTED = "effect.inspected"
    EFFECT_ACKNOWLEDGED = "effect.acknowledged"
    CONTENT_SHOWN = "effect.content_shown"
    OBSERVED = "observed"
    EFFECT_OBLIGED = "effect.obliged"
    OBLIGATION_DONE = "effect.obligation_done"
    INVOCATION_OPENED = "invocation.opened"
    INVOCATION_ENDED = "invocation.ended"
    REVISION_ACTIVATED = "revision.activated"
    STOP_FROZEN = "stop.frozen"
    STOP_THAWED = "stop.thawed"
    STOP_REVOKED = "stop.revoked"
    CREDENTIAL_ISSUED = "credential.issued"
    CREDENTIAL_REVOKED = "credential.revoked"
    KEY_ROTATED = "key.rotated"
    KEY_RETIRED = "key.retired"
    KEY_REVOKED = "key.revoked"
    CHECKPOINT_SIGNED = "audit.checkpoint_signed"
    AUDIT_EXPORTED = "audit.exported"
    AUDIT_ARCHIVED = "audit.archived"
    NOISE = "noise"
    REFUSED = "refused"


AttributeValue = str | int | bool | tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One thing that happened and must be on record, or has not happened (AUD-01).

    Attributes:
        name: the kind.
        story: what the span belongs to and whose trace it joins: an effect id, a task id or the ledger id (AUD-05).
        effect_id: the effect whose state moves, or None.
        state_from: the state before; None for a first state or where no state moves.
        state_to: the state after; None where no state moves.
        attributes: what the closed vocabulary of `audit` allows for this name; no value is secret.
    """

    name: TransitionName
    story: str
    effect_id: EffectId | None = None
    state_from: EffectState | None = None
    state_to: EffectState | None = None
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a span stands: (epoch, lane, sequence) in one ledger (AUD-05). SQLite has lane 0 only."""

    ledger_id: LedgerId
    epoch: int
    lane: int
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSpan:
    """A span as the recorder made it: ids in lower-case hex (16 and 32 digits) and its canonical bytes.

    `attributes` are those in the body, as they were kept: the ledger finds the span by some of them (AUD-06).
    """

    span_id: str
    trace_id: str
    body: bytes
    attributes: Mapping[str, AttributeValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanRow:
    """A span as the ledger holds it. `leaf` is SHA-256(0x00 || body), RFC 9162 section 2.1.1."""

    position: Position
    span_id: str
    trace_id: str
    name: str
    story: str
    at_ms: InstantMs
    body: bytes
    leaf: bytes
