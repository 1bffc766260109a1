"""Who was given authority, and from whom it was taken: the changes of authority that the trail tells, in order.

Rules: AUD-09 (changes of authority are a question of their own), POL-07, AUD-05 (each span is held against its row).
What an effect was permitted by its policies is no change of authority, and neither is an approval: the timeline of the
effect tells both. Reads the trail from its beginning, page by page.
Next: `issuer.commands.revisions` shows them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from audit import TimelineEntry, entry_of, readable_line
from issuer.clock import instant_text
from ledger.model import AttributeValue, InstantMs, SpanRow, TransitionName
from ledger.port import View

PAGE_ROWS: Final = 1000
"""Spans that are read at a time."""

_CHANGES: Final = frozenset(
    {
        *(TransitionName.LEDGER_CREATED, TransitionName.LEDGER_RESTORED, TransitionName.CLOCK_ACCEPTED),
        *(TransitionName.SINK_REGISTERED, TransitionName.REVISION_ACTIVATED),
        *(TransitionName.TASK_OPENED, TransitionName.TASK_GRANTED, TransitionName.TASK_LOWERED),
        *(TransitionName.TASK_CLOSED, TransitionName.TASK_FROZEN, TransitionName.TASK_THAWED),
        TransitionName.OVERRUN_ACCEPTED,
        *(TransitionName.STOP_FROZEN, TransitionName.STOP_THAWED, TransitionName.STOP_REVOKED),
        *(TransitionName.CREDENTIAL_ISSUED, TransitionName.CREDENTIAL_REVOKED),
        *(TransitionName.KEY_ROTATED, TransitionName.KEY_RETIRED, TransitionName.KEY_REVOKED),
    }
)
_SPAN: Final = "permit."
_SHOWN: Final = frozenset(
    {
        *("permit.caller", "permit.task.name", "permit.parent.id", "permit.subject", "permit.actors"),
        *("permit.ceiling", "permit.scope", "permit.granted", "permit.lowered", "permit.overrun"),
        *("permit.revision.activated", "permit.revision.before", "permit.files", "permit.reason"),
        *("permit.stop", "permit.credential", "permit.key.id", "permit.key.fingerprint", "permit.signer"),
        *("permit.sink.name", "permit.sink.kind", "permit.count", "permit.clock.before_ms"),
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
    def reason(self) -> str:
        """Why, in one word, or `-`."""
        return str(self._said("permit.reason", "-"))

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
    return tuple(Changed(entry=entry_of(row)) for row in _rows(view) if _is_change(row.name))


def _is_change(name: str) -> bool:
    return name.removeprefix(_SPAN) in _CHANGES


def _rows(view: View) -> Iterator[SpanRow]:
    after = 0
    while rows := view.spans_after(after, limit=PAGE_ROWS):
        yield from rows
        after = rows[-1].position.sequence


__all__ = ["Changed", "authority_changes"]
