"""`make guards`: take each guard away in a copy of the repository, and see the named test turn red.

A guard is a file `NAME.toml` beside this one:

    says = "one sentence: what the guard holds"
    spec = ["ADM-02"]
    file = "ledger/sqlite/schema.py"
    find = "text that stands exactly once in the file"
    put  = "what stands there once the guard is gone"
    test = "tests/fault/test_x.py::test_that_must_fail"

Where a second guard holds the same, `also = [{ file = "…", find = "…", put = "…" }]` takes that one away as well.
A guard whose text is not found exactly once, or whose test still passes, or fails for another reason than a failed
test, fails the run. Before any of that, every named test has to pass on the untouched copy.
Usage: `python -m tests.guards.run [--third N] [--jobs N] [NAME …]`; `--third` plays the guards of one third (0..2).
"""

import argparse
import concurrent.futures
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent
ROOMS = ("issuer", "policies", "audit", "ledger", "tests", "docs")
FILES = ("pyproject.toml", "README.md")
TEST_SECONDS_MAX = 240
"""Bound of one guard's test; one that hangs without its guard counts as noticed only if the file says so."""

BASELINE_SECONDS_MAX = 900
"""Bound of all named tests together, with every guard in place."""

FAILED, NOTHING_RAN = 1, 5
KEYS = frozenset({"says", "spec", "file", "find", "put", "test"})


@dataclass(frozen=True, kw_only=True)
class Patch:
    """One text of one file, and what stands there instead."""

    file: str
    find: str
    put: str

    def apply(self, folder: Path) -> str:
        """Change the file in a copy; return an empty text, or what stood in the way."""
        path = folder / self.file
        text = path.read_text(encoding="utf-8")
        if text.count(self.find) != 1:
            return f"its text stands {text.count(self.find)} times in {self.file}, not once"
        path.write_text(text.replace(self.find, self.put), encoding="utf-8")
        return ""


@dataclass(frozen=True, kw_only=True)
class Guard:
    """One guard and the test that claims it; `hangs` says that without the guard the test would never end."""

    name: str
    says: str
    spec: tuple[str, ...]
    patches: tuple[Patch, ...]
    test: str
    hangs: bool = False


def read_guards(folder: Path = FOLDER) -> list[Guard]:
    """Return every guard, in name order; a file of another shape is refused."""
    guards = []
    for path in sorted(folder.glob("*.toml")):
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        if not KEYS <= table.keys() <= KEYS | {"hangs", "also"}:
            raise SystemExit(f"{path.name}: a guard has exactly {', '.join(sorted(KEYS))}")
        first = {key: table.pop(key) for key in ("file", "find", "put")}
        patches = tuple(Patch(**row) for row in (first, *table.pop("also", ())))
        guards.append(Guard(name=path.stem, patches=patches, **{**table, "spec": tuple(table["spec"])}))
    return guards


def copied(target: Path) -> Path:
    """Copy what tests need of the repository to `target`."""
    ignore = shutil.ignore_patterns("__pycache__", "*.pyc")
    for room in ROOMS:
        shutil.copytree(ROOT / room, target / room, ignore=ignore)
    for name in FILES:
        shutil.copy(ROOT / name, target / name)
    return target


def run_tests(
    folder: Path, tests: Sequence[str], basetemp: Path, *, seconds_max: float = TEST_SECONDS_MAX
) -> subprocess.CompletedProcess[str]:
    """Run tests in a copy, which stands before the installed package on the path of every process."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    vectors = ROOT.parent / "shared" / "vectors"
    environment.setdefault("PERMIT_VECTORS", str(vectors))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, f"--basetemp={basetemp}", *tests],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",  # a failing test may show bytes that are no text
        timeout=seconds_max,
        check=False,
    )


def played(guard: Guard) -> str:
    """Take one guard away and run its test; return an empty text where the test noticed, else what went wrong."""
    with tempfile.TemporaryDirectory(prefix="guard-") as name:
        folder = copied(Path(name) / "copy")
        for patch in guard.patches:
            if problem := patch.apply(folder):
                return problem
        try:
            run = run_tests(folder, [guard.test], Path(name) / "temp")
        except subprocess.TimeoutExpired:
            return "" if guard.hangs else f"its test did not end within {TEST_SECONDS_MAX} s"
    if run.returncode == FAILED and " failed" in run.stdout:
        return ""
    if run.returncode == 0:
        return "its test still passes without it"
    return f"its test ended with {run.returncode}: {run.stdout[-400:]}"


def baseline(guards: Sequence[Guard]) -> str:
    """Run every named test on an untouched copy; return an empty text where all pass."""
    with tempfile.TemporaryDirectory(prefix="guard-") as name:
        folder = copied(Path(name) / "copy")
        tests = sorted({guard.test for guard in guards})
        run = run_tests(folder, tests, Path(name) / "temp", seconds_max=BASELINE_SECONDS_MAX)
    return "" if run.returncode == 0 else run.stdout[-2000:] + run.stderr[-1000:]


def main() -> int:
    """Play the guards that are asked for; return 0 where each was noticed."""
    parser = argparse.ArgumentParser(description="take guards away and see tests fail")
    parser.add_argument("--third", type=int, choices=(0, 1, 2))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    guards = read_guards()
    if asked.third is not None:
        guards = guards[asked.third :: 3]
    if asked.names:
        guards = [guard for guard in guards if guard.name in asked.names]
    if not guards:
        print("no guard is left to play", file=sys.stderr)
        return 1
    began = time.monotonic()
    broken = baseline(guards)
    if broken:
        print("with every guard in place, a named test fails:\n" + broken)
        return 1
    with concurrent.futures.ThreadPoolExecutor(max_workers=asked.jobs) as pool:
        results = []
        for guard, problem in zip(guards, pool.map(played, guards), strict=True):
            word = "NOT NOTICED" if problem else "noticed"
            print(f"{word:<12}{guard.name:<32}{problem or guard.says}", flush=True)
            results.append(problem)
    noticed = sum(not problem for problem in results)
    print(f"{noticed} of {len(guards)} guards noticed in {time.monotonic() - began:.0f} s")
    return 0 if noticed == len(guards) else 1


if __name__ == "__main__":
    sys.exit(main())
