"""HTTP adapter: sends one declared request to one declared service, once.

Decides what leaves and what the answer proves. Rules: EFF-02 (dispatch resolves nothing and connects to a
pinned address only), EFF-06 (preparation asks the resolver, never the service), OPR-01, REP-04..06.

1. Until the first byte of the request is handed to the kernel, a failure is `NotDispatchedError`. Only a
   failed connect goes on to the next pinned address, because then nothing was sent.
2. From that moment nothing here says "not sent" again: every exception passes, the outcome is unknown.
3. No redirect, no proxy, no setting of the environment, no retry, no second use of a connection.
4. The exchange has one deadline: the smaller of the operation's and the permit's rest.
5. A declared status proves what the owner declared, and only where the whole answer arrived: an answer cut
   short is `NOTHING`, even after a declared success status, because whatever cut it is not the service alone.
6. Of a body only what the owner declared is taken: a charge and the provider's reference. Where a declared
   charge cannot be read, the answer proves no end; that something happened is kept.
7. With `if_match` the entity tag that was read before the decision goes along, so that the service itself
   refuses a write to what has changed (RFC 9110, section 13.1.1).

Not here: reading before a decision (`http_before`) and inspection (`http_inspect`). Next: `issuer.flow`
settles the answer.
"""

from collections.abc import Callable
from typing import Final

from issuer.clock import steady_s
from issuer.operations.contract import (
    Answer,
    NotDispatchedError,
    Order,
    Preparation,
    PreparationRefusedError,
    Proof,
    Request,
)
from issuer.operations.declaration import Abilities, ConditionalWrite
from issuer.operations.http_answer import AnswerUnreadableError, ReceivedAnswer, read_answer
from issuer.operations.http_connection import Connector, Exchange, Message, authorization, repeats_credential
from issuer.operations.http_document import ANSWER_BYTES_MAX, read_document
from issuer.operations.http_settings import HttpSettings
from issuer.operations.http_tag import is_strong
from issuer.operations.http_target import (
    Resolver,
    checked_addresses,
    fill_effect_id,
    pin_addresses,
    read_origin,
    render_target,
    resolve_system,
)
from issuer.operations.implementation import implementation_digest
from ledger.canonical import canonical_bytes
from ledger.errors import Fault, Malformed
from ledger.model import EffectId

__all__ = ["AnswerUnreadableError", "HttpAdapter", "HttpSettings"]

_SIZING_EFFECT_ID: Final = EffectId("eff_" + "0" * 32)
"""Stands in for the identity while preparation measures the body; every identity has this length."""

_COSTING: Final = frozenset({Proof.SUCCEEDED, Proof.FAILED, Proof.PARTIAL})
"""Proofs beside which a declared charge has to be readable: what happened, or was tried, may have cost."""

_SOURCES: Final = (
    *("http_adapter.py", "http_answer.py", "http_connection.py", "http_document.py", "http_settings.py"),
    *("http_tag.py", "http_target.py", "templates.py", "contract.py", "implementation.py", "repeating.py"),
)
"""What decides about the bytes that leave and about what an answer proves (OPR-02)."""


