"""A signature of a registered OpenSSH key, over exactly these bytes, for us: or nothing."""

import base64
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ed25519, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from issuer.sealing import SignatureRefused, SshKey, read_public_keys, signer_of
from issuer.sealing.ssh_signature import ARMORED_CHARS_MAX
from tests.support.ssh import (
    ECDSA_TOUCH,
    ED25519_TOUCH,
    armor,
    keygen,
    make_key,
    mpint,
    needs_ssh_keygen,
    openssh_accepts,
    sign,
    signature_blob,
    signed_data,
    software_key,
    software_signature,
    string,
    touch_key,
    unarmor,
)

MESSAGE = b"permit-issuer approval v1\neffect: eff_1\npays: EUR 900.00\n"
KINDS = [("ed25519", 0), ("ecdsa", 256), ("ecdsa", 384), ("ecdsa", 521), ("rsa", 3072)]


class Signer:
    """An Ed25519 key of the test itself: its blob, and what it signs under any field."""

    def __init__(self) -> None:
        self.private = ed25519.Ed25519PrivateKey.generate()
        raw = self.private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.blob = string(b"ssh-ed25519") + string(raw)
        (self.key,) = read_public_keys(f"ssh-ed25519 {base64.b64encode(self.blob).decode()}")

    def body(self, signed: bytes, algorithm: bytes = b"ssh-ed25519") -> bytes:
        return string(algorithm) + string(self.private.sign(signed))

    def armored(self, message: bytes = MESSAGE) -> str:
        return armor(signature_blob(self.blob, self.body(signed_data(message))))


DANA, OTHER = Signer(), Signer()


def refused(message: bytes, armored: Any, *keys: SshKey) -> str:
    with pytest.raises(SignatureRefused) as caught:
        signer_of(message, armored, keys)
    assert MESSAGE.decode() not in str(caught.value)
    return caught.value.reason.value


@needs_ssh_keygen
@pytest.mark.spec("APP-01")
@pytest.mark.parametrize("hash_name", ["sha256", "sha512"])
@pytest.mark.parametrize(("kind", "bits"), KINDS)
def test_what_ssh_keygen_signs_is_its_keys(tmp_path: Path, kind: str, bits: int, hash_name: str) -> None:
    (key,) = read_public_keys(make_key(tmp_path / "key", kind, bits))
    (other,) = read_public_keys(make_key(tmp_path / "other", "ed25519"))
    armored = sign(tmp_path / "key", MESSAGE, hash_name=hash_name)
    assert openssh_accepts(MESSAGE, armored, tmp_path)
    assert signer_of(MESSAGE, armored, [other, key]) == key
    assert signer_of(MESSAGE, armored.replace("\n", "\r\n"), [key]) == key
    assert key.fingerprint in keygen("-l", "-f", str(tmp_path / "key.pub")).split()
    assert refused(MESSAGE + b" ", armored, key) == "bad_signature"
    assert refused(MESSAGE, armored, other) == "unknown_key"
    assert refused(MESSAGE, armored) == "unknown_key"


@needs_ssh_keygen
@pytest.mark.spec("APP-01", "SEC-02")
@pytest.mark.parametrize("namespace", ["git", "file", "permit-issuer2", "Permit-issuer", "permit-issue"])
def test_a_signature_made_for_something_else_says_nothing_here(tmp_path: Path, namespace: str) -> None:
    (key,) = read_public_keys(make_key(tmp_path / "key"))
    armored = sign(tmp_path / "key", MESSAGE, namespace)
    assert openssh_accepts(MESSAGE, armored, tmp_path, namespace)
    assert refused(MESSAGE, armored, key) == "namespace"
    # Renaming it in the blob does not help: the name is signed.
    renamed = unarmor(armored).replace(string(namespace.encode()), string(b"permit-issuer"))
    assert refused(MESSAGE, armor(renamed), key) == "bad_signature"


