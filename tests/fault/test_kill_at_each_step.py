import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from issuer import Issuer
from issuer.wire import Answer
from ledger.states import EffectState
from tests.support.committing import Job
from tests.support.issuers import (
    STANDARD_POLICY,
    Made,
    budget_line,
    permitted,
    refund,
    standard_issuer,
)
from tests.support.kills import (
    PATIENCE_S,
    WAY,
    Nursery,
    plain_steps,
    spans_named,
    state_of,
    step_number,
    untouched_state,
)
from tests.support.polling import readable
from tests.support.service import Service, Step, answer, hang

AMOUNT = 7
FILE_OPERATION = """[operation.note]
class = "refund"
resource = { type = "Note", id = "{path}" }
payload = { path = { string = 200, public = true }, content = { string = 4096 } }
cost = { "USD.cent" = 7 }
file = { action = "create", root = "outbox", path = "{path}", content = "{content}" }
[operation.publish]"""
FILE_POLICY = """
@id("notes")
permit (principal is Actor in Group::"bots", action == Action::"issue", resource is Note);
"""
CONTENT = "complete\n" * 100

PERMITTED, ADMITTED, SUCCEEDED = EffectState.PERMITTED, EffectState.ADMITTED, EffectState.SUCCEEDED
LEFT: dict[str, tuple[EffectState, int]] = {
    "sinks_probed": (PERMITTED, 0),
    "admission:locked": (PERMITTED, 0),
    "admission:before_commit": (PERMITTED, 0),
    "admission:committed": (ADMITTED, 0),
    "admission_acknowledged": (ADMITTED, 0),
    "looked_again": (ADMITTED, 0),
    "answered": (ADMITTED, 1),
    "outcome:locked": (ADMITTED, 1),
    "outcome:before_commit": (ADMITTED, 1),
    "outcome:committed": (SUCCEEDED, 1),
    "settled": (SUCCEEDED, 1),
    "outcome_acknowledged": (SUCCEEDED, 1),
}
"""After kill -9 at this step: what the ledger holds, and how often the effect has happened."""


@dataclass(frozen=True, kw_only=True)
class Ground:
    """One issuer for every kill; `desk` is a process that lives through all of them."""

    made: Made
    desk: Issuer
    service: Service
    nursery: Nursery

    def commit(self, effect: str, at: str | None = None) -> Job:
        number = None if at is None else step_number(at)
        return Job(profile=str(self.made.profile), command="commit", arguments={"effect": effect}, at=number)


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory, nursery: Nursery) -> Iterator[Ground]:
    folder = tmp_path_factory.mktemp("kills")
    (folder / "f0" / "outbox").mkdir(parents=True, mode=0o700)
    with Service() as service:
        made = standard_issuer(
            folder / "f0",
            port=service.port,
            policy=STANDARD_POLICY + FILE_POLICY,
            changes={"[operation.publish]": FILE_OPERATION, 'deadline = "5m"': 'deadline = "2s"'},
        )
        with made.open() as desk:
            yield Ground(made=made, desk=desk, service=service, nursery=nursery)


def money(issuer: Issuer) -> list[tuple[int, int]]:
    """What is reserved and settled at the task and at its parent."""
    lines = [budget_line(issuer, task) for task in ("t1", "org")]
    return [(int(str(line["reserved"])), int(str(line["settled"]))) for line in lines]


def more(before: list[tuple[int, int]], *, reserved: int = 0, settled: int = 0) -> list[tuple[int, int]]:
    return [(held + reserved, spent + settled) for held, spent in before]


Ask = Callable[[Issuer], Answer]


def asking(key: str) -> Ask:
    """The request of one refund; asked again under its key it is the same effect."""
    return lambda issuer: refund(issuer, amount=AMOUNT, request_key=key.replace(":", "/"))


def noting(key: str) -> Ask:
    """The request to create one file."""
    payload = {"path": key.replace(":", "-"), "content": CONTENT}
    name = "note/" + payload["path"]
    return lambda issuer: issuer.request("note", payload, task="t1", actor="agent-7", request_key=name)


