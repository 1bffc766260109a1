"""A ledger's spans as one sink is given them: without what an operator keeps back, and nothing else."""

import pytest

from audit.sinks.skipping import Kept, KeptBack, next_given
from tests.support.spans import SpansInMemory

RANGES = [
    ((), list(range(1, 11))),
    (((3, 3),), [1, 2, 4, 5, 6, 7, 8, 9, 10]),
    (((1, 2), (3, 4)), [5, 6, 7, 8, 9, 10]),
    (((9, 10),), [1, 2, 3, 4, 5, 6, 7, 8]),
    (((2, 4), (6, 6), (10, 10)), [1, 5, 7, 8, 9]),
]


@pytest.mark.spec("AUD-02")
@pytest.mark.parametrize(("ranges", "given"), RANGES)
@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_pages_have_what_is_given_in_order_and_each_sequence_goes_on_to_the_next(
    ranges: tuple[tuple[int, int], ...], given: list[int], limit: int
) -> None:
    source = KeptBack(
        source=SpansInMemory(10), kept=tuple(Kept(first=first, last=last) for first, last in ranges)
    )
    found: list[int] = []
    while rows := source.spans_after(found[-1] if found else 0, limit=limit):
        assert len(rows) <= limit
        assert rows[0].position.sequence == next_given(source, found[-1] if found else 0)
        found += [row.position.sequence for row in rows]
    assert found == given
    for sequence in range(1, 11):
        later = [one for one in given if one >= sequence]
        assert source.given(sequence) == (later[0] if later else 11)
