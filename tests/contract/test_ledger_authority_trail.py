"""The changes of authority are a question of their own: in the order of the trail, page by page, and of one kind."""

import pytest

from ledger.authority import CHANGES_OF_AUTHORITY, RulingKind, Stop
from ledger.errors import Broken
from ledger.port import Ledger, View
from ledger.transitions import SpanRow, TransitionName
from tests.support.ledger_authority import rule
from tests.support.ledgers import CENT, open_task, prepare, probe


def busy(ledger: Ledger) -> None:
    """Mix what changes authority with what does not."""
    task = open_task(ledger, "org", {CENT: 1_000})
    for number in range(4):
        probe(ledger)
        rule(ledger, RulingKind.REVISION, "active", f"{number:064x}")
        prepare(ledger, task, {CENT: 1})
        rule(ledger, RulingKind.STOP, "all", Stop.FROZEN if number % 2 else Stop.OPEN)


def whole(ledger: Ledger) -> list[SpanRow]:
    """Return every change of authority, as the whole trail tells them."""
    spans = ledger.read(lambda view: view.spans_after(0, limit=1_000))
    return [row for row in spans if row.name in CHANGES_OF_AUTHORITY]


def paged(view: View, name: TransitionName | None, limit: int) -> list[SpanRow]:
    rows: list[SpanRow] = []
    while page := view.changes(rows[-1].position.sequence if rows else 0, limit=limit, name=name):
        assert len(page) <= limit
        rows += page
    return rows


@pytest.mark.spec("AUD-09", "LED-07")
@pytest.mark.parametrize("limit", [1, 2, 3, 100])
@pytest.mark.parametrize("name", [None, TransitionName.REVISION_ACTIVATED, TransitionName.STOP_FROZEN])
def test_changes_of_authority_are_read_in_order_page_by_page(
    ledger: Ledger, name: TransitionName | None, limit: int
) -> None:
    busy(ledger)
    told = [row for row in whole(ledger) if name in {None, row.name}]
    assert len(told) >= 2
    assert ledger.read(lambda view: paged(view, name, limit)) == told


@pytest.mark.spec("AUD-09")
def test_the_latest_changes_of_a_kind_before_a_place_come_first(ledger: Ledger) -> None:
    busy(ledger)
    told = [row for row in whole(ledger) if row.name == TransitionName.REVISION_ACTIVATED]
    last = told[-1].position.sequence

    def before(sequence: int, limit: int) -> list[SpanRow]:
        name = TransitionName.REVISION_ACTIVATED
        return list(ledger.read(lambda view: view.changes_before(sequence, limit=limit, name=name)))

    assert before(last, 2) == [told[-2], told[-3]]
    assert before(last + 1, 100) == told[::-1]
    assert before(1, 100) == []


@pytest.mark.spec("LED-07")
def test_what_is_no_change_of_authority_has_no_index_and_is_not_asked_for(ledger: Ledger) -> None:
    for ask in (
        lambda view: view.changes(0, limit=1, name=TransitionName.PROBE),
        lambda view: view.changes_before(9, limit=1, name=TransitionName.PROBE),
    ):
        with pytest.raises(Broken):
            ledger.read(ask)