@needs_ssh_keygen
@pytest.mark.spec("APP-01")
@pytest.mark.parametrize("algorithm", [ED25519_TOUCH, ECDSA_TOUCH])
@pytest.mark.parametrize("flags", [0x01, 0x05, 0x1D])
def test_a_touch_keys_signature_is_its_keys(tmp_path: Path, algorithm: str, flags: int) -> None:
    touch = touch_key(algorithm)
    (key,) = read_public_keys(touch.line)
    armored = touch.sign(MESSAGE, flags=flags)
    assert openssh_accepts(MESSAGE, armored, tmp_path)
    assert signer_of(MESSAGE, armored, [key]) == key
    (tmp_path / "key.pub").write_text(touch.line, encoding="ascii")
    assert key.fingerprint in keygen("-l", "-f", str(tmp_path / "key.pub")).split()


@needs_ssh_keygen
@pytest.mark.spec("APP-01")
def test_software_stands_in_for_ssh_keygen_where_there_is_none(tmp_path: Path) -> None:
    place = tmp_path / "key"
    (key,) = read_public_keys(software_key(place, "ed25519"))
    by_software = software_signature(place, MESSAGE, "permit-issuer", "sha512")
    assert openssh_accepts(MESSAGE, by_software, tmp_path)
    # Ed25519 is deterministic: the same key says the same, whoever turns it.
    assert sign(place, MESSAGE) == by_software
    assert signer_of(MESSAGE, by_software, [key]) == key


@pytest.mark.spec("APP-01", "SEC-02")
@pytest.mark.parametrize("algorithm", [ED25519_TOUCH, ECDSA_TOUCH])
@pytest.mark.parametrize("flags", [0x00, 0x04, 0x1C, 0xFE])
def test_without_a_touch_a_touch_key_signs_nothing(algorithm: str, flags: int) -> None:
    touch = touch_key(algorithm)
    keys = read_public_keys(touch.line)
    assert refused(MESSAGE, touch.sign(MESSAGE, flags=flags), *keys) == "presence"
    # Nor with the bit set afterwards: the flags are signed.
    signature = bytearray(touch.signature(signed_data(MESSAGE), flags=flags))
    signature[-5] |= 1
    reason = refused(MESSAGE, armor(signature_blob(touch.blob, bytes(signature))), *keys)
    assert reason == ("malformed" if flags & 0xE2 else "bad_signature")


@pytest.mark.spec("APP-01")
@pytest.mark.parametrize("flags", [0x03, 0x21, 0x41, 0x81])
def test_flags_that_announce_more_than_ssh_carries_are_not_understood(flags: int) -> None:
    touch = touch_key(ED25519_TOUCH)
    assert refused(MESSAGE, touch.sign(MESSAGE, flags=flags), *read_public_keys(touch.line)) == "malformed"


@pytest.mark.spec("APP-01")
def test_a_touch_key_of_another_application_signs_for_that_one_alone() -> None:
    touch = touch_key(ED25519_TOUCH, b"ssh:work")
    foreign = type(touch)(touch.private, b"ssh:home")
    keys = read_public_keys(touch.line)
    assert signer_of(MESSAGE, touch.sign(MESSAGE), keys) == keys[0]
    signature = foreign.signature(signed_data(MESSAGE))
    assert refused(MESSAGE, armor(signature_blob(touch.blob, signature)), *keys) == "bad_signature"


@pytest.mark.spec("APP-01")
def test_an_ssh_server_login_of_a_touch_key_is_no_approval() -> None:
    # The plain message is signed, as at a login, and wrapped as if it had been for us.
    touch = touch_key(ED25519_TOUCH)
    armored = armor(signature_blob(touch.blob, touch.signature(MESSAGE)))
    assert refused(MESSAGE, armored, *read_public_keys(touch.line)) == "bad_signature"


def bits_of(data: bytes) -> list[bytes]:
    return [
        data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
        for at in range(len(data))
        for bit in range(8)
    ]


@pytest.mark.spec("APP-01")
@pytest.mark.parametrize("kind", ["ssh-ed25519", ED25519_TOUCH, ECDSA_TOUCH])
def test_no_bit_may_flip(kind: str) -> None:
    if kind == "ssh-ed25519":
        key, armored = DANA.key, DANA.armored()
    else:
        touch = touch_key(kind)
        (key,), armored = read_public_keys(touch.line), touch.sign(MESSAGE)
    assert signer_of(MESSAGE, armored, [key]) == key
    for blob in bits_of(unarmor(armored)):
        refused(MESSAGE, armor(blob), key)
    for message in bits_of(MESSAGE):
        assert refused(message, armored, key) == "bad_signature"


