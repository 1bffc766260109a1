"""From the owner's profile to operations that can be prepared and sent; the policies' catalogue beside them.

Rules: OPR-01 (what is registered), OPR-02 (contract and implementation digests), EFF-04 (finite cost), EFF-12 (the
owner's registry supplies what matters). Nothing here touches the world; adapters are built, not used.
Next: `issuer.flow.prepare` prepares effects of these operations.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, assert_never

from issuer.operations.contract import Absence, Adapter, Inspector, Proof
from issuer.operations.file_adapter import FileAction, FileAdapter, FileSettings
from issuer.operations.host_adapter import HostAdapter, HostSettings
from issuer.operations.http_adapter import HttpAdapter
from issuer.operations.http_before import BeforeSettings, ReadingAdapter
from issuer.operations.http_document import AnswerParts
from issuer.operations.http_inspect import HttpInspector, InspectSettings
from issuer.operations.http_read import HttpReader
from issuer.operations.http_settings import HttpSettings
from issuer.operations.http_target import read_origin
from issuer.operations.payload import Field
from issuer.operations.templates import Template
from issuer.profile import (
    ActionClass,
    FieldKind,
    FieldRef,
    Inspect,
    PayloadField,
    Profile,
    Proves,
    Visibility,
    operation_digest,
)
from issuer.profile import Operation as Declared
from ledger.model import DurationMs, Unit
from policies import Attribute, Catalogue, ResourceType

DISPATCH_DEADLINE_MS: Final = DurationMs(60_000)
"""Time from admission to the end of an exchange that the issuer itself runs; a host declares its own."""

Credentials = Callable[[str], str]
"""Name to secret."""

_ATTRIBUTE_KINDS: Final = MappingProxyType(
    {
        FieldKind.STRING: "string",
        FieldKind.INT: "int",
        FieldKind.ONE_OF: "string",
        FieldKind.REGISTRY: "string",
        FieldKind.BOOL: "bool",
    },
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One registered operation, ready to be prepared.

    Attributes:
        contract: digest of everything the owner declared about it (OPR-02), hex.
        fields: payload fields in declared order.
        cost: per unit a fixed amount, or the name of the field that says it.
        key_kept_ms: how long the service remembers the idempotency key, or None.
        deadline_ms: from admission to the last moment at which something may be sent or reported.
        inspector: finds out what became of an effect, or None where the owner declared no way to (REC-01).
        absence: when not finding it proves that nothing happened, or None for never (REC-02).
        reads_service: whether preparing, and looking again before a commit, asks a service (EFF-06).
        resend: whether the contract proves that the same key cannot create another effect (REC-03).
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
    contract: str
    adapter: Adapter
    inspector: Inspector | None = None
    absence: Absence | None = None
    reads_service: bool = False
    resend: bool = False

    @property
    def is_sent_by_host(self) -> bool:
        """Whether the host itself sends and reports."""
        return self.adapter.kind == "host"

    def exposure(self, name: str) -> str:
        """Return how a payload field is declared: `public`, `sensitive` or `secret` (EFF-10)."""
        return next(field.exposure for field in self.fields if field.name == name)


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


def _proofs(declared: Declared) -> Mapping[int, Proof]:
    if declared.proves is None:
        return MappingProxyType({})
    listed = {
        Proof.SUCCEEDED: declared.proves.succeeded,
        Proof.FAILED: declared.proves.failed,
        Proof.NO_EFFECT: declared.proves.no_effect,
        Proof.ACCEPTED: declared.proves.accepted,
        Proof.PARTIAL: declared.proves.partial,
    }
    return MappingProxyType({status: proof for proof, statuses in listed.items() for status in statuses})


def _parts(declared: Proves | Inspect | None) -> AnswerParts:
    if declared is None:
        return AnswerParts()
    return AnswerParts(charged=declared.charged, reference=declared.reference)


def _adapter(declared: Declared, *, folder: Path, credentials: Credentials) -> Adapter:
    """Return what carries an operation out; where the owner declared a read before it, behind that read."""
    sends = _sender(declared, folder=folder, credentials=credentials)
    if declared.before is None:
        return sends
    before = BeforeSettings(
        url=declared.before.url.parsed,
        bearer=declared.before.bearer,
        etag=declared.before.etag,
        facts=declared.before.facts,
    )
    return ReadingAdapter(sends, before, HttpReader(before.url, before.bearer, credentials))


def _inspector(declared: Declared, *, credentials: Credentials) -> Inspector | None:
    """Return who finds out at a service what became of an effect, whether the issuer sent it or a host (REC-01)."""
    inspect = declared.inspect
    if inspect is None or declared.file is not None:
        return None
    settings = InspectSettings(
        found=inspect.found,
        equals=None if inspect.equals is None else inspect.equals.parsed,
        parts=_parts(inspect),
    )
    return HttpInspector(settings, HttpReader(inspect.url.parsed, _inspect_bearer(declared), credentials))


def _inspect_bearer(declared: Declared) -> str | None:
    """Return the credential of the inspection: its own, else that of the sending where the same origin is asked."""
    inspect, http = declared.inspect, declared.http
    if inspect is None or inspect.bearer is not None or http is None:
        return None if inspect is None else inspect.bearer
    same = read_origin(inspect.url.parsed) == read_origin(http.url.parsed)
    return http.bearer if same else None


def _sender(declared: Declared, *, folder: Path, credentials: Credentials) -> Adapter:
    if declared.http is not None:
        http = HttpSettings(
            method=declared.http.method,
            url=declared.http.url.parsed,
            body=None
            if declared.body is None
            else {name: template.parsed for name, template in declared.body.items()},
            bearer=declared.http.bearer,
            once=declared.http.once,
            proves=_proofs(declared),
            parts=_parts(declared.proves),
            if_match=declared.http.if_match,
            timeout_s=DISPATCH_DEADLINE_MS // 2000,
        )
        return HttpAdapter(http, credentials)
    if declared.file is not None:
        settings = FileSettings(
            action=FileAction(declared.file.action),
            root=folder / declared.file.root,
            path=declared.file.path.parsed,
            content=None if declared.file.content is None else declared.file.content.parsed,
        )
        return FileAdapter(settings)
    if declared.host is not None:
        return HostAdapter(HostSettings(deadline_ms=declared.host.deadline_ms))
    assert_never(declared.adapter)  # type: ignore[arg-type]


def _absence(declared: Declared) -> Absence | None:
    """Return the owner's terms for absence; None where absence never proves anything (REC-02)."""
    absent = None if declared.inspect is None else declared.inspect.absent
    if absent is None or absent.after_ms is None or absent.because is None:
        return None
    return Absence(after_ms=absent.after_ms, because=absent.because)


