"""`ledger collect`: an operator makes room, in batches; what a crash leaves of it is whole (LED-02, PER-04).

The same happens by itself where a command needs space. Nothing unresolved, live or within its window is touched.
"""

from dataclasses import replace

from issuer import answering
from issuer.commands.edge import at_the_edge
from issuer.flow.collect import Gone, collect_batch
from issuer.flow.content import sweep_content
from issuer.flow.overdue import sweep
from issuer.house import Visit
from issuer.wire import Answer


def ledger_collect(visit: Visit, *, early: bool = False) -> Answer:
    """Collect everything that is due; with `early`, also what would be kept longer for being looked at."""

    def run() -> Answer:
        sweep(visit)
        visit.house.delivery.probe()
        batches: list[Gone] = []
        batch_visit = visit
        while batch := collect_batch(batch_visit, asked=True, early=early):
            batches.append(batch)
            batch_visit = replace(
                visit, signed=None
            )  # one signature is for one act, and the first batch is it
        gone = {
            "effects": sum(batch.collected for batch in batches),
            "tombstones": sum(batch.forgotten for batch in batches),
            "invocations": sum(batch.invocations for batch in batches),
            "contents": sweep_content(visit.house),
        }
        return answering.about(visit.house, "collected_now", more={"collected": gone})

    return at_the_edge(visit, run)
