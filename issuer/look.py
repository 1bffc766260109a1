"""Opening a ledger to look at it and nothing else: no lock file, no checkpoint, no transition, no recorder.

Rules: LED-04 (reading goes on). Next: `ledger.sqlite.store`.
"""

from issuer.clock import now_ms
from issuer.places import Places
from issuer.sealing import KeyRing
from issuer.sealing.authenticator import RingAuthenticator
from ledger.errors import SpanNotRecorded
from ledger.model import LedgerId
from ledger.sqlite import SqliteLedger
from ledger.transitions import RecordedSpan


class _NoSpans:
    """Stands where a recorder goes in a ledger that is looked at only, and records nothing."""

    def record(self, *_asked: object, **_named: object) -> RecordedSpan:
        """Refuse."""
        raise SpanNotRecorded("looks_only", "Nothing is recorded while looking.")


def open_to_look(places: Places, ring: KeyRing, *, tolerant: bool = False) -> SqliteLedger:
    """Open the ledger of an issuer to be looked at; with `tolerant`, a damaged one too.

    Raises:
        LedgerUnavailable, LedgerCorrupt: as `ledger.sqlite.SqliteLedger`.
    """
    return SqliteLedger(
        places.ledger,
        recorder=lambda _ledger_id: _NoSpans(),
        keys=RingAuthenticator(ring),
        clock=now_ms,
        looks_only=True,
        tolerant=tolerant,
        ledger_id=None if ring.ledger_id is None else LedgerId(ring.ledger_id),
    )
