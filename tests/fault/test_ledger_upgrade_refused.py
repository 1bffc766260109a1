"""An upgrade that is refused: what was edited without the keys, what a newer release made, what was put back.

The ledger of the old release is left as it was, byte for byte, and stays readable with that release.
"""
# ruff: noqa: S608 - edits are made of names in this file

import hmac
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from issuer.sealing import Purpose
from issuer.sealing.authenticator import RingAuthenticator
from ledger.canonical import canonical_bytes
from ledger.errors import Fault, LedgerCorrupt
from ledger.sqlite import SqliteLedger
from ledger.sqlite.schema import SCHEMA_VERSION
from tests.support.ledgers import attacker, probe
from tests.support.old_release import NUMBERS, OldIssuer, content, old_issuer
from tests.support.shell import issuer_here
from tests.support.upgrading import files, opened, upgraded, upgraded_ledger


@pytest.fixture(params=NUMBERS, ids="schema_{}".format)
def made(tmp_path: Path, request: pytest.FixtureRequest) -> OldIssuer:
    return old_issuer(tmp_path / "f0", number=request.param)


@pytest.fixture
def ledger(made: OldIssuer) -> Iterator[SqliteLedger]:
    found = upgraded_ledger(made)
    yield found
    found.close()


def write_private(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)


HEAD, GONE, SPAN = "UPDATE head SET ", "DELETE FROM ", "UPDATE spans SET "
FAR = 9_007_199_254_740_993
"""The first whole number that JSON readers do not keep."""


def task(name: str) -> str:
    return f"(SELECT task_id FROM tasks WHERE name = '{name}')"


def one(state: str) -> str:
    return f"(SELECT effect_id FROM effects WHERE state = '{state}' ORDER BY prepared_ms LIMIT 1)"


T1, LEAF, SHUT = task("t1"), task("t1.a"), task("t1.b")
CENTS = "unit = 'USD.cent'"
GRANTED = f"(SELECT min(sequence) FROM spans WHERE name = 'task.granted' AND story = {LEAF})"
BEFORE_THE_ROWS = {"head_mac", "head_unreadable", "no_head", "unfinished", "schema", "trail_length"}
EDITS = {
    "head_mac": HEAD + "clock_ms = clock_ms + 1",
    "head_unreadable": HEAD + f"epoch = {FAR}",
    "no_head": GONE + "head",
    "unfinished": GONE + "ledger",
    "schema": GONE + "_sqlite_migrations",
    "trail_length": GONE + "spans WHERE sequence = (SELECT max(sequence) FROM spans)",
    "span_leaf": SPAN + "body = CAST(body || ' ' AS BLOB) WHERE sequence = 6",
    "span_differs": SPAN + "span_id = 'ffffffffffffffff' WHERE sequence = 6",
    "task_mac": f"UPDATE tasks SET expires_ms = expires_ms + 1 WHERE task_id = {T1}",
    "task_sequence": f"UPDATE tasks SET sequence = 1 WHERE task_id = {T1}",
    "task_unreadable": f"UPDATE tasks SET expires_ms = {FAR} WHERE task_id = {T1}",
    "task_path": GONE + f"task_path WHERE task_id = {T1} AND distance = 1",
    "grant_mac": f"UPDATE grants SET amount = 5 WHERE task_id = {SHUT}; "
    f"UPDATE budgets SET ceiling = 5 WHERE task_id = {SHUT}",
    "grant_unreadable": f"UPDATE grants SET sequence = {FAR} WHERE task_id = {T1} AND unit = 'page'",
    "grant_missing": GONE + f"grants WHERE sequence = {GRANTED}; "
    f"UPDATE budgets SET ceiling = 400 WHERE task_id = {LEAF} AND {CENTS}",
    "budget_ceiling": f"UPDATE budgets SET ceiling = 999999 WHERE task_id = {T1}",
    "budget_reserved": f"UPDATE budgets SET reserved = 0 WHERE task_id = {T1} AND {CENTS}",
    "rows_impossible": f"UPDATE budgets SET settled = -1 WHERE task_id = {T1}",
    "effect_mac": f"UPDATE effects SET actor = 'agent-8' WHERE effect_id = {one('prepared')}",
    "effect_unreadable": f"UPDATE effects SET cost = '[]' WHERE effect_id = {one('permitted')}",
    "effect_state": f"UPDATE effects SET state = 'permitted' WHERE effect_id = {one('admitted')}",
    "foreign_key": GONE + f"permit_uses WHERE effect_id = {one('unknown')}",
    "claim_mac": f"UPDATE claims SET claim_hash = zeroblob(32) WHERE effect_id = {one('admitted')}",
    "seal": f"UPDATE permits SET expires_ms = expires_ms + 1 WHERE effect_id = {one('permitted')}",
    "settlement_differs": "UPDATE settlements SET charged = charged + 1 WHERE charged > 0",
    "evidence_missing": GONE + f"evidence WHERE effect_id = {one('unknown')}",
    "counter": "UPDATE counters SET used = 0",
    "repetition": "UPDATE repetition SET succeeded = 0",
    "sink_mac": "UPDATE sinks SET location = '/dev/null'",
}
"""By what is found: an edit of the ledger of schema 1 by somebody without its keys."""

