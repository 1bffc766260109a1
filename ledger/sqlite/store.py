"""The SQLite ledger: `ledger.port.Ledger` as one file, one lock and one transaction per call.

Rules: ADM-02, ADM-03, LED-01, LED-04, LED-06, PER-03 (time after the lock), AUD-01.
One call of `transact`, in order:
  1. the writers' lock, 2. the file is still the one that was opened, and no check halted it, 3. BEGIN IMMEDIATE,
  4. the head's MAC and frontier, 5. the time, 6. `decide`, 7. each step with its span, 8. the head renewed, 9. every
  span proven to be there, 10. COMMIT with a full sync.
An error up to 9 leaves nothing behind. An error from 10 is uncertain: this object is dead from there on.
"""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from ledger.changes import Step
from ledger.errors import CommitUncertain, Fault, LedgerCorrupt, LedgerUnavailable
from ledger.model import InstantMs, LedgerId, Position, SpanRow
from ledger.port import Authenticator, Committed, Decide, SpanRecorder, Verdict, View
from ledger.sqlite import rows
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
    schema_rows,
)
from ledger.sqlite.halt import refuse_halted
from ledger.sqlite.lock import WriterLock
from ledger.sqlite.schema import expected_digest, schema_digest
from ledger.sqlite.view import SqliteView
from ledger.sqlite.writes import StepWriter
from ledger.tree import Frontier, decoded_frontier

T = TypeVar("T")

CLOCK_BACKWARD_TOLERANCE_MS: Final = 2_000
"""How far the clock may step back before admission stops (PER-03): an NTP correction, not a changed date."""

LOCK_SUFFIX: Final = ".lock"

