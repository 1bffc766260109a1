"""Gathering what a statement is made of, and making it again from the record (APP-01, APP-02).

Rules: APP-01 (the digest of the statement stands in the wait, under a MAC, so that only what was asked can be signed),
EFF-02 (it is made from the opened and proven binding), POL-06 (the decision that asked is quoted as it was recorded).
Everything in it was on record when people were asked, or is the owner's and has to be as it was then: where the owner
has changed something that it says, it cannot be made again, and the effect has to be prepared anew. Since when a row of
the owner is as it is follows from the trail up to the effect's preparation (`issuer.row_history`); copies of revisions
are read before the lock is taken (LED-07).
Next: `issuer.approving.statement` writes it; `issuer.flow.approve` and `issuer.flow.admit` hold signatures to it.
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from issuer.approving.statement import Asking, Declining, RegistryFact, statement_bytes
from issuer.flow.binding import Pinned, stored_member
from issuer.flow.prepare import registry_rows
from issuer.house import House
from issuer.operations.payload import chosen_entries
from issuer.operations.registry import Operation
from issuer.row_history import Chosen, activations_until, since
from issuer.sealing import Purpose, SshKey
from ledger.canonical import parse_strict
from ledger.errors import LedgerCorrupt, Malformed
from ledger.model import DurationMs, Effect, EffectId, InstantMs
from ledger.port import View
from ledger.transitions import TransitionName


def registered_keys(house: House) -> Mapping[str, tuple[SshKey, ...]]:
    """Return the public keys of people, by name, as the owner registered them."""
    return house.profile.keys


def statement_digest(statement: bytes) -> bytes:
    """Return what the wait holds of a statement."""
    return hashlib.sha256(statement).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is on record about a question to people.

    Attributes:
        task: the name of the effect's task.
        decision: the record of the decision that asked.
        approvers: how many people of each group.
    """

    task: str
    decision: bytes
    approvers: Mapping[str, int]
    asked_ms: InstantMs


def read_ahead(house: House, pinned: Pinned) -> None:
    """Read what a statement may have to say of earlier revisions, so that under the lock it is remembered.

    What it reads is asked for again there, of the trail as it is then; a copy is never waited for by others so.
    """
    asks_people = any("approvers" in shape.annotations for shape in house.bundle.policies.values())
    chosen = _chosen(house, pinned) if asks_people else {}
    if chosen:
        house.ledger.read(
            lambda view: _facts(house, view, chosen, _Prepared(house.revision, house.now(), None))
        )


def first_statement(house: House, view: View, effect: Effect, pinned: Pinned, asked: Asked) -> bytes:
    """Return the statement of an effect that people are asked about now, under the lock.

    Raises:
        Malformed: it would be larger than any document of ours.
    """
    return statement_bytes(effect, pinned, _asking(house, view, effect, pinned, asked))


def statement_again(
    house: House, view: View, effect: Effect, pinned: Pinned, declining: Declining | None = None
) -> bytes | None:
    """Return the statement that people were asked to sign, or with `declining` the one of a no; None where it is lost.

    It is lost where nobody was asked, or where what it said is no longer so. It was made with the key that was active
    then, so each key of the ring that is not revoked is tried, the active one first (SEC-03).
    """
    wait, asked = view.approval_wait(effect.effect_id), _asked(view, effect)
    if wait is None or asked is None or effect.actor not in house.profile.actors:
        return None
    known = _asking(house, view, effect, pinned, asked)
    for key_id in house.ring.key_ids_for(Purpose.STATEMENTS):
        asking = replace(known, key=house.ring.subkey(Purpose.STATEMENTS, key_id))
        try:
            statement = statement_bytes(effect, pinned, asking)
            if hmac.compare_digest(statement_digest(statement), wait.statement_digest):
                return statement if declining is None else statement_bytes(effect, pinned, asking, declining)
        except Malformed:
            return None
    return None


def _asked(view: View, effect: Effect) -> Asked | None:
    wait, task = view.approval_wait(effect.effect_id), view.task(effect.task_id)
    if wait is None or task is None:
        return None
    bodies = [row.body for row in view.decisions(effect.effect_id) if row.at_ms == wait.asked_ms]
    if not bodies:
        return None
    return Asked(task=task.name, decision=bodies[0], approvers=wait.approvers, asked_ms=wait.asked_ms)


def _asking(house: House, view: View, effect: Effect, pinned: Pinned, asked: Asked) -> Asking:
    """Return what a statement is made of, with the key that is active now."""
    return Asking(
        issuer=house.profile.name,
        ledger_id=house.ledger.ledger_id,
        zone=house.profile.timezone,
        task=asked.task,
        answers_to=house.profile.actors[effect.actor].answers_to,
        registries=_facts(house, view, _chosen(house, pinned), _prepared(effect)),
        permit_ms=permit_ms(pinned.operation),
        approvers=asked.approvers,
        asked_ms=asked.asked_ms,
        decision=_decision(asked.decision),
        key=house.ring.subkey(Purpose.STATEMENTS),
    )


def permit_ms(operation: Operation) -> DurationMs:
    """Return how long a permit of an operation lasts at most, whatever else ends it (PER-03)."""
    caps = (operation.bounds.lifetime_ms, operation.lifetime_ms, operation.key_kept_ms)
    return DurationMs(min(cap for cap in caps if cap is not None))


class _Prepared(NamedTuple):
    """When an effect was prepared: under which revision, at which instant; its id, None where it is not on record."""

    revision: str
    at_ms: InstantMs
    effect_id: EffectId | None


def _prepared(effect: Effect) -> _Prepared:
    return _Prepared(str(stored_member(effect.binding, "revision")), effect.prepared_ms, effect.effect_id)


def _chosen(house: House, pinned: Pinned) -> dict[str, Chosen]:
    """Return the owner's rows that the payload chose, by field; none of a field that is secret."""
    fields = [field for field in pinned.operation.fields if field.exposure != "secret"]
    entries = chosen_entries(fields, pinned.values, registry_rows(house.profile))
    named = {field.name: str(field.registry) for field in fields}
    return {name: Chosen(registry=named[name], row=row) for name, row in entries.items()}


def _facts(
    house: House, view: View, chosen: Mapping[str, Chosen], prepared: _Prepared
) -> dict[str, RegistryFact]:
    """Return the rows with since when they are so, told when the effect was prepared: what came later is left out."""
    if not chosen:
        return {}
    story = () if prepared.effect_id is None else view.story(prepared.effect_id)
    began = [row.position.sequence for row in story if row.name == TransitionName.EFFECT_PREPARED]
    activations = activations_until(view, began[0] if began else view.head().sequence + 1)
    return {
        field: RegistryFact(
            row=one.row,
            since=since(house.places, activations, one, revision=prepared.revision, at_ms=prepared.at_ms),
        )
        for field, one in chosen.items()
    }


def _decision(body: bytes) -> Mapping[str, Any]:
    said = parse_strict(body)
    if type(said) is not dict:
        raise LedgerCorrupt("decision", "A stored decision is not one that was written there.")
    return said
