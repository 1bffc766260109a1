"""Step 2 of 8: prepare. What exactly would happen, to which object, for whom, at what greatest cost?

Rules: EFF-02, EFF-04, EFF-05, EFF-06 (no protected effect), EFF-10, EFF-11, EFF-12, SUR-02.
Everything slow stands here, before the ledger's lock: strict reading of the payload, the owner's registries, the
adapter's look at the target, the commitments. Nothing is stored in the ledger and nothing is sent. Where that look asks
a service, the ask must first be one that its task allows, as far as this can be told without the lock.
Next: step 3, `issuer.flow.decide`.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from issuer.caller import refuse_speaker
from issuer.flow.binding import (
    SALT_BYTES,
    Names,
    Pinned,
    binding_body,
    binding_digest,
    hides_resource,
    salted_parts,
)
from issuer.flow.lifetimes import lifetime_caps, waiting_caps, window_end
from issuer.flow.refusing import RefusedError, unknown_name
from issuer.flow.stops import refuse_before_reading
from issuer.house import House, Locked, Visit
from issuer.ids import new_effect_id, new_request_key, random_bytes
from issuer.operations.contract import (
    PREPARE_BYTES_MAX,
    Preparation,
    PreparationRefusedError,
    Request,
    TargetUnreadableError,
)
from issuer.operations.payload import UnknownReference, check_payload, chosen_entries, derive_cost
from issuer.operations.registry import Operation
from issuer.profile import Profile
from issuer.profile import unserved as unserved_keys
from issuer.sealing import Purpose, content_key
from ledger.authority import StopKind
from ledger.canonical import canonical_bytes, parse_strict
from ledger.errors import Malformed
from ledger.model import (
    Effect,
    EffectId,
    InstantMs,
    Task,
    TaskState,
    Unit,
    checked_name,
    costs,
    plain,
)
from ledger.port import View
from ledger.refusals import Refusal, RefusalCode
from ledger.rules import refuse_actor, refuse_path
from ledger.scope import refuse_names
from ledger.states import EffectState

PAYLOAD_BYTES_MAX: Final = 128 * 1024
"""Bytes of a payload document: the largest single field (64 KiB) and room for escapes and the rest."""

_RESOURCE_DOMAIN: Final = b"permit-issuer/resource-key/v1\x00"
_FIELD_DOMAIN: Final = b"permit-issuer/request-field/v1\x00"
RESOURCE_BYTES_MAX: Final = 512
"""Bytes of a resource's name: as much as a span may say of it (`audit.vocabulary`)."""

