"""`audit archive`: a checkpointed prefix is sealed into a file, and what proofs need stays (AUD-08)."""
# ruff: noqa: S608 - only constants of this file are put into SQL text

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from audit import LedgerSpans
from audit.sinks.lines import read_span_line
from audit.verifier import verifier_text
from issuer import Issuer
from issuer.commands.roles import COMMANDS
from issuer.verifying import Given, verify_exports, verify_ledger, verify_permit
from ledger.archive import LeafRow
from ledger.sqlite.triggers import HOLDINGS_RECOUNTED
from ledger.transitions import SpanRow
from tests.support.aged import DAY_MS, DAYS, aged_issuer
from tests.support.archiving import Lived, dies_at, lived, past
from tests.support.bounded import denied
from tests.support.cases import Clock
from tests.support.issuers import permitted, refund
from tests.support.ledgers import without_guards
from tests.support.recount import recounted
from tests.support.restoring import restored, saved
from tests.support.revised import activated, rewritten, spans_of
from tests.support.service import Service, answer


@pytest.fixture(name="service")
def _service() -> Iterator[Service]:
    with Service() as service:
        yield service


@pytest.fixture(name="house")
def _house(tmp_path: Path, service: Service) -> Iterator[Lived]:
    with lived(tmp_path, service) as house:
        yield house


def no_bar(_total: int, _what: str) -> Callable[[int], None]:
    return lambda _done: None


def given(house: Lived, *notes: Path) -> Given:
    """Return the key of the checkpoints, and checkpoints from files or the issuer's own folder."""
    key = str(house.issuer.audit_key().more["vkeys"]).splitlines()[0]
    return Given.of([key], notes or [house.made.sink.parent / "checkpoints"])


def exported(house: Lived, name: str) -> Path:
    out = house.folder / name
    said = house.issuer.audit_export(out)
    assert said.code == "found", said
    return out


def all_rows(house: Lived) -> Sequence[SpanRow]:
    return house.issuer._house.ledger.read(lambda view: view.spans_after(0, limit=10_000))


def all_leaves(house: Lived) -> Sequence[LeafRow]:
    return house.issuer._house.ledger.read(lambda view: view.leaves_after(0, limit=10_000))


def rows(house: Lived) -> tuple[int, int]:
    """Return how many spans the ledger has, and how many leaves of archived ones."""
    raw = house.issuer._house.ledger.read(lambda view: view)._raw  # type: ignore[attr-defined]
    count = [
        raw.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("spans", "archived_leaves")
    ]
    return count[0], count[1]


@pytest.mark.spec("AUD-08")
def test_an_archive_and_the_later_trail_verify_as_one_and_the_ledger_stays_whole(house: Lived) -> None:
    size = house.checkpoint()
    before = exported(house, "before.jsonl").read_bytes().splitlines()[: size + 1]
    spans = rows(house)[0]
    said = house.archived()
    left = int(str(said.more["left"]))
    assert left >= 6, said
    assert rows(house) == (spans + 1 - left, left)  # the act is on record
    file = house.folder / "archive.jsonl"
    assert file.read_bytes().splitlines() == before
    assert file.stat().st_mode & 0o777 == 0o600
    note = house.folder / "archive.jsonl.checkpoint"
    assert verify_exports([file], given(house, note), no_bar).code == "verified"
    house.checkpoint()
    later = exported(house, "later.jsonl")
    whole = verify_exports([file, later], given(house), no_bar)
    assert whole.code == "verified", whole
    assert whole.more["verification"]["spans"] > size  # type: ignore[index]
    assert verify_exports([later], given(house), no_bar).code == "tampered"
    assert verify_ledger(house.made.ledger, given(house), no_bar).code == "verified"
    checked = Issuer.ledger_check(house.made.profile)
    assert checked.code == "found", checked.more
    house.service.then(answer(201))
    assert house.issuer.commit(house.live).code == "succeeded"
    recounted(house.made.ledger)


@pytest.mark.spec("AUD-08", "AUD-09")
def test_the_act_is_a_change_of_authority_that_says_what_is_gone(house: Lived) -> None:
    size = house.checkpoint()
    said = house.archived()
    (row,) = [one for one in spans_of(house.issuer) if one["permit.transition"] == "audit.archived"]
    assert row["permit.base.sequence"] == size
    assert row["permit.count"] == said.more["left"]
    assert (
        row["permit.file.digest"] == hashlib.sha256((house.folder / "archive.jsonl").read_bytes()).hexdigest()
    )
    changes = house.issuer.audit_changes().more["changes"]
    assert any(change["name"] == "audit.archived" for change in changes)  # type: ignore[attr-defined]


