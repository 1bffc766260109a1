"""An operator accepts a risk: beside the state, under its own name, and nothing comes free (REC-04)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from issuer import Issuer
from issuer.operations.contract import Inspection, Seen
from issuer.restore.restoring import restore
from issuer.wire import Answer
from ledger.sqlite.connection import IntegrityError
from tests.support.cases import Books, all_at, books, command, state_of, trail
from tests.support.charging import ChargingAdapter, with_adapter
from tests.support.issuers import HOUR_MS, permitted, refund
from tests.support.ledgers import attacker, without_guards
from tests.support.reconciling import AFTER_3S, NOT_FOUND, Inquiry, Says, opened_inquiry, with_inspector
from tests.support.service import answer

FORGED = """
INSERT INTO settlements SELECT effect_id, task_id, unit, amount, 0, (SELECT max(sequence) FROM spans)
FROM reservations WHERE effect_id = '{effect}'
"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Inquiry]:
    with opened_inquiry(tmp_path / "f0", absent=AFTER_3S) as inquiry:
        yield inquiry


def noted(shop: Inquiry, effect: str, *, charge: bool = False) -> Answer:
    return shop.issuer.acknowledge(effect, reason="checked_by_phone", charge=charge)


def held_unknown(shop: Inquiry) -> Any:
    stats: Any = Issuer.ledger_stats(shop.made.profile).more["stats"]
    return stats["held_unknown"]


@pytest.mark.spec("REC-04", "REC-05", "BUD-04")
def test_a_risk_that_is_accepted_stands_beside_the_state_and_holds_what_it_held(shop: Inquiry) -> None:
    effect = shop.unknown()
    said = noted(shop, effect)
    assert (said.code, said.state, said.exit, said.next) == ("acknowledged", "unknown", 0, "stop")
    assert books(shop.issuer) == all_at(reserved=300)
    assert shop.evidence(effect)[-1] == ("acknowledged", "unknown", None)
    last = shop.spans(effect)[-1]
    assert (last["name"], last["permit.reason"]) == ("effect.acknowledged", "checked_by_phone")
    assert "permit.charged" not in last
    assert noted(shop, effect).code == "nothing_to_change"
    assert shop.issuer.commit(effect).code == "outcome_unknown"
    assert held_unknown(shop) == {"USD.cent": 300}
    assert shop.checked()


@pytest.mark.spec("REC-04", "BUD-02", "BUD-03", "BUD-04")
def test_the_held_maximum_becomes_a_charge_of_exactly_that_at_every_level_and_it_stays_unknown(
    shop: Inquiry,
) -> None:
    effect = shop.unknown(task="t1.a")
    levels = ("t1.a", "t1", "org")
    assert noted(shop, effect).code == "acknowledged"
    said = noted(shop, effect, charge=True)
    assert (said.code, said.state) == ("acknowledged", "unknown")
    assert books(shop.issuer, *levels) == all_at(*levels, settled=300)
    assert shop.spans(effect)[-1]["permit.charged"] == ("USD.cent=300",)
    for charge in (True, False):
        assert noted(shop, effect, charge=charge).code == "nothing_to_change"
    assert books(shop.issuer, *levels) == all_at(*levels, settled=300)
    # Nothing is free: 100 of the 400 are left, as before.
    assert refund(shop.issuer, order="n-1", amount=101, task="t1.a").code == "budget_exceeded"
    assert refund(shop.issuer, order="n-2", amount=100, task="t1.a").code == "permitted"
    assert held_unknown(shop) == {}
    row = shop.listed()
    assert (row["held"], [one["amount"] for one in row["charged"]]) == ([], [300, 300, 300])
    assert shop.checked()


@pytest.mark.spec("REC-04", "LED-02")
def test_it_is_never_collected_while_it_is_unknown(shop: Inquiry) -> None:
    effect = shop.unknown()
    noted(shop, effect, charge=True)
    shop.pass_ms(70 * 24 * HOUR_MS)
    shop.issuer.ledger_collect(early=True)
    assert state_of(shop.issuer, effect) == "unknown"
    assert shop.checked()


@pytest.mark.spec("REC-04", "REC-05", "BUD-03")
@pytest.mark.parametrize(("step", "code"), [(None, "succeeded"), (NOT_FOUND, "no_effect")])
def test_later_evidence_still_moves_the_state_and_the_charge_stays(
    shop: Inquiry, step: Any, code: str
) -> None:
    effect = shop.unknown(answer(503, effect=step is None))
    noted(shop, effect, charge=True)
    shop.past_deadline(3_000)
    said = shop.look(effect, *([] if step is None else [step]))
    assert (said.code, "stays charged" in said.say) == (code, step is not None)
    assert books(shop.issuer) == all_at(settled=300)
    assert shop.checked()
    shop.pass_ms(40 * 24 * HOUR_MS)
    assert shop.issuer.ledger_collect(early=True).code == "collected_now"
    assert "effect" in str(shop.issuer.show(effect).as_json())
    assert shop.issuer.show(effect).more["record"]["collected"] is True  # type: ignore[index]
    assert books(shop.issuer) == all_at(settled=300)
    assert shop.checked()


