"""What an approver is told of the owner's row: since when it is exactly as it is (APP-02).

An account that was changed an hour ago is how money goes to a thief; whoever is asked has to notice it.
"""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from issuer import row_history
from issuer.approving import recompute
from issuer.revisions import NO_REVISION
from issuer.row_history import WALK_MAX
from tests.support.approving import NO_APPROVERS
from tests.support.revised import activated, rewritten
from tests.support.vendors import FILE, ROWS, Vendors, opened_vendors, since_lines, table

CHANGED = {"acme": "DE66", "bolt": "DE02"}
OTHER_ROW = {"acme": "DE01", "bolt": "DE77"}
HOUR_AGO = "  ! changed 1 hour ago"


@pytest.fixture
def vendors(tmp_path: Path) -> Iterator[Vendors]:
    with opened_vendors(tmp_path / "f0") as opened:
        yield opened


def shown(at_ms: int) -> str:
    """Return an instant as a statement shows it where the owner's clock is at UTC."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)
    utc = f"{moment:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}Z"
    return f"{utc} ({moment:%Y-%m-%d %H:%M:%S} +00:00) UTC"


def first_ms(vendors: Vendors) -> int:
    """Return when the first revision was put in force."""
    return int(vendors.issuer._house.ledger.read(lambda view: view.span_at(3)).at_ms)  # type: ignore[union-attr]


@pytest.mark.spec("APP-02", "POL-07")
def test_a_changed_account_shows_its_activation_and_is_marked(vendors: Vendors) -> None:
    at = vendors.put(CHANGED)
    effect = vendors.after(1).ask()
    assert vendors.since(effect) == [shown(at), HOUR_AGO]
    machine = recompute(vendors.office.statement(effect))
    fact = machine["registries"]["vendor"]
    assert fact["row"] == {"id": "acme", "iban": "DE66"}
    assert fact["since"]["revision"] == machine["binding"]["revision"]


@pytest.mark.spec("APP-02")
@pytest.mark.parametrize("what", ["another_row", "policies"])
def test_what_changes_something_else_does_not_move_the_date(vendors: Vendors, what: str) -> None:
    at = vendors.put(CHANGED)
    for _again in range(2):
        if what == "policies":
            vendors.touch()
        else:
            vendors.put({**CHANGED, "bolt": f"DE{vendors.clock.now}"})
    assert vendors.since(vendors.ask()) == [shown(at), "  ! changed 2 hours ago"]


@pytest.mark.spec("APP-02")
def test_there_and_back_again_is_a_change(vendors: Vendors) -> None:
    vendors.put(CHANGED)
    back = vendors.put(ROWS)
    assert vendors.since(vendors.after(1).ask()) == [shown(back), HOUR_AGO]


@pytest.mark.spec("APP-02")
def test_a_vendor_that_is_new_is_a_change(vendors: Vendors) -> None:
    at = vendors.put({**ROWS, "corp": "DE03"})
    assert vendors.since(vendors.after(1).ask(vendor="corp")) == [shown(at), HOUR_AGO]


@pytest.mark.spec("APP-02")
def test_a_registry_of_another_name_or_with_another_column_is_a_change(vendors: Vendors) -> None:
    profile = vendors.office.made.profile
    rewritten(profile, profile.read_text().replace('fields = ["iban"]', 'fields = ["iban", "bank"]'))
    rewritten(profile.parent / FILE, "id,iban,bank\nacme,DE01,a\nbolt,DE02,b\n")
    vendors.after(1)
    activated(profile, clock=vendors.clock)
    at = vendors.clock.now
    assert vendors.since(vendors.after(1).ask()) == [shown(at), HOUR_AGO]


@pytest.mark.spec("APP-02")
def test_what_is_before_the_first_activation_nobody_can_say(vendors: Vendors) -> None:
    vendors.touch()
    began = first_ms(vendors)
    hours = (vendors.clock.now - began) // 3_600_000
    unit = "hour" if hours == 1 else "hours"
    assert vendors.since(vendors.ask()) == [
        f"{shown(began)}, or before",
        f"  ! known here for {hours} {unit}",
    ]


@pytest.mark.spec("APP-02", "LED-07")
def test_beyond_the_activations_that_are_looked_back_nobody_says_more(vendors: Vendors) -> None:
    at = vendors.put(CHANGED)
    for number in range(WALK_MAX - 1):
        vendors.touch(hours=0.01)
        if number == WALK_MAX - 3:
            last = vendors.ask("o-last")
            assert vendors.since(last)[0] == shown(at)
    again = vendors.touch(hours=0.01)
    del again
    first, mark = vendors.since(vendors.ask("o-beyond"))
    assert first.endswith(", or before")
    assert mark == "  ! known here for less than an hour"


@pytest.mark.spec("APP-02", "LED-06")
@pytest.mark.parametrize("how", ["gone", "edited"])
def test_without_the_copy_of_before_nobody_says_that_the_row_is_older(vendors: Vendors, how: str) -> None:
    """Whoever can write the folder of copies gains nothing: a fresh row is marked all the same."""
    before = vendors.issuer._house.revision
    at = vendors.put(CHANGED)
    row_history._digests.__init__(1)  # type: ignore[misc] - as a fresh process knows it
    folder = vendors.office.made.folder / "revisions" / before
    if not folder.is_dir():
        folder = next(vendors.office.made.folder.rglob(before))
    if how == "gone":
        shutil.rmtree(folder)
    else:
        (folder / "manifest").write_bytes(b"[]")
    effect = vendors.after(1).ask()
    assert vendors.since(effect) == [f"{shown(at)}, or before", "  ! known here for 1 hour"]


@pytest.mark.spec("APP-01", "APP-02")
def test_the_statement_is_the_same_after_later_activations(vendors: Vendors) -> None:
    vendors.put(CHANGED)
    effect = vendors.after(1).ask()
    statement = vendors.office.statement(effect)
    signature = vendors.office.signature("bob", statement)
    for _again in range(3):
        vendors.touch(hours=0.1)
        assert vendors.office.statement(effect) == statement
    assert vendors.issuer.approve(effect, signature).code == "permitted"


@pytest.mark.spec("APP-01", "APP-02")
def test_what_was_held_says_what_was_so_when_it_was_prepared(vendors: Vendors) -> None:
    at = vendors.put(CHANGED)
    payload = {"order": "o-1", "vendor": "acme", "amount": 900}
    held = vendors.after(0.05).issuer.request("refund", payload, task="t1", actor="agent-7", hold=True)
    assert held.effect is not None
    vendors.touch(hours=0.01)
    assert vendors.issuer.request_held(held.effect).code == "awaiting_approval"
    vendors.touch(hours=0.01)
    statement = vendors.office.statement(held.effect)
    assert since_lines(statement)[0] == shown(at)
    assert recompute(statement)["registries"]["vendor"]["since"]["revision"] != NO_REVISION


@pytest.mark.spec("APP-01", "APP-02", "LED-04")
def test_a_copy_that_is_gone_since_voids_what_was_said_of_it(vendors: Vendors) -> None:
    before = vendors.issuer._house.revision
    vendors.put(CHANGED)
    effect = vendors.after(1).ask()
    shutil.rmtree(next(vendors.office.made.folder.rglob(before)))
    row_history._digests.__init__(1)  # type: ignore[misc] - as a fresh process knows it
    assert vendors.issuer.statement(effect).code == "prepare_again"
    assert table(ROWS) != table(CHANGED)
    assert NO_APPROVERS
