"""A ledger that is opened to be looked at stays as it lies; and opening one beside a busy writer sees no damage."""

from pathlib import Path

import pytest

from issuer.sealing import open_key_ring
from issuer.sealing.authenticator import RingAuthenticator
from ledger.errors import LedgerUnavailable
from ledger.sqlite import SqliteLedger
from tests.support.ledgers import START, Book, attacker, made_book, probe
from tests.support.recorders import plain_recorder


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return made_book(tmp_path / "book")


def looked_at(book: Book) -> SqliteLedger:
    return SqliteLedger(
        book.path, recorder=plain_recorder, keys=book.keys, clock=lambda: START, looks_only=True
    )


def files(book: Book) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in book.folder.iterdir() if path.is_file()}


@pytest.mark.spec("LED-04")
def test_looking_reads_everything_writes_nothing_and_makes_no_file(book: Book) -> None:
    before = files(book)
    assert not any(name.endswith((".lock", "-wal", "-shm")) for name in before)
    ledger = looked_at(book)
    assert ledger.last_entry_ms == START
    assert ledger.read(lambda view: view.head()).sequence == 0
    with pytest.raises(LedgerUnavailable) as refused:
        probe(ledger)
    assert refused.value.reason == "looks_only"
    assert ledger.read(lambda view: view.head()).sequence == 0
    ledger.close()
    assert files(book) == before


@pytest.mark.spec("LED-04")
def test_looking_compares_the_journal_mode_and_does_not_set_it(book: Book) -> None:
    raw = attacker(book.path)
    raw.execute("PRAGMA journal_mode = delete")
    raw.close()
    before = files(book)
    with pytest.raises(LedgerUnavailable) as refused:
        looked_at(book)
    assert refused.value.reason == "journal_mode"
    assert files(book) == before


class WritingInBetween(RingAuthenticator):
    """Accepts a head, and lets another process's entry come in before the next question about it is asked."""

    def __init__(self, book: Book) -> None:
        super().__init__(open_key_ring(book.folder / "keys"))
        self._writer: SqliteLedger | None = book.open()

    def is_authentic(self, domain: str, data: bytes, tag: bytes) -> bool:
        writer, self._writer = self._writer, None
        if writer is not None:
            probe(writer)
            writer.close()
        return super().is_authentic(domain, data, tag)


@pytest.mark.spec("LED-06")
def test_an_entry_that_comes_in_while_a_ledger_is_opened_is_not_taken_for_damage(book: Book) -> None:
    ledger = book.open(keys=WritingInBetween(book))
    assert ledger.read(lambda view: view.head()).sequence == 1
    probe(ledger)
    assert ledger.read(lambda view: view.head()).sequence == 2
    ledger.close()
