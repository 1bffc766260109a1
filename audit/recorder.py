"""Transition to SDK span to canonical bytes: a complete span, or none (the only door to opentelemetry).

Rules: AUD-01 (the proof is positive), AUD-03 (nothing around the core silences, cuts or redirects a span),
AUD-05 (one trace per story).

What the SDK does with errors, limits and sampling depends on its environment and its version, so nothing
here rests on the absence of an exception. A span counts when, on this thread, our own processor received
exactly the span that was started, once, with every part equal to what was asked for.

1. The tracer is built directly: a provider would hand out a tracer without spans under OTEL_SDK_DISABLED.
2. Sampler, limits, resource, id source, meter and parent are all given: a default of any would read the
   environment, the host's global state or the host's random numbers.
3. The host's trace is an attribute, never a parent; a story is one trace, whose id follows from its name.
4. A forked child is refused: it holds a copy of a tracer whose locks and numbers belong to its parent.

It does not write the row; the store does, and proves it. Next: `ledger.port.Ledger.transact`.
"""

import hashlib
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from audit.known import KnownValues
from audit.redaction import without_secrets
from audit.vocabulary import OUTCOMES, check
from ledger.canonical import canonical_flat, canonical_text
from ledger.errors import Malformed, SpanNotRecorded
from ledger.model import BINDING_BYTES_MAX, InstantMs
from ledger.transitions import AttributeValue, Position, RecordedSpan, Transition

try:
    from opentelemetry.context import Context
    from opentelemetry.metrics import NoOpMeterProvider
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import (
        ReadableSpan,
        SpanLimits,
        SpanProcessor,
        SynchronousMultiSpanProcessor,
        Tracer,
    )
    from opentelemetry.sdk.trace.id_generator import IdGenerator
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import (
        NonRecordingSpan,
        SpanContext,
        SpanKind,
        StatusCode,
        TraceFlags,
        set_span_in_context,
    )
except ValueError:
    # The SDK reads its limits while it is imported. Its own sentence repeats the value, so it is not shown.
    raise SpanNotRecorded(
        "otel_environment", "An OTEL_ variable of the environment is malformed, so the SDK does not load."
    ) from None

__all__ = ["BODY_VERSION", "OtelRecorder", "trace_id_of"]

BODY_VERSION: Final = 1
"""Version of the canonical body; a change of its members gets a new number."""

BODY_BYTES_MAX: Final = BINDING_BYTES_MAX
"""Bytes of one encoded span: the bound of any record of the ledger (LED-02)."""

AT_MS_MAX: Final = (2**63 - 1) // 1_000_000
"""Latest instant whose nanoseconds fit the signed 64 bits that trace back ends keep (year 2262)."""

TRACE_DOMAIN: Final = "permit-audit/1"
SCOPE_NAME: Final = "permit_issuer"
SERVICE_NAME: Final = "permit-issuer"
NS_PER_MS: Final = 1_000_000
SPAN_ID_BYTES: Final = 8
TRACE_ID_BYTES: Final = 16

ID_TRIES_MAX: Final = 4
"""Draws of a span id, of which zero is invalid (W3C Trace Context, section 3.2.2.4)."""

SELFTEST_ATTRIBUTES: Final = 200
"""More than the 128 at which the SDK's default limit drops the oldest."""

SELFTEST_LENGTH: Final = 8192
"""Characters of a value, longer than any length limit that is in use."""

_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_SPAN_ID: Final = re.compile(r"[0-9a-f]{16}\Z")


def trace_id_of(ledger_id: str, story: str) -> str:
    """Return the trace id of a story (AUD-05): 16 bytes of SHA-256(domain 00 ledger 00 story), in hex."""
    named = f"{TRACE_DOMAIN}\x00{ledger_id}\x00{story}".encode()
    return hashlib.sha256(named).digest()[:TRACE_ID_BYTES].hex()


