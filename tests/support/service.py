"""A scripted HTTP service on real sockets: it does to one request what services, proxies and networks do.

A test says in advance what happens to each connection, one `Step` after the other, and afterwards reads what
arrived: connections, requests and *effects* are counted apart, because an effect without an answer and an
answer without an effect are the whole point. An effect is identified by the idempotency key of its request.
`GET …?key=KEY` looks effects up and takes no step of the script.

Nothing here waits for a fixed time to be right: `gate(name)` holds a step until the test opens it, and
`wait_for` returns as soon as something has been counted. It knows nothing of the issuer and imports only the
standard library. Started as `python -m tests.support.service` it serves until its standard input ends: it
prints one JSON line with its port, then takes lines like
`{"script": [["answer", {"status": 201}]], "open": ["hang"]}`, both optional, and answers with its counts.
"""

import json
import socket
import ssl
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Final, Self
from urllib.parse import parse_qs, urlsplit

from tests.support.steps import (
    PATIENCE_S,
    STEPS,
    Exchange,
    Received,
    RecordedEffect,
    Step,
    accept_late,
    accept_then_close,
    answer,
    close_before_read,
    cut_body,
    delay,
    duplicate,
    garbage,
    half_answer,
    hang,
    held,
    interim,
    raw,
    redirect,
    reset,
    response,
    shows,
    slow_drip,
)

__all__ = [
    "Exchange",
    "Received",
    "RecordedEffect",
    "Service",
    "Step",
    "accept_late",
    "accept_then_close",
    "answer",
    "close_before_read",
    "closed_port",
    "cut_body",
    "delay",
    "duplicate",
    "garbage",
    "half_answer",
    "hang",
    "held",
    "interim",
    "raw",
    "read_script",
    "redirect",
    "reset",
    "response",
    "shows",
    "slow_drip",
]

CONNECTIONS_MAX: Final = 256
"""Connections of one service in its life: far more than a test needs, and a runaway client stays visible."""
REQUEST_BYTES_MAX: Final = 1 << 20
"""Bytes of one request, four times the largest document of the issuer."""


