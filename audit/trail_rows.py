"""Verifying the rows of a ledger itself: the columns by which spans are found, the bodies, and the tree over them.

Rules: AUD-04, AUD-05. No key of the issuer is needed, so this is what a reviewer of a copied ledger can do as well. A
ledger holds no span that a restore left behind: an epoch goes on where the backup ended.
Next: `audit.verification` for the argument; `audit.comparison` for columns against a body.
"""

from collections.abc import Callable, Iterable, Sequence

from audit.comparison import span_holds
from audit.line_forms import READ_FAULTS
from audit.sinks.epochs import EPOCH_BEGINS
from audit.verification import Finding, KeptCheckpoint, TrailReport, TrailWalk
from ledger.archive import LeafRow
from ledger.errors import LedgerCorrupt
from ledger.model import LedgerId
from ledger.port import SpanColumns
from ledger.tree import leaf_hash

__all__ = ["verify_rows"]


def verify_rows(
    batches: Iterable[Sequence[SpanColumns]],
    ledger_id: str,
    checkpoints: Sequence[KeptCheckpoint],
    *,
    archived: Iterable[LeafRow] = (),
    tick: Callable[[int], None] = lambda _rows: None,
) -> TrailReport:
    """Hold the rows of the spans of a ledger, in order, against their bodies and against checkpoints of that ledger.

    Args:
        batches: rows in the order of their sequence.
        ledger_id: the ledger that every body must name.
        checkpoints: opened checkpoints of this ledger.
        archived: the leaves of spans that were archived, in order: they are proven as leaves, and their bodies are in
            the archive (AUD-08).
        tick: told how many rows were read.

    Raises:
        LedgerUnavailable: what gives the rows cannot read them now.
    """
    epoch, gone = -1, _Gone(archived)
    with TrailWalk(ledger_id, checkpoints) as walk:
        try:
            for batch in batches:
                leaves: list[bytes] = []
                for row in batch:
                    leaves += gone.between(walk.size + len(leaves), row.sequence)
                    leaf = leaf_hash(row.body)
                    sequence = walk.size + len(leaves) + 1
                    finding = _judged(LedgerId(ledger_id), row, leaf, epoch=epoch, sequence=sequence)
                    if finding is not None:
                        walk.extend(leaves)
                        return walk.report(finding)
                    if row.epoch != epoch:
                        walk.extend(leaves)
                        leaves, epoch = [], row.epoch
                        walk.begin_epoch(epoch, walk.size)
                    leaves.append(leaf)
                walk.extend(leaves)
                tick(len(batch))
        except LedgerCorrupt as fault:
            return walk.report(Finding(what="unreadable", where="ledger", says=fault.message))
        return walk.report()


class _Gone:
    """The leaves of archived spans, taken in their places."""

    def __init__(self, rows: Iterable[LeafRow]) -> None:
        self._rows = iter(rows)
        self._next = next(self._rows, None)

    def between(self, size: int, sequence: int) -> list[bytes]:
        """Return the leaves of archived spans that follow span `size` without a gap, and stand before `sequence`."""
        found: list[bytes] = []
        while self._next is not None and self._next.sequence < sequence:
            if self._next.sequence != size + len(found) + 1:
                break
            found.append(self._next.leaf)
            self._next = next(self._rows, None)
        return found


def _judged(
    ledger_id: LedgerId, row: SpanColumns, leaf: bytes, *, epoch: int, sequence: int
) -> Finding | None:
    where = f"span {row.sequence}"
    if row.sequence != sequence:
        return Finding(what="gap", where=where, says=f"Span {sequence} is missing before it.")
    if row.leaf != leaf:
        return Finding(what="leaf", where=where, says="Its leaf is not the hash of its body.")
    if row.lane != 0 or row.epoch < epoch or (0 <= epoch < row.epoch) != (row.name == EPOCH_BEGINS):
        return Finding(what="place", where=where, says="Its lane or epoch cannot follow the span before.")
    try:
        holds = span_holds(ledger_id, row)
    except READ_FAULTS:
        holds = False
    if not holds:
        return Finding(what="body", where=where, says="Its columns do not say what its body says.")
    return None
