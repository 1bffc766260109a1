"""Development case D12: what cannot be put on record does not happen; a sink fails in every way at every moment."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from audit import AuditUnavailable, Delivery, LedgerSpans
from issuer import Issuer
from issuer.flow.steps import Reached
from issuer.wire import Answer
from ledger.model import EffectId, TaskId
from tests.support.cases import (
    PATIENCE_S,
    all_at,
    books,
    effect_ids,
    length,
    rebuilt,
    small_tree,
    state_of,
    trail,
)
from tests.support.issuers import Made, permitted, refund, standard_issuer
from tests.support.service import Service, Step, accept_then_close, answer
from tests.support.sinks import LYING, RAISING, Fault, FaultySink, hangs

PROBE_FAULTS = (*RAISING, "hangs")
SHIP_FAULTS = (*RAISING, *LYING, "hangs")
SHORT_S = 0.15


def fault_of(row: str) -> Fault:
    return hangs if row == "hangs" else {**RAISING, **LYING}[row]


class Hooks:
    """What a test does at one named step of a commit, once."""

    def __init__(self) -> None:
        self.at: dict[str, Fault] = {}
        self.sink = FaultySink()

    def __call__(self, step: str) -> None:
        fault = self.at.pop(step, None)
        if fault is not None:
            self.sink.fail(fault, probe=self.probe_too)

    def plan(self, step: str, fault: Fault, *, probe_too: bool = True) -> None:
        """Let the sink have this fault from that step on."""
        self.probe_too = probe_too
        self.at = {str(step): fault}


@dataclass(kw_only=True)
class Shop:
    """One service, one issuer with a required sink in memory beside its file, and a tree for each test."""

    made: Made
    service: Service
    issuer: Issuer
    hooks: Hooks
    trees: int = 0

    @property
    def sink(self) -> FaultySink:
        return self.hooks.sink

    def recover(self) -> None:
        """Let the sink be well, and return once the issuer finds it so: a call that hung comes back by and by."""
        self.sink.recover()
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                self.issuer._house.delivery.probe()
            except AuditUnavailable:
                assert time.monotonic() < end
            else:
                return

    def tree(self) -> tuple[str, str]:
        self.trees += 1
        return small_tree(self.issuer, f"tree-{self.trees}")

    def slots(self, task: str) -> int:
        """Return how many automatic permits of the class the task has used."""

        def look(view: object) -> int:
            named = view.task_named(task)  # type: ignore[attr-defined]
            return view.counter(f"task|refund|{TaskId(named.task_id)}")  # type: ignore[attr-defined,no-any-return]

        return self.issuer._house.ledger.read(look)

    def assert_everything_is_on_record(self) -> None:
        """The sink has each span of the ledger once and in order, up to the last one it was asked for."""
        assert self.sink.sequences == list(range(1, len(self.sink.rows) + 1))
        assert len(self.sink.rows) <= length(self.issuer)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    hooks = Hooks()
    with Service() as service:
        made = standard_issuer(tmp_path_factory.mktemp("d12") / "f0", port=service.port)
        with made.open(observe=hooks, further_sinks=[hooks.sink]) as issuer:
            yield Shop(made=made, service=service, issuer=issuer, hooks=hooks)


@pytest.fixture
def shop(opened: Shop) -> Iterator[Shop]:
    """The shop with an impatient delivery of its own, so that a sink that hangs costs little."""
    hooks = opened.hooks
    hooks.sink.awake.clear()
    house = opened.issuer._house
    delivery = Delivery(
        [*(worker._sink for worker in house.delivery._required)],
        LedgerSpans(house.ledger),
        probe_deadline_s=SHORT_S,
        ship_deadline_s=SHORT_S,
    )
    shop = Shop(
        made=opened.made,
        service=opened.service,
        issuer=rebuilt(opened.issuer, delivery=delivery),
        hooks=hooks,
        trees=opened.trees,
    )
    yield shop
    opened.trees = shop.trees
    hooks.at = {}
    hooks.sink.recover()
    delivery.close()


def assert_unavailable(no: Answer) -> None:
    assert (no.code, int(no.exit), no.next) == ("audit_unavailable", 8, "tell_a_person")
    assert "Nothing was sent." in no.say


@pytest.mark.spec("AUD-02", "AUD-01", "EFF-11")
@pytest.mark.parametrize("hold", [False, True])
@pytest.mark.parametrize("row", PROBE_FAULTS)
def test_at_issue_nothing_is_stored_and_the_same_key_serves_later(row: str, hold: bool, shop: Shop) -> None:
    task, root = shop.tree()
    effects, start = effect_ids(shop.issuer), length(shop.issuer)
    shop.sink.fail(fault_of(row))
    assert_unavailable(refund(shop.issuer, task=task, request_key="k-1", hold=hold))
    assert (effect_ids(shop.issuer), shop.slots(task)) == (effects, 0)
    assert not [entry for entry in trail(shop.issuer, start) if entry.state_to is not None]
    assert books(shop.issuer, task, root) == all_at(task, root)
    shop.recover()
    assert permitted(refund(shop.issuer, task=task, request_key="k-1"))
    assert shop.slots(task) == 1


@pytest.mark.spec("AUD-02")
def test_a_held_effect_is_not_taken_further_while_a_sink_is_not_ready(shop: Shop) -> None:
    task, _root = shop.tree()
    effect = refund(shop.issuer, task=task, hold=True).effect or ""
    shop.sink.fail(RAISING["unavailable"])
    assert_unavailable(shop.issuer.request_held(effect))
    assert (state_of(shop.issuer, effect), shop.slots(task)) == ("prepared", 0)
    shop.recover()
    assert permitted(shop.issuer.request_held(effect)) == effect


@pytest.mark.spec("AUD-02", "ADM-01", "ADM-03")
@pytest.mark.parametrize("row", PROBE_FAULTS)
def test_before_admission_permit_and_budget_stay_untouched(row: str, shop: Shop) -> None:
    levels = shop.tree()
    before = shop.service.connections
    effect = permitted(refund(shop.issuer, task=levels[0]))
    shop.sink.fail(fault_of(row))
    for _ in range(2):
        assert_unavailable(shop.issuer.commit(effect))
    assert state_of(shop.issuer, effect) == "permitted"
    assert books(shop.issuer, *levels) == all_at(*levels)
    assert shop.service.connections == before
    shop.recover()
    shop.service.then(answer(201))
    assert shop.issuer.commit(effect).code == "succeeded"
    assert shop.service.connections == before + 1
    shop.assert_everything_is_on_record()


@pytest.mark.spec("AUD-02", "ADM-03", "REP-04", "SUR-05")
@pytest.mark.parametrize("row", SHIP_FAULTS)
def test_between_admission_and_dispatch_nothing_is_sent_and_everything_is_given_back(
    row: str, shop: Shop
) -> None:
    levels = shop.tree()
    before = shop.service.connections
    effect = permitted(refund(shop.issuer, task=levels[0], request_key="k-1"))
    assert shop.slots(levels[0]) == 1
    shop.hooks.plan(Reached.SINKS_PROBED, fault_of(row))
    done = shop.issuer.commit(effect)
    assert (done.code, done.state, done.next) == ("prepare_again", "no_effect", "prepare_again")
    assert (int(done.exit), done.retryable) == (7, False)
    assert shop.service.connections == before
    assert books(shop.issuer, *levels) == all_at(*levels)
    assert shop.slots(levels[0]) == 0
    moves = [
        entry.state_to for entry in trail(shop.issuer) if entry.attributes.get("permit.effect.id") == effect
    ]
    assert moves[-2:] == ["admitted", "no_effect"]
    # The permit is gone for good, whoever asks and whether or not the sink is back.
    shop.recover()
    for again in (shop.issuer.commit(effect), refund(shop.issuer, task=levels[0], request_key="k-1")):
        assert (again.code, again.effect, int(again.exit)) == ("not_dispatched", effect, 8)
    assert shop.service.connections == before
    shop.service.then(answer(201))
    fresh = permitted(refund(shop.issuer, task=levels[0], request_key="k-2"))
    assert shop.issuer.commit(fresh).code == "succeeded"
    assert shop.service.connections == before + 1
    shop.assert_everything_is_on_record()


@pytest.mark.spec("AUD-02", "ADM-03", "REP-04")
@pytest.mark.parametrize("row", SHIP_FAULTS)
def test_a_host_outside_gets_no_claim_before_its_admission_is_on_record(row: str, shop: Shop) -> None:
    levels = shop.tree()
    name = {"name": f"v{shop.trees}"}
    effect = permitted(shop.issuer.request("publish", name, task=levels[0], actor="agent-7"))
    shop.hooks.plan(Reached.SINKS_PROBED, fault_of(row))
    done = shop.issuer.admit(effect)
    assert (done.code, done.state) == ("prepare_again", "no_effect")
    assert "claim" not in done.more
    assert books(shop.issuer, *levels) == all_at(*levels)


OUTCOMES: dict[str, tuple[Step, str, str]] = {
    "succeeded": (answer(201), "succeeded", "audit_pending"),
    "failed": (answer(409), "failed", "audit_pending"),
    "unknown": (accept_then_close(), "unknown", "outcome_unknown"),
}
"""What the service does, the state on record, and what the caller is told while the sink lacks it."""


@pytest.mark.spec("AUD-02", "REP-01", "REP-06", "SUR-05")
@pytest.mark.parametrize("row", SHIP_FAULTS)
def test_after_the_send_success_is_pending_the_next_dispatch_waits_and_then_it_catches_up(
    row: str, shop: Shop
) -> None:
    levels = shop.tree()
    before = shop.service.connections
    shop.service.then(answer(201), answer(201))
    effect = permitted(refund(shop.issuer, task=levels[0], request_key="k-1"))
    other = permitted(refund(shop.issuer, order="o-2", task=levels[0]))
    shop.hooks.plan(Reached.LOOKED_AGAIN, fault_of(row), probe_too=row not in LYING)
    done = shop.issuer.commit(effect)
    for said in (
        done,
        shop.issuer.commit(effect),
        refund(shop.issuer, task=levels[0], request_key="k-1"),
    ):
        assert (said.code, said.state, said.effect) == ("audit_pending", "succeeded", effect)
        assert (int(said.exit), said.retryable, said.next) == (5, False, "tell_a_person")
    assert books(shop.issuer, *levels) == all_at(*levels, settled=300)
    if (
        row not in LYING
    ):  # a liar says that it is ready; what it is caught at costs a permit and sends nothing
        assert_unavailable(shop.issuer.commit(other))
        assert_unavailable(refund(shop.issuer, order="o-3", task=levels[0]))
        assert state_of(shop.issuer, other) == "permitted"
    else:
        assert shop.issuer.commit(other).code == "prepare_again"
    assert shop.service.connections == before + 1
    shop.recover()
    for said in (shop.issuer.commit(effect), refund(shop.issuer, task=levels[0], request_key="k-1")):
        assert (said.code, said.effect, int(said.exit)) == ("succeeded", effect, 0)
    assert shop.service.connections == before + 1
    outcome = shop.issuer._house.ledger.read(lambda view: view.effect(EffectId(effect)))
    assert outcome is not None
    assert outcome.sequence in shop.sink.sequences
    if row not in LYING:
        assert shop.issuer.commit(other).code == "succeeded"
        assert shop.service.connections == before + 2
    else:
        shop.issuer.commit(permitted(refund(shop.issuer, order="o-4", task=levels[0])))
    shop.assert_everything_is_on_record()


@pytest.mark.spec("AUD-02", "REP-01", "REP-05", "SUR-05", "BUD-04")
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_every_outcome_is_recorded_without_waiting_for_the_sink(outcome: str, shop: Shop) -> None:
    step, state, code = OUTCOMES[outcome]
    levels = shop.tree()
    before = shop.service.connections
    shop.service.then(step)
    effect = permitted(refund(shop.issuer, task=levels[0], request_key="k-1"))
    shop.hooks.plan(Reached.LOOKED_AGAIN, RAISING["os error"])
    assert (shop.issuer.commit(effect).code, state_of(shop.issuer, effect)) == (code, state)
    # Told again and again while the sink is gone, always with exit code 5: never as something to repeat.
    for said in (shop.issuer.commit(effect), refund(shop.issuer, task=levels[0], request_key="k-1")):
        assert (said.code, said.state, int(said.exit), said.retryable) == (code, state, 5, False)
    held = 300 if state == "unknown" else 0
    assert books(shop.issuer, *levels) == all_at(*levels, reserved=held, settled=300 - held)
    shop.recover()
    after = shop.issuer.commit(effect)
    assert after.code == ("outcome_unknown" if state == "unknown" else state)
    assert shop.service.connections == before + 1


@pytest.mark.spec("AUD-02", "REC-07", "SUR-05")
def test_a_hosts_report_is_recorded_and_pending_while_the_sink_lacks_it(shop: Shop) -> None:
    levels = shop.tree()
    name = {"name": "v-report"}
    effect = permitted(shop.issuer.request("publish", name, task=levels[0], actor="agent-7"))
    claim = str(shop.issuer.admit(effect).more["claim"])
    shop.sink.fail(RAISING["unavailable"])
    done = shop.issuer.report(effect, claim, succeeded=True)
    assert (done.code, done.state, int(done.exit)) == ("audit_pending", "succeeded", 5)
    assert books(shop.issuer, *levels) == all_at(*levels, settled=1)
    shop.recover()
    assert shop.issuer.commit(effect).code == "succeeded"


@pytest.mark.spec("AUD-02")
def test_a_sink_that_never_comes_back_costs_its_deadline_once_and_then_nothing(
    shop: Shop, tmp_path: Path
) -> None:
    levels = shop.tree()
    effect = permitted(refund(shop.issuer, task=levels[0]))
    shop.sink.fail(hangs)
    for _ in range(3):
        assert_unavailable(shop.issuer.commit(effect))
    # One call hangs inside the sink; nobody else was sent in after it.
    probes = shop.sink.probes
    assert_unavailable(shop.issuer.commit(effect))
    assert shop.sink.probes == probes
