import traceback
from contextlib import suppress

import pytest

from issuer.operations.contract import Answer, NotDispatchedError, Order, Proof, Request
from issuer.operations.http_adapter import AnswerUnreadableError, HttpAdapter, HttpSettings
from issuer.operations.templates import Template
from ledger.model import DurationMs, EffectId, InstantMs
from tests.support.service import (
    Exchange,
    Service,
    Step,
    accept_late,
    accept_then_close,
    answer,
    close_before_read,
    cut_body,
    delay,
    duplicate,
    garbage,
    half_answer,
    hang,
    held,
    interim,
    raw,
    reset,
    response,
    slow_drip,
)

EFFECT = EffectId("eff_" + "cd" * 16)
CANARY = "canary-77ab-never-seen"
NOTHING_201 = Answer(proof=Proof.NOTHING, source="http:201:cut")
SUCCEEDED = Answer(proof=Proof.SUCCEEDED, source="http:201")
LONG_HEADER = b"HTTP/1.1 201 Created\r\n" + b"x-filler: " + b"a" * 40_000 + b"\r\n\r\n"
CHUNKED = {"transfer-encoding": "chunked", "content-length": ""}


def adapter_for(service: Service, response_bytes_max: int = 1000) -> HttpAdapter:
    return HttpAdapter(
        HttpSettings(
            method="POST",
            url=Template.parse_url(service.url + "/v1/payments"),
            body={"cents": Template.parse("{cents}")},
            bearer="token",
            once="Idempotency-Key",
            proves={201: Proof.SUCCEEDED, 422: Proof.NO_EFFECT},
            response_bytes_max=response_bytes_max,
        ),
        lambda _name: CANARY,
    )


def send(service: Service, remaining_ms: int = 20_000) -> Answer:
    adapter = adapter_for(service)
    request = Request(values={"cents": 900}, registries={})
    return adapter.dispatch(
        Order(
            effect_id=EFFECT,
            request=request,
            preparation=adapter.prepare(request),
            deadline_ms=InstantMs(0),
            remaining_ms=DurationMs(remaining_ms),
            still_allowed=lambda: None,
        )
    )


def chunked(*lines: bytes) -> Step:
    return raw(response(201, CHUNKED, b"".join(lines)))


@pytest.mark.spec("REP-05", "ADM-04")
@pytest.mark.parametrize(
    ("step", "raised", "effects"),
    [
        (accept_then_close(), AnswerUnreadableError, 1),
        (close_before_read(), (OSError, AnswerUnreadableError), 0),
        (reset(), OSError, 0),
        (reset(effect=True), OSError, 1),
        (accept_late(), AnswerUnreadableError, 1),
        (garbage(), AnswerUnreadableError, 1),
        (raw(b"HTTP/1.1 201"), AnswerUnreadableError, 1),
        (raw(b"HTTP/1.1 201 Created\n\n"), AnswerUnreadableError, 1),
        (raw(b"HTTP/2 201 Created\r\n\r\n"), AnswerUnreadableError, 1),
        (raw(b"HTTP/1.1 0201 Created\r\n\r\n"), AnswerUnreadableError, 1),
        (raw(b"HTTP/1.1 +201 Created\r\n\r\n"), AnswerUnreadableError, 1),
        (raw(b"HTTP/1.1 999 Created\r\n\r\n"), AnswerUnreadableError, 1),
        (raw(b"a" * 100_000), (OSError, AnswerUnreadableError), 1),
        (interim(final=None), AnswerUnreadableError, 1),
        (interim(status=100, final=None), AnswerUnreadableError, 1),
        (interim(times=9), AnswerUnreadableError, 1),
        (raw(b"HTTP/1.1 100 Wait\r\nHTTP/1.1 201 Created\r\n\r\n"), AnswerUnreadableError, 1),
    ],
    ids=lambda value: value.name if isinstance(value, Step) else None,
)
def test_an_answer_without_a_final_status_is_an_unknown_outcome_and_nothing_is_repeated(
    step: Step, raised: type[Exception] | tuple[type[Exception], ...], effects: int
) -> None:
    with Service(step, answer(201), answer(201)) as service:
        with pytest.raises(raised) as lost:
            send(service)
        service.wait_for(closed=1)
        assert not isinstance(lost.value, NotDispatchedError)
        assert service.connections == 1
        assert service.effects_of(EFFECT) == len(service.effects) == effects


