"""The documents stay true: every path they name exists, every link leads somewhere."""

import re
from pathlib import Path

import pytest

from policies import Attribute, Catalogue, ResourceType, cedar_schema
from policies.lint import ANNOTATIONS
from policies.schema import CLOCK_FIELDS, EARLIER_FIELDS, LIMITS_FIELDS, USAGE_FIELDS

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
PATH = re.compile(r"`((?:issuer|policies|audit|ledger|tests)/[A-Za-z0-9_/]+(?:\.py)?/?)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_and_every_path_of_a_page_leads_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = [link for link in LINK.findall(text) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []
    assert [path for path in PATH.findall(text) if not (ROOT / path).exists()] == []


def test_the_page_of_the_flow_names_every_step() -> None:
    flow = (ROOT / "docs" / "flow.md").read_text(encoding="utf-8")
    steps = ["prepare", "decide", "issue", "admit", "dispatch", "settle", "reconcile"]
    assert [step for step in steps if f"`issuer/flow/{step}.py`" not in flow and step not in flow] == []


def test_the_page_of_the_policies_names_every_fact_and_annotation_and_no_other() -> None:
    page = (ROOT / "docs" / "reference" / "policies.md").read_text(encoding="utf-8")
    facts = [*EARLIER_FIELDS, *USAGE_FIELDS, *LIMITS_FIELDS, *CLOCK_FIELDS]
    assert [fact for fact in facts if fact not in page] == []
    assert set(re.findall(r"`@([a-z]+)\(", page)) == set(ANNOTATIONS)
    note = ResourceType(name="Note", attributes=(Attribute(name="text", kind="string", said=True),))
    schema = cedar_schema(Catalogue(classes=("c",), operations=("o",), units=("u",), resource_types=(note,)))
    named = {name for name in re.findall(r"context\.([a-z]+)", page) if f'"{name}"' not in schema}
    assert named == set()
