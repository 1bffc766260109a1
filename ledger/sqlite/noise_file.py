"""The refusals that are only counted, in a file beside the ledger: so that short-lived processes count too.

Rules: LED-02, LED-06 (it carries a MAC; without the right one there is no noise, and refusals stand in full).
It is read and written under the writers' lock only. It is not synced: a count may be lost with the power, and a killed
process may count a few again. What is lost here is a number of repeats, and never a transition. Next: `ledger.noise`.
"""

import os
import stat
from pathlib import Path
from typing import Final

from ledger.canonical import canonical_bytes, parse_strict
from ledger.errors import Malformed
from ledger.model import LedgerId
from ledger.noise import Noise
from ledger.port import Authenticator

NAME: Final = "noise"
_BYTES_MAX: Final = 512 * 1024
_DOMAIN: Final = "mark"


class NoiseFile:
    """The noise of one ledger; every use of it is under the writers' lock."""

    def __init__(self, ledger: Path, ledger_id: LedgerId, keys: Authenticator) -> None:
        """Stand beside the ledger file; nothing is made yet."""
        self._path = ledger.with_name(NAME)
        self._ledger_id = ledger_id
        self._keys = keys

    def read(self) -> Noise:
        """Return the noise so far; none where there is no file that these keys made for this ledger."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(descriptor, "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    return Noise()
                data = file.read(_BYTES_MAX + 1)
            tag, _line, body = data.partition(b"\n")
            if not self._keys.is_authentic(_DOMAIN, self._signed(body), bytes.fromhex(tag.decode("ascii"))):
                return Noise()
            return Noise.from_entries(parse_strict(body, bytes_max=_BYTES_MAX))
        except (OSError, ValueError, Malformed):
            return Noise()

    def write(self, noise: Noise) -> bool:
        """Put the noise in the place of the earlier one; say whether it was written."""
        body = canonical_bytes(list(noise.entries()))
        data = self._keys.tag(_DOMAIN, self._signed(body)).hex().encode("ascii") + b"\n" + body
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            with os.fdopen(os.open(self._path, flags, 0o600), "wb", buffering=0) as file:
                written = file.write(data)
                file.truncate(len(data))
        except OSError:
            return False
        return written == len(data)

    def _signed(self, body: bytes) -> bytes:
        return canonical_bytes(["noise", self._ledger_id]) + body
