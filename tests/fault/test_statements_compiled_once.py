"""A warm process compiles no SQL for an effect: every statement that an effect runs is one it ran before."""

from pathlib import Path
from typing import Any

import pytest

from issuer import Issuer
from ledger.sqlite.connection import _authorize
from tests.support.issuers import permitted, refund, standard_issuer
from tests.support.service import Service, answer

WARM = 3
EFFECTS = 3


def do_effects(issuer: Issuer, numbers: range) -> None:
    for number in numbers:
        effect = permitted(refund(issuer, order=f"o-{number}", amount=7))
        assert issuer.commit(effect).code == "succeeded"


@pytest.mark.spec("LED-07")
def test_an_effect_in_a_warm_process_compiles_no_statement(tmp_path: Path) -> None:
    """SQLite asks the authorizer while it compiles and at no other time, so a count of its questions tells."""
    asked: list[tuple[Any, ...]] = []

    def counted(*question: Any) -> int:
        asked.append(question)
        return _authorize(*question)

    with Service(*[answer(201)] * (WARM + EFFECTS)) as service:
        made = standard_issuer(tmp_path / "f0", port=service.port)
        with made.open() as issuer:
            do_effects(issuer, range(WARM))
            ledger: Any = issuer._house.ledger.beneath
            for raw in (ledger._raw, ledger._reader):
                raw.set_authorizer(counted)  # which forgets every compiled statement
            do_effects(issuer, range(WARM, WARM + 1))
            assert asked
            asked.clear()
            do_effects(issuer, range(WARM + 1, WARM + EFFECTS))
            assert asked == []
