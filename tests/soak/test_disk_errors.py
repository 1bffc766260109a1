from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.kills import Nursery
from tests.support.strikes import Blow, can_trace, strike
from tests.support.transitions import KINDS, Stage, assert_told_as_it_is

CALLS = ("pwrite64", "write", "fsync", "fdatasync", "ftruncate")
ERRORS = ("EIO", "ENOSPC")
CALLS_PER_NAME_MAX = 300
"""Writes of one transition are some fifty; a command in which an error always falls would loop for ever."""

QUICK = (("fsync", "EIO", 3), ("pwrite64", "ENOSPC", 3))

pytestmark = [
    pytest.mark.skipif(not can_trace(), reason="strace is not here, or may not trace"),
    pytest.mark.spec("ADM-03", "LED-01", "LED-04", "AUD-02", "BUD-04"),
]


def failed(stage: Stage, nursery: Nursery, blow: Blow, log: Path) -> str | None:
    """Let one call fail; return what was answered and what it left, or None where no error fell."""
    scene = stage.scene()
    struck = strike(nursery, stage.kind.job(scene), blow, log)
    left = stage.judged(scene, struck.answer)
    if not struck.fell:
        assert struck.ended == 0
        return None
    # A process ends by itself whatever fails; where even its answer could not be written, it has told none.
    assert struck.ended >= 0
    assert_told_as_it_is(stage.kind.name, struck.code, left)
    return f"{struck.code}:{left}"


@pytest.mark.parametrize("kind", ["request", "admission", "settlement", "sending"])
def test_a_few_disk_errors_are_told_as_they_are(kind: str, nursery: Nursery, tmp_path: Path) -> None:
    stage = Stage(kind=KINDS[kind], folder=tmp_path / kind)
    for call, error, number in QUICK:
        blow = Blow(call=call, number=number, what=f"error={error}")
        assert failed(stage, nursery, blow, tmp_path / "log") is not None


@pytest.mark.soak
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_disk_error_at_any_call_of_a_transition_is_told_as_it_is(
    kind: str, error: str, nursery: Nursery, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    stage = Stage(kind=KINDS[kind], folder=tmp_path / kind)
    seen: Counter[str] = Counter()
    sink = stage.scene().made.sink
    paths: list[tuple[str, Path | None]] = [(call, None) for call in CALLS]
    paths += [(call, sink) for call in ("write", "fdatasync", "ftruncate")]
    for call, path in paths:
        for number in range(1, CALLS_PER_NAME_MAX + 1):
            blow = Blow(call=call, number=number, what=f"error={error}", path=path)
            found = failed(stage, nursery, blow, tmp_path / "log")
            if found is None:
                break
            seen[found] += 1
        else:
            pytest.fail(f"{call} was made more than {CALLS_PER_NAME_MAX} times")
    figure(f"{kind}, {error}: {seen.total()} errors, {dict(seen)}")
    assert seen
