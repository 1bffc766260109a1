"""Making a backup of the ledger while it is in use: a copy that was looked at, and is on record.

Rules: LED-08, AUD-01 (what has no span has not happened: then the copy goes again), AUD-02. The sinks acknowledge after
the copy was made, so a sink that ends before a backup does is one that lost something.
A backup holds the ledger and nothing else: no keys, no credentials, no protected content, no profile, no policies.
Next: `issuer.restore` brings it back.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from audit import AuditUnavailable, Delivery, LedgerSpans
from issuer.caller import local_caller
from issuer.clock import now_ms
from issuer.places import Places
from issuer.profile import Profile, load_profile
from issuer.revised import REVISION, RevisedLedger
from issuer.sealing.authenticator import RingAuthenticator
from issuer.wiring import current_keys, open_ledger, registered_sinks
from ledger.changes import Step
from ledger.model import InstantMs, Position, Transition, TransitionName
from ledger.port import Verdict, View
from ledger.sqlite import SqliteLedger
from ledger.sqlite.copying import copied
from ledger.sqlite.halt import refuse_halted
from ledger.sqlite.head import head_of_copy


@dataclass(frozen=True, slots=True, kw_only=True)
class BackedUp:
    """A backup that was made.

    Attributes:
        base: its last span.
        unshipped: why a required sink has not acknowledged it, or None.
    """

    profile: Profile
    ledger_id: str
    file: Path
    size_bytes: int
    base: Position
    unshipped: str | None


def back_up(
    profile_path: Path,
    file: Path,
    *,
    clock: Callable[[], InstantMs] = now_ms,
    observe: Callable[[str], None] = lambda _step: None,
) -> BackedUp:
    """Copy the ledger of the issuer whose profile is at `profile_path` to the new file `file`.

    `observe` is told each step before it is done.

    Raises:
        ProfileRefused, SetupError: the profile cannot be used.
        Fault: no copy is there.
    """
    places = Places(profile_path.absolute())
    profile = load_profile(places.profile)
    ring = current_keys(places, clock=clock)
    ledger = open_ledger(places, ring, clock=clock)
    try:
        # What is known to be damaged is evidence, and no backup.
        refuse_halted(places.ledger)
        observe("copy")
        copied(places.ledger, file.absolute())
        try:
            observe("verify")
            head, _tree = head_of_copy(file.absolute(), ledger.ledger_id, RingAuthenticator(ring))
            observe("record")
            sequence = _recorded(profile, ledger, head.position)
        except BaseException:
            with suppress(OSError):
                file.unlink()
            raise
        observe("ship")
        return BackedUp(
            profile=profile,
            ledger_id=ledger.ledger_id,
            file=file,
            size_bytes=file.stat().st_size,
            base=head.position,
            unshipped=shipped(profile, ledger, sequence),
        )
    finally:
        ledger.close()


def _recorded(profile: Profile, ledger: SqliteLedger, base: Position) -> int:
    transition = Transition(
        name=TransitionName.LEDGER_BACKED_UP,
        story=ledger.ledger_id,
        attributes={
            "permit.mode": profile.mode,
            "permit.caller": local_caller(profile).name,
            REVISION: profile.digest,
            "permit.base.epoch": base.epoch,
            "permit.base.sequence": base.sequence,
        },
    )

    def decide(_view: View, _now: InstantMs) -> Verdict[None]:
        return Verdict(value=None, steps=(Step(transition=transition),))

    return RevisedLedger(ledger, None).record(decide).sequence


def shipped(profile: Profile, ledger: SqliteLedger, sequence: int) -> str | None:
    """Let the sinks catch up with the ledger up to `sequence`; return why a required one did not, or None."""
    delivery = Delivery(registered_sinks(profile, ledger), LedgerSpans(ledger))
    try:
        delivery.acknowledge(sequence)
    except AuditUnavailable as fault:
        return f"{fault.sink}: {fault.message}"
    finally:
        delivery.close()
    return None
