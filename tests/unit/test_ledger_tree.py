"""The frontier of the Merkle tree, against the definition of RFC 9162 and against public vectors."""

import base64
import hashlib
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.tree import EMPTY_ROOT, Frontier, decoded_frontier, leaf_hash, node_hash

HOUSE = Path(__file__).resolve().parents[2]
VECTORS = Path(os.environ.get("PERMIT_VECTORS", HOUSE.parent / "shared" / "vectors")) / "merkle" / "testdata"


def naive_root(leaves: list[bytes]) -> bytes:
    """MTH(D[n]) exactly as section 2.1.1 defines it, by recursion over all leaves."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return hashlib.sha256(b"\x00" + leaves[0]).digest()
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return hashlib.sha256(b"\x01" + naive_root(leaves[:split]) + naive_root(leaves[split:])).digest()


def grown(leaves: list[bytes]) -> Frontier:
    frontier = Frontier()
    for leaf in leaves:
        frontier = frontier.with_leaf(leaf_hash(leaf))
    return frontier


@pytest.mark.spec("LED-06")
def test_the_root_is_that_of_the_definition_at_every_size() -> None:
    leaves = [str(number).encode() for number in range(130)]
    frontier = Frontier()
    assert frontier.root() == EMPTY_ROOT == naive_root([])
    for size, leaf in enumerate(leaves, start=1):
        frontier = frontier.with_leaf(leaf_hash(leaf))
        assert frontier.size == size
        assert len(frontier.peaks) == size.bit_count()
        assert frontier.root() == naive_root(leaves[:size])


@pytest.mark.spec("LED-06")
@given(st.lists(st.binary(max_size=20), max_size=40), st.data())
def test_any_change_of_any_leaf_changes_the_root(leaves: list[bytes], data: st.DataObject) -> None:
    root = grown(leaves).root()
    assert root == naive_root(leaves)
    assert grown([*leaves, b""]).root() != root
    if leaves:
        place = data.draw(st.integers(0, len(leaves) - 1))
        changed = leaves.copy()
        changed[place] += b"x"
        assert grown(changed).root() != root
        assert grown(leaves[:place] + leaves[place + 1 :]).root() != root


def test_a_leaf_cannot_pass_for_a_node() -> None:
    left, right = leaf_hash(b"a"), leaf_hash(b"b")
    assert leaf_hash(left + right) != node_hash(left, right)
    assert leaf_hash(b"\x01" + left + right) != node_hash(left, right)
    assert node_hash(left, right) != node_hash(right, left)


@given(st.integers(0, 300))
def test_a_frontier_survives_its_encoding(size: int) -> None:
    frontier = Frontier(size, tuple(bytes([place]) * 32 for place in range(size.bit_count())))
    assert decoded_frontier(frontier.encoded()) == frontier


@pytest.mark.spec("LED-06")
@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"\x00" * 7,
        (1).to_bytes(8, "big"),
        (1).to_bytes(8, "big") + b"x" * 31,
        (1).to_bytes(8, "big") + b"x" * 33,
        (2).to_bytes(8, "big") + b"x" * 64,
        (0).to_bytes(8, "big") + b"x" * 32,
        (3).to_bytes(8, "big") + b"x" * 32,
    ],
)
def test_bytes_that_are_no_frontier_are_refused(blob: bytes) -> None:
    with pytest.raises(ValueError, match=r"frontier|peak"):
        decoded_frontier(blob)


@pytest.mark.parametrize(("size", "peaks"), [(-1, ()), (1, (b"x",)), (1, ()), (0, (b"x" * 32,))])
def test_a_frontier_that_does_not_fit_its_size_cannot_exist(size: int, peaks: tuple[bytes, ...]) -> None:
    with pytest.raises(ValueError, match=r"frontier|peak"):
        Frontier(size, peaks)


def _rooted(folder: str) -> list[Path]:
    if not VECTORS.is_dir():
        pytest.skip(f"the public vectors are not at {VECTORS}")
    found = sorted((VECTORS / folder).rglob("*.json"))
    assert found
    return found


@pytest.mark.spec("LED-06")
def test_public_inclusion_proofs_fold_with_our_hashes_to_their_roots() -> None:
    checked = 0
    for path in _rooted("inclusion"):
        vector = json.loads(path.read_text())
        if vector["wantErr"] or not vector["proof"]:
            continue
        index, last = vector["leafIdx"], vector["treeSize"] - 1
        node = base64.b64decode(vector["leafHash"])
        # RFC 9162 section 2.1.3.2, the verification of an inclusion proof.
        for step in map(base64.b64decode, vector["proof"]):
            if index & 1 or index == last:
                node = node_hash(step, node)
                while not index & 1 and index:
                    index, last = index >> 1, last >> 1
            else:
                node = node_hash(node, step)
            index, last = index >> 1, last >> 1
        assert node == base64.b64decode(vector["root"]), path.name
        checked += 1
    assert checked >= 3


@pytest.mark.spec("LED-06")
def test_the_well_known_tree_of_the_public_vectors_has_their_roots() -> None:
    # The eight inputs of the certificate transparency reference tests.
    inputs = [
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    ]
    leaves = [bytes.fromhex(text) for text in inputs]
    roots = {size: grown(leaves[:size]).root() for size in range(9)}
    seen = 0
    for path in _rooted("consistency"):
        vector = json.loads(path.read_text())
        if vector["wantErr"] or "happy" not in path.name:
            continue
        for side in ("1", "2"):
            assert base64.b64decode(vector[f"root{side}"]) == roots[vector[f"size{side}"]], path
            seen += 1
    assert seen >= 6