_CLOSED: Final = "This ledger is closed."


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
        observer: Callable[[str], None] = _no_observer,
        looks_only: bool = False,
    ) -> None:
        """Open the ledger at `path`, which `ledger.sqlite.create` made.

        With `looks_only` it is opened as it lies there: nothing is written or made beside it, then or later.

        Raises:
            LedgerUnavailable: it is missing, unsafe to use here, or locked.
            LedgerCorrupt: it is not a ledger, was changed without the keys, or has another schema.
        """
        self._path = path
        self._keys = keys
        self._clock = clock
        self._observe = observer
        self._pid = os.getpid()
        self._dead: str | None = None
        self._closed = False
        # The file comes first: a mistyped path makes nothing, not even a lock beside it.
        self._identity: FileIdentity = file_identity(path)
        self._lock = None if looks_only else WriterLock(path.with_name(path.name + LOCK_SUFFIX))
        self._raw = open_database(path, journal_mode=journal_mode(), read_only=looks_only)
        self._reader: Any = self._raw if looks_only else None
        self._reader_lock = threading.Lock()
        try:
            self.schema_digest = schema_digest(schema_rows(self._raw))
            if self.schema_digest != expected_digest():
                raise LedgerCorrupt(
                    "schema", "The ledger's tables or guards are not those this release makes."
                )
            self._ledger_id = self._opened_id()
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
            raise LedgerCorrupt("unfinished", "The ledger was never finished being made; make a new one.")
        self._ledger_id = LedgerId(row[0])
        # One snapshot: without it an entry of another process, between two questions, would look like damage.
        self._raw.execute("BEGIN")
        try:
            self._last_entry_ms = self._head()[0].clock_ms
        finally:
            self._raw.execute("ROLLBACK")
        return self._ledger_id

    @property
    def ledger_id(self) -> LedgerId:
        """The identity that seals and sinks are bound to."""
        return self._ledger_id

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
        if os.getpid() != self._pid:
            raise LedgerUnavailable("forked", "A forked process must open the ledger for itself.")

    def _head(self) -> tuple[rows.Head, Frontier]:
        """Read the head and check its MAC, its frontier and the last span (LED-06)."""
        row = self._raw.execute(
            f"SELECT {rows.HEAD_COLUMNS}, mac FROM head WHERE lane = 0",
        ).fetchone()
        if row is None:
            raise LedgerCorrupt("no_head", "The ledger has no head row.")
        head = rows.head_from(self._ledger_id, row)
        if not self._keys.is_authentic("head", rows.head_authority(head), row[7]):
            raise LedgerCorrupt("head_mac", "The head of the ledger was changed by someone without the keys.")
        try:
            frontier = decoded_frontier(head.frontier)
        except ValueError:
            raise LedgerCorrupt("frontier", "The tree of the ledger's spans is damaged.") from None
        last = self._raw.execute("SELECT max(sequence) FROM spans").fetchone()[0] or 0
        ends = head.position.sequence
        if frontier.size != ends or frontier.root() != head.root or last != ends:
            raise LedgerCorrupt("trail_length", "The ledger's trail does not end where its head says.")
        return head, frontier

    def _time(self, floor_ms: int) -> InstantMs:
        """Read the clock once, after the lock; it never runs backwards inside the ledger (PER-03)."""
        now = self._clock()
        if now < floor_ms - CLOCK_BACKWARD_TOLERANCE_MS:
            message = "The clock runs behind the ledger's last entry; set the clock right."
            raise LedgerUnavailable("clock_behind", message)
        return InstantMs(max(now, floor_ms))

    def transact(self, decide: Decide[T]) -> Committed[T]:
        """Run one transaction; see the module docstring for its numbered order and `ledger.port` for its faults."""
        self._usable()
        if self._lock is None:
            raise LedgerUnavailable("looks_only", "This ledger was opened to be looked at only.")
        with self._lock.held():  # 1
            self._usable()
            if file_identity(self._path) != self._identity:  # 2
                self._die("The ledger file was replaced while it was open.")
                raise LedgerUnavailable("replaced", "The ledger file was replaced while it was open.")
            refuse_halted(self._path)
            self._observe("locked")
            try:
                self._raw.execute("BEGIN IMMEDIATE")  # 3
                committed, changed = self._decided(decide)
            except BaseException as fault:
                self._roll_back()
                if isinstance(fault, DatabaseError):
                    raise as_fault(fault) from None
                raise
            if not changed:
                self._roll_back()
                return committed
            self._observe("before_commit")
            self._commit()  # 10
            self._observe("committed")
            return committed

    def _decided(self, decide: Decide[T]) -> tuple[Committed[T], bool]:
        head, frontier = self._head()  # 4
        position = head.position
        now = self._time(head.clock_ms)  # 5
        view: View = SqliteView(self._raw, ledger_id=self._ledger_id, keys=self._keys)
        verdict: Verdict[T] = decide(view, now)  # 6
        if verdict.steps:
            position = self._written(verdict.steps, head, frontier, now)
        committed = Committed(
            value=verdict.value,
            refusal=verdict.refusal,
            at_ms=now,
            sequence=position.sequence,
        )
        return committed, bool(verdict.steps)

    def _written(
        self,
        steps: tuple[Step, ...],
        head: rows.Head,
        frontier: Frontier,
        now: InstantMs,
    ) -> Position:
        writer = StepWriter(
            self._raw, recorder=self._recorder, keys=self._keys, at_ms=now, pending=head.pending
        )
        position = head.position
        spans: list[SpanRow] = []
        for step in steps:  # 7
            position = Position(
                ledger_id=self._ledger_id,
                epoch=position.epoch,
                lane=position.lane,
                sequence=position.sequence + 1,
            )
            span = writer.write(step, position)
            frontier = frontier.with_leaf(span.leaf)
            spans.append(span)
        renewed = rows.Head(
            position=position,
            frontier=frontier.encoded(),
            root=frontier.root(),
            clock_ms=now,
            pending=writer.pending,
        )
        mac = self._keys.tag("head", rows.head_authority(renewed))
        self._raw.execute(  # 8
            "UPDATE head SET sequence = ?, frontier = ?, root = ?, clock_ms = ?, pending = ?, mac = ? WHERE lane = 0",
            (position.sequence, renewed.frontier, renewed.root, now, renewed.pending, mac),
        )
        for span in spans:  # 9
            writer.prove(span)
        return position

    def _commit(self) -> None:
        try:
            self._raw.execute("COMMIT")
        except BaseException as fault:
            # No rollback and no further write here: either could make an uncertain commit certain the wrong way.
            self._die("A commit of this ledger ended uncertainly; open it anew.")
            message = (
                "Whether the transaction was committed is not known; read the record in a fresh process."
            )
            raise CommitUncertain(message) from fault

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

        Raises:
            LedgerUnavailable: the ledger cannot be read.
            LedgerCorrupt: what is read was changed without the keys.
        """
        if os.getpid() != self._pid:
            raise LedgerUnavailable("forked", "A forked process must open the ledger for itself.")
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
                    return look(SqliteView(self._reader, ledger_id=self._ledger_id, keys=self._keys))
                finally:
                    self._reader.execute("ROLLBACK")
            except DatabaseError as fault:
                raise as_fault(fault) from None

    def close(self) -> None:
        """Let go of the file. A closed ledger refuses everything."""
        self._closed = True
        if os.getpid() == self._pid:
            # The writer goes last: SQLite folds the WAL into the file only where the last one to close may write.
            if self._reader is not None:
                self._reader.close()
            self._raw.close()
        self._dead = self._dead or _CLOSED
