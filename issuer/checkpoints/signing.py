"""Signing a checkpoint, step by step; a kill between any two leaves nothing that is not true.

Rules: AUD-04 (C2SP: never a smaller tree, never one that does not go on), AUD-01 (its span), AUD-02 (nobody's effect
waits for it). In order:
  1. alone among all who sign   2. the ledger goes on from everything that was signed and is known, proven under the
  writers' lock   3. memory of this tree, durable   4. the note, durable under its name, and as `latest`
  5. its span   6. the sinks, as far as they take it   7. copies elsewhere.
Memory comes before the signature, so that nothing smaller can be signed after any kill; the span comes after the note,
so that no span tells of one that is not there. A kill between 3 and 4 leaves a tree that was never signed, and the next
one goes on from it; a kill between 4 and 5 leaves a note whose span the next one writes.
Where nothing but checkpoints happened since the newest note, that one is the answer, and nothing is signed.
Next: `issuer.checkpoints.keeper`, when this is done by itself.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeVar

from audit import AuditUnavailable
from issuer.checkpoints.errors import CheckpointUnavailable
from issuer.checkpoints.folder import checkpoint_folder, signing_alone, unavailable
from issuer.checkpoints.memory import Remembered, remember, remembered
from issuer.checkpoints.notes import Copies, Kept, Notes, copied, newest_copy
from issuer.checkpoints.proof import Bound, Proof, Proven
from issuer.house import House
from issuer.places import Places
from issuer.profile import Profile
from issuer.sealing import KeyRing, StorageFault
from issuer.sealing.authenticator import RingAuthenticator
from issuer.sealing.private_files import Flaw, opened_folder
from ledger.changes import Step
from ledger.errors import Fault
from ledger.model import InstantMs, LedgerId
from ledger.port import Verdict, View
from ledger.transitions import AttributeValue, Transition, TransitionName

__all__ = [
    "DEMANDED_S",
    "ELSEWHERE_S",
    "Made",
    "Reason",
    "before",
    "bounds_known",
    "carried",
    "copies_folder",
    "named_folder",
    "recall",
    "renew",
    "sign",
    "within",
]

T = TypeVar("T")

ELSEWHERE_S: Final = 0.7
"""Seconds that a folder elsewhere has, twice in a signing: what hangs there keeps neither that nor a process that ends.

A local disk takes a hundredth of it. What is slower goes on in its thread for as long as the process does.
"""

DEMANDED_S: Final = 5.0
"""The same where a person waits for the copies to be made."""


NO_COPIES: Final = Copies()
"""How copies stand where none are wanted."""


class Reason(StrEnum):
    """Why a checkpoint was signed; the word of its span."""

    DEMANDED = "demanded"
    SCHEDULED = "scheduled"
    FULL = "full"
    SHUTDOWN = "shutdown"
    RESTORED = "restored"


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """The newest checkpoint, signed now or before.

    Attributes:
        kept: its epoch and size.
        root: 32 bytes.
        note: the signed note, byte for byte.
        file: where it is kept.
        key_id: the key of the ring that signed it.
        is_new: whether it was signed now.
        has_left: whether a restore left later ones behind, so that it does not go on from those.
        at_ms: when it was signed.
        copies: how the copies elsewhere stand.
    """

    kept: Kept
    root: bytes
    note: bytes
    file: Path
    key_id: int
    is_new: bool
    has_left: bool
    at_ms: InstantMs
    copies: Copies = NO_COPIES


def sign(
    house: House,
    reason: Reason,
    *,
    wait_s: float,
    elsewhere_s: float = ELSEWHERE_S,
    said: Mapping[str, AttributeValue] = MappingProxyType({}),
    is_done: Callable[[Remembered], bool] = lambda _memory: False,
) -> Made | None:
    """Sign a checkpoint of everything that the ledger holds; return None where `is_done` says that it was just done.

    `wait_s` is how long to wait for another process that signs, `elsewhere_s` for a folder elsewhere, each time; `said`
    is what else the span carries.

    Raises:
        CheckpointRefused: the ledger contradicts what was signed before.
        CheckpointUnavailable: the signer's folder cannot be used.
        Fault: as `ledger.port.Ledger.transact`; the ledger cannot be proven, or the span not be written.
    """
    ledger_id = house.ledger.ledger_id
    folder = checkpoint_folder(house.ledger)
    elsewhere = copies_folder(house)
    house.ring.notice()
    with signing_alone(folder, wait_s=wait_s) as opened:  # 1
        house.observe("checkpoint_alone")
        if checkpoint_folder(house.ledger) != folder:
            # The audit file was moved while this waited, and what is remembered went along with it.
            say = "No checkpoint was signed: the audit file was moved meanwhile; try again."
            raise CheckpointUnavailable("busy", say)
        notes = Notes(opened, house.ring, ledger_id)
        memory = remembered(opened, ledger_id, RingAuthenticator(house.ring))
        if memory is not None and is_done(memory):
            return None
        bounds = bounds_known(notes, elsewhere, house.ring, ledger_id, wait_s=elsewhere_s)
        made = _Signing(house, opened, notes, memory, dict(said)).made(reason, folder, bounds)
    # Who takes the file of a sink and the note finds all in it that was signed; a sink that is gone changes no note.
    if made.is_new:
        with suppress(AuditUnavailable):
            house.delivery.acknowledge(house.ledger.reached.sequence)  # 6
    if elsewhere is None:
        return made
    copies = carried(folder, elsewhere, house.ring, ledger_id, wait_s=elsewhere_s)  # 7
    return replace(made, copies=copies)


def copies_folder(house: House) -> Path | None:
    """Return the folder elsewhere that the revision in force names; a relative one begins at the profile's folder."""
    return named_folder(house.profile, house.places)


