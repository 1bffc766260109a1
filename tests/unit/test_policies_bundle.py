"""A bundle loads whole or not at all, and says where each mistake is."""

import pytest

from policies import Bundle, BundleRefused, Finding, PolicyShape, engine_version, load_bundle
from policies.starter import starter_files
from tests.support.policy_room import CATALOGUE, EXPERIENCE

PERMIT = '@id("pay") permit (principal is Actor, action == Action::"issue", resource is Invoice);'
ASK = '(principal is Actor, action == Action::"requestApproval", resource is Invoice);'
FORBID = 'forbid (principal, action in Action::"permit", resource)'


def load(*policies: str) -> Bundle:
    return load_bundle({"a.cedar": "\n".join(policies)}, CATALOGUE)


def findings(*policies: str) -> tuple[Finding, ...]:
    with pytest.raises(BundleRefused) as refused:
        load(*policies)
    return refused.value.findings


@pytest.mark.spec("POL-04")
@pytest.mark.parametrize(
    ("policy", "code", "words"),
    [
        ("permit (principal, action, resource)", "syntax", ""),
        ("permit (principal, action, resource) when { 1 = 1 };", "syntax", "="),
        ("sudo (principal, action, resource);", "syntax", ""),
        (";", "syntax", ""),
        (PERMIT.replace("is Actor", "== ?principal"), "syntax", "template"),
        (PERMIT.replace("is Invoice", "in ?resource"), "syntax", "template"),
        (PERMIT.replace('@id("pay") ', ""), "id_missing", "@id"),
        (PERMIT.replace('"pay"', '""'), "id_malformed", "64"),
        (PERMIT.replace('("pay")', ""), "id_malformed", "64"),
        (PERMIT.replace('"pay"', '"Pay It"'), "id_malformed", "a-z"),
        (PERMIT.replace('"pay"', '"p`y"'), "id_malformed", "a-z"),
        (PERMIT.replace('"pay"', '"' + "a" * 65 + '"'), "id_malformed", "64"),
        (PERMIT.replace('"pay"', '"pay\\n"'), "id_malformed", "a-z"),
        ('@aprovers("finance") ' + PERMIT, "annotation_unknown", "did you mean @approvers?"),
        ('@advice("ask") ' + PERMIT, "annotation_unknown", "means nothing here"),
        ('@team("a b") ' + PERMIT, "annotation_value", "one name"),
        ('@team("") ' + PERMIT, "annotation_value", "one name"),
        ('@obligation("log,,x") ' + PERMIT, "annotation_value", "one name"),
        *(
            (f'@id("a") @approvers("{value}") permit ' + ASK, "annotation_value", "1 to 8")
            for value in (
                *(
                    "",
                    "finance:0",
                    "finance:9",
                    "finance:",
                    "finance:02",
                    "finance:2:2",
                    "finance:+2",
                    "a,,b",
                ),
                *("finance : 2", ":2", ",".join(f"g{number}" for number in range(9))),
            )
        ),
        ('@say("") ' + PERMIT, "annotation_value", "printable"),
        ('@say("a\\nb") ' + PERMIT, "annotation_value", "printable"),
        ('@say("\\u{202e}evil") ' + PERMIT, "annotation_value", "printable"),
        (f'@say("{"x" * 301}") ' + PERMIT, "annotation_value", "300"),
        (PERMIT.replace('== Action::"issue"', 'in Action::"permit"'), "tier", "one tier"),
        (PERMIT.replace('== Action::"issue"', 'in [Action::"issue"]'), "tier", "one tier"),
        (PERMIT.replace('action == Action::"issue"', "action"), "tier", "one tier"),
        (PERMIT.replace('"issue"', '"permit"'), "tier", "one tier"),
        (PERMIT.replace("principal is Actor", "principal"), "principal_type", "who"),
        (PERMIT.replace("principal is Actor", 'principal in Group::"x"'), "principal_type", "who"),
        (PERMIT.replace("resource is Invoice", "resource"), "resource_type", "what"),
        (PERMIT.replace("resource is Invoice", 'resource in Class::"payment"'), "resource_type", "what"),
        ('@id("a") permit ' + ASK, "approvers_missing", "@approvers"),
        ('@approvers("finance") ' + PERMIT, "approvers_misplaced", "nothing"),
        ('@id("f") @approvers("finance") ' + FORBID + ";", "approvers_misplaced", "nothing"),
        (
            '@id("f") ' + FORBID + ' unless { context.cost["EUR.cent"] + 1 < 5 };',
            "forbid_arithmetic",
            "overflow",
        ),
        (
            '@id("f") ' + FORBID + ' unless { 5 > 3 * context.cost["EUR.cent"] };',
            "forbid_arithmetic",
            "overflow",
        ),
        (
            '@id("f") ' + FORBID + ' unless { -context.cost["EUR.cent"] < 5 };',
            "forbid_arithmetic",
            "overflow",
        ),
        (
            '@id("f") '
            + FORBID
            + ' unless { context.clock.now.offset(duration("1h")) < context.task.expires };',
            "forbid_arithmetic",
            "overflow",
        ),
        (PERMIT.replace(";", " when { resource.vendr == 1 };"), "types", "vendr"),
        (PERMIT.replace(";", " when { context.nope };"), "types", "nope"),
        (PERMIT.replace(";", ' when { resource.amount_cents > "x" };'), "types", ""),
        (PERMIT.replace(";", " when { decimal(resource.vendor) == decimal(resource.vendor) };"), "types", ""),
        (PERMIT.replace("Invoice", "Truck"), "types", "Truck"),
        (PERMIT.replace("Invoice", 'Invoice in Class::"paymnt"'), "types", "paymnt"),
        (PERMIT.replace('"issue"', '"isue"'), "types", "isue"),
        (
            '@id("f") forbid (principal is Actor, action == Action::"approve", resource);',
            "types",
            "applicable",
        ),
        ('@id("f") ' + FORBID + " unless { true };", "impossible", "never"),
        (
            '@id("f") forbid (principal, action, resource is Invoice) when { resource is Package };',
            "impossible",
            "",
        ),
        (
            '@id("f") forbid (principal is Actor, action, resource) when { principal is Person };',
            "impossible",
            "",
        ),
        ('@id("f") ' + FORBID + ' when { false && context.cost["EUR.cent"] > 1 };', "impossible", ""),
        (PERMIT.replace(";", " unless { resource is Invoice };"), "impossible", ""),
        (
            '@id("f") ' + FORBID + " unless { " + " && ".join(["principal.suspended"] * 150) + " };",
            "syntax",
            "",
        ),
    ],
)
def test_a_policy_that_is_not_ours_refuses_the_bundle(policy: str, code: str, words: str) -> None:
    other = PERMIT.replace('"pay"', '"other"')
    found = [finding for finding in findings(other, policy) if finding.severity == "error"]
    assert {finding.code for finding in found} >= {code}
    assert {(finding.file, finding.line) for finding in found} == {("a.cedar", 2)}
    assert any(words in finding.message for finding in found if finding.code == code)


