"""The questions of a reviewer as they are typed: forms, pages, one object with `--json`, and files (SUR-03, AUD-06)."""

import csv
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from issuer.surfaces.cli.main import group
from tests.support.cases import HOUSE, PROGRAM
from tests.support.issuers import Made, permitted, refund, standard_issuer
from tests.support.service import Service, answer


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    with Service(answer(201)) as service:
        made = standard_issuer(tmp_path_factory.mktemp("cli") / "f0", port=service.port)
        with made.open() as issuer:
            issuer.commit(permitted(refund(issuer)))
        yield made


def typed(made: Made, *words: str) -> Result:
    """Type a command in this process, which takes a tenth of the time of another one."""
    return CliRunner().invoke(group, ["--profile", str(made.profile), "audit", *words])


COMMANDS = {
    "query": ("query", "--actor", "agent-7", "--since", "1h", "--newest"),
    "timeline": ("timeline", "--task", "t1"),
    "issued": ("issued", "--policy", "small-refunds"),
    "unknowns": ("unknowns",),
    "unused": ("unused", "--operation", "refund"),
    "denied-then-done": ("denied-then-done", "--within", "2h"),
    "approvals": ("approvals", "--approver", "bob"),
    "access": ("access", "--since", "today"),
    "changes": ("changes", "--since", "1d"),
    "report": ("report", "--since", "today"),
}


@pytest.mark.spec("SUR-03", "AUD-06", "AUD-09")
@pytest.mark.parametrize("name", COMMANDS)
def test_each_question_prints_lines_rows_and_one_object(made: Made, name: str) -> None:
    lines = typed(made, *COMMANDS[name])
    assert (lines.exit_code, lines.stderr) == (0, ""), lines.output
    assert lines.stdout.startswith("found  (f0/")
    rows = typed(made, *COMMANDS[name], "--format", "csv")
    assert rows.exit_code == 0
    assert len(next(csv.reader(rows.stdout.splitlines()))) >= 4
    one = typed(made, *COMMANDS[name], "--format", "csv", "--json")
    assert json.loads(one.stdout)["code"] == "found"
    assert len(one.stdout.splitlines()) == 1


@pytest.mark.spec("SUR-03", "AUD-06")
def test_a_page_says_where_the_next_begins(made: Made) -> None:
    first = typed(made, "query", "--limit", "2", "--format", "jsonl")
    assert [json.loads(line)["sequence"] for line in first.stdout.splitlines()] == [1, 2]
    assert first.stderr == "more: go on with --after 2\n"
    second = typed(made, "query", "--limit", "2", "--after", "2", "--format", "jsonl")
    assert [json.loads(line)["sequence"] for line in second.stdout.splitlines()] == [3, 4]
    assert "  more: go on with --after 2\n" in typed(made, "query", "--limit", "2").stdout


@pytest.mark.spec("SUR-03", "EFF-05")
def test_what_is_typed_wrongly_is_told_in_one_sentence(made: Made) -> None:
    told = typed(made, "query", "--since", "2026-12-01T10:00:00")
    assert told.exit_code == 2
    assert "a time with an offset" in told.stdout
    assert typed(made, "timeline").exception is not None
    assert typed(made, "timeline", "eff_1", "--task", "t1").exception is not None


@pytest.mark.spec("AUD-06", "SUR-03")
def test_files_are_taken_away_by_a_process_of_its_own(made: Made, tmp_path: Path) -> None:
    out = tmp_path / "trail.jsonl"
    command = [*PROGRAM, "--profile", str(made.profile), "audit", "export", "--out", str(out)]
    done = subprocess.run(command, cwd=HOUSE, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), "a bar is for terminals"
    assert done.stdout.splitlines()[-1] == "Written, and on record."
    assert out.exists()
    again = typed(made, "export", "--out", str(out))
    assert again.exit_code == 2
    assert "name a new file" in again.stdout
    assert typed(made, "snapshot", "--out", str(tmp_path / "trail.db")).exit_code == 0
    assert typed(made, "report", "--out", str(tmp_path / "report.note")).exit_code == 0
    assert {one.name for one in tmp_path.iterdir()} == {"trail.jsonl", "trail.db", "report.note"}