def named_folder(profile: Profile, places: Places) -> Path | None:
    """Return the folder elsewhere that a profile names."""
    wanted = profile.audit.checkpoint
    return None if wanted is None or wanted.copy_to is None else places.folder / wanted.copy_to


def carried(folder: Path, elsewhere: Path, ring: KeyRing, ledger_id: LedgerId, *, wait_s: float) -> Copies:
    """Copy what is missing elsewhere, within `wait_s`; what fails is told and blocks nothing."""

    def carry() -> Copies:
        with opened_folder(folder) as opened:
            return copied(Notes(opened, ring, ledger_id), elsewhere, ledger_id)

    return within(wait_s, carry) or Copies(folder=str(elsewhere), trouble="slow")


def recall(folder: Path, ring: KeyRing, ledger_id: LedgerId) -> Remembered | None:
    """Return what the signer remembers; None where there is nothing, or nothing that these keys made.

    Raises:
        CheckpointUnavailable: it is not private, or cannot be read.
    """
    try:
        with opened_folder(folder) as opened:
            return remembered(opened, ledger_id, RingAuthenticator(ring))
    except Flaw as flaw:
        if flaw.fault is StorageFault.MISSING:
            return None
        raise unavailable(flaw.fault, folder / flaw.name) from None


def renew(house: House) -> None:
    """Sign with the key that is active now, where anything was signed before; what stands in the way is told later."""
    with suppress(Fault, OSError):
        if recall(checkpoint_folder(house.ledger), house.ring, house.ledger.ledger_id) is not None:
            sign(house, Reason.DEMANDED, wait_s=DEMANDED_S)


def bounds_known(
    notes: Notes | None, elsewhere: Path | None, ring: KeyRing, ledger_id: LedgerId, *, wait_s: float
) -> list[Bound]:
    """Return the newest note that is kept, and the newest copy elsewhere, if that answers in time.

    Raises:
        CheckpointRefused: the note is not as it was signed.
        Flaw: it is no private file.
    """
    found = [] if notes is None else [_bound(notes, kept) for kept in notes.kept()[-1:]]
    copy = None if elsewhere is None else within(wait_s, lambda: newest_copy(elsewhere, ring, ledger_id))
    if copy is not None:
        found.append(Bound(epoch=copy[0].epoch, size=copy[1].size, root=copy[1].root))
    return found


def before(notes: Notes) -> Callable[[int, int], Bound | None]:
    """Return what finds the newest note up to an epoch and a size."""

    def found(epoch: int, size: int) -> Bound | None:
        kept = [one for one in notes.kept() if one.epoch <= epoch and one.size <= size]
        return _bound(notes, kept[-1]) if kept else None

    return found


