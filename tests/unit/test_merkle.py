"""Proofs over the tree of the spans, held against public vectors and against RFC 9162 as it is written."""

import base64
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from audit.block_tree import BLOCK, BlockTree
from audit.errors import NotProven
from audit.merkle import (
    consistency_proof,
    consistency_ranges,
    inclusion_proofs,
    inclusion_ranges,
    subtree_roots,
    verify_consistency,
    verify_inclusion,
)
from ledger.tree import leaf_hash
from tests.support.policy_room import VECTORS
from tests.support.trails import reference_consistency, reference_path, reference_root

LEAVES_MAX = 70
LEAVES = [leaf_hash(b"%d" % number) for number in range(LEAVES_MAX)]
ROOTS = [reference_root(LEAVES[:size]) for size in range(LEAVES_MAX + 1)]
FILES = sorted((VECTORS / "merkle" / "testdata").rglob("*.json"))
FILES_KNOWN = 196


@pytest.mark.spec("AUD-04")
@pytest.mark.skipif(not FILES, reason=f"the {FILES_KNOWN} public vectors are not here")
def test_every_public_vector_is_judged_as_it_says() -> None:
    assert len(FILES) == FILES_KNOWN
    wrong = [file.name for file in FILES if _accepts(json.loads(file.read_text())) is _unwanted(file)]
    assert wrong == []


def _unwanted(file: Path) -> bool:
    wanted: bool = json.loads(file.read_text())["wantErr"]
    return wanted


def _accepts(vector: dict[str, object]) -> bool:
    def bytes_of(name: str) -> bytes:
        return base64.b64decode(str(vector[name] or ""))

    held = vector["proof"]
    proof = [base64.b64decode(element) for element in held] if isinstance(held, list) else []
    try:
        if "leafIdx" in vector:
            verify_inclusion(
                index=int(str(vector["leafIdx"])),
                size=int(str(vector["treeSize"])),
                leaf=bytes_of("leafHash"),
                proof=proof,
                root=bytes_of("root"),
            )
        else:
            verify_consistency(
                old_size=int(str(vector["size1"])),
                new_size=int(str(vector["size2"])),
                old_root=bytes_of("root1"),
                new_root=bytes_of("root2"),
                proof=proof,
            )
    except NotProven:
        return False
    return True


@pytest.mark.spec("AUD-04")
def test_proofs_are_those_of_the_definition_and_verify() -> None:
    for size in range(1, LEAVES_MAX + 1):
        proofs = inclusion_proofs(iter(LEAVES), size, range(size))
        for index in range(size):
            assert list(proofs[index]) == reference_path(index, LEAVES[:size])
            verify_inclusion(
                index=index, size=size, leaf=LEAVES[index], proof=proofs[index], root=ROOTS[size]
            )
        for old in range(1, size + 1):
            proof = consistency_proof(iter(LEAVES), old, size)
            assert list(proof) == reference_consistency(old, LEAVES[:size])
            verify_consistency(
                old_size=old, new_size=size, old_root=ROOTS[old], new_root=ROOTS[size], proof=proof
            )


def _spoilt(proof: Sequence[bytes]) -> list[list[bytes]]:
    """Return every proof with one element changed, dropped, doubled, put in, cut short or swapped."""
    spoilt: list[list[bytes]] = [[*proof, bytes(32)], [bytes(32), *proof], [*proof, *proof[-1:]]]
    for at, element in enumerate(proof):
        before, after = list(proof[:at]), list(proof[at + 1 :])
        spoilt += [
            [*before, bytes([element[0] ^ 1, *element[1:]]), *after],
            [*before, bytes([*element[:-1], element[-1] ^ 128]), *after],
            [*before, element[:-1], *after],
            [*before, element + b"\0", *after],
            [*before, *after],
            [*before, element, element, *after],
            [*before, bytes(32), element, *after],
        ]
        if after:
            spoilt.append([*before, after[0], element, *after[1:]])
    return [each for each in spoilt if each != list(proof)]


def _is_refused(verify: Callable[[], None]) -> bool:
    try:
        verify()
    except NotProven:
        return True
    return False


