"""Checkpoints: what is signed is true, goes on from all that was signed, and is on record after it stands (AUD-04)."""

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature

from audit.merkle import consistency_proof, verify_consistency
from issuer import Issuer
from issuer.verifying import Given, verify_exports
from issuer.wire import Answer
from tests.support.checkpoints import (
    TABLE,
    Whole,
    demand_true,
    folder,
    leaves,
    notes,
    root_over,
    signed,
    spans_of_checkpoints,
    verified,
    vkey,
)
from tests.support.issuers import Made, open_task, standard_issuer
from tests.support.ledgers import without_guards
from tests.support.restoring import restored, saved
from tests.support.shell import issuer_here


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return standard_issuer(tmp_path / "f0", port=9)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    where = tmp_path / "elsewhere"
    where.mkdir()
    return where


@pytest.fixture
def carried(tmp_path: Path, elsewhere: Path) -> Made:
    """An issuer whose checkpoints are copied elsewhere."""
    table = TABLE.replace("@ELSEWHERE@", str(elsewhere))
    return standard_issuer(tmp_path / "f0", port=9, changes={"[person]": f"{table}[person]"})


def grown(issuer: Issuer, name: str, spans: int = 1) -> None:
    for number in range(spans):
        open_task(issuer, f"{name}{number}", budget={"USD.cent": 1}, parent="org", actors=["agent-7"])


def refused(answer: Answer, reason: str) -> None:
    assert (answer.code, answer.more["field"], int(answer.exit)) == ("checkpoint_refused", reason, 7), answer
    assert "Nothing was signed" in answer.say


@pytest.mark.spec("AUD-04", "AUD-01")
def test_a_checkpoint_is_the_root_of_all_spans_signed_and_on_record_after_it(made: Made) -> None:
    with made.open() as issuer:
        before = leaves(made)
        answer = signed(issuer)
        key = vkey(issuer)
    seen = verified(str(answer.more["note"]), key)
    ledger_id = seen.origin.removeprefix("permit-issuer/")
    assert ledger_id.startswith("led_")
    assert (seen.size, seen.root) == (len(before), root_over(before))
    assert (answer.more["size"], answer.more["root"]) == (seen.size, seen.root.hex())
    (said,) = spans_of_checkpoints(made)
    assert (said["permit.tree.size"], said["permit.tree.root"]) == (seen.size, seen.root.hex())
    assert (said["permit.reason"], said["permit.caller"]) == ("demanded", "u-ana")
    assert said["permit.sequence"] == seen.size + 1
    (note,) = notes(folder(made))
    assert str(note) == answer.more["file"]
    assert note.read_bytes() == (folder(made) / "latest").read_bytes() == str(answer.more["note"]).encode()
    assert not folder(made).is_relative_to(made.folder)
    assert stat.S_IMODE(folder(made).stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder(made).iterdir()} == {0o600}
    with pytest.raises(InvalidSignature):
        verified(str(answer.more["note"]).replace(f"\n{seen.size}\n", f"\n{seen.size - 1}\n"), key)


@pytest.mark.spec("AUD-04")
def test_where_nothing_but_a_checkpoint_happened_since_the_newest_is_shown_again(made: Made) -> None:
    with made.open() as issuer:
        first, again = signed(issuer), signed(issuer)
        assert (again.more["note"], again.more["signed"]) == (first.more["note"], first.more["signed"])
        assert "Nothing happened since" in again.say
        assert len(spans_of_checkpoints(made)) == 1
        grown(issuer, "more")
        assert signed(issuer).more["size"] == int(str(first.more["size"])) + 2
    demand_true(made)


@pytest.mark.spec("AUD-04")
def test_each_checkpoint_goes_on_from_the_one_before(made: Made) -> None:
    sizes, roots = [], []
    with made.open() as issuer:
        key = vkey(issuer)
        for number in range(4):
            grown(issuer, f"n{number}.", spans=number)
            seen = verified(str(signed(issuer).more["note"]), key)
            sizes.append(seen.size)
            roots.append(seen.root)
    for old in range(3):
        proof = consistency_proof(leaves(made), sizes[old], sizes[old + 1])
        verify_consistency(
            old_size=sizes[old],
            new_size=sizes[old + 1],
            old_root=roots[old],
            new_root=roots[old + 1],
            proof=proof,
        )


