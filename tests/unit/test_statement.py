"""The statement on paper: nothing forges a line or hides a difference, and an approver's own tool proves all of it."""

import hashlib
import hmac
import json
import subprocess
import sys
from typing import Any

import pytest

from issuer.approving import StatementUntrue, human_part, recompute
from issuer.approving.recompute import SEPARATOR, machine_line
from issuer.approving.rendering import amount_words, rendered
from issuer.approving.statement import Declining
from tests.support.bindings import operation_of, pinned_of, preparation_of
from tests.support.statements import ASKED_MS, DAY_MS, fact_of, statement_of

OPERATION = operation_of()
HIDDEN = operation_of(hidden=True)


def lines_of(statement: bytes) -> list[str]:
    return statement.decode("ascii").partition(SEPARATOR)[0].split("\n")


def shown(value: str) -> list[str]:
    """Return the lines about an order of this name."""
    lines = lines_of(statement_of(pinned_of(OPERATION, values={"order": value})))
    start = next(index for index, line in enumerate(lines) if line.startswith("payload.order:"))
    end = next(index for index in range(start + 1, len(lines)) if not lines[index].startswith("  "))
    return [lines[start].removeprefix("payload.order: "), *lines[start + 1 : end]]


@pytest.mark.spec("APP-02")
@pytest.mark.parametrize(
    ("value", "lines"),
    [
        ("o-1", ['"o-1"']),
        ("", ['""']),
        (" o 1 ", ['" o 1 "']),
        ('o"1', ['"o\\"1"']),
        ("o\\1", ['"o\\\\1"']),
        ("\\u{31}", ['"\\\\u{31}"']),
        ("900", ['"900"']),
        ("none", ['"none"']),
        (
            "o\nfinance: 1",
            ['"o\\u{A}finance: 1"', "  ! not plain ASCII: U+000A (cannot be seen)"],
        ),
        (
            "\u043e-1",
            ['"\\u{43E}-1"', "  ! not plain ASCII: U+043E CYRILLIC SMALL LETTER O (looks like o)"],
        ),
        (
            "\u202e1-o",
            ['"\\u{202E}1-o"', "  ! not plain ASCII: U+202E RIGHT-TO-LEFT OVERRIDE (reorders text)"],
        ),
        ("o\u2066-1", ['"o\\u{2066}-1"', "  ! not plain ASCII: U+2066 (reorders text)"]),
        ("o\u200b-1", ['"o\\u{200B}-1"', "  ! not plain ASCII: U+200B ZERO WIDTH SPACE (cannot be seen)"]),
        ("o\u00a0", ['"o\\u{A0}"', "  ! not plain ASCII: U+00A0 NO-BREAK SPACE"]),
        ("caf\u00e9", ['"caf\\u{E9}"', "  ! not plain ASCII: U+00E9 LATIN SMALL LETTER E WITH ACUTE"]),
        (
            "cafe\u0301",
            [
                '"cafe\\u{301}"',
                "  ! not plain ASCII: U+0301 COMBINING ACUTE ACCENT",
                "  ! not in composed form (NFC): it can look the same as another text",
            ],
        ),
        (
            "\uff4f-1",
            ['"\\u{FF4F}-1"', "  ! not plain ASCII: U+FF4F FULLWIDTH LATIN SMALL LETTER O (looks like o)"],
        ),
        ("\U0001f600", ['"\\u{1F600}"', "  ! not plain ASCII: U+1F600"]),
        ("\x1b[2J", ['"\\u{1B}[2J"', "  ! not plain ASCII: U+001B (cannot be seen)"]),
        ("\x9b2J", ['"\\u{9B}2J"', "  ! not plain ASCII: U+009B (cannot be seen)"]),
    ],
)
def test_a_value_is_quoted_whole_and_marked(value: str, lines: list[str]) -> None:
    assert shown(value) == lines


@pytest.mark.spec("APP-02")
def test_a_long_value_goes_on_over_lines_and_nothing_of_it_is_cut() -> None:
    value = "".join(f"{number:04d}\u0435" for number in range(2_000))
    name, *rest = shown(value)
    pieces = [line.removeprefix("    ") for line in rest if not line.startswith("  !")]
    assert name == "payload.order:"
    assert len(pieces) > 100
    assert all(len(piece) <= 74 and piece[0] == piece[-1] == '"' for piece in pieces)
    assert "".join(piece[1:-1] for piece in pieces) == value.replace("\u0435", "\\u{435}")


