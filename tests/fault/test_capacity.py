"""The ledger is finite: what is refused at a bound, in which order, and what is never refused (LED-02)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from issuer import Issuer
from issuer.wire import Answer
from ledger.errors import LedgerUnavailable
from ledger.model import EffectId
from ledger.refusals import Refusal, RefusalCode
from ledger.sqlite import SqliteLedger
from tests.support.bounded import bounded_issuer, denied, holdings, with_bounds
from tests.support.cases import Clock, all_at, books, length, refusals, state_of
from tests.support.issuers import Made, open_task, permitted, refund
from tests.support.ledgers import commit_steps, made_book, probe, refused_step
from tests.support.recorders import plain_recorder
from tests.support.service import Service, accept_then_close, answer

DAY_MS = 86_400_000


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as opened:
        yield opened


@pytest.fixture
def made(tmp_path: Path, service: Service) -> Made:
    return bounded_issuer(tmp_path / "f0", port=service.port, effects=10, unended_per_task=3)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def issuer(made: Made, clock: Clock) -> Iterator[Issuer]:
    with made.open(clock=clock) as opened:
        for number in range(6):
            open_task(opened, f"x{number}", parent="org", budget={"USD.cent": "inherit"})
        yield opened


def full(said: Answer, field: str) -> bool:
    """Say whether an answer says that the ledger is full, by that bound, and invites no repeat of a send."""
    return (said.code, said.more.get("field"), int(said.exit), said.next) == (
        "ledger_full",
        field,
        6,
        "tell_a_person",
    )


# ------------------------------------------------------------------------------------------ one task


@pytest.mark.spec("LED-02", "SUR-05")
def test_one_task_cannot_fill_the_house(issuer: Issuer) -> None:
    held = [refund(issuer, order=f"o-{n}", amount=1, task="x0").effect for n in range(3)]
    said = refund(issuer, order="o-3", amount=1, task="x0")
    assert (said.code, said.more, said.effect, int(said.exit)) == ("task_full", {"level": "x0"}, None, 6)
    assert refusals(issuer)[-1] == ("task_full", None, "x0")
    # Another task goes on, and so does this one once something of it is over.
    assert permitted(refund(issuer, order="o-4", amount=1, task="x1"))
    assert all(held)
    assert holdings(issuer).effects == 4


@pytest.mark.spec("LED-02")
def test_what_is_over_or_expired_no_longer_counts_and_what_is_unknown_does(
    issuer: Issuer, service: Service, clock: Clock
) -> None:
    first, second, _third = (permitted(refund(issuer, order=f"o-{n}", amount=1, task="x0")) for n in range(3))
    service.then(answer(201), accept_then_close())
    assert issuer.commit(first).code == "succeeded"
    assert permitted(refund(issuer, order="o-3", amount=1, task="x0"))
    assert issuer.commit(second).code == "outcome_unknown"
    assert refund(issuer, order="o-4", amount=1, task="x0").code == "task_full"
    clock.ahead_ms = 11 * 60_000  # the two permits are over; the unknown effect stays
    for order in ("o-5", "o-6"):
        assert permitted(refund(issuer, order=order, amount=1, task="x0"))
    assert refund(issuer, order="o-7", amount=1, task="x0").code == "task_full"


@pytest.mark.spec("LED-02", "EFF-06")
def test_a_held_effect_is_among_those_that_count_and_can_still_be_taken_further(issuer: Issuer) -> None:
    held = [refund(issuer, order=f"o-{n}", amount=1, task="x0", hold=True) for n in range(3)]
    assert refund(issuer, order="o-3", amount=1, task="x0", hold=True).code == "task_full"
    assert permitted(issuer.request_held(held[0].effect or ""))
    tight = with_bounds(issuer, unended_per_task=2)
    assert tight.request_held(held[1].effect or "").code == "task_full"


@pytest.mark.spec("LED-02", "SUR-02", "BUD-02")
def test_a_full_task_is_told_before_its_money_and_after_its_slots(issuer: Issuer) -> None:
    open_task(issuer, "narrow", parent="org", budget={"USD.cent": 2}, classes={"refund": 3})
    for number in range(2):
        assert permitted(refund(issuer, order=f"o-{number}", amount=1, task="narrow"))
    tight = with_bounds(issuer, unended_per_task=2)
    assert refund(tight, order="o-2", amount=500, task="narrow").code == "task_full"
    assert refund(issuer, order="o-2", amount=500, task="narrow").code == "budget_exceeded"
    assert permitted(refund(issuer, order="o-2", amount=1, task="narrow"))
    assert refund(tight, order="o-3", amount=1, task="narrow").code == "slots_exhausted"


# --------------------------------------------------------------------------------------- the ledger


@pytest.mark.spec("LED-02", "ADM-01", "SUR-05")
def test_at_the_bound_of_effects_new_ones_are_refused_and_what_lives_goes_on(
    issuer: Issuer, service: Service, clock: Clock
) -> None:
    effects = [
        permitted(refund(issuer, order=f"o-{n}", amount=1, task=f"x{n // 3}", request_key=f"k-{n}"))
        for n in range(10)
    ]
    before = length(issuer)
    assert full(refund(issuer, order="o-10", amount=1, task="x4"), "effects")
    assert full(refund(issuer, order="o-10", amount=1, task="x4", hold=True), "effects")
    assert refusals(issuer, before) == [("ledger_full", "effects", None)] * 2
    # Asking again, committing, reporting and looking are all as ever.
    assert refund(issuer, order="o-0", amount=1, task="x0", request_key="k-0").effect == effects[0]
    service.then(answer(201), accept_then_close())
    assert issuer.commit(effects[0]).code == "succeeded"
    assert issuer.commit(effects[1]).code == "outcome_unknown"
    assert books(issuer, "org") == all_at("org", reserved=1, settled=1)
    assert holdings(issuer).effects == 10
    # Within its window nothing goes; after that a request finds room by itself.
    assert full(refund(issuer, order="o-10", amount=1, task="x4"), "effects")
    clock.ahead_ms = 3 * DAY_MS
    open_task(issuer, "later", budget={"USD.cent": 10}, subject="u-ana", actors=["agent-7"], hours=24 * 9)
    assert permitted(refund(issuer, order="o-11", amount=1, task="later"))
    assert state_of(issuer, effects[1]) == "unknown"
    assert holdings(issuer).effects == 2


@pytest.mark.spec("LED-02", "EFF-11")
def test_however_much_an_agent_is_denied_the_house_stays_open_to_others(issuer: Issuer) -> None:
    first = denied(issuer, 0)
    for number in range(1, 40):
        denied(issuer, number)
    held = holdings(issuer)
    assert held.effects <= 10
    assert held.effects + held.tombstones == 40
    assert permitted(refund(issuer, order="o-1", amount=1, task="x0"))
    # What was denied first is told still, and its key stands for it.
    shown = issuer.show(first.effect or "")
    assert (shown.code, shown.state) == ("found", "denied")
    assert refund(issuer, order="bad-0", amount=1, request_key="bad-t1-0").code == "collected"


def at(issuer: Issuer, bound: str, percent: int) -> Issuer:
    """Return the issuer as if that much of a bound were used."""
    used = {"record_bytes": holdings(issuer).record_bytes, "span_bytes": holdings(issuer).span_bytes}[bound]
    return with_bounds(issuer, **{bound: used * 100 // percent})


@pytest.mark.spec("LED-02", "ADM-01", "BUD-04")
@pytest.mark.parametrize("bound", ["record_bytes", "span_bytes"])
def test_near_a_bound_of_bytes_new_effects_go_first_then_admissions_and_outcomes_never(
    bound: str, issuer: Issuer, service: Service
) -> None:
    sent, lost, waits = (
        permitted(issuer.request("publish", {"name": f"v{n}"}, task="x0", actor="agent-7")) for n in range(3)
    )
    claims = {one: str(issuer.admit(one).more["claim"]) for one in (sent, lost)}
    # 89 of 100: nothing is refused yet.
    assert permitted(refund(at(issuer, bound, 89), order="o-1", amount=1, task="x1"))
    # 91: no new effect, and what lives is still admitted.
    assert full(refund(at(issuer, bound, 91), order="o-2", amount=1, task="x1"), bound)
    held = refund(issuer, order="o-3", amount=1, task="x1", hold=True).effect or ""
    assert full(at(issuer, bound, 91).request_held(held), bound)
    service.then(answer(201))
    paid = permitted(refund(issuer, order="o-4", amount=1, task="x1"))
    assert at(issuer, bound, 91).commit(paid).code == "succeeded"
    # 96: no admission either; nothing of the permit is spent.
    said = at(issuer, bound, 96).admit(waits)
    assert full(said, bound)
    assert state_of(issuer, waits) == "permitted"
    # 150: outcomes are recorded all the same.
    over = at(issuer, bound, 150)
    assert over.report(sent, claims[sent], succeeded=True).code == "succeeded"
    assert over.report(lost, claims[lost], succeeded=False).code == "outcome_unknown"
    assert [state_of(issuer, one) for one in (sent, lost)] == ["succeeded", "unknown"]
    assert issuer.admit(waits).code == "admitted"


@pytest.mark.spec("LED-02", "PER-03")
def test_far_above_a_bound_permits_still_expire_and_lost_senders_are_still_unknown(
    issuer: Issuer, clock: Clock
) -> None:
    waits = permitted(refund(issuer, order="o-1", amount=1, task="x0"))
    sent = permitted(issuer.request("publish", {"name": "v1"}, task="x0", actor="agent-7"))
    assert issuer.admit(sent).code == "admitted"
    clock.ahead_ms = 11 * 60_000
    over = at(issuer, "span_bytes", 300)
    over.show(waits)
    assert [state_of(issuer, one) for one in (waits, sent)] == ["expired", "unknown"]


# ------------------------------------------------------------------------------------------- noise


@pytest.mark.spec("LED-02", "AUD-01")
def test_a_nearly_full_trail_takes_one_refusal_and_then_what_happens(tmp_path: Path) -> None:
    book = made_book(tmp_path / "book")
    ledger = SqliteLedger(
        book.path, recorder=plain_recorder, keys=book.keys, clock=book.clock, noise_bytes_max=2_000
    )
    no = refused_step(Refusal(code=RefusalCode.DENIED), "led")
    while ledger.read(lambda view: view.holdings()).span_bytes < 2_000:
        commit_steps(ledger, no)
    for _ in range(3):
        with pytest.raises(LedgerUnavailable) as caught:
            commit_steps(ledger, no)
        assert caught.value.reason == "trail_full"
    probe(ledger)
    commit_steps(ledger, no)
    with pytest.raises(LedgerUnavailable):
        commit_steps(ledger, no)
    probe(ledger)
    ledger.close()


@pytest.mark.spec("LED-02", "AUD-01", "SUR-05", "EFF-08")
def test_noise_is_answered_as_a_full_ledger_and_never_as_a_reason_to_repeat_a_send(
    made: Made, service: Service
) -> None:
    with made.open() as issuer:
        sent = permitted(issuer.request("publish", {"name": "v1"}, task="t1.b", actor="agent-7"))
        claim = str(issuer.admit(sent).more["claim"])
        issuer._house.ledger.beneath.noise_bytes_max = 1  # as if the trail were that full
        nobody = "eff_" + "0" * 32
        assert issuer.show(nobody).code == "not_found"
        before = length(issuer)
        for said in (issuer.show(nobody), issuer.commit(nobody), refund(issuer, task="no-such-task")):
            assert (said.code, said.more, said.effect) == ("ledger_full", {"reason": "trail_full"}, None)
        # About what may have been sent the known state is told, as ever.
        again = issuer.admit(sent)
        assert (again.code, again.retryable, int(again.exit)) == ("outcome_unknown", False, 5)
        assert length(issuer) == before
        assert issuer.report(sent, claim, succeeded=True).code == "succeeded"
        effect = issuer._house.ledger.read(lambda view: view.effect(EffectId(sent)))
        assert effect is not None
        assert effect.state == "succeeded"