class Service:
    """The service. Use it as a context manager: leaving it closes every socket and joins every thread."""

    def __init__(self, *script: Step, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> None:
        self.closing = threading.Event()
        self.faults: list[BaseException] = []
        self._tls = tls
        self._changed = threading.Condition()
        self._steps = deque(script)
        self._lookup_steps: deque[Step] = deque()
        self._gates: dict[str, threading.Event] = {}
        self._requests: list[Received] = []
        self._lookups: list[Received] = []
        self._effects: list[RecordedEffect] = []
        self._counts = dict.fromkeys(("connections", "handshakes_failed", "closed"), 0)
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.socket(family, socket.SOCK_STREAM)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind((host, 0))
        self._listener.listen(CONNECTIONS_MAX)
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if kind is None and self.faults:
            raise self.faults[0]

    def close(self) -> None:
        """End: wake every wait, close every socket, join every thread."""
        self.closing.set()
        # Closing alone does not wake a thread in accept(); a connection does.
        with suppress(OSError), socket.create_connection(self._listener.getsockname()[:2], PATIENCE_S):
            pass
        self._listener.close()
        with self._changed:
            for gate in self._gates.values():
                gate.set()
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE_S)

    # -- what a test says

    def then(self, *steps: Step) -> None:
        """Add to the script."""
        with self._changed:
            self._steps.extend(steps)

    def then_on_lookup(self, *steps: Step) -> None:
        """Add to the script of lookups, which are otherwise answered truthfully."""
        with self._changed:
            self._lookup_steps.extend(steps)

    def gate(self, name: str) -> threading.Event:
        """Return the barrier of this name, closed when first asked for."""
        with self._changed:
            return self._gates.setdefault(name, threading.Event())

    # -- what a test reads

    @property
    def url(self) -> str:
        """The origin, without a slash at the end."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        """Connections accepted."""
        return self._counts["connections"]

    @property
    def handshakes_failed(self) -> int:
        """TLS handshakes that did not end well."""
        return self._counts["handshakes_failed"]

    @property
    def requests(self) -> tuple[Received, ...]:
        """Requests read completely, lookups not among them."""
        with self._changed:
            return tuple(self._requests)

    @property
    def writes(self) -> tuple[Received, ...]:
        """Those requests that ask for a change: all but GET and HEAD (RFC 9110, section 9.2.1)."""
        return tuple(received for received in self.requests if received.method not in {"GET", "HEAD"})

    @property
    def lookups(self) -> tuple[Received, ...]:
        """Lookups read completely."""
        with self._changed:
            return tuple(self._lookups)

    @property
    def effects(self) -> tuple[RecordedEffect, ...]:
        """What happened, whether or not it can be looked up yet."""
        with self._changed:
            return tuple(self._effects)

    def effects_of(self, key: str) -> int:
        """How often the effect of this key happened."""
        return sum(effect.key == key for effect in self.effects)

    def counts(self) -> dict[str, int]:
        """All numbers at once."""
        with self._changed:
            heard = {"requests": len(self._requests), "lookups": len(self._lookups)}
            return self._counts | heard | {"effects": len(self._effects)}

    def wait_for(self, **at_least: int) -> None:
        """Return as soon as every named count is reached; fail after `PATIENCE_S`.

        `closed` counts the connections that the service is done with.
        """

        def reached() -> bool:
            counts = self.counts()
            return all(counts[name] >= number for name, number in at_least.items())

        with self._changed:
            if not self._changed.wait_for(reached, PATIENCE_S):
                raise TimeoutError(f"waited for {at_least}, have {self.counts()}")

    # -- what steps use

    def add_effect(self, effect: RecordedEffect) -> None:
        """Record an effect and wake whoever waits for it."""
        with self._changed:
            self._effects.append(effect)
            self._changed.notify_all()

    def hold(self, gate: threading.Event, connection: socket.socket) -> None:
        """Wait until the gate opens, the service closes or the client leaves."""
        end = time.monotonic() + PATIENCE_S
        connection.settimeout(0.02)
        while not gate.is_set() and not self.closing.is_set() and time.monotonic() < end:
            try:
                if connection.recv(1) == b"":
                    return
            except TimeoutError:
                continue
            except OSError:
                return
        connection.settimeout(PATIENCE_S)

    # -- inside

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True, name="scripted-service")
        self._threads.append(thread)
        thread.start()

    def _count(self, name: str) -> None:
        with self._changed:
            self._counts[name] += 1
            self._changed.notify_all()

    def _accept(self) -> None:
        while True:
            try:
                connection, _peer = self._listener.accept()
            except OSError:
                return
            if self.closing.is_set() or self.connections >= CONNECTIONS_MAX:
                connection.close()
                return
            self._count("connections")
            self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        try:
            connection.settimeout(PATIENCE_S)
            self._converse(connection)
        except (OSError, ValueError):
            # The client went away or sent no request: visible as a connection without a request.
            pass
        except BaseException as fault:  # noqa: BLE001 - a fault of a test's own step is raised at the end
            self.faults.append(fault)
        finally:
            connection.close()
            self._count("closed")

    def _converse(self, connection: socket.socket) -> None:
        step = self._step_before_reading()
        if step is not None:
            step.act(Exchange(self, connection, None))
            return
        if self._tls is not None:
            try:
                connection = self._tls.wrap_socket(connection, server_side=True)
            except OSError:
                self._count("handshakes_failed")
                raise
        with self._watched(connection), connection, connection.makefile("rb") as reader:
            while (received := _read_request(reader.readline, reader.read)) is not None:
                self._answer(Exchange(self, connection, received), received)
                if received.headers.get("connection", "").lower() == "close":
                    return

    @contextmanager
    def _watched(self, connection: socket.socket) -> Iterator[None]:
        """Let `close` end a read of this connection."""
        with self._changed:
            self._open.add(connection)
        try:
            yield
        finally:
            with self._changed:
                self._open.discard(connection)

    def _step_before_reading(self) -> Step | None:
        with self._changed:
            return self._steps.popleft() if self._steps and not self._steps[0].reads else None

    def _answer(self, exchange: Exchange, received: Received) -> None:
        is_lookup = received.method == "GET" and "key" in parse_qs(urlsplit(received.path).query)
        with self._changed:
            heard, steps = (self._lookups, self._lookup_steps) if is_lookup else (self._requests, self._steps)
            heard.append(received)
            step = steps.popleft() if steps else None
            self._changed.notify_all()
        if step is not None:
            step.act(exchange)
        elif is_lookup:
            exchange.send(response(200, body=self._found(received)))
        else:
            # A request that no test announced is told so, and has no effect.
            exchange.send(response(599, body=b'{"error":"unscripted"}'))

    def _found(self, lookup: Received) -> bytes:
        key = parse_qs(urlsplit(lookup.path).query)["key"][0]
        visible = [effect for effect in self.effects if effect.key == key and effect.visible()]
        items = [{"id": f"ref-{number}", "key": key} for number, _effect in enumerate(visible, 1)]
        return json.dumps({"items": items}).encode()


def _read_request(readline: Callable[[int], bytes], read: Callable[[int], bytes]) -> Received | None:
    """Read one request, or None where the client closed first; raises `ValueError` for a broken one."""
    first = readline(REQUEST_BYTES_MAX)
    if not first:
        return None
    method, path, _version = first.decode("ascii").split()
    headers: dict[str, str] = {}
    while (line := readline(REQUEST_BYTES_MAX)) not in (b"\r\n", b""):
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon or name.lower() in headers:
            raise ValueError("a header without a colon, or the same one twice")
        headers[name.lower()] = value.strip()
    length = int(headers.get("content-length", "0"))
    if length > REQUEST_BYTES_MAX:
        raise ValueError("a request over the bound")
    body = read(length)
    if len(body) != length:
        raise ValueError("a request that ended early")
    return Received(method=method, path=path, headers=headers, body=body)


@contextmanager
def closed_port() -> Iterator[int]:
    """Give a port on 127.0.0.1 that refuses connections and that nobody else can take meanwhile."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def read_script(rows: Iterable[tuple[str, Mapping[str, object]]]) -> list[Step]:
    """Return the steps that a script in JSON names; only those whose arguments are plain values."""
    return [STEPS[name](**arguments) for name, arguments in rows]


def main() -> None:
    """Serve until standard input ends."""
    with Service() as service:
        sys.stdout.write(json.dumps({"port": service.port}) + "\n")
        sys.stdout.flush()
        for line in sys.stdin:
            command = json.loads(line)
            service.then(*read_script(command.get("script", [])))
            for name in command.get("open", []):
                service.gate(name).set()
            sys.stdout.write(json.dumps(service.counts()) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
