"""Development case D04: authority is for exactly what was prepared; one cent or one byte more is something else."""

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from issuer import Issuer
from issuer.wire import Answer
from tests.support.approving import opened_office
from tests.support.cases import (
    PATIENCE_S,
    all_at,
    books,
    command,
    effect_ids,
    length,
    refusals,
    small_tree,
    state_of,
    trail,
)
from tests.support.issuers import permitted, refund, standard_issuer
from tests.support.service import Service, accept_then_close, answer

CAFE_COMPOSED, CAFE_DECOMPOSED = "caf\u00e9", "cafe\u0301"
PREPARED = {"order": "o-1", "amount": 300}
OTHERS: dict[str, tuple[Mapping[str, Any], str]] = {
    "a cent more": ({"payload": PREPARED | {"amount": 301}}, "amount"),
    "a cent less": ({"payload": PREPARED | {"amount": 299}}, "amount"),
    "another order": ({"payload": PREPARED | {"order": "o-2"}}, "order"),
    "a byte more": ({"payload": PREPARED | {"order": "o-1 "}}, "order"),
    "another case": ({"payload": PREPARED | {"order": "O-1"}}, "order"),
    "an order that looks alike": ({"payload": PREPARED | {"order": "\u043e-1"}}, "order"),
    "both, told in alphabetical order": ({"payload": {"order": "o-2", "amount": 301}}, "amount"),
    "as bytes": ({"payload": b'{"amount": 301, "order": "o-1"}'}, "amount"),
    "another actor": ({"actor": "agent-8"}, "actor"),
    "nobody": ({"actor": ""}, "actor"),
    "an unknown task": ({"task": "t9"}, "task"),
    "another task with the right payload": ({"task": "t1.b", "payload": PREPARED}, "task"),
    "another actor with the right payload": ({"actor": "agent-8", "payload": PREPARED}, "actor"),
}
"""What is restated, and the field that must be named."""
UNREADABLE: dict[str, tuple[Mapping[str, Any], str | None]] = {
    "a float": ({"payload": PREPARED | {"amount": 300.0}}, None),
    "a text": ({"payload": PREPARED | {"amount": "300"}}, "amount"),
    "a truth": ({"payload": PREPARED | {"amount": True}}, "amount"),
    "a field more": ({"payload": PREPARED | {"note": "x"}}, None),
    "a field less": ({"payload": {"amount": 300}}, "order"),
    "two amounts": ({"payload": b'{"order":"o-1","amount":300,"amount":301}'}, None),
    "an approval in the payload": ({"payload": PREPARED | {"approved": True, "approved_by": "boss"}}, None),
}


class Shop:
    """One service and one open issuer for all tables."""

    def __init__(self, service: Service, issuer: Issuer) -> None:
        self.service = service
        self.issuer = issuer
        self.trees = 0

    def tree(self) -> tuple[str, str]:
        """Return a task tree that no other test spends from."""
        self.trees += 1
        return small_tree(self.issuer, f"tree-{self.trees}")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with Service() as service:
        made = standard_issuer(tmp_path_factory.mktemp("d04") / "f0", port=service.port)
        with made.open() as issuer:
            yield Shop(service, issuer)


STATES: dict[str, dict[str, Any]] = {
    "permitted": {"amount": 300},
    "prepared": {"amount": 300, "hold": True},
    "awaiting_approval": {"amount": 900},
}
"""How an effect comes to stand in each state from which it may still be sent one day."""


def restated(row: Mapping[str, Any], amount: int) -> dict[str, Any]:
    """Return a row of the tables for an effect of this amount: what differs from 300 differs from it by as much."""
    said = dict(row)
    payload = said.get("payload")
    if isinstance(payload, bytes):
        said["payload"] = payload.replace(b"30", str(amount)[:-1].encode())
    elif isinstance(payload, dict) and type(payload.get("amount")) in {int, float}:
        said["payload"] = payload | {"amount": payload["amount"] + amount - 300}
    return said