class HttpAdapter:
    """Implements `contract.Adapter` for one declared request."""

    kind: Final = "http"

    def __init__(
        self,
        settings: HttpSettings,
        credentials: Callable[[str], str],
        *,
        resolve: Resolver = resolve_system,
        ticks: Callable[[], float] = steady_s,
    ) -> None:
        """Take the owner's request and where credentials are found.

        Args:
            settings: the request.
            credentials: name to secret; called at dispatch only. Whatever it raises means it is missing.
            resolve: host and port to addresses; called at preparation only.
            ticks: monotonic seconds, which no change of the wall clock moves.

        Raises:
            ValueError: `ca_pem` holds no certificates.
        """
        self._settings = settings
        self._origin = read_origin(settings.url)
        self._credentials = credentials
        self._resolve = resolve
        self._ticks = ticks
        self._connector = Connector(self._origin, ca_pem=settings.ca_pem, ticks=ticks)
        self._implementation = implementation_digest(self.kind, _SOURCES, settings.digest_body())

    def __repr__(self) -> str:
        return f"HttpAdapter({self._settings.method} {self._origin.scheme}://{self._origin.host_header})"

    @property
    def implementation(self) -> str:
        """Digest (hex) of source and settings (OPR-02)."""
        return self._implementation

    @property
    def abilities(self) -> Abilities:
        """What this request and its answers can carry (OPR-01)."""
        settings = self._settings
        return Abilities(
            proofs=frozenset(settings.proves.values()),
            conditional=ConditionalWrite.SERVICE if settings.if_match else ConditionalWrite.NONE,
            key=settings.once is not None,
            charges=bool(settings.parts.charged),
        )

    def prepare(self, request: Request) -> Preparation:
        """Render and resolve; the service hears nothing of it (EFF-06).

        Raises:
            PreparationRefusedError: `value_not_for_url`, `url_too_long`, `body_too_large` or
                `host_not_resolved`.
        """
        target = render_target(self._settings.url, self._origin, request)
        try:
            self._body(request, _SIZING_EFFECT_ID)
        except Malformed as fault:
            raise PreparationRefusedError(
                f"body_{fault.code}", None, "The body that these values make cannot be sent."
            ) from None
        fixed = self._destination(target)
        addresses = pin_addresses(self._origin, self._resolve)
        return Preparation(
            actual={
                "kind": self.kind,
                "url": f"{self._origin.scheme}://{self._origin.host_header}{target}",
            },
            destination={**fixed, "addresses": addresses},
        )

    def still_holds(self, request: Request, preparation: Preparation) -> str | None:
        """Return `destination_changed` where the same values now lead somewhere else; asks no resolver."""
        try:
            fixed = self._destination(render_target(self._settings.url, self._origin, request))
        except PreparationRefusedError:
            return "destination_changed"
        pinned = {name: value for name, value in preparation.destination.items() if name != "addresses"}
        return None if pinned == fixed else "destination_changed"

    def dispatch(self, order: Order) -> Answer:
        """Send once to a pinned address and say what the answer proves.

        Raises:
            NotDispatchedError: `deadline_passed`, `destination_changed`, `request_not_renderable`,
                `tag_missing`, `credential_missing`, `credential_unusable`, `connect_failed` or `tls_failed`.
            AnswerUnreadableError: something came back that is no answer; the outcome is unknown.
            OSError: the connection broke or the deadline passed after sending began; likewise unknown.
        """
        end_s = self._ticks() + min(float(self._settings.timeout_s), order.remaining_ms / 1000)
        self._connector.left_s(end_s)
        addresses = self._pinned_addresses(order)
        message = self._message(order)
        with self._connector.connect(addresses, end_s) as connection:
            self._connector.left_s(end_s)
            # The first byte may leave from here on: nothing below raises NotDispatchedError (REP-05).
            exchange = Exchange(connection, end_s, self._ticks)
            exchange.send(message)
            received = read_answer(
                exchange.receive,
                body_bytes_max=self._settings.response_bytes_max,
                kept_bytes_max=ANSWER_BYTES_MAX if self._settings.parts.are_wanted else 0,
            )
        return self._proven(received)

    def _proven(self, received: ReceivedAnswer) -> Answer:
        """Return what an answer proves: what its status was declared to, if it is whole and its charge can be read."""
        proof = self._settings.proves.get(received.status, Proof.NOTHING)
        source, parts = f"http:{received.status}", self._settings.parts
        if not received.is_whole:
            return Answer(proof=Proof.NOTHING, source=f"{source}:cut")
        if proof is Proof.NOTHING or not parts.are_wanted:
            return Answer(proof=proof, source=source)
        document = read_document(received.body)
        reference = parts.reference_in(document)
        if repeats_credential(reference, self._credentials, self._settings.bearer):
            reference = ""
        if not parts.charged or proof not in _COSTING:
            return Answer(proof=proof, source=source, reference=reference)
        charged = parts.charge_in(document)
        if charged is None:
            # Something happened, at a cost that nobody can tell: no success, and no later absence releases it (REC-05).
            kept = Proof.NOTHING if proof is Proof.FAILED else Proof.ACCEPTED
            return Answer(proof=kept, source=f"{source}:no_charge", reference=reference)
        return Answer(proof=proof, source=source, reference=reference, charged=charged)

    def _destination(self, target: str) -> dict[str, object]:
        """Everything that is pinned but the addresses; the credential by its name."""
        return {
            "kind": self.kind,
            "scheme": self._origin.scheme,
            "host": self._origin.host,
            "port": self._origin.port,
            "method": self._settings.method,
            "target": target,
            "credential": self._settings.bearer,
            "once": self._settings.once,
        }

    def _pinned_addresses(self, order: Order) -> list[str]:
        """Return the bound addresses, after the rest of the bound destination was compared with ours."""
        if self.still_holds(order.request, order.preparation) is not None:
            raise NotDispatchedError("destination_changed")
        pinned = order.preparation.destination.get("addresses")
        addresses = checked_addresses(pinned)
        if not addresses:
            raise NotDispatchedError("destination_changed")
        return addresses

    def _body(self, request: Request, effect_id: EffectId) -> bytes | None:
        """Return the canonical body, or None where the request has none; raises `Malformed`."""
        if self._settings.body is None:
            return None
        return canonical_bytes(
            {
                name: template.render_value(request.values, request.registries, effect_id)
                for name, template in self._settings.body.items()
            }
        )

    def _condition(self, preparation: Preparation) -> list[str]:
        """Return the If-Match line with the bound entity tag, where the operation has one."""
        if not self._settings.if_match:
            return []
        tag = preparation.preconditions.get("etag")
        if not is_strong(tag):
            raise NotDispatchedError("tag_missing")
        return [f"If-Match: {tag}"]

    def _message(self, order: Order) -> Message:
        """Return the whole request, as bytes that no representation shows."""
        settings = self._settings
        target = fill_effect_id(str(order.preparation.destination.get("target")), order.effect_id)
        try:
            body = self._body(order.request, order.effect_id)
        except Fault:
            raise NotDispatchedError("request_not_renderable") from None
        lines = [
            f"{settings.method} {target} HTTP/1.1",
            f"Host: {self._origin.host_header}",
            "User-Agent: permit-issuer",
            "Accept-Encoding: identity",
            "Connection: close",
            f"Content-Length: {0 if body is None else len(body)}",
            *([] if body is None else ["Content-Type: application/json"]),
            *(f"{name}: {value}" for name, value in settings.headers.items()),
            *([] if settings.once is None else [f"{settings.once}: {order.effect_id}"]),
            *self._condition(order.preparation),
        ]
        head = "\r\n".join(lines).encode("ascii") + b"\r\n"
        secret = authorization(self._credentials, settings.bearer)
        return Message(head + secret + b"\r\n" + (b"" if body is None else body))
