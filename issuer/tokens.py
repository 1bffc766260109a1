"""Credentials of hosts and actors: made once, shown once, kept as a digest (SEC-01, SEC-02).

    token = pit_KIND_NAME_SECRET       KIND host or actor, SECRET 256 random bits in base64url without padding

The name stands in clear, so that the one row it is compared with is found by a key. What is stored is the SHA-256 of
the secret as it is written, so each token has exactly one spelling. A secret of 256 random bits needs no slow hash.
A token is taken from a private file or from standard input, never from an argument, which other accounts can list.
Whether it still counts is not decided here: `issuer.caller.refuse_caller` asks the ledger.
"""

import base64
import hashlib
import os
import re
import stat
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from issuer.caller import NOBODY, Caller, CallerKind, actor_caller, host_caller
from issuer.errors import SetupError
from issuer.ids import random_bytes
from issuer.profile import Profile

SECRET_BYTES: Final = 32
TOKEN_CHARS_MAX: Final = 256
TOKEN_LOGIN: Final = "token"  # noqa: S105 - the word of the profile, not a credential
STANDARD_INPUT: Final = "-"
_ACCOUNT: Final = "token"
_TOKEN: Final = re.compile(r"pit_(host|actor)_([a-z][a-z0-9_-]{0,63})_([A-Za-z0-9_-]{43})\Z")
_UNREADABLE: Final = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Presented:
    """What a token says, before anybody believed it; of the secret only its digest is kept."""

    kind: CallerKind
    name: str
    digest: str = field(repr=False)


def new_token(kind: CallerKind, name: str) -> tuple[str, str]:
    """Return a fresh token for a host or an actor, and the digest of its secret in hex."""
    secret = base64.urlsafe_b64encode(random_bytes(SECRET_BYTES)).rstrip(b"=").decode()
    return f"pit_{kind}_{name}_{secret}", _digest(secret)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def read_token(text: str) -> Presented | None:
    """Return what a token says, or None for what is none; both come to the same answer where it does not count."""
    found = _TOKEN.match(text) if type(text) is str and len(text) <= TOKEN_CHARS_MAX else None
    if found is None:
        return None
    return Presented(kind=CallerKind(found[1]), name=found[2], digest=_digest(found[3]))


def presented_caller(profile: Profile, shown: Presented | None) -> Caller:
    """Return the caller that a token claims to be, still to be proven; nobody where the owner lets none in by token."""
    if shown is None:
        return NOBODY
    if shown.kind is CallerKind.HOST:
        host = profile.hosts.get(shown.name)
        if host is not None and host.login == TOKEN_LOGIN:
            return host_caller(profile, shown.name, _ACCOUNT, digest=shown.digest)
        return NOBODY
    actor = profile.actors.get(shown.name)
    if actor is not None and actor.login == TOKEN_LOGIN:
        return actor_caller(shown.name, _ACCOUNT, digest=shown.digest)
    return NOBODY


def token_of(source: str | None) -> str | None:
    """Return the token in the file `source`, or on standard input for `-`; None where there is no source.

    Raises:
        SetupError: `malformed`: it cannot be read, or is not a private file (0600) of this account.
    """
    if source is None:
        return None
    if source == STANDARD_INPUT:
        return sys.stdin.readline(TOKEN_CHARS_MAX + 1).strip()
    try:
        descriptor = os.open(Path(source), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            seen = os.fstat(descriptor)
            if not stat.S_ISREG(seen.st_mode) or seen.st_uid != os.getuid() or seen.st_mode & 0o077:
                raise SetupError(_UNREADABLE, "The token file must be a private file (0600) of this account.")
            return os.read(descriptor, TOKEN_CHARS_MAX + 1).decode("ascii", "replace").strip()
        finally:
            os.close(descriptor)
    except OSError:
        raise SetupError(_UNREADABLE, "The token file cannot be read.") from None
