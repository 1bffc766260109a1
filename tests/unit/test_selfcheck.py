"""The checks of `issuer doctor`: none hides another, and their numbers are those of the rooms they speak of."""

import importlib
import os
import shutil
import sys
import zoneinfo
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import pytest

from audit.sinks.jsonl import FREE_BYTES_MIN
from issuer.places import Places
from issuer.selfcheck import Finding, engines, examination, machine, storage
from issuer.selfcheck.finding import Known
from issuer.wire.codes import CODES
from ledger.sqlite import connection
from tests.support.shell import HOUSE

Usage = namedtuple("Usage", "total used free")  # noqa: PYI024 - as shutil's own


@pytest.fixture
def known(tmp_path: Path) -> Known:
    (tmp_path / "ledger").mkdir(mode=0o700)
    return Known(places=Places(tmp_path / "profile.toml"))


def only(findings: Iterator[Finding]) -> Finding:
    (finding,) = findings
    return finding


def test_every_check_has_a_code_of_the_table_and_every_code_its_place() -> None:
    checks = {name for name, _check in (*examination._BEFORE_ROOMS, *examination._WITH_ROOMS)}
    assert set(examination._CODES) <= checks
    assert {*examination._CODES.values(), "fault"} == set(examination._PRECEDENCE)
    assert set(examination._PRECEDENCE) <= set(CODES)


def test_numbers_are_those_of_the_rooms_and_of_the_requirements() -> None:
    rules = (HOUSE / "pyproject.toml").read_text(encoding="utf-8")
    series = ".".join(engines.SDK_SERIES)
    assert f'"opentelemetry-sdk>={series},<1.{int(engines.SDK_SERIES[1]) + 1}"' in rules
    assert f'requires-python = ">={".".join(map(str, machine.PYTHON_MIN))}"' in rules
    assert storage.FREE_BYTES_MIN == FREE_BYTES_MIN


@pytest.mark.parametrize(
    ("raised", "ok", "words"),
    [
        (ImportError("x", name="cedarpy"), False, "does not load: cedarpy"),
        (RuntimeError("canary-secret"), None, "RuntimeError"),
        (OSError(5, "canary-secret"), None, "OSError"),
    ],
)
def test_a_check_that_breaks_is_a_finding_that_repeats_no_text(
    known: Known, raised: Exception, ok: bool | None, words: str
) -> None:
    def check(_known: Known) -> Iterator[Finding]:
        yield Finding(check="x", ok=True, says="First.")
        raise raised

    first, last = examination._asked("x", check, known)
    assert (first.says, last.ok) == ("First.", ok)
    assert words in last.says
    assert last.next
    assert "canary-secret" not in last.says


def test_a_full_disk_is_a_problem(known: Known, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: Usage(1, 1, FREE_BYTES_MIN - 1))
    assert only(storage.space(known)).ok is False
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: Usage(1, 1, FREE_BYTES_MIN))
    assert only(storage.space(known)).ok is True


@pytest.mark.parametrize(
    ("kind", "ok", "words"),
    [
        ("ext4", True, "ext4"),
        ("tmpfs", True, "Not durable: the ledger is on tmpfs"),
        ("nfs4", True, "Not durable"),
        ("overlay", True, "gone with its container"),
        ("unknown", None, "does not say"),
    ],
)
@pytest.mark.spec("LED-01")
def test_a_file_system_that_is_not_durable_is_told(
    known: Known, monkeypatch: pytest.MonkeyPatch, kind: str, ok: bool | None, words: str
) -> None:
    monkeypatch.setattr(connection, "file_system", lambda _path: kind)
    found = only(storage.file_system(known))
    assert found.ok is ok
    assert words in found.says
    assert bool(found.next) == (kind != "ext4")


@pytest.mark.parametrize("now", [0, storage.PLAUSIBLE_FROM_MS - 1, storage.PLAUSIBLE_UNTIL_MS])
@pytest.mark.spec("PER-03")
def test_a_clock_that_was_never_set_is_a_problem_even_without_a_ledger(
    known: Known, monkeypatch: pytest.MonkeyPatch, now: int
) -> None:
    monkeypatch.setattr(storage, "now_ms", lambda: now)
    assert only(storage.clock(known)).ok is False


def test_missing_time_zones_an_old_python_and_a_foreign_sdk_are_problems(
    known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise zoneinfo.ZoneInfoNotFoundError(name)

    monkeypatch.setattr(zoneinfo, "ZoneInfo", missing)
    assert only(machine.time_zones(known)).ok is False
    monkeypatch.setattr(sys, "version_info", (3, 10, 9, "final", 0))
    assert only(machine.python_version(known)).ok is False
    metadata = importlib.import_module("importlib.metadata")
    monkeypatch.setattr(metadata, "version", lambda _name: "1.46.0")
    assert only(engines.spans(known)).ok is False


@pytest.mark.spec("LED-04")
def test_an_unsafe_sqlite_library_names_the_journal_mode_that_takes_its_place(
    known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert only(engines.sqlite(known)).ok is True
    monkeypatch.setattr("ledger.sqlite.journal_mode", lambda: "truncate")
    found = only(engines.sqlite(known))
    assert (found.ok, bool(found.next)) == (True, True)
    assert "truncate" in found.says


@pytest.mark.spec("POL-04")
def test_another_engine_is_a_problem_and_nothing_decides_with_it(
    known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("policies.engine.ENGINE_PIN", "0.0.0")
    found = only(engines.engine(known))
    assert (found.ok, known.engine_is_fit) == (False, False)
    assert "engine_version" in found.says


def test_the_umask_is_looked_at_and_put_back(known: Known) -> None:
    before = os.umask(0o002)
    try:
        found = {one.check: one for one in machine.account(known)}
        assert found["umask"].next == "Set `umask 077` for this account."
        assert os.umask(0o002) == 0o002
    finally:
        os.umask(before)


def test_another_issuer_on_the_path_is_told(
    known: Known, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "bin" / "issuer"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(other.parent))
    found = only(machine.command(known))
    assert (found.ok, str(other) in found.says) == (None, True)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert only(machine.command(known)).ok is True
