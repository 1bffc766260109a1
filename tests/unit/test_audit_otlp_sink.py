"""The OTLP sink: only one answer counts, nothing around the process changes what is asked, and nothing is repeated."""

import socket
import ssl
import threading
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.context import (
    _SUPPRESS_HTTP_INSTRUMENTATION_KEY,
    _SUPPRESS_INSTRUMENTATION_KEY,
    get_value,
)

from audit import SinkExpectation, SinkUnavailable
from audit.sinks.carried import BATCH_ROWS, CarriedSink
from audit.sinks.exchange import Endpoint
from audit.sinks.otlp import OtlpCarrier
from audit.sinks.quiet import untraced
from ledger.transitions import Position, SpanRow
from ledger.tree import leaf_hash
from tests.support.collector import (
    CANARY,
    HANGING,
    HONEST,
    LYING,
    Collector,
    Lie,
    accepted,
    response,
)
from tests.support.spans import LEDGER, SpansInMemory
from tests.unit.test_http_tls import certificate

PATIENCE_S = 30.0
SHORT_S = 0.3
BACKLOG = 10_000
CALLS_MAX = 40
PEAK_BYTES_MAX = 2 * 1024 * 1024
"""A third of the bodies of such a backlog; a batch and its message take four hundred kilobytes."""


class Place:
    """A collector, its sink and a ledger of three spans."""

    def __init__(self, folder: Path, collector: Collector, *, spans: int = 3) -> None:
        self.folder = folder
        self.collector = collector
        self.source = SpansInMemory(spans)
        self.sink = self.fresh()

    def fresh(self, url: str | None = None, **options: object) -> CarriedSink:
        url = url or self.collector.url
        return CarriedSink(
            OtlpCarrier(url, name="siem", **options),  # type: ignore[arg-type]
            LEDGER,
            name="siem",
            kind="otlp",
            required=True,
            folder=self.folder / "mark",
            place=url,
        )

    def probe(self, sink: CarriedSink | None = None, deadline_s: float = PATIENCE_S) -> None:
        (sink or self.sink).probe(SinkExpectation(source=self.source), deadline_s)

    def ship(self, sink: CarriedSink | None = None, deadline_s: float = PATIENCE_S) -> int:
        return (sink or self.sink).ship(self.source, self.source.head(), deadline_s).sequence

    def refused(self, sink: CarriedSink | None = None, deadline_s: float = PATIENCE_S) -> str:
        """Return why nothing is shipped; nothing of an answer is repeated, and nothing counts as acknowledged."""
        with pytest.raises(SinkUnavailable) as refused:
            self.ship(sink, deadline_s)
        fault = refused.value
        assert CANARY not in f"{fault.args}"
        assert (fault.sink, fault.__cause__, fault.__context__) == ("siem", None, None)
        assert not (self.folder / "mark" / "watermark.json").exists()
        return fault.reason


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with Collector() as collector:
        yield Place(tmp_path, collector)


# ------------------------------------------------------------------------------------- the one answer


