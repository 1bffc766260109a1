"""The only composition root: from a profile's path to a house that works, or one clear fault.

Rules: LED-04 and POL-04 (what is unsafe or invalid stops here, as a whole; a ledger that may have suffered is checked
before it is used, and then stays open to be read), SEC-03 (keys are judged at the start),
AUD-02 (zero required sinks refuse to start; a sink stands where the ledger says, not where the environment does).
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType

from audit import Sink, Stand
from audit.recorder import OtelRecorder
from issuer.activation import UNACTIVATED, opening_terms
from issuer.checking import check_at_start, refuse_behind_sinks
from issuer.clock import machine_uptime, now_ms
from issuer.credentials import credential_reader, seal_credentials
from issuer.house import House
from issuer.ids import new_instance, random_bytes
from issuer.instance import Instance
from issuer.operations.registry import Handed
from issuer.places import Places
from issuer.profile import Profile, load_profile
from issuer.resigning import signed_anew
from issuer.revised import RevisedLedger
from issuer.sealing import KeyRing, KeysUnavailable, ProtectedStore, StorageFault
from issuer.sealing.authenticator import RingAuthenticator
from issuer.sink_places import SinkMeans, delivery_of, stood
from issuer.terms import late_policies
from issuer.upgrading import upgraded_keys
from issuer.version import VERSION
from ledger.errors import LedgerCorrupt, LedgerUnavailable
from ledger.model import InstantMs, LedgerId
from ledger.port import Ledger, SpanRecorder
from ledger.sqlite import SqliteLedger
from ledger.sqlite.ballast import Ballast
from ledger.timekeeping import NO_UPTIME, Uptime


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
    uptime: Callable[[], Uptime] | None = None,
    recorder: Callable[[LedgerId], SpanRecorder] = span_recorder,
    observe: Callable[[str], None] = _unobserved,
    noise_bytes_max: int | None = None,
    path: Path | None = None,
    tolerant: bool = False,
) -> SqliteLedger:
    """Open the ledger of an issuer, or a copy of it at `path`; `ring` belongs to it and to no other (ADM-06).

    The machine's own uptime goes with the machine's clock, and with no other.

    Raises:
        KeysUnavailable: the keys belong to no ledger.
        LedgerUnavailable, LedgerCorrupt: as `ledger.sqlite.SqliteLedger`.
    """
    try:
        return SqliteLedger(
            places.ledger if path is None else path,
            ledger_id=own_ledger(ring, places),
            tolerant=tolerant,
            recorder=recorder,
            keys=RingAuthenticator(ring),
            clock=clock,
            uptime=_uptime_beside(clock, uptime),
            observer=observe,
            noise_bytes_max=noise_bytes_max,
        )
    except LedgerUnavailable as fault:
        if fault.reason != "missing":
            raise
        message = (
            "The ledger is gone, and its keys are there; bring it back with `issuer ledger restore FILE`, "
            "or name the right profile."
        )
        raise LedgerUnavailable("missing", message) from None
    except LedgerCorrupt as fault:
        if fault.reason != "schema_older":
            raise
        # Its keys belong to it already, so it was upgraded once, and this is not the file that was made then.
        message = "The ledger is a copy from before its upgrade; bring the newest file back."
        raise LedgerCorrupt("schema_older", message) from None


def _uptime_beside(
    clock: Callable[[], InstantMs], uptime: Callable[[], Uptime] | None
) -> Callable[[], Uptime]:
    return uptime or (machine_uptime() if clock is now_ms else lambda: NO_UPTIME)


def current_keys(
    places: Places,
    *,
    clock: Callable[[], InstantMs] = now_ms,
    uptime: Callable[[], Uptime] | None = None,
    recorder: Callable[[LedgerId], SpanRecorder] = span_recorder,
    observe: Callable[[str], None] = _unobserved,
) -> KeyRing:
    """Open the keys of an issuer; one of an earlier release is brought up to this one first.

    Raises:
        ProfileRefused: an upgrade is due, and the profile that says its mode cannot be read.
        Fault: as `issuer.upgrading.upgraded_keys`.
    """
    beside = _uptime_beside(clock, uptime)
    return upgraded_keys(places, recorder=recorder, clock=clock, uptime=beside, observe=observe)


def own_ledger(ring: KeyRing, places: Places) -> LedgerId:
    """Return the one ledger that the keys belong to.

    Raises:
        KeysUnavailable: they do not say.
    """
    if ring.ledger_id is None:
        raise KeysUnavailable(StorageFault.UNBOUND, places.keys / "ledger")
    return LedgerId(ring.ledger_id)


def _opened(open_it: Callable[[], SqliteLedger], ballast: Ballast) -> SqliteLedger:
    """Open a ledger; on a full disk the ballast makes the little room that this takes, or nothing could be read."""
    try:
        return open_it()
    except LedgerUnavailable:
        if not (ballast.disk_is_full and ballast.release()):
            raise
    return open_it()


def _named_credentials(profile: Profile) -> frozenset[str]:
    named = {name for operation in profile.operations.values() for name in operation.credentials}
    return frozenset(
        named | {sink.bearer for sink in profile.audit.sinks.values() if sink.bearer is not None}
    )


def _proven_sinks(
    places: Places, ring: KeyRing, ledger: Ledger, profile: Profile, means: SinkMeans
) -> tuple[tuple[Sink, ...], Stand]:
    """Check the ledger where that is due, and hold it against its sinks; return those, and what that rests on."""
    check_at_start(places, ring, ledger)
    sinks, stand = stood(profile, ledger, means)
    refuse_behind_sinks(places, ledger)
    return sinks, stand


def open_house(
    profile_path: Path,
    *,
    clock: Callable[[], InstantMs] = now_ms,
    uptime: Callable[[], Uptime] | None = None,
    recorder: Callable[[LedgerId], SpanRecorder] = span_recorder,
    observe: Callable[[str], None] = _unobserved,
    further_sinks: Sequence[Sink] = (),
    adapters: Handed = MappingProxyType({}),
    reading: bool = False,
) -> House:
    """Put one issuer together.

    `further_sinks` are sinks of an embedding host, beside the profile's own, and `adapters` its adapters. With
    `reading` nothing is permitted, no adapter of a third party is loaded, and the owner's policies may be broken.

    Raises:
        ProfileRefused, BundleRefused, EngineUnfit, SetupError: what the owner wrote cannot be used.
        Fault: ledger, keys, sinks or protected store cannot be used.
    """
    places = Places(profile_path.absolute())
    if not places.profile.exists():
        load_profile(places.profile)  # which says so: where there is none, nothing else is looked for
    ring = current_keys(places, clock=clock, uptime=uptime, recorder=recorder, observe=observe)
    ballast = Ballast(places.ledger)
    opened = partial(open_ledger, places, ring, clock=clock, uptime=uptime, recorder=recorder)
    open_anew = partial(opened, observe=observe, tolerant=reading)
    resigned = partial(signed_anew, places=places, ring=ring, recorder=recorder)
    ledger = _opened(open_anew, ballast)
    try:
        revision, terms = opening_terms(places, ledger, reading=reading, adapters=adapters)
        profile = terms.profile
        ledger.noise_bytes_max = profile.ledger.capacity.noise_bytes_max
        if not reading:
            seal_credentials(places.credentials, ring, _named_credentials(profile))
        means = SinkMeans(
            credentials=credential_reader(places.credentials, lambda: ring, seals=not reading),
            loads=not reading,
        )
        own_sinks, stand = _proven_sinks(places, ring, ledger, profile, means)
        return House(
            places=places,
            profile=profile,
            revision=revision,
            ledger=RevisedLedger(ledger, None if revision == UNACTIVATED else revision),
            ring=ring,
            protected=ProtectedStore(places.protected, ring, ledger.ledger_id),
            bundle=terms.bundle,
            directory=terms.directory,
            operations=terms.operations,
            units=terms.units,
            delivery=delivery_of((*own_sinks, *further_sinks), ledger, stand),
            further_sinks=tuple(further_sinks),
            sink_means=means,
            instance=Instance(places.instances, new_instance()),
            ballast=ballast,
            open_anew=open_anew,
            resign=partial(resigned, clock=clock, uptime=_uptime_beside(clock, uptime), observe=observe),
            now=clock,
            observe=observe,
            late_bundle=cache(partial(late_policies, profile, places, revision)) if reading else None,
        )
    except BaseException:
        ledger.close()
        raise
