"""What an inspection sees: a table of what services do, and of what may count as found or absent (REC-02)."""

import time
from collections.abc import Mapping

import pytest

from issuer.operations.contract import Inspection, Inspector, Look, Preparation, Request, Seen
from issuer.operations.http_adapter import AnswerUnreadableError, HttpAdapter
from issuer.operations.http_document import AnswerParts
from issuer.operations.http_inspect import HttpInspector, InspectSettings
from issuer.operations.http_read import HttpReader
from issuer.operations.templates import Template
from ledger.model import DurationMs
from tests.support.declared import CANARY, EFFECT, REQUEST, secrets, send, settings
from tests.support.service import (
    Service,
    Step,
    accept_then_close,
    close_before_read,
    closed_port,
    cut_body,
    garbage,
    half_answer,
    hang,
    interim,
    raw,
    redirect,
    reset,
    response,
    shows,
    slow_drip,
)

WHERE = "/v1/payments/{vendor}?id={effect_id}"
NOTHING = Preparation(actual={}, destination={})


def inspector(
    origin: str,
    found: str = "/items/0/id",
    equals: str | None = None,
    parts: AnswerParts | None = None,
    url: str = WHERE,
) -> Inspector:
    template = None if equals is None else Template.parse(equals)
    settings = InspectSettings(found=found, equals=template, parts=parts or AnswerParts())
    return HttpInspector(settings, HttpReader(Template.parse_url(origin + url), "bank_token", secrets))


def look(remaining_ms: int = 10_000, **values: str | int | bool) -> Look:
    asked = Request(values={**REQUEST.values, **values}, registries=REQUEST.registries)
    return Look(effect_id=EFFECT, request=asked, preparation=NOTHING, remaining_ms=DurationMs(remaining_ms))


def seen(step: Step, **options: str | None) -> Inspection:
    with Service(step) as service:
        given = inspector(service.url, **options).inspect(look())  # type: ignore[arg-type]
        service.wait_for(closed=1)
        assert (service.connections, service.writes) == (1, ())
    assert CANARY not in repr(given)
    return given


@pytest.mark.spec("REC-01")
def test_an_inspection_is_one_read_that_names_the_effect() -> None:
    with Service(shows(b'{"items":[{"id":"p-1"}]}')) as service:
        one = inspector(service.url)
        assert one.inspect(look()) == Inspection(seen=Seen.FOUND, source="http:200")
        (read,) = service.requests
    assert (read.method, read.path, read.body) == ("GET", f"/v1/payments/hetzner?id={EFFECT}", b"")
    assert read.headers["authorization"] == f"Bearer {CANARY}"
    assert CANARY not in repr((one, vars(one)))


@pytest.mark.spec("REC-01", "REP-05")
def test_it_finds_what_happened_although_its_answer_was_lost() -> None:
    with Service(accept_then_close()) as service:
        one = inspector(
            service.url, url="/payments?key={effect_id}", equals="{effect_id}", found="/items/0/key"
        )
        assert one.inspect(look()).seen is Seen.ABSENT
        with pytest.raises(AnswerUnreadableError):
            send(HttpAdapter(settings(service.url), secrets))
        assert one.inspect(look()) == Inspection(seen=Seen.FOUND, source="http:200")
        assert (len(service.lookups), len(service.writes)) == (2, 1)


