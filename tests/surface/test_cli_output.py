"""What is printed: one object for machines, plain lines for people, colour on a terminal only, and nothing hidden."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from issuer.amounts import amount_text
from issuer.answering import refusal_say
from issuer.sealing.ssh_signature import SignatureFault
from issuer.surfaces.cli.output import plain_text, render
from issuer.surfaces.cli.reference import reference_page
from issuer.wire import Answer
from issuer.wire.codes import CODES
from ledger.refusals import Refusal, RefusalCode
from tests.support.issuers import Made, standard_issuer
from tests.support.shell import HOUSE, PROCESS_S, environment, issuer_here, issuer_process

CLI_PAGE = HOUSE / "docs" / "reference" / "cli.md"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """One issuer for every test that only looks."""
    return standard_issuer(tmp_path_factory.mktemp("output") / "f0", port=9)


@pytest.mark.spec("ADM-05", "SUR-03")
def test_what_a_revocation_voids_is_named_a_line_each() -> None:
    effects = ["eff_" + "0" * 32, "eff_" + "1" * 32]
    more = {"stop": "operation:pay", "voided": 2, "effects": effects, "too_late": [], "too_late_count": 0}
    told = render(Answer(issuer="f0", code="revoked_now", mode="ordinary", more=more))
    assert told.splitlines()[1:-1] == [
        "  stop: operation:pay",
        "  voided: 2",
        *(f"  void: {effect}" for effect in effects),
    ]


@pytest.mark.spec("APP-01", "SUR-03")
@pytest.mark.parametrize("reason", [*SignatureFault, "arguments", "command", "expired", "replayed"])
def test_whoever_signed_wrongly_is_told_what_to_do(reason: str) -> None:
    no = Refusal(code=RefusalCode.SIGNATURE_REFUSED, field=str(reason))
    said = refusal_say(no)
    assert said.endswith(". Nothing was done.")
    assert not said.startswith(CODES["signature_refused"].say.partition(";")[0])


@pytest.mark.spec("SUR-03")
def test_the_committed_page_is_the_generated_one() -> None:
    assert CLI_PAGE.read_text(encoding="utf-8") == reference_page(), (
        "run: python -m issuer.surfaces.cli.reference"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["--json", "task", "list"],
        ["task", "--json", "list"],
        ["task", "list", "--json"],
        ["--profile", "profile.toml", "--json", "task", "list"],
        ["task", "list", "--profile", "profile.toml", "--json"],
        ["--profile", "missing.toml", "task", "list", "--profile", "profile.toml", "--json"],
        ["--json", "task", "--json", "list", "--json"],
    ],
)
@pytest.mark.spec("SUR-03")
def test_json_and_profile_stand_before_or_after_the_subcommand(made: Made, arguments: list[str]) -> None:
    ran = issuer_here(*arguments, at=made.folder)
    assert (ran.exit, ran.code, ran.err) == (0, "found", "")
    assert [task["name"] for task in ran.answer["tasks"]] == ["org", "t1", "t1.a", "t1.b"]


@pytest.mark.parametrize(
    ("unit", "amount", "text"),
    [
        ("EUR.cent", 90_000, "900.00 EUR"),
        ("EUR.cent", 5, "0.05 EUR"),
        ("USD.cent", 0, "0.00 USD"),
        ("EUR.cent", 2**53 - 1, "90071992547409.91 EUR"),
        ("publish", 3, "3 publish"),
        ("token", 1000, "1000 token"),
        ("JPY", 900, "900 JPY"),
        ("a.centime", 1, "1 a.centime"),
    ],
)
@pytest.mark.spec("SUR-03")
def test_money_is_shown_in_units_that_people_use(unit: str, amount: int, text: str) -> None:
    assert amount_text(unit, amount) == text


@pytest.mark.spec("BUD-01", "BUD-02", "BUD-05", "SUR-03")
def test_tasks_are_opened_granted_shown_and_closed(tmp_path: Path) -> None:
    made = standard_issuer(tmp_path / "f0", port=9)
    options = ("--parent", "org", "--budget", "USD.cent=9000", "--actor", "agent-8", "--expires", "8h")
    wider = ("--parent", "t1", "--budget", "USD.cent=1001")
    refused = issuer_here("task", "open", "wider", *wider, "--json", at=made.folder)
    assert (refused.exit, refused.code, refused.answer["field"]) == (7, "forbidden", "budget")
    assert refused.answer["level"] == "t1"
    opened = issuer_here("task", "open", "trip", *options, "--json", at=made.folder)
    assert (opened.exit, opened.code, opened.answer["task"]["budget"]["USD.cent"]["ceiling"]) == (
        0,
        "opened",
        9_000,
    )
    assert opened.answer["task"]["actors"] == ["agent-8"]
    granted = issuer_here("task", "grant", "trip", "--budget", "USD.cent=500", "--json", at=made.folder)
    assert (granted.exit, granted.code, granted.answer["task"]["budget"]["USD.cent"]["ceiling"]) == (
        0,
        "granted",
        9_500,
    )
    shown = issuer_here("task", "show", "trip", at=made.folder)
    assert "    USD.cent: ceiling 95.00 USD, settled 0.00 USD, held 0.00 USD" in shown.out.splitlines()
    listed = issuer_here("task", "list", at=made.folder)
    assert "  trip below org: open, for u-ana, by agent-8" in listed.out
    assert "  t1.b below t1: open, for u-ana" in listed.out
    assert "ceiling inherit" in listed.out
    closed = issuer_here("task", "close", "trip", "--json", at=made.folder)
    assert (closed.exit, closed.code, closed.answer["task"]["state"]) == (0, "closed", "closed")


ESCAPES = ("\x1b", "\x9b")


def _on_a_terminal(made: Made, env: Mapping[str, str]) -> str:
    """Run `issuer task list` with a terminal as its standard output and return what the terminal was told."""
    ours, its = os.openpty()
    command = [sys.executable, "-c", "from issuer.surfaces.cli import main; main()", "show", "eff_0"]
    changed = {"TERM": "xterm", "NO_COLOR": "", **env}
    process = subprocess.Popen(
        command, cwd=made.folder, env=environment(changed), stdin=subprocess.DEVNULL, stdout=its, stderr=its
    )
    os.close(its)
    told = b""
    try:
        while chunk := os.read(ours, 4096):
            told += chunk
    except OSError:  # the other end closed: Linux says EIO
        pass
    finally:
        os.close(ours)
        process.wait(PROCESS_S)
    return told.decode()


@pytest.mark.parametrize(
    ("env", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
@pytest.mark.spec("SUR-03")
def test_colour_is_for_terminals_that_want_it(made: Made, env: dict[str, str], coloured: bool) -> None:
    told = _on_a_terminal(made, env)
    assert "There is no such effect here." in told
    assert ("\x1b[" in told) == coloured


@pytest.mark.spec("SUR-03")
def test_without_a_terminal_nothing_is_coloured_whatever_the_environment_says(made: Made) -> None:
    forced = {"FORCE_COLOR": "1", "CLICOLOR_FORCE": "1", "TERM": "xterm-256color"}
    ran = issuer_process("show", "eff_0", at=made.folder, env=forced)
    assert ran.exit == 2
    assert not any(escape in ran.out + ran.err for escape in ESCAPES)


@pytest.mark.spec("SUR-03")
def test_words_that_are_no_text_are_answered_like_any_other(tmp_path: Path) -> None:
    ran = issuer_process("--json", b"--\xff", at=tmp_path)
    assert (ran.exit, ran.code, ran.err) == (2, "malformed", "")
    ran = issuer_process("--json", "list", "--profile", b"\xff.toml", at=tmp_path)
    assert (ran.exit, ran.code, ran.err) == (2, "malformed", "")
    named = ("list", "--profile", b"\xff\x1b[31m.toml")
    ran = issuer_process(*named, at=tmp_path, env={"PYTHONIOENCODING": "ascii"})
    assert (ran.exit, ran.out) == (2, "")
    assert "\x1b" not in ran.err
    assert "\\x1b[31m" in ran.err, "a terminal's escape is shown, not sent"


@pytest.mark.parametrize("name", ["", "task", "audit", "request", "dispatch"])
def test_help_needs_no_issuer_and_no_argument_shows_it_on_standard_error(name: str, tmp_path: Path) -> None:
    words = [name] if name else []
    asked = issuer_here(*words, "--help", at=tmp_path)
    assert (asked.exit, asked.err) == (0, "")
    assert asked.out.startswith(f"Usage: issuer {name}".rstrip())
    if name in {"", "task", "audit"}:
        bare = issuer_here(*words, at=tmp_path)
        assert (bare.exit, bare.out) == (2, "")
        assert bare.err.startswith(f"Usage: issuer {name}".rstrip())


@pytest.mark.parametrize(
    "order",
    ['o-1"\nsucceeded  (f0, ordinary)', "o-1\tx", "o-1\u202e1-o", "o-1\u2028x", "o\u200b-1", "o\u0085-1"],
)
@pytest.mark.spec("SUR-03", "SEC-04")
def test_a_payload_cannot_write_lines_of_its_own_into_what_people_read(made: Made, order: str) -> None:
    document = json.dumps({"order": order, "amount": 300}).encode()
    options = ("--task", "t1", "--actor", "agent-7", "--payload", "-")
    ran = issuer_here("request", "refund", *options, "--json", at=made.folder, stdin=document)
    assert (ran.exit, ran.code, ran.answer["reason"]) == (2, "malformed", "control_character")
    assert issuer_here("list", at=made.folder).out.splitlines()[1] == "  none"


def test_text_for_people_hides_nothing() -> None:
    assert plain_text("Müller & Söhne, 東京") == "Müller & Söhne, 東京"
    assert plain_text("a\nb\r\t\x1b[2J\u202eb\udcff\x00") == "a\\nb\\r\\t\\x1b[2J\\u202eb\\udcff\\x00"


@pytest.mark.spec("SUR-03")
def test_every_answer_has_the_documented_keys_in_order_and_json_of_plain_ascii() -> None:
    answer = Answer(
        issuer="f0/1", code="denied", mode="ordinary", say="Nicht für Müller.", more={"field": "x"}
    )
    document = answer.as_json()
    assert " ".join(document) == (
        "v issuer effect code state mode operation resource cost expires retryable next say field"
    )
    assert json.dumps(document).isascii()
    assert render(answer).splitlines()[-1] == "Nicht für Müller."


@pytest.mark.spec("APP-02", "SUR-03")
def test_a_long_resource_makes_no_line_of_its_own_among_what_waits() -> None:
    faked = f'Order::"{"x" * 40}      it takes 1 of finance; yes from bob'
    row = {
        "effect": "eff_" + "0" * 32,
        "operation": "refund",
        "resource": faked + '"',
        "cost": {"USD.cent": 900},
        "actor": "a",
        "subject": "s",
        "caller": "c",
        "task": "t",
        "until": "2026-12-01T09:00:00.000Z",
        "approvers": {"finance": 2},
        "approved": [],
    }
    told = render(Answer(issuer="f0", code="found", mode="ordinary", more={"waiting": [row]}))
    lines = told.splitlines()
    assert [line for line in lines if line.startswith("      it takes")] == [
        "      it takes 2 of finance; yes from nobody yet; until 2026-12-01T09:00:00.000Z"
    ]
    pieces = [line.removeprefix("        | ") for line in lines if line.startswith("        | ")]
    assert "".join(pieces) == row["resource"]
    assert all(len(line) < 80 for line in lines if "|" in line)
