"""The payment service of `issuer demo`: a few lines of HTTP on the loopback interface that keep a list of payments.

It is told to lose its next reply; then it books the payment and closes the connection without a word, as networks do.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Final, Self

_BODY_BYTES_MAX: Final = 64 * 1024


class DemoService:
    """A running service. `asked` counts requests, `booked` payments."""

    def __init__(self) -> None:
        """Listen on a free port of 127.0.0.1."""
        self.asked = 0
        self.booked: list[dict[str, object]] = []
        self.loses_next_reply = False
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                service.answer(self)

            def log_message(self, *_words: object) -> None:
                """Say nothing: the demo tells the story."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.server_address[1])

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Book one payment and answer 201, or lose the reply."""
        self.asked += 1
        length = min(int(handler.headers.get("Content-Length", "0")), _BODY_BYTES_MAX)
        self.booked.append(json.loads(handler.rfile.read(length)))
        if self.loses_next_reply:
            self.loses_next_reply = False
            handler.close_connection = True
            return
        handler.send_response(201)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    def __enter__(self) -> Self:
        """Start to serve."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()
