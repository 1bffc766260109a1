"""What was looked at before is not looked at again, and nothing else passes for it."""

from dataclasses import replace
from typing import Any, cast

import pytest

from audit.known import KNOWN_MAX, MEMBERS_MAX, KnownValues
from audit.recorder import OtelRecorder
from ledger.errors import SpanNotRecorded
from ledger.model import InstantMs
from ledger.refusals import RefusalCode
from ledger.transitions import AttributeValue, Position, RecordedSpan, Transition, TransitionName
from tests.support.spans import LEDGER, START_MS, recorder, sample

PLACE = Position(ledger_id=LEDGER, epoch=2, lane=0, sequence=7)
N = TransitionName


class Echo(str):
    """A text that calls itself equal to every other of its hash, and is of another type."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash(str(self))


class List(tuple[str, ...]):
    __slots__ = ()


def record(made: OtelRecorder, transition: Transition) -> RecordedSpan:
    return made.record(transition, position=PLACE, parent_span_id=None, at_ms=InstantMs(START_MS))


def why_not(made: OtelRecorder, transition: Transition) -> str:
    with pytest.raises(SpanNotRecorded) as caught:
        record(made, transition)
    return caught.value.reason


def with_value(transition: Transition, name: str, value: object) -> Transition:
    return replace(transition, attributes={**transition.attributes, name: cast("AttributeValue", value)})


@pytest.mark.spec("AUD-07", "SEC-01")
@pytest.mark.parametrize(
    ("kind", "name", "good", "equal"),
    [
        (N.EFFECT_ADMITTED, "permit.operation.version", 1, True),
        (N.EFFECT_ADMITTED, "permit.operation.version", 1, 1.0),
        (N.EFFECT_SUCCEEDED, "permit.late", True, 1),
        (N.EFFECT_SUCCEEDED, "permit.late", False, 0),
        (N.EFFECT_ADMITTED, "permit.actor", "ap-bot", Echo("ap-bot")),
        (N.EFFECT_ADMITTED, "permit.actor", "ap-bot", ("ap-bot",)),
        (N.EFFECT_DENIED, "permit.refusal", "denied", RefusalCode.DENIED),
        (N.EFFECT_ADMITTED, "permit.policy.ids", ("p",), (Echo("p"),)),
        (N.EFFECT_ADMITTED, "permit.policy.ids", ("p",), List(("p",))),
        (N.EFFECT_ADMITTED, "permit.policy.ids", ("p",), ["p"]),
        (N.EFFECT_ADMITTED, "permit.policy.ids", ("p",), "p"),
        (N.EFFECT_ADMITTED, "permit.policy.ids", ("a", "b"), "ab"),
    ],
)
def test_an_equal_value_of_another_type_is_not_taken_for_one_that_passed(
    kind: TransitionName, name: str, good: object, equal: object
) -> None:
    made = recorder()
    passed = with_value(sample(kind, everything=True), name, good)
    for _ in range(2):
        record(made, passed)
    assert why_not(made, with_value(passed, name, equal)) == "vocabulary"
    record(made, passed)


@pytest.mark.spec("AUD-07", "SEC-01")
def test_a_text_passes_for_the_attribute_that_it_was_seen_under_and_for_no_other() -> None:
    made = recorder()
    drawn = "qT7xB2mK9vR4wZ1nC6yL8pD3sF5hJ0gAeU2iO9aX4kM"
    outcome = sample(N.EFFECT_SUCCEEDED, everything=True)
    # The reference of a service is random by nature; the same text as the id of a resource is not.
    for _ in range(2):
        assert drawn.encode() in record(made, with_value(outcome, "permit.reference", drawn)).body
    admitted = with_value(sample(N.EFFECT_ADMITTED, everything=True), "permit.resource.id", drawn)
    assert why_not(made, admitted) == "secret_in_span"
    assert drawn.encode() not in record(made, with_value(outcome, "permit.resource.id", drawn)).body


@pytest.mark.spec("AUD-07", "SEC-01")
def test_what_an_outcome_may_hold_does_not_pass_for_another_span() -> None:
    made = recorder()
    mark = "[redacted:form]"
    for _ in range(2):
        record(made, with_value(sample(N.EFFECT_SUCCEEDED, everything=True), "permit.actor", mark))
    assert why_not(made, with_value(sample(N.EFFECT_ADMITTED), "permit.actor", mark)) == "vocabulary"


@pytest.mark.spec("AUD-07", "SEC-01")
@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (N.EFFECT_ADMITTED, "sk-CANARY-4711", "secret_in_span"),
        (N.EFFECT_ADMITTED, "two words", "vocabulary"),
    ],
)
def test_what_was_refused_is_refused_again(kind: TransitionName, value: str, reason: str) -> None:
    made = recorder()
    for _ in range(3):
        assert why_not(made, with_value(sample(kind), "permit.actor", value)) == reason


@pytest.mark.spec("SEC-01")
def test_what_was_redacted_is_redacted_again() -> None:
    made = recorder()
    for _ in range(3):
        span = record(made, sample(N.EFFECT_SUCCEEDED, reference="sk-CANARY-4711"))
        assert span.attributes["permit.reference"] == "[redacted:api_key]"


@pytest.mark.spec("AUD-07")
def test_names_and_what_must_be_there_are_checked_though_every_value_is_known() -> None:
    made = recorder()
    whole = sample(N.EFFECT_ADMITTED, everything=True)
    record(made, whole)
    without = {name: value for name, value in whole.attributes.items() if name != "permit.actor"}
    assert why_not(made, replace(whole, attributes=without)) == "vocabulary"
    late = sample(N.EFFECT_SUCCEEDED, everything=True)
    record(made, late)
    reference = late.attributes["permit.reference"]
    assert why_not(made, with_value(whole, "permit.reference", reference)) == "vocabulary"


@pytest.mark.spec("AUD-07")
def test_it_holds_no_more_than_its_bound_and_no_long_list() -> None:
    known = KnownValues()
    for number in range(2 * KNOWN_MAX):
        known.learn([("permit.actor", f"bot-{number}")])
        assert len(known) <= KNOWN_MAX
    known.learn(("permit.actor", f"bot-{number}") for number in range(2 * KNOWN_MAX))
    assert len(known) == KNOWN_MAX
    long = {"permit.policy.ids": ("p",) * (MEMBERS_MAX + 1)}
    known.learn(long.items())
    assert known.fresh(long) == long


@pytest.mark.spec("AUD-07")
def test_a_known_value_is_asked_for_no_more() -> None:
    known = KnownValues()
    attributes: dict[str, Any] = {"permit.actor": "bot", "permit.policy.ids": ("p", "q"), "permit.count": 1}
    assert known.fresh(attributes) == attributes
    known.learn(attributes.items())
    assert known.fresh(attributes) == {"permit.count": 1}
    assert known.fresh({"permit.subject": "bot"}) == {"permit.subject": "bot"}
