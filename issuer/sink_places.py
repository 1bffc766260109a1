"""Where the sinks of a ledger are: as it has them on record, as the profile in force would have them, what differs.

Rules: AUD-03 (a sink stands where the ledger says: neither a file of the owner nor the environment moves it), AUD-02
(it moves by an act of an operator, and processes that are open follow). A profile that names a sink which the ledger
does not, or no longer names one, is put in force all the same: nothing is acknowledged then, and the sentence says by
which act that ends. A changed place alone changes nothing until that act.
Next: `issuer.commands.sinks`, the act.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from audit import Delivery, Kept, LedgerSpans, Sink, Stand
from issuer.errors import SetupError
from issuer.profile import Profile
from issuer.sink_building import Credentials, built_sink, goes_to, is_carried, location_of
from ledger.authority import SINKS_CHANGED, RulingKind
from ledger.model import LedgerId, SinkRegistration
from ledger.port import Ledger, View


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkMeans:
    """What sinks are built with: as the parameters of `issuer.sink_building.built_sink`."""

    credentials: Credentials | None = None
    loads: bool = True


NO_MEANS: Final = SinkMeans()


def wanted_sinks(profile: Profile, ledger_id: LedgerId) -> tuple[SinkRegistration, ...]:
    """Return the sinks of a profile, each where it would be made now."""
    return tuple(wanted_sink(profile, name, ledger_id) for name in profile.audit.sinks)


def wanted_sink(
    profile: Profile,
    name: str,
    ledger_id: LedgerId,
    *,
    path: str | None = None,
    old: SinkRegistration | None = None,
) -> SinkRegistration:
    """Return a sink of a profile where it would be made now, or below the folder `path`.

    One that another program keeps, and that goes elsewhere than `old`, gets a watermark beside that of the old place.

    Raises:
        KeyError: the profile has no such sink.
    """
    declared = profile.audit.sinks[name]
    location = location_of(name, declared, issuer=profile.name, ledger_id=ledger_id, path=path)
    new = SinkRegistration(name=name, kind=declared.type, location=location)
    if not is_carried(new) or old is None or not is_carried(old):
        return new
    if goes_to(old) == goes_to(new):
        return old
    return replace(new, location=f"{location}.{place_digest(goes_to(new))[:8]}")


def place_digest(location: str) -> str:
    """Return SHA-256 of a sink's place: the trail proves where it was without naming a path of this machine."""
    return hashlib.sha256(location.encode()).hexdigest()


def sinks_version(view: View) -> str:
    """Return what another change of the sinks would change; empty where they are as `init` registered them."""
    ruling = view.ruling(RulingKind.SINK, SINKS_CHANGED)
    return "" if ruling is None else ruling.value


def kept_back(view: View) -> Mapping[str, tuple[Kept, ...]]:
    """Return the spans that each sink is not given, by its name, the earliest first; for most ledgers none."""
    if not sinks_version(view):
        return MappingProxyType({})
    found: dict[str, list[Kept]] = {}
    for ruling in view.rulings(RulingKind.QUARANTINE):
        name, _colon, first = ruling.name.rpartition(":")
        found.setdefault(name, []).append(Kept(first=int(first), last=int(ruling.value)))
    return {name: tuple(sorted(kept, key=lambda one: one.first)) for name, kept in found.items()}


def differing(profile: Profile, placed: Sequence[SinkRegistration]) -> tuple[str, ...]:
    """Return the names of sinks that only one of profile and ledger has, sorted."""
    return tuple(sorted(profile.audit.sinks.keys() ^ {sink.name for sink in placed}))


def differing_say(name: str) -> str:
    """Return the sentence about a sink that only one of profile and ledger has."""
    return f"The audit sink {name} differs between profile and ledger; run `issuer sink replace {name}`."


def stood(profile: Profile, ledger: Ledger, means: SinkMeans = NO_MEANS) -> tuple[tuple[Sink, ...], Stand]:
    """Return the sinks as they stand under a profile, and what that rests on, read from one snapshot.

    Those that only one of profile and ledger has, or that the two send to different places, are left out and named as
    the trouble for which nothing is acknowledged.

    Raises:
        SetupError: `sink_not_admitted`; a third party's code may not be loaded, or cannot.
        Fault: the ledger cannot be read.
    """
    placed, version, kept = ledger.read(
        lambda view: (tuple(view.sinks()), sinks_version(view), kept_back(view))
    )
    differ = list(differing(profile, placed))
    built = []
    for sink in placed:
        declared = profile.audit.sinks.get(sink.name)
        if declared is None:
            continue
        try:
            built.append(
                built_sink(sink, ledger.ledger_id, declared, credentials=means.credentials, loads=means.loads)
            )
        except SetupError as fault:
            if fault.reason != "sinks_changed":
                raise
            differ.append(sink.name)
    trouble = (differ[0], differing_say(differ[0])) if differ else None
    return tuple(built), Stand(version=version, trouble=trouble, kept=kept)


def delivery_of(sinks: Sequence[Sink], ledger: Ledger, stand: Stand) -> Delivery:
    """Return the gate over these sinks; it looks after each acknowledgement whether they are still the ledger's."""
    return Delivery(sinks, LedgerSpans(ledger), stand=stand, version_now=lambda: ledger.read(sinks_version))


__all__ = [
    "NO_MEANS",
    "SinkMeans",
    "delivery_of",
    "differing",
    "differing_say",
    "kept_back",
    "place_digest",
    "sinks_version",
    "stood",
    "wanted_sink",
    "wanted_sinks",
]
