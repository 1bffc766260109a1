"""What a reviewer asks the trail, answered page by page: by who, what, where, when, and how it was decided (AUD-06).

Pure over a view of the ledger. Every answer is at most `limit` spans, in the order of the trail or against it, and says
where it goes on: behind a sequence, which no writer moves, so that pages neither repeat nor leave out a span while
others write. Each span is held against its row (AUD-05).
It does not ask who may look, nor record that somebody did. Next: `audit.standing`, the standing questions;
`issuer.commands.auditing`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from audit.timeline import TimelineEntry, entry_of
from ledger.errors import LedgerCorrupt
from ledger.port import View
from ledger.questions import SpanFilter
from ledger.transitions import AttributeValue, SpanRow, TransitionName

__all__ = [
    "ALTERED",
    "DECISIONS",
    "LOOKS",
    "PAGE_ROWS",
    "VISITED_MAX",
    "Found",
    "Page",
    "Question",
    "ask",
    "found_of",
    "merged_stories",
    "spans_of",
]

PAGE_ROWS: Final = 256
"""Spans that are read at a time."""

VISITED_MAX: Final = 20_000
"""Spans that one page looks at where no index knows the answer; the next page goes on from there."""

DECISIONS: Final[Mapping[str, TransitionName]] = MappingProxyType(
    {
        "permitted": TransitionName.EFFECT_PERMITTED,
        "denied": TransitionName.EFFECT_DENIED,
        "refused": TransitionName.REFUSED,
        "approved": TransitionName.EFFECT_APPROVED,
        "declined": TransitionName.EFFECT_DECLINED,
    }
)
"""How something was decided, and the kind of span that says so."""

LOOKS: Final = frozenset(
    {TransitionName.OBSERVED, TransitionName.CONTENT_SHOWN, TransitionName.AUDIT_EXPORTED}
)
"""Somebody looked at what is not their own, at protected content, or took a copy away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One span of an answer: as the ledger holds it, and read.

    `is_altered` says that it is not what was recorded; then nothing of it is repeated but its place.
    """

    row: SpanRow
    entry: TimelineEntry
    is_altered: bool = False

    @property
    def sequence(self) -> int:
        """Its place in the trail."""
        return self.row.position.sequence

    def said(self, name: str) -> AttributeValue | None:
        """Return the attribute `permit.NAME`, or None."""
        return self.entry.attributes.get(f"permit.{name}")

    def text(self, name: str) -> str | None:
        """Return the attribute `permit.NAME` as text, or None."""
        value = self.said(name)
        return None if value is None else str(value)

    def texts(self, name: str) -> tuple[str, ...]:
        """Return the attribute `permit.NAME` as a list; empty where there is none."""
        value = self.said(name)
        return value if isinstance(value, tuple) else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Which spans are wanted.

    Attributes:
        wanted: what the ledger finds by its indexes.
        tier, resource_type: what no index has; asked of each span that was found.
        newest: the latest first.
        after: the sequence behind which, in that order, this page begins; 0 is the begin.
        after_effect: which effect of that sequence was told last, where one span has many (`audit.standing.unused`).
        limit: spans in a page, at least 1.
    """

    wanted: SpanFilter
    tier: str | None = None
    resource_type: str | None = None
    newest: bool = False
    after: int = 0
    after_effect: str = ""
    limit: int = 100

    def takes(self, found: Found) -> bool:
        """Say whether a span that the ledger found is one of those that are asked for; an altered one always is."""
        return found.is_altered or all(
            wanted is None or found.text(name) == wanted
            for name, wanted in (("tier", self.tier), ("resource.type", self.resource_type))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A part of an answer; `cursor` is the sequence behind which it goes on, or None where this was the end."""

    found: tuple[Found, ...]
    cursor: int | None


def ask(view: View, question: Question) -> Page:
    """Answer one page; a span that is not what was recorded stands in it as altered, so that the rest can be read."""
    found: list[Found] = []
    visited, last = 0, question.after
    for row in _rows(view, question):
        one = _read(row)
        if question.takes(one):
            if len(found) == question.limit:
                return Page(found=tuple(found), cursor=found[-1].sequence)
            found.append(one)
        visited, last = visited + 1, one.sequence
        if visited == VISITED_MAX:
            return Page(found=tuple(found), cursor=last)
    return Page(found=tuple(found), cursor=None)


def found_of(row: SpanRow) -> Found:
    """Read one span.

    Raises:
        LedgerCorrupt: it is not what was recorded.
    """
    return Found(row=row, entry=entry_of(row))


ALTERED: Final = "altered"
"""The name under which a span stands that is not what was recorded."""


def _read(row: SpanRow) -> Found:
    try:
        return found_of(row)
    except LedgerCorrupt:
        place = row.position
        entry = TimelineEntry(
            epoch=place.epoch,
            sequence=place.sequence,
            at_ms=row.at_ms,
            name=ALTERED,
            state_from=None,
            state_to=None,
            attributes={},
        )
        return Found(row=row, entry=entry, is_altered=True)


def spans_of(view: View, wanted: SpanFilter, *, after: int = 0) -> Iterator[Found]:
    """Yield every span behind `after` that is wanted, in order, read page by page.

    Raises:
        LedgerCorrupt: a span is not what was recorded.
    """
    yield from map(found_of, _rows(view, Question(wanted=wanted, after=after, limit=PAGE_ROWS)))


def merged_stories(view: View, stories: tuple[str, ...], question: Question) -> Page:
    """Answer one page about some stories together, such as an invocation and its effects, within a period."""
    since, until = question.wanted.since_ms, question.wanted.until_ms
    rows = sorted(
        (
            row
            for story in stories
            for row in view.story(story)
            if (since is None or row.at_ms >= since) and (until is None or row.at_ms < until)
        ),
        key=lambda row: row.position.sequence,
    )
    kept = [_read(row) for row in _ordered(rows, question)]
    shown = tuple(kept[: question.limit])
    return Page(found=shown, cursor=shown[-1].sequence if len(kept) > len(shown) else None)


def _rows(view: View, question: Question) -> Iterator[SpanRow]:
    after, before = (0, question.after or None) if question.newest else (question.after, None)
    size = min(PAGE_ROWS, question.limit + 1)
    while True:
        page = view.find_spans(
            question.wanted, after=after, before=before, limit=size, newest_first=question.newest
        )
        yield from page
        if len(page) < size:
            return
        last = page[-1].position.sequence
        after, before = (after, last) if question.newest else (last, None)
        size = PAGE_ROWS


def _ordered(rows: list[SpanRow], question: Question) -> list[SpanRow]:
    ordered = rows[::-1] if question.newest else rows
    if not question.after:
        return ordered
    return [
        row
        for row in ordered
        if (row.position.sequence < question.after) is question.newest
        and row.position.sequence != question.after
    ]
