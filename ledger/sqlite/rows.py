"""Rows of the tables to values of the model and back: the one place that knows the column order.

It decides nothing. Next: `ledger.sqlite.view` reads with it, `ledger.sqlite.writes` writes with it.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

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
    InvocationId,
    LedgerId,
    Permit,
    PermitId,
    Scope,
    Slots,
    Task,
    TaskId,
    TaskState,
    Tier,
    Tombstone,
    Unit,
)
from ledger.standing import bucket_of
from ledger.states import EffectState
from ledger.timekeeping import LastEntry, Uptime
from ledger.transitions import Position, SpanRow


class EffectRow(NamedTuple):
    """An effect as its row has it, before anything is made of it."""

    effect_id: str
    state: str
    caller: str
    task_id: str
    root_id: str
    subject: str
    actor: str
    operation: str
    action_class: str
    resource_type: str
    resource_id: str
    request_key: str
    request: bytes
    binding: bytes
    binding_digest: bytes
    content_key: bytes
    resource_key: bytes
    cost: str
    protected: int
    prepared_ms: int
    expires_ms: int
    window_ends_ms: int
    replayed: int
    invocation_id: str | None
    last_span: str
    sequence: int
    mac: bytes


EFFECT_COLUMNS: Final = ", ".join(EffectRow._fields)
TASK_COLUMNS: Final = (
    "task_id, name, parent_id, root_id, depth, subject, actors, expires_ms, state, opened_ms, ceilings, scope"
)
HEAD_COLUMNS: Final = "epoch, lane, sequence, frontier, root, clock_ms, pending, standing, boot, boot_ms"
CLAIM_COLUMNS: Final = "effect_id, instance, boot, claim_hash, admitted_ms, deadline_ms, mac"
SPAN_COLUMNS: Final = "epoch, lane, sequence, span_id, trace_id, name, story, at_ms, body, leaf"

TOMBSTONE_COLUMNS: Final = (
    "effect_id, state, caller, task_id, subject, actor, operation, request_key, request, content_key, resource_key, "
    "permit_id, prepared_ms, ended_ms"
)
BUDGET_COLUMNS: Final = "task_id, unit, ceiling, reserved, settled, overrun, above"

AT_MOST: Final = "LIMIT ? + 0"
"""The bound of a query that every effect asks. SQLite looks at the value of a bare `LIMIT ?` while it compiles, and so
compiles the statement anew whenever it is used."""

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
        ceilings=MappingProxyType({Unit(unit): amount for unit, amount in json.loads(row[10]).items()}),
        scope=_scope_from(row[11]),
    )


def _scope_from(text: str) -> Scope:
    said = json.loads(text)
    return Scope(
        classes=None if said["classes"] is None else MappingProxyType(said["classes"]),
        operations=None if said["operations"] is None else MappingProxyType(said["operations"]),
        resources=None if said["resources"] is None else MappingProxyType(said["resources"]),
    )


def _scope_text(scope: Scope) -> str:
    def plainly(slots: Slots | None) -> dict[str, int | None] | None:
        return None if slots is None else dict(slots)

    named = {
        "classes": plainly(scope.classes),
        "operations": plainly(scope.operations),
        "resources": plainly(scope.resources),
    }
    return canonical_bytes(named).decode()


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
        canonical_bytes({str(unit): amount for unit, amount in task.ceilings.items()}).decode(),
        _scope_text(task.scope),
    )


def task_authority(task: Task, sequence: int) -> bytes:
    """Return the bytes whose MAC gives a task its authority (LED-06): all of it, as its span at `sequence` left it."""
    return canonical_bytes(task_signed((*task_row(task), sequence, b"")))


def task_signed(row: Row) -> list[object]:
    """Return the values whose canonical bytes carry the MAC of a task, as they stand in its row.

    The row holds `TASK_COLUMNS`, the sequence and the MAC; its lists and objects are canonical texts there.
    """
    return ["task", *row[: len(row) - 1]]


def grant_authority(task_id: str, unit: str, sequence: int, kind: str, amount: int | None) -> bytes:
    """Return the bytes whose MAC gives a grant its authority (LED-06)."""
    return canonical_bytes(["grant", task_id, unit, sequence, kind, amount])


def tombstone_row(tombstone: Tombstone) -> Row:
    """Return the values of `TOMBSTONE_COLUMNS`."""
    return (
        tombstone.effect_id,
        str(tombstone.state),
        tombstone.caller,
        tombstone.task_id,
        tombstone.subject,
        tombstone.actor,
        tombstone.operation,
        tombstone.request_key,
        tombstone.request,
        tombstone.content_key,
        tombstone.resource_key,
        tombstone.permit_id,
        tombstone.prepared_ms,
        tombstone.ended_ms,
    )


def tombstone_from(row: Row) -> Tombstone:
    """Build a tombstone from `TOMBSTONE_COLUMNS`; whether its MAC holds is for the reader to see."""
    return Tombstone(
        effect_id=EffectId(row[0]),
        state=EffectState(row[1]),
        caller=row[2],
        task_id=TaskId(row[3]),
        subject=row[4],
        actor=row[5],
        operation=row[6],
        request_key=row[7],
        request=row[8],
        content_key=row[9],
        resource_key=row[10],
        permit_id=None if row[11] is None else PermitId(row[11]),
        prepared_ms=InstantMs(row[12]),
        ended_ms=InstantMs(row[13]),
    )


def tombstone_authority(tombstone: Tombstone) -> bytes:
    """Return the bytes whose MAC says what was collected (LED-06, PER-04)."""
    return canonical_bytes(tombstone_signed(tombstone_row(tombstone)))


def tombstone_signed(row: Row) -> list[object]:
    """Return the values whose canonical bytes carry the MAC of a tombstone, from `TOMBSTONE_COLUMNS`."""
    values = row[: len(TOMBSTONE_COLUMNS.split(", "))]
    return ["tombstone", *(value.hex() if isinstance(value, bytes) else value for value in values)]


def sink_authority(name: str, kind: str, location: str) -> bytes:
    """Return the bytes whose MAC fixes where a sink is (AUD-03)."""
    return canonical_bytes(["sink", name, kind, location])


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The head row without its MAC.

    Attributes:
        clock_ms, uptime: the two clocks as they were read for the last entry (PER-03).
        pending, standing: the digests of the registers of effects and of tasks (`ledger.standing`).
    """

    position: Position
    frontier: bytes
    root: bytes
    clock_ms: int
    pending: bytes
    standing: bytes
    uptime: Uptime

    @property
    def last_entry(self) -> LastEntry:
        """When the last entry was made, by both clocks."""
        return LastEntry(clock_ms=InstantMs(self.clock_ms), uptime=self.uptime)


