"""OTLP: the official messages, made from the canonical body; what cannot be told whole is refused."""

import json
import os
import random
import string
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from audit import otlp
from audit.vocabulary import SPANS
from ledger.canonical import canonical_bytes
from tests.support.spans import LEDGER, SpansInMemory, sample, settled_story

HOUSE = Path(__file__).parents[2]
EXAMPLE = (
    Path(os.environ.get("PERMIT_VECTORS", HOUSE.parent / "shared" / "vectors"))
    / "otlp" / "examples" / "trace.json"
)  # fmt: skip
DRAWN = 300


def every_kind() -> tuple[bytes, ...]:
    """Return the body of each kind of span, with all that it may carry, and of one whole story."""
    source = SpansInMemory()
    for name in SPANS:
        source.add(sample(name, everything=True))
    settled_story(source)
    return tuple(row.body for row in source.spans_after(0, limit=10_000))


def with_changes(**changes: object) -> bytes:
    """Return a real body with members exchanged, canonical or not."""
    (row,) = SpansInMemory(1).spans_after(0, limit=1)
    return json.dumps({**json.loads(row.body), **changes}).encode()


# ------------------------------------------------------------------------------------ whole, both ways


@pytest.mark.spec("AUD-07", "AUD-03")
def test_every_kind_of_span_comes_back_byte_for_byte_from_both_forms() -> None:
    bodies = every_kind()
    assert otlp.bodies_in(otlp.request_bytes(bodies)) == bodies
    assert otlp.bodies_in_json(otlp.request_json(bodies)) == bodies


@pytest.mark.spec("AUD-07")
def test_attributes_of_any_value_that_a_body_may_have_come_back_equal() -> None:
    drawn = random.Random(7)  # noqa: S311 - the same values in every run
    texts = ["", " ", "\x01", "é", "\u2028", "\U0010ffff", "a" * 5000, "0", "true", "-1"]

    def value() -> object:
        return drawn.choice(
            [
                drawn.choice(texts),
                drawn.choice([0, -1, 1, 2**53 - 1, 1 - 2**53, drawn.randrange(2**40)]),
                drawn.random() < 0.5,
                [drawn.choice(texts) for _ in range(drawn.randrange(4))],
            ]
        )

    (row,) = SpansInMemory(1).spans_after(0, limit=1)
    document = json.loads(row.body)
    bodies = []
    for _ in range(DRAWN):
        names = {
            "".join(drawn.choices(string.ascii_lowercase + ".", k=8)) for _ in range(drawn.randrange(12))
        }
        bodies.append(canonical_bytes({**document, "attributes": {name: value() for name in names}}))
    assert otlp.bodies_in(otlp.request_bytes(bodies)) == tuple(bodies)
    assert otlp.bodies_in_json(otlp.request_json(bodies)) == tuple(bodies)


@pytest.mark.spec("AUD-07", "AUD-05")
def test_a_message_holds_ids_as_bytes_times_kind_and_typed_attributes_in_the_order_of_the_body() -> None:
    source = SpansInMemory()
    settled_story(source)
    rows = source.spans_after(0, limit=10)
    request = ExportTraceServiceRequest.FromString(otlp.request_bytes(row.body for row in rows))
    (group,) = request.resource_spans
    (spans,) = group.scope_spans
    assert [one.key for one in group.resource.attributes] == ["service.name", "service.version"]
    assert (spans.scope.name, spans.scope.version) == ("permit_issuer", "0.1.0")
    parent = b""
    for row, span in zip(rows, spans.spans, strict=True):
        document = json.loads(row.body)
        assert (span.trace_id.hex(), span.span_id.hex()) == (row.trace_id, row.span_id)
        assert span.parent_span_id == parent
        assert span.start_time_unix_nano == span.end_time_unix_nano == row.at_ms * 1_000_000
        assert (span.name, span.kind, span.flags & 0xFF) == (f"permit.{row.name}", 1, 1)
        assert [one.key for one in span.attributes] == list(document["attributes"])
        typed = {one.key: one.value.WhichOneof("value") for one in span.attributes}
        assert (typed["permit.sequence"], typed["permit.ledger.id"]) == ("int_value", "string_value")
        parent = span.span_id


@pytest.mark.spec("AUD-07")
def test_the_json_form_has_hex_ids_numbers_for_enums_and_text_for_long_numbers() -> None:
    source = SpansInMemory()
    settled_story(source)
    rows = source.spans_after(0, limit=10)
    text = otlp.request_json([row.body for row in rows])
    assert "\n" not in text
    assert text.isascii()
    spans = json.loads(text)["resourceSpans"][0]["scopeSpans"][0]["spans"]
    first, second = spans[:2]
    assert (first["traceId"], first["spanId"], first["kind"]) == (rows[0].trace_id, rows[0].span_id, 1)
    assert "parentSpanId" not in first
    assert second["parentSpanId"] == rows[0].span_id
    assert first["startTimeUnixNano"] == str(rows[0].at_ms * 1_000_000)
    assert {"key": "permit.sequence", "value": {"intValue": "1"}} in first["attributes"]


@pytest.mark.spec("AUD-07")
def test_the_public_example_is_read_and_written_as_it_is() -> None:
    if not EXAMPLE.exists():
        pytest.skip(f"the public example is not at {EXAMPLE}")
    example = json.loads(EXAMPLE.read_text(encoding="utf-8"))
    request = otlp.read_json(json.dumps(example))
    (span,) = request.resource_spans[0].scope_spans[0].spans
    assert span.trace_id.hex() == "5b8efff798038103d269b633813fc60c"
    assert json.loads(otlp.written_json(request)) == lowered(example)
    with pytest.raises(ValueError, match="not made of a body of ours"):
        otlp.bodies_in_json(json.dumps(example))


