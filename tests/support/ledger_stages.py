"""A ledger with one effect in each of the thirteen states, and raw SQL that can move them where it is allowed.

Raw statements go past the port: what still stops them is the database.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ledger.changes import EffectMoved, Step
from ledger.errors import Broken
from ledger.model import Effect, Task, TaskState, Tier
from ledger.port import Ledger
from ledger.states import EffectState
from ledger.transitions import TransitionName
from tests.support.ledger_authority import approve, asking
from tests.support.ledgers import (
    CENT,
    admit,
    commit_steps,
    move_task,
    moving,
    open_task,
    permit,
    prepare,
    settle,
)

WAYS: Mapping[EffectState, tuple[EffectState, ...]] = {
    EffectState.PREPARED: (),
    EffectState.AWAITING_APPROVAL: (EffectState.AWAITING_APPROVAL,),
    EffectState.PERMITTED: (EffectState.PERMITTED,),
    EffectState.DENIED: (EffectState.DENIED,),
    EffectState.DECLINED: (EffectState.AWAITING_APPROVAL, EffectState.DECLINED),
    EffectState.WITHDRAWN: (EffectState.WITHDRAWN,),
    EffectState.EXPIRED: (EffectState.EXPIRED,),
    EffectState.REVOKED: (EffectState.REVOKED,),
    EffectState.ADMITTED: (EffectState.PERMITTED, EffectState.ADMITTED),
    EffectState.SUCCEEDED: (EffectState.PERMITTED, EffectState.ADMITTED, EffectState.SUCCEEDED),
    EffectState.FAILED: (EffectState.PERMITTED, EffectState.ADMITTED, EffectState.FAILED),
    EffectState.NO_EFFECT: (EffectState.PERMITTED, EffectState.ADMITTED, EffectState.NO_EFFECT),
    EffectState.UNKNOWN: (EffectState.PERMITTED, EffectState.ADMITTED, EffectState.UNKNOWN),
}
"""How each state is reached from `prepared`."""

COST = {CENT: 10}


def current(ledger: Ledger, effect: Effect) -> Effect:
    """Return an effect as it stands now."""
    found = ledger.read(lambda view: view.effect(effect.effect_id))
    if found is None:
        raise AssertionError("the effect is gone")
    return found


def move(ledger: Ledger, effect: Effect, target: EffectState) -> None:
    """Move an effect one step by the port, with whatever else that step must change.

    Raises:
        Broken: the move is not legal.
    """
    stood = current(ledger, effect)
    if target is EffectState.PERMITTED and stood.state is EffectState.PREPARED:
        refusal = permit(ledger, stood).refusal
    elif target is EffectState.PERMITTED and stood.state is EffectState.AWAITING_APPROVAL:
        approve(ledger, stood)
        refusal = permit(ledger, stood, tier=Tier.APPROVAL).refusal
    elif target is EffectState.AWAITING_APPROVAL and stood.state is EffectState.PREPARED:
        refusal = None
        commit_steps(ledger, asking(stood))
    elif target is EffectState.ADMITTED and stood.state is EffectState.PERMITTED:
        refusal = admit(ledger, stood).refusal
    elif stood.state in {EffectState.ADMITTED, EffectState.UNKNOWN} and target is not stood.state:
        refusal = None
        if target in {
            EffectState.SUCCEEDED,
            EffectState.FAILED,
            EffectState.NO_EFFECT,
            EffectState.UNKNOWN,
        }:
            refusal = settle(ledger, stood, target, {} if target is EffectState.NO_EFFECT else COST).refusal
        else:
            _bare_move(ledger, stood, target)
    else:
        refusal = None
        _bare_move(ledger, stood, target)
    if refusal is not None:
        raise Broken(f"refused: {refusal.code}")


def _bare_move(ledger: Ledger, effect: Effect, target: EffectState) -> None:
    moved = EffectMoved(effect_id=effect.effect_id, origin=effect.state, target=target)
    commit_steps(ledger, Step(transition=moving(effect, target), changes=(moved,)))


def effect_in(ledger: Ledger, task: Task, state: EffectState) -> Effect:
    """Return a new effect that stands in `state`."""
    effect = prepare(ledger, task, {CENT: COST[CENT]})
    for target in WAYS[state]:
        move(ledger, effect, target)
    return current(ledger, effect)


@dataclass(frozen=True, kw_only=True)
class Stages:
    """What `stages` made: a tree of two tasks, a closed task, one effect in each state."""

    org: Task
    leaf: Task
    closed: Task
    effects: Mapping[EffectState, Effect]


def stages(ledger: Ledger) -> Stages:
    """Make one effect in each state, below `org` in `leaf`."""
    org = open_task(ledger, "org", {CENT: 100_000})
    leaf = open_task(ledger, "leaf", {CENT: None}, org)
    closed = open_task(ledger, "closed", {CENT: 100_000}, org)
    move_task(ledger, closed, TaskState.CLOSED)
    effects = {state: effect_in(ledger, leaf, state) for state in EffectState}
    return Stages(org=org, leaf=leaf, closed=closed, effects=effects)


def add_span(raw: Any, effect_id: str | None, state_to: str | None, *, name: str = "raw") -> tuple[int, str]:
    """Insert a next span by raw SQL and return its sequence and id."""
    sequence = raw.execute("SELECT max(sequence) FROM spans").fetchone()[0] + 1
    span_id = f"{sequence:016x}"
    raw.execute(
        "INSERT INTO spans(sequence, epoch, lane, span_id, trace_id, name, story, effect_id, state_to, at_ms, "
        "body, leaf) VALUES (?, 1, 0, ?, ?, ?, 'raw', ?, ?, 0, x'7b7d', zeroblob(32))",
        (sequence, span_id, "0" * 32, name, effect_id, state_to),
    )
    return sequence, span_id


def add_permit(raw: Any, effect_id: str, sequence: int, tier: str = "issue") -> None:
    """Insert a permit by raw SQL, where there is none."""
    raw.execute(
        "INSERT INTO permits VALUES (?1, 'pmt_' || ?1, 's', ?3, 0, 1, '{}', ?2) ON CONFLICT DO NOTHING",
        (effect_id, sequence, tier),
    )


def add_approval(raw: Any, effect_id: str) -> None:
    """Insert an approval by raw SQL, at a next span of its own."""
    sequence, _span_id = add_span(raw, effect_id, None, name=str(TransitionName.EFFECT_APPROVED))
    raw.execute("INSERT INTO approvals VALUES (?, 'u-bo', 'k', 's', 0, ?, x'00')", (effect_id, sequence))


def add_use(raw: Any, effect_id: str, sequence: int) -> None:
    """Insert the use of a permit and its claim by raw SQL, where there is none."""
    raw.execute(
        "INSERT INTO permit_uses VALUES ('pmt_' || ?1, ?1, ?2) ON CONFLICT DO NOTHING", (effect_id, sequence)
    )
    raw.execute(
        "INSERT INTO claims VALUES (?, '', '', zeroblob(32), 0, 1, x'00') ON CONFLICT DO NOTHING",
        (effect_id,),
    )


def add_reservations(raw: Any, effect_id: str) -> None:
    """Insert reservations at every level by raw SQL, where there are none."""
    raw.execute(
        "INSERT INTO reservations SELECT e.effect_id, p.ancestor_id, 'EUR.cent', 1 FROM effects AS e "
        "JOIN task_path AS p ON p.task_id = e.task_id WHERE e.effect_id = ?1 AND NOT EXISTS "
        "(SELECT 1 FROM reservations AS r WHERE r.effect_id = ?1)",
        (effect_id,),
    )


def add_settlements(raw: Any, effect_id: str, sequence: int) -> None:
    """Settle at nothing by raw SQL whatever an effect holds."""
    raw.execute(
        "INSERT INTO settlements SELECT effect_id, task_id, unit, 0, 0, ?2 FROM reservations WHERE effect_id = ?1 "
        "ON CONFLICT DO NOTHING",
        (effect_id, sequence),
    )


def raw_move(
    raw: Any,
    effect: Effect,
    target: EffectState,
    *,
    without: tuple[Callable[..., None], ...] = (),
    name: str = "raw",
) -> None:
    """Move an effect by raw SQL with everything that a legal move needs, apart from the parts `without`."""
    is_approved = (effect.state, target) == (EffectState.AWAITING_APPROVAL, EffectState.PERMITTED)
    if is_approved and add_approval not in without:
        add_approval(raw, effect.effect_id)
    sequence, span_id = add_span(raw, effect.effect_id, str(target), name=name)
    if add_permit not in without:
        add_permit(raw, effect.effect_id, sequence, tier="approval" if is_approved else "issue")
    if add_use not in without:
        add_use(raw, effect.effect_id, sequence)
    if add_reservations not in without:
        add_reservations(raw, effect.effect_id)
    if add_settlements not in without:
        add_settlements(raw, effect.effect_id, sequence)
    raw.execute(
        "UPDATE effects SET state = ?, last_span = ?, sequence = ? WHERE effect_id = ?",
        (str(target), span_id, sequence, effect.effect_id),
    )
