from pathlib import Path

import pytest

from issuer.places import Places
from ledger.errors import LedgerUnavailable
from tests.support.transitions import soak_issuer


def test_closing_lets_go_of_everything_even_where_its_lock_file_cannot_be_removed(tmp_path: Path) -> None:
    """What a command was answered must not be lost to an exception of `with Issuer.open(...)`."""
    made = soak_issuer(tmp_path / "i")
    issuer = made.open()
    instances = Places(made.profile).instances
    instances.rename(tmp_path / "away")
    instances.touch()
    issuer.close()
    with pytest.raises(LedgerUnavailable):
        issuer._house.ledger.read(lambda view: view.head())
