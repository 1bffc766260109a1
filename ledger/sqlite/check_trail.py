"""The part of a check that recomputes the trail: head, spans, tree, and the states that the spans tell.

Rules: LED-06 (head MAC, tree root), AUD-04 (RFC 9162 section 2.1.1: leaf = SHA-256(0x00 || body)), AUD-05 (epoch, lane,
sequence), LED-05 (each move is in the table of `ledger.states`). An authentic head over the recomputed root proves
every body and their order; the columns beside a body are then held against it.
Next: `ledger.sqlite.check_tasks`, `ledger.sqlite.check_effects` and `ledger.sqlite.check_authority` hold the rows
against what the trail tells.
"""

from collections.abc import Callable
from typing import Final

from ledger.archive import LeafRow
from ledger.model import TaskState
from ledger.port import SpanColumns
from ledger.sqlite import rows
from ledger.sqlite.check_archived import ArchivedLeaves, archive_told
from ledger.sqlite.check_authority import AUTHORITY_TOLD
from ledger.sqlite.check_ground import (
    NOTHING_SAID,
    UNREADABLE,
    Accepted,
    Ceilings,
    Ground,
    InvocationStory,
    Move,
    Said,
    TaskStory,
    Trail,
)
from ledger.sqlite.span_rows import span_batches
from ledger.states import LEGAL_MOVES, PENDING, EffectState
from ledger.transitions import TransitionName
from ledger.tree import Frontier, GrowingTree, decoded_frontier, leaf_hash

# Plain text from here on: an enum's own hash and equality cost more than the rest of a span's check.
_STATES: Final = frozenset(state.value for state in EffectState)
_LEGAL: Final = frozenset(
    (origin.value, to.value) for origin, targets in LEGAL_MOVES.items() for to in targets
)
_PREPARED: Final = EffectState.PREPARED.value
_ADMITTED: Final = EffectState.ADMITTED.value
_UNKNOWN: Final = EffectState.UNKNOWN.value
_PENDING: Final = frozenset(state.value for state in PENDING)
_ADMITS: Final = TransitionName.EFFECT_ADMITTED.value
_REPLAYS: Final = TransitionName.EFFECT_REPLAYED.value
_RESTORES: Final = TransitionName.LEDGER_RESTORED.value
_ACCEPTS_CLOCK: Final = TransitionName.CLOCK_ACCEPTED.value


def check_trail(ground: Ground) -> int:
    """Recompute the trail; return how many spans it has."""
    tree = GrowingTree()
    last = _Last()

    def stray(sequence: int) -> None:
        says = "The row names a policy of a span that is not there."
        ground.find("span_differs", ("span_policies", sequence), says)

    gone = ArchivedLeaves(ground)
    for spans in span_batches(ground.raw, stray):
        # The tree is over what the bodies hash to: a changed leaf column is a finding of its own.
        for row in spans:
            for archived in gone.before(row.sequence):
                _check_archived_leaf(ground, archived, last)
                tree.add(archived.leaf)
            leaf = leaf_hash(row.body)
            _check_row(ground, row, leaf, last)
            tree.add(leaf)
        for row in spans:
            if not _holds(ground, row):
                says = "The span's columns do not say what its body says."
                ground.find("span_differs", ("spans", row.sequence), says)
        for row in spans:
            _follow(ground, row)
    gone.end()
    _check_head(ground, tree.frontier(), last)
    return tree.size


class _Last:
    """What the span before said: each comes after it."""

    __slots__ = ("at_ms", "epoch", "sequence")

    def __init__(self) -> None:
        self.sequence = 0
        self.epoch = 1
        self.at_ms = 0


def _check_archived_leaf(ground: Ground, row: LeafRow, last: _Last) -> None:
    if row.sequence != last.sequence + 1:
        says = "The span before this archived one is missing."
        ground.find("span_gap", ("archived_leaves", row.sequence), says)
    if row.epoch != last.epoch:
        # What begins an epoch is never archived, so this is the epoch of the spans around it.
        says = "The archived span stands in an epoch that it cannot be of."
        ground.find("span_place", ("archived_leaves", row.sequence), says)
    last.sequence = row.sequence