@pytest.mark.spec("AUD-02", "SEC-01")
@pytest.mark.parametrize("row", LYING)
def test_an_answer_that_is_not_exactly_yes_is_a_no_by_its_own_word(
    row: str, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    lie, reason = LYING[row]
    place.collector.then(lie)
    assert place.refused() == reason
    place.collector.then(lie)
    with pytest.raises(SinkUnavailable) as refused:
        place.probe()
    assert refused.value.reason == reason
    assert caplog.text == ""
    assert place.collector.connections == 2
    assert place.ship() == 3
    assert sorted(set(place.collector.sequences)) == [1, 2, 3]


@pytest.mark.spec("AUD-02")
@pytest.mark.parametrize("row", HANGING)
def test_an_answer_that_does_not_come_costs_the_deadline(row: str, place: Place) -> None:
    lie, reason = HANGING[row]
    place.collector.always(lie)
    begun = time.monotonic()
    assert place.refused(deadline_s=SHORT_S) == reason
    assert SHORT_S <= time.monotonic() - begun < PATIENCE_S / 5
    place.collector.always(None)
    assert place.ship() == 3


@pytest.mark.spec("AUD-02")
@pytest.mark.parametrize(
    "raw",
    [
        accepted(),
        response(),
        response(media_type="application/x-protobuf; charset=utf-8"),
        response(media_type="Application/X-Protobuf"),
        b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + accepted(),
        response(more="Content-Encoding: identity\r\n"),
    ],
)
def test_every_form_of_a_plain_yes_counts(raw: bytes, place: Place) -> None:
    place.collector.then(Lie(raw=raw, stores=True))
    assert place.ship() == 3
    assert place.collector.sequences == [1, 2, 3]


@pytest.mark.spec("AUD-02")
def test_what_was_stored_and_not_answered_is_sent_again_with_the_same_key(place: Place) -> None:
    place.collector.then(LYING["nothing"][0])
    assert place.refused() == "cut_off"
    assert place.ship() == 3
    first, again = place.collector.spans[:3], place.collector.spans[3:]
    assert first == again
    assert [key for key, _body in first] == [(LEDGER, 0, 0, number) for number in (1, 2, 3)]


# -------------------------------------------------------------------------------------- what is asked


@pytest.mark.spec("AUD-02", "AUD-03")
def test_one_request_goes_to_the_place_that_the_owner_wrote(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"authorization={CANARY}")
    place.ship(place.fresh(bearer=lambda: "s3cret"))
    (request,) = place.collector.requests
    assert request.head == "POST /v1/traces HTTP/1.1"
    assert request.fields == {
        "host": f"127.0.0.1:{place.collector.port}",
        "user-agent": "permit-issuer",
        "content-type": "application/x-protobuf",
        "accept": "application/x-protobuf",
        "accept-encoding": "identity",
        "content-length": str(len(request.body)),
        "connection": "close",
        "authorization": "Bearer s3cret",
    }
    place.probe()
    assert place.collector.requests[1].body == b""


@pytest.mark.spec("AUD-02", "AUD-03")
def test_a_redirect_is_not_followed(place: Place) -> None:
    with Collector() as elsewhere:
        moved = response(status="307 Temporary Redirect", more=f"Location: {elsewhere.url}\r\n")
        place.collector.then(Lie(raw=moved))
        assert place.refused() == "redirected"
        assert elsewhere.connections == 0


def _raises() -> str:
    raise RuntimeError(CANARY)


@pytest.mark.spec("SEC-01")
@pytest.mark.parametrize(
    "secret",
    ["", "a b", CANARY + "\r\nX: y", "é", None, _raises],
    ids=["none", "space", "lines", "accent", "null", "fault"],
)
def test_a_credential_that_is_missing_or_no_token_is_not_sent_and_not_repeated(
    secret: object, place: Place
) -> None:
    sink = place.fresh(bearer=secret if callable(secret) else lambda: secret)
    assert place.refused(sink) == "credential"
    assert place.collector.connections == 0


@pytest.mark.spec("AUD-02", "SEC-01")
def test_over_tls_only_a_certificate_that_the_machine_trusts_is_talked_to(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    public, private = certificate("127.0.0.1")
    chain = tmp_path / "chain.pem"
    chain.write_bytes(private + public)
    monkeypatch.setenv("SSL_CERT_FILE", str(chain))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    came: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _address = listener.accept()
        try:
            with context.wrap_socket(connection, server_side=True) as secured:
                came.append(secured.recv(100))
        except OSError:
            connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    url = f"https://127.0.0.1:{listener.getsockname()[1]}/v1/traces"
    assert place.refused(place.fresh(url, bearer=lambda: CANARY)) == "tls_failed"
    thread.join(PATIENCE_S)
    listener.close()
    assert b"".join(came) == b""


@pytest.mark.spec("AUD-02")
def test_a_place_without_a_listener_or_an_address_is_told(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert place.refused(place.fresh(f"http://127.0.0.1:{port}/v1/traces")) == "connect_failed"
    assert place.refused(place.fresh("http://collector.invalid/v1/traces")) == "unresolved"


@pytest.mark.parametrize(
    "url",
    [
        "ftp://h/x",
        "http:///x",
        "http://u@h/x",
        "http://u:p@h/x",
        "http://h/a b",
        "http://h/\r\nx",
        "http://h/x#y",
        "h/x",
    ],
)
def test_what_is_no_endpoint_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="HOST"):
        Endpoint.of(url)


@pytest.mark.spec("AUD-03")
def test_the_host_s_tracing_is_told_to_look_away_on_this_thread_and_for_as_long_alone() -> None:
    keys = (_SUPPRESS_INSTRUMENTATION_KEY, _SUPPRESS_HTTP_INSTRUMENTATION_KEY)
    seen: list[list[object]] = []
    with untraced():
        seen.append([get_value(key) for key in keys])
        other = threading.Thread(target=lambda: seen.append([get_value(key) for key in keys]))
        other.start()
        other.join()
    seen.append([get_value(key) for key in keys])
    assert seen == [[True, True], [None, None], [None, None]]


@pytest.mark.spec("AUD-03")
def test_a_host_that_traces_what_its_process_sends_sees_none_of_a_sink(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def traced(*_given: object, **_named: object) -> None:
        raise AssertionError(CANARY)

    for name in ("putrequest", "getresponse", "request"):
        monkeypatch.setattr(f"http.client.HTTPConnection.{name}", traced)
    seen: list[object] = []
    resolve = socket.getaddrinfo

    def watched(*given: Any, **named: Any) -> Any:
        seen.append(get_value(_SUPPRESS_INSTRUMENTATION_KEY))
        return resolve(*given, **named)

    monkeypatch.setattr("socket.getaddrinfo", watched)
    assert place.ship() == 3
    assert seen == [True]


# ------------------------------------------------------------------------------------------ a backlog


class Backlog(SpansInMemory):
    """Any number of spans that are made when they are read, each after the likeness of the first."""

    def __init__(self, count: int) -> None:
        super().__init__(1)
        self.count = count
        first = super().span_at(1)
        assert first is not None
        self.first = first

    def head(self) -> Position:
        return replace(self.first.position, sequence=self.count)

    def span_at(self, sequence: int) -> SpanRow | None:
        if not 1 <= sequence <= self.count:
            return None
        body = self.first.body.replace(b'"permit.sequence":1', b'"permit.sequence":%d' % sequence)
        place = replace(self.first.position, sequence=sequence)
        return replace(self.first, position=place, body=body, leaf=leaf_hash(body))

    def spans_after(self, sequence: int, *, limit: int) -> list[SpanRow]:
        last = min(sequence + limit, self.count)
        return [row for number in range(sequence + 1, last + 1) if (row := self.span_at(number)) is not None]


@pytest.mark.spec("AUD-02")
def test_a_long_backlog_needs_the_memory_of_a_batch(tmp_path: Path) -> None:
    with Collector(keeps=False) as collector:
        place = Place(tmp_path, collector)
        place.source = Backlog(BACKLOG)
        tracemalloc.start()
        try:
            assert place.ship() == BACKLOG
            _now, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert collector.connections == -(-BACKLOG // BATCH_ROWS)
        assert peak < PEAK_BYTES_MAX


@pytest.mark.spec("AUD-02")
def test_a_slow_collector_gets_on_with_each_call(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Collector() as collector:
        place = Place(tmp_path, collector, spans=6 * BATCH_ROWS)
        slow = Lie(raw=accepted(), stores=True, pause_s=0.002)
        collector.always(slow)
        reached = [0]
        # A call has time for one answer, so none ends here; on a busy machine some have time for none.
        while reached[-1] < 2 * BATCH_ROWS:
            assert len(reached) < CALLS_MAX
            with pytest.raises(SinkUnavailable) as refused:
                place.ship(deadline_s=SHORT_S)
            assert refused.value.reason in {"backlog", "no_answer"}
            reached.append(place.sink.reached(place.source))
        assert reached == sorted(reached)
        collector.always(None)
        assert place.ship() == 6 * BATCH_ROWS
        assert sorted(set(collector.sequences)) == list(range(1, 6 * BATCH_ROWS + 1))
        assert max(collector.batches) <= BATCH_ROWS
    assert caplog.text == ""


@pytest.mark.spec("AUD-02")
def test_a_collector_too_slow_for_a_whole_batch_is_given_smaller_ones(tmp_path: Path) -> None:
    with Collector() as collector:
        place = Place(tmp_path, collector, spans=2 * BATCH_ROWS)
        collector.then(Lie(hangs=True), Lie(hangs=True))
        for _ in range(2):
            assert place.refused(deadline_s=SHORT_S) == "no_answer"
        assert place.ship() == 2 * BATCH_ROWS
        assert collector.batches[:3] == [BATCH_ROWS // 16, BATCH_ROWS // 8, BATCH_ROWS // 4]
        assert collector.sequences == list(range(1, 2 * BATCH_ROWS + 1))


@pytest.mark.spec("AUD-02")
def test_a_collector_that_dies_after_its_yes_gets_everything_again_on_demand(place: Place) -> None:
    place.collector.then(Lie(raw=HONEST.raw, stores=True, dies=True))
    assert place.ship() == 3
    place.source.add()
    with pytest.raises(SinkUnavailable):
        place.ship()
    with Collector(port=place.collector.port) as again:
        assert place.ship() == 4
        assert again.sequences == [4]
        place.sink.resend_from(place.source, 0, PATIENCE_S)
        assert place.ship() == 4
        assert again.sequences == [4, 1, 2, 3, 4]
