"""Development case D12 at a collector: every lie at every moment; nothing is sent unheard of, nothing is sent twice."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from audit import AuditUnavailable, Delivery, LedgerSpans, Sink
from audit.sinks.carried import CarriedSink
from issuer import Issuer
from issuer.flow.steps import Reached
from tests.support.canaries import found_in
from tests.support.cases import all_at, books, length, rebuilt, small_tree, state_of
from tests.support.collector import CANARY, HANGING, LYING, Collector, Lie, accepted
from tests.support.issuers import Made, permitted, refund, standard_issuer
from tests.support.service import Service, answer

ROWS = {**LYING, **HANGING}
SHORT_S = 0.2
PATIENCE_S = 30.0
FILE = "required = true }"


class Hooks:
    """Lets the collector lie from one named step of a commit on."""

    def __init__(self, collector: Collector) -> None:
        self.collector = collector
        self.at: tuple[str, Lie] | None = None

    def __call__(self, step: str) -> None:
        if self.at is not None and step == self.at[0]:
            self.collector.always(self.at[1])
            self.at = None


@dataclass(kw_only=True)
class Shop:
    """One service, one collector, and an issuer that waits for both of its sinks."""

    made: Made
    service: Service
    collector: Collector
    hooks: Hooks
    issuer: Issuer
    trees: int = 0

    def tree(self) -> tuple[str, str]:
        self.trees += 1
        return small_tree(self.issuer, f"tree-{self.trees}")

    def lie_from(self, step: Reached, row: str) -> None:
        self.hooks.at = (str(step), ROWS[row][0])


def with_collector(folder: Path, service: Service, collector: Collector, *, required: bool) -> Made:
    line = f'\nsink.siem = {{ type = "otlp", url = "{collector.url}", required = {str(required).lower()} }}'
    return standard_issuer(folder, port=service.port, changes={FILE: FILE + line})


@contextmanager
def impatient(issuer: Issuer) -> Iterator[Issuer]:
    """Give the issuer a delivery that waits for little."""
    house = issuer._house
    delivery = Delivery(
        [worker._sink for worker in (*house.delivery._required, *house.delivery._best_effort)],
        LedgerSpans(house.ledger),
        probe_deadline_s=SHORT_S,
        ship_deadline_s=SHORT_S,
    )
    yield rebuilt(issuer, delivery=delivery)
    delivery.close()


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with Service() as service, Collector() as collector:
        made = with_collector(tmp_path_factory.mktemp("d12c") / "f0", service, collector, required=True)
        hooks = Hooks(collector)
        with made.open(observe=hooks) as issuer:
            yield Shop(made=made, service=service, collector=collector, hooks=hooks, issuer=issuer)


@pytest.fixture
def shop(opened: Shop) -> Iterator[Shop]:
    with impatient(opened.issuer) as issuer:
        shop = Shop(
            made=opened.made,
            service=opened.service,
            collector=opened.collector,
            hooks=opened.hooks,
            issuer=issuer,
            trees=opened.trees,
        )
        yield shop
        opened.trees = shop.trees
        opened.hooks.at = None
        opened.collector.always(None)


def assert_all_arrived(shop: Shop) -> None:
    """The collector has every span up to the last it was asked for, in order, whatever came twice."""
    held = list(dict.fromkeys(shop.collector.sequences))
    assert held == list(range(1, len(held) + 1))
    assert len(held) <= length(shop.issuer)


@pytest.mark.spec("AUD-02", "ADM-01", "ADM-03")
@pytest.mark.parametrize("row", ROWS)
def test_before_admission_a_lie_of_the_collector_costs_nothing(row: str, shop: Shop) -> None:
    levels = shop.tree()
    before = shop.service.connections
    effect = permitted(refund(shop.issuer, task=levels[0]))
    shop.collector.always(ROWS[row][0])
    no = shop.issuer.commit(effect)
    assert (no.code, int(no.exit)) == ("audit_unavailable", 8)
    assert CANARY not in f"{no}"
    assert state_of(shop.issuer, effect) == "permitted"
    assert books(shop.issuer, *levels) == all_at(*levels)
    assert shop.service.connections == before
    shop.collector.always(None)
    shop.service.then(answer(201))
    assert committed(shop, effect) == "succeeded"
    assert shop.service.connections == before + 1
    assert_all_arrived(shop)


@pytest.mark.spec("AUD-02", "ADM-03", "REP-04", "SUR-05")
@pytest.mark.parametrize("row", ROWS)
def test_between_admission_and_dispatch_a_lie_of_the_collector_sends_nothing(row: str, shop: Shop) -> None:
    levels = shop.tree()
    before = shop.service.connections
    effect = permitted(refund(shop.issuer, task=levels[0]))
    shop.lie_from(Reached.SINKS_PROBED, row)
    done = shop.issuer.commit(effect)
    assert (done.code, done.state, done.next) == ("prepare_again", "no_effect", "prepare_again")
    assert CANARY not in f"{done}"
    assert shop.service.connections == before
    assert books(shop.issuer, *levels) == all_at(*levels)
    shop.collector.always(None)
    assert shop.issuer.commit(effect).code == "not_dispatched"
    assert shop.service.connections == before


@pytest.mark.spec("AUD-02", "REP-01", "REP-06", "SUR-05")
@pytest.mark.parametrize("row", ROWS)
def test_after_the_send_a_lie_of_the_collector_leaves_success_pending_and_repeats_nothing(
    row: str, shop: Shop
) -> None:
    levels = shop.tree()
    before = shop.service.connections
    shop.service.then(answer(201), answer(201))
    effect = permitted(refund(shop.issuer, task=levels[0]))
    other = permitted(refund(shop.issuer, order="o-2", task=levels[0]))
    shop.lie_from(Reached.LOOKED_AGAIN, row)
    for _ in range(2):
        done = shop.issuer.commit(effect)
        assert (done.code, done.state, done.effect) == ("audit_pending", "succeeded", effect)
        assert CANARY not in f"{done}"
    # The next dispatch waits for the sink that lacks the outcome.
    assert shop.issuer.commit(other).code == "audit_unavailable"
    assert shop.service.connections == before + 1
    shop.collector.always(None)
    assert committed(shop, effect) == "succeeded"
    assert committed(shop, other) == "succeeded"
    assert shop.service.connections == before + 2
    assert_all_arrived(shop)


def committed(shop: Shop, effect: str) -> str:
    """Commit, waiting out a sink that is still in an earlier call."""
    end = time.monotonic() + PATIENCE_S
    while (code := shop.issuer.commit(effect).code) in {"audit_unavailable", "audit_pending"}:
        assert time.monotonic() < end
    return code


@pytest.mark.spec("SEC-01", "AUD-07")
def test_nothing_that_a_collector_answered_is_kept_anywhere(shop: Shop) -> None:
    for row in ("a login page of the right type", "400", "accepted with a message", "no http"):
        shop.collector.always(ROWS[row][0])
        levels = shop.tree()
        refund(shop.issuer, task=levels[0])
        shop.collector.always(None)
    files = [path for path in shop.made.folder.parent.rglob("*") if path.is_file()]
    files += [path for path in shop.made.sink.parents[1].rglob("*") if path.is_file()]
    assert {shop.made.ledger, shop.made.sink} <= set(files)
    assert [path.name for path in files if found_in(path.read_bytes(), (CANARY,))] == []


@pytest.mark.spec("AUD-02")
def test_a_collector_that_lost_everything_after_its_yes_gets_every_span_again(shop: Shop) -> None:
    levels = shop.tree()
    shop.service.then(answer(201))
    assert committed(shop, permitted(refund(shop.issuer, task=levels[0]))) == "succeeded"
    shop.collector.lose_everything()
    (sink,) = [one for one in sinks_of(shop.issuer) if one.kind == "otlp"]
    assert isinstance(sink, CarriedSink)
    source = LedgerSpans(shop.issuer._house.ledger)
    sink.resend_from(source, 0, PATIENCE_S)
    last = length(shop.issuer)
    caught_up(shop.issuer, last)
    # What a busy machine did not answer in time came twice.
    assert list(dict.fromkeys(shop.collector.sequences)) == list(range(1, last + 1))
    rows = shop.issuer._house.ledger.read(lambda view: view.spans_after(0, limit=last))
    assert list(dict.fromkeys(body for _key, body in shop.collector.spans)) == [row.body for row in rows]


def caught_up(issuer: Issuer, sequence: int) -> None:
    """Ask for an acknowledgement until it comes: a long way takes several calls of a short deadline."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            issuer._house.delivery.acknowledge(sequence)
        except AuditUnavailable:
            assert time.monotonic() < end
        else:
            return