# ------------------------------------------------------------------------------------ rolled back


def lose_memory(made: Made) -> None:
    (folder(made) / "state").unlink()


def edit_memory(made: Made) -> None:
    path = folder(made) / "state"
    mac, epoch, *rest = path.read_text().splitlines()
    path.write_text("\n".join((mac, str(int(epoch) + 1), *rest, "")))


def cut_memory(made: Made) -> None:
    os.truncate(folder(made) / "state", 30)


def lose_notes(made: Made) -> None:
    for path in (*notes(folder(made)), folder(made) / "latest"):
        path.unlink()


def lose_nothing(_made: Made) -> None:
    pass


LOSSES = [lose_nothing, lose_memory, edit_memory, cut_memory, lose_notes]


@pytest.mark.spec("AUD-04", "LED-06")
@pytest.mark.parametrize("lose", LOSSES, ids=lambda lose: lose.__name__)
def test_a_ledger_that_was_rolled_back_with_its_audit_file_is_not_signed(
    made: Made, tmp_path: Path, lose: Callable[[Made], None]
) -> None:
    with made.open() as issuer:
        signed(issuer)
    whole = Whole(made, tmp_path / "before")
    with made.open() as issuer:
        grown(issuer, "more")
        signed(issuer)
    whole.put_back()
    lose(made)
    kept = {path.name: path.read_bytes() for path in folder(made).iterdir()}
    with made.open() as issuer:
        refused(issuer.audit_checkpoint(), "smaller")
        # It stays refused once the ledger is as long again, for its history is another one.
        grown(issuer, "other", spans=4)
        refused(issuer.audit_checkpoint(), "inconsistent")
    assert {path.name: path.read_bytes() for path in folder(made).iterdir()} == kept
    assert len(spans_of_checkpoints(made)) == 1
    told = json.loads(issuer_here("doctor", "--json", at=made.folder).out)
    (finding,) = [one for one in told["findings"] if one["check"] == "checkpoints"]
    assert (finding["ok"], told["code"]) == (False, "checkpoint_refused")
    assert "its history was exchanged" in finding["says"]


@pytest.mark.spec("AUD-04", "LED-06")
def test_where_everything_here_was_rolled_back_the_copy_elsewhere_says_so(
    carried: Made, elsewhere: Path, tmp_path: Path
) -> None:
    with carried.open() as issuer:
        signed(issuer)
    whole = Whole(carried, tmp_path / "before")
    with carried.open() as issuer:
        grown(issuer, "more")
        signed(issuer)
    whole.put_back(checkpoints=True)
    (elsewhere / "zzz.note").write_text("not ours")
    newest = max(elsewhere.glob("*-*.note"))
    fake = newest.with_name(newest.name[:9] + "0001-000000009999.note")
    fake.write_bytes(newest.read_bytes().replace(b"\n1", b"\n2"))
    with carried.open() as issuer:
        refused(issuer.audit_checkpoint(), "smaller")


@pytest.mark.spec("AUD-04", "LED-06")
def test_copies_that_somebody_else_made_up_hide_no_genuine_one(
    carried: Made, elsewhere: Path, tmp_path: Path
) -> None:
    with carried.open() as issuer:
        signed(issuer)
    whole = Whole(carried, tmp_path / "before")
    with carried.open() as issuer:
        grown(issuer, "more")
        signed(issuer)
    whole.put_back(checkpoints=True)
    newest = max(elsewhere.glob("*-*.note"))
    for number in range(200):
        newest.with_name(f"{newest.name[:9]}0009-{number:012d}.note").write_bytes(b"made up")
    with carried.open() as issuer:
        refused(issuer.audit_checkpoint(), "smaller")


