"""Sixteen writers at once: the ledger, the file and a collector end with the same spans, each once in its order."""

import threading
from pathlib import Path

import pytest

from issuer import Issuer
from ledger.tree import Frontier, leaf_hash
from tests.fault.test_case_d12_collectors import caught_up, with_collector
from tests.support.cases import length
from tests.support.collector import Collector
from tests.support.issuers import permitted
from tests.support.service import Service
from tests.support.spans import sequences_in

WRITERS = 16
EACH = 3


def write(issuer: Issuer, number: int, answers: list[str]) -> None:
    """Let a host send some effects of its own."""
    for turn in range(EACH):
        name = {"name": f"v{number}.{turn}"}
        effect = permitted(issuer.request("publish", name, task="t1", actor="agent-7"))
        answers.append(issuer.admit(effect).code)


@pytest.mark.spec("AUD-02", "AUD-04", "AUD-05")
def test_sixteen_writers_leave_as_many_spans_in_the_ledger_as_in_its_file_at_the_collector_and_in_the_tree(
    tmp_path: Path,
) -> None:
    with Service() as service, Collector() as collector:
        made = with_collector(tmp_path / "f0", service, collector, required=True)
        with made.open() as issuer:
            answers: list[str] = []
            writers = [
                threading.Thread(target=write, args=(issuer, number, answers)) for number in range(WRITERS)
            ]
            for writer in writers:
                writer.start()
            for writer in writers:
                writer.join()
            assert len(answers) == WRITERS * EACH
            # On a machine that is busy a sink may miss its deadline; what is then not sent is told, and not lost.
            assert set(answers) <= {"admitted", "prepare_again", "audit_unavailable"}
            last = length(issuer)
            caught_up(issuer, last)
            rows = issuer._house.ledger.read(lambda view: view.spans_after(0, limit=10_000))
            frontier = issuer._house.ledger.read(lambda view: view.frontier())
        every = list(range(1, last + 1))
        assert [row.position.sequence for row in rows] == every
        assert sequences_in(made.sink) == every
        assert list(dict.fromkeys(collector.sequences)) == every
        assert {body for _key, body in collector.spans} == {row.body for row in rows}
        tree = Frontier()
        for row in rows:
            tree = tree.with_leaf(leaf_hash(row.body))
        assert (frontier.size, frontier.root()) == (last, tree.root())
