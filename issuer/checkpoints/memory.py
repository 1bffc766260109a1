"""What the signer remembers of its last checkpoint: the frontier of the tree that it signed, under a MAC of the ring.

Rules: AUD-04 (C2SP: a log never signs a smaller tree, or one that does not go on from what it signed). The frontier is
the root and more: with it and the spans since, a later root is made, so that going on is proven without reading the
whole trail. It is written, durably, before the signature exists, so that whatever is killed in between leaves a memory
that is no less than what was signed. A file that somebody without the keys wrote is as good as none; the notes beside
it and their copies say what was signed as well.
Next: `issuer.checkpoints.proof`.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from issuer.sealing import StorageFault
from issuer.sealing.private_files import Flaw, read_file, sync, write_new_file
from ledger.canonical import canonical_bytes
from ledger.model import InstantMs, LedgerId
from ledger.port import Authenticator
from ledger.tree import Frontier, decoded_frontier

__all__ = ["MEMORY_NAME", "Remembered", "remember", "remembered"]

MEMORY_NAME: Final = "state"
_DRAFT_NAME: Final = "state.new"
_DOMAIN: Final = "mark"
_BYTES_MAX: Final = 8 * 1024
"""A frontier of 2^53 spans has 1,704 bytes; twice that in hex, and the lines around it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """The last checkpoint that was signed, or was about to be.

    Attributes:
        epoch: of the ledger's head then.
        tree: the frontier over its first `tree.size` spans.
        at_ms: when, by the ledger's clock.
        reason: the word of its span.
    """

    epoch: int
    tree: Frontier
    at_ms: InstantMs
    reason: str


def remembered(folder: int, ledger_id: LedgerId, keys: Authenticator) -> Remembered | None:
    """Return what the file in an opened folder says; None where there is none, or none that these keys made.

    Raises:
        Flaw: it is there, and is not a private file.
    """
    try:
        data = read_file(folder, MEMORY_NAME, bytes_max=_BYTES_MAX, links_max=1)
        mac, epoch, at_ms, reason, frontier = data.decode("ascii").splitlines()
        said = Remembered(
            epoch=int(epoch),
            tree=decoded_frontier(bytes.fromhex(frontier)),
            at_ms=InstantMs(int(at_ms)),
            reason=reason,
        )
        tag = bytes.fromhex(mac)
    except Flaw as flaw:
        if flaw.fault in {StorageFault.MISSING, StorageFault.MALFORMED}:
            return None
        raise
    except ValueError:
        return None
    return said if keys.is_authentic(_DOMAIN, _signed(ledger_id, said), tag) else None


def remember(folder: int, ledger_id: LedgerId, keys: Authenticator, what: Remembered) -> None:
    """Put the file in the place of an earlier one, durable when this returns.

    Raises:
        OSError: as the system reports it; the earlier one stands.
    """
    mac = keys.tag(_DOMAIN, _signed(ledger_id, what))
    lines = (mac.hex(), what.epoch, what.at_ms, what.reason, what.tree.encoded().hex())
    with suppress(FileNotFoundError):
        os.unlink(_DRAFT_NAME, dir_fd=folder)
    write_new_file(folder, _DRAFT_NAME, "".join(f"{line}\n" for line in lines).encode("ascii"))
    os.rename(_DRAFT_NAME, MEMORY_NAME, src_dir_fd=folder, dst_dir_fd=folder)
    sync(folder)


def _signed(ledger_id: LedgerId, what: Remembered) -> bytes:
    tree = what.tree.encoded().hex()
    return canonical_bytes(["checkpoint", ledger_id, what.epoch, what.at_ms, what.reason, tree])
