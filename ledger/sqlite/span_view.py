"""Finding spans over one SQLite connection; what `ledger.sqlite.view` stands on.

Rules: AUD-05, AUD-06, LED-07 (an answer costs what is in it). Every index of spans gives the sequences of one value in
order. So a question with several parts is answered by letting each part leap to the first sequence that no other part
has passed already: a span is read where all of them meet, and nothing is ordered by a guess of what is rare. A period
is a range of sequences, since time does not fall from one span to the next but where an operator accepted a clock
(PER-03); each stretch between two such spans is searched by halving.
It decides nothing. Next: `ledger.sqlite.view`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType
from typing import Final

from ledger.archive import LeafRow, Leaving
from ledger.model import EffectId, InstantMs, PermitId, TaskId
from ledger.questions import MOVES_TO, DeniedThenDone, SpanFilter, UnusedPermit
from ledger.sqlite import archive_rows, rows
from ledger.sqlite.authority_view import AuthorityReading
from ledger.sqlite.tables import names
from ledger.states import PERMIT_UNUSED, UNUSED, EffectState
from ledger.transitions import SpanRow, TransitionName

DONE_MAX: Final = 64
"""Spans that are shown after one no: the rest is found by its resource."""

BATCH: Final = 256
"""Refusals and denials that are read at once."""

_FEW: Final = 8
_SEQUENCE_MAX: Final = 2**63 - 1
_WITHIN: Final = "BETWEEN ? AND ?"
_DENIALS: Final = frozenset({TransitionName.EFFECT_DENIED, TransitionName.REFUSED})
_DONE: Final = frozenset({TransitionName.EFFECT_ADMITTED, TransitionName.EFFECT_SUCCEEDED})

_SPAN: Final = f"SELECT {rows.SPAN_COLUMNS} FROM spans"
_QUALIFIED: Final = ", ".join(f"spans.{column}" for column in rows.SPAN_COLUMNS.split(", "))

_COUNTED: Final = """
WITH RECURSIVE told(name) AS (
  SELECT min(name) FROM spans INDEXED BY spans_name
  UNION ALL
  SELECT (SELECT min(name) FROM spans INDEXED BY spans_name WHERE name > told.name) FROM told
  WHERE told.name IS NOT NULL
)
SELECT name, (
  SELECT count(*) FROM spans INDEXED BY spans_name WHERE spans.name = told.name AND sequence BETWEEN ?1 AND ?2
) FROM told WHERE name IS NOT NULL
"""
_UNUSED_EFFECTS: Final = (
    "SELECT p.permit_id, e.effect_id, e.state, e.task_id, e.subject, e.actor, e.operation, e.sequence "
    "FROM effects AS e {by} CROSS JOIN permits AS p ON p.effect_id = e.effect_id "
    f"WHERE e.state IN ({names(PERMIT_UNUSED)}) AND (e.sequence, e.effect_id) > (?, ?) "
    "AND NOT EXISTS (SELECT 1 FROM permit_uses AS u WHERE u.permit_id = p.permit_id) "
    "ORDER BY e.sequence, e.effect_id LIMIT ?"
)
_UNUSED_TOMBSTONES: Final = (
    "SELECT permit_id, effect_id, state, task_id, subject, actor, operation, sequence "
    "FROM tombstones {by} "
    f"WHERE permit_id IS NOT NULL AND state IN ({names(UNUSED)}) AND (sequence, effect_id) > (?, ?) "
    "AND NOT EXISTS (SELECT 1 FROM permit_uses AS u WHERE u.permit_id = tombstones.permit_id) "
    "ORDER BY sequence, effect_id LIMIT ?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of a question: any of `values` in one column, whose index is walked."""

    table: str
    column: str
    values: tuple[str, ...]

    def next(self, place: str, *, falls: bool) -> str:
        """Return the expression of the nearest sequence from `place` on; the range and the values are bound."""
        within = (
            f"sequence BETWEEN {place} AND :last" if not falls else f"sequence BETWEEN :first AND {place}"
        )
        order = "ORDER BY sequence DESC" if falls else "ORDER BY sequence"
        sought = f"SELECT sequence FROM {self.table} WHERE {self.column} = :{self.column}"
        found = [f"({sought}{number} AND {within} {order} LIMIT 1)" for number in range(len(self.values))]
        if len(found) == 1:
            return found[0]
        none = "0" if falls else str(_SEQUENCE_MAX)
        known = ", ".join(f"ifnull({one}, {none})" for one in found)
        return f"nullif({'max' if falls else 'min'}({known}), {none})"

    def bound(self) -> dict[str, object]:
        """Return the values by the names that `next` gives them."""
        return {f"{self.column}{number}": value for number, value in enumerate(self.values)}


