"""One span recorded in the transaction of its transition, beside what a program without the promise would do.

Floors, each the one before and more: a bare SDK span with the same attributes and an insert of its bytes, which are
there already, by rowid alone; those bytes made by the standard library; the row with the columns and indexes that a
span is found by. What is above is what is promised: vocabulary, search for secrets, every part of the span compared,
the hash, the guards of the table, the row read back.

The ledger has spans already, and each transaction is open: neither its begin nor its sync is measured, on either side.
Every span has values of its own where spans have them in use, on either side. Figure and floors take turns, so that the
load of the machine, and what each leaves of its caches, is the same for all.
"""

import json
import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import TracerProvider

from audit.recorder import OtelRecorder
from ledger.changes import Step
from ledger.model import InstantMs
from ledger.sqlite.connection import DRIVER
from ledger.sqlite.head import proven_head
from ledger.sqlite.span_writes import insert_span
from ledger.sqlite.writes import StepWriter
from ledger.transitions import Position, SpanRow, Transition
from tests.bench.parts import Row, median_costs
from tests.support.ledgers import Book
from tests.support.long_trail import long_trail, transition_of

BEFORE = 5_000
ROUNDS = 3_000


class _Bare:
    """A program that makes a span and keeps it, and promises nothing of it."""

    def __init__(
        self, folder: Path, spans: Iterator[tuple[dict[str, Any], bytes, SpanRow, Transition]]
    ) -> None:
        self._spans = spans
        self._tracer = TracerProvider(shutdown_on_exit=False).get_tracer("bare")
        self.raw = DRIVER.Connection(str(folder / f"bare-{id(self)}.sqlite"), isolation_level=None)
        self.raw.execute("PRAGMA journal_mode = WAL")
        self.raw.execute("CREATE TABLE bare(id INTEGER PRIMARY KEY, body BLOB)")

    def kept(self) -> None:
        document, body, _row, _transition = next(self._spans)
        self._tracer.start_span(document["name"], attributes=document["attributes"]).end()
        self.raw.execute("INSERT INTO bare(body) VALUES (?)", (body,))

    def encoded(self) -> None:
        document, _body, _row, _transition = next(self._spans)
        self._tracer.start_span(document["name"], attributes=document["attributes"]).end()
        made = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
        self.raw.execute("INSERT INTO bare(body) VALUES (?)", (made,))

    def found_again(self) -> None:
        document, _body, row, transition = next(self._spans)
        self._tracer.start_span(document["name"], attributes=document["attributes"]).end()
        made = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
        insert_span(self.raw, transition, replace(row, body=made), transition.attributes)


def _recorder(ledger_id: str) -> OtelRecorder:
    return OtelRecorder(ledger_id, random_bytes=secrets.token_bytes, service_version="0")


def _writer(ledger: Any, book: Book) -> StepWriter:
    head, _frontier = proven_head(ledger._raw, ledger.ledger_id, book.keys)
    at_ms = InstantMs(head.clock_ms + 1)
    return StepWriter(ledger._raw, recorder=ledger._recorder, keys=book.keys, at_ms=at_ms, head=head)


def _written(ledger: Any, book: Book, steps: list[tuple[Step, Position]]) -> list[SpanRow]:
    """Return the rows of steps as they would be written, and write none."""
    ledger._raw.execute("BEGIN IMMEDIATE")
    writer = _writer(ledger, book)
    written = [writer.write(step, position) for step, position in steps]
    ledger._raw.execute("ROLLBACK")
    # What was looked at here is not to be known when it is measured.
    ledger._recorder = _recorder(ledger.ledger_id)
    return written


def recording_rows(folder: Path) -> list[Row]:
    """Measure all."""
    book = long_trail(folder / "trail", spans=BEFORE)
    ledger: Any = book.open(recorder=_recorder)
    raw = ledger._raw
    tables = [
        sql
        for (sql,) in raw.execute(
            "SELECT sql FROM sqlite_schema WHERE tbl_name IN ('spans', 'span_policies') AND type <> 'trigger' "
            "AND sql IS NOT NULL ORDER BY type DESC, name DESC"
        ).fetchall()
    ]
    numbers = range(BEFORE + 1, BEFORE + ROUNDS + 2)
    steps = [
        (
            Step(transition=transition_of(number)),
            Position(ledger_id=ledger.ledger_id, epoch=1, lane=0, sequence=number),
        )
        for number in numbers
    ]
    # The bytes of the floors are those of the very spans, made before anything is measured.
    written = _written(ledger, book, steps)
    spans = [
        (json.loads(row.body), row.body, row, step.transition)
        for (step, _), row in zip(steps, written, strict=True)
    ]
    bare = [_Bare(folder, iter(spans)) for _ in range(3)]
    for sql in tables:
        bare[2].raw.execute(sql)
    for one in bare:
        one.raw.execute("BEGIN IMMEDIATE")
    raw.execute("BEGIN IMMEDIATE")
    writer = _writer(ledger, book)
    following = iter(steps)
    recorded, *floors = median_costs(
        lambda: writer.write(*next(following)),
        bare[0].kept,
        bare[1].encoded,
        bare[2].found_again,
        rounds=ROUNDS,
    )
    raw.execute("ROLLBACK")
    ledger.close()
    for one in bare:
        one.raw.close()
    says = (
        ("recording a span in its transaction", "a bare SDK span, a bare insert of the same bytes", "<= 1.8"),
        ("the same", "the same, and the bytes made", ""),
        ("the same", "the same, and columns and indexes to find it by", ""),
    )
    return [
        Row(
            what=what,
            figure=f"{recorded.cpu_s * 1e6:.0f} us",
            floor=f"{cost.cpu_s * 1e6:.0f} us: {floor}",
            ratio=recorded.cpu_s / cost.cpu_s,
            goal=goal,
        )
        for (what, floor, goal), cost in zip(says, floors, strict=True)
    ]