@pytest.mark.spec("AUD-04", "AUD-08")
def test_an_archived_effect_is_proven_from_the_file_and_a_new_one_from_the_ledger(house: Lived) -> None:
    story = house.issuer.timeline(house.sent).more["timeline"]
    house.checkpoint()
    house.archived()
    house.checkpoint()
    part = house.issuer.audit_prove(house.sent, house.folder / "part.proof")
    assert part.code == "proved"
    assert "--archive" in part.say
    whole = house.issuer.audit_prove(
        house.sent, house.folder / "whole.proof", archives=[house.folder / "archive.jsonl"]
    )
    assert whole.code == "proved"
    assert "--archive" not in whole.say
    assert int(str(whole.more["spans"])) >= len(story) > int(str(part.more["spans"])) - 1  # type: ignore[arg-type]
    assert house.issuer.audit_prove(house.unused, house.folder / "none.proof").code == "not_anchored"
    new = house.issuer.audit_prove(house.live, house.folder / "live.proof")
    assert new.code == "proved"
    for name in ("part", "whole", "live"):
        proven = verify_permit(house.folder / f"{name}.proof", given(house))
        assert proven.code == "verified", proven


@pytest.mark.spec("AUD-08")
def test_an_archive_that_tells_another_story_proves_nothing(house: Lived) -> None:
    house.checkpoint()
    house.archived()
    file = house.folder / "archive.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    place = next(at for at, line in enumerate(lines) if house.sent.encode() in line)
    body = (
        lines[place]
        .partition(b'"span":')[2][:-2]
        .replace(b'"permit.actor":"agent-7"', b'"permit.actor":"agent-8"')
    )
    leaf = hashlib.sha256(b"\x00" + body).hexdigest().encode()
    head = lines[place].partition(b'"leaf":"')
    lines[place] = (
        head[0] + b'"leaf":"' + leaf + head[2][64:].partition(b'"span":')[0] + b'"span":' + body + b"}\n"
    )
    forged = house.folder / "forged.jsonl"
    forged.write_bytes(b"".join(lines))
    said = house.issuer.audit_prove(house.sent, house.folder / "x.proof", archives=[forged])
    assert said.code == "malformed", said
    assert not (house.folder / "x.proof").exists()


@pytest.mark.spec("AUD-05", "AUD-08")
def test_nobody_takes_what_was_archived_for_what_never_was(house: Lived) -> None:
    size = house.checkpoint()
    digest = house.archived().more["sha256"]
    for effect in (house.sent, house.unused):
        told = house.issuer.timeline(effect)
        assert told.more["archived"][0]["upto"] == size  # type: ignore[index]
        assert f"archived: up to span {size} in the file with SHA-256 {digest}" in str(told.more["lines"])
    assert "archived" not in house.issuer.timeline(house.live).more
    asked = house.issuer.audit_query(name="refused")
    assert asked.more["archived"]["sha256"] == digest  # type: ignore[index]
    assert str(digest) in asked.say
    assert "text" not in asked.more
    assert house.issuer.audit_query(form="csv").more["text"]
    assert "archived" not in house.issuer.audit_changes().more
    assert house.issuer.audit_report().more["population"]["first"] == size + 1  # type: ignore[index]
    assert house.issuer.audit_report(since="400d").code == "malformed"
    assert house.issuer.audit_report(since="1h").code == "malformed"
    house.clock.ahead_ms += DAY_MS
    assert house.issuer.audit_report(since="1h").code == "found"


@pytest.mark.spec("AUD-08")
def test_without_a_checkpoint_or_anything_that_may_leave_nothing_is_archived(house: Lived) -> None:
    file = house.folder / "archive.jsonl"
    assert house.archive().code == "nothing_to_change"
    size = house.checkpoint()
    assert house.archive(upto=size - 1).code == "nothing_to_change"
    assert house.archive(before="2020-01-01T00:00:00Z").code == "nothing_to_change"
    assert house.archive(before="1h", upto=3).code == "malformed"
    assert list(house.folder.glob("*archive*")) == []
    file.write_text("mine")
    assert house.archive().code == "malformed"
    assert file.read_text() == "mine"
    assert rows(house)[1] == 0


@pytest.mark.spec("AUD-02", "AUD-08")
def test_what_a_sink_lacks_stays_in_the_ledger(house: Lived) -> None:
    house.checkpoint()
    kept = house.made.sink.with_suffix(".away")
    house.made.sink.rename(kept)
    said = house.archive()
    assert said.code == "audit_unavailable", said
    assert rows(house)[1] == 0
    assert not (house.folder / "archive.jsonl").exists()


