"""`keys list`, `keys rotate`, `keys retire`, `keys revoke`: the issuer's own keys, changed while it is in use (SEC-03).

Each change stands in the ring first and in the trail then. A kill between leaves a ring that already does what was
asked, and the same command, given again, puts that on record and changes nothing else. A signature that was used
before is refused at the edge, before the ring changes, and again in the transaction of the first span. In order:
  rotate  1. the new active key   2. its span
  retire  1. the key opens no permit   2. its span
  revoke  1. a new active key, and the key opens no permit   2. the span of the new key   3. the credentials that it
          sealed, sealed anew   4. every row that it signed, signed anew, with its span, in one transaction after a full
          check (ADR-0023); where checkpoints are signed, one with the new key, so that the signer goes on believing
          its memory (ADR-0031)   5. what it signed proves nothing any more
A revocation that stops before 5 says so in `keys list`; its permits are void from 1 on, and history stays readable.
Key bytes never leave the ring: what is told of a key is its id, its state, and what it still opens.
"""

import re
from collections import Counter
from typing import Final

from audit.comparison import span_says
from issuer import answering
from issuer.checkpoints.notes import vkeys
from issuer.checkpoints.signing import renew
from issuer.clock import instant_text
from issuer.commands.edge import at_the_edge
from issuer.credentials import CredentialMissingError, reseal_credentials
from issuer.flow import spans
from issuer.flow.refusing import RefusedError
from issuer.flow.signed_act import acting
from issuer.house import House, Visit
from issuer.ids import new_key_id, random_bytes
from issuer.sealing import (
    KeyForbids,
    KeyState,
    KeysUnavailable,
    StorageFault,
    begin_revocation,
    end_revocation,
    retire_key,
    rotate_key,
    seal_key_id,
)
from issuer.sealing.keys import ROOT_BYTES
from issuer.wire import Answer
from ledger.changes import Step
from ledger.errors import Malformed
from ledger.model import InstantMs
from ledger.port import Verdict, View
from ledger.refusals import RefusalCode
from ledger.states import EffectState
from ledger.transitions import Transition, TransitionName

_KEY: Final = re.compile(r"[0-9a-f]{8}")

_OPENS: Final = {
    KeyState.ACTIVE: "seals, opens, proves, signs checkpoints",
    KeyState.OPEN_ONLY: "opens, proves",
    KeyState.RETIRED: "proves",
    KeyState.REVOKING: "proves until its revocation ends: give `issuer keys revoke` for it again",
    KeyState.REVOKED: "nothing",
}
_ROTATED_BEFORE: Final = "A rotation that was interrupted is on record now; no further key was made."
_REVOKED: Final = "The key proves nothing any more, and its permits are void."
_BACKUPS: Final = (
    "Backups from before cannot be restored any more: make a new one. Where its bytes may be known, change the secrets "
    "of the services as well."
)


def keys_list(visit: Visit) -> Answer:
    """Show every key of the ring: id, state, since when, what it is good for, and the live permits that it sealed.

    The answer's `keys` has `key`, `state`, `since` (None where it was never noted), `serves`, `permits`, `counts`
    (whether repetition is counted with it), and `vkey`, what its checkpoints are verified with.
    """

    def run() -> Answer:
        ring = visit.house.ring
        ring.notice()
        permits = _live_permits(visit.house)
        public = vkeys(ring, visit.house.ledger.ledger_id)
        rows: list[dict[str, object]] = []
        active = ring.active_key_id
        for key_id in sorted(ring.key_ids, key=lambda one: (one != active, one)):  # the one that seals first
            state, since = ring.state(key_id), ring.since_ms(key_id)
            rows.append(
                {
                    "key": _hex(key_id),
                    "state": str(state),
                    "since": None if since is None else instant_text(InstantMs(since)),
                    "serves": _OPENS[state],
                    "permits": permits[key_id],
                    "counts": key_id == ring.repetition_key_id,
                    "vkey": public[key_id],
                }
            )
        return answering.about(visit.house, "found", more={"keys": rows})

    return at_the_edge(visit, run)


def keys_rotate(visit: Visit) -> Answer:
    """Make a new active key; what the one before sealed still opens. Running processes go on, and learn of it."""

    def run() -> Answer:
        house = visit.house
        house.ring.notice()
        before = house.ring.active_key_id
        # One that a rotation made, and that is not on record, is what an interrupted rotation left.
        is_new = house.ring.since_ms(before) is None or _is_on_record(
            house, before, TransitionName.KEY_ROTATED
        )
        if is_new:
            rotate_key(
                house.places.keys, root=random_bytes(ROOT_BYTES), key_id=_drawn(house), now_ms=house.now()
            )
            house.observe("key_changed")
            house.ring.notice()
        _record(visit, TransitionName.KEY_ROTATED, house.ring.active_key_id)
        key = {"key": _hex(house.ring.active_key_id)}
        return answering.about(house, "rotated", say="" if is_new else _ROTATED_BEFORE, more=key)

    return at_the_edge(visit, run)


