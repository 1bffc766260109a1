"""A sink that fails is on record: one span when it begins, one when it works again, whoever meets it how often."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from audit import AuditUnavailable, SinkUnavailable
from audit.sink_thread import PENDING_MAX
from issuer import Issuer
from issuer.clock import now_ms
from issuer.sink_words import FAILURE_EVERY_MS
from ledger.model import InstantMs
from ledger.transitions import TransitionName
from tests.support.canaries import TOKEN as CANARY
from tests.support.issuers import Made, permitted, refund, standard_issuer
from tests.support.ledgers import Clock, without_guards
from tests.support.revised import spans_of
from tests.support.service import Service, answer
from tests.support.sinks import FaultySink, hangs, raises

FAILED, RECOVERED = str(TransitionName.SINK_FAILED), str(TransitionName.SINK_RECOVERED)
LIMIT_S = 20.0
"""Longer than a few deadlines, and far from for ever."""


@pytest.fixture(name="service")
def _service() -> Iterator[Service]:
    with Service(*[answer(201)] * 8) as service:
        yield service


@pytest.fixture(name="made")
def _made(tmp_path: Path, service: Service) -> Made:
    return standard_issuer(tmp_path / "f0", port=service.port)


def words(issuer: Issuer) -> list[tuple[str, str, int]]:
    """Return what is on record of sinks: the kind, the reason and the count, in order."""
    return [
        (str(said["permit.transition"]), str(said.get("permit.reason", "")), int(said["permit.count"]))
        for said in spans_of(issuer)
        if said["permit.transition"] in {FAILED, RECOVERED}
    ]


def away(sink: Path) -> Path:
    return sink.rename(sink.with_name("away"))


@pytest.mark.spec("AUD-02")
def test_each_failure_of_a_sink_yields_one_row_and_not_one_a_request(made: Made) -> None:
    with made.open() as issuer:
        assert issuer.commit(permitted(refund(issuer))).code == "succeeded"
        held = away(made.sink)
        for number in range(5):
            assert refund(issuer, order=f"o-{number}").code == "audit_unavailable"
        assert words(issuer) == [(FAILED, "missing", 1)]
        held.rename(made.sink)
        assert issuer.commit(permitted(refund(issuer, order="o-9"))).code == "succeeded"
        assert words(issuer) == [(FAILED, "missing", 1), (RECOVERED, "", 4)]
        (failed,) = [said for said in spans_of(issuer) if said["permit.transition"] == FAILED]
        assert (failed["permit.sink.name"], failed["permit.sink.upto"]) == ("local", 11)
    assert Issuer.ledger_check(made.profile).code == "found"


@pytest.mark.spec("AUD-02")
def test_every_process_of_many_says_the_same_once_and_the_first_that_finds_it_well_says_that(
    made: Made,
) -> None:
    held = away(made.sink)
    for number in range(3):
        with made.open() as issuer:
            assert refund(issuer, order=f"o-{number}").code == "audit_unavailable"
    with made.open() as one, made.open() as other:
        assert refund(one, order="o-7").code == refund(other, order="o-8").code == "audit_unavailable"
        assert words(one) == [(FAILED, "missing", 1)]
        held.rename(made.sink)
    for number in range(2):
        with made.open() as issuer:
            assert issuer.commit(permitted(refund(issuer, order=f"o-1{number}"))).code == "succeeded"
    with made.open() as issuer:
        assert [kind for kind, _reason, _count in words(issuer)] == [FAILED, RECOVERED]


@pytest.mark.spec("AUD-02")
def test_a_sink_that_comes_and_goes_is_one_line_a_minute(made: Made) -> None:
    clock = Clock(InstantMs(now_ms()))
    with made.open(clock=clock) as issuer:
        for number in range(4):
            held = away(made.sink)
            assert refund(issuer, order=f"a-{number}").code == "audit_unavailable"
            held.rename(made.sink)
            assert issuer.commit(permitted(refund(issuer, order=f"b-{number}", amount=5))).code == "succeeded"
        assert [kind for kind, _reason, _count in words(issuer)] == [FAILED, RECOVERED]
        clock.now += FAILURE_EVERY_MS
        away(made.sink)
        assert refund(issuer, order="c").code == "audit_unavailable"
        assert [kind for kind, _reason, _count in words(issuer)] == [FAILED, RECOVERED, FAILED]


@pytest.mark.spec("AUD-02")
def test_a_best_effort_sink_that_fails_is_on_record_with_a_later_command(made: Made) -> None:
    far = FaultySink("far")
    far.required = False  # type: ignore[misc]
    with made.open(further_sinks=[far]) as issuer:
        met = threading.Event()

        def met_and_raised(sink: FaultySink, honest: object) -> None:
            del sink, honest
            met.set()
            raise RuntimeError(CANARY)

        far.fail(met_and_raised)
        assert issuer.commit(permitted(refund(issuer))).code == "succeeded"
        assert met.wait(LIMIT_S)
        for _look in range(200):
            issuer.sink_list()
            if words(issuer):
                break
        assert words(issuer)[0][:2] == (FAILED, "failed")
        assert CANARY not in str(spans_of(issuer))


@pytest.mark.spec("AUD-07", "SEC-01")
def test_a_reason_of_a_third_party_is_a_word_or_is_not_repeated(made: Made) -> None:
    far = FaultySink("far")
    far.fail(raises(SinkUnavailable("far", "card 4111 1111", "x")))
    with made.open(further_sinks=[far]) as issuer:
        assert refund(issuer).code == "audit_unavailable"
        assert words(issuer) == [(FAILED, "failed", 1)]


@pytest.mark.spec("AUD-02", "AUD-03", "LED-04")
def test_where_it_cannot_be_recorded_the_no_stands_and_it_is_recorded_later(made: Made) -> None:
    held = away(made.sink)
    with made.open() as issuer:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            code = refund(issuer, order="o-child").code
            os.write(write, code.encode())
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(read, 64).decode() in {"audit_unavailable", "ledger_unavailable", "fault"}
        assert words(issuer) == []
        mark = made.ledger.parent / "halted"
        mark.write_text('{"word":"tree"}')
        assert refund(issuer, order="o-1").code in {"audit_unavailable", "ledger_unavailable"}
        assert words(issuer) == []
        mark.unlink()
        assert refund(issuer, order="o-2").code == "audit_unavailable"
        assert words(issuer) == [(FAILED, "missing", 2)]
        held.rename(made.sink)


@pytest.mark.spec("AUD-02", "ADM-05")
def test_while_a_required_sink_hangs_reading_revoking_and_freezing_go_on(made: Made) -> None:
    far = FaultySink("far")
    with made.open(further_sinks=[far]) as issuer:
        effect = permitted(refund(issuer))
        far.fail(hangs)
        assert issuer.commit(effect).code == "audit_unavailable"
        for said in (issuer.show(effect), issuer.list(), issuer.task_list(), issuer.sink_list()):
            assert said.code in {"found", "permitted"}
        assert issuer.revoke("effect", effect).code == "revoked_now"
        assert issuer.freeze("all").code == "suspended_now"
        assert issuer.commit(effect).code in {"revoked", "suspended"}
        rows = {str(row["sink"]): row for row in issuer.sink_list().more["sinks"]}  # type: ignore[attr-defined]
        assert (rows["local"]["state"], rows["far"]["state"]) == ("ready", "failing")
        assert rows["far"]["reason"] in {"busy", "deadline"}
        far.recover()


@pytest.mark.spec("AUD-02")
def test_ten_thousand_callers_of_a_hanging_sink_are_refused_at_once_and_none_of_them_is_kept(
    made: Made,
) -> None:
    far = FaultySink("far")
    with made.open(further_sinks=[far]) as issuer:
        delivery = issuer._house.delivery
        far.fail(hangs)
        assert refund(issuer).code == "audit_unavailable"
        (worker,) = [one for one in delivery._required if one.sink is far]
        for _caller in range(10_000):
            with pytest.raises(AuditUnavailable, match="has not come back"):
                worker.ask(1)
        assert len(worker._pending) <= 1 < PENDING_MAX
        far.recover()


@pytest.mark.spec("AUD-02")
def test_a_sink_that_is_far_behind_is_brought_up_to_date_before_any_permit_is_spent(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    with made.open() as issuer:
        effect = permitted(refund(issuer))
        held = away(made.sink)
        for number in range(12):
            assert refund(issuer, order=f"o-{number}").code == "audit_unavailable"
    held.rename(made.sink)
    monkeypatch.setattr("audit.sink_thread.LAG_SPANS_MAX", 3)
    with made.open() as issuer:
        refused = issuer.commit(effect)
        assert (refused.code, refused.more["reason"]) == ("audit_unavailable", "behind")
        assert issuer.show(effect).state == "permitted"
        tries = (issuer.commit(effect).code for _try in range(200))
        assert next(code for code in tries if code != "audit_unavailable") == "succeeded"
        assert [reason for _kind, reason, _count in words(issuer)] == ["missing", ""]


@pytest.mark.spec("AUD-03")
def test_a_forked_copy_waits_for_no_lock_of_a_thread_that_it_does_not_have(made: Made) -> None:
    with made.open() as issuer:
        (worker,) = issuer._house.delivery._required
        held, done = threading.Event(), threading.Event()

        def hold() -> None:
            with worker._changed:
                held.set()
                done.wait(LIMIT_S)

        thread = threading.Thread(target=hold)
        thread.start()
        assert held.wait(LIMIT_S)
        child = os.fork()
        if child == 0:
            signal.alarm(10)
            refund(issuer)
            os._exit(0)
        _pid, status = os.waitpid(child, 0)
        done.set()
        thread.join()
        assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.spec("AUD-02", "LED-04")
def test_an_issuer_whose_sink_hangs_at_the_start_opens_to_look_and_to_revoke(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    with made.open() as issuer:
        effect = permitted(refund(issuer))
    let_go = threading.Event()

    class Hanging:
        name, kind, required = "local", "jsonl", True

        def probe(self, *_given: object) -> None:
            let_go.wait(LIMIT_S)

        def close(self) -> None:
            """Nothing is held."""

    monkeypatch.setattr("issuer.checking.OPENING_SECONDS", 0.2)
    monkeypatch.setattr("issuer.checking.looked_sink", lambda *_given, **_options: Hanging())
    with made.open(reading=True) as issuer:
        assert issuer.show(effect).state == "permitted"
    with made.open() as issuer:
        assert issuer.revoke("effect", effect).code == "revoked_now"
    let_go.set()


@pytest.mark.spec("AUD-02", "REP-04")
@pytest.mark.parametrize(
    "body", ['{"attributes":[]}', '{"attributes":"x"}', '{"attributes":null}', "[1]", "no json"]
)
def test_a_word_on_record_that_somebody_edited_costs_no_answer(made: Made, body: str) -> None:
    with made.open() as issuer:
        held = away(made.sink)
        assert refund(issuer, order="o-0").code == "audit_unavailable"
        held.rename(made.sink)
        assert issuer.commit(permitted(refund(issuer))).code == "succeeded"
    edited = f"UPDATE spans SET body = CAST('{body}' AS BLOB) WHERE name = '{FAILED}'"  # noqa: S608 - the attack
    without_guards(made.ledger, edited)
    with made.open() as issuer:
        assert issuer.commit(permitted(refund(issuer, order="o-2"))).code == "succeeded"
