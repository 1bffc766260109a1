"""A process that opens and closes issuers for days holds no more files after it than before."""

from collections.abc import Callable
from pathlib import Path

import pytest

from issuer import Issuer
from tests.support.issuers import Made, permitted, refund, standard_issuer
from tests.support.service import Service, answer

ROUNDS = 12


def descriptors() -> list[str]:
    """Return what this process has open, by name."""
    found = []
    for name in (one.name for one in Path("/proc/self/fd").iterdir()):
        try:
            found.append(str(Path(f"/proc/self/fd/{name}").readlink()))
        except OSError:
            continue
    return sorted(found)


def _committed(made: Made) -> None:
    with Service(answer(201)) as service, made.open() as issuer:
        del service
        effect = permitted(refund(issuer))
        issuer.commit(effect)


WAYS: dict[str, Callable[[Made], object]] = {
    "opened and closed": lambda made: made.open().close(),
    "asked and sent": _committed,
    "read": lambda made: made.open(reading=True).close(),
    "checked": lambda made: Issuer.ledger_check(made.profile),
    "counted": lambda made: Issuer.ledger_stats(made.profile),
}


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="this system does not show open files")
@pytest.mark.spec("INV-03")
@pytest.mark.parametrize("way", WAYS)
def test_what_is_closed_holds_no_file(tmp_path: Path, way: str) -> None:
    made = standard_issuer(tmp_path / "f0", port=9)
    WAYS[way](made)
    before = descriptors()
    for _ in range(ROUNDS):
        WAYS[way](made)
    assert len(descriptors()) <= len(before) + 1, set(descriptors()) - set(before)


@pytest.mark.spec("INV-03")
def test_closing_twice_closes_nothing_of_somebody_else(tmp_path: Path) -> None:
    issuer = standard_issuer(tmp_path / "f0", port=9).open()
    issuer.close()
    others = [(tmp_path / f"{number}").open("w") for number in range(8)]
    issuer.close()
    for other in others:
        other.write("still mine")
        other.close()
