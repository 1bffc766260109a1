"""Writing one step: its span row first, then each of its changes.

Rules: AUD-01 (span before change, proven by reading it back), ADM-02, BUD-02, BUD-03. Values are bound, never
written into SQL. A constraint that fires here is a broken rule of ours, since `ledger.rules` looked before.
Next: `ledger.sqlite.store` runs this inside a transaction and renews the head after it.
"""

from typing import Any, Final, assert_never

from ledger import changes
from ledger.canonical import canonical_bytes
from ledger.errors import Broken, Fault, SpanNotRecorded
from ledger.model import Amounts, CounterTake, EffectId, InstantMs, TaskId
from ledger.port import Authenticator, SpanRecorder
from ledger.sqlite import rows
from ledger.sqlite.archive_rows import take_away
from ledger.sqlite.authority_writes import AuthorityWriter
from ledger.sqlite.connection import DatabaseError, IntegrityError, OperationalError
from ledger.sqlite.invocation_writes import InvocationWriter
from ledger.sqlite.register import Register
from ledger.sqlite.span_writes import insert_span
from ledger.sqlite.task_writes import TaskWriter
from ledger.standing import Standing
from ledger.states import PENDING, is_legal
from ledger.transitions import Position, RecordedSpan, SpanRow, Transition
from ledger.tree import leaf_hash

_EFFECT_MARKS: Final = ", ".join("?" * (len(rows.EFFECT_COLUMNS.split(",")) + 1))
_TOMBSTONE_MARKS: Final = ", ".join("?" * (len(rows.TOMBSTONE_COLUMNS.split(",")) + 2))
_COLLECTED_TABLES: Final = (
    *(
        "approvals",
        "approval_waits",
        "obligations_done",
        "obligations",
        "counter_takes",
        "settlements",
        "reservations",
        "claims",
        "evidence",
        "decisions",
        "permits",
        "effects",
    ),
)
"""What an effect's collection takes away, each after the rows that name it."""


