"""HTTP before: what is read from a service before a decision, bound as precondition, and read again before a commit.

Decides what of one declared answer is taken, and when it counts as the same. Rules: EFF-06 (declared reads, to the
declared destination), EFF-07 (another entity tag or another fact, and the old binding cannot commit), POL-02 (facts
are known to the issuer, not said by an actor), ADR-0022.

1. Preparation resolves the owner's literal host, once for a read and a sending to one origin, reads once, and pins
   where it read beside what it read.
2. A commit reads again at the pinned addresses, and compares. Between that and the write the service may still
   change; only `http.if_match` closes that window, because then the service itself compares.
3. Whatever cannot be read as declared is `TargetUnreadableError`: a fact that is missing is not false.

Next: `issuer.operations.http_adapter` sends; `issuer.flow.decide` tells policies the facts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Final, Literal

from issuer.operations.contract import (
    Adapter,
    Answer,
    Order,
    Preparation,
    PreparationRefusedError,
    Request,
    TargetUnreadableError,
)
from issuer.operations.declaration import NO_ABILITIES, Abilities
from issuer.operations.http_answer import ReceivedAnswer
from issuer.operations.http_document import ANSWER_BYTES_MAX
from issuer.operations.http_read import READ_SOURCES, HttpReader
from issuer.operations.http_tag import read_tag
from issuer.operations.http_target import checked_addresses
from issuer.operations.implementation import implementation_digest, template_parts
from issuer.operations.templates import Template
from ledger.canonical import parse_strict
from ledger.errors import Malformed

__all__ = ["BeforeSettings", "FactKind", "ReadingAdapter"]

FactKind = Literal["bool", "int", "string"]

_SOURCES: Final = (*READ_SOURCES, "http_before.py", "http_tag.py")
_TYPES: Final[Mapping[FactKind, type]] = {"bool": bool, "int": int, "string": str}
_OWN: Final = frozenset({"etag", "facts", "read"})
"""Preconditions that are this module's; the others are the adapter's own."""

_WORDS: Final[Mapping[int, str]] = {
    HTTPStatus.UNAUTHORIZED: "access_refused",
    HTTPStatus.FORBIDDEN: "access_refused",
    HTTPStatus.NOT_FOUND: "not_found",
    HTTPStatus.GONE: "not_found",
    HTTPStatus.TOO_MANY_REQUESTS: "too_many_requests",
}
_WORDS_OF_KIND: Final[Mapping[int, str]] = {3: "redirected", 4: "request_refused", 5: "service_failed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeSettings:
    """One declared read.

    Attributes:
        url: literal origin, then placeholders; the effect id is none of them.
        bearer: *name* of a credential, or None.
        etag: whether the answer's strong entity tag becomes a precondition.
        facts: member of the answer's top level to its kind.
    """

    url: Template
    bearer: str | None = None
    etag: bool = False
    facts: Mapping[str, FactKind] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse, with a `ValueError`, a read that depends on the effect or that takes nothing."""
        if any(place.is_effect_id for place in self.url.placeholders):
            raise ValueError("What is read before a decision does not depend on the effect's identity.")
        if not self.etag and not self.facts:
            raise ValueError("A read takes an entity tag, facts, or both.")

    def digest_body(self) -> dict[str, object]:
        """Return all settings as JSON values, for the implementation digest (OPR-02)."""
        return {
            "url": template_parts(self.url),
            "bearer": self.bearer,
            "etag": self.etag,
            "facts": dict(self.facts),
        }


