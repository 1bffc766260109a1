"""What a contract says has to be put in order afterwards is owed by every permit for the operation (OPR-01, EFF-09)."""

from pathlib import Path
from typing import Any

import pytest

from issuer import Issuer
from tests.support.invoking import StandingClock, begun
from tests.support.issuers import permitted, refund, standard_issuer
from tests.support.service import Service, answer

OWED = "void-the-voucher"


@pytest.mark.spec("OPR-01", "EFF-09", "INV-02", "LED-04")
def test_a_cleanup_of_the_contract_is_owed_and_prevents_success_until_it_is_done(tmp_path: Path) -> None:
    changes = {
        '[operation.refund]\nclass = "refund"': f'[operation.refund]\nclass = "refund"\ncleanup = ["{OWED}"]'
    }
    clock = StandingClock()
    with Service(answer(201)) as service:
        made = standard_issuer(tmp_path / "f0", port=service.port, changes=changes)
        with made.open(clock=clock) as issuer:
            assert issuer._house.operations["refund"].terms.cleanup == (OWED,)
            invocation = begun(issuer, clock)
            effect = permitted(refund(issuer, invocation=invocation))
            assert issuer.commit(effect).code == "succeeded"
            record: Any = issuer.show(effect).more["record"]
            assert [(row["name"], row["overdue"]) for row in record["obligations"]] == [(OWED, False)]
            no = issuer.invocation_end(invocation, "succeeded")
            assert (no.code, no.more["level"], no.more["field"]) == ("invocation_unsettled", effect, OWED)
            assert issuer.obligation_done(effect, OWED).code == "obligation_closed"
            assert issuer.invocation_end(invocation, "succeeded").code == "ended"
        assert Issuer.ledger_check(made.profile).more["findings"] == []
