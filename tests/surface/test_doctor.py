"""`issuer doctor` tells each trouble by itself, with what to do next, and changes nothing."""

import base64
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from audit import create
from issuer import Issuer
from issuer.clock import now_ms
from issuer.selfcheck import storage
from issuer.wire.codes import CODES
from ledger.model import InstantMs
from tests.support.issuers import (
    HOUR_MS,
    STANDARD_POLICY,
    STANDARD_PROFILE,
    Made,
    made_issuer,
    open_task,
    permitted,
    standard_issuer,
)
from tests.support.ledgers import attacker, without_guards
from tests.support.shell import HOUSE, Ran, issuer_here, issuer_process

SECRET = "canary-credential-7f3a"
WITH_CREDENTIAL = 'http = { method = "POST", bearer = "crm_token", '
DEPENDENT = {
    "packages": {"engine", "spans", "sqlite", "profile", "unserved", "policies", "operations", "time_zones",
                 "credentials", "keys", "ledger", "ledger_folder", "file_system", "space", "capacity", "protected",
                 "clock", "sinks", "anchor", "admissions", "stops", "notices", "revision",
                 "checkpoints", "checkpoint_copies"},
    "profile": {"unserved", "policies", "operations", "capacity", "notices", "checkpoint_copies"},
    "keys": {"ledger", "capacity", "protected", "clock", "sinks", "anchor", "admissions", "stops", "revision",
             "checkpoints", "checkpoint_copies"},
    "ledger": {"capacity", "clock", "sinks", "anchor", "admissions", "stops", "revision", "checkpoints",
               "checkpoint_copies"},
}  # fmt: skip
"""What may not be judged where another check is not well."""

BESIDE = {"command", "file_system"}
"""What depends on where the tests run: the PATH, and a file system that the machine does not name."""


