"""A person's act, signed: the statement, its challenge, and what makes one signature good for one act (APP-01, SEC-02).

The core writes the statement, a person signs it with the own OpenSSH key, and it comes back with the command. Its last
line is canonical JSON with everything in it, and the lines above are made from that line alone: what a person reads and
what a machine compares cannot differ. In order:
  1. the statement is one that this core could have written, byte for byte   2. it is for this ledger in this epoch,
  for this command and exactly these arguments   3. its challenge is ours and in time   4. a key of the person that it
  names signed it   5. under the lock, in the act's own transaction: still in time, the key not revoked, the challenge
  not used before; and from there on it is used.
A signature for another act, another ledger, another namespace or another person says nothing here. Environment,
payload and arguments never take the place of one. A restore loses which challenges were used since, so it begins an
epoch, and no statement of another epoch counts (LED-08).
An act may come without an open issuer (`issuer.desk`), so all of this asks for is a `Signing`.
Next: `issuer.commands.roles` says which commands need one; `issuer.commands.edge` refuses.
"""

import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

from issuer.approving.recompute import machine_line
from issuer.caller import person_caller
from issuer.clock import instant_text
from issuer.flow.refusing import RefusedError
from issuer.house import House, Signed, SignedText, Visit
from issuer.ids import random_bytes
from issuer.profile import Profile
from issuer.sealing import KeyRing, Purpose
from issuer.sealing.ssh_signature import SignatureRefused, SshKey, signer_of
from ledger.authority import Ruling, RulingKind
from ledger.canonical import canonical_bytes, parse_strict
from ledger.changes import ChallengesDropped, Change, RulingMade
from ledger.errors import Fault, Malformed
from ledger.model import InstantMs, LedgerId
from ledger.port import Verdict, View
from ledger.refusals import Refusal, RefusalCode

T = TypeVar("T")

CHALLENGE_MS_MAX: Final = 10 * 60_000
"""How long a statement may wait for its signature: a person reads, finds the key, and types."""

STATEMENT_CHARS_MAX: Final = 64 * 1024
DROPPED_MAX: Final = 1000
"""Used challenges that one act drops, once their time is over; the next goes on."""

_NONCE_BYTES: Final = 16
_DOMAIN: Final = b"permit-issuer/act-challenge/v1\x00"
_TITLE: Final = "permit-issuer act, version 1"
_HEAD: Final = ("issuer", "ledger", "epoch", "command")
_MEMBERS: Final = (*_HEAD, "arguments", "who", "since", "until", "challenge", "mac")


@dataclass(frozen=True, slots=True, kw_only=True)
class Signing:
    """What statements are made and judged by, in an open issuer or without one.

    Attributes:
        epoch: that of the ledger; 1 and up.
        people: every person of the revision in force, with the registered keys.
        now: the clock, in milliseconds.
    """

    issuer: str
    ledger_id: LedgerId
    epoch: int
    ring: KeyRing
    people: Mapping[str, tuple[SshKey, ...]]
    now: Callable[[], InstantMs]


def people_of(profile: Profile) -> Mapping[str, tuple[SshKey, ...]]:
    """Return every person of a profile, with the registered keys."""
    return {name: tuple(profile.keys.get(name, ())) for name in profile.people}


def signing_of(house: House) -> Signing:
    """Return what statements of an open issuer are judged by.

    Raises:
        Fault: the ledger cannot be read, so nobody knows its epoch.
    """
    return Signing(
        issuer=house.issuer,
        ledger_id=house.ledger.ledger_id,
        epoch=house.ledger.read(lambda view: view.head()).epoch,
        ring=house.ring,
        people=people_of(house.profile),
        now=house.now,
    )


def said_arguments(arguments: Mapping[str, object]) -> dict[str, object]:
    """Return what a call says, as a statement holds it: None, False and an empty list are not said at all.

    An empty mapping is said: a task that names no class can do nothing, one that says nothing of classes can do what
    its parent can.
    """
    plain = {name: _plain(value) for name, value in arguments.items()}
    return {
        name: value for name, value in plain.items() if not (value is None or value is False or value == [])
    }


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, Path) else value


