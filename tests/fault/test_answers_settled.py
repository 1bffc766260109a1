"""What a service says about an effect, from its answer to the books: done, taken, in part, failed, and what it cost."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from issuer import Issuer
from ledger.model import EffectId, Evidence
from tests.support.cases import Books, books
from tests.support.issuers import STANDARD_POLICY, permitted, refund, standard_issuer
from tests.support.service import Service, Step, answer, cut_body

DECLARED = 'succeeded = [201], failed = [409], no_effect = [400, 402, 422], key_kept = "24h" }'
CHARGED = """succeeded = [201], failed = [409], no_effect = [400, 422], accepted = [202], partial = [207], \
key_kept = "24h", charged = { "USD.cent" = "/cost" }, reference = "/ref" }
inspect = { url = "http://127.0.0.1:@PORT@/refunds?key={effect_id}", found = "/items/0/key", \
equals = "{effect_id}", absent = "never", charged = { "USD.cent" = "/cost" }, reference = "/items/0/id" }"""


@dataclass(kw_only=True)
class Till:
    """One issuer and its service."""

    issuer: Issuer
    service: Service

    def sent(self, step: Step) -> tuple[str, str]:
        """Send one refund of 300 and return its effect and where it stands."""
        self.service.then(step)
        effect = permitted(refund(self.issuer, amount=300))
        return effect, str(self.issuer.commit(effect).state)

    def evidence(self, effect: str) -> Evidence:
        return self.issuer._house.ledger.read(lambda view: view.evidence(EffectId(effect)))[-1]


@pytest.fixture
def till(tmp_path: Path) -> Iterator[Till]:
    with Service() as service:
        changes = {DECLARED: CHARGED.replace("@PORT@", str(service.port))}
        made = standard_issuer(tmp_path / "f0", port=service.port, changes=changes)
        with made.open() as issuer:
            yield Till(issuer=issuer, service=service)


def said(cost: object = 120) -> bytes:
    return f'{{"ref":"r-1","cost":{cost}}}'.encode()


def line(**changes: int) -> Mapping[str, Books]:
    return {"t1": Books(**{"reserved": 0, "settled": 0, **changes})}


ECHOED = {"amount = { int = [1, 1_000_000], public = true } }": "amount = { int = [1, 1_000_000] } }"}


@pytest.mark.spec("SEC-01", "EFF-09", "EFF-10")
@pytest.mark.parametrize(
    ("reference", "kept"),
    [("ref-777", ""), ("777", ""), ("r-1", "r-1")],
    ids=["inside", "all of it", "its own"],
)
def test_a_reference_that_repeats_what_is_not_public_is_not_kept(
    tmp_path: Path, reference: str, kept: str
) -> None:
    with Service(answer(201, body=f'{{"ref":"{reference}","cost":100}}'.encode())) as service:
        changes = {DECLARED: CHARGED.replace("@PORT@", str(service.port)), **ECHOED}
        changes['each = { "USD.cent" = 500 }'] = 'each = { "USD.cent" = 1000 }'
        made = standard_issuer(
            tmp_path / "f0",
            port=service.port,
            changes=changes,
            policy=STANDARD_POLICY.replace("<= 500", "<= 1000"),
        )
        with made.open() as issuer:
            till = Till(issuer=issuer, service=service)
            effect = permitted(refund(issuer, amount=777))
            assert issuer.commit(effect).code == "succeeded"
            assert till.evidence(effect).reference == kept


ROWS: list[tuple[str, Step, str, Mapping[str, Books]]] = [
    ("done", answer(201, body=said()), "succeeded", line(settled=120)),
    ("done for nothing", answer(201, body=said(0)), "succeeded", line(settled=0)),
    ("done for more", answer(201, body=said(450)), "succeeded", line(settled=300, overrun=150)),
    ("failed and charged", answer(409, body=said(30)), "failed", line(settled=30)),
    ("no effect", answer(422, body=said()), "no_effect", line()),
    ("taken", answer(202, body=said()), "unknown", line(reserved=300)),
    ("in part", answer(207, body=said()), "unknown", line(reserved=300)),
    ("done, cost unsaid", answer(201), "unknown", line(reserved=300)),
    ("done, cost as text", answer(201, body=said('"120"')), "unknown", line(reserved=300)),
    ("failed, cost unsaid", answer(409), "unknown", line(reserved=300)),
    ("cut", cut_body(201, body=said()), "unknown", line(reserved=300)),
    ("undeclared", answer(200, body=said()), "unknown", line(reserved=300)),
]


@pytest.mark.spec("REP-04", "REP-05", "REP-06", "BUD-03", "BUD-04")
@pytest.mark.parametrize(
    ("step", "state", "expected"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_an_answer_is_settled_as_what_it_proves_and_no_more(
    till: Till, step: Step, state: str, expected: Mapping[str, Books]
) -> None:
    effect, found = till.sent(step)
    assert found == state
    assert books(till.issuer, "t1") == expected
    assert till.issuer.commit(effect).state == state
    assert len(till.service.writes) == 1


@pytest.mark.spec("EFF-09", "REP-06", "REC-05")
@pytest.mark.parametrize("status", [202, 207, 201])
def test_the_reference_of_the_service_is_kept_as_received(till: Till, status: int) -> None:
    effect, _state = till.sent(answer(status, body=said()))
    evidence = till.evidence(effect)
    assert (evidence.source, evidence.reference) == (f"http:{status}", "r-1")
    shown: Any = till.issuer.show(effect).more["record"]
    assert shown["evidence"][-1]["reference"] == "r-1"


@pytest.mark.spec("REC-01", "REP-06", "BUD-03")
def test_what_was_taken_is_found_done_later_at_the_cost_that_is_said_then(till: Till) -> None:
    effect, state = till.sent(answer(202, body=said()))
    assert state == "unknown"
    body = f'{{"cost":250,"items":[{{"key":"{effect}","id":"r-9"}}]}}'.encode()
    till.service.then_on_lookup(answer(200, body=body, effect=False))
    found = till.issuer.reconcile(effect)
    assert (found.code, found.state) == ("succeeded", "succeeded")
    assert books(till.issuer, "t1") == line(settled=250)
    assert till.evidence(effect).reference == "r-9"
    assert len(till.service.writes) == 1


@pytest.mark.spec("REC-02", "REP-06")
def test_what_is_found_without_its_cost_stays_unknown(till: Till) -> None:
    effect, _state = till.sent(answer(202, body=said()))
    body = f'{{"items":[{{"key":"{effect}","id":"r-9"}}]}}'.encode()
    till.service.then_on_lookup(answer(200, body=body, effect=False))
    assert till.issuer.reconcile(effect).state == "unknown"
    assert books(till.issuer, "t1") == line(reserved=300)


@pytest.mark.spec("EFF-02", "EFF-03", "POL-02")
def test_an_address_with_the_effect_id_is_each_effects_own_and_changes_no_content_key(tmp_path: Path) -> None:
    with Service(answer(201), answer(201)) as service:
        changes = {
            '/refunds", once = "Idempotency-Key" }': '/refunds/{effect_id}" }',
            ', key_kept = "24h"': "",
        }
        made = standard_issuer(tmp_path / "f0", port=service.port, changes=changes)
        with made.open() as issuer:
            effects = [permitted(refund(issuer)) for _ in range(2)]
            found = issuer._house.ledger.read(lambda view: [view.effect(EffectId(one)) for one in effects])
            assert [issuer.commit(one).code for one in effects] == ["succeeded", "succeeded"]
        assert [received.path for received in service.writes] == [f"/refunds/{one}" for one in effects]
    keys = {one.content_key for one in found if one is not None}
    assert len(keys) == 1


@pytest.mark.spec("EFF-09", "POL-06")
def test_an_effect_shows_by_whose_word_it_was_decided(till: Till) -> None:
    effect, _state = till.sent(answer(201, body=said()))
    record: Any = till.issuer.show(effect).more["record"]
    assert record["authority"]["policies"] == ["small-refunds"]
    assert {len(record["authority"][name]) for name in ("bundle", "revision")} == {64}
