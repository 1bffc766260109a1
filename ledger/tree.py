"""The frontier of the Merkle tree over the spans: what each transaction must know to append one leaf.

Rules: AUD-04 (RFC 9162 section 2.1), LED-06 (the head carries the root). ADR-0008 says why it stands in this room.
Proofs, checkpoints and their verification are not here; they belong to `audit`.
"""

import hashlib
from dataclasses import dataclass
from typing import Final

HASH_BYTES: Final = 32
SIZE_BYTES: Final = 8
EMPTY_ROOT: Final = hashlib.sha256(b"").digest()
"""Root of the empty tree (RFC 9162 section 2.1.1)."""


def leaf_hash(body: bytes) -> bytes:
    """Return SHA-256(0x00 || body) (RFC 9162 section 2.1.1)."""
    return hashlib.sha256(b"\x00" + body).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return SHA-256(0x01 || left || right) (RFC 9162 section 2.1.1)."""
    return hashlib.sha256(b"\x01" + left + right).digest()


@dataclass(frozen=True, slots=True)
class Frontier:
    """The roots of the full subtrees of a tree of `size` leaves, largest first: one hash per set bit of `size`."""

    size: int = 0
    peaks: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a frontier whose peaks do not fit its size."""
        if self.size < 0 or len(self.peaks) != self.size.bit_count():
            raise ValueError("a frontier has one peak per set bit of its size")
        if any(len(peak) != HASH_BYTES for peak in self.peaks):
            raise ValueError("a peak is 32 bytes")

    def with_leaf(self, leaf: bytes) -> "Frontier":
        """Return the frontier after appending one leaf hash; amortised constant work."""
        peaks = list(self.peaks)
        carried = leaf
        remaining = self.size
        while remaining & 1:
            carried = node_hash(peaks.pop(), carried)
            remaining >>= 1
        return Frontier(self.size + 1, (*peaks, carried))

    def root(self) -> bytes:
        """Return the tree head (RFC 9162 section 2.1.1)."""
        if not self.peaks:
            return EMPTY_ROOT
        root = self.peaks[-1]
        for peak in reversed(self.peaks[:-1]):
            root = node_hash(peak, root)
        return root

    def encoded(self) -> bytes:
        """Return size (8 bytes, big endian) and the peaks, as the head row stores them."""
        return self.size.to_bytes(SIZE_BYTES, "big") + b"".join(self.peaks)


class GrowingTree:
    """The frontier over a stream of leaves, without one value per leaf: for whoever reads a whole trail."""

    __slots__ = ("_peaks", "size")

    def __init__(self, begin: Frontier | None = None) -> None:
        """Have no leaf yet, or those of a frontier."""
        self.size = 0 if begin is None else begin.size
        self._peaks: list[bytes] = [] if begin is None else list(begin.peaks)

    def add(self, leaf: bytes) -> None:
        """Append one leaf hash (RFC 9162 section 2.1.1)."""
        peaks = self._peaks
        carried, remaining = leaf, self.size
        while remaining & 1:
            carried = node_hash(peaks.pop(), carried)
            remaining >>= 1
        peaks.append(carried)
        self.size += 1

    def frontier(self) -> Frontier:
        """Return the frontier so far."""
        return Frontier(self.size, tuple(self._peaks))


def decoded_frontier(blob: bytes) -> Frontier:
    """Return the frontier that `encoded` wrote.

    Raises:
        ValueError: the bytes are not a frontier.
    """
    size = int.from_bytes(blob[:SIZE_BYTES], "big")
    rest = blob[SIZE_BYTES:]
    if len(blob) < SIZE_BYTES or len(rest) % HASH_BYTES:
        raise ValueError("a frontier is 8 bytes and a whole number of hashes")
    return Frontier(
        size, tuple(rest[place : place + HASH_BYTES] for place in range(0, len(rest), HASH_BYTES))
    )
