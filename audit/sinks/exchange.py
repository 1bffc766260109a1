"""One HTTP request and its answer, read strictly: for what a sink tells another program.

Decides how bytes leave and come back. Rules: AUD-03 (no proxy, no certificate and no key log of the environment, no
redirect, no retry), AUD-02 (an answer counts whole or not at all), SEC-01 (nothing of an answer and nothing of a
credential stands in a fault). Each request has a connection of its own, and one deadline for all of its system calls.
The bytes of the request are written here, so that whatever a host put in the place of the client of `http.client` is
not asked; only the reader of answers is the library's.

It does not know what the answer means. Next: `audit.sinks.otlp`.
"""

import io
import re
import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

__all__ = ["BODY_BYTES_MAX", "Endpoint", "NotAnswered", "Reply", "exchange"]

BODY_BYTES_MAX: Final = 16 * 1024
"""Bytes of an answer's body: one that accepts everything has next to none."""

READ_BYTES_MAX: Final = 64 * 1024
"""Bytes that are read of an answer at all, its header with it."""

ADDRESSES_MAX: Final = 8
"""Addresses of one host that are tried; each is connected to at most once, and nothing was sent by then."""

_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}
_PRINTABLE: Final = re.compile(r"[!-~]+\Z")
_DIGITS: Final = re.compile(r"[0-9]{1,9}\Z")


