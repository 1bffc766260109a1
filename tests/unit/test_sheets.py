"""The forms of an answer: cells that no spreadsheet calculates with, RFC 4180, and nothing that a terminal acts on."""

import csv
import io

import pytest

from issuer.sheets import cell, csv_text, demand_form
from issuer.surfaces.cli.output import show_text
from issuer.wire import Answer
from ledger.errors import Malformed

FORMULAS = [
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    '=HYPERLINK("https://evil.example")',
    "\uff1d1",
    "\uff0b1",
    "\uff0d1",
    "\uff20A1",
]


@pytest.mark.spec("SUR-03", "AUD-06")
@pytest.mark.parametrize("text", FORMULAS)
def test_a_cell_that_would_be_a_formula_is_text(text: str) -> None:
    (row,) = csv.reader(io.StringIO(csv_text(("a",), [{"a": text}], headed=False)))
    assert row[0].startswith("'")
    assert cell([text]).startswith("'"), "the first of a list begins the cell"
    assert cell({text: 1}).startswith("'")


@pytest.mark.spec("SUR-03", "AUD-06")
@pytest.mark.parametrize("text", ["x;=1+1", "x;@SUM(A1)", 'x; "=1', "x|-1", "x;\uff1d1", ";=1"])
@pytest.mark.parametrize("separator", [";", "|"])
def test_a_formula_behind_another_separator_is_text_as_well(text: str, separator: str) -> None:
    line = csv_text(("a", "b"), [{"a": 7, "b": text}], headed=False)
    for one in (*line.rstrip().split(separator), *next(csv.reader(io.StringIO(line), delimiter=separator))):
        assert not one.lstrip(' "').startswith(tuple("=+-@\uff1d")), line


@pytest.mark.spec("SUR-03")
@pytest.mark.parametrize("text", ["o-1", "a,b", 'say "yes"', "ümlaut", "'quoted", "", "1", "a=b", "x-1@y"])
def test_any_other_cell_is_what_it_was(text: str) -> None:
    (row,) = csv.reader(io.StringIO(csv_text(("a", "b"), [{"a": text, "b": 1}], headed=False)))
    assert row == [text, "1"]


@pytest.mark.spec("SUR-03")
def test_lines_end_as_the_standard_says_and_the_header_comes_once() -> None:
    text = csv_text(("a", "b"), [{"a": "x", "b": None}, {"a": True, "b": ["p", "q"]}])
    assert text == 'a,b\r\nx,\r\nyes,"p,q"\r\n'


TERMINAL = ["\x1b[2J", "\x07", "\x9b31m", "\u202e", "\x7f", "a\x00b", "\u2028", "\r\n=1", "\u200b"]


@pytest.mark.spec("SUR-03", "SEC-01")
@pytest.mark.parametrize("text", TERMINAL)
def test_no_cell_holds_what_a_terminal_acts_on(text: str) -> None:
    shown = cell(text)
    assert shown.isprintable()
    assert text not in shown


@pytest.mark.spec("SUR-03")
@pytest.mark.parametrize("text", TERMINAL)
def test_a_text_is_shown_as_it_is_to_a_program_and_escaped_on_a_terminal(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = Answer(issuer="x", code="found", mode="ordinary")
    line = f'{{"a":"{text}"}}\n'
    show_text(answer, line)
    assert capsys.readouterr().out == line
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    show_text(answer, line)
    shown = capsys.readouterr().out
    assert all(char.isprintable() or char in "\r\n" for char in shown)


@pytest.mark.spec("SUR-02")
def test_a_form_that_there_is_not_is_refused() -> None:
    assert demand_form("csv") == "csv"
    with pytest.raises(Malformed):
        demand_form("xls")
