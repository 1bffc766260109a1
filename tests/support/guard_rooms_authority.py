"""Attempts by raw SQL against the guards of rulings and approvals; `tests.fault.test_ledger_guards` runs them."""
# ruff: noqa: S608 - tables and columns come from the schema itself

from collections.abc import Callable

from ledger.states import EffectState
from ledger.transitions import TransitionName
from tests.support.guard_rooms import Room, update
from tests.support.ledger_stages import add_approval, add_permit, add_span, raw_move

S = EffectState
REST = "bucket, kind, 'new', value, voids_until_ms, since_ms"


def ruled_by_hand(room: Room, kind: str, span: str) -> None:
    """Insert a ruling by raw SQL at a next span of this name."""
    sequence, _span = add_span(room.raw, None, None, name=span)
    room.raw.execute(
        f"INSERT INTO rulings SELECT 'rul_' || hex(zeroblob(16)), {REST}, ?, mac FROM rulings WHERE kind = ?",
        (sequence, kind),
    )


def reruled(room: Room, change: str, *, kind: str = "stop", span: str = TransitionName.STOP_THAWED) -> None:
    """Change a ruling by raw SQL at a next span of this name."""
    sequence, _span = add_span(room.raw, None, None, name=str(span))
    room.raw.execute(f"UPDATE rulings SET {change}, sequence = ? WHERE kind = ?", (sequence, kind))


def waits_by_hand(room: Room, *, span: str, of: EffectState = S.AWAITING_APPROVAL) -> None:
    """Insert what an effect waits for by raw SQL at a next span of `of`'s."""
    effect_id = room.id_of(S.PREPARED)
    sequence, _span = add_span(room.raw, room.id_of(of), None, name=span)
    room.raw.execute(
        "INSERT INTO approval_waits VALUES (?, '{}', zeroblob(32), 0, ?, x'00')", (effect_id, sequence)
    )


def approved_by_hand(room: Room, *, span: str, of: EffectState = S.AWAITING_APPROVAL, at_ms: int = 0) -> None:
    """Approve the waiting effect by raw SQL at a next span of `of`'s."""
    effect_id = room.id_of(S.AWAITING_APPROVAL)
    sequence, _span = add_span(room.raw, room.id_of(of), None, name=span)
    room.raw.execute(
        "INSERT INTO approvals VALUES (?, 'u-bo', 'k', 's', ?, ?, x'00')", (effect_id, at_ms, sequence)
    )


def approved_once_more(room: Room) -> None:
    """Approve what was declined."""
    add_approval(room.raw, room.id_of(S.DECLINED))


def permitted_unasked(room: Room) -> None:
    """Permit an effect that waited for nobody as if it had been approved."""
    prepared = room.made.effects[S.PREPARED]
    add_permit(room.raw, prepared.effect_id, 1, tier="approval")
    raw_move(room.raw, prepared, S.PERMITTED)


def permitted_as_issued(room: Room) -> None:
    """Permit an approved effect with a permit that no approval is behind."""
    waiting = room.made.effects[S.AWAITING_APPROVAL]
    add_permit(room.raw, waiting.effect_id, 1, tier="issue")
    raw_move(room.raw, waiting, S.PERMITTED)


APPROVED, ASKED = str(TransitionName.EFFECT_APPROVED), str(TransitionName.EFFECT_AWAITING_APPROVAL)
AUTHORITY_ATTEMPTS: list[tuple[str, str, Callable[[Room], object]]] = [
    ("guard:ruling_without_span", "made at an old one", update(
        f"INSERT INTO rulings SELECT 'rul_' || hex(zeroblob(16)), {REST}, sequence, mac FROM rulings "
        "WHERE kind = 'stop'")),
    *[("guard:ruling_without_span", f"a {kind} at another's", lambda room, kind=kind: ruled_by_hand(
        room, kind, "raw")) for kind in ("revision", "token", "stop", "key", "sink", "quarantine")],
    ("guard:ruling_without_span", "changed at an old one", update("UPDATE rulings SET value = 'open'")),
    ("guard:ruling_without_span", "changed at another's", lambda room: reruled(
        room, "value = 'open'", span="raw")),
    *[("guard:ruling_identity", column, lambda room, column=column, value=value: reruled(
        room, f"{column} = {value}")) for column, value in {
        "ruling_id": "'rul_' || hex(zeroblob(16))", "kind": "'token'", "name": "'x'", "bucket": "63 - bucket"}.items()],
    ("guard:ruling_identity", "a challenge that is used again", lambda room: reruled(
        room, "value = '9'", kind="challenge")),
    ("guard:wait_without_span", "at another's", lambda room: waits_by_hand(room, span=ASKED)),
    ("guard:wait_without_span", "at another span of its own", lambda room: waits_by_hand(
        room, span="raw", of=S.PREPARED)),
    ("guard:approval_without_span", "at another's", lambda room: approved_by_hand(
        room, span=APPROVED, of=S.PREPARED)),
    ("guard:approval_without_span", "at another span of its own", lambda room: approved_by_hand(room, span=ASKED)),
    ("guard:approval_without_span", "at another time", lambda room: approved_by_hand(
        room, span=APPROVED, at_ms=1)),
    ("guard:approval_of_nothing", "after a no", approved_once_more),
    ("guard:permitted_without_approval", "nobody said yes", lambda room: raw_move(
        room.raw, room.made.effects[S.AWAITING_APPROVAL], S.PERMITTED, without=(add_approval,))),
    ("guard:permitted_without_approval", "by another tier", permitted_as_issued),
    ("guard:permitted_without_approval", "nobody was asked", permitted_unasked),
]  # fmt: skip
