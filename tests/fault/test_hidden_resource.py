"""The name of a resource that repeats a value that is not public is told and kept nowhere (EFF-10, SEC-01)."""

from pathlib import Path

import pytest

from tests.support.issuers import permitted, refund, standard_issuer
from tests.support.service import Service, answer

CANARY = "CANARY-7c1f-order"


@pytest.mark.spec("EFF-10", "SEC-01", "POL-06")
def test_a_resource_named_after_a_value_that_is_not_public_is_hidden_everywhere(tmp_path: Path) -> None:
    public, sensitive = "order = { string = 40, public = true }", "order = { string = 40 }"
    with Service(answer(201)) as service:
        made = standard_issuer(tmp_path / "f0", port=service.port, changes={public: sensitive})
        with made.open() as issuer:
            effect = permitted(refund(issuer, order=CANARY))
            assert issuer.commit(effect).code == "succeeded"
            told = [issuer.show(effect), issuer.list(), issuer.timeline(effect)]
        assert CANARY in service.requests[0].body.decode()
    assert (told[0].resource or "").startswith('Order::"hidden:')
    kept = [
        path for folder in (made.folder, made.sink.parent) for path in folder.rglob("*") if path.is_file()
    ]
    assert {made.ledger, made.sink} <= set(kept)
    assert [path.name for path in kept if CANARY.encode() in path.read_bytes()] == []
    assert CANARY not in repr([one.as_json() for one in told])
