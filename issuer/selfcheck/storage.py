"""What the issuer keeps: keys, protected store and ledger; and the disk, the clock and the open admissions.

The ledger is opened to be looked at only: no lock file, no checkpoint, no transition.
"""

import os
import shutil
from collections.abc import Iterator
from typing import Final

from issuer.clock import instant_text, now_ms
from issuer.selfcheck.finding import Finding, Known, NotJudgedError
from issuer.selfcheck.owner import private_flaw
from ledger.authority import RulingKind, Stop
from ledger.errors import Fault, LedgerCorrupt, LedgerUnavailable

FREE_BYTES_MIN: Final = 16 * 1024 * 1024
"""Free bytes below which nothing should be admitted: as the audit file's own bound; a test compares the two."""

PLAUSIBLE_FROM_MS: Final = 1_767_225_600_000
"""2026-01-01T00:00:00Z, before the first release: a clock that shows less was never set."""

PLAUSIBLE_UNTIL_MS: Final = 4_102_444_800_000
"""2100-01-01T00:00:00Z: no installation of this release lives as long."""

MEBIBYTE: Final = 1024 * 1024

_RESTORE: Final = "Stop the issuer, keep this file as evidence, and restore the newest backup of the ledger."
_MORE_RECORDS: Final = "Run `issuer ledger collect`, or give the ledger more in `[ledger]` of the profile."
_MORE_TRAIL: Final = (
    "Sign a checkpoint with `issuer audit checkpoint` and archive the older trail with "
    "`issuer audit archive --out FILE`, or give the trail more in `[ledger]` of the profile."
)
_UPGRADE: Final = (
    "Stop what runs of the earlier release; the upgrade then keeps a copy of the ledger beside it."
)
_NEWER_RING: Final = (
    "Bring back the newest copy of the keys' folder, as a whole: an older one lacks the keys made since. "
    "If it is the newest, keep the ledger's file as evidence, and restore the newest backup of the ledger."
)
_LEDGER_NEXT: Final = {
    "missing": "Bring the ledger back, or name the right profile; only a new issuer makes one: `issuer init FOLDER`.",
    "not_a_file": "Put the real file in its place.",
    "linked_twice": "Remove the second name.",
    "busy": "Try again; if that stays, find the program that holds the ledger.",
    "disk_full": "Free some space.",
    "unreadable": "Give this account its ledger folder back: check owner and modes.",
    "read_only": "Make the ledger and its folder writable for this account.",
    "journal_mode": "Some other program changed it: stop that; the next command of the issuer sets it right.",
    "halted": "Run `issuer ledger check`, and restore the newest backup if it finds a problem still.",
    "schema_version": "Use the release that made it, or a newer one.",
    "schema_older": "It is a copy from before its upgrade: bring the newest file back, or restore the newest backup.",
    "schema": "Use the release that made it; if that is this one, restore the newest backup of the ledger.",
}


def keys(known: Known) -> Iterator[Finding]:
    """Say whether the key ring opens, as a whole, and is private (SEC-03)."""
    from issuer.sealing import KeysUnavailable, open_key_ring

    try:
        known.ring = open_key_ring(known.places.keys)
    except KeysUnavailable as fault:
        says, _colon, remedy = fault.message.partition(": ")
        place = f"{fault.path.parent.name}/{fault.path.name}"
        yield Finding(check="keys", ok=False, says=f"{says} ({place}).", next=_sentence(remedy))
        return
    from issuer.sealing import KeyState

    ring = known.ring
    count = len(ring.key_ids)
    halfway = [f"{key_id:08x}" for key_id in ring.key_ids if ring.state(key_id) is KeyState.REVOKING]
    if halfway:
        says = f"A revocation was begun and not ended ({', '.join(halfway)}): its permits are void already."
        yield Finding(check="keys", ok=False, says=says, next=f"Run `issuer keys revoke {halfway[0]}` again.")
        return
    says = f"The key ring opens: {count} {_many('key', count)}, private; {ring.active_key_id:08x} is active."
    yield Finding(check="keys", ok=True, says=says)


