"""A name that looks like a credential is refused as what it is: a no on record, and no failure of the trail."""

from pathlib import Path

import pytest

from issuer.wire.codes import CODES
from tests.support.issuers import refund, standard_issuer
from tests.support.reviewing import whole_trail
from tests.support.service import Service, answer


@pytest.mark.spec("SEC-01", "AUD-01", "SUR-05")
@pytest.mark.parametrize("name", ["sk-CANARY-4711", "qT7xB2mK9vR4wZ1nC6yL8pD3sF5hJ0gAeU2iO9a4"])
def test_a_name_that_looks_like_a_secret_is_refused_on_record_and_not_to_be_tried_again(
    tmp_path: Path, name: str
) -> None:
    with (
        Service(answer(201)) as service,
        standard_issuer(tmp_path / "f0", port=service.port).open() as issuer,
    ):
        before = len(whole_trail(issuer))
        told = refund(issuer, order=name)
        assert (told.code, told.more) == ("malformed", {"field": "resource", "reason": "secret_in_span"})
        assert not CODES[told.code].retryable
        assert name not in str(told)
        (no,) = whole_trail(issuer)[before:]
        assert (no.name, no["refusal"], no["command"]) == ("refused", "malformed", "request")
        assert name not in str(no)
        assert not service.requests
