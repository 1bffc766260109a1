"""Laws of the one byte encoding and of payloads, held against rfc8785 and the standard library."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from issuer.operations.payload import Field, check_payload
from ledger.canonical import (
    BYTES_MAX,
    DEPTH_MAX,
    WHOLE_MAX,
    _check_domain,
    _plain_left,
    canonical_bytes,
    canonical_flat,
    comparable_bytes,
    parse_strict,
)
from ledger.errors import Malformed
from ledger.refusals import RefusalCode

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=12)
SCALARS = st.none() | st.booleans() | st.integers(-WHOLE_MAX, WHOLE_MAX) | TEXTS
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=25,
)
# What another program may send: fractions, large numbers, surrogates and NUL included.
ANY_TEXTS = st.text(max_size=8) | st.text("\x00\t\n\x7f\x85\ud800\udfff\U0001f600\ufb33aé", max_size=8)
ANY_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXTS
ANY_DOCUMENTS = st.recursive(
    ANY_SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXTS, inner, max_size=4),
    max_leaves=15,
)

NESTED: list[object] = []
for _ in range(DEPTH_MAX - 1):
    NESTED = [NESTED]
"""As deep as a document may be; one more is too deep."""

FIELDS = (
    Field(name="amount", kind="int", exposure="public", low=1, high=1000),
    Field(name="memo", kind="string", exposure="sensitive", length_max=20),
    Field(name="table", kind="one_of", exposure="public", choices=("leads", "contacts")),
    Field(name="vendor", kind="registry", exposure="public", registry="vendor"),
    Field(name="urgent", kind="bool", exposure="secret"),
)
REGISTRIES = {"vendor": {"hetzner": {"iban": "DE02"}, "ovh": {"iban": "FR76"}}}
NEAR_PAYLOADS = st.fixed_dictionaries(
    {
        "amount": st.integers(-2, 1002) | ANY_SCALARS,
        "memo": ANY_TEXTS | ANY_SCALARS,
        "table": st.sampled_from(["leads", "contacts"]) | ANY_SCALARS,
        "vendor": st.sampled_from(["hetzner", "ovh"]) | ANY_SCALARS,
        "urgent": st.booleans() | ANY_SCALARS,
    },
    optional={"extra": ANY_SCALARS},
)
GOOD_PAYLOADS = st.fixed_dictionaries(
    {
        "amount": st.integers(1, 1000),
        "memo": st.text("a\n\té\U0001f600\ufb33", max_size=5),
        "table": st.sampled_from(["leads", "contacts"]),
        "vendor": st.sampled_from(["hetzner", "ovh"]),
        "urgent": st.booleans(),
    },
)


def outcome(action: Callable[[], object]) -> object:
    """Return what the action returns, or the refusal itself."""
    try:
        return action()
    except Malformed as fault:
        return fault


@pytest.mark.spec("EFF-03")
@given(DOCUMENTS)
@example({"\ufb33": 1, "\U0001f600": 2})
@example({"x": [{"\uffff": 1, "\U00010000": 2, "\ue000": 3}]})
def test_bytes_are_those_of_rfc8785_and_parse_back_to_the_same_document(document: object) -> None:
    body = canonical_bytes(document)
    assert body == rfc8785.dumps(document)  # type: ignore[arg-type]  # its type of documents is recursive
    assert parse_strict(body) == document
    assert canonical_bytes(parse_strict(body)) == body


@pytest.mark.spec("EFF-03")
@given(
    st.dictionaries(st.text("a\ue000\ufb33\uffff\U00010000\U0001f600", max_size=4), st.integers(0, 9)),
    st.randoms(),
)
def test_the_order_of_keys_never_matters(document: dict[str, int], chance: object) -> None:
    keys = list(document)
    chance.shuffle(keys)  # type: ignore[attr-defined]  # hypothesis hands in a seeded random.Random
    shuffled = {key: document[key] for key in keys}
    assert canonical_bytes(shuffled) == canonical_bytes(document) == rfc8785.dumps(document)


@given(DOCUMENTS, DOCUMENTS)
def test_different_documents_have_different_bytes(left: object, right: object) -> None:
    # Python calls 1 and True equal, so the comparison is made on the text of each.
    assert (canonical_bytes(left) == canonical_bytes(right)) == (
        json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)
    )


@pytest.mark.spec("EFF-05")
@given(st.binary(max_size=60) | st.text('[]{}",:\\u0dnaN19.-e \n\ufeff', max_size=40).map(str.encode))
def test_any_bytes_are_refused_cleanly_or_survive(data: bytes) -> None:
    document = outcome(lambda: parse_strict(data))
    if isinstance(document, Malformed):
        assert document.field is None
        assert document.__context__ is None
        return
    assert json.loads(data) == document
    body = canonical_bytes(document)
    assert len(body) <= len(data)
    assert parse_strict(body) == document


@pytest.mark.spec("EFF-05")
@given(ANY_DOCUMENTS)
def test_an_object_and_its_text_get_the_same_answer(document: object) -> None:
    text = json.dumps(document, ensure_ascii=True).encode()
    direct = outcome(lambda: canonical_bytes(document))
    read = outcome(lambda: canonical_bytes(parse_strict(text)))
    # A high and a low surrogate that stand apart in Python's text are one character in JSON's; every other
    # document has the same answer either way, and never a different one.
    if isinstance(read, Malformed):
        assert isinstance(direct, Malformed)
    else:
        assert direct == read or b"\\ud" in text


@pytest.mark.spec("EFF-04", "EFF-05")
@given(ANY_DOCUMENTS | NEAR_PAYLOADS)
def test_any_document_is_refused_cleanly_or_is_a_payload_that_survives(document: object) -> None:
    payload = outcome(lambda: check_payload(FIELDS, document, REGISTRIES))
    if isinstance(payload, Malformed):
        assert payload.code
        assert payload.field in {None, "amount", "memo", "table", "vendor", "urgent"}
        return
    assert isinstance(payload, dict)
    assert list(payload) == [field.name for field in FIELDS]
    assert payload == document
    assert parse_strict(canonical_bytes(payload)) == payload
    assert len(canonical_bytes(payload)) < BYTES_MAX


@given(GOOD_PAYLOADS)
def test_a_payload_within_its_declaration_is_accepted_by_either_way(
    document: dict[str, str | int | bool],
) -> None:
    in_process = check_payload(FIELDS, document, REGISTRIES)
    as_text = check_payload(FIELDS, parse_strict(json.dumps(document).encode()), REGISTRIES)
    assert in_process == as_text == document


@pytest.mark.spec("EFF-03", "EFF-05")
@given(
    ANY_DOCUMENTS | st.sampled_from([NESTED, [NESTED], {"a": [True, 2**53 - 1, 2**53]}, {1: 2}, [(), b""]]),
    st.integers(0, 40),
)
def test_what_is_taken_for_plain_at_a_glance_is_refused_by_no_rule(document: object, bytes_max: int) -> None:
    """The glance may only save the look: whatever it lets pass is in the domain, within the bound, and ASCII."""
    for bound in (bytes_max, BYTES_MAX):
        if _plain_left([document], bound, DEPTH_MAX + 1) >= 0:
            assert _check_domain(document, bound) is False


@pytest.mark.spec("EFF-03", "LED-06")
@given(DOCUMENTS)
def test_bytes_for_comparing_are_the_one_encoding_but_for_keys_that_no_row_has(document: object) -> None:
    body = canonical_bytes(document)
    assert comparable_bytes(document) == body or any(ord(letter) > 0xFFFF for letter in body.decode())


@pytest.mark.spec("EFF-03")
@given(
    st.dictionaries(
        ANY_TEXTS | st.sampled_from(["permit.actor", "permit.cost"]),
        ANY_SCALARS | st.lists(ANY_SCALARS, max_size=3).map(tuple) | st.lists(ANY_TEXTS, max_size=3),
        max_size=5,
    ),
)
@example({"permit.actor": "a\x00b"})
@example({"permit.cost": ("a\x00",)})
@example({"a\x00": "b"})
@example({"permit.actor": "\\u0000", "permit.cost": ("\\\\u0000", '"')})
@example({"\U00010000": 1, "\ufb33": 2})
@example({"b": 1, "a": True, "c": (), "d": 2**53})
def test_a_flat_object_has_the_text_of_every_other_object_or_the_same_refusal(
    members: dict[str, Any],
) -> None:
    whole = outcome(lambda: canonical_bytes(members).decode())
    flat = outcome(lambda: canonical_flat(members))
    if isinstance(whole, Malformed):
        assert isinstance(flat, Malformed)
        assert flat.code == whole.code
    else:
        assert flat == whole


@pytest.mark.spec("EFF-03")
@pytest.mark.parametrize(
    "members", [{1: "a"}, {"a": "x" * BYTES_MAX}, {"a": RefusalCode.DENIED}, {RefusalCode.DENIED: 1}]
)
def test_a_flat_object_outside_the_domain_has_no_text(members: dict[Any, Any]) -> None:
    refused = outcome(lambda: canonical_bytes(members))
    flat = outcome(lambda: canonical_flat(members))
    assert isinstance(refused, Malformed)
    assert isinstance(flat, Malformed)
    assert flat.code == refused.code
