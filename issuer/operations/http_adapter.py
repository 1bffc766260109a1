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

Not here: what a body says (no reference is taken), and inspection. Next: `issuer.flow` settles the answer.
"""

import re
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from issuer.operations.contract import (
    Answer,
    NotDispatchedError,
    Order,
    Preparation,
    PreparationRefusedError,
    Proof,
    Request,
)
from issuer.operations.declaration import Abilities
from issuer.operations.http_answer import AnswerUnreadableError, read_answer
from issuer.operations.http_settings import HttpSettings
from issuer.operations.http_target import (
    Resolver,
    is_address,
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

CREDENTIAL_BYTES_MAX: Final = 8 * 1024
"""Bytes of a bearer token: common servers take header lines up to this."""

_BEARER: Final = re.compile(rf"[!-~]{{1,{CREDENTIAL_BYTES_MAX}}}")

_SIZING_EFFECT_ID: Final = EffectId("eff_" + "0" * 32)
"""Stands in for the identity while preparation measures the body; every identity has this length."""

_SOURCES: Final = (
    *("http_adapter.py", "http_answer.py", "http_settings.py", "http_target.py", "templates.py"),
    *("contract.py", "implementation.py"),
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
        ticks: Callable[[], float] = time.monotonic,
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
        self._tls = _tls_context(settings.ca_pem) if self._origin.scheme == "https" else None
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
        return Abilities(
            proofs=frozenset(self._settings.proves.values()), key=self._settings.once is not None
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
                `credential_missing`, `credential_unusable`, `connect_failed` or `tls_failed`.
            AnswerUnreadableError: something came back that is no answer; the outcome is unknown.
            OSError: the connection broke or the deadline passed after sending began; likewise unknown.
        """
        end_s = self._ticks() + min(float(self._settings.timeout_s), order.remaining_ms / 1000)
        self._left_s(end_s)
        addresses = self._pinned_addresses(order)
        message = self._message(order)
        connection = self._connect(addresses, end_s)
        with connection:
            self._left_s(end_s)
            # The first byte may leave from here on: nothing below raises NotDispatchedError (REP-05).
            exchange = _Exchange(connection, end_s, self._ticks)
            exchange.send(message)
            received = read_answer(exchange.receive, body_bytes_max=self._settings.response_bytes_max)
        proof = self._settings.proves.get(received.status, Proof.NOTHING)
        if not received.is_whole:
            return Answer(proof=Proof.NOTHING, source=f"http:{received.status}:cut")
        return Answer(proof=proof, source=f"http:{received.status}")

    def _left_s(self, end_s: float) -> float:
        """Return the seconds left before anything was sent."""
        left_s = end_s - self._ticks()
        if left_s <= 0:
            raise NotDispatchedError("deadline_passed")
        return left_s

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
        addresses = list(pinned) if isinstance(pinned, list | tuple) else []
        # A name in this place would be resolved by the connect below, which is what pinning forbids.
        if not addresses or not all(type(address) is str and is_address(address) for address in addresses):
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

    def _message(self, order: Order) -> "_Message":
        """Return the whole request, as bytes that no representation shows."""
        settings = self._settings
        target = order.preparation.destination.get("target")
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
        ]
        head = "\r\n".join(lines).encode("ascii") + b"\r\n"
        return _Message(head + self._authorization() + b"\r\n" + (b"" if body is None else body))

    def _authorization(self) -> bytes:
        """Return the Authorization line, or nothing; the secret stands in no exception."""
        name = self._settings.bearer
        if name is None:
            return b""
        secret: object = None
        # Whatever the store raised may quote the secret: it ends here, and is nobody's context.
        with suppress(Exception):
            secret = self._credentials(name)
        if type(secret) is not str:
            raise NotDispatchedError("credential_missing")
        if _BEARER.fullmatch(secret) is None:
            # The frame of this raise is in its traceback, and some loggers print the locals of frames.
            secret = None
            raise NotDispatchedError("credential_unusable")
        return f"Authorization: Bearer {secret}\r\n".encode("ascii")

    def _connect(self, addresses: list[str], end_s: float) -> socket.socket:
        """Connect to the first pinned address that answers; nothing of the request is sent here."""
        for number, address in enumerate(addresses):
            # An address that swallows everything leaves their share of the time to the others.
            share_s = self._left_s(end_s) / (len(addresses) - number)
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            connection = socket.socket(family, socket.SOCK_STREAM)
            try:
                connection.settimeout(share_s)
                connection.connect((address, self._origin.port))
            except OSError:
                connection.close()
                continue
            return self._secured(connection, end_s)
        raise NotDispatchedError("connect_failed")

    def _secured(self, connection: socket.socket, end_s: float) -> socket.socket:
        """Return the connection after the TLS handshake, in which nothing of the request is sent."""
        try:
            left_s = self._left_s(end_s)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.settimeout(left_s)
            if self._tls is None:
                return connection
            # An end without close_notify is an error, as it cuts answers that end with the connection.
            return self._tls.wrap_socket(
                connection, server_hostname=self._origin.host, suppress_ragged_eofs=False
            )
        except (OSError, ValueError):
            connection.close()
        except NotDispatchedError:
            connection.close()
            raise
        raise NotDispatchedError("connect_failed" if self._tls is None else "tls_failed")


class _Message:
    """Bytes with a credential in them: they have no representation."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __repr__(self) -> str:
        return "_Message(...)"


class _Exchange:
    """One request and one answer under one deadline, whatever the number of system calls."""

    __slots__ = ("_connection", "_end_s", "_ticks")

    def __init__(self, connection: socket.socket, end_s: float, ticks: Callable[[], float]) -> None:
        self._connection = connection
        self._end_s = end_s
        self._ticks = ticks

    def _arm(self) -> None:
        left_s = self._end_s - self._ticks()
        if left_s <= 0:
            raise TimeoutError("the deadline of the exchange passed")
        self._connection.settimeout(left_s)

    def send(self, message: _Message) -> None:
        """Send everything, or raise `OSError` with an unknown part of it sent."""
        view = memoryview(message.data)
        while view:
            self._arm()
            view = view[self._connection.send(view) :]

    def receive(self, count: int) -> bytes:
        """Wait for bytes; empty at the end."""
        self._arm()
        return self._connection.recv(count)


def _tls_context(ca_pem: str | None) -> ssl.SSLContext:
    """Return a verifying client context that no environment variable reaches.

    `ssl.create_default_context` would write the session keys to SSLKEYLOGFILE and trust SSL_CERT_FILE.

    Raises:
        ValueError: the owner's certificates cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca_pem is not None:
        try:
            context.load_verify_locations(cadata=ca_pem)
        except (ssl.SSLError, ValueError):
            raise ValueError("ca_pem holds no certificates in PEM form.") from None
        return context
    paths = ssl.get_default_verify_paths()
    file, folder = Path(paths.openssl_cafile), Path(paths.openssl_capath)
    if file.is_file() or folder.is_dir():
        # With neither, nothing is trusted, and every handshake fails before a byte is sent.
        context.load_verify_locations(
            cafile=file if file.is_file() else None, capath=folder if folder.is_dir() else None
        )
    return context
