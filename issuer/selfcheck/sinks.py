"""The sinks: each where the ledger says, the ledger's own, taking spans, and not ahead of it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from issuer.errors import SetupError
from issuer.selfcheck.finding import Finding, Known

if TYPE_CHECKING:
    from audit import Sink
    from ledger.model import SinkRegistration

_OWN: Final = (
    "Put the ledger's own audit file, with all it holds, back at {place}; never make an empty one there. "
    "Where it is lost for good, run `issuer sink replace`."
)
_FULL: Final = (
    "Put it back beside the newest one, under the name that it had: without it nobody can verify the files, and "
    "`issuer ledger restore` cannot read them. If nobody moved it, find out who removed it."
)
_NEXT: Final = {
    "no_space": "Free some space where {place} is.",
    "read_only": "Make {place} writable for this account, and its file system as well.",
    "writable_by_others": "chmod 600 {place}, and find out who could have written to it.",
    "exists": "Move away what has the name that the full {place} would get, and find out who put it there.",
    "locked": "Try again; if that stays, find the process that holds {place}.",
    "busy": "Try again.",
    "hard_link": "Remove the second name of {place}.",
    "other": "See that {place} answers and takes spans; `issuer doctor` asks it again.",
    "profile": "Write the sink of the profile as it was, or bring its code back.",
    "credential": "Write the credential that the profile names for {place}.",
    "ahead": "The ledger was rolled back: put its newest copy back, and leave {place} as it is.",
    "diverged": "The ledger was exchanged: put its own newest copy back, and leave {place} as it is.",
}


def sinks(known: Known) -> Iterator[Finding]:
    """Probe each registered sink as an admission does (AUD-02); nothing is written."""
    from audit import LedgerSpans, SinkAhead, SinkExpectation, SinkUnavailable
    from audit.delivery import DEADLINE_S
    from issuer.sink_building import goes_to

    ledger = known.the_ledger()
    expect = SinkExpectation(source=LedgerSpans(ledger))
    placed = ledger.read(lambda view: view.sinks())
    for registered in placed:
        place = goes_to(registered)
        try:
            sink = _sink(known, registered)
        except SetupError as fault:
            yield Finding(check="sinks", ok=False, says=fault.message, next=_NEXT["profile"])
            continue
        try:
            sink.probe(expect, DEADLINE_S)
        except (SinkUnavailable, SinkAhead) as fault:
            other = _OWN if registered.kind == "jsonl" else _NEXT["other"]
            remedy = _NEXT.get(fault.reason, other).format(place=place)
            says = f"{registered.name}: {fault.message}"
            yield Finding(check="sinks", ok=False, says=says, next=remedy)
        else:
            own = "is the ledger's own, writable, and not ahead of it"
            is_file = registered.kind == "jsonl"
            says = f"{registered.name}: {place} {own if is_file else 'takes spans, and is not ahead of the ledger'}."
            yield Finding(check="sinks", ok=True, says=says)
            yield from _full_files(sink)
        finally:
            sink.close()
    if not placed:
        says = "No sink is registered with the ledger, so nothing can be sent."
        yield Finding(check="sinks", ok=False, says=says, next="Run `issuer init` on this folder again.")
        return
    yield from _differences(known, frozenset(registered.name for registered in placed))


def _full_files(sink: "Sink") -> Iterator[Finding]:
    """Tell a full audit file that is missing: nothing waits for it, and a verification or a restore would."""
    from audit import JsonlSink, SinkUnavailable

    if not isinstance(sink, JsonlSink):
        return
    try:
        missing = sink.chain().missing
    except SinkUnavailable as fault:
        yield Finding(check="sinks", ok=False, says=f"{sink.name}: {fault.message}", next=_NEXT["busy"])
        return
    if missing is not None:
        says = f"{sink.name}: the full audit file that ends with span {missing.sequence} is missing."
        yield Finding(check="sinks", ok=False, says=says, next=_FULL)


def _sink(known: Known, registered: "SinkRegistration") -> "Sink":
    """Return the sink as an admission would use it; where no profile says more, only to be looked at."""
    from issuer.credentials import credential_reader
    from issuer.sink_building import built_sink, looked_sink

    ledger_id = known.the_ledger().ledger_id
    declared = None if known.profile is None else known.profile.audit.sinks.get(registered.name)
    if declared is None:
        return looked_sink(registered, ledger_id)
    credentials = credential_reader(known.places.credentials, known.the_ring, seals=False)
    return built_sink(registered, ledger_id, declared, credentials=credentials)


def _differences(known: Known, placed: frozenset[str]) -> Iterator[Finding]:
    """Tell sinks that only one of profile and ledger names."""
    if known.profile is None:
        return
    served = frozenset(known.profile.audit.sinks)
    for name in sorted(served ^ placed):
        only = "the profile" if name in served else "the ledger"
        says = f"{name}: only {only} names this sink, so nothing can be sent."
        remedy = (
            f"Name it in the profile as before, or activate the profile and run `issuer sink replace {name}`."
        )
        yield Finding(check="sinks", ok=False, says=says, next=remedy)


def anchor(known: Known) -> Iterator[Finding]:
    """Warn of an audit file beside its ledger: whoever sets back one sets back both (LED-06)."""
    from issuer.sink_building import file_of

    ledger = known.the_ledger()
    home = known.places.folder.resolve()
    inside = [
        registered
        for registered in ledger.read(lambda view: view.sinks())
        if file_of(registered).resolve().is_relative_to(home)
    ]
    for registered in inside:
        yield Finding(
            check="anchor",
            ok=True,
            says=f"{registered.name} lies in the issuer's own folder, so an old copy of that would not be noticed.",
            next="Make the next issuer with its audit file elsewhere, best on another disk or account.",
        )
    if not inside:
        yield Finding(check="anchor", ok=True, says="No audit file lies in the issuer's own folder.")
