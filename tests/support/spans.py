"""Committed spans without a database: rows made by the real recorder, in the shape a ledger would hold them.

Equal seeds give equal bytes in every process, so that a test can compare files, bodies and acknowledgements.
"""

import hashlib
import os
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from opentelemetry.sdk.trace import SpanProcessor

from audit.recorder import OtelRecorder
from audit.sinks.jsonl import JsonlSink
from audit.sinks.lines import read_span_line
from audit.vocabulary import ATTRIBUTES, SPANS
from ledger.model import EffectId, InstantMs, LedgerId
from ledger.states import LEGAL_MOVES, PENDING, EffectState
from ledger.transitions import AttributeValue, Position, SpanRow, Transition, TransitionName
from ledger.tree import leaf_hash

LEDGER = LedgerId("ldg_7c1f09aa")
EFFECT = EffectId("eff_" + "1" * 32)
TASK = "tsk_" + "2" * 32
START_MS = 1_796_083_200_000
VERSION = "0.1.0"

SAMPLES: dict[str, AttributeValue] = {
    "permit.mode": "strict",
    "permit.caller": "ap-service",
    "permit.actor": "ap-bot",
    "permit.subject": "bob",
    "permit.task.id": TASK,
    "permit.task.name": "accounts-payable",
    "permit.root.id": TASK,
    "permit.operation": "pay_invoice",
    "permit.operation.version": 3,
    "permit.class": "payment",
    "permit.resource.type": "Invoice",
    "permit.resource.id": "hetzner/R-119",
    "permit.binding.digest": "ab" * 32,
    "permit.cost": ("EUR.cent=14950",),
    "permit.charged": ("EUR.cent=14950",),
    "permit.overrun": (),
    "permit.reservation": ("ap-2026-12-01:EUR.cent=14950", "accounts-payable:EUR.cent=14950"),
    "permit.ceiling": ("EUR.cent=200000", "publish=inherit"),
    "permit.granted": ("EUR.cent=5000",),
    "permit.lowered": ("EUR.cent=150000",),
    "permit.scope": ("class:payment=20", "operation:pay_invoice=inherit", "resource:Invoice:hetzner/R-118=1"),
    "permit.parent.id": "tsk_" + "3" * 32,
    "permit.actors": ("ap-bot", "ap-bot-2"),
    "permit.expires_ms": START_MS + 600_000,
    "permit.deadline_ms": START_MS + 60_000,
    "permit.tier": "issue",
    "permit.policy.ids": ("small-invoices",),
    "permit.policy.errors": ("small-invoices:type_error",),
    "permit.bundle.digest": "cd" * 32,
    "permit.revision": "ef" * 32,
    "permit.engine": "cedarpy 4.12.2",
    "permit.obligations": ("notify finance",),
    "permit.obligation": "notify-finance",
    "permit.invocation.id": "inv_" + "6" * 32,
    "permit.invocations": ("inv_" + "7" * 32,),
    "permit.outcome": "failed_application",
    "permit.refusal": "denied",
    "permit.refusal.field": "amount_cents",
    "permit.refusal.level": "accounts-payable",
    "permit.evidence.class": "service",
    "permit.evidence.source": "answer 201",
    "permit.reference": "pay_00017",
    "permit.late": False,
    "permit.contradicts": "succeeded",
    "permit.attempt": "inspect",
    "permit.seen": "absent",
    "permit.fields": ("integrity",),
    "permit.reason": "answer_lost",
    "permit.command": "commit",
    "permit.instance": "ins-5",
    "permit.host.trace_id": "0af7651916cd43dd8448eb211c80319c",
    "permit.sink.name": "local",
    "permit.sink.kind": "jsonl",
    "permit.sink.location_digest": "09" * 32,
    "permit.sink.leaf": "0b" * 32,
    "permit.sink.from": 11,
    "permit.sink.upto": 117,
    "permit.tree.size": 118,
    "permit.tree.root": "6d" * 32,
    "permit.format": "json_lines",
    "permit.filter.digest": "7d" * 32,
    "permit.gone.digest": "9d" * 32,
    "permit.file.digest": "8d" * 32,
    "permit.count": 12,
    "permit.looked_ms": 1,
    "permit.collected": ("eff_" + "2" * 32,),
    "permit.forgotten": 3,
    "permit.clock.before_ms": START_MS - 60_000,
    "permit.base.epoch": 1,
    "permit.base.sequence": 118,
    "permit.sinks.left": (f"local=1:120:{'0a' * 32}:{'0b' * 32}",),
    "permit.permit.id": "pmt_" + "4" * 32,
    "permit.content.key": "5c" * 32,
    "permit.resource.key": "5e" * 32,
    "permit.schema.from": 1,
    "permit.schema.to": 2,
    "permit.signer": "carol",
    "permit.statement.digest": "1f" * 32,
    "permit.key.fingerprint": "SHA256:" + "q" * 43,
    "permit.approvers": ("finance=2", "stewards=1"),
    "permit.approvals": ("bob", "carol"),
    "permit.revision.activated": "2f" * 32,
    "permit.revision.before": "3f" * 32,
    "permit.files": ("policies/starter.cedar", "profile.toml"),
    "permit.stop": "operation:pay_invoice",
    "permit.credential": "host:ap-service",
    "permit.key.id": "0badcafe",
    "permit.sqlite": "3.53.2",
}


