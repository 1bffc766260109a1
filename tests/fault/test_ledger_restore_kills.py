"""A restore of a ledger that is damaged or lost, and one that is killed at any of its steps (LED-08, LED-01)."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from issuer.errors import SetupError
from issuer.restore.restoring import restore
from issuer.setup import initialise
from ledger.sqlite.halt import set_halt
from tests.support.committing import Job
from tests.support.issuers import Made, standard_issuer
from tests.support.kills import Nursery
from tests.support.ledgers import attacker, without_guards
from tests.support.restoring import (
    RESTORE_STEPS,
    dies_at,
    published,
    refused,
    restored,
    saved,
    sent,
    states,
)


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return standard_issuer(tmp_path / "f0", port=9)


def everything_gone(made: Made) -> None:
    shutil.rmtree(made.ledger.parent)


def head_gone(made: Made) -> None:
    without_guards(made.ledger, "DELETE FROM head")


def file_wrecked(made: Made) -> None:
    content = bytearray(made.ledger.read_bytes())
    content[4096:12288] = b"\xff" * 8192
    made.ledger.write_bytes(bytes(content))


def linked_away(made: Made) -> None:
    made.ledger.symlink_to(made.ledger.rename(made.folder / "elsewhere"))


def halted(made: Made) -> None:
    set_halt(made.ledger, "tree")


@pytest.mark.spec("LED-08", "LED-04")
@pytest.mark.parametrize("harm", [everything_gone, head_gone, file_wrecked, linked_away, halted])
def test_whatever_became_of_the_old_ledger_it_is_kept_and_the_new_one_works(
    made: Made, harm: Callable[[Made], None]
) -> None:
    file = saved(made)
    with made.open() as issuer:
        effect = sent(issuer, "v1")
    harm(made)
    stood = made.ledger.read_bytes() if made.ledger.exists() else None
    answer = restored(made, file)
    if stood is None:
        assert answer.more["kept"] is None
    else:
        assert (made.folder / str(answer.more["kept"]) / "ledger.sqlite").read_bytes() == stood
    assert states(made, [effect]) == ["unknown"]
    with made.open() as issuer:
        assert issuer.admit(published(issuer, "v2")).code == "admitted"


@pytest.mark.spec("LED-08", "LED-01")
@pytest.mark.parametrize("step", RESTORE_STEPS)
def test_a_kill_at_any_step_leaves_the_old_ledger_or_the_new_one_or_none_and_a_second_try_ends_it(
    made: Made, step: str
) -> None:
    file = saved(made)
    with made.open() as issuer:
        effect = sent(issuer, "v1")
    dies_at("restore", made, file, step)
    number = RESTORE_STEPS.index(step)
    if number < RESTORE_STEPS.index("moved sqlite"):
        assert states(made, [effect]) == ["admitted"]
    elif number < RESTORE_STEPS.index("placed"):
        assert refused(made.open) == "missing"
    else:
        assert states(made, [effect]) == ["unknown"]
        with made.open() as issuer:
            assert issuer.admit(published(issuer, "v2")).code == "admitted"
    restored(made, file)
    assert states(made, [effect]) == ["unknown"]
    assert not (made.ledger.parent / "restoring").exists()
    with made.open() as issuer:
        assert issuer.admit(published(issuer, "v3")).code == "admitted"


def test_the_steps_of_a_restore_are_those_that_are_killed(made: Made) -> None:
    file = saved(made)
    steps: list[str] = []
    restore(made.profile, file, observe=steps.append)
    assert tuple(steps) == RESTORE_STEPS


@pytest.mark.spec("LED-08", "LED-01")
@pytest.mark.parametrize("step", ["moved sqlite", "moved sqlite-wal", "moved sqlite-shm"])
def test_the_log_of_a_ledger_that_was_killed_goes_where_its_file_went(
    made: Made, step: str, nursery: Nursery
) -> None:
    """The new file never meets the old one's log, and the old one keeps it."""
    file = saved(made)
    left = leave_a_log(made, nursery)
    dies_at("restore", made, file, step)
    restored(made, file)
    (kept,) = made.ledger.parent.glob("before-epoch-2*")
    raw = attacker(kept / "ledger.sqlite")
    assert raw.execute("SELECT state FROM effects WHERE effect_id = ?", (left,)).fetchone() == ("admitted",)
    raw.close()
    assert states(made, [left]) == ["unknown"]


def leave_a_log(made: Made, nursery: Nursery) -> str:
    """Leave what a killed process leaves: a write-ahead log in which an admission stands, and the sink has it too."""
    with made.open() as issuer:
        effect = published(issuer, "v1")
    job = Job(profile=str(made.profile), command="admit", arguments={"effect": effect}, stays=True)
    with nursery.start(job) as child:
        child.stopped()
        child.kill()
    assert made.ledger.with_name("ledger.sqlite-wal").stat().st_size > 0
    return effect


@pytest.mark.spec("LED-08")
def test_init_makes_no_new_ledger_where_one_is_missing(made: Made) -> None:
    file = saved(made)
    dies_at("restore", made, file, "moved sqlite")
    with pytest.raises(SetupError) as caught:
        initialise(made.folder, uid=0)
    assert caught.value.reason == "ledger_gone"
    assert "`issuer ledger restore FILE`" in caught.value.message
    restored(made, file)
