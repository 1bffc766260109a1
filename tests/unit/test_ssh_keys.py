"""Which public keys are taken, in which spelling, and what is said of the others."""

import base64
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from issuer.sealing import SshKey, SshKeyRefused, read_public_keys
from issuer.sealing.ssh_keys import KEYS_MAX
from tests.support.ssh import (
    ECDSA_TOUCH,
    ED25519_TOUCH,
    make_key,
    mpint,
    needs_ssh_keygen,
    string,
    touch_key,
)

PRIME = 2**255 - 19


def ed25519_blob(point: bytes | None = None) -> bytes:
    fresh = ed25519.Ed25519PrivateKey.generate().public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    return string(b"ssh-ed25519") + string(fresh if point is None else point)


def line(blob: bytes, name: str = "ssh-ed25519") -> str:
    return f"{name} {base64.b64encode(blob).decode()}"


def p256(form: PublicFormat = PublicFormat.UncompressedPoint) -> bytes:
    return ec.generate_private_key(ec.SECP256R1()).public_key().public_bytes(Encoding.X962, form)


def rsa_blob(bits: int, exponent: int = 65537) -> bytes:
    return string(b"ssh-rsa") + mpint(exponent) + mpint((1 << bits - 1) | 1)


def refused(text: Any) -> tuple[str, int | None]:
    with pytest.raises(SshKeyRefused) as caught:
        read_public_keys(text)
    assert "canary" not in str(caught.value)
    return caught.value.reason.value, caught.value.line


GOOD = line(ed25519_blob())
NAME = "ecdsa-sha2-nistp256"


def curve(point: bytes, curve_name: bytes = b"nistp256") -> str:
    return line(string(NAME.encode()) + string(curve_name) + string(point), NAME)


def touch(application: bytes) -> str:
    return touch_key(ED25519_TOUCH, application).line


@pytest.mark.spec("SEC-03")
def test_lines_are_read_in_their_order_and_comments_are_nobodys() -> None:
    first, second = line(ed25519_blob()), touch_key(ECDSA_TOUCH).line.strip()
    text = f"# Dana's keys\r\n\r\n{first} dana's  laptop, ünder the desk\r\n\t\n  {second}\n# canary"
    keys = read_public_keys(text)
    assert [key.algorithm for key in keys] == ["ssh-ed25519", ECDSA_TOUCH]
    assert keys == read_public_keys(f"{first}\n{second}")
    assert all(key.fingerprint.startswith("SHA256:") and len(key.fingerprint) == 50 for key in keys)