def sample(
    name: TransitionName,
    *,
    everything: bool = False,
    effect_id: EffectId = EFFECT,
    **changed: AttributeValue,
) -> Transition:
    """Return a transition that the vocabulary accepts, with what it must carry, or with all that it may.

    `changed` replaces values; `_` in its names stands for a dot.
    """
    shape = SPANS[name]
    names = shape.required | shape.optional if everything else shape.required
    attributes = {key: SAMPLES[key] for key in ATTRIBUTES if key in names}
    for key, value in changed.items():
        attributes["permit." + key.replace("__", ".")] = value
    target = shape.state_to
    # From a pending state only a restore moves to `unknown` (LED-08).
    replayed = name is TransitionName.EFFECT_REPLAYED
    origins = [
        origin
        for origin, targets in LEGAL_MOVES.items()
        if target in targets and (replayed or target is not EffectState.UNKNOWN or origin not in PENDING)
    ]
    return Transition(
        name=name,
        story=effect_id if name.value.startswith("effect.") else LEDGER,
        effect_id=effect_id if name.value.startswith("effect.") else None,
        state_from=origins[0] if origins else None,
        state_to=target,
        attributes=attributes,
    )


def counted_bytes(seed: int = 0) -> Callable[[int], bytes]:
    """Return a source of bytes that look random and repeat from run to run."""
    drawn = 0

    def draw(size: int) -> bytes:
        nonlocal drawn
        drawn += 1
        return hashlib.sha256(f"{seed}/{drawn}".encode()).digest()[:size]

    return draw


def recorder(*processors: SpanProcessor, seed: int = 0) -> OtelRecorder:
    """Return a real recorder with repeatable ids."""
    return OtelRecorder(
        LEDGER, random_bytes=counted_bytes(seed), service_version=VERSION, processors=processors
    )


