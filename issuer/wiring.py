"""The only composition root: from a profile's path to a house that works, or one clear fault.

Rules: LED-04 and POL-04 (what is unsafe or invalid stops here, as a whole; a ledger that may have suffered is checked
before it is used, and then stays open to be read), SEC-03 (keys are judged at the start),
AUD-02 (zero required sinks refuse to start; a sink stands where the ledger says, not where the environment does).
"""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path

from audit import Delivery, JsonlSink, LedgerSpans, Sink
from audit.recorder import OtelRecorder
from issuer.checking import check_at_start
from issuer.clock import now_ms
from issuer.credentials import credential_reader
from issuer.errors import SetupError
from issuer.house import House
from issuer.ids import new_instance, random_bytes
from issuer.instance import Instance
from issuer.operations.registry import all_units, build_catalogue, build_operations
from issuer.places import Places
from issuer.policy_files import read_policies
from issuer.profile import Profile, load_profile
from issuer.sealing import KeyRing, ProtectedStore, open_key_ring
from issuer.sealing.authenticator import RingAuthenticator
from issuer.version import VERSION
from ledger.model import InstantMs, LedgerId
from ledger.port import Ledger, SpanRecorder
from ledger.sqlite import SqliteLedger
from policies import ActorFact, Bundle, Catalogue, Directory, PersonFact, load_bundle, run_canaries


def _unobserved(_step: str) -> None:
    """Observe nothing."""


def build_directory(profile: Profile, catalogue: Catalogue) -> Directory:
    """Return who exists, as policies see it."""
    people = tuple(
        PersonFact(name=name, groups=tuple(person.groups)) for name, person in profile.people.items()
    )
    actors = tuple(
        ActorFact(name=name, groups=tuple(actor.groups), answers_to=actor.answers_to)
        for name, actor in profile.actors.items()
    )
    return Directory(people=people, actors=actors, catalogue=catalogue)


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


@functools.cache
def _prove_engine() -> None:
    """Run the engine's canaries once in a process: it does not change while it runs, and they cost most of opening.

    Raises:
        EngineUnfit: one of them failed.
    """
    run_canaries()


def load_policies(profile: Profile, places: Places) -> tuple[Bundle, Directory]:
    """Return bundle and directory, or refuse the bundle as a whole (POL-04).

    Raises:
        BundleRefused, EngineUnfit, SetupError: nothing of it is used.
    """
    _prove_engine()
    catalogue = build_catalogue(profile)
    return load_bundle(read_policies(places.policies), catalogue), build_directory(profile, catalogue)


def open_house(
    profile_path: Path,
    *,
    clock: Callable[[], InstantMs] = now_ms,
    recorder: Callable[[LedgerId], SpanRecorder] = span_recorder,
    observe: Callable[[str], None] = _unobserved,
    further_sinks: Sequence[Sink] = (),
) -> House:
    """Put one issuer together.

    `further_sinks` are sinks of an embedding host, beside the profile's own.

    Raises:
        ProfileRefused, BundleRefused, EngineUnfit, SetupError: what the owner wrote cannot be used.
        Fault: ledger, keys, sinks or protected store cannot be used.
    """
    places = Places(profile_path.absolute())
    profile = load_profile(profile_path)
    bundle, directory = load_policies(profile, places)
    operations = build_operations(
        profile, folder=places.folder, credentials=credential_reader(places.credentials)
    )
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
            bundle=bundle,
            directory=directory,
            operations=operations,
            units=all_units(profile),
            delivery=Delivery(sinks, LedgerSpans(ledger)),
            instance=Instance(places.instances, new_instance()),
            now=clock,
            observe=observe,
        )
    except BaseException:
        ledger.close()
        raise
