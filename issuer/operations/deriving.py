"""From what the owner wrote about an operation to its contract, as one value.

Rules: OPR-01 (everything is said, what is not supported as well), EFF-04 (costs are bounded by constants and by the
ranges of fields), REC-02 (absence proves something only under the owner's terms).
What a profile cannot declare yet stands here as not supported. Next: `issuer.operations.declaration` registers it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from issuer.operations.contract import Absence, Adapter, Inspector, Proof
from issuer.operations.declaration import (
    AuditNeed,
    ConditionalWrite,
    Contract,
    Idempotency,
    InspectionTerms,
    Resend,
)
from issuer.operations.payload import Field
from issuer.profile import Absent, PayloadField, Proves, cost_range
from issuer.profile import Operation as Declared
from ledger.model import DurationMs

__all__ = ["DISPATCH_DEADLINE_MS", "Parts", "contract_of", "payload_fields", "proofs_of"]

DISPATCH_DEADLINE_MS: Final = DurationMs(60_000)
"""Time from admission to the end of an exchange that the issuer itself runs; a host declares its own."""

FILE_ABSENCE: Final = Absence(
    after_ms=DurationMs(1),
    because="A file changes by one system call of the sender, and a process that is gone makes none.",
)
"""When an entry that is as it was proves that nothing happened; the adapter sees to the file system (ADR-0018)."""

_FILE_ANSWERS: Final[Mapping[str, Mapping[str, Proof]]] = MappingProxyType(
    {
        "create": {"file:created": Proof.SUCCEEDED, "file:exists": Proof.NO_EFFECT},
        "replace": {"file:replaced": Proof.SUCCEEDED},
        "delete": {"file:deleted": Proof.SUCCEEDED},
    }
)
"""What the file adapter says, by action."""

_WRAPPER_ANSWERS: Final[Mapping[str, Proof]] = MappingProxyType(
    {f"host:{proof}": proof for proof in (Proof.SUCCEEDED, Proof.FAILED, Proof.NO_EFFECT)}
)
"""What the first-hand report of an admitted wrapper proves (ADR-0018)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """An adapter, and what inspects in its place where it does not do so itself."""

    adapter: Adapter
    inspector: Inspector | None = None


def contract_of(name: str, declared: Declared, parts: Parts) -> Contract:
    """Return the contract of one operation of an accepted profile.

    Raises:
        RegistrationRefusedError: it would be one that cannot hold.
    """
    idempotency = _idempotency(declared)
    return Contract(
        id=name,
        version=declared.version,
        adapter=parts.adapter.kind,
        implementation=parts.adapter.implementation,
        payload=payload_fields(declared),
        resource_type=declared.resource.type,
        resource_id=declared.resource.id.parsed,
        recipients=tuple(recipient.parsed for recipient in declared.resource.recipients),
        action_class=declared.action_class,
        cost=cost_range(declared),
        lifetime_ms=declared.lifetime_ms,
        deadline_ms=DISPATCH_DEADLINE_MS if declared.host is None else DurationMs(declared.host.deadline_ms),
        conditional_write=_conditional(declared),
        idempotency=idempotency,
        resend=_resend(declared, idempotency),
        answers=_answers(declared),
        charged=_charges(declared),
        inspection=_inspection(declared),
        cleanup=declared.cleanup,
        audit=AuditNeed.EVERY_REQUIRED_SINK,
    )


def proofs_of(proves: Proves) -> Mapping[Proof, tuple[int, ...]]:
    """Return the statuses by what each proves; a status that is in none proves nothing (REP-05)."""
    return {
        Proof.SUCCEEDED: proves.succeeded,
        Proof.FAILED: proves.failed,
        Proof.NO_EFFECT: proves.no_effect,
        Proof.ACCEPTED: proves.accepted,
        Proof.PARTIAL: proves.partial,
    }


def payload_fields(declared: Declared) -> tuple[Field, ...]:
    """Return the payload's fields in declared order."""
    return tuple(_field(name, payload) for name, payload in declared.payload.items())


def _field(name: str, declared: PayloadField) -> Field:
    low, high = declared.int_range or (None, None)
    return Field(
        name=name,
        kind=str(declared.kind),  # type: ignore[arg-type]  # the same five words
        exposure=str(declared.visibility),  # type: ignore[arg-type]  # the same three words
        length_max=declared.string_bytes_max,
        low=low,
        high=high,
        choices=tuple(declared.one_of or ()),
        registry=declared.registry,
    )


def _conditional(declared: Declared) -> ConditionalWrite:
    if declared.python is not None:
        return ConditionalWrite(declared.python.conditional)
    if declared.file is not None:
        return ConditionalWrite.FILE_SYSTEM
    if declared.http is not None and declared.http.if_match:
        return ConditionalWrite.SERVICE
    return ConditionalWrite.NONE


def _idempotency(declared: Declared) -> Idempotency | None:
    if declared.http is not None and declared.http.once is not None:
        kept = None if declared.proves is None else declared.proves.key_kept_ms
        scope = f"header {declared.http.once}: this endpoint, account and credential"
        return Idempotency(scope=scope, kept_ms=None if kept is None else DurationMs(kept))
    if declared.python is not None and declared.python.key_kept_ms is not None:
        scope = f"adapter {declared.python.adapter}: its endpoint, account and credential"
        return Idempotency(scope=scope, kept_ms=DurationMs(declared.python.key_kept_ms))
    return None


def _resend(declared: Declared, idempotency: Idempotency | None) -> Resend | None:
    """Only a request of our own is the same bytes twice for certain, and only an owner says that it may be (REC-03)."""
    if declared.http is None or declared.proves is None or declared.proves.resend is None:
        return None
    if idempotency is None or idempotency.kept_ms is None:
        return None
    return Resend(within_ms=idempotency.kept_ms)


def _answers(declared: Declared) -> Mapping[str, Proof]:
    if declared.proves is not None:
        listed = proofs_of(declared.proves)
        return {f"http:{status}": proof for proof, statuses in listed.items() for status in statuses}
    if declared.file is not None:
        return _FILE_ANSWERS[declared.file.action]
    if declared.python is not None:
        return {f"python:{proof}": Proof(proof) for proof in declared.python.proves}
    if _is_wrapper(declared):
        return _WRAPPER_ANSWERS
    return {}  # The word of any other host is a claim and proves nothing (REC-07).


def _is_wrapper(declared: Declared) -> bool:
    return declared.host is not None and declared.host.wrapper is not None


def _inspection(declared: Declared) -> InspectionTerms | None:
    if declared.python is not None and declared.python.absent is not None:
        return InspectionTerms(by="python", absence=_absence(declared.python.absent))
    if declared.file is not None:
        return InspectionTerms(by="file", absence=FILE_ABSENCE)
    if declared.inspect is not None:
        return InspectionTerms(by="http", absence=_absence(declared.inspect.absent))
    return None


def _charges(declared: Declared) -> bool:
    if declared.python is not None:
        return declared.python.charges
    if _is_wrapper(declared):
        return True
    return declared.proves is not None and bool(declared.proves.charged)


def _absence(declared: Absent) -> Absence | None:
    if declared.after_ms is None:
        return None
    return Absence(after_ms=DurationMs(declared.after_ms), because=declared.because or "")
