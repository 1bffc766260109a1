"""Signing anew what a compromised key signed: every row and the head, in one transaction, or nothing (SEC-03, LED-06).

Whoever has a key can write rows that it proves. So nothing is taken over on the key's word alone: the whole ledger is
checked first, against its trail, its registers and its sinks' places, and each row is proven before it is signed again.
In order, under the writers' lock, where the others wait:
  1. BEGIN IMMEDIATE   2. the schema's digest, the head and the time   3. the full check   4. the guards taken away,
  each row that names the key signed with the active one, the guards back as they were   5. the registers and the span;
  the head, under the active key   6. the full check of what is about to be committed   7. COMMIT with a full sync.
An error up to 6 leaves the ledger as it was. A kill at any instant leaves it before or after, whole.

What it does not do: choose the key, or say that it is compromised.
Next: `issuer.commands.keys`, which then lets the key prove nothing any more.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ledger.changes import Step
from ledger.errors import CommitUncertain, LedgerCorrupt
from ledger.model import InstantMs, LedgerId
from ledger.port import SpanRecorder
from ledger.sqlite import rows
from ledger.sqlite.check import check_within
from ledger.sqlite.check_ground import Proofs
from ledger.sqlite.connection import DatabaseError, as_fault, file_identity, open_database, schema_rows
from ledger.sqlite.halt import refuse_halted
from ledger.sqlite.head import proven_head
from ledger.sqlite.lock import WriterLock
from ledger.sqlite.register import recomputed
from ledger.sqlite.schema import expected_digest, schema_digest, schema_objects
from ledger.sqlite.signed_rows import SIGNED, demand_every_table
from ledger.sqlite.store import LOCK_SUFFIX, journal_mode
from ledger.sqlite.writes import StepWriter
from ledger.standing import Standing, register_digest
from ledger.timekeeping import Uptime, believed
from ledger.transitions import Transition

_KEY_ID_BYTES = 4
"""A tag begins with the id of its key (`ledger.port.Authenticator`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resigning:
    """What is done with which means.

    Attributes:
        ledger_id: the one ledger that the keys belong to.
        key_id: the key whose tags are made anew, 1 to 2^32-1; it is not the active one.
        proofs: the keys, and what other rooms can prove of a ledger.
        recorder: makes the recorder of a ledger's spans.
        clock, uptime: the two clocks, read once under the lock.
        observer: told each numbered step.
        transition: what the span says.
    """

    ledger_id: LedgerId
    key_id: int
    proofs: Proofs
    recorder: Callable[[LedgerId], SpanRecorder]
    clock: Callable[[], InstantMs]
    uptime: Callable[[], Uptime]
    observer: Callable[[str], None]
    transition: Transition


def resign_ledger(path: Path, wanted: Resigning) -> int:
    """Sign anew what `wanted.key_id` signed in the ledger at `path`; return the sequence of the span that says so.

    Raises:
        LedgerUnavailable: it is locked, halted, or cannot be written; nothing was written.
        LedgerCorrupt: it is not what its keys signed, or the full check finds something; nothing was written.
        SpanNotRecorded: the span cannot be made; nothing was written.
        CommitUncertain: the commit may or may not have happened; do it once more.
        Broken: a table carries a MAC that this release does not know how to sign; nothing was written.
    """
    file_identity(path)
    with WriterLock(path.with_name(path.name + LOCK_SUFFIX)).held():
        refuse_halted(path)
        wanted.observer("resigning_locked")
        raw = open_database(path, journal_mode=journal_mode())
        try:
            # The guards are taken away and put back here, which the guard of every other connection forbids.
            raw.set_authorizer(None)
            raw.execute("BEGIN IMMEDIATE")  # 1
            sequence = _resigned(raw, wanted)
            wanted.observer("resigning_before_commit")
            _commit(raw)  # 7
            wanted.observer("resigning_committed")
        except DatabaseError as fault:
            raise as_fault(fault) from None
        finally:
            raw.close()
    return sequence


def _resigned(raw: Any, wanted: Resigning) -> int:  # noqa: ANN401 - untyped driver
    if schema_digest(schema_rows(raw)) != expected_digest():  # 2
        raise LedgerCorrupt("schema", "The ledger's tables or guards are not those this release makes.")
    demand_every_table(raw)
    head, frontier = proven_head(raw, wanted.ledger_id, wanted.proofs.keys)
    uptime = wanted.uptime()
    now = believed(wanted.clock(), uptime, head.last_entry)
    _demand_clean(raw, wanted.proofs)  # 3
    wanted.observer("resigning_checked")
    guards = [(name, statement) for kind, name, statement in schema_objects() if kind == "trigger"]
    for name, _statement in guards:  # 4
        raw.execute(f"DROP TRIGGER {name}")
    for table in SIGNED:
        _sign(raw, table, wanted)
    for _name, statement in guards:
        raw.execute(statement)
    digests = {kind: _renewed_register(raw, kind) for kind in Standing}  # 5
    renewed = replace(
        head,
        position=replace(head.position, sequence=head.position.sequence + 1),
        clock_ms=now,
        uptime=uptime,
        pending=digests[Standing.EFFECTS],
        standing=digests[Standing.TASKS],
    )
    keys = wanted.proofs.keys
    writer = StepWriter(raw, recorder=wanted.recorder(wanted.ledger_id), keys=keys, at_ms=now, head=renewed)
    span = writer.write(Step(transition=wanted.transition), renewed.position)
    tree = frontier.with_leaf(span.leaf)
    renewed = replace(renewed, frontier=tree.encoded(), root=tree.root())
    values = (*rows.head_row(renewed), keys.tag("head", rows.head_authority(renewed)))
    marks = ", ".join("?" * len(values))
    raw.execute(f"UPDATE head SET ({rows.HEAD_COLUMNS}, mac) = ({marks}) WHERE lane = 0", values)
    writer.prove(span)
    _demand_clean(raw, wanted.proofs)  # 6
    return renewed.position.sequence


def _demand_clean(raw: Any, proofs: Proofs) -> None:  # noqa: ANN401 - untyped driver
    found = check_within(raw, proofs)
    if found:
        message = "The ledger holds what its keys did not write, so nothing is signed anew; run `issuer ledger check`."
        raise LedgerCorrupt(found[0].what, message)


def _sign(raw: Any, table: str, wanted: Resigning) -> None:  # noqa: ANN401 - untyped driver
    """Sign every row of a table that names the key, after its tag was proven."""
    signed, keys = SIGNED[table], wanted.proofs.keys
    named = wanted.key_id.to_bytes(_KEY_ID_BYTES, "big")
    place = " AND ".join(f"{column} = ?" for column in signed.key.split(", "))
    # The keys of the rows first, which are small; the rows themselves one at a time.
    sql = f"SELECT {signed.key} FROM {table} WHERE substr(mac, 1, {_KEY_ID_BYTES}) = ?"
    for key in raw.execute(sql, (named,)).fetchall():
        mac, *row = raw.execute(f"SELECT mac, {signed.columns} FROM {table} WHERE {place}", key).fetchone()
        authority = signed.authority(tuple(row))
        if not keys.is_authentic("row", authority, mac):
            raise LedgerCorrupt(f"{table}_mac", "A row was changed by someone without the keys.")
        raw.execute(f"UPDATE {table} SET mac = ? WHERE {place}", (keys.tag("row", authority), *key))


def _renewed_register(raw: Any, kind: Standing) -> bytes:  # noqa: ANN401 - untyped driver
    register = recomputed(raw, kind)
    raw.execute("UPDATE standing SET register = ? WHERE kind = ?", (register, str(kind)))
    return register_digest(register)


def _commit(raw: Any) -> None:  # noqa: ANN401 - untyped driver
    try:
        raw.execute("COMMIT")
    except DatabaseError as fault:
        # Whichever it is, it is whole; doing it once more ends it.
        message = "Whether the ledger was signed anew is not known; run the command again."
        is_full = as_fault(fault).reason == "disk_full"
        raise CommitUncertain(message, disk_was_full=is_full) from None