def assert_refused(no: Answer, *, code: str, field: str | None, effect: str, exit_code: int) -> None:
    assert (no.code, no.more.get("field"), no.effect) == (code, field, effect)
    assert (int(no.exit), no.retryable, no.next) == (exit_code, False, "stop")


@pytest.mark.spec("EFF-08", "EFF-03", "REP-02", "ADM-01", "SUR-05")
@pytest.mark.parametrize("state", STATES)
def test_no_effect_can_be_sent_as_something_else_and_the_original_stays_usable(
    state: str, shop: Shop
) -> None:
    levels = shop.tree()
    amount = STATES[state]["amount"]
    before = shop.service.connections
    asked = refund(shop.issuer, task=levels[0], request_key="k-1", **STATES[state])
    effect = asked.effect or ""
    assert asked.state == state
    start = length(shop.issuer)
    for row, field in OTHERS.values():
        no = shop.issuer.commit(effect, **restated(row, amount))
        assert_refused(no, code="mismatch", field=field, effect=effect, exit_code=7)
    for row, unreadable in UNREADABLE.values():
        no = shop.issuer.commit(effect, **restated(row, amount))
        assert_refused(no, code="malformed", field=unreadable, effect=effect, exit_code=2)
    # One span for each no, in the effect's own story, and nothing else happened.
    codes = [code for code, _field, _level in refusals(shop.issuer, start)]
    assert codes == ["mismatch"] * len(OTHERS) + ["malformed"] * len(UNREADABLE)
    assert length(shop.issuer) == start + len(codes)
    assert [field for code, field, _ in refusals(shop.issuer, start) if code == "mismatch"] == [
        field for _row, field in OTHERS.values()
    ]
    assert state_of(shop.issuer, effect) == state
    assert books(shop.issuer, *levels) == all_at(*levels)
    assert shop.service.connections == before
    exact: dict[str, Any] = {"payload": PREPARED | {"amount": amount}, "task": levels[0], "actor": "agent-7"}
    if state == "prepared":
        assert permitted(shop.issuer.request_held(effect)) == effect
    if state == "awaiting_approval":
        assert shop.issuer.commit(effect, **exact).code == "not_permitted_yet"
        assert (state_of(shop.issuer, effect), shop.service.connections) == (state, before)
        return
    shop.service.then(answer(201))
    assert shop.issuer.commit(effect, **exact).code == "succeeded"
    assert shop.service.requests[-1].body == b'{"amount":300,"order":"o-1"}'
    assert books(shop.issuer, *levels) == all_at(*levels, settled=300)
    assert shop.service.connections == before + 1


@pytest.mark.spec("EFF-03", "EFF-08")
def test_two_spellings_that_look_alike_are_two_orders(shop: Shop) -> None:
    levels = shop.tree()
    before = shop.service.connections
    effect = permitted(refund(shop.issuer, order=CAFE_COMPOSED, task=levels[0]))
    no = shop.issuer.commit(effect, payload={"order": CAFE_DECOMPOSED, "amount": 300})
    assert_refused(no, code="mismatch", field="order", effect=effect, exit_code=7)
    assert shop.service.connections == before


@pytest.mark.spec("EFF-05", "EFF-08")
def test_only_the_content_is_compared_and_not_how_it_was_written(shop: Shop) -> None:
    levels = shop.tree()
    shop.service.then(answer(201))
    effect = permitted(refund(shop.issuer, task=levels[0]))
    same = b' {"amount" :300,\n "\\u006frder": "o\\u002d1"} '
    assert shop.issuer.commit(effect, payload=same).code == "succeeded"