@pytest.mark.spec("APP-02")
def test_many_odd_characters_are_counted_where_they_are_not_named() -> None:
    marks = [line for line in shown("".join(map(chr, range(0x4E00, 0x4E64)))) if line.startswith("  !")]
    assert len(marks) == 33
    assert marks[-1] == "  ! not plain ASCII: 68 further characters, written as \\u{...} above"


@pytest.mark.spec("APP-02", "EFF-04")
@pytest.mark.parametrize(
    ("unit", "amount", "words"),
    [
        ("EUR.cent", 90_000, "900.00 EUR"),
        ("EUR.cent", 5, "0.05 EUR"),
        ("EUR.cent", 2**53 - 1, "90071992547409.91 EUR"),
        ("EUR.cent", -5, "-0.05 EUR"),
        ("publish", 3, "3 publish"),
    ],
)
def test_money_reads_as_people_write_it(unit: str, amount: int, words: str) -> None:
    assert amount_words(unit, amount) == words


@pytest.mark.spec("APP-02", "PER-03")
def test_instants_read_in_utc_and_as_the_owners_clock_shows_them() -> None:
    lines = lines_of(statement_of())
    assert "answer_until: 2030-01-01T00:00:00.000Z (2030-01-01 01:00:00 +01:00) Europe/Berlin" in lines
    assert "permit_then_lasts_at_most: 10m, and never beyond answer_until" in lines


@pytest.mark.spec("APP-02")
def test_names_of_members_make_no_other_path() -> None:
    nested = preparation_of(actual={"a": {"b": 1}}), preparation_of(actual={"a.b": 1})
    one, other = (lines_of(statement_of(pinned_of(OPERATION, preparation=each))) for each in nested)
    assert "actual.a.b: 1" in one
    assert 'actual."a.b": 1' in other


@pytest.mark.spec("APP-02", "EFF-10", "SEC-01")
def test_sensitive_fields_are_disclosed_with_their_salt_and_secret_ones_never() -> None:
    statement = statement_of(pinned_of(HIDDEN))
    machine = recompute(statement)
    assert 'payload.note: "for ana"' in lines_of(statement)
    assert b"4000-1" not in statement
    card = machine["binding"]["payload"]["card"]["commitment"]
    assert f"payload.card: secret, commitment {card}" in lines_of(statement)
    assert "payload.card" not in machine["disclosed"]
    assert {"payload.note", "recipients", "actual", "destination", "preconditions"} <= machine[
        "disclosed"
    ].keys()


@pytest.mark.spec("SEC-01", "APP-02")
@pytest.mark.parametrize(
    "found", [{"path": "/cards/4000-1/x"}, {"4000-1": 1}, {"list": ["x", {"y": "4000-1"}]}]
)
def test_what_an_adapter_repeats_of_a_secret_is_withheld_as_well(found: dict[str, object]) -> None:
    statement = statement_of(pinned_of(HIDDEN, preparation=preparation_of(preconditions=found)))
    assert b"4000-1" not in statement
    assert any(line.startswith("preconditions: secret, commitment ") for line in lines_of(statement))
    recompute(statement)


@pytest.mark.spec("APP-01", "APP-05")
def test_a_yes_and_a_no_are_two_statements_with_two_challenges() -> None:
    yes = statement_of()
    no = statement_of(declining=Declining(reason="not_agreed", reference="T-1"))
    assert lines_of(no)[0] == "permit-issuer statement v1: decline"
    assert 'reason: "not_agreed"' in lines_of(no)
    assert 'reference: "T-1"' in lines_of(no)
    assert recompute(yes)["challenge"] != recompute(no)["challenge"]


@pytest.mark.spec("APP-01")
def test_it_is_a_pure_function_and_its_challenge_needs_the_key() -> None:
    assert statement_of() == statement_of()
    assert recompute(statement_of())["challenge"] != recompute(statement_of(key=b"x" * 32))["challenge"]


def altered(machine: str, at: int) -> bytes:
    swapped = chr(ord(machine[at]) ^ 1)
    return (machine[:at] + swapped + machine[at + 1 :]).encode()


@pytest.mark.spec("APP-02", "EFF-10")
@pytest.mark.parametrize("operation", [OPERATION, HIDDEN])
def test_no_byte_of_the_machine_part_can_be_altered_alone(operation: Any) -> None:
    statement = statement_of(pinned_of(operation), registries={"order": fact_of()})
    human, _, machine = statement.decode().partition(SEPARATOR)
    head = (human + SEPARATOR).encode()
    recompute(head + machine.encode())
    for at in range(len(machine)):
        with pytest.raises(StatementUntrue):
            recompute(head + altered(machine, at))


