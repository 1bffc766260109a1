"""The binding of an effect: one versioned body that pins everything, and the digest that a permit is sealed to.

Rules: EFF-02 (what is pinned), EFF-03 (equal bodies, equal digests; no transient ids, no digest, no secret in it),
EFF-10 (non-public fields enter as salted commitments; their salts and values are in the protected store).
Where an operation has any non-public field, everything that adapters derived (destination, actual object,
preconditions, recipients) enters as a commitment too, since it may repeat such a field.
Next: `issuer.flow.issue` seals a permit to the digest; `issuer.flow.admit` compares it again.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from issuer.operations.contract import Preparation
from issuer.operations.registry import Operation
from issuer.sealing import commit
from ledger.canonical import canonical_bytes, digest, parse_strict
from ledger.errors import LedgerCorrupt, Malformed
from ledger.model import EffectId, InstantMs, InvocationId

BINDING_VERSION: Final = 1
BINDING_DOMAIN: Final = "permit-issuer/binding/v1"
DERIVED: Final = ("actual", "destination", "preconditions", "recipients")
"""Sections that adapters and registries derive from the payload."""

SALT_BYTES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """What preparation found, before the ledger's time is known.

    Attributes:
        values: the checked payload by field.
        resource_id: the owner's name for the object, rendered.
        recipients: rendered.
        preparation: what the adapter pinned.
        salts: one salt for each committed part by name, hex; empty where everything is public.
    """

    operation: Operation
    values: Mapping[str, str | int | bool]
    resource_id: str
    recipients: tuple[str, ...]
    preparation: Preparation
    salts: Mapping[str, str]

    @property
    def has_protected(self) -> bool:
        """Whether anything of it must stay in the protected store."""
        return bool(self.salts)

    def derived(self) -> dict[str, object]:
        """Return the derived sections by name."""
        return {
            "actual": dict(self.preparation.actual),
            "destination": dict(self.preparation.destination),
            "preconditions": dict(self.preparation.preconditions),
            "recipients": list(self.recipients),
        }

    def protected_content(self) -> dict[str, object]:
        """Return what the protected store keeps: non-public values, derived sections, and every salt."""
        return {
            "v": BINDING_VERSION,
            "payload": {name: self.values[name] for name in non_public(self.operation)},
            "secret": [field.name for field in self.operation.fields if field.exposure == "secret"],
            "resource_id": self.resource_id,
            "derived": self.derived(),
            "salts": dict(self.salts),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Who asks for what, where: the part of a binding that is not about the object."""

    effect_id: EffectId
    task_id: str
    subject: str
    actor: str
    caller: str
    revision: str
    invocation_id: InvocationId | None


def non_public(operation: Operation) -> tuple[str, ...]:
    """Return the names of the payload fields that are not public, in declared order (EFF-10)."""
    return tuple(field.name for field in operation.fields if field.exposure != "public")


def payload_part(name: str) -> str:
    """Return the name of a payload field inside its commitment."""
    return f"payload.{name}"


def salted_parts(operation: Operation) -> tuple[str, ...]:
    """Return the names of the parts that need a salt: empty where every field is public."""
    fields = non_public(operation)
    return (*(payload_part(name) for name in fields), *DERIVED, "resource_id") if fields else ()


def hides_resource(operation: Operation) -> bool:
    """Say whether the owner's name for the object repeats a field that is not public."""
    hidden = set(non_public(operation))
    return any(place.name in hidden for place in operation.resource_id.placeholders)


def _committed(pinned: Pinned, part: str, value: object) -> object:
    if not pinned.has_protected:
        return value
    return {"commitment": commit(bytes.fromhex(pinned.salts[part]), part, value)}


def _operation_of(operation: Operation) -> Mapping[str, object]:
    return {
        "id": operation.name,
        "version": operation.version,
        "contract": operation.contract,
        "implementation": operation.adapter.implementation,
        "adapter": operation.adapter.kind,
    }


def binding_body(
    pinned: Pinned,
    names: Names,
    *,
    cost: Mapping[str, int],
    expires_ms: InstantMs,
    bound: Mapping[str, object] | None = None,
) -> bytes:
    """Return the canonical bytes of the binding (EFF-02, EFF-03).

    With `bound` the operation stands in it as that says: for proving a binding whose contract is an earlier one.
    """
    operation = pinned.operation
    payload: dict[str, object] = {}
    for field in operation.fields:
        value = pinned.values[field.name]
        payload[field.name] = (
            value if field.exposure == "public" else _committed(pinned, payload_part(field.name), value)
        )
    resource_id: object = pinned.resource_id
    if hides_resource(operation):
        resource_id = _committed(pinned, "resource_id", pinned.resource_id)
    body = {
        "v": BINDING_VERSION,
        "effect": names.effect_id,
        "operation": dict(bound or _operation_of(operation)),
        "payload": payload,
        "resource": {"type": operation.resource_type, "id": resource_id},
        **{part: _committed(pinned, part, value) for part, value in pinned.derived().items()},
        "task": names.task_id,
        "subject": names.subject,
        "actor": names.actor,
        "caller": names.caller,
        "invocation": names.invocation_id,
        "revision": names.revision,
        "cost": dict(cost),
        "expires_ms": expires_ms,
    }
    return canonical_bytes(body)


def binding_digest(body: bytes) -> bytes:
    """Return SHA-256 over a domain word and the body (EFF-03)."""
    return digest(BINDING_DOMAIN, body)


def reopened(operation: Operation, body: bytes, protected: Mapping[str, object] | None) -> Pinned:
    """Return what a stored binding pinned, with the protected parts filled in.

    The caller compares the digest of a body made anew with the stored one, which proves every filled-in part.

    Raises:
        LedgerCorrupt: the stored body is not one of ours.
    """
    with _as_written():
        return _reopened(operation, parse_strict(body), protected)


def _reopened(operation: Operation, stored: object, protected: Mapping[str, object] | None) -> Pinned:
    if type(stored) is not dict or stored.get("v") != BINDING_VERSION:
        raise LedgerCorrupt("binding", "A stored binding has another version than this release writes.")
    payload = dict(stored["payload"])
    derived = {part: stored[part] for part in DERIVED}
    resource_id = stored["resource"]["id"]
    salts: Mapping[str, str] = {}
    if protected is not None:
        payload.update(protected["payload"])  # type: ignore[call-overload]  # written by protected_content
        derived = protected["derived"]  # type: ignore[assignment]
        resource_id = protected["resource_id"]
        salts = protected["salts"]  # type: ignore[assignment]
    return Pinned(
        operation=operation,
        values=MappingProxyType(payload),
        resource_id=resource_id,
        recipients=tuple(derived["recipients"]),
        preparation=Preparation(
            actual=derived["actual"],
            destination=derived["destination"],
            preconditions=derived["preconditions"],
        ),
        salts=salts,
    )


def stored_member(body: bytes, *path: str) -> object:
    """Return one member of a stored binding, for comparing it with what holds now."""
    with _as_written():
        member: object = parse_strict(body)
        for name in path:
            member = member[name]  # type: ignore[index]  # another shape is one of the things caught
        return member


@contextmanager
def _as_written() -> Iterator[None]:
    """Turn whatever a body of another shape causes into the one word for it: somebody edited the row (LED-04)."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, Malformed):
        raise LedgerCorrupt("binding", "A stored binding is not one that was written there.") from None
