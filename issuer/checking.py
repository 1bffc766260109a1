"""Checking the ledger as a whole: on demand, in a new boot, and after an unclean end.

Rules: LED-04 (what is found stops new effects, and reading goes on), LED-06, REP-07, design section 3 (opening is
cheap, the full check runs where something may have gone wrong). A small file beside the ledger keeps the boot of the
last clean check, and the dead processes that it knew of: an end is looked at once.
Whoever can write that folder can write that file too; the check on demand asks no file.
Next: `issuer.wiring` asks at the start, `issuer.commands.ledger` on demand.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from audit.comparison import span_holds
from issuer.clock import monotonic_ms
from issuer.flow.binding import binding_digest
from issuer.flow.seal import seal_holds
from issuer.instance import boot_id, dead_instances, forget_instance
from issuer.places import Places
from issuer.sealing import KeyRing, KeyState
from issuer.sealing.authenticator import RingAuthenticator
from ledger.model import Effect, LedgerId, Permit
from ledger.port import Ledger
from ledger.sqlite.check import CheckReport, check_ledger
from ledger.sqlite.halt import lift_halt, set_halt, standing_halt
from ledger.states import EffectState

_CHECKED_BYTES_MAX: Final = 64 * 1024
"""Far more than the names of dead processes that ever stand there at once; a longer file says nothing."""


def checked_ledger(places: Places, ring: KeyRing) -> CheckReport:
    """Check the ledger of an issuer with everything that its rooms can prove.

    Raises:
        LedgerUnavailable: it cannot be read; nothing is said about it.
    """
    has_retired = any(ring.state(key_id) is KeyState.RETIRED for key_id in ring.key_ids)

    def open_seal(ledger_id: LedgerId, effect: Effect, permit: Permit) -> bool:
        # A retired key opens no permit, so what it sealed and nobody can use any more is not judged.
        past = has_retired and effect.state is not EffectState.PERMITTED
        return seal_holds(ring, ledger_id, effect, permit) or past

    return check_ledger(
        places.ledger,
        keys=RingAuthenticator(ring),
        stopwatch_ms=monotonic_ms,
        binding_digest=binding_digest,
        open_seal=open_seal,
        span_holds=span_holds,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A check and what followed from it: whether new effects are stopped now."""

    report: CheckReport
    halted: bool


def judge(places: Places, ring: KeyRing) -> Judged:
    """Check the ledger, and set or lift the mark that stops new effects.

    Raises:
        LedgerUnavailable: the ledger cannot be read, or the mark not be written.
    """
    standing = standing_halt(places.ledger)
    report = checked_ledger(places, ring)
    if not report.is_clean:
        set_halt(places.ledger, report.findings[0].what)
        return Judged(report=report, halted=True)
    # A mark that came while this check ran is about something that it may not have seen.
    lifted = standing_halt(places.ledger) is None if standing is None else lift_halt(places.ledger, standing)
    return Judged(report=report, halted=not lifted)


def check_at_start(places: Places, ring: KeyRing, ledger: Ledger) -> None:
    """Check the ledger where the boot is new, or a process ended unclean since the last clean check.

    What is found stops new effects; the ledger stays open to be read. Nothing is checked where they are stopped
    already: only a check on demand lifts that.

    Raises:
        LedgerUnavailable: the check could not be made, or its finding stop nothing.
    """
    if standing_halt(places.ledger) is not None:
        return
    dead = dead_instances(places.instances)
    boot, known = _last_clean(places)
    if boot != boot_id() or dead - known:
        if judge(places, ring).halted:
            return
    elif not dead and not known:
        return
    # Asked after their locks: a process that is gone makes no further claim.
    claiming = {claim.instance for claim in ledger.read(lambda view: view.claims_open())} if dead else set()
    with suppress(OSError):  # a folder that cannot be written only means that the next start looks again
        for name in dead - claiming:
            forget_instance(places.instances, name)
        lines = "".join(f"{line}\n" for line in (boot_id(), *sorted(dead & claiming)))
        fresh = places.checked.with_name(f"{places.checked.name}.new")
        fresh.unlink(missing_ok=True)
        descriptor = os.open(
            fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(lines)
        fresh.replace(places.checked)


def _last_clean(places: Places) -> tuple[str | None, frozenset[str]]:
    """Return the boot of the last clean check and the dead processes it knew of; None where nobody can tell."""
    try:
        if places.checked.stat().st_size > _CHECKED_BYTES_MAX:
            return None, frozenset()
        boot, *known = places.checked.read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return None, frozenset()
    return boot, frozenset(known)
