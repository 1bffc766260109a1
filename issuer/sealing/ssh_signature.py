r"""A person's signature, made with `ssh-keygen -Y sign -n permit-issuer` and nothing else to install (APP-01).

The form is OpenSSH's PROTOCOL.sshsig, version 1; touch keys are those of PROTOCOL.u2f.

    armored = -----BEGIN SSH SIGNATURE-----\n | base64 in lines | -----END SSH SIGNATURE-----\n
    blob    = "SSHSIG" | uint32 1 | string public key | string namespace | string "" | string hash | string signature
    signed  = "SSHSIG" | string namespace | string "" | string hash | string hash(message)
    touch   = SHA256(application) | flags(1) | counter(4) | SHA256(signed)

Rules:
1. What is verified is never what was sent: the signed bytes are built here, from our namespace, the message and one of
   two hash names. The blob's own words are only compared.
2. The key inside a signature is an address, no key. The registered key with exactly these bytes is used, or none.
3. Hashes are `sha256` and `sha512`; an RSA key signs `rsa-sha2-256` or `rsa-sha2-512` (RFC 8332), never SHA-1.
4. A touch key signs with the user-presence flag, or its signature is no person's.
5. Whatever comes in, the answer is a key or `SignatureRefused`. All forms are strict and bounded (`ssh_wire`).

What it does not do: say whether the key's owner may approve, whether the key was revoked, or whether the message was
used before. An ECDSA signature has a second spelling that verifies as well, so nobody may use a signature's bytes as
its identity: a challenge in the message is single use. A touch key's counter is not kept, for the same reason.
Next: the message is the core's statement of an effect or an act.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from issuer.sealing.ssh_keys import (
    ALGORITHM_BYTES_MAX,
    BLOB_BYTES_MAX,
    RSA_BITS_MAX,
    PublicKey,
    SshKey,
    SshKeyFault,
    SshKeyRefused,
    application_of,
    opened_key,
    read_public_keys,
)
from issuer.sealing.ssh_wire import WireBroken, WireReader, base64_bytes, string_of
from ledger.errors import Fault

__all__ = [
    "ARMORED_CHARS_MAX",
    "NAMESPACE",
    "SignatureFault",
    "SignatureRefused",
    "SshKey",
    "SshKeyFault",
    "SshKeyRefused",
    "read_public_keys",
    "signer_of",
]

NAMESPACE: Final = "permit-issuer"
"""The domain of our signatures: one made for `git` or `file` says nothing here (PROTOCOL.sshsig, section 2)."""

ARMORED_CHARS_MAX: Final = 8_192
"""A signature by an RSA key of 16,384 bits has about 5,700 characters."""

_LINE_CHARS_MAX: Final = 76
"""PROTOCOL.sshsig, section 1; `ssh-keygen` writes 70."""

_BEGIN: Final = "-----BEGIN SSH SIGNATURE-----"
_END: Final = "-----END SSH SIGNATURE-----"
_MAGIC: Final = b"SSHSIG"
_VERSION: Final = 1
_FIELD_BYTES_MAX: Final = 256
"""Bound of the namespace and of what is reserved; both are compared with far shorter words."""

_SIGNATURE_BYTES_MAX: Final = RSA_BITS_MAX // 8 + 64
_ED25519_SIGNATURE_BYTES: Final = 64

_HASHES: Final[Mapping[bytes, Callable[[bytes], bytes]]] = {
    b"sha256": lambda data: hashlib.sha256(data).digest(),
    b"sha512": lambda data: hashlib.sha512(data).digest(),
}

_RSA_HASHES: Final[Mapping[str, hashes.HashAlgorithm]] = {
    "rsa-sha2-256": hashes.SHA256(),
    "rsa-sha2-512": hashes.SHA512(),
}
_CURVE_HASHES: Final[Mapping[str, hashes.HashAlgorithm]] = {
    "secp256r1": hashes.SHA256(),
    "secp384r1": hashes.SHA384(),
    "secp521r1": hashes.SHA512(),
}
"""RFC 5656, section 6.2.1: the hash follows from the size of the curve."""

_PRESENT: Final = 0x01
_FLAGS: Final = 0x1D
"""Presence, verification and the two backup bits of WebAuthn level 3, section 6.1. The others announce data that an SSH
signature has no room for, or are reserved."""


class SignatureFault(StrEnum):
    """Why a signature is refused, in the order in which it is looked at; the values are stable and may be audited."""

    MALFORMED = "malformed"
    NAMESPACE = "namespace"
    HASH = "hash"
    ALGORITHM = "algorithm"
    UNKNOWN_KEY = "unknown_key"
    PRESENCE = "presence"
    BAD_SIGNATURE = "bad_signature"


class SignatureRefused(Fault):
    """The signature is not one of the given keys over exactly this message; the text is the same for every reason."""

    blame = "caller"

    def __init__(self, reason: SignatureFault) -> None:
        """Keep the reason for the audit; nothing of what was handed in."""
        super().__init__("The signature is not a registered person's signature of this statement.")
        self.args = (reason,)
        self.reason = reason


def signer_of(message: bytes, armored: str, keys: Iterable[SshKey]) -> SshKey:
    """Return the one key of `keys` that signed exactly these bytes in our namespace.

    `armored` is the whole text of a `.sig` file; lines may end in CR LF, since a mail client may have made them so.

    Raises:
        SignatureRefused: no key of them did; its `reason` is the first of the rules that failed.
    """
    try:
        return _signer(message, armored, keys)
    except WireBroken:
        raise SignatureRefused(SignatureFault.MALFORMED) from None


def _signer(message: bytes, armored: str, keys: Iterable[SshKey]) -> SshKey:
    # 1. The whole blob is read before any word of it is judged.
    if type(message) is not bytes:
        raise WireBroken
    reader = WireReader(_unarmored(armored))
    if reader.take(len(_MAGIC)) != _MAGIC or reader.uint32() != _VERSION:
        raise WireBroken
    blob = reader.string(BLOB_BYTES_MAX)
    namespace = reader.string(_FIELD_BYTES_MAX)
    reserved = reader.string(_FIELD_BYTES_MAX)
    hash_name = reader.string(_FIELD_BYTES_MAX)
    signature = WireReader(reader.string(_SIGNATURE_BYTES_MAX))
    reader.end()
    # 2. What is reserved has no meaning yet, so nothing may stand there: it would be signed, and not understood.
    if reserved:
        raise WireBroken
    # 3. Signed for us, under a hash that holds.
    if namespace != NAMESPACE.encode("ascii"):
        raise SignatureRefused(SignatureFault.NAMESPACE)
    digest = _HASHES.get(hash_name)
    if digest is None:
        raise SignatureRefused(SignatureFault.HASH)
    # 4. By a registered key: the bytes in the signature only point at one.
    key = _registered(blob, keys)
    # 5. The signature itself, over bytes that are built here.
    signed = _MAGIC + b"".join(
        string_of(part) for part in (NAMESPACE.encode("ascii"), b"", hash_name, digest(message))
    )
    _verify(key, signature, signed)
    return key


def _unarmored(armored: str) -> bytes:
    if type(armored) is not str or len(armored) > ARMORED_CHARS_MAX:
        raise WireBroken
    lines = armored.replace("\r\n", "\n").removesuffix("\n").split("\n")
    if lines[0] != _BEGIN or lines[-1] != _END:
        raise WireBroken
    if not all(0 < len(line) <= _LINE_CHARS_MAX for line in lines[1:-1]):
        raise WireBroken
    return base64_bytes("".join(lines[1:-1]))


def _registered(blob: bytes, keys: Iterable[SshKey]) -> SshKey:
    try:
        opened_key(blob)
    except SshKeyRefused as refused:
        # A key of another kind is named as such; one of ours that is broken or weak is no key at all.
        other = refused.reason in {SshKeyFault.ALGORITHM, SshKeyFault.CERTIFICATE}
        raise SignatureRefused(SignatureFault.ALGORITHM if other else SignatureFault.MALFORMED) from None
    for key in keys:
        if key.blob == blob:
            return key
    raise SignatureRefused(SignatureFault.UNKNOWN_KEY)


def _verify(key: SshKey, signature: WireReader, signed: bytes) -> None:
    algorithm = signature.string(ALGORITHM_BYTES_MAX)
    body = signature.string(_SIGNATURE_BYTES_MAX)
    named = algorithm.decode("ascii", "replace")
    if named not in (_RSA_HASHES if key.algorithm == "ssh-rsa" else {key.algorithm}):
        raise SignatureRefused(SignatureFault.ALGORITHM)
    if key.algorithm.startswith("sk-"):
        signed = _touched(key, signature, signed)
    signature.end()
    _algorithm, public = opened_key(key.blob)
    try:
        _verify_with(public, named, body, signed)
    except (InvalidSignature, UnsupportedAlgorithm):
        raise SignatureRefused(SignatureFault.BAD_SIGNATURE) from None


def _touched(key: SshKey, signature: WireReader, signed: bytes) -> bytes:
    """Return what a touch key signs in place of `signed` (PROTOCOL.u2f, "SSH U2F signatures")."""
    flags, counter = signature.take(1), signature.take(4)
    if not flags[0] & _PRESENT:
        raise SignatureRefused(SignatureFault.PRESENCE)
    if flags[0] & ~_FLAGS:
        raise WireBroken
    application = hashlib.sha256(application_of(key.blob)).digest()
    return application + flags + counter + hashlib.sha256(signed).digest()


def _verify_with(public: PublicKey, named: str, body: bytes, signed: bytes) -> None:
    match public:
        case ed25519.Ed25519PublicKey():
            if len(body) != _ED25519_SIGNATURE_BYTES:
                raise WireBroken
            public.verify(body, signed)
        case rsa.RSAPublicKey():
            # RFC 8332, section 3: exactly as long as the modulus.
            if len(body) != (public.key_size + 7) // 8:
                raise WireBroken
            public.verify(body, signed, padding.PKCS1v15(), _RSA_HASHES[named])
        case ec.EllipticCurvePublicKey():
            numbers = WireReader(body)
            size = public.curve.key_size
            pair = encode_dss_signature(numbers.positive(size), numbers.positive(size))
            numbers.end()
            public.verify(pair, signed, ec.ECDSA(_CURVE_HASHES[public.curve.name]))
