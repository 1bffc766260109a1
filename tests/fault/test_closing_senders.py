"""An issuer that was closed while a thread of it still sends is not gone before it is done (ADM-07, REC-03)."""

import threading
from pathlib import Path

import pytest

from tests.support.cases import all_at, books
from tests.support.issuers import permitted, refund
from tests.support.reconciling import AFTER_3S, NOT_FOUND, opened_inquiry
from tests.support.service import answer, held

PATIENCE_S = 30.0


@pytest.mark.spec("ADM-07", "REC-02", "REC-03", "INV-03")
@pytest.mark.parametrize("is_resend", [False, True])
def test_who_still_sends_after_a_close_is_not_gone(tmp_path: Path, is_resend: bool) -> None:
    with opened_inquiry(tmp_path / "f0", absent=AFTER_3S, resend=True) as inquiry:
        other = inquiry.made.open(clock=inquiry.clock)
        effect = inquiry.unknown() if is_resend else permitted(refund(other))
        inquiry.service.then(held("still", answer(201)))
        send = (lambda: other.reconcile(effect, resend=True)) if is_resend else (lambda: other.commit(effect))
        sender = threading.Thread(target=send)
        sender.start()
        inquiry.service.wait_for(requests=2 if is_resend else 1)
        other.close()
        inquiry.past_deadline(100_000)
        for _ in range(2):
            inquiry.pass_ms(10_000)
            assert inquiry.look(effect, NOT_FOUND).state == "unknown"
            assert inquiry.issuer.reconcile(effect, resend=True).state == "unknown"
        assert len(inquiry.service.writes) == (2 if is_resend else 1)
        assert books(inquiry.issuer) == all_at(reserved=300)
        inquiry.service.gate("still").set()
        sender.join(PATIENCE_S)
        inquiry.service.then(answer(201))
        assert inquiry.issuer.reconcile(effect, resend=True).code == "succeeded"
