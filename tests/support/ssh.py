"""People's keys and signatures: made by the real `ssh-keygen` where there is one, and touch keys made of software.

A software authenticator signs what PROTOCOL.u2f says a real one signs; the private key is drawn in the test. Where
`ssh-keygen` is not on the machine, people's own keys are made and used by software too: Ed25519, in OpenSSH's own file
format, signing as PROTOCOL.sshsig says. What is about `ssh-keygen` itself is marked `needs_ssh_keygen`, and skipped.
"""

import base64
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
)

SSH_KEYGEN = shutil.which("ssh-keygen")
needs_ssh_keygen = pytest.mark.skipif(SSH_KEYGEN is None, reason="ssh-keygen is not on this machine")

COMMENT = "dana@example.org"
"""What stands behind a key in its `.pub` file."""

ED25519_TOUCH = "sk-ssh-ed25519@openssh.com"
ECDSA_TOUCH = "sk-ecdsa-sha2-nistp256@openssh.com"


def string(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def mpint(value: int) -> bytes:
    return string(value.to_bytes(value.bit_length() // 8 + 1, "big"))


def keygen(*arguments: str, stdin: bytes = b"") -> str:
    """Run ssh-keygen and return what it prints."""
    assert SSH_KEYGEN is not None
    done = subprocess.run([SSH_KEYGEN, *arguments], input=stdin, capture_output=True, check=True, timeout=60)
    return done.stdout.decode()


def make_key(path: Path, kind: str = "ed25519", bits: int = 0) -> str:
    """Make a key pair without a passphrase at `path`, and return the line of its `.pub` file."""
    if SSH_KEYGEN is None:
        return software_key(path, kind)
    size = ["-b", str(bits)] if bits else []
    keygen("-q", "-t", kind, *size, "-N", "", "-C", COMMENT, "-f", str(path))
    return Path(f"{path}.pub").read_text(encoding="utf-8")


@cache
def _pair(name: str) -> tuple[bytes, str]:
    """Make the key pair of a person, once in this process; return the private file and the public line."""
    with tempfile.TemporaryDirectory() as folder:
        line = make_key(Path(folder) / name)
        return (Path(folder) / name).read_bytes(), line


def hand_keys(names: Iterable[str], *, private: Path, public: Path) -> Mapping[str, Path]:
    """Give each person their key pair, and the owner of an issuer the public halves; return the private files.

    A name has the same key wherever one process asks: making eight takes longer than making the issuer. Between two
    issuers of a test it is the harder case: what was signed for one is refused by the other for what it says.
    """
    private.mkdir(parents=True)
    public.mkdir(parents=True)
    for name in names:
        key, line = _pair(name)
        (private / name).touch(mode=0o600)
        (private / name).write_bytes(key)
        (private / f"{name}.pub").write_text(line, encoding="utf-8")
        (public / f"{name}.pub").write_text(line, encoding="utf-8")
    return {name: private / name for name in names}


def sign(key: Path, message: bytes, namespace: str = "permit-issuer", hash_name: str = "sha512") -> str:
    """Sign as a person would, with the message on standard input."""
    if SSH_KEYGEN is None:
        return software_signature(key, message, namespace, hash_name)
    return keygen(
        "-Y", "sign", "-q", "-O", f"hashalg={hash_name}", "-n", namespace, "-f", str(key), stdin=message
    )


def software_key(path: Path, kind: str) -> str:
    """Do what `ssh-keygen` does for an Ed25519 key: a private file, and a `.pub` beside it."""
    assert kind == "ed25519", f"only ssh-keygen makes keys of the kind {kind}"
    private = ed25519.Ed25519PrivateKey.generate()
    path.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    path.chmod(0o600)
    public = private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    line = f"{public} {COMMENT}\n"
    Path(f"{path}.pub").write_text(line, encoding="utf-8")
    return line


def software_signature(key: Path, message: bytes, namespace: str, hash_name: str) -> str:
    """Return what `ssh-keygen -Y sign` prints for an Ed25519 key without a passphrase."""
    private = load_ssh_private_key(key.read_bytes(), None)
    assert isinstance(private, ed25519.Ed25519PrivateKey)
    named = string(b"ssh-ed25519")
    public = named + string(private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))
    where, by = namespace.encode(), hash_name.encode()
    signature = named + string(private.sign(signed_data(message, where, by)))
    return armor(signature_blob(public, signature, namespace=where, hash_name=by))


def openssh_accepts(message: bytes, armored: str, folder: Path, namespace: str = "permit-issuer") -> bool:
    """Ask OpenSSH itself whether the signature holds, whoever made it."""
    assert SSH_KEYGEN is not None
    place = folder / "asked.sig"
    place.write_text(armored, encoding="ascii")
    command = [SSH_KEYGEN, "-Y", "check-novalidate", "-n", namespace, "-s", str(place)]
    return (
        subprocess.run(command, input=message, capture_output=True, check=False, timeout=60).returncode == 0
    )


def armor(blob: bytes) -> str:
    text = base64.b64encode(blob).decode()
    lines = [text[start : start + 70] for start in range(0, len(text), 70)]
    return "\n".join(["-----BEGIN SSH SIGNATURE-----", *lines, "-----END SSH SIGNATURE-----", ""])


def unarmor(armored: str) -> bytes:
    return base64.b64decode("".join(armored.splitlines()[1:-1]))


def signature_blob(
    public: bytes,
    signature: bytes,
    *,
    magic: bytes = b"SSHSIG",
    version: int = 1,
    namespace: bytes = b"permit-issuer",
    reserved: bytes = b"",
    hash_name: bytes = b"sha512",
) -> bytes:
    fields = (public, namespace, reserved, hash_name, signature)
    return magic + version.to_bytes(4, "big") + b"".join(string(field) for field in fields)


def signed_data(
    message: bytes,
    namespace: bytes = b"permit-issuer",
    hash_name: bytes = b"sha512",
    reserved: bytes = b"",
) -> bytes:
    digest = hashlib.new(hash_name.decode(), message).digest()
    return b"SSHSIG" + b"".join(string(field) for field in (namespace, reserved, hash_name, digest))


@dataclass(frozen=True)
class TouchKey:
    """A software authenticator of one of the two kinds that OpenSSH has."""

    private: ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey
    application: bytes = b"ssh:"

    @property
    def algorithm(self) -> str:
        return ED25519_TOUCH if isinstance(self.private, ed25519.Ed25519PrivateKey) else ECDSA_TOUCH

    @property
    def blob(self) -> bytes:
        named = string(self.algorithm.encode())
        if isinstance(self.private, ed25519.Ed25519PrivateKey):
            raw = self.private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
            return named + string(raw) + string(self.application)
        point = self.private.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        return named + string(b"nistp256") + string(point) + string(self.application)

    @property
    def line(self) -> str:
        return f"{self.algorithm} {base64.b64encode(self.blob).decode()} dana@example.org\n"

    def signature(self, signed: bytes, *, flags: int = 1, counter: int = 7) -> bytes:
        """Return the signature field of a blob: what the authenticator answers, in SSH's form."""
        tail = bytes([flags]) + counter.to_bytes(4, "big")
        data = hashlib.sha256(self.application).digest() + tail + hashlib.sha256(signed).digest()
        if isinstance(self.private, ed25519.Ed25519PrivateKey):
            body = self.private.sign(data)
        else:
            body = b"".join(
                map(mpint, decode_dss_signature(self.private.sign(data, ec.ECDSA(hashes.SHA256()))))
            )
        return string(self.algorithm.encode()) + string(body) + tail

    def sign(self, message: bytes, *, namespace: bytes = b"permit-issuer", flags: int = 1) -> str:
        """Return an armored signature of `message`."""
        signature = self.signature(signed_data(message, namespace), flags=flags)
        return armor(signature_blob(self.blob, signature, namespace=namespace))


def touch_key(algorithm: str, application: bytes = b"ssh:") -> TouchKey:
    if algorithm == ED25519_TOUCH:
        return TouchKey(ed25519.Ed25519PrivateKey.generate(), application)
    return TouchKey(ec.generate_private_key(ec.SECP256R1()), application)
