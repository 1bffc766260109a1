"""What an answer proves, charges and refers to, and where the effect's identity stands in an address."""

from collections.abc import Mapping

import pytest

from issuer.operations.contract import Answer, PreparationRefusedError, Proof, Request
from issuer.operations.http_adapter import HttpAdapter
from issuer.operations.http_document import AnswerParts
from issuer.operations.http_target import URL_BYTES_MAX
from issuer.operations.templates import Template
from tests.support.declared import EFFECT, PAYLOAD, REQUEST, order_for, secrets, send, settings
from tests.support.service import Service, Step, answer, cut_body, raw, response

PROVES = {
    200: Proof.SUCCEEDED,
    202: Proof.ACCEPTED,
    207: Proof.PARTIAL,
    402: Proof.FAILED,
    422: Proof.NO_EFFECT,
}
PARTS = AnswerParts(charged={"EUR.cent": "/cost/cents"}, reference="/id")
WHOLE = b'{"id":"pay-7","cost":{"cents":1950}}'


def told(step: Step, parts: AnswerParts = PARTS) -> Answer:
    with Service(step) as service:
        given = send(HttpAdapter(settings(service.url, proves=PROVES, parts=parts), secrets))
        assert service.connections == 1
    return given


@pytest.mark.spec("OPR-01", "REP-06", "EFF-09")
@pytest.mark.parametrize(
    ("status", "proof", "charged"),
    [
        (200, Proof.SUCCEEDED, {"EUR.cent": 1950}),
        (402, Proof.FAILED, {"EUR.cent": 1950}),
        (207, Proof.PARTIAL, {"EUR.cent": 1950}),
        (202, Proof.ACCEPTED, None),
        (422, Proof.NO_EFFECT, None),
    ],
)
def test_each_declared_status_proves_its_one_thing_with_charge_and_reference(
    status: int, proof: Proof, charged: Mapping[str, int] | None
) -> None:
    given = told(answer(status, body=WHOLE))
    assert given == Answer(proof=proof, source=f"http:{status}", reference="pay-7", charged=charged)


@pytest.mark.spec("OPR-01", "REP-05")
def test_of_an_undeclared_answer_nothing_is_taken() -> None:
    assert told(answer(201, body=WHOLE)) == Answer(proof=Proof.NOTHING, source="http:201")
    assert told(cut_body(200, body=WHOLE)) == Answer(proof=Proof.NOTHING, source="http:200:cut")


UNREADABLE: list[tuple[str, bytes]] = [
    ("no body", b""),
    ("no JSON", b"<html>"),
    ("no amount", b'{"cost":{}}'),
    ("null", b'{"cost":{"cents":null}}'),
    ("a text", b'{"cost":{"cents":"1950"}}'),
    ("a fraction", b'{"cost":{"cents":19.5}}'),
    ("a whole fraction", b'{"cost":{"cents":1950.0}}'),
    ("an exponent", b'{"cost":{"cents":195e1}}'),
    ("negative", b'{"cost":{"cents":-1950}}'),
    ("truth", b'{"cost":{"cents":true}}'),
    ("too large to survive", b'{"cost":{"cents":9007199254740992}}'),
    ("said twice", b'{"cost":{"cents":1,"cents":1950}}'),
    ("said twice elsewhere", b'{"x":1,"x":1,"cost":{"cents":1950}}'),
    ("a list", b'{"cost":[1950]}'),
    ("over the bound", b'{"cost":{"cents":1950},"x":"' + b"x" * 65_536 + b'"}'),
]


@pytest.mark.spec("REP-06", "EFF-04", "EFF-05")
@pytest.mark.parametrize("body", [row[1] for row in UNREADABLE], ids=[row[0] for row in UNREADABLE])
@pytest.mark.parametrize("status", [200, 207, 402])
def test_where_a_declared_charge_cannot_be_read_no_end_is_proven(status: int, body: bytes) -> None:
    """That something happened is kept, so that a later absence does not make it nothing."""
    given = told(answer(status, body=body))
    kept = Proof.NOTHING if status == 402 else Proof.ACCEPTED
    assert given == Answer(proof=kept, source=f"http:{status}:no_charge")


@pytest.mark.spec("REP-06")
def test_a_charge_in_pieces_of_any_size_is_read_whole() -> None:
    headers = {"transfer-encoding": "chunked", "content-length": ""}
    pieces = b"".join(b"1\r\n" + bytes([byte]) + b"\r\n" for byte in WHOLE) + b"0\r\n\r\n"
    for step in (raw(response(200, headers, pieces)), raw(response(200, {"content-length": ""}, WHOLE))):
        given = told(step)
        assert (given.proof, given.charged) == (Proof.SUCCEEDED, {"EUR.cent": 1950})


