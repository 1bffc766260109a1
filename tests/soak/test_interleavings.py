"""The long run of `tests.property.test_interleavings`: office after office, under seeds that are drawn and said."""

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.interleaved import play

MINUTES = 6.0
WORKERS = 4
ACTS = 2_000
SECONDS_MAX = 180.0


@pytest.mark.soak
@pytest.mark.spec("ADM-01", "ADM-04", "ADM-05", "APP-04", "POL-05", "POL-07", "BUD-02", "BUD-05")
def test_nothing_is_sent_without_authority_for_minutes(tmp_path: Path, figure: Callable[[str], None]) -> None:
    until = time.monotonic() + MINUTES * 60
    while time.monotonic() < until:
        seed = random.SystemRandom().getrandbits(32)
        played = play(tmp_path / str(seed), seed=seed, workers=WORKERS, acts=ACTS, seconds=SECONDS_MAX)
        figure(f"interleavings, seed {seed}: {played.line()}")
        assert played.wrongs == []
        assert played.missing == set()
