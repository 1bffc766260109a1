"""Development case D03 for what is not sent over HTTP: a file that the issuer creates, and a command of the host's.

The same three points: (a) after the admission, before anything happened; (b) after it happened, before that is
recorded; (c) after it is recorded. Starting again repeats nothing, and what an inspection then sees is the truth.
"""

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from issuer import Issuer
from issuer.flow.binding import Pinned
from issuer.flow.prepare import request_of
from issuer.flow.reference import bound_operation, open_binding
from issuer.operations.contract import Look, Seen
from ledger.model import DurationMs, EffectId
from tests.support.cases import all_at, books, command, state_of
from tests.support.committing import Job
from tests.support.issuers import STANDARD_POLICY, Made, permitted, standard_issuer
from tests.support.kills import Nursery, spans_named, step_number
from tests.support.polling import readable

AMOUNT = 7
PATIENCE_S = 30.0
NOTES = """[operation.note]
class = "refund"
resource = { type = "Note", id = "{path}" }
payload = { path = { string = 200, public = true }, content = { string = 4096 } }
cost = { "USD.cent" = 7 }
file = { action = "create", root = "outbox", path = "{path}", content = "{content}" }
[operation.publish]"""
POLICY = """
@id("notes")
permit (principal is Actor in Group::"bots", action == Action::"issue", resource is Note);
"""

pytestmark = pytest.mark.spec("REP-05", "ADM-07", "BUD-04", "LED-01")


@dataclass(frozen=True, kw_only=True)
class Ground:
    """An issuer, and where its two operations leave their marks."""

    made: Made
    nursery: Nursery

    @property
    def acted(self) -> Path:
        return self.made.folder / "acted"

    def permit(self, kind: str) -> str:
        with self.made.open() as issuer:
            if kind == "file":
                payload = {"path": "n-1", "content": "new"}
                return permitted(issuer.request("note", payload, task="t1", actor="agent-7"))
            return permitted(issuer.request("publish", {"name": "r-1"}, task="t1", actor="agent-7"))

    def job(self, kind: str, effect: str, at: str | None, after: str = "") -> Job:
        argv = ["sh", "-c", f"echo acted >> {self.acted}; {after}"]
        return Job(
            profile=str(self.made.profile),
            command="commit" if kind == "file" else "dispatch",
            arguments={"effect": effect} if kind == "file" else {"effect": effect, "argv": argv},
            at=None if at is None else step_number(at),
        )

    def effects(self, kind: str) -> int:
        if kind == "file":
            return len(list((self.made.folder / "outbox").iterdir()))
        return len(self.acted.read_text().splitlines()) if self.acted.exists() else 0


@pytest.fixture
def ground(tmp_path: Path, nursery: Nursery) -> Ground:
    (tmp_path / "f0" / "outbox").mkdir(parents=True, mode=0o700)
    changes = {
        "[operation.publish]": NOTES,
        'cost = { "USD.cent" = 1 }': f'cost = {{ "USD.cent" = {AMOUNT} }}',
    }
    made = standard_issuer(tmp_path / "f0", port=9, policy=STANDARD_POLICY + POLICY, changes=changes)
    return Ground(made=made, nursery=nursery)


@pytest.fixture
def gone(tmp_path: Path) -> Iterator[int]:
    """A pipe with a name, at `tmp_path/gone`; its end says that nobody is left who has it open."""
    os.mkfifo(tmp_path / "gone")
    reading = os.open(tmp_path / "gone", os.O_RDONLY | os.O_NONBLOCK)
    yield reading
    os.close(reading)


def started_again(ground: Ground, kind: str, effect: str, *, state: str, happened: int) -> None:
    """Give what a restart would give; none of it sends."""
    shown = command(ground.made, "list", "--state", state)
    assert (shown.exit, effect in str(shown.answer)) == (0, True)
    code = "outcome_unknown" if state == "unknown" else state
    again = ["sh", "-c", f"echo again >> {ground.acted}"]
    with ground.made.open() as issuer:
        told = [issuer.commit(effect), issuer.dispatch(effect, again), issuer.admit(effect)]
        right = told[0] if kind == "file" else told[1]
        assert right.code == code
        assert not any(one.retryable or one.code in {"admitted", "permitted"} for one in told)
        held = all_at(settled=AMOUNT) if state == "succeeded" else all_at(reserved=AMOUNT)
        assert (state_of(issuer, effect), books(issuer)) == (state, held)
        assert spans_named(issuer, effect, "effect.admitted") == 1
    assert ground.effects(kind) == happened
    assert Issuer.ledger_check(ground.made.profile).code == "found"


def seen_by_inspection(ground: Ground, effect: str) -> Seen:
    """Look at a file's entry as reconciliation would, long after the one that was to change it has gone."""
    with ground.made.open() as issuer:
        house = issuer._house
        found = house.ledger.read(lambda view: view.effect(EffectId(effect)))
        assert found is not None
        operation = bound_operation(house, found)
        pinned: Pinned = open_binding(house, found, operation)
        assert operation.inspector is not None
        assert operation.absence is not None
        look = Look(
            effect_id=found.effect_id,
            request=request_of(house, pinned),
            preparation=pinned.preparation,
            remaining_ms=DurationMs(10_000),
        )
        return operation.inspector.inspect(look).seen


@pytest.mark.parametrize("kind", ["file", "host"])
def test_a_killed_after_the_admission_and_before_anything_happens(ground: Ground, kind: str) -> None:
    effect = ground.permit(kind)
    with ground.nursery.start(ground.job(kind, effect, "admission:committed")) as child:
        assert child.ended() == -signal.SIGKILL
    started_again(ground, kind, effect, state="unknown", happened=0)
    if kind == "file":
        assert seen_by_inspection(ground, effect) is Seen.ABSENT


@pytest.mark.parametrize("kind", ["file", "host"])
def test_b_killed_after_it_happened_and_before_that_is_recorded(ground: Ground, kind: str) -> None:
    effect = ground.permit(kind)
    with ground.nursery.start(ground.job(kind, effect, "answered")) as child:
        assert child.ended() == -signal.SIGKILL
    started_again(ground, kind, effect, state="unknown", happened=1)
    if kind == "file":
        assert seen_by_inspection(ground, effect) is Seen.FOUND


@pytest.mark.spec("OPR-06")
def test_b_killed_while_the_command_is_at_it(ground: Ground, tmp_path: Path, gone: int) -> None:
    effect = ground.permit("host")
    after = f"exec 3>{tmp_path / 'gone'}; echo up >&3; sleep 600 & sleep 600; echo acted >> {ground.acted}"
    with ground.nursery.start(ground.job("host", effect, None, after)) as child:
        assert readable(gone, PATIENCE_S)
        assert os.read(gone, 16) == b"up\n"
        child.kill()
        assert readable(gone, PATIENCE_S)
        assert os.read(gone, 16) == b""
    started_again(ground, "host", effect, state="unknown", happened=1)


@pytest.mark.parametrize("kind", ["file", "host"])
def test_c_killed_after_the_outcome_is_recorded(ground: Ground, kind: str) -> None:
    effect = ground.permit(kind)
    with ground.nursery.start(ground.job(kind, effect, "settled")) as child:
        assert child.ended() == -signal.SIGKILL
    started_again(ground, kind, effect, state="succeeded", happened=1)