def sinks_of(issuer: Issuer) -> list[Sink]:
    delivery = issuer._house.delivery
    return [worker._sink for worker in (*delivery._required, *delivery._best_effort)]


# ---------------------------------------------------------------------------------------- best effort


@pytest.mark.spec("AUD-02", "INV-03")
def test_what_a_slow_collector_was_told_of_is_not_cut_off_by_the_end_of_each_command(tmp_path: Path) -> None:
    with Service() as service, Collector() as collector:
        made = with_collector(tmp_path / "f0", service, collector, required=False)
        service.then(answer(201), answer(201))
        collector.always(Lie(raw=accepted(), stores=True, pause_s=0.001))
        reached = []
        for number in range(2):
            with made.open() as issuer:
                effect = permitted(refund(issuer, order=f"o-{number}"))
                assert issuer.commit(effect).code == "succeeded"
                (sink,) = [one for one in sinks_of(issuer) if one.kind == "otlp"]
            assert isinstance(sink, CarriedSink)
            with made.open(reading=True) as issuer:
                reached.append(sink.reached(LedgerSpans(issuer._house.ledger)))
        assert 0 < reached[0] < reached[1]


@pytest.mark.spec("AUD-02", "INV-03")
def test_a_collector_that_nothing_waits_for_and_that_hangs_costs_the_end_a_moment(tmp_path: Path) -> None:
    with Service() as service, Collector() as collector:
        made = with_collector(tmp_path / "f0", service, collector, required=False)
        service.then(answer(201))
        collector.always(Lie(hangs=True))
        issuer = made.open()
        assert issuer.commit(permitted(refund(issuer))).code == "succeeded"
        begun = time.monotonic()
        issuer.close()
        assert time.monotonic() - begun < 1.9
        collector.always(None)


