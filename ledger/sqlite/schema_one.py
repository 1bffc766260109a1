"""What schema 1 was: its digest, how its rows were signed, and what they become.

Rules: LED-06 (a row gets its new MAC only after the old one was proven, and from the key that made the old one: an
upgrade makes nothing good, and vouches for nothing that an old key signed), BUD-01, BUD-06 (tasks of schema 1 named no
classes, and leave them open), PER-04 (a window that was not on record is the longest that could have been declared).
What reads schema 1 here is written out, and shared with nothing that may change with a later schema.
Next: `ledger.sqlite.upgrade`, which calls this inside its transaction, with the old tables under other names.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from ledger.canonical import canonical_bytes
from ledger.errors import LedgerCorrupt
from ledger.model import Effect, InstantMs, LedgerId, Scope, Task, TaskId, TaskState, Unit
from ledger.port import Authenticator
from ledger.sqlite import rows
from ledger.sqlite.earlier import (
    RENAMED,
    Earlier,
    EarlierHead,
    demand,
    insert,
    proven_tree,
    readable,
    take_over_evidence,
)
from ledger.standing import bucket_of
from ledger.states import EffectState
from ledger.transitions import Position

DIGEST: Final = "af245691be601e6c1b2f91ad4f301648122fa2d112c4a9e7eba7741b8476e1c0"
"""Digest of schema 1 as its release made it (`ledger.sqlite.schema.schema_digest`)."""

WINDOW_MS: Final = (366 + 7) * 24 * 3600 * 1000
"""The longest that a profile of schema 1 let a service keep a key, and a sender its deadline: a year and a week."""

_HEAD_COLUMNS: Final = "epoch, lane, sequence, frontier, root, clock_ms, pending, mac"
_TASK_COLUMNS: Final = (
    "task_id, name, parent_id, root_id, depth, subject, actors, expires_ms, state, opened_ms, sequence, mac"
)
_EFFECT_COLUMNS: Final = (
    *("effect_id", "state", "caller", "task_id", "root_id", "subject", "actor", "operation", "action_class"),
    *("resource_type", "resource_id", "request_key", "request", "binding", "binding_digest", "content_key"),
    *("resource_key", "cost", "protected", "prepared_ms", "expires_ms", "last_span", "sequence"),
)
_EFFECT_FIXED: Final = (
    *("effect_id", "caller", "task_id", "root_id", "subject", "actor", "operation", "action_class"),
    *("resource_type", "resource_id", "request_key", "request", "binding", "binding_digest"),
    *("content_key", "resource_key", "protected", "prepared_ms", "expires_ms"),
)


def proven_head(raw: Any, ledger_id: LedgerId, keys: Authenticator) -> EarlierHead:  # noqa: ANN401 - untyped driver
    """Read the head, and check its MAC, its frontier and the length of the trail as schema 1 did.

    Raises:
        LedgerCorrupt: `no_head`, `head_mac`, `frontier` or `trail_length`.
    """
    row = raw.execute(f"SELECT {_HEAD_COLUMNS} FROM head WHERE lane = 0").fetchone()
    if row is None:
        raise LedgerCorrupt("no_head", "The ledger has no head row.")
    epoch, lane, sequence, frontier, root, clock_ms, pending, mac = row
    with readable("head_unreadable"):
        signed = [
            "head",
            ledger_id,
            epoch,
            lane,
            sequence,
            frontier.hex(),
            root.hex(),
            clock_ms,
            pending.hex(),
        ]
        demand(keys, "head", canonical_bytes(signed), mac, "head_mac")
    tree = proven_tree(raw, frontier, root, sequence)
    position = Position(ledger_id=ledger_id, epoch=epoch, lane=lane, sequence=sequence)
    return EarlierHead(position=position, frontier=tree, clock_ms=InstantMs(clock_ms))


def take_over(raw: Any, keys: Authenticator) -> frozenset[str]:  # noqa: ANN401 - untyped driver
    """Fill the tables whose rows are signed, or say more than they did, from the old ones; return their names.

    Raises:
        LedgerCorrupt: a row was changed by someone without the keys.
    """
    granted = _grants(raw, keys)
    _tasks(raw, keys, granted)
    _effects(raw, keys)
    take_over_evidence(raw)
    return frozenset({"grants", "tasks", "effects", "evidence"})


@dataclass(slots=True, kw_only=True)
class _Granted:
    """What a task's grants add up to, and the span of the last one."""

    ceilings: dict[Unit, int | None]
    sequence: int


