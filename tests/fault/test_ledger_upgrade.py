"""A ledger of an earlier release becomes one of this release: every row kept, once, whole or not at all.

The old ones are `tests/fixtures/schema_1` to `schema_3`, which their own releases wrote. What is not
genuine in them is not made good.
"""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from issuer import Issuer
from issuer.sealing import KeysUnavailable
from ledger.errors import LedgerUnavailable, SpanNotRecorded
from ledger.model import TaskId, Unit
from ledger.port import Ledger
from ledger.refusals import RefusalCode
from ledger.sqlite import SqliteLedger
from ledger.sqlite.connection import schema_rows
from ledger.sqlite.schema import SCHEMA_VERSION, expected_digest, schema_digest
from ledger.sqlite.schema_one import SCHEMA_ONE
from ledger.sqlite.schema_three import SCHEMA_THREE
from ledger.sqlite.schema_two import SCHEMA_TWO
from ledger.states import EffectState
from ledger.transitions import TransitionName
from tests.support.ledgers import admit, attacker
from tests.support.old_release import NUMBERS, STATES, OldIssuer, content
from tests.support.shell import issuer_here
from tests.support.upgrading import Scene, files, opened, scene, upgraded, upgraded_ledger

CENT, PAGE = Unit("USD.cent"), Unit("page")
SIGNED_ANEW: dict[int, dict[str, str]] = {
    1: {"tasks": "sequence mac", "grants": "mac", "effects": "mac"},
    2: {"effects": "mac"},
    3: {},
}
"""Columns that an upgrade changes: signatures, and which span is the last that changed a task's row of schema 1."""

SAID_ANEW = {"head", "standing", "holdings", "_sqlite_migrations"}
"""Tables that say something of all other rows."""


@pytest.fixture(params=NUMBERS, ids="schema_{}".format)
def old(tmp_path: Path, request: pytest.FixtureRequest) -> Scene:
    return scene(tmp_path / "f0", number=request.param)


@pytest.fixture
def made(old: Scene) -> OldIssuer:
    return old.made


@pytest.fixture
def ledger(made: OldIssuer) -> Iterator[SqliteLedger]:
    found = upgraded_ledger(made)
    yield found
    found.close()


