"""`issuer init`: made once, changed never, and refused in one sentence where something stands in the way."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from issuer.starter import starter_profile
from tests.support.issuers import STANDARD_POLICY, STANDARD_PROFILE
from tests.support.shell import HOUSE, issuer_here, issuer_process

NOBODY = 65534


def everything_in(*folders: Path) -> dict[str, tuple[int, bytes]]:
    """Return mode and bytes of every file below `folders`, and the mode of every folder."""
    return {
        str(path): (path.stat().st_mode, path.read_bytes() if path.is_file() else b"")
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if not path.name.endswith("-shm")  # SQLite's index in shared memory holds nothing of its own
    }


def owned_profile(folder: Path, text: str) -> None:
    """Write an owner's own profile with the standard policy."""
    folder.mkdir()
    (folder / "profile.toml").write_text(text.replace("@UID@", str(os.getuid())).replace("@PORT@", "9"))
    (folder / "policies").mkdir()
    (folder / "policies" / "mine.cedar").write_text(STANDARD_POLICY)


@pytest.mark.spec("SEC-03", "AUD-02", "SUR-03")
def test_a_fresh_issuer_works_and_a_second_run_changes_nothing_byte_for_byte(tmp_path: Path) -> None:
    state = Path(os.environ["XDG_STATE_HOME"])
    first = issuer_process("init", "house", at=tmp_path)
    assert (first.exit, first.err) == (0, "")
    assert "ordinary: one account, roles are recorded, not enforced" in first.out
    assert "\x1b" not in first.out
    made = everything_in(tmp_path, state)
    again = issuer_process("init", "house", "--json", at=tmp_path)
    assert (again.exit, again.code, again.err) == (0, "created", "")
    assert again.answer["made"] == []
    assert everything_in(tmp_path, state) == made
    house = tmp_path / "house"
    for name in ("keys", "credentials", "protected", "ledger"):
        assert (house / name).stat().st_mode & 0o777 == 0o700, name
    assert all(path.stat().st_mode & 0o077 == 0 for path in (house / "keys").iterdir())
    (sink,) = again.answer["audit"]
    assert Path(sink).is_file()
    assert not Path(sink).is_relative_to(house)


def test_each_thing_that_was_made_or_kept_is_told_once(tmp_path: Path) -> None:
    for word in ("made", "kept"):
        told = issuer_here("init", "house", "--json", at=tmp_path).answer[word]
        assert len(told) == len(set(told)), told
        assert {"keys/", "credentials/", "protected/", "ledger/"} <= set(told)


@pytest.mark.spec("EFF-06", "REP-01", "ADM-04")
def test_what_init_says_to_type_next_works_as_typed(tmp_path: Path) -> None:
    said = issuer_here("init", "house", at=tmp_path).out
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    entry = "from issuer.surfaces.cli import main; main()"
    (bin_folder / "issuer").write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{entry}" "$@"\n')
    (bin_folder / "issuer").chmod(0o755)
    typed = said.partition("Next:\n")[2].replace("issuer commit EFFECT", "")
    environment = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}", "PYTHONPATH": str(HOUSE)}
    ran = subprocess.run(
        ["sh", "-e"], input=typed, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "nothing may be sent yet" in ran.stdout
    effect = next(line.split()[1] for line in ran.stdout.splitlines() if line.startswith("  effect: "))
    house = tmp_path / "house"
    assert not (house / "outbox" / "notes" / "hello.txt").exists()
    done = issuer_here("commit", effect, at=house)
    assert (done.exit, done.out.split()[0]) == (0, "succeeded")
    assert (house / "outbox" / "notes" / "hello.txt").read_text() == "hello"


def test_an_owners_own_profile_and_policies_are_kept_and_completed(tmp_path: Path) -> None:
    house = tmp_path / "house"
    owned_profile(house, STANDARD_PROFILE)
    mine = everything_in(house)
    ran = issuer_here("init", "house", "--json", at=tmp_path)
    assert (ran.exit, ran.code) == (0, "created")
    assert "profile.toml" in ran.answer["kept"]
    assert ran.answer["issuer"].startswith("f0/")
    after = everything_in(house)
    assert {name: after[name] for name in mine} == mine
    assert not (house / "outbox").exists()


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (('mode = "ordinary"', 'mode = "strict"'), "unsupported", "Not supported yet: mode strict"),
        (('lifetime = "10m"', 'lifetme = "10m"'), "malformed", 'Did you mean "lifetime"?'),
        (('lifetime = "10m"', 'lifetime = "10 minutes"'), "malformed", "profile.toml:17:1: class.refund.lifetime"),
        (("format = 1", "format = "), "malformed", "profile.toml:2:10"),
        (("per_task = { permits = 100 }", "per_task = { permits = 0 }"), "malformed", "class.refund.per_task.permits"),
    ],
)  # fmt: skip
@pytest.mark.spec("OPR-03", "SUR-02")
def test_a_profile_that_cannot_be_used_stops_init_before_anything_is_made(
    tmp_path: Path, change: tuple[str, str], code: str, words: str
) -> None:
    house = tmp_path / "house"
    assert change[0] in STANDARD_PROFILE
    owned_profile(house, STANDARD_PROFILE.replace(*change))
    before = everything_in(tmp_path, Path(os.environ["XDG_STATE_HOME"]))
    ran = issuer_here("--json", "init", "house", at=tmp_path)
    assert (ran.code, ran.exit) == (code, 7 if code == "unsupported" else 2)
    assert words in ran.answer["say"]
    assert everything_in(tmp_path, Path(os.environ["XDG_STATE_HOME"])) == before


