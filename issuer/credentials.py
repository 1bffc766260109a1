"""Service credentials: one file each, readable by the issuer's account alone, sealed to one ledger as they are met.

Rules: SEC-01 (never in a log, a span or an error), SEC-03 (owner-only permissions), ADM-06 (sealed to one ledger id: a
copy of the file is of no use to another issuer). The profile names a credential; no actor and no host ever sees one.
An owner writes the secret itself into the file. The next start of the issuer, or the first use, puts the sealed form in
its place; to change a credential, the owner writes the new secret there.
"""

import os
import re
import stat
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

from issuer.ids import random_bytes
from issuer.sealing import (
    NONCE_BYTES,
    KeyRing,
    SealBroken,
    credential_key_id,
    is_sealed_credential,
    open_credential,
    seal_credential,
)
from ledger.errors import Fault

CREDENTIAL_BYTES_MAX: Final = 16 * 1024
_FILE_BYTES_MAX: Final = 2 * CREDENTIAL_BYTES_MAX
"""A sealed credential is a third longer than the secret."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_MODE: Final = 0o600


class CredentialMissingError(Exception):
    """There is no usable credential of that name; the text names it and says nothing of its content."""


class CredentialSealedError(CredentialMissingError):
    """It is sealed, and there are no keys to open it with."""


class CredentialForeign(Fault):
    """A credential is sealed to another ledger: whoever may use it is not this issuer (ADM-06)."""

    blame = "world"

    def __init__(self, name: str) -> None:
        """Name the credential."""
        super().__init__(
            f"The credential {name} is sealed to another ledger; if it is meant for this one, "
            f"write the secret itself into credentials/{name}."
        )
        self.args = (name,)


def credential_reader(
    folder: Path, ring: Callable[[], KeyRing] | None = None, *, seals: bool = True
) -> Callable[[str], str]:
    """Return a function that gives the credential of a name from `folder`.

    It raises `CredentialMissingError` where the file is missing, foreign, a link, open to others, too large, sealed to
    another ledger, or not to be sealed to this one. Without a `ring` only unsealed files are read; without `seals`
    nothing is written.
    """

    def read(name: str) -> str:
        data, seen = _read(folder, name)
        if not is_sealed_credential(data):
            text = _text(data, name)
            if ring is not None and seals:
                _seal(folder, name, data, seen, ring())
            return text
        if ring is None:
            raise CredentialSealedError(f"the credential {name} is sealed, and there are no keys")
        try:
            return _text(open_credential(ring(), name, data), name)
        except SealBroken:
            raise CredentialMissingError(f"the credential {name} is sealed to another ledger") from None

    return read


def seal_credentials(folder: Path, ring: KeyRing, names: Collection[str]) -> None:
    """Seal every credential of `names` that is there and not sealed yet; one that is missing is told at its use.

    Raises:
        CredentialForeign: one is sealed to another ledger.
    """
    for name in sorted(names):
        try:
            data, seen = _read(folder, name)
        except CredentialMissingError:
            continue
        if is_sealed_credential(data):
            try:
                open_credential(ring, name, data)
            except SealBroken:
                raise CredentialForeign(name) from None
        else:
            with suppress(CredentialMissingError, UnicodeDecodeError):
                _text(data, name)
                _seal(folder, name, data, seen, ring)


def reseal_credentials(folder: Path, ring: KeyRing, key_id: int) -> int:
    """Seal anew, with the active key, every credential that `key_id` sealed; return how many there were (SEC-03).

    What does not open is left as it is: it is of another ledger, and of no use here.

    Raises:
        CredentialMissingError: one cannot be written.
    """
    number = 0
    for name in sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else ():
        sealed = _sealed_with(folder, name, ring, key_id)
        if sealed is not None:
            _seal(folder, name, *sealed, ring)
            number += 1
    return number


def _sealed_with(folder: Path, name: str, ring: KeyRing, key_id: int) -> tuple[bytes, os.stat_result] | None:
    try:
        data, seen = _read(folder, name)
        if is_sealed_credential(data) and credential_key_id(data) == key_id:
            return open_credential(ring, name, data), seen
    except (CredentialMissingError, SealBroken):
        return None
    return None


def _read(folder: Path, name: str) -> tuple[bytes, os.stat_result]:
    if not _NAME.match(name):
        raise CredentialMissingError("a credential's name is letters, digits, dots, dashes and underscores")
    try:
        descriptor = os.open(folder / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        raise CredentialMissingError(f"there is no credential {name}") from None
    with os.fdopen(descriptor, "rb") as file:
        seen = os.fstat(descriptor)
        private = stat.S_ISREG(seen.st_mode) and seen.st_uid == os.getuid() and not seen.st_mode & 0o077
        if not private or seen.st_size > _FILE_BYTES_MAX:
            raise CredentialMissingError(f"the credential {name} is not a private file of this account")
        return file.read(_FILE_BYTES_MAX), seen


def _text(data: bytes, name: str) -> str:
    if len(data) > CREDENTIAL_BYTES_MAX:
        raise CredentialMissingError(f"the credential {name} is too large")
    return data.decode("utf-8", "strict").strip()


def _seal(folder: Path, name: str, secret: bytes, seen: os.stat_result, ring: KeyRing) -> None:
    """Put the sealed form in the place of the secret, durably; a file that was changed meanwhile is left alone."""
    nonce = random_bytes(NONCE_BYTES)
    part = folder / f".{name}.{nonce.hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(part, flags, _MODE)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(seal_credential(ring, name, secret.strip(), nonce))
                file.flush()
                os.fsync(descriptor)
            now = (folder / name).lstat()
            if (now.st_ino, now.st_mtime_ns) == (seen.st_ino, seen.st_mtime_ns):
                part.replace(folder / name)
        finally:
            part.unlink(missing_ok=True)
        parent = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(parent)
        finally:
            os.close(parent)
    except OSError as fault:
        message = f"the credential {name} cannot be sealed to this ledger: {fault.strerror}"
        raise CredentialMissingError(message) from None