def columns(path: Path) -> dict[str, list[str]]:
    raw = attacker(path)
    names = [name for (name,) in raw.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    found = {name: [row[1] for row in raw.execute(f"PRAGMA table_info({name})")] for name in names}
    raw.close()
    return found


def rows_of(path: Path, wanted: dict[str, list[str]]) -> dict[str, list[Any]]:
    """Return the rows of these tables, cut to these columns."""
    here, found = columns(path), content(path)
    cuts = {table: [here[table].index(name) for name in names] for table, names in wanted.items()}
    return {
        table: sorted((tuple(row[at] for at in cut) for row in found[table]), key=repr)
        for table, cut in cuts.items()
    }


def migrations(ledger: Ledger) -> list[str]:
    story = ledger.read(lambda view: view.story(ledger.ledger_id))
    return [span.body.decode() for span in story if span.name == TransitionName.LEDGER_MIGRATED]


@pytest.mark.spec("LED-04")
def test_the_fixture_is_what_the_old_release_made_and_holds_all_that_it_could(made: OldIssuer) -> None:
    raw = attacker(made.ledger)
    digests = {1: SCHEMA_ONE.digest, 2: SCHEMA_TWO.digest, 3: SCHEMA_THREE.digest}
    assert schema_digest(schema_rows(raw)) == digests[made.number]
    assert raw.execute("PRAGMA user_version").fetchone() == (made.number,)
    assert {state for (state,) in raw.execute("SELECT DISTINCT state FROM effects")} == STATES
    found = dict(
        raw.execute(
            "SELECT substr(mac, 4, 1), count(*) FROM effects WHERE state IN ('permitted', "
            "'prepared') GROUP BY 1"
        ).fetchall()
    )
    assert found.keys() == {b"\x07", b"\x09"}
    raw.close()
    empty = [name for name, rows in content(made.ledger).items() if not rows]
    assert empty == []


@pytest.mark.spec("LED-04", "LED-05", "LED-06")
@pytest.mark.parametrize("library", ["3.53.4", "3.40.1"], ids=["wal", "truncate"])
def test_every_row_is_kept(old: Scene, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = old.made
    monkeypatch.setattr("ledger.sqlite.store.library_version", lambda: library)
    wanted = {
        table: [name for name in names if name not in SIGNED_ANEW[made.number].get(table, "").split()]
        for table, names in columns(made.ledger).items()
        if table not in SAID_ANEW
    }
    before = rows_of(made.ledger, wanted)
    upgraded(made)
    after = rows_of(made.ledger, wanted)
    (added,) = [row for row in after["spans"] if row not in before["spans"]]
    assert TransitionName.LEDGER_MIGRATED in added
    assert {**after, "spans": [row for row in after["spans"] if row != added]} == before
    raw = attacker(made.ledger)
    assert schema_digest(schema_rows(raw)) == expected_digest()
    assert raw.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    names = [name for (name,) in raw.execute("SELECT name FROM _sqlite_migrations ORDER BY id")]
    assert names == ["first_schema", "second_schema", "third_schema", "fourth_schema"]
    raw.close()
    old.assert_upgraded_once()
    assert stat.S_IMODE(made.kept.stat().st_mode) == 0o600


@pytest.mark.spec("AUD-01", "AUD-03")
def test_the_upgrade_is_on_record_and_the_sink_takes_it_up(made: OldIssuer) -> None:
    lines = made.sink.read_text().count("\n")
    with opened(made) as issuer:
        *_earlier, body = migrations(issuer._house.ledger)
        issuer._house.delivery.probe()
        issuer._house.delivery.acknowledge(issuer._house.ledger.read(lambda view: view.head()).sequence)
    for said in (
        f'"permit.schema.from":{made.number}',
        f'"permit.schema.to":{SCHEMA_VERSION}',
        '"permit.mode":"ordinary"',
    ):
        assert said in body
    told = made.sink.read_text().splitlines()[lines:]
    assert len(told) == 2
    assert TransitionName.LEDGER_MIGRATED in told[0]
    assert TransitionName.REVISION_ACTIVATED in told[1]


@pytest.mark.spec("BUD-01", "BUD-05", "BUD-06")
def test_tasks_have_the_ceilings_that_their_grants_added_up_to_and_leave_classes_open(
    made: OldIssuer, ledger: SqliteLedger
) -> None:
    tasks = {task.name: task for task in ledger.read(lambda view: view.tasks())}
    assert {name: dict(task.ceilings) for name, task in tasks.items()} == {
        "org": {CENT: 10_000, PAGE: 100},  # from schema 2 on lowered once, and granted as much again
        "t1": {CENT: 1_025, PAGE: 30},
        "t1.a": {CENT: 450, PAGE: 20},
        "t1.b": {CENT: None},
        "over": {CENT: 100},
        "over.leaf": {CENT: 50},
    }
    assert {name: str(task.state) for name, task in tasks.items() if task.state != "open"} == {
        "t1.b": "closed"
    }
    assert {task.scope.classes is None for task in tasks.values()} == {made.number == 1}
    raw = attacker(Path(ledger._path))
    kinds = "SELECT kind, count(*) FROM grants GROUP BY kind ORDER BY kind"
    later = [("add", 5), ("set", 8)]
    expected = {1: [("add", 2), ("set", 9)], 2: later, 3: later}
    assert raw.execute(kinds).fetchall() == expected[made.number]
    raw.close()


@pytest.mark.spec("BUD-02", "BUD-04")
def test_what_is_unknown_or_in_flight_still_holds_its_maximum(made: OldIssuer) -> None:
    sql = (
        "SELECT task_id, unit, sum(amount) FROM reservations WHERE effect_id IN "
        "(SELECT effect_id FROM effects WHERE state IN ('unknown', 'admitted')) GROUP BY task_id, unit"
    )
    raw = attacker(made.ledger)
    held = {(task, unit): amount for task, unit, amount in raw.execute(sql)}
    raw.close()
    assert set(held.values()) == {1: {1, 14}, 2: {2, 15}, 3: {3, 16}}[made.number]
    with opened(made) as issuer:
        for (task, unit), amount in held.items():
            budget = issuer._house.ledger.read(lambda view: view.budget(TaskId(task)))  # noqa: B023 - read at once
            assert budget[Unit(unit)].reserved == amount


@pytest.mark.spec("ADM-02", "PER-04", "LED-06")
def test_each_permit_that_was_out_can_be_used_once(made: OldIssuer, ledger: SqliteLedger) -> None:
    out = ledger.read(lambda view: view.effects(states=[EffectState.PERMITTED]))
    # One of a task that was closed since: its permit is kept, and serves nobody.
    codes = [admit(ledger, effect).refusal for effect in out]
    open_ones = {1: 3, 2: 3, 3: 4}[made.number]
    assert sorted("" if no is None else str(no.code) for no in codes) == [""] * open_ones + ["task_closed"]
    again = [admit(ledger, effect).refusal for effect in out]
    assert {no.code for no in again if no is not None} == {
        RefusalCode.ALREADY_CONSUMED,
        RefusalCode.TASK_CLOSED,
    }
    assert len([no for no in again if no is not None]) == len(out)


@pytest.mark.spec("EFF-11", "BUD-03", "BUD-05")
def test_the_issuer_goes_on_where_the_old_release_left_it(made: OldIssuer) -> None:
    with opened(made) as issuer:
        asked = issuer.request("publish", {"name": "after"}, task="t1.a", actor="agent-7")
        assert asked.code == "permitted"
        claim = str(issuer.admit(str(asked.effect)).more["claim"])
        assert issuer.report(str(asked.effect), claim, succeeded=True).code == "succeeded"
        # What was ended stays ended, and what blocked still blocks.
        closed = issuer.request("publish", {"name": "more"}, task="t1.b", actor="agent-7")
        over = issuer.request("publish", {"name": "more"}, task="over.leaf", actor="agent-7")
        assert closed.code == "task_closed"
        assert over.code == "budget_overrun"
        states = {str(row["state"]) for row in issuer.list().more["effects"]}  # type: ignore[attr-defined]
        assert states >= STATES
    assert Issuer.ledger_check(made.profile).code == "found"


@pytest.mark.spec("LED-04")
def test_doctor_and_check_say_that_an_upgrade_is_due_and_do_not_do_it(made: OldIssuer) -> None:
    before = content(made.ledger)
    told = issuer_here("doctor", "--json", at=made.folder).answer
    (found,) = [row for row in told["findings"] if row["check"] == "ledger"]
    assert (found["ok"], "keeps a copy" in found["next"]) == (None, True)
    assert re.search(rf"schema {made.number} of an earlier release; .* upgrades it", found["says"])
    for command in ("check", "stats"):
        shown = issuer_here("ledger", command, "--json", at=made.folder)
        assert (shown.exit, shown.answer["code"]) == (8, "ledger_unavailable")
        assert shown.answer["say"] == found["says"]
    assert content(made.ledger) == before
    assert not (made.ledger.parent / "halted").exists()
    assert not made.kept.exists()


@pytest.mark.spec("LED-04")
def test_what_had_stopped_new_effects_still_stops_them(made: OldIssuer) -> None:
    halted = made.ledger.with_name("halted")
    halted.write_text("counter\n")
    with opened(made) as issuer:
        assert issuer.list().code == "found"
        assert (
            issuer.request("publish", {"name": "more"}, task="t1", actor="agent-7").code
            == "ledger_unavailable"
        )
    assert halted.read_text() == "counter\n"


@pytest.mark.spec("PER-03", "LED-04")
@pytest.mark.parametrize("wrong", [-3_600_000, 800 * 24 * 3_600_000], ids=["behind", "ahead"])
def test_an_upgrade_decides_nothing_about_a_clock_that_is_not_to_be_believed(
    made: OldIssuer, wrong: int
) -> None:
    with opened(made, clock=lambda: made.last_entry + wrong) as issuer:
        *_earlier, span = [
            span
            for span in issuer._house.ledger.read(lambda view: view.spans_after(0, limit=1000))
            if span.name == TransitionName.LEDGER_MIGRATED
        ]
        assert span.at_ms == made.last_entry
        asked = issuer.request("publish", {"name": "more"}, task="t1", actor="agent-7")
        assert asked.code == "clock_untrusted"


@pytest.mark.spec("AUD-01", "LED-04")
def test_without_its_span_there_is_no_upgrade(made: OldIssuer) -> None:
    class Silent:
        def record(self, *_asked: object, **_named: object) -> Any:
            raise SpanNotRecorded("silent", "Nothing is recorded.")

    before = files(made.folder)
    with pytest.raises(SpanNotRecorded):
        opened(made, recorder=lambda _ledger_id: Silent())
    assert files(made.folder) == before


@pytest.mark.spec("LED-02", "LED-04")
def test_a_disk_without_room_for_the_copy_is_said_before_anything_is_made(
    made: OldIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.statvfs

    def nearly_full(path: Any) -> os.statvfs_result:
        found = list(real(path))
        found[4] = 16 * 1024 * 1024 // found[1]  # f_bavail, in blocks of f_frsize
        return os.statvfs_result(found)

    before = files(made.folder)
    monkeypatch.setattr(os, "statvfs", nearly_full)
    with pytest.raises(LedgerUnavailable) as refused:
        opened(made)
    assert (refused.value.reason, "MiB free" in refused.value.message) == ("disk_full", True)
    assert files(made.folder) == before


@pytest.mark.spec("ADM-06", "SEC-03")
def test_keys_that_cannot_be_bound_now_are_bound_by_the_next_start(old: Scene) -> None:
    keys = old.made.places.keys

    def observe(step: str) -> None:
        if step == "upgrade_committed":
            keys.chmod(0o755)

    with pytest.raises(KeysUnavailable):
        upgraded(old.made, observe=observe)
    keys.chmod(0o700)
    assert old.made.ring.ledger_schema < SCHEMA_VERSION
    old.assert_upgraded_once()
    assert old.made.ring.ledger_schema == SCHEMA_VERSION
