"""The parts of one effect and the floors under them, each measured alone in this process.

A part is what any program with this promise has to do: two decisions, four spans, one ledger with three durable
commits. The floor is a bare program with the same number of durable commits and appends and nothing else.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ledger.sqlite.connection import DRIVER

COMMITS_PER_EFFECT = 3
APPENDS_PER_EFFECT = 2
ROW_BYTES = 300
LINE_BYTES = 1200


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one run of something costs: seconds of this process's CPU, and seconds of wall clock, each the median."""

    cpu_s: float
    wall_s: float


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table: a figure, what it stands beside, and the goal for the ratio of the two."""

    what: str
    figure: str
    floor: str
    ratio: float | None
    goal: str


def median_cost(run: Callable[[], object], *, rounds: int) -> Cost:
    """Run something `rounds` times after one warm-up and return its median cost."""
    return median_costs(run, rounds=rounds)[0]


def median_costs(*runs: Callable[[], object], rounds: int) -> list[Cost]:
    """Run several things in turn, `rounds` times after one warm-up, and return the median cost of each."""
    for run in runs:
        run()
    took: list[list[tuple[float, float]]] = [[] for _ in runs]
    for _ in range(rounds):
        for run, costs in zip(runs, took, strict=True):
            began, cpu_began = time.perf_counter(), time.process_time()
            run()
            costs.append((time.process_time() - cpu_began, time.perf_counter() - began))
    middle = rounds // 2
    return [
        Cost(cpu_s=sorted(cpu for cpu, _ in costs)[middle], wall_s=sorted(wall for _, wall in costs)[middle])
        for costs in took
    ]


class BareProgram:
    """Three WAL commits with full sync and two synced appends: what durability alone costs for one effect."""

    def __init__(self, folder: Path) -> None:
        self._raw = DRIVER.Connection(str(folder / "bare.sqlite"), isolation_level=None)
        self._raw.execute("PRAGMA journal_mode = WAL")
        self._raw.execute("PRAGMA synchronous = FULL")
        self._raw.execute("CREATE TABLE rows(id INTEGER PRIMARY KEY, body BLOB)")
        self._log = os.open(folder / "bare.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def run(self) -> None:
        """Do what one effect does to the disk."""
        for _ in range(COMMITS_PER_EFFECT):
            self._raw.execute("BEGIN IMMEDIATE")
            self._raw.execute("INSERT INTO rows(body) VALUES (?)", (b"x" * ROW_BYTES,))
            self._raw.execute("COMMIT")
        for _ in range(APPENDS_PER_EFFECT):
            os.write(self._log, b"y" * LINE_BYTES + b"\n")
            os.fdatasync(self._log)

    def close(self) -> None:
        """Let go of the files."""
        self._raw.close()
        os.close(self._log)