class _Asked(NamedTuple):
    """The span as it must arrive; ids as the SDK has them, which is as numbers."""

    name: str
    attributes: Mapping[str, AttributeValue]
    trace: int
    parent: int | None
    at_ns: int


class _StoryIds(IdGenerator):
    """Span ids from the given source, and the trace id that this thread asked for."""

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes = random_bytes
        self._wanted = threading.local()

    def want(self, trace_id: int) -> None:
        """Set the trace id of the next root span of this thread."""
        self._wanted.trace_id = trace_id

    def generate_trace_id(self) -> int:
        return int(self._wanted.trace_id)

    def generate_span_id(self) -> int:
        for _ in range(ID_TRIES_MAX):
            drawn = self._random_bytes(SPAN_ID_BYTES)
            span_id = int.from_bytes(drawn, "big")
            if span_id and len(drawn) == SPAN_ID_BYTES:
                return span_id
        raise SpanNotRecorded("span_id", "The random source gave no usable span id.")


class _Receiver(SpanProcessor):
    """Keeps what ended on this thread, until it is taken."""

    def __init__(self) -> None:
        self._received = threading.local()

    def on_end(self, span: ReadableSpan) -> None:
        received = self._received
        try:
            received.spans.append(span)
        except AttributeError:
            received.spans = [span]

    def take(self) -> list[ReadableSpan]:
        """Return what ended on this thread since the last call."""
        spans: list[ReadableSpan] = getattr(self._received, "spans", [])
        self._received.spans = []
        return spans


