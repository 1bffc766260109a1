"""The generated Cedar schema: the owner's words, all of them marked, and none that could break out."""

import re

import pytest

from policies import UNBOUNDED, Attribute, Catalogue, CatalogueRefused, ResourceType, cedar_schema, engine
from policies.schema import quoted
from tests.support.policy_room import CATALOGUE, EXPERIENCE

ACTS = ("acknowledge", "activate", "observe", "openTask", "reconcile", "revoke")
"""What people and hosts may do beside asking (POL-01)."""

THING = ResourceType(name="Thing", attributes=())


def declarations(text: str) -> set[str]:
    """What a schema declares, whatever its layout, comments and trailing commas."""
    bare = re.sub(r"//[^\n]*", "", text)
    squeezed = re.sub(r",(?=[}])", "", re.sub(r"\s+", "", bare))
    return {one for one in squeezed.split(";") if one}


@pytest.mark.spec("POL-02")
def test_the_schema_of_the_example_profile_is_the_published_one_plus_counts_bounds_and_roles() -> None:
    if not EXPERIENCE.is_dir():
        pytest.skip("the published example is not beside this repository")
    published = declarations((EXPERIENCE / "schema.cedarschema").read_text())
    generated = declarations(cedar_schema(CATALOGUE))
    refined = {"typeEarlier", "typeAsk", "entityPersonin[Group]"}
    assert {one.split("=")[0] for one in published - generated} == refined
    added = {re.split("=|appliesTo|enum", one)[0] for one in generated - published}
    acts = {f'action"{act}"' for act in ACTS}
    assert added - acts == {
        *("typeEarlier", "typeAsk", "typeUsage", "typeLimits"),
        *("entityPersonin[Group,Role]", "entityRole", "entityIssuer", "entityEffectin[Class,Operation]"),
    }
    assert acts <= added


@pytest.mark.spec("POL-02")
def test_policies_see_pending_effects_usage_and_limits() -> None:
    text = declarations(cedar_schema(CATALOGUE))
    assert 'typeUsage={"task_permits":Long,"root_permits":Long,"day_permits":Long}' in text
    assert 'typeLimits={"task_permits":Long,"root_permits":Long,"day_permits":Long,"lifetime_s":Long}' in text
    (earlier,) = [one for one in text if one.startswith("typeEarlier")]
    assert '"same_payload_pending":Long' in earlier
    assert '"same_resource_pending":Long' in earlier
    (ask,) = [one for one in text if one.startswith("typeAsk")]
    assert '"usage":Usage,"limits":Limits' in ask
    assert UNBOUNDED == 9_007_199_254_740_991


@pytest.mark.spec("POL-02")
def test_every_attribute_says_whose_word_it_is() -> None:
    lines = cedar_schema(CATALOGUE).splitlines()
    assert '  "amount_cents": Long, // said by the actor' in lines
    assert '  "legal_hold": Bool, // known to the issuer' in lines
    marks = [line for line in lines if line.startswith('  "')]
    assert len(marks) == sum(len(kind.attributes) for kind in CATALOGUE.resource_types)
    assert all(line.endswith(("// said by the actor", "// known to the issuer")) for line in marks)


def test_every_legal_catalogue_makes_a_schema_that_the_engine_reads() -> None:
    catalogue = Catalogue(
        classes=("a", "Z9.x_-y"),
        operations=("b",),
        units=(),
        resource_types=(
            # Cedar's keywords are good attribute names as long as they are quoted.
            ResourceType(
                name="In",
                attributes=tuple(
                    Attribute(name=name, kind="string", said=True)
                    for name in ("if", "in", "type", "id", "principal", "true", "has")
                ),
            ),
            ResourceType(name="Record", attributes=()),
        ),
    )
    text = cedar_schema(catalogue)
    assert engine.on_big_stack(lambda: engine.parse_schema(text)).digest
    assert cedar_schema(catalogue) == text


@pytest.mark.parametrize(
    "build",
    [
        lambda: Attribute(name="Bad", kind="string", said=True),
        lambda: Attribute(name='x": Long, "y', kind="string", said=True),
        lambda: Attribute(name="x\n", kind="string", said=True),
        lambda: Attribute(name="x", kind="float", said=True),  # type: ignore[arg-type]
        lambda: ResourceType(name="thing", attributes=()),
        lambda: ResourceType(name="Person", attributes=()),
        lambda: ResourceType(name="Long", attributes=()),
        lambda: ResourceType(name="Ask", attributes=()),
        lambda: ResourceType(name="A::B", attributes=()),
        lambda: ResourceType(name="Thing", attributes=(Attribute(name="x", kind="int", said=True),) * 2),
        lambda: Catalogue(classes=(), operations=("o",), units=(), resource_types=(THING,)),
        lambda: Catalogue(classes=("c",), operations=(), units=(), resource_types=(THING,)),
        lambda: Catalogue(classes=("c",), operations=("o",), units=(), resource_types=()),
        lambda: Catalogue(classes=("c", "c"), operations=("o",), units=(), resource_types=(THING,)),
        lambda: Catalogue(classes=('c"]; entity X;',), operations=("o",), units=(), resource_types=(THING,)),
        lambda: Catalogue(classes=("c",), operations=("o",), units=("EUR cent",), resource_types=(THING,)),
        lambda: Catalogue(classes=("c",), operations=("o\u0430",), units=(), resource_types=(THING,)),
        lambda: Catalogue(classes=("c",), operations=("o",), units=(), resource_types=(THING, THING)),
    ],
)
def test_a_word_that_could_change_the_schema_is_refused(build: object) -> None:
    assert callable(build)
    with pytest.raises(CatalogueRefused):
        build()


def test_quoting_leaves_nothing_that_could_end_a_literal() -> None:
    assert quoted('a"b\\c\n\u202e') == '"a\\"b\\\\c\\u{a}\\u{202e}"'
