"""An effect reference, resolved inside the caller's own scope, and what a caller restates about it.

Rules: EFF-08 (outside the scope it reads exactly like a missing one; inside, a differing restatement names its
field), EFF-02 and EFF-03 (a stored binding is opened again and proven by its digest), OPR-02 (contract and
implementation are those that were bound), EFF-07 (the target still is what it was).
It runs before the lock, on what never changes about an effect. Next: `issuer.flow.admit`.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass

from issuer.flow.binding import Names, Pinned, binding_body, binding_digest, reopened, stored_member
from issuer.flow.prepare import (
    Ask,
    differing_field,
    find_operation,
    read_payload,
    registry_rows,
    request_fingerprint,
    request_of,
)
from issuer.flow.refusing import RefusedError
from issuer.flow.stops import refuse_stopped
from issuer.house import House, Visit
from issuer.operations.contract import TargetUnreadableError
from issuer.operations.registry import Operation
from issuer.sealing import ProtectedContentMissing, SealBroken
from ledger.errors import LedgerCorrupt
from ledger.model import EFFECT_ID_PATTERN, Effect, EffectId, Tombstone, plain
from ledger.port import View
from ledger.refusals import Refusal, RefusalCode
from ledger.rules import refuse_expiry, refuse_path, refuse_permit
from ledger.scope import refuse_scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Restated:
    """What a caller says again about an effect it refers to; None where it says nothing."""

    payload: bytes | Mapping[str, object] | None = None
    task: str | None = None
    actor: str | None = None


NOTHING_RESTATED = Restated()


def effect_reference(text: str) -> EffectId | None:
    """Return an effect id, or None for anything else: both read like a missing effect."""
    return EffectId(text) if type(text) is str and EFFECT_ID_PATTERN.match(text) else None


def _is_callers(visit: Visit, found: Effect | Tombstone | None) -> bool:
    return found is not None and hmac.compare_digest(found.caller.encode(), visit.caller.name.encode())


def find_effect(visit: Visit, text: str) -> Effect | None:
    """Return the effect that `text` names, if it is one of this caller's; one code path for every other case."""
    effect_id = effect_reference(text)
    effect = None if effect_id is None else visit.house.ledger.read(lambda view: view.effect(effect_id))
    return effect if _is_callers(visit, effect) else None


def find_tombstone(visit: Visit, text: str) -> Tombstone | None:
    """Return what stays of the collected effect that `text` names, under the same rule as `find_effect` (PER-04)."""
    effect_id = effect_reference(text)
    found = None if effect_id is None else visit.house.ledger.read(lambda view: view.tombstone(effect_id))
    return found if _is_callers(visit, found) else None


def missing(visit: Visit, text: str) -> RefusedError:
    """Return the no for a reference without an effect: one that was collected, or none of this caller's (EFF-08)."""
    tombstone = find_tombstone(visit, text)
    code = RefusalCode.NOT_FOUND if tombstone is None else RefusalCode.COLLECTED
    return RefusedError(code, tombstone=tombstone)


def bound_operation(house: House, effect: Effect) -> Operation:
    """Return the operation of an effect, exactly as it was bound (OPR-02).

    Raises:
        RefusedError: `prepare_again`, naming what changed.
    """
    try:
        operation = find_operation(house, effect.operation)
    except RefusedError as no:
        if no.refusal.code is RefusalCode.UNSUPPORTED:
            raise
        raise RefusedError(RefusalCode.PREPARE_AGAIN, field="operation") from None
    now = {
        "version": operation.version,
        "contract": operation.contract,
        "implementation": operation.adapter.implementation,
        "adapter": operation.adapter.kind,
    }
    for name, value in now.items():
        if stored_member(effect.binding, "operation", name) != value:
            raise RefusedError(RefusalCode.PREPARE_AGAIN, field=name)
    return operation


def open_binding(house: House, effect: Effect, operation: Operation) -> Pinned:
    """Return what an effect was bound to, with every protected part filled in and proven by the digest.

    Its row is proven as well, before any adapter looks at a target that somebody else may have written there (LED-06).

    Raises:
        RefusedError: `permit_broken`, where binding, cost, protected content or row are not those that were bound.
    """
    return _opened(house, effect, operation, None)


def open_to_inspect(house: House, effect: Effect) -> tuple[Pinned, bool]:
    """Return what an effect was bound to, for a look at what became of it; and whether its contract still is the bound.

    A contract that changed since does not close the door: the owner may have repaired how the service is asked. What
    is looked for is proven by the digest as it was bound all the same (ADR-0016).

    Raises:
        RefusedError: `unsupported`, where the operation is gone, or no longer has the same fields; `permit_broken`, as
            `open_binding`.
    """
    say = "How this operation is declared no longer fits what the effect was bound to, so nothing can be looked for."
    changed = RefusedError(RefusalCode.UNSUPPORTED, field="contract", say=say)
    if effect.replayed:
        say = (
            "A restore made this effect from its spans, so what it was bound to is known by its digest only."
        )
        raise RefusedError(RefusalCode.UNSUPPORTED, field="binding", say=say)
    operation = house.operations.get(effect.operation)
    if operation is None:
        raise changed
    bound = stored_member(effect.binding, "operation")
    is_same = isinstance(bound, dict) and bound.get("contract") == operation.contract
    if is_same or not isinstance(bound, dict):
        return _opened(house, effect, operation, bound if isinstance(bound, dict) else None), True
    try:
        return _opened(house, effect, operation, bound), False
    except (KeyError, LedgerCorrupt, RefusedError):
        raise changed from None