@pytest.mark.spec("REP-04", "REP-05")
def test_a_reset_at_once_is_either_a_failed_connect_or_a_lost_answer_and_never_repeated() -> None:
    with Service(reset(reads=False), answer(201)) as service:
        # Which of them depends on whether the reset overtakes the end of the client's own connect.
        with pytest.raises((OSError, AnswerUnreadableError, NotDispatchedError)):
            send(service)
        service.wait_for(closed=1)
        assert (service.connections, service.effects) == (1, ())


@pytest.mark.spec("REP-05", "REP-06")
@pytest.mark.parametrize(
    ("step", "expected"),
    [
        # Cut short after a declared success status: it was said, but not to its end.
        (half_answer(), NOTHING_201),
        (cut_body(), NOTHING_201),
        (cut_body(promised=7), NOTHING_201),
        (raw(b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\n"), NOTHING_201),
        (chunked(b"2\r\n{}\r\n"), NOTHING_201),
        (chunked(b"2\r\n{}\r\n0\r\n"), NOTHING_201),
        (chunked(b"2\r\n{}x\r\n0\r\n\r\n"), NOTHING_201),
        (chunked(b"-2\r\n{}\r\n0\r\n\r\n"), NOTHING_201),
        # Framing that two readers understand in two ways.
        (raw(response(201, {"content-length": "2, 2"})), NOTHING_201),
        (raw(response(201, {"content-length": "+2"})), NOTHING_201),
        (raw(response(201, {"transfer-encoding": "chunked"}, b"0\r\n\r\n")), NOTHING_201),
        (raw(response(201, {"transfer-encoding": "gzip", "content-length": ""})), NOTHING_201),
        (raw(response(201, {"x": "1\r\n folded"})), NOTHING_201),
        (raw(response(201, {"bad name": "x"})), NOTHING_201),
        (raw(b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\ncontent-length: 1\r\n\r\n"), NOTHING_201),
        # Over a bound.
        (answer(201, body=b"a" * 1001), NOTHING_201),
        (raw(response(201, {"content-length": ""}, b"a" * 1001)), NOTHING_201),
        (chunked(b"3e9\r\n" + b"a" * 1001 + b"\r\n0\r\n\r\n"), NOTHING_201),
        (chunked(b"1\r\na\r\n" * 600, b"0\r\n\r\n"), NOTHING_201),
        (raw(LONG_HEADER), NOTHING_201),
        (raw(response(422, {"content-length": "9"})), Answer(proof=Proof.NOTHING, source="http:422:cut")),
        (raw(b"HTTP/1.1 101 Switching\r\n\r\n"), Answer(proof=Proof.NOTHING, source="http:101:cut")),
        # Whole.
        (interim(), SUCCEEDED),
        (interim(status=100), SUCCEEDED),
        (interim(times=8), SUCCEEDED),
        (chunked(b"2;x=y\r\n{}\r\n0\r\ntrailer: 1\r\n\r\n"), SUCCEEDED),
        (raw(response(201, {"content-length": ""})), SUCCEEDED),
        (raw(b"HTTP/1.0 201\r\n\r\n"), SUCCEEDED),
        (answer(201, body=b"a" * 1000), SUCCEEDED),
        (slow_drip(gap_s=0.0), SUCCEEDED),
        (delay(0.01, answer(201)), SUCCEEDED),
        (interim(final=422), Answer(proof=Proof.NO_EFFECT, source="http:422")),
        (interim(final=302), Answer(proof=Proof.NOTHING, source="http:302")),
    ],
    ids=lambda value: value.name if isinstance(value, Step) else value.source,
)
def test_a_status_counts_only_where_the_whole_answer_arrived(step: Step, expected: Answer) -> None:
    with Service(step, answer(201), answer(201)) as service:
        assert send(service) == expected
        service.wait_for(closed=1)
        assert service.connections == len(service.effects) == 1


@pytest.mark.spec("REP-05")
def test_a_reset_in_the_middle_of_a_body_proves_nothing() -> None:
    first, second = cut_body(), reset()

    def act(exchange: Exchange) -> None:
        first.act(exchange)
        second.act(exchange)

    with Service(Step(name="cut, reset", act=act)) as service:
        # A reset may overtake what was sent before it; then not even the status arrived.
        with suppress(OSError):
            assert send(service) == NOTHING_201
        service.wait_for(closed=1)
        assert service.connections == 1


@pytest.mark.spec("REP-05")
@pytest.mark.parametrize("effect", [False, True])
def test_silence_until_the_deadline_is_unknown(effect: bool) -> None:
    with Service(hang(effect=effect), answer(201)) as service:
        with pytest.raises(TimeoutError):
            send(service, remaining_ms=200)
        service.wait_for(closed=1)
        assert (service.connections, len(service.effects)) == (1, effect)


@pytest.mark.spec("REP-05")
def test_a_connection_that_is_accepted_but_never_read_ends_at_the_deadline_as_unknown() -> None:
    with Service(hang(reads=False)) as service:
        with pytest.raises(TimeoutError):
            send(service, remaining_ms=200)
        assert service.connections == 1


@pytest.mark.spec("REP-05")
def test_the_deadline_covers_the_whole_exchange_however_slowly_it_drips() -> None:
    # Each byte comes well within the deadline; all of them would take more than a minute.
    with Service(slow_drip(response(201, body=b"{}" * 400), gap_s=0.1)) as service:
        with pytest.raises(TimeoutError):
            send(service, remaining_ms=350)
        assert service.connections == 1


@pytest.mark.spec("REP-05")
def test_a_body_that_drips_past_the_deadline_is_a_status_without_its_end() -> None:
    head = response(201, {"content-length": "500"}, b"")

    first, second = raw(head), hang()

    def act(exchange: Exchange) -> None:
        first.act(exchange)
        second.act(exchange)

    with Service(Step(name="head, then silence", act=act)) as service:
        assert send(service, remaining_ms=300) == NOTHING_201
        assert len(service.effects) == 1


@pytest.mark.spec("ADM-04")
def test_an_answer_that_waits_is_waited_for_once() -> None:
    with Service(held("slow", answer(201)), answer(201)) as service:
        service.gate("slow").set()
        assert send(service) == SUCCEEDED
        assert service.connections == 1


@pytest.mark.spec("REP-05")
def test_a_service_that_repeats_by_itself_is_visible_as_two_effects_of_one_request() -> None:
    with Service(duplicate()) as service:
        assert send(service) == SUCCEEDED
        assert (len(service.requests), service.effects_of(EFFECT)) == (1, 2)


@pytest.mark.spec("SEC-01")
@pytest.mark.parametrize(
    "step",
    [accept_then_close(), garbage(CANARY.encode()), reset(), close_before_read(), hang()],
    ids=lambda step: step.name,
)
def test_no_exception_shows_the_credential_even_with_the_locals_of_its_frames(step: Step) -> None:
    with Service(step) as service:
        with pytest.raises(Exception) as lost:  # noqa: PT011 - whichever it is, it must be clean
            send(service, remaining_ms=300)
        shown = traceback.TracebackException.from_exception(lost.value, capture_locals=True)
        # The frames of this test name the canary themselves; only those of the issuer count.
        frames = [(frame.locals or {}) for frame in shown.stack if "operations" in frame.filename]
        assert frames
        assert not any(CANARY in value for known in frames for value in known.values())
        assert CANARY not in str(lost.value) + repr(lost.value)