def protected(known: Known) -> Iterator[Finding]:
    """Say whether the protected store opens (LED-03)."""
    from issuer.sealing import ProtectedStore, ProtectedStoreUnavailable

    flaw = private_flaw(known.places.protected)
    if flaw is not None:
        yield Finding(check="protected", ok=False, says=flaw[0], next=flaw[1])
        return
    # Opening judges the folder alone, so any plain id does where the ledger's own is not known.
    ledger_id = "unknown" if known.ledger is None else known.ledger.ledger_id
    try:
        ProtectedStore(known.places.protected, known.the_ring(), ledger_id)
    except ProtectedStoreUnavailable as fault:
        remedy = f"Repair {known.places.protected}: owner, mode 0700, no link."
        says = f"The protected store does not open: {fault.reason}."
        yield Finding(check="protected", ok=False, says=says, next=remedy)
        return
    yield Finding(check="protected", ok=True, says="The protected store opens, private.")


def ledger(known: Known) -> Iterator[Finding]:
    """Say whether the ledger opens: its head's MAC, its schema, its pragmas (LED-04, LED-06)."""
    from issuer.look import open_to_look
    from ledger.sqlite import journal_mode
    from ledger.sqlite.halt import standing_halt
    from ledger.sqlite.schema import SCHEMA_VERSION

    path = known.places.ledger
    try:
        opened = open_to_look(known.places, known.the_ring())
    except (LedgerUnavailable, LedgerCorrupt) as fault:
        stranger = _unknown_key(known, fault)
        if stranger is not None:
            says = (
                f"The ledger's head was signed with the key {stranger:08x}, which the key ring does not have."
            )
            yield Finding(check="ledger", ok=False, says=says, next=_NEWER_RING)
            return
        # Keys that do not know of this schema are those of an earlier release; beside others the file is an older copy.
        is_due = fault.reason == "schema_older" and known.the_ring().ledger_schema < SCHEMA_VERSION
        remedy = _UPGRADE if is_due else _LEDGER_NEXT.get(fault.reason, _RESTORE)
        yield Finding(check="ledger", ok=None if is_due else False, says=fault.message, next=remedy)
        return
    known.ledger = opened
    entries = opened.read(lambda view: view.head()).sequence
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        says = "The ledger cannot be written to by this account."
        yield Finding(check="ledger", ok=False, says=says, next=_LEDGER_NEXT["read_only"])
        return
    halt = standing_halt(path)
    if halt is not None:
        says = f"New effects are stopped, since a check of the ledger found a problem ({halt.word})."
        yield Finding(check="ledger", ok=False, says=says, next=_LEDGER_NEXT["halted"])
        return
    says = (
        f"The ledger opens: {entries} entries under an authentic head, this release's schema, "
        f"journal mode {journal_mode()}, synchronous FULL."
    )
    yield Finding(check="ledger", ok=True, says=says)


def _unknown_key(known: Known, fault: Fault) -> int | None:
    """Return the key that the ledger's head names, where the ring lacks it or believes it no more."""
    from issuer.sealing import KeyState
    from ledger.sqlite.head import head_key_said

    if not isinstance(fault, LedgerCorrupt) or fault.reason != "head_mac":
        return None
    ring, key_id = known.the_ring(), head_key_said(known.places.ledger)
    if key_id in ring.key_ids and ring.state(key_id) is not KeyState.REVOKED:
        return None
    return key_id


def ledger_folder(known: Known) -> Iterator[Finding]:
    """Say whether the ledger's folder and the locks in it are this account's alone."""
    places = known.places
    flaws = [private_flaw(folder) for folder in (places.ledger_folder, places.instances) if folder.exists()]
    found = [flaw for flaw in flaws if flaw is not None]
    for says, remedy in found:
        yield Finding(check="ledger_folder", ok=False, says=says, next=remedy)
    if found or not places.ledger_folder.exists():
        return
    held = len(list(places.instances.glob("*.lock"))) if places.instances.exists() else 0
    yield Finding(
        check="ledger_folder",
        ok=True,
        says=f"The ledger's folder is private; {held} {_many('lock', held)} of processes.",
    )


def file_system(known: Known) -> Iterator[Finding]:
    """Say whether what the ledger is on is meant to keep what was synced (LED-01)."""
    from ledger.sqlite.connection import DURABLE_FILE_SYSTEMS
    from ledger.sqlite.connection import file_system as type_of

    folder = known.places.ledger_folder
    if not folder.exists():
        raise NotJudgedError("ledger")
    kind = type_of(folder)
    if kind == "unknown":
        yield Finding(
            check="file_system",
            ok=None,
            says="The system does not say which file system the ledger is on.",
            next="Make sure that it is a local disk, and neither memory nor a network share.",
        )
    elif kind == "overlay":
        yield Finding(
            check="file_system",
            ok=True,
            says="The ledger is on overlay: as durable as the disk below, and gone with its container.",
            next="Put the issuer's folder on a volume.",
        )
    elif kind in DURABLE_FILE_SYSTEMS:
        yield Finding(check="file_system", ok=True, says=f"The ledger is on {kind}.")
    else:
        yield Finding(
            check="file_system",
            ok=True,
            says=f"Not durable: the ledger is on {kind}, which may lose in a power cut what was synced.",
            next="Use it to try things out only; move the issuer's folder to a local disk for anything real.",
        )