@pytest.mark.spec("AUD-04")
@pytest.mark.parametrize("lose", LOSSES, ids=lambda lose: lose.__name__)
def test_an_honest_ledger_is_signed_on_whatever_the_signer_lost(
    made: Made, lose: Callable[[Made], None]
) -> None:
    with made.open() as issuer:
        signed(issuer)
        grown(issuer, "more")
        lose(made)
        assert "Nothing happened" not in signed(issuer).say
        grown(issuer, "later")
        signed(issuer)
        key = vkey(issuer)
    for path in notes(folder(made)):
        seen = verified(path.read_bytes(), key)
        assert seen.root == root_over(leaves(made)[: seen.size])


@pytest.mark.spec("AUD-04", "LED-06")
def test_an_older_memory_that_somebody_put_back_is_held_against_the_notes(made: Made, tmp_path: Path) -> None:
    with made.open() as issuer:
        signed(issuer)
    old = (folder(made) / "state").read_bytes()
    whole = Whole(made, tmp_path / "before")
    with made.open() as issuer:
        grown(issuer, "more")
        signed(issuer)
    whole.put_back()
    (folder(made) / "state").write_bytes(old)
    with made.open() as issuer:
        refused(issuer.audit_checkpoint(), "smaller")


@pytest.mark.spec("AUD-04")
def test_a_note_that_was_edited_stops_the_signing_and_says_so(made: Made) -> None:
    with made.open() as issuer:
        size = int(str(signed(issuer).more["size"]))
        (note,) = notes(folder(made))
        note.write_text(note.read_text().replace(f"\n{size}\n", f"\n{size - 1}\n"))
        grown(issuer, "more")
        refused(issuer.audit_checkpoint(), "note_altered")


@pytest.mark.spec("AUD-04", "LED-06")
def test_a_span_that_was_edited_since_is_not_signed(made: Made) -> None:
    with made.open() as issuer:
        signed(issuer)
        grown(issuer, "more", spans=2)
    without_guards(
        made.ledger,
        "UPDATE spans SET body = CAST(replace(body, 'more0', 'more9') AS BLOB)"
        " WHERE sequence = (SELECT max(sequence) - 1 FROM spans)",
    )
    with made.open() as issuer:
        assert issuer.audit_checkpoint().code in {"checkpoint_refused", "ledger_unavailable"}
    assert len(notes(folder(made))) == 1


# ------------------------------------------------------------------------------------ restored


@pytest.mark.spec("AUD-04", "LED-08")
def test_a_restore_that_left_a_checkpoint_behind_begins_anew_and_says_so(made: Made) -> None:
    with made.open() as issuer:
        signed(issuer)
        grown(issuer, "kept")
        file = saved(made)
        grown(issuer, "left", spans=3)
        left = signed(issuer)
    restored(made, file)
    with made.open() as issuer:
        answer = signed(issuer)
        assert "A restore left later checkpoints behind" in answer.say
        assert (answer.more["epoch"], left.more["epoch"]) == (2, 1)
        seen = verified(str(answer.more["note"]), vkey(issuer))
        assert seen.root == root_over(leaves(made)[: seen.size])
        grown(issuer, "after")
        assert "restore" not in signed(issuer).say
    reasons = [said["permit.reason"] for said in spans_of_checkpoints(made)]
    assert reasons == ["demanded", "restored", "demanded"]
    assert len(notes(folder(made))) == 4


@pytest.mark.spec("AUD-04", "LED-08")
def test_a_restore_from_a_backup_after_the_last_checkpoint_just_goes_on(made: Made) -> None:
    with made.open() as issuer:
        signed(issuer)
        file = saved(made)
        grown(issuer, "left")
    restored(made, file)
    with made.open() as issuer:
        assert "restore" not in signed(issuer).say
    assert [said["permit.reason"] for said in spans_of_checkpoints(made)] == ["demanded", "demanded"]


@pytest.mark.spec("AUD-04", "LED-08", "LED-06")
def test_a_restore_excuses_nothing_before_the_backup(made: Made, tmp_path: Path) -> None:
    """An exchanged history that is then restored from: the note before the backup's end does not fit any more."""
    whole = Whole(made, tmp_path / "before")
    with made.open() as issuer:
        grown(issuer, "true")
        signed(issuer)
        grown(issuer, "beyond", spans=9)
        signed(issuer)
    whole.put_back()
    with made.open() as issuer:
        grown(issuer, "false", spans=4)
        file = saved(made)
    restored(made, file)
    with made.open() as issuer:
        refused(issuer.audit_checkpoint(), "inconsistent")


