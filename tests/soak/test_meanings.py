"""A hundred thousand documents: one digest for each meaning, none shared by two (EFF-03)."""

from collections.abc import Callable

import pytest

from tests.support.meanings import hold_digests

DOCUMENTS = 100_000
PART = 10_000
"""Documents of one seed; all digests of a part are kept in memory."""


@pytest.mark.soak
@pytest.mark.spec("EFF-03", "EFF-05")
def test_a_hundred_thousand_documents_have_one_digest_for_each_meaning(figure: Callable[[str], None]) -> None:
    meanings = 0
    for seed in range(DOCUMENTS // PART):
        seen = hold_digests(PART, seed=seed)
        assert len(seen.by_meaning) == len(seen.by_digest)
        meanings += len(seen.by_meaning)
    figure(f"{DOCUMENTS} documents, {meanings} meanings, one digest each")
