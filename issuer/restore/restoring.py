"""Restoring a ledger, step by step; until the last one nothing of the old ledger has changed.

Rules: LED-08, LED-04, ADM-06. In order:
  1. the backup's name is free of doubt: its file is copied, and the copy is what is judged and used
  2. nobody else has the ledger open, and the writers' lock is held to the end
  3. the copy is this issuer's, whole, and passes the full check
  4. each sink is read and held against it   5. the clock is behind neither
  6. the first transaction of the new epoch, in the copy   7. the full check, again
  8. the copy takes the old ledger's place   9. sinks that cannot go on are begun anew
  10. the sinks acknowledge the new epoch.
Next: `issuer.commands.backup`.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from audit import SinkUnavailable
from audit import create as create_jsonl
from issuer.backup import shipped
from issuer.caller import local_caller
from issuer.checking import checked_file, note_restored
from issuer.clock import now_ms
from issuer.instance import living_instances
from issuer.places import Places
from issuer.profile import Profile, load_profile
from issuer.restore.exchange import cleared, exchange, move_aside
from issuer.restore.plan import Outcome, Plan
from issuer.restore.retold import Retold
from issuer.restore.sinks import SinkSeen, look_at_sink
from issuer.restore.steps import first_steps
from issuer.sealing import KeyRing, open_key_ring
from issuer.sealing.authenticator import RingAuthenticator
from issuer.wiring import open_ledger, own_ledger, registered_sinks
from ledger.errors import LedgerCorrupt, LedgerUnavailable
from ledger.model import InstantMs, Position
from ledger.sqlite import SqliteLedger
from ledger.sqlite.copying import copied
from ledger.sqlite.head import epoch_said, head_of_copy
from ledger.sqlite.lock import WriterLock
from ledger.sqlite.rows import Head
from ledger.sqlite.store import LOCK_SUFFIX
from ledger.timekeeping import CLOCK_BACKWARD_TOLERANCE_MS
from ledger.tree import Frontier

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

    profile: Profile
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
) -> Restored:
    """Restore the ledger of the issuer whose profile is at `profile_path` from the file `backup`.

    `observe` is told each numbered step before it is done.

    Raises:
        ProfileRefused: the profile cannot be read.
        Fault: nothing was changed, or (from step 8 on) the sentence says what was.
    """
    places = Places(profile_path.absolute())
    profile = load_profile(places.profile)
    ring = open_key_ring(places.keys)
    _refuse_living(places)
    places.ledger_folder.mkdir(mode=0o700, exist_ok=True)
    lock = WriterLock(places.ledger.with_name(places.ledger.name + LOCK_SUFFIX))
    with lock.held():
        _refuse_living(places)  # 2
        work = _Restore(places, profile, ring, clock, observe)
        return work.done(backup)


def _refuse_living(places: Places) -> None:
    living = living_instances(places.instances)
    if living:
        one = "Another process has this ledger open; stop it, and restore then."
        more = f"{len(living)} other processes have this ledger open; stop them, and restore then."
        raise LedgerUnavailable("in_use", one if len(living) == 1 else more)


class _Restore:
    def __init__(
        self,
        places: Places,
        profile: Profile,
        ring: KeyRing,
        clock: Callable[[], InstantMs],
        observe: Callable[[str], None],
    ) -> None:
        self._places = places
        self._profile = profile
        self._ring = ring
        self._clock = clock
        self._floor_ms = 0
        self._observe = observe
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
        head, tree = self._head_of(built)
        self._demand_whole(built, "The backup has a problem", is_copy=True)
        plan, outcome = self._built(built, head.position, tree)
        self._observe("check_built")  # 7
        self._demand_whole(built, "What was restored has a problem", is_copy=False)
        self._observe("exchange")  # 8
        kept = exchange(self._places, built, epoch=plan.epoch, observe=self._observe)
        head, _tree = head_of_copy(self._places.ledger, self._ledger_id, RingAuthenticator(self._ring))
        note_restored(self._places, self._ring, self._ledger_id, head.position)
        self._observe("sinks")  # 9
        fresh = tuple(self._begun_anew(plan))
        self._observe("ship")  # 10
        unshipped = self._shipped()
        return Restored(
            profile=self._profile,
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

    def _head_of(self, built: Path) -> tuple[Head, Frontier]:
        try:
            return head_of_copy(built, self._ledger_id, RingAuthenticator(self._ring))
        except LedgerCorrupt as fault:
            if fault.reason not in {"schema_older", "schema_version"}:
                raise
            message = "The backup was made by a release with another schema; restore it with that one."
            raise LedgerCorrupt(fault.reason, message) from None

    def _demand_whole(self, path: Path, what: str, *, is_copy: bool) -> None:
        report = checked_file(path, self._ring, is_copy=is_copy)
        if not report.is_clean:
            first = report.findings[0]
            raise LedgerCorrupt(
                "backup_damaged", f"{what} ({first.what} at {first.where}): {first.says} {_NOT_WHOLE}"
            )

    def _built(self, built: Path, base: Position, tree: Frontier) -> tuple[Plan, Outcome]:
        """Give the copy its new epoch, and close it."""
        ledger = open_ledger(self._places, self._ring, path=built, clock=self._now)
        try:
            self._observe("read_sinks")  # 4
            plan = self._planned(ledger, base, tree)
            self._observe("clock")  # 5
            self._demand_clock(max(ledger.last_entry_ms, plan.retold.last_ms))
            self._observe("transact")  # 6
            try:
                committed = ledger.transact(lambda view, now: first_steps(plan, view, now), accept_clock=True)
            except ValueError as fault:
                message = (
                    f"An audit sink holds what cannot have been recorded: {fault}. Nothing was restored."
                )
                raise LedgerUnavailable("sink_damaged", message) from None
            return plan, committed.value
        finally:
            ledger.close()

    def _planned(self, ledger: SqliteLedger, base: Position, tree: Frontier) -> Plan:
        # A sink that left or joined the profile since would stop the start, so it stops here, before anything changes.
        registered_sinks(self._profile, ledger)
        retold = Retold()
        sinks = tuple(
            look_at_sink(
                registration,
                required=self._is_required(registration.name),
                backup=ledger,
                tree=tree,
                retold=retold,
            )
            for registration in ledger.read(lambda view: view.sinks())
        )
        seen = (base.epoch, epoch_said(self._places.ledger), *(sink.epoch for sink in sinks))
        return Plan(
            base=base,
            epoch=max(seen) + 1,
            sinks=sinks,
            retold=retold,
            profile=self._profile,
            caller=local_caller(self._profile).name,
        )

    def _is_required(self, name: str) -> bool:
        sink = self._profile.audit.sinks.get(name)
        return sink is not None and sink.required

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
        """Begin the file of each sink that cannot go on, at its registered place; what stood there is kept."""
        begun = []
        for sink in plan.sinks:
            if sink.is_usable:
                continue
            place = Path(sink.registration.location)
            move_aside(place, epoch=plan.epoch)
            try:
                create_jsonl(place, self._ledger_id, name=sink.registration.name)
            except SinkUnavailable as fault:
                message = (
                    f"The ledger is restored, and its audit sink {fault.sink} cannot be begun anew "
                    f"({fault.message}), so nothing is admitted; repair that, and restore again."
                )
                raise LedgerUnavailable("sink_not_made", message) from None
            begun.append(sink.registration.name)
        return begun

    def _shipped(self) -> str | None:
        ledger = open_ledger(self._places, self._ring, clock=self._clock)
        try:
            return shipped(self._profile, ledger, ledger.read(lambda view: view.head()).sequence)
        finally:
            ledger.close()
