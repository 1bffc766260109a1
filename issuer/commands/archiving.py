"""`audit archive`: the older part of the trail is sealed into a file, and what nothing alive needs leaves the ledger.

Rules: AUD-08, AUD-09 (it is a change of authority), SEC-02. In order:
  1. the newest signed checkpoint is taken that is over no more than was asked for and than every sink has, and whose
  root the ledger's leaves give   2. all spans up to it, from the archive before on, are written as the JSONL sink has
  them; the file and the checkpoint beside it are durable, and replace nothing   3. the file is read back and verified
  by the code behind `audit verify`, up to that very checkpoint   4. one transaction, in a ledger that a whole check
  finds clean before and after: the span that says what is gone, and the removal.
Whoever is stopped before 4 is committed has the spans in the file and in the ledger, and never in neither.
Next: `ledger.archive` says what leaves; ADR-0037 says why so much stays.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from audit.errors import TrailUnreadable
from audit.notes import Checkpoint
from audit.sinks.lines import header_line, span_line
from audit.trail_lines import TrailFile, ledger_of, verify_files
from audit.verification import KeptCheckpoint, TrailReport
from audit.verification import Verdict as Proven
from issuer.archives import Archive, frontier_at, last_archive
from issuer.backup import shipped
from issuer.checking import proofs_with
from issuer.checkpoints.errors import CheckpointRefused
from issuer.checkpoints.folder import checkpoint_folder
from issuer.checkpoints.notes import Notes
from issuer.commands.audit_asks import instant_of
from issuer.commands.audit_files import Progress, no_progress
from issuer.commands.edge import at_the_edge
from issuer.commands.sinks import told_to_sinks
from issuer.flow import spans
from issuer.flow.overdue import sweep
from issuer.flow.refusing import RefusedError
from issuer.flow.signed_act import acting
from issuer.house import House, Visit
from issuer.new_file import NewFile, new_file
from issuer.sealing.private_files import Flaw, opened_folder
from issuer.sink_moves import reached_by_all
from issuer.sink_places import stood
from issuer.wire import Answer
from ledger.archive import Leaving
from ledger.changes import SpansArchived, Step
from ledger.errors import LedgerCorrupt, Malformed
from ledger.model import InstantMs, SinkRegistration
from ledger.port import Verdict, View
from ledger.refusals import RefusalCode
from ledger.sqlite.check import demand_clean
from ledger.transitions import AttributeValue, Transition, TransitionName
from ledger.tree import Frontier

NOTE_SUFFIX: Final = ".checkpoint"
PAGE: Final = 500
"""Spans that are read, written and forgotten at a time."""

TRIED_MAX: Final = 16
"""Checkpoints whose root is looked for in the leaves; a restore may have left some behind."""

_READ_BYTES: Final = 1024 * 1024

_NO_CHECKPOINT: Final = (
    "No checkpoint is over spans that could be archived now: sign one with `issuer audit checkpoint`, let every sink "
    "catch up, or name a later end."
)
_NOTHING: Final = "Everything up to there is still needed, so nothing would leave the ledger."
_MOVED: Final = "Somebody else archived the trail meanwhile; try again."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What is to be sealed: the spans behind `after` up to the checkpoint's size, and what leaves by it.

    `begin` is the frontier over what was archived before.
    """

    after: int
    begin: Frontier
    checkpoint: Checkpoint
    note: bytes
    leaving: Leaving


def audit_archive(
    visit: Visit,
    out: Path,
    *,
    before: str | None = None,
    upto: int | None = None,
    progress: Progress = no_progress,
) -> Answer:
    """Seal the trail up to a signed checkpoint into the new file `out`, and let go of what nothing alive needs.

    The answer has `file`, `checkpoint` (the file beside it), `first` and `last` span in it, `left` (spans that left the
    ledger), `sha256`, and the `tree` of the checkpoint.
    """

    def run() -> Answer:
        sweep(visit)
        plan = _planned(visit, before, upto)  # 1
        beside = out.with_name(out.name + NOTE_SUFFIX)
        digest = _written(visit, plan, out, beside, progress)  # 2
        try:
            _demand_sealed(visit.house, plan, out, beside, digest)  # 3
            sequence = _committed(visit, plan, digest)  # 4
        except (RefusedError, LedgerCorrupt):
            # Nothing was written to the ledger, so these files hold nothing that it has not.
            out.unlink(missing_ok=True)
            beside.unlink(missing_ok=True)
            raise
        more: dict[str, object] = {
            "file": str(out),
            "checkpoint": str(beside),
            "first": plan.after + 1,
            "last": plan.checkpoint.size,
            "left": plan.leaving.count,
            "sha256": digest,
            "tree": {"size": plan.checkpoint.size, "root": plan.checkpoint.root.hex()},
        }
        return told_to_sinks(visit.house, "archived", sequence, more)

    return at_the_edge(visit, run)


