"""The ledger as one SQLite file: the store behind `ledger.port`.

`ledger.sqlite.creation` stands apart: it makes new ledgers, and loads sqlite-utils, which no other command needs.
"""

from ledger.sqlite.connection import library_is_safe, library_version
from ledger.sqlite.store import SqliteLedger, journal_mode

__all__ = ["SqliteLedger", "journal_mode", "library_is_safe", "library_version"]
