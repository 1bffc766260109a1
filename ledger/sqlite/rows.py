"""Rows of the tables to values of the model and back: the one place that knows the column order.

It decides nothing. Next: `ledger.sqlite.view` reads with it, `ledger.sqlite.writes` writes with it.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from ledger.canonical import canonical_bytes
from ledger.model import (
    BudgetLine,
    Claim,
    DecisionRow,
    Effect,
    EffectId,
    Evidence,
    EvidenceClass,
    InstantMs,
    LedgerId,
    Permit,
    PermitId,
    Position,
    SpanRow,
    Task,
    TaskId,
    TaskState,
    Tier,
    Unit,
)
from ledger.states import EffectState

EFFECT_COLUMNS: Final = (
    "effect_id, state, caller, task_id, root_id, subject, actor, operation, action_class, resource_type, "
    "resource_id, request_key, request, binding, binding_digest, content_key, resource_key, cost, protected, "
    "prepared_ms, expires_ms, last_span, sequence, mac"
)
_EFFECT_FIXED: Final = (
    *("effect_id", "caller", "task_id", "root_id", "subject", "actor", "operation", "action_class"),
    *("resource_type", "resource_id", "request_key", "request", "binding", "binding_digest"),
    *("content_key", "resource_key", "protected", "prepared_ms", "expires_ms"),
)
TASK_COLUMNS: Final = (
    "task_id, name, parent_id, root_id, depth, subject, actors, expires_ms, state, opened_ms"
)
HEAD_COLUMNS: Final = "epoch, lane, sequence, frontier, root, clock_ms, pending"
CLAIM_COLUMNS: Final = "effect_id, instance, boot, claim_hash, admitted_ms, deadline_ms, mac"
SPAN_COLUMNS: Final = "epoch, lane, sequence, span_id, trace_id, name, story, at_ms, body, leaf"

Row = tuple[Any, ...]


def amounts_text(amounts: Mapping[Unit, int]) -> str:
    """Encode amounts per unit for a TEXT column."""
    return canonical_bytes(dict(amounts)).decode()


def amounts_from(text: str) -> Mapping[Unit, int]:
    """Decode what `amounts_text` wrote."""
    return MappingProxyType({Unit(unit): amount for unit, amount in json.loads(text).items()})


def task_from(row: Row) -> Task:
    """Build a task from `TASK_COLUMNS`."""
    return Task(
        task_id=TaskId(row[0]),
        name=row[1],
        parent_id=None if row[2] is None else TaskId(row[2]),
        root_id=TaskId(row[3]),
        depth=row[4],
        subject=row[5],
        actors=tuple(json.loads(row[6])),
        expires_ms=InstantMs(row[7]),
        state=TaskState(row[8]),
        opened_ms=InstantMs(row[9]),
    )


def task_row(task: Task) -> Row:
    """Return the values of `TASK_COLUMNS`."""
    return (
        task.task_id,
        task.name,
        task.parent_id,
        task.root_id,
        task.depth,
        task.subject,
        canonical_bytes(list(task.actors)).decode(),
        task.expires_ms,
        str(task.state),
        task.opened_ms,
    )


def task_authority(task: Task) -> bytes:
    """Return the bytes whose MAC gives a task its authority (LED-06): all of it, its state included."""
    return canonical_bytes(["task", *task_row(task)])


def grant_authority(task_id: str, unit: str, sequence: int, amount: int | None) -> bytes:
    """Return the bytes whose MAC gives a grant its authority (LED-06)."""
    return canonical_bytes(["grant", task_id, unit, sequence, amount])


def sink_authority(name: str, kind: str, location: str) -> bytes:
    """Return the bytes whose MAC fixes where a sink is (AUD-03)."""
    return canonical_bytes(["sink", name, kind, location])


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The head row without its MAC: position, tree, the last instant, and the sum of the effects still pending."""

    position: Position
    frontier: bytes
    root: bytes
    clock_ms: int
    pending: bytes


def head_from(ledger_id: LedgerId, row: Row) -> Head:
    """Build a head from `HEAD_COLUMNS`."""
    position = Position(ledger_id=ledger_id, epoch=row[0], lane=row[1], sequence=row[2])
    return Head(position=position, frontier=row[3], root=row[4], clock_ms=row[5], pending=row[6])


def head_authority(head: Head) -> bytes:
    """Return the bytes whose MAC fixes the head of the ledger (LED-06)."""
    position = head.position
    return canonical_bytes(
        [
            "head",
            position.ledger_id,
            position.epoch,
            position.lane,
            position.sequence,
            head.frontier.hex(),
            head.root.hex(),
            head.clock_ms,
            head.pending.hex(),
        ],
    )


def budget_from(row: Row) -> BudgetLine:
    """Build a budget line from (task_id, unit, ceiling, reserved, settled, overrun)."""
    return BudgetLine(
        task_id=TaskId(row[0]),
        unit=Unit(row[1]),
        ceiling=row[2],
        reserved=row[3],
        settled=row[4],
        overrun=row[5],
    )


