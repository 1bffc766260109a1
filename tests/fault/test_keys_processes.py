"""Keys are changed while other processes commit, a change is killed, and a busy history is signed anew (SEC-03)."""

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from issuer import Issuer
from issuer.clock import now_ms
from issuer.flow import spans
from issuer.sealing import open_key_ring
from ledger.authority import RulingKind, Stop
from ledger.changes import Step
from ledger.errors import Broken
from ledger.model import EffectId, InstantMs
from ledger.port import Verdict
from ledger.sqlite.signed_rows import SIGNED, demand_every_table
from tests.support.busy import busy_issuer
from tests.support.committing import Job
from tests.support.issuers import Made, refund
from tests.support.kills import Nursery
from tests.support.ledger_authority import approving, asking, ruling, ruling_step
from tests.support.ledgers import Clock, attacker
from tests.support.strikes import Blow, calls_of, can_trace, strike
from tests.support.transitions import ask_note, assert_clean, soak_issuer

AHEAD_MS = 3_600_000
QUICK = {"rename": 1, "fsync": 4, "openat": 6, "pwrite64": 3}
"""How many of the calls of a name are struck here, from the first; every one is in the soak run."""

CALLS_PER_NAME_MAX = 600

can_strike = pytest.mark.skipif(not can_trace(), reason="strace is not here, or may not trace")


def keys(issuer: Issuer) -> dict[str, str]:
    rows: Any = issuer.keys_list().more["keys"]
    return {row["key"]: row["state"] for row in rows}


def active(issuer: Issuer) -> str:
    return next(key for key, state in keys(issuer).items() if state == "active")


def job(made: Made, command: str, **arguments: object) -> Job:
    return Job(profile=str(made.profile), command=command, arguments=arguments, traced=True)


@pytest.mark.spec("SEC-03", "PER-02", "ADM-06")
@pytest.mark.parametrize("command", ["keys_rotate", "keys_revoke"])
def test_processes_that_were_open_commit_across_a_change_of_the_keys(
    tmp_path: Path, nursery: Nursery, command: str
) -> None:
    made = soak_issuer(tmp_path / "f0")
    with made.open() as issuer:
        effects = [ask_note(issuer, f"n{number}") for number in range(2)]
        first = active(issuer)
        children = [nursery.start(job(made, "commit", effect=effect)) for effect in effects]
        asking = {"operation": "publish", "payload": {"name": "later"}, "task": "wide", "actor": "agent-7"}
        asker = nursery.start(job(made, "request", **asking))
        with children[0], children[1], asker:
            for child in (*children, asker):
                child.stopped()
            # All three are open, and stand still; the keys change under them.
            changed = issuer.keys_rotate() if command == "keys_rotate" else issuer.keys_revoke(first)
            assert changed.exit == 0
            for child in (*children, asker):
                child.resume()
            for child in (*children, asker):
                assert child.ended() == 0, child.lines
        codes = {str(child.answer()["code"]) for child in children}
        assert codes == ({"succeeded"} if command == "keys_rotate" else {"permit_broken"})
        assert asker.answer()["code"] == "permitted"
        # What the asker sealed is sealed with the key that it met.
        rows: Any = issuer.keys_list().more["keys"]
        assert {row["key"]: row["permits"] for row in rows if row["state"] == "active"} == {active(issuer): 1}
    assert_clean(made)


@pytest.mark.spec("SEC-03", "LED-06")
def test_every_kind_of_row_of_a_busy_history_is_signed_anew(tmp_path: Path) -> None:
    busy = busy_issuer(tmp_path / "f0")
    clock = Clock(now_ms() + AHEAD_MS)
    first = busy.ring.active_key_id.to_bytes(4, "big")
    with busy.made.open(clock=clock) as issuer:
        issuer.ledger_collect(early=True)
        issuer.invocation_open("t1", "agent-7", clock.now + AHEAD_MS)  # type: ignore[arg-type]  # an instant
        authority(issuer, clock)
    before = content(busy.made, first)
    assert {table for table in SIGNED if not before[table][1]} == set()
    with busy.made.open(clock=clock) as issuer:
        shown = [one.as_json() for one in (issuer.task_list(), issuer.list())]
        assert issuer.keys_revoke(first.hex()).code == "revoked_now"
        assert [one.as_json() for one in (issuer.task_list(), issuer.list())] == shown
    after = content(busy.made, first)
    assert {table: told[1] for table, told in after.items()} == dict.fromkeys(after, 0)
    assert {table: told[0] for table, told in after.items()} == {
        table: told[0] for table, told in before.items()
    }
    assert busy.check().is_clean


