"""The story of one effect, task or ledger as a list that a person can read (AUD-05).

Pure: it reads what a view of the ledger holds and asks nothing else. Each body is held against its row, so
that a changed column or a changed body is an error here and not a wrong story.
It does not prove that no span is missing; that takes the tree and a checkpoint (AUD-04).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Final

from ledger.canonical import parse_strict
from ledger.errors import LedgerCorrupt, Malformed
from ledger.model import InstantMs
from ledger.port import View
from ledger.transitions import AttributeValue, SpanRow
from ledger.tree import leaf_hash

__all__ = ["TimelineEntry", "entry_of", "readable_line", "timeline"]

NS_PER_MS: Final = 1_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SAID_ELSEWHERE: Final = frozenset(
    {
        *("permit.ledger.id", "permit.epoch", "permit.lane", "permit.sequence", "permit.transition"),
        *("permit.story", "permit.effect.id", "permit.state.from", "permit.state.to"),
    },
)
"""Attributes that a readable line shows as its own parts, or that are equal in the whole story."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEntry:
    """One span of a story. `name` is the transition's; states are None where none moves."""

    epoch: int
    sequence: int
    at_ms: InstantMs
    name: str
    state_from: str | None
    state_to: str | None
    attributes: Mapping[str, AttributeValue]


def timeline(view: View, story: str) -> tuple[TimelineEntry, ...]:
    """Return the spans of a story in order; empty where the ledger knows none.

    Raises:
        LedgerCorrupt: `span_unreadable` or `span_differs`: a row is not what was recorded.
    """
    return tuple(_entry(row, story) for row in view.story(story))


def entry_of(row: SpanRow) -> TimelineEntry:
    """Return one span, whichever story it is in.

    Raises:
        LedgerCorrupt: as `timeline`.
    """
    return _entry(row, row.story)


def readable_line(entry: TimelineEntry) -> str:
    """Return one line for a person: sequence, instant in UTC, what happened, the move, and the rest."""
    at = _EPOCH + timedelta(milliseconds=entry.at_ms)
    parts = [f"{entry.sequence:>6}", f"{at:%Y-%m-%dT%H:%M:%S}.{entry.at_ms % 1000:03d}Z", entry.name]
    if entry.state_to is not None:
        parts.append(f"{entry.state_from or '-'} -> {entry.state_to}")
    names = sorted(entry.attributes.keys() - _SAID_ELSEWHERE)
    parts.extend(f"{name.removeprefix('permit.')}={_shown(entry.attributes[name])}" for name in names)
    return "  ".join(parts)


def _shown(value: AttributeValue) -> str:
    """Return a value in one line; what a terminal would act on, or hide, is escaped."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ",".join(_shown(item) for item in value) or "-"
    text = str(value)
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


def _entry(row: SpanRow, story: str) -> TimelineEntry:
    """Read one row, and hold its columns against its body."""
    if leaf_hash(row.body) != row.leaf:
        raise LedgerCorrupt("span_differs", f"The span at {row.position.sequence} is not what was hashed.")
    try:
        document = parse_strict(row.body)
    except Malformed:
        document = None
    if not isinstance(document, dict) or not isinstance(document.get("attributes"), dict):
        raise LedgerCorrupt("span_unreadable", f"The span at {row.position.sequence} cannot be read.")
    held: dict[str, AttributeValue] = {}
    for name, value in document["attributes"].items():
        # JSON has lists only; a value that was a tuple comes back as one.
        held[name] = tuple(value) if isinstance(value, list) else value
    said = (
        document.get("span"),
        document.get("trace"),
        document.get("name"),
        document.get("start"),
        *(held.get(f"permit.{name}") for name in ("ledger.id", "epoch", "lane", "sequence", "story")),
    )
    place = row.position
    stored = (
        row.span_id,
        row.trace_id,
        f"permit.{held.get('permit.transition')}",
        str(row.at_ms * NS_PER_MS),
        *(place.ledger_id, place.epoch, place.lane, place.sequence, row.story),
    )
    if (
        said != stored
        or row.name not in (document.get("name"), held.get("permit.transition"))
        or row.story != story
    ):
        raise LedgerCorrupt("span_differs", f"The columns of the span at {place.sequence} are not its body.")
    return TimelineEntry(
        epoch=place.epoch,
        sequence=place.sequence,
        at_ms=row.at_ms,
        name=str(held.get("permit.transition")),
        state_from=_text_or_none(held.get("permit.state.from")),
        state_to=_text_or_none(held.get("permit.state.to")),
        attributes=MappingProxyType(held),
    )


def _text_or_none(value: AttributeValue | None) -> str | None:
    return value if isinstance(value, str) else None
