r"""Looks that the ledger could not take: a small private file from which the next process that can write records them.

Rules: AUD-06 (a look across scopes is on record), LED-04 (reading goes on where nothing can be written), SEC-03 (owner
only). One line a look, canonical JSON under a tag of the issuer's keys, so that who can write the folder but lacks the
keys makes nobody a witness of anything:

    {"look":{…},"tag":"…"}

A line is synced before what it tells of is shown. It stays until its span is committed, so that a crash between the two
records a look twice, and never not at all. Where the ledger's own folder takes nothing either, the file is in the
user's state folder. Taking the file away takes the looks away: that is the price of a ledger that cannot be written.
Next: `issuer.looks`.
"""

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from issuer.places import Places, state_folder
from issuer.sealing import KeyRing, StorageFault
from issuer.sealing.authenticator import RingAuthenticator
from issuer.sealing.private_files import FILE_MODE, Flaw, create_folder, opened_folder, read_file, sync
from ledger.canonical import canonical_bytes
from ledger.errors import LedgerUnavailable, Malformed
from ledger.model import InstantMs, LedgerId

SPOOL_BYTES_MAX: Final = 256 * 1024
"""Some hundreds of looks: a ledger that takes nothing for longer has to be repaired before anybody looks further."""

_NAME: Final = "looks.jsonl"
_DOMAIN: Final = "mark"
_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A look that is not in the ledger yet: when it was, and what its span says."""

    at_ms: InstantMs
    name: str
    story: str
    effect_id: str | None
    said: Mapping[str, object]

    def as_json(self) -> dict[str, object]:
        """Return it as a line holds it."""
        return {
            "at_ms": self.at_ms,
            "name": self.name,
            "story": self.story,
            "effect_id": self.effect_id,
            "said": {
                name: list(value) if isinstance(value, tuple) else value for name, value in self.said.items()
            },
        }


class LookSpool:
    """The looks of one issuer that are not in its ledger yet."""

    def __init__(self, places: Places, ring: KeyRing, ledger_id: LedgerId) -> None:
        """Remember where they are; nothing is opened before it is needed."""
        self._folders = (places.looks, *_elsewhere(ledger_id))
        self._keys = RingAuthenticator(ring)
        self._ledger_id = ledger_id

    def keep(self, look: Look) -> None:
        """Write a look down, durable when this returns.

        Raises:
            LedgerUnavailable: `look_unrecorded`: neither place takes it, or there are too many; nothing may be shown.
        """
        line = self._line(look)
        for folder in self._folders:
            with suppress(OSError, Flaw), _locked(folder, makes=True) as (fd, _whole):
                if os.fstat(fd).st_size + len(line) > SPOOL_BYTES_MAX:
                    break  # another place is no more room: who fills one would fill both
                _write(fd, line)
                return
        say = "The ledger cannot be written, and neither can the file that would keep this look for it."
        raise LedgerUnavailable("look_unrecorded", say)

    def waiting(self) -> tuple[Look, ...]:
        """Return the looks that are not in the ledger yet; what these keys did not write is none of them."""
        found: list[Look] = []
        for folder in self._folders:
            with suppress(OSError, Flaw), opened_folder(folder) as opened:
                found += self._looks(read_file(opened, _NAME, bytes_max=SPOOL_BYTES_MAX, links_max=1))
        return tuple(found)

    def hand_over(self, record: Callable[[tuple[Look, ...]], None]) -> None:
        """Let `record` commit what is waiting, then forget it; what `record` raises leaves everything as it was."""
        for folder in self._folders:
            with suppress(OSError, Flaw):
                if not (folder / _NAME).exists():
                    continue
            with suppress(OSError, Flaw), _locked(folder, makes=False) as (fd, whole):
                looks = tuple(self._looks(whole))
                if looks:
                    record(looks)
                os.ftruncate(fd, 0)
                sync(fd)

    def _line(self, look: Look) -> bytes:
        said = look.as_json()
        tag = self._keys.tag(_DOMAIN, self._signed(said))
        return canonical_bytes({"look": said, "tag": tag.hex()}) + b"\n"

    def _signed(self, said: Mapping[str, object]) -> bytes:
        return canonical_bytes(["look", self._ledger_id, dict(said)])

    def _looks(self, whole: bytes) -> Iterator[Look]:
        for line in whole.splitlines():
            with suppress(ValueError, KeyError, TypeError, RecursionError, Malformed):
                document = json.loads(line)
                said = document["look"]
                if not self._keys.is_authentic(_DOMAIN, self._signed(said), bytes.fromhex(document["tag"])):
                    continue
                yield Look(
                    at_ms=InstantMs(said["at_ms"]),
                    name=said["name"],
                    story=said["story"],
                    effect_id=said["effect_id"],
                    said=said["said"],
                )


def _elsewhere(ledger_id: LedgerId) -> tuple[Path, ...]:
    """Return the other place; none where the account has no home."""
    try:
        return (state_folder() / "permit-issuer" / f"looks-{ledger_id}",)
    except RuntimeError:
        return ()


@contextmanager
def _locked(folder: Path, *, makes: bool) -> Iterator[tuple[int, bytes]]:
    """Hold the file of a folder, locked; yields its descriptor and what is in it. A torn last line is cut off.

    Raises:
        Flaw: folder or file is not private and plain, or cannot be made.
        OSError: as the system reports it.
    """
    if makes:
        with suppress(OSError):
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        create_folder(folder)
    with opened_folder(folder) as opened:
        is_new = makes and _make(opened)
        # Judged by the one reader of private files; what was judged is opened in the same folder.
        read_file(opened, _NAME, bytes_max=SPOOL_BYTES_MAX, links_max=1)
        fd = os.open(_NAME, _FLAGS, dir_fd=opened)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            whole = os.pread(fd, SPOOL_BYTES_MAX + 1, 0)
            end = whole.rfind(b"\n") + 1
            if end < len(whole):
                os.ftruncate(fd, end)
            yield fd, whole[:end]
            if is_new:
                sync(opened)
        finally:
            os.close(fd)


def _make(folder: int) -> bool:
    try:
        os.close(os.open(_NAME, _FLAGS | os.O_CREAT | os.O_EXCL, FILE_MODE, dir_fd=folder))
    except FileExistsError:
        return False
    except OSError:
        raise Flaw(StorageFault.UNWRITABLE) from None
    return True


def _write(fd: int, line: bytes) -> None:
    """Write a whole line and sync it, or cut off what was written of it.

    Raises:
        OSError: as the system reports it.
    """
    before = os.fstat(fd).st_size
    try:
        view = memoryview(line)
        while view:
            view = view[os.write(fd, view) :]
        sync(fd)
    except OSError:
        with suppress(OSError):
            os.ftruncate(fd, before)
        raise


__all__ = ["SPOOL_BYTES_MAX", "Look", "LookSpool"]
