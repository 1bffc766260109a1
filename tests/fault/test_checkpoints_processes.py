"""Several processes sign at once, and one that signs is killed: the signer never lies, and forgets nothing (AUD-04)."""

from pathlib import Path

import pytest

from tests.support.checkpoints import (
    Whole,
    bodies,
    demand_true,
    folder,
    notes,
    signed,
    spans_of_checkpoints,
    verified,
    vkey,
)
from tests.support.committing import Job
from tests.support.issuers import Made, open_task, standard_issuer
from tests.support.kills import Nursery
from tests.support.strikes import Blow, calls_of, can_trace, strike

STEPS = (
    *("checkpoint_alone", "locked", "checkpoint_proven", "checkpoint_remembered", "checkpoint_kept"),
    *("checkpoint_latest", "locked", "before_commit", "committed", "checkpoint_recorded"),
)
"""Every step of one signing, in order: proven in one transaction, recorded in another."""

REMEMBERED, KEPT, RECORDED = 4, 5, 9
"""The first step at which the memory, the note and its span are there."""

can_strike = pytest.mark.skipif(not can_trace(), reason="strace is not here, or may not trace")


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return standard_issuer(tmp_path / "f0", port=9)


def job(made: Made, *, at: int | None = None, traced: bool = False) -> Job:
    return Job(profile=str(made.profile), command="audit_checkpoint", at=at, traced=traced)


def grown(made: Made, name: str) -> None:
    with made.open() as issuer:
        open_task(issuer, name, budget={"USD.cent": 1}, parent="org", actors=["agent-7"])


def has_memory(made: Made) -> bool:
    return (folder(made) / "state").exists()


@pytest.mark.spec("AUD-04")
def test_the_steps_are_these(made: Made) -> None:
    told: list[str] = []
    with made.open(observe=told.append) as issuer:
        told.clear()
        signed(issuer)
    assert tuple(told) == STEPS


@pytest.mark.spec("AUD-04", "AUD-01", "LED-06")
@pytest.mark.parametrize("at", range(1, len(STEPS) + 1), ids=lambda at: f"{at}-{STEPS[at - 1]}")
def test_killed_at_any_step_it_told_nothing_untrue_and_signs_nothing_smaller(
    made: Made, nursery: Nursery, tmp_path: Path, at: int
) -> None:
    whole = Whole(made, tmp_path / "before")
    grown(made, "more")
    with nursery.start(job(made, at=at)) as child:
        assert child.ended() == -9
    assert has_memory(made) == (at >= REMEMBERED)
    assert len(notes(folder(made))) == (at >= KEPT)
    # A span tells of no note that is not there.
    assert len(spans_of_checkpoints(made)) == (at >= RECORDED)
    after = Whole(made, tmp_path / "after")
    whole.put_back()
    with made.open() as issuer:
        assert issuer.audit_checkpoint().code == (
            "checkpoint_refused" if at >= REMEMBERED else "checkpointed"
        )
    if at < REMEMBERED:
        return
    after.put_back()
    with made.open() as issuer:
        answer = signed(issuer)
        size = verified(str(answer.more["note"]), vkey(issuer)).size
    # What the killed one did not come to is made good, once.
    assert size in {said["permit.tree.size"] for said in spans_of_checkpoints(made)}
    assert (folder(made) / "latest").read_text() == answer.more["note"]
    demand_true(made)


@pytest.mark.spec("AUD-04")
@pytest.mark.parametrize("at", [REMEMBERED, KEPT])
def test_after_a_kill_and_more_spans_the_next_checkpoint_goes_on_and_records_what_was_kept(
    made: Made, nursery: Nursery, at: int
) -> None:
    with nursery.start(job(made, at=at)) as child:
        assert child.ended() == -9
    grown(made, "more")
    with made.open() as issuer:
        signed(issuer)
    assert len(spans_of_checkpoints(made)) == (2 if at == KEPT else 1)
    demand_true(made)


@pytest.mark.spec("AUD-04", "AUD-01")
def test_two_processes_that_sign_at_once_both_answer_what_is_true(made: Made, nursery: Nursery) -> None:
    for turn in range(3):
        grown(made, f"n{turn}")
        with nursery.start(job(made, traced=True)) as one, nursery.start(job(made, traced=True)) as other:
            for child in (one, other):
                child.stopped()
            for child in (one, other):
                child.resume()
            answers = [child.answered() for child in (one, other)]
            assert [child.ended() for child in (one, other)] == [0, 0]
        assert {said["code"] for said in answers} == {"checkpointed"}
        with made.open(reading=True) as issuer:
            key = vkey(issuer)
        for said in answers:
            assert verified(str(said["note"]), key).size == said["size"]
        assert len({said["size"] for said in answers}) == 1
    assert len(spans_of_checkpoints(made)) == 3
    demand_true(made)


@can_strike
@pytest.mark.spec("AUD-04", "AUD-02")
@pytest.mark.parametrize(
    ("call", "what"),
    [
        ("fsync", "error=EIO"),
        ("renameat", "error=EIO"),
        pytest.param("fsync", "signal=KILL", marks=pytest.mark.soak),
        ("renameat", "signal=KILL"),
    ],
)
def test_struck_at_any_write_of_the_signer_it_stays_true(
    made: Made, nursery: Nursery, tmp_path: Path, call: str, what: str
) -> None:
    """Every call of the name that one signing makes: an error is answered as such, and the next one makes it good."""
    with made.open() as issuer:
        signed(issuer)
    grown(made, "counted")
    count = calls_of(nursery, job(made, traced=True), tmp_path / "log").get(call, 0)
    assert count >= 3
    for number in range(1, count + 1):
        grown(made, f"n{number}")
        before = len(bodies(made))
        blow = Blow(call=call, number=number, what=what)
        struck = strike(nursery, job(made, traced=True), blow, tmp_path / "log")
        assert struck.fell
        if what == "error=EIO":
            # Those that come after the span is durable are the database's own, as it closes.
            done = len(bodies(made)) > before
            assert struck.code == ("checkpointed" if done else "audit_unavailable") or (
                struck.code in {"ledger_unavailable", "outcome_unknown"}
            )
        with made.open() as issuer:
            answer = signed(issuer)
            assert int(str(answer.more["size"])) >= before
        demand_true(made)
