"""Whatever is written in a policy file, loading it ends in a bundle or in a refusal, and never otherwise."""

import json
from typing import get_args

import cedarpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies import BundleRefused, FactsRefused, Finding, cedar_schema, decide, engine, load_bundle
from policies.ask import tier_ask
from policies.decision import Code
from policies.schema import Attribute, Catalogue, ResourceType, quoted
from policies.text import guard, split
from tests.support.policy_room import CATALOGUE, DIRECTORY, bundle_without_checks, facts

KEYWORDS = ("permit", "forbid", "when", "unless", "if", "then", "else", "in", "is", "has", "like", "true")
NAMES = ("principal", "action", "resource", "context", "unknown", "decimal", "Action", "Invoice", "Actor")
SIGNS = ("@id", "@say", "::", "&&", "||", "==", "//", "1", "9223372036854775807", '"issue"', '"a"')
MARKS = list('()[]{},;.:<>=!+-*@"\\/?\r\n\t \u202e\x00')
WORDS = (*KEYWORDS, *NAMES, *SIGNS, *MARKS)
LEGAL = (
    '@id("a") permit (principal is Actor, action == Action::"issue", resource is Invoice) '
    'when { context.cost["EUR.cent"] <= 5 };'
)
token_soup = st.lists(st.sampled_from(WORDS), max_size=80).map(" ".join) | st.text(max_size=60)


@pytest.mark.spec("POL-04")
@given(token_soup, st.integers(0, len(LEGAL)), st.booleans())
@settings(max_examples=300)
def test_any_text_loads_or_is_refused(soup: str, at: int, replace: bool) -> None:
    text = LEGAL[:at] + soup + LEGAL[at + (len(soup) if replace else 0) :]
    findings: tuple[Finding, ...] = ()
    code: Code = "denied"
    try:
        code = decide(load_bundle({"a.cedar": text}, CATALOGUE), DIRECTORY, facts()).code
    except BundleRefused as refused:
        findings = refused.findings
    assert all(one.line >= 1 and one.column >= 1 for one in findings)
    assert code in get_args(Code)


@given(st.text(max_size=200))
def test_guarding_and_cutting_lose_no_program_text(text: str) -> None:
    if guard("a", text) == ():
        kept = "".join(one.text for one in split("a", text))
        assert kept.count(";") <= text.count(";")
        assert all(one.text.strip() for one in split("a", text))


@given(st.text(st.characters(codec="utf-8"), max_size=30))
def test_a_quoted_text_is_read_back_as_it_was(text: str) -> None:
    source = f"permit (principal, action, resource) when {{ {quoted(text)} == {quoted(text)} }};"
    (policy,) = cedarpy.policies_to_pst(f"@say({quoted(text)}) {source}").static_policies.values()
    assert policy.annotations["say"] == text


names = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
enums = st.lists(
    st.from_regex(r"[A-Za-z][A-Za-z0-9._-]{0,8}", fullmatch=True), min_size=1, max_size=4, unique=True
)


@given(enums, enums, enums, st.lists(names, max_size=5, unique=True), st.booleans())
@settings(max_examples=50)
def test_every_catalogue_that_exists_has_a_schema_that_parses(
    classes: list[str], operations: list[str], units: list[str], attributes: list[str], said: bool
) -> None:
    kinds = ("string", "int", "bool")
    thing = ResourceType(
        name="Thing",
        attributes=tuple(
            Attribute(name=name, kind=kinds[number % 3], said=said)  # type: ignore[arg-type]
            for number, name in enumerate(attributes)
        ),
    )
    catalogue = Catalogue(
        classes=tuple(classes), operations=tuple(operations), units=tuple(units), resource_types=(thing,)
    )
    text = cedar_schema(catalogue)
    assert engine.on_big_stack(lambda: engine.parse_schema(text)).digest


odd_text = st.text(st.characters(codec="utf-8"), max_size=20)
ALLOW = bundle_without_checks(
    '@id("allow") permit (principal is Actor, action == Action::"issue", resource is Invoice);'
)


@pytest.mark.spec("POL-04")
@given(
    odd_text,
    odd_text,
    st.integers(-(2**53) + 1, 2**53 - 1),
    st.lists(odd_text, max_size=5),
)
def test_any_text_an_actor_says_is_data(
    vendor: str, resource_id: str, cents: int, recipients: list[str]
) -> None:
    asked = facts(
        attributes={"vendor": vendor, "number": '"}; permit', "amount_cents": cents},
        resource_id=resource_id,
        recipients=tuple(recipients),
    )
    assert decide(ALLOW, DIRECTORY, asked).code == "permit"
    assert json.loads(tier_ask(DIRECTORY, asked).entities_json)[0]["attrs"]["vendor"] == vendor


@pytest.mark.spec("POL-04")
@given(st.one_of(st.none(), st.floats(), st.lists(st.integers()), st.binary(), st.integers(2**53)))
def test_nothing_but_exact_facts_can_be_made(value: object) -> None:
    with pytest.raises(FactsRefused):
        facts(attributes={"vendor": "v", "number": "n", "amount_cents": value})
