"""The statement of one effect: the exact bytes that a person reads and signs (APP-01, APP-02).

Rules:
1. It is a pure function of the effect, what it was bound to, and what was on record when a person was asked: made again
   it has the same bytes, or something that it says is no longer so, and then nobody's signature counts any more.
2. Public and sensitive fields stand in clear, each committed part with its salt (EFF-10). A secret field stands as its
   commitment; so does a part that an adapter derived and that repeats a secret (SEC-01), but for the owner's own words.
3. `challenge` is a keyed hash over act, effect and digest: nobody but this issuer can make a statement up, and what was
   signed once is about one act on one effect.
It shows nothing to anybody. Next: `issuer.flow.statements` gathers what it is made of; `issuer.approving.recompute` is
what the approver's tool does with it.
"""

import hmac
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from issuer.approving.recompute import SEPARATOR, VERSION, machine_line
from issuer.approving.rendering import Act, is_commitment, rendered
from issuer.flow.binding import Pinned, payload_part
from ledger.canonical import canonical_bytes, parse_strict
from ledger.model import DurationMs, Effect, InstantMs, LedgerId

__all__ = ["Asking", "Declining", "RegistryFact", "Since", "statement_bytes"]

_CHALLENGE_DOMAIN: Final = b"permit-issuer/statement-challenge/v1\x00"
_TELLING_CHARS: Final = 4
"""A secret shorter than this stands in any text by chance; only a value that equals it repeats it."""

_OWNERS_ALWAYS: Final = frozenset({"recipients"})
_OWNERS: Final = frozenset({"actual", "destination"})
_BUILT_IN: Final = frozenset({"http", "host", "file"})
"""Kinds of adapters that make these parts of the owner's templates; any other may put anything there."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Since:
    """Since when a row of a registry is exactly as it is.

    Attributes:
        at_ms: when the revision was put in force with which the row became so.
        revision: its digest.
        or_before: nobody can say what was before, so that it may have been so for longer.
    """

    at_ms: InstantMs
    revision: str
    or_before: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryFact:
    """The owner's row that a payload chose, every column of it, and since when it is so."""

    row: Mapping[str, str]
    since: Since


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """What was on record when people were asked, beside effect and binding.

    Attributes:
        issuer: the profile's name.
        zone: the owner's zone of the IANA database.
        registries: by payload field, the owner's row that it chose.
        permit_ms: how long a permit of it lasts at most.
        approvers: how many people of each group are asked.
        decision: the record of the decision that asked, as `issuer.flow.decide` wrote it.
        key: the subkey of challenges, 32 bytes.
    """

    issuer: str
    ledger_id: LedgerId
    zone: str
    task: str
    answers_to: str
    registries: Mapping[str, RegistryFact]
    permit_ms: DurationMs
    approvers: Mapping[str, int]
    asked_ms: InstantMs
    decision: Mapping[str, Any]
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Declining:
    """Why somebody declines: a word of a closed list, and a bounded reference or None (APP-05)."""

    reason: str
    reference: str | None = None


def statement_bytes(
    effect: Effect, pinned: Pinned, asking: Asking, declining: Declining | None = None
) -> bytes:
    """Return the statement of a yes, or with `declining` of a no, to `effect`; printable ASCII and line ends.

    `pinned` is what its binding was opened to and proven against.

    Raises:
        Malformed: it would be larger than any document of ours.
    """
    act = Act.APPROVE if declining is None else Act.DECLINE
    bound: Any = parse_strict(effect.binding)
    digest = effect.binding_digest
    machine: dict[str, Any] = {
        "v": VERSION,
        "act": str(act),
        "issuer": asking.issuer,
        "ledger": asking.ledger_id,
        "effect": effect.effect_id,
        "digest": digest.hex(),
        "binding": bound,
        "disclosed": _disclosed(pinned, bound),
        "expires_ms": effect.expires_ms,
        "challenge": _challenge(asking.key, act, effect.effect_id, digest),
        "class": effect.action_class,
        "task": asking.task,
        "answers_to": asking.answers_to,
        "registries": {name: _fact(fact, asking.zone) for name, fact in asking.registries.items()},
        "decision": {
            "policies": asking.decision["policies"],
            "obligations": asking.decision["obligations"],
            "bundle": asking.decision["bundle"],
            "earlier": asking.decision["facts"]["earlier"],
        },
        "approvers": dict(asking.approvers),
        "asked_ms": asking.asked_ms,
        "permit_ms": asking.permit_ms,
        "zone": asking.zone,
        "offsets": {
            "asked": _offset_min(asking.asked_ms, asking.zone),
            "answer_until": _offset_min(effect.expires_ms, asking.zone),
        },
    }
    if declining is not None:
        machine |= {"reason": declining.reason, "reference": declining.reference}
    return f"{rendered(machine)}{SEPARATOR}{machine_line(machine)}".encode("ascii")


def _fact(fact: RegistryFact, zone: str) -> dict[str, object]:
    since = fact.since
    return {
        "row": dict(fact.row),
        "since": {
            "at_ms": since.at_ms,
            "offset": _offset_min(since.at_ms, zone),
            "or_before": since.or_before,
            "revision": since.revision,
        },
    }


def _challenge(key: bytes, act: Act, effect_id: str, digest: bytes) -> str:
    said = canonical_bytes([str(act), effect_id, digest.hex()])
    return hmac.digest(key, _CHALLENGE_DOMAIN + said, "sha256").hex()


def _disclosed(pinned: Pinned, bound: Mapping[str, Any]) -> dict[str, object]:
    """Return value and salt of every committed part that an approver sees, by the part's name."""
    fields = pinned.operation.fields
    secrets = [pinned.values[one.name] for one in fields if one.exposure == "secret"]
    shown: dict[str, object] = {
        payload_part(one.name): pinned.values[one.name] for one in fields if one.exposure == "sensitive"
    }
    if is_commitment(bound["resource"]["id"]):
        shown["resource_id"] = pinned.resource_id
    shown |= {
        part: value
        for part, value in pinned.derived().items()
        if is_commitment(bound[part])
        and (_is_owners(pinned, part) or not any(_repeats(value, secret) for secret in secrets))
    }
    return {part: {"salt": pinned.salts[part], "value": value} for part, value in shown.items()}


def _is_owners(pinned: Pinned, part: str) -> bool:
    """Say whether a derived part is made of the owner's templates, where no secret field may stand.

    What a secret has in common with it, it has by chance, or because an actor chose it so to hide who receives
    something or where it goes: that is shown all the same (APP-02).
    """
    return part in _OWNERS_ALWAYS or (part in _OWNERS and pinned.operation.adapter.kind in _BUILT_IN)


def _repeats(value: object, secret: object) -> bool:
    """Say whether anything in a derived part is, or has in it, the value of a secret field."""
    word = str(secret)
    is_telling = len(word) >= _TELLING_CHARS
    return any(leaf == secret or (is_telling and word in str(leaf)) for leaf in _leaves(value))


def _leaves(value: object) -> Iterator[object]:
    if isinstance(value, Mapping):
        for name, member in value.items():
            yield name
            yield from _leaves(member)
    elif isinstance(value, list | tuple):
        for member in value:
            yield from _leaves(member)
    else:
        yield value


def _offset_min(instant: int, zone: str) -> int:
    """Return by how many minutes the owner's clock is ahead of UTC at an instant."""
    moment = _EPOCH + timedelta(milliseconds=instant)
    offset = moment.astimezone(ZoneInfo(zone)).utcoffset() or timedelta()
    return int(offset.total_seconds()) // 60
