"""From what an owner wrote of a sink, and what the ledger has on record of it, to a sink that works.

Rules: AUD-02, AUD-03 (a sink stands where the ledger says), OPR-02 and ADR-0020 (a third party's code runs only where
its files are the admitted ones), SEC-01 (a bearer token is read at each request and kept nowhere).

The place on record is one text. Of a file it is its path. Of a sink that another program keeps it is what
acknowledges, a `#`, and the folder of its watermark: neither moves with a file of the owner or with the environment.
What acknowledges is a URL, or a third party's code and the digest of its settings: where these send spans only that
code knows, so with others it is another place, which has none of the spans yet.
A sink that cannot be loaded here can still be looked at: its watermark tells whether the ledger was set back (LED-06).
Next: `issuer.wiring`.
"""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from audit import JsonlSink, Sink
from audit import create as create_jsonl
from audit.sinks.carried import CarriedSink, Carrier
from audit.sinks.lines import Tail
from audit.sinks.plugin import PluginCarrier
from audit.sinks.segments import SEGMENT_BYTES, segments_of
from audit.sinks.watermark import FILE, Watermark
from issuer.errors import SetupError
from issuer.operations.admitted_code import Code, CodeRefusedError, load_admitted
from issuer.operations.declaration import RegistrationCode
from issuer.places import audit_file, sink_folder
from issuer.profile import Sink as Declared
from ledger.canonical import canonical_bytes
from ledger.model import LedgerId, SinkRegistration

__all__ = [
    "GROUP",
    "all_files_of",
    "built_sink",
    "file_of",
    "goes_to",
    "is_carried",
    "location_of",
    "looked_sink",
    "make_place",
    "watermark_of",
]

GROUP: Final = "permit_issuer.sinks"
"""The entry points that name third parties' sinks."""

_FILE_KIND: Final = "jsonl"
_PYTHON_PREFIX: Final = "python:"
_MARK: Final = "#"

_WHY: Final[Mapping[RegistrationCode, str]] = MappingProxyType(
    {
        RegistrationCode.ADAPTER_NOT_FOUND: "no sink of that name is installed.",
        RegistrationCode.ADAPTER_UNREADABLE: "its source files cannot be read whole.",
        RegistrationCode.ADAPTER_NOT_ADMITTED: "it is another one than the owner admitted.",
        RegistrationCode.ADAPTER_CHANGED: "its files were changed since this process loaded it; start anew.",
    }
)

Credentials = Callable[[str], str]


def location_of(
    name: str, declared: Declared, *, issuer: str, ledger_id: LedgerId, path: str | None = None
) -> str:
    """Return the place of a sink that is made now; `path` is another folder for a file than the profile names."""
    if declared.type == _FILE_KIND:
        return str(audit_file(path or declared.path or "audit", issuer=issuer, ledger_id=ledger_id))
    folder = sink_folder(name, issuer=issuer, ledger_id=ledger_id)
    return f"{_destination(declared)}{_MARK}{folder}"


def _destination(declared: Declared) -> str:
    if declared.type == "otlp":
        return declared.url or ""
    code = f"{_PYTHON_PREFIX}{declared.plugin}"
    if not declared.settings:
        return code
    return f"{code}?settings={hashlib.sha256(canonical_bytes(dict(declared.settings))).hexdigest()}"


def goes_to(registration: SinkRegistration) -> str:
    """Return what a person reads of a place: the path of a file, a URL, or `python:NAME` with a digest of settings."""
    return registration.location.partition(_MARK)[0] if is_carried(registration) else registration.location


def file_of(registration: SinkRegistration) -> Path:
    """Return the one file of ours: the audit file itself, or the watermark."""
    if not is_carried(registration):
        return Path(registration.location)
    return _folder(registration) / FILE


def all_files_of(registration: SinkRegistration) -> tuple[Path, ...]:
    """Return the files of ours: full audit files, and then the newest, or the watermark; which need not be there."""
    newest = file_of(registration)
    if is_carried(registration) or not newest.parent.is_dir():
        return (newest,)
    return (*(segment.path for segment in segments_of(newest)), newest)


def is_carried(registration: SinkRegistration) -> bool:
    """Say whether another program keeps a sink, and only its watermark is ours."""
    return registration.kind != _FILE_KIND


def _folder(registration: SinkRegistration) -> Path:
    return Path(registration.location.partition(_MARK)[2])