class ReadingAdapter:
    """Implements `contract.Adapter`: another adapter, whose target is looked at at a service first."""

    def __init__(self, inner: Adapter, settings: BeforeSettings, reader: HttpReader) -> None:
        """Take the adapter that sends, the owner's read, and the reader for its address."""
        self._inner = inner
        self._settings = settings
        self._reader = reader
        self._known = ("", "")
        self._known = (inner.implementation, self.implementation)

    @property
    def kind(self) -> str:
        """The word for the adapter that sends."""
        return self._inner.kind

    @property
    def implementation(self) -> str:
        """Digest (hex) of this code, its settings, and the implementation that sends, as it is now (OPR-02)."""
        sends, known = self._inner.implementation, self._known
        if known[0] == sends:
            return known[1]
        said = {"sends": sends, "before": self._settings.digest_body()}
        return implementation_digest(self._inner.kind, _SOURCES, said)

    @property
    def abilities(self) -> Abilities:
        """Those of the adapter that sends: reading adds none (OPR-01)."""
        said = getattr(self._inner, "abilities", NO_ABILITIES)
        return said if isinstance(said, Abilities) else NO_ABILITIES

    def prepare(self, request: Request) -> Preparation:
        """Prepare the sending, then read once (EFF-06).

        Raises:
            PreparationRefusedError: the target cannot be prepared.
            TargetUnreadableError: it cannot be read as declared.
        """
        inner = self._inner.prepare(request)
        target, addresses = self._reader.target(request), self._addresses(inner)
        where = {"url": self._reader.origin + target, "addresses": addresses}
        seen = self._seen(target, addresses)
        return replace(inner, preconditions={**inner.preconditions, **seen, "read": where})

    def still_holds(self, request: Request, preparation: Preparation) -> str | None:
        """Return None where sending and target are as they were, else `etag`, the fact's name, or the adapter's word.

        Raises:
            TargetUnreadableError: the target cannot be read now; nothing is known about it.
        """
        changed = self._inner.still_holds(request, _without_reads(preparation))
        if changed is not None:
            return changed
        where = preparation.preconditions.get("read")
        pinned: Mapping[str, object] = where if isinstance(where, Mapping) else {}
        try:
            target = self._reader.target(request)
        except PreparationRefusedError:
            return "destination_changed"
        addresses = checked_addresses(pinned.get("addresses"))
        if not addresses or pinned.get("url") != self._reader.origin + target:
            return "destination_changed"
        return _difference(preparation.preconditions, self._seen(target, addresses))

    def dispatch(self, order: Order) -> Answer:
        """Send; the adapter that sends sees the entity tag only where it sends it along.

        Raises:
            NotDispatchedError: nothing was sent, provably.
        """
        if self.kind != "http":
            order = replace(order, preparation=_without_reads(order.preparation))
        return self._inner.dispatch(order)

    def _addresses(self, sending: Preparation) -> list[str]:
        """Return where to read: where the sending goes, if it is the same origin, so that both see one service."""
        if str(sending.actual.get("url", "")).startswith(f"{self._reader.origin}/"):
            return checked_addresses(sending.destination.get("addresses")) or self._reader.addresses()
        return self._reader.addresses()

    def _seen(self, target: str, addresses: list[str]) -> dict[str, object]:
        """Read once and return what was declared of it."""
        received = self._reader.get(target, addresses)
        if received.status != HTTPStatus.OK:
            word = _WORDS.get(received.status) or _WORDS_OF_KIND.get(received.status // 100)
            raise TargetUnreadableError(word or "unexpected_status")
        seen: dict[str, object] = {}
        if self._settings.etag:
            seen["etag"] = read_tag(received.header(b"etag"))
        if self._settings.facts:
            seen["facts"] = _read_facts(received, self._settings.facts)
        return seen


def _read_facts(received: ReceivedAnswer, kinds: Mapping[str, FactKind]) -> dict[str, object]:
    """Return the declared members of an answer, each of exactly its kind.

    Raises:
        TargetUnreadableError: the code of the strict reader, `not_an_object`, `fact_missing` or `fact_wrong_type`.
    """
    document: object = None
    code: str | None = None
    try:
        document = parse_strict(received.body or b"", bytes_max=ANSWER_BYTES_MAX)
    except Malformed as fault:
        code = fault.code
    if code is not None:
        raise TargetUnreadableError(code)
    if type(document) is not dict:
        raise TargetUnreadableError("not_an_object")
    for name, kind in kinds.items():
        if name not in document:
            raise TargetUnreadableError("fact_missing")
        if type(document[name]) is not _TYPES[kind]:
            raise TargetUnreadableError("fact_wrong_type")
    return {name: document[name] for name in kinds}


def _difference(bound: Mapping[str, object], seen: Mapping[str, object]) -> str | None:
    """Return what is not as it was bound: `etag` or a fact's name, in declared order."""
    if bound.get("etag") != seen.get("etag"):
        return "etag"
    before, now = bound.get("facts"), seen.get("facts")
    known: Mapping[str, object] = before if isinstance(before, Mapping) else {}
    found: Mapping[str, object] = now if isinstance(now, Mapping) else {}
    for name in (*found, *known):
        # 1 and true are equal in Python, and nothing but the same for a policy.
        if type(known.get(name)) is not type(found.get(name)) or known.get(name) != found.get(name):
            return name
    return None


def _without_reads(preparation: Preparation) -> Preparation:
    """Return a preparation as the adapter that sends made it."""
    own = {name: value for name, value in preparation.preconditions.items() if name not in _OWN}
    return replace(preparation, preconditions=own)