def test_the_blob_of_the_table_below_is_good_but_for_what_a_row_changes() -> None:
    assert signer_of(MESSAGE, DANA.armored(), [OTHER.key, DANA.key]) == DANA.key


def blob(signed: bytes | None = None, **fields: Any) -> str:
    """Sign a blob of other fields as those fields say, so that only a look at the field itself refuses it."""
    body = DANA.body(signed if signed is not None else signed_data(MESSAGE))
    return armor(signature_blob(fields.pop("public", DANA.blob), fields.pop("signature", body), **fields))


GOOD = DANA.armored()
RAW = unarmor(GOOD)
LINES = GOOD.splitlines()
SIGNED = signed_data(MESSAGE)
MD5 = b"SSHSIG" + b"".join(map(string, (b"permit-issuer", b"", b"md5", hashlib.md5(MESSAGE).digest())))  # noqa: S324
SHA1 = b"SSHSIG" + b"".join(map(string, (b"permit-issuer", b"", b"sha1", hashlib.sha1(MESSAGE).digest())))  # noqa: S324
SHA384 = signed_data(MESSAGE, hash_name=b"sha384")


WRONG: list[tuple[Any, ...]] = [
    ("nothing", "", "malformed"),
    ("no text", GOOD.encode(), "malformed"),
    ("the blob alone", base64.b64encode(RAW).decode(), "malformed"),
    ("a line before it", "\n" + GOOD, "malformed"),
    ("a line after it", GOOD + "\n", "malformed"),
    ("a second signature after it", GOOD + GOOD, "malformed"),
    ("no end", "\n".join(LINES[:-1]), "malformed"),
    ("an empty line inside", "\n".join([*LINES[:2], "", *LINES[2:]]), "malformed"),
    ("one long line", f"{LINES[0]}\n{''.join(LINES[1:-1])}\n{LINES[-1]}\n", "malformed"),
    ("a space inside", GOOD.replace("AAAA", "AA AA", 1), "malformed"),
    ("a letter of another script", GOOD.replace("A", "Α", 1), "malformed"),  # noqa: RUF001
    ("half a surrogate pair", GOOD.replace("A", "\ud800", 1), "malformed"),
    ("far too long", GOOD + " " * ARMORED_CHARS_MAX, "malformed"),
    ("another magic", blob(magic=b"SSHSIH"), "malformed"),
    ("version 0", blob(version=0), "malformed"),
    ("version 2", blob(version=2), "malformed"),
    ("one byte more", armor(RAW + b"\0"), "malformed"),
    ("one byte less", armor(RAW[:-1]), "malformed"),
    ("a word in what is reserved", blob(signed_data(MESSAGE, reserved=b"x"), reserved=b"x"), "malformed"),
    ("no namespace", blob(signed_data(MESSAGE, b""), namespace=b""), "namespace"),
    ("made for git", blob(signed_data(MESSAGE, b"git"), namespace=b"git"), "namespace"),
    ("a zero byte after ours", blob(SIGNED, namespace=b"permit-issuer\0"), "namespace"),
    ("MD5", blob(MD5, hash_name=b"md5"), "hash"),
    ("SHA-1", blob(SHA1, hash_name=b"sha1"), "hash"),
    ("SHA-384", blob(SHA384, hash_name=b"sha384"), "hash"),
    ("another spelling of a hash", blob(SIGNED, hash_name=b"SHA512"), "hash"),
    ("no hash", blob(SIGNED, hash_name=b""), "hash"),
    ("the other hash", blob(SIGNED, hash_name=b"sha256"), "bad_signature"),
    ("a DSA key", blob(public=string(b"ssh-dss") + string(b"x")), "algorithm"),
    ("a certificate", blob(public=string(b"ssh-ed25519-cert-v01@openssh.com")), "algorithm"),
    ("a key with one byte more", blob(public=DANA.blob + b"\0"), "malformed"),
    ("no key", blob(public=b""), "malformed"),
    ("the key of another", blob(public=OTHER.blob), "unknown_key"),
    ("another name of the algorithm", blob(signature=DANA.body(SIGNED, b"ssh-rsa")), "algorithm"),
    ("a touch key's name", blob(signature=DANA.body(SIGNED, ED25519_TOUCH.encode())), "algorithm"),
    ("flags after the signature", blob(signature=DANA.body(SIGNED) + b"\1\0\0\0\7"), "malformed"),
    ("a short signature", blob(signature=string(b"ssh-ed25519") + string(b"x" * 63)), "malformed"),
    ("a long signature", blob(signature=string(b"ssh-ed25519") + string(b"x" * 65)), "malformed"),
    ("no signature", blob(signature=b""), "malformed"),
    ("the message itself signed", blob(MESSAGE), "bad_signature"),
    ("another's signature", blob(signature=OTHER.body(SIGNED)), "bad_signature"),
    ("zeros", blob(signature=string(b"ssh-ed25519") + string(bytes(64))), "bad_signature"),
]  # fmt: skip


