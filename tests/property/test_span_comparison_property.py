"""A span of a known form is held against a pattern, any other is read: both say the same of whatever is in the body."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from audit import comparison
from audit.comparison import FORMS_MAX, LEARNED_AFTER, Forms, span_holds
from ledger.model import LedgerId
from ledger.port import SpanColumns
from ledger.tree import leaf_hash

LEDGER = LedgerId("led_" + "0" * 32)
EFFECT = "eff_" + "1" * 32
TEXTS = st.text(max_size=8) | st.sampled_from(
    ["", "\u2028", "é", "\U0001f600", 'a"b', "a\\b", "\x1f", "\x7f"]
)
ANYTHING = TEXTS | st.integers() | st.floats() | st.booleans() | st.none() | st.lists(TEXTS, max_size=3)


def body_of(**changes: object) -> bytes:
    """Return the body of a span about an effect, with attributes and members of every type that a span has."""
    held: dict[str, object] = {
        "permit.actor": "agent-7",
        "permit.cost": ["EUR.cent=1"],
        "permit.effect.id": EFFECT,
        "permit.epoch": 1,
        "permit.expires_ms": 1_000,
        "permit.late": False,
        "permit.lane": 0,
        "permit.ledger.id": LEDGER,
        "permit.policy.ids": ["p1", "p2"],
        "permit.sequence": 7,
        "permit.state.to": "succeeded",
        "permit.story": EFFECT,
        "permit.subject": "u-ana",
        "permit.transition": "effect.succeeded",
    }
    document: dict[str, object] = {
        "attributes": {key: changes.get(key, value) for key, value in held.items()},
        "links": [],
        "name": "permit.effect.succeeded",
        "parent": None,
        "resource": {"service.name": "permit-issuer"},
        "span": "a" * 16,
        "start": "1000000000",
        "trace": "b" * 32,
        "v": 1,
    }
    members = {key: changes.get(key, value) for key, value in document.items()}
    # Not the one encoding: what is no value of ours is written all the same.
    return json.dumps(members, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def row_of(body: bytes) -> SpanColumns:
    return SpanColumns(
        epoch=1,
        lane=0,
        sequence=7,
        span_id="a" * 16,
        trace_id="b" * 32,
        name="effect.succeeded",
        story=EFFECT,
        at_ms=1_000,
        body=body,
        leaf=leaf_hash(body),
        effect_id=EFFECT,
        state_to="succeeded",
        actor="agent-7",
        subject="u-ana",
        policies=("p1", "p2"),
    )


def knowing(*bodies: bytes) -> Forms:
    forms = Forms()
    for body in bodies:
        for _ in range(LEARNED_AFTER):
            assert span_holds(LEDGER, row_of(body), forms)
    return forms


GOOD = body_of()
KNOWN = knowing(GOOD, body_of(parent="c" * 16), body_of(**{"permit.cost": [1, None, True, "x"]}))


def verdict(row: SpanColumns, forms: Forms) -> bool:
    """Say whether a span holds; whatever is raised is what a check takes for a no."""
    try:
        return span_holds(LEDGER, row, forms)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return False


@pytest.mark.spec("AUD-05", "LED-06")
@given(
    change=st.dictionaries(st.sampled_from(sorted(json.loads(GOOD)["attributes"])), ANYTHING, max_size=3),
    parent=ANYTHING,
)
@example({"permit.epoch": True}, None)
@example({"permit.lane": False}, None)
@example({"permit.effect.id": None}, None)
@example({"permit.expires_ms": -0.0}, None)
@example({"permit.expires_ms": 10**16}, None)
@example({"permit.expires_ms": -5}, None)
@example({"permit.cost": []}, None)
@example({"permit.subject": 'x","permit.subject":"y'}, None)
@example({"permit.policy.ids": []}, None)
@example({"permit.policy.ids": ["p2", "p1"]}, None)
@example({"permit.policy.ids": ["p1", "p2", "p2"]}, None)
@example({"permit.policy.ids": ["p1", 2]}, None)
@example({"permit.policy.ids": "p1"}, None)
@example({"permit.policy.ids": ['p1","p2']}, None)
@example({"permit.actor": None, "permit.subject": "agent-7"}, None)
def test_both_ways_say_the_same_of_other_values(change: dict[str, object], parent: object) -> None:
    row = row_of(body_of(**change, parent=parent))
    assert verdict(row, KNOWN) == verdict(row, Forms())


@pytest.mark.spec("AUD-05", "LED-06")
@given(st.integers(0, len(GOOD)), st.integers(0, 3), st.binary(max_size=3) | TEXTS.map(str.encode))
def test_both_ways_say_the_same_of_a_touched_body(start: int, cut: int, put: bytes) -> None:
    row = row_of(GOOD[:start] + put + GOOD[start + cut :])
    assert verdict(row, KNOWN) == verdict(row, Forms())


@pytest.mark.spec("AUD-05")
def test_a_body_of_a_known_form_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class NeverRead(json.JSONDecoder):
        def decode(self, s: str, _w: object = None) -> object:
            raise AssertionError(s)

    monkeypatch.setattr(comparison, "_DECODER", NeverRead())
    row = row_of(body_of(**{"permit.subject": "ü-other", "permit.expires_ms": 7, "permit.cost": []}))
    row = row._replace(subject="ü-other")
    assert span_holds(LEDGER, row, KNOWN)
    for forms in (Forms(), KNOWN):
        with pytest.raises(AssertionError):
            span_holds(LEDGER, row._replace(body=body_of(more=1) + b" "), forms)
    with pytest.raises(AssertionError):
        span_holds(LEDGER, row, Forms())


@pytest.mark.spec("AUD-05")
def test_forms_are_bounded_and_the_spans_of_further_ones_still_hold() -> None:
    forms = Forms()
    for number in range(FORMS_MAX + 5):
        body = body_of(links=[{"n" * (number + 1): 1}])
        for _ in range(2):
            assert span_holds(LEDGER, row_of(body), forms)
    assert len(forms._seen) == FORMS_MAX
    for _ in range(LEARNED_AFTER + 1):
        assert span_holds(LEDGER, row_of(body_of(links=[{"over": 1}])), forms)
    assert not forms._patterns


@pytest.mark.spec("AUD-05")
def test_a_body_that_nests_deeper_than_spans_do_is_always_read() -> None:
    body = body_of(links=[{"a": {"b": {"c": {"d": 1}}}}])
    forms = knowing(body)
    assert span_holds(LEDGER, row_of(body), forms)
    assert [
        pattern
        for patterns in forms._patterns.values()
        for pattern in patterns
        if pattern.match(body.decode())
    ] == []