def act_statement(signing: Signing, command: str, arguments: Mapping[str, object], person: str) -> str:
    """Return the text that `person` has to sign for one act, with a fresh challenge.

    Raises:
        RefusedError: `unknown_reference`: the profile has no such person.
        Malformed: an argument has no canonical form.
    """
    if person not in signing.people:
        raise RefusedError(RefusalCode.UNKNOWN_REFERENCE, field="as")
    now, nonce = signing.now(), random_bytes(_NONCE_BYTES).hex()
    until = now + CHALLENGE_MS_MAX
    body: dict[str, object] = {
        "issuer": signing.issuer,
        "ledger": signing.ledger_id,
        "epoch": signing.epoch,
        "command": command,
        "arguments": said_arguments(arguments),
        "who": person,
        "since": now,
        "until": until,
        "challenge": nonce,
        "mac": _mac(signing, nonce, now, until),
    }
    return _text(body)


def _text(body: Mapping[str, object]) -> str:
    """Return a statement: lines for people, each argument escaped to ASCII on one line, and the line for machines."""
    arguments = body["arguments"]
    if not isinstance(arguments, dict):
        raise Malformed("wrong_type", "arguments", "a statement's arguments are an object")
    lines = [
        _TITLE,
        *(f"{name}: {_shown(body[name])}" for name in _HEAD),
        *(f"argument {_shown(name)}: {_shown(arguments[name])}" for name in sorted(arguments)),
        f"who: {_shown(body['who'])}",
        f"since: {_instant(body['since'])}",
        f"until: {_instant(body['until'])}",
        f"challenge: {_shown(body['challenge'])}",
    ]
    # ASCII as well: a terminal that shows it obeys nothing in it.
    return "\n".join(lines) + "\n" + machine_line(body)


def _shown(value: object) -> str:
    return json.dumps(value, ensure_ascii=True, sort_keys=True)


def _instant(value: object) -> str:
    if type(value) is not int:
        raise Malformed("wrong_type", "since", "an instant of a statement is a whole number")
    return instant_text(InstantMs(value))


def _mac(signing: Signing, nonce: str, since: int, until: int) -> str:
    said = canonical_bytes([signing.ledger_id, signing.epoch, nonce, since, until])
    return hmac.digest(signing.ring.subkey(Purpose.CHALLENGES), _DOMAIN + said, "sha256").hex()


def with_signature(visit: Visit, text: SignedText, arguments: Mapping[str, object]) -> Visit:
    """Return the visit as that of the person who signed, or with the refusal that the edge then makes of it.

    A host or an actor stays what it is: a person's signature does not lend it a person's rights (SEC-02).
    """
    try:
        signed = verified(signing_of(visit.house), visit.command, arguments, text)
    except Fault:  # nobody knows the epoch; the refusal meets the same fault, and the answer names it
        signed = _refusal("epoch")
    if isinstance(signed, Refusal):
        return replace(visit, trouble=signed)
    if visit.caller.is_agent:
        return replace(visit, signed=signed)
    caller = person_caller(visit.house.profile, signed.person, visit.caller.account)
    return replace(visit, caller=caller, signed=signed)


def verified(
    signing: Signing, command: str, arguments: Mapping[str, object], text: SignedText
) -> Signed | Refusal:
    """Judge 1 to 4: return who signed, or `signature_refused` with what is wrong; 5 is `refuse_used`'s."""
    try:
        return _verified(signing, command, said_arguments(arguments), text)
    except RefusedError as no:
        return no.refusal
    except (Malformed, OverflowError, ValueError):
        return _refusal("statement")


def _refusal(field: str) -> Refusal:
    return Refusal(code=RefusalCode.SIGNATURE_REFUSED, field=field)


def _demand(field: str, *, holds: bool) -> None:
    if not holds:
        raise RefusedError(RefusalCode.SIGNATURE_REFUSED, field=field)


