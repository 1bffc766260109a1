"""The OTLP sink: spans go to a collector over HTTP, and count once its answer says that all were accepted.

Rules: AUD-02 (an acknowledgement is a positive statement about exactly these spans), AUD-03 (nothing of the environment
is asked), SEC-01 (nothing of an answer is repeated). An answer accepts only if all of this holds; each exception has a
reason word of its own:

  1. status 200, exactly: `redirected`, `collector_busy` (429, 503), `unauthorized` (401, 403), `status`
  2. the media type of what was asked: `media_type`
  3. a message of the protocol, whole and without unknown fields: `not_otlp`
  4. no span rejected: `rejected`
  5. no error message beside it: `warned`

A collector may keep what it accepted in memory and lose it, so the class of this sink is `accepted`. It cannot be read
back; what is known of it is our own watermark (`audit.sinks.carried`), and it can be made to get everything again.
Next: `audit.sinks.exchange` for the bytes, `audit.otlp` for the messages.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Final

from audit.errors import SinkUnavailable
from audit.otlp import request_bytes, said_in
from audit.sinks.exchange import Endpoint, NotAnswered, Reply, exchange
from audit.sinks.port import SinkClass
from audit.sinks.quiet import untraced
from ledger.transitions import SpanRow

__all__ = ["KIND", "OtlpCarrier"]

KIND: Final = "otlp"
MEDIA_TYPE: Final = "application/x-protobuf"
"""Of the request and of its answer (OTLP/HTTP, "Binary Protobuf Encoding")."""

USER_AGENT: Final = "permit-issuer"

_BEARER: Final = re.compile(r"[!-~]{1,8192}\Z")
_REFUSED: Final[Mapping[int, str]] = {
    HTTPStatus.TOO_MANY_REQUESTS: "collector_busy",
    HTTPStatus.SERVICE_UNAVAILABLE: "collector_busy",
    HTTPStatus.UNAUTHORIZED: "unauthorized",
    HTTPStatus.FORBIDDEN: "unauthorized",
}


class OtlpCarrier:
    """Carries spans to one collector; implements `audit.sinks.carried.Carrier`."""

    sink_class: Final = SinkClass.ACCEPTED

    def __init__(self, url: str, *, name: str, bearer: Callable[[], str] | None = None) -> None:
        """Take the endpoint, the name of the sink, and what gives its bearer token at each request.

        Raises:
            ValueError: the URL is no endpoint.
        """
        self._endpoint = Endpoint.of(url)
        self._name = name
        self._bearer = bearer

    def probe(self, deadline_s: float) -> None:
        """See `Carrier.probe`: a request without spans has to be accepted like any other."""
        self._accepted(b"", time.monotonic() + deadline_s)

    def carry(self, rows: Sequence[SpanRow], deadline_s: float) -> None:
        """See `Carrier.carry`."""
        deadline = time.monotonic() + deadline_s
        try:
            data = request_bytes(row.body for row in rows)
        except ValueError:
            data = b""
        if not data:
            raise self._fault("broken_span", "A span of the ledger has no form in OTLP.")
        self._accepted(data, deadline)

    def close(self) -> None:
        """See `Carrier.close`: a connection lives for one request."""

    def _accepted(self, data: bytes, deadline: float) -> None:
        """Return once a request was accepted; the steps are numbered as in the description of this module."""
        reply = self._reply(data, deadline)
        # 1
        if reply.status != HTTPStatus.OK:
            is_redirect = HTTPStatus.MULTIPLE_CHOICES <= reply.status < HTTPStatus.BAD_REQUEST
            reason = "redirected" if is_redirect else _REFUSED.get(reply.status, "status")
            raise self._fault(reason, "The collector did not accept.")
        # 2
        if reply.media_type != MEDIA_TYPE:
            raise self._fault(
                "media_type", "What answers at the place of the collector speaks another protocol."
            )
        # 3
        try:
            said = said_in(reply.body)
        except ValueError:
            said = None
        if said is None:
            raise self._fault("not_otlp", "The answer at the place of the collector is none of the protocol.")
        # 4
        if said.rejected:
            raise self._fault("rejected", "The collector rejected spans.")
        # 5
        if said.has_message:
            raise self._fault("warned", "The collector accepted with an error message beside it.")

    def _reply(self, data: bytes, deadline: float) -> Reply:
        headers = {"User-Agent": USER_AGENT, "Content-Type": MEDIA_TYPE, "Accept": MEDIA_TYPE}
        if self._bearer is not None:
            headers["Authorization"] = f"Bearer {self._credential()}"
        try:
            with untraced():
                return exchange(self._endpoint, data, headers, deadline)
        except NotAnswered as fault:
            reason, message = fault.reason, fault.message
        finally:
            # A traceback of what follows would hold it.
            headers.clear()
        raise self._fault(reason, message)

    def _credential(self) -> str:
        secret: object = None
        # Whatever the store raised may quote the secret: it ends here, and is nobody's context.
        with suppress(Exception):
            secret = None if self._bearer is None else self._bearer()
        if type(secret) is str and _BEARER.match(secret):
            return secret
        secret = None
        raise self._fault("credential", "There is no usable credential for the collector.")

    def _fault(self, reason: str, message: str) -> SinkUnavailable:
        return SinkUnavailable(self._name, reason, message)