def asked(ground: Ground, ask: Ask) -> tuple[str, list[tuple[int, int]]]:
    return permitted(ask(ground.desk)), money(ground.desk)


def nothing_is_sent_again(ground: Ground, restarted: Issuer, effect: str, ask: Ask, *, code: str) -> None:
    """Show, list, commit, and ask under the same key, after a restart and elsewhere: no connection, no new permit."""
    connections = ground.service.connections
    for issuer in (restarted, ground.desk, restarted):
        assert issuer.show(effect).code == "found"
        assert effect in str(issuer.list([code.removeprefix("outcome_")]).more)
        again, repeated = issuer.commit(effect), ask(issuer)
        assert (again.code, again.effect, again.retryable) == (code, effect, False)
        assert (repeated.code, repeated.effect) == (code, effect)
    assert spans_named(restarted, effect, "effect.admitted") == 1
    assert spans_named(restarted, effect, "effect.permitted") == 1
    assert ground.service.connections == connections


@pytest.mark.spec("ADM-03")
def test_every_step_of_a_commit_is_told_in_its_order(ground: Ground) -> None:
    """What the table names is the whole way, so that no step is left out of it."""
    effect, _ = asked(ground, asking("all-steps"))
    ground.service.then(answer(201))
    with ground.nursery.start(ground.commit(effect)) as child:
        assert child.ended() == 0
        assert child.steps == plain_steps()
        assert child.answer()["code"] == "succeeded"
    assert list(LEFT) == list(WAY)


@pytest.mark.spec("ADM-02", "ADM-03", "ADM-07", "REP-05", "BUD-04", "LED-01", "PER-05")
@pytest.mark.parametrize("step", WAY)
def test_kill_9_at_a_step_leaves_one_honest_state_and_never_a_second_effect(
    ground: Ground, step: str
) -> None:
    ask = asking(step)
    effect, before = asked(ground, ask)
    state, happened = LEFT[step]
    if happened:
        ground.service.then(answer(201))
    killed(ground, effect, step)
    assert ground.service.effects_of(effect) == happened
    with ground.made.open() as issuer:
        assert_left(issuer, effect, state, before)
        if state is PERMITTED:
            ground.service.then(answer(201))
            assert issuer.commit(effect).code == "succeeded"
            assert money(issuer) == more(before, settled=AMOUNT)
        code = "outcome_unknown" if state is ADMITTED else "succeeded"
        nothing_is_sent_again(ground, issuer, effect, ask, code=code)
    assert ground.service.effects_of(effect) == (1 if state is PERMITTED else happened)


@pytest.mark.spec("ADM-02", "ADM-03", "ADM-07", "REP-05", "BUD-04", "LED-01", "PER-05")
@pytest.mark.parametrize("step", WAY)
def test_kill_9_at_a_step_leaves_a_file_absent_or_complete_as_its_state_says(
    ground: Ground, step: str
) -> None:
    ask = noting(step)
    effect, before = asked(ground, ask)
    state, happened = LEFT[step]
    killed(ground, effect, step)
    note = ground.made.folder / "outbox" / step.replace(":", "-")
    assert note.exists() == bool(happened)
    with ground.made.open() as issuer:
        assert_left(issuer, effect, state, before)
        if state is PERMITTED:
            assert issuer.commit(effect).code == "succeeded"
        before_repeats = seen(note)
        code = "outcome_unknown" if state is ADMITTED else "succeeded"
        nothing_is_sent_again(ground, issuer, effect, ask, code=code)
    assert seen(note) == before_repeats
    assert (before_repeats is not None) == (state is not ADMITTED or bool(happened))


