"""Who was given authority, and from whom it was taken: the changes of authority that the trail tells, in order.

Rules: AUD-09 (changes of authority are a question of their own), POL-07, AUD-05 (each span is held against its row).
`ledger.authority` says which those are, and the ledger has an index of them, so that a long trail costs nothing here
(LED-07). They are read page by page.
Next: `issuer.commands.auditing` and `issuer.commands.revisions` show them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from audit import TimelineEntry, entry_of, readable_line
from audit.queries import Found, Question, found_of
from issuer.clock import instant_text
from issuer.sheets import SPAN_COLUMNS, Sheet
from ledger.model import InstantMs
from ledger.port import View
from ledger.transitions import AttributeValue, SpanRow, TransitionName

PAGE_ROWS: Final = 1000
"""Spans that are read at a time."""

_SHOWN: Final = frozenset(
    {
        *("permit.caller", "permit.task.name", "permit.parent.id", "permit.subject", "permit.actors"),
        *("permit.ceiling", "permit.scope", "permit.granted", "permit.lowered", "permit.overrun"),
        *("permit.revision.activated", "permit.revision.before", "permit.files", "permit.reason"),
        *("permit.stop", "permit.credential", "permit.key.id", "permit.key.fingerprint", "permit.signer"),
        *("permit.sink.name", "permit.sink.kind", "permit.count", "permit.clock.before_ms"),
        *("permit.sink.from", "permit.sink.upto", "permit.base.epoch", "permit.base.sequence"),
        *("permit.schema.from", "permit.schema.to"),
    }
)
"""What a person reads on a line; `--json` has all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """One change of authority, as its span tells it."""

    entry: TimelineEntry

    @property
    def at_ms(self) -> InstantMs:
        """When it was."""
        return self.entry.at_ms

    @property
    def by(self) -> str:
        """Who made it: the signer of its statement, or the caller."""
        return str(self._said("permit.signer", self._said("permit.caller", "-")))

    @property
    def revision(self) -> str:
        """The revision that it put in force; empty where it is no activation."""
        return str(self._said("permit.revision.activated", ""))

    @property
    def before(self) -> str:
        """The revision that it took out of force; empty where there was none."""
        return str(self._said("permit.revision.before", ""))

    @property
    def reason(self) -> str:
        """Why, in one word, or `-`."""
        return str(self._said("permit.reason", "-"))

    @property
    def mode(self) -> str:
        """The mode that it was made in; empty where its span does not say."""
        return str(self._said("permit.mode", ""))

    @property
    def files(self) -> tuple[str, ...]:
        """The owner's files that changed with it."""
        files = self._said("permit.files", ())
        return files if isinstance(files, tuple) else ()

    def _said(self, name: str, otherwise: AttributeValue) -> AttributeValue:
        return self.entry.attributes.get(name, otherwise)

    def line(self) -> str:
        """Return it as one line for a person."""
        named = {name: value for name, value in self.entry.attributes.items() if name in _SHOWN}
        return readable_line(
            TimelineEntry(
                epoch=self.entry.epoch,
                sequence=self.entry.sequence,
                at_ms=self.entry.at_ms,
                name=self.entry.name,
                state_from=None,
                state_to=None,
                attributes=named,
            )
        )

    def as_json(self) -> dict[str, object]:
        """Return it as one JSON object."""
        return {
            "sequence": self.entry.sequence,
            "epoch": self.entry.epoch,
            "at": instant_text(self.entry.at_ms),
            "name": self.entry.name,
            "by": self.by,
            "mode": self.mode,
            "attributes": {
                name: list(value) if isinstance(value, tuple) else value
                for name, value in self.entry.attributes.items()
            },
        }


def authority_changes(view: View) -> tuple[Changed, ...]:
    """Return every change of authority, oldest first.

    Raises:
        LedgerCorrupt: a span is not what was recorded.
    """
    return tuple(Changed(entry=entry_of(row)) for row in _rows(view))


def changes_sheet(view: View, question: Question) -> tuple[Sheet, int | None]:
    """Return one page of the changes of authority in a period, and the cursor behind it.

    Where the mode is another one than at the change before it in the page, the line says so.

    Raises:
        LedgerCorrupt: as `authority_changes`.
    """
    found: list[Found] = []
    cursor = None
    since, until = question.wanted.since_ms, question.wanted.until_ms
    for row in _rows(view, None, after=question.after, since_ms=since):
        # Where a clock was set back, later ones may belong to the period again (PER-03).
        if (since is not None and row.at_ms < since) or (until is not None and row.at_ms >= until):
            continue
        if len(found) == question.limit:
            cursor = found[-1].sequence
            break
        found.append(found_of(row))
    changes = [Changed(entry=one.entry) for one in found]
    sheet = Sheet(
        rows=[one.as_json() for one in changes],
        lines=[*_lines(changes)],
        columns=SPAN_COLUMNS,
        spans=tuple(found),
        of_spans=True,
    )
    return sheet, cursor


def _lines(changes: Sequence[Changed]) -> Iterator[str]:
    before = ""
    for one in changes:
        moved = before and one.mode and one.mode != before
        yield f"{one.line()}  mode={before} -> {one.mode}" if moved else one.line()
        before = one.mode or before


def activations(view: View) -> tuple[Changed, ...]:
    """Return every activation of a revision, oldest first.

    Raises:
        LedgerCorrupt: as `authority_changes`.
    """
    return tuple(Changed(entry=entry_of(row)) for row in _rows(view, TransitionName.REVISION_ACTIVATED))


def activations_before(view: View, sequence: int, *, limit: int) -> Iterator[Changed]:
    """Yield at most `limit` activations with a smaller sequence, the latest first.

    Raises:
        LedgerCorrupt: as `authority_changes`.
    """
    found = view.changes_before(sequence, limit=limit, name=TransitionName.REVISION_ACTIVATED)
    yield from (Changed(entry=entry_of(row)) for row in found)


def _rows(
    view: View,
    name: TransitionName | None = None,
    *,
    after: int = 0,
    since_ms: InstantMs | None = None,
) -> Iterator[SpanRow]:
    if since_ms is not None:
        after = max(after, view.sequence_at(since_ms) - 1)
    while rows := view.changes(after, limit=PAGE_ROWS, name=name):
        yield from rows
        after = rows[-1].position.sequence


__all__ = ["Changed", "activations", "activations_before", "authority_changes", "changes_sheet"]
