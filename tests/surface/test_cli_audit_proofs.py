"""`issuer audit verify`, `audit verifier` and `audit prove`, as they are typed by somebody without an issuer."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from audit.verifier import verifier_text
from tests.support.issuers import standard_issuer
from tests.support.shell import HOUSE, Ran, issuer_here
from tests.support.trails import CheckpointKey, joined, signed_trail

KEY = CheckpointKey()
SPANS = 300
TRAIL = signed_trail(SPANS, KEY)


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A reviewer's folder: no profile, a file of spans, a checkpoint and a key."""
    (tmp_path / "spans.jsonl").write_bytes(TRAIL.data)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "c.note").write_bytes(TRAIL.note)
    (tmp_path / "key").write_text(f"\n{KEY.vkey}\n")
    return tmp_path


def verify(desk: Path, *arguments: str) -> Ran:
    return issuer_here("audit", "verify", *arguments, at=desk)


@pytest.mark.spec("AUD-04", "SUR-03")
@pytest.mark.parametrize("key", ["key", KEY.vkey])
@pytest.mark.parametrize("checkpoint", ["notes", "notes/c.note"])
def test_a_reviewer_without_a_profile_is_told_what_is_proven(desk: Path, key: str, checkpoint: str) -> None:
    shown = verify(desk, "spans.jsonl", "--checkpoint", checkpoint, "--key", key)
    assert (shown.exit, shown.err) == (0, "")
    assert f"proven: spans 1 to {SPANS} are exactly those that were signed" in shown.out
    assert shown.out.splitlines()[0].startswith("verified")


@pytest.mark.spec("AUD-04", "SUR-02", "SUR-03")
def test_every_verdict_has_its_code_and_its_exit(desk: Path) -> None:
    asked = ("spans.jsonl", "--checkpoint", "notes", "--key", "key", "--json")
    good = verify(desk, *asked)
    told = good.answer["verification"]
    assert (good.exit, good.code, told["anchored"], told["not_anchored"]) == (0, "verified", SPANS, 0)
    (desk / "spans.jsonl").write_bytes(joined(TRAIL.lines[:-1]))
    bad = verify(desk, *asked)
    assert (bad.exit, bad.code) == (8, "tampered")
    assert bad.answer["verification"]["checkpoints"][0]["standing"] == "not_reached"
    (desk / "spans.jsonl").write_bytes(
        TRAIL.data.replace(b"small", b"giant", 1).replace(b"strict", b"loose!", 1)
    )
    changed = verify(desk, *asked)
    assert (changed.exit, changed.code) == (8, "tampered")
    assert changed.answer["verification"]["finding"]["what"] == "leaf"
    alone = verify(desk, "spans.jsonl", "--json")
    assert alone.exit == 8
    (desk / "spans.jsonl").write_bytes(TRAIL.data)
    assert (verify(desk, "spans.jsonl", "--json").code, alone.code) == ("not_anchored", "tampered")


@pytest.mark.spec("AUD-04", "SUR-03")
@pytest.mark.parametrize(
    "arguments",
    [
        ("missing.jsonl", "--key", "key"),
        ("key", "--key", "key"),
        ("spans.jsonl", "--key", "missing"),
        ("spans.jsonl", "--key", "spans.jsonl"),
        ("spans.jsonl", "--key", "a+b+c"),
        ("spans.jsonl", "--checkpoint", "notes"),
        ("spans.jsonl", "--checkpoint", "missing", "--key", "key"),
        ("spans.jsonl", "--checkpoint", ".", "--key", "key"),
        ("--proof", "spans.jsonl", "--key", "key"),
        ("--proof", "missing", "--key", "key"),
        ("--proof", "spans.jsonl", "spans.jsonl", "--key", "key"),
    ],
)
def test_input_that_cannot_be_used_is_told_in_one_sentence(desk: Path, arguments: tuple[str, ...]) -> None:
    shown = verify(desk, *arguments)
    assert shown.exit == 2
    assert shown.err.startswith("malformed: ")
    assert shown.out == ""
    assert verify(desk, *arguments, "--json").code == "malformed"


@pytest.mark.spec("AUD-04", "SEC-02", "SUR-03")
def test_without_a_file_it_is_the_ledger_of_the_profile_and_no_agent_asks(tmp_path: Path) -> None:
    assert "There is no profile.toml" in issuer_here("audit", "verify", at=tmp_path).err
    made = standard_issuer(tmp_path / "f0", port=9)
    with made.open() as issuer:
        note = str(issuer.audit_checkpoint().more["file"])
        (made.folder / "key").write_text(str(issuer.audit_key().more["vkeys"]))
    asked = ("audit", "verify", "--checkpoint", note, "--key", "key", "--json")
    shown = issuer_here(*asked, at=made.folder)
    assert (shown.exit, shown.code) == (0, "verified")
    assert issuer_here("audit", "verify", "--json", at=made.folder).code == "not_anchored"
    (made.folder / "token").write_text("x")
    assert issuer_here(*asked, "--token", "token", at=made.folder).code == "forbidden"


@pytest.mark.spec("AUD-09")
def test_the_verifier_is_printed_whole(desk: Path) -> None:
    shown = issuer_here("audit", "verifier", at=desk)
    assert (shown.exit, shown.out) == (0, verifier_text())


@pytest.mark.spec("SUR-03")
def test_a_bar_is_shown_on_a_terminal_and_nowhere_else(desk: Path) -> None:
    screen, keyboard = pty.openpty()
    program = "from issuer.surfaces.cli import main; main()"
    arguments = ("audit", "verify", "spans.jsonl", "--checkpoint", "notes", "--key", "key")
    ran = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=desk,
        env={**os.environ, "PYTHONPATH": str(HOUSE), "TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=keyboard,
        timeout=60,
        check=False,
    )
    os.close(keyboard)
    seen = os.read(screen, 65536).decode()
    os.close(screen)
    assert ran.returncode == 0
    assert ran.stdout.startswith(b"verified")
    assert "verifying bytes" in seen
    assert "100%" in seen
    assert seen.endswith("\x1b[?25h\r\n")