class StepWriter:
    """Writes the steps of one transaction, whose instant and position belong to the store."""

    def __init__(
        self,
        raw: Any,  # noqa: ANN401 - untyped driver
        *,
        recorder: SpanRecorder,
        keys: Authenticator,
        at_ms: InstantMs,
        head: rows.Head,
    ) -> None:
        """Write over `raw`, inside the store's open transaction."""
        self._raw = raw
        self._recorder = recorder
        self._keys = keys
        self._at_ms = at_ms
        self._tasks = TaskWriter(raw, keys=keys, standing=head.standing)
        self._invocations = InvocationWriter(raw, keys=keys, register=self._tasks.register)
        self._authority = AuthorityWriter(raw, keys=keys, register=self._tasks.register)
        self._pending = Register(raw, Standing.EFFECTS, head.pending)
        self._span: SpanRow | None = None

    @property
    def standing(self) -> bytes:
        """What the head is to hold of the register of tasks, as the steps so far leave it."""
        return self._tasks.standing

    @property
    def pending(self) -> bytes:
        """What the head is to hold of the register of effects that may still be admitted."""
        return self._pending.digest

    def write(self, step: changes.Step, position: Position) -> SpanRow:
        """Write one step at `position` and return its span row, proven to be there.

        Raises:
            SpanNotRecorded: the span could not be made, or is not in the table afterwards.
            Broken: a guard of the database fired.
        """
        self._span = self._write_span(step.transition, position)
        for change in step.changes:
            try:
                self._apply(change)
            except IntegrityError as fault:
                # The driver's text names the guard (our own RAISE and CHECK names) and no value.
                raise Broken(f"the ledger refused {type(change).__name__}: {fault}") from None
        return self._span

    def _write_span(self, transition: Transition, position: Position) -> SpanRow:
        parent = self._raw.execute(
            "SELECT span_id FROM spans WHERE story = ? ORDER BY sequence DESC LIMIT 1",
            (transition.story,),
        ).fetchone()
        try:
            recorded = self._recorder.record(
                transition,
                position=position,
                parent_span_id=None if parent is None else parent[0],
                at_ms=self._at_ms,
            )
            row = self._span_row(transition, position, recorded)
            insert_span(self._raw, transition, row, recorded.attributes)
        except Exception as fault:
            # A disk, a lock or a damaged file is not the span's fault, and the store says whose it was. Whatever else
            # the cause is, a span that is not complete is not recorded (AUD-01).
            if isinstance(fault, Fault | OperationalError) or type(fault) is DatabaseError:
                raise
            raise SpanNotRecorded("unusable", "The recorder gave no span that the ledger can hold.") from None
        self.prove(row)
        return row

    def _span_row(self, transition: Transition, position: Position, recorded: RecordedSpan) -> SpanRow:
        return SpanRow(
            position=position,
            span_id=recorded.span_id,
            trace_id=recorded.trace_id,
            name=str(transition.name),
            story=transition.story,
            at_ms=self._at_ms,
            body=recorded.body,
            leaf=leaf_hash(recorded.body),
        )

    def prove(self, row: SpanRow) -> None:
        """Refuse unless the row of exactly this span, with exactly these bytes, is there (AUD-01).

        Raises:
            SpanNotRecorded: it is not.
        """
        found = self._raw.execute(
            "SELECT sequence, body, leaf FROM spans WHERE span_id = ?",
            (row.span_id,),
        ).fetchone()
        if found is None or tuple(found) != (row.position.sequence, row.body, row.leaf):
            raise SpanNotRecorded("row_missing", "The span of this transition is not in the ledger.")

    def _apply(self, change: changes.Change) -> None:  # noqa: C901, PLR0912, PLR0915 - one arm per change, nothing else
        sequence = self._here.position.sequence
        match change:
            case changes.TaskOpened():
                self._tasks.opened(change, sequence)
            case changes.TaskMoved():
                self._tasks.moved(change, sequence)
            case changes.CeilingGranted():
                self._tasks.granted(change, sequence)
            case changes.CeilingLowered():
                self._tasks.lowered(change, sequence)
            case changes.OverrunAccepted():
                self._tasks.accepted(change, sequence)
            case changes.EffectPrepared():
                self._effect_prepared(change)
            case changes.EffectMoved():
                self._effect_moved(change)
            case changes.DecisionRecorded():
                self._decision(change)
            case changes.PermitIssued():
                self._permit_issued(change)
            case changes.PermitUsed():
                self._permit_used(change)
            case changes.CostReserved():
                self._reserve(change.effect_id, change.task_id, change.cost)
            case changes.CostSettled():
                self._settle(change)
            case changes.EvidenceAdded():
                self._evidence(change)
            case changes.AdmissionReplayed():
                self._replayed(change)
            case changes.EffectCollected():
                self._collected(change)
            case changes.TombstonesForgotten():
                self._forgotten(change)
            case changes.InvocationOpened():
                self._invocations.opened(change, sequence)
            case changes.InvocationEnded():
                self._invocations.ended(change, sequence, self._at_ms)
            case changes.InvocationsCollected():
                self._invocations.collected(change)
            case changes.ObligationOpened():
                self._invocations.obliged(change, sequence)
            case changes.ObligationDone():
                self._invocations.done(change, sequence, self._at_ms)
            case changes.RulingMade():
                self._authority.ruled(change, sequence)
            case changes.ChallengesDropped():
                self._authority.dropped(change)
            case changes.ApprovalAsked():
                self._authority.asked(change, sequence)
            case changes.ApprovalGiven():
                self._authority.approved(change, sequence)
            case changes.SinkRegistered():
                self._sink(change)
            case changes.SpansArchived():
                take_away(self._raw, change.upto, change.leaving)
            case _:
                assert_never(change)

    @property
    def _here(self) -> SpanRow:
        if self._span is None:
            raise Broken("a change was written before its span")
        return self._span

    def _effect_prepared(self, change: changes.EffectPrepared) -> None:
        here = self._here
        mac = self._keys.tag("row", rows.effect_authority(change.effect))
        self._pending.prove(change.effect.effect_id)
        self._raw.execute(
            f"INSERT INTO effects({rows.EFFECT_COLUMNS}, bucket) VALUES ({_EFFECT_MARKS})",
            rows.effect_row(
                change.effect,
                span_id=here.span_id,
                sequence=here.position.sequence,
                mac=mac,
            ),
        )
        if change.effect.state in PENDING:
            self._pending.renew(change.effect.effect_id)

    def _effect_moved(self, change: changes.EffectMoved) -> None:
        if not is_legal(change.origin, change.target):
            raise Broken(f"an effect may not move from {change.origin} to {change.target}")
        here = self._here
        ends = change.origin in PENDING and change.target not in PENDING
        if ends:
            self._pending.prove(change.effect_id)
        moved = self._raw.execute(
            "UPDATE effects SET state = ?, last_span = ?, sequence = ? WHERE effect_id = ? AND state = ?",
            (str(change.target), here.span_id, here.position.sequence, change.effect_id, str(change.origin)),
        )
        if moved.rowcount != 1:
            raise Broken(f"no effect stood in state {change.origin}")
        if ends:
            self._pending.renew(change.effect_id)

    def _decision(self, change: changes.DecisionRecorded) -> None:
        decision = change.decision
        self._raw.execute(
            "INSERT INTO decisions(sequence, effect_id, at_ms, body) VALUES (?, ?, ?, ?)",
            (self._here.position.sequence, decision.effect_id, decision.at_ms, decision.body),
        )

    def _permit_issued(self, change: changes.PermitIssued) -> None:
        permit = change.permit
        self._raw.execute(
            "INSERT INTO permits(effect_id, permit_id, seal, tier, issued_ms, expires_ms, caps, sequence) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                permit.effect_id,
                permit.permit_id,
                permit.seal,
                str(permit.tier),
                permit.issued_ms,
                permit.expires_ms,
                canonical_bytes(dict(permit.caps)).decode(),
                self._here.position.sequence,
            ),
        )
        for take in change.takes:
            self._raw.execute(
                "INSERT INTO counters(counter, used, ceiling) VALUES (?, 0, ?) "
                "ON CONFLICT (counter) DO UPDATE SET ceiling = excluded.ceiling",
                (take.counter, take.ceiling),
            )
            self._take(permit.effect_id, take)

    def _take(self, effect_id: EffectId, take: CounterTake) -> None:
        self._raw.execute(
            "INSERT INTO counter_takes(effect_id, counter, amount) VALUES (?, ?, ?)",
            (effect_id, take.counter, take.amount),
        )

    def _permit_used(self, change: changes.PermitUsed) -> None:
        self._raw.execute(
            "INSERT INTO permit_uses(permit_id, effect_id, sequence) VALUES (?, ?, ?)",
            (change.permit.permit_id, change.permit.effect_id, self._here.position.sequence),
        )
        claim = change.claim
        mac = self._keys.tag("row", rows.claim_authority(claim))
        self._raw.execute(
            f"INSERT INTO claims({rows.CLAIM_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*rows.claim_row(claim), mac),
        )

    def _line_exists(self, task_id: str, unit: str) -> None:
        """Give every level of the path a budget line: absent means zero (BUD-01), and a row can be locked."""
        self._raw.execute(
            "INSERT INTO budgets(task_id, unit, ceiling) SELECT ancestor_id, ?2, 0 FROM task_path WHERE task_id = ?1 "
            "ON CONFLICT (task_id, unit) DO NOTHING",
            (task_id, unit),
        )

    def _replayed(self, change: changes.AdmissionReplayed) -> None:
        self._raw.execute(
            "INSERT INTO permit_uses(permit_id, effect_id, sequence) VALUES (?, ?, ?)",
            (change.permit_id, change.effect_id, self._here.position.sequence),
        )
        self._reserve(change.effect_id, change.task_id, change.cost)
        for take in change.takes:
            # What happened counts, even where a bound is lower by now: it then stands where the use does.
            self._raw.execute(
                "INSERT INTO counters(counter, used, ceiling) VALUES (?1, 0, max(?2, ?3)) ON CONFLICT (counter) "
                "DO UPDATE SET ceiling = max(?2, used + ?3)",
                (take.counter, take.ceiling, take.amount),
            )
            self._take(change.effect_id, take)

    def _collected(self, change: changes.EffectCollected) -> None:
        tombstone = change.tombstone
        self._raw.execute(
            f"INSERT INTO tombstones({rows.TOMBSTONE_COLUMNS}, sequence, mac) VALUES ({_TOMBSTONE_MARKS})",
            (
                *rows.tombstone_row(tombstone),
                self._here.position.sequence,
                self._keys.tag("row", rows.tombstone_authority(tombstone)),
            ),
        )
        for table in _COLLECTED_TABLES:
            self._raw.execute(f"DELETE FROM {table} WHERE effect_id = ?", (tombstone.effect_id,))

    def _forgotten(self, change: changes.TombstonesForgotten) -> None:
        for effect_id in change.effect_ids:
            self._raw.execute("DELETE FROM tombstones WHERE effect_id = ?", (effect_id,))

    def _reserve(self, effect_id: EffectId, task_id: TaskId, cost: Amounts) -> None:
        for unit, amount in cost.items():
            self._line_exists(task_id, unit)
            self._raw.execute(
                "INSERT INTO reservations(effect_id, task_id, unit, amount) "
                "SELECT ?1, ancestor_id, ?3, ?4 FROM task_path WHERE task_id = ?2 ORDER BY distance",
                (effect_id, task_id, unit, amount),
            )

    def _settle(self, change: changes.CostSettled) -> None:
        # What was charged before, by an acknowledgement, is held no more (REC-04).
        held = dict(
            self._raw.execute(
                "SELECT unit, max(amount) FROM reservations AS r WHERE effect_id = ? AND NOT EXISTS ("
                "SELECT 1 FROM settlements AS s WHERE s.effect_id = r.effect_id AND s.task_id = r.task_id "
                "AND s.unit = r.unit) GROUP BY unit",
                (change.effect_id,),
            ).fetchall(),
        )
        for unit in sorted({*held, *change.charged}):
            charge = change.charged.get(unit, 0)
            within = min(charge, held.get(unit, 0))
            self._line_exists(change.task_id, unit)
            self._raw.execute(
                "INSERT INTO settlements(effect_id, task_id, unit, charged, overrun, sequence) "
                "SELECT ?1, ancestor_id, ?3, ?4, ?5, ?6 FROM task_path WHERE task_id = ?2 ORDER BY distance",
                (
                    change.effect_id,
                    change.task_id,
                    unit,
                    within,
                    charge - within,
                    self._here.position.sequence,
                ),
            )

    def _evidence(self, change: changes.EvidenceAdded) -> None:
        item = change.evidence
        self._raw.execute(
            "INSERT INTO evidence(effect_id, sequence, class, source, proves, reference, late, at_ms, charged) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                item.effect_id,
                self._here.position.sequence,
                str(item.evidence_class),
                item.source,
                item.proves,
                item.reference,
                int(item.late),
                item.at_ms,
                rows.amounts_text(item.charged),
            ),
        )

    def _sink(self, change: changes.SinkRegistered) -> None:
        sink = change.sink
        self._raw.execute(
            "INSERT INTO sinks(name, kind, location, sequence, mac) VALUES (?, ?, ?, ?, ?)",
            (
                sink.name,
                sink.kind,
                sink.location,
                self._here.position.sequence,
                self._keys.tag("row", rows.sink_authority(sink.name, sink.kind, sink.location)),
            ),
        )
