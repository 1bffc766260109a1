"""A full default ledger (LED-02), made quickly: real rows, seals and bindings, spans of the real size and shape.

The recorder writes the body that the real one would, without the SDK, so that ten thousand effects take seconds.
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

from audit.recorder import trace_id_of
from issuer.flow.binding import binding_digest
from issuer.sealing import NONCE_BYTES, PermitClaims, open_key_ring, seal_permit
from ledger.canonical import canonical_bytes
from ledger.changes import EffectMoved, Step
from ledger.model import (
    CounterTake,
    Effect,
    EffectId,
    EvidenceClass,
    InstantMs,
    LedgerId,
    Permit,
    PermitId,
    Task,
    Tier,
)
from ledger.port import Ledger, SpanRecorder
from ledger.rules import evidence_of, outcome_changes
from ledger.scope import slot_takes
from ledger.states import EffectState
from ledger.transitions import AttributeValue, Position, RecordedSpan, Transition
from tests.support.ledgers import (
    CENT,
    START,
    Book,
    admission_changes,
    commit_steps,
    made_book,
    moving,
    new_claim,
    new_effect,
    open_task,
    permitting,
    preparing,
)

FILLER = {f"permit.filler.{number}": "f" * 40 for number in range(8)}
"""What makes a span as large as a real one: about 1,200 bytes."""


def _found_by(effect_id: str) -> dict[str, object]:
    """Return what the span of an effect is found by: a few of most, and one resource for each effect."""
    number = int(effect_id[-4:], 16)
    return {
        "permit.actor": f"agent-{number % 7}",
        "permit.subject": f"u-{number % 11}",
        "permit.task.id": f"tsk_{number % 13:032x}",
        "permit.operation": f"operation-{number % 5}",
        "permit.resource.id": f"account/{effect_id}",
        "permit.policy.ids": (f"policy-{number % 17}",),
    }


class QuickRecorder:
    """Writes what `audit.recorder` would, and asks no SDK."""

    def record(
        self, transition: Transition, *, position: Position, parent_span_id: str | None, at_ms: InstantMs
    ) -> RecordedSpan:
        """See `SpanRecorder`."""
        held: dict[str, object] = {
            "permit.ledger.id": position.ledger_id,
            "permit.epoch": position.epoch,
            "permit.lane": position.lane,
            "permit.sequence": position.sequence,
            "permit.story": transition.story,
            "permit.transition": str(transition.name),
            **FILLER,
        }
        if transition.effect_id is not None:
            held |= {"permit.effect.id": str(transition.effect_id), **_found_by(transition.effect_id)}
        if transition.state_to is not None:
            held["permit.state.to"] = str(transition.state_to)
        span_id = hashlib.sha256(str(position).encode()).hexdigest()[:16]
        trace_id = trace_id_of(position.ledger_id, transition.story)
        body = canonical_bytes(
            {
                "attributes": held,
                "name": f"permit.{transition.name}",
                "parent": parent_span_id,
                "span": span_id,
                "start": str(at_ms * 1_000_000),
                "trace": trace_id,
            }
        )
        attributes = cast("Mapping[str, AttributeValue]", held)
        return RecordedSpan(span_id=span_id, trace_id=trace_id, body=body, attributes=attributes)


def quick_recorder(_ledger_id: LedgerId) -> SpanRecorder:
    """Make a `QuickRecorder` for whatever ledger."""
    return QuickRecorder()


class Maker:
    """Tells whole effects of a ledger whose keys stand in `folder`, each at a cost in `unit`."""

    def __init__(self, folder: Path, ledger: Ledger, tasks: tuple[Task, ...], *, unit: str = CENT) -> None:
        self._ring = open_key_ring(folder / "keys")
        self._ledger_id = ledger.ledger_id
        self._tasks = tasks
        self._paths = ledger.read(lambda view: {task.task_id: view.path(task.task_id) for task in tasks})
        self._unit = unit

    def steps(self, number: int) -> Iterator[Step]:
        """Tell one effect's whole way: every tenth stays unknown, the others succeed."""
        name = hashlib.sha256(f"effect {number}".encode()).digest()
        body = canonical_bytes({"v": 1, "effect": name.hex(), "payload": {"text": "p" * 600}})
        effect = new_effect(
            self._tasks[number % len(self._tasks)],
            {self._unit: 1 + number % 9},
            effect_id=EffectId(f"eff_{name.hex()[:32]}"),
            request_key=name.hex(),
            binding=body,
            binding_digest=binding_digest(body),
            content_key=name,
            resource_key=hashlib.sha256(name[:2]).digest(),
        )
        yield preparing(effect)
        permit = self._permit(effect, PermitId(f"pmt_{name.hex()[32:]}"), name[:NONCE_BYTES])
        bound = CounterTake(counter="all", amount=1, ceiling=10**6, level="org")
        yield permitting(effect, permit, (bound, *slot_takes(self._paths[effect.task_id], effect)))
        yield Step(
            transition=moving(effect, EffectState.ADMITTED),
            changes=admission_changes(effect, permit, new_claim(effect)),
        )
        target = EffectState.UNKNOWN if number % 10 == 0 else EffectState.SUCCEEDED
        evidence = evidence_of(
            effect,
            evidence_class=EvidenceClass.SERVICE,
            source="answer 201",
            proves=str(target),
            reference="pay_1",
            late=False,
            now=START,
        )
        changes = outcome_changes(effect, target=target, charged=effect.cost, evidence=evidence)
        yield Step(
            transition=moving(effect, target),
            changes=tuple(
                EffectMoved(effect_id=effect.effect_id, origin=EffectState.ADMITTED, target=target)
                if isinstance(change, EffectMoved)
                else change
                for change in changes
            ),
        )

    def _permit(self, effect: Effect, permit_id: PermitId, nonce: bytes) -> Permit:
        claims = PermitClaims(
            permit_id=permit_id,
            effect_id=effect.effect_id,
            task_id=effect.task_id,
            issued_ms=START,
            expires_ms=effect.expires_ms,
            tier=str(Tier.ISSUE),
            bundle_digest="b" * 64,
            costs={str(unit): amount for unit, amount in effect.cost.items()},
        )
        seal = seal_permit(
            self._ring,
            claims,
            ledger_id=self._ledger_id,
            effect_id=effect.effect_id,
            binding_digest=effect.binding_digest,
            nonce=nonce,
        )
        return Permit(
            permit_id=permit_id,
            effect_id=effect.effect_id,
            seal=seal,
            tier=Tier.ISSUE,
            issued_ms=START,
            expires_ms=effect.expires_ms,
            caps={"binding": effect.expires_ms},
        )


def full_ledger(folder: Path, *, effects: int, batch: int = 250) -> Book:
    """Make a ledger of `effects` effects, four spans each, in a tree of three levels."""
    book = made_book(folder)
    ledger = book.open(recorder=quick_recorder)
    root = open_task(ledger, "org", {CENT: 10**9})
    middle = open_task(ledger, "team", {CENT: 10**8}, root)
    leaves = tuple(open_task(ledger, f"leaf-{number}", {CENT: None}, middle) for number in range(8))
    maker = Maker(book.folder, ledger, leaves)
    for first in range(0, effects, batch):
        steps = [step for number in range(first, min(effects, first + batch)) for step in maker.steps(number)]
        commit_steps(ledger, *steps)
    ledger.close()
    return book
