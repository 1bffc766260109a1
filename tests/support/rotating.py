"""Audit files that are rotated: a place with tiny files, processes that write to it, and what is then there."""

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from audit.errors import SinkUnavailable
from audit.sinks.jsonl import JsonlSink, create
from audit.sinks.lines import read_header, read_span_line
from audit.sinks.reading import read_jsonl
from audit.sinks.segments import segments_of
from ledger.transitions import SpanRow
from tests.support.spans import LEDGER, SpansInMemory

PATIENCE_S = 60.0
TINY_BYTES = 2_000
"""A file is full after two or three spans."""


def a_place(folder: Path) -> Path:
    """Make the audit file of the ledger that tests share."""
    path = folder / "spans.jsonl"
    create(path, LEDGER)
    return path


def a_sink(path: Path, *, segment_bytes: int = TINY_BYTES) -> JsonlSink:
    """Return a sink with nothing open and nothing remembered, as a new process has."""
    return JsonlSink(path, LEDGER, name="local", required=True, free_bytes_min=0, segment_bytes=segment_bytes)


class OneByOne(SpansInMemory):
    """A ledger that gives one span at a time, so that a call writes no more than it was asked for."""

    def spans_after(self, sequence: int, *, limit: int) -> Sequence[SpanRow]:
        """See `SpanSource`."""
        return super().spans_after(sequence, limit=min(limit, 1))


def ship_one_by_one(sink: JsonlSink, first: int, last: int) -> None:
    """Ship each span in a call of its own, as a process that dispatches does; every yes is held to its word."""
    for sequence in range(first, last + 1):
        source = SpansInMemory(sequence)
        assert sink.ship(source, source.head(), PATIENCE_S).sequence == sequence


def told(path: Path) -> list[int]:
    """Return the sequences of the whole sink, read strictly, file by file."""
    return [span.tail.sequence for span in read_jsonl(path, LEDGER, name="local")]


def full_files(path: Path) -> list[Path]:
    """Return the full files in order; each is headed by the last line of the one before it."""
    files = [segment.path for segment in segments_of(path)]
    before = None
    for file in files:
        header, *lines = file.read_bytes().splitlines(keepends=True)
        assert read_header(header).after == before
        before = read_span_line(lines[-1])
    return files


# Targets of child processes: they are imported afresh there, so they stand at the top of a module.


def ship_along(path: Path, count: int, start: Callable[[], object]) -> None:
    """Ship every sequence from 1 to `count`, one call each, into tiny files."""
    source, sink = OneByOne(count), a_sink(path)
    start()
    for sequence in range(1, count + 1):
        row = source.span_at(sequence)
        if row is None or sink.ship(source, row.position, PATIENCE_S).sequence < sequence:
            raise SystemExit(3)


STEPS = ("fsync", "link", "rename", "unlink", "write", "fdatasync", "ftruncate", "fchmod", "close")
"""Calls of the operating system that a step of a rotation is made of; each is a place to be killed at."""


def die_at(path: Path, count: int, kill_at: int) -> None:
    """Ship spans one call each, writing down what was acknowledged, and be killed before the call number `kill_at`."""
    calls = 0

    def counted(real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **named: object) -> object:
            nonlocal calls
            calls += 1
            if calls == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **named)

        return call

    source, sink = OneByOne(count), a_sink(path)
    said = os.open(path.with_suffix(".said"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    report = os.write
    for name in STEPS:
        setattr(os, name, counted(getattr(os, name)))
    for sequence in range(1, count + 1):
        row = source.span_at(sequence)
        if row is not None:
            with suppress(SinkUnavailable):
                report(said, b"%d\n" % sink.ship(source, row.position, PATIENCE_S).sequence)
