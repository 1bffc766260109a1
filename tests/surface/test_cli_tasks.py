"""Tasks on the command line: what one names and has left of it, what stops it, and what is changed about it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.issuers import permitted
from tests.support.service import answer
from tests.support.shell import issuer_here
from tests.support.shops import Shop, opened_shop

OPENING = (
    *("--subject", "u-ana", "--actor", "agent-7", "--budget", "USD.cent=1000", "--expires", "8h"),
    *("--class", "refund=20", "--class", "release=3"),
)
NARROWER = (
    *("--parent", "org-2", "--budget", "USD.cent=inherit", "--class", "refund=inherit"),
    *("--operation", "refund=2", "--resource", "Order:a=b/c=1", "--resource", "Order:o-2=inherit"),
)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with opened_shop(tmp_path / "f0") as made:
        yield made


def lines_of(shop: Shop, *arguments: str) -> list[str]:
    """What a person reads, line by line."""
    ran = issuer_here(*arguments, at=shop.made.folder)
    assert (ran.exit, ran.err) == (0, "")
    return ran.out.splitlines()


@pytest.mark.spec("BUD-06", "SUR-01", "SUR-03")
def test_what_a_task_names_is_typed_in_pairs_and_shown_with_what_is_used_and_left(shop: Shop) -> None:
    opened = issuer_here("--json", "task", "open", "org-2", *OPENING, at=shop.made.folder)
    assert (opened.exit, opened.code) == (0, "opened")
    assert opened.answer["task"]["scope"] == {
        "class": {
            "refund": {"count": 20, "used": 0, "left": 20, "level": "org-2"},
            "release": {"count": 3, "used": 0, "left": 3, "level": "org-2"},
        },
        "operation": None,
        "resource": None,
    }
    assert issuer_here("task", "open", "narrow", *NARROWER, at=shop.made.folder).exit == 0
    permitted(shop.ask("narrow", order="a=b/c"))
    assert lines_of(shop, "task", "show", "narrow")[2:-1] == [
        "    USD.cent: ceiling inherit, settled 0.00 USD, held 0.00 USD",
        "    class refund: inherit, 19 left at org-2",
        "    operation refund: 1 of 2 used, 1 left at narrow",
        "    resource Order:a=b/c: 1 of 1 used, 0 left at narrow",
        "    resource Order:o-2: inherit",
    ]
    assert "    class refund: 1 of 20 used, 19 left at org-2" in lines_of(shop, "task", "show", "org-2")
    # A list is for looking over: there the names would hide the tasks.
    assert not [line for line in lines_of(shop, "task", "list") if "left at" in line]
    listed = issuer_here("--json", "task", "list", at=shop.made.folder).answer["tasks"]
    assert {row["name"]: row["scope"]["class"]["refund"]["left"] for row in listed}["narrow"] == 19


@pytest.mark.spec("BUD-05", "SUR-01", "SUR-03")
def test_a_frozen_tree_is_shown_as_stopped_at_every_level_below_and_thawed(shop: Shop) -> None:
    frozen = lines_of(shop, "task", "freeze", "org")
    assert frozen[0].startswith("frozen  (")
    assert frozen[1].startswith("  org: frozen, for u-ana")
    assert frozen[-1] == "The task is frozen: it admits nothing until it is thawed."
    shown = lines_of(shop, "task", "list")
    assert [line.partition(", for ")[0].strip() for line in shown if ", for " in line] == [
        "org: frozen",
        "t1 below org: open, but org is frozen",
        "t1.a below t1: open, but org is frozen",
        "t1.b below t1: open, but org is frozen",
    ]
    ran = issuer_here("--json", "task", "show", "t1", at=shop.made.folder)
    assert ran.answer["task"]["stopped"] == {"code": "task_frozen", "level": "org"}
    no = shop.ask("t1")
    assert (no.code, int(no.exit), no.next) == ("task_frozen", 7, "tell_a_person")
    again = issuer_here("--json", "task", "freeze", "org", at=shop.made.folder)
    assert (again.exit, again.code, again.answer["next"]) == (7, "nothing_to_change", "stop")
    assert lines_of(shop, "task", "thaw", "org")[0].startswith("thawed  (")
    assert issuer_here("--json", "task", "show", "t1", at=shop.made.folder).answer["task"]["stopped"] is None
    assert shop.ask("t1").code == "permitted"


@pytest.mark.spec("BUD-03", "SUR-01", "SUR-03")
def test_a_lowered_ceiling_and_an_overrun_are_shown_where_they_block_and_end_by_what_is_said(
    shop: Shop,
) -> None:
    assert shop.send(permitted(shop.ask("t1.a", amount=300)), answer(201)) == "succeeded"
    lowered = lines_of(shop, "task", "lower", "t1", "--budget", "USD.cent=100")
    line = "    USD.cent: ceiling 1.00 USD, settled 3.00 USD, held 0.00 USD, above the ceiling by 2.00 USD: blocked"
    assert lowered[2] == line
    assert lowered[-1] == "The ceiling is lowered; where more is used already, it blocks."
    assert shop.ask("t1.a").more["level"] == "t1"
    assert issuer_here("task", "grant", "t1", "--budget", "USD.cent=900", at=shop.made.folder).exit == 0
    shop.overrun("t1")
    shown = lines_of(shop, "task", "show", "org")
    assert shown[2].endswith("settled 3.01 USD, held 0.00 USD, overrun 0.30 USD: blocked")
    accepted = lines_of(shop, "task", "accept-overrun", "t1", "--unit", "USD.cent")
    assert accepted[-1] == (
        "The overrun at t1 counts as spent. Still blocked: "
        "org (30 USD.cent overrun): `issuer task accept-overrun org --unit USD.cent`."
    )
    assert not [line for line in accepted if "blocked:" in line and line.startswith("  blocked")]
    ran = issuer_here("--json", "task", "accept-overrun", "org", at=shop.made.folder)
    assert (ran.exit, ran.code, ran.answer["blocked"]) == (0, "accepted", [])
    assert ran.answer["say"] == "The overrun at org counts as spent."
    assert shop.ask("t1").code == "permitted"
