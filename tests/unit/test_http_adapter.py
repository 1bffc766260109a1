import socket
from dataclasses import replace

import pytest

from issuer.operations.contract import (
    Adapter,
    Answer,
    NotDispatchedError,
    PreparationRefusedError,
    Proof,
    Request,
)
from issuer.operations.http_adapter import HttpAdapter
from issuer.operations.templates import Template
from ledger.canonical import parse_strict
from tests.support.declared import CANARY, EFFECT, PAYLOAD, REQUEST, order_for, secrets, send, settings
from tests.support.service import Service, answer, closed_port, redirect


def no_resolver(host: str, port: int) -> tuple[str, ...]:
    raise AssertionError(f"nobody may resolve {host}:{port} here")


@pytest.mark.spec("EFF-02", "OPR-01")
def test_one_request_leaves_exactly_as_it_was_declared() -> None:
    with Service(answer(201)) as service:
        adapter: Adapter = HttpAdapter(settings(service.url), secrets, resolve=no_resolver)
        given = adapter.dispatch(order_for(adapter.prepare(REQUEST)))
        (received,) = service.requests
    assert given == Answer(proof=Proof.SUCCEEDED, source="http:201")
    assert (received.method, received.path) == ("POST", "/v1/payments/hetzner/R%2F1%2019?urgent=true")
    assert received.body == b'{"cents":90000,"currency":"EUR","note":"no. R/1 19","to":"DE02"}'
    assert received.headers == {
        "host": f"127.0.0.1:{service.port}",
        "user-agent": "permit-issuer",
        "accept-encoding": "identity",
        "connection": "close",
        "content-length": str(len(received.body)),
        "content-type": "application/json",
        "idempotency-key": EFFECT,
        "authorization": f"Bearer {CANARY}",
    }
    assert service.counts() == {
        "connections": 1,
        "handshakes_failed": 0,
        "closed": 1,
        "requests": 1,
        "lookups": 0,
        "effects": 1,
    }


@pytest.mark.spec("EFF-06")
def test_preparation_pins_everything_but_the_secret_and_never_calls_the_service() -> None:
    asked: list[tuple[str, int]] = []

    def resolve(host: str, port: int) -> tuple[str, ...]:
        asked.append((host, port))
        return ("192.0.2.7", "2001:db8::7", "192.0.2.7")

    with Service() as service:
        url = Template.parse_url(f"https://Bank.Example:{service.port}/v1/{{vendor}}")
        adapter = HttpAdapter(settings("http://127.0.0.1", url=url), secrets, resolve=resolve)
        pinned = adapter.prepare(REQUEST)
        assert adapter.still_holds(REQUEST, pinned) is None
    assert asked == [("bank.example", service.port)]
    assert service.connections == 0
    assert pinned.destination == {
        "kind": "http",
        "scheme": "https",
        "host": "bank.example",
        "port": service.port,
        "method": "POST",
        "target": "/v1/hetzner",
        "addresses": ["192.0.2.7", "2001:db8::7"],
        "credential": "bank_token",
        "once": "Idempotency-Key",
    }
    assert pinned.actual == {"kind": "http", "url": f"https://bank.example:{service.port}/v1/hetzner"}


@pytest.mark.spec("EFF-02")
def test_dispatch_resolves_nothing_again_and_names_the_pinned_host() -> None:
    answers = iter([("127.0.0.1",)])
    with Service(answer(201)) as service:
        adapter = HttpAdapter(
            settings(f"http://bank.example:{service.port}", bearer=None),
            secrets,
            resolve=lambda _host, _port: next(answers),
        )
        assert send(adapter).proof is Proof.SUCCEEDED
        assert service.requests[0].headers["host"] == f"bank.example:{service.port}"


@pytest.mark.spec("EFF-02")
@pytest.mark.parametrize("found", [(), ("bank.example",), ("127.0.0.1 ",)])
def test_a_host_without_an_address_cannot_be_prepared(found: tuple[str, ...]) -> None:
    adapter = HttpAdapter(settings("https://bank.example"), secrets, resolve=lambda _host, _port: found)
    with pytest.raises(PreparationRefusedError) as refused:
        adapter.prepare(REQUEST)
    assert refused.value.code == "host_not_resolved"


