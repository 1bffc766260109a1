"""Recording how an effect ended, on a full disk as well: the ballast gives its room for it, once.

Rules: LED-02 (room to record how admitted effects ended is kept free), AUD-02 (an outcome waits for nothing), REP-05.
It is recorded whichever revision of the owner is in force by then (POL-07 is asked of decisions, and this is none).
Only an outcome is worth the ballast: an expiry, or an admission that became `unknown`, is found again by whoever
looks next, and everything else can be refused.
"""

from typing import TypeVar

from issuer.house import House
from issuer.revised import RevisedLedger
from ledger.errors import CommitUncertain, LedgerUnavailable
from ledger.port import Committed, Decide

T = TypeVar("T")


def record_end(house: House, decide: Decide[T]) -> Committed[T]:
    """Commit an outcome; where that failed for want of room, give up the ballast and try once more.

    Raises:
        Fault: as `ledger.port.Ledger.transact`.
    """
    try:
        return house.ledger.record(decide)
    except (LedgerUnavailable, CommitUncertain) as fault:
        if not _wants_room(house, fault):
            raise
    house.ballast.release()
    # The open ledger may have died of the failed commit. Whether that one happened after all is no matter: `decide`
    # looks at the record again, and an effect settles once.
    ledger = RevisedLedger(house.open_anew(), house.revision)
    try:
        return ledger.record(decide)
    finally:
        ledger.close()


def _wants_room(house: House, fault: LedgerUnavailable | CommitUncertain) -> bool:
    """Say whether it was the disk that had no room; another process may have made some since."""
    was_full = fault.disk_was_full if isinstance(fault, CommitUncertain) else fault.reason == "disk_full"
    return was_full or house.ballast.disk_is_full