@pytest.mark.spec("REP-05", "BUD-04", "ADM-07")
@pytest.mark.parametrize(
    ("script", "count", "happened"),
    [
        (hang(reads=False), "connections", 0),
        (hang(), "requests", 0),
        (hang(effect=True), "effects", 1),
    ],
    ids=["connected", "request_read", "done_and_not_answered"],
)
def test_kill_9_while_the_service_works_is_unknown_whatever_it_did(
    ground: Ground, script: Step, count: str, happened: int
) -> None:
    ask = asking("service-" + count)
    effect, before = asked(ground, ask)
    ground.service.then(script)
    so_far = ground.service.counts()[count]
    with ground.nursery.start(ground.commit(effect)) as child:
        ground.service.wait_for(**{count: so_far + 1})
        child.kill()
        assert child.steps == plain_steps()[: step_number("looked_again")]
    with ground.made.open() as issuer:
        assert_left(issuer, effect, ADMITTED, before)
        nothing_is_sent_again(ground, issuer, effect, ask, code="outcome_unknown")
    assert ground.service.effects_of(effect) == happened


def seen(note: Path) -> tuple[int, int] | None:
    """Which file stands there, complete, and when it was written; None where there is none."""
    if not note.exists():
        return None
    assert note.read_text() == CONTENT
    return note.stat().st_ino, note.stat().st_mtime_ns


def killed(ground: Ground, effect: str, step: str) -> None:
    """Commit in a process that kills itself at a step."""
    with ground.nursery.start(ground.commit(effect, at=step)) as child:
        assert child.ended() == -signal.SIGKILL
        assert child.steps == plain_steps()[: step_number(step)]


def assert_left(issuer: Issuer, effect: str, state: EffectState, before: list[tuple[int, int]]) -> None:
    """Check the record as a kill left it, and what the first touch of a fresh process makes of it."""
    assert untouched_state(issuer, effect) is state
    if state is PERMITTED:
        assert (state_of(issuer, effect), money(issuer)) == ("permitted", before)
        assert spans_named(issuer, effect, "effect.admitted") == 0
    elif state is ADMITTED:
        assert (state_of(issuer, effect), money(issuer)) == ("unknown", more(before, reserved=AMOUNT))
        assert spans_named(issuer, effect, "effect.unknown") == 1
    else:
        assert (state_of(issuer, effect), money(issuer)) == ("succeeded", more(before, settled=AMOUNT))


# -- a host's own command, when the issuer that runs it is killed or stopped (OPR-06)

ENDLESS = "exec 9>{fifo}; echo began >&9; trap '' TERM HUP INT; while :; do sleep 600 & wait; done"
"""Ignores what asks it to end, has children of its own, and holds the pipe open as long as any of them lives."""


@pytest.mark.spec("OPR-06", "REP-05", "ADM-07")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_the_command_of_a_killed_or_stopped_dispatch_does_not_outlive_its_deadline(
    ground: Ground, tmp_path: Path, number: signal.Signals
) -> None:
    effect, before = asked(
        ground, lambda desk: desk.request("publish", {"name": f"r-{number}"}, task="t1", actor="agent-7")
    )
    fifo = tmp_path / "alive"
    os.mkfifo(fifo)
    # Read and write, so that opening waits for nobody; the copy for reading then ends with the last writer.
    both = os.open(fifo, os.O_RDWR | os.O_CLOEXEC)
    alive = os.open(fifo, os.O_RDONLY | os.O_CLOEXEC)
    argv = ["sh", "-c", ENDLESS.format(fifo=fifo)]
    job = Job(
        profile=str(ground.made.profile), command="dispatch", arguments={"effect": effect, "argv": argv}
    )
    try:
        with ground.nursery.start(job) as child:
            assert read_within(alive) == b"began\n"
            os.close(both)
            child.send(number)
            assert read_within(alive) == b"", "something that was started for the effect still lives"
    finally:
        os.close(alive)
    assert untouched_state(ground.desk, effect) is ADMITTED
    assert (state_of(ground.desk, effect), money(ground.desk)) == ("unknown", more(before, reserved=1))
    assert ground.desk.dispatch(effect, ["touch", str(tmp_path / "again")]).code == "outcome_unknown"
    assert not (tmp_path / "again").exists()


def read_within(descriptor: int) -> bytes:
    """Read what comes next, empty at the end; fail where nothing does."""
    ready = readable(descriptor, PATIENCE_S)
    assert ready, "nothing was said in time"
    return os.read(descriptor, 100)