def _cost_source(cost: int | FieldRef) -> int | str:
    return cost.field if isinstance(cost, FieldRef) else cost


def build_operations(
    profile: Profile,
    *,
    folder: Path,
    credentials: Credentials,
) -> Mapping[str, Operation]:
    """Return every operation of `profile` by name; paths in it are relative to `folder`.

    `credentials` gives a credential by name, when a service is asked and not before.

    Raises:
        ValueError: a declaration that an adapter cannot honour; the owner is at fault.
    """
    return MappingProxyType(
        {
            name: _operation(
                profile,
                name,
                _adapter(declared, folder=folder, credentials=credentials),
                _inspector(declared, credentials=credentials),
            )
            for name, declared in profile.operations.items()
        },
    )


def _operation(profile: Profile, name: str, adapter: Adapter, inspector: Inspector | None) -> Operation:
    declared = profile.operations[name]
    kept = None if declared.proves is None else declared.proves.key_kept_ms
    return Operation(
        name=name,
        version=declared.version,
        action_class=declared.action_class,
        bounds=profile.classes[declared.action_class],
        resource_type=declared.resource.type,
        resource_id=declared.resource.id.parsed,
        recipients=tuple(recipient.parsed for recipient in declared.resource.recipients),
        fields=tuple(_field(field, payload) for field, payload in declared.payload.items()),
        cost=MappingProxyType({unit: _cost_source(cost) for unit, cost in declared.cost.items()}),
        lifetime_ms=declared.lifetime_ms,
        key_kept_ms=None if kept is None else DurationMs(kept),
        deadline_ms=DISPATCH_DEADLINE_MS if declared.host is None else DurationMs(declared.host.deadline_ms),
        contract=operation_digest(profile, name),
        adapter=adapter,
        inspector=inspector,
        absence=_absence(declared),
        reads_service=declared.before is not None,
        resend=declared.proves is not None and declared.proves.resend is not None,
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