@pytest.mark.spec("REP-01", "REP-02", "EFF-08")
@pytest.mark.parametrize("step", [answer(201), answer(409), answer(422, effect=False), accept_then_close()])
def test_an_effect_that_is_over_is_not_reported_to_somebody_who_means_another(step: Any, shop: Shop) -> None:
    levels = shop.tree()
    shop.service.then(step)
    effect = permitted(refund(shop.issuer, task=levels[0]))
    known = shop.issuer.commit(effect)
    before, state = shop.service.connections, state_of(shop.issuer, effect)
    for row, field in OTHERS.values():
        no = shop.issuer.commit(effect, **row)
        assert_refused(no, code="mismatch", field=field, effect=effect, exit_code=7)
    again = shop.issuer.commit(effect, payload=PREPARED, task=levels[0], actor="agent-7")
    assert again.code == known.code
    assert (state_of(shop.issuer, effect), shop.service.connections) == (state, before)


ASKED_AGAIN: dict[str, tuple[Mapping[str, Any], str]] = {
    "a cent more": ({"amount": 1}, "amount"),
    "a cent less": ({"amount": -1}, "amount"),
    "another order": ({"order": "o-2"}, "order"),
    "both": ({"order": "o-2", "amount": 1}, "amount"),
}
"""What is asked under a key that stands for `o-1` already (cents as a difference), and the field to be named."""
AMOUNTS = dict.fromkeys([*STATES, "succeeded", "failed", "no_effect", "unknown"], 300)
AMOUNTS |= {"awaiting_approval": 900, "denied": 200_000}


def reach(shop: Shop, task: str, state: str) -> str:
    """Return an effect under the key `k-1` that stands in this state."""
    steps = {
        "succeeded": answer(201),
        "failed": answer(409),
        "no_effect": answer(422, effect=False),
        "unknown": accept_then_close(),
    }
    if state not in steps:
        options = STATES.get(state, {"amount": AMOUNTS[state]})
        return refund(shop.issuer, task=task, request_key="k-1", **options).effect or ""
    shop.service.then(steps[state])
    effect = permitted(refund(shop.issuer, task=task, request_key="k-1"))
    shop.issuer.commit(effect)
    return effect


@pytest.mark.spec("EFF-11", "REP-02")
@pytest.mark.parametrize("state", AMOUNTS)
def test_a_request_key_stands_for_one_content_whatever_became_of_it(state: str, shop: Shop) -> None:
    levels = small_tree(shop.issuer, f"key-{state}", root=1_000_000, task=1_000_000)
    effect = reach(shop, levels[0], state)
    assert state_of(shop.issuer, effect) == state
    before, start, effects = shop.service.connections, length(shop.issuer), effect_ids(shop.issuer)
    said = books(shop.issuer, *levels)
    for row, field in ASKED_AGAIN.values():
        amount = AMOUNTS[state] + row.get("amount", 0)
        order = row.get("order", "o-1")
        no = refund(shop.issuer, task=levels[0], request_key="k-1", order=order, amount=amount)
        assert (no.code, no.more.get("field"), no.effect) == ("request_key_reused", field, None)
        assert (int(no.exit), no.retryable, no.next) == (7, False, "stop")
    ask, same = shop.issuer.request, PREPARED | {"amount": AMOUNTS[state]}
    for no, field in (
        (ask("refund", same, task=levels[0], actor="agent-8", request_key="k-1"), "actor"),
        (ask("publish", {"name": "x"}, task=levels[0], actor="agent-7", request_key="k-1"), "operation"),
        (refund(shop.issuer, task=levels[0], request_key="k-1", amount=777, hold=True), "amount"),
    ):
        assert (no.code, no.more.get("field")) == ("request_key_reused", field)
    assert {code for code, _field, _level in refusals(shop.issuer, start)} == {"request_key_reused"}
    assert length(shop.issuer) == start + len(ASKED_AGAIN) + 3
    assert (effect_ids(shop.issuer), shop.service.connections) == (effects, before)
    assert (state_of(shop.issuer, effect), books(shop.issuer, *levels)) == (state, said)


