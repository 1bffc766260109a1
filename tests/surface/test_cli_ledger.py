"""`issuer ledger check` and `issuer ledger stats`, as they are typed."""

from pathlib import Path

import pytest

from tests.support.busy import STATES, Busy, busy_issuer
from tests.support.shell import issuer_here

Fields = dict[str, object]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Busy:
    return busy_issuer(tmp_path_factory.mktemp("busy") / "f0")


@pytest.fixture
def busy(kept: Busy, tmp_path: Path) -> Busy:
    return kept.copied(tmp_path / "f0")


@pytest.mark.spec("LED-04", "SUR-03")
def test_a_clean_check_says_so_and_ends_well(busy: Busy) -> None:
    shown = issuer_here("ledger", "check", at=busy.folder)
    assert (shown.exit, shown.out.splitlines()[-1]) == (0, "No problem was found.")
    answer = issuer_here("ledger", "check", "--json", at=busy.folder).answer
    assert answer["code"] == "found"
    assert (answer["findings"], answer["halted"], answer["tasks_checked"]) == ([], False, 6)
    assert answer["issuer"].startswith("f0/")
    assert type(answer["took_ms"]) is int


@pytest.mark.spec("LED-04", "SUR-03", "SEC-01")
def test_a_finding_is_told_with_its_place_and_what_follows(busy: Busy) -> None:
    busy.attack("UPDATE budgets SET overrun = 0 WHERE overrun > 0", "UPDATE sinks SET location = 'CANARY'")
    shown = issuer_here("ledger", "check", at=busy.folder)
    assert shown.exit == 8
    assert "PROBLEM  sink_mac: sinks local: " in shown.out
    assert shown.out.count("budget_overrun: budgets tsk_") == 2
    assert "new effects are stopped, and reading goes on" in shown.out
    answer = issuer_here("ledger", "check", "--json", at=busy.folder).answer
    assert (answer["code"], answer["halted"]) == ("ledger_unavailable", True)
    rows: list[Fields] = answer["findings"]
    assert [row["check"] for row in rows] == ["sink_mac", "budget_overrun", "budget_overrun"]
    assert all(set(row) == {"check", "ok", "where", "says", "next"} for row in rows)
    assert "CANARY" not in shown.out + str(answer)
    told = issuer_here("doctor", "--json", at=busy.folder).answer
    (ledger,) = [row for row in told["findings"] if row["check"] == "ledger"]
    assert (ledger["ok"], "`issuer ledger check`" in ledger["next"]) == (False, True)


@pytest.mark.spec("LED-02", "BUD-04")
def test_stats_count_states_spans_tasks_bytes_and_what_unknown_effects_hold(busy: Busy) -> None:
    stats = issuer_here("ledger", "stats", "--json", at=busy.folder).answer["stats"]
    assert {state for state, number in stats["effects"].items() if number} == STATES
    assert sum(stats["effects"].values()) == busy.check().effects
    assert (stats["spans"], stats["tasks"]) == (busy.check().spans, 6)
    assert stats["held_unknown"] == {"USD.cent": 13}
    assert stats["file_bytes"] == busy.places.ledger.stat().st_size
    assert (stats["wal_bytes"], stats["halted"]) == (0, None)
    shown = issuer_here("ledger", "stats", at=busy.folder).out
    assert "held by unknown effects: USD.cent=13" in shown
    assert "permitted 1" in shown
    assert "declined" not in shown


@pytest.mark.spec("LED-04")
def test_stats_are_read_of_a_stopped_ledger_and_say_that_it_is(busy: Busy) -> None:
    busy.attack("UPDATE counters SET used = 0")
    issuer_here("ledger", "check", at=busy.folder)
    shown = issuer_here("ledger", "stats", at=busy.folder)
    assert shown.exit == 0
    assert "new effects are stopped: a check found counter" in shown.out


@pytest.mark.spec("SUR-02")
@pytest.mark.parametrize("command", ["check", "stats"])
def test_without_a_profile_or_a_ledger_there_is_one_sentence(
    busy: Busy, tmp_path: Path, command: str
) -> None:
    nowhere = issuer_here("ledger", command, "--json", at=tmp_path)
    assert (nowhere.exit, nowhere.answer["code"]) == (2, "malformed")
    busy.places.ledger.unlink()
    gone = issuer_here("ledger", command, "--json", at=busy.folder)
    assert (gone.exit, gone.answer["code"]) == (8, "ledger_unavailable")
    assert not (busy.places.ledger_folder / "halted").exists()
