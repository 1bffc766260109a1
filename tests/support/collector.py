"""A collector on a real socket: it says what it stored, and lies on demand.

While it is honest it reads each request with the official messages, keeps its spans and answers as a collector does. A
test says with `then` what happens to the next requests instead, one `Lie` each, or with `always` to all of them. A lie
gets what an honest collector would have stored, and says whether it is.
"""

import contextlib
import itertools
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from audit.otlp import bodies_in

PATIENCE_S: Final = 30.0
BACKLOG: Final = 64

Key = tuple[str, int, int, int]


@dataclass(frozen=True, kw_only=True)
class Lie:
    """What happens to one request: the raw bytes of the answer, whether it is stored, and how it ends."""

    raw: bytes = b""
    stores: bool = False
    hangs: bool = False
    pause_s: float = 0.0
    """Seconds between two bytes of the answer."""

    dies: bool = False
    """The collector is gone right after the answer, with everything that it stored."""


@dataclass(frozen=True, kw_only=True)
class Received:
    """One request as it arrived."""

    head: str
    fields: Mapping[str, str]
    body: bytes
    at: int = field(default_factory=itertools.count().__next__)


class Collector:
    """Serves from entering to leaving; a test reads `spans`, `requests` and `connections`."""

    def __init__(self, *, port: int = 0, keeps: bool = True) -> None:
        """Listen; one that does not keep says yes to everything and remembers no request."""
        self._keeps = keeps
        self._listener = socket.create_server(("127.0.0.1", port), backlog=BACKLOG)
        self.port: int = self._listener.getsockname()[1]
        self.spans: list[tuple[Key, bytes]] = []
        self.requests: list[Received] = []
        self.connections = 0
        self.batches: list[int] = []
        self._script: list[Lie] = []
        self._always: Lie | None = None
        self.never: Callable[[Key], bool] = lambda _key: False
        """Which spans it never takes: it rejects every request that has one of them, and stores nothing of it."""
        self._guard = threading.Lock()
        self.awake = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def url(self) -> str:
        """Where it takes spans."""
        return f"http://127.0.0.1:{self.port}/v1/traces"

    @property
    def sequences(self) -> list[int]:
        """The sequences that it stored, in order of arrival."""
        return [key[3] for key, _body in self.spans]

    def then(self, *lies: Lie) -> None:
        """Let these happen to the next requests."""
        with self._guard:
            self._script += lies

    def always(self, lie: Lie | None) -> None:
        """Let this happen to every request without a script; None is to be honest again."""
        with self._guard:
            self._always = lie
        if lie is None:
            self.awake.set()
        else:
            self.awake.clear()

    def lose_everything(self) -> None:
        """Forget what was stored, as a collector that kept it in memory does."""
        with self._guard:
            self.spans.clear()

    def __enter__(self) -> Self:
        """Begin to serve."""
        thread = threading.Thread(target=self._serve, daemon=True)
        self._threads.append(thread)
        thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _fault: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Stop, and let go of whoever hangs."""
        self.stop()
        for thread in self._threads:
            thread.join(PATIENCE_S)

    def stop(self) -> None:
        """Be gone: nobody listens at the port any more."""
        self.awake.set()
        # An accept that waits is not ended by closing alone.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _address = self._listener.accept()
            except OSError:
                return
            with self._guard:
                self.connections += 1
            thread = threading.Thread(target=self._answer, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(PATIENCE_S)
            received = _received(connection)
            if received is None:
                return
            if not self._keeps:
                connection.sendall(accepted())
                return
            with self._guard:
                self.requests.append(received)
                lie = self._script.pop(0) if self._script else self._always
            if lie is None and any(self.never(_key(body)) for body in bodies_in(received.body)):
                lie = Lie(raw=response(partial(1)))
            if lie is None or lie.stores:
                self._store(received)
            if lie is not None and lie.hangs:
                self.awake.wait(PATIENCE_S)
                return
            raw = accepted() if lie is None else lie.raw
            for part in _parts(raw, 0.0 if lie is None else lie.pause_s, self.awake):
                connection.sendall(part)
            if lie is not None and lie.dies:
                self.stop()

    def _store(self, received: Received) -> None:
        bodies = bodies_in(received.body)
        with self._guard:
            self.batches.append(len(bodies))
            self.spans += [(_key(body), body) for body in bodies]


def _parts(raw: bytes, pause_s: float, awake: threading.Event) -> Iterator[bytes]:
    if not pause_s:
        yield raw
        return
    for place in range(len(raw)):
        yield raw[place : place + 1]
        awake.wait(pause_s)


def _key(body: bytes) -> Key:
    held = json.loads(body)["attributes"]
    return (
        held["permit.ledger.id"],
        held["permit.epoch"],
        held["permit.lane"],
        held["permit.sequence"],
    )


def _received(connection: socket.socket) -> Received | None:
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return None
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(fields.get("content-length", "0")):
        more = connection.recv(65536)
        if not more:
            return None
        body += more
    return Received(head=first, fields=fields, body=body)


# ----------------------------------------------------------------------------------------------- answers


def response(
    body: bytes = b"",
    *,
    status: str = "200 OK",
    media_type: str = "application/x-protobuf",
    length: int | None = None,
    more: str = "",
) -> bytes:
    """Return the bytes of an answer; `length` is what it says of its body, where that is not so."""
    said = len(body) if length is None else length
    head = f"HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {said}\r\n{more}\r\n"
    return head.encode("latin-1") + body


def partial(rejected: int = 0, message: str = "") -> bytes:
    """Return the body of an answer with a partial success in it."""
    answer = ExportTraceServiceResponse()
    answer.partial_success.SetInParent()
    answer.partial_success.rejected_spans = rejected
    answer.partial_success.error_message = message
    return bytes(answer.SerializeToString())


def accepted() -> bytes:
    """Return the answer of a collector that accepted everything."""
    return response(partial())


HONEST: Final = Lie(raw=accepted(), stores=True)
"""No lie, for a place in a script."""

CANARY: Final = "canary-4711"
"""Stands in every lie that has text; nothing of an answer may be repeated."""

LYING: Final[Mapping[str, tuple[Lie, str]]] = {
    "one span rejected": (Lie(raw=response(partial(1, CANARY))), "rejected"),
    "all spans rejected": (Lie(raw=response(partial(256))), "rejected"),
    "rejected below zero": (Lie(raw=response(partial(-1))), "rejected"),
    "accepted with a message": (Lie(raw=response(partial(0, CANARY)), stores=True), "warned"),
    "a login page": (
        Lie(raw=response(f"<html>{CANARY}</html>".encode(), media_type="text/html")),
        "media_type",
    ),
    "json instead": (Lie(raw=response(b"{}", media_type="application/json")), "media_type"),
    "no media type": (Lie(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), "media_type"),
    "two media types": (
        Lie(raw=response(more="Content-Type: text/html\r\n")),
        "malformed",
    ),
    "a login page of the right type": (Lie(raw=response(f"<html>{CANARY}</html>".encode())), "not_otlp"),
    "garbage behind the message": (Lie(raw=response(partial() + b"garbage")), "not_otlp"),
    "a field of another protocol": (Lie(raw=response(b"\x12\x00")), "not_otlp"),
    "garbage behind the answer": (Lie(raw=accepted() + CANARY.encode(), stores=True), "trailing"),
    "201": (Lie(raw=response(status="201 Created"), stores=True), "status"),
    "202": (Lie(raw=response(status="202 Accepted")), "status"),
    "204": (Lie(raw=b"HTTP/1.1 204 No Content\r\n\r\n"), "status"),
    "206": (Lie(raw=response(status="206 Partial Content")), "status"),
    "301": (Lie(raw=response(status="301 Moved", more=f"Location: http://{CANARY}/\r\n")), "redirected"),
    "302": (Lie(raw=response(status="302 Found", more="Location: /login\r\n")), "redirected"),
    "304": (Lie(raw=b"HTTP/1.1 304 Not Modified\r\n\r\n"), "redirected"),
    "307 to itself": (Lie(raw=response(status="307 Again", more="Location: /v1/traces\r\n")), "redirected"),
    "400": (Lie(raw=response(CANARY.encode(), status=f"400 {CANARY}")), "status"),
    "401": (Lie(raw=response(status="401 Unauthorized")), "unauthorized"),
    "403": (Lie(raw=response(status="403 Forbidden")), "unauthorized"),
    "404": (Lie(raw=response(status="404 Not Found")), "status"),
    "413": (Lie(raw=response(status="413 Too Large")), "status"),
    "429": (Lie(raw=response(status="429 Too Many", more="Retry-After: 0\r\n")), "collector_busy"),
    "500": (Lie(raw=response(status="500 Oops")), "status"),
    "503": (Lie(raw=response(status="503 Busy", more="Retry-After: 0\r\n")), "collector_busy"),
    "299": (Lie(raw=response(status="299 Odd")), "status"),
    "compressed": (Lie(raw=response(b"\x1f\x8b", more="Content-Encoding: gzip\r\n")), "encoded"),
    "truncated": (Lie(raw=response(partial(), length=200), stores=True), "truncated"),
    "shorter than its message": (Lie(raw=response(partial(7), length=1)), "trailing"),
    "shorter than its message and cut": (Lie(raw=response(partial(7)[:1], length=1)), "not_otlp"),
    "two lengths": (Lie(raw=response(more="Content-Length: 5\r\n")), "malformed"),
    "a length below zero": (Lie(raw=response(length=-1)), "malformed"),
    "a length in words": (Lie(raw=response().replace(b"Length: 0", b"Length: zero")), "malformed"),
    "a length and chunks": (Lie(raw=response(more="Transfer-Encoding: chunked\r\n")), "malformed"),
    "no length": (
        Lie(raw=b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\n\r\n", stores=True),
        "no_length",
    ),
    "half a chunk": (
        Lie(
            raw=b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n5\r\nab"
        ),
        "malformed",
    ),
    "a long body": (Lie(raw=response(b"\x0a\x00" * 20_000)), "too_large"),
    "a header without an end": (Lie(raw=b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 90), "cut_off"),
    "cut before the end of a header that would do": (Lie(raw=response()[:-2], stores=True), "cut_off"),
    "cut behind the last chunk": (
        Lie(
            raw=b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n"
        ),
        "cut_off",
    ),
    "many headers": (Lie(raw=b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 400), "malformed"),
    "a header as large as a file": (Lie(raw=b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000), "too_large"),
    "no http": (Lie(raw=CANARY.encode() + b"\r\n"), "malformed"),
    "nothing": (Lie(stores=True), "cut_off"),
}
"""By what it is: the lie, and the reason word by which it is refused."""

HANGING: Final[Mapping[str, tuple[Lie, str]]] = {
    "hangs": (Lie(hangs=True, stores=True), "no_answer"),
    "a byte now and then": (Lie(raw=accepted(), pause_s=0.2), "no_answer"),
    "continues without an end": (Lie(raw=b"HTTP/1.1 100 Continue\r\n\r\n" * 3, hangs=True), "no_answer"),
}
"""Likewise, of what takes until the deadline."""
