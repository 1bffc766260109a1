"""An effect on the command line, from request to outcome: what is answered, with which exit code, and what was sent."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from issuer import Issuer
from tests.support.issuers import STANDARD_POLICY, Made, budget_line, permitted, refund, standard_issuer
from tests.support.service import Service, accept_then_close, answer
from tests.support.shell import Ran, issuer_here, issuer_process
from tests.support.witness import witness

POLICY = (
    STANDARD_POLICY
    + """
@id("never-this-order") @say("This order is closed for good.")
forbid (principal, action, resource is Order) when { resource.order == "o-closed" };
"""
)


@dataclass(frozen=True, kw_only=True)
class Room:
    made: Made
    service: Service

    def request(
        self, order: str = "o-1", amount: int = 300, *, task: str = "t1", more: tuple[str, ...] = ()
    ) -> Ran:
        document = json.dumps({"order": order, "amount": amount}).encode()
        options = ("--task", task, "--actor", "agent-7", "--payload", "-", *more)
        return issuer_here("--json", "request", "refund", *options, at=self.made.folder, stdin=document)

    def run(self, *arguments: str, stdin: bytes = b"") -> Ran:
        return issuer_here("--json", *arguments, at=self.made.folder, stdin=stdin)

    def held(self, task: str = "t1") -> tuple[object, object]:
        """Reserved and settled of a task."""
        with self.made.open() as issuer:
            line = budget_line(issuer, task)
        return line["reserved"], line["settled"]

    def publish(self) -> str:
        """A permitted effect that the host sends."""
        with self.made.open() as issuer:
            return permitted(issuer.request("publish", {"name": "v1"}, task="t1", actor="agent-7"))


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    with Service() as service:
        yield Room(made=standard_issuer(tmp_path / "f0", port=service.port, policy=POLICY), service=service)


@pytest.mark.spec("SUR-03", "EFF-06")
def test_a_request_from_a_file_says_what_it_would_cost_and_that_nothing_may_be_sent_yet(room: Room) -> None:
    (room.made.folder / "refund.json").write_text('{"order": "o-1", "amount": 500}')
    ran = issuer_process(
        "request",
        "refund",
        "--task",
        "t1",
        "--actor",
        "agent-7",
        "--payload",
        "refund.json",
        at=room.made.folder,
    )
    assert (ran.exit, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0].startswith("permitted  (f0/")
    assert lines[0].endswith(", ordinary)")
    assert "  cost: 5.00 USD" in lines
    assert '  resource: Order::"o-1"' in lines
    assert lines[-1] == "Permitted once; nothing may be sent yet: commit it to send it."
    assert "\x1b" not in ran.out
    assert room.service.counts()["connections"] == 0


@pytest.mark.parametrize(
    ("amount", "order", "task", "code", "exit_code", "named", "words"),
    [
        (500, "o-1", "org", "permitted", 0, {}, "nothing may be sent yet"),
        (501, "o-1", "org", "awaiting_approval", 4, {}, "nobody who could is registered with a key"),
        (300, "o-closed", "org", "denied", 3, {}, "This order is closed for good."),
        (401, "o-1", "t1.a", "budget_exceeded", 6, {"field": "USD.cent", "level": "t1.a"}, "level: t1.a"),
        (1001, "o-1", "t1.b", "budget_exceeded", 6, {"field": "USD.cent", "level": "t1"}, "level: t1"),
        (10001, "o-1", "org", "budget_exceeded", 6, {"field": "USD.cent", "level": "org"}, "level: org"),
    ],
)
@pytest.mark.spec("POL-01", "BUD-02", "SUR-02", "SUR-05")
def test_a_request_is_answered_by_tier_and_by_level(
    *,
    room: Room,
    amount: int,
    order: str,
    task: str,
    code: str,
    exit_code: int,
    named: dict[str, str],
    words: str,
) -> None:
    ran = room.request(order, amount, task=task)
    assert (ran.code, ran.exit, ran.err) == (code, exit_code, "")
    assert words in ran.answer["say"]
    assert {name: ran.answer[name] for name in ("field", "level") if name in ran.answer} == named
    assert room.held(task) == (0, 0)
    assert room.service.counts()["connections"] == 0


@pytest.mark.spec("EFF-06", "REP-01")
def test_a_held_effect_has_no_permit_until_it_is_taken_further(room: Room) -> None:
    held = room.request(more=("--hold",))
    assert (held.code, held.exit) == ("prepared", 0)
    assert "nothing may be sent yet" in held.answer["say"]
    assert witness(room.made).rows["permits"] == []
    early = room.run("commit", held.effect)
    assert (early.code, early.exit, early.answer["next"]) == ("not_permitted_yet", 7, "wait")
    further = room.run("request", held.effect)
    assert (further.code, further.exit, further.effect) == ("permitted", 0, held.effect)
    again = room.run("request", held.effect)
    assert again.answer == further.answer
    assert len(witness(room.made).rows["permits"]) == 1
    assert room.service.counts()["connections"] == 0


@pytest.mark.spec("EFF-11", "SUR-01")
def test_a_request_key_finds_its_effect_or_names_the_field_that_differs(room: Room) -> None:
    key = ("--request-key", "k-1")
    first = room.request(more=key)
    before = witness(room.made)
    assert room.request(more=key).answer == first.answer
    assert witness(room.made).rows == before.rows
    other = room.request(amount=301, more=key)
    assert (other.code, other.exit, other.answer["field"]) == ("request_key_reused", 7, "amount")
    assert witness(room.made).rows == before.rows


@pytest.mark.spec("SUR-02", "APP-03")
def test_waiting_ends_with_its_time_and_changes_nothing(room: Room) -> None:
    ran = room.request(amount=900, more=("--wait", "1s"))
    assert (ran.code, ran.exit) == ("awaiting_approval", 4)
    assert f"{ran.effect} waits for people until" in ran.err
    for wrong in ("30", "soon", "-1s", "1.5m"):
        assert room.request(amount=900, more=("--wait", wrong)).exit == 2
    assert room.request(amount=900, more=("--wait", "1s", "--hold")).exit == 2


@pytest.mark.parametrize(
    ("status", "code", "exit_code", "line"),
    [
        (201, "succeeded", 0, (0, 300)),
        (409, "failed", 9, (0, 300)),
        (402, "no_effect", 9, (0, 0)),
        (500, "outcome_unknown", 5, (300, 0)),
        (None, "outcome_unknown", 5, (300, 0)),
    ],
)
@pytest.mark.spec("REP-01", "REP-04", "REP-05", "REP-06", "ADM-04", "SUR-05")
def test_a_commit_sends_once_and_its_exit_code_says_what_the_service_proved(
    room: Room, status: int | None, code: str, exit_code: int, line: tuple[int, int]
) -> None:
    effect = room.request().effect
    room.service.then(accept_then_close() if status is None else answer(status), answer(201))
    start = issuer_process if status in {201, 500} else issuer_here
    ran = start("commit", effect, "--json", at=room.made.folder)
    assert (ran.code, ran.exit, ran.err) == (code, exit_code, "")
    assert ran.effect == effect
    assert ran.answer["retryable"] is False
    assert room.held() == line
    for _repeat in range(2):
        again = room.run("commit", effect)
        assert (again.code, again.exit) == (code, exit_code)
        assert again.answer["state"] == ran.answer["state"]
    assert room.run("request", effect).code == code
    assert room.held() == line
    assert room.service.counts() | {"closed": 0} == {
        "connections": 1, "handshakes_failed": 0, "closed": 0, "requests": 1, "lookups": 0,
        "effects": 0 if status not in {201, None} else 1,
    }  # fmt: skip


@pytest.mark.spec("SUR-02", "ADM-01")
def test_what_may_not_be_committed_is_refused_with_its_own_code(room: Room) -> None:
    waiting = room.request(amount=900).effect
    denied = room.request("o-closed")
    assert room.run("commit", waiting).code == "not_permitted_yet"
    assert (room.run("commit", denied.effect).code, room.run("commit", denied.effect).exit) == ("denied", 3)
    host = room.publish()
    ran = room.run("commit", host)
    assert (ran.code, ran.exit) == ("unsupported", 7)
    assert "use dispatch, or admit and report" in ran.answer["say"]
    effect = room.request().effect
    assert room.run("task", "close", "t1").code == "closed"
    ran = room.run("commit", effect)
    assert (ran.code, ran.exit, ran.answer["level"]) == ("task_closed", 7, "t1")
    assert room.service.counts()["connections"] == 0


@pytest.mark.parametrize(
    ("command", "code", "exit_code", "line"),
    [
        (["sh", "-c", "echo out; echo err >&2"], "succeeded", 0, (0, 1)),
        (["sh", "-c", "echo out; echo err >&2; exit 3"], "outcome_unknown", 5, (1, 0)),
    ],
)
@pytest.mark.spec("REC-07", "SUR-03", "REP-05")
def test_a_dispatched_command_runs_once_and_its_output_goes_to_standard_error(
    room: Room, command: list[str], code: str, exit_code: int, line: tuple[int, int]
) -> None:
    effect = room.publish()
    ran = issuer_process("--json", "dispatch", effect, "--", *command, at=room.made.folder)
    assert (ran.code, ran.exit) == (code, exit_code)
    assert sorted(ran.err.split()) == ["err", "out"]
    assert room.held() == line
    mark = room.made.folder / "ran-again"
    again = room.run("dispatch", effect, "--", "touch", str(mark))
    assert (again.code, again.exit) == (code, exit_code)
    assert not mark.exists()
    assert room.held() == line


@pytest.mark.spec("REP-04", "SUR-02")
def test_a_command_that_does_not_exist_proves_that_nothing_was_sent(room: Room) -> None:
    effect = room.publish()
    ran = issuer_here("dispatch", effect, "--json", "--", "./no-such-command", at=room.made.folder)
    assert (ran.code, ran.exit, ran.answer["state"]) == ("not_dispatched", 8, "no_effect")
    assert ran.answer["next"] == "prepare_again"
    assert room.held() == (0, 0)
    again = room.run("dispatch", effect, "--", "true")
    assert (again.code, again.exit) == ("not_dispatched", 8)
    assert room.held() == (0, 0)


@pytest.mark.spec("SUR-03")
def test_a_word_behind_the_dashes_belongs_to_the_command_and_not_to_us(room: Room) -> None:
    effect = room.publish()
    ran = issuer_process("dispatch", effect, "--", "echo", "--json", "--profile", "x", at=room.made.folder)
    assert (ran.exit, ran.err) == (0, "--json --profile x\n")
    assert ran.out.startswith("succeeded  (")
    typed = issuer_here("dispatch", "--", at=room.made.folder)
    assert (typed.exit, typed.out) == (2, "")
    typed = issuer_here("dispatch", "--wrong", "--", "--json", at=room.made.folder)
    assert (typed.exit, typed.out) == (2, "")


@pytest.mark.spec("ADM-07", "REC-07", "BUD-03")
def test_a_host_admits_once_and_reports_with_its_claim(room: Room) -> None:
    effect = room.publish()
    admitted = room.run("admit", effect)
    assert (admitted.code, admitted.exit, admitted.answer["next"]) == ("admitted", 0, "dispatch")
    claim = admitted.answer["claim"]
    assert claim.startswith("clm_")
    assert room.held() == (1, 0)
    again = room.run("admit", effect)
    assert (again.code, again.exit) == ("already_consumed", 7)
    assert "claim" not in again.answer
    wrong = room.run("report", effect, "--claim", "clm_" + "0" * 32, "--outcome", "succeeded")
    assert (wrong.code, wrong.exit) == ("forbidden", 7)
    assert room.held() == (1, 0)
    options = ("--outcome", "succeeded", "--cost", "USD.cent=0")
    done = room.run("report", effect, "--claim", "-", *options, stdin=f"{claim}\n".encode())
    assert (done.code, done.exit) == ("succeeded", 0)
    assert room.held() == (0, 1)
    twice = room.run("report", effect, "--claim", claim, *options)
    assert (twice.code, twice.exit) == ("already_consumed", 7)
    assert claim not in room.run("show", effect).out
    assert claim not in room.run("audit", "timeline", effect).out


@pytest.mark.spec("REC-07", "ADM-07")
def test_a_host_that_does_not_know_leaves_it_unknown_and_may_settle_it_late_once(room: Room) -> None:
    effect = room.publish()
    claim = room.run("admit", effect).answer["claim"]
    lost = room.run("report", effect, "--claim", claim, "--outcome", "unknown")
    assert (lost.code, lost.exit) == ("outcome_unknown", 5)
    assert room.held() == (1, 0)
    assert (room.run("admit", effect).code, room.run("admit", effect).exit) == ("outcome_unknown", 5)
    late = room.run("report", effect, "--claim", claim, "--outcome", "succeeded")
    assert (late.code, late.exit) == ("succeeded", 0)
    assert room.run("show", effect).answer["record"]["evidence"][-1]["late"] is True
    assert room.held() == (0, 1)


@pytest.mark.spec("EFF-09", "AUD-05", "SUR-01", "SUR-03")
def test_an_effect_is_shown_listed_and_told_alike_by_both_surfaces(room: Room) -> None:
    with room.made.open() as issuer:
        sent, waiting = permitted(refund(issuer)), refund(issuer, amount=900).effect
        room.service.then(answer(201))
        assert issuer.commit(sent).code == "succeeded"
        told = _told(issuer, sent)
        listed = [
            issuer.list(states).as_json()
            for states in ((), ("succeeded",), ("succeeded", "awaiting_approval"))
        ]
    ran = [room.run("show", sent), room.run("audit", "timeline", sent)]
    assert [one.answer for one in ran] == told
    assert room.run("list").answer == listed[0]
    assert room.run("list", "--state", "succeeded").answer == listed[1]
    assert [row["effect"] for row in listed[1]["effects"]] == [sent]  # type: ignore[attr-defined]
    assert [row["effect"] for row in listed[2]["effects"]] == [sent, waiting]  # type: ignore[attr-defined]
    names = [entry["name"] for entry in ran[1].answer["timeline"]]
    assert names == ["effect.prepared", "effect.permitted", "effect.admitted", "effect.succeeded"]
    sequences = [entry["sequence"] for entry in ran[1].answer["timeline"]]
    assert sequences == sorted(set(sequences))
    record = ran[0].answer["record"]
    assert record["reserved"] == [
        {"task": name, "unit": "USD.cent", "amount": 300} for name in ("t1", "org")
    ]  # fmt: skip
    assert record["permit"]["caps"]["service_idempotency"] > record["permit"]["expires"]


def _told(issuer: Issuer, effect: str) -> list[dict[str, object]]:
    return [
        json.loads(json.dumps(answer.as_json())) for answer in (issuer.show(effect), issuer.timeline(effect))
    ]
