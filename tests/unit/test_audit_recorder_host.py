"""The recorder beside a host's own OpenTelemetry: whatever processors, chains and tracers do, complete or nothing."""

import json
import os
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import (
    ReadableSpan,
    Span,
    SpanLimits,
    SpanProcessor,
    SynchronousMultiSpanProcessor,
    TracerProvider,
    _TracerConfig,
)
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from audit.recorder import OtelRecorder
from ledger.errors import SpanNotRecorded
from ledger.model import InstantMs
from tests.support.spans import EFFECT, LEDGER, START_MS, VERSION, recorder
from tests.unit.test_audit_recorder import record, why_not


@pytest.mark.spec("AUD-03", "AUD-05")
def test_the_hosts_ambient_trace_is_no_parent() -> None:
    host = TracerProvider(shutdown_on_exit=False).get_tracer("host")
    alone = record(recorder(), parent_span_id=None)
    with host.start_as_current_span("host work"):
        inside = record(recorder(), parent_span_id=None)
        assert trace.get_current_span().is_recording()
    assert inside == alone


@pytest.mark.spec("AUD-03")
def test_the_hosts_seeded_random_numbers_give_no_equal_ids() -> None:
    ids = set()
    for _ in range(2):
        random.seed(42)
        made = OtelRecorder(LEDGER, random_bytes=os.urandom, service_version=VERSION)
        ids.add(record(made).span_id)
    assert len(ids) == 2


class Raising(SpanProcessor):
    """Raises the given exception at one of the three places where a processor is called."""

    def __init__(self, place: str, fault: BaseException) -> None:
        self.place, self.fault = place, fault

    def _act(self, place: str) -> None:
        if place == self.place:
            raise self.fault

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        del span, parent_context
        self._act("on_start")

    def _on_ending(self, span: Span) -> None:
        del span
        self._act("_on_ending")

    def on_end(self, span: ReadableSpan) -> None:
        del span
        self._act("on_end")


@pytest.mark.spec("AUD-01", "AUD-03")
@pytest.mark.parametrize("place", ["on_start", "_on_ending", "on_end"])
def test_a_processor_that_raises_leaves_no_span_and_no_trace_in_the_next(place: str) -> None:
    raising = Raising(place, ValueError("canary-4711"))
    made = recorder(raising)
    with pytest.raises(SpanNotRecorded) as caught:
        record(made)
    assert caught.value.reason == "sdk"
    assert "4711" not in caught.value.message
    assert caught.value.__cause__ is None
    raising.place = "nowhere"
    assert json.loads(record(made).body)["attributes"]["permit.story"] == EFFECT


@pytest.mark.spec("AUD-03")
@pytest.mark.parametrize("place", ["on_start", "_on_ending", "on_end"])
def test_an_interrupt_inside_a_processor_is_passed_on_and_leaves_no_span(place: str) -> None:
    raising = Raising(place, KeyboardInterrupt())
    made = recorder(raising)
    with pytest.raises(KeyboardInterrupt):
        record(made)
    raising.place = "nowhere"
    record(made)


class Swallowing(SynchronousMultiSpanProcessor):
    """A chain as a later SDK may have it: an exception of one processor is swallowed, the next is called."""

    def on_end(self, span: ReadableSpan) -> None:
        for processor in self._span_processors:
            try:
                processor.on_end(span)
            except Exception:  # noqa: BLE001, S112 - this is the behaviour under test
                continue


class Deaf(SynchronousMultiSpanProcessor):
    """A chain that tells nobody."""

    def on_end(self, span: ReadableSpan) -> None:
        del span


class Twice(SynchronousMultiSpanProcessor):
    """A chain that tells everybody twice."""

    def on_end(self, span: ReadableSpan) -> None:
        super().on_end(span)
        super().on_end(span)


def with_chain(kind: type[SynchronousMultiSpanProcessor], *processors: SpanProcessor) -> OtelRecorder:
    made = recorder(*processors)
    chain = kind()
    chain._span_processors = made._tracer.span_processor._span_processors
    made._tracer.span_processor = chain
    return made


@pytest.mark.spec("AUD-01", "AUD-03")
def test_where_the_sdk_swallows_what_a_processor_raises_the_span_is_complete() -> None:
    made = with_chain(Swallowing, Raising("on_end", ValueError()))
    assert record(made) == record(recorder())


@pytest.mark.spec("AUD-01", "AUD-03")
@pytest.mark.parametrize("chain", [Deaf, Twice])
def test_a_span_that_does_not_arrive_exactly_once_is_not_recorded(
    chain: type[SynchronousMultiSpanProcessor],
) -> None:
    assert why_not(with_chain(chain)) == "not_received"