@pytest.mark.spec("AUD-04", "LED-06")
def test_a_ledger_of_an_earlier_epoch_than_a_checkpoint_is_not_signed(made: Made, tmp_path: Path) -> None:
    whole = Whole(made, tmp_path / "before")
    with made.open() as issuer:
        grown(issuer, "more")
        file = saved(made)
    restored(made, file)
    with made.open() as issuer:
        signed(issuer)
    whole.put_back()
    with made.open() as issuer:
        grown(issuer, "other", spans=20)
        refused(issuer.audit_checkpoint(), "older_epoch")


# ------------------------------------------------------------------------------------ keys


@pytest.mark.spec("AUD-04", "SEC-03")
def test_after_a_rotation_the_new_key_signs_and_the_old_one_still_verifies_what_it_signed(made: Made) -> None:
    with made.open() as issuer:
        old_key, first = vkey(issuer), signed(issuer)
        new = str(issuer.keys_rotate().more["key"])
        second = signed(issuer)
        assert (second.more["key"], vkey(issuer) == old_key) == (new, False)
        verified(str(second.more["note"]), vkey(issuer))
        verified(str(first.more["note"]), old_key)
        with pytest.raises(AssertionError):
            verified(str(second.more["note"]), old_key)
        told = issuer.audit_key().more
        rows = {row["vkey"]: row["state"] for row in told["checkpoint_keys"]}  # type: ignore[attr-defined]
        assert rows == {vkey(issuer): "active", old_key: "open_only"}
        assert str(told["vkeys"]).splitlines() == [vkey(issuer), old_key]
        assert {said["permit.key.id"] for said in spans_of_checkpoints(made)} == {
            str(first.more["key"]),
            new,
        }


@pytest.mark.spec("AUD-04", "SEC-03")
def test_a_revoked_key_signs_nothing_more_is_shown_as_revoked_and_frees_no_smaller_tree(
    made: Made, tmp_path: Path
) -> None:
    with made.open() as issuer:
        old_key, old = vkey(issuer), str(signed(issuer).more["key"])
        assert issuer.keys_revoke(old).code == "revoked_now"
        # The revocation signs one with the new key at once: the trail has one that is no thief's.
        assert [said["permit.key.id"] == old for said in spans_of_checkpoints(made)] == [True, False]
        assert vkey(issuer) != old_key
        told = issuer.audit_key().more
        assert old_key not in str(told["vkeys"])
        rows = {row["key"]: row["state"] for row in told["checkpoint_keys"]}  # type: ignore[attr-defined]
        assert rows[old] == "revoked"
        newest = signed(issuer)
        assert newest.more["key"] != old
    whole = Whole(made, tmp_path / "before")
    assert [said["permit.key.id"] for said in spans_of_checkpoints(made)][-1] == newest.more["key"]
    with made.open() as issuer:
        grown(issuer, "more", spans=2)
        signed(issuer)
    whole.put_back()
    lose_notes(made)
    with made.open() as issuer:
        refused(issuer.audit_checkpoint(), "smaller")


@pytest.mark.spec("AUD-04", "SEC-03")
def test_only_the_ledgers_own_key_counts_in_a_folder_that_several_share(
    tmp_path: Path, elsewhere: Path
) -> None:
    table = TABLE.replace("@ELSEWHERE@", str(elsewhere))
    changes = {"[person]": f"{table}[person]"}
    one, other = (standard_issuer(tmp_path / name, port=9, changes=changes) for name in ("one", "other"))
    with one.open() as issuer:
        grown(issuer, "more", spans=5)
        signed(issuer)
        (its,) = [path for path in elsewhere.iterdir() if "-0001-" in path.name][-1:]
    with other.open() as issuer:
        own = str(issuer.name).rpartition("/")[2]
        its.with_name(own + its.name[8:]).write_bytes(its.read_bytes())
        assert signed(issuer).more["size"]