@pytest.mark.spec("EFF-11")
def test_a_key_counts_within_its_task(shop: Shop) -> None:
    one, two = shop.tree()[0], shop.tree()[0]
    first = permitted(refund(shop.issuer, task=one, request_key="k-1"))
    assert permitted(refund(shop.issuer, task=two, request_key="k-1", amount=301)) != first
    assert permitted(refund(shop.issuer, task=one, request_key="k-1")) == first


@pytest.mark.spec("EFF-11", "POL-05")
@pytest.mark.parametrize("amounts", [(300,) * 8, (300, 301) * 4])
def test_one_key_used_at_once_makes_one_effect(amounts: tuple[int, ...], shop: Shop) -> None:
    task = shop.tree()[0]
    barrier = threading.Barrier(len(amounts))
    answers: list[tuple[int, Answer]] = []

    def ask(amount: int) -> None:
        barrier.wait(PATIENCE_S)
        answers.append((amount, refund(shop.issuer, task=task, amount=amount, request_key="k-1")))

    start = length(shop.issuer)
    threads = [threading.Thread(target=ask, args=(amount,)) for amount in amounts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(answers) == len(amounts)
    made = {said.effect for _amount, said in answers if said.code == "permitted"}
    kept = {amount for amount, said in answers if said.code == "permitted"}
    assert (len(made), len(kept)) == (1, 1)
    noes = {said.code for amount, said in answers if amount not in kept}
    assert noes == ({"request_key_reused"} if len(set(amounts)) > 1 else set())
    prepared = [entry for entry in trail(shop.issuer, start) if entry.state_to == "prepared"]
    assert len(prepared) == 1


@pytest.mark.spec("EFF-08", "SUR-01", "SUR-02")
def test_the_command_line_refuses_a_restated_cent_with_exit_code_7(tmp_path: Path) -> None:
    with Service() as service:
        made = standard_issuer(tmp_path / "f0", port=service.port)
        with made.open() as issuer:
            effect = permitted(refund(issuer))
        ran = command(made, "commit", effect, "--payload", "-", stdin=b'{"order": "o-1", "amount": 301}')
        assert (ran.exit, ran.answer["code"], ran.answer["field"]) == (7, "mismatch", "amount")
        assert (ran.answer["effect"], ran.answer["state"]) == (effect, "permitted")
        assert service.connections == 0


@pytest.mark.spec("APP-01", "APP-04", "EFF-03", "EFF-08", "PER-01")
def test_a_yes_to_one_effect_is_worth_nothing_for_another_and_stays_usable_for_it(tmp_path: Path) -> None:
    with opened_office(tmp_path / "f0") as office:
        levels = small_tree(office.issuer, "d04", task=3_000)
        exact: dict[str, Any] = {"payload": PREPARED | {"amount": 900}, "task": levels[0], "actor": "agent-7"}
        approved = refund(office.issuer, amount=900, task=levels[0]).effect or ""
        signature = office.signature("bob", office.statement(approved))
        assert office.issuer.approve(approved, signature).code == "permitted"
        start = length(office.issuer)
        for row, field in OTHERS.values():
            no = office.issuer.commit(approved, **restated(row, 900))
            assert_refused(no, code="mismatch", field=field, effect=approved, exit_code=7)
        assert {code for code, _field, _level in refusals(office.issuer, start)} == {"mismatch"}
        # The yes quoted for one cent more, for another order, and for the very same once more.
        for order, amount in (("o-1", 901), ("o-2", 900), ("o-1", 900)):
            other = refund(office.issuer, order=order, amount=amount, task=levels[0]).effect or ""
            no = office.issuer.approve(other, signature)
            assert (no.code, no.more["field"]) == ("signature_refused", "bad_signature")
            assert office.issuer.commit(other).code == "not_permitted_yet"
        assert office.service.connections == 0
        office.service.then(answer(201))
        assert office.issuer.commit(approved, **exact).code == "succeeded"
        assert office.service.requests[-1].body == b'{"amount":900,"order":"o-1"}'
        assert office.service.connections == 1