def _check_row(ground: Ground, row: SpanColumns, hashed: bytes, last: _Last) -> None:
    epoch, lane, sequence, _span_id, _trace_id, name, _story, at_ms, _body, leaf = row[:10]
    if sequence != last.sequence + 1:
        ground.find("span_gap", ("spans", sequence), "The span before this one is missing.")
    if lane != 0 or epoch < last.epoch:
        says = "The span stands in a lane or epoch that cannot follow the one before."
        ground.find("span_place", ("spans", sequence), says)
    if (epoch > last.epoch) != (name == _RESTORES):
        says = "An epoch begins with a restore and with nothing else, and a restore begins one."
        ground.find("span_place", ("spans", sequence), says)
    if name == _ACCEPTS_CLOCK:
        last.at_ms = at_ms  # an operator said so (PER-03)
    elif at_ms < last.at_ms:
        ground.find("span_time", ("spans", sequence), "The span is earlier than the one before it.")
    last.sequence, last.epoch, last.at_ms = sequence, max(epoch, last.epoch), max(at_ms, last.at_ms)
    if hashed != leaf:
        ground.find("span_leaf", ("spans", sequence), "The span's leaf is not the hash of its body.")


def _holds(ground: Ground, row: SpanColumns) -> bool:
    holds = ground.proofs.span_holds
    if holds is None:
        return True
    try:
        return holds(ground.ledger_id, row)
    except UNREADABLE:
        return False


def _follow(ground: Ground, row: SpanColumns) -> None:
    """Keep what the span tells of an effect, a task or a sink; an admission is named as one and as nothing else."""
    _epoch, _lane, sequence, span_id, _trace, name, story, at_ms, body, _leaf, effect_id, state_to = row[:12]
    tell = _TOLD.get(name)
    if tell is not None:
        tell(ground.trail, row, ground.said(body) if name in _READ else NOTHING_SAID)
    if (name == _ADMITS) != (state_to == _ADMITTED) or (effect_id is not None and story != effect_id):
        says = "The span's name, story and new state do not belong together."
        ground.find("span_names", ("spans", sequence), says)
    if effect_id is not None and state_to is not None:
        _follow_effect(ground, Move(state_to, sequence, span_id, at_ms, name == _REPLAYS), effect_id)


def _task_opened(trail: Trail, row: SpanColumns, said: Said) -> None:
    trail.tasks[row.story] = TaskStory(
        state=TaskState.OPEN.value, sequence=row.sequence, opened=row.sequence, said=said
    )
    trail.ceilings[row.sequence] = Ceilings(row.story, row.name)


def _task_moved(trail: Trail, row: SpanColumns, _said: Said) -> None:
    state = _TASK_STATES[row.name]
    story = trail.tasks.setdefault(row.story, TaskStory(state=state, sequence=row.sequence))
    story.state, story.sequence = state, row.sequence


def _ceiling_changed(trail: Trail, row: SpanColumns, _said: Said) -> None:
    trail.ceilings[row.sequence] = Ceilings(row.story, row.name)
    if row.story in trail.tasks:
        trail.tasks[row.story].sequence = row.sequence


def _overrun_accepted(trail: Trail, row: SpanColumns, said: Said) -> None:
    trail.accepted[row.sequence] = Accepted(row.story, said)


def _acknowledged(trail: Trail, row: SpanColumns, said: Said) -> None:
    if "permit.charged" in said:
        trail.charges.setdefault(row.story, row.sequence)


def _collected(trail: Trail, row: SpanColumns, said: Said) -> None:
    named = said.get("permit.collected")
    if isinstance(named, list):
        trail.collected.update(dict.fromkeys(named, row.sequence))
    else:
        trail.unnamed.add(row.sequence)
    over = said.get("permit.invocations")
    if isinstance(over, list):
        trail.invocations_gone.update(over)
    if type(forgotten := said.get("permit.forgotten")) is int:
        trail.forgotten = forgotten + (trail.forgotten or 0)


def _invocation_opened(trail: Trail, row: SpanColumns, _said: Said) -> None:
    trail.invocations[row.story] = InvocationStory(sequence=row.sequence, is_ended=False)


def _invocation_ended(trail: Trail, row: SpanColumns, said: Said) -> None:
    outcome = said.get("permit.outcome")
    told = outcome if isinstance(outcome, str) else None
    trail.invocations[row.story] = InvocationStory(sequence=row.sequence, is_ended=True, outcome=told)


def _obliged(trail: Trail, row: SpanColumns, said: Said) -> None:
    named = said.get("permit.obligations")
    for text in named if isinstance(named, list) else ():
        name, _equals, deadline = str(text).rpartition("=")
        if deadline.isdecimal():
            trail.obligations.add(("obligations", row.story, name, int(deadline), row.sequence))