def within(seconds: float, ask: Callable[[], T]) -> T | None:
    """Return what `ask` returns, or None where it raises or takes longer; then it is left to its thread."""
    answers: list[T] = []

    def run() -> None:
        with suppress(OSError, Fault, Flaw):
            answers.append(ask())

    thread = threading.Thread(target=run, name="issuer-checkpoint-copy", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    thread.join(seconds)
    return answers[0] if answers else None


def _bound(notes: Notes, kept: Kept) -> Bound:
    _key_id, said = notes.read(kept)
    return Bound(epoch=kept.epoch, size=said.size, root=said.root)


class _Signing:
    """One signing, alone in its folder."""

    def __init__(
        self,
        house: House,
        opened: int,
        notes: Notes,
        memory: Remembered | None,
        said: dict[str, AttributeValue],
    ) -> None:
        self._house = house
        self._opened = opened
        self._notes = notes
        self._memory = memory
        self._said = said

    def made(self, reason: Reason, folder: Path, bounds: Sequence[Bound]) -> Made:
        """Return the newest checkpoint of what is proven now to go on from `bounds`; steps 2 to 5."""
        proven, now = self._proven(bounds)  # 2
        self._house.observe("checkpoint_proven")
        memory = self._memory
        if memory is not None and not proven.has_left:
            self._record_late(memory, proven)
            if not proven.others:
                return self._again(memory, folder)
        wanted = Remembered(
            epoch=proven.epoch,
            tree=proven.tree,
            at_ms=now,
            reason=str(Reason.RESTORED if proven.has_left else reason),
        )
        return self._signed(wanted, folder, has_left=proven.has_left)

    def _proven(self, bounds: Sequence[Bound]) -> tuple[Proven, InstantMs]:
        house = self._house
        if house.ledger.damage is not None:
            raise house.ledger.damage
        proof = Proof(self._memory, bounds, before(self._notes))
        house.ledger.read(
            proof.of
        )  # the long way beside the writers, so that little is left to do under their lock

        def look(view: View, now: InstantMs) -> Verdict[tuple[Proven, InstantMs]]:
            return Verdict(value=(proof.of(view), now))

        return house.ledger.beneath.transact(look).value

    def _signed(self, wanted: Remembered, folder: Path, *, has_left: bool) -> Made:
        house, kept = self._house, Kept(epoch=wanted.epoch, size=wanted.tree.size)
        remember(self._opened, house.ledger.ledger_id, RingAuthenticator(house.ring), wanted)  # 3
        house.observe("checkpoint_remembered")
        key_id, note = self._notes.sign(kept, wanted.tree)
        note = self._notes.keep(kept, note)  # 4
        house.observe("checkpoint_kept")
        self._notes.point(note)
        house.observe("checkpoint_latest")
        self._record(wanted, key_id)  # 5
        house.observe("checkpoint_recorded")
        return self._told(wanted, folder, note, key_id, is_new=True, has_left=has_left)

    def _again(self, memory: Remembered, folder: Path) -> Made:
        """Return the checkpoint in memory, whose note is made where a kill came before it."""
        kept = Kept(epoch=memory.epoch, size=memory.tree.size)
        if kept not in self._notes.kept():
            return self._signed(memory, folder, has_left=False)
        key_id, _said = self._notes.read(kept)
        note = self._notes.bytes_of(kept)
        return self._told(memory, folder, note, key_id, is_new=False, has_left=False)

    def _told(
        self, what: Remembered, folder: Path, note: bytes, key_id: int, *, is_new: bool, has_left: bool
    ) -> Made:
        kept = Kept(epoch=what.epoch, size=what.tree.size)
        return Made(
            kept=kept,
            root=what.tree.root(),
            note=note,
            file=folder / kept.name,
            key_id=key_id,
            is_new=is_new,
            has_left=has_left,
            at_ms=what.at_ms,
        )

    def _record_late(self, memory: Remembered, proven: Proven) -> None:
        """Write the span of the checkpoint in memory where a kill, or a full ledger, came before it."""
        kept = Kept(epoch=memory.epoch, size=memory.tree.size)
        if proven.is_recorded or kept not in self._notes.kept():
            return
        key_id, _said = self._notes.read(kept)
        self._record(memory, key_id)

    def _record(self, what: Remembered, key_id: int) -> None:
        house = self._house
        attributes: dict[str, AttributeValue] = {
            "permit.mode": house.mode,
            "permit.revision": house.revision,
            "permit.instance": house.instance.name,
            **self._said,
            "permit.tree.size": what.tree.size,
            "permit.tree.root": what.tree.root().hex(),
            "permit.key.id": f"{key_id:08x}",
            "permit.reason": what.reason,
        }
        step = Step(
            transition=Transition(
                name=TransitionName.CHECKPOINT_SIGNED, story=house.ledger.ledger_id, attributes=attributes
            )
        )
        house.ledger.record(lambda _view, _now: Verdict(value=None, steps=(step,)))
