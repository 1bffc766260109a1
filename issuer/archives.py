"""What a ledger's trail says of its archives, and what an archive file still tells of a story that left.

Rules: AUD-08, AUD-05 (no wrong silence: whoever asks is told where the rest is). An archive's file is believed for
nothing but what the ledger's leaves prove: each line of it that is used hashes to the leaf that stayed.
Next: `issuer.commands.archiving` makes them; `audit.trail_lines` verifies a file as a whole.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from audit.comparison import span_says
from audit.errors import TrailUnreadable
from audit.sinks.lines import LINE_BYTES_MAX, read_span_line, span_body
from audit.trail_lines import ledger_of
from issuer.clock import instant_text
from ledger.errors import Malformed
from ledger.model import InstantMs, LedgerId
from ledger.port import View
from ledger.transitions import Position, SpanRow, TransitionName
from ledger.tree import Frontier, GrowingTree

ARCHIVES_MAX: Final = 1000
"""Archives that are told of; a ledger of the default bounds makes a few a year."""

PAGE_LEAVES: Final = 4096
_NS_PER_MS: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """One archive, as its span tells.

    Attributes:
        upto, epoch: its last span, and that span's epoch.
        root: of the tree over all spans up to there, 64 hex digits.
        digest: SHA-256 of the file, 64 hex digits.
        left: spans that left the ledger by it.
        sequence, at_ms: where and when it is on record.
    """

    upto: int
    epoch: int
    root: str
    digest: str
    left: int
    sequence: int
    at_ms: InstantMs

    def shown(self) -> dict[str, object]:
        """Return it as an answer has it."""
        return {
            "upto": self.upto,
            "root": self.root,
            "sha256": self.digest,
            "left": self.left,
            "at": instant_text(self.at_ms),
        }

    def line(self) -> str:
        """Return it as a line for people."""
        return f"  archived: up to span {self.upto} in the file with SHA-256 {self.digest}"


def archives(view: View) -> Sequence[Archive]:
    """Return the archives of a ledger, oldest first."""
    rows = view.changes(0, limit=ARCHIVES_MAX, name=TransitionName.AUDIT_ARCHIVED)
    return [_archive(row) for row in rows]


def last_archive(view: View) -> Archive | None:
    """Return the newest archive of a ledger; None where it has none."""
    after = view.head().sequence + 1
    rows = view.changes_before(after, limit=1, name=TransitionName.AUDIT_ARCHIVED)
    return _archive(rows[0]) if rows else None


def _archive(row: SpanRow) -> Archive:
    said: dict[str, Any] = {**span_says(row.body)}
    return Archive(
        upto=int(said["permit.base.sequence"]),
        epoch=int(said["permit.base.epoch"]),
        root=str(said["permit.tree.root"]),
        digest=str(said["permit.file.digest"]),
        left=int(said["permit.count"]),
        sequence=row.position.sequence,
        at_ms=row.at_ms,
    )


def frontier_at(view: View, size: int) -> Frontier:
    """Return the frontier over the first `size` spans, from their leaves.

    Raises:
        Malformed: the ledger has not all of them.
    """
    tree = GrowingTree()
    while tree.size < size:
        page = view.leaves_after(tree.size, limit=min(PAGE_LEAVES, size - tree.size))
        if not page or page[-1].sequence != tree.size + len(page):
            raise Malformed("gap", "ledger", f"the trail has no leaf behind {tree.size}")
        for row in page:
            tree.add(row.leaf)
    return tree.frontier()


def archived_story(view: View, ledger_id: LedgerId, story: str, files: Sequence[Path]) -> list[SpanRow]:
    """Return what archive files tell of a story and the ledger has only leaves of, in order.

    Raises:
        Malformed: a file cannot be read, is none of this ledger's, or tells what the ledger's leaves do not prove.
    """
    found: dict[int, SpanRow] = {}
    for path in files:
        try:
            with path.open("rb") as file:
                if ledger_of(file, path.name) != ledger_id:
                    raise Malformed("foreign_ledger", "archive", f"{path.name} is of another ledger")
                wanted = b'"permit.story":%s' % json.dumps(story).encode("ascii")
                while line := file.readline(LINE_BYTES_MAX + 1):
                    if wanted in line:
                        row = _span_row(line, ledger_id)
                        found[row.position.sequence] = row
        except (OSError, TrailUnreadable):
            raise Malformed("unreadable", "archive", f"{path.name} cannot be read as an archive") from None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise Malformed("damaged", "archive", f"{path.name} has a line that is not ours") from None
    rows = [found[sequence] for sequence in sorted(found) if found[sequence].story == story]
    for row in rows:
        leaves = view.leaves_after(row.position.sequence - 1, limit=1)
        if not leaves or (leaves[0].sequence, leaves[0].leaf) != (row.position.sequence, row.leaf):
            raise Malformed("diverged", "archive", "An archive tells what this ledger never recorded.")
    return [row for row in rows if view.span_at(row.position.sequence) is None]


def _span_row(line: bytes, ledger_id: LedgerId) -> SpanRow:
    tail, body = read_span_line(line), span_body(line)
    document: dict[str, Any] = json.loads(body)
    said = document["attributes"]
    return SpanRow(
        position=Position(ledger_id=ledger_id, epoch=tail.epoch, lane=tail.lane, sequence=tail.sequence),
        span_id=str(document["span"]),
        trace_id=str(document["trace"]),
        name=str(said["permit.transition"]),
        story=str(said["permit.story"]),
        at_ms=InstantMs(int(document["start"]) // _NS_PER_MS),
        body=body,
        leaf=tail.leaf,
    )


__all__ = ["Archive", "archived_story", "archives", "frontier_at", "last_archive"]
