"""Holds the digest of documents to their meaning, for as many documents as a run has time for."""

import random
from collections.abc import Hashable

from issuer.flow.binding import binding_digest
from ledger.canonical import canonical_bytes, parse_strict
from tests.support.documents import Document, drawn, meaning, neighbours, written

WRITINGS = 3
"""Texts of each document."""


class Digests:
    """Every digest that was seen, and what it stood for."""

    def __init__(self) -> None:
        self.by_meaning: dict[Hashable, bytes] = {}
        self.by_digest: dict[bytes, Hashable] = {}

    def take(self, document: Document, found: Document) -> None:
        """Take what was read for `document`; one meaning has one digest, and no two have the same."""
        meant = meaning(document)
        if meaning(found) != meant:
            raise AssertionError(f"read as another document: {document!r} {found!r}")
        digest = binding_digest(canonical_bytes(found))
        if self.by_meaning.setdefault(meant, digest) != digest:
            raise AssertionError(f"two digests for one meaning: {document!r}")
        if self.by_digest.setdefault(digest, meant) != meant:
            raise AssertionError(f"one digest for two meanings: {document!r}")


def hold_digests(count: int, seed: int) -> Digests:
    """Draw `count` documents from `seed`, each in several texts and beside its neighbours; return what was seen."""
    chance = random.Random(seed)  # noqa: S311 - documents that a seed gives again, and no secrets
    seen = Digests()
    for _ in range(count):
        document = drawn(chance)
        for _writing in range(WRITINGS):
            seen.take(document, parse_strict(written(document, chance)))
        for other in neighbours(document):
            seen.take(other, parse_strict(written(other, chance)))
    return seen