def _obligation_done(trail: Trail, row: SpanColumns, said: Said) -> None:
    name = said.get("permit.obligation")
    if isinstance(name, str):
        trail.obligations.add(("obligations_done", row.story, name, row.at_ms, row.sequence))


_TASK_STATES: Final = {
    TransitionName.TASK_FROZEN.value: TaskState.FROZEN.value,
    TransitionName.TASK_THAWED.value: TaskState.OPEN.value,
    TransitionName.TASK_CLOSED.value: TaskState.CLOSED.value,
}
_TOLD: Final[dict[str, Callable[[Trail, SpanColumns, Said], None]]] = {
    TransitionName.TASK_OPENED.value: _task_opened,
    **dict.fromkeys(_TASK_STATES, _task_moved),
    TransitionName.TASK_GRANTED.value: _ceiling_changed,
    TransitionName.TASK_LOWERED.value: _ceiling_changed,
    TransitionName.OVERRUN_ACCEPTED.value: _overrun_accepted,
    TransitionName.EFFECT_ACKNOWLEDGED.value: _acknowledged,
    TransitionName.LEDGER_COLLECTED.value: _collected,
    TransitionName.INVOCATION_OPENED.value: _invocation_opened,
    TransitionName.INVOCATION_ENDED.value: _invocation_ended,
    TransitionName.EFFECT_OBLIGED.value: _obliged,
    TransitionName.OBLIGATION_DONE.value: _obligation_done,
    TransitionName.AUDIT_ARCHIVED.value: archive_told,
    **AUTHORITY_TOLD,
}
"""What is kept of a span beside the state into which it moves an effect, by its name."""

_READ: Final = frozenset(
    {
        TransitionName.TASK_OPENED.value,
        TransitionName.OVERRUN_ACCEPTED.value,
        TransitionName.EFFECT_ACKNOWLEDGED.value,
        TransitionName.LEDGER_COLLECTED.value,
        TransitionName.INVOCATION_ENDED.value,
        TransitionName.EFFECT_OBLIGED.value,
        TransitionName.OBLIGATION_DONE.value,
        TransitionName.AUDIT_ARCHIVED.value,
        *AUTHORITY_TOLD,
    }
)
"""Those whose bodies are read."""


def _follow_effect(ground: Ground, move: Move, effect_id: str) -> None:
    moves = ground.trail.effects.setdefault(effect_id, [])
    if move.replayed:
        ground.trail.is_replayed = True
    if move.state not in _STATES:
        says = "The span tells of a state that does not exist."
        ground.find("trail_move", ("spans", move.sequence), says)
        return
    if not moves:
        if move.state == _ADMITTED and 0 < ground.trail.archived_first < move.sequence:
            ground.trail.headless.add(effect_id)  # whose effect was collected, or it is a finding there
        elif move.state != _PREPARED and not move.replayed:
            says = "The story of this effect does not begin with its preparation."
            ground.find("trail_begin", ("spans", move.sequence), says)
    elif (moves[-1].state, move.state) not in _LEGAL:
        ground.find("trail_move", ("spans", move.sequence), "The span tells of a move that is not legal.")
    elif move.state == _UNKNOWN and moves[-1].state in _PENDING and not move.replayed:
        says = "The span tells of a move that only a restore makes."
        ground.find("trail_move", ("spans", move.sequence), says)
    moves.append(move)


def _check_head(ground: Ground, found: Frontier, last: _Last) -> None:
    row = ground.raw.execute(f"SELECT {rows.HEAD_COLUMNS}, mac FROM head WHERE lane = 0").fetchone()
    if row is None:
        ground.find("no_head", ("head",), "The ledger has no head row.")
        return
    head = rows.head_from(ground.ledger_id, row)
    ground.head = head
    try:
        authentic = ground.proofs.keys.is_authentic("head", rows.head_authority(head), row[len(row) - 1])
        frontier = decoded_frontier(head.frontier)
    except UNREADABLE:
        authentic, frontier = False, None
    if not authentic:
        ground.find("head_mac", ("head",), "The head was changed by someone without the keys.")
    if not head.position.sequence == found.size == last.sequence:
        ground.find("trail_length", ("head",), "The trail does not end where its head says.")
    if frontier is None or frontier.root() != head.root:
        ground.find("frontier", ("head",), "The head's tree and its root do not belong together.")
    if frontier != found or head.root != found.root():
        ground.find("tree", ("head",), "The spans do not add up to the tree that the head names.")
    if head.position.epoch < last.epoch or head.clock_ms < last.at_ms:
        ground.find("head_behind", ("head",), "The head is behind its last span.")
