"""Proofs over the tree of the spans: that a span is in it, and that a later tree holds an earlier one whole.

Rules: AUD-04 (RFC 9162 sections 2.1.3 and 2.1.4). A proof is the roots of some subtrees, and which ones depends on two
numbers only. So they are named first, as ranges of leaves, and found in one pass over the leaf hashes that keeps one
hash per level and what was asked for. Verifying uses every element of a proof and leaves none over.
An empty tree proves nothing about a later one, so a size of 0 is refused. Pure.
Next: `audit.notes`, which says whose root it is; `ledger.tree`, which keeps the frontier.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from audit.errors import NotProven
from ledger.tree import EMPTY_ROOT, HASH_BYTES, node_hash

__all__ = [
    "PATH_MAX",
    "Range",
    "consistency_proof",
    "consistency_ranges",
    "inclusion_proofs",
    "inclusion_ranges",
    "subtree_roots",
    "verify_consistency",
    "verify_inclusion",
]

PATH_MAX: Final = 64
"""Elements of a proof: a sequence number has at most 16 digits, so a tree less than 54 levels and a proof one more."""

Range = tuple[int, int]
"""Leaves from the first (counted from 0) up to, and without, the second."""


def _split(size: int) -> int:
    """Return the largest power of two smaller than `size`, which is at least 2 (RFC 9162 section 2.1.1)."""
    return 1 << ((size - 1).bit_length() - 1)


def inclusion_ranges(index: int, size: int) -> tuple[Range, ...]:
    """Return the subtrees whose roots prove leaf `index` in a tree of `size` leaves (RFC 9162 section 2.1.3.1).

    Returns:
        From the sibling of the leaf to the child of the root.

    Raises:
        ValueError: there is no such leaf.
    """
    if not 0 <= index < size:
        raise ValueError("a tree has no leaf outside of it")
    first, end = 0, size
    ranges: list[Range] = []
    while end - first > 1:
        middle = first + _split(end - first)
        if index < middle:
            ranges.append((middle, end))
            end = middle
        else:
            ranges.append((first, middle))
            first = middle
    return tuple(reversed(ranges))


def consistency_ranges(old_size: int, new_size: int) -> tuple[Range, ...]:
    """Return the subtrees that prove a tree of `old_size` leaves in one of `new_size` (RFC 9162 section 2.1.4.1).

    Raises:
        ValueError: not 0 < old_size <= new_size.
    """
    if not 0 < old_size <= new_size:
        raise ValueError("only a tree with leaves is in a tree that is no smaller")
    first, end, is_whole = 0, new_size, True
    ranges: list[Range] = []
    while end != old_size:
        middle = first + _split(end - first)
        if old_size <= middle:
            ranges.append((middle, end))
            end = middle
        else:
            ranges.append((first, middle))
            first, is_whole = middle, False
    if not is_whole:
        ranges.append((first, end))
    return tuple(reversed(ranges))


def subtree_roots(leaves: Iterable[bytes], size: int, wanted: Iterable[Range]) -> Mapping[Range, bytes]:
    """Return the roots of subtrees of the tree over the first `size` leaves, in one pass over their hashes.

    Args:
        leaves: leaf hashes in order, at least `size` of them; no more are taken.
        size: leaves of the tree.
        wanted: subtrees of that tree, as the functions above name them; `(0, size)` is the tree itself.

    Raises:
        ValueError: there are fewer leaves, or a range is no subtree of that tree.
    """
    missing = set(wanted)
    found: dict[Range, bytes] = {}
    peaks: list[tuple[int, bytes]] = []
    done = 0
    for leaf in leaves if size else ():
        first, carried, level = done, leaf, done
        done += 1
        if (first, done) in missing:
            found[first, done] = carried
        while level & 1:
            first, left = peaks.pop()
            carried = node_hash(left, carried)
            level >>= 1
            if (first, done) in missing:
                found[first, done] = carried
        peaks.append((first, carried))
        if done == size:
            break
    if done != size:
        raise ValueError("there are fewer leaves than the tree has")
    # What the right edge cuts off is no full subtree: the peaks from the last one on are put together.
    edge = EMPTY_ROOT if not peaks else peaks[-1][1]
    for first, peak in reversed(peaks[:-1]):
        edge = node_hash(peak, edge)
        found.setdefault((first, size), edge)
    if size == 0:
        found[0, 0] = EMPTY_ROOT
    if not missing <= found.keys():
        raise ValueError("a range is no subtree of the tree")
    return {range_: found[range_] for range_ in missing}


def inclusion_proofs(
    leaves: Iterable[bytes], size: int, indexes: Sequence[int]
) -> Mapping[int, tuple[bytes, ...]]:
    """Return for each leaf index its proof in the tree over the first `size` leaves, in one pass.

    Raises:
        ValueError: there are fewer leaves, or no leaf at an index.
    """
    paths = {index: inclusion_ranges(index, size) for index in indexes}
    roots = subtree_roots(leaves, size, (range_ for path in paths.values() for range_ in path))
    return {index: tuple(roots[range_] for range_ in path) for index, path in paths.items()}


def consistency_proof(leaves: Iterable[bytes], old_size: int, new_size: int) -> tuple[bytes, ...]:
    """Return the proof that the tree over the first `old_size` leaves is in the one over `new_size`.

    Raises:
        ValueError: there are fewer leaves, or not 0 < old_size <= new_size.
    """
    ranges = consistency_ranges(old_size, new_size)
    roots = subtree_roots(leaves, new_size, ranges)
    return tuple(roots[range_] for range_ in ranges)


def verify_inclusion(*, index: int, size: int, leaf: bytes, proof: Sequence[bytes], root: bytes) -> None:
    """Return if `proof` proves the leaf hash at `index` in the tree of `size` leaves (RFC 9162 section 2.1.3.2).

    Raises:
        NotProven: it does not.
    """
    if not 0 <= index < size:
        raise NotProven("there is no such leaf in the tree")
    _demand_hashes((leaf, root, *proof))
    paired = _climbed(index, size - 1, leaf, leaf, proof)
    if paired[1] != root:
        raise NotProven("the leaf is not in the tree with this root")


def verify_consistency(
    *, old_size: int, new_size: int, old_root: bytes, new_root: bytes, proof: Sequence[bytes]
) -> None:
    """Return if `proof` proves the old tree to be the beginning of the new one (RFC 9162 section 2.1.4.2).

    Raises:
        NotProven: it does not; an empty old tree is never proven.
    """
    if not 0 < old_size <= new_size:
        raise NotProven("only a tree with leaves is in a tree that is no smaller")
    if old_size == new_size:
        if proof or old_root != new_root:
            raise NotProven("trees of one size have one root, and need no proof")
        return
    _demand_hashes((old_root, new_root, *proof))
    path = list(proof)
    if old_size & (old_size - 1) == 0:
        path.insert(0, old_root)
    if not path:
        raise NotProven("the proof has an element too few")
    place, last = old_size - 1, new_size - 1
    while place & 1:
        place >>= 1
        last >>= 1
    if _climbed(place, last, path[0], path[0], path[1:]) != (old_root, new_root):
        raise NotProven("the old tree is not the beginning of the new one")


def _climbed(place: int, last: int, old: bytes, new: bytes, path: Sequence[bytes]) -> tuple[bytes, bytes]:
    """Return the roots of the old and the new tree, from the node at `place` in a row whose last is `last`.

    Both proofs climb alike; the old tree takes up only what lies to the left (RFC 9162 sections 2.1.3.2, 2.1.4.2).

    Raises:
        NotProven: the path has an element too many or too few.
    """
    for element in path:
        if last == 0:
            raise NotProven("the proof has an element too many")
        if place & 1 or place == last:
            old, new = node_hash(element, old), node_hash(element, new)
            while place and not place & 1:
                place >>= 1
                last >>= 1
        else:
            new = node_hash(new, element)
        place >>= 1
        last >>= 1
    if last != 0:
        raise NotProven("the proof has an element too few")
    return old, new


def _demand_hashes(hashes: Sequence[bytes]) -> None:
    if len(hashes) > PATH_MAX + 2 or any(len(each) != HASH_BYTES for each in hashes):
        raise NotProven("a hash is 32 bytes, and a proof has no more of them than a tree has levels")