class SpansInMemory:
    """The committed spans of a ledger, in a list; implements `audit.sinks.port.SpanSource`."""

    def __init__(self, count: int = 0, *, ledger_id: LedgerId = LEDGER, seed: int = 0) -> None:
        self.ledger_id = ledger_id
        self.epoch = 0
        self._recorder = OtelRecorder(ledger_id, random_bytes=counted_bytes(seed), service_version=VERSION)
        self._rows: list[SpanRow] = []
        self._last: dict[str, str] = {}
        self._guard = threading.Lock()
        for _ in range(count):
            self.add()

    def add(self, transition: Transition | None = None) -> SpanRow:
        """Commit one more span: the given one, or a probe of the ledger."""
        kept = transition or Transition(name=TransitionName.PROBE, story=self.ledger_id)
        with self._guard:
            place = Position(ledger_id=self.ledger_id, epoch=self.epoch, lane=0, sequence=len(self._rows) + 1)
            at_ms = InstantMs(START_MS + place.sequence)
            span = self._recorder.record(
                kept, position=place, parent_span_id=self._last.get(kept.story), at_ms=at_ms
            )
            self._last[kept.story] = span.span_id
            row = SpanRow(
                position=place,
                span_id=span.span_id,
                trace_id=span.trace_id,
                name=kept.name.value,
                story=kept.story,
                at_ms=at_ms,
                body=span.body,
                leaf=leaf_hash(span.body),
            )
            self._rows.append(row)
        return row

    def roll_back_to(self, sequence: int) -> None:
        """Forget what came after, as an older copy of the ledger would."""
        with self._guard:
            del self._rows[sequence:]

    def replace(self, row: SpanRow) -> None:
        """Put another row in the place of the one with the same sequence."""
        with self._guard:
            self._rows[row.position.sequence - 1] = row

    def head(self) -> Position:
        """Return the position of the last span."""
        return self._rows[-1].position

    def story(self, story: str) -> Sequence[SpanRow]:
        """Return the spans of one story, in order."""
        return [row for row in self._rows if row.story == story]

    def spans_after(self, sequence: int, *, limit: int) -> Sequence[SpanRow]:
        """See `SpanSource`."""
        with self._guard:
            return [row for row in self._rows if row.position.sequence > sequence][:limit]

    def span_at(self, sequence: int) -> SpanRow | None:
        """See `SpanSource`."""
        with self._guard:
            return self._rows[sequence - 1] if 1 <= sequence <= len(self._rows) else None

    def epoch_after(self, epoch: int) -> SpanRow | None:
        """See `SpanSource`."""
        with self._guard:
            return next((row for row in self._rows if row.position.epoch > epoch), None)


def settled_story(source: SpansInMemory, effect_id: EffectId = EFFECT) -> None:
    """Commit the four spans of an effect that succeeded."""
    moves = (
        (TransitionName.EFFECT_PREPARED, None),
        (TransitionName.EFFECT_PERMITTED, EffectState.PREPARED),
        (TransitionName.EFFECT_ADMITTED, EffectState.PERMITTED),
        (TransitionName.EFFECT_SUCCEEDED, EffectState.ADMITTED),
    )
    for name, origin in moves:
        made = sample(name, effect_id=effect_id)
        source.add(
            Transition(
                name=name,
                story=effect_id,
                effect_id=effect_id,
                state_from=origin,
                state_to=made.state_to,
                attributes=made.attributes,
            )
        )


def sequences_in(path: Path) -> list[int]:
    """Return the sequences of a sink's file in order, after reading every line of it strictly."""
    return [read_span_line(line).sequence for line in path.read_bytes().splitlines(keepends=True)[1:]]


# Targets of child processes: they are imported afresh there, so they stand at the top of a module.


def ship_each(path: Path, count: int, start: Callable[[], object], seed: int = 0) -> None:
    """Ship every sequence from 1 to `count`, one call each, as a process that dispatches does."""
    source = SpansInMemory(count, seed=seed)
    sink = JsonlSink(path, LEDGER, name="local", required=True)
    start()
    for sequence in range(1, count + 1):
        row = source.span_at(sequence)
        if row is None or sink.ship(source, row.position, 30.0).sequence < sequence:
            raise SystemExit(3)


def die_before_sync(path: Path, count: int) -> None:
    """Ship `count` spans, and be killed after the write and before the sync."""
    source = SpansInMemory(count)
    sink = JsonlSink(path, LEDGER, name="local", required=True)
    os.fdatasync = lambda fd: os.kill(os.getpid(), signal.SIGKILL)  # noqa: ARG005 - as the call names it
    sink.ship(source, source.head(), 30.0)