def _grants(raw: Any, keys: Authenticator) -> dict[str, _Granted]:  # noqa: ANN401 - untyped driver
    found: dict[str, _Granted] = {}
    sql = f"SELECT task_id, unit, sequence, amount, mac FROM {RENAMED}grants ORDER BY task_id, sequence, unit"
    for task_id, unit, sequence, amount, mac in raw.execute(sql):
        with readable("grant_unreadable"):
            before = canonical_bytes(["grant", task_id, unit, sequence, amount])
            demand(keys, "row", before, mac, "grant_mac")
        told = found.setdefault(task_id, _Granted(ceilings={}, sequence=0))
        # The first says what the ceiling is, and so does `inherit`, to which nothing is added.
        kind = "set" if unit not in told.ceilings or amount is None else "add"
        ceiling = told.ceilings.get(unit, 0)
        told.ceilings[unit] = None if amount is None or ceiling is None else ceiling + amount
        told.sequence = max(told.sequence, sequence)
        signed = rows.grant_authority(task_id, unit, sequence, kind, amount)
        values = (task_id, unit, sequence, kind, amount, keys.tag("row", signed, like=mac))
        insert(raw, "grants", "task_id, unit, sequence, kind, amount, mac", values)
    return found


def _tasks(raw: Any, keys: Authenticator, granted: dict[str, _Granted]) -> None:  # noqa: ANN401 - untyped driver
    for *told, sequence, mac in raw.execute(f"SELECT {_TASK_COLUMNS} FROM {RENAMED}tasks ORDER BY task_id"):
        _demand_own_span(raw, told[0], sequence)
        with readable("task_unreadable"):
            demand(keys, "row", canonical_bytes(["task", *told]), mac, "task_mac")
            grants = granted.get(told[0], _Granted(ceilings={}, sequence=0))
            task = _task(told, grants.ceilings)
        # A task's row is what its last change left, and since schema 2 a grant changes it.
        last = max(sequence, grants.sequence)
        renewed = keys.tag("row", rows.task_authority(task, last), like=mac)
        values = (*rows.task_row(task), bucket_of(task.task_id), last, renewed)
        insert(raw, "tasks", f"{rows.TASK_COLUMNS}, bucket, sequence, mac", values)


def _demand_own_span(raw: Any, task_id: str, sequence: int) -> None:  # noqa: ANN401 - untyped driver
    # Schema 1 had no MAC over it, and the new number would hide an edited one.
    told = raw.execute("SELECT story FROM spans WHERE sequence = ?", (sequence,)).fetchone()
    if told is None or told[0] != task_id:
        raise LedgerCorrupt("task_sequence", "A task names a span that is not its own.")


def _task(told: list[Any], ceilings: dict[Unit, int | None]) -> Task:
    task_id, name, parent_id, root_id, depth, subject, actors, expires_ms, state, opened_ms = told
    return Task(
        task_id=TaskId(task_id),
        name=name,
        parent_id=None if parent_id is None else TaskId(parent_id),
        root_id=TaskId(root_id),
        depth=depth,
        subject=subject,
        actors=tuple(json.loads(actors)),
        expires_ms=InstantMs(expires_ms),
        state=TaskState(state),
        opened_ms=InstantMs(opened_ms),
        ceilings=MappingProxyType(dict(sorted(ceilings.items()))),
        scope=Scope(classes=None),
    )


def _effects(raw: Any, keys: Authenticator) -> None:  # noqa: ANN401 - untyped driver
    sql = f"SELECT {', '.join(_EFFECT_COLUMNS)}, mac FROM {RENAMED}effects ORDER BY effect_id"
    for *told, mac in raw.execute(sql):
        with readable("effect_unreadable"):
            effect = _effect(dict(zip(_EFFECT_COLUMNS, told, strict=True)))
            demand(keys, "row", _effect_authority(effect), mac, "effect_mac")
        renewed = keys.tag("row", rows.effect_authority(effect), like=mac)
        values = rows.effect_row(effect, span_id=effect.last_span, sequence=effect.sequence, mac=renewed)
        insert(raw, "effects", f"{rows.EFFECT_COLUMNS}, bucket", values)


def _effect(told: dict[str, Any]) -> Effect:
    read = {
        "state": EffectState(told["state"]),
        "cost": MappingProxyType(json.loads(told["cost"])),
        "protected": bool(told["protected"]),
        "window_ends_ms": InstantMs(told["expires_ms"] + WINDOW_MS),
    }
    return Effect(**{**told, **read})


def _effect_authority(effect: Effect) -> bytes:
    values: Iterable[object] = (getattr(effect, name) for name in _EFFECT_FIXED)
    fixed = [hashlib.sha256(value).hexdigest() if isinstance(value, bytes) else value for value in values]
    cost = canonical_bytes(dict(effect.cost)).decode()
    return canonical_bytes(["effect", *fixed, cost])


SCHEMA_ONE: Final = Earlier(number=1, digest=DIGEST, proven_head=proven_head, take_over=take_over)
