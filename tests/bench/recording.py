"""One span recorded in the transaction of its transition, beside what a program without the promise would do.

Floors: a bare SDK span with the same attributes and an insert of bytes that are there already, by rowid alone; and the
same with those bytes encoded by the standard library. What is above is what is promised: vocabulary, search for
secrets, every part of the span compared, canonical bytes, their hash, the columns and indexes that it is found by, the
row read back. The ledger has spans already, and the transaction is open: syncing is not measured.
"""

import json
import secrets
from collections.abc import Callable
from pathlib import Path

from opentelemetry.sdk.trace import TracerProvider

from audit.recorder import OtelRecorder
from ledger.changes import Step
from ledger.model import EffectId, InstantMs
from ledger.sqlite.connection import DRIVER
from ledger.sqlite.head import proven_head
from ledger.sqlite.writes import StepWriter
from ledger.transitions import Position, Transition
from tests.bench.parts import Row, median_cost
from tests.support.long_trail import KINDS, long_trail

BEFORE = 5_000
ROUNDS = 3_000
KIND = KINDS["permitted"]


def recording_rows(folder: Path) -> list[Row]:
    """Measure both."""
    book = long_trail(folder / "trail", spans=BEFORE)
    ledger = book.open(
        recorder=lambda name: OtelRecorder(name, random_bytes=secrets.token_bytes, service_version="0")
    )
    raw = ledger._raw
    raw.execute("BEGIN IMMEDIATE")
    head, _frontier = proven_head(raw, ledger.ledger_id, book.keys)
    at_ms = InstantMs(head.clock_ms + 1)
    writer = StepWriter(raw, recorder=ledger._recorder, keys=book.keys, at_ms=at_ms, head=head)
    sequence, body = BEFORE, b""

    def record() -> None:
        nonlocal sequence, body
        sequence += 1
        effect = EffectId(f"eff_{sequence:032x}")
        transition = Transition(
            name=KIND.name,
            story=effect,
            effect_id=effect,
            state_from=KIND.origin,
            state_to=KIND.target,
            attributes=KIND.attributes,
        )
        position = Position(ledger_id=ledger.ledger_id, epoch=1, lane=0, sequence=sequence)
        body = writer.write(Step(transition=transition), position).body

    recorded = median_cost(record, rounds=ROUNDS)
    raw.execute("ROLLBACK")
    ledger.close()
    rows = []
    for what, floor, says in _floors(folder, body):
        cost = median_cost(floor, rounds=ROUNDS)
        rows.append(
            Row(
                what=what,
                figure=f"{recorded.cpu_s * 1e6:.0f} us",
                floor=f"{cost.cpu_s * 1e6:.0f} us: {says}",
                ratio=recorded.cpu_s / cost.cpu_s,
                goal="<= 1.8",
            )
        )
    return rows


def _floors(folder: Path, body: bytes) -> tuple[tuple[str, Callable[[], object], str], ...]:
    """Return what recording is measured beside: its name, the work, and what that is."""
    document = json.loads(body)
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("bare")
    bare = DRIVER.Connection(str(folder / "bare-spans.sqlite"), isolation_level=None)
    bare.execute("PRAGMA journal_mode = WAL")
    bare.execute("CREATE TABLE spans(id INTEGER PRIMARY KEY, body BLOB)")
    bare.execute("BEGIN IMMEDIATE")

    def barely() -> None:
        tracer.start_span(document["name"], attributes=document["attributes"]).end()
        bare.execute("INSERT INTO spans(body) VALUES (?)", (body,))

    def encoded() -> None:
        tracer.start_span(document["name"], attributes=document["attributes"]).end()
        made = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
        bare.execute("INSERT INTO spans(body) VALUES (?)", (made,))

    return (
        ("recording a span in its transaction", barely, "a bare SDK span, a bare insert of the same bytes"),
        ("the same", encoded, "the same, and the bytes made"),
    )