@pytest.mark.spec("REC-04", "BUD-03")
@pytest.mark.parametrize(("measured", "overrun"), [({"USD.cent": 120}, 0), ({"USD.cent": 450}, 150)])
def test_a_measured_charge_below_it_gives_nothing_back_and_one_above_it_is_an_overrun(
    shop: Inquiry, measured: dict[str, int], overrun: int
) -> None:
    adapter = ChargingAdapter()
    issuer = with_adapter(shop.issuer, adapter)
    effect = permitted(refund(issuer))
    adapter.charged, adapter.proof = measured, "bad"  # type: ignore[assignment]  # its first answer breaks
    assert issuer.commit(effect).code == "outcome_unknown"
    assert issuer.acknowledge(effect, reason="seen_in_bank", charge=True).code == "acknowledged"
    found = Inspection(seen=Seen.FOUND, source="memory", charged=measured)
    assert with_inspector(issuer, Says(found)).reconcile(effect).code == "succeeded"
    line = Books(reserved=0, settled=300, overrun=overrun)
    assert books(shop.issuer) == dict.fromkeys(("t1", "org"), line)
    assert shop.checked()
    asked = refund(shop.issuer, order="n-9", amount=1)
    assert asked.code == ("budget_overrun" if overrun else "permitted")


@pytest.mark.spec("REC-04", "EFF-08", "SUR-02")
def test_only_an_unknown_effect_of_the_caller_can_be_acknowledged(shop: Inquiry) -> None:
    ready = permitted(refund(shop.issuer, order="r-1"))
    assert noted(shop, ready).code == "not_permitted_yet"
    shop.service.then(answer(201))
    assert shop.issuer.commit(ready).code == "succeeded"
    assert noted(shop, ready, charge=True).code == "already_consumed"
    live = permitted(shop.issuer.request("publish", {"name": "v1"}, task="t1", actor="agent-7"))
    shop.issuer.admit(live)
    assert noted(shop, live, charge=True).code == "already_consumed"
    shop.pass_ms(300_000)
    assert noted(shop, live, charge=True).code == "acknowledged"
    assert noted(shop, "eff_" + "0" * 32).code == "not_found"
    assert shop.checked()


@pytest.mark.spec("REC-04", "AUD-07", "SEC-01")
@pytest.mark.parametrize("reason", ["", "Called the bank", "x" * 65, "İ", "_x", None, 7])
def test_a_reason_is_a_word_and_no_free_text(shop: Inquiry, reason: Any) -> None:
    effect = shop.unknown()
    said = shop.issuer.acknowledge(effect, reason=reason, charge=True)
    assert (said.code, said.more["field"]) == ("malformed", "reason")
    assert books(shop.issuer) == all_at(reserved=300)
    assert "Called" not in str([dict(entry.attributes) for entry in trail(shop.issuer)])


@pytest.mark.spec("REC-04", "LED-06")
@pytest.mark.parametrize(
    ("statements", "what"),
    [
        (FORGED, "settlement_without_trail"),
        ("DELETE FROM settlements WHERE effect_id = '{noted}'", "acknowledged_differs"),
        ("UPDATE settlements SET charged = 1 WHERE effect_id = '{noted}'", "acknowledged_differs"),
    ],
)
def test_a_check_finds_an_acknowledgement_that_was_forged_or_taken_away(
    shop: Inquiry, statements: str, what: str
) -> None:
    effect, other = shop.unknown(), shop.unknown()
    noted(shop, other, charge=True)
    assert shop.checked()
    statement = statements.format(effect=effect, noted=other)
    without_guards(shop.made.ledger, statement)
    found: Any = Issuer.ledger_check(shop.made.profile)
    assert what in str(found.more["findings"])


@pytest.mark.spec("REC-04", "SUR-01")
def test_the_command_line_says_the_same(tmp_path: Path) -> None:
    with opened_inquiry(tmp_path / "f0") as inquiry:
        effect = inquiry.unknown()
        done = command(inquiry.made, "acknowledge", effect, "--reason", "checked_by_phone", "--charge")
        assert (done.exit, done.answer["code"], done.answer["state"]) == (0, "acknowledged", "unknown")
        assert books(inquiry.issuer) == all_at(settled=300)


@pytest.mark.spec("REC-04", "LED-05", "BUD-03")
def test_the_database_charges_no_effect_twice(shop: Inquiry) -> None:
    """What an acknowledgement charged is held no more, so a second charge has nothing to come from."""
    effect = shop.unknown()
    noted(shop, effect, charge=True)
    raw = attacker(shop.made.ledger)
    try:
        with pytest.raises(IntegrityError, match="guard:charge_above_reservation"):
            raw.execute(FORGED.format(effect=effect).replace("max(sequence)", "max(sequence) - 1"))
    finally:
        raw.close()
    assert books(shop.issuer) == all_at(settled=300)
    assert shop.checked()


@pytest.mark.spec("REC-04", "LED-08", "BUD-04")
@pytest.mark.parametrize("is_in_backup", [True, False])
def test_a_restore_frees_nothing_of_what_was_acknowledged(tmp_path: Path, is_in_backup: bool) -> None:
    """What the backup does not know of is held again; what it knows of is charged still."""
    file = tmp_path / "backup.sqlite"
    with opened_inquiry(tmp_path / "f0") as inquiry:
        effect = inquiry.unknown()
        if is_in_backup:
            noted(inquiry, effect, charge=True)
        assert inquiry.issuer.ledger_backup(inquiry.made.profile, file).code == "backed_up"
        if not is_in_backup:
            noted(inquiry, effect, charge=True)
        inquiry.issuer.close()
        restore(inquiry.made.profile, file, clock=inquiry.clock)
        with inquiry.made.open(clock=inquiry.clock) as inquiry.issuer:
            assert state_of(inquiry.issuer, effect) == "unknown"
            expected = all_at(settled=300) if is_in_backup else all_at(reserved=300)
            assert books(inquiry.issuer) == expected
            assert noted(inquiry, effect, charge=True).code == (
                "nothing_to_change" if is_in_backup else "acknowledged"
            )
            assert books(inquiry.issuer) == all_at(settled=300)
            assert inquiry.checked()
