"""Restoring a ledger, step by step; until the last one nothing of the old ledger has changed.

Rules: LED-08, LED-04, ADM-06. In order:
  0. a host or an actor restores nothing; without a signature strict mode and the policies in force are asked
  1. the backup's name is free of doubt: its file is copied, and the copy is what is judged and used
  2. nobody else has the ledger open, and the writers' lock is held to the end
  3. the copy is this issuer's, whole, and passes the full check; a signature is over its last span, and is judged here
  4. each sink is read and held against it   5. the clock is behind neither
  6. the first transaction of the new epoch, in the copy   7. the full check, again
  8. the copy takes the old ledger's place   9. sinks that cannot go on are begun anew
  10. the sinks acknowledge the new epoch.
Sinks, bounds and caller are those of the revision in force in the ledger that is replaced; where that cannot be read,
of the backup's; and where nothing says it, no sink counts as required, so that everything is frozen (`issuer.grounds`).
Next: `issuer.commands.backup`.
"""

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from audit import SinkUnavailable
from issuer.backup import shipped
from issuer.checking import checked_file, note_restored
from issuer.clock import now_ms
from issuer.flow.refusing import RefusedError
from issuer.flow.signed_act import once
from issuer.grounds import Ground, ground_in, looked_at, sinks_in_force
from issuer.instance import living_instances
from issuer.places import Places
from issuer.profile import Profile
from issuer.restore.exchange import cleared, exchange, move_aside
from issuer.restore.plan import Outcome, Plan
from issuer.restore.retold import Retold
from issuer.restore.sinks import SinkSeen, look_at_sink
from issuer.restore.steps import first_steps
from issuer.sealing import KeyRing, open_key_ring
from issuer.sealing.authenticator import RingAuthenticator
from issuer.sink_building import all_files_of, make_place
from issuer.unopened import UNSIGNED, Act, ActRefused, Gate, Given, on_record
from issuer.wiring import open_ledger, own_ledger
from ledger.authority import RulingKind
from ledger.errors import Fault, LedgerCorrupt, LedgerUnavailable
from ledger.model import InstantMs, Tier
from ledger.port import Ledger
from ledger.refusals import Refusal, RefusalCode
from ledger.sqlite import SqliteLedger
from ledger.sqlite.copying import copied
from ledger.sqlite.head import epoch_said, head_of_copy
from ledger.sqlite.lock import WriterLock
from ledger.sqlite.rows import Head
from ledger.sqlite.store import LOCK_SUFFIX
from ledger.timekeeping import CLOCK_BACKWARD_TOLERANCE_MS
from ledger.transitions import Position
from ledger.tree import Frontier