def _planned(visit: Visit, before: str | None, upto: int | None) -> _Plan:
    """Do 1.

    Raises:
        RefusedError: `nothing_to_change`: no such checkpoint, or nothing that could leave; `audit_unavailable`: a sink
            cannot say how far it is.
        Malformed: two ends are named, or one that is no time.
    """
    house = visit.house
    if before is not None and upto is not None:
        raise Malformed("unexpected", "upto", "an archive ends before a time or at a span, not both")
    instant = instant_of(visit, before, "before")

    def look(view: View) -> tuple[int, int, tuple[SinkRegistration, ...]]:
        end = view.head().sequence if upto is None else upto
        end = end if instant is None else view.sequence_at(instant) - 1
        archive = last_archive(view)
        return end, 0 if archive is None else archive.upto, tuple(view.sinks())

    end, after, placed = house.ledger.read(look)
    sinks, _stand = stood(house.profile, house.ledger, house.sink_means)
    shipped(
        sinks, house.ledger, house.ledger.read(lambda view: view.head()).sequence
    )  # as far as each one goes
    end = min(end, reached_by_all(placed, house.ledger))
    found = _checkpoint(house, after, end)
    if found is None:
        raise RefusedError(RefusalCode.NOTHING_TO_CHANGE, field="checkpoint", say=_NO_CHECKPOINT)
    checkpoint, note = found

    def what(view: View) -> _Plan:
        return _Plan(
            after=after,
            begin=frontier_at(view, after),
            checkpoint=checkpoint,
            note=note,
            leaving=view.leaving(checkpoint.size),
        )

    plan = house.ledger.read(what)
    if not plan.leaving.count:
        raise RefusedError(RefusalCode.NOTHING_TO_CHANGE, field="upto", say=_NOTHING)
    return plan


def _checkpoint(house: House, after: int, end: int) -> tuple[Checkpoint, bytes] | None:
    """Return the newest checkpoint over `after` to `end` spans that the leaves prove, and its note."""
    try:
        with opened_folder(checkpoint_folder(house.ledger)) as folder:
            notes = Notes(folder, house.ring, house.ledger.ledger_id)
            fitting = [kept for kept in notes.kept() if after < kept.size <= end]
            fitting.sort(key=lambda kept: (-kept.size, -kept.epoch))
            for kept in fitting[:TRIED_MAX]:
                try:
                    _key_id, checkpoint = notes.read(kept)
                    note = notes.bytes_of(kept)
                except (CheckpointRefused, Flaw):
                    continue
                size = checkpoint.size
                tree = house.ledger.read(lambda view, size=size: frontier_at(view, size))  # type: ignore[misc]
                if tree.root() == checkpoint.root:
                    return checkpoint, note
    except Flaw:
        return None
    return None


def _written(visit: Visit, plan: _Plan, out: Path, beside: Path, progress: Progress) -> str:
    """Do 2; return the digest of the file.

    Raises:
        Malformed: `exists` or `unwritable`.
        LedgerCorrupt: a span is not what was recorded.
    """
    with new_file(beside) as note, new_file(out) as made:
        note.write(plan.note)
        _write_spans(visit.house, plan, made, progress)
        note.publish(lambda: True)
        made.publish(lambda: True)
        return made.digest


