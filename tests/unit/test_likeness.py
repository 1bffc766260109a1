"""One measure of likeness: only a likely name is offered, and nothing that is no text is compared."""

import pytest

from issuer.likeness import did_you_mean, nearest


@pytest.mark.parametrize(
    ("wanted", "candidates", "found"),
    [
        ("alcie", ["bob", "alice", "erin"], "alice"),
        ("alice2", ["alice1", "alice"], "alice"),
        ("zzz", ["bob", "alice"], None),
        ("alice", [], None),
        ("", ["bob"], None),
        ("a" * 100_000, ["bob"], None),
        (None, ["None", "bob"], None),
        (7, ["7"], None),
        (["alice"], ["alice"], None),
    ],
)
def test_only_a_likely_name_is_offered(wanted: object, candidates: list[str], found: str | None) -> None:
    assert nearest(wanted, iter(candidates)) == found
    assert did_you_mean(wanted, candidates) == ("" if found is None else f'Did you mean "{found}"?')
