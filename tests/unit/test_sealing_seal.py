"""A sealed permit opens in one place, in one spelling, under one key, and otherwise says nothing."""

import base64
import binascii
import dataclasses
import hashlib
import hmac
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV

from issuer.sealing import KeyRing, PermitClaims, SealBroken, open_permit, seal_permit
from issuer.sealing.seal import CLAIMS_BYTES_MAX, COSTS_ALWAYS_FIT, TOKEN_CHARS_MAX, _said
from ledger.errors import Broken
from tests.unit.test_sealing_keys import CANARY, OTHER, expected_subkey, ring_of

LEDGER = "ldg_0123456789abcdef0123456789abcdef"
EFFECT = "eff_0123456789abcdef0123456789abcdef"
OTHER_EFFECT = "eff_0123456789abcdef0123456789abcdee"
DIGEST = hashlib.sha256(b"binding").digest()
NONCE = bytes(range(12))
CLAIMS = PermitClaims(
    permit_id="pmt_0123456789abcdef0123456789abcdef",
    effect_id=EFFECT,
    task_id="tsk_0123456789abcdef0123456789abcdef",
    issued_ms=1_796_083_200_000,
    expires_ms=1_796_083_500_000,
    tier="issue",
    bundle_digest="sha256:" + "ab" * 32,
    costs={"EUR.cent": 90_000, "publish": 1},
)


@pytest.fixture
def ring(tmp_path: Path) -> KeyRing:
    return ring_of(tmp_path / "keys", {1: ("active", CANARY)})


def seal(ring: KeyRing, claims: PermitClaims = CLAIMS, nonce: bytes = NONCE) -> str:
    return seal_permit(
        ring, claims, ledger_id=LEDGER, effect_id=claims.effect_id, binding_digest=DIGEST, nonce=nonce
    )


def opened(ring: KeyRing, token: str) -> PermitClaims:
    return open_permit(ring, token, ledger_id=LEDGER, effect_id=EFFECT, binding_digest=DIGEST)


def spelled(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def raw_of(token: str) -> bytes:
    return base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))


def forged(
    plaintext: bytes,
    *,
    key_id: int = 1,
    root: bytes = CANARY,
    header: bytes | None = None,
    purpose: str = "seal",
) -> str:
    """Seal any plaintext with the right key, written out from the format and independent of our code."""
    head = b"PS\x01\x01" + key_id.to_bytes(4, "big") if header is None else header
    bound = head
    for part in (LEDGER.encode(), EFFECT.encode(), DIGEST):
        bound += len(part).to_bytes(4, "big") + part
    cipher = AESGCMSIV(expected_subkey(root, purpose, key_id))
    return spelled(head + NONCE + cipher.encrypt(NONCE, plaintext, bound))


def body() -> dict[str, Any]:
    claims = {field.name: getattr(CLAIMS, field.name) for field in dataclasses.fields(CLAIMS)}
    return {**claims, "costs": dict(CLAIMS.costs), "v": 1}


def dumped(document: object) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def test_the_cipher_is_the_one_of_rfc_8452() -> None:
    # Appendix C.2, first vector: empty plaintext, empty associated data.
    key = bytes([1]) + bytes(31)
    assert (
        AESGCMSIV(key).encrypt(bytes([3]) + bytes(11), b"", None).hex() == "07f5f4169bbf55a8400cd47ea6fd400f"
    )


@pytest.mark.spec("PER-02")
def test_a_permit_opens_where_it_was_sealed(ring: KeyRing) -> None:
    assert opened(ring, seal(ring)) == CLAIMS


@pytest.mark.spec("PER-02")
def test_the_format_is_what_the_documentation_says(ring: KeyRing) -> None:
    assert seal(ring) == forged(dumped(body()))


@pytest.mark.spec("PER-02")
def test_a_token_shows_nothing_of_its_claims(ring: KeyRing) -> None:
    raw = raw_of(seal(ring))
    assert raw[:8] == b"PS\x01\x01\x00\x00\x00\x01"
    for secret in (b"pmt_", b"eff_", b"tsk_", b"EUR", b"issue", CANARY):
        assert secret not in raw


