"""From the owner's profile to operations that can be prepared and sent; the policies' catalogue beside them.

Rules: OPR-01 (what is registered), OPR-02 (contract and implementation digests), EFF-04 (finite cost), EFF-12 (the
owner's registry supplies what matters). Nothing here touches the world; adapters are built, not used.
Next: `issuer.flow.prepare` prepares effects of these operations.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from issuer.operations.admitted_code import Factory
from issuer.operations.building import Credentials, built_parts, host_settings
from issuer.operations.contract import Absence, Adapter, Inspector
from issuer.operations.declaration import Contract, RegistrationCode, RegistrationRefusedError, register
from issuer.operations.deriving import Parts, contract_of
from issuer.operations.host_adapter import HostSettings
from issuer.operations.payload import Field
from issuer.operations.python_building import built_python
from issuer.operations.templates import Template
from issuer.profile import (
    ActionClass,
    FieldKind,
    FieldRef,
    Profile,
    Visibility,
    operation_digest,
)
from issuer.profile import Operation as Declared
from ledger.model import DurationMs, Unit
from policies import Attribute, Catalogue, ResourceType

_ATTRIBUTE_KINDS: Final = MappingProxyType(
    {
        FieldKind.STRING: "string",
        FieldKind.INT: "int",
        FieldKind.ONE_OF: "string",
        FieldKind.REGISTRY: "string",
        FieldKind.BOOL: "bool",
    },
)


Handed = Mapping[str, Factory] | None
"""Adapters that an embedding host handed over; None loads nothing of a third party."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One registered operation, ready to be prepared.

    Attributes:
        terms: its contract, as registered; `contract` is the digest of everything the owner declared (OPR-02), hex.
        fields: payload fields in declared order.
        cost: per unit a fixed amount, or the name of the field that says it.
        key_kept_ms: how long the service remembers the idempotency key, or None.
        deadline_ms: from admission to the last moment at which something may be sent or reported.
        inspector: finds out what became of an effect, or None where the owner declared no way to (REC-01).
        absence: when not finding it proves that nothing happened, or None for never (REC-02).
        reads_service: whether preparing, and looking again before a commit, asks a service (EFF-06).
        resend: whether the contract proves that the same key cannot create another effect (REC-03).
        host: what the owner declared about a host that sends by itself; None where the issuer sends.
    """

    name: str
    version: int
    action_class: str
    bounds: ActionClass
    resource_type: str
    resource_id: Template
    recipients: tuple[Template, ...]
    fields: tuple[Field, ...]
    cost: Mapping[str, int | str]
    lifetime_ms: DurationMs | None
    key_kept_ms: DurationMs | None
    deadline_ms: DurationMs
    terms: Contract
    contract: str
    adapter: Adapter
    inspector: Inspector | None = None
    absence: Absence | None = None
    reads_service: bool = False
    resend: bool = False
    host: HostSettings | None = None

    @property
    def is_sent_by_host(self) -> bool:
        """Whether the host itself sends and reports."""
        return self.adapter.kind == "host"

    def exposure(self, name: str) -> str:
        """Return how a payload field is declared: `public`, `sensitive` or `secret` (EFF-10)."""
        return next(field.exposure for field in self.fields if field.name == name)


def _cost_source(cost: int | FieldRef) -> int | str:
    return cost.field if isinstance(cost, FieldRef) else cost


def build_operations(
    profile: Profile,
    *,
    folder: Path,
    credentials: Credentials,
    adapters: Handed = MappingProxyType({}),
) -> Mapping[str, Operation]:
    """Return every operation of `profile` by name, each registered; paths in it are relative to `folder`.

    Args:
        profile: the owner's.
        folder: where the profile is.
        credentials: gives a credential by name, when a service is asked and not before.
        adapters: what an embedding host handed over, by name; None where nothing of a third party may be loaded,
            because the issuer is only read.

    Raises:
        RegistrationRefusedError: a declaration that cannot hold or that an adapter cannot honour; the owner, or the
            author of the adapter, is at fault.
    """
    built = {}
    for name, declared in profile.operations.items():
        try:
            own = None if declared.python is None else built_python(name, declared.python, adapters)
            parts = built_parts(declared, folder=folder, credentials=credentials, own=own)
        except ValueError as fault:
            # Our own settings say in one sentence of ours what they refuse.
            say = str(fault)
            raise RegistrationRefusedError(RegistrationCode.SETTINGS_NOT_HONOURED, name, say) from None
        built[name] = _operation(profile, name, parts)
    return MappingProxyType(built)


def _operation(profile: Profile, name: str, parts: Parts) -> Operation:
    declared = profile.operations[name]
    registered = register(contract_of(name, declared, parts), parts.adapter, parts.inspector)
    terms = registered.contract
    return Operation(
        name=name,
        version=terms.version,
        action_class=terms.action_class,
        bounds=profile.classes[terms.action_class],
        resource_type=terms.resource_type,
        resource_id=terms.resource_id,
        recipients=terms.recipients,
        fields=terms.payload,
        cost=MappingProxyType({unit: _cost_source(cost) for unit, cost in declared.cost.items()}),
        lifetime_ms=terms.lifetime_ms,
        key_kept_ms=None if terms.idempotency is None else terms.idempotency.kept_ms,
        deadline_ms=terms.deadline_ms,
        terms=terms,
        contract=operation_digest(profile, name),
        adapter=registered.adapter,
        inspector=registered.inspector,
        absence=None if terms.inspection is None else terms.inspection.absence,
        reads_service=declared.before is not None or declared.python is not None,
        resend=terms.resend is not None,
        host=None if declared.host is None else host_settings(declared.host),
    )


def _attributes(operation: Declared) -> tuple[Attribute, ...]:
    said = [
        Attribute(name=name, kind=_ATTRIBUTE_KINDS[field.kind], said=True)  # type: ignore[arg-type]
        for name, field in operation.payload.items()
        if field.visibility is not Visibility.SECRET
    ]
    facts = {} if operation.before is None else operation.before.facts
    return (*said, *(Attribute(name=name, kind=kind, said=False) for name, kind in facts.items()))


def build_catalogue(profile: Profile) -> Catalogue:
    """Return what policies of this profile may name. Operations that share a resource type share its attributes.

    Raises:
        ValueError: two operations give one attribute of a shared type two kinds.
    """
    types: dict[str, dict[str, Attribute]] = {}
    for operation in profile.operations.values():
        known = types.setdefault(operation.resource.type, {})
        for attribute in _attributes(operation):
            if known.setdefault(attribute.name, attribute) != attribute:
                message = f"attribute {attribute.name} of {operation.resource.type} is declared in two ways"
                raise ValueError(message)
    return Catalogue(
        classes=tuple(profile.classes),
        operations=tuple(profile.operations),
        units=all_units(profile),
        resource_types=tuple(
            ResourceType(name=name, attributes=tuple(attributes.values()))
            for name, attributes in types.items()
        ),
    )


def all_units(profile: Profile) -> tuple[Unit, ...]:
    """Return every unit that some operation costs, in declared order."""
    units = (unit for operation in profile.operations.values() for unit in operation.cost)
    return tuple(Unit(unit) for unit in dict.fromkeys(units))
