"""HTTP connection: one connection to a pinned address, used for one request and one answer.

Decides how bytes leave and come back, for a sending as for a reading. Rules: EFF-02 (an address, never a name, is
connected to; the certificate is verified against the owner's literal host), REP-04 (until the first byte of the
request is handed over every failure is `NotDispatchedError`), SEC-01 (a secret stands in no exception and no
representation). No proxy, no setting of the environment, no retry, no second use of a connection; only a failed
connect goes on to the next pinned address, because then nothing was sent.

Not here: what is sent and what an answer means. Next: `issuer.operations.http_adapter` and `http_read`.
"""

import re
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from issuer.operations.contract import NotDispatchedError
from issuer.operations.http_target import Origin
from issuer.operations.repeating import repeats

__all__ = ["CREDENTIAL_BYTES_MAX", "Connector", "Exchange", "Message", "authorization"]

CREDENTIAL_BYTES_MAX: Final = 8 * 1024
"""Bytes of a bearer token: common servers take header lines up to this."""

_BEARER: Final = re.compile(rf"[!-~]{{1,{CREDENTIAL_BYTES_MAX}}}")


class Connector:
    """Connects to one origin."""

    def __init__(self, origin: Origin, *, ca_pem: str | None, ticks: Callable[[], float]) -> None:
        """Take the origin, the certificates to trust instead of the system's, and monotonic seconds.

        Raises:
            ValueError: `ca_pem` holds no certificates.
        """
        self._origin = origin
        self._ticks = ticks
        self._tls = _tls_context(ca_pem) if origin.scheme == "https" else None

    def left_s(self, end_s: float) -> float:
        """Return the seconds left before anything was sent.

        Raises:
            NotDispatchedError: `deadline_passed`.
        """
        left_s = end_s - self._ticks()
        if left_s <= 0:
            raise NotDispatchedError("deadline_passed")
        return left_s

    def connect(self, addresses: list[str], end_s: float) -> socket.socket:
        """Connect to the first pinned address that answers; nothing of the request is sent here.

        Raises:
            NotDispatchedError: `deadline_passed`, `connect_failed` or `tls_failed`.
        """
        for number, address in enumerate(addresses):
            # An address that swallows everything leaves their share of the time to the others.
            share_s = self.left_s(end_s) / (len(addresses) - number)
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
            left_s = self.left_s(end_s)
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


def authorization(credentials: Callable[[str], str], name: str | None) -> bytes:
    """Return the Authorization line for the credential of this name, or nothing; the secret stands in no exception.

    Raises:
        NotDispatchedError: `credential_missing` or `credential_unusable`.
    """
    if name is None:
        return b""
    secret: object = None
    # Whatever the store raised may quote the secret: it ends here, and is nobody's context.
    with suppress(Exception):
        secret = credentials(name)
    if type(secret) is not str:
        raise NotDispatchedError("credential_missing")
    if _BEARER.fullmatch(secret) is None:
        # The frame of this raise is in its traceback, and some loggers print the locals of frames.
        secret = None
        raise NotDispatchedError("credential_unusable")
    return f"Authorization: Bearer {secret}\r\n".encode("ascii")


def repeats_credential(text: str, credentials: Callable[[str], str], name: str | None) -> bool:
    """Say whether `text` repeats the credential of this name, in any form; yes where nobody can tell now."""
    if name is None or not text:
        return False
    try:
        line = authorization(credentials, name)
    except NotDispatchedError:
        return True
    return repeats(text, line.decode("ascii").split()[-1])


class Message:
    """Bytes with a credential in them: they have no representation."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        """Take the whole request."""
        self.data = data

    def __repr__(self) -> str:
        return "Message(...)"


class Exchange:
    """One request and one answer under one deadline, whatever the number of system calls."""

    __slots__ = ("_connection", "_end_s", "_ticks")

    def __init__(self, connection: socket.socket, end_s: float, ticks: Callable[[], float]) -> None:
        """Take the connection, the monotonic second of the deadline, and monotonic seconds."""
        self._connection = connection
        self._end_s = end_s
        self._ticks = ticks

    def _arm(self) -> None:
        left_s = self._end_s - self._ticks()
        if left_s <= 0:
            raise TimeoutError("the deadline of the exchange passed")
        self._connection.settimeout(left_s)

    def send(self, message: Message) -> None:
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
