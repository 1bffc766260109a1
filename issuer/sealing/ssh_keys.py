"""People's OpenSSH public keys: which are taken, how they are read, and what their bytes are good for.

Rules:
1. Taken are `ssh-ed25519`, `ecdsa-sha2-nistp256/384/521`, `ssh-rsa`, and the two touch keys of OpenSSH's PROTOCOL.u2f,
   `sk-ssh-ed25519@openssh.com` and `sk-ecdsa-sha2-nistp256@openssh.com`. No DSA, no certificates, no options: an option
   such as `no-touch-required` would be a promise that nothing here keeps.
2. An RSA key has 3072 bits or more: NIST SP 800-57 part 1 rev. 5, table 2, puts that at 128 bits of strength, which
   the other algorithms have as well, and `ssh-keygen` makes 3072 by itself since OpenSSH 8.0. OpenSSH itself refuses
   only below 1024.
3. The application of a touch key begins with `ssh:`, as `ssh-keygen` demands: a key that a web site enrolled under its
   own name signs nothing here.
4. An Ed25519 key of small order is refused: one signature under it fits nearly every message.
5. A blob has one spelling (`ssh_wire`), so equal keys are equal bytes, and there is one fingerprint for each.

The core makes, keeps and reads no private key (SEC-03). Next: `ssh_signature` checks what these keys signed.
"""

import base64
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from issuer.sealing.ssh_wire import WireBroken, WireReader, base64_bytes
from ledger.errors import Fault

__all__ = [
    "ALGORITHM_BYTES_MAX",
    "BLOB_BYTES_MAX",
    "KEYS_MAX",
    "RSA_BITS_MAX",
    "RSA_BITS_MIN",
    "PublicKey",
    "SshKey",
    "SshKeyFault",
    "SshKeyRefused",
    "opened_key",
    "read_public_keys",
]

KEYS_MAX: Final = 8
"""Keys of one person: a laptop, a spare, two touch keys, and as many that are being replaced."""

RSA_BITS_MIN: Final = 3072
"""See rule 2."""

RSA_BITS_MAX: Final = 16_384
"""OpenSSH's own limit of a number on the wire (`SSHBUF_MAX_BIGNUM`)."""

ALGORITHM_BYTES_MAX: Final = 64
"""The longest name that OpenSSH has is 48 bytes long; longer names are nobody's."""

BLOB_BYTES_MAX: Final = 4_096
"""An RSA key of 16,384 bits takes 2,076 bytes."""

FILE_CHARS_MAX: Final = 65_536
"""Eight of the largest keys take 22,000 characters; the rest is room for comments."""

_APPLICATION_BYTES_MAX: Final = 255
"""Names of applications are `ssh:` and a word or two; the bound is that of a DNS name."""

_EXPONENT_BITS_MAX: Final = 32
_EXPONENT_MIN: Final = 2**16
"""FIPS 186-5, section 5.1: odd and above 2**16. The upper bound keeps a check quick; all tools write 65537."""

_ED25519_BYTES: Final = 32
ED25519_PRIME: Final = 2**255 - 19
_ORDER_EIGHT_Y: Final = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
SMALL_ORDER_Y: Final = frozenset({0, 1, ED25519_PRIME - 1, _ORDER_EIGHT_Y, ED25519_PRIME - _ORDER_EIGHT_Y})
"""The y of the eight points whose order divides 8 (RFC 8032, section 5.1: the cofactor is 8)."""

PublicKey = ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey | rsa.RSAPublicKey


class SshKeyFault(StrEnum):
    """Why a file of public keys is refused; the values are stable."""

    MALFORMED = "malformed"
    ALGORITHM = "algorithm"
    CERTIFICATE = "certificate"
    OPTIONS = "options"
    PRIVATE_KEY = "private_key"
    WEAK = "weak"
    EMPTY = "empty"
    REPEATED = "repeated"
    TOO_MANY = "too_many"


