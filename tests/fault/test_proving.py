"""From a real issuer to somebody without it: its sink, its ledger and one effect, held against a signed checkpoint."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from audit.errors import TrailUnreadable
from audit.proofs import read_proof
from audit.verifier import verifier_text
from issuer.verifying import Given, verify_exports, verify_ledger, verify_permit
from issuer.wire import Answer
from tests.support.callers import WITH_ROLES, Shop, opened_shop
from tests.support.cases import length, trail
from tests.support.issuers import permitted
from tests.support.ledgers import without_guards

MISSING = "eff_" + "0" * 32


def quietly(_total: int, _what: str) -> Callable[[int], None]:
    return lambda _step: None


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with opened_shop(tmp_path_factory.mktemp("proving") / "f0", policy=WITH_ROLES) as opened:
        yield opened


@pytest.fixture(scope="module")
def copied(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Given]:
    """Return a backup of the ledger, with what a reviewer of it has."""
    done(shop, "edited")
    who = given(shop, signed_now(shop))
    backup = tmp_path_factory.mktemp("backup") / "ledger.sqlite"
    assert shop.issuer.ledger_backup(shop.made.profile, backup).code == "backed_up"
    return backup, who


def done(shop: Shop, order: str) -> str:
    """Return an effect of a host that was sent, and is under no checkpoint yet."""
    host = shop.host()
    effect = permitted(host.request("refund", {"order": order, "amount": 5}, task="t1", actor="agent-7"))
    host.commit(effect)
    return effect


def signed_now(shop: Shop) -> str:
    """Sign a checkpoint; return its note's file."""
    answer = shop.issuer.audit_checkpoint()
    assert answer.code == "checkpointed"
    return str(answer.more["file"])


def given(shop: Shop, *checkpoints: str) -> Given:
    keys = str(shop.issuer.audit_key().more["vkeys"]).split()
    return Given.of(keys, [Path(place) for place in checkpoints])


def of_the_ledger(shop: Shop, who: Given, ledger: Path | None = None) -> Answer:
    return verify_ledger(ledger or shop.made.ledger, who, quietly)


@pytest.mark.spec("AUD-04")
def test_sink_and_ledger_are_verified_up_to_a_checkpoint_and_the_rest_is_told(shop: Shop) -> None:
    done(shop, "first")
    note = signed_now(shop)
    done(shop, "second")
    who = given(shop, note)
    for answer in (verify_exports([shop.made.sink], who, quietly), of_the_ledger(shop, who)):
        told = answer.more["verification"]
        assert isinstance(told, dict)
        assert (answer.code, int(answer.exit)) == ("verified", 0)
        assert told["anchored"] > 0
        assert told["not_anchored"] >= 4
        assert told["anchored"] + told["not_anchored"] == told["spans"]
    assert of_the_ledger(shop, Given()).code == "not_anchored"
    assert of_the_ledger(shop, given(shop, str(Path(note).parent))).code == "verified"


@pytest.mark.spec("AUD-04", "AUD-06")
def test_an_export_of_the_whole_trail_is_verified_and_a_selection_is_refused(
    shop: Shop, tmp_path: Path
) -> None:
    done(shop, "exported")
    who = given(shop, signed_now(shop))
    ben = shop.person("ben")
    assert ben.audit_export(tmp_path / "whole.jsonl").code == "found"
    assert verify_exports([tmp_path / "whole.jsonl"], who, quietly).code == "verified"
    assert ben.audit_export(tmp_path / "part.jsonl", actor="agent-7").code == "found"
    with pytest.raises(TrailUnreadable, match="is a selection"):
        verify_exports([tmp_path / "part.jsonl"], who, quietly)


@pytest.mark.spec("AUD-04")
@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("UPDATE spans SET story = 'x' WHERE sequence = 3", "body"),
        ("UPDATE spans SET at_ms = at_ms + 1 WHERE sequence = 3", "body"),
        ("UPDATE spans SET leaf = zeroblob(32) WHERE sequence = 3", "leaf"),
        (
            "UPDATE spans SET body = CAST(replace(body, '\"v\":1', '\"v\":2') AS BLOB) WHERE sequence = 3",
            "leaf",
        ),
        ("UPDATE spans SET actor = 'x' WHERE sequence = (SELECT max(sequence) FROM span_policies)", "body"),
        ("UPDATE span_policies SET policy = 'x'", "body"),
        ("INSERT INTO span_policies(policy, sequence) VALUES ('x', 3)", "body"),
        ("UPDATE spans SET epoch = epoch + 1 WHERE sequence = 3", "place"),
        ("DELETE FROM spans WHERE sequence = 3", "gap"),
        ("DELETE FROM spans WHERE sequence >= (SELECT max(sequence) - 2 FROM spans)", "unreadable"),
    ],
)
def test_an_edited_row_is_found_without_any_key_of_the_issuer(
    copied: tuple[Path, Given], tmp_path: Path, statement: str, what: str
) -> None:
    backup, who = copied
    copy = tmp_path / "ledger.sqlite"
    shutil.copyfile(backup, copy)
    assert verify_exports([copy], who, quietly).code == "verified"
    without_guards(copy, statement)
    answer = verify_exports([copy], who, quietly)
    told = answer.more["verification"]
    assert isinstance(told, dict)
    assert (answer.code, int(answer.exit)) == ("tampered", 8)
    assert told["finding"]["what"] == what


