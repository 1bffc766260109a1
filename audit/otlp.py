"""The OTLP form of a span, as protobuf bytes and as JSON text, and back: nothing is left out, rounded or renamed.

Rules: AUD-07 (an export has the same shape as the record), AUD-03 (no value is dropped in silence). Every message is
built here from the canonical body, which alone is hashed. The SDK's encoder is not asked: a value that it cannot encode
it leaves out, with an error in a log that repeats the value. Here a body that does not fit is refused as a whole.
The members of a body are the fields of a span; ids are bytes there and hex digits in JSON (OTLP 1.x, "JSON Protobuf
Encoding"), enums are numbers in both. Bytes of OTLP are never hashed: protobuf promises no canonical form.

Loading this costs a tenth of a second of a processor, so only who sends or exports OTLP imports it. It does no input
or output.
Next: `audit.sinks.otlp`, which sends requests and reads answers.
"""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from ledger.canonical import canonical_bytes
from ledger.errors import Malformed

__all__ = [
    "Said",
    "bodies_in",
    "bodies_in_json",
    "read_json",
    "request_bytes",
    "request_json",
    "said_in",
    "written_json",
]

BODY_VERSION: Final = 1
"""The version of the canonical body that this module knows (`audit.recorder`)."""

ATTRIBUTES_MAX: Final = 1024
"""Attributes of one span: many times what the vocabulary has (`audit.vocabulary`)."""

INT64_MAX: Final = 2**63 - 1
UINT64_MAX: Final = 2**64 - 1
SAMPLED: Final = 1
"""The trace flag of every span: each was recorded (W3C Trace Context, section 3.2.2.5.1)."""

_KIND: Final = Span.SpanKind.SPAN_KIND_INTERNAL
_KIND_WORD: Final = "internal"
_MEMBERS: Final = frozenset(
    (
        "v",
        "name",
        "trace",
        "span",
        "parent",
        "kind",
        "start",
        "end",
        "attributes",
        "links",
        "resource",
        "scope",
    )
)
_TRACE: Final = re.compile(r"[0-9a-f]{32}\Z")
_SPAN: Final = re.compile(r"[0-9a-f]{16}\Z")
_INSTANT: Final = re.compile(r"(?:0|[1-9][0-9]{0,19})\Z")
_HEX_IDS: Final = frozenset({"traceId", "spanId", "parentSpanId"})
"""The members of OTLP/JSON that are hex digits where protobuf's own JSON has base64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a collector's answer says: how many spans it rejected, and whether it has something to say about it."""

    rejected: int
    has_message: bool


def request_bytes(bodies: Iterable[bytes]) -> bytes:
    """Return the protobuf bytes of one export request with these canonical bodies, in order.

    Raises:
        ValueError: a body is no span of this release, or holds what OTLP has no place for; nothing of it is repeated.
    """
    return bytes(_request(bodies).SerializeToString(deterministic=True))


def request_json(bodies: Iterable[bytes]) -> str:
    """Return the same request as one line of OTLP/JSON, ASCII, without a newline.

    Raises:
        ValueError: as `request_bytes`.
    """
    return written_json(_request(bodies))


def bodies_in(data: bytes) -> tuple[bytes, ...]:
    """Return the canonical bodies of a request that `request_bytes` made.

    Raises:
        ValueError: it is no such request, or holds what no body of ours does.
    """
    request = ExportTraceServiceRequest()
    if not _is_read(request, data):
        raise ValueError("not an export request")
    return tuple(_bodies(request))


def bodies_in_json(text: str) -> tuple[bytes, ...]:
    """Return the canonical bodies of a request that `request_json` made.

    Raises:
        ValueError: as `bodies_in`.
    """
    return tuple(_bodies(read_json(text)))


def read_json(text: str) -> ExportTraceServiceRequest:
    """Read an export request in OTLP/JSON, of whatever spans; ids may have upper-case digits.

    Raises:
        ValueError: it is none, or has a member that this release does not know.
    """
    try:
        request = ExportTraceServiceRequest()
        ParseDict(_with_ids(json.loads(text), _bytes_of_hex), request)
    except (ParseError, ValueError, TypeError, RecursionError):
        raise ValueError("not an export request in OTLP/JSON") from None
    return request


def written_json(request: ExportTraceServiceRequest) -> str:
    """Return a request as one line of OTLP/JSON: ids in lower-case hex, enums as numbers, long integers as text."""
    found = MessageToDict(request, use_integers_for_enums=True)
    return json.dumps(_with_ids(found, _hex_of_bytes), ensure_ascii=True, separators=(",", ":"))


def said_in(data: bytes) -> Said:
    """Read a collector's answer to an export request; a member that is not of the protocol is no answer.

    Raises:
        ValueError: it is no answer.
    """
    answer = ExportTraceServiceResponse()
    if not _is_read(answer, data):
        raise ValueError("not an answer to an export request")
    partial = answer.partial_success
    return Said(rejected=int(partial.rejected_spans), has_message=bool(partial.error_message))


def _is_read(message: Any, data: bytes) -> bool:  # noqa: ANN401 - the two generated classes have no common type
    """Read `data` into `message`; a field that the message does not know would be kept unread, and is refused."""
    try:
        message.ParseFromString(data)
    except DecodeError:
        return False
    whole = message.ByteSize()
    message.DiscardUnknownFields()
    return bool(message.ByteSize() == whole)


# ------------------------------------------------------------------------------------------ from bodies


def _request(bodies: Iterable[bytes]) -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    last: tuple[object, object] | None = None
    spans: Any = None
    for body in bodies:
        document = _read_body(body)
        about = (document["resource"], document["scope"])
        if spans is None or about != last:
            spans, last = _opened(request, *about), about
        _fill(spans.spans.add(), document)
    return request


