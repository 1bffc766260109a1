"""Looking back over activations: a gap ends it, and what a copy does not say is never taken for old."""

from collections.abc import Iterable
from pathlib import Path
from types import MappingProxyType

import pytest

from audit import TimelineEntry
from issuer.approving.statement import Since
from issuer.places import PROFILE_NAME, Places
from issuer.revisions import NO_REVISION, OwnerFiles, digests_of, keep_snapshot, load_file, load_snapshot
from issuer.row_history import Chosen, since
from issuer.trail import Changed
from ledger.model import InstantMs

PREPARED = InstantMs(1_000)
DECLARED = '[registry]\nvendors = { file = "v.csv", key = "id", fields = ["iban"] }\n'
ROW = {"id": "acme", "iban": "DE1"}
CHOSEN = Chosen(registry="vendors", row=ROW)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    (tmp_path / "ledger").mkdir(mode=0o700)
    return Places(tmp_path / PROFILE_NAME)


def stored(places: Places, number: int, *, profile: str = DECLARED, rows: str = "acme,DE1\n") -> str:
    """Store the copy of a revision that has these rows; return its digest."""
    files = {
        PROFILE_NAME: f"# {number}\n{profile}".encode(),
        "v.csv": f"id,iban\n{rows}".encode(),
    }
    keep_snapshot(places, OwnerFiles(files=MappingProxyType(files)))
    return OwnerFiles(files=MappingProxyType(files)).digest


def activated(revision: str, before: str, at_ms: int) -> Changed:
    attributes = {"permit.revision.activated": revision, "permit.revision.before": before}
    entry = TimelineEntry(
        epoch=1,
        sequence=at_ms,
        at_ms=InstantMs(at_ms),
        name="revision.activated",
        state_from=None,
        state_to=None,
        attributes=attributes if before else {"permit.revision.activated": revision},
    )
    return Changed(entry=entry)


def told(places: Places, *activations: Changed, revision: str) -> tuple[int, str, bool]:
    found: Since = since(places, activations, CHOSEN, revision=revision, at_ms=PREPARED)
    return found.at_ms, found.revision, found.or_before


def chain(revisions: Iterable[str]) -> list[Changed]:
    """Return the activations of these, oldest first, as the latest first."""
    before, made = "", []
    for at_ms, revision in enumerate(revisions, 1):
        made.append(activated(revision, before, at_ms))
        before = revision
    return made[::-1]


@pytest.mark.spec("APP-02")
def test_a_row_is_since_the_activation_before_which_it_was_another(places: Places) -> None:
    other = stored(places, 1, rows="acme,DE2\n")
    same = [stored(places, number, rows=f"acme,DE1\nbolt,DE{number}\n") for number in (2, 3, 4)]
    assert told(places, *chain([other, *same]), revision=same[-1]) == (2, same[0], False)


@pytest.mark.spec("APP-02")
@pytest.mark.parametrize(
    "before",
    [
        {"rows": "bolt,DE1\n"},
        {"rows": "acme,DE10\n"},
        {"rows": "Acme,DE1\n"},
        {"profile": "[registry]\n"},
        {"profile": ""},
        {"profile": DECLARED.replace("vendors", "sellers")},
    ],
)
def test_a_row_that_was_not_there_as_it_is_is_a_change(places: Places, before: dict[str, str]) -> None:
    first, second = stored(places, 1, **before), stored(places, 2)
    assert told(places, *chain([first, second]), revision=second) == (2, second, False)


@pytest.mark.spec("APP-02", "POL-07")
def test_a_gap_in_what_was_in_force_ends_what_is_known(places: Places) -> None:
    first, second, third = (stored(places, number) for number in (1, 2, 3))
    gap = (activated(third, second, 9), activated(first, "", 1))
    assert told(places, *gap, revision=third) == (9, third, True)
    restored = (activated(third, NO_REVISION, 9), activated(NO_REVISION, first, 5), activated(first, "", 1))
    assert told(places, *restored, revision=third) == (9, third, True)


@pytest.mark.spec("APP-02", "POL-07")
def test_what_was_prepared_under_no_activation_is_known_from_its_preparation_on(places: Places) -> None:
    first, second = (stored(places, number) for number in (1, 2))
    assert told(places, revision=first) == (PREPARED, first, True)
    assert told(places, activated(second, "", 9), revision=first) == (PREPARED, first, True)


@pytest.mark.spec("APP-02", "LED-06")
@pytest.mark.parametrize(
    "broken",
    [
        {"profile": "]["},
        {"profile": "[registry]\nvendors = 3\n"},
        {"profile": "registry = 3\n"},
        {"rows": "x\n"},
    ],
)
def test_a_copy_that_cannot_be_read_is_no_proof_of_anything(places: Places, broken: dict[str, str]) -> None:
    first, second = stored(places, 1, **broken), stored(places, 2)
    assert told(places, *chain([first, second]), revision=second) == (2, second, True)


@pytest.mark.spec("APP-02")
def test_the_same_revision_put_in_force_again_changes_nothing(places: Places) -> None:
    other, same = stored(places, 1, rows="acme,DE2\n"), stored(places, 2)
    assert told(places, *chain([other, same, same]), revision=same) == (2, same, False)


@pytest.mark.spec("POL-07", "LED-06")
def test_a_copy_is_read_as_it_was_written_whatever_its_files_are_called(places: Places) -> None:
    names = (
        PROFILE_NAME,
        "v.csv",
        "v.csv !",
        "v.csv 2",
        'v".csv',
        "v\\.csv",
        "\u00e9.csv",
        "z/v.csv",
        "../v.csv",
    )
    files = OwnerFiles(files=MappingProxyType({name: name.encode() for name in names}))
    assert keep_snapshot(places, files)
    assert load_snapshot(places, files.digest).files == files.files
    assert digests_of(places, files.digest).keys() == set(names)
    assert [load_file(places, files.digest, name) for name in names] == list(names)