@pytest.mark.spec("AUD-08")
def test_a_second_archive_goes_on_where_the_first_ended(house: Lived) -> None:
    house.checkpoint()
    house.archived("one.jsonl")
    first = rows(house)[1]
    sent, unused = past(house.issuer, house.service, house.clock, mark="c")
    house.checkpoint()
    said = house.archived("two.jsonl")
    assert int(str(said.more["left"])) == rows(house)[1] - first > 0
    house.checkpoint()
    files = [house.folder / "one.jsonl", house.folder / "two.jsonl", exported(house, "later.jsonl")]
    assert verify_exports(files, given(house), no_bar).code == "verified"
    assert verify_exports([files[0], files[2]], given(house), no_bar).code == "tampered"
    proof = house.folder / "p"
    assert house.issuer.audit_prove(sent, proof, archives=files[:2]).code == "proved"
    assert verify_permit(proof, given(house)).code == "verified"
    assert len(house.issuer.timeline(unused).more["archived"]) == 2  # type: ignore[arg-type]
    checked = Issuer.ledger_check(house.made.profile)
    assert checked.code == "found", checked.more
    verifier = house.folder / "verifier.py"
    verifier.write_text(verifier_text())
    key = str(house.issuer.audit_key().more["vkeys"]).splitlines()[0]
    command = [sys.executable, "-I", str(verifier), "--key", key]
    command += ["--checkpoint", str(house.made.sink.parent / "checkpoints"), *map(str, files)]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done


@pytest.mark.spec("AUD-08", "LED-08")
def test_a_backup_from_before_the_archive_is_restored_and_one_from_after_it(
    tmp_path: Path, service: Service
) -> None:
    with lived(tmp_path, service, days=0) as house:
        early = saved(house.made, "early.sqlite")
        house.checkpoint()
        house.archived()
        late = saved(house.made, "late.sqlite")
    for backup in (late, early):
        restored(house.made, backup)
        with house.made.open() as issuer:
            house.issuer = issuer
            assert (rows(house)[1] > 0) is (backup is late)
            assert issuer.audit_checkpoint().code == "checkpointed"
            house.archived(f"{backup.stem}.jsonl")
        assert Issuer.ledger_check(house.made.profile).code == "found"


@pytest.mark.spec("AUD-04", "AUD-08")
def test_a_signer_without_a_memory_signs_over_an_archived_trail(house: Lived) -> None:
    house.checkpoint()
    house.archived()
    for kept in (house.made.sink.parent / "checkpoints").iterdir():
        if kept.name != "lock" and not kept.name.endswith(".note"):
            kept.unlink()
    house.checkpoint()


@pytest.mark.spec("AUD-02", "AUD-08")
def test_a_sink_does_not_move_to_an_empty_place_any_more_but_to_a_copy(house: Lived, tmp_path: Path) -> None:
    house.checkpoint()
    house.archived()
    new = tmp_path / "new"
    said = house.issuer.sink_replace("local", path=str(new))
    assert said.code == "audit_unavailable"
    assert "archived" in said.say
    assert not (new / "spans.jsonl").exists()
    new.mkdir(mode=0o700, exist_ok=True)
    shutil.copy2(house.made.sink, new / "spans.jsonl")
    said = house.issuer.sink_replace("local", path=str(new))
    assert said.code == "sink_replaced", said


@pytest.mark.spec("AUD-02", "AUD-08", "LED-06")
def test_a_sink_that_stands_at_an_archived_span_is_behind_and_not_ahead(house: Lived) -> None:
    """An older copy of its file was put back: that is no rollback of the ledger, and no alarm of one."""
    house.checkpoint()
    house.archived()
    gone = sorted(
        {row.sequence for row in all_leaves(house)} - {row.position.sequence for row in all_rows(house)}
    )
    at = next(sequence for sequence in gone if sequence + 1 in gone)
    lines = house.made.sink.read_bytes().splitlines(keepends=True)
    row = LedgerSpans(house.issuer._house.ledger).span_at(at)
    assert row is not None
    assert row.leaf == read_span_line(lines[at]).leaf
    house.made.sink.write_bytes(b"".join(lines[: at + 1]))
    assert house.issuer.commit(house.live).code == "prepare_again"
    assert len(house.service.effects) == 1  # what was sent before
    assert Issuer.ledger_check(house.made.profile).code == "found"
    house.made.sink.write_bytes(b"".join(lines))
    house.service.then(answer(201))
    again = permitted(refund(house.issuer, order="again", amount=100, request_key="again"))
    assert house.issuer.commit(again).code == "succeeded"


