"""Holding a trail against checkpoints: what is proven up to where, what is not, and what does not hold.

Rules: AUD-04 (offline, with the public key and a checkpoint kept elsewhere), LED-08 (a restore goes back to a backup
and begins an epoch). The argument, in order:
  1. each span is what was hashed, and stands where it says   2. the spans are in order and without a gap from the
  first, but where an epoch begins, which goes back to the backup that it names, and holds the root over all that the
  file has by then, so that what it left behind is proven with it   3. at the size of each checkpoint the
  tree over them has the root that was signed; so nothing up to it was altered, removed, put in or put elsewhere
  4. checkpoints of one trail are therefore consistent with each other   5. a trail that ends before a checkpoint was
  cut   6. what comes after the last checkpoint is told as not anchored, and an epoch that goes back is not believed
  before a checkpoint is over its first span: whoever can write the file could have made it up.
Pure. Next: `audit.trail_lines` and `audit.trail_rows`, which read; `issuer.verifying`, which tells.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import TracebackType
from typing import Final, Self

from audit.block_tree import BlockTree
from audit.file_order import FileOrder, common, cut
from audit.notes import Checkpoint

__all__ = ["Finding", "KeptCheckpoint", "Standing", "TrailReport", "TrailWalk", "Verdict"]


class Verdict(StrEnum):
    """What a verification comes to; each is a code of `issuer.wire.codes`."""

    VERIFIED = "verified"
    NOT_ANCHORED = "not_anchored"
    TAMPERED = "tampered"


class Standing(StrEnum):
    """How a checkpoint stands to the trail."""

    HOLDS = "holds"
    LEFT_BEHIND = "left_behind"
    DIFFERS = "differs"
    NOT_REACHED = "not_reached"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptCheckpoint:
    """A checkpoint that was opened, and how it stands: on the trail, or on what a restore left behind."""

    name: str
    checkpoint: Checkpoint
    standing: Standing = Standing.NOT_REACHED


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The first thing that does not hold: a stable word, its place, and a sentence without values."""

    what: str
    where: str
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrailReport:
    """What was found of a trail.

    Attributes:
        ledger_id: whose trail it is.
        spans: spans read, with those that a restore left behind.
        size: spans of the trail as it stands.
        anchored: up to which of these a checkpoint proves them; 0 for none.
        believed_from: the first span of the last epoch that went back; 0 where none did.
        epochs: each epoch of the trail as it stands, and its first span.
        checkpoints: every checkpoint, smallest first.
        finding: what stopped the reading; None where everything was read.
        is_torn: whether the last line was cut off in writing, and is not read.
    """

    ledger_id: str
    spans: int
    size: int
    anchored: int
    believed_from: int
    epochs: tuple[tuple[int, int], ...]
    checkpoints: tuple[KeptCheckpoint, ...]
    finding: Finding | None = None
    is_torn: bool = False

    @property
    def verdict(self) -> Verdict:
        """Return what it comes to, worst first."""
        bad = {Standing.DIFFERS, Standing.NOT_REACHED}
        if self.finding is not None or any(kept.standing in bad for kept in self.checkpoints):
            return Verdict.TAMPERED
        if not self.checkpoints or self.anchored < self.believed_from or (self.size and not self.anchored):
            return Verdict.NOT_ANCHORED
        return Verdict.VERIFIED


_NO_SIZE: Final = -1


class TrailWalk:
    """The tree over a trail while it is read, held against each checkpoint when its size is reached."""

    def __init__(self, ledger_id: str, checkpoints: Sequence[KeptCheckpoint]) -> None:
        """Begin with no span; `checkpoints` are of this ledger."""
        self._ledger_id = ledger_id
        self._kept = sorted(checkpoints, key=lambda kept: kept.checkpoint.size)
        self._tree = BlockTree()
        self._order = FileOrder()
        self._spans = 0
        self._anchored = 0
        self._believed_from = 0
        self._epochs: list[tuple[int, int]] = []
        self._ended: dict[int, list[tuple[int, int]]] = {}
        self._hold_here()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Let go of the tree."""
        self._tree.close()
        self._order.close()

    @property
    def size(self) -> int:
        """Spans of the trail as it stands."""
        return self._tree.size

    def extend(self, leaves: Sequence[bytes]) -> None:
        """Take the next spans, by their leaf hashes."""
        self._spans += len(leaves)
        self._order.extend(leaves)
        self._grow(leaves)

    def _grow(self, leaves: Sequence[bytes]) -> None:
        taken = 0
        while taken < len(leaves):
            upto = self._next_size() - self.size
            part = leaves[taken:] if upto <= 0 else leaves[taken : taken + upto]
            self._tree.extend(part)
            taken += len(part)
            if len(part) == upto:
                self._hold_here()

    def root_left(self, base_epoch: int, size: int) -> bytes | None:
        """Return the root over the first `size` spans of an epoch's trail and then all others that were read.

        It is None where that epoch has not so many.
        """
        trail = cut(self._order.trail(base_epoch), size)
        return None if trail is None else self._order.root_of_all(trail)

    def begin_epoch(self, epoch: int, size: int, base_epoch: int | None = None) -> None:
        """Begin an epoch after the first `size` spans, as those of `base_epoch` were (LED-08).

        What came after them is left behind. Without `base_epoch` they are those of the trail as it stands.

        Raises:
            ValueError: there are not so many.
        """
        trail = cut(self._order.trail(base_epoch), size)
        if trail is None:
            raise ValueError("an epoch begins after spans that there are")
        shared = common(self._order.trail(), trail)
        is_back = shared < self.size
        if base_epoch is not None:
            self._epochs = self._ended.get(base_epoch, self._epochs)
        self._epochs = [*(held for held in self._epochs if held[1] <= size), (epoch, size + 1)]
        self._ended[epoch] = self._epochs
        self._order.begin_epoch(epoch, trail)
        if not is_back:
            return
        self._go_back(shared)
        for leaves in self._order.leaves(trail):
            self._grow(leaves[shared:] if shared < len(leaves) else [])
            shared = max(0, shared - len(leaves))
        self._believed_from = size + 1

    def _go_back(self, size: int) -> None:
        self._tree.go_back(size)
        self._anchored = min(self._anchored, size)
        left = {Standing.HOLDS: Standing.LEFT_BEHIND, Standing.DIFFERS: Standing.NOT_REACHED}
        self._kept = [
            replace(kept, standing=left.get(kept.standing, kept.standing))
            if kept.checkpoint.size > size
            else kept
            for kept in self._kept
        ]

    def report(self, finding: Finding | None = None, *, is_torn: bool = False) -> TrailReport:
        """Return what was found."""
        return TrailReport(
            ledger_id=self._ledger_id,
            spans=self._spans,
            size=self.size,
            anchored=self._anchored,
            believed_from=self._believed_from,
            epochs=tuple(self._epochs),
            checkpoints=tuple(self._kept),
            finding=finding,
            is_torn=is_torn,
        )

    def _next_size(self) -> int:
        sizes = (kept.checkpoint.size for kept in self._kept)
        return next((size for size in sizes if size > self.size), _NO_SIZE)

    def _hold_here(self) -> None:
        """Hold the root at this size against the checkpoints of this size."""
        root = self._tree.root()
        for place, kept in enumerate(self._kept):
            if kept.checkpoint.size != self.size:
                continue
            if root == kept.checkpoint.root:
                self._kept[place] = replace(kept, standing=Standing.HOLDS)
                self._anchored = self.size
            elif kept.standing is not Standing.LEFT_BEHIND:
                self._kept[place] = replace(kept, standing=Standing.DIFFERS)
