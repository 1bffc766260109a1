"""Checking the ledger as a whole: on demand, in a new boot, and after an unclean end.

Rules: LED-04 (what is found stops new effects, and reading goes on), LED-06, REP-07, design section 3 (opening is
cheap, the full check runs where something may have gone wrong). A small file beside the ledger keeps the boot of the
last clean check, and the dead processes that it knew of: an end is looked at once. The check on demand asks no file.
A ledger behind one of its sinks was rolled back or replaced, however whole it is.
Next: `issuer.wiring` asks at the start, `issuer.commands.ledger` on demand.
"""

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from audit import LedgerSpans, Sink, SinkAhead, SinkExpectation, SinkUnavailable
from audit.comparison import span_holds, span_says
from issuer.checked_mark import Checked, forget_checked, read_checked, write_checked
from issuer.clock import boot_id, monotonic_ms
from issuer.flow.binding import binding_digest
from issuer.flow.seal import seal_holds
from issuer.instance import dead_instances, forget_instance
from issuer.look import open_to_look
from issuer.places import Places
from issuer.sealing import KeyRing, Purpose, may, seal_key_id
from issuer.sealing.authenticator import RingAuthenticator
from issuer.sink_building import looked_sink
from ledger.changes import Step
from ledger.errors import Fault, LedgerCorrupt
from ledger.model import LedgerId
from ledger.port import Ledger, SealedEffect, SealedPermit, Verdict
from ledger.sqlite.check import CheckFinding, CheckReport, check_ledger
from ledger.sqlite.check_ground import FINDINGS_MAX, Proofs
from ledger.sqlite.halt import lift_halt, set_halt, standing_halt
from ledger.transitions import Position, Transition, TransitionName

SINK_SECONDS: Final = 2.0
"""How long another process may hold a sink while its last line is looked at."""

OPENING_SECONDS: Final = 10.0
"""How long the sinks may take together when an issuer is opened: a few that are held, and none that hangs."""


def proofs_with(ring: KeyRing) -> Proofs:
    """Return everything that the rooms of an issuer can prove of its ledger."""

    def open_seal(ledger_id: LedgerId, effect: SealedEffect, permit: SealedPermit) -> bool:
        # What a key sealed that opens no permit any more is void, and nobody can use it: it is not judged.
        return seal_holds(ring, ledger_id, effect, permit) or _is_void(ring, permit.seal)

    return Proofs(
        keys=RingAuthenticator(ring),
        binding_digest=binding_digest,
        open_seal=open_seal,
        span_holds=span_holds,
        span_says=span_says,
    )


def _is_void(ring: KeyRing, seal: str) -> bool:
    """Say whether a permit's seal names a key of the ring that was retired or revoked."""
    key_id = seal_key_id(seal)
    return key_id in ring.key_ids and not may(ring.state(key_id), Purpose.SEAL)


def checked_ledger(places: Places, ring: KeyRing) -> CheckReport:
    """Check the ledger of an issuer with everything that its rooms can prove.

    Raises:
        LedgerUnavailable: it cannot be read; nothing is said about it.
        LedgerCorrupt: it has another schema than this release's, and is not judged.
    """
    report = checked_file(places.ledger, ring)
    if report.ledger_id == ring.ledger_id:
        behind = _behind_sinks(places, ring)
        kept = report.findings[: FINDINGS_MAX - len(behind)]
        report = replace(
            report, findings=(*kept, *behind), cut=report.cut or len(kept) < len(report.findings)
        )
    return report


def _behind_sinks(places: Places, ring: KeyRing) -> tuple[CheckFinding, ...]:
    """Return the sinks that hold what the ledger does not; a ledger that cannot say its sinks is named otherwise."""
    try:
        ledger = open_to_look(places, ring)
    except Fault:
        return ()
    sinks: tuple[Sink, ...] = ()
    try:
        sinks = registered(ledger)
        return tuple(
            CheckFinding(what="behind_sink", where=f"sink {name}", says=says)
            for name, says in sinks_ahead(sinks, ledger)
        )
    except LedgerCorrupt:
        return ()
    finally:
        for sink in sinks:
            sink.close()
        ledger.close()


def registered(ledger: Ledger) -> tuple[Sink, ...]:
    """Return the sinks of the ledger, to be looked at: files, and watermarks of what other programs keep."""
    return tuple(looked_sink(sink, ledger.ledger_id) for sink in ledger.read(lambda view: view.sinks()))


