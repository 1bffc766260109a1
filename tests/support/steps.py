"""What a scripted service does to one connection: the steps of a script, one function each.

A step says when it acts (before a byte is read, or on a request), whether the effect happens, and which
bytes leave. Nothing here waits for a fixed time to be right, except where a client's deadline is the subject:
`held` and `hang` wait for a gate. Next: `tests.support.service` runs them.
"""

import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

KEY_HEADER: Final = "idempotency-key"
PATIENCE_S: Final = 30.0
"""Longest wait of anything here: a test that is wrong ends, and one that is right never comes near it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One request as it arrived; header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def key(self) -> str:
        """The idempotency key, or empty."""
        return self.headers.get(KEY_HEADER, "")


@dataclass(slots=True, kw_only=True)
class RecordedEffect:
    """Something the service did. It can be looked up once `visible` says so."""

    key: str
    received: Received
    visible: Callable[[], bool] = field(default=lambda: True)


class Stage(Protocol):
    """What a step may use of the service that runs it."""

    @property
    def closing(self) -> threading.Event:
        """Set when the service ends."""
        ...

    def gate(self, name: str) -> threading.Event:
        """Return the barrier of this name."""
        ...

    def hold(self, gate: threading.Event, connection: socket.socket) -> None:
        """Wait until the gate opens, the service closes or the client leaves."""
        ...

    def add_effect(self, effect: RecordedEffect) -> None:
        """Record an effect."""
        ...


class Exchange:
    """One connection while a step acts on it."""

    def __init__(self, service: Stage, connection: socket.socket, received: Received | None) -> None:
        self.service = service
        self.connection = connection
        self.received = received

    def send(self, data: bytes) -> None:
        """Send bytes; a client that has gone is the test's business."""
        with suppress(OSError):
            self.connection.sendall(data)

    def record(self, visible: Callable[[], bool] = lambda: True) -> None:
        """Do the effect of this request."""
        if self.received is not None:
            self.service.add_effect(
                RecordedEffect(key=self.received.key, received=self.received, visible=visible)
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What happens to one connection. `reads` is False where it acts before a byte is read."""

    name: str
    act: Callable[[Exchange], None]
    reads: bool = True


def response(status: int, headers: Mapping[str, str] | None = None, body: bytes = b"{}") -> bytes:
    """Return a complete response; a header given here replaces the one that would be made."""
    lines = {"content-length": str(len(body)), "content-type": "application/json"} | dict(headers or {})
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value)
    return f"HTTP/1.1 {status} Said\r\n{head}\r\n".encode() + body


def answer(
    status: int = 201,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"{}",
    *,
    effect: bool | None = None,
) -> Step:
    """Answer completely; the effect happens for 2xx unless `effect` says otherwise."""
    happens = 200 <= status < 300 if effect is None else effect

    def act(exchange: Exchange) -> None:
        if happens:
            exchange.record()
        exchange.send(response(status, headers, body))

    return Step(name="answer", act=act)


def shows(
    body: bytes = b"{}",
    *,
    tag: str | None = None,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Step:
    """Answer a read: no effect, whatever the status; `tag` is the entity tag with its quotes."""
    tags = {} if tag is None else {"etag": tag}
    return answer(status, tags | dict(headers or {}), body, effect=False)


def redirect(location: str, status: int = 302) -> Step:
    """Send the client somewhere else; no effect."""
    return answer(status, {"location": location}, b"", effect=False)


def raw(data: bytes, *, effect: bool = True, name: str = "raw") -> Step:
    """Do the effect, send exactly these bytes, close."""

    def act(exchange: Exchange) -> None:
        if effect:
            exchange.record()
        exchange.send(data)

    return Step(name=name, act=act)


def accept_then_close() -> Step:
    """Do the effect, close without a word."""
    return raw(b"", name="accept_then_close")


def half_answer(status: int = 201) -> Step:
    """Do the effect, send the status line, close."""
    return raw(f"HTTP/1.1 {status} Said\r\n".encode(), name="half_answer")


def cut_body(status: int = 201, promised: int = 1000, body: bytes = b'{"id":') -> Step:
    """Do the effect, promise more bytes than are sent, close."""
    return raw(response(status, {"content-length": str(promised)}, body), name="cut_body")


def garbage(data: bytes = b"\x00\xff\x16\x03not http at all\r\n\r\n") -> Step:
    """Do the effect, answer with something that is no HTTP."""
    return raw(data, name="garbage")


def interim(status: int = 103, times: int = 1, final: int | None = 201) -> Step:
    """Do the effect; send interim responses (100 Continue, 103 Early Hints), then the final one, if any."""
    hints = f"HTTP/1.1 {status} Wait\r\nlink: </x>; rel=preload\r\n\r\n".encode() * times
    return raw(hints + (b"" if final is None else response(final)), name="interim")


def close_before_read() -> Step:
    """Accept the connection and close it unread."""
    return Step(name="close_before_read", act=lambda _exchange: None, reads=False)


def reset(*, reads: bool = True, effect: bool = False) -> Step:
    """Send RST instead of FIN: SO_LINGER with zero seconds."""

    def act(exchange: Exchange) -> None:
        if effect:
            exchange.record()
        exchange.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    return Step(name="reset", act=act, reads=reads)


def accept_late(gate: str = "late", seconds: float | None = None) -> Step:
    """Close without a word; the effect becomes visible after `seconds`, or when the gate is opened."""

    def act(exchange: Exchange) -> None:
        if seconds is None:
            exchange.record(exchange.service.gate(gate).is_set)
        else:
            since = time.monotonic()
            exchange.record(lambda: time.monotonic() >= since + seconds)

    return Step(name="accept_late", act=act)


def duplicate(status: int = 201) -> Step:
    """Do the effect twice, answer once: a service without idempotency behind a proxy that repeats."""

    def act(exchange: Exchange) -> None:
        exchange.record()
        exchange.record()
        exchange.send(response(status))

    return Step(name="duplicate", act=act)


def hang(gate: str = "hang", *, effect: bool = False, reads: bool = True) -> Step:
    """Say nothing until the gate is opened or the client leaves, then close."""

    def act(exchange: Exchange) -> None:
        if effect:
            exchange.record()
        exchange.service.hold(exchange.service.gate(gate), exchange.connection)

    return Step(name="hang", act=act, reads=reads)


def held(gate: str, then: Step) -> Step:
    """Read, wait for the gate, go on with another step."""

    def act(exchange: Exchange) -> None:
        exchange.service.hold(exchange.service.gate(gate), exchange.connection)
        then.act(exchange)

    return Step(name=f"held {then.name}", act=act, reads=then.reads)


def delay(seconds: float, then: Step) -> Step:
    """Read, wait, go on with another step. For clients that have a deadline; tests prefer `held`."""

    def act(exchange: Exchange) -> None:
        exchange.service.closing.wait(min(seconds, PATIENCE_S))
        then.act(exchange)

    return Step(name=f"delayed {then.name}", act=act, reads=then.reads)


def slow_drip(data: bytes | None = None, gap_s: float = 0.05, *, effect: bool = True) -> Step:
    """Do the effect, then send a response byte by byte: each arrives in time, the whole may not."""

    def act(exchange: Exchange) -> None:
        if effect:
            exchange.record()
        for byte in response(201) if data is None else data:
            try:
                exchange.connection.sendall(bytes([byte]))
            except OSError:
                return
            if exchange.service.closing.wait(gap_s):
                return

    return Step(name="slow_drip", act=act)


STEPS: Final[Mapping[str, Callable[..., Step]]] = {
    step.__name__: step
    for step in (
        *(
            answer,
            shows,
            redirect,
            accept_then_close,
            half_answer,
            cut_body,
            interim,
            close_before_read,
            reset,
        ),
        *(accept_late, duplicate, hang, held, slow_drip, garbage),
    )
}
"""What a script in JSON may name."""
