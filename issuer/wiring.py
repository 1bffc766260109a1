"""The only composition root: from a profile's path to a house that works, or one clear fault.

Rules: LED-04 and POL-04 (what is unsafe or invalid stops here, as a whole; a ledger that may have suffered is checked
before it is used, and then stays open to be read), SEC-03 (keys are judged at the start),
AUD-02 (zero required sinks refuse to start; a sink stands where the ledger says, not where the environment does).
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from audit import Delivery, JsonlSink, LedgerSpans, Sink
from audit.recorder import OtelRecorder
from issuer.checking import check_at_start
from issuer.clock import now_ms
from issuer.errors import SetupError
from issuer.house import House
from issuer.ids import new_instance, random_bytes
from issuer.instance import Instance
from issuer.places import Places
from issuer.profile import Profile
from issuer.sealing import KeyRing, ProtectedStore, open_key_ring
from issuer.sealing.authenticator import RingAuthenticator
from issuer.terms import read_terms
from issuer.version import VERSION
from ledger.model import InstantMs, LedgerId
from ledger.port import Ledger, SpanRecorder
from ledger.sqlite import SqliteLedger


def _unobserved(_step: str) -> None:
    """Observe nothing."""


def span_recorder(ledger_id: LedgerId) -> SpanRecorder:
    """Return the recorder of this release, after it has proven that it records (AUD-03)."""
    recorder = OtelRecorder(ledger_id, random_bytes=random_bytes, service_version=VERSION)
    recorder.selftest()
    return recorder


def open_ledger(
    places: Places,
    ring: KeyRing,
    *,
    clock: Callable[[], InstantMs] = now_ms,
    recorder: Callable[[LedgerId], SpanRecorder] = span_recorder,
    observe: Callable[[str], None] = _unobserved,
) -> SqliteLedger:
    """Open the ledger of an issuer.

    Raises:
        LedgerUnavailable, LedgerCorrupt: as `ledger.sqlite.SqliteLedger`.
    """
    return SqliteLedger(
        places.ledger,
        recorder=recorder,
        keys=RingAuthenticator(ring),
        clock=clock,
        observer=observe,
    )


def registered_sinks(profile: Profile, ledger: Ledger) -> tuple[Sink, ...]:
    """Return the served sinks of the profile, each where the ledger registered it.

    Raises:
        SetupError: a sink of the profile was never registered, or a registered one left the profile.
    """
    placed = {sink.name: sink for sink in ledger.read(lambda view: view.sinks())}
    served = {name: sink for name, sink in profile.audit.sinks.items() if sink.type == "jsonl"}
    for name in {*placed, *served}:
        if (name in placed) != (name in served):
            say = f"The audit sink {name} differs between profile and ledger; changing sinks is not supported yet."
            raise SetupError("sinks_changed", say)
    return tuple(
        JsonlSink(Path(placed[name].location), ledger.ledger_id, name=name, required=sink.required)
        for name, sink in served.items()
    )


def open_house(
    profile_path: Path,
    *,
    clock: Callable[[], InstantMs] = now_ms,
    recorder: Callable[[LedgerId], SpanRecorder] = span_recorder,
    observe: Callable[[str], None] = _unobserved,
    further_sinks: Sequence[Sink] = (),
    reading: bool = False,
) -> House:
    """Put one issuer together.

    `further_sinks` are sinks of an embedding host, beside the profile's own. With `reading` nothing is permitted, and
    the owner's policies may be broken.

    Raises:
        ProfileRefused, BundleRefused, EngineUnfit, SetupError: what the owner wrote cannot be used.
        Fault: ledger, keys, sinks or protected store cannot be used.
    """
    places = Places(profile_path.absolute())
    terms = read_terms(places, reading=reading)
    profile = terms.profile
    ring = open_key_ring(places.keys)
    ledger = open_ledger(places, ring, clock=clock, recorder=recorder, observe=observe)
    try:
        check_at_start(places, ring, ledger)
        sinks = (*registered_sinks(profile, ledger), *further_sinks)
        return House(
            profile=profile,
            ledger=ledger,
            ring=ring,
            protected=ProtectedStore(places.protected, ring, ledger.ledger_id),
            bundle=terms.bundle,
            directory=terms.directory,
            operations=terms.operations,
            units=terms.units,
            delivery=Delivery(sinks, LedgerSpans(ledger)),
            instance=Instance(places.instances, new_instance()),
            now=clock,
            observe=observe,
        )
    except BaseException:
        ledger.close()
        raise