@pytest.mark.spec("PER-02")
def test_no_single_bit_of_a_token_can_be_flipped(ring: KeyRing) -> None:
    token = seal(ring)
    raw = raw_of(token)
    for position in range(len(raw) * 8):
        flipped = bytearray(raw)
        flipped[position // 8] ^= 1 << position % 8
        with pytest.raises(SealBroken):
            opened(ring, spelled(bytes(flipped)))
    for position in range(len(token) * 8):
        text = bytearray(token.encode())
        text[position // 8] ^= 1 << position % 8
        with pytest.raises(SealBroken):
            opened(ring, text.decode("latin-1"))


@pytest.mark.spec("PER-02")
def test_no_token_can_be_cut_short_or_made_longer(ring: KeyRing) -> None:
    token = seal(ring)
    raw = raw_of(token)
    for length in range(len(token)):
        with pytest.raises(SealBroken):
            opened(ring, token[:length])
    for length in range(len(raw)):
        with pytest.raises(SealBroken):
            opened(ring, spelled(raw[:length]))
    for extra in (b"\x00", b"A", bytes(16)):
        for longer in (raw + extra, extra + raw):
            with pytest.raises(SealBroken):
                opened(ring, spelled(longer))


def with_unused_bits(token: str) -> str:
    """Change only bits of the last character that no byte is made of."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return token[:-1] + alphabet[alphabet.index(token[-1]) ^ 1]


RESPELLINGS: dict[str, Callable[[str], str]] = {
    "padded": lambda token: token + "=" * (-len(token) % 4 or 4),
    "one pad": lambda token: token + "=",
    "line end": lambda token: token + "\n",
    "leading space": lambda token: " " + token,
    "trailing space": lambda token: token + " ",
    "space inside": lambda token: token[:9] + " " + token[9:],
    "line end inside": lambda token: token[:9] + "\r\n" + token[9:],
    "junk inside": lambda token: token[:9] + "!" + token[9:],
    "zero byte": lambda token: token + "\x00",
    "wide letter": lambda token: "\uff21" + token[1:],
    "lone surrogate": lambda token: token + "\ud800",
    "prefix": lambda token: "pmt1." + token,
    "twice": lambda token: token + token,
    "lower case": str.lower,
    "empty": lambda _token: "",
    "one character": lambda _token: "A",
    "unused bits": with_unused_bits,
    "plain alphabet": lambda token: token.replace("-", "+").replace("_", "/"),
}


def token_of_shape(ring: KeyRing) -> str:
    """Return a token that needs padding and uses both letters in which the two base64 alphabets differ."""
    for number in range(10_000):
        claims = dataclasses.replace(CLAIMS, costs={"publish": 10 ** (number % 3)})
        token = seal(ring, claims, number.to_bytes(12, "big"))
        if len(token) % 4 and "-" in token and "_" in token:
            return token
    raise AssertionError


@pytest.mark.spec("PER-02")
@pytest.mark.parametrize("respell", RESPELLINGS.values(), ids=RESPELLINGS.keys())
def test_a_token_has_one_spelling(ring: KeyRing, respell: Callable[[str], str]) -> None:
    token = token_of_shape(ring)
    opened(ring, token)
    other = respell(token)
    assert other != token
    with pytest.raises(SealBroken):
        opened(ring, other)


@pytest.mark.spec("PER-02")
def test_the_unused_bits_really_decode_to_the_same_bytes(ring: KeyRing) -> None:
    token = token_of_shape(ring)
    assert raw_of(with_unused_bits(token)) == raw_of(token)


@pytest.mark.spec("PER-02")
@pytest.mark.parametrize("token", [None, b"token", 7, ["x"], True])
def test_what_is_not_text_is_not_a_token(ring: KeyRing, token: str) -> None:
    with pytest.raises(SealBroken):
        opened(ring, token)


@pytest.mark.spec("PER-02", "ADM-06")
@pytest.mark.parametrize(
    "place",
    [
        {"ledger_id": "ldg_1123456789abcdef0123456789abcdef"},
        {"ledger_id": LEDGER[:-1]},
        {"ledger_id": LEDGER + EFFECT},
        {"ledger_id": ""},
        {"ledger_id": "\ud800"},
        {"ledger_id": None},
        {"effect_id": OTHER_EFFECT},
        {"effect_id": EFFECT.upper()},
        {"effect_id": ""},
        {"effect_id": "\ud800"},
        {"effect_id": LEDGER, "ledger_id": EFFECT},
        {"effect_id": EFFECT[1:], "ledger_id": LEDGER + EFFECT[0]},
        {"binding_digest": hashlib.sha256(b"other").digest()},
        {"binding_digest": DIGEST[:31]},
        {"binding_digest": DIGEST + b"\x00"},
        {"binding_digest": b""},
        {"binding_digest": DIGEST.hex()},
    ],
)
def test_a_permit_cannot_move(ring: KeyRing, place: dict[str, Any]) -> None:
    token = seal(ring)
    where: dict[str, Any] = {"ledger_id": LEDGER, "effect_id": EFFECT, "binding_digest": DIGEST, **place}
    with pytest.raises(SealBroken):
        open_permit(ring, token, **where)


@pytest.mark.spec("PER-02")
def test_sealing_for_another_effect_than_the_claims_name_is_our_own_fault(ring: KeyRing) -> None:
    with pytest.raises(Broken):
        seal_permit(
            ring, CLAIMS, ledger_id=LEDGER, effect_id=OTHER_EFFECT, binding_digest=DIGEST, nonce=NONCE
        )


@pytest.mark.spec("PER-02")
def test_claims_for_another_effect_do_not_open_even_under_the_right_key(ring: KeyRing) -> None:
    with pytest.raises(SealBroken):
        opened(ring, forged(dumped({**body(), "effect_id": OTHER_EFFECT})))


@pytest.mark.spec("PER-02")
@pytest.mark.parametrize("nonce", [b"", bytes(11), bytes(13), bytes(16), bytearray(12), "x" * 12])
def test_a_nonce_is_twelve_bytes(ring: KeyRing, nonce: bytes) -> None:
    with pytest.raises(Broken):
        seal(ring, CLAIMS, nonce)


@pytest.mark.spec("PER-02", "SEC-03")
def test_an_old_permit_opens_after_rotation_and_new_ones_use_the_new_key(tmp_path: Path) -> None:
    before = ring_of(tmp_path / "before", {1: ("active", CANARY)})
    after = ring_of(tmp_path / "after", {1: ("open_only", CANARY), 2: ("active", OTHER)})
    old = seal(before)
    assert opened(after, old) == CLAIMS
    new = seal(after)
    assert raw_of(new)[4:8] == b"\x00\x00\x00\x02"
    with pytest.raises(SealBroken):
        opened(before, new)


@pytest.mark.spec("SEC-03")
def test_a_retired_key_opens_nothing(tmp_path: Path) -> None:
    token = seal(ring_of(tmp_path / "before", {1: ("active", CANARY)}))
    after = ring_of(tmp_path / "after", {1: ("retired", CANARY), 2: ("active", OTHER)})
    with pytest.raises(SealBroken):
        opened(after, token)


@pytest.mark.spec("PER-02")
def test_the_key_id_cannot_be_exchanged(tmp_path: Path) -> None:
    ring = ring_of(tmp_path / "keys", {1: ("open_only", CANARY), 2: ("active", OTHER)})
    raw = raw_of(seal(ring))
    for key_id in (0, 1, 3, 2**32 - 1):
        with pytest.raises(SealBroken):
            opened(ring, spelled(raw[:4] + key_id.to_bytes(4, "big") + raw[8:]))


@pytest.mark.spec("PER-02")
@pytest.mark.parametrize("purpose", ["protected", "head_mac", "row_mac", "repetition", "salts"])
def test_a_key_of_another_purpose_mints_nothing(ring: KeyRing, purpose: str) -> None:
    with pytest.raises(SealBroken):
        opened(ring, forged(dumped(body()), purpose=purpose))


@pytest.mark.spec("PER-02")
@pytest.mark.parametrize(
    "header",
    [
        b"PC\x01\x01\x00\x00\x00\x01",
        b"PS\x00\x01\x00\x00\x00\x01",
        b"PS\x02\x01\x00\x00\x00\x01",
        b"PS\x01\x00\x00\x00\x00\x01",
        b"PS\x01\x02\x00\x00\x00\x01",
    ],
)
def test_kind_format_and_algorithm_are_pinned(ring: KeyRing, header: bytes) -> None:
    with pytest.raises(SealBroken):
        opened(ring, forged(dumped(body()), header=header))


def without(key: str) -> bytes:
    return dumped({name: value for name, value in body().items() if name != key})


BAD_CLAIMS: dict[str, bytes] = {
    **{f"without {key}": without(key) for key in body()},
    "one key more": dumped({**body(), "note": ""}),
    "an array": dumped([body()]),
    "a text": b'"permit"',
    "nothing": b"",
    "not JSON": b"{",
    "other version": dumped({**body(), "v": 2}),
    "version true": dumped({**body(), "v": True}),
    "version text": dumped({**body(), "v": "1"}),
    "id is a number": dumped({**body(), "permit_id": 7}),
    "id is empty": dumped({**body(), "permit_id": ""}),
    "id too long": dumped({**body(), "task_id": "t" * 65}),
    "id with a space": dumped({**body(), "task_id": "tsk 1"}),
    "id with a line end": dumped({**body(), "task_id": "tsk1\n"}),
    "time is text": dumped({**body(), "issued_ms": "1"}),
    "time is true": dumped({**body(), "issued_ms": True}),
    "time is negative": dumped({**body(), "issued_ms": -1}),
    "time is a float": dumped({**body(), "expires_ms": 1.8e12}),
    "no lifetime": dumped({**body(), "expires_ms": body()["issued_ms"]}),
    "other tier": dumped({**body(), "tier": "root"}),
    "tier is null": dumped({**body(), "tier": None}),
    "bundle is null": dumped({**body(), "bundle_digest": None}),
    "costs is a list": dumped({**body(), "costs": [["EUR.cent", 1]]}),
    "costs is null": dumped({**body(), "costs": None}),
    "negative cost": dumped({**body(), "costs": {"EUR.cent": -1}}),
    "cost is true": dumped({**body(), "costs": {"EUR.cent": True}}),
    "cost is text": dumped({**body(), "costs": {"EUR.cent": "1"}}),
    "cost is a float": dumped({**body(), "costs": {"EUR.cent": 1.0}}),
    "cost too great": dumped({**body(), "costs": {"EUR.cent": 2**53}}),
    "unit is no name": dumped({**body(), "costs": {"EUR cent": 1}}),
    "repeated key": dumped(body())[:-1] + b',"v":1}',
    "repeated unit": dumped(body()).replace(b'"publish":1', b'"publish":1,"publish":1'),
    "white space": json.dumps(body(), sort_keys=True).encode(),
    "other order": json.dumps(dict(reversed(body().items())), separators=(",", ":")).encode(),
    "escaped letter": dumped(body()).replace(b'"issue"', b'"\\u0069ssue"'),
    "not UTF-8": dumped(body()).replace(b"issue", b"\xff\xfe\xfd\xfc\xfb"),
}


@pytest.mark.spec("PER-02")
@pytest.mark.parametrize("plaintext", BAD_CLAIMS.values(), ids=BAD_CLAIMS.keys())
def test_claims_are_read_strictly_even_under_the_right_key(ring: KeyRing, plaintext: bytes) -> None:
    assert opened(ring, forged(dumped(body()))) == CLAIMS
    with pytest.raises(SealBroken):
        opened(ring, forged(plaintext))


@pytest.mark.parametrize(
    "change",
    [
        {"permit_id": ""},
        {"effect_id": "eff 1"},
        {"task_id": None},
        {"issued_ms": True},
        {"issued_ms": -1},
        {"issued_ms": 1.0},
        {"expires_ms": CLAIMS.issued_ms},
        {"expires_ms": 2**53},
        {"tier": "deny"},
        {"tier": []},
        {"bundle_digest": "x" * 129},
        {"costs": {"EUR.cent": -1}},
        {"costs": {"EUR.cent": False}},
        {"costs": {"": 1}},
        {"costs": {1: 1}},
        {"costs": {f"unit_{number}": 2**53 - 1 for number in range(60)}},
    ],
)
def test_bad_claims_cannot_exist(change: dict[str, Any]) -> None:
    with pytest.raises(Broken):
        dataclasses.replace(CLAIMS, **change)


def test_claims_keep_their_own_costs() -> None:
    costs = {"EUR.cent": 1}
    claims = dataclasses.replace(CLAIMS, costs=costs)
    costs["EUR.cent"] = 2
    assert dict(claims.costs) == {"EUR.cent": 1}
    with pytest.raises(TypeError):
        claims.costs["EUR.cent"] = 3  # type: ignore[index]


@pytest.mark.spec("PER-02")
def test_the_greatest_claims_fit_the_greatest_token(ring: KeyRing) -> None:
    room = CLAIMS_BYTES_MAX - len(dumped({**body(), "costs": {"a": 1}}))
    # Every further unit `b…` costs its name, two quotes, a colon, a digit and a comma.
    names: list[str] = []
    while room >= 6:
        length = min(32, room - 5)
        if 0 < room - 5 - length < 6:
            length -= 6
        names.append(
            chr(ord("b") + len(names) % 24) + f"{len(names):02d}".ljust(length - 1, "x")[: length - 1]
        )
        room -= length + 5
    claims = dataclasses.replace(CLAIMS, costs={"a": 1, **dict.fromkeys(names, 1)})
    token = seal(ring, claims)
    assert TOKEN_CHARS_MAX - 2 <= len(token) <= TOKEN_CHARS_MAX
    assert opened(ring, token) == claims
    with pytest.raises(Broken):
        dataclasses.replace(claims, costs={**claims.costs, "a": 10})


@pytest.mark.spec("PER-02")
def test_a_few_units_always_fit_so_nobody_encodes_them_to_see_it() -> None:
    unit = ".".join("u" * 32 for _ in range(4))[:-2]
    claims = PermitClaims(
        permit_id="p" * 64,
        effect_id="e" * 64,
        task_id="t" * 64,
        issued_ms=2**53 - 2,
        expires_ms=2**53 - 1,
        tier="approval",
        bundle_digest="b" * 128,
        costs={f"{unit}{number:02}": 2**53 - 1 for number in range(COSTS_ALWAYS_FIT)},
    )
    assert len(_said(claims).encoded()) <= CLAIMS_BYTES_MAX


@pytest.mark.spec("PER-02")
def test_an_oversized_token_is_refused_before_it_is_decoded(
    ring: KeyRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_args: object, **_kwargs: object) -> bytes:
        raise AssertionError

    monkeypatch.setattr(binascii, "a2b_base64", never)
    with pytest.raises(SealBroken):
        opened(ring, "A" * (TOKEN_CHARS_MAX + 1))
    with pytest.raises(AssertionError):
        opened(ring, "A" * TOKEN_CHARS_MAX)


@pytest.mark.spec("PER-03")
def test_an_expired_permit_opens_because_time_is_judged_elsewhere(ring: KeyRing) -> None:
    claims = dataclasses.replace(CLAIMS, issued_ms=0, expires_ms=1)
    assert opened(ring, seal(ring, claims)) == claims


@pytest.mark.spec("SEC-01", "SEC-04")
def test_every_failure_looks_the_same_and_carries_nothing(ring: KeyRing) -> None:
    marker = "canary-payload"
    tokens = [
        "",
        marker,
        "A" * 5000,
        seal(ring)[:-1],
        forged(b"{"),
        forged(dumped({**body(), "note": marker})),
        forged(dumped(body()), key_id=2),
    ]
    seen = set()
    for token in tokens:
        with pytest.raises(SealBroken) as refused:
            opened(ring, token)
        fault = refused.value
        assert fault.__cause__ is None
        assert fault.__context__ is None
        line = refused.traceback[-1].lineno
        seen.add((str(fault), repr(fault), fault.args, line, tuple(vars(fault))))
        assert marker not in repr(vars(fault))
    assert len(seen) == 1
    assert str(pickle.loads(pickle.dumps(SealBroken()))) == str(SealBroken())  # noqa: S301  own bytes


def test_equal_permits_under_other_nonces_share_no_spelling(ring: KeyRing) -> None:
    first, second = raw_of(seal(ring)), raw_of(seal(ring, CLAIMS, bytes(12)))
    assert first[20:] != second[20:]
    assert not hmac.compare_digest(first[-16:], second[-16:])
