"""Service credentials: one file each, readable by the issuer's account alone, read at dispatch and kept nowhere.

Rules: SEC-01 (never in a log, a span or an error), SEC-03 (owner-only permissions). A credential is named in the
profile; an actor or a host never sees it.
"""

import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

CREDENTIAL_BYTES_MAX: Final = 16 * 1024
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")


class CredentialMissingError(Exception):
    """There is no usable credential of that name; the text names it and says nothing of its content."""


def credential_reader(folder: Path) -> Callable[[str], str]:
    """Return a function that gives the credential of a name from `folder`.

    It raises `CredentialMissingError` where the file is missing, foreign, a link, open to others, or too large.
    """

    def read(name: str) -> str:
        if not _NAME.match(name):
            raise CredentialMissingError(
                "a credential's name is letters, digits, dots, dashes and underscores"
            )
        try:
            descriptor = os.open(folder / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            raise CredentialMissingError(f"there is no credential {name}") from None
        with os.fdopen(descriptor, "rb") as file:
            seen = os.fstat(descriptor)
            private = stat.S_ISREG(seen.st_mode) and seen.st_uid == os.getuid() and not seen.st_mode & 0o077
            if not private or seen.st_size > CREDENTIAL_BYTES_MAX:
                raise CredentialMissingError(f"the credential {name} is not a private file of this account")
            return file.read(CREDENTIAL_BYTES_MAX).decode("utf-8", "strict").strip()

    return read