SETTLED = "UPDATE effects SET actor = 'agent-8' WHERE state = 'succeeded'"
SAME_IN_TWO = (
    *("head_mac", "head_unreadable", "no_head", "unfinished", "schema", "trail_length", "span_leaf"),
    *("task_path", "budget_reserved", "claim_mac", "seal"),
    *("settlement_differs", "evidence_missing", "counter", "repetition", "sink_mac"),
)
EDITS_OF_TWO = {
    **{found: EDITS[found] for found in SAME_IN_TWO},
    "task_mac": f"UPDATE tasks SET expires_ms = expires_ms + 1 WHERE task_id = {T1}",
    "standing": f"UPDATE tasks SET mac = zeroblob(36) WHERE task_id = {T1}",
    "pending_set": f"UPDATE effects SET state = 'permitted' WHERE effect_id = {one('admitted')}",
    "grant_mac": f"UPDATE grants SET amount = 5000 WHERE task_id = {SHUT}; "
    f"UPDATE budgets SET ceiling = 5000 WHERE task_id = {SHUT}",
    "malformed": EDITS["rows_impossible"],
    "effect_mac": SETTLED,
    "effect_unreadable": f"UPDATE effects SET cost = '[]' WHERE effect_id = {one('succeeded')}",
    "tombstone_mac": "UPDATE tombstones SET state = 'failed' WHERE state = 'succeeded'",
    "collected_spend": "UPDATE collected_spend SET charged = charged + 1",
}
"""The same of schema 2, whose head says which rows stand."""
BEFORE_THE_ROWS |= {"standing", "pending_set"}

CANCELLED = "(SELECT min(invocation_id) FROM invocations WHERE outcome = 'cancelled')"
EDITS_OF_THREE = {
    **EDITS_OF_TWO,
    "standing": "UPDATE invocations SET outcome = NULL, ended_ms = NULL WHERE outcome = 'succeeded'",
    "invocation_mac": f"UPDATE invocations SET actor = 'agent-8' WHERE invocation_id = {CANCELLED}",
    "invocation_bucket": f"UPDATE invocations SET bucket = 63 - bucket WHERE invocation_id = {CANCELLED}",
    "invocation_missing": GONE + f"invocations WHERE invocation_id = {CANCELLED}",
    "obligation_missing": GONE + "obligations_done",
    "obligation_without_trail": "UPDATE obligations SET deadline_ms = deadline_ms + 1",
}
"""The same of schema 3, which has invocations and obligations as well."""
EDITED = {1: EDITS, 2: EDITS_OF_TWO, 3: EDITS_OF_THREE}


def assert_left_alone(made: OldIssuer, before: dict[str, bytes], reason: str) -> str:
    """Opening refuses with one sentence; no byte of what was there is another one, and no copy was made."""
    with pytest.raises(LedgerCorrupt) as refused:
        opened(made)
    assert refused.value.reason == reason
    says = refused.value.message
    assert (says[-1], says.count(". ")) == (".", 0)
    assert files(made.folder) == before
    return says


@pytest.mark.spec("LED-04", "LED-06", "REP-07")
@pytest.mark.parametrize(
    ("number", "found", "edit"),
    [(number, *row) for number, edits in EDITED.items() for row in edits.items()],
    ids=[f"{number}-{found}" for number, edits in EDITED.items() for found in edits],
)
def test_what_was_edited_without_the_keys_is_not_made_good(
    tmp_path: Path, number: int, found: str, edit: str
) -> None:
    made = old_issuer(tmp_path / "f0", *edit.split("; "), number=number)
    says = assert_left_alone(made, files(made.folder), found)
    assert found in BEFORE_THE_ROWS or "of that release" in says