@pytest.mark.spec("EFF-02")
@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("host", "evil.example"),
        ("port", 1),
        ("scheme", "https"),
        ("method", "DELETE"),
        ("target", "/v1/payments/other/1?urgent=true"),
        ("credential", "other_token"),
        ("once", None),
        ("addresses", []),
        ("addresses", ["localhost"]),
        ("addresses", [2130706433]),
        ("addresses", "127.0.0.1"),
    ],
)
def test_a_destination_that_is_not_the_bound_one_is_never_contacted(member: str, value: object) -> None:
    with Service() as service:
        adapter = HttpAdapter(settings(service.url), secrets)
        pinned = adapter.prepare(REQUEST)
        forged = replace(pinned, destination={**pinned.destination, member: value})
        with pytest.raises(NotDispatchedError, match=r"^destination_changed$"):
            adapter.dispatch(order_for(forged))
        assert service.connections == 0


@pytest.mark.spec("EFF-07")
def test_other_values_under_the_same_preparation_no_longer_hold() -> None:
    adapter = HttpAdapter(settings("http://127.0.0.1"), secrets)
    pinned = adapter.prepare(REQUEST)
    for vendor in ("other", ".."):
        changed = Request(values={**PAYLOAD, "vendor": vendor}, registries=REQUEST.registries)
        assert adapter.still_holds(changed, pinned) == "destination_changed"


@pytest.mark.spec("EFF-02")
@pytest.mark.parametrize(
    ("value", "target"),
    [
        ("@evil.example", "/%40evil.example"),
        ("a?b=c&d#e", "/a%3Fb%3Dc%26d%23e"),
        ("x\\y", "/x%5Cy"),
        ("@scope/name", "/%40scope%2Fname"),
        ("%2e%2e", "/%252e%252e"),
        ("http://evil.example/", "/http%3A%2F%2Fevil.example%2F"),
        ("ä€😀", "/%C3%A4%E2%82%AC%F0%9F%98%80"),
        ("a b+c", "/a%20b%2Bc"),
    ],
)
def test_a_value_is_one_segment_whatever_it_holds(value: str, target: str) -> None:
    adapter = HttpAdapter(settings("http://x", url=Template.parse_url("http://127.0.0.1/{vendor}")), secrets)
    pinned = adapter.prepare(Request(values={**PAYLOAD, "vendor": value}, registries=REQUEST.registries))
    assert pinned.destination["target"] == target
    assert pinned.destination["host"] == "127.0.0.1"


@pytest.mark.spec("EFF-02")
@pytest.mark.parametrize(
    "value", ["", ".", "..", "../x", "x/..", "a/./b", "..\\x", "a\r\nHost: b", "\x7f", "a\tb"]
)
def test_a_value_that_a_server_could_take_for_structure_is_refused(value: str) -> None:
    adapter = HttpAdapter(settings("http://127.0.0.1"), secrets)
    with pytest.raises(PreparationRefusedError) as refused:
        adapter.prepare(Request(values={**PAYLOAD, "vendor": value}, registries=REQUEST.registries))
    assert (refused.value.code, refused.value.field) == ("value_not_for_url", "vendor")
    assert refused.value.message == "A value of this field cannot stand in a URL."


@pytest.mark.parametrize("length", [1340, 300_000])
def test_a_url_is_bounded(length: int) -> None:
    adapter = HttpAdapter(settings("http://127.0.0.1"), secrets)
    with pytest.raises(PreparationRefusedError) as refused:
        adapter.prepare(Request(values={**PAYLOAD, "vendor": "ä" * length}, registries=REQUEST.registries))
    assert refused.value.code == "url_too_long"


def test_a_body_is_bounded() -> None:
    adapter = HttpAdapter(settings("http://x", url=Template.parse_url("http://127.0.0.1/v1")), secrets)
    with pytest.raises(PreparationRefusedError) as refused:
        adapter.prepare(Request(values={**PAYLOAD, "number": "9" * 300_000}, registries=REQUEST.registries))
    assert refused.value.code == "body_too_large"