def _opened(house: House, effect: Effect, operation: Operation, bound: Mapping[str, object] | None) -> Pinned:
    broken = RefusedError(RefusalCode.PERMIT_BROKEN, field="binding")
    protected = None
    if effect.protected:
        try:
            protected = house.protected.get(effect.effect_id)
        except (ProtectedContentMissing, SealBroken):
            raise broken from None
    pinned = reopened(operation, effect.binding, protected)
    names = Names(
        effect_id=effect.effect_id,
        task_id=effect.task_id,
        subject=effect.subject,
        actor=effect.actor,
        caller=effect.caller,
        revision=str(stored_member(effect.binding, "revision")),
        invocation_id=effect.invocation_id,
    )
    cost, expires_ms = plain(effect.cost), effect.expires_ms
    again = binding_body(pinned, names, cost=cost, expires_ms=expires_ms, bound=bound)
    if again != effect.binding or not hmac.compare_digest(binding_digest(again), effect.binding_digest):
        raise broken
    if not house.ledger.read(lambda view: view.is_genuine(effect)):
        raise RefusedError(RefusalCode.PERMIT_BROKEN, field="effect")
    return pinned


def refuse_restated(house: House, effect: Effect, pinned: Pinned, restated: Restated) -> Refusal | None:
    """Refuse a restatement that differs, naming the first field that does (EFF-08, REP-02).

    Raises:
        Malformed: the restated payload cannot be read as one.
    """
    no = _refuse_scope(house, effect, restated)
    if no is not None or restated.payload is None:
        return no
    values = read_payload(pinned.operation, restated.payload, registry_rows(house.profile))
    for name, value in pinned.values.items():
        if type(values[name]) is not type(value) or values[name] != value:
            return Refusal(code=RefusalCode.MISMATCH, field=name)
    return None


def _refuse_scope(house: House, effect: Effect, restated: Restated) -> Refusal | None:
    task = house.ledger.read(lambda view: view.task(effect.task_id))
    if restated.task is not None and (task is None or restated.task != task.name):
        return Refusal(code=RefusalCode.MISMATCH, field="task")
    if restated.actor is not None and restated.actor != effect.actor:
        return Refusal(code=RefusalCode.MISMATCH, field="actor")
    return None


def refuse_restated_over(house: House, effect: Effect, restated: Restated) -> Refusal | None:
    """Refuse a restatement about an effect that is over, whose content is gone: what was asked for tells it (EFF-11).

    Raises:
        RefusedError: `prepare_again`, where its operation is not the one that was bound.
        Malformed: the restated payload cannot be read as one.
    """
    no = _refuse_scope(house, effect, restated)
    if no is not None or restated.payload is None:
        return no
    operation = bound_operation(house, effect)
    values = read_payload(operation, restated.payload, registry_rows(house.profile))
    ask = Ask(
        operation=effect.operation,
        task="",
        actor=effect.actor,
        subject=effect.subject,
        payload=restated.payload,
        request_key=None,
        invocation=effect.invocation_id,
    )
    field = differing_field(effect.request, request_fingerprint(house, ask, values))
    return None if field is None else Refusal(code=RefusalCode.MISMATCH, field=field.removeprefix("payload."))


def refuse_target(house: House, effect: Effect, pinned: Pinned) -> Refusal | None:
    """Refuse where the object is no longer what was prepared, or cannot be looked at (EFF-07).

    Where that look asks a service, the effect must be one that could be used now: nobody makes the issuer read with
    its own credential for a task that is closed or a permit that is over (EFF-06).
    """
    if pinned.operation.reads_service:
        no = house.ledger.read(lambda view: _refuse_unusable(view, house, effect))
        if no is not None:
            return no
    try:
        word = pinned.operation.adapter.still_holds(request_of(house, pinned), pinned.preparation)
    except TargetUnreadableError as fault:
        return Refusal(code=RefusalCode.TARGET_UNREADABLE, field=fault.reason)
    return None if word is None else Refusal(code=RefusalCode.PREPARE_AGAIN, field=word)


def _refuse_unusable(view: View, house: House, effect: Effect) -> Refusal | None:
    """Refuse what the transaction is going to refuse anyway, whatever the object is like; it asks all of it again."""
    now = house.now()
    path, permit = view.path(effect.task_id), view.permit(effect.effect_id)
    over = refuse_expiry(effect, now)
    if permit is not None:
        used, in_trail = view.is_used(permit.permit_id), view.was_admitted(effect.effect_id)
        over = refuse_permit(permit, used=used, in_trail=in_trail, now=now)
    return over or refuse_stopped(view, house, effect) or refuse_path(path, now) or refuse_scope(path, effect)
