"""Text is measured before the engine sees it: some of these lines end the process that parses them."""

import pytest

from policies import BundleRefused, load_bundle
from policies.text import (
    BUNDLE_BYTES_MAX,
    NESTING_MAX,
    OPERATORS_MAX,
    POLICIES_MAX,
    TOKENS_MAX,
    guard,
    split,
)
from tests.support.policy_room import CATALOGUE

START = '@id("x") forbid (principal, action, resource) unless { '
# The braces of the clause are one level, the brackets of the scope are counted and closed before.
ROOM = NESTING_MAX - 1


def nested(levels: int) -> str:
    return START + "(" * levels + "true" + ")" * levels + " };"


def codes(text: str) -> list[str]:
    return [finding.code for finding in guard("a.cedar", text)]


def load_codes(text: str) -> set[str]:
    with pytest.raises(BundleRefused) as refused:
        load_bundle({"a.cedar": text}, CATALOGUE)
    return {finding.code for finding in refused.value.findings}


@pytest.mark.spec("POL-04")
@pytest.mark.parametrize(
    ("text", "code"),
    [
        (nested(ROOM + 1), "too_deep"),
        (nested(20_000), "too_deep"),
        (START + "[" * 5_000, "too_deep"),
        # A line end of its own kind ends a comment: what follows is program text to Cedar.
        (START + "// hidden \r" + "(" * 5_000, "too_deep"),
        (START + '"\\"' + '" == ' + "(" * 5_000, "too_deep"),
        (START + " && ".join(["true"] * 5_000) + " };", "too_long"),
        (START + "principal" + ".a" * 5_000 + " };", "too_long"),
        (START + "context" + '["a"]' * 5_000 + " };", "too_long"),
        (START + "if true then true else " * 5_000 + "true };", "too_long"),
        (START + "!" * 5_000 + "true };", "too_long"),
        (START + "[" + "1," * TOKENS_MAX + "1].contains(1) };", "too_long"),
        ("@a " * TOKENS_MAX + START + "true };", "too_long"),
        (START + "A::" * TOKENS_MAX + '"x" == principal };', "too_long"),
        (START + 'unknown("x") };', "unknown_call"),
        (START + 'unknown\t\n// and a comment (\n("x") };', "unknown_call"),
        (START + '"never ends };', "string"),
        (START + "true )))", "bracket"),
        ("permit(principal, action, resource\u2028);", "character"),
        ('@id("p\u0430y") permit(principal, action, resource);', "character"),
        ("permit(principal, action, resource);\x00", "character"),
        ("// \u202e reversed\npermit(principal, action, resource);", "character"),
        ("permit(principal, action, resource);\x0b", "character"),
        (" " * (BUNDLE_BYTES_MAX + 1), "too_large"),
    ],
)
def test_dangerous_text_never_reaches_the_engine(text: str, code: str) -> None:
    assert codes(text) == [code]
    assert load_codes(text) == {code}


@pytest.mark.spec("POL-04")
@pytest.mark.parametrize(
    "text",
    [
        nested(ROOM),
        START + '"((((((((((((((((((((((((((((((((((" == "x" };',
        START + "true // ((((((((((((((((((((((((((((((\n };",
        START + '"unknown(" == "x" };',
        START + "context.unknown == 1 };",
        (START + "[" + "1," * 1_900 + "1].contains(1) };\n") * 3,
        (START + "true" + " && true" * 60 + " };\n") * 20,
        START + "true\t};\r\n",
    ],
)
def test_ordinary_text_passes_the_guard(text: str) -> None:
    assert codes(text) == []


def test_as_many_operators_as_fit_do_fit() -> None:
    # The brackets of @id, scope and clause count too, and n terms have n - 1 operators between them.
    fits = START + " && ".join(["true"] * (OPERATORS_MAX - 2)) + " };"
    over = START + " && ".join(["true"] * (OPERATORS_MAX - 1)) + " };"
    assert (codes(fits), codes(over)) == ([], ["too_long"])


def test_a_finding_names_line_and_column() -> None:
    (finding,) = guard("a.cedar", "permit\r\n  (principal, \x07action);")
    assert (finding.file, finding.line, finding.column) == ("a.cedar", 2, 15)
    assert str(finding).startswith("a.cedar:2:15: error: character: character U+0007")


def test_policies_are_cut_at_semicolons_outside_strings_and_comments() -> None:
    text = '// one; two\n@id("a;b") permit(principal, action, resource); // x;\r  forbid'
    first, second = split("a.cedar", text)
    assert first.text == '@id("a;b") permit(principal, action, resource);'
    assert (first.line, first.column) == (2, 1)
    assert first.annotations_at == (("id", 2, 1),)
    # The carriage return ended the comment; lines are counted by line feeds.
    assert second.text == "forbid"


@pytest.mark.spec("POL-04")
def test_too_many_policies_or_files_are_refused_before_parsing() -> None:
    one = "permit (principal, action, resource);\n"
    assert load_codes(one * (POLICIES_MAX + 1)) == {"too_many"}
    with pytest.raises(BundleRefused, match="too_large"):
        load_bundle({f"{number}.cedar": one for number in range(65)}, CATALOGUE)
    half = " " * (BUNDLE_BYTES_MAX // 2 + 1)
    with pytest.raises(BundleRefused, match="too_large"):
        load_bundle({"a.cedar": half, "b.cedar": half}, CATALOGUE)


@pytest.mark.spec("POL-04")
@pytest.mark.parametrize("files", [{}, {"a.cedar": ""}, {"a.cedar": "// only words\n"}])
def test_an_empty_bundle_is_refused(files: dict[str, str]) -> None:
    with pytest.raises(BundleRefused) as refused:
        load_bundle(files, CATALOGUE)
    assert [finding.code for finding in refused.value.findings] == ["empty"]
