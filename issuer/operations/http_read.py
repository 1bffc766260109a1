"""HTTP read: one bounded GET of one declared address, and nothing that changes anything.

Decides how a service is asked, before a decision, before a commit, or by an inspection. Rules: EFF-06 (the declared
literal origin only, bounded in time and size), EFF-02 (an address is connected to, the certificate is verified against
the owner's host), SEC-01. One connection, one request, `Connection: close`; no redirect, no proxy, no setting of the
environment, no retry.

What an answer means is decided by whoever asked: `issuer.operations.http_before`, `issuer.operations.http_inspect`.
"""

from collections.abc import Callable
from typing import Final

from issuer.clock import steady_s
from issuer.operations.contract import (
    NotDispatchedError,
    PreparationRefusedError,
    Request,
    TargetUnreadableError,
)
from issuer.operations.http_answer import AnswerUnreadableError, Flaw, ReceivedAnswer, read_answer
from issuer.operations.http_connection import Connector, Exchange, Message, authorization, repeats_credential
from issuer.operations.http_document import ANSWER_BYTES_MAX
from issuer.operations.http_settings import check_bearer
from issuer.operations.http_target import Resolver, pin_addresses, read_origin, render_target, resolve_system
from issuer.operations.templates import Template

__all__ = ["READ_SOURCES", "READ_S_MAX", "HttpReader"]

READ_S_MAX: Final = 10.0
"""Seconds of one read: a person waits for it, and twice the resolver's own bound is ample for one document."""

READ_SOURCES: Final = (
    *("http_answer.py", "http_connection.py", "http_document.py", "http_read.py", "http_settings.py"),
    *("http_target.py", "templates.py", "contract.py", "implementation.py", "repeating.py"),
)
"""What decides about the bytes that leave in a read and about what is taken for its answer (OPR-02)."""


class HttpReader:
    """Reads one declared address."""

    def __init__(
        self,
        url: Template,
        bearer: str | None,
        credentials: Callable[[str], str],
        *,
        resolve: Resolver = resolve_system,
        ticks: Callable[[], float] = steady_s,
        ca_pem: str | None = None,
        seconds_max: float = READ_S_MAX,
    ) -> None:
        """Take the owner's address, the *name* of a credential, and where credentials are found.

        Args:
            url: literal origin, then placeholders.
            bearer: name of the credential for the Authorization header, or None.
            credentials: name to secret; called for a read only. Whatever it raises means it is missing.
            resolve: host and port to addresses.
            ticks: monotonic seconds.
            ca_pem: certificates to trust instead of the system's, as PEM text, or None.
            seconds_max: bound of one read.

        Raises:
            ValueError: the origin is not literal, a credential would go in clear to another machine, or `ca_pem`
                holds no certificates.
        """
        self._url = url
        self._origin = read_origin(url)
        check_bearer(bearer, self._origin)
        self._bearer = bearer
        self._credentials = credentials
        self._resolve = resolve
        self._ticks = ticks
        self._seconds_max = seconds_max
        self._connector = Connector(self._origin, ca_pem=ca_pem, ticks=ticks)

    def __repr__(self) -> str:
        return f"HttpReader({self._origin.scheme}://{self._origin.host_header})"

    @property
    def origin(self) -> str:
        """Scheme and authority, as they are bound."""
        return f"{self._origin.scheme}://{self._origin.host_header}"

    def target(self, request: Request) -> str:
        """Return path and query for this payload, the effect id's place still open.

        Raises:
            PreparationRefusedError: `value_not_for_url` or `url_too_long`.
        """
        return render_target(self._url, self._origin, request)

    def addresses(self) -> list[str]:
        """Resolve the owner's literal host.

        Raises:
            TargetUnreadableError: `host_not_resolved`.
        """
        try:
            return pin_addresses(self._origin, self._resolve)
        except PreparationRefusedError as fault:
            raise TargetUnreadableError(fault.code) from None

    def get(self, target: str, addresses: list[str] | None, *, seconds: float = READ_S_MAX) -> ReceivedAnswer:
        """Ask once; what is returned arrived whole, whatever its status.

        Args:
            target: path and query, every place filled.
            addresses: where to connect; None resolves the owner's literal host within the same time.
            seconds: bound of all of it, where it is less than the reader's own; the resolver has its own as well.

        Raises:
            TargetUnreadableError: `host_not_resolved`, `timeout`, `connect_failed`, `tls_failed`, `credential_missing`,
                `credential_unusable`, `no_answer`, `cut` or `too_large`.
        """
        end_s = self._ticks() + min(seconds, self._seconds_max)
        try:
            received = self._asked(target, self.addresses() if addresses is None else addresses, end_s)
        except NotDispatchedError as fault:
            reason = _REASONS.get(fault.reason, fault.reason)
        except TimeoutError:
            reason = str(Flaw.TIMEOUT)
        except (AnswerUnreadableError, OSError):
            reason = "no_answer"
        else:
            if received.flaw is None:
                return received
            reason = str(received.flaw)
        # Raised outside of the handlers: what was caught may hold what a service said.
        raise TargetUnreadableError(reason)

    def _asked(self, target: str, addresses: list[str], end_s: float) -> ReceivedAnswer:
        self._connector.left_s(end_s)
        message = self._message(target)
        with self._connector.connect(addresses, end_s) as connection:
            exchange = Exchange(connection, end_s, self._ticks)
            exchange.send(message)
            return read_answer(
                exchange.receive, body_bytes_max=ANSWER_BYTES_MAX, kept_bytes_max=ANSWER_BYTES_MAX
            )

    def is_repeating_credential(self, text: str) -> bool:
        """Say whether a text of the service repeats the credential that it was shown (SEC-01)."""
        return repeats_credential(text, self._credentials, self._bearer)

    def _message(self, target: str) -> Message:
        lines = [
            f"GET {target} HTTP/1.1",
            f"Host: {self._origin.host_header}",
            "User-Agent: permit-issuer",
            "Accept: application/json",
            "Accept-Encoding: identity",
            "Cache-Control: no-cache",
            "Connection: close",
        ]
        head = "\r\n".join(lines).encode("ascii") + b"\r\n"
        return Message(head + authorization(self._credentials, self._bearer) + b"\r\n")


_REASONS: Final = {"deadline_passed": str(Flaw.TIMEOUT)}
"""Words of a sending that read oddly about a reading."""
