import re
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fault.test_sync_counts import STRACE, can_trace
from tests.support.growth import grow, median_admission_ns
from tests.support.issuers import Made, standard_issuer

CALL = re.compile(r"(?P<call>p?(?:read|write)(?:64)?)\((?:\d+<(?P<path>[^>]*)>), .*, (?P<bytes>\d+), \d+\) =")
ADMISSIONS = 20
DEEPER_MAX = 2
"""Levels that a tree of pages may be deeper in a grown ledger: pages of it are then read once more, each."""

TIMES_MAX = 1.5
"""LED-07: the time of an admission in a grown ledger beside an empty one."""

ROUNDS = 5

ROOM = {
    "[person]": "[ledger]\nspan_bytes = 4_294_967_296\n[person]",
    "per_task = { permits = 100 }": "per_task = { permits = 1000 }",
    "per_root = { permits = 200 }": "per_root = { permits = 1000 }",
}
"""A million spans are a little more than the default lets new effects be asked for, and many effects are measured."""

pytestmark = [
    pytest.mark.skipif(not can_trace(), reason="strace is not here, or may not trace"),
    pytest.mark.spec("LED-07"),
]


@dataclass(frozen=True, kw_only=True)
class Work:
    """What one admission did with the ledger's files: pages read, and bytes written."""

    reads: int
    written: int


def work(made: Made, trace: Path) -> Work:
    """Return the median of what an admission reads and writes, with no page in memory before it."""
    marks = trace.with_suffix(".marks")
    own = [sys.executable, "-m", "tests.support.growth", str(made.profile), str(marks), str(ADMISSIONS)]
    traced = "trace=pread64,pwrite64,write"
    subprocess.run([str(STRACE), "-f", "-y", "-qq", "-e", traced, "-o", str(trace), *own], check=True)
    parts: list[list[tuple[str, int]]] = [[]]
    for line in trace.read_text().splitlines():
        if f"<{marks}>" in line:
            parts.append([])
            continue
        call = CALL.search(line)
        if call is not None and call["path"].startswith(str(made.ledger)):
            parts[-1].append((call["call"], int(call["bytes"])))
    _start, first, *each, _end = parts
    assert len(each) == ADMISSIONS
    del first
    return Work(
        reads=int(statistics.median(sum(call == "pread64" for call, _ in part) for part in each)),
        written=int(
            statistics.median(sum(size for call, size in part if call == "pwrite64") for part in each)
        ),
    )


def compared(folder: Path, *, effects: int, spans: int) -> tuple[Made, Made, Work, Work]:
    """Make an empty and a grown ledger, and count the work of an admission in each."""
    empty, grown = (standard_issuer(folder / name, port=9, changes=ROOM) for name in ("empty", "grown"))
    grow(grown, effects=effects, spans=spans)
    return empty, grown, work(empty, folder / "empty.trace"), work(grown, folder / "grown.trace")


def test_an_admission_in_a_grown_ledger_touches_the_pages_that_it_does_in_an_empty_one(
    tmp_path: Path,
) -> None:
    _empty, _grown, before, after = compared(tmp_path, effects=400, spans=20_000)
    assert before.reads > 0
    assert after.reads <= before.reads * (1 + DEEPER_MAX)
    assert after.written <= before.written * TIMES_MAX


@pytest.mark.soak
def test_an_admission_among_10_000_effects_and_a_million_spans_costs_what_it_does_in_an_empty_ledger(
    tmp_path: Path, figure: Callable[[str], None]
) -> None:
    empty, grown, before, after = compared(tmp_path, effects=10_000, spans=1_000_000)
    figure(f"pages read {before.reads} and {after.reads}, bytes written {before.written} and {after.written}")
    ratios = []
    with empty.open() as small, grown.open() as large:
        for number in range(ROUNDS):  # in turns, so that both meet the same machine
            floor = median_admission_ns(small, ADMISSIONS, name=f"r{number}")
            ratios.append(median_admission_ns(large, ADMISSIONS, name=f"r{number}") / floor)
    figure(f"time of an admission: {statistics.median(ratios):.2f} times that in an empty ledger")
    assert after.written <= before.written * TIMES_MAX
    assert statistics.median(ratios) <= TIMES_MAX