def _write_spans(house: House, plan: _Plan, made: NewFile, progress: Progress) -> None:
    made.write(header_line(house.ledger.ledger_id))
    size, after = plan.checkpoint.size, plan.after
    while after < size:
        limit = min(PAGE, size - after)
        rows = house.ledger.read(lambda view, after=after, limit=limit: view.spans_after(after, limit=limit))  # type: ignore[misc]
        try:
            made.write(b"".join(map(span_line, rows)))
        except ValueError:
            raise LedgerCorrupt("span_differs", "A span is not what was recorded.") from None
        if not rows or rows[-1].position.sequence != after + len(rows):
            raise LedgerCorrupt("gap", f"The trail has no span behind {after}.")
        after = rows[-1].position.sequence
        progress(after - plan.after, size - plan.after)


def _demand_sealed(house: House, plan: _Plan, out: Path, beside: Path, digest: str) -> None:
    """Do 3.

    Raises:
        LedgerCorrupt: `archive_differs`; what stands there is not the trail up to the checkpoint.
    """
    report, seen = _read_back(house, plan, out)
    holds = (
        report is not None
        and report.verdict is Proven.VERIFIED
        and not report.is_torn
        and report.size == report.anchored == plan.checkpoint.size
    )
    if not holds or seen != digest or beside.read_bytes() != plan.note:
        say = f"What was written to {out.name} is not the trail up to its checkpoint, so nothing left the ledger."
        raise LedgerCorrupt("archive_differs", say)


def _read_back(house: House, plan: _Plan, out: Path) -> tuple[TrailReport | None, str]:
    ledger_id = house.ledger.ledger_id
    anchor = KeptCheckpoint(name="archive", checkpoint=plan.checkpoint)
    try:
        with out.open("rb") as file:
            if ledger_of(file, out.name) != ledger_id:
                return None, ""
            leaves = _leaves(house, plan.after)
            report = verify_files([TrailFile(name=out.name, file=file)], ledger_id, [anchor], before=leaves)
            file.seek(0)
            hashed = hashlib.sha256()
            while piece := file.read(_READ_BYTES):
                hashed.update(piece)
    except (OSError, TrailUnreadable):
        return None, ""
    return report, hashed.hexdigest()


def _leaves(house: House, size: int) -> Iterator[bytes]:
    after = 0
    while after < size:
        limit = min(PAGE, size - after)
        page = house.ledger.read(lambda view, after=after, limit=limit: view.leaves_after(after, limit=limit))  # type: ignore[misc]
        if not page:
            return
        yield from (row.leaf for row in page)
        after = page[-1].sequence


def _committed(visit: Visit, plan: _Plan, digest: str) -> int:
    """Do 4; return the sequence of the act's span.

    Raises:
        RefusedError: somebody else archived meanwhile.
        LedgerCorrupt: a check finds something, so nothing may leave.
    """
    proofs = proofs_with(visit.house.ring)

    def decide(view: View, _now: InstantMs) -> Verdict[None]:
        archive: Archive | None = last_archive(view)
        if (0 if archive is None else archive.upto) != plan.after:
            raise RefusedError(RefusalCode.NOTHING_TO_CHANGE, field="upto", say=_MOVED)
        size = plan.checkpoint.size
        leaving = view.leaving(size)  # more may be over since the plan was made
        sealed = view.span_at(size)
        if sealed is None or not leaving.count:
            raise RefusedError(RefusalCode.NOTHING_TO_CHANGE, field="upto", say=_NOTHING)
        said: dict[str, AttributeValue] = {
            **spans.common(visit),
            "permit.base.epoch": sealed.position.epoch,
            "permit.base.sequence": size,
            "permit.tree.root": plan.checkpoint.root.hex(),
            "permit.file.digest": digest,
            "permit.count": leaving.count,
            "permit.gone.digest": leaving.digest,
        }
        transition = Transition(
            name=TransitionName.AUDIT_ARCHIVED, story=visit.house.ledger.ledger_id, attributes=said
        )
        return Verdict(
            value=None,
            steps=(Step(transition=transition, changes=(SpansArchived(upto=size, leaving=leaving),)),),
        )

    committed = visit.house.ledger.transact(
        acting(visit, decide), check=lambda raw: demand_clean(raw, proofs)
    )
    return committed.sequence


__all__ = ["NOTE_SUFFIX", "audit_archive"]