def head_from(ledger_id: LedgerId, row: Row) -> Head:
    """Build a head from `HEAD_COLUMNS`."""
    position = Position(ledger_id=ledger_id, epoch=row[0], lane=row[1], sequence=row[2])
    return Head(
        position=position,
        frontier=row[3],
        root=row[4],
        clock_ms=row[5],
        pending=row[6],
        standing=row[7],
        uptime=Uptime(boot=row[8], since_ms=row[9]),
    )


def head_row(head: Head) -> Row:
    """Return the values of `HEAD_COLUMNS`."""
    position = head.position
    return (
        *(position.epoch, position.lane, position.sequence, head.frontier, head.root, head.clock_ms),
        *(head.pending, head.standing, head.uptime.boot, head.uptime.since_ms),
    )


def head_authority(head: Head) -> bytes:
    """Return the bytes whose MAC fixes the head of the ledger (LED-06)."""
    values = head_row(head)
    return canonical_bytes(
        [
            *("head", head.position.ledger_id),
            *(value.hex() if isinstance(value, bytes) else value for value in values),
        ]
    )


def budget_from(row: Row) -> BudgetLine:
    """Build a budget line from `BUDGET_COLUMNS`."""
    return BudgetLine(
        task_id=TaskId(row[0]),
        unit=Unit(row[1]),
        ceiling=row[2],
        reserved=row[3],
        settled=row[4],
        overrun=row[5],
        above=row[6],
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
        window_ends_ms=InstantMs(row[21]),
        replayed=bool(row[22]),
        invocation_id=None if row[23] is None else InvocationId(row[23]),
        last_span=row[24],
        sequence=row[25],
    )


def effect_authority(effect: Effect) -> bytes:
    """Return the bytes whose MAC fixes an effect as it was prepared: all of it but its state and place (LED-06).

    A permit's seal holds the binding from then on; before that nothing else proves a held effect.
    """
    row = effect_row(effect, span_id="", sequence=0, mac=b"")
    return canonical_bytes(effect_signed(EffectRow._make(row[: len(EffectRow._fields)])))


def effect_signed(row: EffectRow) -> list[object]:
    """Return the values whose canonical bytes carry the MAC of an effect, as they stand in its row.

    Blobs enter by their digests, so that two large ones still make one small document.
    """
    blobs = (row.request, row.binding, row.binding_digest, row.content_key, row.resource_key)
    return [
        *("effect", row.effect_id, row.caller, row.task_id, row.root_id, row.subject, row.actor),
        *(row.operation, row.action_class, row.resource_type, row.resource_id, row.request_key),
        *[hashlib.sha256(blob).hexdigest() for blob in blobs],
        *(bool(row.protected), row.prepared_ms, row.expires_ms, row.window_ends_ms, bool(row.replayed)),
        *(row.invocation_id, row.cost),
    ]


def effect_row(effect: Effect, *, span_id: str, sequence: int, mac: bytes) -> Row:
    """Return the values of `EFFECT_COLUMNS` with the span that prepared it, and its bucket."""
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
        effect.window_ends_ms,
        int(effect.replayed),
        effect.invocation_id,
        span_id,
        sequence,
        mac,
        bucket_of(effect.effect_id),
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
    return canonical_bytes(claim_signed(claim_row(claim)))


def claim_signed(row: Row) -> list[object]:
    """Return the values whose canonical bytes carry the MAC of a claim, from `CLAIM_COLUMNS`."""
    effect_id, instance, boot, claim_hash, admitted_ms, deadline_ms = row[:6]
    return ["claim", effect_id, instance, boot, claim_hash.hex(), admitted_ms, deadline_ms]


def evidence_from(row: Row) -> Evidence:
    """Build evidence from (effect_id, class, source, proves, reference, late, at_ms, charged)."""
    return Evidence(
        effect_id=EffectId(row[0]),
        evidence_class=EvidenceClass(row[1]),
        source=row[2],
        proves=row[3],
        reference=row[4],
        late=bool(row[5]),
        at_ms=InstantMs(row[6]),
        charged=amounts_from(row[7]),
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