ARCHIVED = "(SELECT min(sequence) FROM archived_leaves)"
KEPT = "(SELECT sequence FROM spans WHERE name = 'effect.admitted')"
MOVED = f"INSERT INTO archived_leaves SELECT sequence, epoch, leaf FROM spans WHERE sequence = {KEPT}"
GONE = f"DELETE FROM spans WHERE sequence = {KEPT}"
BACK = (
    "INSERT INTO spans(sequence, epoch, lane, span_id, trace_id, name, story, at_ms, body, leaf) "
    f"SELECT sequence, epoch, 0, '{'9' * 16}', '{'9' * 32}', 'refused', 'x', 0, x'7b7d', leaf "
    f"FROM archived_leaves WHERE sequence = {ARCHIVED}"
)


@pytest.mark.spec("AUD-08", "LED-06")
@pytest.mark.parametrize(
    ("attack", "found"),
    [
        ([f"DELETE FROM archived_leaves WHERE sequence = {ARCHIVED}"], "span_gap"),
        ([f"UPDATE archived_leaves SET leaf = zeroblob(32) WHERE sequence = {ARCHIVED}"], "tree"),
        ([f"UPDATE archived_leaves SET epoch = 2 WHERE sequence = {ARCHIVED}"], "span_place"),
        (
            ["DELETE FROM spans WHERE name = 'task.opened' AND story = (SELECT max(task_id) FROM tasks)"],
            "span_gap",
        ),
        (
            [
                "INSERT INTO archived_leaves SELECT sequence, epoch, leaf FROM spans WHERE name = 'revision.activated'",
                "DELETE FROM spans WHERE name = 'revision.activated'",
            ],
            "archived_differs",
        ),
        ([MOVED, GONE], "archived_differs"),
        ([BACK, f"DELETE FROM archived_leaves WHERE sequence = {ARCHIVED}", MOVED, GONE], "archived_differs"),
        ([MOVED], "archived_twice"),
        (["INSERT INTO archived_leaves SELECT max(sequence) + 1, 1, zeroblob(32) FROM spans"], "span_gap"),
    ],
)
def test_an_attacker_without_keys_who_takes_a_span_away_as_if_archived_is_found(
    house: Lived, attack: list[str], found: str
) -> None:
    house.checkpoint()
    house.archived()
    without_guards(house.made.ledger, *attack)
    said = Issuer.ledger_check(house.made.profile)
    assert said.code == "ledger_unavailable", said
    assert found in {finding["check"] for finding in said.more["findings"]}  # type: ignore[attr-defined]


@pytest.mark.spec("AUD-08", "LED-06")
def test_a_ledger_that_somebody_changed_is_not_archived(house: Lived) -> None:
    """Else the archive would take the evidence away: the story of an effect whose row was removed."""
    house.checkpoint()
    without_guards(house.made.ledger, "UPDATE collected_spend SET charged = charged + 1")
    said = house.archive()
    assert (said.code, said.more["reason"]) == ("ledger_unavailable", "check_found"), said
    assert rows(house)[1] == 0
    assert list(house.folder.glob("archive*")) == []


@pytest.mark.spec("AUD-08", "LED-06")
def test_the_story_of_an_effect_whose_row_somebody_took_away_does_not_leave(house: Lived) -> None:
    """After it nothing would tell of the effect any more, so the whole check comes before the archive too."""
    assert denied(house.issuer, 99).code == "denied"
    assert house.issuer.audit_query().code == "found"
    house.checkpoint()
    effect = "(SELECT effect_id FROM effects WHERE state = 'denied')"
    held = "one, effects, tombstones, record_bytes, spans, span_bytes"
    without_guards(
        house.made.ledger,
        f"DELETE FROM repetition WHERE key IN (SELECT content_key FROM effects WHERE effect_id = {effect})",
        f"DELETE FROM repetition WHERE key IN (SELECT resource_key FROM effects WHERE effect_id = {effect})",
        f"DELETE FROM decisions WHERE effect_id = {effect}",
        "DELETE FROM effects WHERE state = 'denied'",
        f"UPDATE holdings SET ({held}) = ({HOLDINGS_RECOUNTED})",
    )
    said = house.archive()
    assert (said.code, said.more["reason"]) == ("ledger_unavailable", "check_found"), said
    assert "effect_missing" in said.say
    assert rows(house)[1] == 0


@pytest.mark.spec("AUD-08", "LED-06")
def test_a_tombstone_of_an_archived_story_is_not_taken_away_unseen(house: Lived) -> None:
    house.checkpoint()
    house.archived()
    without_guards(house.made.ledger, f"DELETE FROM tombstones WHERE effect_id = '{house.unused}'")
    said = Issuer.ledger_check(house.made.profile)
    assert "tombstones_gone" in {finding["check"] for finding in said.more["findings"]}  # type: ignore[attr-defined]