@pytest.mark.spec("APP-02")
def test_no_line_of_the_human_part_can_be_altered_left_out_or_added() -> None:
    lines = statement_of().decode().split("\n")
    end = lines.index(SEPARATOR.strip())
    for at in range(end):
        for changed in (
            [*lines[:at], *lines[at + 1 :]],
            [*lines[:at], lines[at] + " ", *lines[at + 1 :]],
            [*lines[:at], "x: 1", *lines[at:]],
        ):
            with pytest.raises(StatementUntrue):
                recompute("\n".join(changed).encode())


def remade(change: dict[str, Any]) -> bytes:
    """Return a statement whose human part fits its changed machine part: made by a core that lies."""
    machine = json.loads(statement_of(pinned_of(HIDDEN)).decode().partition(SEPARATOR)[2])
    for path, value in change.items():
        *above, last = path.split("/")
        place = machine
        for name in above:
            place = place[name]
        place[last] = value
    return f"{rendered(machine)}{SEPARATOR}{machine_line(machine)}".encode()


@pytest.mark.spec("APP-02", "EFF-10")
@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"binding/subject": "u-bob"}, "binding"),
        ({"digest": "0" * 64}, "binding"),
        ({"effect": "eff_" + "9" * 32}, "binding"),
        ({"expires_ms": 1}, "binding"),
        ({"disclosed/payload.note/value": "for bob"}, "commitment"),
        ({"disclosed/payload.note/salt": "0" * 32}, "commitment"),
        ({"disclosed/payload.other": {"salt": "0" * 32, "value": "x"}}, "commitment"),
        ({"disclosed/payload.note": {"salt": "0" * 32, "value": "x", "more": 1}}, "commitment"),
        ({"more": 1}, "machine_part"),
        ({"decision/more": 1}, "machine_part"),
        ({"v": 2}, "machine_part"),
    ],
)
def test_a_statement_that_fits_itself_but_not_its_digest_is_untrue(change: dict[str, Any], word: str) -> None:
    with pytest.raises(StatementUntrue) as caught:
        recompute(remade(change))
    assert caught.value.word == word


@pytest.mark.spec("APP-02")
@pytest.mark.parametrize(
    "statement",
    [
        b"",
        b"\xff",
        statement_of().replace(b"u-ana", "\u0430na".encode()),
        statement_of().replace(b"[what]", b"[what]\x1b[8m"),
        statement_of().replace(b"\n", b"\r\n"),
        statement_of() + b"x",
        statement_of() + SEPARATOR.encode(),
        statement_of().replace(SEPARATOR.encode(), b""),
        b" " * (4 * 1024 * 1024 + 1),
    ],
)
def test_what_is_no_statement_is_untrue(statement: bytes) -> None:
    with pytest.raises(StatementUntrue):
        recompute(statement)


@pytest.mark.spec("APP-02")
def test_the_approvers_tool_needs_the_standard_library_and_our_byte_encoding_only() -> None:
    code = (
        "import sys\n"
        "import issuer.approving.recompute\n"
        "ours = [m for m in sys.modules if m.split('.')[0] in ('issuer', 'ledger', 'policies', 'audit')]\n"
        "print(sorted(ours))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True, timeout=60
    )
    tools = ("", ".approving", ".approving.escaping", ".approving.recompute", ".approving.rendering")
    assert (
        done.stdout.split()
        == str([*(f"issuer{name}" for name in tools), "ledger", "ledger.canonical", "ledger.errors"]).split()
    )


