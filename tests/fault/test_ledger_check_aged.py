"""`check` over what an owner, a restore and a collection leave behind: all of it recomputed, each edit named (LED-06).

As `test_ledger_check` over effects, on copies of one real issuer with a long history.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from issuer.clock import monotonic_ms
from issuer.sealing.authenticator import RingAuthenticator
from ledger.model import Scope, Task
from ledger.sqlite import rows
from ledger.sqlite.check import check_ledger
from ledger.states import EffectState
from tests.support.aged import aged_issuer
from tests.support.busy import Busy
from tests.support.collecting import WINDOW_MS, asked, collect
from tests.support.editing import Edit, assert_named
from tests.support.ledger_edits_two import EDITS_TWO
from tests.support.ledger_stages import effect_in
from tests.support.ledgers import CENT, START, attacker, made_book, without_guards
from tests.support.ledgers import open_task as open_bare_task
from tests.support.recount import recounted


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Busy:
    return aged_issuer(tmp_path_factory.mktemp("aged") / "f0")


@pytest.fixture
def aged(kept: Busy, tmp_path: Path) -> Busy:
    return kept.copied(tmp_path / "f0")


@pytest.mark.spec("LED-04", "LED-05", "REP-07")
def test_a_healthy_ledger_with_a_long_history_has_no_finding(aged: Busy) -> None:
    report = aged.check()
    assert (report.findings, report.cut) == ((), False)
    recounted(aged.places.ledger)
    raw = attacker(aged.places.ledger)
    # Each kind of row is there that only such a history has.
    for there in (
        "budgets WHERE above > 0",
        "budgets WHERE overrun > 0",
        "overruns_accepted",
        "grants WHERE kind = 'add'",
        "tasks WHERE state = 'frozen'",
        "effects WHERE replayed = 1",
        "collected_spend WHERE overrun > 0",
        "collected_takes WHERE counter LIKE 'slot|%'",
        "tombstones WHERE permit_id IS NULL",
        "tombstones WHERE state = 'revoked'",
        "spans WHERE epoch = 2",
        "spans WHERE name = 'ledger.clock_accepted'",
    ):
        assert raw.execute(f"SELECT count(*) FROM {there}").fetchone()[0] > 0, there  # noqa: S608 - of this list
    # A tombstone was forgotten: the trail collected one more effect than there are tombstones.
    told = raw.execute("SELECT body FROM spans WHERE name = 'ledger.collected' ORDER BY sequence").fetchall()
    said = [json.loads(body)["attributes"] for (body,) in told]
    stones = raw.execute("SELECT count(*) FROM tombstones").fetchone()[0]
    raw.close()
    assert sum(each["permit.count"] for each in said) == stones + 1
    assert sum(each["permit.forgotten"] for each in said) == 1


@pytest.mark.spec("LED-06", "LED-05", "LED-08", "PER-04", "BUD-03", "BUD-06")
@pytest.mark.parametrize("edit", EDITS_TWO, ids=[edit.name for edit in EDITS_TWO])
def test_an_edit_of_a_long_history_is_named_with_its_place(aged: Busy, edit: Edit) -> None:
    assert_named(aged, edit)


def wider(task: Task) -> Task:
    return replace(task, scope=Scope(classes=MappingProxyType({"refund": 1_000_000, "other": 1})))


@pytest.mark.spec("BUD-01", "BUD-06")
@pytest.mark.parametrize(
    ("change", "what"),
    [
        (wider, {"task_wider", "task_differs"}),
        (lambda task: replace(task, subject="u-bob"), {"task_differs"}),
        (lambda task: replace(task, actors=("agent-8",)), {"task_differs"}),
        (lambda task: replace(task, expires_ms=task.expires_ms + 1), {"task_differs"}),
        (lambda task: replace(task, ceilings={**task.ceilings, "USD.cent": 9_999}), {"task_ceilings"}),
    ],
    ids=["scope", "subject", "actors", "expiry", "ceilings"],
)
def test_a_task_that_our_own_keys_signed_is_still_held_against_its_trail(
    aged: Busy, change: Callable[[Task], Task], what: set[str]
) -> None:
    """A MAC proves who wrote a row, and not that it was right to."""
    raw = attacker(aged.places.ledger)
    (row,) = raw.execute(f"SELECT {rows.TASK_COLUMNS}, sequence FROM tasks WHERE name = 'cap.b'").fetchall()  # noqa: S608
    raw.close()
    changed = change(rows.task_from(row))
    mac = RingAuthenticator(aged.ring).tag("row", rows.task_authority(changed, row[-1]))
    values = dict(zip(rows.TASK_COLUMNS.split(", "), rows.task_row(changed), strict=True))
    said = ", ".join(
        f"{name} = {values[name]!r}" for name in ("subject", "actors", "expires_ms", "ceilings", "scope")
    )
    without_guards(
        aged.places.ledger,
        f"UPDATE tasks SET {said}, mac = x'{mac.hex()}' WHERE task_id = '{changed.task_id}'",  # noqa: S608
    )
    found = {row.what for row in aged.check().findings if row.where == f"tasks {changed.task_id}"}
    assert found == what


@pytest.mark.spec("LED-02", "LED-06")
@pytest.mark.parametrize(
    ("state", "found"),
    [
        (
            EffectState.SUCCEEDED,
            {
                *("effect_missing", "holdings", "repetition", "use_without_effect"),
                *("collected_spend", "collected_takes"),
            },
        ),
        (EffectState.DENIED, {"holdings"}),
    ],
)
def test_where_no_span_names_what_was_collected_a_missing_tombstone_shows_by_what_it_left(
    tmp_path: Path, state: EffectState, found: set[str]
) -> None:
    """A check may be given nothing that reads spans; what was ever permitted is missed all the same."""
    book = made_book(tmp_path / "book")
    ledger = book.open()
    task = open_bare_task(ledger, "org", {CENT: 1_000})
    effects = {
        each: effect_in(ledger, task, each).effect_id for each in (EffectState.SUCCEEDED, EffectState.DENIED)
    }
    book.clock.now = START + WINDOW_MS
    assert set(collect(ledger, asked())) == set(effects.values())
    ledger.close()
    assert check_ledger(book.path, keys=book.keys, stopwatch_ms=monotonic_ms).findings == ()
    without_guards(book.path, f"DELETE FROM tombstones WHERE effect_id = '{effects[state]}'")  # noqa: S608
    report = check_ledger(book.path, keys=book.keys, stopwatch_ms=monotonic_ms)
    assert {row.what for row in report.findings} == found
