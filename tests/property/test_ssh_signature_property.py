"""Whatever bytes come in, reading a signature or a key ends in a key or in its one refusal."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from issuer.sealing import SignatureRefused, SshKeyRefused, read_public_keys, signer_of
from tests.support.ssh import ECDSA_TOUCH, ED25519_TOUCH, armor, signature_blob, string, touch_key, unarmor

MESSAGE = b"pays EUR 900.00"
TOUCHES = [touch_key(ED25519_TOUCH), touch_key(ECDSA_TOUCH)]
KEYS = tuple(key for touch in TOUCHES for key in read_public_keys(touch.line))
GOOD = [touch.sign(MESSAGE) for touch in TOUCHES]

names = st.sampled_from(
    [
        b"ssh-ed25519",
        b"ssh-rsa",
        b"ecdsa-sha2-nistp256",
        b"nistp256",
        ED25519_TOUCH.encode(),
        ECDSA_TOUCH.encode(),
    ]
)
parts = st.one_of(names, st.binary(max_size=80)).map(string)
fields = st.lists(st.one_of(parts, st.binary(max_size=9)), max_size=6).map(b"".join)


def refused(armored: str) -> None:
    with pytest.raises(SignatureRefused):
        signer_of(MESSAGE, armored, KEYS)


@pytest.mark.spec("APP-01")
@given(
    st.one_of(
        st.text(), st.binary().map(armor), st.text().map(lambda text: f"{GOOD[0][:29]}{text}{GOOD[0][-28:]}")
    )
)
def test_no_text_is_more_than_refused(armored: str) -> None:
    refused(armored)


@pytest.mark.spec("APP-01")
@given(fields, fields)
def test_no_fields_are_more_than_refused(public: bytes, signature: bytes) -> None:
    refused(armor(signature_blob(public, signature)))
    for touch in TOUCHES:
        refused(armor(signature_blob(touch.blob, signature)))


@pytest.mark.spec("APP-01")
@given(st.data())
def test_what_was_changed_anywhere_is_refused(data: st.DataObject) -> None:
    good = unarmor(data.draw(st.sampled_from(GOOD)))
    start = data.draw(st.integers(0, len(good)))
    end = data.draw(st.integers(start, min(len(good), start + 8)))
    changed = good[:start] + data.draw(st.binary(max_size=8)) + good[end:]
    if changed != good:
        refused(armor(changed))


@pytest.mark.spec("SEC-03")
@given(st.one_of(st.text(), st.tuples(names, fields).map(lambda pair: spelled(*pair))))
def test_every_text_is_keys_or_refused(text: str) -> None:
    try:
        keys = read_public_keys(text)
    except SshKeyRefused:
        return
    assert all(base64.b64encode(key.blob).decode() in text for key in keys)


def spelled(name: bytes, rest: bytes) -> str:
    return f"{name.decode()} {base64.b64encode(string(name) + rest).decode()}"
