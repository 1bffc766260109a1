"""What schema 2 was: its digest, how its head and its effects were signed, and what they become.

Rules: LED-06 (the registers of a head are proven before anything is signed anew, so that no row that was set back or
put back is made the latest), EFF-09 (what evidence said of costs was not on record), INV-01 (no effect named one).
What reads schema 2 here is written out, and shared with nothing that may change with a later schema.
Next: `ledger.sqlite.upgrade`, which calls this inside its transaction, with the old tables under other names.
"""

import hashlib
import json
from collections.abc import Iterable
from types import MappingProxyType
from typing import Any, Final

from ledger.canonical import canonical_bytes
from ledger.model import Effect, LedgerId
from ledger.port import Authenticator
from ledger.sqlite import rows
from ledger.sqlite.earlier import (
    RENAMED,
    Earlier,
    EarlierHead,
    demand,
    insert,
    readable,
    take_over_evidence,
)
from ledger.sqlite.earlier_registers import registered_head
from ledger.states import EffectState

DIGEST: Final = "f411baa7201daec07f1a44d905a3346f5a8094041a22a99f9c900063d6abe9e0"
"""Digest of schema 2 as its release made it (`ledger.sqlite.schema.schema_digest`)."""

_PENDING: Final = "('awaiting_approval', 'permitted', 'prepared')"
_REGISTERS: Final = {
    "effects": (
        f"SELECT effect_id, mac FROM effects WHERE bucket = ? AND state IN {_PENDING} ORDER BY effect_id"
    ),
    "tasks": "SELECT task_id, mac FROM tasks WHERE bucket = ? ORDER BY task_id",
}
"""The rows of one bucket of each register."""

_EFFECT_COLUMNS: Final = (
    *("effect_id", "state", "caller", "task_id", "root_id", "subject", "actor", "operation", "action_class"),
    *("resource_type", "resource_id", "request_key", "request", "binding", "binding_digest", "content_key"),
    *("resource_key", "cost", "protected", "prepared_ms", "expires_ms", "window_ends_ms", "replayed"),
    *("last_span", "sequence"),
)
_EFFECT_FIXED: Final = (
    *("effect_id", "caller", "task_id", "root_id", "subject", "actor", "operation", "action_class"),
    *("resource_type", "resource_id", "request_key", "request", "binding", "binding_digest"),
    *("content_key", "resource_key", "protected", "prepared_ms", "expires_ms", "window_ends_ms", "replayed"),
)


def proven_head(raw: Any, ledger_id: LedgerId, keys: Authenticator) -> EarlierHead:  # noqa: ANN401 - untyped driver
    """Read the head as schema 2 had it.

    Raises:
        LedgerCorrupt: as `ledger.sqlite.earlier_registers.registered_head`.
    """
    return registered_head(raw, ledger_id, keys, _REGISTERS)


def take_over(raw: Any, keys: Authenticator) -> frozenset[str]:  # noqa: ANN401 - untyped driver
    """Fill the tables whose rows are signed anew, or say more than they did, from the old ones; return their names.

    Raises:
        LedgerCorrupt: a row was changed by someone without the keys.
    """
    _effects(raw, keys)
    take_over_evidence(raw)
    return frozenset({"effects", "evidence"})


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
        "replayed": bool(told["replayed"]),
    }
    return Effect(**{**told, **read})


def _effect_authority(effect: Effect) -> bytes:
    values: Iterable[object] = (getattr(effect, name) for name in _EFFECT_FIXED)
    fixed = [hashlib.sha256(value).hexdigest() if isinstance(value, bytes) else value for value in values]
    cost = canonical_bytes(dict(effect.cost)).decode()
    return canonical_bytes(["effect", *fixed, cost])


SCHEMA_TWO: Final = Earlier(number=2, digest=DIGEST, proven_head=proven_head, take_over=take_over)
