"""A third party's sink runs only as the owner admitted it, and whatever it does, nothing is sent that it lacks."""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from audit import SinkClass, class_of
from issuer import Issuer
from issuer.errors import SetupError
from issuer.flow.steps import Reached
from tests.fault.test_case_d12_collectors import FILE, impatient, sinks_of
from tests.support.canaries import found_in
from tests.support.cases import all_at, books, length, small_tree, state_of
from tests.support.issuers import Made, permitted, refund, standard_issuer
from tests.support.service import Service, answer
from tests.support.third_party import shown_digest
from tests.support.third_party_sinks import NO_DIGEST, InstalledSink, installed_sink

CANARY = "canary-4711"
PATIENCE_S = 30.0
FAILING = ("raises", "exits", "is interrupted", "hangs")
LYING = ("another leaf", "the leaf as text", "says true", "says nothing", "the first leaf of more")


def made_with(folder: Path, line: str, *, port: int) -> Made:
    return standard_issuer(folder, port=port, changes={FILE: f"{FILE}\n{line}"})


def why_not(folder: Path, sink: InstalledSink, **line: object) -> SetupError:
    """Return how an issuer with this sink is refused when it is opened."""
    with pytest.raises(SetupError) as refused:
        made_with(folder, sink.line(**line), port=9)  # type: ignore[arg-type]
    assert refused.value.reason == "sink_not_admitted"
    assert CANARY not in str(refused.value)
    return refused.value


def admitted(folder: Path, sink: InstalledSink, *, port: int, required: bool = True) -> Made:
    """Make an issuer as its owner would: the refusal says the digest."""
    digest = shown_digest(why_not(folder / "unadmitted", sink))
    return made_with(folder / "f0", sink.line(digest=digest, required=required), port=port)


@dataclass(kw_only=True)
class Shop:
    """One service, one third party's sink, and an issuer that waits for it."""

    made: Made
    sink: InstalledSink
    service: Service
    issuer: Issuer
    at: dict[str, str]
    trees: int = 0

    def tree(self) -> tuple[str, str]:
        self.trees += 1
        return small_tree(self.issuer, f"tree-{self.trees}")


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("third")
    at: dict[str, str] = {}
    with Service() as service, installed_sink(folder) as sink:

        def observe(step: str) -> None:
            if step in at:
                sink.behave(at.pop(step))

        made = admitted(folder, sink, port=service.port)
        with made.open(observe=observe) as issuer:
            yield Shop(made=made, sink=sink, service=service, issuer=issuer, at=at)


@pytest.fixture
def shop(opened: Shop) -> Iterator[Shop]:
    with impatient(opened.issuer) as issuer:
        shop = Shop(**{**vars(opened), "issuer": issuer})
        yield shop
        opened.trees = shop.trees
        opened.at.clear()
        opened.sink.behave()


# ----------------------------------------------------------------------------------------- admission


@pytest.mark.spec("AUD-02", "OPR-02")
def test_a_sink_that_nobody_admitted_is_refused_with_its_digest_and_none_of_it_runs(tmp_path: Path) -> None:
    with installed_sink(tmp_path) as sink:
        no = why_not(tmp_path / "f0", sink, digest=NO_DIGEST)
        assert len(shown_digest(no)) == 64
        assert f"{sink.name}.keeping" not in sys.modules


@pytest.mark.spec("OPR-02")
def test_what_is_installed_as_an_adapter_is_no_sink(tmp_path: Path) -> None:
    with installed_sink(tmp_path, group="permit_issuer.adapters") as sink:
        assert "no sink of that name" in str(why_not(tmp_path / "f0", sink))


@pytest.mark.spec("OPR-02", "SEC-01")
@pytest.mark.parametrize("manner", ["cannot be made", "no class", "best effort", "no store", "is nothing"])
def test_what_is_made_has_to_be_a_sink_that_can_be_waited_for(manner: str, tmp_path: Path) -> None:
    with installed_sink(tmp_path) as sink:
        digest = shown_digest(why_not(tmp_path / "first", sink))
        sink.behave(manner)
        assert "could not be made" in str(why_not(tmp_path / "f0", sink, digest=digest))


@pytest.mark.spec("AUD-02", "AUD-07")
def test_an_admitted_sink_gets_every_span_once_and_in_order_and_its_class_is_its_own_word(shop: Shop) -> None:
    levels = shop.tree()
    shop.service.then(answer(201))
    assert shop.issuer.commit(permitted(refund(shop.issuer, task=levels[0]))).code == "succeeded"
    assert shop.sink.sequences() == list(range(1, len(shop.sink.sequences()) + 1))
    (third,) = [sink for sink in sinks_of(shop.issuer) if sink.name == "third"]
    assert (third.kind, class_of(third)) == ("python", SinkClass.DURABLE)


@pytest.mark.spec("AUD-02", "OPR-02")
def test_code_that_is_changed_under_an_open_issuer_is_not_given_another_span(
    tmp_path: Path,
) -> None:
    with Service() as service, installed_sink(tmp_path) as sink:
        made = admitted(tmp_path, sink, port=service.port)
        with made.open() as issuer:
            effect = permitted(refund(issuer))
            genuine = sink.file.read_text(encoding="utf-8")
            sink.file.write_text(genuine + "# 1.1\n", encoding="utf-8")
            assert issuer.commit(effect).code == "audit_unavailable"
            assert state_of(issuer, effect) == "permitted"
            sink.file.write_text(genuine, encoding="utf-8")
            service.then(answer(201))
            assert issuer.commit(effect).code == "succeeded"
        sink.file.write_text(genuine + "# 1.1\n", encoding="utf-8")
        with pytest.raises(SetupError) as refused:
            made.open()
        assert refused.value.reason == "sink_not_admitted"
        with made.open(reading=True) as issuer:
            assert issuer.show(effect).state == "succeeded"


