"""HTTP target: where one request of an operation goes, and nowhere else.

Decides origin, request target and addresses. Rules (EFF-02): scheme, host and port are the owner's literal
text; every inserted value is percent-encoded and can add or climb no path segment; the host's addresses are
resolved once, at preparation, and pinned; user information and fragments do not exist.

This module does not connect. Name resolution is its only traffic, and it goes to the machine's resolver,
never to the service (EFF-06). Next: `issuer.operations.http_adapter`.
"""

import ipaddress
import re
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final, Literal
from urllib.parse import urlsplit

from issuer.operations.contract import PreparationRefusedError, Request
from issuer.operations.templates import EFFECT_ID_NAME, Placeholder, Template, escape_url_component
from ledger.errors import Broken, Malformed

ADDRESSES_MAX: Final = 8
"""Pinned addresses: a service answers with a handful, and each is tried at most once."""

RESOLVE_S_MAX: Final = 5.0
"""Seconds for name resolution: the default time of one resolver query (resolv.conf, `timeout`)."""

RESOLUTIONS_MAX: Final = 8
"""Resolutions at once: one that hangs keeps its thread until the system's resolver gives up."""

URL_BYTES_MAX: Final = 8000
"""Bytes of a request target, which RFC 9110, section 4.1, recommends every party to support."""

_SEGMENT_BORDER: Final = re.compile(r"[/\\]")
_URL_LITERAL: Final = re.compile(r"[!\"$-z|~]*")
"""Printable ASCII without spaces, without `#`, and without braces, which mark the effect id's place alone."""

_EFFECT_ID_PLACE: Final = f"{{{EFFECT_ID_NAME}}}"
_EFFECT_ID_CHARACTERS: Final = len("eff_") + 32
_NOT_IN_PATHS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_DEFAULT_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}

Resolver = Callable[[str, int], tuple[str, ...]]
"""Host and port to addresses as IP literals, best first; raises `OSError` where there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Scheme, host and port as the owner wrote them, the host in lower case."""

    scheme: Literal["http", "https"]
    host: str
    port: int

    @property
    def host_header(self) -> str:
        """The Host field: with a port only where it is not the scheme's own (RFC 9110, section 7.2)."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == _DEFAULT_PORTS[self.scheme] else f"{name}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether the host can only be this machine."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def read_origin(url: Template) -> Origin:
    """Return the literal origin of an owner's URL template.

    Raises:
        ValueError: the origin is not literal, or a literal holds what no URL of ours may.
    """
    first = url.parts[0] if url.parts and isinstance(url.parts[0], str) else ""
    # `Template.parse_url` holds this as well; a template made by `parse` must not get past here.
    if any(isinstance(part, str) and _URL_LITERAL.fullmatch(part) is None for part in url.parts):
        raise ValueError("A URL holds printable ASCII without spaces or braces only, and no fragment.")
    return _origin_of(first)


def _origin_of(url: str) -> Origin:
    """Return the origin of a URL's literal beginning; raises `ValueError`."""
    split = urlsplit(url)
    port = split.port
    if split.scheme not in _DEFAULT_PORTS or not split.hostname or not split.path.startswith("/"):
        raise ValueError("A URL template begins with a literal http(s)://host/, placeholders come later.")
    if split.username is not None or split.password is not None or port == 0:
        raise ValueError("A URL template has no user information and no port 0.")
    scheme: Literal["http", "https"] = "https" if split.scheme == "https" else "http"
    return Origin(scheme=scheme, host=split.hostname, port=_DEFAULT_PORTS[scheme] if port is None else port)