@pytest.mark.spec("APP-01")
@pytest.mark.parametrize(
    ("what", "armored", "reason"), WRONG,
    ids=[row[0] for row in WRONG],
)  # fmt: skip
def test_each_way_to_be_wrong_has_its_word(what: str, armored: Any, reason: str) -> None:
    assert (
        refused(MESSAGE, armored, DANA.key, OTHER.key if what != "the key of another" else DANA.key) == reason
    )


@pytest.mark.spec("APP-01")
@pytest.mark.parametrize("message", [MESSAGE.decode(), bytearray(MESSAGE), None])
def test_only_bytes_are_a_message(message: Any) -> None:
    assert refused(message, GOOD, DANA.key) == "malformed"


@pytest.mark.spec("APP-01")
def test_an_rsa_key_signs_with_sha_2_only() -> None:
    private = rsa.generate_private_key(65537, 3072)
    numbers = private.public_key().public_numbers()
    public = string(b"ssh-rsa") + mpint(numbers.e) + mpint(numbers.n)
    keys = read_public_keys(f"ssh-rsa {base64.b64encode(public).decode()}")

    def signed(name: bytes, algorithm: hashes.HashAlgorithm, change: Callable[[bytes], bytes] = bytes) -> str:
        body = change(private.sign(SIGNED, padding.PKCS1v15(), algorithm))
        return armor(signature_blob(public, string(name) + string(body)))

    for name, algorithm in ((b"rsa-sha2-256", hashes.SHA256()), (b"rsa-sha2-512", hashes.SHA512())):
        assert signer_of(MESSAGE, signed(name, algorithm), keys) == keys[0]
    assert refused(MESSAGE, signed(b"ssh-rsa", hashes.SHA1()), *keys) == "algorithm"  # noqa: S303
    assert refused(MESSAGE, signed(b"rsa-sha2-384", hashes.SHA384()), *keys) == "algorithm"
    assert refused(MESSAGE, signed(b"rsa-sha2-512", hashes.SHA256()), *keys) == "bad_signature"
    for change in (lambda body: b"\0" + body, lambda body: body[:-1], lambda _body: b""):
        assert refused(MESSAGE, signed(b"rsa-sha2-512", hashes.SHA512(), change), *keys) == "malformed"


@pytest.mark.spec("APP-01")
@pytest.mark.parametrize(
    "numbers",
    [
        mpint(0) + mpint(1),
        string(b"") + mpint(1),
        string(b"\xff") + mpint(1),
        string(b"\x00\x01") + mpint(1),
        mpint(1 << 256) + mpint(1),
        mpint(1),
        mpint(1) + mpint(1) + b"\0",
    ],
)
def test_numbers_of_a_curve_have_one_spelling(numbers: bytes) -> None:
    touch = touch_key(ECDSA_TOUCH)
    signature = string(ECDSA_TOUCH.encode()) + string(numbers) + b"\1\0\0\0\7"
    armored = armor(signature_blob(touch.blob, signature))
    assert refused(MESSAGE, armored, *read_public_keys(touch.line)) == "malformed"