def lowered(found: Any) -> Any:
    """Return the document with its ids in lower case, in which both cases are one id."""
    if isinstance(found, list):
        return [lowered(member) for member in found]
    if not isinstance(found, dict):
        return found
    return {
        name: value.lower() if name.endswith(("traceId", "SpanId", "spanId")) else lowered(value)
        for name, value in found.items()
    }


@pytest.mark.spec("AUD-07")
def test_spans_of_two_releases_keep_their_own_resource_and_scope_in_order() -> None:
    old, new = (
        with_changes(
            scope={"name": "permit_issuer", "version": version}, resource={"service.version": version}
        )
        for version in ("0.1.0", "0.2.0")
    )
    bodies = tuple(canonical_bytes(json.loads(body)) for body in (old, new, new, old))
    assert otlp.bodies_in(otlp.request_bytes(bodies)) == bodies


# ------------------------------------------------------------------------------------------- refusals

CANARY = "canary-4711"
UNFIT: dict[str, dict[str, object]] = {
    "over 64 bits": {"attributes": {CANARY: 2**63}},
    "under 64 bits": {"attributes": {CANARY: -(2**63) - 1}},
    "a float": {"attributes": {CANARY: 0.5}},
    "nothing": {"attributes": {CANARY: None}},
    "a table": {"attributes": {"a": {CANARY: "b"}}},
    "a list of numbers": {"attributes": {CANARY: [1]}},
    "a mixed list": {"attributes": {"a": [CANARY, 1]}},
    "a list in a list": {"attributes": {"a": [[CANARY]]}},
    "a lone surrogate": {"attributes": {"a": CANARY + "\ud800"}},
    "a lone surrogate in a list": {"attributes": {"a": [CANARY + "\udfff"]}},
    "a lone surrogate as a key": {"attributes": {CANARY + "\ud800": 1}},
    "attributes in a list": {"attributes": [CANARY]},
    "too many attributes": {"attributes": {f"{CANARY}.{number}": 1 for number in range(1025)}},
    "a short id": {"span": "12"},
    "an id of zeros": {"trace": "0" * 32},
    "an upper-case id": {"span": "ABCDEF0123456789"},
    "a time over 64 bits": {"start": str(2**64)},
    "a time as a number": {"end": 1},
    "a time before all": {"end": "-1"},
    "another kind": {"kind": CANARY},
    "another version": {"v": 2},
    "a link": {"links": [{"trace": CANARY}]},
    "a further member": {"more": CANARY},
    "a scope with more": {"scope": {"name": "a", "version": "b", "more": CANARY}},
    "a resource in a list": {"resource": [CANARY]},
}


@pytest.mark.spec("AUD-03", "AUD-07", "SEC-01")
@pytest.mark.parametrize("row", UNFIT)
def test_a_body_that_does_not_fit_is_refused_as_a_whole_and_nothing_of_it_is_repeated(
    row: str, caplog: pytest.LogCaptureFixture
) -> None:
    body = with_changes(**UNFIT[row])
    good = with_changes()
    for made in (otlp.request_bytes, otlp.request_json):
        with pytest.raises(ValueError) as refused:  # noqa: PT011 - the point is what it does not say
            made([good, body])
        assert CANARY not in str(refused.value)
        assert refused.value.__cause__ is None
    assert caplog.text == ""


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"\xff", b'{"v":1}', b"[" * 100_000])
def test_what_is_no_body_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="members of a span"):
        otlp.request_bytes([body])


@pytest.mark.parametrize("data", [b"<html>", b"\x0a\xff", b"\x08\x01", b"\x1a\x00"])
def test_what_is_no_request_has_no_bodies(data: bytes) -> None:
    with pytest.raises(ValueError, match="not an export request"):
        otlp.bodies_in(data)
    with pytest.raises(ValueError, match="not an export request"):
        otlp.bodies_in_json(data.decode("latin-1"))


# ---------------------------------------------------------------------------------------------- answers


@pytest.mark.spec("AUD-02")
def test_an_answer_says_what_was_rejected_and_whether_it_has_a_message() -> None:
    def said(**partial: object) -> tuple[int, bool]:
        answer = ExportTraceServiceResponse()
        answer.partial_success.SetInParent()
        for name, value in partial.items():
            setattr(answer.partial_success, name, value)
        found = otlp.said_in(answer.SerializeToString())
        return found.rejected, found.has_message

    assert otlp.said_in(b"") == otlp.Said(rejected=0, has_message=False)
    assert said() == (0, False)
    assert said(rejected_spans=3) == (3, False)
    assert said(rejected_spans=-1) == (-1, False)
    assert said(error_message="x") == (0, True)


@pytest.mark.spec("AUD-02")
@pytest.mark.parametrize(
    "data",
    [
        b"<!doctype html>",
        b"{}",
        b"\x0a\x05\x08",
        b"\x0a\x00trailing",
        b"\x12\x00",
        b"\x0a\x02\x18\x01",
        b"\x00",
    ],
)
def test_what_is_no_answer_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not an answer"):
        otlp.said_in(data)


def test_the_bodies_of_this_test_are_those_of_the_ledger() -> None:
    assert json.loads(every_kind()[0])["attributes"]["permit.ledger.id"] == LEDGER