@pytest.mark.spec("OPR-03")
def test_strict_is_refused_and_not_taken_for_ordinary(tmp_path: Path) -> None:
    ran = issuer_here("init", "house", "--mode", "strict", "--json", at=tmp_path)
    assert (ran.exit, ran.code) == (7, "unsupported")
    assert not (tmp_path / "house").exists()


@pytest.mark.parametrize(
    ("policies", "words"),
    [
        ({"a.cedar": "permit (principal, action"}, "a.cedar:1:"),
        ({"a.cedar": "permit (principal, action, resource);"}, "@id"),
        ({"a.cedar": '@id("a") permit (principal, action == Action::"isue", resource);'}, "a.cedar:"),
        ({"a.txt": "no policy"}, "There is no .cedar file in policies/."),
        ({}, "There is no .cedar file in policies/."),
        ({"a.cedar": "\udcff"}, "cannot be read"),
    ],
)
@pytest.mark.spec("POL-04")
def test_policies_that_cannot_be_used_stop_init_before_anything_is_made(
    tmp_path: Path, policies: dict[str, str], words: str
) -> None:
    house = tmp_path / "house"
    owned_profile(house, STANDARD_PROFILE)
    (house / "policies" / "mine.cedar").unlink()
    for name, text in policies.items():
        (house / "policies" / name).write_text(text, errors="surrogateescape")
    before = everything_in(tmp_path)
    ran = issuer_here("init", "house", "--json", at=tmp_path)
    assert (ran.exit, ran.code) == (2, "malformed")
    assert words in ran.answer["say"]
    assert everything_in(tmp_path) == before


@pytest.mark.spec("SEC-03", "LED-06")
def test_a_ledger_without_its_keys_is_never_given_new_ones(tmp_path: Path) -> None:
    assert issuer_here("init", "house", at=tmp_path).exit == 0
    house = tmp_path / "house"
    shutil.move(house / "keys", tmp_path / "kept")
    before = everything_in(tmp_path)
    ran = issuer_here("init", "house", "--json", at=tmp_path)
    assert ran.exit == 2
    assert "There is a ledger but no keys" in ran.answer["say"]
    assert everything_in(tmp_path) == before
    shutil.move(tmp_path / "kept", house / "keys")
    assert issuer_here("init", "house", at=tmp_path).exit == 0


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for folder in ("file", "file/house", "x" * 300):
        ran = issuer_here("init", folder, "--json", at=tmp_path)
        assert (ran.exit, ran.code, ran.err) == (2, "malformed", ""), folder
        assert ran.answer["say"].endswith(".")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_a_folder_that_is_not_writable_is_one_sentence(tmp_path: Path) -> None:
    shut = tmp_path / "shut"
    shut.mkdir(mode=0o500)
    user = (
        NOBODY if os.getuid() == 0 else None
    )  # the superuser writes everywhere, so another account is asked
    try:
        ran = issuer_process("init", "shut/house", "--json", at=tmp_path, user=user)
    except PermissionError:
        pytest.skip("another account cannot start this interpreter")
    if "No module named" in ran.err:
        pytest.skip("another account cannot read the product")
    assert (ran.exit, ran.code, ran.err) == (2, "malformed", "")
    assert "Permission denied" in ran.answer["say"]
    assert list(shut.iterdir()) == []


def test_the_starter_profile_is_the_one_that_init_writes(tmp_path: Path) -> None:
    assert issuer_here("init", "My House", at=tmp_path).exit == 0
    written = (tmp_path / "My House" / "profile.toml").read_text()
    assert written == starter_profile(name="my-house", uid=os.getuid())
