"""What reviewers take away: exports that prove themselves, snapshots without secrets, reports whose count is signed."""

import csv
import hashlib
import json
import os
import shlex
import sqlite3
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from audit.errors import NoteRefused
from audit.notes import VerifierKey, read_vkey, vkey
from audit.otlp import bodies_in_json
from audit.reports import opened_report, recount
from issuer import Issuer
from issuer.new_file import NewFile
from issuer.verifying import Given
from issuer.verifying_reports import verify_report
from ledger.tree import GrowingTree, leaf_hash
from tests.support.canaries import CARD, NOTE, found_in
from tests.support.cases import length
from tests.support.issuers import Made, permitted, refund, standard_issuer
from tests.support.ledgers import attacker, without_guards
from tests.support.reviewing import whole_trail
from tests.support.service import Service, accept_then_close, answer

HIDDEN = {
    "payload = { order": "payload = { card = { string = 60, secret = true }, note = { string = 60 }, order",
}
ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guides" / "review-the-trail.md"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    with Service(answer(201), accept_then_close()) as service:
        folder = tmp_path_factory.mktemp("files")
        made = standard_issuer(folder / "f0", port=service.port, changes=HIDDEN)
        with made.open() as issuer:
            for order in ("o-1", "o-2"):
                issuer.commit(asked(issuer, order))
            issuer.show(asked(issuer, "o-3"), content=True)
        yield made


def asked(issuer: Issuer, order: str) -> str:
    payload = {"order": order, "amount": 100, "card": CARD, "note": NOTE}
    return permitted(issuer.request("refund", payload, task="t1", actor="agent-7"))


@pytest.fixture
def issuer(made: Made) -> Iterator[Issuer]:
    with made.open() as opened:
        yield opened


# -------------------------------------------------------------------------------------------- the export


@pytest.mark.spec("AUD-04", "AUD-06", "AUD-07")
def test_the_whole_trail_is_exported_as_the_sink_has_it_and_has_the_root_that_is_said(
    issuer: Issuer, made: Made, tmp_path: Path
) -> None:
    out = tmp_path / "trail.jsonl"
    before = length(issuer)
    told = issuer.audit_export(out)
    header, *lines = out.read_bytes().splitlines(keepends=True)
    sink = made.sink.read_bytes().splitlines(keepends=True)
    assert header == sink[0]
    assert len(lines) == before == told.more["spans"]
    assert lines[: len(sink) - 1] == sink[1 : len(lines) + 1]
    tree = GrowingTree()
    for line in lines:
        said = json.loads(line)
        tree.add(bytes.fromhex(said["leaf"]))
        body = line[line.index(b'"span":') + 7 : -2]
        assert leaf_hash(body).hex() == said["leaf"]
    assert told.more["tree"] == {"size": before, "root": tree.frontier().root().hex()}
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert told.more["sha256"] == hashlib.sha256(out.read_bytes()).hexdigest()