# ------------------------------------------------------------------------------------ the folder


@pytest.mark.spec("AUD-04", "SEC-03", "AUD-02")
def test_a_folder_that_is_open_to_others_signs_nothing_and_keeps_nothing_else(made: Made) -> None:
    with made.open() as issuer:
        signed(issuer)
        folder(made).chmod(0o755)
        grown(issuer, "more")
        answer = issuer.audit_checkpoint()
        assert (answer.code, "chmod" in answer.say) == ("audit_unavailable", True)
        told = json.loads(issuer_here("doctor", "--json", at=made.folder).out)
        (finding,) = [one for one in told["findings"] if one["check"] == "checkpoints"]
        assert finding["ok"] is False
        grown(issuer, "later")
        folder(made).chmod(0o700)
        (folder(made) / "state").chmod(0o644)
        assert issuer.audit_checkpoint().code == "audit_unavailable"
        (folder(made) / "state").chmod(0o600)
        signed(issuer)
    demand_true(made)


# ------------------------------------------------------------------------------------ verified by others


def verdict(made: Made, export: Path) -> tuple[str, dict[str, str]]:
    """Verify a file with nothing but the notes and what `audit key` printed: the code, and how each note stands."""
    with made.open() as issuer:
        keys = str(issuer.audit_key().more["vkeys"]).splitlines()
    answer = verify_exports(
        [export], Given.of(keys, [folder(made)]), lambda _total, _what: lambda _done: None
    )
    told = answer.more["verification"]["checkpoints"]  # type: ignore[index]
    return answer.code, {one["name"]: one["standing"] for one in told}


def exported(made: Made, tmp_path: Path) -> Path:
    export = tmp_path / "trail.jsonl"
    with made.open() as issuer:
        assert issuer.audit_export(export).exit == 0
    return export


@pytest.mark.spec("AUD-04", "SEC-03")
def test_every_note_verifies_against_an_export_with_the_keys_of_before(made: Made, tmp_path: Path) -> None:
    with made.open() as issuer:
        signed(issuer)
        assert issuer.keys_rotate().code == "rotated"
        signed(issuer)
        grown(issuer, "more")
        signed(issuer)
    code, standings = verdict(made, exported(made, tmp_path))
    assert (code, list(standings.values())) == ("verified", ["holds"] * 3)


@pytest.mark.spec("AUD-04", "LED-08")
def test_after_a_restore_what_was_left_is_not_mistaken_for_what_is_there(made: Made, tmp_path: Path) -> None:
    with made.open() as issuer:
        signed(issuer)
        file = saved(made)
        grown(issuer, "left", spans=9)
        signed(issuer)
        issuer._house.delivery.acknowledge(len(leaves(made)))
    restored(made, file)
    with made.open() as issuer:
        signed(issuer)
        issuer._house.delivery.acknowledge(len(leaves(made)))
    first, left, anew = (path.name for path in notes(folder(made)))
    # The ledger does not hold what was left; its audit file does, and shows where the restore left it.
    code, standings = verdict(made, exported(made, tmp_path))
    assert (code, standings) == ("tampered", {first: "holds", left: "differs", anew: "holds"})
    code, standings = verdict(made, made.sink)
    assert (code, standings[first], standings[left]) == ("verified", "holds", "left_behind")


@pytest.mark.spec("AUD-04", "SUR-03")
def test_on_the_command_line_the_key_is_a_line_to_keep_and_the_note_is_shown(made: Made) -> None:
    told = issuer_here("audit", "checkpoint", at=made.folder)
    key = issuer_here("audit", "key", at=made.folder)
    assert (told.exit, key.exit) == (0, 0)
    (note,) = notes(folder(made))
    verified(note.read_bytes(), key.out)
    assert all(f"  | {line}" in told.out for line in note.read_text().splitlines() if line)
    assert "keep a copy of it elsewhere" in told.out
    as_json = json.loads(issuer_here("audit", "key", "--json", at=made.folder).out)
    assert [one["vkey"] for one in as_json["checkpoint_keys"]] == key.out.splitlines()
