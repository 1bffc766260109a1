"""The rows of a whole trail, read for whoever verifies them: columns and policies with each body (AUD-04, AUD-06)."""
# ruff: noqa: S608 - tables and columns come from this file

from pathlib import Path

import pytest

from audit.trail_rows import verify_rows
from audit.verification import TrailReport
from ledger.sqlite.span_stream import open_span_stream
from tests.support.ledgers import Book, without_guards
from tests.support.long_trail import long_trail

SPANS = 600


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return long_trail(tmp_path / "book", spans=SPANS)


def verified(book: Book) -> TrailReport:
    with open_span_stream(book.path) as stream:
        assert stream.count == SPANS
        return verify_rows(stream.batches, stream.ledger_id, ())


@pytest.mark.spec("AUD-04", "AUD-06")
def test_a_whole_trail_verifies_with_its_columns_and_policies(book: Book) -> None:
    report = verified(book)
    assert report.finding is None
    assert report.size == SPANS


FOUND = "(SELECT max(sequence) FROM span_policies)"
EDITS = [
    f"UPDATE spans SET actor = 'u-eve' WHERE sequence = {FOUND}",
    f"UPDATE spans SET signer = 'u-eve' WHERE sequence = {FOUND}",
    f"DELETE FROM span_policies WHERE sequence = {FOUND}",
    f"INSERT INTO span_policies VALUES ('zz', {FOUND})",
    f"UPDATE span_policies SET policy = 'zz' WHERE sequence = {FOUND}",
]


@pytest.mark.spec("AUD-04", "AUD-06")
@pytest.mark.parametrize("edit", EDITS)
def test_a_column_or_policy_that_is_not_the_bodys_is_found(book: Book, edit: str) -> None:
    without_guards(book.path, edit)
    finding = verified(book).finding
    assert finding is not None
    assert finding.what == "body"


@pytest.mark.spec("AUD-04", "AUD-06")
@pytest.mark.parametrize("sequence", [0, SPANS + 1])
def test_a_policy_of_a_span_that_is_not_there_is_found_at_the_end(book: Book, sequence: int) -> None:
    without_guards(book.path, f"INSERT INTO span_policies VALUES ('zz', {sequence})")
    finding = verified(book).finding
    assert finding is not None
    assert (finding.what, finding.says) == (
        "unreadable",
        "A row names a policy of a span that is not there.",
    )
