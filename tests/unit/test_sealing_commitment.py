"""A commitment binds a field and its value; a content key tells repetition; neither tells a value."""

import hashlib
import hmac
from collections.abc import Callable

import pytest

from issuer.sealing import CONTENT_KEY_PARTS, CommitmentBroken, commit, content_key, verify
from ledger.errors import Broken, Malformed

SALT = bytes(range(16))
SUBKEY = bytes(range(32))
PARTS: dict[str, object] = {
    "operation": "payments.pay",
    "payload": {"amount": 90_000, "memo": "invoice 7"},
    "resource": "vendor:acme",
    "destination": "https://bank.example/pay",
    "subject": "user:ada",
}


@pytest.mark.spec("EFF-10")
def test_an_approver_can_recompute_a_commitment_with_the_standard_library() -> None:
    message = b"permit-issuer/commitment/v1\x00" + b"\x00\x10" + b'["iban",{"a":1,"b":[true,null,"x"]}]'
    expected = hmac.new(SALT, message, hashlib.sha256).hexdigest()
    value = {"b": [True, None, "x"], "a": 1}
    assert commit(SALT, "iban", value) == expected
    verify(SALT, "iban", value, expected)


@pytest.mark.spec("EFF-10")
def test_every_change_gives_another_commitment() -> None:
    cases: list[tuple[bytes, str, object]] = [
        (SALT, "iban", "DE00"),
        (SALT, "iban", "DE01"),
        (SALT, "iban", None),
        (SALT, "iban", ["DE00"]),
        (SALT, "iban", 1),
        (SALT, "iban", "1"),
        (SALT, "iban", True),
        (SALT, "iban ", "DE00"),
        (SALT, 'iban","DE00', ""),
        (SALT[::-1], "iban", "DE00"),
        # HMAC itself takes a key and the same key with zeros behind it for one.
        (SALT + b"\x00", "iban", "DE00"),
        (SALT + bytes(48), "iban", "DE00"),
    ]
    assert len({commit(*case) for case in cases}) == len(cases)
    right = commit(*cases[0])
    for salt, field, value in cases[1:]:
        with pytest.raises(CommitmentBroken):
            verify(salt, field, value, right)


@pytest.mark.spec("EFF-10")
@pytest.mark.parametrize("salt", [b"", bytes(15), bytes(65), "x" * 16, bytearray(16)])
def test_a_weak_salt_commits_to_nothing(salt: bytes) -> None:
    with pytest.raises(Broken):
        commit(salt, "iban", "DE00")
    with pytest.raises(Broken):
        verify(salt, "iban", "DE00", "0" * 64)


@pytest.mark.parametrize("field", ["", None, 7])
def test_a_field_has_a_name(field: str) -> None:
    with pytest.raises(Broken):
        commit(SALT, field, "DE00")


@pytest.mark.spec("EFF-05")
@pytest.mark.parametrize("value", [1.5, float("nan"), 2**53, b"x", {1: 1}, "\ud800", {"x": {1}}])
def test_what_has_no_canonical_form_has_no_commitment(value: object) -> None:
    with pytest.raises(Malformed):
        commit(SALT, "iban", value)


@pytest.mark.spec("EFF-10")
@pytest.mark.parametrize(
    "respell", [str.upper, lambda c: c + "\n", lambda c: c[:-1], lambda _: "", lambda c: c.encode()]
)
def test_a_commitment_has_one_spelling(respell: Callable[[str], str]) -> None:
    right = commit(SALT, "memo", "hello")
    with pytest.raises(CommitmentBroken):
        verify(SALT, "memo", "hello", respell(right))


@pytest.mark.spec("SEC-01")
def test_a_broken_commitment_shows_nothing() -> None:
    with pytest.raises(CommitmentBroken) as refused:
        verify(b"canary-salt-1234", "memo", "canary-value", "0" * 64)
    assert "canary" not in str(refused.value) + repr(refused.value) + repr(vars(refused.value))
    assert refused.value.__context__ is None


@pytest.mark.spec("EFF-03")
def test_a_content_key_is_a_keyed_hash_of_the_five_parts() -> None:
    message = (
        b'permit-issuer/content-key/v1\x00{"destination":"https://bank.example/pay","operation":"payments.pay",'
        b'"payload":{"amount":90000,"memo":"invoice 7"},"resource":"vendor:acme","subject":"user:ada"}'
    )
    assert content_key(SUBKEY, PARTS) == hmac.new(SUBKEY, message, hashlib.sha256).digest()


@pytest.mark.spec("EFF-03")
@pytest.mark.parametrize("part", sorted(CONTENT_KEY_PARTS))
def test_every_part_counts_and_none_may_be_missing(part: str) -> None:
    assert content_key(SUBKEY, {**PARTS, part: "other"}) != content_key(SUBKEY, PARTS)
    with pytest.raises(Broken):
        content_key(SUBKEY, {key: value for key, value in PARTS.items() if key != part})


@pytest.mark.spec("EFF-03")
def test_a_content_key_depends_on_the_key_and_on_nothing_else() -> None:
    assert content_key(SUBKEY, dict(reversed(PARTS.items()))) == content_key(SUBKEY, PARTS)
    assert content_key(SUBKEY[::-1], PARTS) != content_key(SUBKEY, PARTS)
    with pytest.raises(Broken):
        content_key(SUBKEY, {**PARTS, "request_id": "1"})
    for subkey in (b"", SUBKEY[:31], SUBKEY + b"x"):
        with pytest.raises(Broken):
            content_key(subkey, PARTS)
