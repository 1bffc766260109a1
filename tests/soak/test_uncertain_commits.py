"""The sync of a commit fails: what was answered, and what a fresh process reads once it has committed a probe span.

After such an error the transaction may stand in the WAL or not, and which of the two depends on who comes next: it is
invisible while others have the ledger open, comes back where all of them are killed, and is gone for good once
somebody else has committed. So a fresh process commits first and reads then; what it reads is what stays.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.committing import Job
from tests.support.kills import Child, Nursery, untouched_state
from tests.support.strikes import Blow, can_trace, has_fallen, struck
from tests.support.transitions import KINDS, Scene, Stage, assert_told_as_it_is

SYNCS_MAX = 40
"""More than any transition makes."""

ENDS = ("lives", "killed", "closed")
"""What has become of the struck process when the fresh one comes."""

ANSWERED = tuple(name for name in KINDS if name != "overdue")
"""A sweep has no answer of its own, and is done again by whoever reads."""

QUICK = (("admission", "killed"), ("settlement", "lives"))

pytestmark = [
    pytest.mark.skipif(not can_trace(), reason="strace is not here, or may not trace"),
    pytest.mark.spec("ADM-02", "ADM-03", "LED-01", "REP-05", "REP-07", "PER-05"),
]


def wal(scene: Scene) -> Path:
    """The file whose sync is the commit."""
    return scene.made.ledger.with_name(scene.made.ledger.name + "-wal")


def end(child: Child, how: str) -> None:
    """Let the struck process, which stands still with the issuer open, end as `how` says, or live on."""
    child.stopped(times=2)
    if how == "killed":
        child.kill()
    elif how == "closed":
        child.resume()
        child.ended()


def fresh_state(nursery: Nursery, scene: Scene, command: str) -> str:
    """Return the state that a fresh process is told."""
    job = Job(profile=str(scene.made.profile), command=command, arguments={"effect": scene.effect})
    with nursery.start(job) as child:
        assert child.ended() == 0, child.lines
        return str(child.answer()["state"])


def told_and_left(
    stage: Stage, nursery: Nursery, number: int, log: Path, *, how: str, command: str = "read_afresh"
) -> tuple[str, str, str] | None:
    """Let the `number`th sync of the WAL fail.

    Return what was answered, the state that a fresh process then read, and the state in the end; None where there was
    no such sync.
    """
    scene = stage.scene()
    blow = Blow(call="fsync", number=number, what="error=EIO", path=wal(scene))
    with struck(nursery, stage.kind.job(scene, stays=True), blow, log) as child:
        answer = child.answered()
        end(child, how)
        read = fresh_state(nursery, scene, command) if scene.effect else ""
    with scene.made.open() as issuer:
        last = str(untouched_state(issuer, scene.effect)) if scene.effect else ""
    left = stage.judged(scene, answer)
    assert_told_as_it_is(stage.kind.name, str(answer["code"]), left)
    return (str(answer["code"]), read, last or left) if has_fallen(log) else None


def judged_for_every_sync(kind: str, nursery: Nursery, folder: Path, *, how: str) -> Counter[str]:
    """Let each sync of the WAL fail; what a fresh process read after its probe is what stays."""
    stage = Stage(kind=KINDS[kind], folder=folder / how)
    seen: Counter[str] = Counter()
    for number in range(1, SYNCS_MAX):
        found = told_and_left(stage, nursery, number, folder / "log", how=how)
        if found is None:
            return seen
        code, read, last = found
        assert read in {"", last}, (kind, how, number, found)
        seen[f"{code}:{last}"] += 1
    pytest.fail("every run had a sync to fail")


def assert_nobody_knows_yet(seen: Counter[str]) -> None:
    """Whoever asked was told that nobody knows yet, and nothing that sounds like a failure."""
    assert any(one.startswith("outcome_unknown") for one in seen), seen


@pytest.mark.parametrize(("kind", "how"), QUICK)
def test_after_a_commit_whose_sync_failed_a_fresh_process_reads_what_stays(
    kind: str, how: str, nursery: Nursery, tmp_path: Path
) -> None:
    assert_nobody_knows_yet(judged_for_every_sync(kind, nursery, tmp_path, how=how))


@pytest.mark.soak
@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("kind", ANSWERED)
def test_after_any_commit_whose_sync_failed_a_fresh_process_reads_what_stays(
    kind: str, how: str, nursery: Nursery, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    seen = judged_for_every_sync(kind, nursery, tmp_path, how=how)
    figure(f"{kind}, a commit's sync fails, who asked {how}: {seen.total()} syncs, {dict(seen)}")
    assert_nobody_knows_yet(seen)


def test_a_reading_without_a_probe_would_not_have_stayed(nursery: Nursery, tmp_path: Path) -> None:
    """The control: without a commit before it, what a fresh process reads can turn into something else."""
    stage = Stage(kind=KINDS["admission"], folder=tmp_path / "plain")
    found = [
        told_and_left(stage, nursery, number, tmp_path / "log", how="lives", command="show")
        for number in (1, 2, 3)
    ]
    turned = [one for one in found if one is not None and one[1] != one[2]]
    assert turned
    assert {one[0] for one in turned} == {"outcome_unknown"}
