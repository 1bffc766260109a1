import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.issuers import standard_issuer
from tests.support.service import Service, answer

STRACE = shutil.which("strace")
SYNCS = ("fsync", "fdatasync", "msync", "sync_file_range", "sync", "syncfs")
EFFECTS = 3
CALL = re.compile(r"(?P<call>[a-z_0-9]+)\((?:\d+<(?P<path>[^>]*)>)?")


def can_trace() -> bool:
    if STRACE is None:
        return False
    tried = subprocess.run([STRACE, "-o", "/dev/null", "true"], check=False, capture_output=True)
    return tried.returncode == 0


def traced_calls(trace: Path) -> list[tuple[str, str]]:
    """Return (call, path of its descriptor) in order; a call that another thread cut in two counts where it began."""
    found = []
    for line in trace.read_text().splitlines():
        call = CALL.search(line)
        if call is not None and "resumed>" not in line:
            found.append((call["call"], call["path"] or ""))
    return found


def between_marks(calls: list[tuple[str, str]], marks: Path) -> list[list[str]]:
    """Return the files synced after each mark, up to the next one."""
    parts: list[list[str]] = [[]]
    for call, path in calls:
        if path == str(marks) and call == "write":
            parts.append([])
        elif call in SYNCS:
            parts[-1].append(path)
    return parts


@pytest.mark.spec("LED-01", "ADM-03", "AUD-02")
@pytest.mark.skipif(not can_trace(), reason="strace is not here, or may not trace")
@pytest.mark.parametrize("table", ["", 'checkpoint = { every = "1h" }\n'], ids=["", "with checkpoints"])
def test_an_effect_in_a_warm_process_costs_three_syncs_of_the_ledger_and_two_of_the_sink(
    tmp_path: Path, table: str
) -> None:
    """Request, admission and outcome are one sync each; the sink has one for the admission and one for the outcome.

    Fewer would mean that something was answered before it was durable, more that something is paid twice.
    """
    marks, trace = tmp_path / "marks", tmp_path / "trace"
    with Service(*[answer(201)] * (EFFECTS + 1)) as service:
        changes = {"[person]": f"{table}[person]"}
        made = standard_issuer(tmp_path / "f0", port=service.port, changes=changes)
        wanted = "trace=write," + ",".join(SYNCS)
        own = [
            sys.executable,
            "-m",
            "tests.support.counted_effects",
            str(made.profile),
            str(marks),
            str(EFFECTS),
        ]
        subprocess.run([str(STRACE), "-f", "-y", "-qq", "-e", wanted, "-o", str(trace), *own], check=True)
        assert len(service.effects) == EFFECTS + 1
    _start, *each, _end = between_marks(traced_calls(trace), marks)
    assert len(each) == EFFECTS
    ledger, sink = str(made.ledger) + "-wal", str(made.sink)
    for synced in each:
        assert Counter(synced) == {ledger: 3, sink: 2}
        # What was admitted is in the ledger, then in the sink; only then is anything sent and the outcome written.
        assert synced == [ledger, ledger, sink, ledger, sink]
