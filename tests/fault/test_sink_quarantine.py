"""`sink quarantine`: a span that a sink never takes is kept from it by a named act, and by nothing else."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from issuer import Issuer
from ledger.transitions import TransitionName
from tests.fault.test_case_d12_collectors import with_collector
from tests.support.collector import Collector
from tests.support.issuers import Made, permitted, refund
from tests.support.restoring import sent
from tests.support.revised import spans_of
from tests.support.service import Service, answer
from tests.support.shell import issuer_here


@pytest.fixture(name="collector")
def _collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


@pytest.fixture(name="service")
def _service() -> Iterator[Service]:
    with Service(*[answer(201)] * 8) as service:
        yield service


@pytest.fixture(name="made")
def _made(tmp_path: Path, service: Service, collector: Collector) -> Made:
    return with_collector(tmp_path / "f0", service, collector, required=True)


def row(issuer: Issuer, name: str = "siem") -> dict[str, object]:
    rows: list[dict[str, object]] = issuer.sink_list().more["sinks"]  # type: ignore[assignment]
    return next(one for one in rows if one["sink"] == name)


def quarantines(issuer: Issuer) -> list[tuple[object, ...]]:
    return [
        tuple(said[f"permit.{name}"] for name in ("sink.name", "sink.from", "sink.upto", "reason", "caller"))
        for said in spans_of(issuer)
        if said["permit.transition"] == TransitionName.SINK_QUARANTINED
    ]


def poisoned(issuer: Issuer, collector: Collector) -> int:
    """Let the collector take everything but the next admission; return the sequence of that once it has all before."""
    assert issuer.commit(permitted(refund(issuer, order="p-1", amount=5))).code == "succeeded"
    effect = permitted(refund(issuer, order="p-2", amount=5))
    poison = issuer._house.ledger.read(lambda view: view.head()).sequence + 1
    collector.never = lambda key: key[3] == poison
    assert issuer.commit(effect).code == "prepare_again"
    for number in range(6):
        assert (
            issuer.commit(permitted(refund(issuer, order=f"p-1{number}", amount=5))).code == "prepare_again"
        )
    assert (row(issuer)["reached"], collector.sequences[-1]) == (poison - 1, poison - 1)
    return poison


@pytest.mark.spec("AUD-02", "AUD-09")
def test_a_span_that_is_never_taken_is_kept_back_on_record_and_everything_else_arrives(
    made: Made, collector: Collector, service: Service
) -> None:
    with made.open() as issuer, made.open() as other:
        poison = poisoned(issuer, collector)
        sent_before = len(service.requests)
        said = issuer.sink_quarantine("siem", reason="rejected")
        assert (said.code, said.more["from"], said.more["upto"]) == ("sink_quarantined", poison, poison)
        assert "not every required sink" not in said.say
        assert quarantines(issuer) == [("siem", poison, poison, "rejected", "u-ana")]
        for issuer_, order in ((issuer, "o-3"), (other, "o-4")):
            assert issuer_.commit(permitted(refund(issuer_, order=order, amount=5))).code == "succeeded"
        assert len(service.requests) == sent_before + 2
        shown = row(issuer)
        assert (shown["state"], shown["quarantined"]) == ("ready", [[poison, poison]])
    with made.open() as issuer:
        assert issuer.commit(permitted(refund(issuer, order="o-5", amount=5))).code == "succeeded"
    last = collector.sequences[-1]
    assert collector.sequences == [one for one in range(1, last + 1) if one != poison]
    assert made.sink.read_bytes().count(b"\n") >= last  # the file has it
    assert Issuer.ledger_check(made.profile).code == "found"


@pytest.mark.spec("AUD-02")
def test_nothing_is_left_out_by_itself_however_often_the_sink_says_no(
    made: Made, collector: Collector
) -> None:
    with made.open() as issuer:
        poison = poisoned(issuer, collector)
        for number in range(6):
            assert (
                issuer.commit(permitted(refund(issuer, order=f"r-{number}", amount=5))).code
                == "prepare_again"
            )
        collector.never = lambda _key: False
        assert issuer.commit(permitted(refund(issuer, order="o-9"))).code == "succeeded"
    assert poison in collector.sequences
    assert collector.sequences == list(range(1, collector.sequences[-1] + 1))


@pytest.mark.spec("AUD-02")
def test_a_file_has_no_gaps_and_what_is_asked_for_has_to_be_lacking(made: Made, collector: Collector) -> None:
    with made.open() as issuer:
        no = issuer.sink_quarantine("local", reason="rejected")
        assert (no.code, no.more["field"]) == ("unsupported", "sink")
        assert "no gaps" in no.say
        assert issuer.sink_quarantine("nobody", reason="rejected").code == "unknown_reference"
        poison = poisoned(issuer, collector)
        head = issuer._house.ledger.read(lambda view: view.head()).sequence
        for upto in (poison - 1, head + 9, 0):
            assert issuer.sink_quarantine("siem", reason="rejected", upto=upto).code == "malformed"
        assert issuer.sink_quarantine("siem", reason="because").code == "malformed"
        assert quarantines(issuer) == []
        assert issuer.sink_quarantine("siem", reason="other", upto=poison + 1).code == "sink_quarantined"
        assert quarantines(issuer)[0][1:4] == (poison, poison + 1, "other")


@pytest.mark.spec("AUD-02", "ADM-03")
def test_no_admission_that_may_yet_be_sent_is_kept_from_a_sink(made: Made, collector: Collector) -> None:
    with made.open() as issuer:
        sent(issuer, "r1")
        refund(issuer, order="o-2")
        no = issuer.sink_quarantine("siem", reason="rejected")
        assert (no.code, quarantines(issuer)) == ("audit_unavailable", [])
        assert "not over yet" in no.say


@pytest.mark.spec("AUD-02", "SUR-03")
def test_the_command_line_wants_a_reason_and_shows_what_is_kept_back(
    made: Made, collector: Collector
) -> None:
    with made.open() as issuer:
        poison = poisoned(issuer, collector)
    assert issuer_here("sink", "quarantine", "siem", at=made.folder).exit == 2
    ran = issuer_here("--json", "sink", "quarantine", "siem", "--reason", "rejected", at=made.folder)
    assert (ran.exit, ran.code, ran.answer["from"]) == (0, "sink_quarantined", poison)
    assert f"not given {poison} to {poison}" in issuer_here("sink", "list", at=made.folder).out