@pytest.mark.spec("EFF-09", "SEC-01")
@pytest.mark.parametrize(
    ("value", "reference"),
    [
        (b'"pay-7"', "pay-7"),
        (b'"a b~!"', "a b~!"),
        (b'"' + b"r" * 256 + b'"', "r" * 256),
        (b'"' + b"r" * 257 + b'"', ""),
        (b'""', ""),
        (b"7", ""),
        (b"null", ""),
        (b'["pay-7"]', ""),
        (b'"pay\\n7"', ""),
        (b'"pay\\u001b[2J"', ""),
        ('"päy"'.encode(), ""),
    ],
)
def test_a_reference_is_kept_as_received_or_not_at_all_and_the_proof_stands(
    value: bytes, reference: str
) -> None:
    given = told(answer(200, body=b'{"id":' + value + b"}"), AnswerParts(reference="/id"))
    assert given == Answer(proof=Proof.SUCCEEDED, source="http:200", reference=reference)


@pytest.mark.spec("EFF-09")
@pytest.mark.parametrize("body", [b"", b"no JSON", b"{}", b"[" * 100, b" " * 70_000])
def test_an_answer_without_a_reference_still_proves_what_its_status_does(body: bytes) -> None:
    given = told(answer(200, body=body), AnswerParts(reference="/id"))
    assert given == Answer(proof=Proof.SUCCEEDED, source="http:200")


@pytest.mark.spec("EFF-02", "EFF-03")
def test_the_effect_id_in_an_address_is_pinned_as_its_place_and_filled_when_it_is_sent() -> None:
    with Service(answer(201)) as service:
        url = Template.parse_url(service.url + "/v1/{effect_id}/{vendor}?again={effect_id}")
        adapter = HttpAdapter(settings("", url=url), secrets)
        pinned = adapter.prepare(REQUEST)
        assert pinned.destination["target"] == "/v1/{effect_id}/hetzner?again={effect_id}"
        assert EFFECT not in repr(pinned)
        assert adapter.still_holds(REQUEST, pinned) is None
        assert adapter.dispatch(order_for(pinned)).proof is Proof.SUCCEEDED
        assert service.requests[0].path == f"/v1/{EFFECT}/hetzner?again={EFFECT}"


@pytest.mark.spec("EFF-02")
@pytest.mark.parametrize("value", ["{effect_id}", "%7Beffect_id%7D", "{{effect_id}}", "{effect_id"])
def test_no_value_reads_like_the_place_of_the_effect_id(value: str) -> None:
    with Service(answer(201)) as service:
        url = Template.parse_url(service.url + "/{vendor}/{effect_id}")
        adapter = HttpAdapter(settings("", url=url), secrets)
        asked = Request(values={**PAYLOAD, "vendor": value}, registries=REQUEST.registries)
        pinned = adapter.prepare(asked)
        assert adapter.dispatch(order_for(pinned, request=asked)).proof is Proof.SUCCEEDED
        first, last = service.requests[0].path.lstrip("/").split("/")
        assert (EFFECT in first, last) == (False, EFFECT)


@pytest.mark.spec("EFF-02")
def test_an_address_is_bounded_with_the_effect_id_in_it() -> None:
    room = URL_BYTES_MAX - len(f"/{EFFECT}/")
    url = Template.parse_url("http://127.0.0.1/{effect_id}/{vendor}")
    adapter = HttpAdapter(settings("", url=url), secrets)
    for length, code in ((room, None), (room + 1, "url_too_long")):
        asked = Request(values={**PAYLOAD, "vendor": "v" * length}, registries=REQUEST.registries)
        if code is None:
            adapter.prepare(asked)
            continue
        with pytest.raises(PreparationRefusedError) as refused:
            adapter.prepare(asked)
        assert refused.value.code == code


@pytest.mark.spec("OPR-02")
def test_what_is_taken_from_an_answer_is_part_of_the_implementation() -> None:
    parts = [
        AnswerParts(),
        AnswerParts(reference="/id"),
        AnswerParts(reference="/ref"),
        AnswerParts(charged={"EUR.cent": "/id"}),
        AnswerParts(charged={"USD.cent": "/id"}),
    ]
    adapters = [HttpAdapter(settings("http://127.0.0.1", parts=one), secrets) for one in parts]
    conditional = HttpAdapter(settings("http://127.0.0.1", if_match=True), secrets)
    assert len({one.implementation for one in (*adapters, conditional)}) == len(parts) + 1


@pytest.mark.spec("OPR-01")
def test_a_condition_of_the_owner_and_one_of_the_issuer_do_not_stand_side_by_side() -> None:
    with pytest.raises(ValueError, match="twice"):
        settings("http://127.0.0.1", if_match=True, headers={"If-Match": '"7"'})