@pytest.mark.spec("OPR-01", "EFF-02")
@pytest.mark.parametrize(
    "changes",
    [
        {"url": Template.parse("{vendor}://bank.example/")},
        {"url": Template.parse("https://{vendor}/")},
        {"url": Template.parse("https://bank.example{vendor}/")},
        {"url": Template.parse("https://bank.example:{amount_cents}/")},
        {"url": Template.parse("https://user:pw@bank.example/")},
        {"url": Template.parse("ftp://bank.example/")},
        {"url": Template.parse("https://bank.example")},
        {"url": Template.parse("https://bank.example/a b")},
        {"url": Template.parse("https://bank.example/a\r\nX: y")},
        {"url": Template.parse("https://bank.example/#{vendor}")},
        {"url": Template.parse("https://bank.example:0/")},
        {"url": Template.parse("https://bank.example:99999/")},
        {"url": Template.parse("https://bank.example/{{effect_id}}")},
        {"url": Template.parse("https:///v1")},
        {"url": Template(parts=())},
        {"method": "GET"},
        {"method": "post"},
        {"method": "POST /x HTTP/1.1\r\nX:"},
        {"headers": {"Host": "evil.example"}},
        {"headers": {"Transfer-Encoding": "chunked"}},
        {"headers": {"Idempotency-Key": "x"}},
        {"headers": {"X": "a\r\nY: b"}},
        {"headers": {"X:": "a"}},
        {"headers": {"X": ""}},
        {"once": "Content-Length"},
        {"once": "Once Upon"},
        {"bearer": "Bearer secret value"},
        {"url": Template.parse("http://bank.example/")},
        {"proves": {}},
        {"proves": {302: Proof.SUCCEEDED}},
        {"proves": {103: Proof.SUCCEEDED}},
        {"proves": {True: Proof.SUCCEEDED}},
        {"timeout_s": 0},
        {"timeout_s": 601},
        {"timeout_s": True},
        {"response_bytes_max": -1},
    ],
)
def test_a_declaration_that_leaves_something_open_cannot_exist(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        settings("https://bank.example", **changes)


@pytest.mark.spec("OPR-02")
def test_every_setting_is_part_of_the_implementation() -> None:
    base = settings("https://bank.example")
    variants = [
        base,
        replace(base, method="PUT"),
        replace(base, url=Template.parse_url("https://bank.example/v2/{vendor}")),
        replace(base, url=Template.parse_url("https://bank.example/v2/vendor")),
        replace(base, headers={"X-A": "b"}),
        replace(base, body=None),
        replace(base, body={}),
        replace(base, bearer=None),
        replace(base, bearer="other"),
        replace(base, once=None),
        replace(base, proves={201: Proof.SUCCEEDED}),
        replace(base, timeout_s=11),
        replace(base, response_bytes_max=1),
        replace(base, allow_plaintext_bearer=True),
    ]
    digests = [HttpAdapter(variant, secrets).implementation for variant in variants]
    assert len(set(digests)) == len(variants)
    assert all(len(value) == 64 for value in digests)
    assert HttpAdapter(base, secrets).implementation == digests[0]


@pytest.mark.spec("EFF-02")
def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    with Service() as proxy, Service(answer(201)) as service:
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
            monkeypatch.setenv(name.upper(), proxy.url)
        assert send(HttpAdapter(settings(service.url), secrets)).proof is Proof.SUCCEEDED
        assert (proxy.connections, service.connections) == (0, 1)


@pytest.mark.spec("OPR-01", "REP-05")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed_and_proves_nothing(status: int) -> None:
    with Service() as elsewhere, Service(redirect(elsewhere.url + "/", status)) as service:
        given = send(HttpAdapter(settings(service.url), secrets))
        assert given == Answer(proof=Proof.NOTHING, source=f"http:{status}")
        assert (elsewhere.connections, service.connections) == (0, 1)


@pytest.mark.spec("OPR-01", "REP-06")
@pytest.mark.parametrize(
    ("status", "proof"),
    [
        (201, Proof.SUCCEEDED),
        (409, Proof.FAILED),
        (422, Proof.NO_EFFECT),
        (200, Proof.NOTHING),
        (202, Proof.NOTHING),
        (404, Proof.NOTHING),
        (429, Proof.NOTHING),
        (500, Proof.NOTHING),
        (503, Proof.NOTHING),
    ],
)
def test_a_status_proves_what_the_owner_declared_and_no_more(status: int, proof: Proof) -> None:
    with Service(answer(status)) as service:
        given = send(HttpAdapter(settings(service.url), secrets))
        assert given == Answer(proof=proof, source=f"http:{status}")
        assert service.connections == 1


def test_a_request_without_a_body_says_so() -> None:
    plain = {"method": "DELETE", "body": None, "bearer": None, "once": None, "headers": {"If-Match": '"7"'}}
    with Service(answer(201)) as service:
        send(HttpAdapter(settings(service.url, **plain), secrets))
        (received,) = service.requests
    assert received.body == b""
    assert received.headers["content-length"] == "0"
    assert received.headers["if-match"] == '"7"'
    assert not {"content-type", "authorization", "idempotency-key"} & set(received.headers)


def test_the_effect_id_may_stand_in_the_body() -> None:
    with Service(answer(201)) as service:
        send(HttpAdapter(settings(service.url, body={"ref": Template.parse("{effect_id}")}), secrets))
        assert parse_strict(service.requests[0].body) == {"ref": EFFECT}


# -- proven: nothing was sent


@pytest.mark.spec("REP-04")
def test_a_refused_connection_proves_that_nothing_was_sent() -> None:
    with closed_port() as port, pytest.raises(NotDispatchedError, match=r"^connect_failed$"):
        send(HttpAdapter(settings(f"http://127.0.0.1:{port}"), secrets))


@pytest.mark.spec("REP-04")
def test_only_a_failed_connect_goes_on_to_the_next_pinned_address() -> None:
    with Service(answer(201)) as service:
        adapter = HttpAdapter(
            settings(f"http://bank.example:{service.port}", bearer=None),
            secrets,
            resolve=lambda _host, _port: ("::1", "127.0.0.1", "127.0.0.1"),
        )
        assert send(adapter).proof is Proof.SUCCEEDED
        assert service.counts()["effects"] == service.connections == 1


@pytest.mark.spec("REP-04")
@pytest.mark.parametrize("remaining_ms", [0, -1])
def test_nothing_is_sent_once_the_deadline_has_passed(remaining_ms: int) -> None:
    def untouched(_name: str) -> str:
        raise AssertionError("the credential is not needed any more")

    with Service() as service:
        with pytest.raises(NotDispatchedError, match=r"^deadline_passed$"):
            send(HttpAdapter(settings(service.url), untouched), remaining_ms=remaining_ms)
        assert service.connections == 0


@pytest.mark.spec("REP-04")
def test_a_deadline_that_passes_while_connecting_sends_nothing() -> None:
    ticks = iter([0.0, 0.0, 0.0, 0.0, 11.0])
    with Service() as service:
        with pytest.raises(NotDispatchedError, match=r"^deadline_passed$"):
            send(HttpAdapter(settings(service.url), secrets, ticks=lambda: next(ticks)))
        service.wait_for(closed=1)
        assert service.requests == ()


@pytest.mark.spec("REP-04", "SEC-01")
@pytest.mark.parametrize(
    ("secret", "reason"),
    [
        (None, "credential_missing"),
        (b"bytes", "credential_missing"),
        ("", "credential_unusable"),
        (f"{CANARY}\r\nX-Evil: 1", "credential_unusable"),
        (f"{CANARY} x", "credential_unusable"),
        (f"{CANARY}ü", "credential_unusable"),
        (CANARY * 1000, "credential_unusable"),
    ],
)
def test_an_unusable_credential_sends_nothing_and_is_not_repeated(secret: str | None, reason: str) -> None:
    with Service() as service:
        adapter = HttpAdapter(settings(service.url), lambda _name: secret)  # type: ignore[arg-type, return-value]
        with pytest.raises(NotDispatchedError) as refused:
            send(adapter)
        assert refused.value.reason == reason
        assert refused.value.__context__ is None
        assert CANARY not in repr(refused.value)
        assert service.connections == 0


@pytest.mark.spec("SEC-01")
def test_what_a_credential_store_raises_goes_nowhere() -> None:
    def failing(_name: str) -> str:
        raise KeyError(CANARY)

    with Service() as service:
        with pytest.raises(NotDispatchedError, match=r"^credential_missing$") as refused:
            send(HttpAdapter(settings(service.url), failing))
        assert refused.value.__context__ is None
        assert refused.value.__cause__ is None


@pytest.mark.spec("SEC-01")
def test_neither_adapter_nor_preparation_shows_a_secret() -> None:
    with Service(answer(201)) as service:
        adapter = HttpAdapter(settings(service.url), secrets)
        pinned = adapter.prepare(REQUEST)
        given = adapter.dispatch(order_for(pinned))
        assert CANARY not in repr((adapter, vars(adapter), pinned, given))
        (received,) = service.requests
    assert {name for name, value in received.headers.items() if CANARY in value} == {"authorization"}
    assert CANARY not in received.path
    assert CANARY.encode() not in received.body


def test_an_ipv6_address_in_the_url_is_its_own_pin() -> None:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6 loopback")
    with Service(answer(201), host="::1") as service:
        adapter = HttpAdapter(settings(f"http://[::1]:{service.port}"), secrets, resolve=no_resolver)
        assert send(adapter).proof is Proof.SUCCEEDED
        assert service.requests[0].headers["host"] == f"[::1]:{service.port}"


def test_the_system_resolver_finds_this_machine() -> None:
    with Service(answer(201)) as service:
        adapter = HttpAdapter(settings(f"http://localhost:{service.port}"), secrets)
        pinned = adapter.prepare(REQUEST)
        assert "127.0.0.1" in str(pinned.destination["addresses"])
        assert adapter.dispatch(order_for(pinned)).proof is Proof.SUCCEEDED
