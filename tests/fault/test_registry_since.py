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
from issuer.revised import in_force
from issuer.row_history import WALK_MAX
from tests.support.revised import activated, rewritten
from tests.support.vendors import FILE, ROWS, Vendors, opened_vendors

CHANGED = {"acme": "DE66", "bolt": "DE02"}
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


def forget_all() -> None:
    """Remember as little as a process that has just begun."""
    for remembered in (row_history._digests, row_history._declared, row_history._tables):
        remembered._held.clear()


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
def test_a_row_with_another_column_is_a_change(vendors: Vendors) -> None:
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
    second = vendors.touch(hours=0.01)
    for _again in range(WALK_MAX - 3):
        vendors.touch(hours=0.01)
    assert vendors.since(vendors.ask("o-1"))[0] == shown(at)
    vendors.touch(hours=0.01)
    assert vendors.since(vendors.ask("o-2"))[0] == f"{shown(at)}, or before"
    vendors.touch(hours=0.01)
    assert vendors.since(vendors.ask("o-3"))[0] == f"{shown(second)}, or before"


@pytest.mark.spec("APP-02", "LED-06")
@pytest.mark.parametrize("how", ["gone", "edited"])
def test_without_the_copy_of_before_nobody_says_that_the_row_is_older(vendors: Vendors, how: str) -> None:
    """Whoever can write the folder of copies gains nothing: a fresh row is marked all the same."""
    before = vendors.issuer._house.revision
    at = vendors.put(CHANGED)
    forget_all()
    folder = vendors.issuer._house.places.revisions / before
    shutil.rmtree(folder)
    if how == "edited":  # so that the new account seems to have been there before
        shutil.copytree(folder.with_name(vendors.issuer._house.ledger.read(in_force) or ""), folder)
    effect = vendors.after(1).ask()
    assert vendors.since(effect) == [f"{shown(at)}, or before", "  ! known here for 1 hour"]


@pytest.mark.spec("APP-01", "APP-02")
def test_the_statement_is_the_same_after_later_activations(vendors: Vendors) -> None:
    vendors.put(CHANGED)
    effect = vendors.after(1).ask()
    statement = vendors.office.statement(effect)
    signature = vendors.office.signature("bob", statement)
    for hours in (0, 0, 0.1):  # also in the very millisecond in which it was prepared
        vendors.touch(hours=hours)
        assert vendors.office.statement(effect) == statement
    assert vendors.issuer.approve(effect, signature).code == "permitted"


@pytest.mark.spec("APP-01", "APP-02")
def test_what_was_held_says_what_was_so_when_it_was_prepared(vendors: Vendors) -> None:
    at = vendors.put(CHANGED)
    held = vendors.after(0.05).hold()
    vendors.touch(hours=0)
    assert vendors.issuer.request_held(held).code == "awaiting_approval"
    vendors.touch(hours=0.01)
    assert vendors.since(held)[0] == shown(at)


@pytest.mark.spec("APP-01", "APP-02", "LED-04")
def test_a_copy_that_is_gone_since_voids_what_was_said_of_it(vendors: Vendors) -> None:
    before = vendors.issuer._house.revision
    vendors.put(CHANGED)
    effect = vendors.after(1).ask()
    shutil.rmtree(vendors.issuer._house.places.revisions / before)
    forget_all()
    assert vendors.issuer.statement(effect).code == "prepare_again"


@pytest.mark.spec("APP-02", "LED-07")
@pytest.mark.parametrize("held", [False, True])
def test_no_copy_is_read_while_others_wait_for_the_lock(tmp_path: Path, held: bool) -> None:
    """All copies are away as long as the lock is held; what was read before it is enough."""
    steps: list[str] = []
    copies: list[Path] = []

    def observe(step: str) -> None:
        if copies and step == "locked":
            copies[0].rename(copies[0].with_name("away"))
            steps.append(step)
        elif copies and step == "before_commit":
            copies[0].with_name("away").rename(copies[0])
            steps.append(step)

    with opened_vendors(tmp_path / "f0", observe=observe) as vendors:
        at = vendors.put(CHANGED)
        effect = vendors.hold() if held else None
        forget_all()
        copies.append(vendors.issuer._house.places.revisions)
        if effect is None:
            effect = vendors.ask()
        else:
            assert vendors.issuer.request_held(effect).code == "awaiting_approval"
        copies.clear()
        assert steps == ["locked", "before_commit"]
        assert vendors.since(effect)[0] == shown(at)
