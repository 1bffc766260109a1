"""`audit prove EFFECT`: the story of one effect, in a file that proves itself to whoever has the key (AUD-04).

Rules: EFF-08 (another's effect only for whoever may observe it, and else it reads like a missing one), AUD-06 (an
export is on record before anything of it is written). In order:
  1. the story is read   2. the smallest checkpoint over all of it is taken that the ledger's leaves give the root of,
  else the newest over some of it   3. the proof is written, under no name yet   4. the span is committed   5. the
  file gets its name.
Nothing is signed here: `audit checkpoint` does that. Next: `audit.proofs`, `issuer.checkpoints.notes`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from audit.merkle import inclusion_ranges, subtree_roots
from audit.notes import Checkpoint
from audit.proofs import SPANS_MAX, PermitProof, proof_bytes
from audit.sinks.lines import span_line
from issuer import answering
from issuer.archives import archived_story
from issuer.checkpoints.errors import CheckpointRefused
from issuer.checkpoints.folder import checkpoint_folder
from issuer.checkpoints.notes import Kept, Notes
from issuer.commands.edge import at_the_edge
from issuer.commands.roles import OBSERVE, act_attributes, decided, find_to
from issuer.flow.reference import find_tombstone
from issuer.flow.refusing import RefusedError
from issuer.house import Visit
from issuer.looks import LATER_SAY, exported, on_record
from issuer.new_file import new_file
from issuer.sealing.private_files import Flaw, opened_folder
from issuer.wire import Answer
from ledger.errors import Malformed
from ledger.model import Effect, EffectId, Tombstone
from ledger.port import View
from ledger.refusals import RefusalCode
from ledger.sqlite.span_stream import open_leaf_stream
from ledger.transitions import AttributeValue, SpanRow, Transition, TransitionName

FORMAT: Final = "proof"

TRIED_MAX: Final = 8
"""Checkpoints whose root is looked for in the leaves; a restore may have left some behind."""

_NOT_YET: Final = (
    "No checkpoint is over this effect's spans yet, so nothing can be proven to anybody; "
    "`issuer audit checkpoint` signs one."
)
_ARCHIVED: Final = (
    "The begin of the story was archived; name the file with --archive to have it in the proof."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Anchored:
    """A checkpoint that the leaves give the root of, and the spans under it with their paths."""

    note: bytes
    checkpoint: Checkpoint
    rows: Sequence[SpanRow]
    paths: tuple[tuple[bytes, ...], ...]


def audit_prove(visit: Visit, reference: str, out: Path, *, archives: Sequence[Path] = ()) -> Answer:
    """Write a proof of an effect's story to the new file `out`; its spans, their paths, and a signed checkpoint.

    What was archived of it is read from the files `archives` (AUD-08).

    The answer has `file`, `spans`, `newer` (spans of the story that the checkpoint is not over), `size` and `root` of
    the checkpoint; its code is `not_anchored` where there is none yet.
    """
    found: list[Effect] = []

    def run() -> Answer:
        about = _found(visit, reference)
        if isinstance(about, Effect):
            found.append(about)
        rows = visit.house.ledger.read(lambda view: _story(view, about.effect_id, archives))  # 1
        if len(rows) > SPANS_MAX:
            raise Malformed("too_long", "effect", f"A proof holds the story of at most {SPANS_MAX} spans.")
        anchored = _anchored(visit, rows)  # 2
        if anchored is None:
            return _answer(visit, about, "not_anchored", _NOT_YET if rows else _ARCHIVED, {})
        proof = proof_bytes(
            PermitProof(
                ledger_id=visit.house.ledger.ledger_id,
                effect=about.effect_id,
                note=anchored.note,
                lines=tuple(span_line(row)[:-1] for row in anchored.rows),
                paths=anchored.paths,
            )
        )
        with new_file(out) as made:
            made.write(proof)  # 3
            transition = _transition(visit, about, anchored, made.digest)
            recorded = made.publish(lambda: on_record(visit, transition))  # 4 and 5
        more = _told(out, rows, anchored)
        say = _say(rows, anchored)
        if not recorded:
            say, more["recorded"] = f"{say} {LATER_SAY}", False
        return _answer(visit, about, "proved", say, more)

    return at_the_edge(visit, run, found)


def _story(view: View, effect_id: EffectId, archives: Sequence[Path]) -> Sequence[SpanRow]:
    rows = list(view.story(effect_id))
    if archives:
        rows += archived_story(view, view.head().ledger_id, effect_id, archives)
    return sorted(rows, key=lambda row: row.position.sequence)


def _found(visit: Visit, reference: str) -> Effect | Tombstone:
    effect = find_to(visit, reference, OBSERVE)
    if effect is not None:
        return effect
    tombstone = find_tombstone(visit, reference)
    if tombstone is None:
        raise RefusedError(RefusalCode.NOT_FOUND)
    return tombstone


def _anchored(visit: Visit, rows: Sequence[SpanRow]) -> _Anchored | None:
    """Do 2; None where no checkpoint of this trail is over any of the spans."""
    house = visit.house
    try:
        with opened_folder(checkpoint_folder(house.ledger)) as folder:
            notes = Notes(folder, house.ring, house.ledger.ledger_id)
            for kept in _in_order(notes.kept(), rows):
                made = _anchored_by(visit, notes, kept, rows)
                if made is not None:
                    return made
    except Flaw:
        return None
    return None


def _in_order(kept: Sequence[Kept], rows: Sequence[SpanRow]) -> list[Kept]:
    """Return the checkpoints to try: those over the whole story, smallest first, then others, largest first."""
    if not rows:
        return []
    first, last = rows[0].position.sequence, rows[-1].position.sequence
    # Of one size the latest epoch counts: what an earlier one signed there may have been left behind.
    whole = sorted((one for one in kept if one.size >= last), key=lambda one: (one.size, -one.epoch))
    part = sorted((one for one in kept if first <= one.size < last), key=lambda one: (-one.size, -one.epoch))
    return [*whole[:TRIED_MAX], *part[:TRIED_MAX]]


def _anchored_by(visit: Visit, notes: Notes, kept: Kept, rows: Sequence[SpanRow]) -> _Anchored | None:
    try:
        _key_id, checkpoint = notes.read(kept)
        note = notes.bytes_of(kept)
    except (CheckpointRefused, Flaw):
        return None
    size = checkpoint.size
    under = [row for row in rows if row.position.sequence <= size]
    paths = [inclusion_ranges(row.position.sequence - 1, size) for row in under]
    with open_leaf_stream(visit.house.places.ledger, size) as leaves:
        try:
            roots = subtree_roots(leaves, size, [(0, size), *(one for path in paths for one in path)])
        except ValueError:
            return None
    if roots[0, size] != checkpoint.root:
        return None
    return _Anchored(
        note=note,
        checkpoint=checkpoint,
        rows=under,
        paths=tuple(tuple(roots[one] for one in path) for path in paths),
    )


def _transition(visit: Visit, about: Effect | Tombstone, anchored: _Anchored, digest: str) -> Transition:
    """Return the span of the export; it belongs to the story of the effect."""
    said: dict[str, AttributeValue] = {
        "file_digest": digest,
        "tree_size": anchored.checkpoint.size,
        "tree_root": anchored.checkpoint.root.hex(),
    }
    if isinstance(about, Effect) and about.caller != visit.caller.name:
        said.update(act_attributes(decided(visit, OBSERVE, about)))
    made = exported(visit, form=FORMAT, count=len(anchored.rows), **said)
    return replace(made, story=about.effect_id, effect_id=about.effect_id)


def _say(rows: Sequence[SpanRow], anchored: _Anchored) -> str:
    if rows[0].name != TransitionName.EFFECT_PREPARED:
        return f"{_said_of(rows, anchored)} {_ARCHIVED}"
    return _said_of(rows, anchored)


def _said_of(rows: Sequence[SpanRow], anchored: _Anchored) -> str:
    newer = len(rows) - len(anchored.rows)
    said = "The proof is written. Whoever has it needs the key of `issuer audit key` from elsewhere."
    return said if not newer else f"{said} {newer} newer spans of this effect are under no checkpoint yet."


def _told(out: Path, rows: Sequence[SpanRow], anchored: _Anchored) -> dict[str, object]:
    return {
        "file": str(out),
        "spans": len(anchored.rows),
        "newer": len(rows) - len(anchored.rows),
        "size": anchored.checkpoint.size,
        "root": anchored.checkpoint.root.hex(),
    }


def _answer(visit: Visit, about: Effect | Tombstone, code: str, say: str, more: dict[str, object]) -> Answer:
    if isinstance(about, Tombstone):
        return replace(answering.collected(visit.house, code, about, more), say=say)
    return answering.about(visit.house, code, about, say=say, more=more)
