"""`check` recomputes everything: each edit of a ledger by somebody without keys is named, with its place (LED-06).

The attacks run on copies of one real issuer with a busy history, every trigger dropped and put back.
"""

import json
import re
import sys
import tracemalloc
from pathlib import Path

import pytest

from audit.comparison import span_holds
from issuer.clock import monotonic_ms
from issuer.flow.binding import binding_digest
from issuer.flow.seal import seal_holds
from issuer.sealing import open_key_ring
from ledger.errors import LedgerUnavailable
from ledger.sqlite.check import CheckReport, check_ledger
from ledger.sqlite.check_ground import FINDINGS_MAX
from ledger.sqlite.schema import schema_statements
from ledger.states import EffectState
from tests.support.busy import STATES, Busy, busy_issuer
from tests.support.editing import Edit, assert_named
from tests.support.full_ledger import full_ledger
from tests.support.ledger_children import ended, go, started
from tests.support.ledger_edits import EDITS
from tests.support.ledger_edits_four import EDITS_FOUR
from tests.support.ledger_edits_spans import EDITS_OF_SPANS
from tests.support.ledger_edits_three import EDITS_THREE
from tests.support.ledger_edits_two import EDITS_TWO
from tests.support.ledger_stages import stages
from tests.support.ledgers import CENT, Book, attacker, made_book, open_task, without_guards


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Busy:
    return busy_issuer(tmp_path_factory.mktemp("busy") / "f0")


@pytest.fixture
def busy(kept: Busy, tmp_path: Path) -> Busy:
    return kept.copied(tmp_path / "f0")


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return made_book(tmp_path / "book")


def count(busy: Busy, sql: str) -> int:
    raw = attacker(busy.places.ledger)
    try:
        return int(raw.execute(sql).fetchone()[0])
    finally:
        raw.close()


@pytest.mark.spec("LED-04", "LED-05", "REP-07")
def test_a_healthy_ledger_after_a_busy_history_has_no_finding(busy: Busy) -> None:
    report = busy.check()
    assert (report.findings, report.cut) == ((), False)
    # What was looked at is all there is, and all that can have been.
    assert report.effects == count(busy, "SELECT count(*) FROM effects")
    assert report.spans == count(busy, "SELECT max(sequence) FROM spans")
    assert report.tasks == count(busy, "SELECT count(*) FROM tasks") == 6
    raw = attacker(busy.places.ledger)
    assert {state for (state,) in raw.execute("SELECT DISTINCT state FROM effects")} == STATES
    assert raw.execute("SELECT count(*) FROM budgets WHERE overrun > 0").fetchone() == (2,)
    assert raw.execute("SELECT count(*) FROM evidence WHERE late = 1").fetchone() == (1,)
    raw.close()


@pytest.mark.spec("LED-06", "LED-05", "REP-07")
@pytest.mark.parametrize("edit", EDITS, ids=[edit.name for edit in EDITS])
def test_an_edit_without_the_keys_is_named_with_its_place(busy: Busy, edit: Edit) -> None:
    assert_named(busy, edit)


@pytest.mark.spec("AUD-06", "LED-06")
@pytest.mark.parametrize("edit", EDITS_OF_SPANS, ids=[edit.name for edit in EDITS_OF_SPANS])
def test_an_edit_of_what_a_span_is_found_by_is_named_with_its_place(busy: Busy, edit: Edit) -> None:
    assert_named(busy, edit)


def _objects() -> list[tuple[str, str, str]]:
    statements = re.findall(r"^CREATE (TABLE) (\w+)(.*)", schema_statements(), re.MULTILINE)
    return [(kind.lower(), name, rest) for kind, name, rest in statements]


@pytest.mark.spec("LED-06")
def test_each_kind_of_row_is_edited() -> None:
    every = (*EDITS, *EDITS_TWO, *EDITS_THREE, *EDITS_FOUR, *EDITS_OF_SPANS)
    text = json.dumps([edit.statements for edit in every])
    tables = {name for kind, name, _sql in _objects() if kind == "table"}
    assert len(tables) == 33
    words = ("UPDATE ", "DELETE FROM ", "INSERT INTO ")
    assert {table for table in tables if not any(word + table in text for word in words)} == set()


@pytest.mark.spec("LED-04")
def test_a_dropped_guard_is_found(busy: Busy) -> None:
    raw = attacker(busy.places.ledger)
    raw.execute("DROP TRIGGER effects_move")
    raw.close()
    assert [row.what for row in busy.check().findings] == ["schema"]


@pytest.mark.spec("LED-04", "REP-07")
@pytest.mark.parametrize(
    ("at", "what"),
    [
        (0, "malformed"),
        (68, "not_a_ledger"),
        (5 * 4096, "malformed"),
        (20 * 4096, "malformed"),
    ],
)
def test_a_damaged_file_is_a_finding_and_not_a_crash(busy: Busy, at: int, what: str) -> None:
    with busy.places.ledger.open("r+b") as file:
        file.seek(at)
        file.write(b"\xff" * (4 if at < 4096 else 4096))
    assert what in {row.what for row in busy.check().findings}