HIDDEN: Final = "hidden:"
Registries = Mapping[str, Mapping[str, Mapping[str, str]]]
Values = Mapping[str, str | int | bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a caller asks for, as it said it."""

    operation: str
    task: str
    actor: str
    subject: str | None
    payload: bytes | Mapping[str, object]
    request_key: str | None
    invocation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAsk:
    """An ask, read and checked, with its subject settled and a request key.

    Attributes:
        request: canonical fingerprint of the ask, a keyed hash per field (EFF-11); no value can be read from it.
    """

    operation: Operation
    ask: Ask
    subject: str
    request_key: str
    values: Values
    request: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A prepared effect that waits for the ledger's lock: everything but the instant and the permit.

    Attributes:
        request: canonical fingerprint of the ask, a keyed hash per field (EFF-11); no value can be read from it.
    """

    effect_id: EffectId
    pinned: Pinned
    ask: Ask
    subject: str
    request_key: str
    request: bytes
    cost: Mapping[Unit, int]
    content_key: bytes
    resource_key: bytes

    @property
    def operation(self) -> Operation:
        """The operation in question."""
        return self.pinned.operation


def find_operation(house: House, name: str) -> Operation:
    """Return a registered operation that this release serves.

    Raises:
        RefusedError: unknown to the owner, or declared with something that is not served yet.
    """
    operation = house.operations.get(name)
    if operation is None:
        raise unknown_name(house, "operation", name, house.operations)
    refuse_unserved(house.profile, name)
    return operation


def refuse_unserved(profile: Profile, operation: str | None) -> None:
    """Refuse what the profile says and this release does not serve yet; it is never ignored.

    Raises:
        RefusedError: `unsupported`, naming the profile's key.
    """
    keys = unserved_keys(profile, operation)
    if keys:
        raise RefusedError(RefusalCode.UNSUPPORTED, field=keys[0], say=f"Not supported yet: {keys[0]}.")


def read_payload(
    operation: Operation, payload: bytes | Mapping[str, object], registries: Registries
) -> Values:
    """Read and check a payload strictly (EFF-05).

    Raises:
        Malformed: any of the codes of `ledger.canonical` and `issuer.operations.payload`.
    """
    document: object = payload
    if isinstance(payload, bytes):
        document = parse_strict(payload, bytes_max=PAYLOAD_BYTES_MAX)
    return check_payload(operation.fields, document, registries)


def read_ask(visit: Visit, ask: Ask) -> ReadAsk:
    """Read and check an ask without looking at its target.

    What a request key stands for (EFF-11) is found with this alone: the target may have changed since, not least by
    the very effect that is asked for again.

    Raises:
        RefusedError: the owner has not declared something.
        Malformed: the ask cannot be read as what it should be.
    """
    _demand_speaker(visit, ask.actor, ask.subject)
    _demand_speaker(visit, ask.actor, ask.subject)
    operation = find_operation(visit.house, ask.operation)
    subject = _known_names(visit.house, ask)
    _demand_speaker(visit, ask.actor, subject)
    ask = replace(ask, subject=subject)
    key = new_request_key() if ask.request_key is None else checked_name(ask.request_key, "request_key")
    try:
        values = read_payload(operation, ask.payload, registry_rows(visit.house.profile))
    except UnknownReference as fault:
        raise RefusedError(RefusalCode.UNKNOWN_REFERENCE, field=fault.field, say=fault.message) from None
    return ReadAsk(
        operation=operation,
        ask=ask,
        subject=subject,
        request_key=key,
        values=values,
        request=request_fingerprint(visit.house, ask, values),
    )


def _demand_speaker(visit: Visit, actor: str, subject: str | None) -> None:
    """Refuse a host or an actor that speaks for others, before it learns whether they exist (EFF-08, SEC-04)."""
    no = refuse_speaker(visit.caller, actor, subject)
    if no is not None:
        raise RefusedError(no.code, field=no.field)


def prepare(visit: Visit, read: ReadAsk) -> Draft:
    """Return the draft of a new effect.

    Raises:
        RefusedError: the target cannot be prepared, or a service is not asked about it for this task.
        Malformed: the cost cannot be derived.
    """
    operation = read.operation
    cost = costs(derive_cost(operation.cost, read.values))
    if operation.reads_service:
        _demand_allowed(visit.house, read)
    pinned = pin(visit.house, operation, read.values)
    return Draft(
        effect_id=new_effect_id(),
        pinned=pinned,
        ask=read.ask,
        subject=read.subject,
        request_key=read.request_key,
        request=read.request,
        cost=cost,
        content_key=_content_key(visit.house, pinned, read.subject),
        resource_key=resource_key(visit.house, operation.resource_type, pinned.resource_id),
    )


def _demand_allowed(house: House, read: ReadAsk) -> None:
    """Refuse an ask that its task does not allow, before a service is asked anything for it (EFF-06).

    The decision under the lock asks all of this again; here it keeps the issuer from reading with its own credential
    for whoever may not have it done.

    Raises:
        RefusedError: as the decision would refuse: task, actor, subject, or what the task does not name.
    """
    operation = read.operation
    entries = chosen_entries(operation.fields, read.values, registry_rows(house.profile))
    resource_id = named_resource(operation.resource_id.render(read.values, entries, None))
    key = resource_key(house, operation.resource_type, resource_id)
    shown = _shown_resource(operation, resource_id, key)
    names = (operation.action_class, operation.name, f"{operation.resource_type}:{shown}")

    stoppable = {
        StopKind.CLASS: operation.action_class,
        StopKind.OPERATION: operation.name,
        StopKind.ACTOR: read.ask.actor,
        StopKind.PERSON: read.subject,
    }

    def look(view: View) -> Refusal | None:
        task = view.task_named(read.ask.task)
        path = () if task is None else view.path(task.task_id)
        return (
            refuse_before_reading(view, stoppable)
            or refuse_path(path, house.now())
            or refuse_actor(path, read.ask.actor, read.subject)
            or refuse_names(path, names)
        )

    no = house.ledger.read(look)
    if no is not None:
        raise RefusedError(no.code, field=no.field, level=no.level)


def _shown_resource(operation: Operation, resource_id: str, resource_key: bytes) -> str:
    """Return the name under which an object stands on record: hidden where it repeats what is not public."""
    return HIDDEN + resource_key.hex() if hides_resource(operation) else resource_id


def _known_names(house: House, ask: Ask) -> str:
    """Check the names of an ask and return its subject: the one said, else the task's."""
    name = checked_name(ask.task, "task")
    if ask.invocation is not None:
        checked_name(ask.invocation, "invocation")
    if ask.actor not in house.profile.actors:
        raise unknown_name(house, "actor", ask.actor, house.profile.actors)
    task = house.ledger.read(lambda view: view.task_named(name))
    if task is None:
        raise unknown_name(house, "task", name, _tasks_of(house, ask.actor))
    subject = task.subject if ask.subject is None else ask.subject
    if subject not in house.profile.people:
        raise unknown_name(house, "subject", subject, house.profile.people)
    return subject


def _tasks_of(house: House, actor: str) -> list[str]:
    """Return the open tasks in which `actor` may act, newest first: of others its caller learns nothing (SEC-04)."""
    tasks = house.ledger.read(lambda view: view.tasks())
    return [task.name for task in reversed(tasks) if actor in task.actors and task.state is TaskState.OPEN]


def registry_rows(profile: Profile) -> Registries:
    """Return the owner's registries as rows by entry key (EFF-12)."""
    return {name: registry.rows for name, registry in profile.registries.items()}


def pin(house: House, operation: Operation, values: Values) -> Pinned:
    """Render what the owner's templates say and let the adapter look at the target (EFF-06).

    Raises:
        RefusedError: the adapter cannot prepare this target, or what has to be looked at first cannot be read.
        Malformed: the owner's name for the object cannot stand in an answer.
    """
    entries = chosen_entries(operation.fields, values, registry_rows(house.profile))
    request = Request(values=values, registries=entries)
    resource_id = named_resource(operation.resource_id.render(values, entries, None))
    try:
        preparation = _looked(operation, request)
    except PreparationRefusedError as fault:
        raise RefusedError(
            RefusalCode.CANNOT_PREPARE,
            field=fault.field or fault.code,
            say=_WHY.get(fault.code, fault.message),
        ) from None
    except TargetUnreadableError as fault:
        raise RefusedError(RefusalCode.TARGET_UNREADABLE, field=fault.reason) from None
    return Pinned(
        operation=operation,
        values=values,
        resource_id=resource_id,
        recipients=tuple(template.render(values, entries, None) for template in operation.recipients),
        preparation=preparation,
        salts={part: random_bytes(SALT_BYTES).hex() for part in salted_parts(operation)},
    )


def _looked(operation: Operation, request: Request) -> Preparation:
    """Let the adapter look at the target; what it brings back is bounded before it is bound or stored (EFF-06).

    Raises:
        PreparationRefusedError: the target cannot be prepared, or what was found of it cannot be bound.
        TargetUnreadableError: it cannot be looked at.
    """
    found = operation.adapter.prepare(request)
    parts = [dict(found.actual), dict(found.destination), dict(found.preconditions)]
    try:
        code = "too_large" if len(canonical_bytes(parts)) > PREPARE_BYTES_MAX else None
    except Malformed as fault:
        code = fault.code
    if code is not None:
        message = "What the operation's adapter found at the target cannot be bound."
        raise PreparationRefusedError(f"preparation_{code}", None, message)
    return found


def named_resource(resource_id: str) -> str:
    """Return the owner's name for an object if it can stand in an answer and a span, whole and on one line.

    Raises:
        Malformed: `too_long` or `control_character`.
    """
    if not 0 < len(resource_id.encode()) <= RESOURCE_BYTES_MAX:
        message = f"the resource's name must be 1 to {RESOURCE_BYTES_MAX} bytes"
        raise Malformed("too_long", "resource", message)
    if not resource_id.isprintable():
        raise Malformed("control_character", "resource", "the resource's name must be printable on one line")
    return resource_id


_WHY: Final = {
    "file_exists": "There is a file of that name already; create never overwrites one.",
    "file_missing": "There is no such file to change.",
    "file_not_plain": "What stands at that path is no ordinary file.",
    "path_not_plain": "The path must be relative, without empty parts, `.` or `..`.",
    "path_through_link": "The path leads through a symbolic link, which is not followed.",
    "root_missing": "The folder that the operation works in does not exist; its owner has to make it.",
    "root_not_private": "The folder that the operation works in is open to others, so replacing in it is not safe.",
    "directory_missing": "The folder for that path does not exist below the operation's own.",
    "preparation_too_large": "What the operation's adapter found at the target is more than a permit binds.",
    "host_not_resolved": "The service's host has no address now; look at the operation's url.",
}
"""Sentences for people who meet a target that cannot be prepared; adapters give the stable words."""


def request_of(house: House, pinned: Pinned) -> Request:
    """Return the adapter's request of a pinned effect, with the owner's rows as they are now."""
    entries = chosen_entries(pinned.operation.fields, pinned.values, registry_rows(house.profile))
    return Request(values=pinned.values, registries=entries)


def request_fingerprint(house: House, ask: Ask, values: Values) -> bytes:
    """Return what a request key stands for: a keyed hash per field, so that a difference can be named (EFF-11).

    The key is the ring's for repetition, which a rotation does not change.
    """
    subkey = house.ring.subkey(Purpose.REPETITION)
    said: dict[str, object] = {"operation": ask.operation, "actor": ask.actor, "subject": ask.subject}
    if ask.invocation is not None:
        said["invocation"] = ask.invocation
    said.update({f"payload.{name}": value for name, value in values.items()})
    return canonical_bytes(
        {
            name: hmac.digest(subkey, _FIELD_DOMAIN + canonical_bytes([name, value]), "sha256")[:16].hex()
            for name, value in said.items()
        },
    )


def differing_field(stored: bytes, said: bytes) -> str | None:
    """Return the first field in which two fingerprints differ, or None where they are one."""
    before, now = parse_strict(stored), parse_strict(said)
    if type(before) is not dict or type(now) is not dict:
        raise Malformed("wrong_type", "request", "a request fingerprint cannot be read")
    names = [*dict.fromkeys((*now, *before))]
    return next((name for name in sorted(names) if before.get(name) != now.get(name)), None)


def _content_key(house: House, pinned: Pinned, subject: str) -> bytes:
    return content_key(
        house.ring.subkey(Purpose.REPETITION),
        {
            "operation": pinned.operation.name,
            "payload": dict(pinned.values),
            "resource": [pinned.operation.resource_type, pinned.resource_id],
            "destination": _lasting(pinned.preparation.destination),
            "subject": subject,
        },
    )


def _lasting(destination: Mapping[str, object]) -> dict[str, object]:
    """Return what stays of a destination from one preparation to the next: not the addresses a name had just then."""
    return {name: value for name, value in destination.items() if name != "addresses"}


def resource_key(house: House, resource_type: str, resource_id: str) -> bytes:
    """Return the keyed hash of an object's name: the same for ever, and no way back without the key (EFF-03)."""
    subkey = house.ring.subkey(Purpose.REPETITION)
    return hmac.digest(subkey, _RESOURCE_DOMAIN + canonical_bytes([resource_type, resource_id]), "sha256")


def drafted_effect(visit: Visit, draft: Draft, locked: Locked, *, waits: bool = False) -> Effect:
    """Return the effect of a draft, under the lock: its binding, its expiry, its place in the tree.

    With `waits` it is one that a person is asked about, and has as long as its class gives people (APP-03).
    """
    path, now = locked.path, locked.now
    task: Task = path[0].task
    operation = draft.operation
    caps = waiting_caps(operation, locked) if waits else lifetime_caps(operation, locked)
    expires = InstantMs(min(caps.values()))
    invocation_id = None if locked.invocation is None else locked.invocation.invocation_id
    names = Names(
        effect_id=draft.effect_id,
        task_id=task.task_id,
        subject=draft.subject,
        actor=draft.ask.actor,
        caller=visit.caller.name,
        revision=visit.house.revision,
        invocation_id=invocation_id,
    )
    body = binding_body(draft.pinned, names, cost=plain(draft.cost), expires_ms=expires)
    shown = _shown_resource(operation, draft.pinned.resource_id, draft.resource_key)
    return Effect(
        effect_id=draft.effect_id,
        state=EffectState.PREPARED,
        caller=visit.caller.name,
        task_id=task.task_id,
        root_id=task.root_id,
        subject=draft.subject,
        actor=draft.ask.actor,
        operation=operation.name,
        action_class=operation.action_class,
        resource_type=operation.resource_type,
        resource_id=shown,
        request_key=draft.request_key,
        request=draft.request,
        binding=body,
        binding_digest=binding_digest(body),
        content_key=draft.content_key,
        resource_key=draft.resource_key,
        cost=draft.cost,
        protected=draft.pinned.has_protected,
        prepared_ms=now,
        expires_ms=expires,
        window_ends_ms=window_end(operation, expires),
        invocation_id=invocation_id,
    )
