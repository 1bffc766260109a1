"""What verifying a span costs, beside a plain hash loop over the same bytes (AUD-04)."""

import hashlib
from pathlib import Path

from audit.trail_lines import TrailFile, ledger_of, verify_files
from issuer.verifying import Given
from tests.bench.parts import Row, median_cost
from tests.support.trails import CheckpointKey, grown_trail

SPANS = 20_000
ROOT_TIMES, COLUMNS_TIMES = 2.0, 8.0
"""At most: the root alone, and every line held against its body as well."""

KEY = CheckpointKey()


def plain(path: Path) -> None:
    """Hash every line of a file."""
    with path.open("rb") as file:
        for line in file:
            hashlib.sha256(line).digest()


def verified(path: Path, note: bytes, *, columns: bool) -> None:
    """Verify a file, or raise."""
    with path.open("rb") as file:
        ledger_id = ledger_of(file, path.name)
        given = Given(keys=(KEY.verifier,), notes=(("c.note", note),))
        checkpoints, _refused = given.opened(ledger_id)
        trail = TrailFile(name=path.name, file=file)
        report = verify_files([trail], ledger_id, checkpoints, columns=columns)
    if report.verdict != "verified":
        raise AssertionError(report)


def times(path: Path, note: bytes, *, rounds: int) -> tuple[float, float, float]:
    """Return the seconds of CPU of the plain loop, of the root, and of the whole verification."""
    bare = median_cost(lambda: plain(path), rounds=rounds)
    root = median_cost(lambda: verified(path, note, columns=False), rounds=rounds)
    whole = median_cost(lambda: verified(path, note, columns=True), rounds=rounds)
    return bare.cpu_s, root.cpu_s, whole.cpu_s


def verifying_rows(folder: Path, *, rounds: int = 5, spans: int = SPANS) -> list[Row]:
    """Return the rows of the table."""
    path = folder / "verified.jsonl"
    note = grown_trail(path, spans, KEY)
    bare, root, whole = times(path, note, rounds=rounds)
    floor = f"{bare / spans * 1e6:.2f} us"
    return [
        Row(
            what=what,
            figure=f"{cost / spans * 1e6:.2f} us",
            floor=floor,
            ratio=cost / bare,
            goal=f"<= {goal:g}",
        )
        for what, cost, goal in (
            ("verifying a span: root", root, ROOT_TIMES),
            ("verifying a span: root and columns", whole, COLUMNS_TIMES),
        )
    ]