@pytest.mark.spec("LED-06", "BUD-05")
def test_an_older_row_of_a_closed_task_is_genuine_and_is_not_made_the_latest(tmp_path: Path) -> None:
    first = old_issuer(tmp_path / "first")
    raw = attacker(first.ledger)
    columns = "task_id, name, parent_id, root_id, depth, subject, actors, expires_ms, state, opened_ms"
    row = list(raw.execute(f"SELECT {columns} FROM tasks WHERE task_id = {SHUT}").fetchone())
    raw.close()
    row[8] = "open"
    mac = RingAuthenticator(first.ring).tag("row", canonical_bytes(["task", *row]))
    told = f"(SELECT sequence FROM spans WHERE name = 'task.opened' AND story = {SHUT})"
    edit = f"UPDATE tasks SET state = 'open', sequence = {told}, mac = X'{mac.hex()}' WHERE task_id = {SHUT}"
    made = old_issuer(tmp_path / "second", edit)
    assert_left_alone(made, files(made.folder), "task_set_back")


@pytest.mark.spec("LED-06", "INV-02")
def test_an_older_row_of_an_ended_invocation_is_genuine_and_is_not_made_the_latest(tmp_path: Path) -> None:
    first = old_issuer(tmp_path / "first", number=3)
    raw = attacker(first.ledger)
    columns = "invocation_id, caller, task_id, actor, opened_ms, deadline_ms, outcome, ended_ms"
    row = list(raw.execute(f"SELECT {columns} FROM invocations WHERE invocation_id = {CANCELLED}").fetchone())
    (told,) = raw.execute(
        "SELECT sequence FROM spans WHERE name = 'invocation.opened' AND story = ?", (row[0],)
    ).fetchone()
    raw.close()
    signed = canonical_bytes(["invocation", *row[:6], None, None, told])
    mac = RingAuthenticator(first.ring).tag("row", signed)
    edit = (
        f"UPDATE invocations SET outcome = NULL, ended_ms = NULL, sequence = {told}, mac = X'{mac.hex()}' "
        f"WHERE invocation_id = '{row[0]}'"
    )
    made = old_issuer(tmp_path / "second", edit, number=3)
    assert_left_alone(made, files(made.folder), "standing")


@pytest.mark.spec("LED-06", "ADM-02")
@pytest.mark.parametrize("number", [2, 3])
def test_an_effect_that_was_admitted_is_not_made_permitted_again(tmp_path: Path, number: int) -> None:
    edit = f"UPDATE effects SET state = 'permitted' WHERE effect_id = {one('admitted')}"
    made = old_issuer(tmp_path / "f0", edit, GONE + "permit_uses", number=number)
    assert_left_alone(made, files(made.folder), "pending_set")


@pytest.mark.spec("LED-04", "LED-06")
@pytest.mark.parametrize("name", ["evil", "_sqlite_evil", "idx__sqlite_evil"])
def test_a_guard_that_the_old_release_did_not_make_is_found_whatever_its_name(
    made: OldIssuer, name: str
) -> None:
    raw = attacker(made.ledger)
    raw.execute(
        f"CREATE TRIGGER {name} AFTER INSERT ON _sqlite_migrations BEGIN UPDATE budgets SET ceiling = 9; END"
    )
    raw.close()
    assert_left_alone(made, files(made.folder), "schema")
    raw = attacker(made.ledger)
    raw.execute(f"DROP TRIGGER {name}")
    raw.close()
    upgraded(made)
    raw = attacker(made.ledger)
    raw.execute(f"CREATE TRIGGER {name} AFTER INSERT ON spans BEGIN UPDATE budgets SET reserved = 0; END")
    raw.close()
    with pytest.raises(LedgerCorrupt, match="guards"):
        opened(made)