@pytest.mark.spec("LED-04")
def test_a_cut_file_is_a_finding(busy: Busy) -> None:
    size = busy.places.ledger.stat().st_size
    with busy.places.ledger.open("r+b") as file:
        file.truncate(size // 2)
    assert "malformed" in {row.what for row in busy.check().findings}


def test_a_missing_ledger_is_no_finding_since_nothing_was_checked(busy: Busy) -> None:
    busy.places.ledger.unlink()
    with pytest.raises(LedgerUnavailable) as refused:
        busy.check()
    assert refused.value.reason == "missing"


@pytest.mark.spec("LED-04")
def test_a_check_writes_nothing(busy: Busy) -> None:
    folder = busy.places.ledger_folder
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    busy.check()
    after = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    # SQLite's own index of an empty log may come and go; the file itself stays to the byte.
    assert {name: text for name, text in after.items() if not name.endswith(("-shm", "-wal"))} == before
    assert all(not text for name, text in after.items() if name.endswith("-wal"))


def test_the_findings_of_a_wreck_are_bounded_and_said_to_be_more(busy: Busy) -> None:
    busy.attack(
        "UPDATE spans SET leaf = zeroblob(32), span_id = 'x' || sequence, lane = 1, at_ms = -sequence"
    )
    report = busy.check()
    assert len(report.findings) == FINDINGS_MAX
    # The file lost its own history, and the sink that still has it is named among the first hundred.
    assert report.findings[-1].what == "behind_sink"
    assert report.cut


@pytest.mark.spec("LED-05")
def test_one_effect_in_each_of_the_thirteen_states_has_no_finding(book: Book) -> None:
    ledger = book.open()
    made = stages(ledger)
    ledger.close()
    assert len(made.effects) == len(EffectState)
    assert check_ledger(book.path, keys=book.keys, stopwatch_ms=monotonic_ms).findings == ()


@pytest.mark.spec("LED-05", "LED-06")
@pytest.mark.parametrize("state", list(EffectState))
def test_each_state_that_is_edited_into_another_is_named(book: Book, state: EffectState) -> None:
    ledger = book.open()
    made = stages(ledger)
    ledger.close()
    effect = made.effects[state].effect_id
    other = EffectState.UNKNOWN if state is not EffectState.UNKNOWN else EffectState.SUCCEEDED
    without_guards(book.path, f"UPDATE effects SET state = '{other}' WHERE effect_id = '{effect}'")  # noqa: S608
    found = check_ledger(book.path, keys=book.keys, stopwatch_ms=monotonic_ms).findings
    assert ("effect_state", f"effects {effect}") in {(row.what, row.where) for row in found}


@pytest.mark.spec("LED-05", "LED-06")
def test_a_check_beside_writers_sees_one_moment_and_nothing_wrong(book: Book) -> None:
    """Two other processes admit as fast as they can; each check is of one snapshot, or it would find halves."""
    ledger = book.open()
    open_task(ledger, "org", {CENT: 10**6}, expires_ms=4_000_000_000_000)
    ledger.close()
    children = [started("admits", book.folder, name, "60") for name in ("one", "two")]
    go(children)
    seen = []
    while any(child.poll() is None for child in children):
        report = check_ledger(book.path, keys=book.keys, stopwatch_ms=monotonic_ms)
        assert report.findings == ()
        seen.append(report.effects)
    for child in children:
        code, said = ended(child)
        assert code == 0, said
    # The checks were beside the writers, and not only before or after them.
    assert len({effects for effects in seen if 0 < effects < 120}) > 1
    assert seen == sorted(seen)


def check_whole(book: Book) -> CheckReport:
    """Check a ledger with all that the issuer's rooms can prove."""
    ring = open_key_ring(book.folder / "keys")
    return check_ledger(
        book.path,
        keys=book.keys,
        stopwatch_ms=monotonic_ms,
        binding_digest=binding_digest,
        open_seal=lambda ledger_id, effect, permit: seal_holds(ring, ledger_id, effect, permit),
        span_holds=span_holds,
    )


@pytest.mark.spec("LED-02", "LED-06")
@pytest.mark.parametrize("effects", [200, pytest.param(10_000, marks=pytest.mark.soak)])
def test_a_full_ledger_is_checked_whole_in_bounded_memory(tmp_path: Path, effects: int) -> None:
    """Ten thousand effects are the default's bound; no number of seconds is asserted, it is told (`-s`)."""
    book = full_ledger(tmp_path / "book", effects=effects)
    tracemalloc.start()
    report = check_whole(book)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (report.findings, report.effects, report.spans) == ((), effects, effects * 4 + 10)
    # A few small values per effect, and nothing that grows with the size of what is stored.
    assert peak < 4 * 1024 * 1024 + effects * 3 * 1024
    timed = check_whole(book)
    size = book.path.stat().st_size // 1024
    sys.stdout.write(
        f"\n{effects} effects, {timed.spans} spans, {size} KiB: {timed.seconds:.2f} s, peak {peak} B\n"
    )