@pytest.mark.spec("AUD-04", "AUD-06", "EFF-08")
def test_a_proof_is_made_for_whoever_may_observe_and_is_on_record(shop: Shop, tmp_path: Path) -> None:
    effect = done(shop, "proven")
    assert shop.person("ben").audit_prove(effect, tmp_path / "early").code == "not_anchored"
    assert not (tmp_path / "early").exists()
    note = signed_now(shop)
    before = length(shop.issuer)
    answer = shop.person("ben").audit_prove(effect, tmp_path / "proof")
    assert (answer.code, answer.more["newer"]) == ("proved", 0)
    (entry,) = trail(shop.issuer, before)
    said = entry.attributes
    assert (entry.name, said["permit.format"], said["permit.caller"]) == ("audit.exported", "proof", "ben")
    assert said["permit.policy.ids"] == ("observe-effects",)
    assert said["permit.count"] == answer.more["spans"]
    proof = read_proof((tmp_path / "proof").read_bytes())
    assert (proof.effect, proof.note) == (effect, Path(note).read_bytes())
    assert verify_permit(tmp_path / "proof", given(shop)).code == "verified"
    script = tmp_path / "verifier.py"
    script.write_text(verifier_text())
    (tmp_path / "keys").write_text(str(shop.issuer.audit_key().more["vkeys"]))
    for arguments in (
        ("--proof", str(tmp_path / "proof")),
        ("--checkpoint", note, str(shop.made.sink)),
        ("--checkpoint", str(Path(note).parent), str(shop.made.sink)),
    ):
        command = [sys.executable, "-I", "-S", str(script), "--key", str(tmp_path / "keys"), *arguments]
        ran = subprocess.run(command, cwd=tmp_path, env={}, capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stdout.split()[0]) == (0, "verified"), ran.stdout


@pytest.mark.spec("EFF-08", "AUD-06", "SEC-02")
def test_who_may_not_observe_gets_no_proof_and_reads_what_a_missing_effect_reads(
    shop: Shop, tmp_path: Path
) -> None:
    effect = done(shop, "hidden")
    signed_now(shop)
    mia = shop.person("mia")
    told, missing = (mia.audit_prove(one, tmp_path / "proof") for one in (effect, MISSING))
    assert (told.code, told.as_json()) == ("not_found", missing.as_json())
    assert shop.host().audit_prove(effect, tmp_path / "proof").code == "forbidden"
    assert not (tmp_path / "proof").exists()


@pytest.mark.spec("AUD-04")
def test_what_is_at_the_place_of_a_proof_stays_and_the_no_is_on_record(shop: Shop, tmp_path: Path) -> None:
    effect = done(shop, "taken")
    signed_now(shop)
    (tmp_path / "taken").write_text("mine")
    before = length(shop.issuer)
    assert shop.person("ben").audit_prove(effect, tmp_path / "taken").code == "malformed"
    assert shop.person("ben").audit_prove(effect, tmp_path / "no" / "folder").code == "malformed"
    assert (tmp_path / "taken").read_text() == "mine"
    assert [entry.name for entry in trail(shop.issuer, before)] == ["refused", "refused"]


@pytest.mark.spec("AUD-04")
def test_a_story_that_went_on_is_proven_up_to_the_newest_checkpoint(shop: Shop, tmp_path: Path) -> None:
    effect = done(shop, "went-on")
    signed_now(shop)
    ben = shop.person("ben")
    assert ben.audit_prove(effect, tmp_path / "one").code == "proved"
    # The proof itself is in the story now, and under no checkpoint.
    second = ben.audit_prove(effect, tmp_path / "two")
    assert (second.code, second.more["newer"]) == ("proved", 1)
    assert verify_permit(tmp_path / "two", given(shop)).code == "verified"
    signed_now(shop)
    assert ben.audit_prove(effect, tmp_path / "three").more["newer"] == 0