def _leap(parts: Sequence[Part], *, falls: bool) -> str:
    """Return the query of the spans in which all parts meet; `:first`, `:last` and `:limit` are bound as well."""
    columns = [f"s{number}" for number in range(len(parts))]
    every = ", ".join(columns)
    ahead, behind = (f"min({every})", f"max({every})") if falls else (f"max({every})", f"min({every})")
    if len(parts) == 1:
        ahead = behind = every  # of one argument, these two are aggregates
    following = f"{ahead} {'-' if falls else '+'} ({ahead} = {behind})"
    begin = ", ".join(part.next(":last" if falls else ":first", falls=falls) for part in parts)
    go_on = ", ".join(part.next(f"({following})", falls=falls) for part in parts)
    return (
        f"WITH RECURSIVE leap({every}) AS (SELECT {begin} UNION ALL SELECT {go_on} FROM leap "
        f"WHERE {following} BETWEEN :first AND :last) "
        f"SELECT {_QUALIFIED} FROM leap CROSS JOIN spans ON spans.sequence = leap.s0 "
        f"WHERE {ahead} = {behind} LIMIT :limit"
    )


def _kinds(wanted: SpanFilter) -> frozenset[TransitionName] | None:
    """Return the names that are wanted, a state being one of those that move into it; None where any is."""
    if not wanted.states:
        return wanted.names or None
    moving = frozenset(name for state in wanted.states for name in MOVES_TO[state])
    return moving & wanted.names if wanted.names else moving


