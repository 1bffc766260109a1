"""Evidence that speaks against the record is kept, flagged, and resolves nothing to the host's advantage (REC-05)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from issuer.operations.contract import Inspection, Proof, Seen
from tests.support.cases import Books, all_at, books, state_of
from tests.support.charging import ChargingAdapter, with_adapter
from tests.support.issuers import permitted, refund
from tests.support.reconciling import (
    AFTER_3S,
    NOT_FOUND,
    Inquiry,
    Says,
    attempt_of,
    opened_inquiry,
    shows,
    with_inspector,
)

ABSENT = Inspection(seen=Seen.ABSENT, source="memory")
FOUND = Inspection(seen=Seen.FOUND, source="memory")
DIFFERS = Inspection(seen=Seen.DIFFERS, source="memory")


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Inquiry]:
    with opened_inquiry(tmp_path / "f0", absent=AFTER_3S) as inquiry:
        yield inquiry


def published(shop: Inquiry) -> str:
    """Let a host claim that it published, at the maximum of one cent."""
    effect = permitted(shop.issuer.request("publish", {"name": "v1"}, task="t1", actor="agent-7"))
    claim = str(shop.issuer.admit(effect).more["claim"])
    assert shop.issuer.report(effect, claim, succeeded=True).code == "succeeded"
    return effect


@pytest.mark.spec("REC-05", "REC-07", "REC-01")
def test_a_hosts_success_that_an_inspection_conclusively_denies_is_flagged_and_stays(shop: Inquiry) -> None:
    effect = published(shop)
    shop.pass_ms(300_000 + 3_000)
    said = shop.look(effect, NOT_FOUND)
    attempt: Any = said.more["attempt"]
    assert (said.code, attempt["seen"], attempt["contradicts"]) == ("succeeded", "absent", True)
    assert books(shop.issuer) == all_at(settled=1)
    assert shop.evidence(effect) == [
        ("host_claim", "succeeded", None),
        ("inspection", "no_effect", "succeeded"),
    ]
    last = shop.spans(effect)[-1]
    assert (last["name"], last["permit.contradicts"]) == ("effect.inspected", "succeeded")
    assert shop.checked()


@pytest.mark.spec("REC-05", "REC-07")
def test_a_hosts_success_that_an_inspection_confirms_is_asked_about_no_more(shop: Inquiry) -> None:
    effect = published(shop)
    assert shop.look(effect, NOT_FOUND).code == "succeeded"  # before its deadline: it proves nothing
    assert shop.evidence(effect)[-1] == ("inspection", "unknown", None)
    assert shop.look(effect, shows(effect)).code == "succeeded"
    assert shop.evidence(effect)[-1] == ("inspection", "succeeded", None)
    looked = len(shop.service.lookups)
    assert shop.look(effect).code == "succeeded"
    assert len(shop.service.lookups) == looked
    assert books(shop.issuer) == all_at(settled=1)


class Shop:
    """An operation whose adapter proves a part, or that it took it; and an inspector that says what a test wants."""

    def __init__(self, inquiry: Inquiry) -> None:
        self.inquiry = inquiry
        self.adapter = ChargingAdapter()
        self.issuer = with_adapter(inquiry.issuer, self.adapter)

    def sent(self, proof: Proof, charged: dict[str, int] | None = None) -> str:
        self.adapter.proof, self.adapter.charged = proof, charged
        effect = permitted(refund(self.issuer))
        assert self.issuer.commit(effect).code == "outcome_unknown"
        self.inquiry.past_deadline(10_000)
        return effect

    def look(self, effect: str, says: Inspection) -> Any:
        return with_inspector(self.issuer, Says(says)).reconcile(effect)


@pytest.mark.spec("REC-05", "REP-06", "BUD-04")
@pytest.mark.parametrize(
    ("proof", "charged", "word"),
    [
        (Proof.PARTIAL, {"USD.cent": 120}, "charge"),
        (Proof.PARTIAL, {"EUR.cent": 1}, "charge"),
        (Proof.PARTIAL, None, "service_answer"),
        (Proof.ACCEPTED, None, "service_answer"),
    ],
)
def test_an_absence_after_a_part_or_a_charge_releases_nothing(
    shop: Inquiry, proof: Proof, charged: dict[str, int] | None, word: str
) -> None:
    ours = Shop(shop)
    effect = ours.sent(proof, charged)
    for _ in range(2):
        said = ours.look(effect, ABSENT)
        assert (said.code, attempt_of(said)) == ("outcome_unknown", ("absent", "absence_conclusive"))
        assert said.more["attempt"]["contradicts"] is True
        assert "contradicts" in said.say
    assert (state_of(shop.issuer, effect), books(shop.issuer)) == ("unknown", all_at(reserved=300))
    assert shop.evidence(effect)[-1] == ("inspection", "no_effect", word)
    assert shop.spans(effect)[-1]["permit.contradicts"] == word
    assert shop.checked()


@pytest.mark.spec("REC-05", "BUD-03", "REP-06")
@pytest.mark.parametrize(
    ("proven", "measured", "settled", "overrun"),
    [
        ({"USD.cent": 120}, {"USD.cent": 50}, 120, 0),
        ({"USD.cent": 120}, {"USD.cent": 200}, 200, 0),
        ({"USD.cent": 120}, None, 300, 0),
        ({"USD.cent": 340}, {"USD.cent": 10}, 300, 40),
    ],
)
def test_what_was_proven_to_be_charged_is_the_least_that_a_later_settlement_charges(
    shop: Inquiry, proven: dict[str, int], measured: dict[str, int] | None, settled: int, overrun: int
) -> None:
    ours = Shop(shop)
    effect = ours.sent(Proof.PARTIAL, proven)
    record: Any = shop.issuer.show(effect).more["record"]
    assert record["evidence"][-1]["charged"] == proven
    assert books(shop.issuer) == all_at(reserved=300)
    said = ours.look(effect, Inspection(seen=Seen.FOUND, source="memory", charged=measured))
    assert said.code == "succeeded"
    assert books(shop.issuer) == dict.fromkeys(
        ("t1", "org"), Books(reserved=0, settled=settled, overrun=overrun)
    )
    assert shop.checked()


@pytest.mark.spec("REC-05", "REC-07", "ADM-07")
def test_a_host_that_reports_success_after_it_was_found_absent_changes_nothing_and_is_kept_once(
    shop: Inquiry,
) -> None:
    effect = permitted(shop.issuer.request("publish", {"name": "v1"}, task="t1", actor="agent-7"))
    claim = str(shop.issuer.admit(effect).more["claim"])
    shop.pass_ms(300_000 + 3_000)
    assert shop.look(effect, NOT_FOUND).code == "no_effect"
    for _ in range(3):
        assert shop.issuer.report(effect, claim, succeeded=True).code == "already_consumed"
    assert shop.evidence(effect)[-2:] == [
        ("inspection", "no_effect", None),
        ("host_claim", "succeeded", "no_effect"),
    ]
    assert books(shop.issuer) == all_at()
    assert shop.checked()


@pytest.mark.spec("REC-05", "BUD-03", "EFF-04")
@pytest.mark.parametrize("charged", [{"USD.cent": -1}, {"USD.cent": True}, {"nonsense unit": 1}])
def test_a_charge_that_is_no_whole_amount_resolves_nothing(shop: Inquiry, charged: dict[str, int]) -> None:
    ours = Shop(shop)
    effect = ours.sent(Proof.NOTHING)
    said = ours.look(effect, Inspection(seen=Seen.FOUND, source="memory", charged=charged))
    assert (said.code, attempt_of(said)) == ("outcome_unknown", ("unclear", "charge_not_whole"))
    said = ours.look(effect, Inspection(seen=Seen.ABSENT, source="memory", charged={"USD.cent": 1}))
    assert (said.code, attempt_of(said)) == ("outcome_unknown", ("absent", "charge_contradicts_proof"))
    assert ours.look(effect, DIFFERS).code == "outcome_unknown"
    # What it was said to have charged stays a charge: no later absence releases it.
    assert ours.look(effect, ABSENT).more["attempt"]["contradicts"] is True
    assert state_of(shop.issuer, effect) == "unknown"
    assert ours.look(effect, FOUND).code == "succeeded"


@pytest.mark.spec("REC-05", "EFF-04", "BUD-04")
@pytest.mark.parametrize("proof", [Proof.SUCCEEDED, Proof.FAILED, Proof.PARTIAL, Proof.ACCEPTED])
def test_an_answer_that_told_of_an_effect_with_an_unreadable_charge_is_not_undone_by_an_absence(
    shop: Inquiry, proof: Proof
) -> None:
    ours = Shop(shop)
    effect = ours.sent(proof, {"USD.cent": -1})
    assert state_of(shop.issuer, effect) == "unknown"
    ours.look(effect, ABSENT)
    assert state_of(shop.issuer, effect) == "unknown"
    assert books(shop.issuer)["t1"].reserved > 0


@pytest.mark.spec("REC-05", "EFF-04")
def test_an_answer_that_told_of_nothing_with_an_unreadable_charge_leaves_the_absence_its_word(
    shop: Inquiry,
) -> None:
    ours = Shop(shop)
    effect = ours.sent(Proof.NOTHING, {"USD.cent": -1})
    ours.look(effect, ABSENT)
    assert state_of(shop.issuer, effect) == "no_effect"


@pytest.mark.spec("REC-05", "REP-06", "BUD-04")
def test_a_charge_beside_a_first_hand_no_effect_is_kept_and_no_absence_releases_it(shop: Inquiry) -> None:
    ours = Shop(shop)
    effect = ours.sent(Proof.NO_EFFECT, {"USD.cent": 7})
    record: Any = shop.issuer.show(effect).more["record"]
    assert (record["evidence"][-1]["class"], record["evidence"][-1]["charged"]) == (
        "service",
        {"USD.cent": 7},
    )
    assert ours.look(effect, ABSENT).more["attempt"]["contradicts"] is True
    assert books(shop.issuer) == all_at(reserved=300)
    assert shop.checked()