def _opened(request: ExportTraceServiceRequest, resource: object, scope: object) -> Any:  # noqa: ANN401 - generated
    """Begin the spans of one resource and scope."""
    group = request.resource_spans.add()
    _attributes(group.resource.attributes, resource)
    spans = group.scope_spans.add()
    if not isinstance(scope, dict) or set(scope) != {"name", "version"}:
        raise ValueError("the scope of a body has a name and a version")
    spans.scope.name, spans.scope.version = _text(scope["name"]), _text(scope["version"])
    return spans


def _read_body(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or set(document) != _MEMBERS:
        raise ValueError("a body has the members of a span")
    # Links have no form in this version of the body; one that came with them would arrive without.
    if (document["v"], document["kind"], document["links"]) != (BODY_VERSION, _KIND_WORD, []):
        raise ValueError("a body is an internal span of version 1 without links")
    return document


def _fill(span: Span, document: Mapping[str, Any]) -> None:
    span.name = _text(document["name"])
    span.trace_id = _id(document["trace"], _TRACE)
    span.span_id = _id(document["span"], _SPAN)
    if document["parent"] is not None:
        span.parent_span_id = _id(document["parent"], _SPAN)
    span.kind = _KIND
    span.flags = SAMPLED
    span.start_time_unix_nano = _instant(document["start"])
    span.end_time_unix_nano = _instant(document["end"])
    _attributes(span.attributes, document["attributes"])


def _attributes(into: Any, given: object) -> None:  # noqa: ANN401 - a repeated field of generated messages
    if not isinstance(given, dict) or len(given) > ATTRIBUTES_MAX:
        raise ValueError("attributes are an object of bounded size")
    into.extend(KeyValue(key=_text(key), value=_value(value)) for key, value in given.items())


def _value(value: object) -> AnyValue:
    # A truth value is a whole number to Python, so it is asked for first.
    if type(value) is bool:
        return AnyValue(bool_value=value)
    if type(value) is int:
        if not -INT64_MAX - 1 <= value <= INT64_MAX:
            raise ValueError("a whole number does not fit 64 bits")
        return AnyValue(int_value=value)
    if type(value) is str:
        return AnyValue(string_value=_text(value))
    if type(value) is list and all(type(member) is str for member in value):
        made = AnyValue()
        # Also sets it where the list is empty: no value and an empty list are not the same.
        made.array_value.SetInParent()
        made.array_value.values.extend(AnyValue(string_value=_text(member)) for member in value)
        return made
    raise ValueError("a value is text, a whole number, a truth value or a list of texts")


def _text(value: object) -> str:
    if type(value) is not str or any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError("a text is no valid UTF-8")
    return value


def _id(value: object, form: re.Pattern[str]) -> bytes:
    if type(value) is not str or form.match(value) is None or not int(value, 16):
        raise ValueError("an id has its own number of hex digits, and is not zero")
    return bytes.fromhex(value)


def _instant(value: object) -> int:
    if type(value) is not str or _INSTANT.match(value) is None or int(value) > UINT64_MAX:
        raise ValueError("an instant is decimal digits of nanoseconds within 64 bits")
    return int(value)


# -------------------------------------------------------------------------------------------- to bodies


def _bodies(request: ExportTraceServiceRequest) -> Iterable[bytes]:
    for group in request.resource_spans:
        resource = _read_attributes(group.resource.attributes)
        for spans in group.scope_spans:
            scope = {"name": spans.scope.name, "version": spans.scope.version}
            yield from (_body(span, resource, scope) for span in spans.spans)


def _body(span: Span, resource: Mapping[str, object], scope: Mapping[str, object]) -> bytes:
    document = {
        "v": BODY_VERSION,
        "name": span.name,
        "trace": span.trace_id.hex(),
        "span": span.span_id.hex(),
        "parent": span.parent_span_id.hex() or None,
        "kind": _KIND_WORD,
        "start": str(span.start_time_unix_nano),
        "end": str(span.end_time_unix_nano),
        "attributes": _read_attributes(span.attributes),
        "links": [],
        "resource": resource,
        "scope": scope,
    }
    if span.kind != _KIND or span.links or span.events or span.status.code or span.dropped_attributes_count:
        raise ValueError("a span that was not made of a body of ours")
    try:
        return canonical_bytes(document)
    except Malformed:
        raise ValueError("a span that has no canonical body") from None


def _read_attributes(found: Sequence[KeyValue]) -> dict[str, object]:
    read = {one.key: _read_value(one.value) for one in found}
    if len(read) != len(found):
        raise ValueError("an attribute stands twice")
    return read


def _read_value(value: AnyValue) -> object:
    match value.WhichOneof("value"):
        case "bool_value":
            return value.bool_value
        case "int_value":
            return value.int_value
        case "string_value":
            return value.string_value
        case "array_value":
            if any(member.WhichOneof("value") != "string_value" for member in value.array_value.values):
                raise ValueError("a list of something else than texts")
            return [member.string_value for member in value.array_value.values]
        case _:
            raise ValueError("an attribute of a kind that no body has")


# ------------------------------------------------------------------------------------------- ids in JSON


def _with_ids(found: Any, changed: Any) -> Any:  # noqa: ANN401 - a JSON document of whatever depth
    """Return the document with each id in the other form."""
    if isinstance(found, list):
        return [_with_ids(member, changed) for member in found]
    if not isinstance(found, dict):
        return found
    return {
        name: changed(value) if name in _HEX_IDS and isinstance(value, str) else _with_ids(value, changed)
        for name, value in found.items()
    }


def _bytes_of_hex(text: str) -> str:
    return b64encode(bytes.fromhex(text)).decode("ascii")


def _hex_of_bytes(text: str) -> str:
    return b64decode(text, validate=True).hex()
