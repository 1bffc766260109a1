"""How checkpoints stand, without signing one: for whoever looks after the issuer. Nothing is written.

Next: `issuer.selfcheck.checkpoints`.
"""

from dataclasses import dataclass
from pathlib import Path

from issuer.checkpoints.folder import unavailable
from issuer.checkpoints.memory import Remembered, remembered
from issuer.checkpoints.notes import Copies, Notes, copies_state
from issuer.checkpoints.proof import Bound, Proof
from issuer.checkpoints.signing import ELSEWHERE_S, before, bounds_known, within
from issuer.sealing import KeyRing, StorageFault
from issuer.sealing.authenticator import RingAuthenticator
from issuer.sealing.private_files import Flaw, opened_folder
from ledger.port import Ledger

__all__ = ["Standing", "copies_standing", "standing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The last checkpoint, and what came after it.

    Attributes:
        memory: what the signer remembers; None where that is nothing, or was not written with these keys.
        newer: how many spans are newer than the last checkpoint that is known.
    """

    memory: Remembered | None
    newer: int


def standing(folder: Path, elsewhere: Path | None, ledger: Ledger, ring: KeyRing) -> Standing | None:
    """Hold a ledger against everything that was signed and is known; None where that is nothing.

    Raises:
        CheckpointRefused: it does not go on from there.
        CheckpointUnavailable: the signer's folder is not as it must be.
        Fault: the ledger cannot be read.
    """
    memory: Remembered | None = None
    try:
        with opened_folder(folder) as opened:
            memory = remembered(opened, ledger.ledger_id, RingAuthenticator(ring))
            notes = Notes(opened, ring, ledger.ledger_id)
            bounds = bounds_known(notes, elsewhere, ring, ledger.ledger_id, wait_s=ELSEWHERE_S)
            return _held(ledger, memory, bounds, Proof(memory, bounds, before(notes)))
    except Flaw as flaw:
        if flaw.fault is not StorageFault.MISSING or flaw.name:
            raise unavailable(flaw.fault, folder / flaw.name) from None
    bounds = bounds_known(None, elsewhere, ring, ledger.ledger_id, wait_s=ELSEWHERE_S)
    return _held(ledger, memory, bounds, Proof(memory, bounds, lambda _epoch, _size: None))


def copies_standing(folder: Path, elsewhere: Path, ring: KeyRing, ledger: Ledger) -> Copies:
    """Say how copies stand, within the time that a folder elsewhere has."""

    def ask() -> Copies:
        try:
            with opened_folder(folder) as opened:
                return copies_state(Notes(opened, ring, ledger.ledger_id), elsewhere, ledger.ledger_id)
        except Flaw:
            return Copies(folder=str(elsewhere), trouble="" if elsewhere.is_dir() else "missing")

    return within(ELSEWHERE_S, ask) or Copies(folder=str(elsewhere), trouble="slow")


def _held(ledger: Ledger, memory: Remembered | None, bounds: list[Bound], proof: Proof) -> Standing | None:
    if memory is None and not bounds:
        return None
    proven = ledger.read(proof.of)
    last = max([bound.size for bound in bounds] + ([] if memory is None else [memory.tree.size]))
    return Standing(memory=memory, newer=max(0, proven.tree.size - last))