@pytest.mark.spec("AUD-08")
def test_a_file_that_is_not_what_was_written_takes_nothing_away(house: Lived) -> None:
    house.checkpoint()

    def spoil(_done: int, _of: int) -> None:
        held = f"{house.folder}/"
        files = [place for place in Path("/proc/self/fd").iterdir() if held in str(os.path.realpath(place))]
        (part,) = (place for place in files if place.stat().st_size > 2000 and place.stat().st_nlink == 0)
        with part.open("r+b") as file:
            file.seek(400)
            file.write(b"#")

    said = house.archive(progress=spoil)
    assert (said.code, said.more["reason"]) == ("ledger_unavailable", "archive_differs"), said
    assert list(house.folder.glob("*archive*")) == []
    assert rows(house)[1] == 0


@pytest.mark.spec("AUD-08", "LED-01")
@pytest.mark.parametrize("step", ["writing", "locked", "before_commit", "committed"])
def test_who_is_killed_while_archiving_loses_no_span(house: Lived, step: str) -> None:
    house.checkpoint()
    whole = {row.position.sequence: row.leaf for row in all_rows(house)}
    house.issuer.close()
    out = house.folder / "archive.jsonl"
    dies_at(step, house, out)
    assert out.exists() is (step != "writing")
    with house.made.open(clock=house.clock) as issuer:
        house.issuer = issuer
        is_gone = rows(house)[1] > 0
        assert is_gone is (step == "committed")
        held = {row.position.sequence: row.leaf for row in all_rows(house)}
        for line in out.read_bytes().splitlines(keepends=True)[1:] if out.exists() else ():
            tail = read_span_line(line)
            held[tail.sequence] = tail.leaf
        assert whole.items() <= held.items()
        if not is_gone:
            assert "left" in house.archived("again.jsonl").more
    assert Issuer.ledger_check(house.made.profile).code == "found"


@pytest.mark.spec("AUD-08", "LED-08")
def test_a_long_history_with_a_restore_and_forgotten_tombstones_stays_whole(tmp_path: Path) -> None:
    busy, clock = aged_issuer(tmp_path / "aged"), Clock()
    clock.ahead_ms = 2 * DAYS * DAY_MS
    profile = busy.folder / "profile.toml"
    with Issuer.open(profile, clock=clock) as issuer:
        assert issuer.clock_accept().code == "accepted"
        assert issuer.ledger_collect(early=True).code == "collected_now"
        for number in range(2):
            assert issuer.audit_checkpoint().code == "checkpointed"
            assert issuer.audit_archive(tmp_path / f"{number}.jsonl").code == "archived"
    checked = Issuer.ledger_check(profile)
    assert checked.code == "found", checked.more


@pytest.mark.spec("AUD-08", "SEC-02")
def test_the_act_is_asked_about_signed_where_strict_and_recorded_as_refused_for_who_may_not(
    house: Lived,
) -> None:
    house.checkpoint()
    policy = house.made.folder / "policies" / "policies.cedar"
    never = '\n@id("nobody") forbid (principal, action == Action::"activate", resource);\n'
    rewritten(policy, policy.read_text(encoding="utf-8") + never)
    house.issuer.close()
    activated(house.made.profile, clock=house.clock)
    with house.made.open(clock=house.clock) as issuer:
        house.issuer = issuer
        assert house.archive().code == "forbidden"
        assert spans_of(issuer)[-1]["permit.command"] == "audit-archive"
    assert COMMANDS["audit-archive"].signed
    assert not (house.folder / "archive.jsonl").exists()


@pytest.mark.spec("AUD-08")
@pytest.mark.parametrize("how", ["before", "upto"])
def test_an_archive_ends_at_the_newest_checkpoint_that_was_asked_for(house: Lived, how: str) -> None:
    size = house.checkpoint()
    house.clock.ahead_ms += 3 * DAY_MS
    assert house.issuer.audit_query().code == "found"
    assert house.checkpoint() > size
    said = house.archived(before="2d") if how == "before" else house.archived(upto=size + 1)
    assert said.more["last"] == size


@pytest.mark.spec("AUD-08")
def test_a_full_disk_leaves_no_file_and_takes_nothing_away(house: Lived, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k,mode=0700", "tmpfs", str(disk)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a disk of one's own needs the right to mount one")
    house.checkpoint()
    try:
        said = house.issuer.audit_archive(disk / "archive.jsonl")
        assert said.code == "malformed", said
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)
    assert rows(house)[1] == 0
