"""HTTP settings: the one request that an owner declares for an operation, and what its answers prove.

Decides which declarations exist at all (OPR-01): an origin that no value reaches, headers that cannot change
the framing, a credential by name and never in clear to another machine, and a finite proof table in which
redirects and unnamed statuses prove nothing (REP-05). It sends nothing. Next: `http_adapter`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from issuer.operations.contract import Proof
from issuer.operations.http_document import AnswerParts
from issuer.operations.http_target import Origin, read_origin
from issuer.operations.implementation import template_parts
from issuer.operations.templates import Template

METHODS: Final = frozenset({"DELETE", "PATCH", "POST", "PUT"})
"""Methods that change something; GET and HEAD are for inspection (RFC 9110, section 9.2.1)."""

TIMEOUT_S_MAX: Final = 600
"""Seconds of one exchange: what takes longer is a job whose completion is inspected, not waited for."""

RESPONSE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Largest bound an owner may set on a body that is read only to see its end."""

_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,128}")
_FIELD_VALUE: Final = re.compile(r"[!-~](?:[ -~]{0,1022}[!-~])?")
_CREDENTIAL_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_OWN_HEADERS: Final = frozenset(
    {
        *("accept-encoding", "authorization", "connection", "content-length", "content-type", "cookie"),
        *("expect", "host", "keep-alive", "proxy-authorization", "proxy-connection", "te", "trailer"),
        *("transfer-encoding", "upgrade", "user-agent"),
    }
)
"""Headers that the adapter sets or that would change the framing; an owner's settings may not name them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """One declared request. It cannot exist in a shape that leaves the destination or the proof open.

    Attributes:
        method: one of `METHODS`.
        url: literal origin, then placeholders (`Template.parse_url`).
        headers: further headers, name to literal value.
        body: JSON member to template, or None for no body; a lone placeholder keeps its type.
        bearer: *name* of the credential that goes into the Authorization header, or None.
        once: name of the header that carries the effect id as idempotency key, or None.
        proves: final status (2xx, 4xx, 5xx) to what it proves; every other status proves nothing (REP-05).
        parts: what is taken from the answer's body.
        if_match: send the entity tag that preparation bound, so that the service refuses what has changed.
        timeout_s: whole seconds for the exchange, 1 to `TIMEOUT_S_MAX`.
        response_bytes_max: bytes of body after which an answer counts as not whole.
        ca_pem: certificates to trust instead of the system's, as PEM text, or None.
        allow_plaintext_bearer: send the credential over http to another machine.
    """

    method: str
    url: Template
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Template] | None = None
    bearer: str | None = None
    once: str | None = None
    proves: Mapping[int, Proof]
    parts: AnswerParts = field(default_factory=AnswerParts)
    if_match: bool = False
    timeout_s: int = 30
    response_bytes_max: int = 1024 * 1024
    ca_pem: str | None = None
    allow_plaintext_bearer: bool = False

    def __post_init__(self) -> None:
        """Refuse what the owner cannot have meant, with a `ValueError` that says what."""
        if self.method not in METHODS:
            raise ValueError(f"The method is one of {', '.join(sorted(METHODS))}.")
        origin = read_origin(self.url)
        self._check_headers()
        check_bearer(self.bearer, origin, allow_plaintext=self.allow_plaintext_bearer)
        if not self.proves or not all(_may_prove(status) for status in self.proves):
            raise ValueError("proves lists statuses 2xx, 4xx or 5xx; a redirect proves nothing.")
        if type(self.timeout_s) is not int or not 1 <= self.timeout_s <= TIMEOUT_S_MAX:
            raise ValueError(f"timeout_s is 1 to {TIMEOUT_S_MAX} whole seconds.")
        if type(self.response_bytes_max) is not int or not 0 <= self.response_bytes_max <= RESPONSE_BYTES_MAX:
            raise ValueError(f"response_bytes_max is 0 to {RESPONSE_BYTES_MAX}.")

    def _check_headers(self) -> None:
        """Refuse names that would be sent twice or change the framing, and values that would end a line."""
        own = (*(() if self.once is None else (self.once,)), *(("If-Match",) if self.if_match else ()))
        names = [name.lower() for name in (*self.headers, *own)]
        if len(set(names)) != len(names) or not _OWN_HEADERS.isdisjoint(names):
            raise ValueError("A header is named twice, or is one that the issuer sets by itself.")
        if not all(_TOKEN.fullmatch(name) for name in names):
            raise ValueError("A header name is a token of RFC 9110.")
        if not all(_FIELD_VALUE.fullmatch(value) for value in self.headers.values()):
            raise ValueError("A header value is 1 to 1,024 printable ASCII characters.")

    def digest_body(self) -> dict[str, object]:
        """Return all settings as JSON values, for the implementation digest (OPR-02)."""
        body = self.body
        return {
            "method": self.method,
            "url": template_parts(self.url),
            "headers": dict(self.headers),
            "body": None if body is None else {name: template_parts(part) for name, part in body.items()},
            "bearer": self.bearer,
            "once": self.once,
            "proves": {str(status): str(proof) for status, proof in self.proves.items()},
            "parts": self.parts.digest_body(),
            "if_match": self.if_match,
            "timeout_s": self.timeout_s,
            "response_bytes_max": self.response_bytes_max,
            "ca_pem": self.ca_pem,
            "allow_plaintext_bearer": self.allow_plaintext_bearer,
        }


def check_bearer(name: str | None, origin: Origin, *, allow_plaintext: bool = False) -> None:
    """Refuse, with a `ValueError`, what is no credential's name, and a credential in clear to another machine."""
    if name is None:
        return
    if _CREDENTIAL_NAME.fullmatch(name) is None:
        raise ValueError("bearer names a credential; it is not the credential.")
    if origin.scheme == "http" and not origin.is_loopback and not allow_plaintext:
        raise ValueError("A credential is sent over https, or over http to this machine.")


def _may_prove(status: object) -> bool:
    """Whether an owner may declare a proof for this status."""
    return type(status) is int and status // 100 in {2, 4, 5}