@pytest.mark.spec("AUD-06")
def test_an_export_is_on_record_before_the_file_has_its_name(
    issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "part.jsonl"
    seen: list[tuple[bool, str]] = []
    publish = NewFile.publish

    def watched(self: NewFile, record: Any, *, mode: int = 0o600) -> bool:
        def recording() -> bool:
            recorded = bool(record())
            seen.append((out.exists(), whole_trail(issuer)[-1].name))
            return recorded

        return publish(self, recording, mode=mode)

    monkeypatch.setattr(NewFile, "publish", watched)
    told = issuer.audit_export(out, actor="agent-7")
    assert seen == [(False, "audit.exported")]
    assert out.exists()
    look = whole_trail(issuer)[-1]
    assert (look["command"], look["format"], look["count"]) == ("audit-export", "jsonl", told.more["spans"])
    assert look["file.digest"] == hashlib.sha256(out.read_bytes()).hexdigest()
    assert look["filter.digest"] is not None
    assert look["tree.root"] is None, "a part says nothing of the whole"


@pytest.mark.spec("AUD-06")
@pytest.mark.parametrize("has_nameless", [True, False])
@pytest.mark.parametrize("command", ["audit_export", "audit_report"])
def test_what_is_not_on_record_yet_has_no_name_that_a_kill_could_leave(
    issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, *, has_nameless: bool
) -> None:
    out, seen = tmp_path / "taken", []
    publish = NewFile.publish

    def watched(self: NewFile, record: Any, *, mode: int = 0o600) -> bool:
        def recording() -> bool:
            seen.append(len([*tmp_path.iterdir()]))
            return bool(record())

        return publish(self, recording, mode=mode)

    monkeypatch.setattr(NewFile, "publish", watched)
    if not has_nameless:
        monkeypatch.setattr(
            "issuer.new_file._NAMELESS", os.O_RDWR
        )  # as where the file system has no such files
    told = getattr(issuer, command)(out=out)
    assert seen == [0 if has_nameless else 1]
    assert told.more["sha256"] == hashlib.sha256(out.read_bytes()).hexdigest()
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert [*tmp_path.iterdir()] == [out]


@pytest.mark.spec("AUD-06", "AUD-07")
def test_a_selection_is_no_whole_trail_to_anybody(issuer: Issuer, tmp_path: Path) -> None:
    issuer.audit_export(tmp_path / "part.jsonl", resource="o-1")
    header, *lines = (tmp_path / "part.jsonl").read_text().splitlines()
    assert json.loads(header)["kind"] == "permit-audit-part"
    expected = [one.sequence for one in whole_trail(issuer) if one["resource.id"] == "o-1"]
    assert [json.loads(line)["sequence"] for line in lines] == expected
    issuer.audit_export(tmp_path / "part.csv", form="csv", resource="o-1")
    rows = list(csv.DictReader((tmp_path / "part.csv").read_text().splitlines()))
    assert [int(row["sequence"]) for row in rows] == expected
    issuer.audit_export(tmp_path / "part.json", form="otlp-json", resource="o-1")
    bodies = [
        body for line in (tmp_path / "part.json").read_text().splitlines() for body in bodies_in_json(line)
    ]
    assert len(bodies) == len(expected)


@pytest.mark.spec("AUD-06")
@pytest.mark.parametrize("kind", ["file", "folder", "dangling link"])
@pytest.mark.parametrize("command", ["audit_export", "audit_snapshot", "audit_report"])
def test_nothing_is_ever_overwritten(issuer: Issuer, tmp_path: Path, kind: str, command: str) -> None:
    out = tmp_path / "there"
    if kind == "file":
        out.write_text("mine")
    elif kind == "folder":
        out.mkdir()
    else:
        out.symlink_to(tmp_path / "nowhere")
    before = length(issuer)
    told = getattr(issuer, command)(out=out)
    assert (told.code, told.more["reason"]) == ("malformed", "exists")
    assert [one.name for one in whole_trail(issuer)[before:] if one.name == "audit.exported"] == []
    assert [one.name for one in tmp_path.iterdir()] == ["there"]
    assert kind != "file" or out.read_text() == "mine"


@pytest.mark.spec("AUD-06")
def test_a_name_that_is_taken_meanwhile_is_not_taken_back(
    issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "late"
    publish = NewFile.publish

    def overtaken(self: NewFile, record: Any, *, mode: int = 0o600) -> bool:
        out.write_text("somebody else's")
        return publish(self, record, mode=mode)

    monkeypatch.setattr(NewFile, "publish", overtaken)
    told = issuer.audit_export(out)
    assert told.code == "malformed"
    assert [one.name for one in tmp_path.iterdir()] == ["late"]
    assert out.read_text() == "somebody else's"


@pytest.mark.spec("AUD-04", "AUD-06", "LED-06")
@pytest.mark.parametrize("command", ["audit_export", "audit_snapshot"])
def test_a_span_that_was_changed_with_its_hash_is_given_to_nobody_as_the_trail(
    tmp_path: Path, command: str
) -> None:
    """Every line would prove itself; the tree in the ledger's head does not."""
    with Service() as service:
        made = standard_issuer(tmp_path / "f0", port=service.port)
    with closing(attacker(made.ledger)) as raw:
        (body,) = raw.execute("SELECT body FROM spans WHERE sequence = 4").fetchone()
    changed = bytes(body).replace(b'"permit.subject":"u-ana"', b'"permit.subject":"u-eve"')
    values = f"body = X'{changed.hex()}', leaf = X'{leaf_hash(changed).hex()}'"
    without_guards(made.ledger, f"UPDATE spans SET {values} WHERE sequence = 4")  # noqa: S608 - hex digits
    out = tmp_path / "out"
    with made.open(reading=True) as issuer:
        told = getattr(issuer, command)(out)
    assert (told.code, told.more["reason"]) == ("ledger_unavailable", "tree_differs")
    assert not out.exists()


@pytest.mark.spec("AUD-06", "SUR-02")
def test_a_folder_that_is_not_there_is_told_in_one_sentence(issuer: Issuer, tmp_path: Path) -> None:
    told = issuer.audit_export(tmp_path / "none" / "x.jsonl")
    assert (told.code, told.more["reason"]) == ("malformed", "unwritable")


# ------------------------------------------------------------------------------------------ the snapshot


@pytest.mark.spec("AUD-06", "SEC-01")
def test_a_snapshot_answers_sql_and_holds_nothing_that_is_authority_or_secret(
    issuer: Issuer, made: Made, tmp_path: Path
) -> None:
    out = tmp_path / "trail.db"
    told = issuer.audit_snapshot(out)
    assert told.code == "found"
    assert stat.S_IMODE(out.stat().st_mode) == 0o400
    assert [one.name for one in tmp_path.iterdir()] == ["trail.db"], "no log beside it"
    trail = whole_trail(issuer)[:-1]
    with closing(sqlite3.connect(f"file:{out}?mode=ro&immutable=1", uri=True)) as raw:
        assert raw.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        names = {
            row[0] for row in raw.execute("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')")
        }
        assert names == {"about", "spans", "policies", "amounts", "effects", "decisions", "looks"}
        assert raw.execute("SELECT count(*) FROM spans").fetchone() == (len(trail),)
        states = dict(raw.execute("SELECT resource, state FROM effects").fetchall())
        assert states == {"o-1": "succeeded", "o-2": "unknown", "o-3": "permitted"}
        spent = raw.execute("SELECT sum(amount) FROM amounts WHERE what = 'charged'").fetchone()
        assert spent == (100,)
        decided = raw.execute("SELECT decision, count(*) FROM decisions GROUP BY decision").fetchall()
        assert dict(decided)["permitted"] == 3
        (root,) = raw.execute("SELECT value FROM about WHERE name = 'tree_root'").fetchone()
    tree: Any = told.more["tree"]
    assert root == tree["root"]
    data = out.read_bytes()
    assert found_in(data) == set()
    assert not [seal for seal in seals_of(made) if seal in data]
    look = whole_trail(issuer)[-1]
    assert (look.name, look["format"], look["count"]) == ("audit.exported", "sqlite", len(trail))
    assert look["file.digest"] == hashlib.sha256(data).hexdigest()


def seals_of(made: Made) -> list[bytes]:
    """Return every seal and MAC of the ledger, read from a copy so that SQLite's locks on it stay."""
    with made.open() as issuer:
        issuer._house.ledger.read(lambda view: view.head())
    copy = made.folder / "copy.sqlite"
    copy.write_bytes(made.ledger.read_bytes())
    with closing(sqlite3.connect(copy)) as raw:
        found = [row[0] for row in raw.execute("SELECT seal FROM permits")]
        found += [row[0] for row in raw.execute("SELECT mac FROM effects")]
    copy.unlink()
    assert found
    return [one.encode() if isinstance(one, str) else bytes(one) for one in found]


@pytest.mark.spec("AUD-06")
def test_the_recipe_for_sql_of_ones_own_is_as_the_guide_writes_it(issuer: Issuer, tmp_path: Path) -> None:
    assert issuer.audit_snapshot(tmp_path / "trail.db").code == "found"
    recipe = next(
        line[2:]
        for line in GUIDE.read_text(encoding="utf-8").splitlines()
        if line.startswith("$ sqlite-utils ")
    )
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(recipe.replace("sqlite-utils", "sqlite_utils", 1))],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "succeeded" in done.stdout


# -------------------------------------------------------------------------------------------- the report


def verifies(public_key: bytes, signature: bytes, message: bytes) -> bool:
    """Ed25519 as an outsider has it."""
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except InvalidSignature:
        return False
    return True


def key_of(issuer: Issuer) -> VerifierKey:
    return read_vkey(str(issuer.audit_key().more["vkeys"]).splitlines()[0])


@pytest.mark.spec("AUD-09", "AUD-04")
def test_an_outsider_proves_that_the_number_reported_is_the_number_signed(
    issuer: Issuer, tmp_path: Path
) -> None:
    told = issuer.audit_report(out=tmp_path / "report.note")
    assert (told.code, told.more["signed"]) == ("found", True)
    issuer.audit_export(tmp_path / "trail.jsonl")
    note = (tmp_path / "report.note").read_bytes()
    report = opened_report(note, key_of(issuer), verifies)
    lines = (tmp_path / "trail.jsonl").read_bytes().splitlines(keepends=True)
    assert recount(report, lines) == (report["spans"], report["transitions"])
    tree = GrowingTree()
    for line in lines[1 : report["tree"]["size"] + 1]:
        tree.add(bytes.fromhex(json.loads(line)["leaf"]))
    assert tree.frontier().root().hex() == report["tree"]["root"]
    look = next(one for one in reversed(whole_trail(issuer)) if one["format"] == "report")
    assert (look["count"], look["tree.root"]) == (report["spans"], report["tree"]["root"])


@pytest.mark.spec("AUD-09", "AUD-04")
def test_a_report_that_was_changed_or_is_by_another_key_is_refused(issuer: Issuer) -> None:
    note = str(issuer.audit_report().more["note"])
    key = key_of(issuer)
    assert opened_report(note.encode(), key, verifies)
    changed = note.replace('"spans":', '"spans":1', 1)
    other = VerifierKey(name=key.name, public_key=bytes(32))
    checkpoint = str(issuer.audit_checkpoint().more["note"])
    for data, by in ((changed, key), (note, other), (checkpoint, key)):
        with pytest.raises(NoteRefused):
            opened_report(data.encode(), by, verifies)


@pytest.mark.spec("AUD-09")
@pytest.mark.parametrize("attack", ["twice", "left out", "changed"])
def test_a_recount_finds_a_span_that_is_twice_left_out_or_changed(
    issuer: Issuer, tmp_path: Path, attack: str
) -> None:
    report: Any = issuer.audit_report().more["population"]
    issuer.audit_export(tmp_path / "trail.jsonl")
    lines = (tmp_path / "trail.jsonl").read_bytes().splitlines(keepends=True)
    if attack == "twice":
        lines.insert(5, lines[5])
    elif attack == "left out":
        del lines[5]
    else:
        lines[5] = lines[5].replace(b"t1", b"t2", 1)
    if attack == "changed":
        assert lines[5] != (tmp_path / "trail.jsonl").read_bytes().splitlines(keepends=True)[5]
    with pytest.raises(NoteRefused):
        recount(report, lines)


@pytest.mark.spec("AUD-09", "AUD-04")
@pytest.mark.parametrize(
    "attack", ["", "another number", "another key", "a part", "one less", "another ledger"]
)
def test_a_report_is_verified_without_a_profile(issuer: Issuer, tmp_path: Path, attack: str) -> None:
    note, export = tmp_path / "report.note", tmp_path / "trail.jsonl"
    issuer.audit_report(out=note)
    issuer.audit_export(export, actor="agent-7" if attack == "a part" else None)
    key = str(issuer.audit_key().more["vkeys"]).splitlines()[0]
    if attack == "another number":
        note.write_text(note.read_text().replace('"begun":', '"begun":1', 1))
    elif attack == "another key":
        key = vkey(read_vkey(key).name, bytes(32))
    elif attack == "one less":
        lines = export.read_bytes().splitlines(keepends=True)
        export.chmod(0o600)
        export.write_bytes(b"".join(lines[:4]))
    elif attack == "another ledger":
        export.write_bytes(export.read_bytes().replace(b"led_", b"leb_", 1))
    given = Given.of([key], ())
    told = verify_report(note, export, given)
    assert told.code == ("tampered" if attack else "verified"), told
    alone = verify_report(note, None, given)
    assert (alone.code == "tampered") is (attack in {"another number", "another key"})


@pytest.mark.spec("AUD-09")
def test_a_report_of_a_period_counts_that_period_alone(issuer: Issuer) -> None:
    first = issuer.audit_report()
    at = str(first.more["population"]["made"])  # type: ignore[index]
    refund(issuer, order="o-9")
    told: Any = issuer.audit_report(since=at).more["population"]
    trail = [one for one in whole_trail(issuer) if told["first"] <= one.sequence <= told["last"]]
    assert told["transitions"] == Counter(one.name for one in trail)
    assert told["spans"] == len(trail)
    until: Any = issuer.audit_report(until=at).more["population"]
    assert until["last"] == told["first"] - 1
    empty: Any = issuer.audit_report(since="2000-01-01T00:00:00Z", until="2000-01-02T00:00:00Z").more[
        "population"
    ]
    assert (empty["spans"], empty["transitions"]) == (0, {})
    assert issuer.audit_report(since="now", until="1h").code == "malformed"
