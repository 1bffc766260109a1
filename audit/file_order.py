"""The leaves of a file of spans as it holds them, and of which of them each epoch's trail is made.

Rules: LED-08 (a restore goes back to a backup; the file keeps what it leaves), AUD-04 (what is left is not given up:
the first span of the new epoch holds the root over the backup's spans and then each other span of the file, in order).
A backup may be of any epoch before, so the trail of each is known by the ranges of the file that it is made of. The
leaves are in a temporary file: memory stays bounded, whatever the length of the trail.
Next: `audit.verification`.
"""

import tempfile
from collections.abc import Iterator, Sequence
from typing import Final

from audit.block_tree import BlockTree
from ledger.tree import HASH_BYTES

__all__ = ["FileOrder", "Ranges", "common", "cut"]

HELD_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of leaf hashes held in memory, as in `audit.block_tree`."""

_READ_LEAVES: Final = 4096

Ranges = tuple[tuple[int, int], ...]
"""Leaves of a file in order: each from the first (counted from 0) up to, and without, the second."""


class FileOrder:
    """Every leaf of a file, and the trail of each epoch in it; close it when done."""

    def __init__(self) -> None:
        """Have no leaf yet."""
        self._kept = tempfile.SpooledTemporaryFile(max_size=HELD_BYTES_MAX)  # noqa: SIM115 - `close` closes it
        self._count = 0
        self._begun: Ranges = ()
        self._first = 0
        self._epoch = -1
        self._ended: dict[int, Ranges] = {}

    def extend(self, leaves: Sequence[bytes]) -> None:
        """Append leaf hashes of 32 bytes; they belong to the epoch that was begun last."""
        self._kept.write(b"".join(leaves))
        self._count += len(leaves)

    def trail(self, epoch: int | None = None) -> Ranges:
        """Return what the trail of an epoch is made of, or that of the last; empty for one that there is not."""
        if epoch is None or epoch == self._epoch:
            return (*self._begun, (self._first, self._count)) if self._count > self._first else self._begun
        return self._ended.get(epoch, ())

    def begin_epoch(self, epoch: int, trail: Ranges) -> None:
        """Go on from a trail in a new epoch."""
        self._ended[self._epoch] = self.trail()
        self._epoch, self._begun, self._first = epoch, trail, self._count

    def leaves(self, ranges: Ranges) -> Iterator[list[bytes]]:
        """Yield the leaf hashes of ranges in order, some at a time."""
        for first, end in ranges:
            for at in range(first, end, _READ_LEAVES):
                self._kept.seek(at * HASH_BYTES)
                held = self._kept.read((min(end, at + _READ_LEAVES) - at) * HASH_BYTES)
                yield [held[begin : begin + HASH_BYTES] for begin in range(0, len(held), HASH_BYTES)]
        self._kept.seek(0, 2)

    def root_of_all(self, trail: Ranges) -> bytes:
        """Return the root over the leaves of a trail and then every other leaf of the file, in order."""
        others, at = [], 0
        for first, end in (*sorted(trail), (self._count, self._count)):
            others += [(at, first)] if at < first else []
            at = end
        tree = BlockTree()
        try:
            for leaves in self.leaves((*trail, *others)):
                tree.extend(leaves)
            return tree.root()
        finally:
            tree.close()

    def close(self) -> None:
        """Let go of the temporary file."""
        self._kept.close()


def cut(trail: Ranges, size: int) -> Ranges | None:
    """Return the first `size` leaves of a trail; None where it has fewer."""
    found: list[tuple[int, int]] = []
    for first, end in trail:
        if size:
            found.append((first, min(end, first + size)))
            size -= found[-1][1] - first
    return None if size else tuple(found)


def common(one: Ranges, other: Ranges) -> int:
    """Return how many leaves two trails of one file have in common from the first on."""
    count = 0
    for (first, end), (its_first, its_end) in zip(one, other, strict=False):
        if first != its_first:
            break
        count += min(end, its_end) - first
        if end != its_end:
            break
    return count