@pytest.mark.spec("POL-04")
def test_all_mistakes_are_reported_at_their_places_at_once() -> None:
    text = "\n".join(
        [
            "// the first line is a comment",
            PERMIT,
            "permit (principal, action, resource) when { 1 = 1 };",
            '  @id("pay") @tema("x") ' + FORBID + ";",
            '@id("g")',
            "forbid (principal, action, resource) unless { context.nope };",
        ]
    )
    with pytest.raises(BundleRefused) as refused:
        load_bundle({"b.cedar": text, "a.cedar": PERMIT.replace('"pay"', '"first"')}, CATALOGUE)
    assert [(one.file, one.line, one.column, one.code) for one in refused.value.findings] == [
        ("b.cedar", 3, 1, "syntax"),
        ("b.cedar", 4, 3, "id_duplicate"),
        ("b.cedar", 4, 14, "annotation_unknown"),
        *[("b.cedar", 5, 1, "types")] * sum(one.code == "types" for one in refused.value.findings),
    ]
    assert "b.cedar:2" in refused.value.findings[1].message
    assert str(refused.value).count("\n") == len(refused.value.findings) - 1


@pytest.mark.spec("POL-04")
def test_an_id_may_not_stand_in_two_files() -> None:
    with pytest.raises(BundleRefused, match="id_duplicate"):
        load_bundle({"a.cedar": PERMIT, "b.cedar": PERMIT}, CATALOGUE)


@pytest.mark.parametrize("name", ["", "../a.cedar", "/a.cedar", "a\n.cedar", "a b", "\u0430.cedar"])
def test_a_file_name_that_could_mislead_is_refused(name: str) -> None:
    with pytest.raises(BundleRefused, match="file_name"):
        load_bundle({name: PERMIT}, CATALOGUE)


