"""From one operation of a profile to the code that carries it out: adapter, read before it, inspector.

Nothing here touches the world; adapters are built, not used. What a declaration may say together is decided by
`issuer.operations.declaration`, and what settings refuse by themselves is a `ValueError` with a sentence for the owner.
Next: `issuer.operations.registry` registers what was built under its contract.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from issuer.operations.contract import Adapter, Inspector, Proof
from issuer.operations.deriving import DISPATCH_DEADLINE_MS, Parts, proofs_of
from issuer.operations.file_adapter import FileAction, FileAdapter, FileSettings
from issuer.operations.host_adapter import HostAdapter, HostSettings
from issuer.operations.http_adapter import HttpAdapter
from issuer.operations.http_before import BeforeSettings, ReadingAdapter
from issuer.operations.http_document import AnswerParts
from issuer.operations.http_inspect import HttpInspector, InspectSettings
from issuer.operations.http_read import HttpReader
from issuer.operations.http_settings import HttpSettings
from issuer.operations.http_target import read_origin
from issuer.profile import HostAdapter as DeclaredHost
from issuer.profile import Inspect, Proves
from issuer.profile import Operation as Declared
from ledger.errors import Broken
from ledger.model import DurationMs

__all__ = ["Credentials", "built_parts", "host_settings"]

Credentials = Callable[[str], str]
"""Name to secret; asked when a service is asked, and not before."""


def built_parts(
    declared: Declared, *, folder: Path, credentials: Credentials, own: Parts | None = None
) -> Parts:
    """Return what carries out an operation; paths are relative to `folder`.

    `own` is what was made for a third party's adapter. What an owner declares about reading a service before a decision
    and for an inspection holds around it as around ours.

    Raises:
        ValueError: settings that no adapter can honour; the owner is at fault.
    """
    sender = own.adapter if own is not None else _sender(declared, folder=folder, credentials=credentials)
    adapter = sender
    if declared.before is not None:
        before = BeforeSettings(
            url=declared.before.url.parsed,
            bearer=declared.before.bearer,
            etag=declared.before.etag,
            facts=declared.before.facts,
        )
        adapter = ReadingAdapter(adapter, before, HttpReader(before.url, before.bearer, credentials))
    inspector = None if own is None else own.inspector
    if isinstance(sender, FileAdapter):
        inspector = sender
    return Parts(adapter=adapter, inspector=inspector or _inspector(declared, credentials=credentials))


def host_settings(declared: DeclaredHost) -> HostSettings:
    """Return what the owner declared about a host that sends by itself."""
    return HostSettings(
        deadline_ms=DurationMs(declared.deadline_ms),
        wrapper_because=None if declared.wrapper is None else declared.wrapper.because,
        environment=declared.environment,
    )


def _sender(declared: Declared, *, folder: Path, credentials: Credentials) -> Adapter:
    if declared.http is not None:
        http = HttpSettings(
            method=declared.http.method,
            url=declared.http.url.parsed,
            body=None
            if declared.body is None
            else {name: template.parsed for name, template in declared.body.items()},
            bearer=declared.http.bearer,
            once=declared.http.once,
            proves=_statuses(declared.proves),
            parts=_parts(declared.proves),
            if_match=declared.http.if_match,
            timeout_s=DISPATCH_DEADLINE_MS // 2000,
        )
        return HttpAdapter(http, credentials)
    if declared.file is not None:
        settings = FileSettings(
            action=FileAction(declared.file.action),
            root=folder / declared.file.root,
            path=declared.file.path.parsed,
            content=None if declared.file.content is None else declared.file.content.parsed,
        )
        return FileAdapter(settings)
    if declared.host is not None:
        return HostAdapter(host_settings(declared.host))
    raise Broken("an operation of a third party's adapter is built elsewhere")


def _statuses(proves: Proves | None) -> Mapping[int, Proof]:
    listed = {} if proves is None else proofs_of(proves)
    return MappingProxyType({status: proof for proof, statuses in listed.items() for status in statuses})


def _parts(declared: Proves | Inspect | None) -> AnswerParts:
    if declared is None:
        return AnswerParts()
    return AnswerParts(charged=declared.charged, reference=declared.reference)


def _inspector(declared: Declared, *, credentials: Credentials) -> Inspector | None:
    """Return who finds out at a service what became of an effect, whether the issuer sent it or a host (REC-01)."""
    inspect = declared.inspect
    if inspect is None:
        return None
    settings = InspectSettings(
        found=inspect.found,
        equals=None if inspect.equals is None else inspect.equals.parsed,
        parts=_parts(inspect),
    )
    return HttpInspector(settings, HttpReader(inspect.url.parsed, _inspect_bearer(declared), credentials))


def _inspect_bearer(declared: Declared) -> str | None:
    """Return the credential of the inspection: its own, else that of the sending where the same origin is asked."""
    inspect, http = declared.inspect, declared.http
    if inspect is None or inspect.bearer is not None or http is None:
        return None if inspect is None else inspect.bearer
    same = read_origin(inspect.url.parsed) == read_origin(http.url.parsed)
    return http.bearer if same else None
