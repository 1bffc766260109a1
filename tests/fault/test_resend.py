"""Sending again under the same key: only as reconciliation, only as proven, only once at a time (REC-03)."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from audit import SinkUnavailable
from issuer.flow.reconcile import ATTEMPT_MS
from issuer.operations.contract import Answer, NotDispatchedError, Order
from issuer.profile import ProfileRefused
from issuer.wire import Answer as Said
from tests.support.cases import all_at, books, state_of
from tests.support.charging import ChargingAdapter, with_adapter
from tests.support.issuers import HOUR_MS, permitted, refund
from tests.support.reconciling import KEPT, RESEND, Inquiry, attempt_of, opened_inquiry
from tests.support.revised import activated
from tests.support.service import accept_then_close, answer, held
from tests.support.sinks import FaultySink, raises

DAY_MS = 24 * HOUR_MS


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Inquiry]:
    with opened_inquiry(tmp_path / "f0", resend=True) as inquiry:
        yield inquiry


def resent(inquiry: Inquiry, effect: str) -> Said:
    return inquiry.issuer.reconcile(effect, resend=True)


def no(said: Said) -> tuple[str, object]:
    return said.code, said.more.get("field")


@pytest.mark.spec("REC-03", "REC-06", "REP-06", "BUD-03")
def test_a_resend_is_the_same_request_byte_for_byte_and_its_answer_settles_once(
    shop: Inquiry,
) -> None:
    effect = shop.unknown()
    shop.service.then(answer(201, effect=False))
    done = resent(shop, effect)
    assert (done.code, attempt_of(done)[0]) == ("succeeded", "succeeded")
    assert books(shop.issuer) == all_at(settled=300)
    first, second = shop.service.requests
    assert (first.method, first.path, first.body, first.headers) == (
        second.method,
        second.path,
        second.body,
        second.headers,
    )
    assert (second.key, shop.service.effects_of(effect)) == (effect, 1)
    assert shop.names(effect)[-2:] == ["effect.inspecting", "effect.succeeded"]
    assert shop.spans(effect)[-1]["permit.evidence.class"] == "service"
    assert resent(shop, effect).code == shop.issuer.commit(effect).code == "succeeded"
    assert len(shop.service.requests) == 2
    assert shop.checked()


@pytest.mark.spec("REC-02", "REC-03", "REC-05")
@pytest.mark.parametrize(("status", "seen"), [(409, "failed"), (422, "no_effect"), (402, "no_effect")])
def test_a_refused_resend_says_nothing_about_the_first_request(shop: Inquiry, status: int, seen: str) -> None:
    """The refusal may be a gateway's, or about the second request alone; the first one did happen here."""
    effect = shop.unknown()
    shop.service.then(answer(status, effect=False))
    said = resent(shop, effect)
    assert (said.code, attempt_of(said)) == ("outcome_unknown", (seen, "resend_refused"))
    assert books(shop.issuer) == all_at(reserved=300)
    assert shop.service.effects_of(effect) == 1
    assert shop.evidence(effect)[-1][:2] == ("service", "unknown")


@pytest.mark.spec("REC-03", "OPR-01")
def test_without_the_owners_word_that_it_is_safe_nothing_is_sent_again(tmp_path: Path) -> None:
    with opened_inquiry(tmp_path / "f0", resend=False) as inquiry:
        effect = inquiry.unknown()
        assert no(resent(inquiry, effect)) == ("unsupported", "proves.resend")
        assert (len(inquiry.service.requests), state_of(inquiry.issuer, effect)) == (1, "unknown")


@pytest.mark.spec("REC-03")
def test_what_a_host_sends_is_never_sent_by_the_issuer(shop: Inquiry) -> None:
    effect = permitted(shop.issuer.request("publish", {"name": "v1"}, task="t1", actor="agent-7"))
    shop.issuer.admit(effect)
    shop.pass_ms(300_000)
    assert no(resent(shop, effect)) == ("unsupported", "proves.resend")
    assert shop.service.connections == 0


@pytest.mark.spec("REC-03")
@pytest.mark.parametrize(("early_ms", "is_sent"), [(ATTEMPT_MS + 2_000, True), (ATTEMPT_MS - 1, False)])
def test_the_whole_exchange_lies_within_what_the_service_remembers_of_the_first_attempt(
    shop: Inquiry, early_ms: int, is_sent: bool
) -> None:
    effect = shop.unknown()
    # A look in between does not move the horizon: it counts from the first attempt.
    shop.pass_ms(HOUR_MS)
    shop.look(effect, answer(500, effect=False))
    shop.pass_ms(DAY_MS - HOUR_MS - early_ms)
    if is_sent:
        shop.service.then(answer(201, effect=False))
        assert resent(shop, effect).code == "succeeded"
        return
    assert no(resent(shop, effect)) == ("outcome_unknown", "key_forgotten")
    assert len(shop.service.requests) == 1
    assert shop.issuer.list(["unknown"]).more["effects"][0]["inspection"] == ["inspect"]  # type: ignore[index]