def effect_from(row: Row) -> Effect:
    """Build an effect from `EFFECT_COLUMNS`."""
    return Effect(
        effect_id=EffectId(row[0]),
        state=EffectState(row[1]),
        caller=row[2],
        task_id=TaskId(row[3]),
        root_id=TaskId(row[4]),
        subject=row[5],
        actor=row[6],
        operation=row[7],
        action_class=row[8],
        resource_type=row[9],
        resource_id=row[10],
        request_key=row[11],
        request=row[12],
        binding=row[13],
        binding_digest=row[14],
        content_key=row[15],
        resource_key=row[16],
        cost=amounts_from(row[17]),
        protected=bool(row[18]),
        prepared_ms=InstantMs(row[19]),
        expires_ms=InstantMs(row[20]),
        last_span=row[21],
        sequence=row[22],
    )


def effect_authority(effect: Effect) -> bytes:
    """Return the bytes whose MAC fixes an effect as it was prepared: all of it but its state and place (LED-06).

    A permit's seal holds the binding from then on; before that nothing else proves a held effect.
    """
    values: list[object] = [getattr(effect, name) for name in _EFFECT_FIXED]
    # Blobs enter by their digests, so that two large ones still make one small document.
    fixed = [hashlib.sha256(value).hexdigest() if isinstance(value, bytes) else value for value in values]
    return canonical_bytes(["effect", *fixed, amounts_text(effect.cost)])


def effect_row(effect: Effect, *, span_id: str, sequence: int, mac: bytes) -> Row:
    """Return the values of `EFFECT_COLUMNS` with the span that prepared it."""
    return (
        effect.effect_id,
        str(effect.state),
        effect.caller,
        effect.task_id,
        effect.root_id,
        effect.subject,
        effect.actor,
        effect.operation,
        effect.action_class,
        effect.resource_type,
        effect.resource_id,
        effect.request_key,
        effect.request,
        effect.binding,
        effect.binding_digest,
        effect.content_key,
        effect.resource_key,
        amounts_text(effect.cost),
        int(effect.protected),
        effect.prepared_ms,
        effect.expires_ms,
        span_id,
        sequence,
        mac,
    )


def permit_from(row: Row) -> Permit:
    """Build a permit from (permit_id, effect_id, seal, tier, issued_ms, expires_ms, caps)."""
    return Permit(
        permit_id=PermitId(row[0]),
        effect_id=EffectId(row[1]),
        seal=row[2],
        tier=Tier(row[3]),
        issued_ms=InstantMs(row[4]),
        expires_ms=InstantMs(row[5]),
        caps=MappingProxyType(json.loads(row[6])),
    )


def claim_from(row: Row) -> Claim:
    """Build a claim from `CLAIM_COLUMNS`; whether its MAC holds is for the reader to see."""
    return Claim(
        effect_id=EffectId(row[0]),
        instance=row[1],
        boot=row[2],
        claim_hash=row[3],
        admitted_ms=InstantMs(row[4]),
        deadline_ms=InstantMs(row[5]),
    )


def claim_row(claim: Claim) -> Row:
    """Return the values of `CLAIM_COLUMNS` without the MAC."""
    return (
        claim.effect_id,
        claim.instance,
        claim.boot,
        claim.claim_hash,
        claim.admitted_ms,
        claim.deadline_ms,
    )


def claim_authority(claim: Claim) -> bytes:
    """Return the bytes whose MAC says who won an admission and until when it may act (ADM-07, LED-06)."""
    effect_id, instance, boot, claim_hash, admitted_ms, deadline_ms = claim_row(claim)
    return canonical_bytes(["claim", effect_id, instance, boot, claim_hash.hex(), admitted_ms, deadline_ms])


def evidence_from(row: Row) -> Evidence:
    """Build evidence from (effect_id, class, source, proves, reference, late, at_ms)."""
    return Evidence(
        effect_id=EffectId(row[0]),
        evidence_class=EvidenceClass(row[1]),
        source=row[2],
        proves=row[3],
        reference=row[4],
        late=bool(row[5]),
        at_ms=InstantMs(row[6]),
    )


def decision_from(row: Row) -> DecisionRow:
    """Build a decision from (effect_id, body, at_ms)."""
    return DecisionRow(effect_id=EffectId(row[0]), body=row[1], at_ms=InstantMs(row[2]))


def span_from(ledger_id: LedgerId, row: Row) -> SpanRow:
    """Build a span from `SPAN_COLUMNS`."""
    return SpanRow(
        position=Position(ledger_id=ledger_id, epoch=row[0], lane=row[1], sequence=row[2]),
        span_id=row[3],
        trace_id=row[4],
        name=row[5],
        story=row[6],
        at_ms=InstantMs(row[7]),
        body=row[8],
        leaf=row[9],
    )