_SENTENCES: Final[Mapping[SshKeyFault, str]] = {
    SshKeyFault.MALFORMED: "This is no public key as ssh-keygen writes it: copy the line of the .pub file again.",
    SshKeyFault.ALGORITHM: "Keys of this algorithm are not taken: use Ed25519, ECDSA, RSA or a touch key of OpenSSH.",
    SshKeyFault.CERTIFICATE: "Certificates are not taken: register the public key itself.",
    SshKeyFault.OPTIONS: "A key has no options here: the line begins with the key's algorithm.",
    SshKeyFault.PRIVATE_KEY: "This is a private key: it is spent. Make another, and register its .pub file.",
    SshKeyFault.WEAK: f"This key is too weak: RSA needs {RSA_BITS_MIN} bits or more; or make an Ed25519 key.",
    SshKeyFault.EMPTY: "No public key is here: put the line of the .pub file in.",
    SshKeyFault.REPEATED: "The same key stands here twice.",
    SshKeyFault.TOO_MANY: f"More than {KEYS_MAX} keys, or a larger file than so many need.",
}


class SshKeyRefused(Fault):
    """A file of public keys cannot be taken; its sentence is fixed and repeats nothing of it.

    `line` counts from 1; None where the file as a whole is meant.
    """

    blame = "caller"

    def __init__(self, reason: SshKeyFault, line: int | None = None) -> None:
        """Remember why and where."""
        super().__init__(_SENTENCES[reason])
        self.args = (reason, line)
        self.reason = reason
        self.line = line


@dataclass(frozen=True, slots=True)
class SshKey:
    """One registered public key. `algorithm` and `fingerprint` follow from `blob`, and are checked against it.

    `fingerprint` is `SHA256:` and 43 base64 digits, as `ssh-keygen -lf` prints it.

    Raises:
        SshKeyRefused: the blob is no key that is taken, or the other two are not its own.
    """

    algorithm: str
    blob: bytes
    fingerprint: str

    def __post_init__(self) -> None:
        """Refuse what is no key of the rules above."""
        algorithm, _key = opened_key(self.blob)
        if (self.algorithm, self.fingerprint) != (algorithm, _fingerprint(self.blob)):
            raise SshKeyRefused(SshKeyFault.MALFORMED)


def read_public_keys(text: str) -> tuple[SshKey, ...]:
    """Return the 1 to 8 keys of a file, in its order: lines as in a `.pub` file; `#` lines and empty ones are skipped.

    Raises:
        SshKeyRefused: anything else stands there.
    """
    if type(text) is not str:
        raise SshKeyRefused(SshKeyFault.MALFORMED)
    if len(text) > FILE_CHARS_MAX:
        raise SshKeyRefused(SshKeyFault.TOO_MANY)
    keys: dict[bytes, SshKey] = {}
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.removesuffix("\r").strip(" \t")
        if not line or line.startswith("#"):
            continue
        try:
            key = _key_of(line)
        except SshKeyRefused as refused:
            raise SshKeyRefused(refused.reason, number) from None
        if key.blob in keys:
            raise SshKeyRefused(SshKeyFault.REPEATED, number)
        if len(keys) == KEYS_MAX:
            raise SshKeyRefused(SshKeyFault.TOO_MANY, number)
        keys[key.blob] = key
    if not keys:
        raise SshKeyRefused(SshKeyFault.EMPTY)
    return tuple(keys.values())


def opened_key(blob: bytes) -> tuple[str, PublicKey]:
    """Return the algorithm of a key blob (RFC 4253, section 6.6) and the key to check with.

    Raises:
        SshKeyRefused: it is no key that is taken.
    """
    if type(blob) is not bytes or len(blob) > BLOB_BYTES_MAX:
        raise SshKeyRefused(SshKeyFault.MALFORMED)
    reader = WireReader(blob)
    try:
        algorithm = reader.string(ALGORITHM_BYTES_MAX).decode("ascii")
        read = _READERS.get(algorithm)
        if read is None:
            raise SshKeyRefused(_fault_of_name(algorithm))
        key = read(reader)
        reader.end()
    except (WireBroken, UnicodeDecodeError, ValueError, UnsupportedAlgorithm):
        raise SshKeyRefused(SshKeyFault.MALFORMED) from None
    return algorithm, key


def application_of(blob: bytes) -> bytes:
    """Return the application of a touch key, which is the last field of its blob.

    Raises:
        WireBroken: the blob is no touch key that `opened_key` took.
    """
    reader = WireReader(blob)
    if reader.string(ALGORITHM_BYTES_MAX) == b"sk-ecdsa-sha2-nistp256@openssh.com":
        reader.string(BLOB_BYTES_MAX)
    reader.string(BLOB_BYTES_MAX)
    return reader.string(_APPLICATION_BYTES_MAX)


