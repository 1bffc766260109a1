"""A request key stands for one effect, whatever became of it, and a second content under it is refused by field."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from issuer import Issuer
from issuer.flow.prepare import Ask, differing_field, request_fingerprint
from issuer.wire import Answer
from ledger.canonical import parse_strict
from ledger.model import EffectId
from tests.support.issuers import Made, open_task, permitted, refund, standard_issuer
from tests.support.service import Service, accept_then_close, answer
from tests.support.sinks import FaultySink
from tests.support.witness import witness

SECRET_FIELD = {
    "payload = { order": "payload = { card = { string = 60, secret = true }, order",
    "[operation.publish]": (
        '[operation.other]\nclass = "refund"\nresource = { type = "Order", id = "{order}" }\n'
        "payload = { card = { string = 60, secret = true }, order = { string = 40, public = true }, "
        "amount = { int = [1, 1_000_000], public = true } }\n"
        'cost = { "USD.cent" = "{amount}" }\nhost = { deadline = "5m" }\n[operation.publish]'
    ),
    "u-ana = {": 'u-bob = { groups = ["finance"] }\nu-ana = {',
}
FIRST: Mapping[str, Any] = {
    "operation": "refund",
    "payload": {"order": "o-1", "amount": 300, "card": "4000-1"},
    "task": "t1",
    "actor": "agent-7",
    "request_key": "k-1",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return standard_issuer(tmp_path_factory.mktemp("keys") / "f0", port=9, changes=SECRET_FIELD)


def asked(issuer: Issuer, **changed: Any) -> Answer:
    """Ask as the first time, with some of it changed; a payload member is given as itself."""
    ask = {**FIRST, **{name: value for name, value in changed.items() if name in {*FIRST, "subject"}}}
    ask["payload"] = {**FIRST["payload"], **{n: v for n, v in changed.items() if n in FIRST["payload"]}}
    return issuer.request(ask.pop("operation"), ask.pop("payload"), **ask)


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"amount": 301}, "amount"),
        ({"order": "o-2"}, "order"),
        ({"card": "4000-2"}, "card"),
        ({"operation": "other"}, "operation"),
        ({"actor": "agent-8"}, "actor"),
        ({"subject": "u-bob"}, "subject"),
        ({"amount": 301, "order": "o-2"}, "amount"),
    ],
)
@pytest.mark.spec("EFF-11", "REP-02", "SEC-01")
def test_another_content_under_the_same_key_names_the_field_and_makes_nothing(
    made: Made, changed: dict[str, object], field: str
) -> None:
    with made.open() as issuer:
        first = asked(issuer)
        assert first.code == "permitted"
    before = witness(made)
    with made.open() as issuer:
        other = asked(issuer, **changed)
    assert (other.code, other.more["field"]) == ("request_key_reused", field)
    assert other.effect is None
    assert not any(str(value) in other.as_json()["say"] for value in changed.values())  # type: ignore[operator]
    after = witness(made)
    assert after.rows == before.rows
    assert after.files == before.files
    assert [name for name, _body in after.spans[len(before.spans) :]] == ["refused"]


@pytest.mark.spec("EFF-11", "REP-01")
def test_the_same_key_and_content_is_the_same_effect_in_every_process_and_costs_nothing(made: Made) -> None:
    with made.open() as issuer:
        first = asked(issuer)
    before = witness(made)
    with made.open() as issuer:
        assert asked(issuer).as_json() == first.as_json()
        assert asked(issuer, subject="u-ana").as_json() == first.as_json()
    after = witness(made)
    assert (after.rows, after.files, len(after.spans)) == (before.rows, before.files, len(before.spans))


@pytest.mark.spec("EFF-11", "REP-03")
def test_a_key_is_scoped_to_its_task_and_without_one_every_request_is_new(made: Made) -> None:
    with made.open() as issuer:
        here, there = asked(issuer), asked(issuer, task="t1.b")
        assert permitted(here) != permitted(there)
        alone = {permitted(asked(issuer, request_key=None, task="org")) for _request in range(3)}
        assert len(alone) == 3


@pytest.mark.parametrize(
    ("step", "code"),
    [(answer(201), "succeeded"), (answer(402), "no_effect"), (accept_then_close(), "outcome_unknown")],
)
@pytest.mark.spec("EFF-11", "REP-01", "REP-05")
def test_the_key_finds_its_effect_after_the_outcome_and_nothing_is_sent_again(
    tmp_path: Path, step: Any, code: str
) -> None:
    with Service(step) as service:
        made = standard_issuer(tmp_path / "f0", port=service.port)
        with made.open() as issuer:
            effect = permitted(refund(issuer, request_key="k-1"))
            assert issuer.commit(effect).code == code
            again = refund(issuer, request_key="k-1")
            assert (again.effect, again.code) == (effect, code)
            assert issuer.commit(effect).code == code
            assert refund(issuer, request_key="k-1", amount=1).code == "request_key_reused"
        assert service.counts()["requests"] == 1


@pytest.mark.spec("EFF-11", "POL-01")
def test_a_no_stays_under_its_key_as_well(tmp_path: Path) -> None:
    made = standard_issuer(tmp_path / "f0", port=9, policy='@id("no") forbid (principal, action, resource);')
    with made.open() as issuer:
        denied = refund(issuer, request_key="k-1")
        assert (denied.code, refund(issuer, request_key="k-1").effect) == ("denied", denied.effect)
        assert refund(issuer, request_key="k-1").code == "denied"
    assert len(witness(made).rows["effects"]) == 1


@pytest.mark.spec("EFF-11", "ADM-04")
@pytest.mark.parametrize(("amount", "code"), [(300, "permitted"), (301, "request_key_reused")])
def test_a_key_that_another_process_takes_meanwhile_makes_no_second_effect(
    tmp_path: Path, amount: int, code: str
) -> None:
    """The other request runs while this one is past its first look and before its transaction: at the probe."""
    made = standard_issuer(tmp_path / "f0", port=9)
    sink = FaultySink()
    other: list[Answer] = []
    with made.open() as second, made.open(further_sinks=[sink]) as first:

        def meanwhile(*_anything: object) -> None:
            if not other:
                other.append(refund(second, request_key="k-1"))

        sink.fail(meanwhile, ship=False)
        late = refund(first, amount=amount, request_key="k-1")
    assert other[0].code == "permitted"
    assert late.code == code
    assert late.effect == (other[0].effect if code == "permitted" else None)
    rows = witness(made).rows
    assert (len(rows["effects"]), len(rows["permits"])) == (1, 1)
    counters = {str(row[0]).split("|")[0]: row[1] for row in rows["counters"]}
    assert counters == {"task": 1, "root": 1, "slot": 1}


@pytest.mark.spec("EFF-11", "SEC-01", "EFF-10")
def test_a_fingerprint_tells_fields_apart_and_no_value_to_anybody_without_the_key(
    made: Made, tmp_path: Path
) -> None:
    ask = Ask(operation="refund", task="t1", actor="agent-7", subject="u-ana", payload={}, request_key="k")
    values: dict[str, str | int | bool] = {"order": "o-1", "amount": 300, "card": "4000-1"}
    elsewhere = standard_issuer(tmp_path / "f0", port=9)
    with made.open() as issuer, elsewhere.open() as stranger:
        mine = request_fingerprint(issuer._house, ask, values)
        foreign = request_fingerprint(stranger._house, ask, values)
        same = request_fingerprint(issuer._house, ask, dict(reversed(values.items())))
        swapped = request_fingerprint(issuer._house, ask, {**values, "order": "4000-1", "card": "o-1"})
    assert mine == same
    assert differing_field(mine, same) is None
    assert differing_field(mine, swapped) == "payload.card"
    one, two = parse_strict(mine), parse_strict(foreign)
    assert isinstance(one, dict)
    assert isinstance(two, dict)
    assert one.keys() == two.keys()
    assert not set(one.values()) & set(two.values()), "another key must give other hashes"
    assert len(set(one.values())) == len(one), "equal values of two fields must not look alike"


@pytest.mark.spec("EFF-10", "LED-03")
def test_a_request_that_makes_no_effect_leaves_nothing_in_the_protected_store(made: Made) -> None:
    kept = set((made.folder / "protected").iterdir())
    with made.open() as issuer:
        assert asked(issuer, request_key=None, amount=1_001).code == "budget_exceeded"
        assert asked(issuer, request_key=None, task="t1.a", actor="agent-8").code == "forbidden"
    assert set((made.folder / "protected").iterdir()) == kept


@pytest.mark.spec("EFF-11")
def test_equal_values_of_two_fields_do_not_look_alike(made: Made) -> None:
    ask = Ask(operation="x", task="t1", actor="x", subject="x", payload={}, request_key="k")
    with made.open() as issuer:
        told = parse_strict(
            request_fingerprint(issuer._house, ask, {"a": "x", "b": "x", "c": "1", "d": 1, "e": True})
        )
    assert isinstance(told, dict)
    assert len(set(told.values())) == len(told) == 8


@pytest.mark.spec("EFF-11", "EFF-06")
def test_a_key_of_a_held_effect_finds_it_and_does_not_take_it_further(tmp_path: Path) -> None:
    made = standard_issuer(tmp_path / "f0", port=9)
    with made.open() as issuer:
        open_task(issuer, "t2", parent="org", budget={"USD.cent": 500})
        held = refund(issuer, task="t2", request_key="k-1", hold=True)
        again = refund(issuer, task="t2", request_key="k-1")
        assert (held.code, again.code, again.effect) == ("prepared", "prepared", held.effect)
        assert permitted(issuer.request_held(str(held.effect))) == held.effect
        permit = issuer._house.ledger.read(lambda view: view.permit(EffectId(str(held.effect))))
        assert permit is not None
