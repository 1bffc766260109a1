"""The audit room: one span for every transition, or no transition.

`audit.recorder` is left out of the names below on purpose: it loads the OpenTelemetry SDK, which only the
composition root and commands that write should pay for.
"""

from audit.delivery import Delivery, SinkLook, Stand
from audit.errors import AuditUnavailable, NoRequiredSink, SinkAhead, SinkUnavailable
from audit.health import SinkWord
from audit.sink_thread import Reaching
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
from audit.sinks.skipping import Kept
from audit.timeline import TimelineEntry, entry_of, readable_line, timeline

__all__ = [
    "Acknowledged",
    "AuditUnavailable",
    "Delivery",
    "JsonlSink",
    "Kept",
    "LedgerSpans",
    "NoRequiredSink",
    "Reaching",
    "Sink",
    "SinkAhead",
    "SinkClass",
    "SinkExpectation",
    "SinkLook",
    "SinkUnavailable",
    "SinkWord",
    "SpanSource",
    "Stand",
    "TimelineEntry",
    "class_of",
    "create",
    "entry_of",
    "readable_line",
    "timeline",
]
