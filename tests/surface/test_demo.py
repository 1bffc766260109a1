"""The demo does what it shows, and the README shows what it does."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
COMMAND = [sys.executable, "-c", "from issuer.surfaces.cli import main; main(['demo'])"]
CLOCK = re.compile(r"\d\d:\d\d:\d\d\.\d{3}")


@pytest.fixture(scope="module")
def demo() -> subprocess.CompletedProcess[str]:
    return subprocess.run(COMMAND, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.spec("ADM-04", "REP-01", "REP-02", "REP-05", "BUD-02", "AUD-02")
def test_every_act_ends_as_promised(demo: subprocess.CompletedProcess[str]) -> None:
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert "NOT AS PROMISED" not in demo.stdout


def test_the_readme_shows_the_demo_word_for_word_but_for_the_clock(
    demo: subprocess.CompletedProcess[str],
) -> None:
    shown = README.read_text(encoding="utf-8").split("```text\n")[1].split("```")[0]
    assert CLOCK.sub("CLOCK", demo.stdout).split() == CLOCK.sub("CLOCK", shown).split()


def test_the_demo_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_STATE_HOME", "TMPDIR"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    assert subprocess.run(COMMAND, capture_output=True, timeout=120, check=False).returncode == 0
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_it_says_what_to_do_next_and_stays_readable(demo: subprocess.CompletedProcess[str]) -> None:
    lines = demo.stdout.splitlines()
    assert lines[-3].strip().startswith("issuer init")
    assert len(lines) <= 45
    assert "\x1b" not in demo.stdout
