"""The audit room: one span for every transition, or no transition.

`audit.recorder` is left out of the names below on purpose: it loads the OpenTelemetry SDK, which only the
composition root and commands that write should pay for.
"""

from audit.delivery import Delivery
from audit.errors import AuditUnavailable, NoRequiredSink, SinkAhead, SinkUnavailable
from audit.sinks.jsonl import JsonlSink, create
from audit.sinks.port import (
    Acknowledged,
    LedgerSpans,
    Sink,
    SinkClass,
    SinkExpectation,
    SpanSource,
    class_of,
)
from audit.timeline import TimelineEntry, entry_of, readable_line, timeline

__all__ = [
    "Acknowledged",
    "AuditUnavailable",
    "Delivery",
    "JsonlSink",
    "LedgerSpans",
    "NoRequiredSink",
    "Sink",
    "SinkAhead",
    "SinkClass",
    "SinkExpectation",
    "SinkUnavailable",
    "SpanSource",
    "TimelineEntry",
    "class_of",
    "create",
    "entry_of",
    "readable_line",
    "timeline",
]
