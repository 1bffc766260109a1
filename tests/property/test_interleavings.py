"""Whatever several processes do at once, an effect is sent only under authority that holds at that place of the trail.

Each run lets four processes ask, answer, decline, withdraw, revoke, freeze, thaw, activate, change tasks and money, and
send, at random and from a seed, while some of them are killed; then an oracle reads the trail. The seed sets what each
of them wants, and the machine how it interleaves, so that a run proves something whichever way it went.
"""

from pathlib import Path

import pytest

from tests.support.interleaved import play

WORKERS = 4
ACTS = 600
SECONDS_MAX = 300.0
"""A run ends after so many acts, once every code that it is about was answered; a busy machine may take so long."""

pytestmark = [
    pytest.mark.spec(
        "ADM-01", "ADM-02", "ADM-03", "ADM-04", "ADM-05", "APP-01", "APP-03", "APP-04", "APP-05"
    ),
    pytest.mark.spec("POL-05", "POL-07", "BUD-02", "BUD-05", "BUD-06", "PER-03", "LED-01"),
]


@pytest.mark.parametrize("seed", [7])  # `make soak` draws others, for minutes
def test_nothing_is_sent_without_authority_at_its_place(seed: int, tmp_path: Path) -> None:
    played = play(tmp_path, seed=seed, workers=WORKERS, acts=ACTS, seconds=SECONDS_MAX)
    assert played.wrongs == [], played.line()
    assert played.missing == set(), played.line()
    assert played.kills > 0
    assert played.looks > 0
