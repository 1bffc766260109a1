"""Making a backup of the ledger while it is in use: a copy that was looked at, and is on record.

Rules: LED-08, AUD-01 (what has no span has not happened: then the copy goes again), AUD-02. The sinks acknowledge after
the copy was made, so a sink that ends before a backup does is one that lost something.
A backup holds the ledger and nothing else: no keys, no credentials, no protected content, no profile, no policies.
Next: `issuer.restore` brings it back.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from audit import AuditUnavailable, Delivery, LedgerSpans, NoRequiredSink, Sink, Stand
from issuer.clock import now_ms
from issuer.flow.refusing import RefusedError
from issuer.flow.signed_act import once
from issuer.grounds import Ground, ground_in, sinks_in_force
from issuer.places import Places
from issuer.revised import REVISION, RevisedLedger
from issuer.revisions import NO_REVISION
from issuer.sealing import KeyRing
from issuer.sealing.authenticator import RingAuthenticator
from issuer.sink_places import kept_back
from issuer.unopened import UNSIGNED, Act, ActRefused, Gate, Given
from issuer.wiring import current_keys, open_ledger
from ledger.changes import Step
from ledger.model import InstantMs
from ledger.port import Ledger, Verdict, View
from ledger.sqlite import SqliteLedger
from ledger.sqlite.copying import copied
from ledger.sqlite.halt import refuse_halted
from ledger.sqlite.head import head_of_copy
from ledger.transitions import Position, Transition, TransitionName

COMMAND: Final = "ledger-backup"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackedUp:
    """A backup that was made.

    Attributes:
        base: its last span.
        unshipped: why a required sink has not acknowledged it, or None.
    """

    ground: Ground
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
    act: Act = UNSIGNED,
) -> BackedUp:
    """Copy the ledger of the issuer whose profile is at `profile_path` to the new file `file`.

    `observe` is told each step before it is done. Sinks and caller are those of what is in force (`issuer.grounds`).

    Raises:
        ActRefused: who calls may not; it is on record.
        Fault: no copy is there.
    """
    places = Places(profile_path.absolute())
    ring = current_keys(places, clock=clock)
    ledger = open_ledger(places, ring, clock=clock)
    try:
        given = _given(_gate(places, ring, ledger, act, clock), file, act)
        # What is known to be damaged is evidence, and no backup.
        refuse_halted(places.ledger)
        observe("copy")
        copied(places.ledger, file.absolute())
        try:
            observe("verify")
            head, _tree = head_of_copy(file.absolute(), ledger.ledger_id, RingAuthenticator(ring))
            observe("record")
            sequence = _recorded(given, ledger, head.position)
        except BaseException as fault:
            with suppress(OSError):
                file.unlink()
            if isinstance(fault, RefusedError):  # the signature was used meanwhile
                raise ActRefused(given, COMMAND, fault.refusal).recorded(ledger) from None
            raise
        observe("ship")
        return BackedUp(
            ground=given.ground,
            ledger_id=ledger.ledger_id,
            file=file,
            size_bytes=file.stat().st_size,
            base=head.position,
            unshipped=shipped(sinks_in_force(given.ground.profile, ledger), ledger, sequence),
        )
    finally:
        ledger.close()


def _given(gate: Gate, file: Path, act: Act) -> Given:
    try:
        return gate.whole(act, _arguments(file))
    except ActRefused as no:
        raise no.recorded(gate.ledger) from None


def _gate(
    places: Places, ring: KeyRing, ledger: SqliteLedger, act: Act, clock: Callable[[], InstantMs]
) -> Gate:
    ground = ground_in(places, ledger, is_strict=act.is_strict)
    return Gate(command=COMMAND, ground=ground, places=places, ring=ring, ledger=ledger, now=clock)


def _arguments(file: Path) -> dict[str, object]:
    return {"file": str(file.absolute())}


def backup_statement(
    profile_path: Path, person: str, file: Path, *, clock: Callable[[], InstantMs] = now_ms
) -> str:
    """Return what `person` signs for a backup to `file`; nothing is copied.

    Raises:
        RefusedError: nobody of that name is in force.
        Fault: the ledger cannot be read.
    """
    places = Places(profile_path.absolute())
    ring = current_keys(places, clock=clock)
    ledger = open_ledger(places, ring, clock=clock)
    try:
        return _gate(places, ring, ledger, UNSIGNED, clock).statement(_arguments(file), person)
    finally:
        ledger.close()


def _recorded(given: Given, ledger: SqliteLedger, base: Position) -> int:
    transition = Transition(
        name=TransitionName.LEDGER_BACKED_UP,
        story=ledger.ledger_id,
        attributes={
            **given.attributes,
            REVISION: given.ground.revision or NO_REVISION,
            "permit.base.epoch": base.epoch,
            "permit.base.sequence": base.sequence,
        },
    )

    def decide(_view: View, _now: InstantMs) -> Verdict[None]:
        return Verdict(value=None, steps=(Step(transition=transition),))

    return RevisedLedger(ledger, None).record(once(given.signed, decide)).sequence


def shipped(sinks: Sequence[Sink], ledger: Ledger, sequence: int) -> str | None:
    """Let `sinks` catch up with the ledger up to `sequence`; return why a required one did not, or None."""
    try:
        delivery = Delivery(sinks, LedgerSpans(ledger), stand=Stand(kept=ledger.read(kept_back)))
    except NoRequiredSink:
        return "No sink that is required is one of the ledger's; run `issuer sink replace`."
    try:
        delivery.acknowledge(sequence)
    except AuditUnavailable as fault:
        return f"{fault.sink}: {fault.message}"
    finally:
        delivery.close()
    return None
