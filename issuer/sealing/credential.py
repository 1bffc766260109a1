r"""A service credential, sealed to one ledger: what another issuer cannot use, whoever copies it there (ADM-06).

One line: `permit-credential-v1 <base64 of an envelope>\n`, bound to ledger id, name and format. The secret itself
stays where its owner has it: that it is not handed to two issuers by hand is beyond this.
Next: `issuer.credentials` reads and writes the files.
"""

import base64
import binascii
from typing import Final

from issuer.sealing.envelope import close_envelope, key_id_of, open_envelope
from issuer.sealing.errors import SealBroken
from issuer.sealing.keys import KeyRing, Purpose
from ledger.errors import Broken

__all__ = ["credential_key_id", "is_sealed_credential", "open_credential", "seal_credential"]

_PREFIX: Final = b"permit-credential-v1 "
_MAGIC: Final = b"SC"
_FORMAT: Final = b"permit-issuer/credential/v1"


def is_sealed_credential(data: bytes) -> bool:
    """Say whether a file holds a sealed credential, of whatever ledger, and not the secret itself."""
    return data.startswith(_PREFIX)


def seal_credential(ring: KeyRing, name: str, secret: bytes, nonce: bytes) -> bytes:
    """Return the sealed file of the credential `name`; `nonce` is 12 random bytes drawn by the caller.

    Raises:
        Broken: the ring belongs to no ledger, or the nonce has another length.
    """
    sealed = close_envelope(
        ring, Purpose.CREDENTIALS, magic=_MAGIC, plaintext=secret, nonce=nonce, bound=_bound(ring, name)
    )
    return _PREFIX + base64.b64encode(sealed) + b"\n"


def credential_key_id(data: bytes) -> int | None:
    """Return the id of the key that a sealed credential names, unproven; None where it is none."""
    try:
        return key_id_of(base64.b64decode(data.removeprefix(_PREFIX).strip(), validate=True))
    except binascii.Error:
        return None


def open_credential(ring: KeyRing, name: str, data: bytes) -> bytes:
    """Return the secret.

    Raises:
        SealBroken: it was not sealed under this name to the ledger of this ring.
    """
    try:
        sealed = base64.b64decode(data.removeprefix(_PREFIX).strip(), validate=True)
    except binascii.Error:
        sealed = b""
    secret = open_envelope(ring, Purpose.CREDENTIALS, magic=_MAGIC, sealed=sealed, bound=_bound(ring, name))
    if secret is None:
        raise SealBroken
    return secret


def _bound(ring: KeyRing, name: str) -> tuple[bytes, ...]:
    if ring.ledger_id is None:
        raise Broken("A ring that belongs to no ledger seals no credential.")
    return ring.ledger_id.encode("ascii"), name.encode("ascii"), _FORMAT
