"""Making a ledger of an earlier release one of this release: once, and whole or not at all.

Rules: LED-04 (what cannot be trusted is not taken over), LED-06, AUD-01 (the upgrade has its own span, proven to be
there), LED-01. In order, under the writers' lock, where the others wait:
  1. BEGIN IMMEDIATE; whoever waited finds the new schema and goes on   2. the schema's digest, the head's MAC and its
  registers, as the old schema had them   3. room on the disk; a copy beside the ledger, without its name yet   4. the
  tables that changed, anew, each signed row proven before it is signed again   5. the span, the head, the schema's
  number   6. the full check of what is about to be committed   7. the copy's name; COMMIT with a full sync.
An error up to 6 leaves the ledger as it was, and no copy. A kill at any instant leaves one schema or the other, whole.
It does not judge the clock: where that is not to be believed, the span stands at the last entry's instant.
Next: `ledger.sqlite.schema_one` and its neighbours, what the old schemas were; `ledger.sqlite.store` opens
what this made.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from ledger.changes import Step
from ledger.errors import Broken, LedgerCorrupt, LedgerUnavailable
from ledger.model import InstantMs, LedgerId
from ledger.port import Authenticator, SpanRecorder
from ledger.sqlite import head, rows
from ledger.sqlite.ballast import FREE_BYTES_MIN, Ballast
from ledger.sqlite.check import check_within
from ledger.sqlite.check_ground import Proofs
from ledger.sqlite.connection import (
    DatabaseError,
    IntegrityError,
    as_fault,
    file_identity,
    library_version,
    open_database,
    schema_rows,
)
from ledger.sqlite.copying import copy_here, sync_folder
from ledger.sqlite.earlier import RENAMED, Earlier, EarlierHead
from ledger.sqlite.lock import WriterLock
from ledger.sqlite.migrations import upgraded
from ledger.sqlite.register import recomputed
from ledger.sqlite.schema import OLDER_SCHEMAS, SCHEMA_VERSION, schema_digest, schema_objects
from ledger.sqlite.schema_one import SCHEMA_ONE
from ledger.sqlite.schema_three import SCHEMA_THREE
from ledger.sqlite.schema_two import SCHEMA_TWO
from ledger.sqlite.span_writes import take_over_spans
from ledger.sqlite.store import LOCK_SUFFIX, journal_mode
from ledger.sqlite.triggers import HOLDINGS_RECOUNTED
from ledger.sqlite.writes import StepWriter
from ledger.standing import Standing, register_digest
from ledger.timekeeping import LastEntry, Uptime, believed
from ledger.transitions import AttributeValue, Transition, TransitionName

_EARLIER: Final[Mapping[int, Earlier]] = {
    earlier.number: earlier for earlier in (SCHEMA_ONE, SCHEMA_TWO, SCHEMA_THREE)
}
"""The earlier schemas that were released, by number."""

_COPIES: Final = 3
"""How often the ledger's bytes are needed at most: the copy, the log of the changed tables, and those tables anew."""