def keys_retire(visit: Visit, key: str) -> Answer:
    """Let an `open_only` key open no permit any more; its live permits are void, and history stays readable.

    A key that is active is refused as `malformed`, and so is what is no key id; one that the ring has not as
    `not_found`, one that is retired or revoked already as `nothing_to_change`.
    """

    def run() -> Answer:
        house, key_id = visit.house, _key_id(key)
        house.ring.notice()
        permits = _live_permits(house)[key_id]
        try:
            is_new = retire_key(house.places.keys, key_id, now_ms=house.now())
        except KeyForbids as no:
            raise _refused(no) from None
        house.observe("key_changed")
        house.ring.notice()
        if not is_new and _is_on_record(house, key_id, TransitionName.KEY_RETIRED):
            raise RefusedError(RefusalCode.NOTHING_TO_CHANGE, field="key")
        _record(visit, TransitionName.KEY_RETIRED, key_id, permits)
        return answering.about(house, "retired_now", more={"key": key, "permits_void": permits})

    return at_the_edge(visit, run)


def keys_revoke(visit: Visit, key: str) -> Answer:
    """Believe nothing any more that a compromised key sealed or signed; what it rightly signed is signed anew first.

    Refused as `keys_retire`, but for an active key, which may be revoked. Where the full check finds anything,
    the answer is `ledger_unavailable`, and the revocation waits before its last step.
    """

    def run() -> Answer:
        house, key_id = visit.house, _key_id(key)
        house.ring.notice()
        permits = _live_permits(house)[key_id]
        root, new = random_bytes(ROOT_BYTES), _drawn(house)
        try:
            begin_revocation(house.places.keys, key_id, root=root, new_key_id=new, now_ms=house.now())  # 1
        except KeyForbids as no:
            raise _refused(no) from None
        house.observe("key_changed")
        house.ring.notice()
        if house.ring.state(key_id) is KeyState.REVOKED:
            raise RefusedError(RefusalCode.NOTHING_TO_CHANGE, field="key")
        _record(visit, TransitionName.KEY_ROTATED, house.ring.active_key_id)  # 2
        _reseal(house, key_id)  # 3
        if not _is_on_record(house, key_id, TransitionName.KEY_REVOKED):
            house.resign(key_id, _transition(visit, TransitionName.KEY_REVOKED, key_id, permits))  # 4
        house.observe("key_resigned")
        renew(house)
        end_revocation(house.places.keys, key_id, now_ms=house.now())  # 5
        house.ring.notice()
        more = {"key": key, "active": _hex(house.ring.active_key_id), "permits_void": permits}
        return answering.about(house, "revoked_now", say=f"{_REVOKED} {_BACKUPS}", more=more)

    return at_the_edge(visit, run)


def _key_id(key: str) -> int:
    if _KEY.fullmatch(key) is None:
        raise Malformed(
            "wrong_type", "key", "A key is named by its 8 hex digits, as `issuer keys list` shows it."
        )
    return int(key, 16)


def _hex(key_id: int) -> str:
    return f"{key_id:08x}"


def _drawn(house: House) -> int:
    """Return a key id that the ring has not."""
    while True:
        key_id = new_key_id()
        if key_id not in house.ring.key_ids:
            return key_id


def _refused(no: KeyForbids) -> RefusedError:
    if no.reason == "unknown":
        return RefusedError(RefusalCode.NOT_FOUND, field="key")
    if no.reason == "active":
        say = "This key is the active one; run `issuer keys rotate` first, and retire it then."
        return RefusedError(RefusalCode.MALFORMED, field="key", say=say)
    return RefusedError(RefusalCode.NOTHING_TO_CHANGE, field="key")


def _live_permits(house: House) -> Counter[int | None]:
    """Count the permits that are neither used nor over, by the key that their seal names."""

    def look(view: View) -> Counter[int | None]:
        found = [view.permit(effect.effect_id) for effect in view.effects(states=(EffectState.PERMITTED,))]
        now = house.now()
        return Counter(
            seal_key_id(permit.seal) for permit in found if permit is not None and permit.expires_ms > now
        )

    return house.ledger.read(look)


def _is_on_record(house: House, key_id: int, name: TransitionName) -> bool:
    return house.ledger.read(lambda view: _in_trail(view, house, key_id, name))


def _in_trail(view: View, house: House, key_id: int, name: TransitionName) -> bool:
    return any(
        span.name == str(name) and span_says(span.body).get("permit.key.id") == _hex(key_id)
        for span in view.story(house.ledger.ledger_id)
    )


def _transition(
    visit: Visit, name: TransitionName, key_id: int, permits_void: int | None = None
) -> Transition:
    attributes = {**spans.common(visit), "permit.key.id": _hex(key_id)}
    if permits_void is not None:
        attributes["permit.count"] = permits_void
    return Transition(name=name, story=visit.house.ledger.ledger_id, attributes=attributes)


def _record(visit: Visit, name: TransitionName, key_id: int, permits_void: int | None = None) -> None:
    """Put a change of the ring on record, once: another process may have done so since."""

    def decide(view: View, _now: InstantMs) -> Verdict[None]:
        if _in_trail(view, visit.house, key_id, name):
            return Verdict(value=None)
        return Verdict(value=None, steps=(Step(transition=_transition(visit, name, key_id, permits_void)),))

    visit.house.ledger.transact(acting(visit, decide))


def _reseal(house: House, key_id: int) -> None:
    try:
        reseal_credentials(house.places.credentials, house.ring, key_id)
    except CredentialMissingError:
        raise KeysUnavailable(StorageFault.UNWRITABLE, house.places.credentials) from None
