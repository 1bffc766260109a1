"""Each sink of a ledger held against a backup of it: is it of this ledger, does it fork, how much more has it seen?

Rules: LED-08 (admissions after the backup are known from a sink), LED-06 (a sink is the anchor). A sink is complete
where it holds every span of the backup, with the same leaf: it then holds each admission since as well, because nothing
was sent before the sinks had its span (ADM-03). One that is missing, or foreign, or ends before the backup does, proves
nothing. One that tells another story at a place that both have is refused, and so is one with a damaged line.
Next: `issuer.restore.steps`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from audit import SinkUnavailable
from audit.sinks.epochs import Left
from audit.sinks.reading import read_jsonl
from issuer.restore.retold import Retold
from issuer.sink_building import watermark_of
from ledger.archive import LeafRow
from ledger.errors import LedgerUnavailable
from ledger.model import SinkRegistration
from ledger.port import Ledger, View
from ledger.tree import Frontier

PAGE_ROWS: Final = 1000
"""Spans of the backup that are read at a time."""

_UNUSABLE_WATERMARK: Final = frozenset(
    {"foreign_ledger", "foreign_place", "not_a_file", "hard_link", "writable_by_others", "unreadable"}
)
_UNUSABLE: Final = frozenset({"missing", "foreign_ledger", "no_header", "not_a_file"})


class SinkState(StrEnum):
    """What a sink is worth to a restore."""

    COMPLETE = "complete"
    BEHIND = "behind"
    MISSING = "missing"
    FOREIGN = "foreign"
    AHEAD = "ahead"
    """It has seen more than the backup, and what that was cannot be read from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSeen:
    """One sink as it was found.

    Attributes:
        left: where it stands, if that is not on the way of the backup: the new epoch says that it goes on from there.
        epoch: the latest epoch that it has seen; 0 where it has seen none.
    """

    registration: SinkRegistration
    required: bool
    state: SinkState
    left: Left | None
    epoch: int

    @property
    def is_usable(self) -> bool:
        """Whether the file can go on as this ledger's sink."""
        return self.state in {SinkState.COMPLETE, SinkState.BEHIND}


def look_at_sink(
    registration: SinkRegistration, *, required: bool, backup: Ledger, tree: Frontier, retold: Retold
) -> SinkSeen:
    """Read one sink from end to end; what it tells beyond the backup is taken into `retold`.

    One that another program keeps is no proof of anything: how far it got is known, and not what it holds.

    `tree` is the frontier over the backup's spans.

    Raises:
        LedgerUnavailable: `sink_diverged`, `sink_damaged`, or the file cannot be read.
    """
    if registration.kind != "jsonl":
        return _look_at_watermark(registration, required=required, backup=backup)
    name = registration.name
    state, left, last = SinkState.BEHIND, None, None
    expected = _rows(backup)
    following = next(expected, None)
    try:
        for span in read_jsonl(Path(registration.location), backup.ledger_id, name=name):
            last = span.tail
            if following is not None and _place(following) == (last.epoch, last.sequence):
                if following.leaf != last.leaf:
                    raise _diverged(name)
                following, left = next(expected, None), None
                continue
            tree = tree.with_leaf(last.leaf)
            left = Left(name=name, tail=last, root=tree.root())
            retold.hear(name, span)
    except SinkUnavailable as fault:
        if fault.reason not in _UNUSABLE:
            raise _unreadable(name, fault) from None
        state = SinkState.MISSING if fault.reason == "missing" else SinkState.FOREIGN
    except ValueError as fault:
        raise _damaged(name, str(fault)) from None
    if following is None and state is SinkState.BEHIND:
        state = SinkState.COMPLETE
    epoch = 0 if last is None else last.epoch
    return SinkSeen(registration=registration, required=required, state=state, left=left, epoch=epoch)


def _look_at_watermark(registration: SinkRegistration, *, required: bool, backup: Ledger) -> SinkSeen:
    name, state, tail = registration.name, SinkState.BEHIND, None
    try:
        tail = watermark_of(registration, backup.ledger_id)
    except SinkUnavailable as fault:
        if fault.reason not in _UNUSABLE_WATERMARK:
            raise _unreadable(name, fault) from None
        state = SinkState.FOREIGN
    if tail is not None:
        row = backup.read(lambda view: _leaf_at(view, tail.sequence))
        if row is not None and row.leaf != tail.leaf and row.epoch == tail.epoch:
            raise _diverged(name)
        if row is None or row.leaf != tail.leaf:
            state = SinkState.AHEAD
    epoch = 0 if tail is None else tail.epoch
    return SinkSeen(registration=registration, required=required, state=state, left=None, epoch=epoch)


def _leaf_at(view: View, sequence: int) -> LeafRow | None:
    found = view.leaves_after(sequence - 1, limit=1)
    return found[0] if found and found[0].sequence == sequence else None


def _rows(backup: Ledger) -> Iterator[LeafRow]:
    """Yield place and leaf of every span of the backup, in order, those that it has archived included (AUD-08)."""
    after = 0
    while rows := backup.read(lambda view, after=after: view.leaves_after(after, limit=PAGE_ROWS)):  # type: ignore[misc]
        yield from rows
        after = rows[-1].sequence


def _place(row: LeafRow) -> tuple[int, int]:
    return row.epoch, row.sequence


_AWAY: Final = (
    "If nothing better is to be had, move that file away and restore again: every open task is then frozen."
)


def _diverged(name: str) -> LedgerUnavailable:
    say = f"The audit sink {name} and this backup tell two different stories, so one of them is not this ledger's."
    return LedgerUnavailable("sink_diverged", f"{say} {_AWAY}")


def _damaged(name: str, what: str) -> LedgerUnavailable:
    return LedgerUnavailable(
        "sink_damaged", f"The audit sink {name} holds what was never recorded: {what}. {_AWAY}"
    )


def _unreadable(name: str, fault: SinkUnavailable) -> LedgerUnavailable:
    reason = "sink_damaged" if fault.reason == "damaged" else f"sink_{fault.reason}"
    return LedgerUnavailable(reason, f"The audit sink {name} cannot be read. {fault.message} {_AWAY}")