def space(known: Known) -> Iterator[Finding]:
    """Say whether the disk has room to record the outcomes of what is in flight, and keeps it (LED-02)."""
    from ledger.sqlite.ballast import Ballast

    folder = known.places.ledger_folder
    if not folder.exists():
        raise NotJudgedError("ledger")
    free = shutil.disk_usage(folder).free
    says = f"{free // MEBIBYTE} MiB are free where the ledger is."
    if free < FREE_BYTES_MIN:
        yield Finding(
            check="space", ok=False, says=says, next=f"Free at least {FREE_BYTES_MIN // MEBIBYTE} MiB."
        )
        return
    stands = Ballast(known.places.ledger).stands
    hint = "" if stands else "The ballast is missing; the next request makes it again."
    yield Finding(check="space", ok=True, says=says, next=hint)


def capacity(known: Known) -> Iterator[Finding]:
    """Say how full the ledger is, bound by bound, as its owner chose them; early, while everything works (LED-02)."""
    from ledger.capacity import ANNOUNCED_PERCENT, fills

    bounds = known.the_profile().ledger.capacity
    found = fills(known.the_ledger().read(lambda view: view.holdings()), bounds)
    told = ", ".join(f"{fill.what} {fill.percent}%" for fill in found)
    high = [fill for fill in found if fill.percent >= ANNOUNCED_PERCENT]
    remedies = (_MORE_TRAIL if fill.what == "span_bytes" else _MORE_RECORDS for fill in high)
    remedy = " ".join(dict.fromkeys(remedies))
    if any(fill.used >= fill.refused_from for fill in found):
        says = f"The ledger is full ({told}), so new effects are refused."
        yield Finding(check="capacity", ok=False, says=says, next=remedy)
        return
    yield Finding(check="capacity", ok=True, says=f"The ledger has room; used: {told}.", next=remedy)


def clock(known: Known) -> Iterator[Finding]:
    """Say whether the clock can be trusted: plausible, and not behind the ledger's last entry (PER-03)."""
    from ledger.timekeeping import CLOCK_BACKWARD_TOLERANCE_MS

    now = now_ms()
    remedy = "Set the clock right, and let it be kept right (NTP)."
    if not PLAUSIBLE_FROM_MS <= now < PLAUSIBLE_UNTIL_MS:
        says = f"The clock shows {instant_text(now)}, which cannot be."
        yield Finding(check="clock", ok=False, says=says, next=remedy)
        return
    last = known.the_ledger().last_entry_ms
    if now < last - CLOCK_BACKWARD_TOLERANCE_MS:
        says = f"The clock shows {instant_text(now)}, behind the ledger's last entry at {instant_text(last)}."
        yield Finding(check="clock", ok=False, says=says, next=remedy)
        return
    yield Finding(check="clock", ok=True, says=f"The clock shows {instant_text(now)}, after the last entry.")


def admissions(known: Known) -> Iterator[Finding]:
    """Tell the admissions that are open, and those that are overdue (ADM-07)."""
    claims = known.the_ledger().read(lambda view: view.claims_open())
    now = now_ms()
    overdue = sum(claim.deadline_ms <= now for claim in claims)
    says = f"{len(claims)} {_many('admission', len(claims))} open, {overdue} overdue."
    remedy = "The next command makes them unknown; then look at the service, and send nothing again."
    yield Finding(check="admissions", ok=True, says=says, next=remedy if overdue else "")


def stops(known: Known) -> Iterator[Finding]:
    """Tell what is frozen or revoked: nothing of it is admitted until it is thawed (ADM-05)."""
    rulings = known.the_ledger().read(lambda view: view.rulings(RulingKind.STOP))
    stopped = [f"{one.name} ({one.value})" for one in rulings if one.value != Stop.OPEN]
    says = f"Stopped: {', '.join(stopped)}." if stopped else "Nothing is frozen or revoked."
    remedy = "If that is over, an owner thaws it: `issuer thaw KIND NAME`."
    yield Finding(check="stops", ok=True, says=says, next=remedy if stopped else "")


def _many(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
