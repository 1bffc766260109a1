"""Bindings made without a ledger: one operation of a parsed profile, and what preparation would have pinned.

As a script, `python -m tests.support.bindings`, it prints the digest of the standard one: another process, locale
or time zone must print the same.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from issuer.flow.binding import Names, Pinned, binding_body, binding_digest, salted_parts
from issuer.operations.contract import Preparation
from issuer.operations.registry import Operation, build_operations
from issuer.profile import parse_profile
from ledger.model import EffectId, InstantMs, InvocationId
from tests.support.issuers import STANDARD_PROFILE

EXPIRES_MS: Final = InstantMs(1_893_456_000_000)
CARD: Final = "payload = { card = { string = 60, secret = true }, note = { string = 60 }, order"


def operation_of(*, hidden: bool = False) -> Operation:
    """Return the standard refund; `hidden` adds a secret and a sensitive field."""
    text = STANDARD_PROFILE.replace("@UID@", "1000").replace("@PORT@", "9")
    if hidden:
        text = text.replace("payload = { order", CARD)
    profile = parse_profile(text, where="profile.toml", registries=lambda _name: "")
    return build_operations(profile, folder=Path(), credentials=lambda name: name)["refund"]


def pinned_of(operation: Operation, **changed: Any) -> Pinned:
    """Return what preparation would pin, with some of it changed."""
    values: dict[str, str | int | bool] = {"order": "o-1", "amount": 300}
    if any(field.name == "card" for field in operation.fields):
        values = {"card": "4000-1", "note": "for ana", **values}
    parts: dict[str, Any] = {
        "operation": operation,
        "values": values | changed.pop("values", {}),
        "resource_id": "o-1",
        "recipients": ("ana",),
        "preparation": preparation_of(),
        "salts": {part: f"{number:032x}" for number, part in enumerate(salted_parts(operation), 1)},
    }
    return Pinned(**{**parts, **changed})


def preparation_of(**changed: Mapping[str, object]) -> Preparation:
    """Return a preparation with something in every section."""
    parts: dict[str, Mapping[str, object]] = {
        "actual": {"url": "http://127.0.0.1:9/refunds"},
        "destination": {"host": "127.0.0.1", "port": 9, "addresses": ["127.0.0.1"], "credential": "shop_key"},
        "preconditions": {"revision": "7"},
    }
    return Preparation(**{**parts, **changed})


def names_of(**changed: str) -> Names:
    """Return who asks for what, where."""
    parts = {
        "effect_id": "eff_" + "1" * 32,
        "task_id": "tsk_" + "2" * 32,
        "subject": "u-ana",
        "actor": "agent-7",
        "caller": "u-ana",
        "revision": "3" * 64,
        "invocation_id": "inv_" + "4" * 32,
    }
    parts |= changed
    return Names(
        effect_id=EffectId(parts.pop("effect_id")),
        invocation_id=InvocationId(parts.pop("invocation_id")),
        **parts,
    )


def body_of(
    pinned: Pinned, names: Names | None = None, *, amount: int = 300, expires_ms: int = EXPIRES_MS
) -> bytes:
    """Return the bytes of a binding."""
    return binding_body(
        pinned, names or names_of(), cost={"USD.cent": amount}, expires_ms=InstantMs(expires_ms)
    )


if __name__ == "__main__":
    for is_hidden in (False, True):
        sys.stdout.write(binding_digest(body_of(pinned_of(operation_of(hidden=is_hidden)))).hex() + "\n")
