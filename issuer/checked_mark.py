"""The small file beside a ledger that says in which boot it was last found whole, under a MAC of the issuer's keys.

Rules: LED-04, LED-06 (who can write the folder but lacks the keys gains nothing by writing this), design section 3. A
start trusts it only where the MAC holds, the boot is this one and the ledger is not behind where it was found; anything
else, its absence too, means a full check. A check that finds something takes it away, so that nobody lifts the stop by
taking away the mark of that. An older one that somebody kept and put back within one boot is believed.
Next: `issuer.checking`.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ledger.canonical import canonical_bytes
from ledger.model import LedgerId
from ledger.port import Authenticator
from ledger.transitions import Position

_BYTES_MAX: Final = 64 * 1024
"""Far more than the names of dead processes that ever stand there at once; a longer file says nothing."""

_DOMAIN: Final = "mark"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A clean check.

    Attributes:
        boot: of the machine, in which it was made.
        known: the processes that it knew to have died with a claim still open.
        epoch, sequence: the ledger's last span then.
    """

    boot: str
    epoch: int
    sequence: int
    known: frozenset[str] = frozenset()

    def holds(self, boot: str, head: Position) -> bool:
        """Say whether it is of this boot, and not of a ledger that was further than this one is."""
        return self.boot == boot and (self.epoch, self.sequence) <= (head.epoch, head.sequence)


def read_checked(path: Path, ledger_id: LedgerId, keys: Authenticator) -> Checked | None:
    """Return what the file says; None where there is none, or not one that these keys made for this ledger."""
    try:
        if path.stat().st_size > _BYTES_MAX:
            return None
        mac, boot, epoch, sequence, *known = path.read_text(encoding="ascii").splitlines()
        said = Checked(boot=boot, epoch=int(epoch), sequence=int(sequence), known=frozenset(known))
        tag = bytes.fromhex(mac)
    except (OSError, ValueError):
        return None
    return said if keys.is_authentic(_DOMAIN, _signed(ledger_id, said), tag) else None


def write_checked(path: Path, ledger_id: LedgerId, keys: Authenticator, checked: Checked) -> None:
    """Put the file in the place of an earlier one.

    Raises:
        OSError: as the system reports it.
    """
    mac = keys.tag(_DOMAIN, _signed(ledger_id, checked))
    lines = (mac.hex(), checked.boot, checked.epoch, checked.sequence, *sorted(checked.known))
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(fresh, flags, 0o600), "w", encoding="ascii") as file:
        file.write("".join(f"{line}\n" for line in lines))
    fresh.replace(path)


def forget_checked(path: Path) -> None:
    """Take the file away; where that cannot be done, the mark of what was found stands beside it."""
    with suppress(OSError):
        path.unlink(missing_ok=True)


def _signed(ledger_id: LedgerId, checked: Checked) -> bytes:
    return canonical_bytes(
        ["checked", ledger_id, checked.boot, checked.epoch, checked.sequence, sorted(checked.known)]
    )
