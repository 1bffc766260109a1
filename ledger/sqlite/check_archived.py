"""The part of a check about archived spans: what is gone is exactly what the trail says was archived.

Rules: AUD-08, LED-06. A span may be replaced by its leaf without changing the root of the tree, so the root alone does
not tell an archive from a removal. The span of each archive says how many left, and, as one digest, which sequences are
archived from there on; those of the last one are held against what stands here.
Next: `ledger.sqlite.check_trail` puts the leaves in their places in the tree.
"""

from collections.abc import Iterator
from typing import Any

from ledger.archive import LeafRow, gone_digest
from ledger.port import SpanColumns
from ledger.sqlite.check_ground import ArchiveTold, Ground, Said, Trail


def archive_told(trail: Trail, row: SpanColumns, said: Said) -> None:
    """Keep what the span of an archive says."""
    upto, left, digest = (said.get(f"permit.{name}") for name in ("base.sequence", "count", "gone.digest"))
    trail.archives.append(ArchiveTold(sequence=row.sequence, upto=upto, left=left, digest=digest))


class ArchivedLeaves:
    """The archived leaves in order, to be taken beside the spans that are there."""

    def __init__(self, ground: Ground) -> None:
        """Begin before the first."""
        self._ground = ground
        found: Any = ground.raw.execute("SELECT epoch, sequence, leaf FROM archived_leaves ORDER BY sequence")
        self._rows: Iterator[LeafRow] = (LeafRow(epoch=row[0], sequence=row[1], leaf=row[2]) for row in found)
        self._next = next(self._rows, None)
        self._gone: list[int] = []
        ground.trail.archived_first = 0 if self._next is None else self._next.sequence

    def before(self, sequence: int) -> Iterator[LeafRow]:
        """Give those before the span at `sequence`; one at the very place of a span that is there is a finding."""
        while self._next is not None and self._next.sequence <= sequence:
            row, self._next = self._next, next(self._rows, None)
            self._gone.append(row.sequence)
            if row.sequence == sequence:
                says = "The span was archived, and it is there as well."
                self._ground.find("archived_twice", ("archived_leaves", sequence), says)
            else:
                yield row

    def end(self) -> None:
        """Hold what is archived against what the trail says of its archives."""
        ground, told = self._ground, self._ground.trail.archives
        if self._next is not None:
            says = "A leaf is archived after the last span."
            ground.find("span_gap", ("archived_leaves", self._next.sequence), says)
        if ground.proofs.span_says is None:
            return
        is_told = [one.digest for one in told[-1:]] == ([gone_digest(self._gone)] if told else [])
        number = sum(one.left for one in told if type(one.left) is int)
        if not is_told or number != len(self._gone) or (self._gone and not told):
            says = f"{len(self._gone)} spans are archived, and they are not those that the trail says were."
            ground.find("archived_differs", ("archived_leaves",), says)