@dataclass(frozen=True, kw_only=True)
class Room:
    """A copy of an issuer that one test may break, and the audit file that it has alone."""

    folder: Path
    sink: Path

    def everything(self) -> dict[str, tuple[int, bytes]]:
        """Return mode and bytes of all there is, but for SQLite's index in shared memory."""
        return {
            str(path): (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
            for top in (self.folder, self.sink.parent)
            for path in sorted(top.rglob("*"))
            if not path.name.endswith("-shm")
        }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Made:
    changes = {'http = { method = "POST", ': WITH_CREDENTIAL}
    made = standard_issuer(tmp_path_factory.mktemp("doctor") / "f0", port=9, changes=changes)
    token = made.folder / "credentials" / "crm_token"
    token.write_text(SECRET)
    token.chmod(0o600)
    with made.open() as issuer:
        permitted(issuer.request("publish", {"name": "one"}, task="org", actor="agent-7"))
    return made


@pytest.fixture
def room(whole: Made, tmp_path: Path) -> Iterator[Room]:
    """A copy of the folder; the audit file, whose place the ledger says, is put back afterwards."""
    kept = whole.sink.read_bytes()
    yield Room(folder=Path(shutil.copytree(whole.folder, tmp_path / "f0")), sink=whole.sink)
    whole.sink.unlink(missing_ok=True)
    whole.sink.write_bytes(kept)
    whole.sink.chmod(0o600)


def findings(ran: Ran) -> dict[str, list[dict[str, Any]]]:
    """Return the findings of an answer by check."""
    found: dict[str, list[dict[str, Any]]] = {}
    for one in ran.answer["findings"]:
        assert list(one) == ["check", "ok", "says", "next"]
        found.setdefault(one["check"], []).append(one)
    return found


def assert_only(ran: Ran, check: str, code: str, words: str) -> None:
    """Demand that this check is the only problem, that it helps, and that only what rests on it is not judged."""
    found = findings(ran)
    problems = [one for rows in found.values() for one in rows if one["ok"] is False]
    assert {one["check"] for one in problems} == {check}, problems
    assert all(one["next"].strip() for one in problems)
    assert words in " ".join(f"{one['says']} {one['next']}" for one in problems), problems
    unsure = {one["check"] for rows in found.values() for one in rows if one["ok"] is None}
    assert unsure - BESIDE == DEPENDENT.get(check, set()) - BESIDE
    assert (ran.code, ran.exit, ran.err) == (code, int(CODES[code].exit), "")


# ------------------------------------------------------------------------------------------ all is well


@pytest.mark.spec("SUR-03", "LED-01")
def test_a_healthy_issuer_is_told_to_be_healthy_and_left_byte_for_byte(room: Room) -> None:
    before = room.everything()
    ran = issuer_process("doctor", "--json", at=room.folder)
    assert (ran.exit, ran.code, ran.err) == (0, "found", "")
    found = findings(ran)
    assert set(found) >= {"python", "umask", "account", *DEPENDENT, *DEPENDENT["packages"]}
    assert all(one["ok"] for name in set(found) - BESIDE for one in found[name]), found
    assert "journal mode wal, synchronous FULL" in found["ledger"][0]["says"]
    assert str(room.sink) in found["sinks"][0]["says"]
    assert ran.answer["issuer"].startswith("f0/")
    assert room.everything() == before


@pytest.mark.spec("SUR-03", "SEC-01", "OPR-03")
def test_people_read_one_line_a_finding_and_never_a_secret(room: Room) -> None:
    (room.folder / "keys").chmod(0o750)
    ran = issuer_process("doctor", "--profile", "f0/profile.toml", at=room.folder.parent)
    lines = ran.out.splitlines()
    assert (ran.exit, ran.err) == (8, "")
    assert lines[0] == "keys_unavailable  (f0, ordinary)"
    assert lines[-1] == "There is 1 problem. Nothing was changed."
    (at,) = [number for number, line in enumerate(lines) if line.startswith("  PROBLEM  keys: ")]
    assert lines[at + 1].startswith("           -> Chmod its folder to 0700")
    assert any(line.startswith("  ok       profile: ") and "roles are recorded" in line for line in lines)
    assert any(line.startswith("  unsure   ledger: Not judged, for it needs `keys`") for line in lines)
    (room.folder / "keys").chmod(0o700)
    told = (
        ran.out
        + issuer_here("doctor", at=room.folder).out
        + issuer_here("doctor", "--json", at=room.folder).out
    )
    (key,) = [one for one in (room.folder / "keys").iterdir() if one.name != "ledger"]
    root = key.read_text().split()[-1]
    for secret in (SECRET, root, base64.b64decode(root).hex()):
        assert secret not in told


@pytest.mark.spec("AUD-03")
def test_an_environment_that_silences_telemetry_stays_well_and_a_malformed_one_is_told(room: Room) -> None:
    quiet = {
        "OTEL_SDK_DISABLED": "true",
        "OTEL_TRACES_SAMPLER": "always_off",
        "OTEL_EXPORTER_OTLP_HEADERS": SECRET,
    }
    ran = issuer_process("doctor", "--json", at=room.folder, env=quiet)
    assert (ran.exit, ran.code) == (0, "found")
    assert "OTEL_SDK_DISABLED" in findings(ran)["spans"][0]["says"]
    assert SECRET not in ran.out
    broken = issuer_process(
        "doctor", "--json", at=room.folder, env={"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "many"}
    )
    assert_only(broken, "spans", "audit_unavailable", "Unset it")


@pytest.mark.spec("LED-01", "LED-04")
def test_what_a_killed_process_left_in_the_wal_is_read_and_left_there(room: Room) -> None:
    shutil.rmtree(room.folder)
    whole_folder = room.folder.parent / "live"
    made = standard_issuer(whole_folder, port=9)
    with made.open() as issuer:
        open_task(issuer, "late", budget={}, subject="u-ana", actors=["agent-7"])
        shutil.copytree(whole_folder, room.folder)
        beside = issuer_process("doctor", "--json", at=whole_folder)
        assert issuer.task_close("late").code == "closed"
    assert beside.exit == 0
    wal = room.folder / "ledger" / "ledger.sqlite-wal"
    assert wal.stat().st_size > 0
    before = room.everything()
    ran = issuer_process("doctor", "--json", at=room.folder)
    assert (ran.exit, ran.code) == (0, "found")
    assert room.everything() == before
    assert findings(ran)["ledger"][0]["says"] == findings(beside)["ledger"][0]["says"]


# ------------------------------------------------------------------------------------------ each trouble

Break = Callable[[Room], object]


def rewrite(old: str, new: str) -> Break:
    """Change one text of the profile."""

    def change(room: Room) -> None:
        path = room.folder / "profile.toml"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    return change


def mode(place: str, bits: int) -> Break:
    """Change the mode of a file or folder, or of everything that a pattern matches."""

    def change(room: Room) -> None:
        paths = list(room.folder.glob(place))
        assert paths
        for path in paths:
            path.chmod(bits)

    return change


def gone(place: str) -> Break:
    """Take a file or a folder away."""

    def change(room: Room) -> None:
        path = room.folder / place
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return change


def sql(*statements: str) -> Break:
    """Change the ledger as someone with another program would."""

    def change(room: Room) -> None:
        raw = attacker(room.folder / "ledger" / "ledger.sqlite")
        for statement in statements:
            raw.execute(statement)
        raw.close()

    return change


def edited_head(room: Room) -> None:
    """Set the head back by one entry, without the keys."""
    without_guards(room.folder / "ledger" / "ledger.sqlite", "UPDATE head SET sequence = sequence - 1")


def other_sink(room: Room) -> None:
    """Put another ledger's audit file in the place of ours."""
    room.sink.unlink()
    create(room.sink, "led_" + "f" * 32)


def emptied_sink(room: Room) -> None:
    """Put an empty file in the place of the audit file."""
    room.sink.unlink()
    room.sink.touch(mode=0o600)


def rolled_back(room: Room) -> None:
    """Let the audit file learn of an entry that the ledger then loses."""
    later = shutil.copytree(room.folder, room.folder.parent / "later")
    with Issuer.open(later / "profile.toml") as issuer:
        open_task(issuer, "later", budget={}, subject="u-ana", actors=["agent-7"])
        house = issuer._house
        house.delivery.acknowledge(house.ledger.read(lambda view: view.head()).sequence)


def clock_was_ahead(room: Room) -> None:
    """Write an entry while the clock was an hour ahead."""
    with Issuer.open(room.folder / "profile.toml", clock=lambda: InstantMs(now_ms() + HOUR_MS)) as issuer:
        open_task(issuer, "early", budget={}, subject="u-ana", actors=["agent-7"], hours=48)


def broken_policy(room: Room) -> None:
    """Add a policy that does not parse."""
    (room.folder / "policies" / "b.cedar").write_text("permit (")


def no_ledger_file(room: Room) -> None:
    """Put text in the place of the ledger."""
    (room.folder / "ledger" / "ledger.sqlite").write_bytes(b"text" * 2048)


OTLP = 'required = true }\nsink.far = { type = "otlp", url = "https://otlp.example/v1/traces" }'

TROUBLES: list[tuple[str, Break, str, str, str]] = [
    ("a key that others can read", mode("keys/*.key", 0o640), "keys", "keys_unavailable", "0600"),
    ("a key folder that others can read", mode("keys", 0o755), "keys", "keys_unavailable", "0700"),
    ("no keys", gone("keys"), "keys", "keys_unavailable", "estore its backup"),
    ("a removed sink", lambda room: room.sink.unlink(), "sinks", "audit_unavailable", "never make an empty one"),
    ("a sink of another ledger", other_sink, "sinks", "audit_unavailable", "belongs to another ledger"),
    ("an emptied sink", emptied_sink, "sinks", "audit_unavailable", "does not begin as one"),
    ("a sink that others can write", lambda room: room.sink.chmod(0o622), "sinks", "audit_unavailable", "chmod 600"),
    ("a sink that is read-only", lambda room: room.sink.chmod(0o400), "sinks", "audit_unavailable", "writable"),
    ("a ledger behind its sink", rolled_back, "sinks", "audit_unavailable", "rolled back"),
    ("a sink of another name", rewrite("sink.local", "sink.other"), "sinks", "audit_unavailable", "only the ledger"),
    ("no ledger", gone("ledger/ledger.sqlite"), "ledger", "ledger_unavailable", "Bring the ledger back"),
    ("no database", no_ledger_file, "ledger", "ledger_unavailable", "backup"),
    ("an edited head", edited_head, "ledger", "ledger_unavailable", "without the keys"),
    ("a dropped guard", sql("DROP TRIGGER effects_move"), "ledger", "ledger_unavailable", "guards"),
    ("another journal mode", sql("PRAGMA journal_mode = delete"), "ledger", "ledger_unavailable", "not wal"),
    ("a ledger folder open to others", mode("ledger", 0o770), "ledger_folder", "ledger_unavailable", "chmod 700"),
    ("a protected store open to others", mode("protected", 0o705), "protected", "ledger_unavailable", "chmod 700"),
    ("a clock behind the ledger", clock_was_ahead, "clock", "clock_untrusted", "Set the clock right"),
    ("a broken policy", broken_policy, "policies", "malformed", "b.cedar:1:"),
    ("no policies", gone("policies"), "policies", "malformed", "cannot be read"),
    ("a broken profile", rewrite("lifetime = ", "lifetme = "), "profile", "malformed", 'Did you mean "lifetime"?'),
    ("no profile", gone("profile.toml"), "profile", "malformed", "issuer init FOLDER"),
    ("a sink that nobody made", rewrite("required = true }", OTLP), "sinks", "audit_unavailable", "only the profile"),
    ("strict", rewrite('"ordinary"', '"strict"'), "unserved", "unsupported", "mode"),
    ("an open credential", mode("credentials/crm_token", 0o644), "credentials", "keys_unavailable", "mode 0600"),
    ("a missing credential", gone("credentials/crm_token"), "credentials", "keys_unavailable", "no credential crm"),
    ("an open credential folder", mode("credentials", 0o755), "credentials", "keys_unavailable", "chmod 700"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "check", "code", "words"), [row[1:] for row in TROUBLES], ids=[row[0] for row in TROUBLES]
)
@pytest.mark.spec("LED-04", "LED-06", "POL-04", "SEC-03", "AUD-02", "PER-03", "OPR-03", "SUR-02")
def test_each_trouble_is_told_by_itself_with_what_to_do_and_nothing_is_changed(
    room: Room, change: Break, check: str, code: str, words: str
) -> None:
    change(room)
    before = room.everything()
    ran = issuer_here("doctor", "--json", at=room.folder)
    assert room.everything() == before
    assert_only(ran, check, code, words)


@pytest.mark.spec("SEC-03", "AUD-02")
def test_two_troubles_are_both_told_and_the_exit_code_is_that_of_the_first_to_repair(room: Room) -> None:
    for path in (room.folder / "keys").iterdir():
        path.chmod(0o640)
    broken_policy(room)
    rewrite("lifetime = ", "lifetme = ")(room)
    before = room.everything()
    ran = issuer_process("doctor", "--json", at=room.folder)
    assert (ran.exit, ran.code) == (2, "malformed")
    assert {one["check"] for one in ran.answer["findings"] if one["ok"] is False} == {"profile", "keys"}
    assert room.everything() == before
    rewrite("lifetme = ", "lifetime = ")(room)
    ran = issuer_here("doctor", "--json", at=room.folder)
    assert {one["check"] for one in ran.answer["findings"] if one["ok"] is False} == {"policies", "keys"}
    assert "There are 2 problems." in ran.answer["say"]


# ------------------------------------------------------------------------------------------ hints


def test_a_group_without_members_a_file_that_is_not_read_and_a_missing_folder_are_hints(
    tmp_path: Path,
) -> None:
    text = STANDARD_PROFILE.replace("@UID@", str(os.getuid())).replace("@PORT@", "9")
    text = text.replace(
        'host = { deadline = "5m" }',
        'file = { action = "create", root = "drafts", path = "{name}", content = "x" }',
    )
    made = made_issuer(tmp_path / "f0", text, {"p.cedar": STANDARD_POLICY.replace('"bots"', '"bost"')})
    (made.folder / "policies" / "more.txt").write_text("forgotten", encoding="utf-8")
    ran = issuer_here("doctor", "--json", at=made.folder)
    found = findings(ran)
    said = [finding["says"] for name in ("policies", "operations") for finding in found[name]]
    assert (ran.exit, ran.code) == (0, "found")
    assert "p.cedar names the group bost, which nobody is in." in said
    assert "more.txt is not read: policies end in .cedar." in said
    assert "The operation publish works in drafts/, which does not exist." in said


def test_what_could_be_better_is_a_hint_and_no_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = STANDARD_PROFILE.replace("@UID@", str(os.getuid())).replace("@PORT@", "9")
    text = text.replace('path = "audit"', f'path = "{tmp_path / "f0" / "audit"}"')
    text += '[notify.desk]\ncommand = ["/no/such/program"]\non = ["frozen"]\n'
    made = made_issuer(tmp_path / "f0", text, {"p.cedar": STANDARD_POLICY})
    with made.open() as issuer:
        open_task(issuer, "org", budget={"USD.cent": 10}, subject="u-ana", actors=["agent-7"])
        effect = permitted(issuer.request("publish", {"name": "one"}, task="org", actor="agent-7"))
        assert issuer.admit(effect).code == "admitted"
        assert issuer.freeze("class", "refund").code == "suspended_now"
    monkeypatch.setattr(storage, "now_ms", lambda: now_ms() + HOUR_MS)
    ran = issuer_here("doctor", "--json", at=made.folder)
    found = findings(ran)
    assert (ran.exit, ran.code) == (0, "found")
    assert "lies in the issuer's own folder" in found["anchor"][0]["says"]
    assert "The command of notify.desk is no program" in found["notices"][0]["says"]
    assert "1 admission open, 1 overdue." in found["admissions"][0]["says"]
    assert all(
        found[name][0]["ok"] is True and found[name][0]["next"]
        for name in ("anchor", "notices", "admissions", "stops")
    )
    assert "class:refund (frozen)" in found["stops"][0]["says"]
    assert "hint     anchor: " in issuer_here("doctor", at=made.folder).out


@pytest.mark.parametrize("value", ["uid:1000", ""])
def test_as_somebody_else_is_refused_as_not_supported_yet(room: Room, value: str) -> None:
    ran = issuer_here("doctor", "--as", value, "--json", at=room.folder)
    assert (ran.exit, ran.code) == (7, "unsupported")
    assert "--as" in ran.answer["say"]


# ------------------------------------------------------------------------------------------ foreign rooms

TRAP = "from pathlib import Path\nPath({place!r}).write_text('ran')\n"


def foreign(name: str, at: Path) -> tuple[dict[str, str], Path]:
    """Make a package that takes a room's name and tells when it is run; return the environment that prefers it."""
    (at / "foreign" / name).mkdir(parents=True)
    ran = at / "it-ran"
    (at / "foreign" / name / "__init__.py").write_text(TRAP.format(place=str(ran)))
    return {"PYTHONPATH": f"{at / 'foreign'}{os.pathsep}{HOUSE}"}, ran


@pytest.mark.parametrize("name", ["audit", "policies"])
def test_a_foreign_room_is_told_and_not_a_line_of_it_runs(room: Room, tmp_path: Path, name: str) -> None:
    env, ran_file = foreign(name, tmp_path)
    before = room.everything()
    assert_only(
        issuer_process("doctor", "--json", at=room.folder, env=env), "packages", "fault", f"`{name}` is "
    )
    listed = issuer_process("list", "--json", at=room.folder, env=env)
    assert (listed.exit, listed.code, listed.err) == (1, "fault", "")
    assert f"`{name}` is " in listed.answer["say"]
    assert not ran_file.exists()
    assert room.everything() == before


def test_a_foreign_ledger_ends_every_command_in_one_sentence(room: Room, tmp_path: Path) -> None:
    env, ran_file = foreign("ledger", tmp_path)
    ran = issuer_process("doctor", at=room.folder, env=env)
    assert (ran.exit, ran.out) == (1, "")
    assert ran.err.startswith("fault: Foreign packages stand in the place of our own (`ledger` is ")
    assert len(ran.err.splitlines()) == 1
    assert not ran_file.exists()


def test_a_folder_that_only_has_the_name_of_a_room_is_no_foreign_room(room: Room, tmp_path: Path) -> None:
    (tmp_path / "data" / "audit").mkdir(parents=True)
    env = {"PYTHONPATH": f"{tmp_path / 'data'}{os.pathsep}{HOUSE}"}
    ran = issuer_process("doctor", "--json", at=room.folder, env=env)
    assert (ran.exit, findings(ran)["packages"][0]["ok"]) == (0, True)