def built_sink(
    registration: SinkRegistration,
    ledger_id: LedgerId,
    declared: Declared,
    *,
    credentials: Credentials | None = None,
    loads: bool = True,
) -> Sink:
    """Return the sink as it is registered; nothing is opened and nothing is asked of another program.

    Args:
        registration: where it is, as the ledger says.
        ledger_id: the ledger whose spans it gets.
        declared: what the profile in force says of it beside its place.
        credentials: gives the credential of a name; without it a sink that needs one refuses to take anything.
        loads: whether a third party's code is loaded; without it such a sink is only looked at.

    Raises:
        SetupError: `sinks_changed` where the profile names another kind or another destination than the ledger, or
            `sink_not_admitted` where a third party's code is not to be loaded.
    """
    if declared.type != registration.kind or (
        is_carried(registration) and goes_to(registration) != _destination(declared)
    ):
        say = (
            f"The audit sink {registration.name} goes elsewhere by the profile than the ledger has on record."
        )
        raise SetupError("sinks_changed", say)
    if not is_carried(registration):
        return _file(registration, ledger_id, required=declared.required, segment_bytes=declared.segment)
    carrier = _carrier(registration.name, declared, credentials, loads=loads)
    return _carried(registration, ledger_id, carrier, required=declared.required)


def looked_sink(registration: SinkRegistration, ledger_id: LedgerId, *, required: bool = True) -> Sink:
    """Return a sink to be held against its ledger; only a file takes spans."""
    if not is_carried(registration):
        return _file(registration, ledger_id, required=required)
    return _carried(registration, ledger_id, None, required=required)


def watermark_of(registration: SinkRegistration, ledger_id: LedgerId) -> Tail | None:
    """Return the last span that another program acknowledged, None where nothing says that it did.

    Raises:
        SinkUnavailable: as `audit.sinks.watermark.Watermark.read`.
    """
    return Watermark(
        _folder(registration), ledger_id, name=registration.name, place=goes_to(registration)
    ).read()


def make_place(registration: SinkRegistration, ledger_id: LedgerId) -> None:
    """Make the audit file, or the folder of the watermark.

    Raises:
        SinkUnavailable: `exists` where there is an audit file; or what is there is no watermark of this sink.
    """
    if is_carried(registration):
        _carried(registration, ledger_id, None, required=True).make()
    else:
        create_jsonl(Path(registration.location), ledger_id, name=registration.name)


def _file(
    registration: SinkRegistration, ledger_id: LedgerId, *, required: bool, segment_bytes: int | None = None
) -> Sink:
    return JsonlSink(
        Path(registration.location),
        ledger_id,
        name=registration.name,
        required=required,
        segment_bytes=segment_bytes or SEGMENT_BYTES,
    )


def _carried(
    registration: SinkRegistration, ledger_id: LedgerId, carrier: Carrier | None, *, required: bool
) -> CarriedSink:
    return CarriedSink(
        carrier,
        ledger_id,
        name=registration.name,
        kind=registration.kind,
        required=required,
        folder=_folder(registration),
        place=goes_to(registration),
    )


def _carrier(
    name: str, declared: Declared, credentials: Credentials | None, *, loads: bool
) -> Carrier | None:
    if declared.type == "python":
        return _plugin(name, declared) if loads else None
    # What sends OTLP loads the messages of the protocol, which nobody else should wait for.
    from audit.sinks.otlp import OtlpCarrier  # noqa: PLC0415

    bearer = declared.bearer
    return OtlpCarrier(
        declared.url or "",
        name=name,
        bearer=None if bearer is None else lambda: _credential(credentials, bearer),
    )


def _credential(credentials: Credentials | None, name: str) -> str:
    return "" if credentials is None else credentials(name)


def _plugin(name: str, declared: Declared) -> Carrier:
    """Return the carrier that the admitted code of a third party makes."""
    plugin, digest = declared.plugin or "", declared.digest or ""
    try:
        factory, code = load_admitted(plugin, digest, {}, group=GROUP)
    except CodeRefusedError as no:
        more = f" {no.more}" if no.more else ""
        raise _not_admitted(name, _WHY.get(no.code, "it could not be loaded.") + more) from None
    made = None
    try:
        made = PluginCarrier(
            factory(dict(declared.settings)),  # type: ignore[arg-type]  # the carrier looks at what it got
            name=name,
            is_admitted=lambda: _is_admitted(code, digest),
        )
    except Exception:  # noqa: BLE001 - whatever a third party's factory does; its text is not repeated
        made = None
    if made is None:
        raise _not_admitted(name, "it could not be made, or is no sink.")
    return made


def _is_admitted(code: Code, digest: str) -> bool:
    try:
        return code.digest() == digest
    except CodeRefusedError:
        return False


def _not_admitted(name: str, why: str) -> SetupError:
    return SetupError("sink_not_admitted", f"The audit sink {name} cannot be used: {why}")
