"""The tree over a long stream of leaves, quickly, and able to go back to an earlier size.

Rules: AUD-04 (RFC 9162 section 2.1.1), LED-08 (a file of spans goes back where a restore did). Leaves are hashed
together a block at a time, which costs half of taking them one by one. A subtree of a power of two leaves never changes
again, so going back needs the roots of the whole blocks, which are kept, and the leaves of one, which are written to a
temporary file: memory stays bounded, whatever the length of the trail.
Next: `audit.verification`, which holds it against checkpoints; `ledger.tree`, which grows by single leaves.
"""

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from typing import Final

from ledger.tree import EMPTY_ROOT, HASH_BYTES, node_hash

__all__ = ["BlockTree"]

BLOCK: Final = 1024
"""Leaves of a block, a power of two; one is hashed in about a millisecond."""

HELD_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of leaf hashes held in memory: those of a quarter of a million spans; more go to the disk."""

_READ_LEAVES: Final = 4096


def _reduced(row: Sequence[bytes]) -> bytes:
    """Return the root over hashes that are next to each other: pairs, and an odd last one goes up as it is."""
    sha256 = hashlib.sha256
    while len(row) > 1:
        odd = row[-1:] if len(row) & 1 else ()
        joined = b"".join(row[: len(row) - len(odd)])
        pairs = range(0, len(joined), 2 * HASH_BYTES)
        row = [sha256(b"\x01" + joined[at : at + 2 * HASH_BYTES]).digest() for at in pairs]
        row.extend(odd)
    return row[0]


class BlockTree:
    """A tree that grows by many leaves at a time; close it when done."""

    def __init__(self) -> None:
        """Have no leaf yet."""
        self._kept = tempfile.SpooledTemporaryFile(max_size=HELD_BYTES_MAX)  # noqa: SIM115 - `close` closes it
        self._blocks: list[bytes] = []
        self._pending: list[bytes] = []

    @property
    def size(self) -> int:
        """How many leaves there are."""
        return len(self._blocks) * BLOCK + len(self._pending)

    def extend(self, leaves: Sequence[bytes]) -> None:
        """Append leaf hashes of 32 bytes."""
        self._kept.write(b"".join(leaves))
        self._pending.extend(leaves)
        while len(self._pending) >= BLOCK:
            self._blocks.append(_reduced(self._pending[:BLOCK]))
            del self._pending[:BLOCK]

    def root(self) -> bytes:
        """Return the tree head (RFC 9162 section 2.1.1)."""
        if not self._pending:
            return _reduced(self._blocks) if self._blocks else EMPTY_ROOT
        root = _reduced(self._pending)
        end = len(self._blocks)
        while end:
            width = end & -end
            root = node_hash(_reduced(self._blocks[end - width : end]), root)
            end -= width
        return root

    def go_back(self, size: int) -> None:
        """Forget all leaves but the first `size`.

        Raises:
            ValueError: there are not so many.
        """
        if not 0 <= size <= self.size:
            raise ValueError("a tree goes back to a size that it had")
        blocks = size // BLOCK
        self._kept.seek(blocks * BLOCK * HASH_BYTES)
        held = self._kept.read((size % BLOCK) * HASH_BYTES)
        self._kept.truncate()
        del self._blocks[blocks:]
        self._pending = [held[at : at + HASH_BYTES] for at in range(0, len(held), HASH_BYTES)]

    def leaves(self) -> Iterator[bytes]:
        """Yield the leaf hashes in order; nothing is to be appended meanwhile."""
        self._kept.seek(0)
        while held := self._kept.read(_READ_LEAVES * HASH_BYTES):
            yield from (held[at : at + HASH_BYTES] for at in range(0, len(held), HASH_BYTES))

    def close(self) -> None:
        """Let go of the temporary file."""
        self._kept.close()