@pytest.mark.spec("REC-03", "REP-05", "BUD-04")
def test_a_lost_answer_leaves_it_unknown_and_another_waits_for_its_deadline(shop: Inquiry) -> None:
    effect = shop.unknown()
    shop.service.then(accept_then_close())
    lost = resent(shop, effect)
    assert (lost.code, attempt_of(lost)) == ("outcome_unknown", ("unclear", "resend_answer_lost"))
    assert books(shop.issuer) == all_at(reserved=300)
    assert no(resent(shop, effect)) == ("outcome_unknown", "resend_in_flight")
    assert len(shop.service.requests) == 2
    shop.pass_ms(ATTEMPT_MS)
    shop.service.then(answer(201, effect=False))
    assert resent(shop, effect).code == "succeeded"
    assert books(shop.issuer) == all_at(settled=300)


@pytest.mark.spec("REC-03")
def test_two_at_once_send_once(shop: Inquiry) -> None:
    effect = shop.unknown()
    shop.service.then(held("both", answer(201, effect=False)))
    answers: list[tuple[str, object]] = []
    threads = [threading.Thread(target=lambda: answers.append(no(resent(shop, effect)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    shop.service.wait_for(requests=2)
    while len(answers) < 3:
        threads[0].join(0.01)
    shop.service.gate("both").set()
    for thread in threads:
        thread.join()
    assert sorted(map(str, answers)) == sorted(
        map(str, [("succeeded", None), *[("outcome_unknown", "resend_in_flight")] * 3])
    )
    assert len(shop.service.requests) == 2


@pytest.mark.spec("REC-03", "AUD-02", "ADM-03")
@pytest.mark.parametrize("where", ["probe", "ship"])
def test_no_byte_leaves_before_every_required_sink_has_the_attempt(tmp_path: Path, where: str) -> None:
    sink = FaultySink()
    with opened_inquiry(tmp_path / "f0", resend=True, further_sinks=(sink,)) as inquiry:
        effect = inquiry.unknown()
        fault = raises(SinkUnavailable("faulty", "no_space", "No room."))
        sink.fail(fault, probe=where == "probe", ship=where == "ship")
        said = resent(inquiry, effect)
        assert (said.code, said.more["reason"], said.retryable) == ("outcome_unknown", "no_space", False)
        assert inquiry.service.connections == 1
        assert books(inquiry.issuer) == all_at(reserved=300)


@pytest.mark.spec("REC-03", "BUD-05")
def test_a_task_that_is_closed_or_frozen_since_sends_nothing_again(shop: Inquiry) -> None:
    """The first request may never have arrived, and then the second one would do it."""
    effect = shop.unknown()
    shop.issuer.task_freeze("org")
    assert no(resent(shop, effect)) == ("outcome_unknown", "task_frozen")
    shop.issuer.task_thaw("org")
    shop.issuer.task_close("t1")
    said = resent(shop, effect)
    assert (said.code, said.retryable) == ("task_closed", False)
    assert len(shop.service.requests) == 1


@pytest.mark.spec("REC-03", "OPR-02")
def test_a_contract_that_changed_since_sends_nothing_again(shop: Inquiry) -> None:
    effect = shop.unknown()
    text = shop.made.profile.read_text(encoding="utf-8")
    assert "[201], failed = [409]" in text
    shop.made.profile.write_text(text.replace("failed = [409]", "failed = [409, 410]"), encoding="utf-8")
    activated(shop.made.profile, clock=shop.clock)
    assert no(resent(shop, effect)) == ("unsupported", "contract")
    assert len(shop.service.requests) == 1


class _Unsent(ChargingAdapter):
    """Loses its first answer, and can prove of every later order that it was not sent."""

    def dispatch(self, order: Order) -> Answer:
        self.orders.append(order)
        raise NotDispatchedError("connect_failed") if len(self.orders) > 1 else ConnectionResetError


@pytest.mark.spec("REC-03", "REP-04", "BUD-04")
def test_a_resend_that_sent_nothing_says_nothing_about_the_first(shop: Inquiry) -> None:
    adapter = _Unsent()
    issuer = with_adapter(shop.issuer, adapter)
    effect = permitted(refund(issuer))
    assert issuer.commit(effect).code == "outcome_unknown"
    said = issuer.reconcile(effect, resend=True)
    assert (said.code, attempt_of(said)) == ("outcome_unknown", ("unclear", "resend_not_sent"))
    assert books(shop.issuer) == all_at(reserved=300)
    first, second = adapter.orders
    assert (first.effect_id, first.request, first.preparation) == (
        second.effect_id,
        second.request,
        second.preparation,
    )


@pytest.mark.spec("REC-03", "OPR-01")
@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({KEPT: RESEND.replace('key_kept = "24h", ', "")}, "resend"),
        (
            {KEPT: RESEND.replace('because = "The service stores the first answer under the key."', "")},
            "because",
        ),
    ],
)
def test_an_owner_cannot_declare_it_without_a_remembered_key_or_without_a_reason(
    tmp_path: Path, changes: dict[str, str], word: str
) -> None:
    with pytest.raises(ProfileRefused, match=word), opened_inquiry(tmp_path / "f0", changes=changes):
        pass


@pytest.mark.spec("REC-03", "EFF-09")
def test_the_list_tells_until_when(shop: Inquiry) -> None:
    effect = shop.unknown()
    row = shop.listed()
    assert row["effect"] == effect
    inspect, until = row["inspection"]
    assert (inspect, until.startswith("resend until 20")) == ("inspect", True)
