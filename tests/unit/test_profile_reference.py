"""The reference page of the profile is what the models say, and says all of it."""

from pathlib import Path

from issuer.profile.findings import FindingCode
from issuer.profile.models import Document
from issuer.profile.reference import reference_page
from issuer.profile.shapes import keys_of, table_in
from issuer.profile.unserved import UNSERVED

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "profile.md"


def test_the_committed_page_is_the_generated_one() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference_page(), "run: python -m issuer.profile.reference"


def test_every_key_of_every_table_has_a_line() -> None:
    page = reference_page()
    tables = [
        (), ("audit",), ("audit", "sink", "x"), ("person", "x"), ("actor", "x"), ("host", "x"),
        ("registry", "x"),
        ("class", "x"), ("class", "x", "per_task"), ("operation", "x"), ("operation", "x", "resource"),
        ("operation", "x", "payload", "x"), ("operation", "x", "http"), ("operation", "x", "proves"),
        ("operation", "x", "host"), ("operation", "x", "file"), ("operation", "x", "inspect"),
        ("operation", "x", "before"), ("audit", "checkpoint"),
    ]  # fmt: skip
    for path in tables:
        keys = keys_of(table_in(Document, path))
        assert keys, path
        for key in keys:
            assert f"| `{key}` |" in page, (path, key)


def test_what_is_not_served_yet_is_on_the_page() -> None:
    page = reference_page()
    for entry in UNSERVED:
        assert f"| `{entry.pattern}` | {entry.sentence} |" in page


def test_the_findings_shown_are_real_ones() -> None:
    page = reference_page()
    shown = [line for line in page.splitlines() if line.startswith("profile.toml:")]
    assert len(shown) >= 6
    for line in shown:
        assert FindingCode(line.rpartition("[")[2].rstrip("]"))