@pytest.mark.spec("AUD-02")
@pytest.mark.parametrize("row", ["hangs", "a login page", "503", "gone"])
def test_a_collector_that_nothing_waits_for_delays_no_dispatch_and_gets_everything_later(
    row: str, tmp_path: Path
) -> None:
    with Service() as service, Collector() as collector:
        made = with_collector(tmp_path / "f0", service, collector, required=False)
        service.then(*[answer(201)] * 3)
        with made.open() as issuer:
            if row == "gone":
                collector.stop()
            else:
                collector.always(ROWS[row][0])
            begun = time.monotonic()
            for number in range(2):
                effect = permitted(refund(issuer, order=f"o-{number}"))
                assert issuer.commit(effect).code == "succeeded"
            # Its own deadline is two seconds a call, and four calls were made.
            assert time.monotonic() - begun < 1.9
            collector.always(None)
            if row == "gone":
                return
            end = time.monotonic() + PATIENCE_S
            effect = permitted(refund(issuer, order="o-3"))
            assert issuer.commit(effect).code == "succeeded"
            while len(set(collector.sequences)) < length(issuer) and time.monotonic() < end:
                issuer._house.delivery.acknowledge(length(issuer))
            assert sorted(set(collector.sequences)) == list(range(1, length(issuer) + 1))
