"""The guide "Review the trail", followed word by word at a terminal, from the reviewer's seat to an outsider's."""

import re
from pathlib import Path

import pytest

from audit.notes import read_vkey
from audit.reports import opened_report, recount
from issuer.sealing import is_ed25519_signature
from tests.support.guides import Reader
from tests.support.service import Service, accept_then_close
from tests.support.terminal import ROOT, Terminal

GUIDE = (ROOT / "docs" / "guides" / "review-the-trail.md").read_text(encoding="utf-8")


@pytest.mark.spec("AUD-04", "AUD-06", "AUD-09", "SUR-01", "SUR-03")
def test_a_reviewer_follows_the_guide_word_by_word(tmp_path: Path) -> None:
    with Service(accept_then_close()) as bank, Terminal(tmp_path) as terminal:
        following = Reader(terminal, "shop", bank.port)
        following.follows(GUIDE)
    assert len(bank.effects) == 1
    home = terminal.home
    assert {"december.note", "trail.jsonl", "trail.vkey", "verifier.py"} <= {
        one.name for one in home.iterdir()
    }
    verified, tampered = [typed for typed in following.shown if "verifier.py --key" in typed.command]
    assert (verified.screen.splitlines()[0], tampered.screen.splitlines()[0]) == ("verified", "tampered")
    # What the outsider has is enough to count the report again, with nothing of the issuer's folder.
    key = read_vkey((home / "trail.vkey").read_text().splitlines()[0])
    report = opened_report((home / "december.note").read_bytes(), key, is_ed25519_signature)
    lines = (home / "trail.jsonl").read_bytes().splitlines(keepends=True)
    assert recount(report, lines) == (report["spans"], report["transitions"])
    proven = re.search(r"proven: spans 1 to (\d+)", verified.screen)
    assert proven is not None
    assert int(proven[1]) == report["tree"]["size"]
    assert (home / "trail.jsonl").stat().st_mode & 0o077 == 0
