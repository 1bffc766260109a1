"""A thousand edits of two thousand spans, twenty of a hundred thousand, and a million verified beside a hash loop."""

import random
from pathlib import Path

import pytest

from tests.bench.verifying import COLUMNS_TIMES, KEY, ROOT_TIMES, times
from tests.support.trails import CHAINED, EDITS, Signed, edited, grown_trail, signed_trail, verdict_of

SEED = 9162
MILLION = 1_000_000


@pytest.mark.soak
@pytest.mark.spec("AUD-04")
def test_a_thousand_edits_of_two_thousand_spans_are_found() -> None:
    trail = signed_trail(2_000, KEY)
    assert verdict_of(trail.data, [trail.note], KEY) == "verified"
    draw = random.Random(SEED)  # noqa: S311 - repeatable edits
    missed = []
    for turn in range(1_000):
        name, made = edited(trail, turn, draw)
        if verdict_of(made.data, [made.note], KEY) == "verified":
            missed.append((turn, name))
    assert missed == []


@pytest.mark.soak
@pytest.mark.spec("AUD-04")
def test_twenty_edits_of_a_hundred_thousand_spans_are_found(tmp_path: Path) -> None:
    path = tmp_path / "spans.jsonl"
    note = grown_trail(path, 100_000, KEY)
    trail = Signed(lines=tuple(path.read_bytes().split(b"\n")[:-1]), note=note)
    assert verdict_of(trail.data, [note], KEY) == "verified"
    draw = random.Random(SEED)  # noqa: S311 - repeatable edits
    missed = []
    for turn in range(20):
        edit = (*EDITS, *CHAINED)[turn % (len(EDITS) + len(CHAINED))]
        made = edit(trail, draw)
        if verdict_of(made.data, [made.note], KEY) == "verified":
            missed.append((turn, edit.__name__))
    assert missed == []


@pytest.mark.soak
@pytest.mark.spec("AUD-04")
def test_a_million_spans_are_verified_in_few_times_a_plain_hash_loop(tmp_path: Path) -> None:
    path = tmp_path / "spans.jsonl"
    note = grown_trail(path, MILLION, KEY)
    bare, root, whole = times(path, note, rounds=3)
    print(f"a span: {bare:.2f} us plain, root {root / bare:.2f} times, with columns {whole / bare:.2f} times")  # noqa: T201
    assert root <= ROOT_TIMES * bare
    assert whole <= COLUMNS_TIMES * bare
