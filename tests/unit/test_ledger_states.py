"""The table of states: complete, and the same in code, at the port and in the database, for all 169 moves."""

import re
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest

from ledger.errors import Broken
from ledger.sqlite.connection import IntegrityError
from ledger.states import LEGAL_MOVES, PENDING, SLOT_RETURNING, UNRESOLVED, EffectState, is_legal
from tests.support.ledger_stages import (
    WAYS,
    Stages,
    add_reservations,
    add_use,
    current,
    effect_in,
    move,
    raw_move,
    stages,
)
from tests.support.ledgers import Book, attacker, made_book

S = EffectState

# Written out once more by hand from the contract, so that a changed table is a failed test and not a new truth.
TABLE = """
prepared           > awaiting_approval permitted denied withdrawn expired revoked
awaiting_approval  > permitted denied declined withdrawn expired revoked
permitted          > admitted withdrawn expired revoked
admitted           > succeeded failed no_effect unknown
unknown            > succeeded failed no_effect
denied             >
declined           >
withdrawn          >
expired            >
revoked            >
succeeded          >
failed             >
no_effect          >
"""
LEGAL = {
    (EffectState(origin), EffectState(target))
    for row in TABLE.strip().splitlines()
    for origin, targets in [map(str.strip, row.split(">"))]
    for target in targets.split()
}
# What only a restore does, at a span that says so: the sink told that it had been admitted (LED-08).
RESTORED = {(origin, EffectState.UNKNOWN) for origin in PENDING}
MOVES = sorted(product(EffectState, EffectState))


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return made_book(tmp_path / "book")


@pytest.fixture
def made(book: Book) -> Stages:
    ledger = book.open()
    made = stages(ledger)
    ledger.close()
    return made


@pytest.mark.spec("LED-05")
def test_the_table_of_the_code_is_the_table_of_the_contract() -> None:
    assert set(LEGAL_MOVES) == set(EffectState)
    assert len(EffectState) == 13
    assert {move for move in MOVES if is_legal(*move)} == LEGAL | RESTORED
    assert len(LEGAL) == 23
    assert len(RESTORED) == 3


@pytest.mark.spec("LED-05", "BUD-04")
def test_the_sets_of_states_follow_from_the_table() -> None:
    reachable = {target for _origin, target in LEGAL} | {S.PREPARED}
    assert reachable == set(EffectState)
    after = {S.ADMITTED, S.UNKNOWN, S.SUCCEEDED, S.FAILED, S.NO_EFFECT}
    # Nothing leads back from what may have been sent to what was not.
    assert all(target in after for origin, target in LEGAL if origin in after)
    assert all(origin is S.PERMITTED for origin, target in LEGAL if target is S.ADMITTED)
    assert {S.ADMITTED, S.UNKNOWN} == UNRESOLVED
    assert {S.PREPARED, S.AWAITING_APPROVAL, S.PERMITTED} == PENDING
    ends = {origin for origin in EffectState if not LEGAL_MOVES[origin]}
    assert ends | UNRESOLVED | PENDING == set(EffectState)
    assert ends >= SLOT_RETURNING
    assert SLOT_RETURNING.isdisjoint({S.SUCCEEDED, S.FAILED})


@pytest.mark.spec("LED-05")
def test_by_the_port_an_effect_makes_exactly_the_legal_moves(book: Book) -> None:
    ledger = book.open()
    made = stages(ledger)
    for origin, target in MOVES:
        effect = effect_in(ledger, made.leaf, origin) if (origin, target) in LEGAL else made.effects[origin]
        head = ledger.read(lambda view: view.head())
        if (origin, target) in LEGAL:
            move(ledger, effect, target)
            assert current(ledger, effect).state is target
        else:
            stopped = "guard:unknown_before_admission" if (origin, target) in RESTORED else None
            with pytest.raises(Broken, match=stopped or f"from {origin} to {target}"):
                move(ledger, effect, target)
            assert current(ledger, effect) == effect
            assert ledger.read(lambda view: view.head()) == head
    ledger.close()


@pytest.mark.spec("LED-05")
def test_by_raw_sql_an_effect_makes_exactly_the_legal_moves(book: Book, made: Stages) -> None:
    raw = attacker(book.path)
    moved, stopped_by = set(), {}
    for origin, target in MOVES:
        raw.execute("BEGIN")
        try:
            raw_move(raw, made.effects[origin], target)
            moved.add((origin, target))
        except IntegrityError as fault:
            stopped_by[origin, target] = str(fault)
        raw.execute("ROLLBACK")
    raw.close()
    assert moved == LEGAL
    assert {move for move, by in stopped_by.items() if by == "guard:unknown_before_admission"} == RESTORED
    assert set(stopped_by.values()) == {"guard:illegal_move", "guard:unknown_before_admission"}


@pytest.mark.spec("LED-05", "LED-08")
def test_only_at_the_span_of_a_restore_a_pending_effect_becomes_unknown(book: Book, made: Stages) -> None:
    raw = attacker(book.path)
    moved = set()
    for origin, target in MOVES:
        raw.execute("BEGIN")
        with suppress(IntegrityError):
            raw_move(raw, made.effects[origin], target, name="effect.replayed")
            moved.add((origin, target))
        raw.execute("ROLLBACK")
    assert moved == LEGAL | RESTORED
    for origin, part in product(PENDING, (add_use, add_reservations)):
        raw.execute("BEGIN")
        with pytest.raises(IntegrityError, match=r"guard:unknown_before_admission|FOREIGN KEY"):
            raw_move(raw, made.effects[origin], S.UNKNOWN, name="effect.replayed", without=(part,))
        raw.execute("ROLLBACK")
    raw.close()


@pytest.mark.spec("LED-05")
def test_the_database_knows_no_other_state(book: Book, made: Stages) -> None:
    raw = attacker(book.path)
    for word in ("", "sent", "PERMITTED", "permitted "):
        with pytest.raises(IntegrityError, match=r"guard:illegal_move|CHECK constraint failed"):
            raw.execute("UPDATE effects SET state = ?, sequence = sequence + 100", (word,))
    sql = raw.execute("SELECT sql FROM sqlite_schema WHERE name = 'effects'").fetchone()[0]
    checked = re.search(r"CHECK \(state IN \(([^)]*)\)\)", sql)
    assert checked is not None
    assert set(re.findall(r"'([a-z_]+)'", checked[1])) == {str(state) for state in EffectState}
    raw.close()


def test_the_ways_of_these_tests_reach_every_state() -> None:
    assert set(WAYS) == set(EffectState)
    assert all((way[-1] if way else S.PREPARED) is state for state, way in WAYS.items())