def authority(issuer: Issuer, clock: Clock) -> None:
    """Put a ruling, a wait and an approval on record, as the core's steps for them do."""
    held = str(refund(issuer, order="o-waits", amount=5, hold=True).effect)
    visit, ledger = issuer._visit("request"), issuer._house.ledger
    waits = ledger.read(lambda view: view.effect(EffectId(held)))
    assert waits is not None
    about = spans.effect_attributes(visit, waits)

    def with_span(step: Step) -> Step:
        common = spans.common(visit) if step.transition.effect_id is None else about
        told = {**common, **step.transition.attributes}
        return replace(step, transition=replace(step.transition, attributes=told))

    now = InstantMs(clock.now)
    stop = ruling(RulingKind.STOP, "operation:publish", Stop.FROZEN, since_ms=now)
    for step in (ruling_step(stop), asking(waits, asked_ms=now), approving(waits, at_ms=now)):
        ledger.transact(lambda _view, _now, step=step: Verdict(value=None, steps=(with_span(step),)))  # type: ignore[misc]


def content(made: Made, key: bytes) -> dict[str, tuple[list[Any], int]]:
    """Return for each signed table its rows without the MAC, and how many of them that key signed."""
    raw = attacker(made.ledger)
    found = {}
    for table, signed in SIGNED.items():
        columns = ", ".join(column for column in signed.columns.split(", ") if column != "mac")
        rows = raw.execute(f"SELECT {columns} FROM {table} ORDER BY {signed.key}").fetchall()  # noqa: S608 - ours
        sql = f"SELECT count(*) FROM {table} WHERE substr(mac, 1, 4) = ?"  # noqa: S608 - ours
        found[table] = (rows, raw.execute(sql, (key,)).fetchone()[0])
    raw.close()
    return found


@pytest.mark.spec("SEC-03", "LED-06")
def test_a_table_whose_rows_carry_a_mac_is_not_forgotten(tmp_path: Path) -> None:
    made = soak_issuer(tmp_path / "f0")
    raw = attacker(made.ledger)
    demand_every_table(raw)
    raw.execute("CREATE TABLE later(mac BLOB NOT NULL) STRICT")
    with pytest.raises(Broken):
        demand_every_table(raw)
    raw.close()


def settled(made: Made, command: str, first: str) -> str:
    """Judge what a killed change left: one honest state, and the same command, given again, ends it."""
    ring = open_key_ring(made.folder / "keys")
    before = [str(ring.state(key_id)) for key_id in ring.key_ids if f"{key_id:08x}" == first]
    assert_clean(made)
    with made.open() as issuer:
        answered = issuer.keys_rotate() if command == "keys_rotate" else issuer.keys_revoke(first)
        assert answered.code in {"rotated", "revoked_now", "nothing_to_change"}, answered
        assert keys(issuer)[first] == ("open_only" if command == "keys_rotate" else "revoked")
        # A rotation that was ended before it was killed is followed by a second one; none is ever off the record.
        ledger = issuer._house.ledger
        story = ledger.read(lambda view: view.story(ledger.ledger_id))
        assert sum(span.name == "key.rotated" for span in story) == len(keys(issuer)) - 1
        assert sum(span.name == "key.revoked" for span in story) == (command == "keys_revoke")
        assert sorted(keys(issuer).values()).count("active") == 1
    assert_clean(made)
    return before[0]


@pytest.mark.spec("SEC-03", "LED-01", "AUD-01")
@can_strike
@pytest.mark.parametrize("command", ["keys_rotate", "keys_revoke"])
def test_a_few_kills_of_a_change_leave_a_ring_and_a_ledger_that_the_same_command_ends(
    tmp_path: Path, nursery: Nursery, command: str
) -> None:
    left = [
        struck_once(tmp_path / f"{name}{number}", nursery, command, name, number)
        for name, most in QUICK.items()
        for number in range(1, most + 1, 2)
    ]
    assert sum(one is not None for one in left) >= 4, left


def struck_once(folder: Path, nursery: Nursery, command: str, name: str, number: int) -> str | None:
    """Kill a change at one call; return the state that the first key was left in, or None where none fell."""
    made = soak_issuer(folder / "f0")
    with made.open() as issuer:
        first = active(issuer)
    arguments = {} if command == "keys_rotate" else {"key": first}
    blow = Blow(call=name, number=number, what="signal=KILL")
    if not strike(nursery, job(made, command, **arguments), blow, folder / "log").fell:
        return None
    return settled(made, command, first)


@pytest.mark.soak
@pytest.mark.spec("SEC-03", "LED-01", "AUD-01")
@can_strike
@pytest.mark.parametrize("command", ["keys_rotate", "keys_revoke"])
def test_a_kill_at_any_system_call_of_a_change_leaves_what_the_same_command_ends(
    tmp_path: Path, nursery: Nursery, command: str
) -> None:
    made = soak_issuer(tmp_path / "whole" / "f0")
    with made.open() as issuer:
        first = active(issuer)
    arguments = {} if command == "keys_rotate" else {"key": first}
    calls = calls_of(nursery, job(made, command, **arguments), tmp_path / "log")
    fallen, folders = 0, count()
    for name in calls:
        for number in range(1, CALLS_PER_NAME_MAX + 1):
            left = struck_once(tmp_path / f"f{next(folders)}", nursery, command, name, number)
            if left is None:
                break
            fallen += 1
    assert fallen * 10 >= sum(calls.values()) * 9