def _verified(signing: Signing, command: str, arguments: Mapping[str, object], text: SignedText) -> Signed:
    body = _body(text.statement)  # 1
    _demand("ledger", holds=body["ledger"] == signing.ledger_id)  # 2
    _demand("epoch", holds=type(body["epoch"]) is int and body["epoch"] == signing.epoch)
    _demand("command", holds=body["command"] == command)
    _demand("arguments", holds=canonical_bytes(body["arguments"]) == canonical_bytes(dict(arguments)))
    nonce, since, until, mac = body["challenge"], body["since"], body["until"], body["mac"]  # 3
    if type(nonce) is not str or type(since) is not int or type(until) is not int or type(mac) is not str:
        raise RefusedError(RefusalCode.SIGNATURE_REFUSED, field="statement")
    ours = hmac.compare_digest(mac.encode(), _mac(signing, nonce, since, until).encode())
    _demand("challenge", holds=ours and 0 < until - since <= CHALLENGE_MS_MAX)
    _demand("expired", holds=signing.now() < until)
    person = str(body["who"])  # 4
    _demand("person", holds=person in signing.people)
    statement = text.statement.encode()
    try:
        key = signer_of(statement, text.signature, signing.people[person])
    except SignatureRefused as refused:
        raise RefusedError(RefusalCode.SIGNATURE_REFUSED, field=str(refused.reason)) from None
    return Signed(
        person=person,
        key=key.fingerprint,
        digest=hashlib.sha256(statement).hexdigest(),
        challenge=nonce,
        until_ms=InstantMs(until),
    )


def _body(statement: str) -> dict[str, object]:
    """Return what a statement says, if it is one that this core could have written."""
    _demand("statement", holds=type(statement) is str and len(statement) <= STATEMENT_CHARS_MAX)
    lines = statement.split("\n")
    _demand("statement", holds=len(lines) > 1 and lines[-1] == "")
    body = parse_strict(lines[-2].encode())
    if type(body) is not dict or sorted(body) != sorted(_MEMBERS):
        raise RefusedError(RefusalCode.SIGNATURE_REFUSED, field="statement")
    _demand("statement", holds=hmac.compare_digest(_text(body).encode(), statement.encode()))
    return body


def refuse_used(view: View, signed: Signed, now: InstantMs) -> Refusal | None:
    """Refuse what only the ledger tells of a signature: it is over, was used, or its key was revoked (5).

    The edge asks it in a read for every command, before anything outside the ledger changes; `once` under the lock.
    """
    if now >= signed.until_ms:
        return _refusal("expired")
    if view.ruling(RulingKind.CHALLENGE, signed.challenge) is not None:
        return _refusal("replayed")
    if view.ruling(RulingKind.KEY, signed.key) is not None:
        return _refusal("key")
    return None


def acting(
    visit: Visit, decide: Callable[[View, InstantMs], Verdict[T]]
) -> Callable[[View, InstantMs], Verdict[T]]:
    """Return `decide` as the signed act that it is: 5. What was not signed is decided as it is.

    An act that is refused uses no challenge, since nothing happened: the same statement may be given again in time.
    """
    return once(visit.signed, decide)


def once(
    signed: Signed | None, decide: Callable[[View, InstantMs], Verdict[T]]
) -> Callable[[View, InstantMs], Verdict[T]]:
    """Return `decide` as `acting` does, for an act that comes without an open issuer."""
    if signed is None:
        return decide

    def decided(view: View, now: InstantMs) -> Verdict[T]:
        no = refuse_used(view, signed, now)
        if no is not None:
            raise RefusedError(no.code, field=no.field)
        verdict = decide(view, now)
        if verdict.refusal is not None or not verdict.steps:
            return verdict
        first = verdict.steps[0]
        changes = (*first.changes, *_used(view, signed, now))
        return replace(verdict, steps=(replace(first, changes=changes), *verdict.steps[1:]))

    return decided


def _used(view: View, signed: Signed, now: InstantMs) -> tuple[Change, ...]:
    """Return what remembers a challenge as used, and what forgets those that nobody could use again anyway."""
    ruling = Ruling(
        kind=RulingKind.CHALLENGE, name=signed.challenge, value=str(signed.until_ms), since_ms=now
    )
    over = [one.name for one in view.rulings(RulingKind.CHALLENGE) if int(one.value) <= now][:DROPPED_MAX]
    dropped = (ChallengesDropped(names=tuple(over)),) if over else ()
    return (RulingMade(ruling=ruling), *dropped)
