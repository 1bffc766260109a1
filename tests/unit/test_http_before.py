"""What is read before a decision: one bounded GET, and a word of its own for each way in which it fails (EFF-06)."""

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from issuer.operations.contract import (
    Adapter,
    NotDispatchedError,
    Preparation,
    Proof,
    Request,
    TargetUnreadableError,
)
from issuer.operations.host_adapter import HostAdapter, HostSettings
from issuer.operations.http_adapter import HttpAdapter
from issuer.operations.http_before import BeforeSettings, ReadingAdapter
from issuer.operations.http_read import READ_S_MAX, HttpReader
from issuer.operations.http_target import resolve_system
from issuer.operations.templates import Template
from ledger.model import DurationMs
from tests.support.declared import CANARY, REQUEST, order_for, secrets, settings
from tests.support.service import (
    Service,
    Step,
    accept_then_close,
    answer,
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

TAG = '"v7"'
BODY = b'{"legal_hold":false,"size":9007199254740991,"owner":"ana","more":[{"x":null}]}'
FACTS = {"legal_hold": False, "size": 9007199254740991, "owner": "ana"}
WHERE = "/v1/payments/{vendor}/{number}?urgent={urgent}"


def reading(
    service_url: str,
    *,
    resolve: Callable[[str, int], tuple[str, ...]] | None = None,
    seconds_max: float = READ_S_MAX,
    **changes: object,
) -> ReadingAdapter:
    """Return the declared operation with a read of the same address before it."""
    declared: dict[str, object] = {
        "url": Template.parse_url(service_url + WHERE),
        "bearer": "bank_token",
        "etag": True,
        "facts": {"legal_hold": "bool", "size": "int", "owner": "string"},
    }
    before = BeforeSettings(**(declared | changes))  # type: ignore[arg-type]  # rows of tables name their types
    resolver = resolve or resolve_system
    sends = HttpAdapter(settings(service_url, if_match=True, bearer=before.bearer), secrets, resolve=resolver)
    reader = HttpReader(before.url, before.bearer, secrets, resolve=resolver, seconds_max=seconds_max)
    return ReadingAdapter(sends, before, reader)


def unreadable(adapter: Adapter) -> str:
    with pytest.raises(TargetUnreadableError) as refused:
        adapter.prepare(REQUEST)
    assert refused.value.__context__ is None
    assert CANARY not in repr(refused.value)
    return refused.value.reason


@pytest.mark.spec("EFF-02", "EFF-06")
def test_a_read_is_one_request_and_what_it_showed_is_pinned_beside_where() -> None:
    with Service(shows(BODY, tag=TAG), answer(201)) as service:
        adapter: Adapter = reading(service.url)
        pinned = adapter.prepare(REQUEST)
        (read,) = service.requests
        assert adapter.dispatch(order_for(pinned)).proof is Proof.SUCCEEDED
    assert (read.method, read.path, read.body) == ("GET", "/v1/payments/hetzner/R%2F1%2019?urgent=true", b"")
    assert read.headers == {
        "host": f"127.0.0.1:{service.port}",
        "user-agent": "permit-issuer",
        "accept": "application/json",
        "accept-encoding": "identity",
        "cache-control": "no-cache",
        "connection": "close",
        "authorization": f"Bearer {CANARY}",
    }
    assert pinned.preconditions == {
        "etag": TAG,
        "facts": FACTS,
        "read": {"url": service.url + read.path, "addresses": ["127.0.0.1"]},
    }
    assert pinned.facts == FACTS
    assert CANARY not in repr((adapter, pinned))
    (written,) = service.writes
    assert written.headers["if-match"] == TAG


FAILURES: list[tuple[str, Step, str]] = [
    ("no answer", accept_then_close(), "no_answer"),
    ("closed unread", close_before_read(), "no_answer"),
    ("reset", reset(), "no_answer"),
    ("no HTTP", garbage(), "no_answer"),
    ("interim answers only", interim(final=None), "no_answer"),
    ("switched protocols", raw(b"HTTP/1.1 101 Other\r\n\r\n", effect=False), "cut"),
    ("status line only", half_answer(200), "cut"),
    ("body cut short", cut_body(200, body=BODY), "cut"),
    ("two lengths", raw(response(200, {"content-length": "2\r\nContent-Length: 3"}), effect=False), "cut"),
    ("declared too large", shows(b"[" + b"1," * 40_000 + b"1]", tag=TAG), "too_large"),
    ("too large without a length", raw(response(200, {"content-length": ""}, b" " * 70_000)), "too_large"),
    ("redirected", redirect("http://127.0.0.1:9/", 302), "redirected"),
    ("moved for good", redirect("http://127.0.0.1:9/", 308), "redirected"),
    ("not modified", shows(b"", status=304), "redirected"),
    ("bad request", shows(BODY, status=400), "request_refused"),
    ("who are you", shows(BODY, status=401), "access_refused"),
    ("not for you", shows(BODY, status=403), "access_refused"),
    ("nothing there", shows(BODY, status=404), "not_found"),
    ("gone", shows(BODY, status=410), "not_found"),
    ("slow down", shows(BODY, status=429), "too_many_requests"),
    ("broken", shows(BODY, status=500), "service_failed"),
    ("away", shows(BODY, status=503), "service_failed"),
    ("accepted, which is no reading", shows(BODY, tag=TAG, status=202), "unexpected_status"),
    ("a part of it", shows(BODY, tag=TAG, status=206), "unexpected_status"),
    ("no tag", shows(BODY), "tag_missing"),
    ("weak tag", shows(BODY, tag='W/"v7"'), "tag_weak"),
    ("tag without quotes", shows(BODY, tag="v7"), "tag_malformed"),
    ("any tag", shows(BODY, tag="*"), "tag_malformed"),
    ("two tags in one", shows(BODY, tag='"v7", "v8"'), "tag_malformed"),
    ("two tags", shows(BODY, headers={"ETag": '"v7"', "etag": '"v8"'}), "tag_malformed"),
    ("endless tag", shows(BODY, tag=f'"{"v" * 300}"'), "tag_malformed"),
    ("no body", shows(b"", tag=TAG), "not_json"),
    ("no JSON", shows(b"<html>", tag=TAG), "not_json"),
    ("two documents", shows(BODY + BODY, tag=TAG), "not_json"),
    ("not UTF-8", shows(b'{"legal_hold":"\xff"}', tag=TAG), "not_utf8"),
    ("said twice", shows(b'{"legal_hold":true,"legal_hold":false}', tag=TAG), "duplicate_key"),
    ("a number that does not survive", shows(b'{"size":9007199254740993}', tag=TAG), "number_out_of_range"),
    ("a fraction", shows(b'{"size":1.0}', tag=TAG), "number_not_whole"),
    ("a list", shows(b"[false]", tag=TAG), "not_an_object"),
    ("null", shows(b"null", tag=TAG), "not_an_object"),
    ("fact missing", shows(BODY.replace(b"legal_hold", b"Legal_hold"), tag=TAG), "fact_missing"),
    ("fact deeper down", shows(b'{"data":' + BODY + b"}", tag=TAG), "fact_missing"),
    ("fact null", shows(BODY.replace(b"false", b"null"), tag=TAG), "fact_wrong_type"),
    ("fact as text", shows(BODY.replace(b"false", b'"false"'), tag=TAG), "fact_wrong_type"),
    ("fact as number", shows(BODY.replace(b"false", b"0"), tag=TAG), "fact_wrong_type"),
    ("number as truth", shows(BODY.replace(b"9007199254740991", b"true"), tag=TAG), "fact_wrong_type"),
]  # fmt: skip


@pytest.mark.spec("EFF-06", "EFF-05")
@pytest.mark.parametrize(("step", "word"), [row[1:] for row in FAILURES], ids=[row[0] for row in FAILURES])
def test_each_way_in_which_a_read_fails_has_its_word_and_is_tried_once(step: Step, word: str) -> None:
    with Service(step) as service:
        assert unreadable(reading(service.url)) == word
        service.wait_for(closed=1)
        assert (service.connections, service.writes) == (1, ())


@pytest.mark.spec("EFF-06", "EFF-02")
def test_a_redirect_leads_nowhere() -> None:
    with Service() as elsewhere, Service(redirect(elsewhere.url + "/", 307)) as service:
        assert unreadable(reading(service.url)) == "redirected"
        assert elsewhere.connections == 0


@pytest.mark.spec("EFF-06")
@pytest.mark.parametrize(
    "step",
    [
        hang(),
        slow_drip(response(200, {"etag": TAG}, BODY), 0.02, effect=False),
        slow_drip(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 1000, 0.02, effect=False),
    ],
    ids=["silence", "an answer in drops", "headers in drops"],
)
def test_a_read_has_one_deadline_however_slowly_its_answer_comes(step: Step) -> None:
    with Service(step) as service:
        began = time.monotonic()
        assert unreadable(reading(service.url, seconds_max=0.4)) == "timeout"
        assert 0.4 <= time.monotonic() - began < READ_S_MAX / 2
        assert service.connections == 1


@pytest.mark.spec("EFF-06")
def test_what_cannot_be_reached_has_its_word() -> None:
    with closed_port() as port:
        assert unreadable(reading(f"http://127.0.0.1:{port}")) == "connect_failed"
    with Service() as service:
        url = f"https://127.0.0.1:{service.port}"
        service.then(raw(b"no TLS here", effect=False))
        assert unreadable(reading(url)) == "tls_failed"

    def nowhere(_host: str, _port: int) -> tuple[str, ...]:
        raise OSError

    reader = HttpReader(Template.parse_url("https://bank.example/"), None, secrets, resolve=nowhere)
    with pytest.raises(TargetUnreadableError, match=r"^host_not_resolved$"):
        reader.addresses()


@pytest.mark.spec("SEC-01", "EFF-06")
@pytest.mark.parametrize(
    ("secret", "word"), [(None, "credential_missing"), (f"{CANARY}\r\nX: y", "credential_unusable")]
)
def test_an_unusable_credential_asks_nobody(secret: str | None, word: str) -> None:
    with Service() as service:
        reader = HttpReader(
            Template.parse_url(service.url + "/x"),
            "bank_token",
            lambda _name: secret,  # type: ignore[arg-type, return-value]
        )
        with pytest.raises(TargetUnreadableError, match=f"^{word}$") as refused:
            reader.get("/x", ["127.0.0.1"])
        assert refused.value.__context__ is None
        assert service.connections == 0


@pytest.mark.spec("EFF-07")
@pytest.mark.parametrize(
    ("step", "word"),
    [
        (shows(BODY, tag=TAG), None),
        (shows(b'{"owner":"ana","legal_hold":false,"size":9007199254740991}', tag=TAG), None),
        (shows(BODY, tag='"v8"'), "etag"),
        (shows(BODY.replace(b"false", b"true"), tag='"v8"'), "etag"),
        (shows(BODY.replace(b"false", b"true"), tag=TAG), "legal_hold"),
        (shows(BODY.replace(b"0991", b"0990"), tag=TAG), "size"),
        (shows(BODY.replace(b'"ana"', b'"bob"'), tag=TAG), "owner"),
    ],
)
def test_before_a_commit_the_same_read_is_made_again_and_compared(step: Step, word: str | None) -> None:
    with Service(shows(BODY, tag=TAG), step) as service:
        adapter = reading(service.url)
        pinned = adapter.prepare(REQUEST)
        assert adapter.still_holds(REQUEST, pinned) == word
        first, second = service.requests
        assert (first.path, first.headers) == (second.path, second.headers)
        assert service.writes == ()


@pytest.mark.spec("EFF-07")
def test_a_target_that_cannot_be_read_again_is_not_called_unchanged() -> None:
    with Service(shows(BODY, tag=TAG), shows(BODY, status=503)) as service:
        adapter = reading(service.url)
        pinned = adapter.prepare(REQUEST)
        with pytest.raises(TargetUnreadableError, match=r"^service_failed$"):
            adapter.still_holds(REQUEST, pinned)


@pytest.mark.spec("EFF-02", "EFF-07")
def test_the_second_read_goes_to_the_pinned_addresses_and_resolves_nothing() -> None:
    answers = iter([("127.0.0.1",)])
    with Service(shows(BODY, tag=TAG), shows(BODY, tag=TAG)) as service:
        url = f"http://bank.example:{service.port}"
        adapter = reading(url, resolve=lambda _host, _port: next(answers), bearer=None)
        pinned = adapter.prepare(REQUEST)
        assert next(answers, None) is None, "one resolution serves the read and the sending"
        assert pinned.preconditions["read"] == {
            "url": f"{url}/v1/payments/hetzner/R%2F1%2019?urgent=true",
            "addresses": pinned.destination["addresses"],
        }
        assert adapter.still_holds(REQUEST, pinned) is None
        assert service.requests[1].headers["host"] == f"bank.example:{service.port}"


@pytest.mark.spec("EFF-02", "EFF-06")
def test_a_read_of_another_origin_has_addresses_of_its_own() -> None:
    asked: list[str] = []

    def resolve(host: str, _port: int) -> tuple[str, ...]:
        asked.append(host)
        return ("127.0.0.1",)

    with Service(shows(BODY, tag=TAG)) as service, Service() as other:
        where = Template.parse_url(f"http://mirror.example:{service.port}/{{vendor}}")
        url = f"http://bank.example:{other.port}"
        pinned = reading(url, resolve=resolve, bearer=None, url=where).prepare(REQUEST)
        assert pinned.preconditions["read"] == {
            "url": f"http://mirror.example:{service.port}/hetzner",
            "addresses": ["127.0.0.1"],
        }
        assert (service.connections, other.connections) == (1, 0)
    assert asked == ["bank.example", "mirror.example"]


@pytest.mark.spec("EFF-02", "EFF-07")
@pytest.mark.parametrize(
    "where",
    [
        None,
        {"url": "http://127.0.0.1:9/v1"},
        {"addresses": ["localhost"]},
        {"addresses": [2130706433]},
        {"addresses": "127.0.0.1"},
        {"addresses": []},
    ],
)
def test_a_read_that_is_not_the_bound_one_is_never_made(where: dict[str, object] | None) -> None:
    with Service(shows(BODY, tag=TAG)) as service:
        adapter = reading(service.url)
        pinned = adapter.prepare(REQUEST)
        bound = pinned.preconditions["read"]
        assert isinstance(bound, dict)
        forged = {**pinned.preconditions, "read": None if where is None else {**bound, **where}}
        assert adapter.still_holds(REQUEST, replace(pinned, preconditions=forged)) == "destination_changed"
        assert service.connections == 1


@pytest.mark.spec("EFF-07")
def test_a_conditional_write_without_a_bound_tag_is_not_sent() -> None:
    with Service(shows(BODY, tag=TAG)) as service:
        adapter = reading(service.url)
        pinned = adapter.prepare(REQUEST)
        for tag in (None, 'W/"v7"', "v7", '"a\r\nX: y"', 7):
            forged = replace(pinned, preconditions={**pinned.preconditions, "etag": tag})
            with pytest.raises(NotDispatchedError, match=r"^tag_missing$"):
                adapter.dispatch(order_for(forged))
        assert service.writes == ()


@pytest.mark.spec("EFF-06", "EFF-07")
def test_what_a_host_sends_can_be_looked_at_first_as_well() -> None:
    sends = HostAdapter(HostSettings(deadline_ms=DurationMs(1000)))
    with Service(*[shows(BODY)] * 2, shows(BODY.replace(b"false", b"true"))) as service:
        before = BeforeSettings(
            url=Template.parse_url(service.url + "/{vendor}"), facts={"legal_hold": "bool"}
        )
        adapter = ReadingAdapter(sends, before, HttpReader(before.url, None, secrets))
        pinned = adapter.prepare(REQUEST)
        assert adapter.kind == "host"
        assert pinned.facts == {"legal_hold": False}
        assert "etag" not in pinned.preconditions
        assert adapter.still_holds(REQUEST, pinned) is None
        assert adapter.still_holds(REQUEST, pinned) == "legal_hold"
        with pytest.raises(NotDispatchedError, match=r"^host_sends$"):
            adapter.dispatch(order_for(pinned))


@pytest.mark.spec("OPR-02")
def test_the_read_and_the_sending_are_both_part_of_the_implementation() -> None:
    url = "https://bank.example"
    adapters: list[Adapter] = [
        HttpAdapter(settings(url, if_match=True), secrets),
        HttpAdapter(settings(url), secrets),
        reading(url),
        reading(url, etag=False),
        reading(url, bearer=None),
        reading(url, facts={"legal_hold": "bool"}),
        reading(url, facts={"legal_hold": "string"}),
        reading(url, url=Template.parse_url(url + "/other")),
    ]
    assert len({adapter.implementation for adapter in adapters}) == len(adapters)
    assert reading(url).implementation == reading(url).implementation


@pytest.mark.spec("OPR-01", "EFF-06")
@pytest.mark.parametrize(
    "changes",
    [{"etag": False, "facts": {}}, {"url": Template.parse_url("https://bank.example/{effect_id}")}],
)
def test_a_read_that_takes_nothing_or_depends_on_the_effect_cannot_exist(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        reading("https://bank.example", **changes)  # type: ignore[arg-type]  # rows name their types
    with pytest.raises(ValueError, match="https"):
        HttpReader(Template.parse_url("http://bank.example/"), "bank_token", secrets)


def test_values_that_make_no_address_are_refused_before_anybody_is_asked() -> None:
    with Service() as service:
        adapter = reading(service.url)
        asked = Request(values={**REQUEST.values, "vendor": ".."}, registries=REQUEST.registries)
        with pytest.raises(Exception, match="value_not_for_url"):
            adapter.prepare(asked)
        held = Preparation(actual={}, destination={}, preconditions={})
        assert adapter.still_holds(asked, held) == "destination_changed"
        assert service.connections == 0
