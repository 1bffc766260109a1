"""What is no claim and no cost is answered, never raised, whatever type it is of."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from issuer import Issuer
from tests.support.issuers import permitted, standard_issuer


@pytest.fixture
def issuer(tmp_path: Path) -> Iterator[Issuer]:
    with standard_issuer(tmp_path / "f0", port=9).open() as opened:
        yield opened


@pytest.mark.spec("ADM-07", "SUR-02", "EFF-04")
@pytest.mark.parametrize("other", [None, 7, b"x", [], {}])
def test_what_is_no_claim_is_nobodys_and_what_is_no_cost_is_malformed(issuer: Issuer, other: Any) -> None:
    effect = permitted(issuer.request("publish", {"name": "v1"}, task="t1", actor="agent-7"))
    claim: Any = issuer.admit(effect).more["claim"]
    assert issuer.report(effect, other, outcome="succeeded").code == "forbidden"
    for cost in ([other] if other not in (None, {}) else []) + [{other: 1} if other is None else {7: 1}]:
        assert issuer.report(effect, claim, outcome="succeeded", cost=cost).code == "malformed"
    assert issuer.report(effect, claim, outcome="succeeded").code == "succeeded"
