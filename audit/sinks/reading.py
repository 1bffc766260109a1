"""Reading a JSONL sink from its first line to its last, over all its files, and believing no line that proves nothing.

Rules: LED-08 (admissions after a backup are known from a sink), AUD-04 (a leaf is the hash of its body), LED-06. Each
line must be one of ours, say where its body says that it stands, and follow the line before: the next sequence, or the
first of a new epoch that names exactly the line before as the place it left. The full files come first, in the order
that their headers make; each goes on exactly where the one before it ends, and one that is missing is damage. A torn
last line was never acknowledged and is not read. Whoever can write the files can still cut them, or go on with spans of
their own; what is made of it is therefore only ever a no (`issuer.restore`).
Next: `audit.sinks.epochs` for the joints.
"""

import fcntl
import json
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, NoReturn

from audit.errors import SinkUnavailable
from audit.sinks.epochs import EPOCH_BEGINS, left_at
from audit.sinks.file_ends import Start, inode_of, start_of
from audit.sinks.lines import LINE_BYTES_MAX, Tail, read_span_line, span_body
from audit.sinks.segments import chain_before
from audit.vocabulary import check
from ledger.errors import SpanNotRecorded
from ledger.model import EffectId, InstantMs, LedgerId
from ledger.states import EffectState
from ledger.transitions import AttributeValue, Transition, TransitionName

__all__ = ["ReadSpan", "read_jsonl"]

NS_PER_MS: Final = 1_000_000
_AUTOMATIC: Final = frozenset(
    f"permit.{name}"
    for name in (
        *("ledger.id", "epoch", "lane", "sequence", "transition", "story", "effect.id"),
        *("state.from", "state.to"),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSpan:
    """One span as the file tells it."""

    tail: Tail
    body: bytes
    at_ms: InstantMs
    document: dict[str, Any]

    @property
    def name(self) -> str:
        """What happened, as the span calls it."""
        return str(self.document["attributes"]["permit.transition"])

    def transition(self) -> Transition:
        """Return what happened, held to the closed vocabulary.

        Raises:
            ValueError: it is not in the vocabulary.
        """
        held: dict[str, Any] = self.document["attributes"]
        effect_id, origin, target = (
            held.get(f"permit.{name}") for name in ("effect.id", "state.from", "state.to")
        )
        attributes: dict[str, AttributeValue] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in held.items()
            if name not in _AUTOMATIC
        }
        made = Transition(
            name=TransitionName(self.name),
            story=held["permit.story"],
            effect_id=None if effect_id is None else EffectId(effect_id),
            state_from=None if origin is None else EffectState(origin),
            state_to=None if target is None else EffectState(target),
            attributes=attributes,
        )
        try:
            check(made)
        except SpanNotRecorded as fault:
            raise ValueError(fault.message) from None
        return made


def read_jsonl(path: Path, ledger_id: LedgerId, *, name: str) -> Iterator[ReadSpan]:
    """Yield every span of the sink `name` at `path`, in order; its newest file is held still meanwhile.

    Raises:
        SinkUnavailable: `missing`, `foreign_ledger`, `no_header`, `not_a_file`, `os_error`, `locked`, or `damaged`
            where a line does not prove itself, or a full file is missing.
    """
    with ExitStack() as stack:
        try:
            file = stack.enter_context(_opened(path, name))
            _hold_still(path, file.fileno(), name)
            start = start_of(file.fileno(), ledger_id, name)
            chain = chain_before(path, ledger_id, start.after, name)
            if chain.missing is not None:
                message = f"The full audit file that ends with span {chain.missing.sequence} is missing."
                raise SinkUnavailable(name, "damaged", message)
            before: Tail | None = None
            for each in chain.paths:
                with _opened(each, name) as full:
                    begin = start_of(full.fileno(), ledger_id, name)
                    for span in _spans(full, ledger_id, name, begin, before):
                        before = span.tail
                        yield span
            yield from _spans(file, ledger_id, name, start, before)
        except OSError as error:
            message = f"The audit file cannot be read: {error.strerror}."
            raise SinkUnavailable(name, "os_error", message) from None


def _opened(path: Path, name: str) -> BinaryIO:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise SinkUnavailable(name, "missing", "There is no audit file at its place.") from None
    file = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise SinkUnavailable(name, "not_a_file", "The place of the audit file is no regular file.")
    return file


def _hold_still(path: Path, descriptor: int, name: str) -> None:
    """Lock the newest file, so that nobody writes to it or begins the next one.

    Raises:
        SinkUnavailable: `locked`; somebody does, or just did.
    """
    message = "Another process is writing to the audit file; stop it."
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SinkUnavailable(name, "locked", message) from None
    if inode_of(os.lstat(path)) != inode_of(os.fstat(descriptor)):
        raise SinkUnavailable(name, "locked", message)


def _spans(
    file: BinaryIO, ledger_id: LedgerId, name: str, start: Start, before: Tail | None
) -> Iterator[ReadSpan]:
    """Yield the spans of one file, which goes on after the span `before`."""
    if start.after != before:
        _damaged(name, 1, "does not go on where the file before it ends")
    file.seek(start.offset)
    number = 1
    while line := file.readline(LINE_BYTES_MAX + 1):
        number += 1
        if not line.endswith(b"\n") and len(line) <= LINE_BYTES_MAX:
            return  # torn: never acknowledged
        try:
            span = _read(line, ledger_id)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            _damaged(name, number, "is not one of ours, or was changed")
        if not _follows(before, span, name):
            _damaged(name, number, "does not follow the line before it")
        before = span.tail
        yield span


def _damaged(name: str, number: int, what: str) -> NoReturn:
    raise SinkUnavailable(name, "damaged", f"Line {number} of the audit file {what}.")


def _read(line: bytes, ledger_id: LedgerId) -> ReadSpan:
    tail = read_span_line(line)
    body = span_body(line)
    document: dict[str, Any] = json.loads(body)
    held = document["attributes"]
    said = tuple(held[f"permit.{name}"] for name in ("ledger.id", "epoch", "lane", "sequence"))
    if said != (ledger_id, tail.epoch, tail.lane, tail.sequence):
        raise ValueError("the body stands elsewhere")
    at_ns = int(document["start"])
    if document["name"] != f"permit.{held['permit.transition']}" or at_ns < 0:
        raise ValueError("the body does not say what happened, or when")
    return ReadSpan(tail=tail, body=body, at_ms=InstantMs(at_ns // NS_PER_MS), document=document)


def _follows(before: Tail | None, span: ReadSpan, name: str) -> bool:
    tail = span.tail
    if before is None:
        return tail.sequence == 1
    begins_epoch = tail.epoch > before.epoch and span.name == EPOCH_BEGINS
    if tail.sequence == before.sequence + 1 and (tail.epoch == before.epoch or begins_epoch):
        return True
    return begins_epoch and left_at(span.body, name) == before
