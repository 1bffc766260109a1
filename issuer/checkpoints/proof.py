"""Does a ledger go on from what was signed? Asked of its own leaves before anything is signed (AUD-04, LED-06).

Rules, for each checkpoint that is known (the signer's memory, the newest note, the newest copy elsewhere):
1. One of a later epoch than the ledger is in: the ledger was rolled back.
2. One of an earlier epoch counts as far as the ledger itself says that it goes on from there: up to the span before the
   one that began the next epoch, which only a restore writes (LED-08). What reaches beyond was left by that restore;
   then the newest note before it counts in its place.
3. One that counts and holds more than the ledger has: the ledger was rolled back.
4. The tree over the first spans gives its root, for each one that counts. The way begins at the frontier that the
   memory holds, so that only spans since are read; without a memory, at the first span.
5. At the end it gives the frontier of the head. That is the proof that the later tree has the earlier one as its
   beginning (RFC 9162 section 2.1.4 proves the same to somebody who does not have the leaves).
Leaves are made from the bodies here, and not taken from the column beside them.

It decides nothing else. Next: `issuer.checkpoints.signing`, which asks twice: beside writers, and under their lock.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from audit.comparison import span_says
from issuer.checkpoints.errors import CheckpointRefused
from issuer.checkpoints.memory import Remembered
from ledger.port import View
from ledger.transitions import Position, TransitionName
from ledger.tree import Frontier, GrowingTree, leaf_hash

__all__ = ["Bound", "Proof", "Proven"]

PAGE_ROWS: Final = 1000
"""Spans that are read at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A checkpoint that was signed: in which epoch, over how many spans, with which root."""

    epoch: int
    size: int
    root: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """A tree that goes on from all that was signed.

    Attributes:
        epoch: of the ledger's head.
        tree: the frontier over all its spans.
        others: how many spans since the memory are no checkpoint's own.
        is_recorded: whether one of them is that of the checkpoint in memory.
        has_left: whether a restore left a checkpoint behind that was signed, and none was signed since.
    """

    epoch: int
    tree: Frontier
    others: int
    is_recorded: bool
    has_left: bool


class Proof:
    """One look at a ledger, which may be gone on with as the ledger grows."""

    def __init__(
        self,
        memory: Remembered | None,
        bounds: Sequence[Bound],
        before: Callable[[int, int], Bound | None],
    ) -> None:
        """Take what is known; `before` gives the newest note up to an epoch and a size."""
        self._memory = memory
        self._bounds = tuple(bounds)
        self._before = before
        self._last: Proven | None = None

    def of(self, view: View) -> Proven:
        """Return the tree of what `view` shows.

        Raises:
            CheckpointRefused: it does not go on from what was signed.
            LedgerCorrupt: what is read was changed without the keys.
        """
        head = view.head()
        if self._last is None or self._last.epoch != head.epoch or self._last.tree.size > head.sequence:
            self._last = self._begun(view, head)
        self._last = self._gone_on(view, self._last, {})
        return self._last

    def _begun(self, view: View, head: Position) -> Proven:
        memory = self._memory
        bounds = list(self._bounds)
        if memory is not None:
            bounds.append(Bound(epoch=memory.epoch, size=memory.tree.size, root=memory.tree.root()))
        demanded: dict[int, bytes] = {}
        has_left = is_memory_left = False
        while bounds:
            bound = bounds.pop()
            upto = _reach(view, bound.epoch, head)
            if bound.size > upto:
                has_left = True
                is_memory_left = is_memory_left or (memory is not None and bound.epoch == memory.epoch)
                earlier = self._before(bound.epoch, upto)
                bounds += [] if earlier is None else [earlier]
                continue
            if bound.size > head.sequence:
                raise CheckpointRefused("smaller")
            if demanded.setdefault(bound.size, bound.root) != bound.root:
                raise CheckpointRefused("inconsistent")
        begin = Frontier() if memory is None or is_memory_left else memory.tree
        # Told once: a checkpoint of this epoch says it already, and an old copy elsewhere says nothing new.
        has_left = has_left and all(bound.epoch != head.epoch for bound in self._bounds)
        first = Proven(epoch=head.epoch, tree=begin, others=0, is_recorded=False, has_left=has_left)
        return self._gone_on(view, first, demanded)

    def _gone_on(self, view: View, begin: Proven, demanded: dict[int, bytes]) -> Proven:
        """Read on from `begin` to the head, and hold the tree against each root on the way."""
        target = view.frontier()
        tree, others, is_recorded = GrowingTree(begin.tree), begin.others, begin.is_recorded
        _demand_root(demanded, tree)
        while tree.size < target.size:
            rows = view.spans_after(tree.size, limit=PAGE_ROWS)
            if not rows:
                raise CheckpointRefused("altered")
            for row in rows:
                for gone in _archived(view, tree.size, row.position.sequence):
                    tree.add(gone)
                    _demand_root(demanded, tree)
                    others += 1
                if row.position.sequence != tree.size + 1 or tree.size == target.size:
                    raise CheckpointRefused("altered")
                tree.add(leaf_hash(row.body))
                _demand_root(demanded, tree)
                if row.name == TransitionName.CHECKPOINT_SIGNED:
                    is_recorded = is_recorded or self._is_of_memory(row.body)
                else:
                    others += 1
        if tree.frontier() != target:
            raise CheckpointRefused("inconsistent" if begin.tree.size else "altered")
        return Proven(
            epoch=begin.epoch,
            tree=tree.frontier(),
            others=others,
            is_recorded=is_recorded,
            has_left=begin.has_left,
        )

    def _is_of_memory(self, body: bytes) -> bool:
        return self._memory is not None and span_says(body).get("permit.tree.size") == self._memory.tree.size


def _archived(view: View, size: int, sequence: int) -> Iterator[bytes]:
    """Yield the leaves between the first `size` spans and the span at `sequence`: those between were archived."""
    while size + 1 < sequence:
        page = view.leaves_after(size, limit=min(PAGE_ROWS, sequence - size - 1))
        for row in page:
            if row.sequence != size + 1:
                raise CheckpointRefused("altered")
            yield row.leaf
            size += 1
        if not page:
            raise CheckpointRefused("altered")


def _reach(view: View, epoch: int, head: Position) -> int:
    """Return how many spans of an epoch the ledger says that it goes on from (rules 1 and 2)."""
    if epoch > head.epoch:
        raise CheckpointRefused("older_epoch")
    if epoch == head.epoch:
        return 2**63
    begun = view.epoch_after(epoch)
    if begun is None:
        raise CheckpointRefused("altered")
    return begun.position.sequence - 1


def _demand_root(demanded: dict[int, bytes], tree: GrowingTree) -> None:
    wanted = demanded.get(tree.size)
    if wanted is not None and wanted != tree.frontier().root():
        raise CheckpointRefused("inconsistent")