class OtelRecorder:
    """Makes audit spans through the OpenTelemetry SDK; implements `ledger.port.SpanRecorder`.

    Any thread of the process that built it may use it.
    """

    def __init__(
        self,
        ledger_id: str,
        *,
        random_bytes: Callable[[int], bytes],
        service_version: str,
        processors: Sequence[SpanProcessor] = (),
    ) -> None:
        """Build a private tracer for one ledger.

        Args:
            ledger_id: the ledger whose spans these are.
            random_bytes: gives that many random bytes; the host's seeded generator must not be behind it.
            service_version: the version of this program, kept in every span.
            processors: run before our own. Whatever one does, a span is complete or not recorded.
        """
        self._ledger_id = ledger_id
        self._pid = os.getpid()
        self._ids = _StoryIds(random_bytes)
        self._receiver = _Receiver()
        resource = {"service.name": SERVICE_NAME, "service.version": service_version}
        self._maker = canonical_text(
            {"resource": resource, "scope": {"name": SCOPE_NAME, "version": service_version}}
        )[1:-1]
        self._known = {is_outcome: KnownValues() for is_outcome in (False, True)}
        self._sdk_resource = Resource(resource)
        self._sdk_scope = InstrumentationScope(SCOPE_NAME, service_version)
        chain = SynchronousMultiSpanProcessor()  # type: ignore[no-untyped-call]  # the SDK leaves it bare
        for processor in (*processors, self._receiver):
            chain.add_span_processor(processor)
        unset = SpanLimits.UNSET
        self._tracer = Tracer(
            ALWAYS_ON,
            self._sdk_resource,
            chain,
            self._ids,
            None,  # type: ignore[arg-type]  # the deprecated twin of the scope, which warns when it is made
            SpanLimits(
                max_attributes=unset,
                max_events=unset,
                max_links=unset,
                max_span_attributes=unset,
                max_event_attributes=unset,
                max_link_attributes=unset,
                max_attribute_length=unset,
                max_span_attribute_length=unset,
            ),
            self._sdk_scope,
            meter_provider=NoOpMeterProvider(),
        )

    def record(
        self,
        transition: Transition,
        *,
        position: Position,
        parent_span_id: str | None,
        at_ms: InstantMs,
    ) -> RecordedSpan:
        """Return the finished span of a transition, complete, or raise.

        Args:
            transition: what happened; its attributes are checked and looked through for secrets here.
            position: where the span will stand.
            parent_span_id: the span before it in the story, 16 lower-case hex digits, or None for the first.
            at_ms: the one instant of the transaction; a transition takes no time.

        Raises:
            SpanNotRecorded: `forked`, `foreign_position`, `parent`, `instant`, `vocabulary`,
                `secret_in_span`, `span_id`, `sdk`, `not_received`, `altered`, `not_canonical` or `too_large`.
        """
        self._refuse_fork()
        if position.ledger_id != self._ledger_id:
            raise SpanNotRecorded("foreign_position", "The position belongs to another ledger.")
        # What an outcome may hold is not what others may, so neither learns from the other.
        known = self._known[transition.name in OUTCOMES]
        fresh = known.fresh(transition.attributes)
        kept = without_secrets(transition, among=fresh)
        check(kept, among=fresh if kept is transition else None)
        if kept is transition:
            known.learn(fresh.items())
        return self._recorded(
            f"permit.{kept.name.value}",
            {**_automatic(kept, position), **kept.attributes},
            story=kept.story,
            parent_span_id=parent_span_id,
            at_ms=at_ms,
        )

    def selftest(self) -> None:
        """Prove at start that this SDK, in this process, keeps a large span whole and numbers spans anew.

        Raises:
            SpanNotRecorded: as `record`; nothing may be admitted with this recorder.
        """
        self._refuse_fork()
        large: dict[str, AttributeValue] = {f"canary.{place}": place for place in range(SELFTEST_ATTRIBUTES)}
        large["canary.text"] = "x" * SELFTEST_LENGTH
        first, second = (
            self._recorded("permit.canary", large, story="canary", parent_span_id=parent, at_ms=InstantMs(1))
            for parent in (None, "0" * 15 + "1")
        )
        if first.span_id == second.span_id or first.trace_id != second.trace_id:
            raise SpanNotRecorded("span_id", "Two spans of one story do not have one trace and two ids.")

    def _refuse_fork(self) -> None:
        if os.getpid() != self._pid:
            raise SpanNotRecorded(
                "forked", "This recorder belongs to the parent process; open the ledger anew."
            )

    def _recorded(
        self,
        name: str,
        attributes: Mapping[str, AttributeValue],
        *,
        story: str,
        parent_span_id: str | None,
        at_ms: int,
    ) -> RecordedSpan:
        """Make the span, prove that it is the one asked for, and encode it."""
        if type(at_ms) is not int or not 0 <= at_ms <= AT_MS_MAX:
            raise SpanNotRecorded("instant", f"The instant is not within 0 and {AT_MS_MAX} milliseconds.")
        if parent_span_id is not None and (not _SPAN_ID.match(parent_span_id) or not int(parent_span_id, 16)):
            raise SpanNotRecorded("parent", "The parent is no span id.")
        trace_id = trace_id_of(self._ledger_id, story)
        asked = _Asked(
            name=name,
            attributes=attributes,
            trace=int(trace_id, 16),
            parent=None if parent_span_id is None else int(parent_span_id, 16),
            at_ns=at_ms * NS_PER_MS,
        )
        try:
            span_id = self._received_id(asked)
        except SpanNotRecorded:
            raise
        except Exception as fault:  # noqa: BLE001 - whatever a processor or the SDK raises, there is no span
            # Its own text may repeat values of the span, so only its kind is kept.
            raise SpanNotRecorded(
                "sdk", f"The SDK did not record the span: {type(fault).__name__}."
            ) from None
        try:
            body = self._body(asked, trace_id=trace_id, span_id=span_id, parent_span_id=parent_span_id)
        except Malformed as malformed:
            raise SpanNotRecorded(
                "not_canonical", f"The span has no canonical form: {malformed.code}."
            ) from None
        if len(body) > BODY_BYTES_MAX:
            raise SpanNotRecorded("too_large", f"The span is larger than {BODY_BYTES_MAX} bytes.")
        return RecordedSpan(span_id=span_id, trace_id=trace_id, body=body, attributes=attributes)

    def _body(self, asked: _Asked, *, trace_id: str, span_id: str, parent_span_id: str | None) -> bytes:
        """Return the versioned body of a span, which is what is stored, hashed and shipped.

        Its members stand in canonical order. Nanoseconds are texts: they are above 2^53, where JSON readers begin to
        round. The name, ids and instants are words and digits of ours, that need no escape.
        """
        parent = "null" if parent_span_id is None else f'"{parent_span_id}"'
        return (
            f'{{"attributes":{canonical_flat(asked.attributes)},"end":"{asked.at_ns}","kind":"internal","links":[],'
            f'"name":"{asked.name}","parent":{parent},{self._maker},"span":"{span_id}",'
            f'"start":"{asked.at_ns}","trace":"{trace_id}","v":{BODY_VERSION}}}'
        ).encode()

    def _received_id(self, asked: _Asked) -> str:
        """Start and end one span, and return its id once our processor has provably received all of it."""
        context = Context()
        if asked.parent is not None:
            remote = SpanContext(asked.trace, asked.parent, is_remote=True, trace_flags=_SAMPLED)
            context = set_span_in_context(NonRecordingSpan(remote), context)
        self._receiver.take()
        self._ids.want(asked.trace)
        span = self._tracer.start_span(
            asked.name,
            context=context,
            kind=SpanKind.INTERNAL,
            attributes=asked.attributes,
            start_time=asked.at_ns,
            record_exception=False,
            set_status_on_exception=False,
        )
        started = span.get_span_context().span_id
        span.end(end_time=asked.at_ns)
        received = self._receiver.take()
        if len(received) != 1:
            raise SpanNotRecorded("not_received", "The span did not arrive exactly once.")
        context_received = received[0].context
        if context_received is None or context_received.span_id != started:
            raise SpanNotRecorded("not_received", "Another span arrived in place of the one started.")
        if not self._is_as_asked(received[0], asked):
            raise SpanNotRecorded("altered", "The span that arrived is not the one asked for.")
        return f"{started:016x}"

    def _is_as_asked(self, span: ReadableSpan, asked: _Asked) -> bool:
        """Say whether every part of a received span is what was asked for, with nothing dropped or added."""
        wanted = asked.attributes
        arrived = span.attributes
        # The SDK's own copy is one step of C; as any other mapping it would be read key by key.
        kept = arrived.copy() if isinstance(arrived, MappingProxyType) else dict(arrived or {})
        parent = None if span.parent is None else span.parent.span_id
        return (
            span.context is not None
            and span.context.trace_id == asked.trace
            and parent == asked.parent
            and (span.name, span.kind) == (asked.name, SpanKind.INTERNAL)
            and (span.start_time, span.end_time) == (asked.at_ns, asked.at_ns)
            and kept == wanted
            # True equals 1 in Python, so types are compared as well; both keep the order of insertion.
            and [*map(type, kept.values())] == [*map(type, wanted.values())]
            and not span.events
            and not span.links
            and span.status.status_code is StatusCode.UNSET
            and not (span.dropped_attributes or span.dropped_events or span.dropped_links)
            and span.resource is self._sdk_resource
            and span.instrumentation_scope is self._sdk_scope
        )


def _automatic(transition: Transition, position: Position) -> dict[str, AttributeValue]:
    """Return what every span carries by itself (`audit.vocabulary.AUTOMATIC`)."""
    carried: dict[str, AttributeValue] = {
        "permit.ledger.id": position.ledger_id,
        "permit.epoch": position.epoch,
        "permit.lane": position.lane,
        "permit.sequence": position.sequence,
        "permit.transition": transition.name.value,
        "permit.story": transition.story,
    }
    if transition.effect_id is not None:
        carried["permit.effect.id"] = transition.effect_id
    if transition.state_from is not None:
        carried["permit.state.from"] = transition.state_from.value
    if transition.state_to is not None:
        carried["permit.state.to"] = transition.state_to.value
    return carried