@pytest.mark.spec("EFF-10", "EFF-03")
def test_anybody_computes_digest_and_commitment_with_a_hash_and_json() -> None:
    machine = recompute(statement_of(pinned_of(HIDDEN)))
    body = json.dumps(machine["binding"], sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    domain = b"permit-issuer/binding/v1"
    candidates = {hashlib.sha256(domain + gap + body).hexdigest() for gap in (b"", b"\x00", b"\n")}
    assert machine["digest"] in candidates
    note = machine["disclosed"]["payload.note"]
    salt = bytes.fromhex(note["salt"])
    said = json.dumps(["payload.note", note["value"]], separators=(",", ":")).encode()
    framed = b"permit-issuer/commitment/v1\x00" + len(salt).to_bytes(2, "big") + said
    assert hmac.new(salt, framed, "sha256").hexdigest() == machine["binding"]["payload"]["note"]["commitment"]


@pytest.mark.spec("APP-02")
def test_the_human_part_is_what_stands_above_the_separator() -> None:
    statement = statement_of()
    assert human_part(statement) == statement.decode().partition(SEPARATOR)[0]


HOUR_MS = 3_600_000
SINCE = "registry.order.since: "


def told(**since: Any) -> list[str]:
    """Return the lines about since when a row is as it is."""
    lines = lines_of(statement_of(registries={"order": fact_of(**since)}))
    start = next(index for index, line in enumerate(lines) if line.startswith(SINCE))
    end = next(index for index, line in enumerate(lines) if line.startswith("registry.order.since_revision"))
    return [lines[start].removeprefix(SINCE), *lines[start + 1 : end + 1]]


@pytest.mark.spec("APP-02")
def test_a_row_of_the_registry_is_shown_whole_with_the_instant_since_when_it_is_so() -> None:
    statement = statement_of(registries={"order": fact_of()})
    lines = lines_of(statement)
    assert 'registry.order.iban: "DE01"' in lines
    assert told() == [
        "2029-12-01T23:00:00.000Z (2029-12-02 00:00:00 +01:00) Europe/Berlin",
        f'registry.order.since_revision: "{"5" * 64}"',
    ]
    since = recompute(statement)["registries"]["order"]["since"]
    assert since == {
        "at_ms": ASKED_MS - 30 * DAY_MS,
        "offset": 60,
        "or_before": False,
        "revision": "5" * 64,
    }


@pytest.mark.spec("APP-02")
@pytest.mark.parametrize(
    ("age_ms", "changed", "unknown"),
    [
        (-5, "changed less than an hour ago", "known here for less than an hour"),
        (0, "changed less than an hour ago", "known here for less than an hour"),
        (HOUR_MS - 1, "changed less than an hour ago", "known here for less than an hour"),
        (HOUR_MS, "changed 1 hour ago", "known here for 1 hour"),
        (3 * HOUR_MS, "changed 3 hours ago", "known here for 3 hours"),
        (49 * HOUR_MS - 1, "changed 48 hours ago", "known here for 48 hours"),
        (49 * HOUR_MS, "changed 2 days ago", "known here for 2 days"),
        (7 * DAY_MS, "changed 7 days ago", "known here for 7 days"),
        (7 * DAY_MS + 1, None, None),
    ],
)
def test_a_row_that_changed_lately_is_marked_and_so_is_one_of_which_little_is_known(
    age_ms: int, changed: str | None, unknown: str | None
) -> None:
    at = ASKED_MS - age_ms
    for or_before, mark in ((False, changed), (True, unknown)):
        first, *marks, _revision = told(at_ms=at, or_before=or_before)
        assert first.endswith(", or before") is or_before
        assert marks == ([] if mark is None else [f"  ! {mark}"])


@pytest.mark.spec("APP-02")
@pytest.mark.parametrize(
    "changed",
    [
        {"at_ms": ASKED_MS - 30 * DAY_MS + 1},
        {"revision": "6" + "5" * 63},
        {"revision": "5" * 63 + "6"},
        {"or_before": True},
        {"iban": "DE02"},
    ],
)
def test_the_text_differs_where_only_since_when_does(changed: dict[str, Any]) -> None:
    one, other = (human_part(statement_of(registries={"order": fact_of(**more)})) for more in ({}, changed))
    assert one != other


@pytest.mark.spec("APP-02")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("at_ms", "1"), ("at_ms", -1), ("at_ms", True), ("offset", 24 * 60), ("offset", "60")),
        *(("or_before", 0), ("or_before", 1), ("or_before", None), ("or_before", "no"), ("more", 1)),
    ],
)
def test_since_of_another_shape_is_no_statement(name: str, value: object) -> None:
    statement = statement_of(registries={"order": fact_of()})
    human, _, machine = statement.decode().partition(SEPARATOR)
    said = json.loads(machine)
    said["registries"]["order"]["since"][name] = value
    with pytest.raises(StatementUntrue) as caught:
        recompute((human + SEPARATOR + machine_line(said)).encode())
    assert caught.value.word == "machine_part"


@pytest.mark.spec("APP-02")
def test_no_terminal_of_80_columns_breaks_a_line_that_somebody_else_wrote() -> None:
    faked = "x" * 55 + "cost_at_most: 0.01 USD (1 USD.cent)"
    for value in (faked, faked * 3, "y" * 62, "y" * 63, "y" * 64, "y" * 73, "\u0435" * 40):
        lines = lines_of(statement_of(pinned_of(OPERATION, values={"order": value})))
        assert max(len(line) for line in lines if value[:5] in line or "0.01" in line or "435" in line) <= 79
