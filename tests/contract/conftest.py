"""The stores that the contract suite runs over: a new store is one line of `STORES`."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

import pytest

from ledger.model import LedgerId
from ledger.port import Ledger, SpanRecorder
from tests.support.ledgers import Clock, made_book


class Store(Protocol):
    """An empty ledger that can be opened any number of times."""

    @property
    def clock(self) -> Clock:
        """The clock of everything that was opened."""
        ...

    def open(self, *, recorder: Callable[[LedgerId], SpanRecorder] = ...) -> Ledger:
        """Open it once more."""
        ...


STORES: Mapping[str, Callable[[Path], Store]] = {"sqlite": made_book}


@pytest.fixture(params=sorted(STORES))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """One empty ledger of each kind."""
    return STORES[request.param](tmp_path / "store")


@pytest.fixture
def ledger(store: Store) -> Iterator[Ledger]:
    """The store, opened."""
    opened = store.open()
    yield opened
    opened.close()
