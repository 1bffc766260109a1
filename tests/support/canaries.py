"""Canaries: made-up secrets, and a search that finds them in every form in which software writes a text by accident."""

import base64
import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

TOKEN: Final = "sk-CANARY-4711/+a=?"
"""A bearer credential of a service."""
CARD: Final = "CANARY-PAYLOAD 4000 &é"
"""A secret field of a payload."""
NOTE: Final = "CANARY-NOTE for ana"
"""A sensitive field of a payload."""
CANARIES: Final = (TOKEN, CARD, NOTE)
PART_MIN: Final = 9
"""Fewest characters of an encoded form that are searched for: enough not to be met by chance."""


def forms(secret: str) -> Iterator[bytes]:
    """Yield the ways to write `secret`: plain, escaped, percent-encoded, hexadecimal, Base64 at each offset."""
    data = secret.encode()
    yield data
    yield json.dumps(secret)[1:-1].encode()
    yield secret.encode("utf-16-le")
    for safe in ("", "/", "/+=?& "):
        yield quote(secret, safe=safe).encode()
    yield quote(secret).replace("%20", "+").encode()
    yield data.hex().encode()
    yield data.hex().upper().encode()
    for offset in range(3):
        whole = base64.b64encode(b"\x00" * offset + data)
        # The first and last characters depend on what stands beside it.
        middle = whole[(0, 2, 3)[offset] : len(whole.rstrip(b"=")) - 1]
        yield middle
        yield middle.replace(b"+", b"-").replace(b"/", b"_")


@functools.cache
def _searched(secret: str) -> frozenset[bytes]:
    """Return the forms of a canary and of its first word that are long enough to be searched for."""
    return frozenset(
        form for form in (*forms(secret), *forms(secret.split(maxsplit=1)[0])) if len(form) >= PART_MIN
    )


def found_in(data: bytes, secrets: tuple[str, ...] = CANARIES) -> set[str]:
    """Return the canaries that `data` holds in any form; a recognisable part counts."""
    return {secret for secret in secrets if any(form in data for form in _searched(secret))}


def places_of(folder: Path, *, leave_out: Mapping[str, str]) -> dict[str, set[str]]:
    """Return every file below `folder` that holds a canary; `leave_out` names a folder and says why it may."""
    holding = {
        str(path.relative_to(folder)): found_in(path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.relative_to(folder).parts[0] not in leave_out
    }
    return {place: found for place, found in holding.items() if found}
