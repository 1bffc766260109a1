from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.shut_out import PLACES, started
from tests.support.transitions import KINDS, UNTOUCHED

WAYS = 4
"""Read only or shut altogether, before the issuer is opened or while it is open."""
QUICK = (("admission", "ledger folder"),)

pytestmark = pytest.mark.spec("ADM-02", "ADM-03", "LED-04", "AUD-02", "SEC-03")


@pytest.mark.parametrize(("kind", "place"), QUICK)
def test_an_account_without_a_right_is_told_as_it_is(kind: str, place: str, tmp_path: Path) -> None:
    seen = started(tmp_path, kind, [place])
    assert seen.total() == WAYS
    assert any(one.endswith(f":{UNTOUCHED[kind]}") for one in seen)


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_a_transition_without_any_one_of_its_rights_is_told_as_it_is(
    kind: str, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    seen = started(tmp_path, kind)
    figure(f"{kind}, rights taken away: {seen.total()} times at {len(PLACES)} places, {dict(seen)}")
    assert seen.total() == WAYS * len(PLACES)