def _spelled(value: str) -> tuple[str, ...]:
    """Return the one value, or none where no span can say it, such as half a character."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return ()
    return (value,)


def parts_of(wanted: SpanFilter) -> list[Part]:
    """Return the parts of a question, without its period; a part without values fits nothing."""
    kinds = _kinds(wanted)
    given = {
        "story": wanted.story,
        "resource": wanted.resource,
        "signer": wanted.signer,
        "task_id": wanted.task,
        "subject": wanted.subject,
        "actor": wanted.actor,
        "operation": wanted.operation,
    }
    found = [
        Part(table=f"spans INDEXED BY spans_{column}", column=column, values=_spelled(value))
        for column, value in given.items()
        if value is not None
    ]
    if wanted.policy is not None:
        found.append(Part(table="span_policies", column="policy", values=_spelled(wanted.policy)))
    if kinds is not None:
        found.append(
            Part(table="spans INDEXED BY spans_name", column="name", values=tuple(sorted(map(str, kinds))))
        )
    return found


class SpanReading(AuthorityReading):
    """What anybody may read of the trail."""

    _by_unused = "INDEXED BY effects_unused"
    _by_collected = "INDEXED BY tombstones_unused"

    def story(self, story: str) -> Sequence[SpanRow]:
        """Return the spans of one effect, task or ledger story, in order (AUD-05)."""
        return self._spans(f"{_SPAN} {self._by_story} WHERE story = ? ORDER BY sequence", story)

    def spans_after(self, sequence: int, *, limit: int) -> Sequence[SpanRow]:
        """Return at most `limit` spans with a larger sequence, in order."""
        return self._spans(f"{_SPAN} WHERE sequence > ? ORDER BY sequence {rows.AT_MOST}", sequence, limit)

    def span_at(self, sequence: int) -> SpanRow | None:
        """Return the span at a sequence."""
        found = self._spans(f"{_SPAN} WHERE sequence = ?", sequence)
        return found[0] if found else None

    def _spans(self, sql: str, *values: object) -> list[SpanRow]:
        return [rows.span_from(self._ledger_id, row) for row in self._all(sql, *values)]

    def find_spans(
        self,
        wanted: SpanFilter,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int,
        newest_first: bool = False,
    ) -> Sequence[SpanRow]:
        """Return at most `limit` spans that are wanted between two sequences, in order or the other way round."""
        parts, found = parts_of(wanted), list[SpanRow]()
        if not all(part.values for part in parts):
            return []
        for first, last in self._ranges(wanted, after, before, falls=newest_first):
            if len(found) == limit:
                break
            found += self._found(parts, first, last, limit - len(found), falls=newest_first)
        return found

    def _found(
        self, parts: Sequence[Part], first: int, last: int, limit: int, *, falls: bool
    ) -> list[SpanRow]:
        if not parts:
            order = "ORDER BY sequence DESC" if falls else "ORDER BY sequence"
            return self._spans(f"{_SPAN} WHERE sequence {_WITHIN} {order} LIMIT ?", first, last, limit)
        bound: dict[str, object] = {"first": first, "last": last, "limit": limit}
        for part in parts:
            bound |= part.bound()
        found = self._raw.execute(_leap(parts, falls=falls), bound).fetchall()
        return [rows.span_from(self._ledger_id, row) for row in found]

    def _ranges(
        self, wanted: SpanFilter, after: int, before: int | None, *, falls: bool
    ) -> Iterator[tuple[int, int]]:
        """Give the stretches of sequences that are asked for, each with its first and last, in the order of reading."""
        last = _SEQUENCE_MAX if before is None else before - 1
        if wanted.since_ms is None and wanted.until_ms is None:
            stretches = [(1, _SEQUENCE_MAX)]
        else:
            stretches = [
                (
                    first if wanted.since_ms is None else self._halved(first, end, wanted.since_ms),
                    (end if wanted.until_ms is None else self._halved(first, end, wanted.until_ms)) - 1,
                )
                for first, end in self._stretches()
            ]
        for first, until in reversed(stretches) if falls else stretches:
            begin, end = max(first, after + 1), min(until, last)
            if begin <= end:
                yield begin, end

    def _stretches(self) -> list[tuple[int, int]]:
        """Return where time does not fall: the first sequence of each stretch, and the one after its last."""
        # Asked for both at once, SQLite would look at every span.
        low, high = (self._one(f"SELECT {end}(sequence) FROM spans") or (None,) for end in ("min", "max"))
        if low[0] is None or high[0] is None:
            return []
        accepted = f"SELECT sequence FROM spans {self._by_name} WHERE name = ? ORDER BY sequence"
        cuts = [row[0] for row in self._all(accepted, str(TransitionName.CLOCK_ACCEPTED)) if row[0] > low[0]]
        return list(zip([low[0], *cuts], [*cuts, high[0] + 1], strict=True))

    def _halved(self, first: int, end: int, at_ms: InstantMs) -> int:
        """Return the first sequence from `first` on at or after an instant, or `end`, between which no time falls."""
        sql = "SELECT sequence, at_ms FROM spans WHERE sequence >= ? ORDER BY sequence LIMIT 1"
        while first < end:
            middle = (first + end) // 2
            row = self._one(sql, middle)
            if row is not None and row[1] < at_ms:
                first = row[0] + 1
            else:
                end = middle
        return min(first, end)

    def sequence_at(self, at_ms: InstantMs) -> int:
        """Return the sequence of the first span at or after an instant; that of the next span where there is none."""
        end = 1
        for first, end in self._stretches():
            found = self._halved(first, end, at_ms)
            if found < end:
                return found
        return end

    def count_spans(self, first: int, last: int) -> Mapping[str, int]:
        """Count the spans from `first` to `last`, both included, by name; a name without one is not there."""
        found = self._raw.execute(_COUNTED, (first, last)).fetchall()
        return MappingProxyType({name: number for name, number in found if number})

    def leaves_after(self, sequence: int, *, limit: int) -> Sequence[LeafRow]:
        """Return at most `limit` leaves with a larger sequence, in order, of spans that are there or archived."""
        return archive_rows.leaves_after(self._raw, sequence, limit)

    def leaving(self, upto: int) -> Leaving:
        """Return what an archive up to the span `upto` would take away; it reads the whole trail (AUD-08)."""
        return archive_rows.leaving(self._raw, upto)

    def permits_unused(self, *, after: tuple[int, str] = (0, ""), limit: int) -> Sequence[UnusedPermit]:
        """Return at most `limit` permits that were never used, after one of a sequence and an effect, in order."""
        found = self._all(_UNUSED_EFFECTS.format(by=self._by_unused), *after, limit)
        found += self._all(_UNUSED_TOMBSTONES.format(by=self._by_collected), *after, limit)
        return [
            UnusedPermit(
                permit_id=PermitId(row[0]),
                effect_id=EffectId(row[1]),
                state=EffectState(row[2]),
                task_id=TaskId(row[3]),
                subject=row[4],
                actor=row[5],
                operation=row[6],
                sequence=row[7],
            )
            for row in sorted(found, key=lambda row: (row[7], row[1]))[:limit]
        ]

    def denied_then_done(
        self, wanted: SpanFilter, *, window_ms: int, after: int = 0, limit: int
    ) -> Sequence[DeniedThenDone]:
        """Return at most `limit` refusals and denials that are wanted, with what was done shortly after each."""
        asked = replace(wanted, names=_DENIALS, states=frozenset())
        told = (self._told(denied, window_ms) for denied in self._every(asked, after))
        return list(islice((one for one in told if one.done), limit))

    def _every(self, wanted: SpanFilter, after: int) -> Iterator[SpanRow]:
        """Give every span that is wanted, reading on only as far as somebody takes them."""
        batch = self.find_spans(wanted, after=after, limit=BATCH)
        while batch:
            yield from batch
            batch = self.find_spans(wanted, after=batch[-1].position.sequence, limit=BATCH)

    def _told(self, denied: SpanRow, window_ms: int) -> DeniedThenDone:
        return DeniedThenDone(denied=denied, done=self._done_after(denied, window_ms))

    def _done_after(self, denied: SpanRow, window_ms: int) -> tuple[SpanRow, ...]:
        """Return what was admitted or succeeded as a no forbade it, up to the end of the window.

        What others do to the same resource is no part of it, so that it cannot fill up what is shown.
        """
        sequence = denied.position.sequence
        row = self._one("SELECT resource, subject, operation FROM spans WHERE sequence = ?", sequence)
        if row is None or row[0] is None:
            return ()
        wanted = SpanFilter(resource=row[0], subject=row[1], operation=row[2], names=_DONE)
        found: list[SpanRow] = []
        few = 1  # after most of them nothing was done in time, which one span tells
        while len(found) < DONE_MAX:
            batch = self.find_spans(wanted, after=sequence, limit=few)
            found += [span for span in batch if span.at_ms <= denied.at_ms + window_ms]
            if len(batch) < few or batch[-1].at_ms > denied.at_ms + window_ms:
                break
            sequence, few = batch[-1].position.sequence, _FEW
        return tuple(found[:DONE_MAX])
