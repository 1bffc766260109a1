"""People's keys that sign in the process of a test, where starting `ssh-keygen` each time would take too long."""

import base64
import hashlib
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.support.ssh import armor, signature_blob, signed_data, string


@dataclass(frozen=True)
class SoftKey:
    """A person's key that signs in this process, as `ssh-keygen` would with an Ed25519 key."""

    private: Ed25519PrivateKey

    @property
    def blob(self) -> bytes:
        raw = self.private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        return string(b"ssh-ed25519") + string(raw)

    @property
    def line(self) -> str:
        return f"ssh-ed25519 {base64.b64encode(self.blob).decode()} someone@example.org\n"

    @property
    def fingerprint(self) -> str:
        digest = base64.b64encode(hashlib.sha256(self.blob).digest()).decode().rstrip("=")
        return f"SHA256:{digest}"

    @property
    def secret(self) -> str:
        """The private key in hex, for a file of the test."""
        return self.private.private_bytes_raw().hex()

    def sign(self, message: bytes) -> str:
        """Return an armored signature of `message`."""
        signature = string(b"ssh-ed25519") + string(self.private.sign(signed_data(message)))
        return armor(signature_blob(self.blob, signature))


def soft_key(secret: str = "") -> SoftKey:
    """Return the key of a secret in hex, or a new one."""
    raw = bytes.fromhex(secret)
    return SoftKey(Ed25519PrivateKey.from_private_bytes(raw) if raw else Ed25519PrivateKey.generate())