def _key_of(line: str) -> SshKey:
    if "PRIVATE KEY" in line or line.startswith("PuTTY-User-Key-File"):
        raise SshKeyRefused(SshKeyFault.PRIVATE_KEY)
    if not line.isprintable() and not line.replace("\t", " ").isprintable():
        raise SshKeyRefused(SshKeyFault.MALFORMED)
    named, _, rest = line.replace("\t", " ").partition(" ")
    if named not in _READERS:
        raise SshKeyRefused(_fault_of_line(named, rest))
    try:
        blob = base64_bytes(rest.lstrip(" ").partition(" ")[0])
    except WireBroken:
        raise SshKeyRefused(SshKeyFault.MALFORMED) from None
    return SshKey(named, blob, _fingerprint(blob))


def _fault_of_line(named: str, rest: str) -> SshKeyFault:
    """Say whether the first word is an option before a key that would be taken, or a key of another kind."""
    if any(word in _READERS for word in rest.split(" ")):
        return SshKeyFault.OPTIONS
    return _fault_of_name(named)


def _fault_of_name(algorithm: str) -> SshKeyFault:
    if "-cert-v0" in algorithm:
        return SshKeyFault.CERTIFICATE
    known = algorithm.startswith(("ssh-", "ecdsa-", "sk-", "webauthn-", "rsa-"))
    return SshKeyFault.ALGORITHM if known else SshKeyFault.MALFORMED


def _fingerprint(blob: bytes) -> str:
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode("ascii").rstrip("=")


def _ed25519(reader: WireReader) -> PublicKey:
    point = reader.string(_ED25519_BYTES)
    y = int.from_bytes(point, "little") & (2**255 - 1)
    if len(point) != _ED25519_BYTES or y >= ED25519_PRIME:
        raise WireBroken
    if y in SMALL_ORDER_Y:
        raise SshKeyRefused(SshKeyFault.WEAK)
    return ed25519.Ed25519PublicKey.from_public_bytes(point)


def _ecdsa(curve: ec.EllipticCurve, name: bytes) -> Callable[[WireReader], PublicKey]:
    """Return the reader of keys on one curve (RFC 5656, section 3.1); only uncompressed points have a place there."""
    point_bytes = 1 + 2 * ((curve.key_size + 7) // 8)

    def read(reader: WireReader) -> PublicKey:
        if reader.string(ALGORITHM_BYTES_MAX) != name:
            raise WireBroken
        point = reader.string(point_bytes)
        if len(point) != point_bytes or point[0] != 4:  # noqa: PLR2004  SEC 1, section 2.3.3: 04 is uncompressed
            raise WireBroken
        return ec.EllipticCurvePublicKey.from_encoded_point(curve, point)

    return read


def _rsa(reader: WireReader) -> PublicKey:
    exponent, modulus = reader.positive(_EXPONENT_BITS_MAX), reader.positive(RSA_BITS_MAX)
    if modulus.bit_length() < RSA_BITS_MIN or exponent <= _EXPONENT_MIN:
        raise SshKeyRefused(SshKeyFault.WEAK)
    return rsa.RSAPublicNumbers(exponent, modulus).public_key()


def _touch(read: Callable[[WireReader], PublicKey]) -> Callable[[WireReader], PublicKey]:
    def read_touch(reader: WireReader) -> PublicKey:
        key = read(reader)
        if not reader.string(_APPLICATION_BYTES_MAX).startswith(b"ssh:"):
            raise SshKeyRefused(SshKeyFault.ALGORITHM)
        return key

    return read_touch


_P256: Final = _ecdsa(ec.SECP256R1(), b"nistp256")
_READERS: Final[Mapping[str, Callable[[WireReader], PublicKey]]] = {
    "ssh-ed25519": _ed25519,
    "ecdsa-sha2-nistp256": _P256,
    "ecdsa-sha2-nistp384": _ecdsa(ec.SECP384R1(), b"nistp384"),
    "ecdsa-sha2-nistp521": _ecdsa(ec.SECP521R1(), b"nistp521"),
    "ssh-rsa": _rsa,
    "sk-ssh-ed25519@openssh.com": _touch(_ed25519),
    "sk-ecdsa-sha2-nistp256@openssh.com": _touch(_P256),
}
