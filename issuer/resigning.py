"""What a compromised key signed in the ledger is signed anew with everything that the rooms of an issuer can prove.

Rules: SEC-03, LED-06. Next: `ledger.sqlite.resigning` does it under the writers' lock; `issuer.commands.keys` asks.
"""

from collections.abc import Callable

from issuer.checking import proofs_with
from issuer.places import Places
from issuer.sealing import KeyRing
from ledger.model import InstantMs, LedgerId
from ledger.port import SpanRecorder
from ledger.timekeeping import Uptime
from ledger.transitions import Transition


def signed_anew(
    key_id: int,
    transition: Transition,
    *,
    places: Places,
    ring: KeyRing,
    recorder: Callable[[LedgerId], SpanRecorder],
    clock: Callable[[], InstantMs],
    uptime: Callable[[], Uptime],
    observe: Callable[[str], None],
) -> int:
    """Sign anew what `key_id` signed; return the sequence of the span, which is `transition`.

    Raises:
        LedgerUnavailable, LedgerCorrupt, SpanNotRecorded, CommitUncertain: as `ledger.sqlite.resigning`.
    """
    from ledger.sqlite.resigning import Resigning, resign_ledger  # noqa: PLC0415 - rare, and no start waits for it

    wanted = Resigning(
        ledger_id=LedgerId(transition.story),
        key_id=key_id,
        proofs=proofs_with(ring),
        recorder=recorder,
        clock=clock,
        uptime=uptime,
        observer=observe,
        transition=transition,
    )
    return resign_ledger(places.ledger, wanted)