NONE = b'{"items":[]}'
TABLE: list[tuple[str, Step, Seen, str]] = [
    ("found in a list", shows(b'{"items":[{"id":"p-1"}]}'), Seen.FOUND, "http:200"),
    ("a number other than nought", shows(b'{"items":[{"id":1}]}'), Seen.FOUND, "http:200"),
    ("true", shows(b'{"items":[{"id":true}]}'), Seen.FOUND, "http:200"),
    ("an object", shows(b'{"items":[{"id":{"v":1}}]}'), Seen.FOUND, "http:200"),
    ("created", shows(b'{"items":[{"id":"p-1"}]}', status=201), Seen.FOUND, "http:201"),
    ("null", shows(b'{"items":[{"id":null}]}'), Seen.UNCLEAR, "http:200"),
    ("false", shows(b'{"items":[{"id":false}]}'), Seen.UNCLEAR, "http:200"),
    ("nought", shows(b'{"items":[{"id":0}]}'), Seen.UNCLEAR, "http:200"),
    ("an empty text", shows(b'{"items":[{"id":""}]}'), Seen.UNCLEAR, "http:200"),
    ("an empty list", shows(b'{"items":[{"id":[]}]}'), Seen.UNCLEAR, "http:200"),
    ("an empty object", shows(b'{"items":[{"id":{}}]}'), Seen.UNCLEAR, "http:200"),
    ("no item", shows(b'{"items":[]}'), Seen.ABSENT, "http:200"),
    ("an empty answer", shows(b"{}"), Seen.UNCLEAR, "http:200"),
    ("an error as a success", shows(b'{"ok":false,"error":"ratelimited"}'), Seen.UNCLEAR, "http:200"),
    ("null in place of the list", shows(b'{"items":null}'), Seen.UNCLEAR, "http:200"),
    ("an item without an id", shows(b'{"items":[{}]}'), Seen.UNCLEAR, "http:200"),
    ("an object in place of the list", shows(b'{"items":{"1":{"id":"p-1"}}}'), Seen.UNCLEAR, "http:200"),
    ("an error in place of the list", shows(b'{"items":{"error":"timeout"}}'), Seen.UNCLEAR, "http:200"),
    ("an item of another form", shows(b'{"items":[{"ref":"p-1"}]}'), Seen.UNCLEAR, "http:200"),
    ("an item that is null", shows(b'{"items":[null]}'), Seen.UNCLEAR, "http:200"),
    ("a text in place of the list", shows(b'{"items":"0"}'), Seen.UNCLEAR, "http:200"),
    ("not there", shows(b'{"items":[{"id":"p-1"}]}', status=404), Seen.ABSENT, "http:404"),
    ("gone", shows(b"<html>", status=410), Seen.ABSENT, "http:410"),
    ("no body", shows(b""), Seen.UNCLEAR, "http:200"),
    ("no content", shows(b"", status=204), Seen.UNCLEAR, "http:204"),
    ("a part", shows(b'{"items":[{"id":"p-1"}]}', status=206), Seen.UNCLEAR, "http:206"),
    ("no JSON", shows(b"<html>"), Seen.UNCLEAR, "http:200"),
    ("said twice", shows(b'{"items":[],"items":[{"id":"p-1"}]}'), Seen.UNCLEAR, "http:200"),
    ("a number that does not survive", shows(b'{"items":[],"n":1e400}'), Seen.UNCLEAR, "http:200"),
    ("two documents", shows(b"{}{}"), Seen.UNCLEAR, "http:200"),
    ("not UTF-8", shows(b'{"x":"\xff"}'), Seen.UNCLEAR, "http:200"),
    ("bad request", shows(NONE, status=400), Seen.UNCLEAR, "http:400"),
    ("who are you", shows(NONE, status=401), Seen.UNCLEAR, "http:401"),
    ("not for you", shows(NONE, status=403), Seen.UNCLEAR, "http:403"),
    ("slow down", shows(NONE, status=429), Seen.UNCLEAR, "http:429"),
    ("broken", shows(b'{"items":[{"id":"p-1"}]}', status=500), Seen.UNCLEAR, "http:500"),
    ("away", shows(NONE, status=503), Seen.UNCLEAR, "http:503"),
    ("not modified", shows(b"", status=304), Seen.UNCLEAR, "http:304"),
    ("redirected", redirect("http://127.0.0.1:9/"), Seen.UNCLEAR, "http:302"),
    ("no answer", accept_then_close(), Seen.UNCLEAR, "http:no_answer"),
    ("closed unread", close_before_read(), Seen.UNCLEAR, "http:no_answer"),
    ("reset", reset(), Seen.UNCLEAR, "http:no_answer"),
    ("no HTTP", garbage(), Seen.UNCLEAR, "http:no_answer"),
    ("interim only", interim(final=None), Seen.UNCLEAR, "http:no_answer"),
    ("cut after the status", half_answer(404), Seen.UNCLEAR, "http:cut"),
    ("cut in the body", cut_body(200, body=b'{"items":[]}'), Seen.UNCLEAR, "http:cut"),
    ("too large", shows(b" " * 70_000 + b"{}"), Seen.UNCLEAR, "http:too_large"),
    ("other protocol", raw(b"HTTP/1.1 101 x\r\n\r\n"), Seen.UNCLEAR, "http:cut"),
]  # fmt: skip


