"""The report of served rules notices each way in which pages, marks and open.toml can part."""

from pathlib import Path

import pytest

from tests.support.spec_report import Marks, Report, build_report, collect_marks, read_specification

PAGE = "# AAA: a family\n\n## AAA-01\n\nOne. It refers to AAA-02 and **AAA-09**.\n\n## AAA-02\n\nTwo.\n"
OPEN = '[families]\nAAA = 2\n\n[open]\nAAA-02 = "Nothing does it."\n'
SERVING = 'import pytest\n@pytest.mark.spec("AAA-01")\ndef test_one() -> None: ...\n'


def report_on(folder: Path, *, page: str = PAGE, openings: str = OPEN, tests: str = SERVING) -> Report:
    """Write the three sources into `folder` and report on them."""
    (folder / "aaa.md").write_text(page, encoding="utf-8")
    (folder / "open.toml").write_text(openings, encoding="utf-8")
    (folder / "test_it.py").write_text(tests, encoding="utf-8")
    marks = Marks()
    collect_marks(folder / "test_it.py", "test_it.py", marks)
    return build_report(read_specification(folder), marks)


def test_a_served_rule_and_an_open_one_are_a_report_without_findings(tmp_path: Path) -> None:
    report = report_on(tmp_path)
    assert report.findings == ()
    assert [line.split()[:3] for line in report.lines] == [["AAA-01", "served", "1"], ["AAA-02", "open", "0"]]


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"tests": ""}, "AAA-01: no test carries it"),
        (
            {"tests": SERVING.replace("AAA-01", "AAA-07")},
            "AAA-07: carried by test_one, but no page states it",
        ),
        ({"tests": SERVING.replace('"AAA-01"', "RULE")}, "test_it.py:2: spec takes rule ids"),
        ({"tests": SERVING.replace("AAA-01", "AAA-1")}, "test_it.py:2: spec takes rule ids"),
        ({"tests": SERVING.replace("test_one", "help_one")}, "help_one is no test"),
        ({"tests": SERVING.replace("@", "@pytest.mark.skip\n@")}, "AAA-01: no test carries it"),
        ({"tests": SERVING.replace("@", "@pytest.mark.xfail(strict=True)\n@")}, "AAA-01: no test carries it"),
        ({"tests": "pytestmark = [pytest.mark.skip]\n" + SERVING}, "AAA-01: no test carries it"),
        ({"page": PAGE.replace("## AAA-02", "AAA-02")}, "AAA-02: no page states it"),
        ({"page": PAGE + "## AAA-03\n"}, "AAA-03: a page states it, but"),
        ({"page": PAGE + "## AAA-01\n"}, "AAA-01: stated 2 times"),
        ({"openings": OPEN + 'AAA-05 = "Gone."\n'}, "AAA-05: listed in open.toml, but no page states it"),
        ({"openings": OPEN.replace("Nothing does it.", " ")}, "AAA-02: open.toml gives no reason"),
        (
            {"openings": OPEN.replace("Nothing", "Partly: nothing")},
            "AAA-02: open.toml says it is served in part",
        ),
    ],
)
def test_each_disagreement_is_a_finding(tmp_path: Path, change: dict[str, str], finding: str) -> None:
    findings = report_on(tmp_path, **change).findings
    assert any(finding in line for line in findings), findings


def test_a_test_of_an_open_rule_makes_it_partly_served(tmp_path: Path) -> None:
    report = report_on(tmp_path, tests=SERVING.replace('"AAA-01"', '"AAA-01", "AAA-02"'))
    assert report.findings == ()
    assert report.lines[1].split()[1] == "partly"


@pytest.mark.parametrize(
    "tests",
    [
        'pytestmark = pytest.mark.spec("AAA-01")\ndef test_one(): ...\n',
        'pytestmark = [pytest.mark.spec("AAA-01")]\nclass TestIt:\n    def test_one(self): ...\n',
        '@pytest.mark.spec("AAA-01")\nclass TestIt:\n    async def test_one(self): ...\n',
        '@pytest.mark.parametrize("x", [pytest.param(1, marks=mark.spec("AAA-01"))])\ndef test_one(x): ...\n',
    ],
)
def test_a_mark_counts_wherever_pytest_would_apply_it(tmp_path: Path, tests: str) -> None:
    assert report_on(tmp_path, tests=tests).findings == ()
