"""A hundred thousand refusals by one caller, and then an outcome, a revocation and an expiry (LED-02)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fault.test_noise import play_flood
from tests.support.cases import Clock
from tests.support.issuers import standard_issuer
from tests.support.service import Service


@pytest.mark.spec("LED-02", "AUD-01")
def test_a_hundred_thousand_refusals_take_the_room_of_sixty_four(
    tmp_path: Path, figure: Callable[[str], None]
) -> None:
    clock = Clock()
    with (
        Service() as service,
        standard_issuer(tmp_path / "f0", port=service.port).open(clock=clock) as issuer,
    ):
        play_flood(issuer, clock, service, 100_000)
    figure("100,000 refusals of one caller: 64 in full and one a minute, the rest counted in a span a minute")