_MEBIBYTE: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What an upgrade is done with.

    Attributes:
        proofs: the keys, and what other rooms can prove of a ledger.
        recorder: makes the recorder of a ledger's spans.
        clock, uptime: the two clocks, read once under the lock.
        observer: told each numbered step.
        attributes: what the span says beside the two schemas.
        own: the one ledger that the keys belong to; None where they do not say yet.
    """

    proofs: Proofs
    recorder: Callable[[LedgerId], SpanRecorder]
    clock: Callable[[], InstantMs]
    uptime: Callable[[], Uptime]
    observer: Callable[[str], None]
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    own: LedgerId | None = None


def upgrade_ledger(path: Path, means: Means, then: Callable[[LedgerId], None]) -> None:
    """Upgrade the ledger at `path` if it is of an earlier schema, and do `then` for its id while others still wait.

    `then` is done as well, once more, for a ledger that was upgraded before: a kill may have come between. One that
    never was of an earlier schema is left alone.

    Raises:
        LedgerUnavailable: it is locked, there is no room for it, or it cannot be written; it is as it was, or the
            commit ended uncertainly and the next opening tells.
        LedgerCorrupt: it is of no schema that this release knows, or holds what its release did not write.
        SpanNotRecorded: the span of the upgrade cannot be made.
    """
    number = 0
    file_identity(path)  # a mistyped path makes nothing, not even a lock beside it
    with WriterLock(path.with_name(path.name + LOCK_SUFFIX)).held():
        means.observer("upgrade_locked")
        raw = open_database(path, journal_mode=journal_mode(), schemas=(*OLDER_SCHEMAS, SCHEMA_VERSION))
        try:
            # The tables are made anew here, which the guard of every other connection forbids. The other two can
            # be set outside a transaction only: references stay to the names that they were written with.
            raw.set_authorizer(None)
            raw.execute("PRAGMA foreign_keys = OFF")
            raw.execute("PRAGMA legacy_alter_table = ON")
            raw.execute("BEGIN IMMEDIATE")  # 1
            number = raw.execute("PRAGMA user_version").fetchone()[0]
            if number in _EARLIER:
                then(_Upgrade(raw, path, means, _EARLIER[number]).run())
            elif (before := _upgraded_before(raw, means.proofs.keys)) is not None:
                then(before)
        except IntegrityError:
            raise _not_upgraded(number, "rows_impossible") from None
        except DatabaseError as fault:
            raise as_fault(fault) from None
        finally:
            raw.close()


def _upgraded_before(raw: Any, keys: Authenticator) -> LedgerId | None:  # noqa: ANN401 - untyped driver
    """Return the id of a ledger of this schema whose trail says that it was upgraded; the keys have to be its own.

    Raises:
        LedgerCorrupt: its head is not what these keys signed.
    """
    row = raw.execute("SELECT ledger_id FROM ledger WHERE one = 1").fetchone()
    sql = "SELECT 1 FROM spans INDEXED BY spans_name WHERE story = ? AND name = ?"
    if row is None or raw.execute(sql, (row[0], str(TransitionName.LEDGER_MIGRATED))).fetchone() is None:
        return None
    head.proven_head(raw, LedgerId(row[0]), keys)
    return LedgerId(row[0])


def _not_upgraded(number: int, what: str) -> LedgerCorrupt:
    message = (
        f"The ledger stays at schema {number}, because it holds what its release did not write ({what}); "
        "run `issuer ledger check` of that release."
    )
    return LedgerCorrupt(what, message)


class _Upgrade:
    """One upgrade inside its transaction; whoever made it closes the connection, and with it what is unfinished."""

    def __init__(self, raw: Any, path: Path, means: Means, earlier: Earlier) -> None:  # noqa: ANN401 - untyped driver
        self._raw = raw
        self._path = path
        self._means = means
        self._earlier = earlier
        self._copy = path.with_name(f"{path.name}.schema{earlier.number}")
        self._draft = path.with_name(f"{self._copy.name}.new")

    def run(self) -> LedgerId:
        """Do steps 2 to 7; return whose ledger it is."""
        try:
            before = self._proven()  # 2
            self._refuse_short()  # 3
            self._clear()
            copy_here(self._path, self._draft, schemas=OLDER_SCHEMAS)
            self._means.observer("upgrade_copied")
            upgraded(self._raw, self._earlier.number, lambda: self._rebuild(before))
            self._means.observer("upgrade_checked")
            self._draft.replace(self._copy)  # 7
            sync_folder(self._path.parent)
        except OSError as fault:
            message = f"The copy of the ledger that an upgrade keeps cannot be made: {fault.strerror}."
            raise LedgerUnavailable("unwritable", message) from None
        finally:
            self._clear()
        self._means.observer("upgrade_before_commit")
        self._commit()
        self._means.observer("upgrade_committed")
        return before.position.ledger_id

    def _clear(self) -> None:
        """Remove a draft of the copy, and what SQLite kept beside it: a kill leaves them, and they are no copy."""
        for suffix in ("", "-journal", "-wal", "-shm"):
            self._draft.with_name(self._draft.name + suffix).unlink(missing_ok=True)

    def _proven(self) -> EarlierHead:
        if schema_digest(schema_rows(self._raw)) != self._earlier.digest:
            raise _not_upgraded(self._earlier.number, "schema")
        row = self._raw.execute("SELECT ledger_id FROM ledger WHERE one = 1").fetchone()
        if row is None:
            raise LedgerCorrupt("unfinished", "The ledger was never finished being made; make a new one.")
        if self._means.own not in {None, row[0]}:
            raise LedgerCorrupt("foreign_ledger", "The file is of another ledger than these keys are.")
        return self._earlier.proven_head(self._raw, LedgerId(row[0]), self._means.proofs.keys)

    def _refuse_short(self) -> None:
        pages = self._raw.execute("PRAGMA page_count").fetchone()[0]
        size = self._raw.execute("PRAGMA page_size").fetchone()[0]
        needed = _COPIES * pages * size + FREE_BYTES_MIN
        if Ballast(self._path).free_bytes() < needed:
            message = (
                f"Upgrading the ledger needs {needed // _MEBIBYTE} MiB free beside it, and keeps a copy; "
                "free some space."
            )
            raise LedgerUnavailable("disk_full", message)

    def _rebuild(self, before: EarlierHead) -> None:
        keys = self._means.proofs.keys
        changed = self._make_room()
        for kind, name, statement in schema_objects():
            if kind != "trigger" and not self._stands(name):
                self._raw.execute(statement)
        try:
            taken = take_over_spans(self._raw) | self._earlier.take_over(self._raw, keys)  # 4
        except LedgerCorrupt as fault:
            raise _not_upgraded(self._earlier.number, fault.reason) from None
        for name in sorted(changed - taken - {"head"}):
            columns = ", ".join(self._columns(RENAMED + name))
            self._raw.execute(f"INSERT INTO {name}({columns}) SELECT {columns} FROM {RENAMED}{name}")
        for name in sorted(changed):
            self._raw.execute(f"DROP TABLE {RENAMED}{name}")
        for name in ("head", "standing", "holdings"):
            self._raw.execute(f"DELETE FROM {name}")  # said anew: what they say is about all other rows
        self._raw.execute(
            f"INSERT INTO holdings(one, effects, tombstones, record_bytes, spans, span_bytes) {HOLDINGS_RECOUNTED}"
        )
        for kind, _name, statement in schema_objects():
            if kind == "trigger":
                self._raw.execute(statement)
        self._means.observer("upgrade_rebuilt")
        self._entered(before)  # 5
        self._raw.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        found = check_within(self._raw, self._means.proofs)  # 6
        if found:
            raise _not_upgraded(self._earlier.number, found[0].what)

    def _make_room(self) -> frozenset[str]:
        """Take every guard and index away, and give the tables that changed another name; return their names."""
        wanted = {name: statement for kind, name, statement in schema_objects() if kind == "table"}
        changed: set[str] = set()
        for kind, name, sql in schema_rows(self._raw):
            if kind != "table":
                self._raw.execute(f"DROP {kind} {name}")
            elif wanted.get(name) != sql:
                changed.add(name)
        if not changed <= wanted.keys():
            raise Broken("a table of an earlier schema has no place in this one")
        for name in changed:
            self._raw.execute(f"ALTER TABLE {name} RENAME TO {RENAMED}{name}")
        return frozenset(changed)

    def _stands(self, name: str) -> bool:
        return bool(self._raw.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (name,)).fetchall())

    def _columns(self, table: str) -> list[str]:
        return [row[1] for row in self._raw.execute(f"PRAGMA table_info({table})")]

    def _entered(self, before: EarlierHead) -> None:
        """Write the span and the first head of the new schema, with the registers that it holds."""
        digests: dict[Standing, bytes] = {}
        for kind in Standing:
            register = recomputed(self._raw, kind)
            digests[kind] = register_digest(register)
            self._raw.execute("INSERT INTO standing(kind, register) VALUES (?, ?)", (str(kind), register))
        now, uptime = self._time(before)
        made = rows.Head(
            position=replace(before.position, sequence=before.position.sequence + 1),
            frontier=before.frontier.encoded(),
            root=before.frontier.root(),
            clock_ms=now,
            pending=digests[Standing.EFFECTS],
            standing=digests[Standing.TASKS],
            uptime=uptime,
        )
        keys, recorder = self._means.proofs.keys, self._means.recorder(made.position.ledger_id)
        writer = StepWriter(self._raw, recorder=recorder, keys=keys, at_ms=now, head=made)
        span = writer.write(Step(transition=self._transition(made.position.ledger_id)), made.position)
        tree = before.frontier.with_leaf(span.leaf)
        made = replace(made, frontier=tree.encoded(), root=tree.root())
        values = (*rows.head_row(made), keys.tag("head", rows.head_authority(made)))
        marks = ", ".join("?" * len(values))
        self._raw.execute(f"INSERT INTO head({rows.HEAD_COLUMNS}, mac) VALUES ({marks})", values)
        writer.prove(span)

    def _time(self, before: EarlierHead) -> tuple[InstantMs, Uptime]:
        last = LastEntry(clock_ms=before.clock_ms, uptime=before.uptime)
        now, uptime = self._means.clock(), self._means.uptime()
        try:
            return believed(now, uptime, last), uptime
        except LedgerUnavailable:
            # An operator decides about the clock (PER-03), with a command that needs the upgraded ledger.
            return before.clock_ms, before.uptime

    def _transition(self, ledger_id: LedgerId) -> Transition:
        attributes: dict[str, AttributeValue] = {
            **self._means.attributes,
            "permit.schema.from": self._earlier.number,
            "permit.schema.to": SCHEMA_VERSION,
            "permit.sqlite": library_version(),
        }
        return Transition(name=TransitionName.LEDGER_MIGRATED, story=ledger_id, attributes=attributes)

    def _commit(self) -> None:
        try:
            self._raw.execute("COMMIT")
        except DatabaseError as fault:
            # Whichever it is, it is whole, and nothing was promised on it yet.
            known = as_fault(fault)
            message = (
                "Whether the ledger was upgraded shows when it is opened again; repair what the disk reports."
            )
            raise LedgerUnavailable(known.reason, message) from None
