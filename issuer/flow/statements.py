"""Gathering what a statement is made of, and making it again from the record (APP-01, APP-02).

Rules: APP-01 (the digest of the statement stands in the wait, under a MAC, so that only what was asked can be signed),
EFF-02 (it is made from the opened and proven binding), POL-06 (the decision that asked is quoted as it was recorded).
Everything in it was on record when people were asked, or is the owner's and has to be as it was then: where the owner
has changed something that it says, it cannot be made again, and the effect has to be prepared anew.
Next: `issuer.approving.statement` writes it; `issuer.flow.approve` and `issuer.flow.admit` hold signatures to it.
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from issuer.approving.statement import Asking, Declining, statement_bytes
from issuer.flow.binding import Pinned
from issuer.flow.prepare import registry_rows
from issuer.house import House
from issuer.operations.payload import chosen_entries
from issuer.operations.registry import Operation
from issuer.sealing import Purpose, SshKey
from ledger.canonical import parse_strict
from ledger.errors import LedgerCorrupt, Malformed
from ledger.model import DurationMs, Effect, InstantMs
from ledger.port import View


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


def first_statement(house: House, effect: Effect, pinned: Pinned, asked: Asked) -> bytes:
    """Return the statement of an effect that people are asked about now.

    Raises:
        Malformed: it would be larger than any document of ours.
    """
    key = house.ring.subkey(Purpose.STATEMENTS)
    return statement_bytes(effect, pinned, _asking(house, effect, pinned, asked, key))


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
    for key_id in house.ring.key_ids_for(Purpose.STATEMENTS):
        key = house.ring.subkey(Purpose.STATEMENTS, key_id)
        try:
            asking = _asking(house, effect, pinned, asked, key)
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


def _asking(house: House, effect: Effect, pinned: Pinned, asked: Asked, key: bytes) -> Asking:
    return Asking(
        issuer=house.profile.name,
        ledger_id=house.ledger.ledger_id,
        zone=house.profile.timezone,
        task=asked.task,
        answers_to=house.profile.actors[effect.actor].answers_to,
        registries=_registries(house, pinned),
        permit_ms=permit_ms(pinned.operation),
        approvers=asked.approvers,
        asked_ms=asked.asked_ms,
        decision=_decision(asked.decision),
        key=key,
    )


def permit_ms(operation: Operation) -> DurationMs:
    """Return how long a permit of an operation lasts at most, whatever else ends it (PER-03)."""
    caps = (operation.bounds.lifetime_ms, operation.lifetime_ms, operation.key_kept_ms)
    return DurationMs(min(cap for cap in caps if cap is not None))


def _registries(house: House, pinned: Pinned) -> dict[str, Mapping[str, str]]:
    """Return the owner's rows that the payload chose, by field; none of a field that is secret."""
    fields = [field for field in pinned.operation.fields if field.exposure != "secret"]
    return dict(chosen_entries(fields, pinned.values, registry_rows(house.profile)))


def _decision(body: bytes) -> Mapping[str, Any]:
    said = parse_strict(body)
    if type(said) is not dict:
        raise LedgerCorrupt("decision", "A stored decision is not one that was written there.")
    return said
