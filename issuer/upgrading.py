"""An issuer of an earlier release becomes one of this release: its ledger, and then its keys, which belong to it alone.

Rules: LED-04, LED-06, ADM-06. Whether an upgrade is due shows in the keys: they say which schema their ledger has at
least, and those of the first release not even which ledger it is. Where they know of this schema nothing is asked and
nothing more is loaded; a ledger of an earlier schema beside such keys is an older copy that somebody put back, and is
refused.
Next: `ledger.sqlite.upgrade` does it under the writers' lock; `issuer.wiring` opens what it made.
"""

from collections.abc import Callable

from issuer.checking import proofs_with
from issuer.places import Places
from issuer.profile import load_profile
from issuer.sealing import KeyRing, bind_key_ring, open_key_ring
from ledger.model import InstantMs, LedgerId
from ledger.port import SpanRecorder
from ledger.sqlite.schema import SCHEMA_VERSION
from ledger.timekeeping import Uptime


def upgraded_keys(
    places: Places,
    *,
    recorder: Callable[[LedgerId], SpanRecorder],
    clock: Callable[[], InstantMs],
    uptime: Callable[[], Uptime],
    observe: Callable[[str], None],
) -> KeyRing:
    """Open the keys of an issuer, after its ledger was upgraded where that is due.

    Raises:
        ProfileRefused: an upgrade is due, and the profile cannot be read.
        KeysUnavailable: they cannot be used, or cannot be bound to the ledger.
        LedgerUnavailable, LedgerCorrupt, SpanNotRecorded: the ledger cannot be upgraded, and is as it was.
    """
    ring = open_key_ring(places.keys)
    if ring.ledger_schema >= SCHEMA_VERSION:
        return ring
    from ledger.sqlite.upgrade import Means, upgrade_ledger  # noqa: PLC0415 - loads sqlite-utils, and is due once

    means = Means(
        proofs=proofs_with(ring),
        recorder=recorder,
        clock=clock,
        uptime=uptime,
        observer=observe,
        attributes={"permit.mode": load_profile(places.profile).mode},
        own=None if ring.ledger_id is None else LedgerId(ring.ledger_id),
    )
    upgrade_ledger(
        places.ledger,
        means,
        lambda ledger_id: bind_key_ring(places.keys, ledger_id, schema=SCHEMA_VERSION),
    )
    return open_key_ring(places.keys)