def sinks_ahead(sinks: Sequence[Sink], ledger: Ledger) -> tuple[tuple[str, str], ...]:
    """Return the name of each sink that holds what the ledger does not, and a sentence (LED-06).

    The file is looked at first, and the ledger then: another process that goes on meanwhile is no rollback. A sink that
    cannot be read is no proof of anything; it is asked again before anything is admitted.
    """
    found = []
    for sink in sinks:
        try:
            sink.probe(SinkExpectation(source=LedgerSpans(ledger), looks_only=True), SINK_SECONDS)
        except SinkAhead as fault:
            found.append((fault.sink, fault.message))
        except SinkUnavailable:
            continue
    return tuple(found)


def checked_file(path: Path, ring: KeyRing, *, is_copy: bool = False) -> CheckReport:
    """Check a ledger file, or a copy of one, which may be in any journal mode; otherwise as `checked_ledger`."""
    proofs = proofs_with(ring)
    return check_ledger(
        path,
        keys=proofs.keys,
        stopwatch_ms=monotonic_ms,
        binding_digest=proofs.binding_digest,
        open_seal=proofs.open_seal,
        span_holds=proofs.span_holds,
        span_says=proofs.span_says,
        is_copy=is_copy,
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
        LedgerCorrupt: it has another schema than this release's; no mark is set.
    """
    standing = standing_halt(places.ledger)
    report = checked_ledger(places, ring)
    if not report.is_clean:
        set_halt(places.ledger, report.findings[0].what)
        forget_checked(places.checked)
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
    head, keys = ledger.read(lambda view: view.head()), RingAuthenticator(ring)
    last = read_checked(places.checked, ledger.ledger_id, keys)
    known = frozenset() if last is None else last.known
    if ledger.damage is not None or last is None or not last.holds(boot_id(), head) or dead - known:
        if dead - known and ledger.damage is None:
            head = _made_certain(ledger, head)
        if judge(places, ring).halted:
            return
    elif not dead and not known:
        return
    # Asked after their locks: a process that is gone makes no further claim.
    claiming = {claim.instance for claim in ledger.read(lambda view: view.claims_open())} if dead else set()
    with suppress(OSError):  # a folder that cannot be written only means that the next start looks again
        for name in dead - claiming:
            forget_instance(places.instances, name)
        clean = Checked(
            boot=boot_id(), epoch=head.epoch, sequence=head.sequence, known=frozenset(dead & claiming)
        )
        write_checked(places.checked, ledger.ledger_id, keys, clean)


def _made_certain(ledger: Ledger, head: Position) -> Position:
    """Commit a span of its own after an unclean end, before anything is read; return the head after it.

    What a process left that died in a commit, or met an error there, may be visible and not yet durable. It is once
    something was committed after it (ADM-03, design section 2). Where nothing can be written, reading goes on.
    """
    probe = Step(transition=Transition(name=TransitionName.PROBE, story=ledger.ledger_id))
    with suppress(Fault):
        ledger.transact(lambda _view, _now: Verdict(value=None, steps=(probe,)))
        return ledger.read(lambda view: view.head())
    return head


def refuse_behind_sinks(places: Places, ledger: Ledger) -> None:
    """Stop new effects where a sink holds what the ledger does not: it was rolled back, replaced or copied (LED-06).

    A sink that hangs (a file system that is gone) holds up no start: reading and revoking have to work then (AUD-02).

    Raises:
        LedgerUnavailable: that cannot be noted.
        LedgerCorrupt: which sinks it has cannot be believed.
    """
    if standing_halt(places.ledger) is None and ledger.damage is None and _is_behind_in_time(ledger):
        set_halt(places.ledger, "behind_sink")
        forget_checked(places.checked)


def _is_behind_in_time(ledger: Ledger) -> bool:
    """Say whether some sink is ahead, as far as all of them answer in `OPENING_SECONDS` together."""
    found: list[bool] = []
    faults: list[BaseException] = []

    def look() -> None:
        sinks: tuple[Sink, ...] = ()
        try:
            sinks = registered(ledger)
            found.append(bool(sinks_ahead(sinks, ledger)))
        except BaseException as fault:  # noqa: BLE001 - handed to whoever opens, who alone can tell what it means
            faults.append(fault)
        finally:
            for sink in sinks:
                sink.close()

    thread = threading.Thread(target=look, name="issuer-anchors", daemon=True)
    thread.start()
    thread.join(OPENING_SECONDS)
    if faults:
        raise faults[0]
    return any(found)


def note_restored(places: Places, ring: KeyRing, ledger_id: LedgerId, head: Position) -> None:
    """Lift the stop of the ledger that was replaced, and note that the new one, whose last span is `head`, is whole."""
    standing = standing_halt(places.ledger)
    if standing is not None:
        lift_halt(places.ledger, standing)
    clean = Checked(boot=boot_id(), epoch=head.epoch, sequence=head.sequence)
    with suppress(OSError):
        write_checked(places.checked, ledger_id, RingAuthenticator(ring), clean)
