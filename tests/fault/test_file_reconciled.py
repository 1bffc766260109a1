"""What a lost sender did to a file is found by looking, and nothing is given back while the sender may still act."""

import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from issuer import Issuer
from issuer.clock import now_ms
from issuer.operations.deriving import DISPATCH_DEADLINE_MS
from issuer.wire import Answer
from tests.support.cases import all_at, books
from tests.support.committing import Job, file_clock, pass_time
from tests.support.issuers import STANDARD_POLICY, Made, permitted, standard_issuer
from tests.support.kills import Child, Nursery, step_number

AMOUNT = 7
OPERATIONS = """[operation.note]
class = "refund"
resource = { type = "Note", id = "{path}" }
payload = { path = { string = 200, public = true }, content = { string = 4096 } }
cost = { "USD.cent" = 7 }
file = { action = "create", root = "outbox", path = "{path}", content = "{content}" }
[operation.edit]
class = "refund"
resource = { type = "Note", id = "{path}" }
payload = { path = { string = 200, public = true }, content = { string = 4096 } }
cost = { "USD.cent" = 7 }
file = { action = "replace", root = "outbox", path = "{path}", content = "{content}" }
[operation.remove]
class = "refund"
resource = { type = "Note", id = "{path}" }
payload = { path = { string = 200, public = true }, content = { string = 4096 } }
cost = { "USD.cent" = 7 }
file = { action = "delete", root = "outbox", path = "{path}" }
[operation.publish]"""
POLICY = """
@id("notes")
permit (principal is Actor in Group::"bots", action == Action::"issue", resource is Note);
"""
ACTIONS = {"note": None, "edit": "old", "remove": "old"}
"""Each operation, and what stands in the file before it."""


@dataclass(kw_only=True)
class Ground:
    """One issuer whose clock is a file, and a desk that asks."""

    made: Made
    nursery: Nursery
    time: Path
    desk: Issuer = field(init=False)

    @property
    def file(self) -> Path:
        return self.made.folder / "outbox" / "n-1"

    def pass_ms(self, milliseconds: int) -> None:
        pass_time(self.time, milliseconds)

    def asked(self, operation: str) -> str:
        payload = {"path": "n-1", "content": "new"}
        return permitted(self.desk.request(operation, payload, task="t1", actor="agent-7"))

    def start(self, effect: str, at: str, sends: int = signal.SIGKILL) -> Child:
        return self.nursery.start(
            Job(
                profile=str(self.made.profile),
                command="commit",
                arguments={"effect": effect},
                at=step_number(at),
                sends=sends,
                clock=str(self.time),
            )
        )

    def killed(self, operation: str, at: str) -> str:
        before = ACTIONS[operation]
        if before is not None:
            self.file.write_text(before)
            self.file.chmod(0o600)
        effect = self.asked(operation)
        with self.start(effect, at) as child:
            assert child.ended() == -signal.SIGKILL
        return effect

    def looked(self, effect: str) -> tuple[Answer, object, object]:
        told = self.desk.reconcile(effect)
        attempt: Any = told.more["attempt"]
        return told, attempt["seen"], attempt["reason"]


@pytest.fixture
def ground(tmp_path: Path, nursery: Nursery) -> Iterator[Ground]:
    (tmp_path / "f0" / "outbox").mkdir(parents=True, mode=0o700)
    made = standard_issuer(
        tmp_path / "f0", port=9, policy=STANDARD_POLICY + POLICY, changes={"[operation.publish]": OPERATIONS}
    )
    ground = Ground(made=made, nursery=nursery, time=tmp_path / "time")
    ground.time.write_text(str(now_ms()))
    with made.open(clock=file_clock(ground.time)) as ground.desk:
        yield ground


@pytest.mark.spec("REC-02", "REC-01", "BUD-03", "ADM-07")
@pytest.mark.parametrize("operation", ACTIONS)
def test_what_a_killed_sender_did_is_found_and_charged_once(ground: Ground, operation: str) -> None:
    effect = ground.killed(operation, "answered")
    found, seen, reason = ground.looked(effect)
    assert (found.code, seen, reason) == ("succeeded", "found", "inspection_found")
    assert books(ground.desk) == all_at(settled=AMOUNT)
    assert ground.desk.reconcile(effect).code == ground.desk.commit(effect).code == "succeeded"
    assert books(ground.desk) == all_at(settled=AMOUNT)
    assert Issuer.ledger_check(ground.made.profile).code == "found"


@pytest.mark.spec("REC-02", "BUD-04", "ADM-07")
@pytest.mark.parametrize("operation", ACTIONS)
def test_what_a_killed_sender_did_not_do_is_given_back_once_its_deadline_has_passed(
    ground: Ground, operation: str
) -> None:
    effect = ground.killed(operation, "looked_again")
    early, seen, reason = ground.looked(effect)
    assert (early.code, seen, reason) == ("outcome_unknown", "absent", "absence_too_early")
    assert books(ground.desk) == all_at(reserved=AMOUNT)
    ground.pass_ms(DISPATCH_DEADLINE_MS + 1)
    gone, seen, reason = ground.looked(effect)
    assert (gone.code, seen, reason) == ("no_effect", "absent", "absence_conclusive")
    assert books(ground.desk) == all_at()
    assert ground.desk.commit(effect).code == "no_effect"
    before = ACTIONS[operation]
    assert (ground.file.read_text() if ground.file.exists() else None) == before


@pytest.mark.spec("REC-02", "ADM-07", "BUD-04", "REP-05")
@pytest.mark.parametrize("operation", ACTIONS)
def test_nothing_is_given_back_while_a_stopped_sender_may_still_act_and_it_does_not(
    ground: Ground, operation: str
) -> None:
    before = ACTIONS[operation]
    if before is not None:
        ground.file.write_text(before)
        ground.file.chmod(0o600)
    effect = ground.asked(operation)
    with ground.start(effect, "looked_again", signal.SIGSTOP) as sender:
        sender.stopped()
        ground.pass_ms(10 * DISPATCH_DEADLINE_MS)
        for _ in range(2):
            told, seen, _reason = ground.looked(effect)
            assert (told.code, seen) == ("outcome_unknown", "absent")
            assert books(ground.desk) == all_at(reserved=AMOUNT)
        sender.resume()
        assert sender.answer()["code"] == "not_dispatched"
    assert (ground.file.read_text() if ground.file.exists() else None) == before
    assert books(ground.desk) == all_at()


@pytest.mark.spec("REC-02", "REC-05", "BUD-04")
def test_a_file_that_somebody_fetched_is_no_proof_that_there_never_was_one(ground: Ground) -> None:
    effect = ground.killed("note", "answered")
    ground.file.unlink()
    ground.pass_ms(DISPATCH_DEADLINE_MS + 1)
    told, seen, _reason = ground.looked(effect)
    assert (told.code, seen) == ("outcome_unknown", "unclear")
    assert books(ground.desk) == all_at(reserved=AMOUNT)
