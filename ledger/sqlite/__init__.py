"""The ledger as one SQLite file: the store behind `ledger.port`."""

from ledger.sqlite.connection import library_is_safe, library_version
from ledger.sqlite.creation import create_ledger
from ledger.sqlite.store import SqliteLedger, journal_mode

__all__ = ["SqliteLedger", "create_ledger", "journal_mode", "library_is_safe", "library_version"]
