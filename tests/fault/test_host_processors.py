"""A host's own span processors, as badly behaved as code can be: a span is whole, or what it records did not happen."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from opentelemetry import context as host_context
from opentelemetry import trace as host_trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.util import BoundedList
from opentelemetry.trace import NonRecordingSpan, SpanContext, Status, StatusCode, TraceFlags

from audit.recorder import OtelRecorder
from issuer import Issuer
from issuer.ids import random_bytes
from issuer.version import VERSION
from ledger.canonical import parse_strict
from ledger.model import LedgerId
from ledger.states import EffectState
from tests.support.issuers import Made, budget_line, permitted, refund, standard_issuer
from tests.support.kills import spans_named, untouched_state
from tests.support.service import Service, answer

Act = Callable[[Span], None]


@dataclass
class Meddler(SpanProcessor):
    """Does `start` to each span that begins, and `end` to each that ends, whose name ends with `only`."""

    start: Act = lambda _span: None
    end: Callable[[ReadableSpan], None] = lambda _span: None
    only: str = ""
    met: list[str] = field(default_factory=list)
    awake: bool = False

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        del parent_context
        if self.awake and span.name.endswith(self.only):
            self.met.append(span.name)
            self.start(span)

    def on_end(self, span: ReadableSpan) -> None:
        if self.awake and span.name.endswith(self.only):
            self.end(span)


class Unnameable(BaseException):
    """What no handler of exceptions catches."""


def broken(_span: object) -> None:
    raise RuntimeError("the host's processor is broken")


def gone(_span: object) -> None:
    raise Unnameable


def ended(span: Span) -> None:
    span.end(end_time=1)


def swallowed(span: ReadableSpan) -> None:
    span._attributes = {}


def replaced(span: ReadableSpan) -> None:
    span._attributes = {**dict(span.attributes or {}), "permit.actor": "nobody"}


def moved_to_another_trace(span: ReadableSpan) -> None:
    elsewhere = SpanContext(1, 2, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    span._context = elsewhere


def linked(span: ReadableSpan) -> None:
    span._links = BoundedList.from_seq(1, [host_trace.Link(SpanContext(1, 2, is_remote=True))])


MEDDLING: dict[str, Callable[[], Meddler]] = {
    "raises at the start": lambda: Meddler(start=broken),
    "raises at the end": lambda: Meddler(end=broken),
    "ends the span early": lambda: Meddler(start=ended),
    "adds an attribute": lambda: Meddler(start=lambda span: span.set_attribute("host.mark", 1)),
    "changes an attribute": lambda: Meddler(start=lambda span: span.set_attribute("permit.caller", "x")),
    "renames it": lambda: Meddler(start=lambda span: span.update_name("permit.nothing")),
    "adds an event": lambda: Meddler(start=lambda span: span.add_event("seen")),
    "sets a status": lambda: Meddler(start=lambda span: span.set_status(Status(StatusCode.ERROR, "x"))),
    "takes every attribute away": lambda: Meddler(end=swallowed),
    "writes other attributes over them": lambda: Meddler(end=replaced),
    "moves it to another trace": lambda: Meddler(end=moved_to_another_trace),
    "links it to something": lambda: Meddler(end=linked),
}


@dataclass(frozen=True, kw_only=True)
class Ground:
    made: Made
    service: Service

    @contextmanager
    def open(self, meddler: Meddler) -> Iterator[Issuer]:
        """Open an issuer whose spans pass through `meddler`; it sleeps until it is woken."""

        def recorder(ledger_id: LedgerId) -> OtelRecorder:
            return OtelRecorder(
                ledger_id, random_bytes=random_bytes, service_version=VERSION, processors=(meddler,)
            )

        with self.made.open(recorder=recorder) as issuer:
            yield issuer


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with Service() as service:
        yield Ground(
            made=standard_issuer(tmp_path_factory.mktemp("host") / "f0", port=service.port), service=service
        )


def head(issuer: Issuer) -> int:
    return issuer._house.ledger.read(lambda view: view.head()).sequence


@pytest.mark.spec("AUD-01", "AUD-03", "ADM-03")
@pytest.mark.parametrize("case", MEDDLING)
def test_where_a_span_is_spoilt_nothing_happens_and_nothing_is_sent(ground: Ground, case: str) -> None:
    meddler = MEDDLING[case]()
    with ground.open(meddler) as issuer:
        effect = permitted(refund(issuer, amount=7))
        before, line = head(issuer), budget_line(issuer, "t1")
        connections = ground.service.connections
        meddler.awake = True
        asked, committed = refund(issuer, order="o-2", amount=7), issuer.commit(effect)
        assert [asked.code, committed.code] == ["audit_unavailable"] * 2
        assert len(meddler.met) >= 2
        meddler.awake = False
        assert (head(issuer), budget_line(issuer, "t1")) == (before, line)
        assert untouched_state(issuer, effect) is EffectState.PERMITTED
        assert ground.service.connections == connections
        ground.service.then(answer(201))
        assert issuer.commit(effect).code == "succeeded"
    assert ground.service.effects_of(effect) == 1


@pytest.mark.spec("AUD-01", "ADM-07", "REP-05", "BUD-04")
def test_an_outcome_whose_span_is_spoilt_stays_admitted_and_becomes_unknown(ground: Ground) -> None:
    meddler = Meddler(end=broken, only="effect.succeeded")
    with ground.open(meddler) as issuer:
        effect = permitted(refund(issuer, amount=7))
        line = budget_line(issuer, "t1")
        ground.service.then(answer(201))
        meddler.awake = True
        assert issuer.commit(effect).code == "outcome_unknown"
        assert untouched_state(issuer, effect) is EffectState.ADMITTED
        assert issuer.commit(effect).code == "already_consumed"
    with ground.made.open() as fresh:
        assert fresh.show(effect).state == "unknown"
        assert budget_line(fresh, "t1")["reserved"] == int(str(line["reserved"])) + 7
    assert ground.service.effects_of(effect) == 1


@pytest.mark.spec("AUD-01", "ADM-02")
@pytest.mark.parametrize("act", ["start", "end"])
def test_what_no_handler_catches_passes_through_and_leaves_nothing(ground: Ground, act: str) -> None:
    meddler = Meddler(start=gone) if act == "start" else Meddler(end=gone)
    with ground.open(meddler) as issuer:
        effect, connections = permitted(refund(issuer, amount=7)), ground.service.connections
        before = head(issuer)
        meddler.awake = True
        with pytest.raises(Unnameable):
            issuer.commit(effect)
        meddler.awake = False
        assert head(issuer) == before
        assert untouched_state(issuer, effect) is EffectState.PERMITTED
        assert ground.service.connections == connections
        ground.service.then(answer(201))
        assert issuer.commit(effect).code == "succeeded"


@pytest.mark.spec("AUD-03", "AUD-05")
def test_the_hosts_own_trace_is_neither_parent_nor_silencer(ground: Ground) -> None:
    """A host's current span, and its wish that nothing be instrumented, reach no audit span."""
    theirs = SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=TraceFlags(TraceFlags.DEFAULT))
    quiet = host_trace.set_span_in_context(NonRecordingSpan(theirs))
    for key in ("suppress_instrumentation", "suppress_http_instrumentation"):
        quiet = host_context.set_value(key, True, quiet)
    quiet = host_context.set_value(host_context._SUPPRESS_INSTRUMENTATION_KEY, True, quiet)
    with ground.made.open() as issuer:
        token = host_context.attach(quiet)
        try:
            effect = permitted(refund(issuer, amount=7))
            ground.service.then(answer(201))
            assert issuer.commit(effect).code == "succeeded"
        finally:
            host_context.detach(token)
        rows = issuer._house.ledger.read(lambda view: view.story(effect))
        assert spans_named(issuer, effect, "effect.succeeded") == 1
    bodies = [parse_strict(row.body) for row in rows]
    assert len({row.trace_id for row in rows}) == 1
    assert f"{0xABC:032x}" not in {row.trace_id for row in rows}
    parents = [body["parent"] for body in bodies if isinstance(body, dict)]
    assert parents == [None, *(row.span_id for row in rows[:-1])]
