"""Stops beside a commit that is under way: ordered before it nothing is sent, after it the outcome is the real one.

Where it falls between the admission and the sending, the winner looks once more and takes its admission back.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from audit import Acknowledged
from issuer import Issuer
from issuer.clock import now_ms
from issuer.flow.steps import Reached
from issuer.operations.contract import Answer as Told
from issuer.operations.contract import AuthorityEndedError, NotDispatchedError, Order, Proof
from ledger.model import InstantMs
from tests.support.cases import NOTHING, Clock, all_at, books, refusals, state_of, trail
from tests.support.charging import ChargingAdapter, with_adapter
from tests.support.issuers import HOUR_MS, Made, permitted, refund, standard_issuer
from tests.support.racing import Child
from tests.support.reconciling import attempt_of, opened_inquiry
from tests.support.service import Service, answer, held
from tests.support.shell import environment, issuer_process
from tests.support.sinks import FaultySink
from tests.support.third_party import admitted_issuer, installed

pytestmark = pytest.mark.spec("ADM-05")

ROUNDS = 12
ACTS: dict[str, Callable[[Issuer, str], Any]] = {
    "effect": lambda issuer, effect: issuer.revoke("effect", effect),
    "actor": lambda issuer, _effect: issuer.revoke("actor", "agent-7"),
    "person": lambda issuer, _effect: issuer.revoke("person", "u-ana"),
    "all": lambda issuer, _effect: issuer.revoke("all"),
    "task": lambda issuer, _effect: issuer.revoke("task", "org"),
    "frozen": lambda issuer, _effect: issuer.freeze("operation", "refund"),
}


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as running:
        yield running


@pytest.fixture
def made(tmp_path: Path, service: Service) -> Made:
    return standard_issuer(tmp_path / "f0", port=service.port)


def names(issuer: Issuer, effect: str) -> list[str]:
    return [one.name for one in trail(issuer) if one.attributes.get("permit.effect.id") == effect]


# ------------------------------------------------------------------------------------ the second look


@pytest.mark.spec("REP-04", "BUD-04", "BUD-06")
@pytest.mark.parametrize("act", ACTS)
def test_what_is_stopped_while_the_winner_waits_for_its_sinks_is_taken_back(
    made: Made, service: Service, act: str
) -> None:
    """The stop comes after the admission and before the first byte: the winner proves that it sent nothing."""
    effects: list[str] = []
    told: list[Any] = []

    def observe(step: str) -> None:
        if step == Reached.ACKNOWLEDGED and effects:
            with made.open() as operator:
                told.append(ACTS[act](operator, effects[0]))

    with made.open(observe=observe) as host:
        effect = permitted(refund(host))
        effects.append(effect)
        done = host.commit(effect)
        code = {"task": "prepare_again", "frozen": "prepare_again"}.get(act, "revoked")
        assert (done.code, done.state) == (code, "no_effect")
        assert books(host) == dict.fromkeys(("t1", "org"), NOTHING)
    (said,) = told
    if act == "effect":
        assert (said.code, said.state) == ("too_late", "admitted")
    else:
        assert [row["effect"] for row in said.more["too_late"]] == [effect]
        assert "look at them" in said.say
    assert service.connections == 0


def test_a_claim_is_not_handed_to_a_host_whose_effect_was_revoked_meanwhile(made: Made) -> None:
    sink = FaultySink()
    told: list[Any] = []
    with made.open(further_sinks=[sink]) as host, made.open() as operator:
        effect = permitted(host.request("publish", {"name": "v1"}, task="t1", actor="agent-7"))

        def revoked_first(_sink: FaultySink, honest: Acknowledged | None) -> Acknowledged | None:
            told.append(operator.revoke("effect", effect))
            return honest

        sink.fail(revoked_first, probe=False)
        admitted = host.admit(effect)
        assert (admitted.code, admitted.state) == ("revoked", "no_effect")
        assert "claim" not in admitted.more
    assert told[0].code == "too_late"


# ------------------------------------------------------------------------------------ too late


@pytest.mark.parametrize("act", ACTS)
def test_after_the_dispatch_began_it_is_too_late_and_the_effect_keeps_its_real_outcome(
    made: Made, service: Service, act: str
) -> None:
    gate = service.gate("booked")
    service.then(held("booked", answer(201)))
    told: list[Any] = []
    with made.open() as host, made.open() as operator:
        effect = permitted(refund(host))
        sending = threading.Thread(target=lambda: told.append(host.commit(effect)))
        sending.start()
        service.wait_for(requests=1)
        said = ACTS[act](operator, effect)
        again = operator.revoke("effect", effect)
        assert (again.code, again.retryable) == ("too_late", False)
        gate.set()
        sending.join()
        assert [one.code for one in told] == ["succeeded"]
        assert (state_of(host, effect), books(host)) == ("succeeded", all_at(settled=300))
        assert said.code == "too_late" if act == "effect" else said.more["too_late_count"] == 1
        assert operator.revoke("effect", effect).code == "too_late"
        # It is said once that it came late, however often it is asked for.
        assert names(host, effect).count("effect.revoked_late") == 1
        assert refusals(host).count(("too_late", None, None)) == (3 if act == "effect" else 2)
    assert len(service.requests) == 1


@pytest.mark.spec("REC-03", "SUR-05")
@pytest.mark.parametrize("act", ["effect", "actor", "frozen"])
def test_nothing_is_sent_again_for_what_was_revoked_or_is_frozen(tmp_path: Path, act: str) -> None:
    with opened_inquiry(tmp_path / "f0", resend=True) as inquiry:
        effect = inquiry.unknown()
        inquiry.service.then(answer(201, effect=False))
        ACTS[act](inquiry.issuer, effect)
        said = inquiry.issuer.reconcile(effect, resend=True)
        why = "suspended" if act == "frozen" else "revoked"
        assert (said.code, said.more["field"], said.retryable) == ("outcome_unknown", why, False)
        assert "nothing was sent" not in said.say.lower()
        assert (len(inquiry.service.requests), state_of(inquiry.issuer, effect)) == (1, "unknown")
        if act == "frozen":
            inquiry.issuer.thaw("operation", "refund")
            assert inquiry.issuer.reconcile(effect, resend=True).code == "succeeded"
        assert inquiry.checked()


@pytest.mark.spec("REC-03")
@pytest.mark.parametrize("act", ["effect", "person", "frozen", "task"])
def test_nothing_is_sent_again_for_what_is_stopped_while_the_attempt_is_put_on_record(
    tmp_path: Path, act: str
) -> None:
    effects: list[str] = []
    told: list[Any] = []

    def observe(step: str) -> None:
        if step == Reached.ATTEMPT_ACKNOWLEDGED:
            with inquiry.made.open(clock=inquiry.clock) as operator:
                told.append(ACTS[act](operator, effects[0]))

    with opened_inquiry(tmp_path / "f0", resend=True, observe=observe) as inquiry:
        effects.append(inquiry.unknown())
        inquiry.service.then(answer(201, effect=False))
        said = inquiry.issuer.reconcile(effects[0], resend=True)
        assert (said.code, said.state, len(told)) == ("outcome_unknown", "unknown", 1)
        assert attempt_of(said) == ("unclear", "resend_not_sent")
        assert len(inquiry.service.requests) == 1


@pytest.mark.spec("BUD-05", "REC-01")
def test_what_is_frozen_is_still_looked_at(tmp_path: Path) -> None:
    with opened_inquiry(tmp_path / "f0") as inquiry:
        effect = inquiry.unknown()
        inquiry.issuer.freeze()
        assert inquiry.issuer.reconcile(effect).code in {"succeeded", "outcome_unknown"}
        assert "effect.inspecting" in inquiry.names(effect)


# ------------------------------------------------------------------------------------ races


@pytest.fixture(scope="module")
def processes() -> Iterator[list[Child]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Child()) for _ in range(2)]


@pytest.mark.spec("ADM-02", "ADM-06", "REP-01")
@pytest.mark.parametrize("act", [("revoke", "effect"), ("revoke", "actor", "agent-7"), ("freeze", "all")])
def test_a_revocation_and_a_commit_in_two_processes_have_one_winner_each_round(
    processes: list[Child], made: Made, service: Service, act: tuple[str, ...]
) -> None:
    """Never both revoked and sent; whichever transaction is first wins, and both are told the same story."""
    won = 0
    with made.open() as issuer:
        for number in range(ROUNDS):
            service.then(answer(201))
            effect = permitted(refund(issuer, order=f"r-{number}", amount=1))
            before = len(service.effects)
            stopping = [*act, effect] if act[-1] == "effect" else list(act)
            committing, revoking = processes
            committing.order(made, calls=[["commit", effect]])
            revoking.order(made, calls=[stopping])
            for child in processes:
                child.ready()
            for child in processes if number % 2 else processes[::-1]:
                child.go()
            done, said = committing.said(), revoking.said()
            sent, state = len(service.effects) - before, state_of(issuer, effect)
            told_late = [row["effect"] for row in said.get("too_late", [])]  # type: ignore[attr-defined]
            is_late = said["code"] == "too_late" or effect in told_late
            match (done["code"], state):
                case ("succeeded", "succeeded"):
                    assert sent == 1
                    won += 1
                case ("revoked", "revoked") | ("suspended", "permitted"):
                    assert (sent, is_late) == (0, False)
                case ("revoked" | "prepare_again", "no_effect"):
                    assert (sent, is_late) == (0, True)
                case other:
                    raise AssertionError((other, said))
            for kind, name in (("actor", "agent-7"), ("all", None)):
                issuer.thaw(kind, name)
        assert len(service.effects) == won
        assert {line.reserved for line in books(issuer).values()} == {0}


# ------------------------------------------------------------------------------------ the checkpoint


class TwoSteps(ChargingAdapter):
    """Does two protected steps, and asks before each whether it still may; implements `contract.Adapter`."""

    def __init__(self, between: Callable[[], object], catches: str = "") -> None:
        super().__init__()
        self._between = between
        self._catches = catches
        self.steps: list[str] = []
        self.why = ""

    def dispatch(self, order: Order) -> Told:
        """See `Adapter.dispatch`."""
        try:
            self._step(order, "first", before=self._catches == "before the first")
            self._step(order, "second", before=self._catches != "before the first")
        except AuthorityEndedError as over:
            self.why = over.reason
            if not self.steps and self._catches:
                raise NotDispatchedError(over.reason) from None
            if self._catches == "proves the part":
                return Told(proof=Proof.PARTIAL, source="first_step")
            raise
        return Told(proof=Proof.SUCCEEDED, source="both_steps")

    def _step(self, order: Order, name: str, *, before: bool) -> None:
        if before:
            self._between()
        order.still_allowed()
        self.steps.append(name)


ENDS: dict[str, tuple[Callable[[Issuer, str, Clock], Any], str]] = {
    "effect": (lambda issuer, effect, _clock: issuer.revoke("effect", effect), "revoked"),
    "actor": (lambda issuer, _effect, _clock: issuer.revoke("actor", "agent-7"), "revoked"),
    "frozen": (lambda issuer, _effect, _clock: issuer.freeze(), "suspended"),
    "task closed": (lambda issuer, _effect, _clock: issuer.task_close("org"), "task_closed"),
    "task frozen": (lambda issuer, _effect, _clock: issuer.task_freeze("t1"), "task_frozen"),
    "invocation": (
        lambda issuer, _effect, _clock: issuer.invocation_cancel(INVOCATION[0]),
        "invocation_over",
    ),
    "deadline": (lambda _issuer, _effect, clock: setattr(clock, "ahead_ms", 61_000), "deadline_passed"),
    "lifetime": (lambda _issuer, _effect, clock: setattr(clock, "ahead_ms", 29_000), "permit_expired"),
}
INVOCATION: list[str] = []


def in_memory(tmp_path: Path, clock: Clock, *, lifetime: str) -> Made:
    changes = {'lifetime = "10m"': f'lifetime = "{lifetime}"'}
    del clock
    return standard_issuer(tmp_path / "f2", port=9, changes=changes)


@pytest.mark.spec("REP-05", "BUD-04")
@pytest.mark.parametrize("end", ENDS)
def test_a_step_after_the_authority_ended_is_not_done_and_the_outcome_is_unknown(
    tmp_path: Path, end: str
) -> None:
    clock = Clock()
    act, reason = ENDS[end]
    made = in_memory(tmp_path, clock, lifetime="20s" if end == "lifetime" else "10m")
    with made.open(clock=clock) as plain, made.open(clock=clock) as operator:
        effects: list[str] = []
        adapter = TwoSteps(lambda: act(operator, effects[0], clock))
        host = with_adapter(plain, adapter)
        opened = host.invocation_open("t1", "agent-7", InstantMs(now_ms() + HOUR_MS))
        INVOCATION[:] = [str(opened.more["invocation"]["id"])]  # type: ignore[index]
        effect = permitted(refund(host, invocation=INVOCATION[0]))
        effects.append(effect)
        done = host.commit(effect)
        assert (adapter.steps, adapter.why) == (["first"], reason)
        assert (done.code, done.state) == ("outcome_unknown", "unknown")
        clock.ahead_ms = 0
        sources = [one.attributes.get("permit.evidence.source") for one in trail(plain)]
        assert f"authority_ended:{reason}" in sources
        assert books(plain) == all_at(reserved=300)


@pytest.mark.spec("REP-04", "REP-06")
@pytest.mark.parametrize(
    ("catches", "steps", "code", "state"),
    [
        ("before the first", [], "not_dispatched", "no_effect"),
        ("proves the part", ["first"], "outcome_unknown", "unknown"),
    ],
)
def test_an_adapter_says_what_it_proves_of_a_sending_that_was_stopped(
    tmp_path: Path, catches: str, steps: list[str], code: str, state: str
) -> None:
    made = in_memory(tmp_path, Clock(), lifetime="10m")
    with made.open() as plain, made.open() as operator:
        effects: list[str] = []
        adapter = TwoSteps(lambda: operator.revoke("effect", effects[0]), catches)
        host = with_adapter(plain, adapter)
        effects.append(permitted(refund(host)))
        done = host.commit(effects[0])
        assert (adapter.steps, done.code, done.state) == (steps, code, state)
        assert adapter.why == "revoked"


def test_where_nothing_ended_every_step_is_done(tmp_path: Path) -> None:
    made = in_memory(tmp_path, Clock(), lifetime="10m")
    with made.open() as plain, made.open() as operator:
        adapter = TwoSteps(lambda: operator.freeze("actor", "agent-8"))
        host = with_adapter(plain, adapter)
        assert host.commit(permitted(refund(host))).code == "succeeded"
        assert adapter.steps == ["first", "second"]


@pytest.mark.spec("OPR-01", "SUR-01")
def test_an_installed_adapter_is_stopped_between_its_steps_by_another_process(
    tmp_path: Path, service: Service
) -> None:
    gate = service.gate("first")
    service.then(held("first", answer(201)), answer(201))
    with installed(tmp_path / "site") as shop:
        made = admitted_issuer(tmp_path, shop, port=service.port, manner="two steps")
        environ = environment({})
        environ["PYTHONPATH"] += f"{os.pathsep}{shop.site}"
        told: list[Any] = []
        with made.open() as host:
            effect = permitted(refund(host))
            sending = threading.Thread(target=lambda: told.append(host.commit(effect)))
            sending.start()
            service.wait_for(requests=1)
            asking = (
                "--json",
                "--profile",
                str(made.profile),
                "revoke",
                "effect",
                effect,
                "--reason",
                "mistaken",
            )
            ran = issuer_process(*asking, at=tmp_path, env=environ)
            assert (ran.code, ran.exit) == ("too_late", 7), ran.out
            gate.set()
            sending.join()
            assert [(one.code, one.state) for one in told] == [("outcome_unknown", "unknown")]
            assert len(service.requests) == 1
            assert books(host) == all_at(reserved=300)
