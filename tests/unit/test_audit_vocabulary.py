"""The closed vocabulary: what a span may say, and that nothing else gets in."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from audit.vocabulary import ATTRIBUTES, AUTOMATIC, SPANS, check, fits, page
from ledger.errors import SpanNotRecorded
from ledger.model import Tier
from ledger.refusals import RefusalCode
from ledger.states import EffectState
from ledger.transitions import AttributeValue, TransitionName
from tests.support.spans import EFFECT, SAMPLES, recorder, sample
from tests.support.spans import SpansInMemory as Spans

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "spans.md"
CANARY = "canary-4711"


def refused(transition: object) -> str:
    with pytest.raises(SpanNotRecorded) as caught:
        check(cast("Any", transition))
    assert caught.value.reason == "vocabulary"
    return caught.value.message


@pytest.mark.spec("AUD-07", "AUD-01")
@pytest.mark.parametrize("name", list(TransitionName))
def test_each_transition_has_a_shape_and_passes_with_the_least_and_the_most_it_may_carry(
    name: TransitionName,
) -> None:
    check(sample(name))
    check(sample(name, everything=True))


@pytest.mark.spec("AUD-07")
@pytest.mark.parametrize("name", list(TransitionName))
def test_each_required_attribute_is_missed_by_name(name: TransitionName) -> None:
    whole = sample(name)
    for missing in SPANS[name].required:
        rest = {key: value for key, value in whole.attributes.items() if key != missing}
        assert missing in refused(replace(whole, attributes=rest))


@pytest.mark.spec("AUD-07", "SEC-01")
@pytest.mark.parametrize("name", [f"permit.{CANARY}", CANARY, "permit.payload.digest", ""])
def test_an_attribute_outside_the_table_is_refused_and_its_name_not_repeated(name: str) -> None:
    whole = sample(TransitionName.EFFECT_ADMITTED)
    said = refused(replace(whole, attributes={**whole.attributes, name: CANARY}))
    assert CANARY not in said


@pytest.mark.spec("AUD-07")
@pytest.mark.parametrize("name", sorted(AUTOMATIC))
def test_a_caller_cannot_set_what_the_recorder_sets(name: str) -> None:
    whole = sample(TransitionName.REFUSED)
    assert name in refused(replace(whole, attributes={**whole.attributes, name: "forged"}))


@pytest.mark.spec("AUD-07")
def test_an_attribute_of_another_kind_of_span_has_no_place() -> None:
    assert "permit.charged" in refused(sample(TransitionName.EFFECT_ADMITTED, charged=("EUR.cent=1",)))


@pytest.mark.spec("AUD-07", "SEC-01")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("permit.mode", "lenient"),
        ("permit.mode", ("strict",)),
        ("permit.tier", Tier.ISSUE),  # an enum is no plain text and has no canonical form
        ("permit.refusal", RefusalCode.DENIED),
        ("permit.refusal", "maybe"),
        ("permit.actor", "two words"),
        ("permit.actor", "a" * 129),
        ("permit.actor", "näme"),
        ("permit.actor", "ap-bot\n"),
        ("permit.task.id", "tsk_" + "G" * 32),
        ("permit.operation.version", True),
        ("permit.operation.version", "3"),
        ("permit.operation.version", 1.0),
        ("permit.operation.version", -1),
        ("permit.operation.version", 2**53),
        ("permit.late", 1),
        ("permit.late", "true"),
        ("permit.binding.digest", "AB" * 32),
        ("permit.binding.digest", "ab" * 31),
        ("permit.cost", "EUR.cent=1"),
        ("permit.cost", ["EUR.cent=1"]),
        ("permit.cost", ("EUR.cent=1.5",)),
        ("permit.cost", ("EUR.cent=-1",)),
        ("permit.cost", ("EUR cent=1",)),
        ("permit.cost", ("EUR.cent=inherit",)),
        ("permit.cost", (1,)),
        ("permit.cost", ("EUR.cent=1",) * 65),
        ("permit.policy.ids", ("p",) * 257),
        ("permit.reservation", ("EUR.cent=1",)),
        ("permit.resource.id", "é" * 257),  # 514 bytes in 257 characters
        ("permit.resource.id", "a\x1b[2Jb"),
        ("permit.resource.id", "report\u202egpj.exe"),
        ("permit.resource.id", "a\u2028b"),
        ("permit.resource.id", "a\x00b"),
        ("permit.resource.id", "a\ud800b"),
        ("permit.resource.id", ""),
        ("permit.reference", "x" * 257),
        ("permit.reference", "päy"),
        ("permit.reference", "two\nlines"),
        ("permit.reason", "Free text."),
        ("permit.instance", "i" * 65),
        ("permit.host.trace_id", "0" * 31),
        ("permit.policy.errors", ("no-reason",)),
        ("permit.scope", ("class:payment",)),
        ("permit.scope", ("payment=3",)),
        ("permit.scope", ("class:payment=20000000",)),
        ("permit.scope", ("resource:In\u202evoice=1",)),
        ("permit.lowered", ("EUR.cent=inherit",)),
        ("permit.permit.id", "eff_" + "4" * 32),
        ("permit.parent.id", "org"),
        ("permit.actors", ("two words",)),
        ("permit.sinks.left", ("local=1:120",)),
    ],
)
def test_a_value_of_another_type_or_form_is_refused(name: str, value: object) -> None:
    assert fits(name, SAMPLES[name])
    assert not fits(name, cast("AttributeValue", value))


@pytest.mark.spec("AUD-07")
@pytest.mark.parametrize("value", ["é" * 256, "a" * 512, "crm:leads/9000000", "/srv/Übersicht (1).txt"])
def test_a_resource_id_of_512_bytes_in_any_script_is_kept(value: str) -> None:
    assert fits("permit.resource.id", value)


@pytest.mark.spec("SEC-01")
def test_a_refusal_names_the_attribute_and_never_its_value() -> None:
    said = refused(sample(TransitionName.EFFECT_ADMITTED, actor=f"{CANARY} with spaces"))
    assert "permit.actor" in said
    assert CANARY not in said


@pytest.mark.spec("LED-05", "AUD-01")
@pytest.mark.parametrize(
    ("name", "changed"),
    [
        (TransitionName.EFFECT_SUCCEEDED, {"state_to": EffectState.FAILED}),
        (TransitionName.EFFECT_SUCCEEDED, {"state_from": EffectState.PERMITTED}),
        (TransitionName.EFFECT_SUCCEEDED, {"state_from": None}),
        (TransitionName.EFFECT_SUCCEEDED, {"state_to": None}),
        (TransitionName.EFFECT_ADMITTED, {"effect_id": None}),
        (TransitionName.EFFECT_ADMITTED, {"effect_id": "eff_" + "3" * 32}),
        (TransitionName.EFFECT_ADMITTED, {"effect_id": "17", "story": "17"}),
        (TransitionName.EFFECT_ADMITTED, {"story": "another"}),
        (TransitionName.EFFECT_PREPARED, {"state_from": EffectState.UNKNOWN}),
        (TransitionName.EFFECT_UNKNOWN, {"state_from": EffectState.PREPARED}),
        (TransitionName.EFFECT_UNKNOWN, {"state_from": EffectState.PERMITTED}),
        (TransitionName.EFFECT_UNKNOWN, {"state_from": None}),
        (TransitionName.EFFECT_REPLAYED, {"state_from": EffectState.SUCCEEDED}),
        (TransitionName.EFFECT_REPLAYED, {"state_from": EffectState.UNKNOWN}),
        (TransitionName.EFFECT_REPORTED, {"state_from": EffectState.UNKNOWN}),
        (TransitionName.REFUSED, {"state_to": EffectState.DENIED}),
        (TransitionName.REFUSED, {"story": "free text of somebody"}),
        (TransitionName.REFUSED, {"story": ""}),
        (TransitionName.REFUSED, {"name": "effect.invented"}),
    ],
)
def test_a_span_cannot_tell_of_a_move_that_there_is_not(
    name: TransitionName, changed: dict[str, Any]
) -> None:
    refused(replace(sample(name), **changed))


@pytest.mark.spec("AUD-07", "AUD-05")
def test_a_refusal_about_an_effect_moves_no_state_and_still_joins_its_story() -> None:
    check(replace(sample(TransitionName.REFUSED), effect_id=EFFECT, story=EFFECT))


@pytest.mark.spec("AUD-07")
def test_the_largest_span_that_the_vocabulary_allows_for_an_outcome_can_be_recorded() -> None:
    """A refused outcome would be a lost one, so no bound of the vocabulary may exceed that of a record."""
    unit = ".".join(letter * 32 for letter in "uvwx")
    amounts = (f"{unit}=9007199254740991",) * 64
    largest = sample(
        TransitionName.EFFECT_SUCCEEDED,
        everything=True,
        cost=amounts,
        charged=amounts,
        overrun=amounts,
        resource__id="\U0001f4a9" * 128,
        reference="x" * 256,
    )
    spans = Spans(1)
    place = replace(spans.head(), sequence=2)
    made = recorder().record(
        largest, position=place, parent_span_id=None, at_ms=spans.story(place.ledger_id)[0].at_ms
    )
    assert len(made.body) > 16 * 1024


@pytest.mark.spec("AUD-07")
def test_every_attribute_has_a_sample_and_is_used_by_some_span() -> None:
    used = frozenset[str]().union(*(shape.required | shape.optional for shape in SPANS.values()))
    assert used == ATTRIBUTES.keys() == SAMPLES.keys()
    assert not ATTRIBUTES.keys() & AUTOMATIC.keys()


@pytest.mark.spec("AUD-07")
def test_the_reference_page_is_what_the_code_prints() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), (
        "run: python -m audit.vocabulary > docs/reference/spans.md"
    )