def render_target(url: Template, origin: Origin, request: Request) -> str:
    """Return path and query for this payload, in printable ASCII, with the effect id's place still open.

    The place is the literal `{effect_id}`: no literal of an owner and no inserted value holds a brace, so that
    nothing else reads like it, and what is pinned does not depend on the effect. `fill_effect_id` fills it.

    Raises:
        PreparationRefusedError: `value_not_for_url` where a value is empty, a control character or a dot
            segment stands in it, or `url_too_long`.
    """
    open_url = Template(parts=tuple(_kept_open(part) for part in url.parts))
    try:
        full = open_url.render(request.values, request.registries, None, escape=_escape)
    except Malformed as fault:
        raise PreparationRefusedError(
            "value_not_for_url", fault.field, "A value of this field cannot stand in a URL."
        ) from None
    split = urlsplit(full)
    if _origin_of(full) != origin:
        raise Broken("A rendered URL has another origin than its template.")
    target = split.path + (f"?{split.query}" if split.query else "")
    if len(fill_effect_id(target, "0" * _EFFECT_ID_CHARACTERS)) > URL_BYTES_MAX:
        raise PreparationRefusedError("url_too_long", None, f"The URL is over {URL_BYTES_MAX} bytes.")
    return target


def _kept_open(part: str | Placeholder) -> str | Placeholder:
    """Return the effect id's place as the text that marks it, and any other part as it is."""
    return _EFFECT_ID_PLACE if isinstance(part, Placeholder) and part.is_effect_id else part


def fill_effect_id(target: str, effect_id: str) -> str:
    """Return a pinned path and query with the effect's identity in its place, wherever the owner put that."""
    return target.replace(_EFFECT_ID_PLACE, effect_id)


def _escape(text: str) -> str:
    """Percent-encode one value, refusing what servers that decode too early would take for structure."""
    parts = _SEGMENT_BORDER.split(text)
    if _NOT_IN_PATHS.search(text) is not None or not {".", ".."}.isdisjoint(parts):
        raise Malformed("not_a_url_component", None, "A value has a control character or a dot segment.")
    return escape_url_component(text)


def resolve_system(host: str, port: int) -> tuple[str, ...]:
    """Ask the machine's resolver once; raises `OSError` (also `TimeoutError` after `RESOLVE_S_MAX`)."""
    if not _SLOTS.acquire(blocking=False):
        raise TimeoutError("too many resolutions are under way")
    found: SimpleQueue[tuple[str, ...] | OSError] = SimpleQueue()
    threading.Thread(target=partial(_resolve_into, found, host, port), daemon=True, name="resolve").start()
    try:
        result = found.get(timeout=RESOLVE_S_MAX)
    except Empty:
        raise TimeoutError("the resolver did not answer in time") from None
    if isinstance(result, OSError):
        raise result
    return result


_SLOTS: Final = threading.BoundedSemaphore(RESOLUTIONS_MAX)


def _resolve_into(found: "SimpleQueue[tuple[str, ...] | OSError]", host: str, port: int) -> None:
    """Put the answer, or the error, where the waiting thread finds it, if it still waits."""
    try:
        rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        found.put(tuple(str(row[4][0]) for row in rows))
    except OSError as fault:
        found.put(fault)
    except UnicodeError:
        # A label over 63 characters; the idna codec's error is no OSError.
        found.put(OSError("the host has no encoding for the resolver"))
    finally:
        _SLOTS.release()


def pin_addresses(origin: Origin, resolve: Resolver) -> list[str]:
    """Return the addresses that dispatch may connect to, each once, in the resolver's order.

    Raises:
        PreparationRefusedError: `host_not_resolved`.
    """
    try:
        if is_address(origin.host):
            return [str(ipaddress.ip_address(origin.host))]
        found = [str(ipaddress.ip_address(address)) for address in resolve(origin.host, origin.port)]
    except (OSError, ValueError):
        found = []
    if not found:
        raise PreparationRefusedError("host_not_resolved", None, "The service's host has no address now.")
    return list(dict.fromkeys(found))[:ADDRESSES_MAX]


def is_address(host: str) -> bool:
    """Whether the host is an address already, so that there is nothing to ask."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def checked_addresses(pinned: object) -> list[str]:
    """Return pinned addresses as they were bound; empty where one is none.

    A name in the place of an address would be resolved by the connect, which is what pinning forbids.
    """
    addresses = list(pinned) if isinstance(pinned, list | tuple) else []
    return addresses if all(type(address) is str and is_address(address) for address in addresses) else []
