"""Whatever is sealed opens as itself; whatever was touched does not open; commitments never collide."""

import base64
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from issuer.sealing import (
    KeyRing,
    PermitClaims,
    SealBroken,
    commit,
    create_key_ring,
    open_key_ring,
    open_permit,
    permit_says,
    seal_permit,
)
from issuer.sealing.seal import _said
from ledger.canonical import WHOLE_MAX, canonical_bytes
from ledger.errors import Broken

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:/@+-"
LEDGER = "ldg_0"

names = st.text(LETTERS, min_size=1, max_size=64)
digests = st.binary(min_size=32, max_size=32)
nonces = st.binary(min_size=12, max_size=12)
costs = st.dictionaries(
    st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,9}(\.[a-z]{1,6})?", fullmatch=True),
    st.integers(0, WHOLE_MAX),
    max_size=8,
)


@st.composite
def claims(draw: st.DrawFn) -> PermitClaims:
    issued_ms = draw(st.integers(0, WHOLE_MAX - 1))
    return PermitClaims(
        permit_id=draw(names),
        effect_id=draw(names),
        task_id=draw(names),
        issued_ms=issued_ms,
        expires_ms=draw(st.integers(issued_ms + 1, WHOLE_MAX)),
        tier=draw(st.sampled_from(["issue", "approval"])),
        bundle_digest=draw(names),
        costs=draw(costs),
    )


SAID = ("permit_id", "task_id", "issued_ms", "expires_ms", "tier", "costs")
"""What the rows beside a seal say of it; its effect is the place it opens in, and its bundle is in no row."""

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=8)
scalars = st.none() | st.booleans() | st.integers(-WHOLE_MAX, WHOLE_MAX) | texts
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> KeyRing:
    folder: Path = tmp_path_factory.mktemp("sealing") / "keys"
    create_key_ring(folder, root=bytes(range(32)), key_id=7)
    return open_key_ring(folder)


@pytest.mark.spec("PER-02")
@given(claim=claims(), digest=digests, nonce=nonces)
def test_what_is_sealed_opens_as_itself(
    ring: KeyRing, claim: PermitClaims, digest: bytes, nonce: bytes
) -> None:
    token = seal_permit(
        ring, claim, ledger_id=LEDGER, effect_id=claim.effect_id, binding_digest=digest, nonce=nonce
    )
    found = open_permit(ring, token, ledger_id=LEDGER, effect_id=claim.effect_id, binding_digest=digest)
    assert found == claim


@pytest.mark.spec("PER-02")
@given(claim=claims(), digest=digests, nonce=nonces, data=st.data())
def test_a_touched_token_never_opens(
    ring: KeyRing, claim: PermitClaims, digest: bytes, nonce: bytes, data: st.DataObject
) -> None:
    token = seal_permit(
        ring, claim, ledger_id=LEDGER, effect_id=claim.effect_id, binding_digest=digest, nonce=nonce
    )
    start = data.draw(st.integers(0, len(token)))
    end = data.draw(st.integers(start, min(len(token), start + 8)))
    touched = token[:start] + data.draw(st.text(max_size=8)) + token[end:]
    if touched == token:
        return
    with pytest.raises(SealBroken):
        open_permit(ring, touched, ledger_id=LEDGER, effect_id=claim.effect_id, binding_digest=digest)


@pytest.mark.spec("PER-02")
@given(raw=st.binary(max_size=1600), wrong=st.text(max_size=40))
def test_no_stranger_makes_a_token_and_nothing_but_the_one_fault_comes_out(
    ring: KeyRing, raw: bytes, wrong: str
) -> None:
    head = b"PS\x01\x01\x00\x00\x00\x07"
    for token in (wrong, base64.urlsafe_b64encode(head + raw).rstrip(b"=").decode()):
        with pytest.raises(SealBroken):
            open_permit(ring, token, ledger_id=LEDGER, effect_id="eff_0", binding_digest=bytes(32))


@pytest.mark.spec("PER-02")
@given(claim=claims(), two_digests=st.tuples(digests, digests), place=st.text(max_size=20), nonce=nonces)
def test_no_token_opens_in_another_place(
    ring: KeyRing, claim: PermitClaims, two_digests: tuple[bytes, bytes], place: str, nonce: bytes
) -> None:
    digest, other = two_digests
    home = {"ledger_id": LEDGER, "effect_id": claim.effect_id}
    token = seal_permit(ring, claim, **home, binding_digest=digest, nonce=nonce)
    for moved in ({**home, "ledger_id": place}, {**home, "effect_id": place}):
        if moved != home:
            with pytest.raises(SealBroken):
                open_permit(ring, token, **moved, binding_digest=digest)
    if other != digest:
        with pytest.raises(SealBroken):
            open_permit(ring, token, **home, binding_digest=other)


@pytest.mark.spec("PER-02", "LED-06")
@given(
    two=st.tuples(claims(), claims()), changed=st.sets(st.sampled_from(SAID)), digest=digests, nonce=nonces
)
def test_a_permit_says_what_it_opens_as_and_nothing_else(
    ring: KeyRing, two: tuple[PermitClaims, PermitClaims], changed: set[str], digest: bytes, nonce: bytes
) -> None:
    """Two ways to ask one question: open it and compare, or compare what it should say."""
    claim, other = two
    place: dict[str, Any] = {"ledger_id": LEDGER, "effect_id": claim.effect_id}
    token = seal_permit(ring, claim, **place, binding_digest=digest, nonce=nonce)
    opened = open_permit(ring, token, **place, binding_digest=digest)
    said: dict[str, Any] = {name: getattr(other if name in changed else claim, name) for name in SAID}
    says = permit_says(ring, token, **place, binding_digest=digest, **said)
    assert says == all(getattr(opened, name) == said[name] for name in SAID)
    assert not permit_says(ring, token, **place, binding_digest=digest[1:] + b"x", **said)


@pytest.mark.spec("PER-02", "EFF-03")
@given(claim=claims())
def test_claims_are_written_as_the_one_encoding(claim: PermitClaims) -> None:
    document = {name: getattr(claim, name) for name in (*SAID, "effect_id", "bundle_digest")}
    expected = canonical_bytes({**document, "costs": dict(claim.costs), "v": 1})
    assert _said(claim).encoded() == expected


@pytest.mark.spec("EFF-10")
@given(
    first=st.tuples(st.binary(min_size=16, max_size=64), texts, values),
    second=st.tuples(st.binary(min_size=16, max_size=64), texts, values),
)
def test_commitments_are_equal_only_where_everything_is(
    first: tuple[bytes, str, object], second: tuple[bytes, str, object]
) -> None:
    for _, field, _ in (first, second):
        if not field:
            with pytest.raises(Broken):
                commit(first[0], field, None)
            return
    same = canonical_bytes(list(first[1:])) == canonical_bytes(list(second[1:])) and first[0] == second[0]
    assert (commit(*first) == commit(*second)) is same