@pytest.mark.spec("LED-04")
@pytest.mark.parametrize("version", [SCHEMA_VERSION + 1, 2**31 - 1])
def test_a_newer_schema_is_refused_with_the_next_step_and_nothing_is_written(
    made: OldIssuer, version: int
) -> None:
    upgraded(made)
    raw = attacker(made.ledger)
    raw.execute(f"PRAGMA user_version = {version}")
    raw.close()
    before = files(made.folder)
    says = assert_left_alone(made, before, "schema_version")
    assert f"has schema {version}" in says
    assert "use the release that made it, or a newer one" in says
    # A check of it says the same, and does not stop a release that can read it.
    checked = issuer_here("ledger", "check", "--json", at=made.folder)
    assert (checked.exit, checked.answer["code"], checked.answer["say"]) == (8, "ledger_unavailable", says)
    assert files(made.folder).keys() - before.keys() <= {
        str(made.ledger) + suffix for suffix in ("-wal", "-shm", ".lock")
    }


@pytest.mark.spec("LED-04", "ADM-06")
def test_a_process_that_has_it_open_while_a_newer_release_upgrades_it_stops_there(
    ledger: SqliteLedger,
) -> None:
    assert probe(ledger).sequence == ledger.read(lambda view: view.head()).sequence
    raw = attacker(Path(ledger._path))
    raw.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    before = content(Path(ledger._path))
    uses: list[Callable[[], object]] = [lambda: probe(ledger), lambda: ledger.read(lambda view: view.head())]
    for use in uses:
        with pytest.raises(LedgerCorrupt) as refused:
            use()
        assert refused.value.reason == "schema_version"
        assert "start this program anew" in refused.value.message
    assert content(Path(ledger._path)) == before
    raw.close()


@pytest.mark.spec("LED-06", "ADM-06")
def test_the_copy_that_was_kept_is_refused_where_it_is_put_back(made: OldIssuer) -> None:
    with opened(made) as issuer:
        issuer.request("publish", {"name": "after"}, task="t1", actor="agent-7")
    made.ledger.unlink()
    made.kept.rename(made.ledger)
    with pytest.raises(LedgerCorrupt) as refused:
        opened(made)
    assert (refused.value.reason, "before its upgrade" in refused.value.message) == ("schema_older", True)
    told = issuer_here("doctor", "--json", at=made.folder).answer
    (found,) = [row for row in told["findings"] if row["check"] == "ledger"]
    assert (found["ok"], "newest" in found["next"]) == (False, True)


@pytest.mark.spec("LED-06", "ADM-06")
def test_an_issuer_that_was_set_back_whole_to_before_its_upgrade_is_caught_by_its_sink(
    made: OldIssuer,
) -> None:
    asked = {"name": "after"}
    binding = made.places.keys / "ledger"
    keys = binding.read_bytes() if binding.exists() else None
    with opened(made) as issuer:
        effect = issuer.request("publish", asked, task="t1", actor="agent-7").effect
        assert issuer.admit(str(effect)).code == "admitted"
    made.ledger.unlink()
    made.kept.rename(made.ledger)
    (made.places.keys / "ledger").unlink()
    if keys is not None:
        write_private(made.places.keys / "ledger", keys)
    with opened(made) as issuer:
        answer = issuer.request("publish", asked, task="t1", actor="agent-7")
        assert answer.code == "audit_unavailable"


@pytest.mark.spec("ADM-06")
def test_keys_without_a_ledger_are_bound_to_none_that_was_never_upgraded(made: OldIssuer) -> None:
    upgraded(made)
    (made.places.keys / "ledger").unlink()
    raw = attacker(made.ledger)
    raw.execute("DROP TRIGGER spans_never_updated")
    raw.execute("UPDATE spans SET name = 'refused' WHERE name = 'ledger.migrated'")
    raw.close()
    with pytest.raises(Fault):
        opened(made)
    assert not (made.places.keys / "ledger").exists()


@pytest.mark.spec("ADM-06", "LED-04")
@pytest.mark.parametrize("number", [2, 3])
def test_keys_of_another_ledger_upgrade_nothing(tmp_path: Path, number: int) -> None:
    made = old_issuer(tmp_path / "f0", number=number)
    binding = made.places.keys / "ledger"
    ledger_id, other = made.ring.ledger_id or "", "led_" + "7" * 32
    said = [other, *([] if number == 2 else [str(number)])]
    mac = hmac.digest(made.ring.subkey(Purpose.MARKS, 7), "\x00".join(("keys", *said)).encode(), "sha256")
    line = binding.read_text().replace(ledger_id, other).split()
    binding.unlink()
    write_private(binding, " ".join((*line[:-1], mac.hex())).encode() + b"\n")
    assert_left_alone(made, files(made.folder), "foreign_ledger")
