"""One digest for each meaning, whatever text it came in, and none that two meanings share (EFF-03)."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.canonical import canonical_bytes, parse_strict
from tests.support.documents import drawn, meaning, written
from tests.support.meanings import hold_digests

DOCUMENTS = 2_000


@pytest.mark.spec("EFF-03", "EFF-05")
def test_random_documents_have_one_digest_for_each_meaning_and_share_none() -> None:
    seen = hold_digests(DOCUMENTS, seed=20)
    assert len(seen.by_meaning) == len(seen.by_digest) > DOCUMENTS


@pytest.mark.spec("EFF-03", "EFF-05")
@given(st.integers(0, 2**63))
def test_any_two_texts_of_a_document_are_read_as_one(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - documents that a seed gives again, and no secrets
    document = drawn(chance)
    bodies = {canonical_bytes(parse_strict(written(document, chance))) for _ in range(4)}
    assert bodies == {canonical_bytes(document)}
    assert meaning(parse_strict(bodies.pop())) == meaning(document)