class NotAnswered(Exception):  # noqa: N818 - what happened, like the faults of the house
    """There is no whole answer; `reason` is one of the words of `exchange`, and `message` a sentence of ours."""

    def __init__(self, reason: str, message: str) -> None:
        """Keep both."""
        super().__init__(reason, message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where requests go: scheme, host, port and request target, as the owner wrote them."""

    scheme: str
    host: str
    port: int
    target: str

    @classmethod
    def of(cls, url: str) -> "Endpoint":
        """Read a URL.

        Raises:
            ValueError: it is not http or https, or has user information, a fragment or what no request line may hold.
        """
        # The library leaves out line ends without a word.
        split = urlsplit(url if _PRINTABLE.match(url) else "")
        target = (split.path or "/") + (f"?{split.query}" if split.query else "")
        is_plain = split.username is None and split.password is None and not split.fragment
        if split.scheme not in _PORTS or not split.hostname or not is_plain:
            raise ValueError("an endpoint is http(s)://HOST[:PORT]/PATH")
        return cls(
            scheme=split.scheme,
            host=split.hostname,
            port=_PORTS[split.scheme] if split.port is None else split.port,
            target=target,
        )

    @property
    def host_header(self) -> str:
        """The Host field (RFC 9110, section 7.2)."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == _PORTS[self.scheme] else f"{name}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer: whole where its status is 200, and nothing but its status where that is another.

    `media_type` is in lower case and without parameters, and empty where none is named.
    """

    status: int
    media_type: str
    body: bytes


def exchange(endpoint: Endpoint, body: bytes, headers: Mapping[str, str], deadline: float) -> Reply:
    """Send one POST and return its answer.

    Args:
        endpoint: where to.
        body: what is sent.
        headers: fields beside those that follow from both.
        deadline: on the monotonic clock, in seconds.

    Raises:
        NotAnswered: `unresolved`, `connect_failed`, `tls_failed`, `no_answer` (the deadline passed), `cut_off` (the
            connection ended early), or, of what came back, `malformed`, `encoded`, `no_length`, `too_large`,
            `truncated` or `trailing`.
    """
    line = _Line(_connected(endpoint, deadline), deadline)
    reason, message = "cut_off", "The connection ended before the answer was whole."
    try:
        line.sendall(_request(endpoint, body, headers))
        return _read(line)
    except NotAnswered:
        raise
    except TimeoutError:
        reason, message = "no_answer", "No whole answer came within the deadline."
    except ConnectionError:
        pass
    except (HTTPException, ValueError):
        reason, message = "malformed", "What came back is no HTTP answer."
    except OSError:
        pass
    finally:
        line.shut()
    # Outside of the handlers: what the library raised may repeat what came back.
    raise NotAnswered(reason, message)


def _request(endpoint: Endpoint, body: bytes, headers: Mapping[str, str]) -> bytes:
    fields = {
        "Host": endpoint.host_header,
        **headers,
        "Content-Length": str(len(body)),
        "Accept-Encoding": "identity",
        "Connection": "close",
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST {endpoint.target} HTTP/1.1\r\n{head}\r\n".encode("ascii") + body


# --------------------------------------------------------------------------------------------- connecting


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the deadline passed")
    return left


def _connected(endpoint: Endpoint, deadline: float) -> socket.socket:
    """Connect to the first address that answers, and shake hands; nothing of the request is sent here."""
    try:
        found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)[:ADDRESSES_MAX]
    except (OSError, UnicodeError):
        found = []
    if not found:
        raise NotAnswered("unresolved", "The host of the sink has no address.")
    for number, (family, kind, protocol, _name, address) in enumerate(found):
        connection = socket.socket(family, kind, protocol)
        try:
            # An address that swallows everything leaves their share of the time to the others.
            connection.settimeout(_left(deadline) / (len(found) - number))
            connection.connect(address)
        except OSError:
            connection.close()
            continue
        return _secured(connection, endpoint, deadline)
    if time.monotonic() >= deadline:
        raise NotAnswered("no_answer", "No whole answer came within the deadline.")
    raise NotAnswered("connect_failed", "The sink cannot be connected to.")


def _secured(connection: socket.socket, endpoint: Endpoint, deadline: float) -> socket.socket:
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if endpoint.scheme == "http":
            return connection
        connection.settimeout(_left(deadline))
        # An end without close_notify is an error, as it cuts answers that end with the connection.
        return _tls().wrap_socket(connection, server_hostname=endpoint.host, suppress_ragged_eofs=False)
    except (OSError, ValueError):
        connection.close()
    raise NotAnswered("tls_failed", "The sink's certificate or its TLS cannot be trusted.")


@cache
def _tls() -> ssl.SSLContext:
    """Return a verifying client context that no environment variable reaches (as `issuer.operations` has it).

    Kept for the life of the process: to read what a machine trusts takes longer than everything else here.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    paths = ssl.get_default_verify_paths()
    file, folder = Path(paths.openssl_cafile), Path(paths.openssl_capath)
    if file.is_file() or folder.is_dir():
        # With neither, nothing is trusted, and every handshake fails.
        context.load_verify_locations(
            cafile=file if file.is_file() else None, capath=folder if folder.is_dir() else None
        )
    return context


# ------------------------------------------------------------------------------------------------ reading


class _Raw(io.RawIOBase):
    """What comes back, under one deadline and one bound, whatever the number of system calls."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        super().__init__()
        self._connection = connection
        self._deadline = deadline
        self._left_bytes = READ_BYTES_MAX
        self.is_over = False

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:  # noqa: ANN401 - a buffer, as the base class takes it
        if self.is_over:
            return 0
        if self._left_bytes <= 0:
            raise NotAnswered("too_large", "The answer is longer than any that accepts everything.")
        self._connection.settimeout(_left(self._deadline))
        count = self._connection.recv_into(into, min(len(into), self._left_bytes))
        self._left_bytes -= count
        return count


class _Buffered(io.BufferedReader):
    """A reader that the library's answer cannot close, so that what it left can be looked at.

    The library takes the end of the connection for the end of a header, so the last line is kept.
    """

    last_line = b""

    def readline(self, size: int | None = -1, /) -> bytes:
        self.last_line = super().readline(size)
        return self.last_line

    def close(self) -> None:
        """Do nothing; the connection is closed by whoever opened it."""


class _Line:
    """A connection as far as the reader of answers needs one."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline
        self._raw = _Raw(connection, deadline)
        self._reader = _Buffered(self._raw)

    def sendall(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            self._connection.settimeout(_left(self._deadline))
            view = view[self._connection.send(view) :]

    def demand_ended(self) -> None:
        """Refuse a header, or what follows the last chunk, that no empty line ends: it was cut."""
        if self._reader.last_line not in {b"\r\n", b"\n"}:
            raise NotAnswered("cut_off", "The connection ended before the answer was whole.")

    def makefile(self, _mode: str) -> io.BufferedReader:
        return self._reader

    def rest(self) -> bytes:
        """Return what arrived with the answer and is not part of it; asks the network for nothing."""
        self._raw.is_over = True
        return self._reader.read()

    def shut(self) -> None:
        self._raw.is_over = True
        with suppress(OSError):
            self._connection.close()


def _read(line: _Line) -> Reply:
    response = HTTPResponse(line, method="POST")  # type: ignore[arg-type]  # all that it asks of a socket is a file
    response.begin()
    line.demand_ended()
    if response.status != HTTPStatus.OK:
        return Reply(status=response.status, media_type="", body=b"")
    fields = response.headers
    lengths, types, codings = (
        fields.get_all(name, []) for name in ("Content-Length", "Content-Type", "Transfer-Encoding")
    )
    if max(len(lengths) + len(codings), len(types)) > 1 or not all(_DIGITS.match(one) for one in lengths):
        raise NotAnswered("malformed", "The answer names its length or its type twice.")
    if fields.get("Content-Encoding", "identity").strip().lower() != "identity":
        raise NotAnswered("encoded", "The answer is compressed, and none was asked for.")
    if not lengths and not response.chunked:
        raise NotAnswered("no_length", "The answer does not say how long it is, so it may have been cut.")
    body = response.read(BODY_BYTES_MAX + 1)
    if len(body) > BODY_BYTES_MAX:
        raise NotAnswered("too_large", "The answer is longer than any that accepts everything.")
    if lengths and len(body) != int(lengths[0]):
        raise NotAnswered("truncated", "The answer is shorter than it says.")
    line.demand_ended()
    if line.rest():
        raise NotAnswered("trailing", "The answer is followed by more.")
    media_type = types[0].partition(";")[0].strip().lower() if types else ""
    return Reply(status=response.status, media_type=media_type, body=body)