class Late(SynchronousMultiSpanProcessor):
    """A chain that raises after everybody was told."""

    def on_end(self, span: ReadableSpan) -> None:
        super().on_end(span)
        if span.end_time == START_MS * 1_000_000:
            raise ValueError


@pytest.mark.spec("AUD-01")
def test_a_span_that_was_refused_after_it_arrived_is_not_taken_for_the_next() -> None:
    made = with_chain(Late)
    assert why_not(made) == "sdk"
    later = record(made, at_ms=InstantMs(START_MS + 1))
    assert f'"start":"{START_MS + 1}000000"'.encode() in later.body


class Elsewhere(SynchronousMultiSpanProcessor):
    """A chain that tells another thread."""

    def on_end(self, span: ReadableSpan) -> None:
        teller = threading.Thread(target=super().on_end, args=(span,))
        teller.start()
        teller.join()


@pytest.mark.spec("AUD-03")
def test_a_span_that_arrives_on_another_thread_is_not_recorded() -> None:
    assert why_not(with_chain(Elsewhere)) == "not_received"


class Stale(SynchronousMultiSpanProcessor):
    """A chain that passes on an earlier span in place of the one that ended."""

    earlier: ReadableSpan | None = None

    def on_end(self, span: ReadableSpan) -> None:
        self.earlier = self.earlier or span
        super().on_end(self.earlier)


@pytest.mark.spec("AUD-01")
def test_an_earlier_span_in_place_of_this_one_is_not_recorded() -> None:
    made = with_chain(Stale)
    record(made)
    assert why_not(made) == "not_received"


class Changing(SpanProcessor):
    """Does something to each span when it starts."""

    def __init__(self, change: Callable[[Any], object]) -> None:
        self.change = change

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        del parent_context
        self.change(span)


CHANGES: list[tuple[str, Callable[[Any], object]]] = [
    ("attribute added", lambda span: span.set_attribute("host.note", "x")),
    ("attribute changed", lambda span: span.set_attribute("permit.actor", "eve")),
    ("attribute removed", lambda span: span._attributes.pop("permit.actor")),
    ("flag made a number", lambda span: span.set_attribute("permit.epoch", 2.0)),
    ("renamed", lambda span: span.update_name("permit.effect.denied")),
    ("event added", lambda span: span.add_event("host event")),
    ("link added", lambda span: span.add_link(span.get_span_context())),
    ("marked as failed", lambda span: span.set_status(trace.StatusCode.ERROR, "x")),
    ("marked as fine", lambda span: span.set_status(trace.StatusCode.OK)),
    ("ended early", lambda span: span.end()),
    ("moved in time", lambda span: setattr(span, "_start_time", 1)),
    ("given a parent", lambda span: setattr(span, "_parent", None)),
    ("given a trace", lambda span: setattr(span, "_context", trace.INVALID_SPAN_CONTEXT)),
    ("given a kind", lambda span: setattr(span, "_kind", trace.SpanKind.CLIENT)),
    ("given a resource", lambda span: setattr(span, "_resource", TracerProvider().resource)),
    ("given a scope", lambda span: setattr(span, "_instrumentation_scope", None)),
    ("counted as cut", lambda span: setattr(span._attributes, "dropped", 1)),
]


@pytest.mark.spec("AUD-03")
@pytest.mark.parametrize("change", [change for _, change in CHANGES], ids=[name for name, _ in CHANGES])
def test_a_span_that_a_processor_changed_is_not_recorded(change: Callable[[Any], object]) -> None:
    assert why_not(recorder(Changing(change))) in {"altered", "not_received"}


def unsampled(made: OtelRecorder) -> None:
    made._tracer.sampler = ALWAYS_OFF


def switched_off(made: OtelRecorder) -> None:
    made._tracer._set_tracer_config(_TracerConfig(is_enabled=False))


def limited_in_number(made: OtelRecorder) -> None:
    made._tracer._span_limits = SpanLimits(max_span_attributes=3)


def limited_in_length(made: OtelRecorder) -> None:
    made._tracer._span_limits = SpanLimits(max_span_attribute_length=8)


@pytest.mark.spec("AUD-03")
@pytest.mark.parametrize("break_it", [unsampled, switched_off, limited_in_number, limited_in_length])
def test_a_tracer_that_was_tampered_with_records_nothing(break_it: Callable[[OtelRecorder], None]) -> None:
    made = recorder()
    break_it(made)
    assert why_not(made) in {"altered", "not_received"}