# -------------------------------------------------------------------------------------- misbehaviour


@pytest.mark.spec("AUD-02", "ADM-01", "ADM-03")
@pytest.mark.parametrize("manner", FAILING)
def test_before_admission_its_failure_costs_nothing(manner: str, shop: Shop) -> None:
    levels = shop.tree()
    before = shop.service.connections
    effect = permitted(refund(shop.issuer, task=levels[0]))
    shop.sink.behave(manner)
    no = shop.issuer.commit(effect)
    assert (no.code, int(no.exit)) == ("audit_unavailable", 8)
    assert CANARY not in f"{no}"
    assert state_of(shop.issuer, effect) == "permitted"
    assert books(shop.issuer, *levels) == all_at(*levels)
    assert shop.service.connections == before


@pytest.mark.spec("AUD-02", "ADM-03", "REP-04")
@pytest.mark.parametrize("manner", [*FAILING, *LYING])
def test_between_admission_and_dispatch_nothing_is_sent_whatever_it_does(manner: str, shop: Shop) -> None:
    levels = shop.tree()
    before = shop.service.connections
    effect = permitted(refund(shop.issuer, task=levels[0]))
    shop.at[str(Reached.SINKS_PROBED)] = manner
    done = shop.issuer.commit(effect)
    assert (done.code, done.state) == ("prepare_again", "no_effect")
    assert shop.service.connections == before
    assert books(shop.issuer, *levels) == all_at(*levels)


@pytest.mark.spec("AUD-02", "REP-01", "REP-06")
@pytest.mark.parametrize("manner", [*FAILING, *LYING])
def test_after_the_send_success_is_pending_and_nothing_is_repeated_whatever_it_does(
    manner: str, shop: Shop
) -> None:
    levels = shop.tree()
    before = shop.service.connections
    shop.service.then(answer(201))
    effect = permitted(refund(shop.issuer, task=levels[0]))
    shop.at[str(Reached.LOOKED_AGAIN)] = manner
    for _ in range(2):
        done = shop.issuer.commit(effect)
        assert (done.code, done.state) == ("audit_pending", "succeeded")
    assert shop.service.connections == before + 1
    shop.sink.behave()
    end = time.monotonic() + PATIENCE_S
    while shop.issuer.commit(effect).code == "audit_pending":
        assert time.monotonic() < end
    assert shop.issuer.commit(effect).code == "succeeded"
    assert shop.service.connections == before + 1
    held = list(dict.fromkeys(shop.sink.sequences()))
    assert held == list(range(1, len(held) + 1))
    assert len(held) <= length(shop.issuer)


@pytest.mark.spec("SEC-01", "AUD-07")
def test_nothing_that_it_raised_is_kept_anywhere(shop: Shop) -> None:
    for manner in ("raises", "exits"):
        shop.sink.behave(manner)
        refund(shop.issuer, task=shop.tree()[0])
    files = [path for path in shop.made.folder.rglob("*") if path.is_file()]
    assert shop.made.ledger in files
    assert [path.name for path in files if found_in(path.read_bytes(), (CANARY,))] == []


@pytest.mark.spec("AUD-02")
@pytest.mark.parametrize("manner", ["hangs", "raises", "close raises"])
def test_one_that_nothing_waits_for_delays_no_dispatch_and_no_end(manner: str, tmp_path: Path) -> None:
    with Service() as service, installed_sink(tmp_path) as sink:
        made = admitted(tmp_path, sink, port=service.port, required=False)
        with made.open() as issuer:
            sink.behave(manner)
            service.then(answer(201))
            assert issuer.commit(permitted(refund(issuer))).code == "succeeded"


@pytest.mark.spec("AUD-02", "AUD-03", "ADM-03")
def test_with_other_settings_it_is_another_place_which_gets_everything_before_it_counts(
    tmp_path: Path,
) -> None:
    with Service(answer(201), answer(201)) as service, installed_sink(tmp_path) as sink:
        made = admitted(tmp_path, sink, port=service.port)
        elsewhere = replace(sink, folder=tmp_path / "kept-elsewhere")
        elsewhere.folder.mkdir()
        elsewhere.behave()
        with made.open() as issuer:
            effect = permitted(refund(issuer))
            profile = made.profile.read_text(encoding="utf-8")
            made.profile.write_text(
                profile.replace(str(sink.folder), str(elsewhere.folder)), encoding="utf-8"
            )
            assert "issuer sink replace third" in issuer.activate(made.profile).say
            no = issuer.commit(effect)
            assert (no.code, no.more["reason"]) == ("audit_unavailable", "sinks_changed")
            assert (elsewhere.sequences(), len(service.requests)) == ([], 0)
            assert issuer.sink_replace("third").code == "sink_replaced"
            assert issuer.commit(permitted(refund(issuer, order="o-2"))).code == "succeeded"
        kept = elsewhere.sequences()
        assert kept == list(range(1, len(kept) + 1))
        assert sink.sequences() == []