@pytest.mark.spec("AUD-04")
@pytest.mark.parametrize("size", [2, 3, 4, 7, 8, 13, 33, 70])
def test_a_proof_with_anything_changed_proves_nothing(size: int) -> None:
    tried = 0
    for index in range(size):
        good = reference_path(index, LEAVES[:size])
        rows = [(index, size, LEAVES[index], proof, ROOTS[size]) for proof in _spoilt(good)]
        rows += [
            (other, size, LEAVES[index], good, ROOTS[size]) for other in range(-1, size + 1) if other != index
        ]
        rows += [
            (index, size, LEAVES[index ^ 1] if index ^ 1 < size else bytes(32), good, ROOTS[size]),
            (index, size, LEAVES[index], good, ROOTS[size - 1]),
            (index, size, LEAVES[index][:31], good, ROOTS[size]),
        ]
        for at, of, leaf, proof, root in rows:
            tried += 1
            assert _is_refused(
                lambda at=at, of=of, leaf=leaf, proof=proof, root=root: verify_inclusion(  # type: ignore[misc]
                    index=at, size=of, leaf=leaf, proof=proof, root=root
                )
            ), (index, at, proof)
    for old in range(1, size):
        good = reference_consistency(old, LEAVES[:size])
        pairs = [(old, ROOTS[old], ROOTS[size], proof) for proof in _spoilt(good)]
        pairs += [
            (old, ROOTS[old - 1], ROOTS[size], good),
            (old, ROOTS[old], ROOTS[size - 1], good),
            (old, ROOTS[size], ROOTS[old], good),
            (old, ROOTS[old][:31], ROOTS[size], good),
            (0, ROOTS[0], ROOTS[size], good),
            (size + 1, ROOTS[old], ROOTS[size], good),
        ]
        for of, before, after, proof in pairs:
            tried += 1
            assert _is_refused(
                lambda of=of, before=before, after=after, proof=proof: verify_consistency(  # type: ignore[misc]
                    old_size=of, new_size=size, old_root=before, new_root=after, proof=proof
                )
            ), (old, of, proof)
    assert tried > 10


@pytest.mark.spec("AUD-04")
def test_trees_of_one_size_are_consistent_with_one_root_and_no_proof_only() -> None:
    verify_consistency(old_size=5, new_size=5, old_root=ROOTS[5], new_root=ROOTS[5], proof=())
    for old, new, proof in ((ROOTS[5], ROOTS[6], ()), (ROOTS[5], ROOTS[5], (ROOTS[1],))):
        with pytest.raises(NotProven):
            verify_consistency(old_size=5, new_size=5, old_root=old, new_root=new, proof=proof)


@pytest.mark.spec("AUD-04")
def test_what_no_tree_has_is_no_question_for_a_proof() -> None:
    for ask in (
        lambda: inclusion_ranges(3, 3),
        lambda: inclusion_ranges(-1, 3),
        lambda: consistency_ranges(0, 3),
        lambda: consistency_ranges(4, 3),
        lambda: inclusion_proofs(LEAVES[:2], 3, [0]),
        lambda: subtree_roots(LEAVES, 8, [(1, 3)]),
        lambda: subtree_roots(LEAVES, 8, [(0, 9)]),
    ):
        with pytest.raises(ValueError, match=r".+"):
            ask()
    assert subtree_roots([], 0, [(0, 0)]) == {(0, 0): ROOTS[0]}


@pytest.mark.spec("AUD-04")
def test_a_proof_is_found_without_taking_a_leaf_too_many() -> None:
    taken = iter(LEAVES)
    inclusion_proofs(taken, 9, [2])
    assert next(taken) == LEAVES[9]


@pytest.mark.spec("AUD-04")
@pytest.mark.parametrize("step", [1, 7, 1000])
def test_a_tree_of_blocks_is_the_tree_at_every_size_and_goes_back_to_any(step: int) -> None:
    leaves = [leaf_hash(b"%d" % number) for number in range(3 * BLOCK + 5)]
    tree = BlockTree()
    for first in range(0, len(leaves), step):
        tree.extend(leaves[first : first + step])
        if tree.size in {1, 2, 3, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, len(leaves)} or step == 1000:
            assert tree.root() == reference_root(leaves[: tree.size])
    for size in (2 * BLOCK + 7, 2 * BLOCK, BLOCK - 1, 1, 0):
        tree.go_back(size)
        assert (tree.size, tree.root()) == (size, reference_root(leaves[:size]))
    tree.extend(leaves[1:30])
    assert list(tree.leaves()) == leaves[1:30]
    assert tree.root() == reference_root(leaves[1:30])
    with pytest.raises(ValueError, match="size that it had"):
        tree.go_back(30)
    tree.close()
