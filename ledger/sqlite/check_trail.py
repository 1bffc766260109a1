"""The part of a check that recomputes the trail: head, spans, tree, and the states that the spans tell.

Rules: LED-06 (head MAC, tree root), AUD-04 (RFC 9162 section 2.1.1: leaf = SHA-256(0x00 || body)), AUD-05 (epoch, lane,
sequence), LED-05 (each move is in the table of `ledger.states`). An authentic head over the recomputed root proves
every body and their order; the columns beside a body are then held against it.
Next: `ledger.sqlite.check_tasks` and `ledger.sqlite.check_effects` hold the rows against what the trail tells.
"""

from typing import Final

from ledger.model import EffectId, TransitionName
from ledger.sqlite import rows
from ledger.sqlite.check_ground import UNREADABLE, Ground, Move, Trail, Where
from ledger.states import EffectState, is_legal
from ledger.tree import Frontier, decoded_frontier, leaf_hash, node_hash

_STATES: Final = frozenset(map(str, EffectState))
_COLUMNS: Final = f"{rows.SPAN_COLUMNS}, effect_id, state_to"


class _Tree:
    """The frontier over a stream of leaves, without one value per leaf."""

    def __init__(self) -> None:
        self.size = 0
        self.peaks: list[bytes] = []

    def add(self, leaf: bytes) -> None:
        """Append one leaf (RFC 9162 section 2.1.1)."""
        carried, remaining = leaf, self.size
        while remaining & 1:
            carried = node_hash(self.peaks.pop(), carried)
            remaining >>= 1
        self.peaks.append(carried)
        self.size += 1

    def frontier(self) -> Frontier:
        """Return the frontier so far."""
        return Frontier(self.size, tuple(self.peaks))


def check_trail(ground: Ground) -> int:
    """Recompute the trail; return how many spans it has."""
    tree = _Tree()
    last = _Last()
    for row in ground.raw.execute(f"SELECT {_COLUMNS} FROM spans ORDER BY sequence"):
        # The tree is over what the bodies hash to: a changed leaf column is a finding of its own.
        leaf = leaf_hash(row[8])
        _check_span(ground, row, leaf, last)
        tree.add(leaf)
    _check_head(ground, tree.frontier(), last)
    return tree.size


class _Last:
    """What the span before said: each comes after it."""

    def __init__(self) -> None:
        self.sequence = 0
        self.epoch = 1
        self.at_ms = 0


def _check_span(ground: Ground, row: rows.Row, hashed: bytes, last: _Last) -> None:
    epoch, lane, sequence, at_ms, leaf = row[0], row[1], row[2], row[7], row[9]
    effect_id, state_to = row[10], row[11]
    where = ("spans", sequence)
    if sequence != last.sequence + 1:
        ground.find("span_gap", where, "The span before this one is missing.")
    if lane != 0 or epoch < last.epoch:
        ground.find(
            "span_place", where, "The span stands in a lane or epoch that cannot follow the one before."
        )
    if at_ms < last.at_ms:
        ground.find("span_time", where, "The span is earlier than the one before it.")
    last.sequence, last.epoch, last.at_ms = sequence, max(epoch, last.epoch), max(at_ms, last.at_ms)
    if hashed != leaf:
        ground.find("span_leaf", where, "The span's leaf is not the hash of its body.")
    if not _holds(ground, row):
        ground.find("span_differs", where, "The span's columns do not say what its body says.")
    _follow(ground, row, where)
    if effect_id is not None and state_to is not None:
        _follow_effect(ground, Move(state_to, sequence, row[3], at_ms), effect_id, where)


def _holds(ground: Ground, row: rows.Row) -> bool:
    holds = ground.proofs.span_holds
    if holds is None:
        return True
    try:
        return holds(rows.span_from(ground.ledger_id, row[:10]), row[10], row[11])
    except UNREADABLE:
        return False


def _follow(ground: Ground, row: rows.Row, where: Where) -> None:
    """Keep what the span tells of a task or a sink; an admission is named as one and as nothing else."""
    trail: Trail = ground.trail
    sequence, name, story, effect_id, state_to = row[2], row[5], row[6], row[10], row[11]
    match name:
        case TransitionName.TASK_OPENED:
            trail.tasks_opened[story] = sequence
        case TransitionName.TASK_CLOSED:
            trail.tasks_closed[story] = sequence
        case TransitionName.TASK_GRANTED:
            trail.granted[sequence] = story
        case TransitionName.SINK_REGISTERED:
            trail.sinks.add(sequence)
        case _:
            pass
    admits = name == TransitionName.EFFECT_ADMITTED
    if admits != (state_to == EffectState.ADMITTED) or (effect_id is not None and story != effect_id):
        ground.find("span_names", where, "The span's name, story and new state do not belong together.")


def _follow_effect(ground: Ground, move: Move, effect_id: EffectId, where: Where) -> None:
    moves = ground.trail.effects.setdefault(effect_id, [])
    if move.state not in _STATES:
        ground.find("trail_move", where, "The span tells of a state that does not exist.")
        return
    if not moves and move.state != EffectState.PREPARED:
        ground.find("trail_begin", where, "The story of this effect does not begin with its preparation.")
    if moves and not is_legal(EffectState(moves[-1].state), EffectState(move.state)):
        ground.find("trail_move", where, "The span tells of a move that is not legal.")
    moves.append(move)


def _check_head(ground: Ground, found: Frontier, last: _Last) -> None:
    row = ground.raw.execute(f"SELECT {rows.HEAD_COLUMNS}, mac FROM head WHERE lane = 0").fetchone()
    if row is None:
        ground.find("no_head", ("head",), "The ledger has no head row.")
        return
    head = rows.head_from(ground.ledger_id, row)
    ground.head_pending = head.pending
    try:
        authentic = ground.proofs.keys.is_authentic("head", rows.head_authority(head), row[7])
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