COMMAND: Final = "ledger-restore"
_NOT_WHOLE: Final = "Nothing was restored; try an earlier backup."


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What a restore did.

    Attributes:
        base: where the backup ended.
        complete: whether a required sink proves that no admission is missed.
        kept: the folder that holds the old ledger, None where there was none.
        fresh: the sinks whose file was begun anew.
        unshipped: why the sinks have not acknowledged the new epoch yet, or None.
    """

    ground: Ground
    ledger_id: str
    base: Position
    epoch: int
    complete: bool
    outcome: Outcome
    sinks: tuple[SinkSeen, ...]
    kept: Path | None
    fresh: tuple[str, ...]
    unshipped: str | None


def restore(
    profile_path: Path,
    backup: Path,
    *,
    clock: Callable[[], InstantMs] = now_ms,
    observe: Callable[[str], None] = lambda _step: None,
    act: Act = UNSIGNED,
) -> Restored:
    """Restore the ledger of the issuer whose profile is at `profile_path` from the file `backup`.

    `observe` is told each numbered step before it is done.

    Raises:
        ActRefused: who calls may not; it is on record where the ledger can be written.
        Fault: nothing was changed, or (from step 8 on) the sentence says what was.
    """
    places = Places(profile_path.absolute())
    ring = open_key_ring(places.keys)
    try:
        return _restored(places, ring, backup, _Means(clock=clock, observe=observe, act=act))
    except ActRefused as no:
        raise on_record(no, places, ring) from None


def restore_statement(
    profile_path: Path, person: str, backup: Path, *, clock: Callable[[], InstantMs] = now_ms
) -> str:
    """Return what `person` signs for a restore: it names the last span of the backup, so no other comes in under it.

    Raises:
        RefusedError: nobody of that name is in force.
        Fault: the backup cannot be read.
    """
    places = Places(profile_path.absolute())
    ring = open_key_ring(places.keys)
    with tempfile.TemporaryDirectory(prefix="permit-issuer-") as folder:
        built = Path(folder) / places.ledger.name
        copied(backup.absolute(), built)
        head, _tree = _head_of(built, places, ring)
        with looked_at(places, ring) as current:
            gate = _gate(places, ring, current, clock, UNSIGNED)
            if gate.ground.profile is None:
                gate = _gate_of_copy(gate, built, head.position.epoch)
            return gate.statement(_arguments(backup, head.position), person)


def _arguments(backup: Path, base: Position) -> dict[str, object]:
    return {"file": str(backup.absolute()), "base": f"{base.epoch}.{base.sequence}"}


def _gate(
    places: Places, ring: KeyRing, ledger: Ledger | None, clock: Callable[[], InstantMs], act: Act
) -> Gate:
    ground = ground_in(places, ledger, is_strict=act.is_strict)
    return Gate(command=COMMAND, ground=ground, places=places, ring=ring, ledger=ledger, now=clock)


def _gate_of_copy(gate: Gate, built: Path, epoch: int) -> Gate:
    """Return the gate of the backup's own revision, where none can be read in the ledger that it replaces.

    No policies are in force then, so only strict asks those of the backup. Strict is what either of the two says.
    """
    before = gate.ground
    copy = open_ledger(gate.places, gate.ring, path=built, clock=gate.now)
    try:
        ground = ground_in(gate.places, copy, is_strict=before.mode == "strict")
    finally:
        copy.close()
    ground = replace(ground, ledger_id=gate.ring.ledger_id or "", epoch=before.epoch or epoch)
    return replace(gate, ground=ground, asks=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Means:
    clock: Callable[[], InstantMs]
    observe: Callable[[str], None]
    act: Act


def _restored(places: Places, ring: KeyRing, backup: Path, means: _Means) -> Restored:
    _refuse_living(places)
    with looked_at(places, ring) as current:
        gate = _gate(places, ring, current, means.clock, means.act)
        if gate.ground.profile is not None:
            gate.first(means.act)  # 0
    places.ledger_folder.mkdir(mode=0o700, exist_ok=True)
    lock = WriterLock(places.ledger.with_name(places.ledger.name + LOCK_SUFFIX))
    with lock.held():
        _refuse_living(places)  # 2
        return _Restore(places, ring, means).done(backup)


def _head_of(built: Path, places: Places, ring: KeyRing) -> tuple[Head, Frontier]:
    try:
        return head_of_copy(built, own_ledger(ring, places), RingAuthenticator(ring))
    except LedgerCorrupt as fault:
        if fault.reason not in {"schema_older", "schema_version"}:
            raise
        message = "The backup was made by a release with another schema; restore it with that one."
        raise LedgerCorrupt(fault.reason, message) from None


def _refuse_living(places: Places) -> None:
    living = living_instances(places.instances)
    if living:
        one = "Another process has this ledger open; stop it, and restore then."
        more = f"{len(living)} other processes have this ledger open; stop them, and restore then."
        raise LedgerUnavailable("in_use", one if len(living) == 1 else more)


def _is_required(profile: Profile | None, name: str) -> bool:
    sink = None if profile is None else profile.audit.sinks.get(name)
    return sink is not None and sink.required


def _refuse_retold(given: Given, retold: Retold) -> None:
    """Refuse what only the sinks tell against a restore: the key of its signature was revoked after the backup.

    And what nobody can count: admissions since that took bounds of a class, where no file says which.
    """
    if given.signed is not None and f"{RulingKind.KEY}:{given.signed.key}" in retold.stops:
        raise ActRefused(given, COMMAND, Refusal(code=RefusalCode.SIGNATURE_REFUSED, field="key"))
    counted = any(story.attributes.get("permit.tier") == Tier.ISSUE for story in retold.admitted())
    if given.ground.profile is None and counted:
        say = (
            "Admissions after the backup took bounds that no file in force says. Bring back profile, policies, "
            "registries and people's keys as they were activated, and restore then."
        )
        raise LedgerUnavailable("revision_unread", say)


class _Restore:
    def __init__(self, places: Places, ring: KeyRing, means: _Means) -> None:
        self._places = places
        self._ring = ring
        self._clock = means.clock
        self._observe = means.observe
        self._act = means.act
        self._floor_ms = 0
        self._ledger_id = own_ledger(ring, places)

    def done(self, backup: Path) -> Restored:
        self._observe("copy")  # 1
        if backup.absolute() == self._places.ledger:
            raise LedgerUnavailable("same_file", "A ledger is not restored from itself; name a backup of it.")
        if not os.path.lexists(backup):
            raise LedgerUnavailable("missing", f"There is no file {backup.name} to restore from.")
        built = cleared(self._places)
        copied(backup.absolute(), built)
        self._observe("check_backup")  # 3
        head, tree = _head_of(built, self._places, self._ring)
        self._demand_whole(built, "The backup has a problem", is_copy=True)
        given = self._given(built, backup, head.position)
        plan, outcome = self._built(built, given, head.position, tree)
        self._observe("check_built")  # 7
        self._demand_whole(built, "What was restored has a problem", is_copy=False)
        self._observe("exchange")  # 8
        kept = exchange(self._places, built, epoch=plan.epoch, observe=self._observe)
        head, _tree = head_of_copy(self._places.ledger, self._ledger_id, RingAuthenticator(self._ring))
        note_restored(self._places, self._ring, self._ledger_id, head.position)
        self._observe("sinks")  # 9
        fresh = tuple(self._begun_anew(plan))
        self._observe("ship")  # 10
        unshipped = self._shipped(given.ground)
        return Restored(
            ground=given.ground,
            ledger_id=self._ledger_id,
            base=plan.base,
            epoch=plan.epoch,
            complete=plan.is_complete,
            outcome=outcome,
            sinks=plan.sinks,
            kept=kept,
            fresh=fresh,
            unshipped=unshipped,
        )

    def _given(self, built: Path, backup: Path, base: Position) -> Given:
        """Judge the act by what is in force in the ledger that is replaced, or else by what the backup has."""
        with looked_at(self._places, self._ring) as current:
            gate = _gate(self._places, self._ring, current, self._clock, self._act)
            if gate.ground.profile is None:
                gate = _gate_of_copy(gate, built, base.epoch)
            return gate.whole(self._act, _arguments(backup, base))

    def _demand_whole(self, path: Path, what: str, *, is_copy: bool) -> None:
        report = checked_file(path, self._ring, is_copy=is_copy)
        if not report.is_clean:
            first = report.findings[0]
            raise LedgerCorrupt(
                "backup_damaged", f"{what} ({first.what} at {first.where}): {first.says} {_NOT_WHOLE}"
            )

    def _built(self, built: Path, given: Given, base: Position, tree: Frontier) -> tuple[Plan, Outcome]:
        """Give the copy its new epoch, and close it."""
        ledger = open_ledger(self._places, self._ring, path=built, clock=self._now)
        try:
            self._observe("read_sinks")  # 4
            plan = self._planned(ledger, given, base, tree)
            self._observe("clock")  # 5
            self._demand_clock(max(ledger.last_entry_ms, plan.retold.last_ms))
            self._observe("transact")  # 6
            decide = once(given.signed, lambda view, now: first_steps(plan, view, now))
            try:
                committed = ledger.transact(decide, accept_clock=True)
            except RefusedError as no:
                raise ActRefused(given, COMMAND, no.refusal) from None
            except ValueError as fault:
                message = (
                    f"An audit sink holds what cannot have been recorded: {fault}. Nothing was restored."
                )
                raise LedgerUnavailable("sink_damaged", message) from None
            return plan, committed.value
        finally:
            ledger.close()

    def _planned(self, ledger: SqliteLedger, given: Given, base: Position, tree: Frontier) -> Plan:
        profile = given.ground.profile
        retold = Retold(left_sinks=self._moved_since(ledger))
        sinks = tuple(
            look_at_sink(
                registration,
                required=_is_required(profile, registration.name),
                backup=ledger,
                tree=tree,
                retold=retold,
            )
            for registration in ledger.read(lambda view: view.sinks())
        )
        seen = (base.epoch, epoch_said(self._places.ledger), *(sink.epoch for sink in sinks))
        _refuse_retold(given, retold)
        return Plan(base=base, epoch=max(seen) + 1, sinks=sinks, retold=retold, given=given)

    def _moved_since(self, backup: SqliteLedger) -> set[str]:
        """Return the sinks that the ledger which is replaced has elsewhere than the backup, if it can be read."""
        with looked_at(self._places, self._ring) as current, suppress(Fault):
            if current is not None:
                last = set(current.read(lambda view: view.sinks()))
                return {one.name for one in backup.read(lambda view: view.sinks()) if one not in last}
        return set()

    def _now(self) -> InstantMs:
        """Return the clock's instant, and never one before what the backup or a sink has seen."""
        return InstantMs(max(self._clock(), self._floor_ms))

    def _demand_clock(self, last_ms: int) -> None:
        """Refuse a clock that runs behind what the backup or a sink has seen (PER-03)."""
        self._floor_ms = last_ms
        if self._clock() < last_ms - CLOCK_BACKWARD_TOLERANCE_MS:
            message = "The clock runs behind what the audit sinks have seen; set it right, and restore then."
            raise LedgerUnavailable("clock_behind", message)

    def _begun_anew(self, plan: Plan) -> list[str]:
        """Begin the file of each sink that cannot go on, at its registered place; what stood there is kept.

        Of a sink that another program keeps that is the watermark: it gets everything again, of all epochs.
        """
        begun = []
        for sink in plan.sinks:
            if sink.is_usable:
                continue
            for path in all_files_of(sink.registration):
                move_aside(path, epoch=plan.epoch)
            try:
                make_place(sink.registration, self._ledger_id)
            except SinkUnavailable as fault:
                message = (
                    f"The ledger is restored, and its audit sink {fault.sink} cannot be begun anew "
                    f"({fault.message}), so nothing is admitted; repair that, and restore again."
                )
                raise LedgerUnavailable("sink_not_made", message) from None
            begun.append(sink.registration.name)
        return begun

    def _shipped(self, ground: Ground) -> str | None:
        ledger = open_ledger(self._places, self._ring, clock=self._clock)
        try:
            return shipped(
                sinks_in_force(ground.profile, ledger), ledger, ledger.read(lambda view: view.head()).sequence
            )
        finally:
            ledger.close()