@pytest.mark.spec("APP-03")
@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        (("finance",), {"finance": 1}),
        (("finance:1",), {"finance": 1}),
        (("finance:2",), {"finance": 2}),
        (("stewards, finance:8",), {"finance": 8, "stewards": 1}),
        (("finance:2,finance",), {"finance": 2}),
        (("finance", "finance:3", "finance:2"), {"finance": 3}),
        (("finance:2", "stewards"), {"finance": 2, "stewards": 1}),
        ((), {}),
    ],
)
def test_every_group_that_a_policy_names_has_to_say_yes_in_the_largest_number(
    said: tuple[str, ...], wanted: dict[str, int]
) -> None:
    ids = tuple(f"ask-{number}" for number in range(len(said)))
    policies = (
        f'@id("{policy_id}") @approvers("{value}") permit ' + ASK
        for policy_id, value in zip(ids, said, strict=True)
    )
    assert load(PERMIT, *policies).quorum(ids) == wanted


@pytest.mark.spec("POL-06")
def test_a_bundle_knows_its_policies_by_id() -> None:
    bundle = load(
        '@id("b-ask") @approvers("finance, stewards") @obligation("log") @say("Wait.") permit ' + ASK,
        '@id("c-ask") @approvers("finance") @obligation("count,log") @say("Wait.") permit ' + ASK,
        PERMIT.replace('"pay"', '"a.pay-1_x"'),
    )
    assert list(bundle.policies) == ["a.pay-1_x", "b-ask", "c-ask"]
    both = ("b-ask", "c-ask")
    assert bundle.quorum(both) == {"finance": 1, "stewards": 1}
    assert bundle.named(both, "obligation") == ("count", "log")
    assert bundle.said(both) == "Wait."
    assert bundle.said(("a.pay-1_x",)) is None
    shape: PolicyShape = bundle.policies["a.pay-1_x"]
    assert (shape.effect, shape.actions, shape.names_one_action) == ("permit", ("issue",), True)
    assert (shape.principal_scope.type_name, shape.resource_scope.type_name) == ("Actor", "Invoice")
    assert bundle.engine == engine_version() == "cedarpy 4.12.2"


@pytest.mark.spec("POL-06")
def test_a_digest_covers_files_names_and_schema() -> None:
    digest = load(PERMIT).digest
    assert load(PERMIT).digest == digest
    assert load(PERMIT + " ").digest != digest
    assert load_bundle({"b.cedar": PERMIT}, CATALOGUE).digest != digest
    smaller = CATALOGUE.__class__(
        classes=CATALOGUE.classes[:1],
        operations=CATALOGUE.operations,
        units=CATALOGUE.units,
        resource_types=CATALOGUE.resource_types,
    )
    assert load_bundle({"a.cedar": PERMIT}, smaller).digest != digest


def test_a_forbid_by_when_is_a_warning_and_loads() -> None:
    bundle = load(PERMIT, '@id("f") ' + FORBID + " when { principal.suspended };")
    assert [(one.code, one.severity, one.line) for one in bundle.warnings] == [("forbid_when", "warning", 2)]


def test_what_a_policy_reads_and_whether_it_counts_is_known() -> None:
    bundle = load(PERMIT.replace(";", ' when { resource has vendor && context.cost["EUR.cent"] + 1 > -5 };'))
    shape = bundle.policies["pay"]
    assert shape.has_arithmetic
    assert shape.reads == {"vendor", "cost", "EUR.cent"}
    plain = load(PERMIT.replace(";", " when { resource.amount_cents > -5 };")).policies["pay"]
    assert not plain.has_arithmetic


@pytest.mark.spec("POL-04")
def test_a_negative_literal_is_not_arithmetic_in_a_forbid() -> None:
    bundle = load(PERMIT, '@id("f") ' + FORBID + ' unless { context.remaining["EUR.cent"] > -5 };')
    assert not bundle.policies["f"].has_arithmetic


def test_the_starter_of_the_example_loads_strictly_and_without_warnings() -> None:
    if not EXPERIENCE.is_dir():
        pytest.skip("the published example is not beside this repository")
    text = (EXPERIENCE / "policies" / "starter.cedar").read_text()
    bundle = load_bundle({"starter.cedar": text}, CATALOGUE)
    assert len(bundle.policies) == 9
    assert bundle.warnings == ()


def test_the_shipped_starter_is_found_as_data() -> None:
    assert list(starter_files()) == ["files.cedar", "roles.cedar"]