@pytest.mark.spec("REC-02", "REC-05")
@pytest.mark.parametrize(
    ("step", "what", "source"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_only_what_is_clear_is_found_or_absent(step: Step, what: Seen, source: str) -> None:
    assert seen(step) == Inspection(seen=what, source=source)


EQUALS: list[tuple[str, bytes, Seen]] = [
    ("{effect_id}", f'"{EFFECT}"'.encode(), Seen.FOUND),
    ("{effect_id}", b'"eff_00000000000000000000000000000000"', Seen.DIFFERS),
    ("{effect_id}", b"null", Seen.DIFFERS),
    ("{vendor.iban}", b'"DE02"', Seen.FOUND),
    ("{vendor.iban}", b'"de02"', Seen.DIFFERS),
    ("{vendor.iban}", b'"DE02 "', Seen.DIFFERS),
    ("no. {number}", b'"no. R/1 19"', Seen.FOUND),
    ("{amount_cents}", b"90000", Seen.FOUND),
    ("{amount_cents}", b'"90000"', Seen.DIFFERS),
    ("{amount_cents}", b"90001", Seen.DIFFERS),
    ("{urgent}", b"true", Seen.FOUND),
    ("{urgent}", b"1", Seen.DIFFERS),
    ("{urgent}", b'"true"', Seen.DIFFERS),
    ("{number}", b"[]", Seen.DIFFERS),
    ("{number}", b'["R/1 19"]', Seen.DIFFERS),
]


@pytest.mark.spec("REC-02", "REC-05")
@pytest.mark.parametrize(("equals", "value", "what"), EQUALS)
def test_another_value_in_its_place_is_not_this_effect(equals: str, value: bytes, what: Seen) -> None:
    given = seen(shows(b'{"id":' + value + b"}"), found="/id", equals=equals)
    assert given == Inspection(seen=what, source="http:200")


@pytest.mark.spec("REC-02")
def test_one_of_them_missing_is_absent_also_where_a_value_is_asked_for() -> None:
    assert seen(shows(b'{"items":[]}'), equals="{number}").seen is Seen.ABSENT
    assert seen(shows(status=404), equals="{number}").seen is Seen.ABSENT


POINTERS: list[tuple[str, bytes, Seen]] = [
    ("/a~1b/m~0n", b'{"a/b":{"m~n":"x"}}', Seen.FOUND),
    ("/", b'{"":"x"}', Seen.FOUND),
    ("/~01", b'{"~1":"x"}', Seen.FOUND),
    ("/list/1", b'{"list":["a","b"]}', Seen.FOUND),
    ("/list/2", b'{"list":["a","b"]}', Seen.ABSENT),
    ("/list/01", b'{"list":["a","b"]}', Seen.ABSENT),
    ("/list/-", b'{"list":["a","b"]}', Seen.UNCLEAR),
    ("/list/-1", b'{"list":["a","b"]}', Seen.UNCLEAR),
    ("/list/+1", b'{"list":["a","b"]}', Seen.UNCLEAR),
    ("/list/99999999999999999999", b'{"list":["a","b"]}', Seen.ABSENT),
    ("/0", b'{"0":"x"}', Seen.FOUND),
    ("/0/id", b'[{"id":"x"}]', Seen.FOUND),
    ("/0/id", b"[]", Seen.ABSENT),
    ("/0/id", b"{}", Seen.UNCLEAR),
    ("/dist/integrity", b'{"dist":{}}', Seen.ABSENT),
    ("/dist/integrity", b'{"name":"tool"}', Seen.UNCLEAR),
    ("/text/0", b'{"text":"abc"}', Seen.UNCLEAR),
    ("/id", b'{"name":"tool"}', Seen.UNCLEAR),
    ("/id", b'["id"]', Seen.UNCLEAR),
    ("/id", b'"id"', Seen.UNCLEAR),
    ("/id", b"null", Seen.UNCLEAR),
]


@pytest.mark.spec("REC-02")
@pytest.mark.parametrize(("pointer", "body", "what"), POINTERS)
def test_a_pointer_finds_what_rfc_6901_says(pointer: str, body: bytes, what: Seen) -> None:
    assert seen(shows(body), found=pointer).seen is what


PARTS = AnswerParts(charged={"EUR.cent": "/fee", "call": "/calls"}, reference="/ref")
CHARGES: list[tuple[str, Seen, str, Mapping[str, int] | None, str]] = [
    ('"fee":19,"calls":1,"ref":"b-7"', Seen.FOUND, "http:200", {"EUR.cent": 19, "call": 1}, "b-7"),
    ('"fee":0,"calls":0,"ref":7', Seen.FOUND, "http:200", {"EUR.cent": 0, "call": 0}, ""),
    ('"fee":19,"ref":"b-7"', Seen.UNCLEAR, "http:200:no_charge", None, ""),
    ('"fee":"19","calls":1', Seen.UNCLEAR, "http:200:no_charge", None, ""),
    ('"fee":-1,"calls":1', Seen.UNCLEAR, "http:200:no_charge", None, ""),
    ('"fee":true,"calls":1', Seen.UNCLEAR, "http:200:no_charge", None, ""),
]


@pytest.mark.spec("REP-06", "EFF-04")
@pytest.mark.parametrize(("members", "what", "source", "charged", "reference"), CHARGES)
def test_what_it_cost_is_read_whole_or_nothing_is_clear(
    members: str, what: Seen, source: str, charged: Mapping[str, int] | None, reference: str
) -> None:
    with Service(shows(f'{{"id":"x",{members}}}'.encode())) as service:
        given = inspector(service.url, "/id", parts=PARTS).inspect(look())
    assert given == Inspection(seen=what, source=source, charged=charged, reference=reference)


@pytest.mark.spec("REC-01", "REC-02")
@pytest.mark.parametrize(
    "step", [hang(), slow_drip(response(404), 0.05, effect=False)], ids=["silence", "drops"]
)
def test_an_inspection_ends_with_its_attempt(step: Step) -> None:
    with Service(step) as service:
        began = time.monotonic()
        given = inspector(service.url).inspect(look(300))
        assert given == Inspection(seen=Seen.UNCLEAR, source="http:timeout")
        assert time.monotonic() - began < 5


@pytest.mark.spec("REC-01")
@pytest.mark.parametrize("remaining_ms", [0, -1])
def test_an_attempt_without_time_asks_nobody(remaining_ms: int) -> None:
    with Service() as service:
        given = inspector(service.url).inspect(look(remaining_ms))
        assert (given.source, service.connections) == ("http:timeout", 0)


@pytest.mark.spec("REC-02")
def test_what_cannot_be_asked_is_unclear() -> None:
    with Service() as service:
        given = inspector(service.url).inspect(look(vendor=".."))
        assert given == Inspection(seen=Seen.UNCLEAR, source="http:value_not_for_url")
        assert service.connections == 0
    with closed_port() as port:
        given = inspector(f"http://127.0.0.1:{port}").inspect(look())
        assert given == Inspection(seen=Seen.UNCLEAR, source="http:connect_failed")

    def failing(_name: str) -> str:
        raise KeyError(CANARY)

    reader = HttpReader(Template.parse_url("http://127.0.0.1:9/{effect_id}"), "bank_token", failing)
    given = HttpInspector(InspectSettings(found="/id"), reader).inspect(look())
    assert given == Inspection(seen=Seen.UNCLEAR, source="http:credential_missing")


@pytest.mark.spec("EFF-02", "REC-01")
def test_the_host_is_resolved_at_each_inspection_and_no_other_is_asked() -> None:
    asked: list[str] = []

    def resolve(host: str, _port: int) -> tuple[str, ...]:
        asked.append(host)
        return ("127.0.0.1",)

    with Service(*[shows(b'{"id":"x"}')] * 2) as service:
        url = Template.parse_url(f"http://localhost:{service.port}/{{vendor}}")
        one = HttpInspector(InspectSettings(found="/id"), HttpReader(url, None, secrets, resolve=resolve))
        for vendor in ("@evil.example", "//evil.example"):
            assert one.inspect(look(vendor=vendor)).seen is Seen.FOUND
        assert [read.path for read in service.requests] == ["/%40evil.example", "/%2F%2Fevil.example"]
    assert asked == ["localhost", "localhost"]
