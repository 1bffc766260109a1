"""The SQLite ledger: `ledger.port.Ledger` as one file, one lock and one transaction per call.

Rules: ADM-02, ADM-03, LED-01, LED-04, LED-06, PER-03 (time after the lock), AUD-01.
One call of `transact`, in order:
  1. the writers' lock, 2. the file is still the one that was opened, and no check halted it, 3. BEGIN IMMEDIATE, and
  the schema is still this release's, 4. the head's MAC and frontier, 5. the time, 6. `decide`, 7. each step with its
  span, 8. the head renewed, 9. every span proven to be there, 10. COMMIT with a full sync.
An error up to 9 leaves nothing behind. An error from 10 is uncertain: this object is dead from there on.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from ledger.capacity import is_noise
from ledger.changes import Step
from ledger.errors import CommitUncertain, Fault, LedgerCorrupt, LedgerUnavailable
from ledger.model import InstantMs, LedgerId
from ledger.noise import Noise, is_ask, is_denial
from ledger.port import Authenticator, Committed, Decide, SpanRecorder, Verdict, View, WholeCheck
from ledger.sqlite import rows
from ledger.sqlite.authority_view import ProvenRulings
from ledger.sqlite.connection import (
    DURABLE_FILE_SYSTEMS,
    DatabaseError,
    FileIdentity,
    as_fault,
    file_identity,
    file_system,
    library_is_safe,
    library_version,
    open_database,
    refuse_other_schema,
    schema_rows,
)
from ledger.sqlite.damaged import DamagedView
from ledger.sqlite.halt import refuse_halted
from ledger.sqlite.head import proven_head
from ledger.sqlite.lock import WriterLock
from ledger.sqlite.noise_file import NoiseFile
from ledger.sqlite.schema import expected_digest, schema_digest
from ledger.sqlite.view import SqliteView
from ledger.sqlite.writes import StepWriter
from ledger.timekeeping import NO_UPTIME, LastEntry, Uptime, believed
from ledger.transitions import Position, SpanRow, TransitionName
from ledger.tree import Frontier

T = TypeVar("T")

LOCK_SUFFIX: Final = ".lock"
_HEAD_MARKS: Final = ", ".join("?" * (len(rows.HEAD_COLUMNS.split(",")) + 1))

_CLOSED: Final = "This ledger is closed."
_NO_ID: Final = LedgerId(f"led_{'0' * 32}")
"""What a damaged ledger is called that does not say its id, where the keys do not either."""


def journal_mode() -> str:
    """Return `wal`, or `truncate` where the SQLite library could lose commits in WAL (LED-04)."""
    numbers = tuple(int(part) for part in library_version().split("."))
    return "wal" if library_is_safe(numbers) else "truncate"


def _no_observer(_step: str) -> None:
    """Observe nothing."""


class SqliteLedger:
    """One open ledger file. Safe to share between threads; never to be used in a forked child."""

    def __init__(
        self,
        path: Path,
        *,
        recorder: Callable[[LedgerId], SpanRecorder],
        keys: Authenticator,
        clock: Callable[[], InstantMs],
        uptime: Callable[[], Uptime] = lambda: NO_UPTIME,
        observer: Callable[[str], None] = _no_observer,
        noise_bytes_max: int | None = None,
        looks_only: bool = False,
        tolerant: bool = False,
        ledger_id: LedgerId | None = None,
    ) -> None:
        """Open the ledger at `path`, which `ledger.sqlite.create` made.

        From `noise_bytes_max` bytes on the trail takes no refusal directly after another (`ledger.capacity`).
        With `looks_only` it is opened as it lies there: nothing is written or made beside it, then or later. With
        `tolerant` it opens even where its head, trail or guards are not what was written: then `damage` says what is
        wrong, nothing is written any more, and what is read is shown as it stands. `ledger_id` is the one that the keys
        belong to (ADM-06).

        Raises:
            LedgerUnavailable: it is missing, unsafe to use here, or locked.
            LedgerCorrupt: it is not a ledger, was changed without the keys, or has another schema.
        """
        self._path = path
        self._keys = keys
        self._clock, self._uptime, self._observe = clock, uptime, observer
        self.noise_bytes_max = noise_bytes_max
        self._pid = os.getpid()
        self._rulings: ProvenRulings = {}
        self._dead: str | None = None
        self._uncertain, self._closed = False, False
        self._noise: Noise | None = None  # as it is once the transaction that goes on is committed
        self._tolerant = tolerant
        self._expected_id = ledger_id
        self.damage: LedgerCorrupt | None = None
        """What was found that cannot be trusted; only where damage is tolerated (LED-04)."""
        # The file comes first: a mistyped path makes nothing, not even a lock beside it.
        self._identity: FileIdentity = file_identity(path)
        self._lock = None if looks_only else WriterLock(path.with_name(path.name + LOCK_SUFFIX))
        self._raw = open_database(path, journal_mode=journal_mode(), read_only=looks_only)
        self._reader: Any = self._raw if looks_only else None
        self._reader_lock, self._writing = threading.Lock(), threading.Lock()
        try:
            self.schema_digest = schema_digest(schema_rows(self._raw))
            if self.schema_digest != expected_digest():
                self._found(
                    LedgerCorrupt("schema", "The ledger's tables or guards are not those this release makes.")
                )
            self._ledger_id = self._opened_id()
            self._noise_file = NoiseFile(path, self._ledger_id, keys)
            self._recorder = recorder(self._ledger_id)
        except DatabaseError as fault:
            self.close()
            raise as_fault(fault) from None
        except Fault:
            self.close()
            raise

    def _opened_id(self) -> LedgerId:
        row = self._raw.execute("SELECT ledger_id FROM ledger WHERE one = 1").fetchone()
        if row is None:
            self._found(
                LedgerCorrupt("unfinished", "The ledger was never finished being made; make a new one.")
            )
        self._ledger_id = LedgerId(row[0]) if row is not None else self._expected_id or _NO_ID
        if self._expected_id not in {None, self._ledger_id}:
            message = (
                "The keys belong to another ledger than this one; bring back those that were made with it."
            )
            self._found(LedgerCorrupt("foreign_keys", message))
        self._last_entry_ms = 0
        # One snapshot: without it an entry of another process, between two questions, would look like damage.
        self._raw.execute("BEGIN")
        try:
            self._last_entry_ms = self._head()[0].clock_ms
        except LedgerCorrupt as fault:
            self._found(fault)
        finally:
            self._raw.execute("ROLLBACK")
        return self._ledger_id

    def _found(self, damage: LedgerCorrupt) -> None:
        """Note what cannot be trusted; where damage is not tolerated, refuse."""
        if not self._tolerant:
            raise damage
        self.damage = self.damage or damage

    @property
    def ledger_id(self) -> LedgerId:
        """The identity that seals and sinks are bound to."""
        return self._ledger_id

    @property
    def is_uncertain(self) -> bool:
        """Whether a commit of this object ended uncertainly: then only a fresh process can say what became of it."""
        return self._uncertain

    @property
    def last_entry_ms(self) -> InstantMs:
        """The instant of the last entry when the ledger was opened; no clock may be far behind it (PER-03)."""
        return InstantMs(self._last_entry_ms)

    @property
    def durable(self) -> bool:
        """Whether the file system is one whose sync is meant to reach the disk (LED-01)."""
        return file_system(self._path) in DURABLE_FILE_SYSTEMS

    def _usable(self) -> None:
        if self._dead is not None:
            raise LedgerUnavailable("dead", self._dead)
        if self.damage is not None:
            raise LedgerCorrupt(self.damage.reason, self.damage.message)
        self._refuse_fork()

    def _refuse_fork(self) -> None:
        if os.getpid() != self._pid:
            raise LedgerUnavailable("forked", "A forked process must open the ledger for itself.")

    def _reached(self, step: str) -> None:
        """Tell the observer, and refuse whoever comes back as a child: lock and transaction are its parent's."""
        self._observe(step)
        self._refuse_fork()

    def _head(self) -> tuple[rows.Head, Frontier]:
        """Read the head and check its MAC, its frontier and the last span (LED-06)."""
        return proven_head(self._raw, self._ledger_id, self._keys)

    def _time(self, last: LastEntry, *, accept_clock: bool) -> tuple[InstantMs, Uptime]:
        """Read both clocks once, after the lock; unless an operator accepts them they must be plausible (PER-03)."""
        now, uptime = self._clock(), self._uptime()
        return (now if accept_clock else believed(now, uptime, last)), uptime

    def transact(
        self, decide: Decide[T], *, accept_clock: bool = False, check: WholeCheck | None = None
    ) -> Committed[T]:
        """Run one transaction; see the module docstring for its numbered order and `ledger.port` for its faults."""
        self._usable()
        if self._lock is None:
            raise LedgerUnavailable("looks_only", "This ledger was opened to be looked at only.")
        with self._lock.held(), self._writing, self._checked_links(check):  # 1
            self._usable()
            if file_identity(self._path) != self._identity:  # 2
                self._die("The ledger file was replaced while it was open.")
                raise LedgerUnavailable("replaced", "The ledger file was replaced while it was open.")
            refuse_halted(self._path)
            self._reached("locked")
            try:
                self._raw.execute("BEGIN IMMEDIATE")  # 3
                refuse_other_schema(self._raw)
                if check is not None:
                    check(self._raw)
                committed, changed = self._decided(decide, accept_clock=accept_clock)
                if check is not None and changed:
                    check(self._raw)
            except BaseException as fault:
                self._roll_back()
                if isinstance(fault, DatabaseError):
                    raise as_fault(fault) from None
                raise
            if not changed:
                self._roll_back()
                return committed
            self._reached("before_commit")
            self._commit()  # 10
            if self._noise is not None:
                self._noise_file.write(self._noise)
            self._observe("committed")
            return committed

    @contextmanager
    def _checked_links(self, check: WholeCheck | None) -> Iterator[None]:
        """Leave references to a check of the whole ledger, where there is one.

        SQLite would look through every table that names spans once for each span that goes.
        """
        if check is None:
            yield
            return
        self._raw.execute("PRAGMA foreign_keys = OFF")
        try:
            yield
        finally:
            if not self._raw.in_transaction:  # else its commit ended uncertainly, and this object is dead
                self._raw.execute("PRAGMA foreign_keys = ON")

    def _decided(self, decide: Decide[T], *, accept_clock: bool) -> tuple[Committed[T], bool]:
        head, frontier = self._head()  # 4
        position = head.position
        now, uptime = self._time(head.last_entry, accept_clock=accept_clock)  # 5
        view: View = SqliteView(self._raw, ledger_id=self._ledger_id, keys=self._keys, proven=self._rulings)
        verdict: Verdict[T] = decide(view, now)  # 6
        steps, is_counted = self._standing_steps(view, position, verdict, now)
        if steps:
            position = self._written(steps, replace(head, clock_ms=now, uptime=uptime), frontier)
        committed = Committed(
            value=verdict.counted if is_counted and verdict.counted is not None else verdict.value,
            refusal=verdict.refusal,
            at_ms=now,
            sequence=position.sequence,
        )
        return committed, bool(steps)

    def _standing_steps(
        self, view: View, last: Position, verdict: Verdict[T], now: InstantMs
    ) -> tuple[tuple[Step, ...], bool]:
        """Return the steps that stand on record, and whether the verdict's own were only counted (LED-02)."""
        self._noise, steps = None, verdict.steps
        is_no, is_denied = is_noise(steps), verdict.counted is not None and is_denial(steps)
        if not steps or not (is_no or is_ask(steps)):
            return steps, False
        noise, is_full = self._noise_file.read(), True
        if is_no or is_denied:
            may_stand = is_denied or not self._is_nearly_full(view, last)
            noise, is_full = noise.heard(steps, now, may_stand=may_stand)
            if not may_stand:
                self._noise_file.write(noise)
                message = "The audit trail is nearly full, and takes no refusal directly after another."
                raise LedgerUnavailable("trail_full", message)
        noise, counts = noise.told(self._ledger_id, now)
        if not is_full and not counts and self._noise_file.write(noise):
            return (), True
        if counts or is_no or is_denied:
            self._noise = noise
        return (counts, True) if counts and not is_full else ((*counts, *steps), False)

    def _is_nearly_full(self, view: View, last: Position) -> bool:
        """Say whether the trail takes no refusal after another any more: its rest is for what happens."""
        if self.noise_bytes_max is None:
            return False
        before = view.span_at(last.sequence)
        if before is None or before.name not in {TransitionName.REFUSED, TransitionName.NOISE}:
            return False
        return view.holdings().span_bytes >= self.noise_bytes_max

    def _written(
        self,
        steps: tuple[Step, ...],
        head: rows.Head,
        frontier: Frontier,
    ) -> Position:
        """Write the steps and then the head, whose clocks are already those of this transaction."""
        now = InstantMs(head.clock_ms)
        writer = StepWriter(self._raw, recorder=self._recorder, keys=self._keys, at_ms=now, head=head)
        position = head.position
        spans: list[SpanRow] = []
        for step in steps:  # 7
            position = Position(
                ledger_id=self._ledger_id,
                epoch=position.epoch if step.begins_epoch is None else step.begins_epoch,
                lane=position.lane,
                sequence=position.sequence + 1,
            )
            span = writer.write(step, position)
            frontier = frontier.with_leaf(span.leaf)
            spans.append(span)
        renewed = replace(
            head,
            position=position,
            frontier=frontier.encoded(),
            root=frontier.root(),
            pending=writer.pending,
            standing=writer.standing,
        )
        mac = self._keys.tag("head", rows.head_authority(renewed))
        self._raw.execute(  # 8
            f"UPDATE head SET ({rows.HEAD_COLUMNS}, mac) = ({_HEAD_MARKS}) WHERE lane = 0",
            (*rows.head_row(renewed), mac),
        )
        for span in spans:  # 9
            writer.prove(span)
        return position

    def _commit(self) -> None:
        try:
            self._raw.execute("COMMIT")
        except BaseException as fault:
            # No rollback and no further write here: either could make an uncertain commit certain the wrong way.
            self._uncertain = True
            self._die("A commit of this ledger ended uncertainly; open it anew.")
            message = (
                "Whether the transaction was committed is not known; read the record in a fresh process."
            )
            is_full = isinstance(fault, DatabaseError) and as_fault(fault).reason == "disk_full"
            raise CommitUncertain(message, disk_was_full=is_full) from fault

    def _roll_back(self) -> None:
        if self._raw.in_transaction:
            try:
                self._raw.execute("ROLLBACK")
            except DatabaseError:
                self._die("The ledger could not undo an unfinished transaction; open it anew.")

    def _die(self, why: str) -> None:
        self._dead = why

    def read(self, look: Callable[[View], T]) -> T:
        """Let `look` read one consistent snapshot over a connection of its own, beside any writer.

        Where damage is tolerated, `look` is asked again to see what stands there, unproven.

        Raises:
            LedgerUnavailable: the ledger cannot be read.
            LedgerCorrupt: what is read was changed without the keys.
        """
        self._refuse_fork()
        with self._reader_lock:
            # An object that died of an uncertain commit may still look; a closed one may not open the file anew.
            if self._closed:
                raise LedgerUnavailable("closed", _CLOSED)
            try:
                if self._reader is None:
                    if file_identity(self._path) != self._identity:
                        raise LedgerUnavailable("replaced", "The ledger file was replaced while it was open.")
                    self._reader = open_database(self._path, journal_mode=journal_mode(), read_only=True)
                self._reader.execute("BEGIN")
                try:
                    refuse_other_schema(self._reader)
                    return self._looked(look)
                finally:
                    self._reader.execute("ROLLBACK")
            except DatabaseError as fault:
                raise as_fault(fault) from None

    def _looked(self, look: Callable[[View], T]) -> T:
        if self.damage is None:
            try:
                view = SqliteView(
                    self._reader, ledger_id=self._ledger_id, keys=self._keys, proven=self._rulings
                )
                return look(view)
            except LedgerCorrupt as fault:
                self._found(fault)
        return look(DamagedView(self._reader, ledger_id=self._ledger_id))

    def close(self) -> None:
        """Let go of the file. A closed ledger refuses everything."""
        self._closed = True
        self._dead = self._dead or _CLOSED
        if os.getpid() == self._pid:
            # Whoever is inside ends first: a connection that goes under another thread's commit ends the process.
            with self._writing, self._reader_lock:
                # The writer goes last: SQLite folds the WAL into the file only where the last one to close may write.
                if self._reader is not None:
                    self._reader.close()
                self._raw.close()
