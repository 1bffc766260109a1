"""What an adapter brings back from its look at a target is bounded before it is bound or stored (EFF-06)."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from issuer import Issuer
from issuer.flow.prepare import pin
from issuer.operations.contract import PREPARE_BYTES_MAX, Preparation, Request
from issuer.operations.http_adapter import HttpAdapter
from issuer.operations.http_target import ADDRESSES_MAX, URL_BYTES_MAX
from issuer.operations.templates import Template
from tests.support.cases import effect_ids, refusals
from tests.support.charging import ChargingAdapter, with_adapter
from tests.support.declared import secrets, settings
from tests.support.issuers import refund, standard_issuer

NOTHING_ELSE = len(b'[{"order":""},{},{}]')


class LookingAdapter(ChargingAdapter):
    """Finds whatever a test says."""

    def __init__(self, actual: Mapping[str, Any]) -> None:
        super().__init__()
        self.actual = actual

    def prepare(self, request: Request) -> Preparation:
        del request
        return Preparation(actual=self.actual, destination={})


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Issuer]:
    made = standard_issuer(tmp_path_factory.mktemp("bound") / "f0", port=9)
    with made.open() as opened:
        yield opened


def sized(size: int) -> dict[str, str]:
    """Return what makes a preparation of exactly `size` bytes."""
    return {"order": "o" * (size - NOTHING_ELSE)}


@pytest.mark.spec("EFF-06")
@pytest.mark.parametrize(
    ("actual", "code"),
    [
        pytest.param(sized(PREPARE_BYTES_MAX), None, id="at the bound"),
        pytest.param(sized(PREPARE_BYTES_MAX + 1), "preparation_too_large", id="one byte more"),
        pytest.param(sized(3 * 1024 * 1024), "preparation_too_large", id="far above"),
        pytest.param({"order": ["o"] * PREPARE_BYTES_MAX}, "preparation_too_large", id="many parts"),
        pytest.param({"order": 1.5}, "preparation_number_not_whole", id="a float"),
        pytest.param({"order": object()}, "preparation_wrong_type", id="no JSON"),
        pytest.param({"order": "\udcff"}, "preparation_lone_surrogate", id="no text"),
    ],
)
def test_more_than_a_permit_binds_is_refused_before_anything_is_stored(
    issuer: Issuer, actual: dict[str, Any], code: str | None
) -> None:
    adapter = LookingAdapter(actual)
    before = effect_ids(issuer)
    answer = refund(with_adapter(issuer, adapter), amount=1)
    if code is None:
        assert answer.code == "permitted"
        return
    assert (answer.code, answer.more, answer.next) == ("cannot_prepare", {"field": code}, "stop")
    assert "at the target" in answer.say
    assert refusals(issuer)[-1] == ("cannot_prepare", code, None)
    assert effect_ids(issuer) == before
    assert adapter.orders == []


@pytest.mark.spec("EFF-06")
def test_the_longest_url_and_a_full_set_of_addresses_fit(tmp_path: Path) -> None:
    host = ".".join(["h" * 61] * 4)
    addresses = tuple(f"2001:0db8:1111:2222:3333:4444:5555:{number:04x}" for number in range(ADDRESSES_MAX))
    order = "o" * 500
    path = "/{order}" * 15 + "/" + "v" * (URL_BYTES_MAX - 15 * 501 - 1)
    url = Template.parse_url(f"https://{host}:65535{path}")
    declared = settings("", url=url, body=None, bearer="b" * 128, once="o" * 128)
    adapter = HttpAdapter(declared, secrets, resolve=lambda _host, _port: addresses)
    made = standard_issuer(tmp_path / "f0", port=9)
    with made.open() as opened:
        operation = with_adapter(opened, adapter)._house.operations["refund"]  # type: ignore[arg-type]
        pinned = pin(opened._house, operation, {"order": order, "amount": 1})
    assert len(pinned.preparation.destination["addresses"]) == ADDRESSES_MAX  # type: ignore[arg-type]
    assert len(str(pinned.preparation.actual["url"])) > URL_BYTES_MAX