NO_KEYS: list[tuple[Any, ...]] = [
    ("no text", b"x", "malformed"),
    ("nothing", "", "empty"),
    ("comments only", "# canary\n\n", "empty"),
    ("words", "canary is not a key", "malformed"),
    ("the name alone", "ssh-ed25519", "malformed"),
    ("an option before it", f"no-touch-required {GOOD}", "options"),
    ("an option with spaces", f'command="echo canary" {GOOD}', "options"),
    ("a certificate", "ssh-ed25519-cert-v01@openssh.com AAAA canary", "certificate"),
    ("DSA", "ssh-dss AAAAB3NzaC1kc3M= canary", "algorithm"),
    ("a webauthn key", "webauthn-sk-ecdsa-sha2-nistp256@openssh.com AAAA", "algorithm"),
    ("no base64", "ssh-ed25519 canary!", "malformed"),
    ("base64 with spare bits", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB==", "malformed"),
    ("without its padding", line(string(b"ssh-ed25519") + string(b"x" * 31)).rstrip("="), "malformed"),
    ("a byte too many", line(ed25519_blob() + b"\0"), "malformed"),
    ("a byte too few", line(ed25519_blob()[:-1]), "malformed"),
    ("a short point", line(ed25519_blob(b"x" * 31)), "malformed"),
    ("a point beyond the prime", line(ed25519_blob((PRIME + 2).to_bytes(32, "little"))), "malformed"),
    ("another algorithm inside", line(ed25519_blob(), "ssh-rsa"), "malformed"),
    ("a control character", f"{GOOD} \x1b[2Jcanary", "malformed"),
    ("a zero byte", f"{GOOD}\0", "malformed"),
    ("a lone carriage return", f"{GOOD} x\ry", "malformed"),
    ("a private key", "-----BEGIN OPENSSH PRIVATE KEY-----\ncanary\n", "private_key"),
    ("PuTTY's private key", "PuTTY-User-Key-File-3: ssh-ed25519\ncanary\n", "private_key"),
    ("RSA, 3071 bits", line(rsa_blob(3071), "ssh-rsa"), "weak"),
    ("RSA, 2048 bits", line(rsa_blob(2048), "ssh-rsa"), "weak"),
    ("RSA, exponent 3", line(rsa_blob(3072, 3), "ssh-rsa"), "weak"),
    ("RSA, a giant exponent", line(rsa_blob(3072, 1 << 32 | 1), "ssh-rsa"), "malformed"),
    ("RSA, an even exponent", line(rsa_blob(3072, 1 << 20), "ssh-rsa"), "malformed"),
    ("RSA, beyond every use", line(rsa_blob(16_385), "ssh-rsa"), "malformed"),
    ("RSA, a spare zero", line(rsa_blob(3072).replace(string(b"\1\0\1"), string(b"\0\1\0\1")), "ssh-rsa"),
     "malformed"),
    ("a compressed point", curve(p256(PublicFormat.CompressedPoint)), "malformed"),
    ("a point that is on no curve", curve(b"\4" + b"\1" * 64), "malformed"),
    ("another curve's name", curve(p256(), b"nistp384"), "malformed"),
    ("a web site's touch key", touch(b"https://example.org"), "algorithm"),
    ("a touch key without application", touch(b""), "algorithm"),
]  # fmt: skip


@pytest.mark.spec("SEC-03")
@pytest.mark.parametrize(
    ("what", "text", "reason"), NO_KEYS,
    ids=[row[0] for row in NO_KEYS],
)  # fmt: skip
def test_what_is_no_key_of_a_person(what: str, text: Any, reason: str) -> None:
    assert refused(text)[0] == reason
    if type(text) is str and reason != "empty":
        assert refused(f"{GOOD}\n# two\n{text}") == (reason, 3), what


@pytest.mark.spec("SEC-03")
def test_keys_of_one_person_are_few_and_different() -> None:
    many = [line(ed25519_blob()) for _ in range(KEYS_MAX + 1)]
    assert len(read_public_keys("\n".join(many[:-1]))) == KEYS_MAX
    assert refused("\n".join(many)) == ("too_many", KEYS_MAX + 1)
    assert refused(f"{GOOD}\n{GOOD} other words") == ("repeated", 2)
    assert refused("#" * 65_537) == ("too_many", None)


def doubled(point: tuple[int, int]) -> tuple[int, int]:
    """Add a point of Ed25519 to itself (RFC 8032, section 5.1.4)."""
    x, y = point
    d = -121665 * pow(121666, -1, PRIME) % PRIME
    cross = d * x * x * y * y % PRIME
    return (
        2 * x * y * pow(1 + cross, -1, PRIME) % PRIME,
        (y * y + x * x) * pow(1 - cross, -1, PRIME) % PRIME,
    )


def points_of_order_eight() -> set[int]:
    """Find the y of every point whose order divides 8: its double's double's double is the neutral one."""
    d = -121665 * pow(121666, -1, PRIME) % PRIME
    root = pow(2, (PRIME - 1) // 4, PRIME)
    # The double of a point of order 8 has order 4, so its y is 0 and y**2 == -x**2. On the curve that makes
    # d*u**2 + 2*u - 1 == 0 with u == y**2.
    found = {0, 1, PRIME - 1}
    square = pow(4 + 4 * d, (PRIME + 3) // 8, PRIME)
    if square * square % PRIME != (4 + 4 * d) % PRIME:
        square = square * root % PRIME
    for sign in (1, -1):
        candidate = (-2 + sign * square) * pow(2 * d, -1, PRIME) % PRIME
        y = pow(candidate, (PRIME + 3) // 8, PRIME)
        for value in (y, y * root % PRIME):
            x = value * root % PRIME
            on_curve = (value * value - x * x - 1 - d * x * x * value * value) % PRIME == 0
            if value * value % PRIME == candidate and on_curve:
                assert doubled(doubled(doubled((x, value)))) == (0, 1)
                found |= {value, PRIME - value}
    return found


@pytest.mark.spec("SEC-03")
def test_an_ed25519_key_of_small_order_is_no_key() -> None:
    small = points_of_order_eight()
    assert len(small) == 5
    for y in small:
        for sign in (0, 1 << 255):
            assert refused(line(ed25519_blob((y | sign).to_bytes(32, "little")))) == ("weak", 1)


@pytest.mark.spec("SEC-03")
def test_a_key_cannot_be_made_of_parts_that_do_not_belong_together() -> None:
    (key,) = read_public_keys(GOOD)
    (other,) = read_public_keys(line(ed25519_blob()))
    for parts in ((key.algorithm, key.blob, other.fingerprint), ("ssh-rsa", key.blob, key.fingerprint)):
        with pytest.raises(SshKeyRefused):
            SshKey(*parts)


@needs_ssh_keygen
@pytest.mark.spec("SEC-03")
def test_a_weak_rsa_key_of_ssh_keygen_is_told_what_to_do(tmp_path: Path) -> None:
    assert refused(make_key(tmp_path / "key", "rsa", 2048)) == ("weak", 1)
    assert refused((tmp_path / "key").read_text(encoding="utf-8")) == ("private_key", 1)
